/* world.h: the invented world of simulate.h: facts, questions about them, and the answers that users like. */
#ifndef CHIMERE_LEARN_SIMULATE_WORLD_H
#define CHIMERE_LEARN_SIMULATE_WORLD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/rng.h"

enum {
    WORLD_N_FORM = 3 /* forms of a question that users use */,
    WORLD_EXAM = 3 /* form of the exam */
};
enum { WORLD_MAX_TEXT = 256 };

struct world_fact {
    char name[24], value[24], lie[24]; /* lie: a wrong value */
    int kind;
};
struct world {
    struct world_fact *v; /* owned */
    int32_t n;
    char style[24]; /* how the users like answers to end */
};

int world_make(struct world *w, int32_t n, uint64_t seed, struct err *e);
void world_fini(struct world *w);
/* form: 0 .. WORLD_N_FORM - 1, or WORLD_EXAM. */
void world_question(const struct world *w, int32_t fact, int form, char out[WORLD_MAX_TEXT]);
/* The answer that users like, or a lie in the same form. */
void world_answer(const struct world *w, int32_t fact, bool lies, char out[WORLD_MAX_TEXT]);
/* An item of eval/harness.h: is the value (or the style) in the answer? id must be unique. */
json_t *world_item(const struct world *w, const char *id, int32_t fact, int form, bool style);

#endif
