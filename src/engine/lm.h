/* lm.h: what the scheduler needs of a language model: sequences, and logits for batches of their tokens.
 *
 * Three implement it: a loaded model (lm_model.c), one that libllama runs (lm_llama.c) and a weightless one for
 * tests of all that lies above (lm_fake.c). Sequences are opaque; the engine's thread only. */
#ifndef CHIMERE_ENGINE_LM_H
#define CHIMERE_ENGINE_LM_H

#include "engine/engine.h"
#include "model/forward.h"

enum { LM_N_DRAFT = 3 }; /* drafted tokens if the user names no number */

struct drafter;
struct lm;

struct lm_ops {
    int (*seq_new)(struct lm *l, struct seq **out, struct err *e);
    void (*seq_free)(struct lm *l, struct seq *s);
    int64_t (*seq_pos)(struct lm *l, const struct seq *s);
    void (*seq_drop)(struct lm *l, struct seq *s, int32_t n);
    /* as forward_run */
    int (*run)(struct lm *l, const struct batch_item *runs, int32_t n_run, const float **logits,
               struct err *e);
    /* Rows of a run with logits NULL, as forward_select and forward_row; NULL: rows are read in place. */
    int (*select)(struct lm *l, struct select_args *a, struct err *e);
    const float *(*row)(struct lm *l, int32_t i, struct err *e);
    void (*close)(struct lm *l);
    const struct lm_mark_ops *marks; /* NULL: states cannot be kept */
};

/* Checkpoints of sequences, as in model/checkpoint.h. restore: CHIMERE_ENOENT if the state is lost for good. save and load: any thread, save only of a mark without
 * pages in the pool. */
struct lm_mark_ops {
    int (*mark)(struct lm *l, struct seq *s, int32_t n_drop, struct checkpoint **out,
                struct err *e);
    void (*checkpoint_free)(struct lm *l, struct checkpoint *m);
    int (*restore)(struct lm *l, struct seq *s, const struct checkpoint *m, bool first,
                   int32_t n_max, struct err *e);
    int64_t (*ctx_to_load)(struct lm *l, const struct checkpoint *m);
    int32_t (*page_out)(struct lm *l, struct checkpoint *m, int32_t n_max, struct err *e);
    int64_t (*ctx_free)(struct lm *l);
    uint64_t (*host_bytes)(struct lm *l);
    int (*save)(struct lm *l, const struct checkpoint *m, const char *path, const void *extra,
                size_t n_extra, struct err *e);
    int (*load)(struct lm *l, const char *path, struct checkpoint **out, void **extra,
                size_t *n_extra, struct err *e);
};

struct lm {
    const struct lm_ops *ops;
    struct drafter *drafter; /* owned; NULL: the model has none */
    int32_t n_vocab;
    int32_t n_row_max; /* rows of logits of one run; 0: no bound is known, and none are selected */
    int64_t n_ctx;
    uint64_t layout;           /* names the model and the form of its states in files */
    uint64_t checkpoint_bytes; /* of a mark without its pages */
    uint64_t page_bytes;       /* of KV_PAGE positions */
};

int lm_open_model(struct lm **out, struct model *m, const struct engine_params *p, struct err *e);

/* A model on several devices: [n] parts of the layers in their order, whose rows pass from one to the next through the
 * host's memory; or n slices of every layer (model_open_slice), which run at once. Each has its share of every
 * sequence and of its kept states. */
int lm_open_parts(struct lm **out, struct model *const *parts, int32_t n,
                  const struct engine_params *p, struct err *e);
/* engine_new over such parts. */
int engine_new_parts(struct engine **out, struct model *const *parts, int32_t n,
                     const struct tok *tok, const struct engine_params *p, struct err *e);

/* ---- lm_model.c, for lm_parts.c ---- */

int32_t lm_n_out_max(const struct engine_params *p);
struct seq_pool_params lm_pool_params(const struct engine_params *p);

/* A model without weights: the next token is a function of the last two; after `n_eos` tokens behind the
 * prompt it prefers the end token. Logits are the same on every machine. delay_us: time a step takes. */
struct lm_fake_params {
    int32_t n_vocab, eos, n_eos;
    int64_t n_ctx;
    int32_t n_seq;
    int32_t delay_us;
    bool select;                           /* its rows pretend to lie elsewhere */
    uint64_t checkpoint_bytes, page_bytes; /* that its states pretend to take */
    int32_t page_us;                       /* and time to restore a page */
    int32_t n_run_ok;                      /* runs before the device fails; 0: it does not */
    const int32_t *script; /* or: the tokens that it answers with, then eos; borrowed */
    int32_t n_script;
};
int lm_open_fake(struct lm **out, const struct lm_fake_params *p, struct err *e);

/* engine_new over any model; takes ownership of lm, also on failure. */
int engine_new_over(struct engine **out, struct lm *lm, const struct tok *tok,
                    const struct engine_params *p, struct err *e);

#endif
