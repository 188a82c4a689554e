/* speed.h: how fast a model will run on a device, predicted from its header.
 *
 * A probe times the device's matrix products once per type of weight that is asked about: one token with weights
 * from memory, one with weights from the caches, few tokens, many. A model's cost is the multiply-adds per token
 * in each type, its recurrent state and its number of operations. The prediction is their sum: it holds for one
 * sequence at a small depth. A probe belongs to one thread. */
#ifndef CHIMERE_ENGINE_SPEED_H
#define CHIMERE_ENGINE_SPEED_H

#include "kernels/ops.h"

enum { SPEED_MAX_TYPES = 64, SPEED_PROMPT = 256 };

struct speed_cost {
    uint64_t n_mul[SPEED_MAX_TYPES];    /* per token, by quant.h id */
    uint64_t n_routed[SPEED_MAX_TYPES]; /* of those, in routed experts */
    int32_t n_expert, n_used;           /* of a mixture; 0: none */
    uint64_t weight_bytes, state_bytes; /* that one token reads; the state's also written */
    int32_t n_op;                       /* products and what lies between them */
};

struct speed {
    double decode_tok_s, prefill_tok_s; /* of a prompt of SPEED_PROMPT tokens */
    double bandwidth;                   /* bytes per second that the device reads; 0: unknown */
};

/* Of a file, from its header: it may be hollow. */
int speed_cost_read(struct speed_cost *out, const char *path, struct err *e);

struct speed_probe;
int speed_probe_new(struct speed_probe **out, struct dev *dev, struct err *e); /* dev is borrowed */
void speed_probe_free(struct speed_probe *p);
double speed_bandwidth(
    const struct speed_probe *p); /* bytes per second that the device reads; 0: unknown */
int speed_predict(struct speed *out, struct speed_probe *p, const struct speed_cost *c,
                  struct err *e);
/* The same by running the model: a second or less for small ones. */
int speed_measure(struct speed *out, struct dev *dev, const char *path, struct err *e);

#endif
