/* odo_impl.h: one run of the orchestrator, shared by its parts. */
#ifndef CHIMERE_ODO_ODO_IMPL_H
#define CHIMERE_ODO_ODO_IMPL_H

#include "base/thread.h"
#include "odo/bare.h"
#include "odo/cache.h"
#include "odo/cite.h"
#include "backend/call.h"
#include "odo/decide/difficulty.h"
#include "odo/facts/facts.h"
#include "odo/history.h"
#include "odo/decide/intent.h"
#include "odo/odo.h"
#include "odo/pipeline/pipeline.h"
#include "odo/repeat.h"
#include "strategy/strategy.h"
#include "odo/taint.h"
#include "odo/trace/trace.h"

enum odo_stage { /* stages whose time the metrics report */
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

struct odo_front { /* a backend as the server sees it */
    struct backend base;
    struct odo *odo;             /* view */
    char route[INTENT_MAX_NAME]; /* the pinned route; "": decided for each request */
    bool plain;                  /* the model alone, with the tools that the request asks for */
};

struct odo {
    struct odo_params p;
    struct pipeline_dir *dir;     /* owned */
    struct cache *cache;          /* owned */
    struct cache_vectors vectors; /* taken from the documents' model */
    struct history *history;      /* owned */
    struct examples *examples;    /* owned; NULL: no embedding model or no store */
    struct quality *quality;      /* owned; NULL: no store or no model */
    struct facts *facts;          /* owned; NULL: no store or no model */
    struct trace_sink *traces;    /* owned; NULL: none are sent */
    pthread_mutex_t front_lock;
    struct odo_front *fronts[ODO_MAX_NAMES]; /* owned [n_front]; created on first use */
    int n_front;
    struct odo_front plain; /* not in the catalogue: see odo_searching */
    _Atomic int n_run, n_judging;
    struct taint *taint;       /* owned */
    struct confirms *confirms; /* owned */
    struct odo_counter stage[ODO_N_STAGE];
    _Atomic uint64_t n_request, n_model_call, n_tool_refused;
    _Atomic uint64_t n_cache[3]; /* misses, identical, near */
};

enum odo_cache { ODO_CACHE_NO, ODO_CACHE_EXACT, ODO_CACHE_SEMANTIC };

/* What the request sets in extra.odo; -1 or NULL: not set. */
struct odo_wish {
    const char *route, *collection, *persona, *skill; /* skill "": turned off */
    int mode, documents, web, tools, few_shot, dynamic_engram;
    int memory;     /* enum pipeline_memory */
    int cache;      /* enum odo_cache */
    bool auto_mode; /* mode chosen by a probe of the model */
    const char *files[16];
    size_t n_file;
    const char *strategy; /* a name of strategy.h */
    bool no_strategy;
    const char *confirm[16]; /* tools that the user allows although untrusted text was read */
    size_t n_confirm;
    bool ask; /* ask the user before each tool that writes, runs or sends */
};

struct odo_decision {
    struct intent intent;
    struct difficulty difficulty;
    enum difficulty_mode mode;
    struct limits limits; /* of the night whose files this conversation uses, or the defaults */
    double probe_nats;    /* mean entropy of the probe's tokens; < 0: no probe, or it failed */
    const struct pipeline *pipeline; /* view into the run's set */
    bool steps, documents, few_shot, dynamic_engram, has_strategy;
    bool asked_documents; /* by the request, or because the question is about documents */
    bool named; /* by the user: the pipeline's prompt and tools apply whatever the card says */
    bool bare;  /* the question is only a calculation */
    char sum[BARE_MAX]; /* its expression; "": the model gets the question unchanged */
    struct strategy strategy;
    int web; /* enum pipeline_web */
    double ms;
};

struct odo_run {
    struct generation base;
    struct odo *odo;               /* view */
    const struct request *request; /* borrowed until free */
    struct event_sink sink;
    struct pipeline_set *set; /* holds a reference */
    struct odo_wish wish;
    struct odo_decision d;
    char *question, *rules;    /* owned: last user message; rules of nights, or NULL */
    char *owner, *fact;        /* owned: whose memory to use; the fact to remember, or NULL */
    char *documents;           /* owned: scope of the documents to read (store/doc_scope.h) */
    const char *persona;       /* view into set: text, or NULL */
    const struct skill *skill; /* view into set: the chosen one, or NULL */
    struct tool skill_tool;    /* spec is owned: the skill's command; NULL: the skill has none */
    struct buf memory;         /* lines about the user, for the prompt */
    /* reads_facts: the model reads the question for facts after the answer */
    bool recalled_tainted, keep_talk, reads_facts;
    struct request bounded;    /* the client's request with a token limit; members are borrowed */
    struct repeat repeat;      /* for a direct answer */
    bool looped;               /* an answer was cut because it repeated itself */
    struct generation *direct; /* owned: the backend's run, if the request is not changed */
    _Atomic bool is_cancelled, is_starved;
    /* views: belong to the whole run, also in an agent's part. starved: memory was short, the answer may have gaps */
    _Atomic bool *cancelled, *starved;
    pthread_mutex_t *sink_lock; /* view: belongs to the whole run; concurrent agents take turns */
    bool quiet;                 /* one of several agents: its text is sent when it is complete */
    bool threaded, started, failed;
    int64_t start_ns, night; /* night: whose files the answer uses; 0: none */
    pthread_t thread;
    /* Used by the run's own thread only: */
    json_t *messages; /* owned: the messages for the model */
    json_t *sources;  /* owned: [{n, title, where, from, to}] */
    /* owned: [{name, arguments, text, rc, lasts}], finished tool calls; NULL: none yet */
    json_t *ran;
    struct buf source_text;          /* the block of sources for the prompt */
    const char *missing;             /* view: name of a part that failed; NULL: none */
    json_t *shots;                   /* owned: [{id, question, answer, nearness}], nearest first */
    struct engram_table *table;      /* owned: table of the fetched texts; NULL: none */
    bool tainted, tainted_local;     /* messages contain untrusted text */
    struct taint_text said;          /* hash state of this choice's answer */
    struct taint_text *all_said;     /* view: belongs to the whole run, also in an agent's part */
    struct cite cite;                /* for this choice's answer */
    struct cite *all_cite;           /* view: belongs to the whole run, as all_said */
    bool keeps_answer, told_confirm; /* the client knows which tools ask the user */
    struct engine_stats stats;       /* sums of all calls */
    /* n_left: tokens that max_tokens still allows, INT32_MAX: no limit */
    int32_t n_reasoning, n_left;
    int32_t n_client_call, choice; /* n_client_call: of the client's tools, forwarded so far */
    struct buf answer;             /* the final text, if it will be stored */
    char answer_name[24];          /* identifies the answer in feedback */
    double score, draft_score;     /* 0..1; NaN: not judged */
    json_t *candidates;            /* owned: answers of a strategy; NULL: none */
    int32_t winner;
    struct trace trace;
    char *draft;    /* owned: the answer that a second attempt replaced; NULL: none */
    json_t *record; /* owned: decision and actions, for the log and the notes */
};

/* odo_decide.c */
int odo_wish_read(struct odo_wish *w, const json_t *extra, struct err *e);
int odo_decide(struct odo *o, struct odo_run *r, const char *pinned, struct err *e);
/* Returns true if steps and strategies marked "ultra" may run: only if the request itself asks for that mode.
 * Their gain with this model is unknown, and they cost several answers. */
bool odo_may_multiply(const struct odo_run *r);
json_t *odo_decision_json(const struct odo_run *r);

/* odo_judge.c: returns the index of the name that the model chooses, or CHIMERE_E*, within budget_ms. */
int odo_judge(struct odo *o, const char *text, const char *const *names, int n, double budget_ms);
void odo_judge_wait(struct odo *o); /* waits until no judging thread is left */

/* odo_loop.c: asks the model until it calls no more of the orchestrator's tools. final: the text is sent to the
 * client. */
struct odo_round {
    const char *system;                       /* put before the system message; may be NULL */
    const struct pipeline_sampling *sampling; /* NULL: the caller's */
    struct yamlfile_list tools;               /* names that may be offered */
    int32_t rounds;
    const json_t *schema; /* the answer must have this form; NULL: text */
    bool final, no_tools;
    json_t *messages; /* borrowed; answers and tool results are appended */
};
/* Returns true if the run may use the pipeline's prompts or tools: the user named the pipeline, or the model's
 * card allows them. */
enum odo_part { ODO_PROMPTS, ODO_TOOLS };
bool odo_may(const struct odo_run *r, enum odo_part part);
int odo_loop(struct odo_run *r, const struct odo_round *round, struct buf *content,
             enum finish *finish, struct err *e);
/* Adds the cost of a call to the run's sums and subtracts it from the tokens left. */
void odo_spend(struct odo_run *r, const struct engine_stats *s, int32_t n_reasoning);
/* Builds the request to the model from the client's request, the pipeline, the mode and the tables. own: sampling
 * of the round, or NULL. All members are borrowed except extra: release it with json_decref. */
void odo_ask(const struct odo_run *r, const struct pipeline_sampling *own, bool final,
             struct request *a);
int odo_send(struct odo_run *r, const struct backend_event *ev); /* nonzero: cancelled */
int odo_say(struct odo_run *r, bool thought, const char *text, size_t n);
int odo_answer(struct odo_run *r, const char *text,
               size_t n); /* sends a part of the answer, and keeps it */
/* takes ownership of o; nonzero: cancelled */
int odo_note(struct odo_run *r, const char *name, json_t *o);
void odo_count(struct odo *o, enum odo_stage s, double ms, bool failed);

#endif
