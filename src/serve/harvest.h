/* harvest.h: keeps questions and answers for nights, of callers who agreed (serve --learn).
 *
 * Of a caller who agreed, an answer is kept if the question alone explains it: one user's message of plain text,
 * without system prompt, tools, documents, images or a forced form. Text of the web or of files therefore never teaches.
 * What the orchestrator and judges ask among themselves does not pass here. Secrets are masked before anything is
 * stored; the verifier judges in the background (odo/quality.h). Any thread. */
#ifndef CHIMERE_SERVE_HARVEST_H
#define CHIMERE_SERVE_HARVEST_H

#include "odo/quality.h"

struct gen;
struct harvest;

/* keys: [n_key] names of those who agreed; "local": without a key. Everything is borrowed until harvest_close. */
int harvest_open(struct harvest **out, const char *const *keys, size_t n_key, struct backend *judge,
                 struct store *store, struct err *e);
void harvest_close(struct harvest *h);
/* Whether g's answer will be kept; h may be NULL. */
bool harvest_wants(const struct harvest *h, const struct gen *g);
/* After a whole answer that was wanted; its name is g->id. Never waits. */
void harvest_take(struct harvest *h, const struct gen *g);
/* The user's word on an answer; CHIMERE_ENOENT: none of this name is kept. */
int harvest_feedback(struct harvest *h, const char *answer, int32_t score, const char *comment,
                     struct err *e);

#endif
