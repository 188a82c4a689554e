/* block_moe.c: mixture of experts, on the device, on the host, or uploaded from the host per batch. */
#include <string.h>

#include "model/block_impl.h"

/* The routed experts on the host, beside the shared one on the device. The device writes the normed rows, and of
 * few their router's logits (2 MB of floats a layer, an eighth of what the host would read), to the host's
 * memory and reads there what the experts add: a step waits once a layer, for those rows. */
static void experts_on_host(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct ops *ops = f->d->ops;
    struct dev *host = f->m->weights.host;
    int64_t n = (int64_t)f->n_tok * hp->n_embd;
    bool is_step = f->n_tok <= STEP_MAX_TOK; /* beyond, the device's products are of halves */
    if (is_step) {
        const struct linear_out route =
            fwd_out(&l->moe.router, NULL, f->host_route, hp->moe.n_expert);
        ops->linear(f->d, &route, 1, f->h, hp->n_embd, f->n_tok);
    }
    ops->fetch(f->d, f->host_x, f->h, (size_t)n * sizeof(float));
    if (l->moe.sh_up.data) {
        const struct ffn_args shared = {.n_tok = f->n_tok,
                                        .act = hp->act,
                                        .x = f->h,
                                        .gate = block_or_null(&l->moe.sh_gate),
                                        .up = &l->moe.sh_up,
                                        .down = &l->moe.sh_down,
                                        .gate_scale = 1,
                                        .down_scale = 1,
                                        .row_gate = l->moe.shared_gate,
                                        .out = f->x};
        ops->ffn(f->d, &shared);
        ops->start(f->d);
    }
    ops->fetched(f->d); /* and host_y, which was read before these rows were made */
    memset(f->host_y, 0, (size_t)n * sizeof(float));
    const struct moe_args routed = {.n_tok = f->n_tok,
                                    .n_used = hp->moe.n_used,
                                    .gating = hp->moe.gating,
                                    .normalise = hp->moe.normalise,
                                    .scale = hp->moe.scale,
                                    .act = hp->act,
                                    .x = f->host_x,
                                    .router = &l->moe.host_router,
                                    .logits = is_step ? f->host_route : NULL,
                                    .select_bias = l->moe.host_select_b,
                                    .gate = block_or_null(&l->moe.gate),
                                    .up = &l->moe.up,
                                    .down = &l->moe.down,
                                    .out = f->host_y};
    host->ops->moe(host, &routed);
    ops->axpby(f->d, f->x, 1, f->host_y, 1, n);
}

/* The experts of the host's next layer, from il on, set out for the device: the processor rearranges them and
 * the bus carries them while the device computes what it has. */
static void bring_next(struct forward *f, int32_t il) {
    const struct ops *ops = f->d->ops;
    while (il < f->m->hp.n_layer && !f->m->weights.layer[il].moe.on_host) il++;
    if (il == f->m->hp.n_layer) return;
    const struct weight *file = f->m->weights.layer[il].moe.file;
    char *at = f->m->weights.places[f->place];
    struct weight *to = f->brought[f->place];
    for (int i = 0; i < 3; i++) {
        to[i] = (struct weight){.data = NULL};
        if (!file[i].data) continue;
        ops->bring(f->d, &file[i], at, &to[i]); /* fails as ops do: status() tells */
        at += (ops->prepared_bytes(f->d, &file[i]) + 255) & ~(size_t)255;
    }
    f->place ^= 1;
}

void block_moe_bring_first(struct forward *f) {
    f->d->ops->brought(f->d); /* both places are free after what was recorded so far */
    bring_next(f, 0);
}

static void moe_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct weight *gate = &l->moe.gate, *up = &l->moe.up, *down = &l->moe.down;
    if (l->moe.on_host && !f->brings) {
        experts_on_host(f, il);
        return;
    }
    if (l->moe.on_host) {
        const struct weight *here = f->brought[f->place ^ 1];
        gate = &here[0];
        up = &here[1];
        down = &here[2];
        f->d->ops->brought(f->d);
    }
    const struct moe_args a = {.n_tok = f->n_tok,
                               .n_used = hp->moe.n_used,
                               .gating = hp->moe.gating,
                               .normalise = hp->moe.normalise,
                               .scale = hp->moe.scale,
                               .act = hp->act,
                               .x = f->h,
                               .router = &l->moe.router,
                               .select_bias = l->moe.select_b,
                               .gate = block_or_null(gate),
                               .up = up,
                               .down = down,
                               .sh_gate = block_or_null(&l->moe.sh_gate),
                               .sh_up = block_or_null(&l->moe.sh_up),
                               .sh_down = block_or_null(&l->moe.sh_down),
                               .shared_gate_w = l->moe.shared_gate,
                               .out = f->x};
    f->d->ops->moe(f->d, &a);
    if (!l->moe.on_host) return;
    f->d->ops->start(f->d);
    bring_next(f, il + 1);
}

static bool is_in(const struct layer_shape *l) { return l->ffn == FFN_MOE; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    (void)hp, (void)il, (void)r; /* the op keeps its own */
}

static void need(const struct hparams *hp, int32_t il, struct dev_need *n) {
    (void)il;
    n->n_expert = hp->moe.n_expert;
    n->n_used = hp->moe.n_used;
    block_raise(&n->n_ff, hp->moe.n_ff);
    block_raise(&n->n_ff, hp->moe.n_ff_shared);
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->moe.router,  &l->moe.gate,       &l->moe.up,
                                  &l->moe.down,    &l->moe.sh_gate,    &l->moe.sh_up,
                                  &l->moe.sh_down, &l->moe.host_router};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_moe = {.name = "mixture of experts",
                                .is_in = is_in,
                                .within = 1 << JOIN_SHARED,
                                .rows = rows,
                                .need = need,
                                .matrices = matrices,
                                .forward = moe_forward};
