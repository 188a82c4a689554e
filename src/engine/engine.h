/* engine.h: sequences -> tokens: the one thread boundary.
 *
 * An engine owns a thread that owns the device, all sequences and all state. Other threads post jobs,
 * which they place and keep until on_done has run, and may cancel them. Batching is continuous: each
 * step runs one token (or one verified draft) of every decoding sequence together with at most
 * n_batch - that many tokens of prompts, in chunks of at most n_chunk a prompt, so that no decoding
 * sequence waits for more than one chunk. Jobs are served in order of arrival; prompts of several jobs
 * take turns. The queue is bounded.
 *
 *   POSTED --slot free--> PREFILL --last prompt token--> DECODE --stop, length, cancel, error--> DONE
 *
 * A job that fails fails alone. Callbacks run on the engine's thread and must not block. */
#ifndef CHIMERE_ENGINE_ENGINE_H
#define CHIMERE_ENGINE_ENGINE_H

#include "base/err.h"
#include "engine/sampler.h"
#include "kernels/tensor.h"
#include "text/tok/tok.h"

struct lora_use;
struct model;
struct store;
struct team;

/* What becomes of states that a later prompt may begin with (prefix.h). */
struct cache_params {
    uint64_t ram_bytes;        /* host memory for checkpoints; 0: none are kept */
    uint64_t disk_bytes;       /* of files of all models; 0: none */
    uint64_t owner_disk_bytes; /* of one owner's files; 0: no limit but disk_bytes */
    const char *dir;     /* where those go, made if need be; borrowed for engine_new; NULL: none */
    struct store *store; /* their index; borrowed until engine_free; NULL: none */
    int32_t n_every;     /* prompt tokens between two checkpoints */
};

struct engine_params {
    int32_t n_seq;     /* sequences decoding at once */
    int64_t n_ctx;     /* positions of all sequences together */
    int64_t n_ctx_seq; /* of one; 0: n_ctx */
    int32_t n_batch;   /* tokens of one step, 512 */
    int32_t n_chunk;   /* prompt tokens of one sequence in a step that also decodes, 256 */
    int32_t n_queue;   /* jobs waiting, 256 */
    uint32_t k_type, v_type;
    bool deterministic; /* a job's text depends on nothing but itself: prompts are cut at absolute
                           positions whatever else runs, and drafting depends on no clock */
    bool speculate;     /* draft with what the model brings (its prediction blocks) */
    const char *
        draft; /* file of a drafter (dflash.h) in place of what the model brings; borrowed for engine_new; NULL: none */
    int32_t n_draft_max;  /* 1..STEP_MAX_TOK - 1; 0: 3 of the model drafter, 7 of text */
    struct moe_keep keep; /* of a mixture's experts, where a job says nothing */
    bool select;          /* choose from ops->select even where whole rows are at hand: for tests */
    struct cache_params cache;
};
void engine_defaults(struct engine_params *p);

enum { ENGINE_MAX_SEQS = 256 };

enum finish {
    FINISH_NONE,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CALLS, /* the answer is tool calls; never an engine's own */
    FINISH_CANCELLED,
    FINISH_ERROR
};

enum draft_source { /* docs/speculation.md */
                    DRAFT_GRAMMAR,
                    DRAFT_LOOKUP,
                    DRAFT_SUFFIX,
                    DRAFT_ENGRAM,
                    DRAFT_MODEL,
                    DRAFT_N_SOURCE
};
enum { DRAFT_N_SLOT = 8 }; /* the last one stands for all after it */
const char *draft_source_name(enum draft_source s);

struct draft_stats {
    int32_t n_round; /* steps that verified drafts */
    int32_t n_drafted[DRAFT_N_SOURCE][DRAFT_N_SLOT], n_accepted[DRAFT_N_SOURCE][DRAFT_N_SLOT];
};
void draft_stats_add(struct draft_stats *sum, const struct draft_stats *s);

struct engine_stats { /* of one job */
    int32_t n_prompt, n_cached, n_generated, n_drafted, n_accepted;
    double queue_ms, prefill_ms, decode_ms;
    struct think_stats think;
    struct draft_stats drafts;
};

struct engram_use;

/* What to generate and how: the caller's part of a job. Pointers are borrowed until on_done has returned. */
/* Tokens of a prompt that are rows of an image (vision.h); their ids only name them. */
struct job_image {
    int32_t at, n;     /* prompt[at .. at + n - 1] */
    int32_t most;      /* rows of one step */
    int32_t width;     /* numbers of a row */
    bool is_whole;     /* all n in one step */
    const float *rows; /* [n, width] */
};

struct job_params {
    const int32_t *prompt;
    int32_t n_prompt;               /* >= 1 */
    const struct job_image *images; /* [n_image], ascending; of a model that sees */
    int32_t n_image;
    int32_t max_tokens; /* <= 0: up to the context */
    struct sampler_params sampling;
    const struct lora_use *loras;
    int32_t n_lora;
    struct moe_keep keep; /* of a mixture's experts; mass 0: as the engine, 1: all */
    bool no_speculation;
    const struct engram_use *engram; /* n-gram memory to mix in, and to draft with; NULL: none */
    /* Prefix reuse; all may be left zero. session: a conversation's name, whose state is kept between jobs.
     * marks: prompt positions worth a checkpoint, ascending: where messages begin, the last user's and
     * the answer's own among them. */
    const char *session;
    const int32_t *marks; /* [n_mark] */
    int32_t n_mark;
    /* Jobs share states within one scope only; owner is whom the files of saved states count for. */
    uint64_t scope, owner;
    bool no_cache; /* evaluate the whole prompt */
    bool keep_end; /* others will continue this answer from its very end; wants `speculate` */
    /* on_prompt reports every token of the prompt with so many alternatives; wants no_cache. Slow: the prompt is
     * evaluated a few tokens per step. */
    bool prompt_probs;
};

struct engine_job {
    struct job_params p; /* filled by the caller, like the callbacks */
    /* One token: return false to stop (finish: stop). probs NULL unless asked for. is_end: the token ended
     * the generation and is no text. */
    bool (*on_token)(struct engine_job *j, int32_t token, bool is_end,
                     const struct sampler_probs *probs);
    /* Progress of the prompt; may be NULL. */
    void (*on_prefill)(struct engine_job *j, int32_t n_done, int32_t n_prompt);
    /* With prompt_probs: token p.prompt[pos]; probs NULL for the first. */
    void (*on_prompt)(struct engine_job *j, int32_t pos, const struct sampler_probs *probs);
    /* Last call for this job; result fields are set. */
    void (*on_done)(struct engine_job *j);
    void *ud;

    /* results */
    enum finish finish;
    struct err err; /* FINISH_ERROR */
    struct engine_stats stats;

    /* the engine's own */
    struct engine_job *next;
    int64_t posted_ns;
    _Atomic bool cancel;    /* set by engine_cancel under the queue's lock */
    struct waiter *waiter;  /* of engine_run */
    struct team *team;      /* that gave it to an engine (team.h); NULL: none */
    int32_t member, n_todo; /* of it: which one; prompt tokens that it counts as to be evaluated */
};

struct engine;

/* The model and tokenizer are borrowed until engine_free. tok may be NULL (token ids only). */
int engine_new(struct engine **out, struct model *m, const struct tok *tok,
               const struct engine_params *p, struct err *e);
int64_t engine_ctx(const struct engine *e); /* positions that one sequence may have */
/* The error of a prompt that leaves no room, in the one sentence that clients look for; returns its code. */
int engine_refuse_prompt(int64_t n_prompt, int64_t n_ctx, struct err *e);
void engine_free(struct engine *e); /* cancels everything and waits */

/* CHIMERE_EBUSY when the queue is full; argument errors at once, by name. */
int engine_submit(struct engine *e, struct engine_job *j, struct err *err);
void engine_cancel(struct engine *e, struct engine_job *j); /* takes effect within one step */

/* From a callback: work that shall wait until every sequence has its token of this step, such as waking who
 * reads them: fn runs once, on this thread. At once where no step is running on this thread. */
struct engine_later {
    void (*fn)(struct engine_later *l); /* l may be gone or posted again behind it */
    struct engine_later *next;
};
void engine_later(struct engine_later *l);
/* submit, then wait until it is done: for callers without an event loop. Returns j->err.code. */
int engine_run(struct engine *e, struct engine_job *j, struct err *err);

struct engine_totals {
    int64_t n_step, n_prompt, n_generated, n_drafted, n_accepted, n_job, n_failed;
    int32_t n_failed_steps;     /* in a row; a device that failed stays failed */
    int64_t n_row, n_row_whole; /* sampled from; of them those that had to cross to the host */
    int32_t n_active, n_waiting;
    int64_t n_ctx, n_ctx_free; /* positions of all sequences together */
    int64_t n_cached;          /* prompt tokens that were not evaluated again */
    int32_t n_state;           /* checkpoints in memory */
    int32_t n_state_disk;      /* and in files */
    uint64_t state_bytes;      /* host memory of the former */
    double step_ms_mean;
};
void engine_totals(struct engine *e, struct engine_totals *t);
/* Bytes of state and activations that engine_new will take, for plans. */
uint64_t engine_bytes(const struct model *m, const struct engine_params *p);

#endif
