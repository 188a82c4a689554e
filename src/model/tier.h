/* tier.h: routed experts on disk, and a pool of memory that holds those in use.
 *
 * An expert is one record of the pool, gate, up and down together in the device's form; a directory per layer
 * maps experts to records. What a batch needs and the pool lacks is read by threads while what is there is
 * computed. Each layer has a fixed share of the pool. Who leaves it is the expert with the lowest sum of last
 * use and logarithm of its decayed count; of those that this batch still needs, the one it needs last.
 * Belongs to the model; any number of forward passes may call tier_run, one at a time runs. Only for devices
 * in host memory. A failed read fails the batch: no expert is computed from it. */
#ifndef CHIMERE_MODEL_TIER_H
#define CHIMERE_MODEL_TIER_H

#include "model/arch.h"

struct err;
struct gguf;
struct tier;

enum { TIER_MIN_SLOTS = 16 }; /* records of a layer at least, or n_used, or all its experts */

struct tier_stats {
    uint64_t n_hit, n_miss; /* distinct experts of a layer's batch: in the pool, or not */
    uint64_t n_pass;        /* layers times batches */
    uint64_t n_bytes;       /* read */
    int64_t wait_ns;        /* that computing waited for reads */
    int64_t busy_ns;        /* that reads were under way */
    uint64_t n_slot, n_expert, pool_bytes; /* of all layers */
    bool is_direct;                        /* reads bypass the page cache */
};

/* The routed experts of one layer: views of the file's tensors; filled by weights.c. */
struct tier_layer_weights {
    struct weight *part[3]; /* gate, up, down; a part without data is left out */
};

/* Takes over what layer[0..n_layer) point to: their weights then name the pool, and n_out, n_in and type stay.
 * A layer whose parts have no data has no experts. At most pool_bytes. CHIMERE_ELIMIT: too few for
 * TIER_MIN_SLOTS of each layer. */
int tier_new(struct tier **out, const struct hparams *hp, const struct gguf *g, struct dev *d,
             const struct tier_layer_weights *layer, int32_t n_layer, uint64_t pool_bytes,
             struct err *e);
void tier_free(struct tier *t);

/* Calls compute with places for moe_args until all experts of ids [n_tok, n_used] had their turn, is_last
 * with the last of them. An id of -1 stands for its column, one below for none. After a failure the rest is not computed. */
int tier_run(struct tier *t, int32_t il, const int32_t *ids, int32_t n_tok,
             void (*compute)(void *ud, const int32_t *place, bool is_last), void *ud,
             struct err *e);

void tier_stats(struct tier *t, struct tier_stats *out);
/* Of one layer's record in the pool; w: its parts as the file has them. */
size_t tier_record_bytes(struct dev *d, const struct weight *const part[3]);
/* Memory beside the pool. */
size_t tier_own_bytes(size_t most_part_bytes);

#endif
