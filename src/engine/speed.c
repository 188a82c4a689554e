#include "engine/speed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "format/gguf.h"
#include "format/quant.h"
#include "model/forward.h"
#include "model/seq_pool.h"

/* ---- cost of a model ---- */

static bool is_product(const struct gguf_tensor *t) {
    return t->n_dims >= 2 && t->ne[0] >= 32 && t->ne[1] > 1 && t->type < SPEED_MAX_TYPES &&
           !strstr(t->name, "conv1d") && !strstr(t->name, "ssm_a") && !strstr(t->name, "ssm_d") &&
           !strstr(t->name, "_norm");
}

static void count_tensor(struct speed_cost *c, const struct hparams *hp,
                         const struct gguf_tensor *t, bool is_tied) {
    int il = -1;
    bool in_layer = sscanf(t->name, "blk.%d.", &il) == 1;
    /* prediction blocks do not run in a plain step */
    if (in_layer && (il < 0 || il >= hp->n_layer)) return;
    bool is_head = strcmp(t->name, "output.weight") == 0 ||
                   (is_tied && strcmp(t->name, "token_embd.weight") == 0);
    if (!(in_layer || is_head) || !is_product(t)) return;
    bool routed = strstr(t->name, "_exps.") && hp->moe.n_expert > 0;
    uint64_t n = t->n_elements, bytes = t->n_bytes;
    if (routed) {
        n = n / (uint64_t)hp->moe.n_expert * (uint64_t)hp->moe.n_used;
        bytes = bytes / (uint64_t)hp->moe.n_expert * (uint64_t)hp->moe.n_used;
        c->n_routed[t->type] += n;
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

enum { N_IN = 2048, N_MANY = 128, N_FEW = 8, N_SMALL_OUT = 512 };
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

struct speed_probe {
    struct dev *dev;                   /* borrowed */
    double ns[SPEED_MAX_TYPES][N_WAY]; /* time per multiply-add; 0: not measured yet */
    double op_ns;                      /* fixed cost of a product, however small */
    double bandwidth;
    uint64_t cache_bytes;
    float *x, *y; /* owned device memory */
};

/* Shortest time of a product in ns: the speed of an otherwise idle machine. A device gets many at once, as it does in a
 * step: the time of one alone would be that of sending it and of waiting for it. */
static double time_product(struct speed_probe *p, const struct weight *w, int32_t n_tok) {
    double best = 0;
    int n = p->dev->ops->is_host ? 1 : N_LIST;
    struct linear_out o = {.w = w, .dst = p->y, .dst_stride = w->n_out, .scale = 1};
    int64_t begin = clock_ns();
    for (int k = -1; k < N_TIMES || (k < MOST_TIMES && clock_ns() - begin < PROBE_NS); k++) {
        int64_t start = clock_ns();
        for (int i = 0; i < n; i++) p->dev->ops->linear(p->dev, &o, 1, p->x, N_IN, n_tok);
        p->dev->ops->status(p->dev, NULL);
        double ns = (double)(clock_ns() - start) / n;
        if (k == 0 || (k > 0 && ns < best)) best = ns;
    }
    return best;
}

/* Makes a matrix of n_out identical rows in the device's form; free *owned with ops->free. */
static int make_matrix(struct speed_probe *p, uint32_t type, int64_t n_out, struct weight *out,
                       void **owned, struct err *e) {
    const struct quant_traits *t = quant_traits(type);
    struct dev *d = p->dev;
    uint64_t row = 0;
    float values[N_IN];
    *owned = NULL;
    if (!t || !t->encode || t->needs_weights || !quant_row_bytes(type, N_IN, &row))
        return err_set(e, CHIMERE_EUNSUPPORTED, "type %u cannot be timed", (unsigned)type);
    unsigned char *rows = mem_alloc_array((size_t)n_out, row);
    if (!rows) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int i = 0; i < N_IN; i++) values[i] = (float)(i * 37 % 101 - 50) * 0.001f;
    if (!t->encode(values, rows, N_IN, NULL)) {
        mem_free(rows);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    for (int64_t i = 1; i < n_out; i++) memcpy(rows + (size_t)i * row, rows, row);
    struct weight w = {.data = rows,
                       .type = type,
                       .n_in = N_IN,
                       .n_out = n_out,
                       .n_mat = 1,
                       .row_bytes = row,
                       .mat_bytes = row * (size_t)n_out};
    size_t n = d->ops->prepared_bytes ? d->ops->prepared_bytes(d, &w) : 0;
    *owned = d->ops->alloc(d, n ? n : w.mat_bytes);
    int rc = *owned ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    *out = w;
    if (!rc && n) rc = d->ops->prepare(d, &w, *owned, out);
    else if (!rc) {
        d->ops->upload(d, *owned, rows, w.mat_bytes);
        out->data = *owned;
    }
    if (!rc) rc = d->ops->status(d, e);
    mem_free(rows);
    return rc;
}

/* Called before each product: a model that ran in the meantime may have reserved less memory. */
static int reserve(struct speed_probe *p, struct err *e) {
    const struct dev_need need = {.n_tok = N_MANY, .n_in = N_IN, .n_out = MOST_ROWS, .n_ff = N_IN};
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
    int64_t n_out = how->from_memory ? (int64_t)(MEMORY_BYTES / row) : N_SMALL_OUT;
    int rc = reserve(p, e);
    if (!rc) rc = make_matrix(p, type, n_out, &w, &owned, e);
    if (!rc)
        p->ns[type][way] =
            time_product(p, &w, how->n_tok) / ((double)how->n_tok * (double)n_out * N_IN);
    if (owned) p->dev->ops->free(p->dev, owned);
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
    if (!rc) rc = make_matrix(p, QUANT_Q8_0, 8, &w, &owned, e);
    if (!rc) p->op_ns = time_product(p, &w, 1);
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
    mem_free(p);
}

int speed_predict(struct speed *out, struct speed_probe *p, const struct speed_cost *c,
                  struct err *e) {
    double decode = (double)c->n_op * p->op_ns, prefill = decode / (double)SPEED_PROMPT;
    int one = c->weight_bytes <= p->cache_bytes / 2 ? WAY_CACHED : WAY_MEMORY;
    double rows = c->n_expert ? (double)SPEED_PROMPT * c->n_used / c->n_expert : 0;
    int routed = 2 * rows >= N_MANY ? WAY_MANY : WAY_FEW;
    for (uint32_t t = 0; t < SPEED_MAX_TYPES; t++) {
        if (!c->n_mul[t]) continue;
        int rc = time_way(p, t, one, e);
        if (!rc) rc = time_way(p, t, WAY_MANY, e);
        if (!rc && c->n_routed[t]) rc = time_way(p, t, routed, e);
        if (rc) return rc;
        decode += (double)c->n_mul[t] * p->ns[t][one];
        prefill += (double)(c->n_mul[t] - c->n_routed[t]) * p->ns[t][WAY_MANY];
        if (c->n_routed[t]) prefill += (double)c->n_routed[t] * p->ns[t][routed];
    }
    if (p->bandwidth > 0) decode += 2e9 * (double)c->state_bytes / p->bandwidth;
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
