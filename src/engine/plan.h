/* plan.h: computes what memory a model will take before it is loaded, and chooses the parameters to run it with.
 *
 * If a device has its own memory, the plan covers that memory: weights in the device's form, KV pages, states,
 * activations, scratch and staging. If a mixture does not fit, the experts of as few layers as possible go to the
 * processor, from the first layer on. If that would be many layers, all experts go to pinned host memory and slots on
 * the device hold those in use (expert_slots.h), if the host has this memory. The host's memory is checked separately. Long prompts stream these experts to the
 * device if it has room for two layers of them, and if host memory can hold the file that they are read from.
 *
 * If host memory cannot hold a mixture, its experts stay on disk and a pool in memory holds those in use (tier.h). The
 * pool gets what the rest leaves, at least TIER_MIN_SLOTS experts per layer.
 *
 * Only the header of a file is read. From the user's requirements and the available memory, the plan chooses slots and
 * context, or refuses and reports the numbers. Any thread may call this. */
#ifndef CHIMERE_ENGINE_PLAN_H
#define CHIMERE_ENGINE_PLAN_H

#include "base/buf.h"
#include "engine/engine.h"
#include "model/arch/arch.h"

enum {
    PLAN_MIN_CTX = 4096,      /* of one sequence; fewer only if the user or the model sets it */
    PLAN_DEFAULT_CTX = 32768, /* if neither sets it */
    PLAN_BATCH = 512,         /* tokens of one step, if not set */
    /* the same on a device, if that costs no context and moves no experts to the host */
    PLAN_DEVICE_BATCH = 2048,
};

struct plan_params {
    /* n_batch 0: choose; n_seq, n_ctx and n_ctx_seq are ignored */
    struct engine_params engine;
    int64_t n_ctx; /* positions of one sequence; 0: choose */
    int32_t n_seq; /* 0: choose, at most n_seq_want */
    int32_t n_seq_want;
    /* reserve n_ctx for every sequence; else for one sequence, plus what fits for the others */
    bool full_ctx;
    uint64_t budget_bytes;  /* host memory; 0: plan_available_bytes() minus a reserve */
    uint64_t own_bytes;     /* that the caller takes in addition, where the activations are */
    struct dev *dev;        /* borrowed for the call; NULL: the processor */
    uint64_t vram_bytes;    /* the limit with which dev was opened; 0: none */
    struct layer_part part; /* the part of the model that is on dev */
    /* > 1: up to so many engines take turns on dev, each with activations of its own, if the memory suffices */
    int32_t n_engine;
    int32_t rank, n_rank; /* n_rank > 1: dev has slice `rank` of n_rank slices of each layer */
    bool in_memory;       /* refuse the model instead of leaving experts on disk */
    bool expert_slots;    /* may hold experts in use in slots of dev, if dev cannot hold all */
    bool fix_cpu_moe;     /* use n_cpu_moe as given; else the fewest layers that fit */
    int32_t n_cpu_moe;    /* layers whose experts the processor multiplies */
    /* another runtime runs the file: estimate from keys that all architectures share */
    bool is_foreign;
    /* vision encoder for that runtime; borrowed for the call; NULL: none */
    const char *mmproj;
    int32_t n_gpu_layers; /* layers that the other runtime puts on GPUs; not planned here */
};

/* Where routed experts are. With slots, the device has copies of some of those in memory. */
enum plan_tier { PLAN_DEVICE, PLAN_MEMORY, PLAN_DISK, PLAN_N_TIER };

struct memory_plan {
    struct engine_params engine; /* complete parameters */
    uint64_t weight_bytes;       /* in the device's form; counts a tied embedding twice */
    uint64_t cache_bytes, cache_bytes_per_tok;
    uint64_t state_bytes;               /* recurrent state of all slots */
    uint64_t scratch_bytes;             /* activations and the device's work buffers */
    uint64_t program_bytes;             /* code, libraries and tokenizer: an estimate */
    uint64_t total_bytes, budget_bytes; /* of device memory if the device has its own */
    bool is_device;
    int32_t n_engine; /* that take turns on the device */
    /* n_moe: layers with experts, or in a model without them with a dense feed-forward; n_cpu_moe: those whose experts
     * the host multiplies */
    int32_t n_moe, n_cpu_moe;
    bool is_dense;         /* n_moe and n_cpu_moe count dense layers */
    uint64_t expert_bytes; /* host memory of the experts of the n_cpu_moe layers */
    /* part of scratch_bytes: buffers through which long prompts stream these experts; 0: none */
    uint64_t staging_bytes;
    /* part of weight_bytes: slots on the device for experts in use, and their stage; all experts are then in pinned host
     * memory of expert_bytes, and n_cpu_moe is 0. 0: no slots */
    uint64_t slot_bytes;
    uint64_t read_bytes; /* host memory while weights are read (expert_placement) */
    /* pool_bytes: part of the processor's weight_bytes, memory for experts that are read from the file on demand.
     * disk_bytes: all of these experts. Both 0: all experts are in memory */
    uint64_t pool_bytes, disk_bytes;
    uint64_t tier_bytes[PLAN_N_TIER]; /* routed experts; PLAN_DISK: those that no memory holds */
    /* if there is a device; embeddings stay in the mapped file */
    uint64_t host_bytes, host_budget_bytes;
    /* upper limit for checkpoints of the prefix cache; not part of total_bytes */
    uint64_t kept_bytes;
    int64_t n_ctx_train;
    char name[128]; /* name of the model */
    bool reduced;   /* n_ctx or n_seq is smaller than wanted, so that the model fits */
};

/* Tokens per step on dev if there is no plan; wanted 0: choose. */
int32_t plan_batch(const struct dev *dev, int32_t wanted);
/* Returns CHIMERE_ELIMIT, with the numbers, if the model does not fit. */
int plan_make(struct memory_plan *out, const char *path, const struct plan_params *p,
              struct err *e);
/* Where the plan puts the experts; host is not set. */
struct expert_placement plan_placement(const struct memory_plan *p);
void plan_print(const struct memory_plan *p, struct buf *out); /* a few lines of text */
/* Host memory that is free according to the plan. */
uint64_t plan_left_bytes(const struct memory_plan *p);
/* Memory that this process may still allocate: what the system has free, or less if its control group limits it. */
uint64_t plan_available_bytes(void);

#endif
