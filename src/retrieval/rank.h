/* rank.h: fuses several ranked lists into one by reciprocal rank fusion (Cormack, Clarke and Buettcher 2009). */
#ifndef CHIMERE_RETRIEVAL_RANK_H
#define CHIMERE_RETRIEVAL_RANK_H

#include <stddef.h>
#include <stdint.h>

enum { RANK_RRF_K = 60 };

struct rank_item {
    int64_t id;
    double score;
};

/* Adds a list, best first, to items [*n] with capacity max: score += weight / (60 + rank), rank from 1. If an id
 * is in the list twice, its first position counts. Items beyond max are dropped. */
void rank_fuse(struct rank_item *items, size_t *n, size_t max, const int64_t *ids, size_t n_id,
               double weight);
void rank_sort(struct rank_item *items, size_t n); /* best first; ties: lower id */

#endif
