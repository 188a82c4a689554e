/* chat_calls_impl.h: what the readers of calls share. */
#ifndef CHIMERE_TEXT_CHAT_CALLS_IMPL_H
#define CHIMERE_TEXT_CHAT_CALLS_IMPL_H

#include "text/chat/chat_impl.h"

enum chat_call_state {
    C_OPEN,       /* blanks, then what selects the form */
    C_OPEN_FENCE, /* ```json inside the mark */
    C_FUNCTION,   /* the tag before the name */
    C_NAME,       /* up to name_end */
    C_BODY,       /* a parameter or the end */
    C_KEY,        /* up to key_end */
    C_VALUE_OPEN, /* value_open */
    C_VALUE,      /* up to what may end it */
    C_VALUE_END,  /* something that may have ended it was read: does what follows agree? */
    C_OBJ_FIRST,  /* " or } */
    C_OBJ_KEY,    /* inside the key */
    C_COLON,
    C_OBJ_VALUE,   /* inside the value */
    C_OBJ_START,   /* blanks before the value */
    C_OBJ_NEXT,    /* , or } */
    C_OBJ_COMMA,   /* " */
    C_OBJ_MISSING, /* an end mark in place of the last } */
    C_ARRAY,       /* a call or ] */
    C_ARRAY_TEXT,  /* a call as a JSON string */
    C_ARRAY_NEXT,  /* , or ] */
    C_ARGS_START,  /* blanks before an argument object that stands alone */
    C_ARGS,        /* inside it */
    C_ARGS_END,    /* </function> after it */
    C_HEAD,        /* up to { */
    C_MISTRAL_NAME,
    C_MISTRAL_MARK, /* [ARGS] or [CALL_ID] */
    C_MISTRAL_ID,
    C_DS_BEGIN, /* the first call of the list */
    C_DS_HEAD,  /* up to the separator */
    C_DS_SEP,   /* { or a name */
    C_DS_NAME,  /* up to the line's end */
    C_DS_FENCE, /* ``` and json, or { */
    C_FRAME,    /* the head of a message of harmony */
    C_GEMMA,    /* call: */
    C_GEMMA_NAME,
    C_PY_NAME, /* up to ( */
    C_BARE,    /* after a [ without a mark */
    C_CODE,    /* code up to the end of the text */
    C_TAIL,    /* no call open: end marks are swallowed */
};

#define CHAT_MAX_NAME 128

bool chat_is_blank(char c);
/* The byte does not belong to a call: what was read becomes text, the byte is looked at afresh. */
void chat_call_reject(struct chat_parser *p, char c, const char *reason);
/* Adds c to the mark that is being read in look: its number, -1 not yet clear, -2 none of them. */
int chat_choose(struct chat_parser *p, char c, const char *const *marks, size_t n);
size_t chat_list(const char **to, size_t n, const char *const *from); /* appends; the new n */
void chat_look_clear(struct chat_parser *p);
bool chat_name_ok(const struct buf *b);
void chat_trim_name(struct buf *b);
void chat_call_done(struct chat_parser *p); /* the call's text is complete; end marks may follow */
void chat_args_start(struct chat_parser *p,
                     char c); /* { of an argument object; the name is known */

/* chat_calls_tags.c */
void chat_tags_byte(struct chat_parser *p, char c);
/* The text ends inside a value that quotes a call: reads it again as if it quoted none. False: it does not. */
bool chat_tags_eof(struct chat_parser *p);

/* chat_calls_named.c */
void chat_named_byte(struct chat_parser *p, char c);
bool chat_frame_eof(struct chat_parser *p); /* a head that names no recipient: it is dropped */
bool chat_code_eof(struct chat_parser *p);  /* code that only the end of the text ends */

#endif
