#include "engine/draft/drafter.h"

#include <math.h>

#include "engine/engine.h"
#include "engine/sampler/sampler_impl.h"
#include "model/draft_head.h"

static const struct drafter_ops *const model_drafters[] = {&drafter_mtp};

int drafter_open(struct drafter **out, const struct drafter_params *p, struct err *e) {
    *out = NULL;
    const struct drafter_ops *ops = NULL;
    if (p->engine && p->engine->draft) ops = &drafter_dflash;
    for (size_t i = 0; !ops && i < sizeof model_drafters / sizeof *model_drafters; i++)
        if (model_drafters[i]->fits(p->m)) ops = model_drafters[i];
    int rc = ops ? draft_head_add(p->m, p->n_head, ops != &drafter_dflash, e) : 0;
    return rc || !ops ? rc : ops->open(out, p, e);
}

float drafter_top(const float *logits, int32_t n, int32_t *best) {
    float max;
    *best = 0;
    if (!sampler_max(logits, n, &max)) return 0;
    *best = sampler_find(logits, n, max);
    return sampler_share(logits, n, max);
}

float drafter_top_selected(const struct select_row *r, int32_t *best) {
    *best = 0;
    if (r->n < 1 || !r->is_finite) return 0;
    *best = INT32_MAX;
    for (int32_t i = 0; i < r->n; i++)
        if (r->logits[i] == r->max && r->ids[i] < *best) *best = r->ids[i];
    return (float)exp(-r->log_sum);
}
