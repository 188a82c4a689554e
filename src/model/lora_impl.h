/* lora_impl.h: an adapter's matrices; shared by reading and training. */
#ifndef CHIMERE_MODEL_LORA_IMPL_H
#define CHIMERE_MODEL_LORA_IMPL_H

#include "model/lora.h"
#include "model/model.h"

struct lora_pair {
    const struct weight *base; /* view: identity of the slot */
    struct weight a, b;        /* a: [r, n_in], b: [n_out, r]; views of the file, or of values */
    float scale;
};

struct lora {
    struct gguf *gguf; /* owned; NULL: made for training */
    struct model *m;   /* borrowed; of one made for training, as the next four */
    float *a, *b;      /* owned; a NULL: another one's */
    size_t n_b;        /* values of b */
    int32_t rank;
    struct lora_pair *pairs; /* owned */
    size_t n_pair;
    struct dev *dev; /* borrowed; NULL: it reads the host's memory */
    void **blocks;   /* owned, with its arrays: matrices in dev's form */
    size_t n_block;
    uint64_t hash;
    const struct model *of;  /* view: whose matrices the pairs are */
    const struct lora *next; /* borrowed: the same for another copy of the model; NULL: none */
    void *handle; /* of another runtime's adapter, which frees it: nothing above is set but hash */
};

/* A device that does not read the host's memory gets its own form of every matrix. */
int lora_to_device(struct lora *l, struct dev *d, struct err *e);

#endif
