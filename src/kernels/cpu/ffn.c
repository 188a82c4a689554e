/* ffn.c: feed-forward blocks, dense or mixture of experts: gate and up tiles together, then down.
 *
 * A block is a list of tasks: one per expert that has rows, and the shared expert last. Phase 1: units of 16 hidden
 * values, gate and up together. Phase 2: units of 32 outputs; the thread that takes a unit adds all tasks to it, in the
 * order of experts. So no partial result is stored, and the result of a row depends on that row alone, bit for bit. In
 * small batches every thread quantizes and routes all rows itself, which is cheaper than a barrier. MOE_EARLY is phase 1
 * for some of the experts, and MOE_REST phase 1 for the others and phase 2. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/cpu/cpu_impl.h"
#include "kernels/cpu/ffn_task.h"

struct ffn_job {
    struct cpu *c;
    const struct moe_args *moe; /* NULL: a dense block */
    const float *logits;        /* [n_tok, n_expert] */
    const float *x;
    float *out;
    int64_t n_embd, hidden_stride;
    int32_t n_tok;
    bool rounds_x, rounds_hidden, own_x, own_hidden, own_route;
    struct ffn_task plain;
    int64_t next_up, next_down;
};

static const struct ffn_task no_task;

/* ---- routing ---- */

static void keep_best(const float *key, int32_t n, int32_t n_used, int32_t *ids) {
    int32_t have = 0;
    for (int32_t i = 0; i < n; i++) {
        if (have == n_used && !(key[i] > key[ids[have - 1]])) continue;
        int32_t at = have < n_used ? have++ : have - 1;
        for (; at > 0 && key[i] > key[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
}

/* The common case, softmax divided by the sum of the chosen, needs only the exponentials of the chosen experts.
 * If a->chosen is set, ids are given. */
static bool choose(const struct moe_args *a, const struct moe_keep *keep, int32_t n,
                   const float *logits, int32_t *ids, float *weights) {
    bool direct = (a->normalise && a->gating == MOE_SOFTMAX) || a->gating == MOE_SOFTMAX_CHOSEN;
    if (!direct || a->select_bias || a->n_group > 1) {
        float scores[1024];
        if (n > 1024) return false;
        return ref_moe_choose(a, keep, n, logits, scores, ids, weights);
    }
    float sum = 0;
    for (int32_t i = 0; i < n; i++) sum += logits[i] * 0.0f;
    if (sum != 0) return false; /* NaN or infinity */
    if (!a->chosen) keep_best(logits, n, a->n_used, ids);
    else if (!ref_moe_given(a->n_used, ids)) return false;
    float most = logits[ids[0]];
    for (int32_t k = 1; a->chosen && k < a->n_used; k++)
        most = logits[ids[k]] > most ? logits[ids[k]] : most;
    for (int32_t k = 0; k < a->n_used; k++) weights[k] = expf(logits[ids[k]] - most);
    ref_moe_leave_out(keep, a->n_used, weights, ids);
    for (int32_t k = 0; k < a->n_used; k++) sum += weights[k] = ids[k] < 0 ? 0 : weights[k];
    for (int32_t k = 0; k < a->n_used; k++) weights[k] = weights[k] / sum * a->scale;
    for (int32_t k = 0; a->expert_scale && k < a->n_used; k++)
        if (ids[k] >= 0) weights[k] *= a->expert_scale[ids[k]];
    return true;
}

static void route(const struct ffn_job *j, int32_t first, int32_t last, int32_t *ids,
                  float *weights) {
    const struct moe_args *a = j->moe;
    int32_t n_expert = (int32_t)a->router->n_out;
    for (int32_t t = first; t < last; t++) {
        int32_t *id = ids + t * a->n_used;
        float *w = weights + t * a->n_used;
        if (a->chosen) memcpy(id, a->chosen + t * a->n_used, (size_t)a->n_used * sizeof *id);
        bool finite = choose(a, a->keep ? a->keep + t : NULL, n_expert,
                             j->logits + (int64_t)t * n_expert, id, w);
        for (int32_t k = 0; !finite && k < a->n_used; k++) {
            id[k] = k; /* any expert: the weight makes the row NaN */
            w[k] = NAN;
        }
        for (int32_t k = 0; a->ids && k < a->n_used; k++)
            a->ids[t * a->n_used + k] = finite ? id[k] : -1;
    }
}

/* Adds the router's bias to experts [from, to) of rows [first, last). */
static void add_router_bias(const struct ffn_job *j, int64_t first, int64_t last, int64_t from,
                            int64_t to) {
    const float *bias = j->moe->bias.router;
    int64_t n = j->moe->router->n_out;
    for (int64_t t = first; bias && !j->moe->logits && t < last; t++)
        for (int64_t e = from; e < to; e++) j->c->logits[t * n + e] += bias[e];
}

static void router_logits(const struct ffn_job *j, int ith, int n_thread) {
    const struct moe_args *a = j->moe;
    const struct weight *r = a->router;
    int64_t n = r->n_out;
    if (j->n_tok < 2 * n_thread) { /* few rows: each thread computes some of the experts */
        int64_t from = n * ith / n_thread, to = n * (ith + 1) / n_thread;
        if (!a->logits)
            j->c->gemm->floats(r->type, (const char *)r->data + (size_t)from * r->row_bytes,
                               r->row_bytes, (int)(to - from), r->n_in, a->x, j->n_embd, j->n_tok,
                               j->c->logits + from, n);
        add_router_bias(j, 0, j->n_tok, from, to);
        if (a->shared_gate_w && ith == n_thread - 1)
            j->c->gemm->floats(0, a->shared_gate_w, 0, 1, j->n_embd, a->x, j->n_embd, j->n_tok,
                               j->c->shared_gate, 1);
        return;
    }
    int64_t from = (int64_t)j->n_tok * ith / n_thread,
            to = (int64_t)j->n_tok * (ith + 1) / n_thread;
    const float *x = a->x + from * j->n_embd;
    if (!a->logits)
        j->c->gemm->floats(r->type, r->data, r->row_bytes, (int)n, r->n_in, x, j->n_embd,
                           (int)(to - from), j->c->logits + from * n, n);
    add_router_bias(j, from, to, 0, n);
    if (a->shared_gate_w)
        j->c->gemm->floats(0, a->shared_gate_w, 0, 1, j->n_embd, x, j->n_embd, (int)(to - from),
                           j->c->shared_gate + from, 1);
}

/* Sorts the pairs (token, expert) by expert; returns the number of tasks. */
static int group(const struct ffn_job *j, struct cpu_thread *t, const int32_t *ids,
                 const float *weights) {
    const struct moe_args *a = j->moe;
    int32_t n_pair = j->n_tok * a->n_used, n_expert = (int32_t)a->router->n_out, at = 0;
    int32_t *rows = t->ids + j->c->n_pair;
    float *row_weights = t->weights + j->c->n_pair;
    int n_task = 0;
    for (int32_t e = 0; e <= n_expert; e++) t->tasks[e].n_row = 0;
    for (int32_t i = 0; i < n_pair; i++)
        if (ids[i] >= 0) t->tasks[ids[i]].n_row++;
    for (int32_t e = 0; e < n_expert; e++) {
        struct ffn_task *k = &t->tasks[e];
        int32_t n = k->n_row;
        bool left_out = a->place && a->place[e] < 0;
        int64_t hidden0 = at;
        at += n; /* so that hidden rows of MOE_EARLY stay where MOE_REST expects them */
        if (left_out) k->n_row = 0;
        if (!n || left_out) continue;
        *k = no_task;
        k->gate = a->gate, k->up = a->up, k->down = a->down;
        if (a->bias.gate) k->gate_b = a->bias.gate + e * a->up->n_out;
        if (a->bias.up) k->up_b = a->bias.up + e * a->up->n_out;
        if (a->bias.down) k->down_b = a->bias.down + e * j->n_embd;
        k->expert = e;
        k->mat = a->place ? a->place[e] : e;
        k->gate_scale = k->down_scale = 1;
        k->rows = rows + hidden0, k->weights = row_weights + hidden0;
        k->hidden0 = hidden0;
        k->has_hidden = a->pass == MOE_REST && a->early[e] >= 0;
    }
    for (int32_t i = 0; i < n_pair; i++) {
        if (ids[i] < 0 || (a->place && a->place[ids[i]] < 0)) continue;
        struct ffn_task *k = &t->tasks[ids[i]];
        rows[k->hidden0 + k->n_row] = i / a->n_used;
        row_weights[k->hidden0 + k->n_row++] = weights[i];
    }
    for (int32_t e = 0; e < n_expert; e++)
        if (t->tasks[e].n_row) t->tasks[n_task++] = t->tasks[e];
    if (!a->sh_up) return n_task;
    struct ffn_task *k = &t->tasks[n_task++];
    *k = no_task;
    k->gate = a->sh_gate, k->up = a->sh_up, k->down = a->sh_down;
    k->n_row = j->n_tok;
    k->hidden0 = at;
    k->has_hidden = a->pass == MOE_REST;
    k->gate_scale = k->down_scale = 1;
    k->weights = a->shared_gate_w ? row_weights + at : NULL;
    for (int32_t i = 0; a->shared_gate_w && i < j->n_tok; i++)
        row_weights[at + i] = 1.0f / (1.0f + expf(-j->c->shared_gate[i]));
    return n_task;
}

/* ---- phase 1: hidden = act(gate x) * up x ---- */

static void up_unit(const struct ffn_job *j, const struct cpu_thread *t, const uint8_t *acts,
                    const struct ffn_task *k, enum act act, int64_t row0) {
    const struct cpu *c = j->c;
    int64_t left = k->up->n_out - row0;
    int n = left < PACK_ROWS ? (int)left : PACK_ROWS;
    for (int32_t i = 0; i < k->n_row; i += GEMM_ROWS) {
        struct cpu_product p = {
            .w = k->gate, .mat = k->mat, .row0 = row0, .x = j->x, .x_stride = j->n_embd};
        p.call.n_tile = 1;
        p.acts = acts;
        if (k->rows) {
            p.call.rows = k->rows + i;
        } else {
            p.acts += (size_t)i * gemm_act_bytes(j->n_embd);
            p.x += i * j->n_embd;
        }
        p.call.n_row = k->n_row - i < GEMM_ROWS ? k->n_row - i : GEMM_ROWS;
        bool together = k->gate && k->gate->layout == PACK_LAYOUT && k->up->layout == PACK_LAYOUT &&
                        k->gate->type == k->up->type && !k->gate->tail && !k->up->tail;
        if (together) cpu_two_tiles(c, t, &p, k->up, t->y);
        else {
            if (k->gate) cpu_tiles(c, t, &p, t->y);
            p.w = k->up;
            cpu_tiles(c, t, &p, t->y + PACK_ROWS);
        }
        struct glu g = {.act = act,
                        .n = n,
                        .gated = k->gate,
                        .scale = k->gate_scale,
                        .bias = k->gate_b ? k->gate_b + row0 : NULL,
                        .up_bias = k->up_b ? k->up_b + row0 : NULL};
        c->simd.elem->glu(&g, t->y, GEMM_Y, p.call.n_row,
                          c->hidden + (k->hidden0 + i) * j->hidden_stride + row0, j->hidden_stride);
    }
}

static int64_t n_up_tile(const struct ffn_task *k) {
    return k->has_hidden ? 0 : repack_n_tile(k->up->n_out);
}

static void up_phase(struct ffn_job *j, const struct cpu_thread *t, int n_task, const uint8_t *acts,
                     enum act act, int n_thread) {
    int64_t n = 0, at = 0, mine, last;
    for (int i = 0; i < n_task; i++) n += n_up_tile(&t->tasks[i]);
    for (int k = 0; pool_take(&j->next_up, n, n_thread, &mine, &last);)
        for (; mine < last; mine++) {
            while (mine >= at + n_up_tile(&t->tasks[k])) at += n_up_tile(&t->tasks[k++]);
            up_unit(j, t, acts, &t->tasks[k], act, (mine - at) * PACK_ROWS);
        }
}

/* ---- phase 2: out += weight * (down hidden) ---- */

static void down_unit(const struct ffn_job *j, const struct cpu_thread *t, int n_task,
                      const uint8_t *hidden_acts, int64_t row0) {
    const struct cpu *c = j->c;
    int64_t n = j->n_embd - row0 < GEMM_Y ? j->n_embd - row0 : GEMM_Y;
    for (int k = 0; k < n_task; k++) {
        const struct ffn_task *task = &t->tasks[k];
        int64_t n_ff = tensor_n_in(task->down);
        for (int32_t i = 0; i < task->n_row; i += GEMM_ROWS) {
            struct cpu_product p = {.w = task->down, .mat = task->mat, .row0 = row0};
            p.call.n_tile = 2;
            p.acts = hidden_acts + task->acts0 + (size_t)i * gemm_act_bytes(n_ff);
            p.x = c->hidden + (task->hidden0 + i) * j->hidden_stride;
            p.x_stride = j->hidden_stride;
            p.call.n_row = task->n_row - i < GEMM_ROWS ? task->n_row - i : GEMM_ROWS;
            cpu_tiles(c, t, &p, t->y);
            for (int r = 0; r < p.call.n_row; r++) {
                float w = task->weights ? task->weights[i + r] : 1.0f;
                int64_t tok = task->rows ? task->rows[i + r] : i + r;
                float *out = j->out + tok * j->n_embd + row0;
                c->simd.elem->add_scaled(out, w, t->y + r * GEMM_Y, task->down_scale,
                                         task->down_b ? task->down_b + row0 : NULL, n);
            }
        }
    }
}

static void down_phase(struct ffn_job *j, const struct cpu_thread *t, int n_task,
                       const uint8_t *hidden_acts, int n_thread) {
    int64_t n = (j->n_embd + GEMM_Y - 1) / GEMM_Y, mine, last;
    while (pool_take(&j->next_down, n, n_thread, &mine, &last))
        for (; mine < last; mine++) down_unit(j, t, n_task, hidden_acts, mine * GEMM_Y);
}

/* Quantizes the hidden rows for repacked down matrices. Each thread quantizes its share of
 * the rows, or all if own_hidden. */
static uint8_t *round_hidden(const struct ffn_job *j, const struct cpu_thread *t, int n_task,
                             int ith, int n_thread) {
    const struct cpu *c = j->c;
    uint8_t *dst = j->own_hidden ? t->acts : c->hidden_acts;
    size_t at = 0;
    for (int k = 0; k < n_task; k++) {
        struct ffn_task *task = &t->tasks[k];
        int64_t n_ff = tensor_n_in(task->down), n = task->n_row;
        task->acts0 = at;
        if (!cpu_rounds(task->down)) continue;
        int64_t from = j->own_hidden ? 0 : n * ith / n_thread;
        int64_t to = j->own_hidden ? n : n * (ith + 1) / n_thread;
        cpu_round_rows(c, c->hidden + task->hidden0 * j->hidden_stride, j->hidden_stride, n_ff,
                       from, to, dst + at);
        at += (size_t)n * gemm_act_bytes(n_ff);
    }
    if (!j->own_hidden) pool_barrier(c->pool, ith);
    return dst;
}

static void observe_inputs(const struct ffn_job *j, const struct ffn_task *tasks, int n_task) {
    for (int k = 0; k < n_task; k++)
        for (int32_t i = 0; i < tasks[k].n_row && !tasks[k].has_hidden; i++) {
            const float *x = j->x + (tasks[k].rows ? tasks[k].rows[i] : i) * j->n_embd;
            cpu_observed(j->c, tasks[k].gate, tasks[k].expert, x, j->n_embd, 1);
            cpu_observed(j->c, tasks[k].up, tasks[k].expert, x, j->n_embd, 1);
        }
}

static int make_tasks(struct ffn_job *j, struct cpu_thread *t, int ith, int n_thread) {
    struct cpu *c = j->c;
    if (!j->moe) {
        t->tasks[0] = j->plain;
        return 1;
    }
    int32_t *ids = c->ids;
    float *weights = c->weights;
    if (j->own_route) {
        ids = t->ids;
        weights = t->weights;
        route(j, 0, j->n_tok, ids, weights);
    } else {
        route(j, j->n_tok * ith / n_thread, j->n_tok * (ith + 1) / n_thread, ids, weights);
        pool_barrier(c->pool, ith);
    }
    return group(j, t, ids, weights);
}

static void ffn_part(void *arg, int ith, int n_thread) {
    struct ffn_job *j = arg;
    struct cpu *c = j->c;
    struct cpu_thread *t = &c->threads[ith];
    uint8_t *acts = j->own_x ? t->acts : c->acts;
    if (j->moe) router_logits(j, ith, n_thread);
    if (j->rounds_x)
        cpu_round_rows(c, j->x, j->n_embd, j->n_embd,
                       j->own_x ? 0 : (int64_t)j->n_tok * ith / n_thread,
                       j->own_x ? j->n_tok : (int64_t)j->n_tok * (ith + 1) / n_thread, acts);
    /* computed by several threads */
    bool shares = j->moe && (!j->moe->logits || j->moe->shared_gate_w);
    if (shares || !j->own_x) pool_barrier(c->pool, ith);
    int n_task = make_tasks(j, t, ith, n_thread);
    if (ith == 0 && c->observe) observe_inputs(j, t->tasks, n_task);
    up_phase(j, t, n_task, acts, j->moe ? j->moe->act : j->plain.act, n_thread);
    if (j->moe && j->moe->pass == MOE_EARLY) return;
    pool_barrier(c->pool, ith);
    if (ith == 0 && c->observe)
        for (int k = 0; k < n_task; k++)
            cpu_observed(c, t->tasks[k].down, t->tasks[k].expert,
                         c->hidden + t->tasks[k].hidden0 * j->hidden_stride, j->hidden_stride,
                         t->tasks[k].n_row);
    const uint8_t *hidden_acts =
        j->rounds_hidden ? round_hidden(j, t, n_task, ith, n_thread) : NULL;
    down_phase(j, t, n_task, hidden_acts, n_thread);
}

static bool multiplies(const struct cpu *c, const struct weight *w) {
    return !w || cpu_multiplies(c, w);
}
static bool packed(const struct weight *w) { return w && cpu_rounds(w); }

/* Sets the fields that depend on sizes; returns false if scratch is too small. */
static bool plan(struct ffn_job *j, int64_t n_hidden_row, int64_t n_ff) {
    struct cpu *c = j->c;
    j->own_x = j->n_tok * j->n_embd <= CPU_OWN_ACTS;
    j->own_hidden = n_hidden_row * n_ff <= CPU_OWN_ACTS;
    j->own_route = j->n_tok <= 4;
    bool fits = (size_t)j->n_tok * gemm_act_bytes(j->n_embd) <= c->n_acts &&
                (size_t)(n_hidden_row * n_ff) <= c->n_hidden && (size_t)n_hidden_row <= c->n_pair &&
                (size_t)n_hidden_row * gemm_act_bytes(n_ff) <= c->n_hidden_acts;
    if (!fits) ref_fail(&c->ref, CHIMERE_EINTERNAL, "ffn: more rows than reserve() was told of");
    return fits;
}

/* Bytes of weights that n rows read. */
static size_t work_of(const struct ffn_job *j, int64_t n, const struct weight *gate,
                      const struct weight *up, const struct weight *down) {
    size_t of_up = cpu_row_cost(up) + (gate ? cpu_row_cost(gate) : 0);
    return (size_t)n * (of_up * (size_t)repack_n_tile(up->n_out) +
                        cpu_row_cost(down) * (size_t)repack_n_tile(j->n_embd));
}

void cpu_ffn(struct dev *d, const struct ffn_args *a) {
    struct cpu *c = (struct cpu *)d;
    if (!multiplies(c, a->gate) || !cpu_multiplies(c, a->up) || !cpu_multiplies(c, a->down) ||
        a->row_gate) { /* shared experts are part of moe here */
        ref_ffn(d, a);
        return;
    }
    if (!ref_begin(&c->ref)) return;
    struct ffn_job j = {.c = c,
                        .x = a->x,
                        .out = a->out,
                        .n_embd = a->down->n_out,
                        .n_tok = a->n_tok,
                        .hidden_stride = a->up->n_out};
    j.plain = (struct ffn_task){.gate = a->gate,
                                .up = a->up,
                                .down = a->down,
                                .gate_b = a->gate_b,
                                .up_b = a->up_b,
                                .down_b = a->down_b,
                                .gate_scale = a->gate_scale,
                                .down_scale = a->down_scale,
                                .act = a->act,
                                .n_row = a->n_tok};
    j.rounds_x = packed(a->up) || packed(a->gate);
    j.rounds_hidden = packed(a->down);
    if (plan(&j, a->n_tok, a->up->n_out))
        pool_work(c->pool, ffn_part, &j, a->n_tok > STEP_MAX_TOK,
                  work_of(&j, a->n_tok, a->gate, a->up, a->down));
}

/* Without a->logits: whether the router's product can be computed here. */
static bool is_fast_router(const struct cpu *c, const struct moe_args *a) {
    return cpu_multiplies(c, a->router) && a->router->layout == 0 && !a->router->tail &&
           a->router->n_out <= 1024;
}

static bool has_room(struct cpu *c, const struct moe_args *a) {
    if (a->router->n_out <= c->ref.need.n_expert && a->n_tok <= c->ref.need.n_tok) return true;
    ref_fail(&c->ref, CHIMERE_EINTERNAL, "moe: more experts or rows than reserve() was told of");
    return false;
}

static void route_part(void *arg, int ith, int n_thread) {
    struct ffn_job *j = arg;
    router_logits(j, ith, n_thread);
    pool_barrier(j->c->pool, ith);
    route(j, j->n_tok * ith / n_thread, j->n_tok * (ith + 1) / n_thread, j->c->ids, j->c->weights);
}

const float *cpu_route(struct dev *d, const struct moe_args *a) {
    struct cpu *c = (struct cpu *)d;
    if (!a->logits && !is_fast_router(c, a)) return ref_route(d, a);
    if (!ref_begin(&c->ref) || !has_room(c, a)) return NULL;
    struct moe_args alone = *a;
    alone.shared_gate_w = NULL;
    struct ffn_job j = {.c = c,
                        .moe = &alone,
                        .logits = a->logits ? a->logits : c->logits,
                        .n_embd = tensor_n_in(a->router),
                        .n_tok = a->n_tok};
    pool_work(c->pool, route_part, &j, a->n_tok > STEP_MAX_TOK,
              (size_t)a->n_tok * (size_t)a->router->n_out * a->router->row_bytes);
    return j.logits;
}

void cpu_moe(struct dev *d, const struct moe_args *a) {
    struct cpu *c = (struct cpu *)d;
    bool fast = multiplies(c, a->gate) && cpu_multiplies(c, a->up) && cpu_multiplies(c, a->down) &&
                multiplies(c, a->sh_gate) && multiplies(c, a->sh_up) && multiplies(c, a->sh_down) &&
                (is_fast_router(c, a) || (a->logits && a->router->n_out <= 1024));
    if (!fast) {
        ref_moe(d, a);
        return;
    }
    if (!ref_begin(&c->ref)) return;
    struct ffn_job j = {.c = c,
                        .moe = a,
                        .logits = a->logits ? a->logits : c->logits,
                        .x = a->x,
                        .out = a->out,
                        .n_embd = a->down->n_out,
                        .n_tok = a->n_tok,
                        .hidden_stride = a->up->n_out};
    if (a->sh_up && a->sh_up->n_out > j.hidden_stride) j.hidden_stride = a->sh_up->n_out;
    j.rounds_x =
        packed(a->up) || packed(a->gate) || (a->sh_up && (packed(a->sh_up) || packed(a->sh_gate)));
    j.rounds_hidden = packed(a->down) || (a->sh_up && packed(a->sh_down));
    int64_t n_row = (int64_t)a->n_tok * (a->n_used + (a->sh_up ? 1 : 0));
    if (has_room(c, a) && plan(&j, n_row, j.hidden_stride))
        pool_work(c->pool, ffn_part, &j, a->n_tok > STEP_MAX_TOK,
                  work_of(&j, (int64_t)a->n_tok * a->n_used, a->gate, a->up, a->down) +
                      (a->sh_up ? work_of(&j, a->n_tok, a->sh_gate, a->sh_up, a->sh_down) : 0));
}
