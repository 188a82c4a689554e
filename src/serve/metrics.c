#include "serve/metrics.h"

#include <stddef.h>
#include <stdio.h>

#include "base/os/energy.h"

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

/* label: 'NAME="VALUE"', or "" for none. */
static void write_times(struct buf *out, const char *name, const char *label, const char *help,
                        struct metrics_times *t) {
    uint64_t seen = 0;
    const char *comma = label[0] ? "," : "", *open = label[0] ? "{" : "",
               *close = label[0] ? "}" : "";
    buf_printf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    for (int i = 0; i < METRICS_N_BUCKET; i++) {
        seen += t->n[i];
        buf_printf(out, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, label, comma, metrics_bounds_s[i],
                   (unsigned long long)seen);
    }
    seen += t->n[METRICS_N_BUCKET];
    buf_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, label, comma,
               (unsigned long long)seen);
    buf_printf(out, "%s_sum%s%s%s %.6f\n%s_count%s%s%s %llu\n", name, open, label, close,
               (double)t->sum_us * 1e-6, name, open, label, close, (unsigned long long)seen);
}

/* Joules of the machine since the server started. Divide by the tokens of the same period for joules per token. */
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

/* By source and position; positions that no draft has reached are omitted. */
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
        {"cancelled_total", "answers that were cancelled by the client or the time limit",
         &m->n_cancelled},
        {"prompt_tokens_total", "tokens of prompts", &m->n_prompt},
        {"cached_tokens_total", "tokens of prompts that were not evaluated again", &m->n_cached},
        {"generated_tokens_total", "tokens of answers", &m->n_generated},
        {"reasoning_tokens_total", "tokens of thinking", &m->n_reasoning},
        {"drafted_tokens_total", "tokens drafted", &m->n_drafted},
        {"accepted_tokens_total", "drafted tokens that were accepted", &m->n_accepted},
        {"draft_rounds_total", "steps of a sequence that verified drafts", &m->n_round},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        buf_printf(out, "# HELP chimere_%s %s\n# TYPE chimere_%s counter\nchimere_%s %llu\n",
                   rows[i].name, rows[i].help, rows[i].name, rows[i].name,
                   (unsigned long long)*rows[i].value);
    write_energy(out);
    write_drafts(out, "drafts_total", "drafted tokens by source and slot", m, m->drafted);
    write_drafts(out, "drafts_accepted_total", "accepted drafted tokens by source and slot", m,
                 m->accepted);
    write_times(out, "chimere_ttft_seconds", "", "request to first output", &m->ttft);
    write_times(out, "chimere_queue_seconds", "", "time in queues", &m->queue);
    write_times(out, "chimere_answer_seconds", "", "request to end", &m->answer);
    write_times(out, "chimere_token_seconds", "", "decode time per token", &m->per_token);
}

/* ---- metrics with the names of other servers ---- */

static void write_one(struct buf *out, const char *name, const char *label, const char *kind,
                      const char *help, double value) {
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s%s%s%s %.10g\n", name, help, name, kind, name,
               label[0] ? "{" : "", label, label[0] ? "}" : "", value);
}

static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

void metrics_write_llamacpp(struct metrics *m, const struct metrics_now *now, struct buf *out) {
    double n_prompt = (double)(m->n_prompt - m->n_cached), n_gen = (double)m->n_generated;
    double prefill_s = (double)m->prefill_us * 1e-6, decode_s = (double)m->decode_us * 1e-6;
    const struct {
        const char *name, *kind, *help;
        double value;
    } rows[] = {
        {"prompt_tokens_total", "counter", "prompt tokens evaluated", n_prompt},
        {"prompt_seconds_total", "counter", "time of prompts", prefill_s},
        {"tokens_predicted_total", "counter", "tokens of answers", n_gen},
        {"tokens_predicted_seconds_total", "counter", "time of answers", decode_s},
        {"n_decode_total", "counter", "steps", (double)now->n_step},
        {"prompt_tokens_seconds", "gauge", "prompt tokens per second", rate(n_prompt, prefill_s)},
        {"predicted_tokens_seconds", "gauge", "tokens per second", rate(n_gen, decode_s)},
        {"kv_cache_usage_ratio", "gauge", "context in use, 0 to 1", now->used},
        {"requests_processing", "gauge", "answers in progress", now->n_running},
        {"requests_deferred", "gauge", "answers in the queue", now->n_waiting},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        snprintf(name, sizeof name, "llamacpp:%s", rows[i].name);
        write_one(out, name, "", rows[i].kind, rows[i].help, rows[i].value);
    }
}

void metrics_write_vllm(struct metrics *m, const struct metrics_now *now, struct buf *out) {
    char label[300];
    size_t n = (size_t)snprintf(label, sizeof label, "model_name=\"");
    /* escaped as Prometheus requires */
    for (const char *p = now->model; *p && n + 4 < sizeof label; p++) {
        if (*p == '"' || *p == '\\') label[n++] = '\\';
        label[n++] = (unsigned char)*p < ' ' ? ' ' : *p;
    }
    snprintf(label + n, sizeof label - n, "\"");
    const struct {
        const char *name, *kind, *help;
        double value;
    } rows[] = {
        {"prompt_tokens_total", "counter", "tokens of prompts", (double)m->n_prompt},
        {"generation_tokens_total", "counter", "tokens of answers", (double)m->n_generated},
        {"prefix_cache_queries_total", "counter", "tokens of prompts", (double)m->n_prompt},
        {"prefix_cache_hits_total", "counter", "tokens of prompts that were not evaluated",
         (double)m->n_cached},
        {"request_success_total", "counter", "responses of status 200", (double)m->n_ok},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        snprintf(name, sizeof name, "vllm:%s", rows[i].name);
        write_one(out, name, label, rows[i].kind, rows[i].help, rows[i].value);
    }
    write_times(out, "vllm:time_to_first_token_seconds", label, "request to first output",
                &m->ttft);
    write_times(out, "vllm:request_queue_time_seconds", label, "time in queues", &m->queue);
    write_times(out, "vllm:e2e_request_latency_seconds", label, "request to end", &m->answer);
    write_times(out, "vllm:inter_token_latency_seconds", label, "time per token", &m->per_token);
}
