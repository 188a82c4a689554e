#include "serve/metrics.h"

#include <stddef.h>

#include "base/energy.h"

const double metrics_bounds_s[METRICS_N_BUCKET] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                   0.25,  0.5,    1,     2.5,  5,     10,   60};

void metrics_time(struct metrics_times *t, double seconds) {
    int i = 0;
    while (i < METRICS_N_BUCKET && seconds > metrics_bounds_s[i]) i++;
    t->n[i]++;
    t->sum_us += (uint64_t)(seconds * 1e6);
}

double metrics_quantile(struct metrics_times *t, double q, uint64_t *n) {
    uint64_t total = 0, seen = 0;
    for (int i = 0; i <= METRICS_N_BUCKET; i++) total += t->n[i];
    *n = total;
    for (int i = 0; i < METRICS_N_BUCKET; i++) {
        seen += t->n[i];
        if ((double)seen >= q * (double)total) return metrics_bounds_s[i];
    }
    return metrics_bounds_s[METRICS_N_BUCKET - 1];
}

static void write_times(struct buf *out, const char *name, const char *help,
                        struct metrics_times *t) {
    uint64_t seen = 0;
    buf_printf(out, "# HELP chimere_%s %s\n# TYPE chimere_%s histogram\n", name, help, name);
    for (int i = 0; i < METRICS_N_BUCKET; i++) {
        seen += t->n[i];
        buf_printf(out, "chimere_%s_bucket{le=\"%g\"} %llu\n", name, metrics_bounds_s[i],
                   (unsigned long long)seen);
    }
    seen += t->n[METRICS_N_BUCKET];
    buf_printf(out,
               "chimere_%s_bucket{le=\"+Inf\"} %llu\nchimere_%s_sum %.6f\nchimere_%s_count %llu\n",
               name, (unsigned long long)seen, name, (double)t->sum_us * 1e-6, name,
               (unsigned long long)seen);
}

/* Joules since the server began, of the machine: those per token are this by the tokens of the same time. */
static void write_energy(struct buf *out) {
    static const char name[] = "chimere_energy_joules_total";
    struct energy_joules j;
    if (!energy_now(&j)) return;
    buf_printf(out, "# HELP %s energy of the machine by source\n# TYPE %s counter\n", name, name);
    if (j.has_cpu) buf_printf(out, "%s{source=\"cpu\"} %.6f\n", name, j.cpu);
    if (j.has_memory) buf_printf(out, "%s{source=\"memory\"} %.6f\n", name, j.memory);
    if (j.has_gpu) buf_printf(out, "%s{source=\"gpu\"} %.6f\n", name, j.gpu);
}

void metrics_drafts(struct metrics *m, const struct draft_stats *s) {
    m->n_round += (uint64_t)s->n_round;
    for (int i = 0; i < DRAFT_N_SOURCE; i++)
        for (int k = 0; k < DRAFT_N_SLOT; k++) {
            m->drafted[i][k] += (uint64_t)s->n_drafted[i][k];
            m->accepted[i][k] += (uint64_t)s->n_accepted[i][k];
        }
}

/* By source and slot; slots that no draft has reached are left out. */
static void write_drafts(struct buf *out, const char *name, const char *help,
                         const struct metrics *m, const _Atomic uint64_t values[][DRAFT_N_SLOT]) {
    buf_printf(out, "# HELP chimere_%s %s\n# TYPE chimere_%s counter\n", name, help, name);
    for (int i = 0; i < DRAFT_N_SOURCE; i++)
        for (int k = 0; k < DRAFT_N_SLOT && m->drafted[i][k]; k++)
            buf_printf(out, "chimere_%s{source=\"%s\",slot=\"%d\"} %llu\n", name,
                       draft_source_name((enum draft_source)i), k + 1,
                       (unsigned long long)values[i][k]);
}

void metrics_write(struct metrics *m, struct buf *out) {
    static const char requests[] = "chimere_requests_total";
    buf_printf(out, "# HELP %s responses by outcome\n# TYPE %s counter\n", requests, requests);
    buf_printf(out, "%s{outcome=\"ok\"} %llu\n", requests, (unsigned long long)m->n_ok);
    buf_printf(out, "%s{outcome=\"refused\"} %llu\n", requests, (unsigned long long)m->n_bad);
    buf_printf(out, "%s{outcome=\"busy\"} %llu\n", requests, (unsigned long long)m->n_busy);
    buf_printf(out, "%s{outcome=\"failed\"} %llu\n", requests, (unsigned long long)m->n_failed);
    const struct {
        const char *name, *help;
        _Atomic uint64_t *value;
    } rows[] = {
        {"turned_away_total", "connections beyond the limits of one address", &m->n_turned_away},
        {"cancelled_total", "answers whose client left or whose time was up", &m->n_cancelled},
        {"prompt_tokens_total", "tokens of prompts", &m->n_prompt},
        {"cached_tokens_total", "of these, not evaluated again", &m->n_cached},
        {"generated_tokens_total", "tokens of answers", &m->n_generated},
        {"reasoning_tokens_total", "of these, thinking", &m->n_reasoning},
        {"drafted_tokens_total", "tokens drafted", &m->n_drafted},
        {"accepted_tokens_total", "of these, kept", &m->n_accepted},
        {"draft_rounds_total", "steps of a sequence that verified drafts", &m->n_round},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        buf_printf(out, "# HELP chimere_%s %s\n# TYPE chimere_%s counter\nchimere_%s %llu\n",
                   rows[i].name, rows[i].help, rows[i].name, rows[i].name,
                   (unsigned long long)*rows[i].value);
    write_energy(out);
    write_drafts(out, "drafts_total", "drafted tokens by source and slot", m, m->drafted);
    write_drafts(out, "drafts_accepted_total", "of these, kept", m, m->accepted);
    write_times(out, "ttft_seconds", "request to first output", &m->ttft);
    write_times(out, "queue_seconds", "time in queues", &m->queue);
    write_times(out, "answer_seconds", "request to end", &m->answer);
    write_times(out, "token_seconds", "decode time per token", &m->per_token);
}
