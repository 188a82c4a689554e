/* forward.h: runs tokens of sequences through a model; called by the scheduler, calls the blocks.
 *
 * A forward owns the activation memory for batches of up to n_tok_max tokens, planned once; running does not allocate.
 * The runs of a call are independent sequences, each with its next n_tok >= 1 tokens; prefill is decode with more
 * tokens. After a failure (CHIMERE_EDEVICE, ...) the sequences' content is undefined until they are rewound; argument
 * errors are detected before anything runs. One thread at a time. */
#ifndef CHIMERE_MODEL_FORWARD_H
#define CHIMERE_MODEL_FORWARD_H

#include "model/lora.h"
#include "model/seq/seq.h"

enum want { WANT_NONE, WANT_LAST, WANT_ALL }; /* rows of logits */

struct batch_item {
    struct seq *seq;
    const int32_t *tokens;
    int32_t n_tok;
    bool defer; /* seq_drop may drop these again: n_tok <= STEP_MAX_TOK, pool with log */
    enum want want;
    const struct lora_use *loras;
    int32_t n_lora;
    struct moe_keep keep; /* for the experts that the trunk's routers choose */
    const float *rows;    /* of an image, instead of tokens; libllama models only; NULL: text */
    bool is_whole;        /* these rows attend to each other */
    bool no_taps;         /* nothing reads the taps of this run */
};

struct forward;
int forward_new(struct forward **out, struct model *m, struct seq_pool *p, int32_t n_tok_max,
                int32_t n_out_max, struct err *e);
void forward_free(struct forward *f);
uint64_t forward_bytes(const struct model *m, int32_t n_tok_max, int32_t n_out_max);
/* Sizes for which the device reserves scratch; n_ctx 0: an encoder. */
struct dev_need forward_need(const struct model *m, int64_t n_ctx, int32_t n_tok_max);

/* Advances the sequences (reserves pages, moves positions). *logits: [requested rows, n_vocab] in the order of runs,
 * on the host, valid until the next call; NULL if none was requested. logits NULL: the rows stay on the device, and
 * the call does not wait for them; use forward_select and forward_row. */
int forward_run(struct forward *f, const struct batch_item *runs, int32_t n_run,
                const float **logits, struct err *e);

/* The same for a model with a part of the layers. in: residual rows [n_tok, n_embd] of the previous
 * part, host memory; NULL: this is the first part, which embeds. out: destination for the next part's
 * input; NULL: this is the last part. */
int forward_run_part(struct forward *f, const struct batch_item *runs, int32_t n_run,
                     const float *in, float *out, const float **logits, struct err *e);

/* For a slice (model_open_slice): adds up the results of each half of a layer (mixers, feed-forward) over the ranks of
 * the link; all ranks run the same batches at the same time. Logits are those of the slice's rows of the head,
 * [requested rows, n_logit]. l is borrowed until forward_free. */
struct link;
void forward_link(struct forward *f, struct link *l, int32_t rank);
/* Lets runs with logits NULL copy their rows to logits [requested rows, stride], on any device of a link with direct
 * access. */
void forward_join(struct forward *f, float *logits, int64_t stride);

/* ops->select over the rows of logits of the last run; fills a's logits, n_row and n_vocab. */
int forward_select(struct forward *f, struct select_args *a, struct err *e);
/* The i-th of these rows on the host, valid until the next run; NULL after a failure. */
const float *forward_row(struct forward *f, int32_t i, struct err *e);

/* Hidden rows after the final norm, of the last forward_run's tokens, on the device, [n_tok, n_embd] in batch order;
 * read by prediction blocks and embeddings. */
const float *forward_hidden(const struct forward *f);

/* For experts_replay and experts_observe. */
struct experts;
struct experts *forward_experts(struct forward *f);

/* ---- multi-token prediction (models with nextn blocks) ---- */

/* Feeds block 0 with pairs (hidden row of position pos + i, token at position pos + i + 1). Returns the logits for the
 * token after the last pair of each run, and that pair's own hidden row, for chaining. Keys and values are stored at
 * the hidden row's position; pages up to pos + n_tok must be reserved. Rows of logits have draft_head_n_id ids. For a
 * slice, all ranks call it, and each gets the logits of its rows of the head. logits NULL: as in forward_run. */
struct mtp_item {
    struct seq *seq;
    const int32_t *tokens;
    int32_t n_tok;
    int64_t pos;
    const float *hidden; /* device [n_tok, n_embd] */
    bool want;           /* logits of the last pair */
};
int forward_mtp(struct forward *f, const struct mtp_item *runs, int32_t n_run, const float **logits,
                const float **hidden, struct err *e);
/* For a slice: floats [n] of every rank, in the order of ranks, to all [n_rank, n], on the host. All ranks call it
 * after the same runs. */
int forward_gather(struct forward *f, const float *own, int32_t n, float *all, struct err *e);

/* ---- encoders ---- */

/* Runs texts through a model that is not causal, or through a causal one whose last row is used. Writes vectors
 * [n_text, arch_n_vector] (POOL_RANK: one score in column 0) to out, on the host. types: segment ids or NULL. */
struct encode_text {
    const int32_t *tokens;
    const int32_t *types;
    int32_t n_tok;
};
int forward_encode(struct forward *f, const struct encode_text *texts, int32_t n_text, float *out,
                   struct err *e);

#endif
