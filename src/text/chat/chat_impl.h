/* chat_impl.h: what the files of the output parser share.
 *
 *   chat_parse.c   text -> content, reasoning, calls; events; the message
 *   chat_calls.c   the forms in which models write calls, byte by byte
 *   chat_json.c    JSON byte by byte, made strict on the way
 *   chat_types.c   types of parameters from a schema
 *
 * Everything is a machine that takes one byte at a time, so that the pieces in which text arrives
 * cannot matter; only the joining of deltas looks at where a piece ends. */
#ifndef CHIMERE_TEXT_CHAT_CHAT_IMPL_H
#define CHIMERE_TEXT_CHAT_CHAT_IMPL_H

#include "base/buf.h"
#include "text/chat/chat.h"
#include "text/chat/chat_types.h"

/* ---- JSON ---- */

#define CHAT_JSON_DEPTH 256 /* nesting of arguments */

enum chat_json_status {
    CHAT_JSON_MORE,
    CHAT_JSON_DONE,   /* the value ended with this byte */
    CHAT_JSON_BEFORE, /* the value ended before this byte, which was not taken (numbers) */
    CHAT_JSON_BAD,
};

struct chat_json {
    struct buf *out; /* borrowed: the value, without blanks; NULL drops it */
    uint8_t state;
    bool is_key, comma; /* in a string that is a key; a comma waits for what follows it */
    char first;         /* first byte of the value: tells its type */
    uint32_t depth;
    bool in_object[CHAT_JSON_DEPTH];
    uint32_t n_hex, hex, high; /* \u escape; high surrogate that waits for its partner */
    uint32_t n_word;
    char word[160]; /* number or literal so far */
};

void chat_json_init(struct chat_json *j, struct buf *out);
enum chat_json_status chat_json_push(struct chat_json *j, char c);
void chat_json_escape(struct buf *out, const char *s, size_t n); /* inside of a JSON string */

/* Value text as JSON of one of the types, as a JSON string where it is none of them. */
void chat_put_value(struct buf *out, const char *s, size_t n, unsigned types);

/* ---- parser ---- */

enum chat_mode { CHAT_IN_TEXT, CHAT_IN_THINK, CHAT_IN_CALL };

struct chat_parser {
    struct chat_parse_spec spec;
    int rc;
    enum chat_mode mode, outer; /* outer: mode around the call */
    bool skip_space;            /* blanks at the start of a section are dropped */
    bool any_content, any_reasoning;
    bool after_call;    /* only blanks and closing marks since the last call */
    struct buf space;   /* blanks that may turn out to stand before a call or at an end */
    struct buf held;    /* a beginning of a mark */
    struct buf pending; /* text to report, of pending_kind */
    enum chat_event_kind pending_kind;
    struct buf content, reasoning; /* of the message */
    json_t *calls;                 /* owned array */
    unsigned char utf8[4];
    uint32_t n_utf8;
    /* the call that is being read */
    struct buf raw; /* its text so far, with the blanks before it */
    struct buf name, id, key, value, args, look;
    size_t n_look; /* of look: what stands before the mark that may come */
    size_t n_sent; /* of args */
    int n_begun, index;
    bool is_begun, has_args; /* has_args: a parameter or an argument object was read */
    bool in_array, is_wrapped,
        is_bare;              /* is_bare: JSON without any mark, may well be plain content */
    bool first_byte, as_text; /* of a parameter's value; it streams as a JSON string */
    unsigned types;           /* of the parameter */
    uint8_t state;
    struct chat_json json;
    struct chat_result result;
};

/* chat_calls.c: a call begins behind a mark; false: not a mark of a call. */
size_t chat_call_marks(enum chat_calls calls, const char *const **marks);
void chat_call_open(struct chat_parser *p, const char *mark);
/* One byte of a call. Ends with chat_call_fail, chat_call_leave, or stays in CHAT_IN_CALL. */
void chat_call_byte(struct chat_parser *p, char c);
void chat_call_eof(struct chat_parser *p, bool is_cut);

/* chat_parse.c, for chat_calls.c */
void chat_feed(struct chat_parser *p, char c); /* the next byte, whatever it is in */
void chat_call_begin(struct chat_parser *p);   /* p->name is known: arguments may stream */
bool chat_call_end(struct chat_parser *p);     /* complete; false: it failed and is text now */
void chat_call_fail(struct chat_parser *p, const char *reason); /* raw becomes text */
void chat_call_cut(struct chat_parser *p);   /* the text ended inside it: nothing is completed */
void chat_call_leave(struct chat_parser *p); /* nothing open: what follows is text */

#endif
