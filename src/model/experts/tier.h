/* tier.h: routed experts on disk, and a pool of memory that holds those in use.
 *
 * An expert is one record of the pool: gate, up and down together, in the device's form. A directory per layer maps
 * experts to records. Threads read the experts that a batch needs and the pool lacks, while those present are computed.
 * Each layer has a fixed share of the pool (experts_share.h). The expert with the lowest sum of last use and logarithm of its decayed
 * count is evicted first; of those that this batch still needs, the one that it needs last. Belongs to the model; any
 * number of forward passes may call tier_run, which runs one call at a time. Only for devices in host memory. A failed
 * read fails the batch: an expert that was not read is never computed. */
#ifndef CHIMERE_MODEL_EXPERTS_TIER_H
#define CHIMERE_MODEL_EXPERTS_TIER_H

#include "model/arch/arch.h"
#include "model/experts/experts_lend.h"

struct err;
struct gguf;
struct tier;

/* minimum of records per layer, or n_used, or all its experts if fewer */
enum { TIER_MIN_SLOTS = 16 };

struct tier_stats {
    uint64_t n_hit, n_miss; /* distinct experts per layer and batch: in the pool, or not yet */
    uint64_t n_pass;        /* layers times batches */
    uint64_t n_bytes;       /* read */
    int64_t wait_ns;        /* time for which computing waited for reads */
    int64_t busy_ns;        /* time during which reads were in flight */
    uint64_t n_slot, n_expert, pool_bytes; /* of all layers */
    bool is_direct;                        /* reads bypass the page cache */
    bool is_uring;                         /* the kernel has the queue of reads (reader.h) */
    /* the pool is in device memory (expert_slots.h): its copies delay computing, wait_ns equals busy_ns */
    bool is_device;
};

/* The routed experts of one layer: views of the file's tensors; filled by weights.c. */
struct tier_layer_weights {
    struct weight *part[3]; /* gate, up, down; parts without data are skipped */
};

/* Takes over the weights in layer[0..n_layer): their data then points into the pool; n_out, n_in and type are
 * unchanged. A layer whose parts have no data has no experts. Uses at most pool_bytes, and room_bytes for
 * tier_lend_room. CHIMERE_ELIMIT: not enough for TIER_MIN_SLOTS per layer. */
int tier_new(struct tier **out, const struct hparams *hp, const struct gguf *g, struct dev *d,
             const struct tier_layer_weights *layer, int32_t n_layer, uint64_t pool_bytes,
             uint64_t room_bytes, struct err *e);
void tier_free(struct tier *t);

/* What to compute: pass, place and early as in moe_args. */
struct tier_group {
    enum moe_pass pass;
    const int32_t *place, *early; /* views */
    bool is_last;
};
/* Calls `compute` once or more, until it has computed all experts of ids [n_tok, n_used]: a long batch in groups, a
 * step at once, or if experts are missing, those present early. An id of -1 counts as its column number, a lower one is
 * skipped. After a failure the rest is not computed. */
int tier_run(struct tier *t, int32_t il, const int32_t *ids, int32_t n_tok,
             void (*compute)(void *ud, const struct tier_group *g), void *ud, struct err *e);

/* Tokens that used each expert of each layer since tier_new, [n_layer, n_expert]. Changes while batches run. */
const uint32_t *tier_uses(const struct tier *t);
/* Divides the pool among the layers by the uses of earlier runs. Starts a thread that reads the most used experts into slots that no batch has filled yet. It stops
 * when there are none, or when a read fails, and leaves the disk to long batches. uses: as tier_uses. Once per tier,
 * before its first batch. */
int tier_fill(struct tier *t, const uint32_t *uses, struct err *e);

/* experts_lend.h, for experts on disk: records in idle pages are used like those of the pool. */
void *tier_lend_room(struct tier *t, const void *owner, size_t n);
bool tier_lend_begin(struct tier *t, const void *owner, const struct page_array *a, int32_t n);
void tier_lend_parts(struct tier *t, uint32_t parts);
void tier_lend_end(struct tier *t, const void *owner);

void tier_stats(struct tier *t, struct tier_stats *out);
/* Bytes of an expert's record in the pool; part: the layer's gate, up and down in the file's form. */
size_t tier_record_bytes(struct dev *d, const struct weight *const part[3]);
/* Experts of a layer that the smallest pool has room for. */
int32_t tier_least_slots(int32_t n_expert, int32_t n_used);
/* Memory in addition to the pool. */
size_t tier_own_bytes(size_t most_part_bytes);

#endif
