/* harvest.h: keeps questions and answers for nightly training (docs/night.md), from callers who agreed (serve --learn).
 *
 * An answer of such a caller is kept if the question alone explains it: a single user message of plain text, without
 * system prompt, tools, documents, images or a forced format. So text from the web or from files is never learned.
 * Requests among the orchestrator and the judges do not pass through here. Secrets are masked before anything is
 * stored. The verifier judges in the background (odo/quality.h). Any thread may call this. */
#ifndef CHIMERE_SERVE_HARVEST_H
#define CHIMERE_SERVE_HARVEST_H

#include "odo/quality.h"

struct gen;
struct harvest;

/* keys: [n_key] names of the keys that agreed; "local": callers without a key. All are borrowed until harvest_close. */
int harvest_open(struct harvest **out, const char *const *keys, size_t n_key, struct backend *judge,
                 struct store *store, struct err *e);
void harvest_close(struct harvest *h);
/* Returns whether g's answer will be kept; h may be NULL. */
bool harvest_wants(const struct harvest *h, const struct gen *g);
/* Call after a complete answer for which harvest_wants was true; its name is g->id. Never blocks. */
void harvest_take(struct harvest *h, const struct gen *g);
/* The user's rating of an answer; CHIMERE_ENOENT: no answer with this name is kept. */
int harvest_feedback(struct harvest *h, const char *answer, int32_t score, const char *comment,
                     struct err *e);

/* The user's own answer in place of that answer; the same errors. */
int harvest_correct(struct harvest *h, const char *answer, const char *correction, struct err *e);

#endif
