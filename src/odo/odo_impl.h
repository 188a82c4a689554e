/* odo_impl.h: one run of the orchestrator, shared by its parts. */
#ifndef CHIMERE_ODO_ODO_IMPL_H
#define CHIMERE_ODO_ODO_IMPL_H

#include "base/thread.h"
#include "odo/bare.h"
#include "odo/cache.h"
#include "odo/cite.h"
#include "backend/call.h"
#include "odo/difficulty.h"
#include "odo/history.h"
#include "odo/intent.h"
#include "odo/odo.h"
#include "odo/pipeline.h"
#include "odo/repeat.h"
#include "strategy/strategy.h"
#include "odo/taint.h"

enum odo_stage { /* of the metrics */
                 ODO_DECIDE,
                 ODO_ENRICH,
                 ODO_PLAN,
                 ODO_MODEL,
                 ODO_TOOL,
                 ODO_MEMORY,
                 ODO_N_STAGE
};

struct odo_counter {
    _Atomic uint64_t n, n_failed, sum_us;
};

struct odo_front { /* the backend that the server sees */
    struct backend base;
    struct odo *odo;             /* view */
    char route[INTENT_MAX_NAME]; /* pinned; "": decided by request */
    bool plain;                  /* the model alone, with the tools that the request asks for */
};

struct odo {
    struct odo_params p;
    struct pipeline_dir *dir;     /* owned */
    struct cache *cache;          /* owned */
    struct cache_vectors vectors; /* of the documents' model */
    struct history *history;      /* owned */
    struct examples *examples;    /* owned; NULL: no embedding model, or no store */
    struct quality *quality;      /* owned; NULL: no store, or no model */
    pthread_mutex_t front_lock;
    struct odo_front *fronts[ODO_MAX_NAMES]; /* owned [n_front]; made when first asked for */
    int n_front;
    struct odo_front plain; /* not listed: see odo_searching */
    _Atomic int n_run, n_judging;
    struct taint *taint;       /* owned */
    struct confirms *confirms; /* owned */
    struct odo_counter stage[ODO_N_STAGE];
    _Atomic uint64_t n_request, n_model_call, n_tool_refused, n_cache[3]; /* missed, same, near */
};

enum {
    ODO_N_HIT = 5,         /* passages of documents that a prompt may show */
    ODO_MAX_TOKENS = 4096, /* of an answer whose request names no limit */
};

enum odo_cache { ODO_CACHE_NO, ODO_CACHE_EXACT, ODO_CACHE_SEMANTIC };

/* What the request says in extra.odo; -1 or NULL: nothing. */
struct odo_wish {
    const char *route, *collection, *persona, *skill; /* skill "": none */
    int mode, documents, web, tools, few_shot, dynamic_engram;
    int memory;     /* enum pipeline_memory */
    int cache;      /* enum odo_cache */
    bool auto_mode; /* by a probe of the model */
    const char *files[16];
    size_t n_file;
    const char *strategy; /* strategy.h */
    bool no_strategy;
    const char *confirm[16]; /* tools that the user allows after strangers' text */
    size_t n_confirm;
    bool ask; /* the user's word before each tool that writes, runs or sends */
};

struct odo_decision {
    struct intent intent;
    struct difficulty difficulty;
    enum difficulty_mode mode;
    double probe_nats; /* mean entropy of the probe's tokens; below 0: not asked, or it failed */
    const struct pipeline *pipeline; /* view into the run's set */
    bool steps, documents, few_shot, dynamic_engram, has_strategy;
    bool asked_documents; /* by the request, or by a question about documents */
    bool named; /* by the user: the pipeline's prompt and tools hold whatever the model can */
    bool bare;  /* the question is nothing but a calculation */
    char sum[BARE_MAX]; /* its expression; "": the model is asked as it stands */
    struct strategy strategy;
    int web; /* enum pipeline_web */
    double ms;
};

struct odo_run {
    struct generation base;
    struct odo *odo;               /* view */
    const struct request *request; /* borrowed until free */
    struct event_sink sink;
    struct pipeline_set *set; /* held */
    struct odo_wish wish;
    struct odo_decision d;
    char *question;      /* owned: the last user message's text */
    char *owner, *fact;  /* owned: whose memory; what the question asks to remember, or NULL */
    const char *persona; /* view into set: text, or NULL */
    const struct skill *skill; /* view into set: the chosen one, or NULL */
    struct tool skill_tool;    /* spec owned: its command; NULL: it has none */
    struct buf memory;         /* lines about the user, for the prompt */
    bool recalled_tainted, keep_talk;
    struct request bounded;    /* the client's, with a limit of tokens; shares all that it owns */
    struct repeat repeat;      /* of a direct answer */
    bool looped;               /* an answer was cut because it went round in circles */
    struct generation *direct; /* owned: where nothing is added, the backend's own run */
    _Atomic bool is_cancelled;
    _Atomic bool *cancelled;    /* view: the whole run's, also for one agent's part of it */
    pthread_mutex_t *sink_lock; /* view: of the whole run; agents side by side take turns */
    bool quiet;                 /* one agent of several: its text is shown when it is done */
    bool threaded, started, failed;
    int64_t start_ns;
    pthread_t thread;
    /* of the thread alone: */
    json_t *messages; /* owned: what the model sees */
    json_t *sources;  /* owned: [{n, title, where, from, to}] */
    json_t *ran; /* owned: [{name, arguments, text, rc, lasts}], calls of tools; NULL: none yet */
    struct buf source_text;     /* the block of sources for the prompt */
    const char *missing;        /* view: a source that failed; NULL: none did */
    json_t *shots;              /* owned: [{id, question, answer, nearness}], nearest first */
    struct engram_table *table; /* owned: of what was fetched; NULL: none */
    bool tainted;               /* strangers' text is in messages */
    bool tainted_local;
    struct taint_text said;      /* of this choice's answer */
    struct taint_text *all_said; /* view: the whole run's, also for one agent's part of it */
    struct cite cite;            /* of this choice's answer */
    struct cite *all_cite;       /* view: the whole run's, as all_said */
    bool told_confirm;           /* the client was told which tools need its word */
    struct engine_stats stats;   /* sums of all calls */
    int32_t n_reasoning, n_left; /* n_left: tokens that max_tokens leaves, INT32_MAX: no limit */
    int32_t n_client_call;       /* calls of the client's tools forwarded so far */
    int32_t choice;
    struct buf answer; /* of the final text, where it is to be kept */
    bool keeps_answer;
    char answer_name[24];      /* what feedback calls it */
    double score, draft_score; /* 0..1; NaN: not judged */
    json_t *candidates;        /* owned: of a strategy; NULL: none */
    int32_t winner;
    char *draft;    /* owned: what a second attempt replaced; NULL */
    json_t *record; /* owned: the decision and what was done, for log and notes */
};

/* odo_decide.c */
int odo_wish_read(struct odo_wish *w, const json_t *extra, struct err *e);
int odo_decide(struct odo *o, struct odo_run *r, const char *pinned, struct err *e);
/* Steps and strategies "ultra": only if the request asks for that mode. Their gain with this model is unknown, and they
 * cost several answers. */
bool odo_may_multiply(const struct odo_run *r);
json_t *odo_decision_json(const struct odo_run *r);

/* odo_judge.c: index of the name that the model chooses, or CHIMERE_E*; keeps budget_ms. */
int odo_judge(struct odo *o, const char *text, const char *const *names, int n, double budget_ms);
void odo_judge_wait(struct odo *o); /* until nobody is left behind */

/* odo_loop.c: asks until no tool of ours is called any more. final: its text goes to the client. */
struct odo_round {
    const char *system; /* added in front of the system message; may be NULL */
    const struct pipeline_sampling *sampling; /* NULL: the caller's */
    struct yamlfile_list tools;               /* names that may be offered */
    int32_t rounds;
    bool final, no_tools;
    json_t *messages; /* borrowed; grows by what happens */
};
/* May the run's pipeline speak and offer tools? If the user named it, or the model's card says that it gains. */
enum odo_part { ODO_PROMPTS, ODO_TOOLS };
bool odo_may(const struct odo_run *r, enum odo_part part);
int odo_loop(struct odo_run *r, const struct odo_round *round, struct buf *content,
             enum finish *finish, struct err *e);
/* Adds what a call took to the run's sums, and takes it from the tokens left. */
void odo_spend(struct odo_run *r, const struct engine_stats *s, int32_t n_reasoning);
/* What the run asks a model with: the request's ask with what pipeline, mode and tables say; own: a round's sampling or
 * NULL. Borrows all but extra, which wants json_decref. */
void odo_ask(const struct odo_run *r, const struct pipeline_sampling *own, bool final,
             struct request *a);
int odo_send(struct odo_run *r, const struct backend_event *ev); /* nonzero: cancelled */
int odo_say(struct odo_run *r, bool thought, const char *text, size_t n);
int odo_note(struct odo_run *r, const char *name, json_t *o); /* takes o; nonzero: cancelled */
void odo_count(struct odo *o, enum odo_stage s, double ms, bool failed);

/* odo_steps.c */
int odo_steps(struct odo_run *r, enum finish *finish, struct err *e);

#endif
