/* synth_impl.h: shared by the parts of synth. */
#ifndef CHIMERE_CONVERT_SYNTH_IMPL_H
#define CHIMERE_CONVERT_SYNTH_IMPL_H

#include <stdint.h>

#include "base/err.h"
#include "format/gguf.h"

enum { SYNTH_MAX_LAYERS = 512 };

/* Roles, which a mix turns into types, and distributions of values. */
enum synth_role { R_F32, R_EXPERT, R_SHARED, R_QK, R_MIX, R_GATE, R_EMBED, R_OUTPUT, N_ROLE };
enum synth_fill { F_NORMAL, F_ONES, F_DECAY /* minus a rate of 0.05 to 8 */ };

struct synth_tensor {
    char name[96];
    enum synth_role role;
    uint32_t type; /* quant.h; set when the mix is known */
    uint64_t ne[3];
    uint8_t n_dims;
    enum synth_fill fill;
    float deviation; /* 0: 1 / sqrt(ne[0]) */
};

struct synth_sizes {
    uint32_t n_layer, n_expert, n_vocab; /* 0: as in the shape */
};

/* synth_family.c: a small shape of a hybrid family; NULL: no such name. */
struct synth_family;
const struct synth_family *synth_family_find(const char *name);
/* Completes z, puts the model's keys, and lists its tensors; the caller owns *out. */
int synth_family_plan(const struct synth_family *f, struct synth_sizes *z, struct gguf_writer *w,
                      struct synth_tensor **out, size_t *n, struct err *e);

/* synth_vocab.c: tokenizer.* keys of a byte-level vocabulary of n_vocab tokens. */
int synth_put_vocab(struct gguf_writer *w, uint32_t n_vocab, struct err *e);

#endif
