/* llama_fake.c: a chimere-llama.so without libllama: sequences are their tokens, states are their bytes. */
#include "llama_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "llama/llama_shim.h"

enum { N_SPARE = 4, MAX_SEQ = 64 };

struct shim_lora {
    int shift;
};

struct shim_image {
    int32_t n;
    int seed;
    bool whole;
};

struct shim_model {
    int32_t n_seq, n_vocab, n_out;
    int64_t n_cell;
    bool is_recurrent;
    struct {
        int32_t n, tokens[FAKE_MAX_POS];
    } seq[MAX_SEQ];
    float *logits;
    struct shim_lora loras[LLAMA_SHIM_MAX_LORAS];
    int32_t n_lora;
};

static void (*say)(int level, const char *line);

static int fake_start(void (*log)(int level, const char *line), char *text) {
    (void)text;
    say = log;
    return 0;
}

static const char *fake_library(void) { return "libfake 1"; }

static void fake_close(struct shim_model *m) {
    free(m->logits);
    free(m);
}

static int fake_open(struct shim_model **out, const struct llama_shim_params *p,
                     struct llama_shim_info *info, char *text) {
    struct shim_model *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m || p->n_seq + N_SPARE > MAX_SEQ) {
        free(m);
        snprintf(text, LLAMA_SHIM_TEXT, "too many sequences");
        return CHIMERE_ELIMIT;
    }
    m->is_recurrent = p->n_gpu_layers == FAKE_RECURRENT;
    m->n_seq = p->n_seq + (m->is_recurrent ? 0 : N_SPARE);
    m->n_vocab = FAKE_VOCAB;
    m->n_out = p->n_out;
    m->n_cell = p->n_ctx;
    m->logits = calloc((size_t)p->n_out * (size_t)m->n_vocab, sizeof *m->logits);
    *info = (struct llama_shim_info){.n_vocab = m->n_vocab,
                                     .n_embd = 8,
                                     .n_ctx_train = FAKE_MAX_POS,
                                     .n_ctx = p->n_ctx,
                                     .n_seq = m->n_seq,
                                     .is_attention = !m->is_recurrent,
                                     .n_row_embd = p->mmproj ? FAKE_ROW_EMBD : 0,
                                     .n_row_max = p->mmproj ? FAKE_ROW_MAX : 0,
                                     .about = "fake"};
    *out = m;
    return 0;
}

static int fail(char *text, int code, const char *what) {
    snprintf(text, LLAMA_SHIM_TEXT, "%s", what);
    return code;
}

static int take(struct shim_model *m, const struct llama_shim_item *it, int shift, int32_t *row,
                char *text) {
    if (it->seq < 0 || it->seq >= m->n_seq || it->pos != m->seq[it->seq].n)
        return fail(text, CHIMERE_EDEVICE, "the sequence is elsewhere");
    for (int32_t t = 0; t < it->n_tok; t++) {
        int32_t n = m->seq[it->seq].n;
        if (n == FAKE_MAX_POS) return fail(text, CHIMERE_ELIMIT, "the sequence is full");
        int32_t token = it->rows ? (int32_t)it->rows[t * FAKE_ROW_EMBD] : it->tokens[t];
        if (token == FAKE_FAIL) return fail(text, CHIMERE_EDEVICE, "it was told to fail");
        if (token == FAKE_ABORT) {
            say(2, "told to abort");
            abort();
        }
        m->seq[it->seq].tokens[m->seq[it->seq].n++] = token;
        if (!it->all && !(it->last && t == it->n_tok - 1)) continue;
        if (*row == m->n_out) return fail(text, CHIMERE_ELIMIT, "too many rows");
        float *logits = m->logits + (int64_t)(*row)++ * m->n_vocab;
        memset(logits, 0, (size_t)m->n_vocab * sizeof *logits);
        int32_t next = fake_next(m->seq[it->seq].tokens, n + 1, m->n_vocab) + shift;
        logits[next < m->n_vocab - 1 ? next : m->n_vocab - 1] = 9;
    }
    return 0;
}

static int fake_run(struct shim_model *m, const struct llama_shim_item *items, int32_t n,
                    const struct llama_shim_lora *loras, int32_t n_lora, const float **logits,
                    char *text) {
    int shift = 0, rc = 0;
    int32_t row = 0;
    for (int32_t i = 0; i < n; i++)
        if (items[i].rows &&
            (n > 1 || (items[i].is_whole && items[i].n_tok != (int)items[i].rows[1])))
            return fail(text, CHIMERE_EDEVICE, "rows beside others, or a part of them");
    for (int32_t i = 0; i < n_lora; i++)
        shift += (int)((float)loras[i].lora->shift * loras[i].scale);
    for (int32_t i = 0; !rc && i < n; i++) rc = take(m, &items[i], shift, &row, text);
    *logits = m->logits;
    return rc;
}

static bool fake_seq_remove(struct shim_model *m, int32_t seq, int64_t from) {
    if (from > 0 && m->is_recurrent) return false;
    if (from < m->seq[seq].n) m->seq[seq].n = from > 0 ? (int32_t)from : 0;
    return true;
}

static void fake_seq_share(struct shim_model *m, int32_t seq, int32_t to, int64_t n) {
    if (m->is_recurrent) abort();
    m->seq[to] = m->seq[seq];
    if (m->seq[to].n > n) m->seq[to].n = (int32_t)n;
}

static size_t fake_state_bytes(struct shim_model *m, int32_t seq) {
    return ((size_t)m->seq[seq].n + 1) * sizeof(int32_t);
}
static size_t fake_state_save(struct shim_model *m, int32_t seq, void *out, size_t n) {
    if (n != fake_state_bytes(m, seq)) return 0;
    memcpy(out, &m->seq[seq], n);
    return n;
}
static size_t fake_state_load(struct shim_model *m, int32_t seq, const void *in, size_t n) {
    int32_t n_tok;
    if (n < sizeof n_tok) return 0;
    memcpy(&n_tok, in, sizeof n_tok);
    if (n_tok < 0 || n_tok > FAKE_MAX_POS || n != ((size_t)n_tok + 1) * sizeof(int32_t)) return 0;
    memcpy(&m->seq[seq], in, n);
    return n;
}

static int fake_lora_open(struct shim_model *m, const char *path, struct shim_lora **out,
                          char *text) {
    (void)path;
    if (m->n_lora == LLAMA_SHIM_MAX_LORAS) return fail(text, CHIMERE_ELIMIT, "too many adapters");
    *out = &m->loras[m->n_lora++];
    (*out)->shift = FAKE_LORA_SHIFT;
    return 0;
}

static int fake_embed(struct shim_model *m, const int32_t *tokens, int32_t n, float *out,
                      char *text) {
    (void)m, (void)text;
    for (int i = 0; i < 8; i++) out[i] = (float)(tokens[0] + i * n);
    return 0;
}

static int fake_image_open(struct shim_model *m, const void *data, size_t n,
                           struct shim_image **out, struct llama_shim_image *info, char *text) {
    const unsigned char *p = (const unsigned char *)data + FAKE_PICTURE_AT;
    (void)m;
    *out = NULL;
    if (n < FAKE_PICTURE_AT + 3) return fail(text, CHIMERE_EINVAL, "too short a picture");
    if (p[0] == 'A') {
        say(2, "told to abort");
        abort();
    }
    struct shim_image *i = calloc(1, sizeof *i);
    if (!i) return fail(text, CHIMERE_ENOMEM, "out of memory");
    *i = (struct shim_image){.n = p[1], .seed = p[2], .whole = p[0] == 'w'};
    *info = (struct llama_shim_image){i->n + 2, i->n};
    *out = i;
    return 0;
}

static void fake_image_read(const struct shim_image *i, int32_t *ids, float *rows) {
    ids[0] = 300;
    for (int32_t r = 0; r < i->n; r++) {
        ids[1 + r] = i->whole ? -1 : -2;
        float *row = rows + r * FAKE_ROW_EMBD;
        memset(row, 0, FAKE_ROW_EMBD * sizeof *row);
        row[0] = (float)fake_row(i->seed, r);
        row[1] = (float)i->n;
    }
    ids[1 + i->n] = 301;
}

static void fake_image_close(struct shim_image *i) { free(i); }

static uint32_t fake_epoch(const struct shim_model *m) {
    (void)m;
    return 0;
}

__attribute__((visibility("default"))) const struct llama_shim *chimere_llama_shim(void) {
    static const struct llama_shim fake = {.version = FAKE_VERSION,
                                           .n_byte = sizeof fake,
                                           .start = fake_start,
                                           .library = fake_library,
                                           .open = fake_open,
                                           .close = fake_close,
                                           .run = fake_run,
                                           .seq_remove = fake_seq_remove,
                                           .seq_share = fake_seq_share,
                                           .state_bytes = fake_state_bytes,
                                           .state_save = fake_state_save,
                                           .state_load = fake_state_load,
                                           .lora_open = fake_lora_open,
                                           .embed = fake_embed,
                                           .epoch = fake_epoch,
                                           .image_open = fake_image_open,
                                           .image_read = fake_image_read,
                                           .image_close = fake_image_close};
    return &fake;
}
