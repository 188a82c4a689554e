/* collect.h: collects what a night may learn from: the best known answer to each question since the last night.
 *
 * Reads the quality records of the store, which contain texts only with the user's consent. Secrets are masked
 * (mask.h); near-duplicates count once. If a question has several answers, users and the verifier vote (votes.h).
 * Answers that no user rated are left out if their question contains a pasted text, or if they are much longer than
 * the answers that users accept: the verifier alone cannot be trusted with them.
 *
 * One tenth of the questions is held out: they are used to measure and are never trained on, in any night. A hash of
 * the question and of the quarter of a year in which it was first asked chooses them, so the tenth rotates while the
 * choice for one question never changes. */
#ifndef CHIMERE_LEARN_DATA_COLLECT_H
#define CHIMERE_LEARN_DATA_COLLECT_H

#include <jansson.h>
#include <stddef.h>

#include "store/quality.h"

enum {
    COLLECT_MAX_ITEMS = 4096,
    COLLECT_MAX_TEXT = 32 << 10 /* bytes of a question or an answer */,
    LEARN_SOURCE = 48,
    LEARN_PIPELINE = 49 /* bytes of the name of a pipeline */
};

struct learn_item {
    char *question, *answer;   /* owned */
    char source[LEARN_SOURCE]; /* hash of the owner, see learn_source */
    /* of the orchestrator, whose route has the same name; "": none, or the pipeline default */
    char pipeline[LEARN_PIPELINE];
    double worth; /* 0..1 */
    int64_t id, at_ms;
    bool held_out;
    bool is_rated; /* by a user, not only by the verifier */
};

/* A time whose answers are not learned: from_ms <= at_ms < to_ms. */
struct learn_span {
    int64_t from_ms, to_ms;
};
struct learn_spans {
    const struct learn_span *v; /* borrowed; may be NULL */
    size_t n;
};
bool learn_spans_have(struct learn_spans s, int64_t at_ms);

struct votes;

struct learn_day {
    struct learn_item *v; /* owned; ascending in time */
    size_t n, n_held;
    /* rows read, rows left out by reason, secrets masked */
    size_t n_read, n_worse, n_same, n_long, n_secret;
    size_t n_old; /* left out: there are COLLECT_MAX_ITEMS newer ones */
    size_t n_contested,
        n_suspect;       /* left out: answers that users dispute; unrated ones, see above */
    int64_t last_id;     /* 0: no rows */
    size_t n_hidden;     /* rows within the hidden times */
    struct votes *votes; /* owned */
    json_t *sources;     /* owned: names (learn_source) of the owners of all rows read, an array */
};

/* Collects rows outside of `hidden` with a worth of at least `least`; at most the newest COLLECT_MAX_ITEMS. */
int learn_collect(struct learn_day *out, struct store *store, struct learn_spans hidden,
                  double least, struct err *e);
void learn_day_fini(struct learn_day *d);

/* Writes the name under which artefacts record the owner "KEY" or "KEY\tUSER": "night/HASH" or "night/HASH/HASH".
 * A person's part can be found by it, and it contains no name. "night": the owner is not known. */
void learn_source(const char *owner, char out[LEARN_SOURCE]);

/* Returns true if the question is held out. first_ms: when it was first asked (votes_first_ms). */
bool learn_holds_out(const char *question, int64_t first_ms);
/* Hashes a text; texts that differ only in case, punctuation and spaces have the same hash. */
uint64_t learn_text_hash(const char *text);
/* Returns a copy without secrets; free it with mem_free. Adds the number of masked secrets to *n_secret. NULL: out
 * of memory. */
char *learn_masked(const char *text, size_t *n_secret);

#endif
