/* experts.h: where the routed experts of a mixture live and how a layer computes them.
 *
 * Today's tiers: device memory, or host memory per layer; of the processor's model, all in memory or a pool of
 * memory over the disk (tier.h). Experts in host memory are multiplied by the host
 * (decoding), or streamed through two staging buffers of the device (long batches). Blocks call experts_run
 * and know no tier. struct expert_store belongs to the model and is immutable after loading; struct experts
 * belongs to one forward pass and is used by one thread. */
#ifndef CHIMERE_MODEL_EXPERTS_H
#define CHIMERE_MODEL_EXPERTS_H

#include "kernels/ops.h"
#include "model/arch.h"

struct err;
struct model;
struct tier;
struct tier_stats;
struct routing;

/* The experts of the first n_layer mixtures stay in host memory. */
struct expert_placement {
    struct dev
        *host; /* owned by the model from here on, also on failure; NULL: all on the device */
    int32_t n_layer;
    bool streams; /* long batches stream them to the device (experts_stream) */
    uint64_t
        pool_bytes; /* memory for experts that are read from the file when they are needed, and for
                            nothing else; 0: all are in memory. Of a device in host memory alone */
};

/* The routed experts of one layer; zero if they are on the device. */
struct expert_layer {
    bool on_host;
    struct weight router;  /* in the host's form */
    const float *select_b; /* [n_expert], host memory; NULL: none */
    struct moe_bias bias;  /* host memory */
    struct weight file[3]; /* gate, up, down as stored in the file: the source of streaming */
};

struct expert_store {
    struct dev *host;           /* borrowed; NULL: all experts are on the device */
    void *block;                /* owned by host: its form of the experts */
    size_t bytes;               /* of block */
    char *staging[2];           /* views, device: one layer's experts each; NULL: never streamed */
    struct expert_layer *layer; /* owned [n_layer] */
    struct tier *tier;          /* owned; NULL: no experts are on disk */
};

/* Whether a batch of n_tok rows streams its experts, if the model has staging buffers. A layer's experts
 * cross the bus, or the host multiplies them. With b bytes per weight, a bus of 25 GB/s and a host of 0.5 T
 * products per second, the bus is faster from 20 b rows per expert: 9 rows at three and a half bits. Fixed,
 * and never for steps: where a batch is computed shows in its last bits. */
enum { STREAM_ROWS_PER_EXPERT = 9 };
bool experts_stream(const struct hparams *hp, int32_t n_tok);

struct experts;

/* m is borrowed. Reserves the host's scratch for need. Fails with ENOMEM. */
int experts_new(struct experts **out, const struct model *m, const struct dev_need *need,
                int32_t n_tok_max, struct err *e);
void experts_free(struct experts *x);

/* From here on r replaces the choice of the trunk's routers, which keep their weights: sequences of n_slot
 * slots read it from places far apart. r is borrowed until experts_free. At most once. */
int experts_replay(struct experts *x, const struct routing *r, int32_t n_slot, struct err *e);
/* From here on fn gets the choice of each layer of the trunk, [n_tok, n_used], after it was computed.
 * CHIMERE_EUNSUPPORTED unless the processor computes all. At most once. */
int experts_observe(struct experts *x,
                    void (*fn)(void *ud, int32_t mixture, const int32_t *ids, int32_t n_tok),
                    void *ud, struct err *e);

/* Chooses the tier of a batch of n_tok rows and starts to stream its first layer. keep: of each span's rows; NULL:
 * all experts stay. */
void experts_begin(struct experts *x, const struct span *spans, const struct moe_keep *keep,
                   int32_t n_span, int32_t n_tok);

/* Adds the mixture of layer il to a->out. a describes it with all experts on the device. */
void experts_run(struct experts *x, int32_t il, const struct moe_args *a);

/* Counters of experts on disk since the model was opened; false: none are. */
bool experts_stats(const struct experts *x, struct tier_stats *out);

/* Experts that routers chose for rows that keep applied to, and those that stayed, since the start. Counted where
 * the processor computes all. */
struct experts_kept {
    uint64_t n_chosen, n_stayed;
};
void experts_kept(const struct experts *x, struct experts_kept *out);

/* 0, or the first failure of the host, or of this batch's reads. Waits for the host. */
int experts_status(struct experts *x, struct err *e);

#endif
