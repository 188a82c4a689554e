/* lm.h: what the scheduler needs of a language model: sequences, and logits for batches of their tokens.
 *
 * There are three implementations: a loaded model (lm_model.c), a model that libllama runs (lm_llama.c), and a model
 * without weights for testing the code above this interface (lm_fake.c). Sequences are opaque. Only the engine's thread
 * calls this interface. */
#ifndef CHIMERE_ENGINE_LM_H
#define CHIMERE_ENGINE_LM_H

#include "engine/engine.h"
#include "model/forward.h"

enum { LM_N_DRAFT = 3 }; /* default length of a draft, used if the user gives no number */

struct drafter;
struct link_stats;
struct lm;
struct lm_turns;

struct lm_ops {
    int (*seq_new)(struct lm *l, struct seq **out, struct err *e);
    void (*seq_free)(struct lm *l, struct seq *s);
    int64_t (*seq_pos)(struct lm *l, const struct seq *s);
    void (*seq_drop)(struct lm *l, struct seq *s, int32_t n);
    /* runs a batch, as forward_run */
    int (*run)(struct lm *l, const struct batch_item *runs, int32_t n_run, const float **logits,
               struct err *e);
    /* Read rows of a run that was called with logits NULL, as forward_select and forward_row do. NULL: rows are read in
     * place. */
    int (*select)(struct lm *l, struct select_args *a, struct err *e);
    const float *(*row)(struct lm *l, int32_t i, struct err *e);
    void (*close)(struct lm *l);
    /* What each of several devices that add up their results has exchanged, [GPUS_MAX]; returns their number. Any
     * thread. NULL: none do. */
    int32_t (*links)(const struct lm *l, struct link_stats *out);
    const struct lm_mark_ops *marks; /* NULL: states cannot be saved */
};

/* Checkpoints of sequences, as in model/seq/checkpoint.h. restore returns CHIMERE_ENOENT if the state is lost permanently.
 * save and load may be called from any thread; save only for a checkpoint without pages in the pool. */
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
    /* largest number of logits rows per run; 0: the bound is unknown, and rows are not selected from */
    int32_t n_row_max;
    int64_t n_ctx;
    bool is_split;   /* over several devices: if one is lost, it cannot work */
    uint64_t layout; /* identifies the model and the file format of its states */
    uint64_t device; /* identifies the kinds of devices, on which the last bits of a state depend */
    uint64_t checkpoint_bytes; /* host memory of a checkpoint without its pages */
    uint64_t page_bytes;       /* size of KV_PAGE positions */
    bool lends;                /* pages in device memory that are not in use hold experts */
};

int lm_open_model(struct lm **out, struct model *m, const struct engine_params *p, struct err *e);

/* A model on several devices. Either [n] parts, each with some of the layers in order: rows pass from one part to the
 * next through host memory. Or n slices of every layer (model_open_slice), which run concurrently. Each device has its
 * share of every sequence and checkpoint. */
int lm_open_parts(struct lm **out, struct model *const *parts, int32_t n, struct lm_turns *turns,
                  const struct engine_params *p, struct err *e);
/* Like engine_new, for such parts. */
int engine_new_parts(struct engine **out, struct model *const *parts, int32_t n,
                     struct lm_turns *turns, const struct tok *tok, const struct engine_params *p,
                     struct err *e);

/* Several engines that run the same parts take turns on each device: while one computes its first layers, another
 * computes its last ones on the next device. turns NULL above: one engine. It must outlive the engines. */
int lm_turns_new(struct lm_turns **out, int32_t n, struct err *e);
void lm_turns_free(struct lm_turns *t);

/* ---- in lm_model.c, used by lm_parts.c ---- */

int32_t lm_n_out_max(const struct engine_params *p);
struct seq_pool_params lm_pool_params(const struct engine_params *p);
/* struct lm's layout; pool: of the whole model, or its shape (seq_parts.h) */
uint64_t lm_layout(const struct model *m, const struct seq_pool *pool,
                   const struct engine_params *p);
/* struct lm's device, of n parts or slices: the kinds of all devices, and what of the model is on which. */
uint64_t lm_device(struct model *const *parts, int32_t n);

/* A model without weights, for tests. The next token is a function of the last two; after `n_eos` answer tokens it
 * prefers the end token. Logits are the same on every machine. delay_us: duration of a step. */
struct lm_fake_params {
    int32_t n_vocab, eos, n_eos;
    int64_t n_ctx;
    int32_t n_seq;
    int32_t delay_us;
    bool select;                           /* behaves as if its rows were not in host memory */
    uint64_t checkpoint_bytes, page_bytes; /* simulated size of its states */
    int32_t page_us;                       /* simulated time to restore a page */
    int32_t n_run_ok; /* runs that succeed before a simulated device failure; 0: it never fails */
    const int32_t *script; /* alternatively: the tokens of its answer, followed by eos; borrowed */
    int32_t n_script;
};
int lm_open_fake(struct lm **out, const struct lm_fake_params *p, struct err *e);

/* Like engine_new, for any implementation; takes ownership of lm, also on failure. */
int engine_new_over(struct engine **out, struct lm *lm, const struct tok *tok,
                    const struct engine_params *p, struct err *e);

#endif
