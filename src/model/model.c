/* model.c: opens a file, checks it, and places its weights. */
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/quant.h"
#include "model/block/block.h"
#include "model/seq/seq_impl.h"
#include "model/slice.h"

uint64_t model_hash_file(const struct gguf *g) {
    uint64_t h = 1;
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        h = hash_bytes(kv->key.p, kv->key.n, h);
        if (kv->type != GGUF_ARR && kv->type != GGUF_STR) {
            uint64_t u = 0;
            double f = 0;
            if (gguf_item_u64(kv, 0, &u)) h = hash_bytes(&u, sizeof u, h);
            else if (gguf_item_f64(kv, 0, &f)) h = hash_bytes(&f, sizeof f, h);
        }
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        h = hash_bytes(t->name, strlen(t->name), h);
        h = hash_bytes(t->ne, sizeof t->ne, h ^ t->type);
        size_t n = t->n_bytes < 64 ? (size_t)t->n_bytes : 64;
        h = hash_bytes(t->data, n, h);
        h = hash_bytes(t->data + t->n_bytes - n, n, h);
    }
    return h;
}

/* Inverse frequencies of layers with a window, with their own base; f: n floats of scratch, n is at least theirs. */
static int make_window_rope(struct model *m, float *f, int32_t n, struct err *e) {
    int32_t n_rot = m->hp.n_rot_window ? m->hp.n_rot_window : m->hp.n_rot;
    n = n_rot / 2;
    m->inv_freq_window = m->dev->ops->alloc(m->dev, (size_t)n * sizeof *f);
    if (!m->inv_freq_window) return err_set(e, CHIMERE_ENOMEM, "out of memory for RoPE tables");
    for (int32_t i = 0; i < n; i++) f[i] = (float)pow(m->hp.rope_base_window, -2.0 * i / n_rot);
    m->dev->ops->upload(m->dev, m->inv_freq_window, f, (size_t)n * sizeof *f);
    return 0;
}

/* Inverse frequencies base^(-2i/n_rot), stretched by YaRN (Peng et al., arXiv:2309.00071), by linear scaling, or by
 * the factors in the file (rope_freqs.weight). */
static int make_rope(struct model *m, struct err *e) {
    const struct hparams *hp = &m->hp;
    int32_t n = hp->n_rot / 2;
    if (hp->rope_mode == ROPE_NONE || n < 1) return 0;
    float *f = mem_alloc_array((size_t)n, sizeof *f);
    m->inv_freq = m->dev->ops->alloc(m->dev, (size_t)n * sizeof *f);
    if (!f || !m->inv_freq) {
        mem_free(f);
        return err_set(e, CHIMERE_ENOMEM, "out of memory for RoPE tables");
    }
    double base = hp->rope_base, dim = hp->n_rot;
    double low = 0, high = 1;
    if (hp->rope_yarn) {
        /* Pairs that turn more than beta_fast times over the original context keep their frequency. Pairs that turn
         * less than beta_slow times are slowed by the whole factor. A ramp connects the two. */
        double turns = hp->rope_n_ctx_orig / (2 * M_PI), per_pair = dim / (2 * log(base));
        low = per_pair * log(turns / (double)hp->rope_beta_fast);
        high = per_pair * log(turns / (double)hp->rope_beta_slow);
        if (hp->rope_truncate) {
            low = floor(low);
            high = ceil(high);
        }
        if (low < 0) low = 0;
        if (high > dim - 1) high = dim - 1;
    }
    const struct gguf_tensor *factors = gguf_find_tensor(m->gguf, "rope_freqs.weight");
    if (factors && (factors->type != 0 || factors->n_elements != (uint64_t)n)) factors = NULL;
    for (int32_t i = 0; i < n; i++) {
        double w = pow(base, -2.0 * i / dim), factor = hp->rope_factor;
        if (hp->rope_yarn) {
            double ramp = (i - low) / (high - low > 0.001 ? high - low : 0.001);
            ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
            w = w / factor * ramp + w * (1 - ramp);
        } else {
            w /= factor;
        }
        float own = 1;
        if (factors) memcpy(&own, factors->data + (size_t)i * 4, 4);
        f[i] = (float)(w / own);
    }
    m->dev->ops->upload(m->dev, m->inv_freq, f, (size_t)n * sizeof *f);
    int rc = hp->rope_base_window > 0 ? make_window_rope(m, f, n, e) : 0;
    mem_free(f);
    return rc;
}

/* Weights of a norm that has none, for ops that take a pointer. */
static int make_ones(struct model *m, struct err *e) {
    if (!m->hp.has_v_norm) return 0;
    size_t n = (size_t)m->hp.d_v;
    float *f = mem_alloc_array(n, sizeof *f);
    m->ones = m->dev->ops->alloc(m->dev, n * sizeof *f);
    if (!f || !m->ones) {
        mem_free(f);
        return err_set(e, CHIMERE_ENOMEM, "out of memory for norms");
    }
    for (size_t i = 0; i < n; i++) f[i] = 1;
    m->dev->ops->upload(m->dev, m->ones, f, n * sizeof *f);
    mem_free(f);
    return 0;
}

/* Bucket of a distance: one for each of the smallest 8, then 8 on a logarithmic scale; keys after the query have
 * buckets of their own. In float, like the reference. */
static int32_t bucket_of(int32_t distance) {
    enum { HALF = BIAS_N_BUCKET / 2, EXACT = HALF / 2 };
    int32_t n = distance < 0 ? -distance : distance, base = distance > 0 ? HALF : 0;
    if (n < EXACT) return base + n;
    float steps = logf((float)n / EXACT) / (float)log((double)BIAS_BUCKET_REACH / EXACT) * EXACT;
    int32_t bucket = EXACT + (int32_t)steps;
    return base + (bucket < HALF ? bucket : HALF - 1);
}

/* Slope of a head (Press et al., arXiv:2108.12409): powers of 2^(-8/n); if n is no power of two, those of the next
 * smaller one, then every second of the next larger one. */
static double alibi_slope(int32_t head, int32_t n_head) {
    int32_t n = 1;
    while (2 * n <= n_head) n *= 2;
    return head < n ? pow(2, -8.0 * (head + 1) / n) : pow(2, -4.0 * (2 * (head - n) + 1) / n);
}

/* What attention adds to scores, by head and distance. */
static int make_attn_bias(struct model *m, struct err *e) {
    const struct hparams *hp = &m->hp;
    if (hp->position_bias == BIAS_NONE) return 0;
    bool is_table = hp->position_bias == BIAS_BUCKETS;
    const struct gguf_tensor *table =
        is_table ? gguf_find_tensor(m->gguf, "attn_rel_b.weight") : NULL;
    int32_t n_head = hp->layer[0].n_head, n = is_table ? BIAS_BUCKET_REACH : hp->n_ctx_train - 1;
    bool fits = n >= 0 && n <= 1 << 20 && (2 * (int64_t)n + 1) * n_head <= 1 << 26;
    if (!fits || (is_table && (!table || table->type != QUANT_F32)))
        return err_set(
            e, CHIMERE_EFORMAT,
            "tensor attn_rel_b.weight or key %s.context_length: expected numbers in f32, "
            "and at most 2^26 numbers",
            hp->arch->name);
    size_t n_row = 2 * (size_t)n + 1, bytes = (size_t)n_head * n_row * sizeof(float);
    float *f = mem_alloc(bytes);
    m->n_attn_bias = n;
    m->attn_bias = m->dev->ops->alloc(m->dev, bytes);
    if (!f || !m->attn_bias) {
        mem_free(f);
        return err_set(e, CHIMERE_ENOMEM, "out of memory for position tables");
    }
    for (int32_t h = 0; h < n_head; h++)
        for (int32_t d = -n; d <= n; d++) {
            float *x = &f[(size_t)h * n_row + (size_t)(d + n)];
            *x = (float)-(alibi_slope(h, n_head) * abs(d));
            if (table)
                memcpy(x, table->data + 4 * ((size_t)bucket_of(d) * (size_t)n_head + (size_t)h), 4);
        }
    m->dev->ops->upload(m->dev, m->attn_bias, f, bytes);
    mem_free(f);
    return 0;
}

static void read_name(struct model *m, const char *path) {
    const struct gguf_kv *kv = gguf_find(m->gguf, "general.name");
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    struct slice s = {base, strlen(base)};
    uint64_t cursor = 0;
    if (kv) gguf_next_str(kv, &cursor, &s);
    size_t n = 0;
    while (n < s.n && n + 5 < sizeof m->name) {
        int len = utf8_valid_len(s.p + n, s.n - n);
        if (len <= 0) break;
        n += (size_t)len;
    }
    memcpy(m->name, s.p, n);
    m->name[n] = 0;
}

int model_open(struct model **out, const char *path, struct dev *dev, bool quiet, struct err *e) {
    return model_open_placed(out, path, dev, NULL, quiet, e);
}

int model_open_placed(struct model **out, const char *path, struct dev *dev,
                      const struct expert_placement *where, bool quiet, struct err *e) {
    return model_open_part(out, path, dev, where, (struct layer_part){0, 0}, quiet, e);
}

int model_open_drafter(struct model **out, const char *path, struct dev *dev, struct err *e) {
    *out = NULL;
    struct model *m = mem_zalloc(sizeof *m);
    if (!m) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
    m->dev = dev;
    int rc = gguf_open(&m->gguf, path, e);
    if (!rc) {
        rc = hparams_read_drafter(&m->hp, m->gguf, e);
        if (!rc) rc = weights_bind(&m->weights, &m->hp, m->gguf, dev, NULL, NULL, true, e);
        if (!rc) rc = make_rope(m, e);
        if (rc) err_prefix(e, "%s", path);
    }
    if (rc) {
        model_close(m);
        return rc;
    }
    read_name(m, path);
    *out = m;
    return 0;
}

/* part: which layers; n > 1: slice `rank` of n of each layer. */
static int open_part(struct model **out, const char *path, struct dev *dev,
                     const struct expert_placement *where, struct layer_part part, int32_t rank,
                     int32_t n, bool quiet, struct err *e) {
    *out = NULL;
    struct model *m = mem_zalloc(sizeof *m);
    if (!m) {
        if (where && where->host) where->host->ops->close(where->host);
        return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
    }
    m->host = where ? where->host : NULL;
    m->dev = dev;
    int rc = gguf_open(&m->gguf, path, e);
    if (!rc) {
        gguf_guard(m->gguf);
        rc = hparams_read(&m->hp, m->gguf, e);
        if (!rc) rc = hparams_cut(&m->hp, part, e);
        if (!rc && m->hp.moe.n_latent && m->host)
            rc = err_set(e, CHIMERE_EUNSUPPORTED,
                         "experts with projections around them run on the model's device alone");
        bool is_beside = m->hp.layer[0].join == JOIN_BESIDE;
        if (!rc && is_beside && (m->host || (where && where->pool_bytes)))
            rc = err_set(e, CHIMERE_EUNSUPPORTED,
                         "experts beside a dense block run on the model's device alone");
        if (!rc && n > 1 && (is_beside || m->hp.n_ple))
            rc = err_set(e, CHIMERE_EUNSUPPORTED,
                         "layers of a %s model cannot be divided between cards", m->hp.arch->name);
        if (!rc && n > 1) rc = slice_new(&m->slice, &m->hp, m->gguf, rank, n, e);
        if (!rc) rc = weights_bind(&m->weights, &m->hp, m->gguf, dev, where, m->slice, quiet, e);
        if (!rc) rc = make_rope(m, e);
        if (!rc) rc = make_ones(m, e);
        if (!rc) rc = make_attn_bias(m, e);
        if (!rc) rc = gguf_check(m->gguf, e);
        if (rc) err_prefix(e, "%s", path);
    }
    if (rc) {
        model_close(m);
        return rc;
    }
    m->hash = model_hash_file(m->gguf);
    read_name(m, path);
    *out = m;
    return 0;
}

int model_open_part(struct model **out, const char *path, struct dev *dev,
                    const struct expert_placement *where, struct layer_part part, bool quiet,
                    struct err *e) {
    return open_part(out, path, dev, where, part, 0, 1, quiet, e);
}

int model_open_slice(struct model **out, const char *path, struct dev *dev, int32_t rank, int32_t n,
                     bool quiet, struct err *e) {
    return open_part(out, path, dev, NULL, (struct layer_part){0, 0}, rank, n, quiet, e);
}

void model_close(struct model *m) {
    if (!m) return;
    if (m->inv_freq) m->dev->ops->free(m->dev, m->inv_freq);
    if (m->inv_freq_window) m->dev->ops->free(m->dev, m->inv_freq_window);
    if (m->ones) m->dev->ops->free(m->dev, m->ones);
    if (m->attn_bias) m->dev->ops->free(m->dev, m->attn_bias);
    if (m->draft_head_memory) m->dev->ops->free(m->dev, m->draft_head_memory);
    weights_release(&m->weights);
    slice_free(m->slice);
    if (m->host) m->host->ops->close(m->host);
    gguf_close(m->gguf);
    mem_free(m);
}

uint64_t model_state_bytes(const struct hparams *hp) {
    uint64_t n = 0;
    const struct seq_pool_params p = {.log = false};
    for (int32_t il = 0; il < hp->n_layer; il++) {
        struct layer_state s;
        block_state_of(hp, il, &p, &s);
        n += sizeof(float) * s.rec.s_stride;
    }
    return n;
}

uint64_t model_bytes_per_tok(const struct model *m) {
    return m->weights.bytes_per_tok + 2 * model_state_bytes(&m->hp); /* read and written */
}

uint64_t model_n_params(const struct model *m) {
    uint64_t n = 0;
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++)
        n += gguf_tensor_at(m->gguf, i)->n_elements;
    return n;
}
