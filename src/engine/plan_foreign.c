/* plan_foreign.c: memory estimate for files of an unknown architecture, from keys that GGUF defines for all
 * architectures.
 *
 * The memory that another runtime computes with is unknown. Activations are estimated as its largest tensors for one
 * batch of at most FOREIGN_UBATCH tokens, plus a margin. If the estimate is too low, that runtime refuses the model
 * itself when it loads it. */
#include <stdio.h>
#include <string.h>

#include "engine/plan_impl.h"
#include "engine/vision.h"
#include "format/quant.h"

enum {
    FOREIGN_UBATCH = 512,
    FOREIGN_PROGRAM_BYTES = 64 << 20,
    FOREIGN_TOKEN_BYTES = 256,
    FOREIGN_SPARE_SEQS = 32
}; /* sequence ids for checkpoints; libllama allocates a row of logits for each */
enum { MAX_LAYERS = 4096, MAX_WIDTH = 1 << 24 };

struct reader {
    const struct gguf *g;
    char arch[64];
};

static const struct gguf_kv *find(const struct reader *r, const char *name) {
    char key[160];
    snprintf(key, sizeof key, "%s.%s", r->arch, name);
    return gguf_find(r->g, key);
}

/* Element i of a key that may be an array; `otherwise` if it is missing or out of range. */
static int64_t item(const struct reader *r, const char *name, uint64_t i, int64_t otherwise) {
    const struct gguf_kv *kv = find(r, name);
    int64_t x;
    if (!kv || !kv->n) return otherwise;
    if (kv->type != GGUF_ARR) i = 0;
    if (i >= kv->n || !gguf_item_i64(kv, i, &x) || x < 0 || x > MAX_WIDTH) return otherwise;
    return x;
}

static void read_widths(struct plan_foreign *f, const struct reader *r) {
    for (int64_t il = 0; il < f->n_layer; il++) {
        uint64_t i = (uint64_t)il;
        int64_t n_head = item(r, "attention.head_count", i, 0);
        int64_t n_kv = item(r, "attention.head_count_kv", i, n_head);
        int64_t d = n_head ? f->n_embd / n_head : 0;
        f->k_width += n_kv * item(r, "attention.key_length", 0, d);
        f->v_width += n_kv * item(r, "attention.value_length", 0, d);
    }
}

/* Recurrent state of Mamba and RWKV models, as if every layer were recurrent. */
static uint64_t recurrent_bytes(const struct plan_foreign *f, const struct reader *r) {
    int64_t inner = item(r, "ssm.inner_size", 0, 0), state = item(r, "ssm.state_size", 0, 0);
    int64_t conv = item(r, "ssm.conv_kernel", 0, 0), head = item(r, "wkv.head_size", 0, 0);
    int64_t n = inner * (state + conv);
    if (head) n += f->n_embd * (head + 2);
    return (uint64_t)n * (uint64_t)f->n_layer * sizeof(float);
}

/* Memory of the vision encoder: its weights, the pixels of one image as bytes and as floats, and cached encoded
 * images. */
static int read_vision(struct plan_foreign *f, struct err *e) {
    struct gguf *g;
    int rc = f->mmproj ? gguf_open(&g, f->mmproj, e) : 0;
    if (rc) err_prefix(e, "--mmproj");
    if (rc || !f->mmproj) return rc;
    f->vision_bytes += gguf_tensor_bytes(g);
    gguf_close(g);
    f->vision_bytes += (uint64_t)VISION_MAX_PIXELS * 3 + VISION_MAX_BYTES + VISION_KEPT_BYTES;
    return 0;
}

int plan_foreign_read(struct plan_foreign *f, const struct gguf *g, struct err *e) {
    struct reader r = {.g = g};
    const struct gguf_kv *kv = gguf_find(g, "general.architecture");
    struct slice s;
    uint64_t cursor = 0;
    if (!kv || !gguf_next_str(kv, &cursor, &s) || !s.n || s.n >= sizeof r.arch)
        return err_set(e, CHIMERE_EFORMAT,
                       "key general.architecture: expected a short string, got nothing");
    memcpy(r.arch, s.p, s.n);
    f->n_layer = item(&r, "block_count", 0, 0);
    f->n_embd = item(&r, "embedding_length", 0, 0);
    if (f->n_layer < 1 || f->n_layer > MAX_LAYERS || f->n_embd < 1)
        return err_set(e, CHIMERE_EFORMAT,
                       "keys %s.block_count and %s.embedding_length: expected "
                       "1 to %d layers of a width, got %lld of %lld",
                       r.arch, r.arch, MAX_LAYERS, (long long)f->n_layer, (long long)f->n_embd);
    f->n_ctx_train = item(&r, "context_length", 0, 0);
    f->n_ff = item(&r, "feed_forward_length", 0, 4 * f->n_embd);
    read_widths(f, &r);
    f->state_bytes = recurrent_bytes(f, &r);
    f->weight_bytes += gguf_tensor_bytes(g);
    const struct gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    f->n_vocab = embd ? (int64_t)embd->ne[1] : 0;
    int64_t n_gpu = f->n_gpu_layers < 0 ? 0 : f->n_gpu_layers;
    if (n_gpu > f->n_layer + 1) n_gpu = f->n_layer + 1;
    /* libllama counts the output as an additional layer */
    f->host_share_den = (uint64_t)f->n_layer + 1;
    f->host_share_num = f->host_share_den - (uint64_t)n_gpu;
    return read_vision(f, e);
}

static uint64_t row_bytes(uint32_t type, int64_t width) {
    const struct quant_traits *t = quant_traits(type);
    return t ? (uint64_t)width * t->block_bytes / t->block_elements : (uint64_t)width * 4;
}

static uint64_t on_host(const struct plan_foreign *f, uint64_t n) {
    return n / f->host_share_den * f->host_share_num;
}

void plan_foreign_count(struct memory_plan *p, const struct plan_foreign *f) {
    const struct engine_params *g = &p->engine;
    uint64_t n_tok = (uint64_t)(g->n_batch < FOREIGN_UBATCH ? g->n_batch : FOREIGN_UBATCH);
    uint64_t per_tok = row_bytes(g->k_type, f->k_width) + row_bytes(g->v_type, f->v_width);
    p->cache_bytes_per_tok = on_host(f, per_tok);
    p->cache_bytes = on_host(f, per_tok * (uint64_t)g->n_ctx);
    p->state_bytes = f->state_bytes * (uint64_t)g->n_seq;
    uint64_t widest = (uint64_t)(8 * f->n_embd + 3 * f->n_ff) + 2 * (uint64_t)g->n_ctx;
    uint64_t n_out = (uint64_t)g->n_seq * (g->speculate ? STEP_MAX_TOK : 1) + FOREIGN_SPARE_SEQS;
    p->scratch_bytes = (n_tok * widest + 2 * n_out * (uint64_t)f->n_vocab) * sizeof(float);
    p->program_bytes = FOREIGN_PROGRAM_BYTES + FOREIGN_TOKEN_BYTES * (uint64_t)f->n_vocab;
    p->weight_bytes = on_host(f, f->weight_bytes) + f->vision_bytes;
    p->total_bytes =
        p->weight_bytes + p->cache_bytes + p->state_bytes + p->scratch_bytes + p->program_bytes;
}
