#include "learn/step/zo.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { BLOCK = 64 };

/* ---- what the losses say about each direction ---- */

static double mean_of(const double *v, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += v[i] / n;
    return sum;
}

/* Writes losses of mean 0 and deviation 1, divided by `by`; zeros if all are equal. */
static void normalize(const double *loss, int32_t n, double by, float *weight) {
    double mean = mean_of(loss, n), var = 0;
    for (int32_t i = 0; i < n; i++) var += (loss[i] - mean) * (loss[i] - mean) / n;
    for (int32_t i = 0; i < n; i++)
        weight[i] = var > 0 ? (float)((loss[i] - mean) / sqrt(var) / by) : 0;
}

/* The mean of the members replaces the loss of the centre: this cancels the curvature that all members share. */
static void weigh_fzoo(const double *loss, int32_t n, float eps, float *weight) {
    (void)eps;
    normalize(loss, n, sqrt((double)n), weight);
}

/* Simultaneous perturbation: the difference of a pair along its direction. The second member has the same direction
 * with the other sign, so its weight is 0. */
static void weigh_mezo(const double *loss, int32_t n, float eps, float *weight) {
    for (int32_t i = 0; i < n; i += 2) {
        weight[i] = (float)((loss[i] - loss[i + 1]) / ((double)eps * n));
        weight[i + 1] = 0;
    }
}

static void weigh_es(const double *loss, int32_t n, float eps, float *weight) {
    (void)eps;
    normalize(loss, n, n, weight);
}

/* ---- the rules ---- */

/* The rates of MeZO are those of its paper for adapters; a step of it evaluates as many texts as one of FZOO. */
static const struct zo_rule fzoo = {.name = "fzoo",
                                    .decays = true,
                                    .members = 8,
                                    .batch = 4,
                                    .lr = 2e-3f,
                                    .eps = 1e-2f,
                                    .momentum = 0.9f,
                                    .weigh = weigh_fzoo},
                            mezo = {.name = "mezo",
                                    .is_normal = true,
                                    .is_paired = true,
                                    .members = 2,
                                    .batch = 16,
                                    .lr = 1e-4f,
                                    .eps = 1e-2f,
                                    .weigh = weigh_mezo},
                            es = {.name = "es",
                                  .is_normal = true,
                                  .is_paired = true,
                                  .rewards = true,
                                  .members = 8,
                                  .batch = 8,
                                  .lr = 2e-2f,
                                  .eps = 2e-2f,
                                  .weigh = weigh_es};

const struct zo_rule *const zo_rules[] = {&fzoo, &mezo, &es, NULL};

int zo_rule_of(const struct zo_rule **out, const char *name, struct err *e) {
    *out = &fzoo;
    for (const struct zo_rule *const *r = zo_rules; name && *r; r++)
        if (!strcmp((*r)->name, name)) {
            *out = *r;
            return 0;
        }
    return name
               ? err_set(e, CHIMERE_EINVAL, "lora-rule: expected fzoo, mezo or es, got %.40s", name)
               : 0;
}

/* ---- directions ---- */

/* A normal value of a counter, by the method of Box and Muller. */
static float normal_at(uint64_t stream, uint64_t i) {
    uint64_t bits = rng_at(stream, i);
    double u = ((double)(bits >> 32) + 1) / 4294967296.0, v = (double)(uint32_t)bits / 4294967296.0;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* Writes one block of the direction of a member, without the sign of a pair. */
static void direction(const struct zo_step *s, int32_t member, size_t block, float out[BLOCK]) {
    int32_t i = s->rule->is_paired ? member / 2 : member;
    uint64_t stream = s->seed ^ ((uint64_t)s->step << 8 | (uint64_t)i) * 0x9e3779b97f4a7c15ULL;
    if (s->rule->is_normal) {
        for (size_t k = 0; k < BLOCK; k++) out[k] = normal_at(stream, block * BLOCK + k);
        return;
    }
    uint64_t bits = rng_at(stream, block);
    for (size_t k = 0; k < BLOCK; k++, bits >>= 1) out[k] = bits & 1 ? 1.0f : -1.0f;
}

static float sign_of(const struct zo_step *s, int32_t member) {
    return s->rule->is_paired && member & 1 ? -1.0f : 1.0f;
}

void zo_perturb(const struct zo_step *s, int32_t member, const float *from, float *to, size_t n) {
    float u[BLOCK], size = s->eps * sign_of(s, member);
    for (size_t at = 0; at < n; at += BLOCK) {
        direction(s, member, at / BLOCK, u);
        for (size_t k = at; k < n && k < at + BLOCK; k++) to[k] = from[k] + size * u[k - at];
    }
}

/* ---- a step ---- */

void zo_update(const struct zo_step *s, const double *loss, float *v, float *velocity, size_t n) {
    float weight[ZO_MAX_MEMBERS], rate = s->lr, keep = s->rule->momentum;
    bool is_zero = true;
    s->rule->weigh(loss, s->n_member, s->eps, weight);
    for (int32_t i = 0; i < s->n_member; i++) is_zero &= weight[i] == 0;
    if (is_zero) return;
    if (s->rule->decays) rate *= 0.5f * (1 + cosf(3.14159265f * (float)s->step / (float)s->n_step));
    for (size_t at = 0; at < n; at += BLOCK) {
        float g[BLOCK] = {0}, u[BLOCK];
        for (int32_t i = 0; i < s->n_member; i++) {
            if (weight[i] == 0) continue;
            direction(s, i, at / BLOCK, u);
            for (int k = 0; k < BLOCK; k++) g[k] += weight[i] * sign_of(s, i) * u[k];
        }
        for (size_t k = at; k < n && k < at + BLOCK; k++) {
            velocity[k] = keep * velocity[k] + (1 - keep) * g[k - at];
            v[k] -= rate * velocity[k];
        }
    }
}
