/* zo.h: rules of training by losses alone (zeroth order): how a step perturbs parameters, and what it makes of the
 * losses of the perturbed copies.
 *
 * One row per rule. A step has members; each member is the parameters plus eps times a direction. Directions come from
 * a counter-based generator: the same seed, step and losses give the same parameters. Pure functions. */
#ifndef CHIMERE_LEARN_STEP_ZO_H
#define CHIMERE_LEARN_STEP_ZO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { ZO_MAX_MEMBERS = 32 };

struct zo_rule {
    const char *name;
    bool is_normal; /* directions are normal; otherwise signs (Rademacher) */
    bool is_paired; /* members 2 k and 2 k + 1 have opposite directions; their number is even */
    bool decays;    /* the step size decays to 0 along a cosine */
    bool rewards;   /* the losses are rewards of whole answers, negated */
    int32_t members, batch; /* per step; batch: samples */
    float lr, eps, momentum;
    /* Writes the weight of each member's direction in the estimate of the gradient. */
    void (*weigh)(const double *loss, int32_t n_member, float eps, float *weight);
};
/* "fzoo" (the default), "mezo" and "es"; NULL-terminated */
extern const struct zo_rule *const zo_rules[];
/* NULL: the default. CHIMERE_EINVAL: there is no rule of this name. */
int zo_rule_of(const struct zo_rule **out, const char *name, struct err *e);

struct zo_step {
    const struct zo_rule *rule;
    uint64_t seed;
    int32_t step, n_step; /* of n_step in all */
    int32_t n_member;
    float lr, eps;
};
/* Writes the parameters of a member, to [n], around from [n]. */
void zo_perturb(const struct zo_step *s, int32_t member, const float *from, float *to, size_t n);
/* Changes the parameters v [n] by the losses [n_member] of the members. velocity [n] is zero before the first step. */
void zo_update(const struct zo_step *s, const double *loss, float *v, float *velocity, size_t n);

#endif
