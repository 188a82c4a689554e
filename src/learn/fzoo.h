/* fzoo.h: trains a LoRA adapter with forward passes alone, on the quantised model that serves.
 *
 * FZOO's rule (one-sided Rademacher perturbations, normalised step) on the matrix B of an adapter whose A is
 * random and fixed. All members of a step are adapters of one batch, so that the base weights are read once
 * per step. The members' mean loss stands in for the loss at the centre: it cancels the curvature that all
 * share and saves a forward pass. The loss is the mean negative log-likelihood of answer tokens, in nats.
 *
 * Every perturbation comes from a counter-based generator: the same seed, samples and losses give the same
 * adapter. One thread calls; no other thread uses the model during training. */
#ifndef CHIMERE_LEARN_FZOO_H
#define CHIMERE_LEARN_FZOO_H

#include "eval/windows.h"
#include "model/lora.h"
#include "model/model.h"

enum { FZOO_MAX_MEMBERS = 32, FZOO_MAX_TOKENS = 4096 /* of a sample */ };

struct fzoo_sample {
    const int32_t *tokens; /* borrowed */
    int32_t n_tok;
    int32_t n_prompt; /* tokens before the answer, 1 .. n_tok - 1 */
};
struct fzoo_samples {
    const struct fzoo_sample *v; /* borrowed */
    size_t n;
};

struct fzoo_params {  /* zero: the default */
    int32_t rank;     /* 2 */
    int32_t members;  /* perturbations per step, 8 */
    int32_t batch;    /* samples per step, 4 */
    int32_t steps;    /* at most, 400 */
    int32_t every;    /* steps between measurements on held-out samples, 20 */
    int32_t patience; /* measurements without a gain before it stops, 4 */
    float lr;         /* of a coordinate of B, scaled down to 0 by a cosine */
    float eps;        /* size of a perturbation */
    uint64_t seed;
    int32_t n_batch;           /* tokens of one forward pass, 512 */
    bool (*goes_on)(void *ud); /* polled per step; NULL: always */
    void (*progress)(void *ud, int32_t step, int32_t steps, double loss); /* NULL: none */
    void *ud;
    struct windows_turn turn; /* of every forward pass */
};

/* Mean loss per sample, losses [s.n], of the model with an adapter, NULL: without. turn NULL: none. */
int fzoo_losses(double *losses, struct model *m, const struct lora_use *use, struct fzoo_samples s,
                const struct windows_turn *turn, struct err *e);

/* *out, by lora_close, has the B that was best on `held`; B is zero if none beat the model alone.
 * CHIMERE_EINVAL: too few samples; CHIMERE_ECANCELLED: goes_on said no; *out is NULL then. */
int fzoo_train(struct lora **out, struct model *m, struct fzoo_samples train,
               struct fzoo_samples held, const struct fzoo_params *p, struct err *e);

#endif
