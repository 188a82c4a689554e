/* A BERT model whose vectors mean something, made in a moment: a word's embedding is the unit of its meaning, words
 * without one are zero, layers add nothing; so a text's vector is the mean of its words' meanings, and synonyms are one.
 * As a cross-encoder it scores how large a share of both texts the first meaning has. */
#ifndef CHIMERE_TEST_TINY_BERT_H
#define CHIMERE_TEST_TINY_BERT_H

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "backend/embed/embed.h"
#include "backend/embed/rerank.h"
#include "format/gguf.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"
#include "model/vocab.h"

enum { TINY_D = 32, TINY_CTX = 512, TINY_SPECIALS = 5, TINY_MAX_WORDS = 64 };

struct tiny_word {
    const char *text;
    int meaning; /* below TINY_D */
};

struct tiny_tensor {
    const char *name;
    uint32_t n_dims;
    uint64_t ne[2];
    float diagonal, all; /* values: of a square matrix's diagonal, of all others */
};

static inline int tiny_bert_write(const char *path, const struct tiny_word *words, int n,
                                  bool ranks, struct err *e) {
    static const char *const marks[TINY_SPECIALS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    static float zeros[(TINY_MAX_WORDS + TINY_SPECIALS + TINY_CTX) * TINY_D];
    static char texts[TINY_MAX_WORDS][40];
    struct slice tokens[TINY_MAX_WORDS + TINY_SPECIALS];
    int32_t types[TINY_MAX_WORDS + TINY_SPECIALS];
    uint64_t n_vocab = (uint64_t)n + TINY_SPECIALS, d = TINY_D;
    struct gguf_writer *w;
    int rc = gguf_writer_new(&w, path, 0, 0, e);
    if (rc) return rc;
    for (int i = 0; i < (int)n_vocab; ++i) {
        int k = i - TINY_SPECIALS;
        if (k >= 0) snprintf(texts[k], sizeof texts[k], "\xe2\x96\x81%s", words[k].text);
        const char *t = k < 0 ? marks[i] : texts[k];
        tokens[i] = (struct slice){t, strlen(t)};
        types[i] = k < 0 ? 3 : 1;
    }
    gguf_put_str(w, "general.architecture", "bert", 4);
    gguf_put_u32(w, "bert.context_length", TINY_CTX);
    gguf_put_u32(w, "bert.embedding_length", TINY_D);
    gguf_put_u32(w, "bert.block_count", 1);
    gguf_put_u32(w, "bert.feed_forward_length", TINY_D);
    gguf_put_u32(w, "bert.attention.head_count", 1);
    gguf_put_f32(w, "bert.attention.layer_norm_epsilon", 1e-12F);
    gguf_put_bool(w, "bert.attention.causal", false);
    gguf_put_u32(w, "bert.pooling_type", ranks ? 4 : 1);
    gguf_put_str(w, "tokenizer.ggml.model", "bert", 4);
    gguf_put_str(w, "tokenizer.ggml.pre", "default", 7);
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, n_vocab);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, n_vocab);
    gguf_put_bool(w, "tokenizer.ggml.normalizer.lowercase", true);
    gguf_put_u32(w, "tokenizer.ggml.padding_token_id", 0);
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 1);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 2);
    gguf_put_u32(w, "tokenizer.ggml.cls_token_id", 2);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 3);
    gguf_put_u32(w, "tokenizer.ggml.seperator_token_id", 3);
    gguf_put_u32(w, "tokenizer.ggml.mask_token_id", 4);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_put_bool(w, "tokenizer.ggml.add_eos_token", true);
    float mix = ranks ? 1 : 0; /* attention over zero keys is the mean of the values */
    const struct tiny_tensor rows[] = {
        {"token_embd.weight", 2, {d, n_vocab}, 0, 0},
        {"position_embd.weight", 2, {d, TINY_CTX}, 0, 0},
        {"token_embd_norm.weight", 1, {d, 1}, 0, 1},
        {"token_embd_norm.bias", 1, {d, 1}, 0, 0},
        {"blk.0.attn_q.weight", 2, {d, d}, 0, 0},
        {"blk.0.attn_k.weight", 2, {d, d}, 0, 0},
        {"blk.0.attn_v.weight", 2, {d, d}, mix, 0},
        {"blk.0.attn_output.weight", 2, {d, d}, mix, 0},
        {"blk.0.attn_output_norm.weight", 1, {d, 1}, 0, 1},
        {"blk.0.attn_output_norm.bias", 1, {d, 1}, 0, 0},
        {"blk.0.ffn_up.weight", 2, {d, d}, 0, 0},
        {"blk.0.ffn_down.weight", 2, {d, d}, 0, 0},
        {"blk.0.layer_output_norm.weight", 1, {d, 1}, 0, 1},
        {"blk.0.layer_output_norm.bias", 1, {d, 1}, 0, 0},
        {"cls.output.weight", 2, {d, 1}, 0, 0},
    };
    int n_row = (int)(sizeof rows / sizeof *rows) - !ranks;
    for (int i = 0; i < n_row; ++i)
        gguf_add_tensor(w, rows[i].name, QUANT_F32, rows[i].n_dims, rows[i].ne);
    for (int i = 0; i < n_row && !rc; ++i) {
        const struct tiny_tensor *t = &rows[i];
        uint64_t size = t->ne[0] * (t->n_dims > 1 ? t->ne[1] : 1);
        for (uint64_t k = 0; k < size; ++k)
            zeros[k] = t->n_dims > 1 && k / d == k % d ? t->diagonal : t->all;
        for (int k = 0; i == 0 && k < n; ++k)
            zeros[(k + TINY_SPECIALS) * TINY_D + words[k].meaning] = 1;
        if (ranks && i == n_row - 1) zeros[0] = 1;
        rc = gguf_write_data(w, zeros, size * sizeof *zeros, e);
    }
    if (rc) gguf_writer_abort(w);
    return rc ? rc : gguf_writer_close(w, e);
}

struct brain { /* one encoder and what is made of it */
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    struct embed *embed; /* one of the two */
    struct rerank *rerank;
};

static inline int brain_open(struct brain *b, const char *path, bool ranks, struct err *e) {
    *b = (struct brain){0};
    int rc = cpu_open(&b->dev, 1, CPU_ISA_BEST, e);
    if (!rc) rc = model_open(&b->m, path, b->dev, true, e);
    if (!rc) rc = vocab_load(&b->tok, b->m->gguf, e);
    if (!rc)
        rc = ranks ? rerank_open(&b->rerank, b->m, b->tok, 0, e)
                   : embed_open(&b->embed, b->m, b->tok, 0, e);
    return rc;
}

static inline void brain_close(struct brain *b) {
    embed_close(b->embed);
    rerank_close(b->rerank);
    tok_free(b->tok);
    model_close(b->m);
    b->dev->ops->close(b->dev);
}

#endif
