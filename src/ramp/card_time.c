/* card_time.c: see card_time.h. */
#include "ramp/card_time.h"

#include <math.h>
#include <string.h>

const struct ramp_card *card_of(int32_t n_sm, double bandwidth) {
    const struct ramp_card *best = NULL;
    const char *name;
    bandwidth /= RAMP_BANDWIDTH;
    for (int i = 0; (name = ramp_card_name(i)) != NULL; i++) {
        const struct ramp_card *card = ramp_card_find(name);
        if (card->n_sm != n_sm) continue;
        if (!best || fabs(card->bandwidth - bandwidth) < fabs(best->bandwidth - bandwidth))
            best = card;
    }
    return best;
}

/* Kernels timed one by one do not overlap, and events lie between them: their sum is more than the step. */
static double share_of_step(const struct card_run *r) {
    double sum = 0;
    for (int32_t i = 0; i < r->n_kernel; i++) sum += r->kernels[i].us;
    return sum > 0 ? r->us / sum : 0;
}

static const struct op_time *same_kernel(const struct card_run *r, const struct op_time *k) {
    for (int32_t i = 0; i < r->n_kernel; i++)
        if (!strcmp(r->kernels[i].name, k->name) && r->kernels[i].bytes == k->bytes &&
            r->kernels[i].n_launch == k->n_launch)
            return &r->kernels[i];
    return NULL;
}

double card_time(const struct card_run *a, const struct card_run *b, const struct ramp_card *here,
                 const struct ramp_card *card, bool is_tensor) {
    double total = 0, of_a = share_of_step(a), of_b = share_of_step(b);
    double na = a->n_sm, nb = b->n_sm, slower = here->clock / card->clock;
    double work_slower = is_tensor ? slower * here->tensor / card->tensor : slower;
    for (int32_t i = 0; i < a->n_kernel; i++) {
        const struct op_time *k = &a->kernels[i], *less = same_kernel(b, k);
        double n = (double)k->n_launch, ta = of_a * k->us / n;
        double read = 1e6 * (double)k->bytes / RAMP_BANDWIDTH; /* us, at a byte per second */
        /* a kernel of another shape on fewer multiprocessors: all of its time counts as latency */
        double tb = less ? of_b * less->us / n : ta;
        double latency = (na * ta - nb * tb) / (na - nb);
        latency = fmax(0, fmin(latency, ta - read / here->bandwidth));
        double work = fmax(0, tb - latency) * nb;
        total +=
            n * (latency * slower + fmax(read / card->bandwidth, work * work_slower / card->n_sm));
    }
    return total;
}
