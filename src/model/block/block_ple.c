/* block_ple.c: per-layer embeddings. Each token has a small embedding for every layer: the sum of a table's row and a
 * projection of its ordinary embedding. A layer multiplies it by a gate that reads the residual stream. */
#include <math.h>

#include "model/block/block_impl.h"

void block_ple_begin(struct forward *f) {
    const struct hparams *hp = &f->m->hp;
    const struct global_weights *g = &f->m->weights.global;
    const struct ops *ops = f->d->ops;
    int64_t n = arch_dim(hp, D_PLE_ALL, -1), n_tok = f->n_tok;
    ops->embed(f->d, f->ple_row, &g->ple_embd, f->ids, f->n_tok, sqrtf((float)hp->n_ple));
    struct linear_out proj = fwd_out(&g->ple_proj, NULL, f->ple, n);
    proj.scale = 1 / sqrtf((float)hp->n_embd);
    ops->linear(f->d, &proj, 1, f->x, hp->n_embd, f->n_tok);
    ops->rms_norm(f->d, f->ple, f->ple, g->ple_norm, n_tok * hp->n_layer, hp->n_ple, hp->eps);
    const float half = sqrtf(0.5f);
    ops->axpby(f->d, f->ple, half, f->ple_row, half, n_tok * n);
}

static void ple_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct ops *ops = f->d->ops;
    float *gate = f->ple_row, *own = gate + (int64_t)f->n_tok * hp->n_ple;
    for (int32_t t = 0; t < f->n_tok; t++) f->ple_at[t] = t * hp->n_layer + il;
    ops->gather_rows(f->d, own, f->ple, f->ple_at, f->n_tok, hp->n_ple);
    const struct linear_out in = fwd_out(&l->ple.gate, NULL, gate, hp->n_ple);
    fwd_linear(f, &in, 1, f->stream, hp->n_embd);
    ops->act_mul(f->d, gate, gate, own, (int64_t)f->n_tok * hp->n_ple, hp->act);
    const struct linear_out out = fwd_add(&l->ple.proj, NULL, f->x, hp->n_embd);
    fwd_linear(f, &out, 1, gate, hp->n_ple);
}

static bool is_in(const struct layer_shape *l) { return l->has_ple; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    (void)il;
    /* two rows of a layer are also kept where one row of all layers was */
    block_raise(&r->ple, hp->n_ple * (int64_t)(hp->n_layer > 2 ? hp->n_layer : 2));
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->ple.gate, &l->ple.proj};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_ple = {.name = "per-layer embedding",
                                .is_in = is_in,
                                .rows = rows,
                                .matrices = matrices,
                                .forward = ple_forward};
