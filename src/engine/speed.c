#include "engine/speed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "format/gguf.h"
#include "format/quant.h"
#include "model/forward.h"
#include "model/seq/seq_pool.h"

/* ---- cost of a model ---- */

static bool is_product(const struct gguf_tensor *t) {
    return t->n_dims >= 2 && t->ne[0] >= 32 && t->ne[1] > 1 && t->type < SPEED_MAX_TYPES &&
           !strstr(t->name, "conv1d") && !strstr(t->name, "ssm_a") && !strstr(t->name, "ssm_d") &&
           !strstr(t->name, "_norm");
}

/* Ops that a device runs in a layer that has a tensor. */
static const struct {
    const char *tensor;
    int n_op;
} steps[] = {
    {".attn_norm.weight", 1},   /* the products of the layer's input */
    {".attn_output.weight", 3}, /* keys and positions, attention, product */
    {".ssm_conv1d.weight", 3},  /* convolution, scan, product */
    {".ffn_down.weight", 2},    /* gate and up, down */
};

static void count_tensor(struct speed_cost *c, const struct hparams *hp,
                         const struct gguf_tensor *t, bool is_tied) {
    int il = -1;
    bool in_layer = sscanf(t->name, "blk.%d.", &il) == 1;
    /* prediction blocks do not run in a plain step */
    if (in_layer && (il < 0 || il >= hp->n_layer)) return;
    bool is_head = strcmp(t->name, "output.weight") == 0 ||
                   (is_tied && strcmp(t->name, "token_embd.weight") == 0);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (strstr(t->name, steps[i].tensor)) c->n_step_op += steps[i].n_op;
    if (!(in_layer || is_head) || !is_product(t)) return;
    bool routed = strstr(t->name, "_exps.") && hp->moe.n_expert > 0;
    uint64_t n = t->n_elements, bytes = t->n_bytes;
    if (routed) {
        n = n / (uint64_t)hp->moe.n_expert * (uint64_t)hp->moe.n_used;
        bytes = bytes / (uint64_t)hp->moe.n_expert * (uint64_t)hp->moe.n_used;
        c->n_routed[t->type] += n;
        c->n_moe += strstr(t->name, "_down_exps.") != NULL;
    }
    c->n_mul[t->type] += n;
    c->weight_bytes += bytes;
    c->n_op++;
}

int speed_cost_read(struct speed_cost *out, const char *path, struct err *e) {
    struct gguf *g;
    *out = (struct speed_cost){.n_op = 0};
    int rc = gguf_open(&g, path, e);
    if (rc) return rc;
    struct hparams *hp = mem_zalloc(sizeof *hp);
    rc = hp ? hparams_read(hp, g, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    bool is_tied = !gguf_find_tensor(g, "output.weight");
    for (size_t i = 0; !rc && i < gguf_n_tensors(g); i++)
        count_tensor(out, hp, gguf_tensor_at(g, i), is_tied);
    if (!rc) {
        out->state_bytes = model_state_bytes(hp);
        out->n_expert = hp->moe.n_expert;
        out->n_used = hp->moe.n_used;
    }
    mem_free(hp);
    gguf_close(g);
    return rc;
}

/* ---- speed of the device ---- */

enum { N_IN = 2048, N_MANY = 128, N_FEW = 8, N_SMALL_OUT = 512, N_DEVICE_OUT = 8192 };
enum {
    N_FF = 512,
    N_FF_SMALL = 64,
    N_EXPERT = 64,
    N_USED = 8
}; /* of the experts that a device is timed with */
enum {
    MEMORY_BYTES = 128 << 20,
    N_TIMES = 5,
    MOST_TIMES = 400,
    N_DECODE = 16,
    N_LIST = 64, /* products that a device is given at once */
    PROBE_NS = 30000000
};
enum {
    MOST_ROWS = MEMORY_BYTES / (N_IN / 8)
}; /* rows of a matrix of MEMORY_BYTES: every type has at least one bit per weight */

static const struct way { /* conditions under which a product is timed */
    int32_t n_tok;
    bool from_memory; /* the matrix is larger than the caches */
} ways[] = {
    {1, false},
    {1, true},
    {N_FEW, true},
    {N_MANY, false},
};
enum { WAY_CACHED, WAY_MEMORY, WAY_FEW, WAY_MANY, N_WAY };
/* Tokens that a layer's experts are timed with: one, and so many that each expert gets 8 or 16. */
enum { MOE_ONE, MOE_FEW, MOE_MANY, N_MOE };
static const int32_t moe_tokens[N_MOE] = {1, N_EXPERT, N_MANY};

struct speed_probe {
    struct dev *dev;                       /* borrowed */
    double ns[SPEED_MAX_TYPES][N_WAY];     /* time per multiply-add; 0: not measured yet */
    double moe_ns[SPEED_MAX_TYPES][N_MOE]; /* the same in a layer's experts; 0: not measured yet */
    /* fixed cost of a product, however small, for one token and for N_MANY, and of a layer's experts */
    double op_ns, many_op_ns, moe_op_ns[N_MOE];
    double bandwidth;
    uint64_t cache_bytes;
    float *x, *y, *logits; /* owned device memory */
};

/* Shortest time of an op in ns, a product or (a != NULL) a layer's experts: the speed of an otherwise idle machine. A
 * device gets many at once, as it does in a step: the time of one alone would be that of sending it and of waiting. */
static double time_op(struct speed_probe *p, const struct linear_out *o, const struct moe_args *a,
                      int32_t n_tok) {
    double best = 0;
    int n = p->dev->ops->is_host ? 1 : N_LIST;
    int64_t begin = clock_ns();
    for (int k = -1; k < N_TIMES || (k < MOST_TIMES && clock_ns() - begin < PROBE_NS); k++) {
        int64_t start = clock_ns();
        for (int i = 0; i < n; i++) {
            if (a) p->dev->ops->moe(p->dev, a);
            else p->dev->ops->linear(p->dev, o, 1, p->x, N_IN, n_tok);
        }
        p->dev->ops->status(p->dev, NULL);
        double ns = (double)(clock_ns() - start) / n;
        if (k == 0 || (k > 0 && ns < best)) best = ns;
    }
    return best;
}

static double time_product(struct speed_probe *p, const struct weight *w, int32_t n_tok) {
    const struct linear_out o = {.w = w, .dst = p->y, .dst_stride = w->n_out, .scale = 1};
    return time_op(p, &o, NULL, n_tok);
}

/* Makes n_mat matrices of n_out rows of n_in, all rows identical, in the device's form; free *owned with ops->free. */
static int make_matrix(struct speed_probe *p, uint32_t type, int64_t n_in, int64_t n_out,
                       int64_t n_mat, struct weight *out, void **owned, struct err *e) {
    const struct quant_traits *t = quant_traits(type);
    struct dev *d = p->dev;
    uint64_t row = 0;
    float values[N_IN];
    *owned = NULL;
    if (!t || !t->encode || t->needs_weights || !quant_row_bytes(type, (uint64_t)n_in, &row))
        return err_set(e, CHIMERE_EUNSUPPORTED, "type %u cannot be timed", (unsigned)type);
    unsigned char *rows = mem_alloc_array((size_t)(n_mat * n_out), row);
    if (!rows) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int i = 0; i < N_IN; i++) values[i] = (float)(i * 37 % 101 - 50) * 0.001f;
    if (!t->encode(values, rows, n_in, NULL)) {
        mem_free(rows);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    for (int64_t i = 1; i < n_mat * n_out; i++) memcpy(rows + (size_t)i * row, rows, row);
    struct weight w = {.data = rows,
                       .type = type,
                       .n_in = n_in,
                       .n_out = n_out,
                       .n_mat = n_mat,
                       .row_bytes = row,
                       .mat_bytes = row * (size_t)n_out};
    size_t all = w.mat_bytes * (size_t)n_mat;
    size_t n = d->ops->prepared_bytes ? d->ops->prepared_bytes(d, &w) : 0;
    *owned = d->ops->alloc(d, n ? n : all);
    int rc = *owned ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    *out = w;
    if (!rc && n) rc = d->ops->prepare(d, &w, *owned, out);
    else if (!rc) {
        d->ops->upload(d, *owned, rows, all);
        out->data = *owned;
    }
    if (!rc) rc = d->ops->status(d, e);
    mem_free(rows);
    return rc;
}

/* Called before each product: a model that ran in the meantime may have reserved less memory. */
static int reserve(struct speed_probe *p, struct err *e) {
    const struct dev_need need = {.n_tok = N_MANY,
                                  .n_in = N_IN,
                                  .n_out = MOST_ROWS,
                                  .n_ff = N_IN,
                                  .n_expert = N_EXPERT,
                                  .n_used = N_USED};
    return p->dev->ops->reserve(p->dev, &need, e);
}

static int time_way(struct speed_probe *p, uint32_t type, int way, struct err *e) {
    const struct way *how = &ways[way];
    const struct quant_traits *t = quant_traits(type);
    uint64_t row = 0;
    struct weight w;
    void *owned = NULL;
    if (p->ns[type][way] > 0) return 0;
    if (!t || !quant_row_bytes(type, N_IN, &row)) row = N_IN;
    int64_t n_small = p->dev->ops->is_host ? N_SMALL_OUT : N_DEVICE_OUT;
    int64_t n_out = how->from_memory ? (int64_t)(MEMORY_BYTES / row) : n_small;
    int rc = reserve(p, e);
    if (!rc) rc = make_matrix(p, type, N_IN, n_out, 1, &w, &owned, e);
    if (!rc)
        p->ns[type][way] =
            time_product(p, &w, how->n_tok) / ((double)how->n_tok * (double)n_out * N_IN);
    if (owned) p->dev->ops->free(p->dev, owned);
    return rc;
}

/* *ns: time of the op of a layer of routed experts of one type, N_USED of N_EXPERT, of n_ff columns. */
static int time_experts(struct speed_probe *p, uint32_t type, int32_t n_ff, int32_t n_tok,
                        double *ns, struct err *e) {
    enum { GATE, UP, DOWN, N_PART };
    struct weight w[N_PART];
    void *owned[N_PART] = {NULL};
    int rc = reserve(p, e);
    for (int i = 0; !rc && i < N_PART; i++)
        rc = make_matrix(p, type, i == DOWN ? n_ff : N_IN, i == DOWN ? N_IN : n_ff, N_EXPERT, &w[i],
                         &owned[i], e);
    if (!rc) {
        const struct weight router = {.n_in = N_IN, .n_out = N_EXPERT, .n_mat = 1};
        const struct moe_args a = {.n_tok = n_tok,
                                   .n_used = N_USED,
                                   .normalise = true,
                                   .scale = 1,
                                   .x = p->x,
                                   .router = &router,
                                   .logits = p->logits,
                                   .gate = &w[GATE],
                                   .up = &w[UP],
                                   .down = &w[DOWN],
                                   .out = p->y};
        *ns = time_op(p, NULL, &a, n_tok);
        rc = p->dev->ops->status(p->dev, e);
    }
    for (int i = 0; i < N_PART; i++)
        if (owned[i]) p->dev->ops->free(p->dev, owned[i]);
    return rc;
}

/* The fixed cost of a layer's experts is that of experts that hardly compute. */
static int time_moe(struct speed_probe *p, uint32_t type, int way, struct err *e) {
    int32_t n_tok = moe_tokens[way];
    double ns = 0, n_mul = (double)n_tok * N_USED * 3 * N_FF * N_IN;
    int rc = 0;
    if (p->moe_op_ns[way] <= 0)
        rc = time_experts(p, QUANT_Q8_0, N_FF_SMALL, n_tok, &p->moe_op_ns[way], e);
    if (rc || p->moe_ns[type][way] > 0) return rc;
    rc = time_experts(p, type, N_FF, n_tok, &ns, e);
    p->moe_ns[type][way] = ns > p->moe_op_ns[way] ? (ns - p->moe_op_ns[way]) / n_mul : 1e-9;
    return rc;
}

/* Logits of a router that chooses differently for each token. */
static int make_logits(struct speed_probe *p, struct err *e) {
    enum { N = N_MANY * N_EXPERT };
    float *v = mem_alloc_array(N, sizeof *v);
    p->logits = p->dev->ops->alloc(p->dev, N * sizeof *v);
    if (v && p->logits) {
        for (uint32_t i = 0; i < N; i++) v[i] = (float)((i * 2654435761u >> 8) % 8192) * 0.001f;
        p->dev->ops->upload(p->dev, p->logits, v, N * sizeof *v);
    }
    int rc = v && p->logits ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(v);
    return rc;
}

/* Size of the third-level cache, with an upper limit: virtual machines report the cache of the whole socket, which they
 * share with others. */
static uint64_t cache_bytes(void) {
    enum { USUAL = 32 << 20 };
    int64_t n = os_l3_bytes();
    return n > 0 && n < USUAL ? (uint64_t)n : USUAL;
}

int speed_probe_new(struct speed_probe **out, struct dev *dev, struct err *e) {
    struct speed_probe *p = mem_zalloc(sizeof *p);
    *out = p;
    if (!p) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    p->dev = dev;
    p->cache_bytes = dev->ops->is_host ? cache_bytes() : 0;
    p->x = dev->ops->alloc(dev, (size_t)N_MANY * N_IN * sizeof *p->x);
    p->y = dev->ops->alloc(dev, (size_t)N_FEW * MOST_ROWS * sizeof *p->y);
    int rc = p->x && p->y ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = reserve(p, e);
    struct weight w;
    void *owned = NULL;
    if (!rc) rc = make_logits(p, e);
    if (!rc) rc = make_matrix(p, QUANT_Q8_0, N_IN, 8, 1, &w, &owned, e);
    if (!rc) {
        p->op_ns = time_product(p, &w, 1);
        p->many_op_ns = dev->ops->is_host ? p->op_ns : time_product(p, &w, N_MANY);
    }
    if (owned) dev->ops->free(dev, owned);
    if (!rc && dev->ops->read_bandwidth) p->bandwidth = dev->ops->read_bandwidth(dev);
    if (rc) {
        speed_probe_free(p);
        *out = NULL;
    }
    return rc;
}

void speed_probe_free(struct speed_probe *p) {
    if (!p) return;
    if (p->x) p->dev->ops->free(p->dev, p->x);
    if (p->y) p->dev->ops->free(p->dev, p->y);
    if (p->logits) p->dev->ops->free(p->dev, p->logits);
    mem_free(p);
}

/* Adds the time of the routed experts of one type to that of a token. */
static int add_routed(double *decode, double *prefill, struct speed_probe *p,
                      const struct speed_cost *c, uint32_t type, int one, struct err *e) {
    double n = (double)c->n_routed[type];
    double rows = c->n_expert ? (double)SPEED_PROMPT * c->n_used / c->n_expert : 0;
    if (p->dev->ops->is_host) {
        int many = 2 * rows >= N_MANY ? WAY_MANY : WAY_FEW;
        int rc = time_way(p, type, many, e);
        if (rc) return rc;
        *decode += n * p->ns[type][one];
        *prefill += n * p->ns[type][many];
        return 0;
    }
    int many = rows >= 12 ? MOE_MANY : MOE_FEW;
    int rc = time_moe(p, type, MOE_ONE, e);
    if (!rc) rc = time_moe(p, type, many, e);
    *decode += n * p->moe_ns[type][MOE_ONE];
    *prefill += n * p->moe_ns[type][many];
    return rc;
}

/* The fixed costs, for a token in a step of its own and for one of a prompt. */
static void add_ops(double *decode, double *prefill, const struct speed_probe *p,
                    const struct speed_cost *c) {
    if (p->dev->ops->is_host) {
        *decode += (double)c->n_op * p->op_ns;
        *prefill += (double)c->n_op * p->op_ns / SPEED_PROMPT;
        return;
    }
    *decode += c->n_step_op * p->op_ns + c->n_moe * p->moe_op_ns[MOE_ONE];
    *prefill +=
        (c->n_step_op * p->many_op_ns + c->n_moe * (p->moe_op_ns[MOE_FEW] > p->moe_op_ns[MOE_MANY]
                                                        ? p->moe_op_ns[MOE_FEW]
                                                        : p->moe_op_ns[MOE_MANY])) /
        SPEED_PROMPT;
}

int speed_predict(struct speed *out, struct speed_probe *p, const struct speed_cost *c,
                  struct err *e) {
    double decode = 0, prefill = 0;
    int one = c->weight_bytes <= p->cache_bytes / 2 ? WAY_CACHED : WAY_MEMORY;
    for (uint32_t t = 0; t < SPEED_MAX_TYPES; t++) {
        double n = (double)(c->n_mul[t] - c->n_routed[t]);
        if (!c->n_mul[t]) continue;
        int rc = time_way(p, t, one, e);
        if (!rc) rc = time_way(p, t, WAY_MANY, e);
        if (!rc && c->n_routed[t]) rc = add_routed(&decode, &prefill, p, c, t, one, e);
        if (rc) return rc;
        decode += n * p->ns[t][one];
        prefill += n * p->ns[t][WAY_MANY];
    }
    if (p->bandwidth > 0) decode += 2e9 * (double)c->state_bytes / p->bandwidth;
    log_debug(
        "speed: %d ops of %.2f us (%.2f us in a prompt), %d experts' of %.2f us; in us per token: "
        "bytes and products %.1f and %.2f",
        c->n_step_op, p->op_ns / 1e3, p->many_op_ns / 1e3, c->n_moe, p->moe_op_ns[MOE_ONE] / 1e3,
        decode / 1e3, prefill / 1e3);
    add_ops(&decode, &prefill, p, c);
    *out = (struct speed){.decode_tok_s = decode > 0 ? 1e9 / decode : 0,
                          .prefill_tok_s = prefill > 0 ? 1e9 / prefill : 0,
                          .bandwidth = p->bandwidth};
    return 0;
}

double speed_bandwidth(const struct speed_probe *p) { return p->bandwidth; }

/* ---- measured speed of a model ---- */

struct trial {
    struct model *m;
    struct seq_pool *pool;
    struct forward *f;
    struct seq *seq;
};

static int run_tokens(struct trial *t, int32_t first, int32_t n, int32_t n_at_once, struct err *e) {
    int32_t tokens[SPEED_PROMPT];
    for (int32_t i = 0; i < n; i += n_at_once) {
        for (int32_t k = 0; k < n_at_once; k++)
            tokens[k] =
                (int32_t)((uint32_t)(first + i + k) * 2654435761u % (uint32_t)t->m->hp.n_vocab);
        const struct batch_item item = {
            .seq = t->seq, .tokens = tokens, .n_tok = n_at_once, .want = WANT_LAST};
        const float *logits;
        int rc = forward_run(t->f, &item, 1, &logits, e);
        if (rc) return rc;
    }
    return 0;
}

static double shorter(double a, double b) { return a > 0 && a < b ? a : b; }

static int run_trial(struct speed *out, struct trial *t, struct err *e) {
    double decode = 0, prefill = 0;
    for (int k = 0; k <= N_TIMES; k++) {
        seq_reset(t->seq);
        int64_t a = clock_ns();
        int rc = run_tokens(t, 0, SPEED_PROMPT, SPEED_PROMPT, e);
        int64_t b = clock_ns();
        seq_reset(t->seq);
        int64_t c = clock_ns();
        if (!rc) rc = run_tokens(t, 1, N_DECODE, 1, e);
        if (rc) return rc;
        if (!k) continue; /* the first run only warms up the caches */
        prefill = shorter(prefill, (double)(b - a));
        decode = shorter(decode, (double)(clock_ns() - c));
    }
    out->decode_tok_s = 1e9 * N_DECODE / decode;
    out->prefill_tok_s = 1e9 * SPEED_PROMPT / prefill;
    return 0;
}

int speed_measure(struct speed *out, struct dev *dev, const char *path, struct err *e) {
    struct trial t = {.m = NULL};
    *out = (struct speed){.bandwidth = 0};
    int rc = model_open(&t.m, path, dev, true, e);
    if (rc) return rc;
    const struct seq_pool_params p = {
        .n_slot = 1, .n_ctx = 2 * SPEED_PROMPT, .k_type = QUANT_F16, .v_type = QUANT_F16};
    rc = seq_pool_new(&t.pool, t.m, &p, e);
    if (!rc) rc = forward_new(&t.f, t.m, t.pool, SPEED_PROMPT, 1, e);
    if (!rc) rc = seq_new(&t.seq, t.pool, e);
    if (!rc) rc = run_trial(out, &t, e);
    seq_free(t.seq);
    forward_free(t.f);
    seq_pool_free(t.pool);
    model_close(t.m);
    return rc;
}
