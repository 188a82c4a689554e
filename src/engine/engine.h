/* engine.h: turns sequences into tokens. It is the only interface between the engine's thread and all others.
 *
 * An engine owns a thread, and that thread owns the device, all sequences and all state. Other threads post jobs and
 * may cancel them; the caller allocates a job and keeps it until on_done has run. Batching is continuous: each step
 * runs one token (or one verified draft) of every decoding sequence. The rest of the n_batch tokens are prompt tokens,
 * in chunks of at most n_chunk per prompt, so that no decoding sequence waits for more than one chunk. Jobs start in
 * order of arrival; the prompts of several jobs take turns. The queue is bounded.
 *
 *   POSTED --slot free--> PREFILL --last prompt token--> DECODE --stop, length, cancel, error--> DONE
 *
 * If a job fails, the others continue. Callbacks run on the engine's thread and must not block. */
#ifndef CHIMERE_ENGINE_ENGINE_H
#define CHIMERE_ENGINE_ENGINE_H

#include "base/err.h"
#include "engine/sampler/sampler.h"
#include "kernels/tensor.h"
#include "text/tok/tok.h"

struct engram_use;
struct lora_use;
struct model;
struct store;
struct team;

/* The prefix cache (prefix.h): what is kept of states with which a later prompt may begin. */
struct cache_params {
    uint64_t ram_bytes;        /* host memory for checkpoints; 0: none are kept */
    uint64_t disk_bytes;       /* limit of the files of all models together; 0: no files */
    uint64_t owner_disk_bytes; /* limit of one owner's files; 0: disk_bytes is the only limit */
    const char *dir;     /* their folder, created if missing; borrowed for engine_new; NULL: none */
    struct store *store; /* index of the files; borrowed until engine_free; NULL: none */
    int32_t n_every;     /* prompt tokens between two checkpoints */
    const char *shared_dir; /* a folder that servers share (prefix_shared.h); like dir */
    uint64_t shared_bytes, shared_owner_bytes, shared_build; /* build: equal for equal programs */
};

struct engine_params {
    int32_t n_seq;     /* sequences that decode concurrently */
    int64_t n_ctx;     /* positions of all sequences together */
    int64_t n_ctx_seq; /* positions of one sequence; 0: n_ctx */
    int32_t n_batch;   /* tokens of one step; default 512 */
    int32_t n_chunk;   /* prompt tokens of one sequence in a step that also decodes; default 256 */
    int32_t n_queue;   /* jobs that may wait; default 256 */
    uint32_t k_type, v_type;
    /* a job's text depends only on that job: prompts are cut at absolute positions; drafting does not read a clock */
    bool deterministic;
    bool speculate;    /* draft with the prediction blocks that are part of the model */
    const char *draft; /* file of a drafter (dflash.h) instead; borrowed for engine_new, or NULL */
    int32_t n_draft_max;  /* 1..STEP_MAX_TOK - 1; 0: 3 for the model drafter, 7 for text */
    int32_t n_draft_head; /* rows of draft_head.h; 0: choose */
    struct moe_keep keep; /* experts to keep in a mixture, if the job does not specify it */
    int link;             /* enum link_way: how slices on several cards add up their results */
    bool select;          /* use ops->select even if whole rows can be read in place: for tests */
    struct cache_params cache;
};
void engine_defaults(struct engine_params *p);

enum { ENGINE_MAX_SEQS = 256 };

enum finish {
    FINISH_NONE,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CALLS, /* the answer is tool calls; the engine itself never sets this */
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
enum { DRAFT_N_SLOT = 8 }; /* positions in a draft; the last slot counts all later positions */
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

/* Rows of an image (vision.h) replace these prompt tokens; the token ids only identify the rows. */
struct job_image {
    int32_t at, n;     /* rows replace prompt[at .. at + n - 1] */
    int32_t most;      /* largest number of rows in one step */
    int32_t width;     /* floats per row */
    bool is_whole;     /* all n rows must run in one step */
    const float *rows; /* [n, width] */
};

/* What to generate and how: the caller's part of a job. Pointers are borrowed until on_done has returned. */
struct job_params {
    const int32_t *prompt;
    int32_t n_prompt;               /* >= 1 */
    const struct job_image *images; /* [n_image], ascending; only if the model has vision */
    int32_t n_image;
    int32_t max_tokens; /* <= 0: as many as the context allows */
    struct sampler_params sampling;
    const struct lora_use *loras;
    int32_t n_lora;
    struct moe_keep keep; /* experts to keep in a mixture; mass 0: as in engine_params, 1: all */
    bool no_speculation;
    const struct engram_use *engram; /* n-gram memory to mix in and draft with; NULL: none */
    /* Prefix reuse; all three may be zero. session: name of a conversation whose state is kept between jobs. marks:
     * ascending prompt positions at which a checkpoint is worthwhile. These are the starts of messages, including those
     * of the last user message and of the answer. */
    const char *session;
    const int32_t *marks; /* [n_mark] */
    int32_t n_mark;
    /* Only jobs of the same scope share states. The files of saved states count against the owner's limit. */
    uint64_t scope, owner;
    bool no_cache; /* do not reuse a state: evaluate the whole prompt */
    bool keep_end; /* others will continue at this answer's exact end; requires `speculate` */
    /* on_prompt reports every prompt token with sampling.n_probs alternatives, slowly; requires no_cache */
    bool prompt_probs;
};

struct engine_job {
    struct job_params p; /* set by the caller, like the callbacks */
    /* Called for each token; returning false stops the job (finish: stop). probs is NULL unless requested. is_end: the
     * token ended the generation and has no text. */
    bool (*on_token)(struct engine_job *j, int32_t token, bool is_end,
                     const struct sampler_probs *probs);
    /* Progress of the prompt; may be NULL. */
    void (*on_prefill)(struct engine_job *j, int32_t n_done, int32_t n_prompt);
    /* With prompt_probs: called for token p.prompt[pos]; probs is NULL for the first token. */
    void (*on_prompt)(struct engine_job *j, int32_t pos, const struct sampler_probs *probs);
    /* The last call for this job; the result fields are set. */
    void (*on_done)(struct engine_job *j);
    void *ud;

    /* results */
    enum finish finish;
    struct err err; /* set if finish is FINISH_ERROR */
    struct engine_stats stats;

    /* private to the engine */
    struct engine_job *next;
    int64_t posted_ns;
    _Atomic bool cancel;     /* set by engine_cancel under the queue's lock */
    struct waiter *waiter;   /* set by engine_run */
    struct team *team;       /* the team that chose this job's engine (team.h); NULL: none */
    int32_t member, n_todo;  /* that engine's index; prompt tokens counted as its load */
    struct carried *carried; /* owned; from a card that failed (carried.h); NULL: none */
};

struct engine;

/* The model and the tokenizer are borrowed until engine_free. tok may be NULL: then token ids only. */
int engine_new(struct engine **out, struct model *m, const struct tok *tok,
               const struct engine_params *p, struct err *e);
int64_t engine_ctx(const struct engine *e); /* largest number of positions of one sequence */
/* Sets the error for a prompt that leaves no room for an answer. Clients match this exact sentence. Returns its
 * code. */
int engine_refuse_prompt(int64_t n_prompt, int64_t n_ctx, struct err *e);
void engine_free(struct engine *e); /* cancels all jobs and waits until they have ended */

/* Returns CHIMERE_EBUSY if the queue is full. Invalid arguments are reported immediately, by name. */
int engine_submit(struct engine *e, struct engine_job *j, struct err *err);
void engine_cancel(struct engine *e, struct engine_job *j); /* takes effect within one step */

/* Called from a callback to postpone work until every sequence has its token of this step, such as waking the readers.
 * fn runs once on the engine's thread; if no step is running on the calling thread, it runs at once. */
struct engine_later {
    void (*fn)(struct engine_later *l); /* after this call, l may be freed or posted again */
    struct engine_later *next;
};
void engine_later(struct engine_later *l);
/* Submits the job and waits until it is done: for callers without an event loop. Returns j->err.code. */
int engine_run(struct engine *e, struct engine_job *j, struct err *err);

struct engine_totals {
    int64_t n_step, n_prompt, n_generated, n_drafted, n_accepted, n_job, n_failed;
    int32_t n_failed_steps; /* consecutive failed steps; a device that failed stays failed */
    bool is_lost; /* a card of a split has failed, or every card of a team: open the model again */
    int64_t n_row, n_row_whole; /* rows sampled from; those of them copied whole to the host */
    int32_t n_active, n_waiting;
    int64_t n_ctx, n_ctx_free;     /* positions of all sequences together */
    int64_t n_cached;              /* prompt tokens that were not evaluated again */
    int32_t n_state, n_state_disk; /* checkpoints in memory; in files */
    uint64_t state_bytes;          /* host memory of the checkpoints in memory */
    double step_ms_mean;
};
void engine_totals(struct engine *e, struct engine_totals *t);
/* Memory that engine_new will allocate for state and activations; used by plans. */
uint64_t engine_bytes(const struct model *m, const struct engine_params *p);

#endif
