/* replay.h: the log of a training by losses alone, from which its adapter can be made again, bit for bit.
 *
 * The directions of all steps follow from the seed, so the losses of the members are all that the model contributed.
 * A log is a file of JSON, about 20 bytes per loss; an adapter is made from it without answers and without evaluating
 * the model. One thread. */
#ifndef CHIMERE_LEARN_STEP_REPLAY_H
#define CHIMERE_LEARN_STEP_REPLAY_H

#include "learn/step/zo.h"
#include "model/lora.h"

enum { REPLAY_MAX_STEPS = 1 << 16 };

struct replay {
    struct zo_step how; /* its member `step` is not used */
    int32_t rank;
    int32_t
        n; /* steps that the adapter contains: up to the one that was best on held-out samples */
    double *loss; /* owned [how.n_step * how.n_member] */
};
/* n is 0. Call replay_fini in any case. */
int replay_init(struct replay *r, const struct zo_step *how, int32_t rank, struct err *e);
void replay_fini(struct replay *r);
int replay_save(const struct replay *r, const char *path, struct err *e);
/* CHIMERE_EFORMAT: not a log. */
int replay_load(struct replay *r, const char *path, struct err *e);
/* *out: the adapter; free it with lora_close. */
int replay_adapter(struct lora **out, struct model *m, const struct replay *r, struct err *e);

#endif
