/* world.h: the invented world of simulate.h: facts, questions about them, and the answers that users like. In a world of
 * two languages, the facts take turns: a fact is asked for, and told, in one language only. */
#ifndef CHIMERE_LEARN_SIMULATE_WORLD_H
#define CHIMERE_LEARN_SIMULATE_WORLD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/rng.h"

enum {
    WORLD_N_FORM = 3 /* forms of a question that users use */,
    WORLD_EXAM = 3 /* form of the exam */,
    WORLD_MAX_LANGUAGES = 2 /* English, French */
};
enum { WORLD_MAX_TEXT = 256 };

struct world_fact {
    char name[24], value[24], lie[24]; /* lie: a wrong value */
    int kind, language;
};
struct world {
    struct world_fact *v; /* owned */
    int32_t n;
    int n_language;
    char style[WORLD_MAX_LANGUAGES][24]; /* how the users of a language like answers to end */
};

/* n_language: 1 .. WORLD_MAX_LANGUAGES. The facts of a world of one language do not depend on it. */
int world_make(struct world *w, int32_t n, int n_language, uint64_t seed, struct err *e);
void world_fini(struct world *w);
/* Returns a fact near `fact` in the language of a user; users take turns too. */
int32_t world_fact_of(const struct world *w, int32_t fact, int32_t user);
/* The ending that users of the fact's language like. */
const char *world_style(const struct world *w, int32_t fact);
/* form: 0 .. WORLD_N_FORM - 1, or WORLD_EXAM. */
void world_question(const struct world *w, int32_t fact, int form, char out[WORLD_MAX_TEXT]);
/* The answer that users like, or a lie in the same form. */
void world_answer(const struct world *w, int32_t fact, bool lies, char out[WORLD_MAX_TEXT]);
/* Do the users of the fact's language accept this answer: is the value in it, and is their ending at its end, once? The
 * exam asks for less, each alone. */
bool world_accepts(const struct world *w, int32_t fact, const char *answer);
/* An item of eval/harness.h: is the value (or the style) in the answer? id must be unique. */
json_t *world_item(const struct world *w, const char *id, int32_t fact, int form, bool style);

#endif
