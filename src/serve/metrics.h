/* metrics.h: counters and their text in Prometheus' format. Any thread may call this. */
#ifndef CHIMERE_SERVE_METRICS_H
#define CHIMERE_SERVE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/engine.h"

enum { METRICS_N_BUCKET = 14, METRICS_MAX_FIELDS = 256 };
extern const double metrics_bounds_s[METRICS_N_BUCKET];

struct metrics_times { /* a histogram; the last bucket is +Inf */
    _Atomic uint64_t n[METRICS_N_BUCKET + 1];
    _Atomic uint64_t sum_us;
};

struct metrics {
    _Atomic uint64_t n_ok, n_bad, n_busy, n_failed; /* responses: 2xx, 4xx, 429, 5xx */
    _Atomic uint64_t n_cancelled, n_turned_away, n_prompt, n_cached, n_generated, n_reasoning,
        n_drafted, n_accepted, n_round, prefill_us, decode_us;
    _Atomic uint64_t drafted[DRAFT_N_SOURCE][DRAFT_N_SLOT], accepted[DRAFT_N_SOURCE][DRAFT_N_SLOT];
    _Atomic uint64_t ignored[METRICS_MAX_FIELDS]; /* index: row in fields.c */
    struct metrics_times ttft, queue, answer, per_token;
};

void metrics_drafts(struct metrics *m, const struct draft_stats *s);
void metrics_time(struct metrics_times *t, double seconds);
/* in seconds, to the precision of the buckets */
double metrics_quantile(struct metrics_times *t, double q, uint64_t *n);
void metrics_write(struct metrics *m, struct buf *out);
struct metrics_now {   /* gauges of the aliases */
    const char *model; /* view */
    int n_running, n_waiting;
    double used; /* share of the context in use, 0 to 1 */
    int64_t n_step;
};
/* Write the same metrics with the names of llama-server and of vLLM. */
void metrics_write_llamacpp(struct metrics *m, const struct metrics_now *now, struct buf *out);
void metrics_write_vllm(struct metrics *m, const struct metrics_now *now, struct buf *out);
/* Writes the text with all lines of a metric together and one HELP and TYPE for each, as the format demands of text that
 * several models add to. CHIMERE_ENOMEM: nothing is written. */
int metrics_group(const char *text, struct buf *out);

#endif
