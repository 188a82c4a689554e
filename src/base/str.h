/* str.h: UTF-8, numbers and string slices. No allocation; any thread. */
#ifndef CHIMERE_BASE_STR_H
#define CHIMERE_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A view of bytes that somebody else owns; not NUL-terminated. */
struct slice {
    const char *p; /* view */
    size_t n;
};
#define SLICE(literal) ((struct slice){literal, sizeof(literal) - 1})

/* Length 1..4 of the well-formed UTF-8 character at s[0..n), 0 if it is a prefix cut by n, -1 if the
 * bytes cannot begin one (overlong forms, surrogates and values above U+10FFFF included). */
int utf8_valid_len(const char *s, size_t n);
/* Decodes one character: its length and *cp, or as utf8_valid_len without touching *cp. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);
/* (jansson's archive has a symbol of the plain name.) */
#define utf8_encode str_utf8_encode
/* Writes 1..4 bytes; 0 for surrogates and values above U+10FFFF. */
int utf8_encode(uint32_t cp, char out[4]);
bool utf8_is_valid(const char *s, size_t n);

bool str_eq_nocase(const char *a, const char *b); /* ASCII letters only */
/* Decodes base64, with or without padding, into at most text.n bytes; false: another character. */
bool str_base64(struct slice text, char *out, size_t *n);
/* Edits (insert, delete, replace, swap of neighbours) between two words; more than 63 bytes: SIZE_MAX. */
size_t str_distance(const char *a, const char *b);
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Whole-string decimal parses: false on empty, trailing bytes, overflow, or out of [min, max]. The
 * double form refuses nan, inf and hexadecimal. */
bool str_to_i64(const char *s, int64_t min, int64_t max, int64_t *out);
bool str_to_f64(const char *s, double min, double max, double *out);
/* "65536", "64K", "1.5G", "200MiB": powers of 1024. */
bool str_to_bytes(const char *s, uint64_t *out);
/* "17.8 GiB" style; out gets at most 16 bytes. */
void str_bytes(char out[16], uint64_t n_bytes);
/* Shortest decimal that reads back to the same double, always with '.', 'e' or as an integer within
 * 2^53; "nan", "inf", "-inf" for those. Returns the length; out needs 32 bytes. */
int str_f64(char out[32], double x);

#endif
