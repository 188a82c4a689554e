/* chat_impl.h: what the files of the output parser share.
 *
 *   chat_parse.c        text -> content, reasoning, calls; events; the message
 *   chat_form.c         the table of forms of calls
 *   chat_calls.c        reads a call: opening and closing marks, JSON forms
 *   chat_calls_tags.c   forms with a tag per parameter
 *   chat_calls_named.c  forms with a name before the arguments; Python calls
 *   chat_json.c         JSON byte by byte, made strict on the way
 *   chat_types.c        types of parameters from a schema
 *
 * Everything is a machine that takes one byte at a time, so that the pieces in which text arrives
 * cannot matter; only the joining of deltas looks at where a piece ends. */
#ifndef CHIMERE_TEXT_CHAT_IMPL_H
#define CHIMERE_TEXT_CHAT_IMPL_H

#include "text/chat/chat_form_impl.h"
#include "text/chat/chat_json_impl.h"

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
    bool is_repaired;  /* the call's text was not quite of its form */
    bool has_other;    /* a member was read that no call has */
    bool is_flat;      /* a value's text is not searched for calls that it quotes */
    bool is_replayed;  /* the byte comes from a string inside the call, not from the text */
    bool has_end;      /* an end mark was read after the call */
    uint32_t n_nested; /* calls that the value quotes and that are open */
    struct buf nested; /* the value's text from where it may have ended */
    const struct chat_form *form; /* static */
    struct chat_json json;
    struct chat_result result;
};

/* chat_calls.c: a call begins after a mark of its form. */
void chat_call_open(struct chat_parser *p, const char *mark);
/* One byte of a call. Ends with chat_call_fail, chat_call_leave, or stays in CHAT_IN_CALL. */
void chat_call_byte(struct chat_parser *p, char c);
void chat_call_eof(struct chat_parser *p, bool is_cut);

/* chat_parse.c, for the others */
void chat_feed(struct chat_parser *p, char c); /* the next byte, whatever it is in */
void chat_call_begin(struct chat_parser *p);   /* p->name is known: arguments may stream */
bool chat_call_end(struct chat_parser *p);     /* complete; false: it failed and is text now */
void chat_call_fail(struct chat_parser *p, const char *reason); /* raw becomes text */
void chat_call_cut(struct chat_parser *p);   /* the text ended inside it: nothing is completed */
void chat_call_leave(struct chat_parser *p); /* nothing open: what follows is text */

#endif
