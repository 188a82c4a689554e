/* taint.h: which answers strangers' text had a part in, so that they taint later requests that contain them.
 *
 * A client sends earlier answers back as plain messages. An answer is known again by a keyed hash of its user, the
 * question before it and its own text without blanks; also if only its beginning was kept. Bounded: the oldest marks
 * make room. Any thread. */
#ifndef CHIMERE_ODO_TAINT_H
#define CHIMERE_ODO_TAINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TAINT_BUCKETS = 1 << 12, TAINT_WAYS = 8, TAINT_HEAD = 64 };
enum taint_level { TAINT_NONE, TAINT_LOCAL, TAINT_STRANGERS };

struct taint;

struct taint_text { /* placed by the caller; text fed so far */
    uint64_t head, whole;
    size_t n;
};

struct taint *taint_new(void); /* NULL: out of memory */
void taint_free(struct taint *t);
void taint_begin(const struct taint *t, struct taint_text *x, const char *owner,
                 const char *question);
void taint_feed(struct taint_text *x, const char *s, size_t n);
void taint_mark(struct taint *t, const struct taint_text *x, enum taint_level level);
/* Of a request's messages: marked answers, and results of tools, which strangers wrote. */
enum taint_level taint_of(struct taint *t, const char *owner, const json_t *messages);

#endif
