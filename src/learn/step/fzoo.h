/* fzoo.h: trains a LoRA adapter by forward passes only, on the quantized model that serves requests.
 *
 * Changes the matrix B of an adapter by one of the rules of zo.h; its matrix A is random and fixed. The default is FZOO
 * (one-sided Rademacher perturbations, normalised step). The members of a step are adapters of one batch, so the base
 * weights are read once per step. The loss is the mean negative log-likelihood of the answer tokens, in nats. Evolution
 * strategies maximize a reward of whole answers instead.
 *
 * Perturbations come from a counter-based generator: the same seed, samples and losses give the same adapter. One
 * thread calls; no other thread may use the model during training. */
#ifndef CHIMERE_LEARN_STEP_FZOO_H
#define CHIMERE_LEARN_STEP_FZOO_H

#include "eval/windows.h"
#include "learn/step/replay.h"
#include "model/lora.h"
#include "model/model.h"

enum { FZOO_MAX_MEMBERS = ZO_MAX_MEMBERS, FZOO_MAX_TOKENS = 4096 /* tokens of a sample */ };

struct fzoo_sample {
    const int32_t *tokens; /* borrowed */
    int32_t n_tok;
    int32_t n_prompt; /* tokens before the answer, 1 .. n_tok - 1 */
};
struct fzoo_samples {
    const struct fzoo_sample *v; /* borrowed */
    size_t n;
};

struct fzoo_params {            /* zero: use the default */
    const struct zo_rule *rule; /* fzoo */
    int32_t rank;               /* 2 */
    int32_t members;            /* perturbations per step, of the rule */
    int32_t batch;              /* samples per step, of the rule */
    int32_t steps;              /* upper limit, 400 */
    int32_t every;              /* steps between two measurements on held-out samples, 20 */
    int32_t patience;           /* stops after this many measurements without a gain, 4 */
    float lr;                   /* step size per coordinate of B, of the rule */
    float eps;                  /* size of a perturbation, of the rule */
    uint64_t seed;
    int32_t n_batch; /* tokens per forward pass, 512 */
    /* polled once per step; false stops the training; NULL: never stops */
    bool (*goes_on)(void *ud);
    /* Writes the reward of whole answers with an adapter, 0..1. Only rules that have rewards call it. */
    int (*reward)(void *ud, const struct lora_use *use, int32_t step, double *out, struct err *e);
    void (*progress)(void *ud, int32_t step, int32_t steps, double loss); /* NULL: none */
    void *ud;
    struct windows_turn turn; /* called before every forward pass */
    struct replay *log; /* written: what makes the adapter again; replay_fini; NULL: not wanted */
};

/* Measures the mean loss per sample, losses [s.n], of the model with an adapter (NULL: without). turn may be NULL. */
int fzoo_losses(double *losses, struct model *m, const struct lora_use *use, struct fzoo_samples s,
                const struct windows_turn *turn, struct err *e);

/* *out: an adapter with the B that was best on `held`; free it with lora_close. B is zero if no step was better
 * than the model alone. CHIMERE_EINVAL: too few samples; CHIMERE_ECANCELLED: goes_on returned false. On failure
 * *out is NULL. */
int fzoo_train(struct lora **out, struct model *m, struct fzoo_samples train,
               struct fzoo_samples held, const struct fzoo_params *p, struct err *e);

#endif
