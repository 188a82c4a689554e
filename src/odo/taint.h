/* taint.h: remembers which answers were influenced by untrusted text, so that such an answer also taints later
 * requests that contain it.
 *
 * A client sends earlier answers back as plain messages. An answer is recognized by a keyed hash of its user, the
 * question before it and its own text without white space. It is also recognized if the client kept only its beginning.
 * The number of answers that are remembered is limited: new ones replace the oldest. Any thread. */
#ifndef CHIMERE_ODO_TAINT_H
#define CHIMERE_ODO_TAINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TAINT_BUCKETS = 1 << 12, TAINT_WAYS = 8, TAINT_HEAD = 64 };
enum taint_level { TAINT_NONE, TAINT_LOCAL, TAINT_STRANGERS };

struct taint;

struct taint_text { /* allocated by the caller; hash state of the text fed so far */
    uint64_t head, whole;
    size_t n;
};

struct taint *taint_new(void); /* NULL: out of memory */
void taint_free(struct taint *t);
void taint_begin(const struct taint *t, struct taint_text *x, const char *owner,
                 const char *question);
void taint_feed(struct taint_text *x, const char *s, size_t n);
void taint_mark(struct taint *t, const struct taint_text *x, enum taint_level level);
/* Returns the taint of a request's messages. Marked answers taint; so do tool results, because other people wrote
 * their text. */
enum taint_level taint_of(struct taint *t, const char *owner, const json_t *messages);

#endif
