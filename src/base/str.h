/* str.h: UTF-8, numbers and string slices. No allocation; any thread. */
#ifndef CHIMERE_BASE_STR_H
#define CHIMERE_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A view of bytes that have another owner; not NUL-terminated. */
struct slice {
    const char *p; /* view */
    size_t n;
};
#define SLICE(literal) ((struct slice){literal, sizeof(literal) - 1})

/* Returns the length 1..4 of the well-formed UTF-8 character at s[0..n); 0 if the character is cut by n; -1 if the
 * bytes do not begin one (including overlong forms, surrogates and values above U+10FFFF). */
int utf8_valid_len(const char *s, size_t n);
/* Decodes one character: returns its length and sets *cp, or returns the result of utf8_valid_len without setting
 * *cp. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);
/* renamed, because jansson's static library has a symbol utf8_encode */
#define utf8_encode str_utf8_encode
/* Writes 1..4 bytes; returns 0 for surrogates and values above U+10FFFF. */
int utf8_encode(uint32_t cp, char out[4]);
bool utf8_is_valid(const char *s, size_t n);

bool str_eq_nocase(const char *a, const char *b); /* ASCII letters only */
/* Decodes base64, with or without padding, into at most text.n bytes. Returns false for any other character. */
bool str_base64(struct slice text, char *out, size_t *n);
/* Number of edits (insert, delete, replace, swap of neighbours) between two words; SIZE_MAX if one has more than 63
 * bytes. */
size_t str_distance(const char *a, const char *b);
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Parse the whole string as a decimal number. Return false if it is empty, has trailing bytes, overflows, or is out of
 * [min, max]. The double form refuses nan, inf and hexadecimal. */
bool str_to_i64(const char *s, int64_t min, int64_t max, int64_t *out);
bool str_to_f64(const char *s, double min, double max, double *out);
/* Parses "65536", "64K", "1.5G", "200MiB"; units are powers of 1024. */
bool str_to_bytes(const char *s, uint64_t *out);
/* Formats like "17.8 GiB"; writes at most 16 bytes. */
void str_bytes(char out[16], uint64_t n_bytes);
/* Writes the shortest decimal that reads back to the same double. It has '.' or 'e', or is an integer within 2^53;
 * "nan", "inf", "-inf" for those. Returns the length; out needs 32 bytes. */
int str_f64(char out[32], double x);

#endif
