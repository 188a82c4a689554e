/* shim.c: chimere-llama.so, the implementation of llama_shim.h with libllama. It is not part of libchimere.
 *
 * Only this file and shim_compat.h include llama.h. A context has one unified memory of KV cells; sequences share cells
 * if libllama's memory supports it. This file builds batches from items; libllama divides them into micro-batches. */
#include "llama/llama_shim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "llama/shim_compat.h"
#include "llama/shim_mtmd.h"

enum { MAX_SEQS = 256, N_SPARE_SEQS = 32, UBATCH = 512 };

struct shim_model {
    struct llama_model *model;       /* owned */
    struct llama_context *ctx;       /* owned */
    const struct llama_vocab *vocab; /* view */
    compat_mtmd *eyes;               /* owned; NULL: no images */
    int32_t n_row_embd;
    struct llama_batch batch; /* owned */
    int32_t n_batch, n_vocab, n_embd, n_out;
    struct llama_shim_lora loras[LLAMA_SHIM_MAX_LORAS]; /* adapters that ctx currently uses */
    int32_t n_lora;
    bool embeds;
};

/* ---- libllama's log ---- */

static void (*log_line)(int level, const char *line);
static _Thread_local char last_error[256]; /* of the current call on this thread */

static void take_log(enum ggml_log_level level, const char *text, void *ud) {
    (void)ud;
    char line[256];
    if (level != GGML_LOG_LEVEL_ERROR && level != GGML_LOG_LEVEL_WARN) return;
    snprintf(line, sizeof line, "%s", text);
    size_t n = strlen(line);
    while (n && (line[n - 1] == '\n' || line[n - 1] == ' ')) line[--n] = 0;
    if (!n) return;
    /* keep the first error line, which names the cause */
    if (level == GGML_LOG_LEVEL_ERROR && !last_error[0])
        memcpy(last_error, line, sizeof last_error);
    if (log_line) log_line(level == GGML_LOG_LEVEL_ERROR ? 0 : 1, line);
}

static int fail(char *text, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(char *text, int code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, LLAMA_SHIM_TEXT, fmt, args);
    va_end(args);
    return code;
}

static const char *reason(void) { return last_error[0] ? last_error : "it gives no reason"; }

#ifdef CHIMERE_LLAMA_HAS_ABORT
static void take_abort(const char *text) {
    if (log_line) log_line(2, text);
}
#endif

/* ---- the library ---- */

static int shim_start(void (*log)(int level, const char *line), char *text) {
    log_line = log;
    llama_log_set(take_log, NULL);
#ifdef CHIMERE_LLAMA_HAS_ABORT
    ggml_set_abort_callback(take_abort);
#endif
    if (strcmp(compat_version(), CHIMERE_LLAMA_VERSION) != 0)
        return fail(text, CHIMERE_EUNSUPPORTED,
                    "built for libllama %s, found libllama %s: build it again with "
                    "-DCHIMERE_LLAMA_DIR",
                    CHIMERE_LLAMA_VERSION, compat_version());
    llama_backend_init();
    if (!compat_devices(CHIMERE_LLAMA_LIB_DIR))
        return fail(text, CHIMERE_EUNSUPPORTED,
                    "libllama %s finds no device, not even the processor", compat_version());
    return 0;
}

static const char *shim_library(void) { return "libllama " CHIMERE_LLAMA_VERSION; }

/* ---- models ---- */

static void shim_close(struct shim_model *m) {
    if (!m) return;
    compat_mtmd_free(m->eyes);
    if (m->batch.token) llama_batch_free(m->batch);
    if (m->ctx) llama_free(m->ctx);
    if (m->model) compat_model_free(m->model);
    mem_free(m);
}

static int open_context(struct shim_model *m, const struct llama_shim_params *p,
                        struct llama_shim_info *info, char *text) {
    struct llama_context_params c = llama_context_default_params();
    int32_t n_seq = p->n_seq;
    if (info->is_attention)
        n_seq = n_seq + N_SPARE_SEQS < MAX_SEQS ? n_seq + N_SPARE_SEQS : MAX_SEQS;
    c.n_ctx = (uint32_t)p->n_ctx;
    c.n_batch = (uint32_t)p->n_batch;
    c.n_ubatch = (uint32_t)(p->embeds || p->n_batch < UBATCH ? p->n_batch : UBATCH);
    c.n_seq_max = (uint32_t)n_seq;
    c.n_threads = c.n_threads_batch = p->n_thread;
    c.embeddings = p->embeds;
    c.type_k = (enum ggml_type)p->k_type;
    c.type_v = (enum ggml_type)p->v_type;
    /* libllama asserts that n_outputs_max >= n_seq_max */
    if (!p->embeds) compat_context(&c, p->n_out > n_seq ? p->n_out : n_seq);
    m->ctx = llama_init_from_model(m->model, c);
    if (!m->ctx)
        return fail(text, CHIMERE_EDEVICE, "libllama makes no context of %lld tokens: %s",
                    (long long)p->n_ctx, reason());
    info->n_ctx = llama_n_ctx(m->ctx);
    info->n_seq = n_seq;
    m->batch = llama_batch_init(p->n_batch, 0, 1);
    if (!m->batch.token) return fail(text, CHIMERE_ENOMEM, "out of memory");
    m->n_batch = p->n_batch;
    m->n_out = p->n_out;
    return 0;
}

static void describe(const struct shim_model *m, struct llama_shim_info *info) {
    *info = (struct llama_shim_info){.n_vocab = m->n_vocab,
                                     .n_embd = m->n_embd,
                                     .n_ctx_train = compat_n_ctx_train(m->model),
                                     .is_attention = compat_is_attention(m->model),
                                     .n_param = llama_model_n_params(m->model),
                                     .n_byte = llama_model_size(m->model)};
    llama_model_desc(m->model, info->about, sizeof info->about);
}

static int open_eyes(struct shim_model *m, const struct llama_shim_params *p,
                     struct llama_shim_info *info, char *text) {
#ifdef CHIMERE_LLAMA_HAS_MTMD
    m->eyes = compat_mtmd_open(p->mmproj, m->model, p->n_thread, p->n_gpu_layers != 0, take_log);
    if (!m->eyes)
        return fail(text, CHIMERE_EUNSUPPORTED, "libmtmd refuses %s: %s", p->mmproj, reason());
    const char *lacks = compat_mtmd_lacks(m->eyes);
    if (lacks) return fail(text, CHIMERE_EUNSUPPORTED, "%s: %s", p->mmproj, lacks);
    info->n_row_embd = m->n_row_embd = compat_row_embd(m->model);
    info->n_row_max = p->n_batch < UBATCH ? p->n_batch : UBATCH;
    return 0;
#else
    (void)m, (void)p, (void)info;
    return fail(
        text, CHIMERE_EUNSUPPORTED,
        "built without libmtmd: mtmd.h, mtmd-helper.h and libmtmd.so were not in the folder "
        "of CHIMERE_LLAMA_DIR");
#endif
}

static int shim_open(struct shim_model **out, const struct llama_shim_params *p,
                     struct llama_shim_info *info, char *text) {
    *out = NULL;
    last_error[0] = 0;
    struct shim_model *m = mem_zalloc(sizeof *m);
    if (!m) return fail(text, CHIMERE_ENOMEM, "out of memory");
    struct llama_model_params mp = llama_model_default_params();
    if (p->n_gpu_layers >= 0) mp.n_gpu_layers = p->n_gpu_layers;
    m->model = llama_model_load_from_file(p->path, mp);
    if (!m->model) {
        shim_close(m);
        return fail(text, CHIMERE_EUNSUPPORTED, "libllama refuses the model: %s", reason());
    }
    m->vocab = llama_model_get_vocab(m->model);
    m->n_vocab = llama_vocab_n_tokens(m->vocab);
    m->n_embd = compat_n_embd(m->model);
    m->embeds = p->embeds;
    describe(m, info);
    int rc = 0;
    if (!p->embeds && llama_model_has_encoder(m->model))
        rc = fail(text, CHIMERE_EUNSUPPORTED, "%s has an encoder, and only decoders are run",
                  info->about);
    if (!rc) rc = open_context(m, p, info, text);
    if (!rc && p->mmproj) rc = open_eyes(m, p, info, text);
    if (rc) shim_close(m);
    else *out = m;
    return rc;
}

/* ---- running ---- */

static int use_loras(struct shim_model *m, const struct llama_shim_lora *loras, int32_t n,
                     char *text) {
    compat_lora *handles[LLAMA_SHIM_MAX_LORAS];
    float scales[LLAMA_SHIM_MAX_LORAS];
    bool same = n == m->n_lora;
    if (n > LLAMA_SHIM_MAX_LORAS)
        return fail(text, CHIMERE_ELIMIT, "lora: expected at most %d", LLAMA_SHIM_MAX_LORAS);
    for (int32_t i = 0; i < n; i++) {
        same = same && loras[i].lora == m->loras[i].lora && loras[i].scale == m->loras[i].scale;
        handles[i] = (compat_lora *)(void *)loras[i].lora;
        scales[i] = loras[i].scale;
    }
    if (same) return 0;
    m->n_lora = 0;
    if (compat_lora_set(m->ctx, handles, (size_t)n, scales))
        return fail(text, CHIMERE_EDEVICE, "libllama refuses the adapters: %s", reason());
    if (n) memcpy(m->loras, loras, (size_t)n * sizeof *loras);
    m->n_lora = n;
    return 0;
}

/* Counts the rows of logits that items want: libllama asserts that they do not exceed n_outputs_max. */
static int32_t n_rows(const struct llama_shim_item *items, int32_t n) {
    int32_t n_row = 0;
    for (int32_t i = 0; i < n; i++) n_row += items[i].all ? items[i].n_tok : items[i].last;
    return n_row;
}

static bool fill_batch(struct shim_model *m, const struct llama_shim_item *items, int32_t n) {
    struct llama_batch *b = &m->batch;
    b->n_tokens = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct llama_shim_item *it = &items[i];
        if (it->n_tok > m->n_batch - b->n_tokens) return false;
        for (int32_t t = 0; t < it->n_tok; t++) {
            int32_t k = b->n_tokens++;
            if (!it->rows) b->token[k] = it->tokens[t];
            b->pos[k] = (llama_pos)(it->pos + t);
            b->n_seq_id[k] = 1;
            b->seq_id[k][0] = it->seq;
            b->logits[k] = it->all || (it->last && t == it->n_tok - 1);
        }
    }
    return true;
}

static int decode(struct shim_model *m, char *text) {
    int32_t rc = llama_decode(m->ctx, m->batch);
    if (rc == 0) return 0;
    if (rc == 1)
        return fail(text, CHIMERE_ELIMIT, "context: libllama has no room for %d more tokens",
                    m->batch.n_tokens);
    return fail(text, CHIMERE_EDEVICE, "libllama fails with %d: %s", rc, reason());
}

/* Evaluates the single item's rows instead of tokens. */
static int decode_rows(struct shim_model *m, const struct llama_shim_item *item, char *text) {
    struct llama_batch own = m->batch;
    if (!m->eyes || item->n_tok > UBATCH)
        return fail(text, CHIMERE_ELIMIT, "image: expected at most %d rows at once", UBATCH);
    m->batch.token = NULL;
    m->batch.embd = (float *)(uintptr_t)item->rows; /* libllama only reads them */
    if (item->is_whole) llama_set_causal_attn(m->ctx, false);
    int rc = decode(m, text);
    if (item->is_whole) llama_set_causal_attn(m->ctx, true);
    m->batch = own;
    return rc;
}

static int shim_run(struct shim_model *m, const struct llama_shim_item *items, int32_t n,
                    const struct llama_shim_lora *loras, int32_t n_lora, const float **logits,
                    char *text) {
    last_error[0] = 0;
    *logits = NULL;
    int rc = use_loras(m, loras, n_lora, text);
    if (rc) return rc;
    if (!fill_batch(m, items, n))
        return fail(text, CHIMERE_ELIMIT, "batch: expected at most %d tokens", m->n_batch);
    if (n_rows(items, n) > m->n_out)
        return fail(text, CHIMERE_ELIMIT, "batch: expected at most %d rows of logits", m->n_out);
    rc = n == 1 && items->rows ? decode_rows(m, items, text) : decode(m, text);
    if (!rc) *logits = llama_get_logits(m->ctx);
    return rc;
}

static bool shim_seq_remove(struct shim_model *m, int32_t seq, int64_t from) {
    return compat_seq_rm(m->ctx, seq, from > 0 ? (llama_pos)from : -1);
}

static void shim_seq_share(struct shim_model *m, int32_t seq, int32_t to, int64_t n) {
    compat_seq_rm(m->ctx, to, -1);
    compat_seq_cp(m->ctx, seq, to, (llama_pos)n);
}

/* ---- states ---- */

static size_t shim_state_bytes(struct shim_model *m, int32_t seq) {
    return compat_state_size(m->ctx, seq);
}
static size_t shim_state_save(struct shim_model *m, int32_t seq, void *out, size_t n) {
    return compat_state_get(m->ctx, out, n, seq);
}
static size_t shim_state_load(struct shim_model *m, int32_t seq, const void *in, size_t n) {
    return compat_state_set(m->ctx, in, n, seq);
}

/* ---- adapters and embeddings ---- */

static int shim_lora_open(struct shim_model *m, const char *path, struct shim_lora **out,
                          char *text) {
    last_error[0] = 0;
    compat_lora *l = compat_lora_open(m->model, path);
    *out = (struct shim_lora *)(void *)l;
    if (l) return 0;
    return fail(text, CHIMERE_EUNSUPPORTED, "%s: libllama refuses the adapter: %s", path, reason());
}

static int shim_embed(struct shim_model *m, const int32_t *tokens, int32_t n, float *out,
                      char *text) {
    last_error[0] = 0;
    const struct llama_shim_item item = {.tokens = tokens, .n_tok = n, .all = true};
    if (!m->embeds || !fill_batch(m, &item, 1))
        return fail(text, CHIMERE_ELIMIT, "embedding: expected at most %d tokens, got %d",
                    m->n_batch, n);
    compat_clear(m->ctx);
    int rc = decode(m, text);
    if (rc) return rc;
    bool pooled = llama_pooling_type(m->ctx) != LLAMA_POOLING_TYPE_NONE;
    if (pooled) {
        const float *v = llama_get_embeddings_seq(m->ctx, 0);
        if (!v) return fail(text, CHIMERE_EDEVICE, "libllama gives no vector: %s", reason());
        memcpy(out, v, (size_t)m->n_embd * sizeof *out);
        return 0;
    }
    memset(out, 0, (size_t)m->n_embd * sizeof *out);
    /* the mean, as in our embed.c, unless the file specifies another pooling */
    for (int32_t t = 0; t < n; t++) {
        const float *v = llama_get_embeddings_ith(m->ctx, t);
        if (!v) return fail(text, CHIMERE_EDEVICE, "libllama gives no vector: %s", reason());
        for (int32_t i = 0; i < m->n_embd; i++) out[i] += v[i] / (float)n;
    }
    return 0;
}

/* ---- images ---- */

#ifdef CHIMERE_LLAMA_HAS_MTMD
static int shim_image_open(struct shim_model *m, const void *data, size_t n,
                           struct shim_image **out, struct llama_shim_image *info, char *text) {
    *out = NULL;
    last_error[0] = 0;
    if (!m->eyes) return fail(text, CHIMERE_EUNSUPPORTED, "the model sees no images");
    struct shim_image *i = mem_zalloc(sizeof *i);
    if (!i) return fail(text, CHIMERE_ENOMEM, "out of memory");
    i->width = m->n_row_embd;
    const char *why = compat_image(m->eyes, data, n, i);
    if (!why && i->n_tok < 1) why = "it has no rows";
    if (why) {
        compat_image_free(i);
        return fail(text, CHIMERE_EINVAL, "libmtmd: %s%s%s", why, last_error[0] ? ": " : "",
                    last_error);
    }
    *info = (struct llama_shim_image){i->n_tok, i->n_row};
    *out = i;
    return 0;
}

static void shim_image_read(const struct shim_image *i, int32_t *ids, float *rows) {
    memcpy(ids, i->ids, (size_t)i->n_tok * sizeof *ids);
    if (i->n_row) memcpy(rows, i->rows, (size_t)i->n_row * (size_t)i->width * sizeof *rows);
}
#endif

static uint32_t shim_epoch(const struct shim_model *m) {
    (void)m;
    return 0;
}

__attribute__((visibility("default"))) const struct llama_shim *chimere_llama_shim(void) {
    static const struct llama_shim shim = {.version = LLAMA_SHIM_VERSION,
                                           .n_byte = sizeof(struct llama_shim),
                                           .start = shim_start,
                                           .library = shim_library,
                                           .open = shim_open,
                                           .close = shim_close,
                                           .run = shim_run,
                                           .seq_remove = shim_seq_remove,
                                           .seq_share = shim_seq_share,
                                           .state_bytes = shim_state_bytes,
                                           .state_save = shim_state_save,
                                           .state_load = shim_state_load,
                                           .lora_open = shim_lora_open,
                                           .embed = shim_embed,
#ifdef CHIMERE_LLAMA_HAS_MTMD
                                           .image_open = shim_image_open,
                                           .image_read = shim_image_read,
                                           .image_close = compat_image_free,
#endif
                                           .epoch = shim_epoch};
    return &shim;
}
