/* native.c: metrics, models. */
#include "serve/fields/fields.h"
#include "serve/api/gen.h"
#include "serve/api/native.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/team.h"
#include "kernels/link.h"
#include "kernels/tensor.h"
#include "model/model.h"
#include "model/experts/tier.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"

static void send_body(struct http_request *r, int status, const char *type, struct buf *out) {
    http_reply(r, status, type, out);
    buf_fini(out);
}

static void put_value(struct buf *out, const char *name, const char *model, const char *labels,
                      double value) {
    buf_printf(out, "chimere_%s{model=", name);
    json_out_string(out, model);
    buf_printf(out, "%s} %.15g\n", labels, value);
}

static void put_gauge(struct buf *out, const char *name, const char *help, const char *model,
                      double value) {
    buf_printf(out, "# HELP chimere_%s %s\n# TYPE chimere_%s gauge\n", name, help, name);
    put_value(out, name, model, "", value);
}

/* The larger of two shares in use: KV positions, and sequences, whose recurrent states are limited too. */
static double used_ratio(const struct engine_totals *t, int32_t n_seq) {
    double ctx = t->n_ctx > 0 ? 1 - (double)t->n_ctx_free / (double)t->n_ctx : 0,
           seqs = n_seq > 0 ? (double)t->n_active / n_seq : 0;
    return ctx > seqs ? ctx : seqs;
}

/* ---- cards ---- */

#define CARD_VALUE(name, what)                                                                     \
    static double card_##name(const struct team_member *m, const struct engine_totals *t) {        \
        (void)m, (void)t;                                                                          \
        return (double)(what);                                                                     \
    }
CARD_VALUE(jobs, m->n_open)
CARD_VALUE(jobs_given, m->n_job)
CARD_VALUE(prompt_todo, m->n_todo)
CARD_VALUE(jobs_moved, m->n_moved)
CARD_VALUE(lost, m->lost)
CARD_VALUE(prompt_tokens, t->n_prompt)
CARD_VALUE(cached_tokens, t->n_cached)
CARD_VALUE(generated_tokens, t->n_generated)
CARD_VALUE(steps, t->n_step)
CARD_VALUE(step_ms, t->step_ms_mean)
CARD_VALUE(context_free, t->n_ctx_free)

static void put_vllm(struct buf *out, const char *name, const char *labels, const char *model,
                     double value) {
    buf_printf(out, "# TYPE vllm:%s gauge\nvllm:%s{model_name=", name, name);
    json_out_string(out, model);
    buf_printf(out, "%s} %.10g\n", labels, value);
}

static double per(double x, double n) { return n > 0 ? x / n : 0; }

static void put_tier(struct buf *out, const struct backend *b) {
    struct tier_stats t;
    const struct model *m = b->model ? b->model->m : NULL;
    if (!m || !experts_stats(&m->weights.experts, &t)) return;
    put_gauge(out, "experts_pooled", "experts that the pool holds, in memory or on the GPU",
              b->name, (double)t.n_slot);
    put_gauge(out, "experts", "experts of all layers, those outside the pool included", b->name,
              (double)t.n_expert);
    put_gauge(out, "expert_hits", "experts that a batch found in the pool", b->name,
              (double)t.n_hit);
    put_gauge(out, "expert_misses", "experts that a batch read from disk or host memory", b->name,
              (double)t.n_miss);
    put_gauge(out, "expert_passes", "layers times batches", b->name, (double)t.n_pass);
    put_gauge(out, "expert_read_bytes", "bytes of experts read from disk or host memory", b->name,
              (double)t.n_bytes);
    put_gauge(out, "expert_read_ms", "time with reads of experts in progress", b->name,
              (double)t.busy_ns * 1e-6);
    put_gauge(out, "expert_wait_ms", "time that the computation waited for experts", b->name,
              (double)t.wait_ns * 1e-6);
    put_gauge(out, "expert_hit_ratio", "share of the experts that a batch found in the pool",
              b->name, per((double)t.n_hit, (double)(t.n_hit + t.n_miss)));
    put_gauge(out, "expert_misses_per_pass", "experts read per layer and batch", b->name,
              per((double)t.n_miss, (double)t.n_pass));
    const char *link = t.is_device ? ",link=\"bus\"" : ",link=\"disk\"";
    buf_printf(out, "# HELP chimere_expert_link_bytes_per_s %s\n# TYPE %s gauge\n",
               "rate of reads of experts, while they are in progress",
               "chimere_expert_link_bytes_per_s");
    put_value(out, "expert_link_bytes_per_s", b->name, link,
              per((double)t.n_bytes, (double)t.busy_ns * 1e-9));
}

/* One row per gauge; a value for each card that has a replica. */
static const struct card_gauge {
    const char *name, *help;
    double (*value)(const struct team_member *m, const struct engine_totals *t);
} card_gauges[] = {
    {"card_jobs", "answers of the card, in progress or waiting", card_jobs},
    {"card_jobs_given", "answers given to the card since the start", card_jobs_given},
    {"card_jobs_moved", "answers that the card took over from cards that failed", card_jobs_moved},
    {"card_prompt_todo", "approximate number of prompt tokens that wait for the card",
     card_prompt_todo},
    {"card_prompt_tokens", "prompt tokens evaluated", card_prompt_tokens},
    {"card_cached_tokens", "prompt tokens that a saved state covered", card_cached_tokens},
    {"card_generated_tokens", "tokens generated", card_generated_tokens},
    {"card_steps", "steps", card_steps},
    {"card_step_ms", "mean time of the last hundred steps", card_step_ms},
    {"card_context_free", "free positions of sequences", card_context_free},
    {"card_lost", "1: the card has failed and gets no more requests", card_lost},
};

static void put_cards(struct buf *out, const struct backend *b) {
    struct engine *g = b->model->engine;
    struct team_member m;
    struct engine_totals t;
    if (team_size(g) < 2) return;
    for (size_t k = 0; k < sizeof card_gauges / sizeof *card_gauges; k++) {
        const struct card_gauge *x = &card_gauges[k];
        buf_printf(out, "# HELP chimere_%s %s\n# TYPE chimere_%s gauge\n", x->name, x->help,
                   x->name);
        for (int32_t i = 0; i < team_size(g); i++) {
            char labels[64];
            team_at(g, i, &m, &t);
            snprintf(labels, sizeof labels, ",card=\"%d\",device=\"%s\"", i, m.name);
            put_value(out, x->name, b->name, labels, x->value(&m, &t));
        }
    }
}

#define LINK_VALUE(name, what)                                                                     \
    static double link_##name(const struct link_stats *s) { return (double)(what); }
LINK_VALUE(sums, s->n_sum)
LINK_VALUE(bytes_of, s->n_bytes)
LINK_VALUE(ms, s->us * 1e-3)
LINK_VALUE(wait_ms, s->wait_us * 1e-3)
LINK_VALUE(direct, s->is_peer)
LINK_VALUE(direct_us, s->peer_us[0])
LINK_VALUE(direct_most_us, s->peer_us[1])
LINK_VALUE(host_us, s->host_us[0])
LINK_VALUE(host_most_us, s->host_us[1])

/* Cards that compute slices of the same layers. */
static const struct link_gauge {
    const char *name, *help;
    double (*value)(const struct link_stats *s);
} link_gauges[] = {
    {"card_link_sums", "sums of results over the cards", link_sums},
    {"card_link_bytes", "bytes sent and received for these sums", link_bytes_of},
    {"card_link_ms", "time of these sums, including the wait for other cards", link_ms},
    {"card_link_wait_ms", "time of waiting for other cards, with sums through the host",
     link_wait_ms},
    {"card_link_direct", "1: cards access each other's memory; 0: through the host", link_direct},
    {"card_link_direct_us", "time of a short sum by direct access, measured at the start",
     link_direct_us},
    {"card_link_direct_most_us", "time of the longest sum by direct access", link_direct_most_us},
    {"card_link_host_us", "time of a short sum through the host, measured at the start",
     link_host_us},
    {"card_link_host_most_us", "time of the longest sum through the host", link_host_most_us},
};

static void put_links(struct buf *out, const struct backend *b) {
    struct link_stats stats[TEAM_MAX];
    int32_t n = team_links(b->model->engine, stats);
    for (size_t k = 0; n && k < sizeof link_gauges / sizeof *link_gauges; k++) {
        const struct link_gauge *x = &link_gauges[k];
        buf_printf(out, "# HELP chimere_%s %s\n# TYPE chimere_%s gauge\n", x->name, x->help,
                   x->name);
        for (int32_t i = 0; i < n; i++) {
            char labels[32];
            snprintf(labels, sizeof labels, ",card=\"%d\"", i);
            put_value(out, x->name, b->name, labels, x->value(&stats[i]));
        }
    }
}

/* Who reads these names expects one row per engine. So the answers of all names of an engine, such as the orchestrator's,
 * are added up in the row of its first name. */
static void put_vllm_gauges(const struct server *s, size_t i, const struct engine_totals *t,
                            double used, struct buf *out) {
    const struct backend *b = catalog_at(s->p.catalog, i);
    int32_t running = 0, waiting = 0;
    char labels[96];
    for (size_t k = 0; k < s->n_gate; k++) {
        const struct backend *other = catalog_at(s->p.catalog, k);
        if (!other->model || other->model->engine != b->model->engine) continue;
        if (k < i) return;
        running += queue_n_running(s->gates[k]);
        waiting += queue_n_waiting(s->gates[k]);
    }
    put_vllm(out, "num_requests_running", "", b->name, running);
    put_vllm(out, "num_requests_waiting", "", b->name, waiting);
    put_vllm(out, "kv_cache_usage_perc", "", b->name, used);
    snprintf(labels, sizeof labels, ",block_size=\"%d\",num_gpu_blocks=\"%lld\"", (int)KV_PAGE,
             (long long)t->n_ctx / KV_PAGE);
    put_vllm(out, "cache_config_info", labels, b->name, 1);
    snprintf(labels, sizeof labels,
             ",max_lora=\"%d\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"",
             b->model->n_lora);
    put_vllm(out, "lora_requests_info", labels, b->name, (double)time(NULL));
}

static void put_model_gauges(struct server *s, size_t i, struct buf *out) {
    const struct backend *b = catalog_at(s->p.catalog, i);
    int32_t running = queue_n_running(s->gates[i]), waiting = queue_n_waiting(s->gates[i]),
            slots = gen_n_seq(b);
    struct engine_totals t = {0};
    put_gauge(out, "running", "answers in progress", b->name, running);
    put_gauge(out, "waiting", "answers in the queue", b->name, waiting);
    put_gauge(out, "slots", "maximum number of concurrent answers", b->name, slots);
    put_gauge(out, "load", "running and waiting answers per slot", b->name,
              slots ? (double)(running + waiting) / slots : 0);
    put_tier(out, b);
    if (!b->model || !b->model->engine) return;
    engine_totals(b->model->engine, &t);
    double used = used_ratio(&t, b->model->n_seq);
    put_gauge(out, "context_used_ratio",
              "share in use of positions or sequences, whichever is scarcer", b->name, used);
    put_gauge(out, "failed_steps", "consecutive failed steps; from 3 on the server is not ready",
              b->name, t.n_failed_steps);
    put_cards(out, b);
    put_links(out, b);
    if (s->p.metrics_compat == COMPAT_VLLM) put_vllm_gauges(s, i, &t, used, out);
}

/* Values of the whole server: the first model's name, and sums over all models. */
static void put_aliases(struct server *s, struct buf *out) {
    struct metrics_now now = {.model = catalog_at(s->p.catalog, 0)->name};
    for (size_t i = 0; i < s->n_gate; i++) {
        const struct backend *b = catalog_at(s->p.catalog, i);
        struct engine_totals t;
        now.n_running += queue_n_running(s->gates[i]);
        now.n_waiting += queue_n_waiting(s->gates[i]);
        if (i || !b->model || !b->model->engine) continue;
        engine_totals(b->model->engine, &t);
        now.n_step = t.n_step;
        /* n_ctx_free counts positions of all sequences together */
        double all = (double)engine_ctx(b->model->engine) * b->model->n_seq;
        now.used = t.n_active && all > 0 ? 1 - (double)t.n_ctx_free / all : 0;
        if (now.used < 0) now.used = 0;
    }
    if (s->p.metrics_compat == COMPAT_LLAMACPP) metrics_write_llamacpp(&s->metrics, &now, out);
    if (s->p.metrics_compat == COMPAT_VLLM) metrics_write_vllm(&s->metrics, &now, out);
}

void native_metrics(struct http_request *r) {
    struct server *s = http_server(r);
    struct buf parts, out;
    buf_init(&parts, 1 << 20);
    buf_init(&out, 1 << 20);
    metrics_write(&s->metrics, &parts);
    fields_put_ignored(s->metrics.ignored, &parts);
    if (s->p.metrics_compat) put_aliases(s, &parts);
    if (s->p.metrics) s->p.metrics(s->p.metrics_ud, &parts);
    for (size_t i = 0; i < s->n_gate; i++) put_model_gauges(s, i, &parts);
    int rc = parts.failed ? parts.failed : metrics_group(parts.p, &out);
    if (rc && !out.failed) out.failed = rc;
    buf_fini(&parts);
    send_body(r, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}

static void put_model(const struct server *s, const struct backend *b, const char *name,
                      struct buf *out) {
    buf_puts(out, "{\"id\":");
    json_out_string(out, name);
    buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"chimere\"",
               (long long)s->created);
    if (!b->model) { /* a remote model */
        buf_putc(out, '}');
        return;
    }
    buf_printf(out, ",\"meta\":{\"n_vocab\":%u", tok_n_vocab(b->model->tok));
    if (b->model->engine) /* otherwise it is loaded on demand, and /v1/status reports its state */
        buf_printf(out, ",\"n_ctx\":%lld,\"vision\":%s", (long long)engine_ctx(b->model->engine),
                   b->model->vision ? "true" : "false");
    buf_puts(out, "}}");
}

struct listing {
    const struct server *s;
    struct buf *out;
    bool begun;
};

static int put_listed(void *ud, const char *name, const struct backend *b) {
    struct listing *l = ud;
    if (l->begun) buf_putc(l->out, ',');
    l->begun = true;
    put_model(l->s, b, name, l->out);
    return 0;
}

static void put_other(const struct server *s, const char *name, struct buf *out) {
    if (!name || !name[0]) return;
    if (catalog_find(s->p.catalog, name, NULL)) return; /* already listed as a chat model */
    buf_puts(out, ",{\"id\":");
    json_out_string(out, name);
    buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"chimere\"}",
               (long long)s->created);
}

static void put_anthropic_one(const struct server *s, const char *name, struct buf *out) {
    char created[32] = "";
    time_t t = (time_t)s->created;
    struct tm tm;
    if (gmtime_r(&t, &tm)) strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &tm);
    buf_puts(out, "{\"type\":\"model\",\"id\":");
    json_out_string(out, name);
    buf_puts(out, ",\"display_name\":");
    json_out_string(out, name);
    buf_printf(out, ",\"created_at\":\"%s\"}", created);
}

/* Writes the same list in the form of Anthropic's API. */
static void put_anthropic(const struct server *s, const struct buf *list, struct buf *out) {
    json_t *o = json_loadb(list->n ? list->p : "", list->n, 0, NULL);
    const json_t *data = json_object_get(o, "data"), *m;
    const char *first = NULL, *last = NULL;
    size_t i;
    buf_puts(out, "{\"data\":[");
    json_array_foreach(data, i, m) {
        last = json_string_value(json_object_get(m, "id"));
        if (!i) first = last;
        else buf_putc(out, ',');
        put_anthropic_one(s, last, out);
    }
    buf_puts(out, "],\"has_more\":false,\"first_id\":");
    json_out_string(out, first);
    buf_puts(out, ",\"last_id\":");
    json_out_string(out, last);
    buf_putc(out, '}');
    json_decref(o);
}

void native_models(struct http_request *r) {
    struct server *s = http_server(r);
    struct buf out;
    buf_init(&out, 1 << 20);
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    catalog_list(s->p.catalog, put_listed, &(struct listing){.s = s, .out = &out});
    put_other(s, s->p.embed_name, &out);
    put_other(s, s->p.rerank_name, &out);
    buf_puts(&out, "]}");
    if (reply_shape(r) == SHAPE_ANTHROPIC) {
        struct buf other;
        buf_init(&other, 1 << 20);
        put_anthropic(s, &out, &other);
        buf_fini(&out);
        out = other;
    }
    send_body(r, 200, NULL, &out);
}

void native_model(struct http_request *r) {
    struct server *s = http_server(r);
    const struct backend *b = catalog_find(s->p.catalog, http_rest(r), NULL);
    if (b) {
        struct buf out;
        buf_init(&out, 1 << 16);
        if (reply_shape(r) == SHAPE_ANTHROPIC) {
            put_anthropic_one(s, b->name, &out);
        } else {
            put_model(s, b, b->name, &out);
        }
        send_body(r, 200, NULL, &out);
        return;
    }
    struct err e;
    err_set(&e, CHIMERE_ENOENT, "model: there is no '%.80s' here", http_rest(r));
    http_fail(r, &e);
}
