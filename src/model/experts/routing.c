/* routing.c: streams of routed experts: the generator, and files of recorded ones. */
#include "model/experts/routing.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"

struct routing {
    struct routing_shape shape;
    int64_t n_tok;
    uint16_t *ids; /* owned [n_tok, n_mixture, n_used] */
};

enum { HEADER_BYTES = 24, MAX_FILE = 1 << 30, MAX_TOK = 1 << 24 };
static const char magic[8] = "CHIMROUT";

struct routing_shape routing_shape_of(const struct hparams *hp) {
    struct routing_shape s = {.n_expert = hp->moe.n_expert, .n_used = hp->moe.n_used};
    for (int32_t il = 0; il < hp->n_layer; il++) s.n_mixture += (hp->layer[il].ffn & FFN_MOE) != 0;
    return s;
}

const struct routing_shape *routing_shape(const struct routing *r) { return &r->shape; }
int64_t routing_n_tok(const struct routing *r) { return r->n_tok; }

static uint16_t *ids_at(const struct routing *r, int32_t mixture, int64_t t) {
    return r->ids + (t * r->shape.n_mixture + mixture) * r->shape.n_used;
}

const uint16_t *routing_at(const struct routing *r, int32_t mixture, int64_t t) {
    return ids_at(r, mixture, t % r->n_tok);
}

void routing_free(struct routing *r) {
    if (!r) return;
    mem_free(r->ids);
    mem_free(r);
}

static bool is_shape(const struct routing_shape *s) {
    return s->n_mixture > 0 && s->n_mixture <= ARCH_MAX_LAYERS && s->n_expert > 0 &&
           s->n_expert <= ARCH_MAX_EXPERTS && s->n_used > 0 && s->n_used <= ROUTING_MAX_USED &&
           s->n_used <= s->n_expert;
}

static int new_routing(struct routing **out, const struct routing_shape *s, int64_t n_tok,
                       struct err *e) {
    struct routing *r = *out = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "routing: out of memory");
    r->shape = *s;
    r->n_tok = n_tok;
    size_t per_tok = (size_t)s->n_mixture * (size_t)s->n_used * sizeof *r->ids;
    r->ids = mem_alloc_array((size_t)n_tok, per_tok);
    if (r->ids) return 0;
    routing_free(r);
    *out = NULL;
    return err_set(e, CHIMERE_ENOMEM, "routing: out of memory");
}

/* ---- the generator ---- */

enum { RECENT = 16, DRIFT_EVERY = 200, DRIFT_PARTS = 8 };

struct generator {
    struct rng rng;
    int32_t n_expert;
    double *sum;    /* owned [n_expert]: cumulative Zipf weights, by rank */
    uint16_t *rank; /* owned [n_expert]: the expert of each rank */
    int64_t *last;  /* owned [n_expert]: token of the last use, -1: never used */
};

static void swap_ranks(struct generator *g) {
    uint64_t n = (uint64_t)g->n_expert;
    uint64_t i = rng_below(&g->rng, n), j = rng_below(&g->rng, n);
    uint16_t was = g->rank[i];
    g->rank[i] = g->rank[j];
    g->rank[j] = was;
}

static int32_t draw_zipf(struct generator *g) {
    double at = rng_uniform(&g->rng) * g->sum[g->n_expert - 1];
    int32_t low = 0, high = g->n_expert - 1;
    while (low < high) {
        int32_t mid = (low + high) / 2;
        if (g->sum[mid] > at) high = mid;
        else low = mid + 1;
    }
    return g->rank[low];
}

/* An expert that is not in `row` and was last used between `least` and `most` tokens before t; -1: none. */
static int32_t draw_recent(struct generator *g, int64_t t, int32_t least, int32_t most) {
    int32_t found = -1, n = 0;
    for (int32_t x = 0; x < g->n_expert; x++) {
        if (g->last[x] < 0 || t - g->last[x] < least || t - g->last[x] > most) continue;
        if (rng_below(&g->rng, (uint64_t)++n) == 0) found = x;
    }
    return found;
}

/* Draws one more expert for token t, which the token does not use yet. */
static int32_t draw(struct generator *g, int64_t t) {
    double u = rng_uniform(&g->rng);
    int32_t x = u < 0.45   ? draw_recent(g, t, 1, 1)
                : u < 0.65 ? draw_recent(g, t, 2, 4)
                : u < 0.80 ? draw_recent(g, t, 5, RECENT)
                           : -1;
    for (int32_t i = 0; x < 0 && i < 64; i++) {
        x = draw_zipf(g);
        if (g->last[x] == t) x = -1;
    }
    for (int32_t i = 0; x < 0 && i < g->n_expert; i++)
        if (g->last[i] != t) x = i;
    return x;
}

static void generate_layer(struct generator *g, struct routing *r, int32_t mixture) {
    for (int32_t i = 0; i < g->n_expert; i++) {
        g->rank[i] = (uint16_t)i;
        g->last[i] = -1;
    }
    for (int32_t i = 0; i < 4 * g->n_expert; i++) swap_ranks(g);
    for (int64_t t = 0; t < r->n_tok; t++) {
        uint16_t *row = ids_at(r, mixture, t);
        if (t % DRIFT_EVERY == 0)
            for (int32_t i = 0; i < g->n_expert / DRIFT_PARTS; i++) swap_ranks(g);
        for (int32_t k = 0; k < r->shape.n_used; k++) {
            row[k] = (uint16_t)draw(g, t);
            g->last[row[k]] = t;
        }
    }
}

int routing_generate(struct routing **out, const struct routing_shape *s, int32_t n_tok,
                     uint64_t seed, struct err *e) {
    *out = NULL;
    if (!is_shape(s) || n_tok < 1)
        return err_set(e, CHIMERE_EINVAL, "routing: the model has no experts to route to");
    int rc = new_routing(out, s, n_tok, e);
    if (rc) return rc;
    struct generator g = {.n_expert = s->n_expert};
    rng_seed(&g.rng, seed);
    g.sum = mem_alloc_array((size_t)s->n_expert, sizeof *g.sum);
    g.rank = mem_alloc_array((size_t)s->n_expert, sizeof *g.rank);
    g.last = mem_alloc_array((size_t)s->n_expert, sizeof *g.last);
    if (!g.sum || !g.rank || !g.last) rc = err_set(e, CHIMERE_ENOMEM, "routing: out of memory");
    for (int32_t i = 0; !rc && i < s->n_expert; i++)
        g.sum[i] = (i ? g.sum[i - 1] : 0) + pow(i + 1, -0.6);
    for (int32_t m = 0; !rc && m < s->n_mixture; m++) generate_layer(&g, *out, m);
    mem_free(g.sum);
    mem_free(g.rank);
    mem_free(g.last);
    if (rc) {
        routing_free(*out);
        *out = NULL;
    }
    return rc;
}

/* ---- files ---- */

static uint32_t u32_at(const char *p) {
    const unsigned char *b = (const unsigned char *)p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void put_u32(char *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (char)(v >> 8 * i);
}

static size_t id_bytes(const struct routing_shape *s) { return s->n_expert <= 256 ? 1 : 2; }

static size_t tok_bytes(const struct routing_shape *s) {
    return (size_t)s->n_mixture * (size_t)s->n_used * id_bytes(s);
}

/* Counts the tokens of all batches; -1: the batches do not exactly fill the file. */
static int64_t count_tokens(const struct routing_shape *s, const char *p, size_t n) {
    int64_t n_tok = 0;
    size_t each = tok_bytes(s);
    while (n) {
        uint32_t here = n >= 4 ? u32_at(p) : 0;
        if (!here || here > MAX_TOK || (n - 4) / each < here) return -1;
        n_tok += here;
        if (n_tok > MAX_TOK) return -1;
        p += 4 + here * each;
        n -= 4 + here * each;
    }
    return n_tok;
}

static bool is_distinct(const uint16_t *ids, int32_t n, int32_t n_expert) {
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] >= n_expert) return false;
        for (int32_t j = 0; j < i; j++)
            if (ids[j] == ids[i]) return false;
    }
    return true;
}

static bool decode(struct routing *r, const char *p, const char *end) {
    const struct routing_shape *s = &r->shape;
    size_t width = id_bytes(s);
    int64_t at = 0;
    while (p < end) {
        int64_t n = u32_at(p);
        p += 4;
        for (int32_t m = 0; m < s->n_mixture; m++)
            for (int64_t t = 0; t < n; t++) {
                uint16_t *ids = ids_at(r, m, at + t);
                for (int32_t k = 0; k < s->n_used; k++, p += width)
                    ids[k] = (uint16_t)((unsigned char)p[0] |
                                        (width > 1 ? (unsigned)(unsigned char)p[1] << 8 : 0));
                if (!is_distinct(ids, s->n_used, s->n_expert)) return false;
            }
        at += n;
    }
    return true;
}

int routing_parse(struct routing **out, const char *p, size_t n, const char *path, struct err *e) {
    *out = NULL;
    struct routing_shape s = {0};
    bool is_ours = n > HEADER_BYTES && memcmp(p, magic, sizeof magic) == 0 && u32_at(p + 8) == 1;
    if (is_ours) {
        s = (struct routing_shape){.n_mixture = (int32_t)u32_at(p + 12),
                                   .n_expert = (int32_t)u32_at(p + 16),
                                   .n_used = (int32_t)u32_at(p + 20)};
        is_ours = is_shape(&s);
    }
    if (!is_ours) return err_set(e, CHIMERE_EFORMAT, "%s: expected a file of chimere trace", path);
    int64_t n_tok = count_tokens(&s, p + HEADER_BYTES, n - HEADER_BYTES);
    if (n_tok < 1)
        return err_set(e, CHIMERE_EFORMAT,
                       "%s: expected whole batches of tokens, the file ends within one", path);
    int rc = new_routing(out, &s, n_tok, e);
    if (rc || decode(*out, p + HEADER_BYTES, p + n)) return rc;
    routing_free(*out);
    *out = NULL;
    return err_set(e, CHIMERE_EFORMAT, "%s: expected distinct experts below %d for each token",
                   path, s.n_expert);
}

int routing_read(struct routing **out, const char *path, struct err *e) {
    *out = NULL;
    char *p;
    size_t n;
    int rc = file_read(path, MAX_FILE, &p, &n, e);
    if (rc) return rc;
    rc = routing_parse(out, p, n, path, e);
    mem_free(p);
    return rc;
}

int routing_open(struct routing **out, const char *name, const struct routing_shape *s,
                 uint64_t seed, struct err *e) {
    if (strcmp(name, "trace-like") == 0)
        return routing_generate(out, s, ROUTING_GENERATED, seed, e);
    int rc = routing_read(out, name, e);
    if (rc) return rc;
    const struct routing_shape *got = &(*out)->shape;
    if (got->n_mixture == s->n_mixture && got->n_expert == s->n_expert && got->n_used == s->n_used)
        return 0;
    rc = err_set(e, CHIMERE_EINVAL,
                 "%s: expected %d layers with %d of %d experts per token, got %d with %d of %d",
                 name, s->n_mixture, s->n_used, s->n_expert, got->n_mixture, got->n_used,
                 got->n_expert);
    routing_free(*out);
    *out = NULL;
    return rc;
}

/* ---- writing ---- */

struct routing_writer {
    struct routing_shape shape;
    struct file_writer w;
    int32_t next; /* next mixture to write */
    bool failed, bad;
};

int routing_writer_open(struct routing_writer **out, const char *path,
                        const struct routing_shape *s, struct err *e) {
    *out = NULL;
    if (!is_shape(s)) return err_set(e, CHIMERE_EINVAL, "trace: the model has no experts");
    struct routing_writer *w = mem_zalloc(sizeof *w);
    if (!w) return err_set(e, CHIMERE_ENOMEM, "trace: out of memory");
    w->shape = *s;
    int rc = file_writer_open(&w->w, path, e);
    if (rc) {
        mem_free(w);
        return rc;
    }
    char head[HEADER_BYTES];
    memcpy(head, magic, sizeof magic);
    put_u32(head + 8, 1);
    put_u32(head + 12, (uint32_t)s->n_mixture);
    put_u32(head + 16, (uint32_t)s->n_expert);
    put_u32(head + 20, (uint32_t)s->n_used);
    w->failed = fwrite(head, sizeof head, 1, w->w.f) != 1;
    *out = w;
    return 0;
}

void routing_put(struct routing_writer *w, int32_t mixture, const int32_t *ids, int32_t n_tok) {
    if (mixture != w->next) w->bad = true;
    if (w->bad || w->failed) return;
    w->next = (mixture + 1) % w->shape.n_mixture;
    char row[2 * ROUTING_MAX_USED];
    if (mixture == 0) {
        put_u32(row, (uint32_t)n_tok);
        w->failed |= fwrite(row, 4, 1, w->w.f) != 1;
    }
    size_t width = id_bytes(&w->shape);
    for (int32_t t = 0; t < n_tok; t++) {
        for (int32_t k = 0; k < w->shape.n_used; k++) {
            int32_t id = ids[t * w->shape.n_used + k];
            if (id < 0) w->bad = true;
            row[(size_t)k * width] = (char)id;
            if (width > 1) row[(size_t)k * width + 1] = (char)(id >> 8);
        }
        w->failed |= fwrite(row, width, (size_t)w->shape.n_used, w->w.f) != (size_t)w->shape.n_used;
    }
}

int routing_writer_close(struct routing_writer *w, struct err *e) {
    int rc = 0;
    if (w->bad) rc = err_set(e, CHIMERE_ENUMERIC, "trace: a router's scores are not finite");
    else if (w->failed) rc = err_set(e, CHIMERE_EIO, "%s: cannot write", w->w.path);
    if (rc) file_writer_abort(&w->w);
    else rc = file_writer_commit(&w->w, e);
    mem_free(w);
    return rc;
}

void routing_writer_abort(struct routing_writer *w) {
    if (!w) return;
    file_writer_abort(&w->w);
    mem_free(w);
}
