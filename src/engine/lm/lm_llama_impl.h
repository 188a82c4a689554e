/* lm_llama_impl.h: libllama's sequences and their checkpoints; shared by lm_llama.c and lm_llama_mark.c.
 *
 * libllama does not report how many KV cells are in use, and sequences share cells. This code therefore counts
 * references to pages of KV_PAGE positions. The count is an upper bound of the cells in use. */
#ifndef CHIMERE_ENGINE_LM_LLAMA_IMPL_H
#define CHIMERE_ENGINE_LM_LLAMA_IMPL_H

#include "engine/lm/lm_llama.h"

struct llama_pages {
    int32_t *ids; /* owned [cap] */
    int32_t n, cap;
};

struct llama_seq {
    int32_t id;
    int64_t pos;
    int32_t n_defer;
    int32_t n_reserved; /* pages reserved while a state is being restored */
    uint32_t epoch;     /* the shim's epoch when pos was 0 or the state was restored */
    struct llama_pages pages;
};

/* A checkpoint: positions that a spare sequence id shares with the sequence, or bytes in host memory. */
struct llama_mark {
    int64_t pos;
    int32_t id;                       /* the spare sequence id; -1: the state is in host memory */
    uint32_t epoch;                   /* the shim's epoch of that id */
    struct llama_mark *older, *newer; /* list of the checkpoints that hold an id */
    struct llama_pages pages;         /* used while the checkpoint holds an id */
    unsigned char *data;              /* owned [n_byte] */
    size_t n_byte;
};

struct llama_lm {
    struct lm lm;
    struct lm_ops ops;
    const struct llama_shim *shim;
    struct shim_model *m; /* owned */
    struct llama_shim_info info;
    int32_t n_seq;   /* ids below n_seq belong to sequences, the others are spare */
    bool *taken;     /* owned [info.n_seq] */
    int32_t *refs;   /* owned [n_page] */
    int32_t *unused; /* owned [n_page]: ids of free pages */
    int32_t n_page, n_unused;
    struct llama_mark *oldest, *newest;
    _Atomic uint64_t host_bytes;
    struct llama_shim_item *items; /* owned [n_seq] */
    int32_t *group;                /* owned [n_seq] */
    float *rows;                   /* owned [n_row_max, n_vocab]; NULL: no adapters are loaded */
    int32_t n_row_max;
};

/* returns a free id in [from, to); -1: none is free */
int32_t lm_llama_take_id(struct llama_lm *x, int32_t from, int32_t to);
/* Allocates pages for positions up to pos, unshared ones where positions will be written. Returns CHIMERE_ELIMIT if no
 * page is free. */
int lm_llama_grow(struct llama_lm *x, struct llama_pages *p, int64_t from, int64_t pos,
                  struct err *e);
void lm_llama_cut(struct llama_lm *x, struct llama_pages *p,
                  int64_t pos); /* drops the pages after pos */
/* Makes `to` refer to the pages of p up to pos. */
int lm_llama_share(struct llama_lm *x, const struct llama_pages *p, struct llama_pages *to,
                   int64_t pos, struct err *e);

extern const struct lm_mark_ops lm_llama_marks;

#endif
