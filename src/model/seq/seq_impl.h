/* seq_impl.h: structs that seq.c shares with the files of this folder and its tests. */
#ifndef CHIMERE_MODEL_SEQ_SEQ_IMPL_H
#define CHIMERE_MODEL_SEQ_SEQ_IMPL_H

#include "model/experts/experts_lend.h"
#include "model/seq/seq.h"

struct layer_state {
    struct kv_view kv;   /* MIX_ATTN, MIX_MLA */
    size_t v_at;         /* with kv.v_in_k: offset of values in a key, in bytes */
    bool kv_is_other;    /* kv belongs to an earlier layer */
    struct rec_view rec; /* recurrent mixers; parts of the pool's block */
    /* Arguments of ops->state_lanes if rec.s is interleaved by lanes; n_inner 0: it is not. */
    int64_t n_inner;
    int32_t d_head, d_state;
};

struct seq_lend { /* seq_lend.h */
    bool lends;
    int32_t part, n_part, n_array;      /* part: pages of one; the last may have fewer */
    struct page_array *arrays;          /* owned [n_array], or NULL */
    int32_t n_used[EXPERTS_LEND_PARTS]; /* pages in use */
    uint32_t lent;                      /* parts that hold experts */
    char *room;                         /* view: all arrays; NULL: the device's, each by itself */
    size_t n_room;                      /* bytes of room in use */
};

struct seq_pool {
    struct model *m; /* borrowed */
    struct seq_pool_params params;
    struct layer_state *layer; /* owned [n_layer + n_nextn] */
    float *rec;                /* owned: recurrent states of all layers; NULL if there are none */
    /* In models with rows that precede every sequence: a sequence with those rows, computed once, in the slot after
     * all others; owned, NULL before the first forward. Other sequences start as its forks. */
    struct seq *meta;
    float *hidden; /* owned [n_slot, n_embd]: last hidden row, for prediction blocks; or NULL */
    int32_t n_page;
    int32_t *page_refs; /* owned [n_page] */
    int32_t n_free_page;
    int32_t first_free; /* no page before it is free */
    struct seq_lend lend;
    int32_t *free_slots; /* owned stack [n_slot] */
    int32_t n_free_slot;
    size_t rec_bytes; /* recurrent bytes of one slot over all layers, log and hidden included */
    struct host_page **twin; /* view [n_page]: a host copy of the same content, or NULL */
    /* owned [rec_bytes]: the buffer of the checkpoint freed last, or NULL */
    char *spare_rec;
    char *room; /* owned, of host_alloc (seq_copy.c); NULL: device memory is host memory */
    _Atomic uint64_t host_bytes; /* of all checkpoints: recurrent copies and host pages */
};

/* A full page in host memory, shared by checkpoints as the page in the pool was. */
struct host_page {
    int32_t refs;
    int32_t page; /* pool page with the same content, or -1 */
    char data[];  /* [seq_page_bytes] */
};

struct checkpoint_page {
    int32_t page;           /* in the pool, with a reference held; or -1 */
    struct host_page *host; /* if page < 0, with a reference held */
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
    int64_t pos;    /* of keys and values: counts the preceding rows; 0: not begun */
    int32_t n_log;  /* deferred tokens, included in pos */
};

int seq_alloc(struct seq **out, struct seq_pool *p, struct err *e); /* recurrent state undefined */
/* Creates an empty sequence for the rows that precede every sequence, and stores it in p->meta. */
int seq_new_meta(struct seq_pool *p, struct err *e);
/* Gives a sequence that has not begun the preceding rows. */
int seq_begin(struct seq *s, struct err *e);
/* tokens before a position, without the preceding rows */
int64_t seq_tokens_at(const struct seq_pool *p, int64_t pos);
int seq_grow_table(struct seq *s, int32_t n_page, struct err *e);
void seq_drop_pages(struct seq *s, int32_t keep);
int32_t seq_n_pages_for(int64_t n_ctx);
int32_t seq_page_take(struct seq_pool *p); /* -1: none is free */
void seq_page_unref(struct seq_pool *p, int32_t page);
void seq_page_changes(struct seq_pool *p, int32_t page); /* its host copy becomes invalid */
/* A checkpoint without pages in the pool, with undefined content: for files. Any thread. */
struct checkpoint *checkpoint_alloc_host(struct seq_pool *p, int64_t pos, int32_t n_log);

/* For checkpoint.c and seq_file.c: copies one page between device and host, in a fixed order of layers. */
size_t seq_page_bytes(const struct seq_pool *p);
void seq_page_transfer(struct seq_pool *p, int32_t page, char *host, bool to_host);

/* One part of a slot's recurrent bytes. */
struct rec_part {
    float *at; /* [n_slot, n] on the device */
    size_t n;  /* floats */
    /* lanes > 1: a state [n / (lanes * d_state), d_state, lanes], which files store as [n / d_state, d_state]. */
    int32_t lanes, d_state;
    size_t block; /* floats that are reordered together: lanes * d_state; n if none are */
};
/* The i-th part, in the order of those bytes; returns false after the last. */
bool seq_rec_part(const struct seq_pool *p, int32_t i, struct rec_part *out);
/* Copies one block between the device's order and that of files. */
void seq_rec_lanes(const struct rec_part *part, float *own, float *plain, bool to_plain);

#endif
