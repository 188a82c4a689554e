/* A process reward model whose scores mean something, made in a moment: a decoder of one layer whose attention is the
 * mean of all values, and in which only the word "bad" has one. So a step is "wrong" if the text up to it has this word. */
#ifndef CHIMERE_TEST_TINY_PRM_H
#define CHIMERE_TEST_TINY_PRM_H

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "format/gguf.h"
#include "format/quant.h"

enum { PRM_D = 32, PRM_CTX = 512, PRM_VOCAB = 3 + 256 + 4 };

struct prm_tensor {
    const char *name;
    uint32_t n_dims;
    uint64_t ne[2];
    float diagonal, all; /* values: of a square matrix's diagonal, of all others */
};

static inline void prm_vocab(struct gguf_writer *w) {
    static const char *const words[] = {"<unk>", "<s>", "</s>", "bad", "<step>", "fine", "wrong"};
    static char bytes[256][8];
    struct slice tokens[PRM_VOCAB];
    int32_t types[PRM_VOCAB];
    float scores[PRM_VOCAB];
    for (int i = 0; i < PRM_VOCAB; i++) {
        bool is_byte = i >= 3 && i < 259;
        if (is_byte) snprintf(bytes[i - 3], 8, "<0x%02X>", i - 3);
        const char *t = is_byte ? bytes[i - 3] : words[i < 3 ? i : i - 256];
        tokens[i] = (struct slice){t, strlen(t)};
        types[i] = i == 0 ? 2 : i < 3 ? 3 : is_byte ? 6 : i < 261 ? 4 : 1;
        scores[i] = is_byte ? -100 : 0;
    }
    gguf_put_str(w, "tokenizer.ggml.model", "llama", 5);
    gguf_put_str(w, "tokenizer.ggml.pre", "default", 7);
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, PRM_VOCAB);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, PRM_VOCAB);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, PRM_VOCAB);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
}

/* mark, good: texts for the keys of the file; NULL: the key is absent. */
static inline int tiny_prm_write(const char *path, const char *mark, const char *good,
                                 struct err *e) {
    static float values[PRM_VOCAB * PRM_D];
    uint64_t d = PRM_D, v = PRM_VOCAB;
    struct gguf_writer *w;
    int rc = gguf_writer_new(&w, path, 0, 0, e);
    if (rc) return rc;
    gguf_put_str(w, "general.architecture", "llama", 5);
    gguf_put_u32(w, "llama.context_length", PRM_CTX);
    gguf_put_u32(w, "llama.embedding_length", PRM_D);
    gguf_put_u32(w, "llama.block_count", 1);
    gguf_put_u32(w, "llama.feed_forward_length", PRM_D);
    gguf_put_u32(w, "llama.attention.head_count", 1);
    gguf_put_u32(w, "llama.attention.head_count_kv", 1);
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    if (mark) gguf_put_str(w, "chimere.prm.mark", mark, strlen(mark));
    if (good) gguf_put_str(w, "chimere.prm.good", good, strlen(good));
    gguf_put_str(w, "chimere.prm.bad", "wrong", 5);
    prm_vocab(w);
    const struct prm_tensor rows[] = {
        {"token_embd.weight", 2, {d, v}, 0, 0},
        {"output_norm.weight", 1, {d, 1}, 0, 1},
        {"output.weight", 2, {d, v}, 0, 0},
        {"blk.0.attn_norm.weight", 1, {d, 1}, 0, 1},
        {"blk.0.attn_q.weight", 2, {d, d}, 0, 0},
        {"blk.0.attn_k.weight", 2, {d, d}, 0, 0}, /* over equal keys attention is the mean */
        {"blk.0.attn_v.weight", 2, {d, d}, 1, 0},
        {"blk.0.attn_output.weight", 2, {d, d}, 1, 0},
        {"blk.0.ffn_norm.weight", 1, {d, 1}, 0, 1},
        {"blk.0.ffn_gate.weight", 2, {d, d}, 0, 0},
        {"blk.0.ffn_up.weight", 2, {d, d}, 0, 0},
        {"blk.0.ffn_down.weight", 2, {d, d}, 0, 0},
    };
    int n_row = (int)(sizeof rows / sizeof *rows);
    for (int i = 0; i < n_row; i++)
        gguf_add_tensor(w, rows[i].name, QUANT_F32, rows[i].n_dims, rows[i].ne);
    for (int i = 0; i < n_row && !rc; i++) {
        const struct prm_tensor *t = &rows[i];
        uint64_t size = t->ne[0] * (t->n_dims > 1 ? t->ne[1] : 1);
        for (uint64_t k = 0; k < size; k++)
            values[k] = t->n_dims > 1 && k / d == k % d ? t->diagonal : t->all;
        if (i == 0) /* words have the first direction, "bad" has the second */
            for (uint64_t k = 0; k < v; k++) values[k * d + (k == 259)] = 1;
        if (i == 2) { /* "fine" without a trace of the second direction, "wrong" with one */
            values[261 * d] = 1;
            values[262 * d + 1] = 1000;
        }
        rc = gguf_write_data(w, values, size * sizeof *values, e);
    }
    if (rc) gguf_writer_abort(w);
    return rc ? rc : gguf_writer_close(w, e);
}

#endif
