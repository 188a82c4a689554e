/* sched.h: one step of the engine: which tokens run together, what becomes of their logits.
 *
 * Owned by the engine's thread. A step: admit waiting jobs into free slots, draft, run one batch, sample
 * every finished row, verify drafts, report tokens, retire what is done. */
#ifndef CHIMERE_ENGINE_SCHED_H
#define CHIMERE_ENGINE_SCHED_H

#include "engine/lm.h"
#include "engine/spec.h"

enum phase { PHASE_FREE, PHASE_PREFILL, PHASE_DECODE };

struct active {
    enum phase phase;
    struct job *job;             /* borrowed from its submitter */
    struct seq *seq;             /* owned */
    struct sampler *sampler;     /* owned */
    struct engram_mixer *engram; /* owned; NULL: none */
    int32_t n_prefilled;
    int32_t next; /* sampled, not yet in the sequence */
    int32_t n_draft;
    int32_t draft[STEP_MAX_TOK];
    int64_t n_ctx_held; /* positions promised to this job */
    struct spec_seq spec;
    int64_t start_ns, decode_ns;
};

struct sched {
    struct lm *lm;         /* borrowed from the engine */
    const struct tok *tok; /* borrowed; may be NULL */
    struct engine_params p;
    struct active *active;  /* owned [n_seq] */
    int32_t n_active, turn; /* turn: whose prompt is first in line */
    int64_t n_ctx_held;
    struct run *runs;        /* owned [n_seq] */
    int32_t *owner;          /* owned [n_seq]: runs[i] belongs to active[owner[i]] */
    int32_t *n_kept;         /* owned [n_seq] */
    bool *follow;            /* owned [n_seq] */
    int32_t *verify;         /* owned [n_seq, STEP_MAX_TOK]: next token and its drafts */
    struct lm_draft *drafts; /* owned [n_seq] */
    struct spec spec;
    struct engine_totals totals;
};

int sched_init(struct sched *s, struct lm *lm, const struct tok *tok, const struct engine_params *p,
               struct err *e);
void sched_fini(struct sched *s);
/* True if the job was taken into a slot (or ended at once); false: no room now, ask again later. */
bool sched_admit(struct sched *s, struct job *j);
/* Runs one step; returns false when there was nothing to do. */
bool sched_step(struct sched *s);
void sched_cancel_all(struct sched *s);

#endif
