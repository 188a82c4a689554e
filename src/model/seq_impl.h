/* seq_impl.h: structs that seq.c shares with forward.c and its tests. */
#ifndef CHIMERE_MODEL_SEQ_IMPL_H
#define CHIMERE_MODEL_SEQ_IMPL_H

#include "model/seq.h"

struct layer_state {
    struct kv_view kv;   /* MIX_ATTN */
    struct rec_view rec; /* recurrent mixers */
};

struct seq_pool {
    struct model *m; /* borrowed */
    struct seq_pool_params params;
    struct layer_state *layer; /* owned [n_layer + n_nextn] */
    float *hidden; /* owned [n_slot, n_embd]: last hidden row, for prediction blocks; or NULL */
    int32_t n_page;
    int32_t *page_refs;  /* owned [n_page] */
    int32_t *free_pages; /* owned stack [n_page] */
    int32_t n_free_page;
    int32_t *free_slots; /* owned stack [n_slot] */
    int32_t n_free_slot;
    size_t rec_bytes; /* recurrent bytes of one slot over all layers, log and hidden included */
};

struct seq {
    struct seq_pool *pool; /* borrowed */
    int32_t slot;
    int32_t n_page, cap_page;
    int32_t *pages; /* owned */
    int64_t pos;
    int32_t n_log; /* deferred tokens, included in pos */
};

/* For seq_file.c: bytes of one page or slot between device and host, in a fixed order of layers. */
size_t seq_page_bytes(const struct seq_pool *p);
void seq_page_transfer(struct seq_pool *p, int32_t page, char *host, bool to_host);
void seq_rec_transfer(struct seq_pool *p, int32_t slot, char *host, bool to_host);

#endif
