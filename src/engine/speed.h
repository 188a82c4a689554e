/* speed.h: predicts from its header how fast a model will run on a device.
 *
 * A probe times the device's matrix products, once for each weight type that a model uses: one token with weights from
 * memory, one token with weights from the caches, a few tokens, many tokens. On a device with a memory of its own it
 * times the op that runs a layer's experts, which chooses and multiplies all of them at once. A model's cost is its
 * multiply-adds per token and type, its recurrent state and its number of operations. The prediction is the sum of
 * these costs. It is valid for one sequence in a short context. A probe belongs to one thread. */
#ifndef CHIMERE_ENGINE_SPEED_H
#define CHIMERE_ENGINE_SPEED_H

#include "kernels/ops.h"

enum { SPEED_MAX_TYPES = 64, SPEED_PROMPT = 256 };

struct speed_cost {
    uint64_t n_mul[SPEED_MAX_TYPES];    /* per token, by quant.h id */
    uint64_t n_routed[SPEED_MAX_TYPES]; /* part of n_mul in routed experts */
    int32_t n_expert, n_used;           /* of a mixture; 0: none */
    uint64_t weight_bytes, state_bytes; /* read per token; the state is also written */
    int32_t n_op;                       /* matrix products and the operations between them */
    int32_t n_step_op; /* kernels of a step on a device, without those of experts */
    int32_t n_moe;     /* layers of routed experts */
};

struct speed {
    double decode_tok_s, prefill_tok_s; /* prefill_tok_s: for a prompt of SPEED_PROMPT tokens */
    double bandwidth;                   /* bytes per second that the device reads; 0: unknown */
};

/* Reads the cost from a file's header; the file need not contain the weights. */
int speed_cost_read(struct speed_cost *out, const char *path, struct err *e);

struct speed_probe;
int speed_probe_new(struct speed_probe **out, struct dev *dev, struct err *e); /* dev is borrowed */
void speed_probe_free(struct speed_probe *p);
double speed_bandwidth(
    const struct speed_probe *p); /* bytes per second that the device reads; 0: unknown */
int speed_predict(struct speed *out, struct speed_probe *p, const struct speed_cost *c,
                  struct err *e);
/* Measures the speed by running the model: a second or less for small models. */
int speed_measure(struct speed *out, struct dev *dev, const char *path, struct err *e);

#endif
