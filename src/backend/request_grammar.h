/* request_grammar.h: compiled grammars of one model, shared by requests that ask for the same.
 *
 * Compiling takes up to a second of processor time and a matcher keeps masks that later requests use
 * again, so the last few stay. take and drop: any thread. */
#ifndef CHIMERE_BACKEND_REQUEST_GRAMMAR_H
#define CHIMERE_BACKEND_REQUEST_GRAMMAR_H

#include "backend/backend.h"
#include "engine/sampler.h"
#include "text/grammar/grammar_mask.h"

struct request_grammars;
struct request_grammar;

int request_grammars_new(struct request_grammars **out, const struct tok *tok, struct err *e);
void request_grammars_free(struct request_grammars *g); /* after all were dropped */
/* What the request needs: its response format, its forced tool calls in the form `calls`, or, with
 * tool_choice auto, those that the model begins. *out NULL: nothing. A tool whose schema cannot be enforced
 * is an error if calls are forced or the tool is strict; else it takes any arguments. */
int request_grammar_take(struct request_grammars *g, const struct request *a, enum chat_calls calls,
                         struct request_grammar **out, struct err *e);
void request_grammar_drop(struct request_grammars *g, struct request_grammar *m);
struct grammar_matcher *request_grammar_matcher(struct request_grammar *m);
/* Texts that start the grammar in an answer; 0: it holds from the first token on. Valid until drop. */
size_t request_grammar_triggers(const struct request_grammar *m,
                                const struct sampler_trigger **out);
/* Tools whose schemas are not enforced, and why, as one line; NULL: none. Valid until drop. */
const char *request_grammar_note(const struct request_grammar *m);

#endif
