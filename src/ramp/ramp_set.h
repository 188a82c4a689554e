/* ramp_set.h: the tensors of a model whose types are chosen, and the cost of each type.
 *
 * A gene is one tensor. Its forms are the types that it may take, in ascending size; a choice is one form index per
 * gene. Owns the reader of the model file. */
#ifndef CHIMERE_RAMP_RAMP_SET_H
#define CHIMERE_RAMP_RAMP_SET_H

#include "convert/imatrix_read.h"
#include "convert/quantize_mix.h"
#include "format/gguf.h"
#include "ramp/ramp.h"

enum { RAMP_MAX_FORMS = 32, RAMP_ROLE = 48 };

struct ramp_form {
    struct quantize_columns to;
    uint64_t n_bytes; /* of both parts */
    double error;     /* relative error of outputs, on sampled rows */
    bool on_hull;     /* of (n_bytes, error) */
};

struct ramp_gene {
    const struct gguf_tensor *tensor; /* view */
    size_t index;                     /* of the tensor in the file */
    char role[RAMP_ROLE];             /* the name without "blk.N." and ".weight" */
    int32_t layer;                    /* -1: none */
    bool is_draft;      /* in a multi-token prediction block: no output depends on it */
    bool has_weight;    /* the importance matrix has an entry */
    bool is_correlated; /* and one with the correlations of the inputs */
    double gain;        /* divergence per unit of error */
    double share;       /* part of its bytes that decoding reads per token */
    int n_form;
    uint32_t encoded; /* bits of forms that the search encodes (ramp_effort.h) */
    struct ramp_form forms[RAMP_MAX_FORMS];
};

struct ramp_set {
    struct gguf *gguf;       /* owned */
    struct imatrix *imatrix; /* owned; NULL: none */
    struct ramp_gene *genes; /* owned [n_gene] */
    size_t n_gene;
    uint64_t n_weights;    /* elements of all tensors of the file */
    uint64_t fixed_bytes;  /* of tensors that are not changed, alignment included */
    uint64_t header_bytes; /* keys and directory of the result, an upper bound */
    uint64_t hash;         /* identifies model, mode and importance matrix in cached results */
    uint32_t alignment;
    int32_t n_layer;
    bool was_quantized; /* some matrix is quantized already */
    uint64_t n_unseen;  /* experts' matrices for which the importance matrix counts no row */
    double effort;      /* that is left: ramp_effort.h */
    bool only_encoded;  /* solutions take encoded forms only */
};

/* imatrix: path; NULL: none yet, so that all types are forms. */
int ramp_set_open(struct ramp_set **out, const char *path, enum ramp_mode mode, const char *imatrix,
                  struct err *e);
void ramp_set_close(struct ramp_set *s);

/* Bytes of the whole file for a choice. */
uint64_t ramp_set_bytes(const struct ramp_set *s, const uint8_t *choice);
/* The same in bits of tensor data per weight, as `quantize` prints them. */
double ramp_set_bpw(const struct ramp_set *s, const uint8_t *choice);
uint64_t ramp_form_bytes(const struct ramp_set *s, const struct ramp_gene *g, int form);
/* Sizes of the smallest and the largest file. */
void ramp_set_range(const struct ramp_set *s, uint64_t *least, uint64_t *most);
/* Bytes of a file with the given bits per weight. */
uint64_t ramp_set_bytes_of_bpw(const struct ramp_set *s, double bpw);
double ramp_set_predict(const struct ramp_set *s, const uint8_t *choice);
/* Whether a solution may take the form. */
static inline bool ramp_form_is_open(const struct ramp_set *s, const struct ramp_gene *g,
                                     int form) {
    return !s->only_encoded || (g->encoded >> form & 1);
}
/* Index of the form of this type, -1: none. */
int ramp_gene_form(const struct ramp_gene *g, uint32_t type);

#endif
