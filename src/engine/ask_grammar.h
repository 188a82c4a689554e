/* ask_grammar.h: compiled grammars of one model, shared by requests that ask for the same.
 *
 * Compiling takes up to a second of processor time and a matcher keeps masks that later requests use
 * again, so the last few stay. take and drop: any thread. */
#ifndef CHIMERE_ENGINE_ASK_GRAMMAR_H
#define CHIMERE_ENGINE_ASK_GRAMMAR_H

#include "engine/ask.h"
#include "text/grammar/grammar_mask.h"

struct ask_grammars;
struct ask_grammar;

int ask_grammars_new(struct ask_grammars **out, const struct tok *tok, struct err *e);
void ask_grammars_free(struct ask_grammars *g); /* after all were dropped */
/* What the ask wants: its response format, or its forced tool calls in the form `calls`. *out NULL: it
 * wants none. */
int ask_grammar_take(struct ask_grammars *g, const struct ask *a, enum chat_calls calls,
                     struct ask_grammar **out, struct err *e);
void ask_grammar_drop(struct ask_grammars *g, struct ask_grammar *m);
struct grammar_matcher *ask_grammar_matcher(struct ask_grammar *m);

#endif
