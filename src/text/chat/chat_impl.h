/* chat_impl.h: shared by the files of the output parser.
 *
 *   chat_parse.c        text -> content, reasoning, calls; events; the message
 *   chat_form.c         the table of forms of calls
 *   chat_calls.c        reads a call: opening and closing marks, JSON forms
 *   chat_calls_tags.c   forms with a tag per parameter
 *   chat_calls_named.c  forms with a name before the arguments; Python calls
 *   chat_json.c         JSON byte by byte, converted to strict JSON
 *   chat_types.c        types of parameters from a schema
 *
 * Every part is a state machine that takes one byte at a time, so the size of the pieces in which text arrives
 * does not matter. Only the joining of deltas depends on where a piece ends. */
#ifndef CHIMERE_TEXT_CHAT_IMPL_H
#define CHIMERE_TEXT_CHAT_IMPL_H

#include "text/chat/chat_form_impl.h"
#include "text/chat/chat_json_impl.h"

enum chat_mode { CHAT_IN_TEXT, CHAT_IN_THINK, CHAT_IN_CALL };

struct chat_parser {
    struct chat_parse_spec spec;
    int rc;
    enum chat_mode mode, outer; /* outer: the mode around the call */
    bool skip_space;            /* drop blanks at the start of a section */
    bool any_content, any_reasoning;
    bool after_call;    /* only blanks and closing marks since the last call */
    struct buf space;   /* blanks that are dropped if a call or the end follows */
    struct buf held;    /* the beginning of a possible mark */
    struct buf pending; /* text that is not reported yet, of kind pending_kind */
    enum chat_event_kind pending_kind;
    struct buf content, reasoning; /* text of the message so far */
    json_t *calls;                 /* owned array */
    unsigned char utf8[4];
    uint32_t n_utf8;
    /* the call that is being read: */
    struct buf raw; /* text of the call so far, including the blanks before it */
    struct buf name, id, key, value, args, look;
    size_t n_look; /* bytes of look before the mark that may begin there */
    size_t n_sent; /* bytes of args that were reported */
    int n_begun, index;
    bool is_begun, has_args; /* has_args: a parameter or an argument object was read */
    bool in_array, is_wrapped,
        is_bare;              /* is_bare: JSON without any mark, which may be plain content */
    bool first_byte, as_text; /* of a parameter's value; as_text: it is reported as a JSON string */
    unsigned types;           /* possible types of the parameter */
    uint8_t state;
    bool is_repaired;  /* the call's text did not have exactly its form */
    bool has_other;    /* a member was read that no call has */
    bool is_flat;      /* quoted calls in the value are not searched for */
    bool is_replayed;  /* the byte comes from a string inside the call, not from the text */
    bool has_end;      /* an end mark was read after the call */
    uint32_t n_nested; /* number of open calls that the value quotes */
    struct buf nested; /* text of the value from its possible end on */
    const struct chat_form *form; /* static */
    struct chat_json json;
    struct chat_result result;
};

/* chat_calls.c: begins a call after a mark of its form. */
void chat_call_open(struct chat_parser *p, const char *mark);
/* Processes one byte of a call. Ends with chat_call_fail or chat_call_leave, or stays in CHAT_IN_CALL. */
void chat_call_byte(struct chat_parser *p, char c);
void chat_call_eof(struct chat_parser *p, bool is_cut);

/* chat_parse.c, for the other files */
void chat_feed(struct chat_parser *p, char c); /* processes the next byte, in any mode */
void chat_call_begin(struct chat_parser *p);   /* p->name is known: arguments may be reported */
/* the call is complete; false: it failed and became text */
bool chat_call_end(struct chat_parser *p);
void chat_call_fail(struct chat_parser *p, const char *reason); /* raw becomes text */
/* the text ended inside the call, which is not completed */
void chat_call_cut(struct chat_parser *p);
void chat_call_leave(struct chat_parser *p); /* no call is open: text follows */

#endif
