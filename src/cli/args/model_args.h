/* model_args.h: options that every command with a model shares, and opening a model with them. */
#ifndef CHIMERE_CLI_MODEL_ARGS_H
#define CHIMERE_CLI_MODEL_ARGS_H

#include "cli/cli.h"
#include "engine/plan.h"
#include "kernels/cpu/cpu.h"
#include "model/model.h"

/* clang-format off */
#define MODEL_OPTIONS                                                                              \
    {"model", 'm', CFG_STR, "FILE", NULL, 0, 0, NULL, "model: a file, hf:OWNER/REPO[:TYPE], or a name such as nano, mini or smol (default: nano; run, chat and serve use smol if script/model has fetched it, else mini if it is installed)"}, \
    {"threads", 't', CFG_INT, "N", "0", 0, 512, NULL, "threads; 0: one per core"},                   \
    {"device", 0, CFG_STR, "NAME", "auto", 0, 0, NULL, "cpu, cuda or cuda:N; auto: the first GPU if the build supports it and it works, else cpu"}, \
    {"vram", 0, CFG_BYTES, "SIZE", NULL, 1e6, 1e15, NULL, "maximum memory to use on each GPU (default: what is free)"},     \
    {"ram", 0, CFG_BYTES, "SIZE", NULL, 1e6, 1e15, NULL, "maximum host memory to use; experts that do not fit are read from disk (default: what is available)"}, \
    {"n-cpu-moe", 0, CFG_INT, "N", NULL, 0, 1024, NULL, "number of layers whose experts or dense feed-forward the processor computes (default: as few as fit)"}, \
    {"expert-slots", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "if a GPU cannot hold all experts, keep all in host memory and those in use on the GPU; --no-expert-slots: compute whole layers on the processor"}, \
    {"isa", 0, CFG_ENUM, "SET", "best", 0, 0, CPU_ISA_CHOICES, "instruction set of the processor's kernels"},  \
    {"quiet", 'q', CFG_BOOL, NULL, "false", 0, 0, NULL, "no progress bars"}
#define EXPERT_OPTIONS                                                                             \
    {"expert-mass", 0, CFG_FLOAT, "M", "1", 0.01, 1, NULL, "use only the experts of a token that together have the share M of the router's weight; 1: all"}, \
    {"expert-min", 0, CFG_INT, "K", "1", 1, 1024, NULL, "with --expert-mass: use at least K experts"}, \
    {"expert-entropy", 0, CFG_FLOAT, "H", "0", 0, 20, NULL, "with --expert-mass: use more experts the less certain the model was of the preceding token, all of them from H nats of entropy; 0: off"}
#define CACHE_OPTIONS                                                                              \
    {"cache-type-k", 0, CFG_ENUM, "TYPE", "f16", 0, 0, "f32|f16|q8_0|q4_0", "type of cached keys"}, \
    {"cache-type-v", 0, CFG_ENUM, "TYPE", "f16", 0, 0, "f32|f16|q8_0|q4_0", "type of cached values"}
/* clang-format on */

/* Opens the device (auto: the processor) and the model that the options name, with all weights in memory; CHIMERE_ELIMIT
 * if --ram is less than they need. On failure nothing remains open. */
int model_args_open(const struct cfg *c, struct dev **dev, struct model **m, struct err *e);
/* What a command needs that evaluates n_seq texts of n_ctx tokens with logits of every position. Types of keys and
 * values are taken from the options, if there are such. */
struct plan_params model_args_want(const struct cfg *c, int64_t n_ctx, int32_t n_seq,
                                   int32_t n_batch);
/* Opens them with experts placed by a memory plan for want; plan: the result, NULL: not wanted. dev, vram_bytes and the
 * two fields of n_cpu_moe are taken from the options. CHIMERE_ELIMIT, with the numbers, if it does not fit. */
int model_args_open_planned(const struct cfg *c, const struct plan_params *want,
                            struct memory_plan *plan, struct dev **dev, struct model **m,
                            struct err *e);
/* Writes the path of the file that -m names, or of the shipped model; CHIMERE_ENOENT with a hint. */
int model_args_path(const struct cfg *c, char *out, size_t out_size, struct err *e);
/* The same for a given file, hf:OWNER/REPO[:TYPE] or name; NULL: the shipped model. */
int model_args_named(const struct cfg *c, const char *path, char *out, size_t out_size,
                     struct err *e);
/* Writes the path of a model with a short name (nano, smol); CHIMERE_ENOENT with a hint. */
int model_args_own(const char *name, char *out, size_t out_size, struct err *e);
/* For commands that converse. If no model is named, sets the default: smol if it was downloaded, otherwise nano.
 * Prints to standard error, unless quiet, which one answers. */
int model_args_talk(struct cfg *c, struct err *e);
enum cpu_isa model_args_isa(const struct cfg *c);
struct moe_keep model_args_keep(const struct cfg *c); /* from EXPERT_OPTIONS */
uint32_t model_args_type(const struct cfg *c,
                         const char *option); /* quant.h id of the type that an option names */

#endif
