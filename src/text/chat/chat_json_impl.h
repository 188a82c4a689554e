/* chat_json_impl.h: JSON byte by byte, made strict on the way. */
#ifndef CHIMERE_TEXT_CHAT_JSON_IMPL_H
#define CHIMERE_TEXT_CHAT_JSON_IMPL_H

#include "base/buf.h"
#include "text/chat/chat.h"
#include "text/chat/chat_types.h"

#define CHAT_JSON_DEPTH 256 /* nesting of arguments */

enum chat_json_status {
    CHAT_JSON_MORE,
    CHAT_JSON_DONE,   /* the value ended with this byte */
    CHAT_JSON_BEFORE, /* the value ended before this byte, which was not taken (numbers) */
    CHAT_JSON_BAD,
};

/* Numbers that jansson refuses (integers beyond 64 bits, reals beyond double precision): as written, as a string
 * that a NUL marks as a number (jinja's tojson writes it without quotes), or as the nearest double. */
enum chat_json_numbers { CHAT_JSON_AS_WRITTEN, CHAT_JSON_MARKED, CHAT_JSON_NEAREST };
enum chat_json_dialect { CHAT_JSON_PLAIN, CHAT_JSON_PYTHON, CHAT_JSON_GEMMA };

struct chat_json {
    struct buf *out; /* borrowed: the value, without blanks; NULL drops it */
    uint8_t state, dialect, numbers, number; /* dialect and numbers are set after init */
    size_t n_before;                         /* of out: where the number begins */
    bool is_key, comma; /* in a string that is a key; a comma waits for what follows it */
    bool is_repaired;   /* the text was not quite JSON */
    char first;         /* first byte of the value: tells its type */
    uint32_t depth;
    char close[CHAT_JSON_DEPTH]; /* closing brackets; '=' is the ) of a call's arguments */
    uint32_t n_hex, hex, high;   /* \u escape; high surrogate that waits for its partner */
    char quote;                  /* of the string; '<' is a mark */
    bool is_triple;
    uint32_t n_quote, n_text, n_mark;
    const char *mark; /* static */
    uint32_t n_word;
    char word[160]; /* number so far, as far as it fits */
};

void chat_json_init(struct chat_json *j, struct buf *out);
enum chat_json_status chat_json_push(struct chat_json *j, char c);
/* Appends the strict form of n bytes that hold one value; false: they are no JSON. */
bool chat_json_strict(struct buf *out, const char *s, size_t n, enum chat_json_numbers numbers);
void chat_json_escape(struct buf *out, const char *s, size_t n); /* inside of a JSON string */

/* Value text as JSON of one of the types; false: it is none of them. Sets *is_repaired (may be NULL) if the text
 * was not quite JSON. */
bool chat_put_typed(struct buf *out, const char *s, size_t n, unsigned types, bool *is_repaired);
/* The same, as a JSON string if it is of none of the types. */
void chat_put_value(struct buf *out, const char *s, size_t n, unsigned types, bool *is_repaired);

#endif
