/* lora_file.h: writes an adapter of every matrix of a model that adapters may change. */
#ifndef CHIMERE_TEST_LORA_FILE_H
#define CHIMERE_TEST_LORA_FILE_H

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "format/gguf.h"
#include "format/quant.h"

enum { LORA_FILE_RANK = 3 };

static const char *lora_file_only; /* adapters of this matrix alone; NULL: of all */

static bool lora_file_has(const struct gguf_tensor *t) {
    static const char *const names[] = {"attn_q.weight",   "attn_k.weight",    "attn_v.weight",
                                        "attn_qkv.weight", "attn_gate.weight", "attn_output.weight",
                                        "ssm_out.weight",  "ssm_in.weight",    "ssm_alpha.weight",
                                        "ssm_beta.weight", "ffn_gate.weight",  "ffn_up.weight",
                                        "ffn_down.weight"};
    const char *name = strncmp(t->name, "blk.", 4) ? NULL : strchr(t->name + 4, '.');
    if (lora_file_only) return name && strcmp(name + 1, lora_file_only) == 0;
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name + 1, names[i]) == 0 && t->ne[1] > 1) return true;
    return false;
}

static int lora_file_values(struct gguf_writer *w, struct rng *r, uint64_t n, float size,
                            struct err *e) {
    float *v = mem_alloc_array((size_t)n, sizeof *v);
    for (uint64_t i = 0; i < n; i++) v[i] = size * (float)(2 * rng_uniform(r) - 1);
    int rc = gguf_write_data(w, v, n * sizeof *v, e);
    mem_free(v);
    return rc;
}

/* Returns the number of matrices; 0 after an error. */
static int lora_file_write(const char *model, const char *path, struct err *e) {
    struct gguf *g;
    struct gguf_writer *w;
    struct rng r;
    struct slice arch;
    char name[GGUF_MAX_NAME + 8];
    uint64_t cursor = 0;
    int n = 0;
    rng_seed(&r, 7);
    if (gguf_open(&g, model, e)) return 0;
    int rc = gguf_writer_new(&w, path, 0, 0, e);
    if (!rc && !gguf_next_str(gguf_find(g, "general.architecture"), &cursor, &arch)) rc = -1;
    if (!rc) {
        gguf_put_str(w, "general.type", "adapter", 7);
        gguf_put_str(w, "adapter.type", "lora", 4);
        gguf_put_str(w, "general.architecture", arch.p, arch.n);
        gguf_put_f32(w, "adapter.lora.alpha", 6);
    }
    for (size_t i = 0; !rc && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (!lora_file_has(t)) continue;
        snprintf(name, sizeof name, "%s.lora_a", t->name);
        gguf_add_tensor(w, name, QUANT_F32, 2, (uint64_t[]){t->ne[0], LORA_FILE_RANK});
        snprintf(name, sizeof name, "%s.lora_b", t->name);
        gguf_add_tensor(w, name, QUANT_F32, 2, (uint64_t[]){LORA_FILE_RANK, t->ne[1]});
        n++;
    }
    for (size_t i = 0; !rc && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (!lora_file_has(t)) continue;
        rc = lora_file_values(w, &r, t->ne[0] * LORA_FILE_RANK, .1f, e);
        if (!rc) rc = lora_file_values(w, &r, t->ne[1] * LORA_FILE_RANK, .05f, e);
    }
    if (!rc) rc = gguf_writer_close(w, e);
    gguf_close(g);
    return rc ? 0 : n;
}

#endif
