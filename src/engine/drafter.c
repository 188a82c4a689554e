#include "engine/drafter.h"

static const struct drafter_ops *const model_drafters[] = {&drafter_mtp};

int drafter_open(struct drafter **out, const struct drafter_params *p, struct err *e) {
    *out = NULL;
    for (size_t i = 0; i < sizeof model_drafters / sizeof *model_drafters; i++)
        if (model_drafters[i]->fits(p->m)) return model_drafters[i]->open(out, p, e);
    return 0;
}
