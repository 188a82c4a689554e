/* lm_llama_impl.h: sequences of libllama and the states kept of them; shared by lm_llama.c and lm_llama_mark.c.
 *
 * libllama does not report how many cells are in use, and cells are shared: pages of KV_PAGE positions are counted here by
 * reference, at least as many as are really taken. */
#ifndef CHIMERE_ENGINE_LM_LLAMA_IMPL_H
#define CHIMERE_ENGINE_LM_LLAMA_IMPL_H

#include "engine/lm_llama.h"

struct llama_pages {
    int32_t *ids; /* owned [cap] */
    int32_t n, cap;
};

struct llama_seq {
    int32_t id;
    int64_t pos;
    int32_t n_defer;
    int32_t n_reserved; /* pages set aside while a state is restored */
    uint32_t epoch;     /* of the shim, when pos was 0 or the state was restored */
    struct llama_pages pages;
};

/* A kept state: positions that a spare id shares with the sequence, or bytes on the host. */
struct llama_mark {
    int64_t pos;
    int32_t id;                       /* -1: on the host */
    uint32_t epoch;                   /* of the id */
    struct llama_mark *older, *newer; /* of those that hold an id */
    struct llama_pages pages;         /* while it holds an id */
    unsigned char *data;              /* owned [n_byte] */
    size_t n_byte;
};

struct llama_lm {
    struct lm lm;
    struct lm_ops ops;
    const struct llama_shim *shim;
    struct shim_model *m; /* owned */
    struct llama_shim_info info;
    int32_t n_seq;   /* ids below are sequences', the others spare */
    bool *taken;     /* owned [info.n_seq] */
    int32_t *refs;   /* owned [n_page] */
    int32_t *unused; /* owned [n_page]: ids of free pages */
    int32_t n_page, n_unused;
    struct llama_mark *oldest, *newest;
    _Atomic uint64_t host_bytes;
    struct llama_shim_item *items; /* owned [n_seq] */
    int32_t *group;                /* owned [n_seq] */
    float *rows;                   /* owned [n_row_max, n_vocab]; NULL: no adapters */
    int32_t n_row_max;
};

int32_t lm_llama_take_id(struct llama_lm *x, int32_t from, int32_t to); /* -1: none is free */
/* Pages for positions up to pos, private ones where they will be written. CHIMERE_ELIMIT. */
int lm_llama_grow(struct llama_lm *x, struct llama_pages *p, int64_t from, int64_t pos,
                  struct err *e);
void lm_llama_cut(struct llama_lm *x, struct llama_pages *p,
                  int64_t pos); /* forgets those after pos */
/* to becomes the pages up to pos. */
int lm_llama_share(struct llama_lm *x, const struct llama_pages *p, struct llama_pages *to,
                   int64_t pos, struct err *e);

extern const struct lm_mark_ops lm_llama_marks;

#endif
