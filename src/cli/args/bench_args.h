/* bench_args.h: the measurement that bench and cost share: speed and, if the counters are readable, energy of a
 * model on this machine. */
#ifndef CHIMERE_CLI_BENCH_ARGS_H
#define CHIMERE_CLI_BENCH_ARGS_H

#include <jansson.h>

#include "base/config.h"
#include "base/err.h"
#include "cli/args/model_args.h"

/* clang-format off */
#define BENCH_OPTIONS                                                                              \
    {"prompt", 'p', CFG_INT, "N", "512", 0, 1 << 20, NULL, "tokens of the prefill test; 0: none"}, \
    {"gen", 'n', CFG_INT, "N", "128", 0, 1 << 20, NULL, "tokens of the decode test; 0: none"},     \
    {"depth", 'd', CFG_INT, "N", "0", 0, 1 << 20, NULL, "tokens already in the sequence"},         \
    {"parallel", 0, CFG_STR, "LIST", "1", 0, 0, NULL, "sequences decoding together, e.g. 1,4,8"},  \
    {"repeat", 'r', CFG_INT, "N", "5", 1, 1000, NULL, "measured repetitions, after one warm-up"}, \
    {"batch", 'b', CFG_INT, "N", "0", 0, 65536, NULL, "tokens per forward pass; 0: 512, or 2048 on a GPU"}, \
    {"routing", 0, CFG_STR, "trace-like|FILE", NULL, 0, 0, NULL,                                   \
     "experts instead of the routers' choice: generated with the reuse of trained models, or from a file that trace wrote"}, \
    {"routing-seed", 0, CFG_INT, "N", "1", 0, 1 << 30, NULL, "seed of --routing trace-like"},           \
    EXPERT_OPTIONS,                                                                                \
    {"bandwidth", 0, CFG_FLOAT, "GB/s", NULL, 0.1, 100000, NULL, "read bandwidth; measured if not given"}, \
    {"by-op", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "then time each operation in one more pass (on a GPU)"}, \
    {"by-kernel", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "then time each kernel in one more pass, with the bytes that it reads"}, \
    {"sms", 0, CFG_STR, "LIST", "0", 0, 0, NULL,                                                   \
     "multiprocessors of the GPU to use, one after another, 0: all, e.g. 0,64,40"},                \
    {"verify", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,                                             \
     "then measure the time of verifying 1 to 8 tokens of each of 1, 4 and 8 sequences"},                  \
    {"speculate-as", 0, CFG_STR, "RATES", NULL, 0, 0, NULL,                                        \
     "then measure rounds whose drafts are accepted at these rates per position, e.g. 0.88,0.8"},              \
    {"draft-head", 0, CFG_INT, "N", "0", 0, 1 << 24, NULL,                                         \
     "rows of the 4-bit copy of the output head for these drafts; 0: automatic; the size of the vocabulary: no copy"}
/* clang-format on */

/* Appends one object per test to rows, in the form of `bench --json`; rows NULL: prints lines instead. */
int bench_rows(const struct cfg *c, json_t *rows, struct err *e);

#endif
