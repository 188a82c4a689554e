#include "retrieval/rank.h"

#include <stdlib.h>

void rank_fuse(struct rank_item *items, size_t *n, size_t max, const int64_t *ids, size_t n_id,
               double weight) {
    size_t rank = 0;
    for (size_t i = 0; i < n_id; ++i) {
        size_t before = 0, at = 0;
        while (before < i && ids[before] != ids[i]) ++before;
        if (before < i) continue;
        ++rank;
        while (at < *n && items[at].id != ids[i]) ++at;
        if (at == *n) {
            if (*n == max) continue;
            items[(*n)++] = (struct rank_item){.id = ids[i]};
        }
        items[at].score += weight / (double)(RANK_RRF_K + rank);
    }
}

static int better(const void *a, const void *b) {
    const struct rank_item *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void rank_sort(struct rank_item *items, size_t n) { qsort(items, n, sizeof *items, better); }
