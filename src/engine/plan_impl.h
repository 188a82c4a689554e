/* plan_impl.h: what plans are made of, and the part of those for another runtime (plan_foreign.c). */
#ifndef CHIMERE_ENGINE_PLAN_IMPL_H
#define CHIMERE_ENGINE_PLAN_IMPL_H

#include "engine/plan.h"
#include "format/gguf.h"
#include "model/model.h"
#include "model/slice.h"

/* Of a file that another runtime runs, by keys that all families share. */
struct plan_foreign {
    int32_t n_gpu_layers; /* in: as plan_params */
    const char *mmproj;   /* in: as plan_params; borrowed */
    int64_t n_ctx_train, n_layer, n_embd, n_ff, n_vocab;
    int64_t k_width, v_width; /* of a position's keys and values, summed over layers */
    uint64_t state_bytes;     /* recurrent, of one sequence */
    uint64_t vision_bytes;    /* weights of mmproj, and one image on its way */
    uint64_t weight_bytes, host_share_num, host_share_den; /* the share that is not on a GPU */
};

/* What is known of a file from its header: the blueprint, enough for every *_bytes function, and where the
 * bytes of its weights lie. */
struct blueprint {
    struct model *m;  /* owned; only hp is filled; NULL where foreign is not */
    struct dev *dev;  /* borrowed; NULL: the processor */
    struct dev *host; /* borrowed; the processor's device, NULL: not given */
    struct plan_foreign
        *foreign;              /* borrowed; NULL: our own forward pass; else all below is empty */
    struct layer_part part;    /* of the layers; end 0: all */
    struct model_slice *slice; /* owned; NULL: all of each layer */
    int32_t rank, n_rank;
    uint64_t weight_bytes, file_bytes;
    /* of the processor: experts of the trunk in a file's form and in its own, of which one per layer; the
     * largest matrix of one; and what the pool gets at least, 0: all experts are in memory */
    uint64_t disk_bytes, record_bytes, part_bytes, least_pool;
    uint64_t expert_dev[ARCH_MAX_LAYERS],
        expert_host[ARCH_MAX_LAYERS]; /* of the mixtures in their order */
    int32_t n_moe, n_cpu_most;        /* how many of them may go to the host */
    int32_t n_cpu_least;
};

int plan_foreign_read(struct plan_foreign *f, const struct gguf *g, struct err *e);
void plan_foreign_count(struct memory_plan *p, const struct plan_foreign *f);

#endif
