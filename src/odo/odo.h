/* odo.h: one request -> how to answer it: what it is about, what the model lacks, what it may do.
 *
 * Hides intent, pipelines, enrichment, tools, the loop between them and the record of decisions. An odo
 * stands between the server and a backend that answers; to the server it is such a backend itself, under
 * the name "odo" (or "odo:NAME", which pins the pipeline). Whatever it asks a model on its own goes to the
 * backend below, never through itself.
 *
 *   prepare: decide (rules, or the model within 300 ms), build the question
 *   start:   a thread of its own: enrich in parallel -> plan -> steps, or the loop of answer and tools
 *
 * A request says what it wants in extra.odo: {"route", "mode", "documents", "web", "tools", "files",
 * "collection", "cache", "memory", "persona", "skill"}; what is not there is decided here. Anything unknown is refused by name. Notes
 * (EVENT_NOTE) tell each step: "decision", "sources", "step", "tool", "done". Any thread. */
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

enum { ODO_MAX_RUNS = 256, ODO_MAX_NAMES = 256 /* ever asked for by one process */ };

struct odo_params {          /* all borrowed until odo_close */
    struct backend *backend; /* who answers; NULL: odo_explain alone works, by rules */
    const char *pipelines;   /* folder; NULL: the one beside the program */
    bool watch;              /* read it again when it changes */
    struct tool_set *tools;  /* owned from now on, also on failure; NULL: the calculator alone */
    struct store *store;     /* decision log, memory, answer cache; NULL: none */
    struct docs *docs;       /* NULL: no documents */
    struct web *web;         /* NULL: no source configured */
    /* Of questions, for the cache of answers; NULL: the documents' model, where there is one. */
    const struct cache_vectors *vectors;
    struct odo_card card; /* of the backend's model; all false: nobody measured it */
    bool can_see;         /* the backend reads images */
    int32_t intent_ms;    /* budget of the model as a judge; 0: 300; < 0: rules alone */
};

int odo_open(struct odo **out, const struct odo_params *p, struct err *e);
void odo_close(struct odo *o); /* after every run was freed; its backends go too */
/* The backend of this name: "odo", or "odo:NAME" where there is such a pipeline now; NULL: there is none.
 * Lives as o, also when its pipeline goes. */
struct backend *odo_find(struct odo *o, const char *name);
/* The backend that answers as b does and may search the web (request.search): b itself if it is one of o's; NULL: b is
 * another model than the one that o asks, or no source is configured. */
struct backend *odo_searching(struct odo *o, struct backend *b);
/* Adds "odo" to the catalogue, and "odo:NAME" for each pipeline of the moment; o outlives the catalogue. */
int odo_register(struct odo *o, struct catalog *c, struct err *e);
/* What would be done with this question, without answering; *out is a new reference. */
int odo_explain(struct odo *o, const struct request *a, const char *route, json_t **out,
                struct err *e);
/* Another card for the requests that follow; not while one runs. */
const struct odo_card *odo_card_of(const struct odo *o);
void odo_set_card(struct odo *o, const struct odo_card *card);
/* What it was opened with; tools live as o. */
struct tool_set *odo_tools(const struct odo *o);
struct store *odo_store(const struct odo *o);
struct pipeline_dir *odo_pipelines(const struct odo *o);
struct docs *odo_docs(const struct odo *o);
/* [{"name", "about", "command"}] of the skills that there are now; a new reference, NULL: out of memory. */
json_t *odo_skills(const struct odo *o);
/* A user's word on an answer, 1..5, by the name that X-Odo-Answer gave it. CHIMERE_ENOENT: not kept. */
int odo_feedback(struct odo *o, const char *answer, int32_t score, const char *comment,
                 struct err *e);
/* Prometheus text of everything counted so far. */
void odo_metrics(void *odo, struct buf *out); /* takes the odo as a callback does */

#endif
