/* chat_calls_impl.h: shared by the readers of calls. */
#ifndef CHIMERE_TEXT_CHAT_CALLS_IMPL_H
#define CHIMERE_TEXT_CHAT_CALLS_IMPL_H

#include "text/chat/chat_impl.h"

enum chat_call_state {
    C_OPEN,       /* blanks, then the byte that selects the form */
    C_OPEN_FENCE, /* ```json inside the mark */
    C_FUNCTION,   /* the tag before the name */
    C_NAME,       /* up to name_end */
    C_BODY,       /* a parameter or the end */
    C_KEY,        /* up to key_end */
    C_VALUE_OPEN, /* value_open */
    C_VALUE,      /* up to what may be the end of the value */
    C_VALUE_END,  /* a possible end of the value was read: check whether the text after it agrees */
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
    C_ARGS_START,  /* blanks before an argument object without a call object around it */
    C_ARGS,        /* inside that object */
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
    C_FRAME,    /* the head of a harmony message */
    C_GEMMA,    /* call: */
    C_GEMMA_NAME,
    C_PY_NAME, /* up to ( */
    C_BARE,    /* after a [ without a mark */
    C_CODE,    /* code up to the end of the text */
    C_TAIL,    /* no open call: end marks are dropped */
};

#define CHAT_MAX_NAME 128

bool chat_is_blank(char c);
/* The byte does not belong to a call: the bytes read so far become text, and the byte is processed again. */
void chat_call_reject(struct chat_parser *p, char c, const char *reason);
/* Adds c to the mark in look. Returns the index of the mark, -1 if it is not clear yet, -2 if no mark matches. */
int chat_choose(struct chat_parser *p, char c, const char *const *marks, size_t n);
/* appends a list of words; returns the new n */
size_t chat_list(const char **to, size_t n, const char *const *from);
void chat_look_clear(struct chat_parser *p);
bool chat_name_ok(const struct buf *b);
void chat_trim_name(struct buf *b);
void chat_call_done(struct chat_parser *p); /* the call's text is complete; end marks may follow */
void chat_args_start(struct chat_parser *p,
                     char c); /* c is the { of an argument object; the name is known */

/* chat_calls_tags.c */
void chat_tags_byte(struct chat_parser *p, char c);
/* The text ends inside a value that quotes a call: parses the value again as if it quoted none. Returns false if
 * it quotes none. */
bool chat_tags_eof(struct chat_parser *p);

/* chat_calls_named.c */
void chat_named_byte(struct chat_parser *p, char c);
/* the text ends in a head without a recipient; the head is dropped */
bool chat_frame_eof(struct chat_parser *p);
bool chat_code_eof(struct chat_parser *p); /* code that is only ended by the end of the text */

#endif
