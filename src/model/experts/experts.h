/* experts.h: where the routed experts of a mixture are stored, and how a layer computes them.
 *
 * The tiers are device memory and, per layer, host memory, or slots of device memory over host memory (expert_slots.h); for the
 * processor's experts, memory, or a pool in memory over the disk (tier.h). Experts of layers in host
 * memory are multiplied by the host (decoding), or streamed through two staging buffers of the device (long batches). Blocks call experts_run and do not know the tier. struct
 * expert_store belongs to the model and is immutable after loading; struct experts belongs to one forward pass and is
 * used by one thread. */
#ifndef CHIMERE_MODEL_EXPERTS_EXPERTS_H
#define CHIMERE_MODEL_EXPERTS_EXPERTS_H

#include "kernels/ops.h"
#include "model/arch/arch.h"

struct err;
struct model;
struct expert_slots;
struct tier;
struct tier_stats;
struct routing;

/* Whether the experts of layer il can be in host memory, or in a model without experts its dense feed-forward, which is
 * then placed, multiplied and streamed like a single expert. */
bool experts_can_move(const struct hparams *hp, int32_t il);

/* Keeps the experts of the first n_layer layers that have such in host memory. */
struct expert_placement {
    struct dev *host; /* owned by the model, also after failure; NULL: all are on the device */
    int32_t n_layer;
    bool streams; /* long batches stream them to the device (experts_stream) */
    /* memory for experts that are read from the file on demand: all of a model on the processor, or beside a device
     * those of the n_layer layers; 0: all experts are in memory */
    uint64_t pool_bytes;
    uint64_t
        room_bytes; /* with pool_bytes: for the pages of one sequence pool, whose idle pages then hold experts */
    /* device memory for slots of the experts in use, while all are in host memory; 0: no slots. n_layer is then 0 */
    uint64_t slot_bytes;
    /* host memory with which weights that are used once are read without the page cache; 0: through it */
    uint64_t read_bytes;
};

/* The routed experts of one layer, or its dense feed-forward; zero if they are on the device. */
struct expert_layer {
    bool on_host;
    struct weight router;  /* in the host's form; no data: a dense feed-forward */
    const float *select_b; /* [n_expert], host memory; NULL: none */
    struct moe_bias bias;  /* host memory */
    struct weight file[3]; /* gate, up, down as stored in the file: the source of streaming */
};

struct expert_store {
    struct dev *host;           /* borrowed; NULL: all experts are on the device */
    void *block;                /* owned by host: the experts in its form */
    size_t bytes;               /* of block */
    char *staging[2];           /* views, device: one layer's experts each; NULL: never streamed */
    struct expert_layer *layer; /* owned [n_layer] */
    struct tier *tier;          /* owned; NULL: no experts are on disk */
    struct expert_slots *slots; /* owned; NULL: no experts are in slots */
};

/* Whether a batch of n_tok rows streams its experts, or dense blocks on the host, if the model has staging buffers. Either
 * a layer's experts cross the bus, or the host multiplies them. With b bytes per weight, a bus of 25 GB/s and a host of
 * 0.5 T products per second, the bus is faster from 20 b rows per expert on: 9 rows at 3.5 bits. Results on host and
 * device differ in the last bits, so the limit is fixed and steps never stream. Dense blocks of 9.4 GB took 0.46 s to
 * stream and 11 ms per row on a host of 16 cores (tiers.dense.rearranged). */
enum { STREAM_ROWS_PER_EXPERT = 9, STREAM_ROWS_DENSE = 42 };
bool experts_stream(const struct hparams *hp, int32_t n_tok);

struct experts;

/* m is borrowed. Reserves the host's scratch for need. Returns CHIMERE_ENOMEM on failure. */
int experts_new(struct experts **out, const struct model *m, const struct dev_need *need,
                int32_t n_tok_max, struct err *e);
void experts_free(struct experts *x);

/* From now on r replaces the choice of the trunk's routers; their weights are still used. Sequences of n_slot slots
 * read r at distant positions. r is borrowed until experts_free. At most once. */
int experts_replay(struct experts *x, const struct routing *r, int32_t n_slot, struct err *e);
/* From now on fn receives the choice of each trunk layer, [n_tok, n_used], after it was computed.
 * CHIMERE_EUNSUPPORTED unless the processor computes everything. At most once. */
int experts_observe(struct experts *x,
                    void (*fn)(void *ud, int32_t mixture, const int32_t *ids, int32_t n_tok),
                    void *ud, struct err *e);

/* Selects the tier for a batch of n_tok rows and starts streaming its first layer. keep: for each span's
 * rows; NULL: all experts are kept. */
void experts_begin(struct experts *x, const struct span *spans, const struct moe_keep *keep,
                   int32_t n_span, int32_t n_tok);

/* Adds the mixture of layer il to a->out. a describes it as if all experts were on the device. */
void experts_run(struct experts *x, int32_t il, const struct moe_args *a);
/* The dense feed-forward of layer il. */
void experts_run_dense(struct experts *x, int32_t il, const struct ffn_args *a);

/* Counters of experts on disk or in slots since the model was opened; returns false if there are none. Any thread. */
bool experts_stats(const struct expert_store *s, struct tier_stats *out);
/* Tokens that used each expert, [n_layer, n_expert], and the fill with the most used ones before the first batch
 * (expert_slots.h, tier.h). Uses are NULL if no experts are on disk or in slots; then there is nothing to fill. */
const uint32_t *experts_uses(const struct expert_store *s);
int experts_fill(const struct expert_store *s, const uint32_t *uses, struct err *e);

/* What to keep for a token, if the token before it was drawn from a distribution of so many nats of entropy: between the
 * mass of k, if the model was sure, and all experts, from k.all_at nats on. */
struct moe_keep experts_keep_after(struct moe_keep k, float entropy);

/* Experts that routers chose for rows to which keep applied, and those that were kept, since the start. Counted only
 * if the processor computes everything. */
struct experts_kept {
    uint64_t n_chosen, n_stayed;
};
void experts_kept(const struct experts *x, struct experts_kept *out);

/* 0, or the first failure of the host or of this batch's reads. Waits for the host. */
int experts_status(struct experts *x, struct err *e);

#endif
