/* ref_moe.c: feed-forward blocks: dense, and mixture of experts. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/ref/ref.h"

struct expert {
    const struct weight *gate, *up, *down;
    const float *gate_b, *up_b, *down_b;
    enum act act;
    double gate_scale, down_scale;
    int64_t mat;
};

struct room {
    float *row, *x8, *hidden, *gated, *y;
};

static bool room_take(struct ref *r, struct room *m, int64_t n_embd, int64_t n_ff) {
    size_t widest = (size_t)(n_embd > n_ff ? n_embd : n_ff);
    m->row = ref_take(r, widest);
    m->x8 = ref_take(r, widest);
    m->hidden = ref_take(r, (size_t)n_ff);
    m->gated = ref_take(r, (size_t)n_ff);
    m->y = ref_take(r, (size_t)n_embd);
    return m->row && m->x8 && m->hidden && m->gated && m->y;
}

/* m->y = down(act(gate x) * up x) */
static void ffn_one(struct ref *r, const struct expert *e, const float *x, struct room *m) {
    int64_t n_ff = e->up->n_out;
    ref_matvec(r, e->up, e->mat, ref_rounded(r, e->up, x, m->x8), m->row, 1, m->hidden);
    for (int64_t i = 0; e->up_b && i < n_ff; i++) m->hidden[i] += e->up_b[i];
    if (e->gate) {
        ref_matvec(r, e->gate, e->mat, ref_rounded(r, e->gate, x, m->x8), m->row, e->gate_scale,
                   m->gated);
        for (int64_t i = 0; e->gate_b && i < n_ff; i++) m->gated[i] += e->gate_b[i];
    }
    for (int64_t i = 0; i < n_ff; i++)
        m->hidden[i] = (float)(e->gate ? ref_glu(e->act, m->gated[i], m->hidden[i])
                                       : ref_act(e->act, m->hidden[i]));
    ref_matvec(r, e->down, e->mat, ref_rounded(r, e->down, m->hidden, m->x8), m->row, e->down_scale,
               m->y);
    for (int64_t i = 0; e->down_b && i < e->down->n_out; i++) m->y[i] += e->down_b[i];
}

void ref_ffn(struct dev *d, const struct ffn_args *a) {
    struct ref *r = (struct ref *)d;
    struct room m;
    int64_t n = a->down->n_out;
    if (!ref_begin(r) || !room_take(r, &m, n, a->up->n_out)) return;
    struct expert e = {a->gate,   a->up,  a->down,       a->gate_b,     a->up_b,
                       a->down_b, a->act, a->gate_scale, a->down_scale, 0};
    for (int32_t t = 0; t < a->n_tok; t++) {
        ffn_one(r, &e, a->x + t * n, &m);
        double dot = 0, factor = 1;
        for (int64_t i = 0; a->row_gate && i < n; i++)
            dot += (double)a->row_gate[i] * (double)a->x[t * n + i];
        if (a->row_gate) factor = ref_act(ACT_SIGMOID, dot);
        for (int64_t i = 0; i < n; i++) a->out[t * n + i] += (float)(factor * (double)m.y[i]);
    }
}

static bool to_scores(enum moe_gating gating, int64_t n, const float *logits, float *scores) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(logits[i])) return false;
        max = logits[i] > max ? logits[i] : max;
    }
    for (int64_t i = 0; i < n; i++) sum += exp(logits[i] - max);
    for (int64_t i = 0; i < n; i++)
        scores[i] = gating == MOE_SOFTMAX   ? (float)(exp(logits[i] - max) / sum)
                    : gating == MOE_SIGMOID ? (float)ref_act(ACT_SIGMOID, logits[i])
                                            : logits[i];
    return true;
}

bool ref_moe_given(int32_t n_used, int32_t *ids) {
    for (int32_t k = 0; k < n_used; k++)
        if (ids[k] < -1) ids[k] = -2 - ids[k];
    return ids[0] >= 0;
}

void ref_moe_leave_out(const struct moe_keep *keep, int32_t n_used, const float *weights,
                       int32_t *ids) {
    if (!keep || keep->mass <= 0 || keep->mass >= 1) return;
    float sum = 0;
    for (int32_t k = 0; k < n_used; k++) sum += weights[k];
    for (int32_t k = 0; k < n_used; k++) {
        int32_t n = 0; /* experts with a greater weight */
        float before = 0;
        for (int32_t j = 0; j < n_used; j++) {
            if (weights[j] < weights[k] || (weights[j] == weights[k] && j >= k)) continue;
            before += weights[j];
            n++;
        }
        if (n > 0 && n >= keep->n_min && before >= keep->mass * sum) ids[k] = -2 - ids[k];
    }
}

static float choice_key(const struct moe_args *a, const float *scores, int64_t i) {
    return scores[i] + (a->select_bias ? a->select_bias[i] : 0.0f);
}

/* Whether experts may be chosen: those of the best groups. */
static void allow_groups(const struct moe_args *a, int64_t n_expert, const float *scores,
                         bool *allowed) {
    float value[MOE_MAX_GROUP];
    int64_t size = n_expert / a->n_group;
    for (int32_t g = 0; g < a->n_group; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int64_t i = g * size; i < (g + 1) * size; i++) {
            float key = choice_key(a, scores, i);
            if (key > first) second = first, first = key;
            else if (key > second) second = key;
        }
        value[g] = first + second;
    }
    for (int32_t g = 0; g < a->n_group; g++) {
        int32_t n_better = 0;
        for (int32_t j = 0; j < a->n_group; j++)
            n_better += value[j] > value[g] || (value[j] == value[g] && j < g);
        for (int64_t i = g * size; i < (g + 1) * size; i++) allowed[i] = n_better < a->n_group_used;
    }
}

bool ref_moe_choose(const struct moe_args *a, const struct moe_keep *keep, int64_t n_expert,
                    const float *logits, float *scores, int32_t *ids, float *weights) {
    if (!to_scores(a->gating, n_expert, logits, scores)) return false;
    double all = 0, sum = 0;
    bool allowed[MOE_MAX_GROUPED];
    bool grouped = a->n_group > 1 && !a->chosen;
    if (grouped && (a->n_group > MOE_MAX_GROUP || n_expert > MOE_MAX_GROUPED)) return false;
    if (grouped) allow_groups(a, n_expert, scores, allowed);
    if (a->chosen && !ref_moe_given(a->n_used, ids)) return false;
    for (int32_t k = 0; !a->chosen && k < a->n_used; k++) {
        int32_t best = -1;
        float best_key = 0;
        for (int32_t i = 0; i < n_expert; i++) {
            bool taken = grouped && !allowed[i];
            for (int32_t j = 0; j < k; j++) taken |= ids[j] == i;
            float key = choice_key(a, scores, i);
            if (taken || isnan(key) || (best >= 0 && key <= best_key)) continue;
            best = i;
            best_key = key;
        }
        if (best < 0) return false;
        ids[k] = best;
    }
    /* With a bias or a given choice, the first expert need not have the highest score. */
    float most = scores[ids[0]];
    for (int32_t k = 1; k < a->n_used; k++) most = scores[ids[k]] > most ? scores[ids[k]] : most;
    for (int32_t k = 0; k < a->n_used; k++) {
        weights[k] =
            a->gating == MOE_SOFTMAX_CHOSEN ? (float)exp(scores[ids[k]] - most) : scores[ids[k]];
        all += weights[k];
    }
    ref_moe_leave_out(keep, a->n_used, weights, ids);
    for (int32_t k = 0; k < a->n_used; k++) {
        if (ids[k] < 0) weights[k] = 0;
        sum += weights[k];
    }
    if (a->gating == MOE_SIGMOID) sum = all;
    bool divide = a->normalise || a->gating == MOE_SOFTMAX_CHOSEN;
    for (int32_t k = 0; k < a->n_used; k++)
        weights[k] = (float)(weights[k] / (divide ? sum + 1e-20 : 1.0) * a->scale);
    for (int32_t k = 0; a->expert_scale && k < a->n_used; k++)
        if (ids[k] >= 0) weights[k] *= a->expert_scale[ids[k]];
    return true;
}

static void shared_expert(struct ref *r, const struct moe_args *a, const float *x, struct room *m,
                          double *acc) {
    int64_t n = a->down->n_out;
    struct expert e = {a->sh_gate, a->sh_up, a->sh_down, NULL, NULL, NULL, a->act, 1, 1, 0};
    ffn_one(r, &e, x, m);
    double f = 1;
    if (a->shared_gate_w) {
        double dot = 0;
        for (int64_t i = 0; i < n; i++) dot += (double)a->shared_gate_w[i] * x[i];
        f = ref_act(ACT_SIGMOID, (float)dot);
    }
    for (int64_t i = 0; i < n; i++) acc[i] += f * m->y[i];
}

/* The router's logits of one row; x8 and row are scratch. */
static void route_row(struct ref *r, const struct moe_args *a, const float *x, float *x8,
                      float *row, float *logits) {
    ref_matvec(r, a->router, 0, ref_rounded(r, a->router, x, x8), row, 1, logits);
    for (int64_t i = 0; a->bias.router && i < a->router->n_out; i++) logits[i] += a->bias.router[i];
}

static const float *bias_of(const float *bias, int32_t expert, int64_t n) {
    return bias ? bias + expert * n : NULL;
}

void ref_moe(struct dev *d, const struct moe_args *a) {
    struct ref *r = (struct ref *)d;
    struct room m;
    if (a->pass == MOE_EARLY) return;
    int64_t n = a->down->n_out, n_expert = a->router->n_out, n_ff = a->up->n_out;
    if (a->sh_up && a->sh_up->n_out > n_ff) n_ff = a->sh_up->n_out;
    if (!ref_begin(r) || !room_take(r, &m, n, n_ff)) return;
    double *acc = (double *)ref_take(r, 2 * (size_t)n);
    float *logits = ref_take(r, (size_t)n_expert), *scores = ref_take(r, (size_t)n_expert);
    float *weights = ref_take(r, (size_t)a->n_used);
    int32_t *ids = (int32_t *)ref_take(r, (size_t)a->n_used);
    if (!acc || !logits || !scores || !weights || !ids) return;
    for (int32_t t = 0; t < a->n_tok; t++) {
        const float *x = a->x + t * n;
        float *out = a->out + t * n;
        if (a->logits) memcpy(logits, a->logits + t * n_expert, (size_t)n_expert * sizeof *logits);
        else route_row(r, a, x, m.x8, m.row, logits);
        if (a->chosen) memcpy(ids, a->chosen + t * a->n_used, (size_t)a->n_used * sizeof *ids);
        bool finite =
            ref_moe_choose(a, a->keep ? a->keep + t : NULL, n_expert, logits, scores, ids, weights);
        for (int64_t i = 0; i < n; i++) acc[i] = finite ? 0 : NAN;
        for (int32_t k = 0; finite && k < a->n_used; k++) {
            int32_t mat = ids[k] >= 0 && a->place ? a->place[ids[k]] : ids[k];
            if (mat < 0) continue;
            struct expert e = {.gate = a->gate,
                               .up = a->up,
                               .down = a->down,
                               .gate_b = bias_of(a->bias.gate, ids[k], a->up->n_out),
                               .up_b = bias_of(a->bias.up, ids[k], a->up->n_out),
                               .down_b = bias_of(a->bias.down, ids[k], n),
                               .act = a->act,
                               .gate_scale = 1,
                               .down_scale = 1,
                               .mat = mat};
            ffn_one(r, &e, x, &m);
            for (int64_t i = 0; i < n; i++) acc[i] += (double)weights[k] * m.y[i];
        }
        if (finite && a->sh_up) shared_expert(r, a, x, &m, acc);
        for (int64_t i = 0; i < n; i++) out[i] += (float)acc[i];
        for (int32_t k = 0; a->ids && k < a->n_used; k++)
            a->ids[t * a->n_used + k] = finite ? ids[k] : -1;
    }
}

const float *ref_route(struct dev *d, const struct moe_args *a) {
    struct ref *r = (struct ref *)d;
    if (!ref_begin(r)) return NULL;
    int64_t n_expert = a->router->n_out, n = tensor_n_in(a->router);
    float *x8 = ref_take(r, (size_t)n), *row = ref_take(r, (size_t)n);
    float *logits = ref_take(r, (size_t)n_expert), *scores = ref_take(r, (size_t)n_expert);
    float *weights = ref_take(r, (size_t)a->n_used);
    if (!x8 || !row || !logits || !scores || !weights) return NULL;
    for (int32_t t = 0; t < a->n_tok; t++) {
        const float *x = a->x + t * n;
        int32_t *ids = a->ids + t * a->n_used;
        if (a->logits) memcpy(logits, a->logits + t * n_expert, (size_t)n_expert * sizeof *logits);
        else route_row(r, a, x, x8, row, logits);
        bool finite =
            ref_moe_choose(a, a->keep ? a->keep + t : NULL, n_expert, logits, scores, ids, weights);
        for (int32_t k = 0; !finite && k < a->n_used; k++) ids[k] = -1;
    }
    return a->logits;
}
