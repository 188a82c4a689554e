/* sched.h: one step of the engine: which tokens run together, what becomes of their logits.
 *
 * Owned by the engine's thread. A step: admit waiting jobs into free slots, draft, run one batch, sample
 * every finished row, verify drafts, report tokens, retire what is done. */
#ifndef CHIMERE_ENGINE_SCHED_H
#define CHIMERE_ENGINE_SCHED_H

#include "engine/lm.h"
#include "engine/prefix.h"
#include "engine/spec.h"

/* LOAD: waits for a state, from a file or from a job with its prompt. CLOSING: its job is done, its state is about to be kept. */
enum phase { PHASE_FREE, PHASE_LOAD, PHASE_PREFILL, PHASE_DECODE, PHASE_CLOSING };
enum { SCHED_MAX_STOPS = 6 };

struct active {
    enum phase phase;
    struct engine_job *job;      /* borrowed from its submitter */
    struct seq *seq;             /* owned */
    struct sampler *sampler;     /* owned */
    struct engram_mixer *engram; /* owned; NULL: none */
    int32_t n_prefilled;
    int32_t next;            /* sampled, not yet in the sequence */
    struct spec_draft draft; /* verified in this step */
    int64_t n_ctx_held;      /* positions promised to this job */
    struct spec_seq spec;
    int64_t start_ns, decode_ns;
    bool is_kept;                   /* its states go to the prefix cache */
    struct moe_keep keep;           /* the job's, or the engine's */
    uint64_t salt, session;         /* adapters and scope; conversation */
    uint64_t job_scope, job_owner;  /* as the job's, which is gone when the sequence closes */
    int32_t stops[SCHED_MAX_STOPS]; /* prompt positions to keep, ascending */
    int32_t n_stop;
    int64_t kept_pos;         /* newest position kept, or given up */
    struct prefix_entry *hit; /* pinned while its file is read, and while it is restored */
    bool is_partial;          /* seq holds a part of hit */
    bool has_twins;           /* others wait for its state before the last token of the prompt */
    bool keep_end;            /* as the job's */
    struct prefix_entry *began, *ended; /* pinned: behind the prompt; newest behind the answer */
};

/* What the rows of the present step are sampled from (sched_rows.c). */
struct sched_rows {
    const float *logits; /* view [n, n_vocab]; NULL: those below */
    int32_t n, n_max;    /* rows of this step; 0: the model selects nothing */
    struct select_args args;
    struct select_row *rows; /* owned [n_max] */
    const uint64_t **masks;  /* owned [n_max], of the samplers */
    int32_t *ids, *id_at;    /* owned [n_max * SELECT_MAX_IDS], [n_max + 1] */
    float *id_logits;        /* owned [n_max * SELECT_MAX_IDS] */
    bool *whole;             /* owned [n_max] */
};

struct sched {
    struct lm *lm;         /* borrowed from the engine */
    const struct tok *tok; /* borrowed; may be NULL */
    struct engine_params p;
    char *state_dir;        /* owned: p.cache.dir, which is the caller's; NULL: none */
    struct active *active;  /* owned [n_seq] */
    int32_t n_active, turn; /* turn: whose prompt is first in line */
    int64_t n_ctx_held;
    struct batch_item *runs;        /* owned [n_seq] */
    int32_t *owner;                 /* owned [n_seq]: runs[i] belongs to active[owner[i]] */
    int32_t *n_kept;                /* owned [n_seq] */
    bool *follow;                   /* owned [n_seq] */
    int32_t *verify;                /* owned [n_seq, STEP_MAX_TOK]: next token and its drafts */
    struct drafter_request *drafts; /* owned [n_seq] */
    struct spec_offer *offers;      /* owned [SPEC_MAX_SEQS] */
    int32_t n_asked;                /* tokens of the model drafter, in this step */
    double draft_ms;                /* that it took */
    struct spec spec;
    struct sched_rows rows;
    struct prefix *prefix; /* owned; NULL: no states are kept */
    int32_t grid;          /* of kept positions */
    double move_ms;        /* that this step may still spend on restoring states */
    struct engine_totals totals;
};

int sched_init(struct sched *s, struct lm *lm, const struct tok *tok, const struct engine_params *p,
               struct err *e);
void sched_fini(struct sched *s);
/* True if the job was taken into a slot (or ended at once); false: no room now, ask again later. */
bool sched_admit(struct sched *s, struct engine_job *j);
/* Runs one step; returns false when there was nothing to run. */
bool sched_step(struct sched *s);
/* After each step: keeps states, frees what ended, makes room for the next step. Allocates, where sched_step
 * does not. True: files are being written or read. */
bool sched_keep(struct sched *s);
void sched_cancel_all(struct sched *s);

/* ---- sched_rows.c, for sched.c ---- */

int sched_open_rows(struct sched *s, struct err *e);
void sched_close_rows(struct sched *s);
/* Runs the batch; its rows are sampled from by sched_pick, in their order. */
int sched_run_batch(struct sched *s, int32_t n_run, struct err *e);
int32_t sched_pick(struct sched *s, struct active *a, int32_t row, struct sampler_probs *probs,
                   struct err *e);

/* ---- sched.c, for sched_keep.c ---- */

int32_t sched_n_in(const struct sched *s, enum phase phase);
void sched_fail(struct sched *s, struct active *a, const struct err *e);

/* ---- sched_keep.c, for sched.c ---- */

int sched_open_cache(struct sched *s, struct err *e);
void sched_begin_cached(struct sched *s, struct active *a); /* sets the phase */
int32_t sched_next_stop(const struct sched *s, const struct active *a);

#endif
