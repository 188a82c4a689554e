/* serve_night.h: chimere serve --night: runs nights in the server's process while no user needs the engine. */
#ifndef CHIMERE_CLI_SERVE_NIGHT_H
#define CHIMERE_CLI_SERVE_NIGHT_H

#include "backend/learned.h"
#include "cli/args/chat_args.h"
#include "eval/harness.h"
#include "learn/night.h"

/* clang-format off */
#define NIGHT_OPTIONS                                                                              \
    {"night", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "learn at the times of `chimere night schedule`, while the server is idle (docs/night.md)"}, \
    {"night-dir", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "folder of nights (default: night in the user's data directory)"}, \
    {"night-budget", 0, CFG_STR, "TIME", "30m", 0, 0, NULL, "time limit of a night, such as 30m or 2h; pauses do not count"}, \
    {"night-judge", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "larger model that first grades the day's answers from 1 to 5, on the processor"}, \
    {"night-max-energy", 0, CFG_FLOAT, "JOULES", "0", 0, 1e12, NULL, "energy of the whole machine after which a night stops; pauses do not count; 0: no limit"}, \
    {"night-items", 0, CFG_INT, "N", "20", 1, EVAL_MAX_ITEMS, NULL, "number of items per skill on which a promotion must not lose"}, \
    {"night-prompt-search", 0, CFG_STR, "NAME", "gepa", 0, 0, NULL, "how the step prompts searches: gepa or mipro (docs/night.md)"}, \
    {"night-prompt-calls", 0, CFG_INT, "N", "2000", NIGHT_LEAST_CALLS, NIGHT_MAX_CALLS, NULL, "maximum number of answers and rules for which the step prompts runs the model"}, \
    {"night-prompt-tokens", 0, CFG_INT, "N", "600", 1, NIGHT_MAX_TOKENS, NULL, "maximum number of tokens of the rules of one pipeline"}, \
    {"night-lora-rule", 0, CFG_STR, "NAME", "fzoo", 0, 0, NULL, "how the step lora trains: fzoo, mezo or es (docs/night.md)"}, \
    {"night-price", 0, CFG_STR, "P", NULL, 0, 0, NULL, "price of a kilowatt-hour, such as 0.25EUR/kWh; the reports show what a night cost"}, \
    {"night-canary", 0, CFG_STR, "SHARE", "0", 0, 0, NULL, "share of the conversations that try for a day what a night promotes, such as 10%; 0: no trial"}
/* clang-format on */

struct odo_rig;
struct serve_night;
struct
    serve_night_counts { /* of nights of this process; those that the end of the server stops are in neither */
    _Atomic uint64_t n_ended, n_failed;
};

/* c, r, odo (its documents and its process reward model, if there are any), learned and counts are borrowed until
 * serve_night_close, which must be called before the engine is closed. The files of the current night are in `learned`
 * when it returns. */
int serve_night_open(struct serve_night **out, const struct cfg *c, struct chat_rig *r,
                     const struct odo_rig *odo, struct learned *learned,
                     struct serve_night_counts *counts, struct err *e);
/* The text for /metrics. */
void serve_night_metrics(const struct serve_night_counts *counts, struct buf *out);
void serve_night_close(struct serve_night *s);

#endif
