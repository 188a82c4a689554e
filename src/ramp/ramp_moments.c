/* ramp_moments.c: see ramp_moments.h. */
#include "ramp/ramp_moments.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "convert/quantize_mix.h"
#include "format/quant.h"

/* Which norm feeds a matrix, by the part of its name after "blk.N."; the first that exists is used. */
static const struct {
    const char *matrix, *norms[3];
} feeds[] = {
    {"attn_q.", {"attn_norm"}},
    {"attn_k.", {"attn_norm"}},
    {"attn_v.", {"attn_norm"}},
    {"attn_qkv.", {"attn_norm"}},
    {"attn_gate.", {"attn_norm"}},
    {"ssm_in.", {"attn_norm"}},
    {"ssm_alpha.", {"attn_norm"}},
    {"ssm_beta.", {"attn_norm"}},
    {"ssm_ba.", {"attn_norm"}},
    {"ffn_gate", {"ffn_norm", "post_attention_norm", "attn_norm"}},
    {"ffn_up", {"ffn_norm", "post_attention_norm", "attn_norm"}},
};

static const struct gguf_tensor *norm_of(const struct gguf *g, const char *name) {
    char path[GGUF_MAX_NAME];
    int layer, at = 0;
    if (strcmp(name, "output.weight") == 0 ||
        (strcmp(name, "token_embd.weight") == 0 && !gguf_find_tensor(g, "output.weight")))
        return gguf_find_tensor(g, "output_norm.weight");
    if (sscanf(name, "blk.%d.%n", &layer, &at) != 1 || !at) return NULL;
    for (size_t i = 0; i < sizeof feeds / sizeof *feeds; i++) {
        if (strncmp(name + at, feeds[i].matrix, strlen(feeds[i].matrix)) != 0) continue;
        for (int k = 0; k < 3 && feeds[i].norms[k]; k++) {
            snprintf(path, sizeof path, "blk.%d.%s.weight", layer, feeds[i].norms[k]);
            const struct gguf_tensor *t = gguf_find_tensor(g, path);
            if (t) return t;
        }
    }
    return NULL;
}

/* The norm of a matrix that gets an entry; NULL: no entry. */
static const struct gguf_tensor *entry_of(const struct gguf *g, const struct gguf_tensor *t) {
    const struct gguf_tensor *n = quantize_mix_is_matrix(t) ? norm_of(g, t->name) : NULL;
    return n && n->n_elements == t->ne[0] && n->n_elements < 1 << 24 &&
                   quant_traits(n->type)->decode
               ? n
               : NULL;
}

static int write_entry(struct gguf_writer *w, const struct gguf_tensor *t,
                       const struct gguf_tensor *norm, struct err *e) {
    size_t n = (size_t)t->ne[0];
    float *x = mem_alloc_array(n, sizeof *x);
    if (!x) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    const float one = 1;
    quant_traits(norm->type)->decode(norm->data, x, n);
    for (size_t i = 0; i < n; i++) x[i] *= x[i];
    int rc = gguf_write_data(w, x, n * sizeof *x, e);
    if (!rc) rc = gguf_write_data(w, &one, sizeof one, e);
    mem_free(x);
    return rc;
}

int ramp_moments_write(const struct gguf *model, const char *path, struct err *e) {
    static const char name[] = "norm weights";
    const struct slice dataset = SLICE(name);
    struct gguf_writer *w;
    int rc = gguf_writer_new(&w, path, 0, 0, e);
    if (rc) return rc;
    gguf_put_str(w, "general.type", "imatrix", strlen("imatrix"));
    gguf_put_strings(w, "imatrix.datasets", &dataset, 1);
    gguf_put_u32(w, "imatrix.chunk_count", 1);
    gguf_put_u32(w, "imatrix.chunk_size", 1);
    size_t n = gguf_n_tensors(model);
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(model, i);
        if (!entry_of(model, t)) continue;
        char key[GGUF_MAX_NAME + 16];
        const uint64_t sums[2] = {t->ne[0], 1}, counts[2] = {1, 1}; /* all experts share them */
        snprintf(key, sizeof key, "%s.in_sum2", t->name);
        gguf_add_tensor(w, key, QUANT_F32, 2, sums);
        snprintf(key, sizeof key, "%s.counts", t->name);
        gguf_add_tensor(w, key, QUANT_F32, 2, counts);
    }
    for (size_t i = 0; i < n && !rc; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(model, i), *norm = entry_of(model, t);
        if (norm) rc = write_entry(w, t, norm, e);
    }
    if (!rc) return gguf_writer_close(w, e);
    gguf_writer_abort(w);
    return rc;
}
