/* block_ffn.c: dense feed-forward and mixture of experts. */
#include <string.h>

#include "model/forward_impl.h"

static const struct weight *or_null(const struct weight *w) { return w->data ? w : NULL; }

/* The same product op by op, where a sequence's adapter touches one of the matrices. */
static void dense_with_lora(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    int64_t n_ff = hp->layer[il].n_ff;
    float *gate = f->ff, *up = f->ff + (int64_t)f->n_tok_max * f->ff_stride;
    const struct linear_out out[2] = {fwd_out(&l->ffn.up, l->ffn.up_b, up, n_ff),
                                      fwd_out(&l->ffn.gate, l->ffn.gate_b, gate, n_ff)};
    fwd_linear(f, out, l->ffn.gate.data ? 2 : 1, f->h, hp->n_embd);
    if (l->ffn.gate.data) f->d->ops->act_mul(f->d, up, gate, up, n_ff * f->n_tok, hp->act);
    else f->d->ops->act_mul(f->d, up, up, NULL, n_ff * f->n_tok, hp->act);
    const struct linear_out res = fwd_add(&l->ffn.down, l->ffn.down_b, f->x, hp->n_embd);
    fwd_linear(f, &res, 1, up, n_ff);
}

static void dense(struct forward *f, int32_t il) {
    const struct layer_weights *l = &f->m->weights.layer[il];
    if (fwd_has_lora(f, &l->ffn.gate) || fwd_has_lora(f, &l->ffn.up) ||
        fwd_has_lora(f, &l->ffn.down)) {
        dense_with_lora(f, il);
        return;
    }
    const struct ffn_args a = {.n_tok = f->n_tok,
                               .act = f->m->hp.act,
                               .x = f->h,
                               .gate = or_null(&l->ffn.gate),
                               .up = &l->ffn.up,
                               .down = &l->ffn.down,
                               .gate_b = l->ffn.gate_b,
                               .up_b = l->ffn.up_b,
                               .down_b = l->ffn.down_b,
                               .gate_scale = 1,
                               .down_scale = 1,
                               .out = f->x};
    f->d->ops->ffn(f->d, &a);
}

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
                                        .gate = or_null(&l->moe.sh_gate),
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
                                    .gate = or_null(&l->moe.gate),
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

void ffn_bring_first(struct forward *f) {
    f->d->ops->brought(f->d); /* both places are free after what was recorded so far */
    bring_next(f, 0);
}

static void experts(struct forward *f, int32_t il) {
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
                               .gate = or_null(gate),
                               .up = up,
                               .down = down,
                               .sh_gate = or_null(&l->moe.sh_gate),
                               .sh_up = or_null(&l->moe.sh_up),
                               .sh_down = or_null(&l->moe.sh_down),
                               .shared_gate_w = l->moe.shared_gate,
                               .out = f->x};
    f->d->ops->moe(f->d, &a);
    if (!l->moe.on_host) return;
    f->d->ops->start(f->d);
    bring_next(f, il + 1);
}

void ffn_forward(struct forward *f, int32_t il) {
    if (f->m->hp.layer[il].ffn == FFN_MOE) experts(f, il);
    else if (f->m->hp.layer[il].ffn == FFN_DENSE) dense(f, il);
}
