/* api_native.c: tokens and templates (/tokenize, /detokenize, /apply-template), and the state of the server (/props,
 * /slots, /v1/status). */
#include <string.h>

#include "base/clock.h"
#include "engine/team.h"
#include "odo/quality.h"
#include "serve/api/api.h"
#include "serve/api/api_llama.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"
#include "serve/api/native.h"

enum { MAX_OUT = 256 << 20 };

static void reply(struct http_request *r, struct buf *out) {
    http_reply(r, 200, NULL, out);
    buf_fini(out);
}

static int check_names(const json_t *request, const char *const *names, struct err *e) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)request, key, v) {
        const char *const *n = names;
        while (*n && strcmp(*n, key) != 0) n++;
        if (!*n) return err_set(e, CHIMERE_EUNSUPPORTED, "%.80s: unknown field", key);
    }
    return 0;
}

static int flag(const json_t *request, const char *name, bool *out, struct err *e) {
    const json_t *v = json_object_get(request, name);
    if (!v || json_is_null(v)) return 0;
    if (!json_is_boolean(v)) return err_set(e, CHIMERE_EINVAL, "%s: expected true or false", name);
    *out = json_is_true(v);
    return 0;
}

/* ---- /tokenize ---- */

static int tokenize(struct http_request *r, const json_t *q, struct buf *out, struct err *e) {
    static const char *const names[] = {
        "model",       "content", "add_special",        "parse_special",
        "with_pieces", "prompt",  "add_special_tokens", NULL};
    bool special = false, parse = true, pieces = false;
    const json_t *content = json_object_get(q, "content");
    if (!content) content = json_object_get(q, "prompt"); /* vLLM's name of the field */
    int rc = check_names(q, names, e);
    if (!rc && !json_is_string(content))
        rc = err_set(e, CHIMERE_EINVAL, "content: expected a text");
    if (!rc) rc = flag(q, "add_special", &special, e);
    if (!rc) rc = flag(q, "add_special_tokens", &special, e);
    if (!rc) rc = flag(q, "parse_special", &parse, e);
    if (!rc) rc = flag(q, "with_pieces", &pieces, e);
    struct backend *b = rc ? NULL : gen_backend(r, json_object_get(q, "model"), e);
    if (!b) return rc ? rc : e->code;
    if (!b->model) return err_set(e, CHIMERE_EUNSUPPORTED, "model: its tokens are not known here");
    int32_t *ids = NULL;
    size_t n = 0;
    const struct tok *tok = b->model->tok;
    rc = tok_encode(tok, json_string_value(content), json_string_length(content), parse, special,
                    &ids, &n, e);
    buf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; !rc && i < n; i++) {
        if (i) buf_putc(out, ',');
        if (!pieces) {
            buf_printf(out, "%d", ids[i]);
            continue;
        }
        struct slice s = tok_piece(tok, ids[i]);
        buf_printf(out, "{\"id\":%d,\"piece\":", ids[i]);
        json_out_text(out, s.p, s.n);
        buf_putc(out, '}');
    }
    buf_printf(out, "],\"count\":%zu}", n);
    mem_free(ids);
    return rc;
}

static int detokenize(struct http_request *r, const json_t *q, struct buf *out, struct err *e) {
    static const char *const names[] = {"model", "tokens", NULL};
    const json_t *tokens = json_object_get(q, "tokens"), *v;
    int rc = check_names(q, names, e);
    if (!rc && !json_is_array(tokens))
        rc = err_set(e, CHIMERE_EINVAL, "tokens: expected a list of token ids");
    struct backend *b = rc ? NULL : gen_backend(r, json_object_get(q, "model"), e);
    if (!b) return rc ? rc : e->code;
    if (!b->model) return err_set(e, CHIMERE_EUNSUPPORTED, "model: its tokens are not known here");
    const struct tok *tok = b->model->tok;
    struct tok_stream stream;
    struct buf text;
    size_t i;
    char *piece = mem_alloc(3 * tok_max_piece_bytes(tok) + 64);
    if (!piece) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    tok_stream_init(&stream, tok, true);
    buf_init(&text, MAX_OUT);
    json_array_foreach(tokens, i, v) {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= tok_n_vocab(tok)) {
            rc = err_set(e, CHIMERE_EINVAL, "tokens[%zu]: expected an id below %u", i,
                         tok_n_vocab(tok));
            break;
        }
        buf_put(&text, piece, tok_stream_push(&stream, (int32_t)id, piece));
    }
    buf_put(&text, piece, tok_stream_flush(&stream, piece));
    buf_puts(out, "{\"content\":");
    json_out_text(out, text.p, text.n);
    buf_putc(out, '}');
    buf_fini(&text);
    mem_free(piece);
    return rc;
}

static void answer(struct http_request *r,
                   int (*fn)(struct http_request *, const json_t *, struct buf *, struct err *)) {
    struct err e = {0};
    struct buf out;
    json_t *q = api_json(r);
    if (!q) return;
    buf_init(&out, MAX_OUT);
    if (fn(r, q, &out, &e)) {
        buf_fini(&out);
        http_fail(r, &e);
    } else {
        reply(r, &out);
    }
    json_decref(q);
}

void native_tokenize(struct http_request *r) { answer(r, tokenize); }
void native_detokenize(struct http_request *r) { answer(r, detokenize); }

void native_template(struct http_request *r) {
    static const struct gen_form none = {0};
    struct gen *g = gen_new(r, &none, "");
    json_t *request;
    char *text = NULL;
    size_t n = 0;
    struct err e = {0};
    if (!g || !api_read(g, FIELDS_CHAT, &request)) return;
    json_decref(request);
    if (g->backend->ops->render(g->backend, &g->request, &text, NULL, &n, &e)) {
        gen_fail(g, &e);
        return;
    }
    struct buf out;
    buf_init(&out, MAX_OUT);
    buf_puts(&out, "{\"prompt\":");
    json_out_string(&out, text);
    buf_printf(&out, ",\"n_tokens\":%zu}", n);
    mem_free(text);
    reply(r, &out);
    http_job_done(r);
}

/* ---- state of the server ---- */

/* What llama-server's clients read from /props: the context of one answer, and the default sampling. */
static int put_defaults(const struct server *s, const struct backend *b, struct buf *out,
                        struct err *e) {
    struct request a;
    struct fields f = {.request = &a, .tok = b->model->tok};
    request_init(&a);
    a.sampling.seed = (uint64_t)-1; /* drawn anew for each request */
    int rc = fields_defaults(&f, s->p.defaults, e);
    buf_printf(out, ",\"default_generation_settings\":{\"n_ctx\":%lld,\"params\":",
               (long long)engine_ctx(b->model->engine));
    api_llama_settings(&a, 0, false, out);
    buf_putc(out, '}');
    request_fini(&a);
    return rc;
}

/* Reports the name of the file without its folder, because every key may read this. */
static void put_file(const struct backend_model *m, struct buf *out) {
    const struct gguf *g = backend_model_file(m);
    const char *path = g ? gguf_path(g, 0) : "", *slash = strrchr(path, '/');
    buf_puts(out, ",\"model_path\":");
    json_out_string(out, slash ? slash + 1 : path);
}

/* What the Studio page has to know of the server's limits. */
static void put_limits(const struct server *s, struct buf *out) {
    buf_printf(out, ",\"max_body_bytes\":%zu,\"min_learned_bytes\":%d,\"thinking_budgets\":",
               s->p.max_body_bytes, QUALITY_LEAST);
    fields_put_budgets(out);
}

void native_props(struct http_request *r) {
    struct server *s = http_server(r);
    const struct backend *b = catalog_at(s->p.catalog, 0);
    struct buf out;
    struct err e = {0};
    buf_init(&out, 4 << 20);
    buf_puts(&out, "{\"model\":");
    json_out_string(&out, b->name);
    if (!b->model) {
        buf_printf(&out, ",\"total_slots\":%d", gen_n_seq(b));
        put_limits(s, &out);
        buf_putc(&out, '}');
        reply(r, &out);
        return;
    }
    buf_printf(&out,
               ",\"total_slots\":%d,\"n_ctx\":%lld,\"n_vocab\":%u,\"tokenizer_hash\":\"%016llx\"",
               b->model->n_seq, (long long)engine_ctx(b->model->engine), tok_n_vocab(b->model->tok),
               (unsigned long long)tok_hash(b->model->tok));
    if (b->model->template) {
        const struct chat_caps *c = chat_template_caps(b->model->template);
        buf_printf(&out,
                   ",\"chat\":{\"tool_calls\":\"%s\",\"system\":%s,\"tools\":%s,\"reasoning\":%s}",
                   chat_calls_name(c->calls), c->has_system ? "true" : "false",
                   c->has_tools ? "true" : "false", c->has_reasoning ? "true" : "false");
    }
    put_file(b->model, &out);
    if (put_defaults(s, b, &out, &e)) {
        buf_fini(&out);
        http_fail(r, &e);
        return;
    }
    buf_printf(&out, ",\"loras\":%d", b->model->n_lora);
    put_limits(s, &out);
    buf_putc(&out, '}');
    reply(r, &out);
}

/* Requests are not bound to slots. For each model, the list has one entry per sequence that may run; as many of them
 * are marked as processing as answers are running. */
void native_slots(struct http_request *r) {
    struct server *s = http_server(r);
    struct buf out;
    buf_init(&out, 4 << 20);
    buf_putc(&out, '[');
    bool first = true;
    for (size_t i = 0; i < s->n_gate; i++) {
        const struct backend *b = catalog_at(s->p.catalog, i);
        struct engine_totals t;
        if (!b->model || !b->model->engine) continue;
        engine_totals(b->model->engine, &t);
        for (int32_t k = 0; k < b->model->n_seq; k++) {
            buf_printf(&out, "%s{\"id\":%d,\"model\":", first ? "" : ",", k);
            json_out_string(&out, b->name);
            buf_printf(&out, ",\"n_ctx\":%lld,\"is_processing\":%s}",
                       (long long)engine_ctx(b->model->engine), k < t.n_active ? "true" : "false");
            first = false;
        }
    }
    buf_putc(&out, ']');
    reply(r, &out);
}

static void put_times(struct buf *out, const char *name, struct metrics_times *t) {
    uint64_t n;
    double p50 = metrics_quantile(t, 0.5, &n), p95 = metrics_quantile(t, 0.95, &n),
           p99 = metrics_quantile(t, 0.99, &n);
    buf_printf(out, ",\"%s\":", name);
    if (!n) buf_puts(out, "null");
    else
        buf_printf(out, "{\"count\":%llu,\"p50_ms\":%.1f,\"p95_ms\":%.1f,\"p99_ms\":%.1f}",
                   (unsigned long long)n, p50 * 1e3, p95 * 1e3, p99 * 1e3);
}

/* The state of each card, if there are several. */
static void put_cards(struct buf *out, const struct backend *b) {
    struct engine *g = b->model ? b->model->engine : NULL;
    int32_t n = g ? team_size(g) : 1;
    if (n < 2) return;
    for (int32_t i = 0; i < n; i++) {
        struct team_member m;
        struct engine_totals t;
        team_at(g, i, &m, &t);
        buf_printf(out,
                   "%s{\"device\":\"%s\",\"lost\":%s,\"jobs\":%d,\"jobs_given\":%lld,"
                   "\"jobs_moved\":%lld,\"steps\":%lld,\"step_ms\":%.3f,\"prompt\":%lld,\"cached\":"
                   "%lld,\"generated\":%lld,"
                   "\"context_free\":%lld}",
                   i ? "," : ",\"cards\":[", m.name, m.lost ? "true" : "false", m.n_open,
                   (long long)m.n_job, (long long)m.n_moved, (long long)t.n_step, t.step_ms_mean,
                   (long long)t.n_prompt, (long long)t.n_cached, (long long)t.n_generated,
                   (long long)t.n_ctx_free);
    }
    buf_putc(out, ']');
}

void native_status(struct http_request *r) {
    struct server *s = http_server(r);
    struct metrics *m = &s->metrics;
    struct buf out;
    buf_init(&out, 4 << 20);
    buf_printf(&out, "{\"status\":\"%s\",\"uptime_s\":%.0f,\"models\":[",
               s->stopping   ? "stopping"
               : s->draining ? "draining"
                             : "ok",
               clock_ms_since(s->start_ns) * 1e-3);
    for (size_t i = 0; i < s->n_gate; i++) {
        const struct backend *b = catalog_at(s->p.catalog, i);
        struct engine_totals t = {0};
        if (b->model && b->model->engine) engine_totals(b->model->engine, &t);
        buf_puts(&out, i ? ",{\"name\":" : "{\"name\":");
        json_out_string(&out, b->name);
        buf_printf(&out,
                   ",\"running\":%d,\"waiting\":%d,\"slots\":%d,\"steps\":%lld,\"step_ms\":%.3f,"
                   "\"context_free\":%lld,\"states\":%d,\"states_disk\":%d,\"state_bytes\":%llu",
                   queue_n_running(s->gates[i]), queue_n_waiting(s->gates[i]), gen_n_seq(b),
                   (long long)t.n_step, t.step_ms_mean, (long long)t.n_ctx_free, t.n_state,
                   t.n_state_disk, (unsigned long long)t.state_bytes);
        put_cards(&out, b);
        buf_putc(&out, '}');
    }
    buf_puts(&out, "],\"on_demand\":");
    native_put_models(s, &out);
    buf_printf(
        &out,
        ",\"requests\":{\"ok\":%llu,\"refused\":%llu,\"busy\":%llu,\"failed\":%llu,"
        "\"cancelled\":%llu},\"tokens\":{\"prompt\":%llu,\"cached\":%llu,\"generated\":%llu}",
        (unsigned long long)m->n_ok, (unsigned long long)m->n_bad, (unsigned long long)m->n_busy,
        (unsigned long long)m->n_failed, (unsigned long long)m->n_cancelled,
        (unsigned long long)m->n_prompt, (unsigned long long)m->n_cached,
        (unsigned long long)m->n_generated);
    put_times(&out, "ttft", &m->ttft);
    put_times(&out, "queue", &m->queue);
    put_times(&out, "token", &m->per_token);
    buf_putc(&out, '}');
    reply(r, &out);
}
