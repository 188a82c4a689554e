/* sched.h: the steps of the engine: which tokens run together and what happens with their logits.
 *
 * Owned by the engine's thread. A step admits waiting jobs to free slots, drafts, runs one batch, samples every
 * finished row, verifies drafts, reports tokens and retires finished jobs. */
#ifndef CHIMERE_ENGINE_SCHED_H
#define CHIMERE_ENGINE_SCHED_H

#include "engine/lm.h"
#include "engine/prefix.h"
#include "engine/draft/spec.h"

/* LOAD: waits for a state from a file, or from another job with the same prompt. CLOSING: the job has ended; its state
 * will be saved next. */
enum phase { PHASE_FREE, PHASE_LOAD, PHASE_PREFILL, PHASE_DECODE, PHASE_CLOSING };
enum { SCHED_MAX_STOPS = 6 };

struct active {
    enum phase phase;
    struct engine_job *job; /* borrowed from the caller of engine_submit */
    /* view: evaluated before the next token is sampled; the job's prompt, or what it carries */
    const int32_t *prompt;
    int32_t n_prompt;
    struct seq *seq;             /* owned */
    struct sampler *sampler;     /* owned */
    struct engram_mixer *engram; /* owned; NULL: none */
    int32_t n_prefilled;
    int32_t next;            /* sampled, not evaluated yet */
    struct spec_draft draft; /* verified in this step */
    int64_t n_ctx_held;      /* positions reserved for this job */
    struct spec_seq spec;
    int64_t start_ns, decode_ns;
    bool fails;           /* at the end of the step, by its job's err */
    bool is_kept;         /* its states go to the prefix cache */
    struct moe_keep keep; /* the job's value, or else the engine's */
    /* with keep.all_at: of the distribution from which `next` was drawn, in nats */
    float entropy;
    /* salt: hash of adapters and scope; session: hash of the conversation's name */
    uint64_t salt, session;
    uint64_t job_scope, job_owner;  /* copies: the job is gone when the sequence closes */
    int32_t stops[SCHED_MAX_STOPS]; /* prompt positions at which to make checkpoints, ascending */
    int32_t n_stop;
    int64_t kept_pos; /* position of the newest checkpoint, also if making it failed */
    /* the checkpoint to continue from; pinned while it is read and restored */
    struct prefix_entry *hit;
    bool is_partial; /* seq contains part of hit */
    struct prefix_lookup look;
    int64_t prefill_ns; /* when the evaluation of the prompt began, after n_reused tokens */
    int32_t n_reused;
    /* other jobs wait for its state before the last token of the prompt */
    bool has_twins;
    bool keep_end; /* copied from the job */
    /* pinned checkpoints: at the end of the prompt; the newest of the answer */
    struct prefix_entry *began, *ended;
};

/* The rows of the current step from which tokens are sampled (sched_rows.c). */
struct sched_rows {
    const float *logits; /* view [n, n_vocab]; NULL: use the selected rows below */
    int32_t n, n_max;    /* n: rows of this step; n_max 0: the model does not select */
    struct select_args args;
    struct select_row *rows; /* owned [n_max] */
    const uint64_t **masks;  /* owned [n_max], masks of the samplers */
    int32_t *ids, *id_at;    /* owned [n_max * SELECT_MAX_IDS], [n_max + 1] */
    float *id_logits;        /* owned [n_max * SELECT_MAX_IDS] */
    bool *whole;             /* owned [n_max] */
};

struct sched {
    struct lm *lm;         /* borrowed from the engine */
    const struct tok *tok; /* borrowed; may be NULL */
    struct engine_params p;
    /* owned copy of p.cache.dir; NULL: none */
    char *state_dir;
    struct active *active;  /* owned [n_seq] */
    int32_t n_active, turn; /* turn: index of the sequence whose prompt comes first */
    int64_t n_ctx_held;
    struct batch_item *runs;        /* owned [n_seq] */
    int32_t *owner;                 /* owned [n_seq]: runs[i] belongs to active[owner[i]] */
    int32_t *n_kept;                /* owned [n_seq] */
    bool *follow;                   /* owned [n_seq] */
    int32_t *verify;                /* owned [n_seq, STEP_MAX_TOK]: the next token and its draft */
    struct drafter_request *drafts; /* owned [n_seq] */
    struct spec_offer *offers;      /* owned [SPEC_MAX_SEQS] */
    int32_t n_asked;                /* tokens asked of the model drafter in this step */
    double draft_ms;                /* time that the model drafter took */
    double cut_ms; /* time that tokenizing forced text took before this step, as it allocates */
    struct spec spec;
    struct sched_rows rows;
    struct prefix *prefix; /* owned; NULL: no prefix cache */
    int32_t grid;          /* checkpoint positions are multiples of it */
    double move_ms;        /* time left in this step for restoring states */
    struct engine_totals totals;
    /* Of the totals, but read by other threads at once: it is set before the answer that fails is sent, so that who has
     * read that answer does not find the server ready. */
    _Atomic bool is_lost;
};

int sched_init(struct sched *s, struct lm *lm, const struct tok *tok, const struct engine_params *p,
               struct err *e);
void sched_fini(struct sched *s);
/* Returns true if the job was moved to a slot, or ended at once. False: no slot or memory is free; try again later. */
bool sched_admit(struct sched *s, struct engine_job *j);
/* Runs one step; returns false if there was nothing to run. */
bool sched_step(struct sched *s);
/* Called after each step: makes checkpoints, frees ended sequences, makes room for the next step. Unlike sched_step, it
 * may allocate. Returns true if files are being written or read. */
bool sched_keep(struct sched *s);
void sched_cancel_all(struct sched *s);

/* ---- in sched_rows.c, used by sched.c ---- */

int sched_open_rows(struct sched *s, struct err *e);
void sched_close_rows(struct sched *s);
/* Runs the batch. Call sched_pick for its rows, in order. */
int sched_run_batch(struct sched *s, int32_t n_run, struct err *e);
int32_t sched_pick(struct sched *s, struct active *a, int32_t row, struct sampler_probs *probs,
                   struct err *e);

/* ---- in sched.c, used by sched_keep.c ---- */

int32_t sched_n_in(const struct sched *s, enum phase phase);
void sched_fail(struct sched *s, struct active *a, const struct err *e);

/* ---- in sched_keep.c, used by sched.c ---- */

int sched_open_cache(struct sched *s, struct err *e);
void sched_begin_cached(struct sched *s, struct active *a); /* sets the phase */
int32_t sched_next_stop(const struct sched *s, const struct active *a);

#endif
