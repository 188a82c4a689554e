/* experts.c: experts on the device, multiplied by the host, streamed from host memory per layer, or on disk. */
#include "model/experts/experts_impl.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "model/experts/expert_slots.h"
#include "model/experts/tier.h"

static const struct weight *weight_or_null(const struct weight *w) { return w->data ? w : NULL; }

bool experts_can_move(const struct hparams *hp, int32_t il) {
    bool is_dense = true;
    for (int32_t i = 0; i < hp->n_layer; i++)
        is_dense &= !(hp->layer[i].ffn & FFN_MOE) && !hp->layer[i].share_back;
    return (hp->layer[il].ffn & (is_dense ? FFN_DENSE : FFN_MOE)) != 0;
}

bool experts_stream(const struct hparams *hp, int32_t n_tok) {
    if (!hp->moe.n_expert) return n_tok >= STREAM_ROWS_DENSE;
    return n_tok > STEP_MAX_TOK &&
           (int64_t)n_tok * hp->moe.n_used >= (int64_t)STREAM_ROWS_PER_EXPERT * hp->moe.n_expert;
}

static int alloc_keep(struct experts *x) {
    size_t n = (size_t)x->n_tok_max;
    x->keep = mem_alloc_array(n, sizeof *x->keep);
    if (!x->keep) return CHIMERE_ENOMEM;
    if (x->d->ops->is_host) return experts_alloc_ids(x);
    x->keep_dev = x->d->ops->alloc(x->d, n * sizeof *x->keep);
    return x->keep_dev ? 0 : CHIMERE_ENOMEM;
}

int experts_new(struct experts **out, const struct model *m, const struct dev_need *need,
                int32_t n_tok_max, struct err *e) {
    struct experts *x = *out = mem_zalloc(sizeof *x);
    if (!x) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    x->m = m;
    x->d = m->dev;
    x->n_tok_max = n_tok_max;
    x->shape = routing_shape_of(&m->hp);
    for (int32_t il = 0, n = 0; il < m->hp.n_layer; il++)
        if (m->hp.layer[il].ffn & FFN_MOE) x->mixture[il] = n++;
    if (m->weights.experts.tier && experts_alloc_ids(x))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (x->shape.n_mixture && alloc_keep(x)) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct dev *host = m->weights.experts.host;
    if (!host) return 0;
    int rc = host->ops->reserve(host, need, e);
    size_t rows = (size_t)n_tok_max * (size_t)m->hp.n_embd * sizeof(float);
    size_t n_expert = m->hp.moe.n_expert > 0 ? (size_t)m->hp.moe.n_expert : 1;
    size_t routes = STEP_MAX_TOK * n_expert * sizeof(float);
    x->x = x->d->ops->host_alloc(x->d, rows);
    x->y = x->d->ops->host_alloc(x->d, rows);
    x->logits = x->d->ops->host_alloc(x->d, routes);
    if (!rc && (!x->x || !x->y || !x->logits)) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    return rc;
}

void experts_free(struct experts *x) {
    if (!x) return;
    experts_replay_free(x);
    if (x->keep_dev) x->d->ops->free(x->d, x->keep_dev);
    mem_free(x->keep);
    float *const pinned[] = {x->x, x->y, x->logits};
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
        if (pinned[i]) x->d->ops->host_free(x->d, pinned[i]);
    mem_free(x);
}

/* ---- from disk ---- */

struct disk_run {
    struct dev *d;
    struct moe_args a;      /* with the shared expert */
    struct moe_args routed; /* without */
};

static void compute(void *ud, const struct tier_group *g) {
    struct disk_run *r = ud;
    struct moe_args *a = g->is_last || g->pass == MOE_EARLY ? &r->a : &r->routed;
    a->pass = g->pass;
    a->place = g->place;
    a->early = g->early;
    r->d->ops->moe(r->d, a);
}

/* d: the processor, as the model's device or beside it. */
static void run_on_disk(struct experts *x, struct dev *d, int32_t il, const struct moe_args *a) {
    struct disk_run r = {.d = d, .a = *a};
    if (x->err.code) return;
    if (!a->chosen) {
        r.a.ids = x->ids;
        r.a.logits = d->ops->route(d, &r.a);
        r.a.chosen = x->ids;
        r.a.ids = a->ids;
    }
    r.routed = r.a;
    r.routed.sh_gate = r.routed.sh_up = r.routed.sh_down = NULL;
    r.routed.shared_gate_w = NULL;
    tier_run(x->m->weights.experts.tier, il, r.a.chosen, a->n_tok, compute, &r, &x->err);
}

/* ---- on the host ---- */

/* The shared expert runs on the device while the routed ones run on the host. The device writes the normalized rows
 * to pinned memory; in steps also the router's logits (2 MB of floats per layer, an eighth of what the host would read
 * to compute them). It reads the host's sums from pinned memory. The host waits once per layer, for the rows. */
static void run_on_host(struct experts *x, int32_t il, const struct moe_args *a) {
    const struct expert_layer *l = &x->m->weights.experts.layer[il];
    const struct hparams *hp = &x->m->hp;
    const struct ops *ops = x->d->ops;
    struct dev *host = x->m->weights.experts.host;
    int64_t n = (int64_t)a->n_tok * hp->n_embd;
    /* if not, the host computes the logits, because the device would multiply in f16 */
    bool is_step = a->n_tok <= STEP_MAX_TOK;
    if (is_step) {
        const struct linear_out route = {.w = a->router,
                                         .bias = a->bias.router,
                                         .dst = x->logits,
                                         .dst_stride = hp->moe.n_expert,
                                         .scale = 1};
        ops->linear(x->d, &route, 1, a->x, hp->n_embd, a->n_tok);
    }
    ops->download_async(x->d, x->x, a->x, (size_t)n * sizeof(float));
    if (a->sh_up) {
        const struct ffn_args shared = {.n_tok = a->n_tok,
                                        .act = a->act,
                                        .x = a->x,
                                        .gate = a->sh_gate,
                                        .up = a->sh_up,
                                        .down = a->sh_down,
                                        .gate_scale = 1,
                                        .down_scale = 1,
                                        .row_gate = a->shared_gate_w,
                                        .out = a->out};
        ops->ffn(x->d, &shared);
        ops->flush(x->d);
    }
    ops->download_wait(
        x->d); /* y may be overwritten too: the device read it before it computed these rows */
    memset(x->y, 0, (size_t)n * sizeof(float));
    struct moe_args routed = *a;
    routed.x = x->x;
    routed.router = &l->router;
    routed.logits = is_step ? x->logits : NULL;
    routed.select_bias = l->select_b;
    routed.bias = l->bias;
    routed.sh_gate = routed.sh_up = routed.sh_down = NULL;
    routed.shared_gate_w = NULL;
    routed.out = x->y;
    if (a->chosen) routed.chosen = experts_chosen(x, il, true);
    if (a->keep) routed.keep = x->keep;
    if (x->m->weights.experts.tier) run_on_disk(x, host, il, &routed);
    else host->ops->moe(host, &routed);
    ops->axpby(x->d, a->out, 1, x->y, 1, n);
}

/* Stages the experts of the next host layer from il on: the host repacks them and the bus transfers
 * them while the device computes. */
static void stage_next(struct experts *x, int32_t il) {
    const struct ops *ops = x->d->ops;
    const struct expert_store *s = &x->m->weights.experts;
    while (il < x->m->hp.n_layer && !s->layer[il].on_host) il++;
    if (il == x->m->hp.n_layer) return;
    const struct weight *file = s->layer[il].file;
    char *at = s->staging[x->next];
    struct weight *to = x->staged[x->next];
    for (int i = 0; i < 3; i++) {
        to[i] = (struct weight){.data = NULL};
        if (!file[i].data) continue;
        ops->stage(x->d, &file[i], at, &to[i]); /* status() reports a failure */
        at += (ops->prepared_bytes(x->d, &file[i]) + 255) & ~(size_t)255;
    }
    x->next ^= 1;
}

static void keep_begin(struct experts *x, const struct span *spans, const struct moe_keep *keep,
                       int32_t n_span, int32_t n_tok) {
    x->keeps = false;
    for (int32_t i = 0; keep && x->keep && i < n_span; i++)
        x->keeps |= keep[i].mass > 0 && keep[i].mass < 1;
    if (!x->keeps) return;
    for (int32_t i = 0; i < n_span; i++)
        for (int32_t t = 0; t < spans[i].n_tok; t++) x->keep[spans[i].row + t] = keep[i];
    if (x->keep_dev) x->d->ops->upload(x->d, x->keep_dev, x->keep, (size_t)n_tok * sizeof *x->keep);
}

void experts_begin(struct experts *x, const struct span *spans, const struct moe_keep *keep,
                   int32_t n_span, int32_t n_tok) {
    x->err.code = 0;
    keep_begin(x, spans, keep, n_span, n_tok);
    experts_replay_begin(x, spans, n_span, n_tok);
    x->streams = x->m->weights.experts.staging[0] && experts_stream(&x->m->hp, n_tok);
    if (!x->streams) return;
    x->d->ops->stage_fence(x->d); /* the ops recorded so far still use both buffers */
    stage_next(x, 0);
}

/* ---- a dense feed-forward ---- */

static void dense_on_host(struct experts *x, int32_t il, const struct ffn_args *a) {
    const struct moe_bias *bias = &x->m->weights.experts.layer[il].bias;
    const struct ops *ops = x->d->ops;
    struct dev *host = x->m->weights.experts.host;
    int64_t n = (int64_t)a->n_tok * x->m->hp.n_embd;
    ops->download_async(x->d, x->x, a->x, (size_t)n * sizeof(float));
    ops->download_wait(x->d);
    memset(x->y, 0, (size_t)n * sizeof(float));
    struct ffn_args here = *a;
    here.x = x->x;
    here.gate_b = bias->gate, here.up_b = bias->up, here.down_b = bias->down;
    here.out = x->y;
    host->ops->ffn(host, &here);
    ops->axpby(x->d, a->out, 1, x->y, 1, n);
}

void experts_run_dense(struct experts *x, int32_t il, const struct ffn_args *a) {
    const struct expert_store *s = &x->m->weights.experts;
    if (!s->host || il >= x->m->hp.n_layer || !s->layer[il].on_host ||
        s->layer[il].router.data) { /* beside experts it is on the device */
        x->d->ops->ffn(x->d, a);
        return;
    }
    if (!x->streams) {
        dense_on_host(x, il, a);
        return;
    }
    const struct weight *staged = x->staged[x->next ^ 1];
    struct ffn_args here = *a;
    here.gate = weight_or_null(&staged[0]);
    here.up = &staged[1];
    here.down = &staged[2];
    x->d->ops->stage_fence(x->d);
    x->d->ops->ffn(x->d, &here);
    x->d->ops->flush(x->d);
    stage_next(x, il + 1);
}

static void run(struct experts *x, int32_t il, const struct moe_args *a) {
    const struct expert_store *s = &x->m->weights.experts;
    const struct expert_layer *l = s->host ? &s->layer[il] : NULL;
    if (s->tier && !s->host && il < x->m->hp.n_layer) {
        run_on_disk(x, x->d, il, a);
        return;
    }
    if (!l || !l->on_host) {
        struct moe_args b = *a;
        if (s->slots && il < x->m->hp.n_layer) b.pool = expert_slots_pool(s->slots, il);
        x->d->ops->moe(x->d, &b);
        return;
    }
    if (!x->streams) {
        run_on_host(x, il, a);
        return;
    }
    const struct weight *staged = x->staged[x->next ^ 1];
    struct moe_args here = *a;
    here.gate = weight_or_null(&staged[0]);
    here.up = &staged[1];
    here.down = &staged[2];
    x->d->ops->stage_fence(x->d);
    x->d->ops->moe(x->d, &here);
    x->d->ops->flush(x->d);
    stage_next(x, il + 1);
}

static void count_kept(struct experts *x, int32_t n_tok) {
    int32_t n_used = x->shape.n_used;
    for (int32_t t = 0; t < n_tok; t++) {
        if (!(x->keep[t].mass > 0 && x->keep[t].mass < 1)) continue;
        x->kept.n_chosen += (uint64_t)n_used;
        for (int32_t k = 0; k < n_used; k++) x->kept.n_stayed += x->ids[t * n_used + k] >= 0;
    }
}

void experts_run(struct experts *x, int32_t il, const struct moe_args *a) {
    struct moe_args b = *a;
    bool is_trunk = il < x->m->hp.n_layer;
    if (is_trunk && x->replay) b.chosen = experts_chosen(x, il, false);
    if (is_trunk && x->keeps) b.keep = x->keep_dev ? x->keep_dev : x->keep;
    if (is_trunk && (x->observe || (x->keeps && x->d->ops->is_host))) b.ids = x->ids;
    run(x, il, &b);
    if (!b.ids || x->err.code) return;
    if (x->observe) x->observe(x->observe_ud, x->mixture[il], x->ids, a->n_tok);
    if (x->keeps) count_kept(x, a->n_tok);
}

void experts_kept(const struct experts *x, struct experts_kept *out) { *out = x->kept; }

struct moe_keep experts_keep_after(struct moe_keep k, float entropy) {
    if (!(k.all_at > 0 && k.mass > 0 && k.mass < 1)) return k;
    float share = entropy / k.all_at;
    k.mass += (1 - k.mass) * (share < 0 ? 0 : share < 1 ? share : 1);
    return k;
}

const uint32_t *experts_uses(const struct expert_store *s) {
    return s->tier ? tier_uses(s->tier) : s->slots ? expert_slots_uses(s->slots) : NULL;
}

int experts_fill(const struct expert_store *s, const uint32_t *uses, struct err *e) {
    return s->tier ? tier_fill(s->tier, uses, e) : expert_slots_fill(s->slots, uses, e);
}

bool experts_stats(const struct expert_store *s, struct tier_stats *out) {
    if (s->tier) tier_stats(s->tier, out);
    else if (s->slots) expert_slots_stats(s->slots, out);
    return s->tier || s->slots;
}

int experts_status(struct experts *x, struct err *e) {
    struct dev *host = x->m->weights.experts.host;
    if (x->err.code) {
        *e = x->err;
        return e->code;
    }
    return host ? host->ops->status(host, e) : 0;
}
