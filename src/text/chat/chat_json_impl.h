/* chat_json_impl.h: JSON parsed byte by byte and converted to strict JSON. */
#ifndef CHIMERE_TEXT_CHAT_JSON_IMPL_H
#define CHIMERE_TEXT_CHAT_JSON_IMPL_H

#include "base/buf.h"
#include "text/chat/chat.h"
#include "text/chat/chat_types.h"

#define CHAT_JSON_DEPTH 256 /* nesting of arguments */

enum chat_json_status {
    CHAT_JSON_MORE,
    CHAT_JSON_DONE,   /* the value ended with this byte */
    CHAT_JSON_BEFORE, /* the value ended before this byte, which was not consumed (numbers) */
    CHAT_JSON_BAD,
};

/* What to do with numbers that jansson refuses (integers beyond 64 bits, reals beyond double precision): keep them
 * as written; write them as a string that begins with NUL (jinja's tojson prints it without quotes); or write the
 * nearest double. */
enum chat_json_numbers { CHAT_JSON_AS_WRITTEN, CHAT_JSON_MARKED, CHAT_JSON_NEAREST };
enum chat_json_dialect { CHAT_JSON_PLAIN, CHAT_JSON_PYTHON, CHAT_JSON_GEMMA };

struct chat_json {
    struct buf *out; /* borrowed: the value is appended without blanks; NULL discards it */
    uint8_t state, dialect, numbers, number; /* dialect and numbers are set after init */
    size_t n_before;                         /* offset in out at which the number begins */
    /* is_key: the current string is a key; comma: a comma waits for the next value */
    bool is_key, comma;
    bool is_repaired; /* the text was not exactly JSON */
    char first;       /* first byte of the value, which gives its type */
    uint32_t depth;
    char close[CHAT_JSON_DEPTH]; /* closing brackets; '=' represents the ) of a call's arguments */
    /* digits of a \u escape; a high surrogate that waits for its low surrogate */
    uint32_t n_hex, hex, high;
    char quote; /* of the current string; '<': it is a mark */
    bool is_triple;
    uint32_t n_quote, n_text, n_mark;
    const char *mark; /* static */
    uint32_t n_word;
    char word[160]; /* the number so far, cut if it is too long */
};

void chat_json_init(struct chat_json *j, struct buf *out);
enum chat_json_status chat_json_push(struct chat_json *j, char c);
/* Appends the strict form of n bytes that contain one value; false: not JSON. */
bool chat_json_strict(struct buf *out, const char *s, size_t n, enum chat_json_numbers numbers);
/* appends the inside of a JSON string */
void chat_json_escape(struct buf *out, const char *s, size_t n);

/* Appends the text of a value as JSON of one of the types; false: it has none of these types. Sets *is_repaired
 * (may be NULL) if the text was not exactly JSON. */
bool chat_put_typed(struct buf *out, const char *s, size_t n, unsigned types, bool *is_repaired);
/* The same, but appends a JSON string if the text has none of the types. */
void chat_put_value(struct buf *out, const char *s, size_t n, unsigned types, bool *is_repaired);

#endif
