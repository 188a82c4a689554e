/* lora_impl.h: an adapter's matrices; shared by reading and training. */
#ifndef CHIMERE_MODEL_LORA_IMPL_H
#define CHIMERE_MODEL_LORA_IMPL_H

#include "model/lora.h"
#include "model/model.h"

struct lora_pair {
    const struct weight *base; /* view: identifies the slot */
    struct weight a, b; /* a: [r, n_in], b: [n_out, r]; views of the file, of cuts or of values */
    float scale;
};

struct lora {
    struct gguf *gguf; /* owned; NULL: created for training */
    struct model *m;   /* borrowed; set for training only, like the next four */
    float *a, *b;      /* owned; a NULL: shared with another adapter */
    const float *
        a_of; /* view: A of an adapter that is trained, its own or shared; NULL: opened from a file */
    size_t n_b; /* values of b */
    int32_t rank;
    struct lora_pair *pairs; /* owned */
    size_t n_pair;
    void **cuts; /* owned, with the array: rows and columns of a slice (slice.h), in host memory */
    size_t n_cut;
    struct dev *dev; /* borrowed; NULL: device memory is host memory */
    void **blocks;   /* owned, with the array: matrices in dev's form */
    size_t n_block;
    uint64_t hash;
    const struct model *of; /* view: the model that owns the base matrices */
    /* borrowed: the same adapter for another copy of the model; NULL: none */
    const struct lora *next;
    void *handle; /* another runtime's adapter, which frees it: then only hash is set too */
};

/* Creates the device's own form of every matrix, if device memory is not host memory. */
int lora_to_device(struct lora *l, struct dev *d, struct err *e);

#endif
