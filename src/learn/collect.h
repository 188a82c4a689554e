/* collect.h: what a night may learn from: the best known answer to each question since the last night.
 *
 * Reads the store's quality records, whose texts are there only with the user's consent. Secrets are masked
 * (mask.h), near-duplicates count once. A tenth of the questions, chosen by their own hash, is held out: it
 * measures, and never trains, in any night. */
#ifndef CHIMERE_LEARN_COLLECT_H
#define CHIMERE_LEARN_COLLECT_H

#include <stddef.h>

#include "store/quality.h"

enum {
    COLLECT_MAX_ITEMS = 4096,
    COLLECT_MAX_TEXT = 32 << 10 /* bytes of an item */,
    LEARN_SOURCE = 48
};

struct learn_item {
    char *question, *answer;   /* owned */
    char source[LEARN_SOURCE]; /* whose it is, by hash */
    double worth;              /* 0..1 */
    int64_t id, at_ms;
    bool held_out;
};

struct learn_day {
    struct learn_item *v; /* owned, in order of time */
    size_t n, n_held;
    size_t n_read, n_worse, n_same, n_long, n_secret; /* rows left out, and masks made */
    int64_t last_id;                                  /* 0: no row */
};

/* Rows after id `after`, at most COLLECT_MAX_ITEMS of the newest; worth of at least `least`. */
int learn_collect(struct learn_day *out, struct store *store, int64_t after, double least,
                  struct err *e);
void learn_day_fini(struct learn_day *d);

/* What artefacts call the owner "KEY" or "KEY\tUSER": "night/HASH" or "night/HASH/HASH", so that one person's part
 * can be found again and no name stands in them; "night": the owner is not known. */
void learn_source(const char *owner, char out[LEARN_SOURCE]);

/* Whether a question is held out. */
bool learn_holds_out(const char *question);
/* The same for texts that differ in case, punctuation and spaces alone. */
uint64_t learn_text_hash(const char *text);
/* A copy without secrets, by mem_free; *n_secret grows by what was masked. NULL: no memory. */
char *learn_masked(const char *text, size_t *n_secret);

#endif
