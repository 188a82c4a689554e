/* request_grammar.h: a cache of compiled grammars of one model, shared by requests with the same format.
 *
 * Compilation takes up to a second of processor time, and a matcher collects masks that later requests use again, so
 * the last few are kept. Any thread may call take and drop. */
#ifndef CHIMERE_BACKEND_REQUEST_GRAMMAR_H
#define CHIMERE_BACKEND_REQUEST_GRAMMAR_H

#include "backend/backend.h"
#include "engine/sampler/sampler.h"
#include "text/grammar/grammar_mask.h"

struct request_grammars;
struct request_grammar;

int request_grammars_new(struct request_grammars **out, const struct tok *tok, struct err *e);
void request_grammars_free(struct request_grammars *g); /* call after all grammars were dropped */
/* Finds or compiles what the request needs: its response format, its forced tool calls in the form `calls`, or, with
 * tool_choice auto, calls that the model may begin. *out NULL: no grammar is needed. If a tool's schema cannot be
 * enforced, this is an error if calls are forced or the tool is strict; else any arguments are allowed. */
int request_grammar_take(struct request_grammars *g, const struct request *a, enum chat_calls calls,
                         struct request_grammar **out, struct err *e);
void request_grammar_drop(struct request_grammars *g, struct request_grammar *m);
struct grammar_matcher *request_grammar_matcher(struct request_grammar *m);
/* Returns the texts that start the grammar in an answer; 0: it applies from the first token on. Valid until drop. */
size_t request_grammar_triggers(const struct request_grammar *m,
                                const struct sampler_trigger **out);
/* Returns the tools whose schemas are not enforced, and why, as one line; NULL: none. Valid until drop. */
const char *request_grammar_note(const struct request_grammar *m);

#endif
