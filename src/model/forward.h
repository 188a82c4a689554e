/* forward.h: runs tokens of sequences through a model: the hop between scheduler and blocks.
 *
 * A forward owns the activation memory for batches of up to n_tok_max tokens, planned once; running
 * allocates nothing. Runs of one call are independent sequences, each with its next n_tok >= 1 tokens;
 * prefill is decode with more tokens. After a failure (CHIMERE_EDEVICE, ...) the sequences' content is
 * undefined until rewound; argument errors are found before anything runs. One thread at a time. */
#ifndef CHIMERE_MODEL_FORWARD_H
#define CHIMERE_MODEL_FORWARD_H

#include "model/lora.h"
#include "model/seq.h"

enum want { WANT_NONE, WANT_LAST, WANT_ALL }; /* rows of logits */

struct batch_item {
    struct seq *seq;
    const int32_t *tokens;
    int32_t n_tok;
    bool defer; /* these may be dropped again by seq_drop: n_tok <= STEP_MAX_TOK, pool with log */
    enum want want;
    const struct lora_use *loras;
    int32_t n_lora;
    struct moe_keep keep; /* of the experts that the trunk's routers choose */
    const float *rows; /* of an image, in place of tokens: of libllama's models alone; NULL: text */
    bool is_whole;     /* they attend to each other */
};

struct forward;
int forward_new(struct forward **out, struct model *m, struct seq_pool *p, int32_t n_tok_max,
                int32_t n_out_max, struct err *e);
void forward_free(struct forward *f);
uint64_t forward_bytes(const struct model *m, int32_t n_tok_max, int32_t n_out_max);
/* What the device reserves scratch for; n_ctx 0: an encoder. */
struct dev_need forward_need(const struct model *m, int64_t n_ctx, int32_t n_tok_max);

/* Sequences are advanced (pages reserved, positions moved). *logits: [rows wanted, n_vocab] in the order
 * of runs, on the host, valid until the next call; NULL if none was wanted. logits NULL: the rows stay where
 * they are, and nobody waits for them: forward_select and forward_row tell. */
int forward_run(struct forward *f, const struct batch_item *runs, int32_t n_run,
                const float **logits, struct err *e);

/* The same of a model that has a part of the layers: in: residual rows [n_tok, n_embd] of the part before, host
 * memory; NULL: it is the first, and embeds. out: room for what the next part reads; NULL: it is the last. */
int forward_run_part(struct forward *f, const struct batch_item *runs, int32_t n_run,
                     const float *in, float *out, const float **logits, struct err *e);

/* Of a slice (model_open_slice): sums halves of layers over the ranks of the link, whose forwards run the same batches
 * at the same time. Logits are those of its rows of the head, [rows wanted, n_logit]. l is borrowed until
 * forward_free. */
struct link;
void forward_link(struct forward *f, struct link *l, int32_t rank);

/* ops->select over the rows of the last run: fills a's logits, n_row and n_vocab. */
int forward_select(struct forward *f, struct select_args *a, struct err *e);
/* The i-th of those rows on the host, valid until the next run; NULL after a failure. */
const float *forward_row(struct forward *f, int32_t i, struct err *e);

/* Post-norm hidden rows of the last forward_run's tokens on the device, [n_tok, n_embd] in batch order;
 * what prediction blocks and embeddings read. */
const float *forward_hidden(const struct forward *f);

/* Its experts: experts_replay, experts_observe. */
struct experts;
struct experts *forward_experts(struct forward *f);

/* ---- multi-token prediction (models with nextn blocks) ---- */

/* Feeds block 0 with pairs (hidden row of position pos + i, token at position pos + i + 1) and returns
 * the logits for the token behind the last pair of each run, and that pair's own hidden row to chain
 * further. Keys and values stand at the hidden row's position; pages up to pos + n_tok must be reserved.
 * n_id: logits of the first so many ids, a row every n_vocab; fewer than all only on a host device, and of
 * whole tiles there (a multiple of 32). */
struct mtp_item {
    struct seq *seq;
    const int32_t *tokens;
    int32_t n_tok;
    int64_t pos;
    const float *hidden; /* device [n_tok, n_embd] */
    bool want;           /* logits of the last pair */
};
int forward_mtp(struct forward *f, const struct mtp_item *runs, int32_t n_run, int32_t n_id,
                const float **logits, const float **hidden, struct err *e);
/* The slot's remembered hidden row (device, [n_embd]): part of the sequence's state. */
float *forward_seq_hidden(struct forward *f, struct seq *s);

/* ---- encoders ---- */

/* Texts through a model that is not causal, or through a causal one whose last row serves: pooled rows
 * [n_text, n_embd] (POOL_RANK: one score in column 0) to out on the host. types: segment ids or NULL. */
struct encode_text {
    const int32_t *tokens;
    const int32_t *types;
    int32_t n_tok;
};
int forward_encode(struct forward *f, const struct encode_text *texts, int32_t n_text, float *out,
                   struct err *e);

#endif
