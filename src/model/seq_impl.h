/* seq_impl.h: structs that seq.c shares with forward.c and its tests. */
#ifndef CHIMERE_MODEL_SEQ_IMPL_H
#define CHIMERE_MODEL_SEQ_IMPL_H

#include "model/seq.h"

struct layer_state {
    struct kv_view kv;   /* MIX_ATTN */
    bool kv_is_other;    /* kv is an earlier layer's */
    struct rec_view rec; /* recurrent mixers; parts of the pool's block */
    /* Arguments of ops->state_lanes if rec.s lies in lanes; n_inner 0: it does not. */
    int64_t n_inner;
    int32_t d_head, d_state;
};

struct seq_pool {
    struct model *m; /* borrowed */
    struct seq_pool_params params;
    struct layer_state *layer; /* owned [n_layer + n_nextn] */
    float *rec; /* owned: recurrent states of all layers, NULL where there are none */
    /* Models with rows in front of every sequence: those, computed once, in the slot behind all others;
     * owned, NULL before the first forward. Others begin as its forks. */
    struct seq *meta;
    float *hidden; /* owned [n_slot, n_embd]: last hidden row, for prediction blocks; or NULL */
    int32_t n_page;
    int32_t *page_refs;  /* owned [n_page] */
    int32_t *free_pages; /* owned stack [n_page] */
    int32_t n_free_page;
    int32_t *free_slots; /* owned stack [n_slot] */
    int32_t n_free_slot;
    size_t rec_bytes; /* recurrent bytes of one slot over all layers, log and hidden included */
    struct host_page **twin;     /* view [n_page]: a host copy of the same content, or NULL */
    char *spare_rec;             /* owned [rec_bytes]: the buffer of the mark freed last, or NULL */
    _Atomic uint64_t host_bytes; /* of all marks: recurrent copies and host pages */
};

/* A full page in host memory, shared by marks as the page in the pool was. */
struct host_page {
    int32_t refs;
    int32_t page; /* in the pool with the same content, or -1 */
    char data[];  /* [seq_page_bytes] */
};

struct checkpoint_page {
    int32_t page;           /* in the pool, with a reference; or -1 */
    struct host_page *host; /* where page < 0, with a reference */
};

struct checkpoint {
    struct seq_pool *pool; /* borrowed */
    int64_t pos;           /* as in struct seq */
    int32_t n_log, n_page;
    struct checkpoint_page *pages; /* owned */
    char *rec;                     /* owned [rec_bytes], host */
};

struct seq {
    struct seq_pool *pool; /* borrowed */
    int32_t slot;
    int32_t n_page, cap_page;
    int32_t *pages; /* owned */
    int64_t pos;    /* of keys and values: counts the rows in front; 0: not begun */
    int32_t n_log;  /* deferred tokens, included in pos */
};

int seq_alloc(struct seq **out, struct seq_pool *p, struct err *e); /* recurrent state undefined */
/* The sequence that holds the rows in front, empty; p->meta from then on. */
int seq_new_meta(struct seq_pool *p, struct err *e);
/* A sequence not begun takes what stands in front. */
int seq_begin(struct seq *s, struct err *e);
int64_t seq_tokens_at(const struct seq_pool *p, int64_t pos); /* tokens before a position */
int seq_grow_table(struct seq *s, int32_t n_page, struct err *e);
void seq_drop_pages(struct seq *s, int32_t keep);
int32_t seq_n_pages_for(int64_t n_ctx);
int32_t seq_page_take(struct seq_pool *p); /* -1: none is free */
void seq_page_unref(struct seq_pool *p, int32_t page);
void seq_page_changes(struct seq_pool *p, int32_t page); /* its host copy is no copy any more */
/* A mark without pages in the pool, content undefined: for files. Any thread. */
struct checkpoint *checkpoint_alloc_host(struct seq_pool *p, int64_t pos, int32_t n_log);

/* For mark.c and seq_file.c: bytes of one page between device and host, in a fixed order of layers. */
size_t seq_page_bytes(const struct seq_pool *p);
void seq_page_transfer(struct seq_pool *p, int32_t page, char *host, bool to_host);

/* One of the parts that a slot's recurrent bytes are made of. */
struct rec_part {
    float *at; /* [n_slot, n] on the device */
    size_t n;  /* floats */
    /* More than 1: they are a state [n / (lanes * d_state), d_state, lanes]; files hold [n / d_state, d_state]. */
    int32_t lanes, d_state;
};
/* The i-th of them, in the order of those bytes; false: there are no more. */
bool seq_rec_part(const struct seq_pool *p, int32_t i, struct rec_part *out);

#endif
