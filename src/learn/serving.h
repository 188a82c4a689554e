/* serving.h: makes a running server use the files of the current night (backend/learned.h), without a restart.
 *
 * serving_update compares the folder of nights with the files in use. It also notices promotions, rollbacks and
 * `forget` of other processes. It opens new files while no answer is being generated, because the engine's thread owns
 * the device. If the engine is busy, the next call tries again. One thread. */
#ifndef CHIMERE_LEARN_SERVING_H
#define CHIMERE_LEARN_SERVING_H

#include "backend/learned.h"
#include "engine/engine.h"
#include "text/tok/tok.h"

struct serving;
struct serving_params { /* all borrowed until serving_free, except dir, which is copied */
    const char *dir;    /* folder of the nights */
    struct learned *learned;
    const struct tok *tok;
    /* the model, and its copies on further cards, each with its engine */
    struct model *models[GPUS_MAX];
    struct engine *engines[GPUS_MAX];
    int32_t n_model;
};
int serving_new(struct serving **out, const struct serving_params *p, struct err *e);
void serving_free(struct serving *s);
/* During a trial, a share of the conversations uses the night on trial (trial.h).
 * If the files of the current night cannot be opened, the files in use stay, and the reason is logged once. */
int serving_update(struct serving *s, struct err *e);

#endif
