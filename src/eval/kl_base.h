/* kl_base.h: a file of one model's distributions over a text, to measure others against.
 *
 *   offset  bytes  meaning (little-endian)
 *        0      8  "CHKLBASE"
 *        8      4  version, 1
 *       12      4  n_vocab
 *       16      8  hash of the tokenizer
 *       24      4  ctx: tokens of a window
 *       28      4  first: position whose logits are the first kept; n_row = ctx - 1 - first a window
 *       32      8  n_window
 *       40      4  CRC-32C of bytes 0..39
 *       44      4  0
 *       48     4k  token ids, i32 [n_window, ctx], padded with zeros to a multiple of 8 bytes
 *        .      .  rows [n_window, n_row]: f32 top, u32 0, then u16 [n_vocab] padded to 8 bytes
 *
 * A row's log-probabilities are top - 32 (u / 65535)^2: fine steps where the probability is, what lies more
 * than 32 nats below the likeliest token counts as there. Two bytes a token instead of four, with an
 * error of at most 1e-3 of a nat where p = 1e-7 of the likeliest and 1e-5 near it. */
#ifndef CHIMERE_EVAL_KL_BASE_H
#define CHIMERE_EVAL_KL_BASE_H

#include "base/err.h"
#include "base/file.h"

enum {
    KL_BASE_VERSION = 1,
    KL_BASE_MAX_VOCAB = 1 << 21,
    KL_BASE_MAX_CTX = 1 << 20,
    KL_BASE_RANGE = 32, /* nats */
};

struct kl_base_shape {
    int32_t n_vocab, ctx, first;
    uint64_t n_window, tok_hash;
};

/* ---- reading: views of a map, immutable ---- */

struct kl_base {
    struct kl_base_shape shape;
    const int32_t *tokens; /* view [n_window, ctx], every id below n_vocab */
    const unsigned char *rows;
    uint64_t row_bytes;
    struct file_map map;   /* empty over memory of somebody else */
    float levels[1 << 16]; /* 32 (u / 65535)^2 */
};

/* *out by kl_base_close. Any damage, or sizes that do not add up, is refused. */
int kl_base_open(struct kl_base **out, const char *path, struct err *e);
int kl_base_open_memory(struct kl_base **out, const void *data, uint64_t n, const char *name,
                        struct err *e);
void kl_base_close(struct kl_base *b);
/* Log-probabilities, [n_vocab], of row `row` of a window. */
void kl_base_row(const struct kl_base *b, uint64_t window, int32_t row, float *out);

/* ---- writing ---- */

struct kl_base_writer;
int kl_base_create(struct kl_base_writer **out, const char *path, const struct kl_base_shape *s,
                   const int32_t *tokens, struct err *e);
/* Rows may come in any order; norm is the logits' log-sum. */
int kl_base_put(struct kl_base_writer *w, uint64_t window, int32_t row, const float *logits,
                double norm, struct err *e);
int kl_base_commit(struct kl_base_writer *w, struct err *e); /* frees w in any case */
void kl_base_abort(struct kl_base_writer *w);

#endif
