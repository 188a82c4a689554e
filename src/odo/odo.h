/* odo.h: decides how to answer a request: what it is about, what the model lacks, what it may do.
 *
 * Hides intent, pipelines, enrichment, tools, the loop between them and the record of decisions. An odo sits
 * between the server and a backend that answers. To the server, the odo is itself a backend with the name "odo"
 * ("odo:NAME" pins the pipeline). Requests that the odo makes to a model go to the backend below, never through
 * the odo.
 *
 *   prepare: decide (rules, or the model within 300 ms), build the question
 *   start:   on its own thread: enrich in parallel -> plan -> steps, or the loop of answer and tools
 *
 * A request states its wishes in extra.odo: {"route", "mode", "documents", "web", "tools", "files", "collection",
 * "cache", "memory", "persona", "skill"}. Missing members are decided here. An unknown member is refused by name.
 * Events of kind EVENT_NOTE report each step: "decision", "sources", "step", "tool", "done". Any thread. */
#ifndef CHIMERE_ODO_ODO_H
#define CHIMERE_ODO_ODO_H

#include <jansson.h>

#include "backend/backend.h"
#include "odo/card.h"
#include "tools/tool.h"

struct catalog;
struct docs;
struct store;
struct web;
struct odo;
struct cache_vectors;
struct pipeline_dir;
struct reward;

enum {
    ODO_MAX_RUNS = 256,
    ODO_MAX_NAMES = 256 /* different names requested during the life of the process */
};

struct odo_params {          /* all borrowed until odo_close */
    struct backend *backend; /* backend that answers; NULL: only odo_explain works, by rules */
    const char *pipelines;   /* folder; NULL: the one next to the program */
    bool watch;              /* reload it when it changes */
    struct tool_set *tools;  /* owned by the odo, also on failure; NULL: only the calculator */
    struct store *store;     /* decision log, memory, answer cache; NULL: none */
    struct docs *docs;       /* NULL: no documents */
    struct web *web;         /* NULL: no source configured */
    /* Vectors of questions for the answer cache; NULL: from the documents' model, if there is one. */
    const struct cache_vectors *vectors;
    struct reward *prm;   /* verifier of strategies (strategy/reward.h); NULL: the backend judges */
    struct odo_card card; /* of the backend's model; all false: not measured */
    const char *otlp;     /* address of a collector of traces; NULL: none are sent */
    bool can_see;         /* the backend reads images */
    int32_t intent_ms;    /* time limit of the model as a judge; 0: 300; < 0: rules only */
};

int odo_open(struct odo **out, const struct odo_params *p, struct err *e);
/* call it after every run was freed; also frees the odo's backends */
void odo_close(struct odo *o);
/* Returns the backend "odo", or "odo:NAME" if that pipeline exists now; NULL: not found. It lives as long as o,
 * even if its pipeline is removed. */
struct backend *odo_find(struct odo *o, const char *name);
/* Returns the backend that answers like b and may search the web (request.search). This is b itself if b belongs
 * to o. NULL: b is not the model that o asks, or no web source is configured. */
struct backend *odo_searching(struct odo *o, struct backend *b);
/* Adds "odo" to the catalogue, and "odo:NAME" for each current pipeline. o must outlive the catalogue. */
int odo_register(struct odo *o, struct catalog *c, struct err *e);
/* Reports what would be done with this question, without answering it; *out is a new reference. */
int odo_explain(struct odo *o, const struct request *a, const char *route, json_t **out,
                struct err *e);
/* Gets, or replaces for later requests, the model's card. Do not replace it while a request runs. */
const struct odo_card *odo_card_of(const struct odo *o);
void odo_set_card(struct odo *o, const struct odo_card *card);
/* Returns the tools that the odo was opened with; they live as long as o. */
struct tool_set *odo_tools(const struct odo *o);
struct store *odo_store(const struct odo *o);
struct pipeline_dir *odo_pipelines(const struct odo *o);
struct docs *odo_docs(const struct odo *o);
/* Returns [{"name", "about", "command"}] of the current skills; a new reference, NULL: out of memory. */
json_t *odo_skills(const struct odo *o);
/* Stores a user's score of an answer, 1..5. answer: the name from the header X-Odo-Answer. CHIMERE_ENOENT: not
 * stored. */
int odo_feedback(struct odo *o, const char *answer, int32_t score, const char *comment,
                 struct err *e);
/* Writes all counters as Prometheus text. */
void odo_metrics(void *odo, struct buf *out); /* void *: it is registered as a callback */

#endif
