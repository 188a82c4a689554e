/* linear.c: products with weight matrices: how output rows are distributed over the thread pool. */
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "format/quant.h"
#include "kernels/cpu/cpu_impl.h"

enum { UNIT = 2 * PACK_ROWS }; /* output rows per unit of work */

static bool is_float(uint32_t type) {
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16;
}

bool cpu_multiplies(const struct cpu *c, const struct weight *w) {
    return c->gemm && (w->layout == PACK_LAYOUT || (w->layout == 0 && is_float(w->type))) &&
           (!w->tail || cpu_multiplies(c, w->tail));
}

bool cpu_rounds(const struct weight *w) {
    return w->layout == PACK_LAYOUT || (w->tail && cpu_rounds(w->tail));
}

size_t cpu_prepared_bytes(struct dev *d, const struct weight *w) {
    return ((struct cpu *)d)->gemm && w->layout == 0 ? repack_bytes(w) : 0;
}

struct repack_job {
    const struct weight *w;
    uint8_t *dst;
    _Atomic bool is_finite;
};

static void repack_part(void *arg, int ith, int n_thread) {
    struct repack_job *j = arg;
    int64_t n = j->w->n_mat * repack_n_tile(j->w->n_out);
    if (!repack_tiles(j->w, n * ith / n_thread, n * (ith + 1) / n_thread, j->dst))
        j->is_finite = false;
}

int cpu_prepare(struct dev *d, const struct weight *w, void *dst, struct weight *w2) {
    struct repack_job j = {w, dst, true};
    pool_run(((struct cpu *)d)->pool, repack_part, &j);
    *w2 = *w;
    w2->data = dst;
    w2->layout = PACK_LAYOUT;
    return j.is_finite ? 0 : CHIMERE_ENUMERIC;
}

size_t cpu_row_cost(const struct weight *w) {
    size_t n = w->layout == PACK_LAYOUT ? repack_tile_bytes(repack_form_of(w->type), w->n_in)
                                        : w->row_bytes * PACK_ROWS;
    return n + (w->tail ? cpu_row_cost(w->tail) : 0);
}

void cpu_observed(const struct cpu *c, const struct weight *w, int64_t mat, const float *x,
                  int64_t x_stride, int64_t n_row) {
    if (c->observe && w) c->observe(c->observe_ud, w, (int32_t)mat, x, x_stride, (int32_t)n_row);
}

void cpu_round_rows(const struct cpu *c, const float *x, int64_t x_stride, int64_t n_in,
                    int64_t first, int64_t last, uint8_t *dst) {
    for (int64_t i = first; i < last; i++)
        c->gemm->quantise(x + i * x_stride, n_in, dst + (size_t)i * gemm_act_bytes(n_in));
}

static void float_tiles(const struct cpu *c, const struct cpu_product *p, const struct weight *w,
                        const float *x, float *y) {
    const uint8_t *rows =
        (const uint8_t *)w->data + (size_t)p->mat * w->mat_bytes + (size_t)p->row0 * w->row_bytes;
    int64_t left = w->n_out - p->row0;
    int n_w = left < p->call.n_tile * PACK_ROWS ? (int)left : p->call.n_tile * PACK_ROWS;
    if (!p->call.rows) {
        c->gemm->floats(w->type, rows, w->row_bytes, n_w, w->n_in, x, p->x_stride, p->call.n_row, y,
                        GEMM_Y);
        return;
    }
    for (int i = 0; i < p->call.n_row; i++)
        c->gemm->floats(w->type, rows, w->row_bytes, n_w, w->n_in,
                        x + p->call.rows[i] * p->x_stride, 0, 1, y + i * GEMM_Y, GEMM_Y);
}

static const uint8_t *tile_data(const struct weight *w, const struct repack_form *f, int64_t mat,
                                int64_t row0) {
    size_t tile = repack_tile_bytes(f, w->n_in);
    size_t stride = w->stride ? w->stride : (size_t)repack_n_tile(w->n_out) * tile;
    return (const uint8_t *)w->data + (size_t)mat * stride + (size_t)(row0 / PACK_ROWS) * tile;
}

static void run_call(const struct cpu *c, const struct cpu_thread *t, struct cpu_product *p,
                     const struct repack_form *f, int64_t n_in, float *y) {
    p->call.form = f;
    p->call.n_in = n_in;
    p->call.y = y;
    p->call.room = t->room;
    c->gemm->tiles(&p->call);
}

/* The product with w, a part of p->w that begins at column x0. */
static void part_tiles(const struct cpu *c, const struct cpu_thread *t, struct cpu_product *p,
                       const struct weight *w, int64_t x0, float *y) {
    if (w->layout != PACK_LAYOUT) {
        float_tiles(c, p, w, p->x + x0, y);
        return;
    }
    const struct repack_form *f = repack_form_of(w->type);
    gemm_set_acts(&p->call, p->acts, tensor_n_in(p->w), x0);
    if (p->row0 / PACK_ROWS + p->call.n_tile > repack_n_tile(w->n_out)) p->call.n_tile = 1;
    p->call.tile[0] = tile_data(w, f, p->mat, p->row0);
    if (p->call.n_tile == 2) p->call.tile[1] = p->call.tile[0] + repack_tile_bytes(f, w->n_in);
    run_call(c, t, p, f, w->n_in, y);
}

void cpu_tiles(const struct cpu *c, const struct cpu_thread *t, struct cpu_product *p, float *y) {
    const struct weight *w = p->w;
    part_tiles(c, t, p, w, 0, y);
    if (!w->tail) return;
    int64_t left = w->n_out - p->row0, n = p->call.n_tile * PACK_ROWS;
    if (n > left) n = left;
    part_tiles(c, t, p, w->tail, w->n_in, t->tail_y);
    for (int64_t i = 0; i < p->call.n_row; i++)
        for (int64_t k = 0; k < n; k++) y[i * GEMM_Y + k] += t->tail_y[i * GEMM_Y + k];
}

void cpu_two_tiles(const struct cpu *c, const struct cpu_thread *t, struct cpu_product *p,
                   const struct weight *other, float *y) {
    const struct repack_form *f = repack_form_of(p->w->type);
    p->call.n_tile = 2;
    p->call.tile[0] = tile_data(p->w, f, p->mat, p->row0);
    p->call.tile[1] = tile_data(other, f, p->mat, p->row0);
    gemm_set_acts(&p->call, p->acts, p->w->n_in, 0);
    run_call(c, t, p, f, p->w->n_in, y);
}

/* ---- linear ---- */

struct linear_job {
    struct cpu *c;
    const struct linear_out *o;
    int n_o;
    const float *x;
    int64_t x_stride, n_in;
    int32_t n_tok;
    bool rounds; /* some weights are repacked */
    size_t cost; /* weight bytes read by all units */
    int64_t n_unit;
    int64_t next;
};

static int64_t n_unit(const struct weight *w) { return (w->n_out + UNIT - 1) / UNIT; }

static void finish_rows(const struct linear_out *o, int64_t row0, int32_t tok0, int n_row,
                        const float *y) {
    int64_t n = o->w->n_out - row0 < UNIT ? o->w->n_out - row0 : UNIT;
    for (int i = 0; i < n_row; i++, y += GEMM_Y) {
        float *dst = o->dst + (tok0 + i) * o->dst_stride + row0;
        if (o->scale == 1 && !o->bias && !o->add) {
            memcpy(dst, y, (size_t)n * sizeof *dst);
            continue;
        }
        for (int64_t j = 0; j < n; j++) {
            float v = y[j] * o->scale + (o->bias ? o->bias[row0 + j] : 0.0f);
            dst[j] = o->add ? dst[j] + v : v;
        }
    }
}

static void linear_unit(const struct linear_job *j, const struct cpu_thread *t, const uint8_t *acts,
                        const struct linear_out *o, int64_t row0) {
    for (int32_t tok = 0; tok < j->n_tok; tok += GEMM_ROWS) {
        struct cpu_product p = {.w = o->w, .row0 = row0, .x_stride = j->x_stride};
        p.x = j->x + tok * j->x_stride;
        p.call.n_tile = 2;
        p.acts = acts + (size_t)tok * gemm_act_bytes(j->n_in);
        p.call.n_row = j->n_tok - tok < GEMM_ROWS ? j->n_tok - tok : GEMM_ROWS;
        cpu_tiles(j->c, t, &p, t->y);
        finish_rows(o, row0, tok, p.call.n_row, t->y);
    }
}

static void linear_part(void *arg, int ith, int n_thread) {
    struct linear_job *j = arg;
    struct cpu *c = j->c;
    const struct cpu_thread *t = &c->threads[ith];
    uint8_t *acts = c->acts;
    if (j->rounds && j->n_tok * j->n_in <= CPU_OWN_ACTS) {
        acts = t->acts;
        cpu_round_rows(c, j->x, j->x_stride, j->n_in, 0, j->n_tok, acts);
    } else if (j->rounds) {
        cpu_round_rows(c, j->x, j->x_stride, j->n_in, (int64_t)j->n_tok * ith / n_thread,
                       (int64_t)j->n_tok * (ith + 1) / n_thread, acts);
        pool_barrier(c->pool, ith);
    }
    int64_t at = 0, k = 0, mine, last;
    while (pool_take(&j->next, j->n_unit, n_thread, &mine, &last))
        for (; mine < last; mine++) {
            while (mine >= at + n_unit(j->o[k].w)) at += n_unit(j->o[k++].w);
            linear_unit(j, t, acts, &j->o[k], (mine - at) * UNIT);
        }
}

void cpu_linear(struct dev *d, const struct linear_out *o, int32_t n_o, const float *x,
                int64_t x_stride, int32_t n_tok) {
    struct cpu *c = (struct cpu *)d;
    struct linear_job j = {.c = c,
                           .o = o,
                           .n_o = n_o,
                           .x = x,
                           .x_stride = x_stride,
                           .n_in = tensor_n_in(o[0].w),
                           .n_tok = n_tok};
    if (!ref_begin(&c->ref)) return;
    for (int i = 0; i < n_o; i++) {
        cpu_observed(c, o[i].w, 0, x, x_stride, n_tok);
        if (!cpu_multiplies(c, o[i].w)) {
            ref_linear(d, o, n_o, x, x_stride, n_tok);
            return;
        }
        j.rounds |= cpu_rounds(o[i].w);
        j.n_unit += n_unit(o[i].w);
        j.cost += (size_t)n_unit(o[i].w) * 2 * cpu_row_cost(o[i].w);
    }
    if (j.rounds && (size_t)n_tok * gemm_act_bytes(j.n_in) > c->n_acts) {
        ref_fail(&c->ref, CHIMERE_EINTERNAL, "linear: more rows than reserve() was told of");
        return;
    }
    pool_work(c->pool, linear_part, &j, n_tok > STEP_MAX_TOK, j.cost * (size_t)n_tok);
}
