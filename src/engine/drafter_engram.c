/* drafter_engram.c: proposes what the n-gram memory mixed into a sequence expects. */
#include "engine/drafter.h"
#include "engram/mix.h"

static int draft(struct drafter *d, struct drafter_request *r, int32_t n, struct err *e) {
    (void)d, (void)e;
    for (int32_t i = 0; i < n; i++)
        r[i].n_draft = r[i].engram ? engram_mixer_draft(r[i].engram, r[i].n_draft, r[i].tokens) : 0;
    return 0;
}

const struct drafter_ops drafter_engram = {.name = "engram", .draft = draft};
