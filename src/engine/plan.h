/* plan.h: what running a model will take, before anything is taken; and what to run it with.
 *
 * Where a device has memory of its own, that is what is planned: weights in its form, pages, states,
 * activations, scratch and staging. What does not fit of a mixture's experts goes to the processor, layer by
 * layer from the first, as few as will do; the host's own share is checked beside it. Long prompts
 * stream those experts to the device if it has room for two layers of them, and the host's memory has room for
 * the file that they are read from.
 * Where the processor's memory does not hold a mixture, its experts stay on disk, and a pool in memory holds
 * those in use (tier.h): what the rest leaves, at least TIER_MIN_SLOTS of each layer.
 * Reads a file's header alone. Given what the user insists on and what memory there is, it chooses slots
 * and context, or refuses with the numbers. Any thread. */
#ifndef CHIMERE_ENGINE_PLAN_H
#define CHIMERE_ENGINE_PLAN_H

#include "base/buf.h"
#include "engine/engine.h"
#include "model/arch.h"

enum {
    PLAN_MIN_CTX = 4096,      /* of one sequence; fewer only where the user or the model says so */
    PLAN_DEFAULT_CTX = 32768, /* where neither says */
    PLAN_BATCH = 512,         /* tokens of one step, where nobody says */
    PLAN_DEVICE_BATCH = 2048, /* the same on a device, where that costs nothing else */
};

struct plan_params {
    struct engine_params
        engine; /* types, batch (0: choose) and the like; its n_seq, n_ctx, n_ctx_seq are ignored */
    int64_t n_ctx; /* of one sequence; 0: choose */
    int32_t n_seq; /* 0: choose, at most n_seq_want */
    int32_t n_seq_want;
    bool full_ctx; /* n_ctx of every sequence at once; else of one, and what fits of the others */
    uint64_t budget_bytes;  /* of the host; 0: plan_available_bytes() less a reserve */
    struct dev *dev;        /* borrowed for the call; NULL: the processor */
    uint64_t vram_bytes;    /* the cap that dev was opened with; 0: none */
    struct layer_part part; /* of the model that dev has */
    int32_t rank, n_rank;   /* n_rank > 1: of each layer, the rank-th of so many slices */
    bool in_memory;         /* refuse rather than leave experts on disk */
    bool fix_cpu_moe;       /* n_cpu_moe as given; else as few as fit */
    int32_t n_cpu_moe;      /* layers whose experts the processor multiplies */
    bool is_foreign; /* another runtime runs the file: estimates, by keys that all families share */
    const char
        *mmproj; /* of it, what its images are seen with; borrowed for the call; NULL: none */
    int32_t n_gpu_layers; /* of it, layers whose memory is a GPU's and not planned here */
};

struct memory_plan {
    struct engine_params engine; /* complete */
    uint64_t weight_bytes;       /* in the device's form; a tied embedding counts twice */
    uint64_t cache_bytes, cache_bytes_per_tok;
    uint64_t state_bytes;               /* recurrent state of all slots */
    uint64_t scratch_bytes;             /* activations, and what the device computes with */
    uint64_t program_bytes;             /* code, libraries and tokenizer: an estimate */
    uint64_t total_bytes, budget_bytes; /* of the device's memory where it has its own */
    bool is_device;
    int32_t n_moe,
        n_cpu_moe; /* layers with experts; those of them whose experts the host multiplies */
    uint64_t expert_bytes; /* of the latter, on the host */
    uint64_t
        staging_bytes; /* of scratch_bytes: buffers that long prompts stream them through; 0: none */
    uint64_t pool_bytes,
        disk_bytes; /* of the processor's weight_bytes: memory for experts that are read from
                                        the file when they are needed; all of those experts. 0: none are */
    uint64_t host_bytes, host_budget_bytes; /* beside a device; embeddings stay in the file's map */
    uint64_t
        kept_bytes; /* for states that later prompts may begin with, at most: not in the total */
    int64_t n_ctx_train;
    char name[128]; /* of the model */
    bool reduced;   /* less than was wanted, so that it fits */
};

/* Tokens of one step on dev where no plan is made; wanted 0: chosen. */
int32_t plan_batch(const struct dev *dev, int32_t wanted);
/* CHIMERE_ELIMIT, with the numbers, when it does not fit. */
int plan_make(struct memory_plan *out, const char *path, const struct plan_params *p,
              struct err *e);
void plan_print(const struct memory_plan *p, struct buf *out); /* a few lines of text */
/* Host memory that the plan leaves. */
uint64_t plan_left_bytes(const struct memory_plan *p);
/* Memory that this process may still take: the system's, or less by its control group. */
uint64_t plan_available_bytes(void);

#endif
