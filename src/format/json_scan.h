/* json_scan.h: a forward scanner over JSON text in the caller's memory.
 *
 * For headers of untrusted files and for vocabularies, for which the tree of jansson is too large. No allocation, bounded
 * depth, one pass over the bytes. With jansson, a hostile header of 99 MB (an array of empty objects, below the limit of
 * safetensors.h) takes 7.1 GB and 11 s, here no heap and 0.24 s. A tokenizer.json of 10 MB with 150,000 tokens and
 * 300,000 pairs takes 95 MB and 0.49 s, here 0.03 s.
 *
 * Strict (RFC 8259): UTF-8, no comments, no trailing commas. The first error is sticky; every later call returns false. */
#ifndef CHIMERE_FORMAT_JSON_SCAN_H
#define CHIMERE_FORMAT_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { JSON_SCAN_DEPTH = 64 };

struct json_scan {
    const char *start, *p, *end; /* views */
    const char *expected;        /* what was missing at p; NULL: no error yet */
};

void json_scan_init(struct json_scan *s, const char *text, size_t n);
/* The next non-blank character, not consumed; 0 at the end or after an error. */
char json_peek(struct json_scan *s);
/* Iterates over a container: json_open(s, '{') once, then json_more(s, '}', &first) before each member, with first =
 * true initially. json_more returns false at the end (which it consumes) or on error. */
bool json_open(struct json_scan *s, char open);
bool json_more(struct json_scan *s, char close, bool *first);
/* A string without its quotes, escapes untouched. */
bool json_raw_string(struct json_scan *s, struct slice *raw);
/* The same followed by ':'. */
bool json_key(struct json_scan *s, struct slice *raw);
/* An integer from 0 to 2^64 - 1, written with digits only. */
bool json_u64(struct json_scan *s, uint64_t *v);
bool json_skip(struct json_scan *s); /* any value */
bool json_end(struct json_scan *s);  /* only blanks are left */
/* Resolves escapes of a raw string; at most raw.n bytes are written. False: lone surrogate. */
bool json_unescape(struct slice raw, char *out, size_t *n);

#endif
