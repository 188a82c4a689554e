/* kl_base.h: a file with the distributions of one model over a text, to compare other models with.
 *
 *   offset  bytes  meaning (little-endian)
 *        0      8  "CHKLBASE"
 *        8      4  version, 1
 *       12      4  n_vocab
 *       16      8  hash of the tokenizer
 *       24      4  ctx: tokens of a window
 *       28      4  first: first position whose logits are kept; n_row = ctx - 1 - first rows per window
 *       32      8  n_window
 *       40      4  CRC-32C of bytes 0..39
 *       44      4  0
 *       48     4k  token ids, i32 [n_window, ctx], padded with zeros to a multiple of 8 bytes
 *        .      .  rows [n_window, n_row]: f32 top, u32 0, then u16 [n_vocab] padded to 8 bytes
 *
 * The log-probabilities of a row are top - 32 (u / 65535)^2. The steps are finest near the likeliest token. A
 * token more than 32 nats below the likeliest is stored as 32 nats below. This takes two bytes per token instead
 * of four. The error is at most 1e-3 of a nat at p = 1e-7 of the likeliest token, and 1e-5 near it. */
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

/* ---- reading: views of a file map, immutable ---- */

struct kl_base {
    struct kl_base_shape shape;
    const int32_t *tokens; /* view [n_window, ctx], every id below n_vocab */
    const unsigned char *rows;
    uint64_t row_bytes;
    struct file_map map;   /* empty if the data is in memory that another module owns */
    float levels[1 << 16]; /* 32 (u / 65535)^2 */
};

/* Free *out with kl_base_close. A damaged file, or one whose sizes are inconsistent, is refused. */
int kl_base_open(struct kl_base **out, const char *path, struct err *e);
int kl_base_open_memory(struct kl_base **out, const void *data, uint64_t n, const char *name,
                        struct err *e);
void kl_base_close(struct kl_base *b);
/* Writes the log-probabilities [n_vocab] of row `row` of a window. */
void kl_base_row(const struct kl_base *b, uint64_t window, int32_t row, float *out);

/* ---- writing ---- */

struct kl_base_writer;
int kl_base_create(struct kl_base_writer **out, const char *path, const struct kl_base_shape *s,
                   const int32_t *tokens, struct err *e);
/* Rows may be written in any order. norm: log of the sum of exponentials of the logits. */
int kl_base_put(struct kl_base_writer *w, uint64_t window, int32_t row, const float *logits,
                double norm, struct err *e);
int kl_base_commit(struct kl_base_writer *w, struct err *e); /* frees w in any case */
void kl_base_abort(struct kl_base_writer *w);

#endif
