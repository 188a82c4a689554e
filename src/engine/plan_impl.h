/* plan_impl.h: the data from which plans are computed, and the interface to plan_foreign.c for other runtimes. */
#ifndef CHIMERE_ENGINE_PLAN_IMPL_H
#define CHIMERE_ENGINE_PLAN_IMPL_H

#include "engine/plan.h"
#include "format/gguf.h"
#include "model/model.h"
#include "model/slice.h"

/* Data of a file that another runtime runs, from keys that all architectures share. */
struct plan_foreign {
    int32_t n_gpu_layers; /* in: as in plan_params */
    const char *mmproj;   /* in: as in plan_params; borrowed */
    int64_t n_ctx_train, n_layer, n_embd, n_ff, n_vocab;
    int64_t k_width, v_width; /* width of one position's keys and values, summed over layers */
    uint64_t state_bytes;     /* recurrent state of one sequence */
    uint64_t vision_bytes;    /* weights of mmproj, and buffers for one image */
    /* the fraction num / den of the weights is on the host, not on a GPU */
    uint64_t weight_bytes, host_share_num, host_share_den;
};

/* What a file's header contains: the hyperparameters that the *_bytes functions need, and where the bytes of its
 * weights go. */
struct blueprint {
    struct model *m;  /* owned; only hp is filled; NULL if foreign is set */
    struct dev *dev;  /* borrowed; NULL: the processor */
    struct dev *host; /* borrowed; the processor's device, NULL: not given */
    /* borrowed; NULL: our forward pass runs the file; else all fields below are empty */
    struct plan_foreign *foreign;
    struct layer_part part;    /* of the layers; end 0: all layers */
    struct model_slice *slice; /* owned; NULL: whole layers */
    int32_t rank, n_rank, n_engine;
    uint64_t weight_bytes, file_bytes, own_bytes;
    /* For the processor. disk_bytes: all routed experts in its form; record_bytes: one expert per layer, likewise;
     * part_bytes: largest matrix of one expert in the file's form; least_pool: smallest pool, 0: all experts are in
     * memory. */
    uint64_t disk_bytes, record_bytes, part_bytes, least_pool;
    /* bytes of each mixture layer's experts on the device and on the host, in layer order; or, in a model without
     * experts, of the dense feed-forward (experts_can_move) */
    uint64_t expert_dev[ARCH_MAX_LAYERS], expert_host[ARCH_MAX_LAYERS];
    uint64_t
        expert_record[ARCH_MAX_LAYERS]; /* of one expert, in the form of a host's pool (tier.h) */
    /* how many mixture layers exist; how many may go to the host */
    int32_t n_moe, n_cpu_most;
    int32_t n_cpu_least;
    bool uses_slots;      /* experts are in slots of device memory (expert_slots.h) */
    bool uses_disk;       /* experts that go to the host are in a pool over the disk */
    bool has_expert_bias; /* then they cannot be in slots */
    bool is_dense;        /* no layer has experts */
    bool has_tails; /* matrices in two parts: only if all experts are in the device's memory */
};

int plan_foreign_read(struct plan_foreign *f, const struct gguf *g, struct err *e);
void plan_foreign_count(struct memory_plan *p, const struct plan_foreign *f);

#endif
