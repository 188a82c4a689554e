/* api_llama.c: llama-server's own routes: /completion, /infill, /lora-adapters, and counts of input tokens. */
#include <stdio.h>
#include <string.h>

#include "model/lora.h"
#include "serve/api/api.h"
#include "serve/api/api_llama.h"
#include "serve/api/api_out.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"

enum { MAX_EXTRA = 256 };

/* ---- fill in the middle (/infill) ---- */

/* Names of the special tokens per model family: before, after, in between, and between files (may be NULL). */
static const struct {
    const char *prefix, *suffix, *middle, *file;
} fills[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     NULL},
    {"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>", NULL},
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]", NULL},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL},
};

static int32_t find(const struct tok *tok, const char *name) {
    return name ? tok_find(tok, name, strlen(name)) : -1;
}

/* Tokenizes text from a client; names of control tokens in it are plain text. */
static int add_text(const struct tok *tok, const json_t *text, const char *where, json_t *out,
                    struct err *e) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (!text || json_is_null(text)) return 0;
    if (!json_is_string(text)) return err_set(e, CHIMERE_EINVAL, "%s: expected a text", where);
    int rc = tok_encode(tok, json_string_value(text), json_string_length(text), false, false, &ids,
                        &n, e);
    for (size_t i = 0; !rc && i < n; i++)
        if (json_array_append_new(out, json_integer(ids[i]))) rc = CHIMERE_ENOMEM;
    mem_free(ids);
    return rc;
}

static int add_files(const struct tok *tok, const json_t *files, int32_t sep, json_t *out,
                     struct err *e) {
    const json_t *f;
    size_t i;
    if (!files || json_is_null(files)) return 0;
    if (!json_is_array(files) || json_array_size(files) > MAX_EXTRA)
        return err_set(e, CHIMERE_EINVAL, "input_extra: expected a list of at most %d files",
                       MAX_EXTRA);
    json_array_foreach(files, i, f) {
        if (!json_is_string(json_object_get(f, "text")))
            return err_set(e, CHIMERE_EINVAL, "input_extra[%zu].text: expected a text", i);
        json_t *newline = json_string("\n");
        if (sep >= 0) json_array_append_new(out, json_integer(sep));
        int rc = add_text(tok, json_object_get(f, "filename"), "input_extra.filename", out, e);
        if (!rc) rc = add_text(tok, newline, "", out, e);
        if (!rc) rc = add_text(tok, json_object_get(f, "text"), "input_extra.text", out, e);
        if (!rc) rc = add_text(tok, newline, "", out, e);
        json_decref(newline);
        if (rc) return rc;
    }
    return 0;
}

int api_llama_fill(const struct tok *tok, const json_t *files, const json_t *before,
                   const json_t *more, const json_t *after, json_t **out, struct err *e) {
    size_t k = 0, n = sizeof fills / sizeof *fills;
    *out = NULL;
    while (k < n && find(tok, fills[k].prefix) < 0) k++;
    if (k == n || find(tok, fills[k].suffix) < 0 || find(tok, fills[k].middle) < 0)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "suffix: this model has no tokens to fill in the middle");
    json_t *ids = json_array();
    int32_t sep = find(tok, fills[k].file);
    int rc = add_files(tok, files, sep, ids, e);
    if (!rc && sep >= 0 && json_array_size(files)) json_array_append_new(ids, json_integer(sep));
    json_array_append_new(ids, json_integer(find(tok, fills[k].prefix)));
    if (!rc) rc = add_text(tok, before, "input_prefix", ids, e);
    if (!rc) rc = add_text(tok, more, "prompt", ids, e);
    json_array_append_new(ids, json_integer(find(tok, fills[k].suffix)));
    if (!rc) rc = add_text(tok, after, "input_suffix", ids, e);
    json_array_append_new(ids, json_integer(find(tok, fills[k].middle)));
    if (rc) json_decref(ids);
    else *out = ids;
    return rc;
}

/* ---- /completion ---- */

static void put_token(struct gen *g, int32_t id, double logprob, struct buf *out) {
    struct slice s = tok_piece(g->backend->model->tok, id);
    buf_printf(out, "{\"id\":%d,\"token\":", id);
    json_out_text(out, s.p, s.n);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < s.n; i++)
        buf_printf(out, i ? ",%u" : "%u", (unsigned)(unsigned char)s.p[i]);
    buf_puts(out, "],\"logprob\":");
    json_out_number(out, logprob < -9999 ? -9999 : logprob);
}

/* probs[0]: objects with the probabilities of each token; probs[1]: token ids. */
static void on_probs(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    struct buf *out = &c->probs[0];
    if (ev->kind == EVENT_PROMPT) return; /* report the probabilities of the answer only */
    if (c->probs[1].n) buf_putc(&c->probs[1], ',');
    buf_printf(&c->probs[1], "%d", ev->token);
    if (out->n) buf_putc(out, ',');
    put_token(g, ev->token, (double)ev->probs->chosen, out);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int32_t i = 0; i < g->n_top && i < ev->probs->n; i++) {
        if (i) buf_putc(out, ',');
        put_token(g, ev->probs->ids[i], (double)ev->probs->logprobs[i], out);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

static bool wants(const struct gen *g, const char *name) {
    return json_is_true(json_object_get(g->echo, name));
}

static void put_extra(struct gen *g, struct gen_choice *c, struct buf *out) {
    buf_puts(out, ",\"tokens\":[");
    if (wants(g, "return_tokens") && c->probs[1].n) buf_put(out, c->probs[1].p, c->probs[1].n);
    buf_putc(out, ']');
    if (g->n_top > 0 && c->probs[0].n) {
        buf_puts(out, ",\"completion_probabilities\":[");
        buf_put(out, c->probs[0].p, c->probs[0].n);
        buf_putc(out, ']');
    }
    buf_clear(&c->probs[0]);
    buf_clear(&c->probs[1]);
}

void api_llama_settings(const struct request *a, int32_t n_top, bool stream, struct buf *out) {
    const struct sampler_params *p = &a->sampling;
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"temperature", p->temperature},
        {"top_p", p->top_p},
        {"min_p", p->min_p},
        {"typical_p", p->typical_p},
        {"top_n_sigma", p->top_n_sigma},
        {"xtc_probability", p->xtc_probability},
        {"xtc_threshold", p->xtc_threshold},
        {"repeat_penalty", p->repeat_penalty},
        {"presence_penalty", p->presence_penalty},
        {"frequency_penalty", p->frequency_penalty},
        {"dry_multiplier", p->dry_multiplier},
        {"dry_base", p->dry_base},
    };
    buf_printf(out,
               "{\"seed\":%lld,\"n_predict\":%d,\"max_tokens\":%d,"
               "\"top_k\":%d,\"repeat_last_n\":%d,\"mirostat\":%d,\"n_probs\":%d,"
               "\"ignore_eos\":%s,\"stream\":%s",
               (long long)p->seed, a->max_tokens > 0 ? a->max_tokens : -1,
               a->max_tokens > 0 ? a->max_tokens : -1, p->top_k, p->penalty_last_n, p->mirostat,
               n_top > 0 ? n_top : 0, p->ignore_eos ? "true" : "false", stream ? "true" : "false");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32];
        /* prints the digits of a float, without the rounding noise of a double */
        snprintf(text, sizeof text, "%.6g", rows[i].value);
        buf_printf(out, ",\"%s\":%s", rows[i].name, text);
    }
    buf_puts(out, ",\"stop\":[");
    for (size_t i = 0; i < a->n_stop; i++) {
        if (i) buf_putc(out, ',');
        json_out_string(out, a->stops[i]);
    }
    buf_puts(out, "]}");
}

static void put_stop(struct gen *g, struct gen_choice *c, struct buf *out) {
    const struct generation_end *s = &c->end;
    bool limit = s->finish == FINISH_LENGTH;
    buf_puts(out, ",\"stop\":true,\"model\":");
    json_out_string(out, g->model);
    buf_printf(out,
               ",\"tokens_predicted\":%d,\"tokens_evaluated\":%d,\"tokens_cached\":%d,"
               "\"truncated\":false,\"stop_type\":\"%s\",\"stopping_word\":",
               s->stats.n_generated, s->stats.n_prompt, s->stats.n_cached,
               limit     ? "limit"
               : s->stop ? "word"
                         : "eos");
    json_out_string(out, s->stop ? s->stop : "");
    buf_puts(out, ",\"prompt\":");
    json_out_value(out, gen_prompt(g, (int32_t)(c - g->choices)));
    buf_printf(out, ",\"has_new_line\":%s,\"id_slot\":%d",
               c->content.n && memchr(c->content.p, '\n', c->content.n) ? "true" : "false",
               g->request.slot < 0 ? 0 : g->request.slot);
    buf_puts(out, ",\"generation_settings\":");
    api_llama_settings(&g->request, g->n_top, g->stream, out);
    api_put_timings(g, out);
    api_put_verbose(g, out);
}

static void open_frame(struct gen *g, struct gen_choice *c, const char *text, size_t n) {
    buf_printf(&g->frame, "data: {\"index\":%d,\"content\":", (int)(c - g->choices));
    json_out_text(&g->frame, text, n);
    put_extra(g, c, &g->frame);
}

static void on_begin(struct gen *g) { (void)g; }

static void on_event(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    bool ended = ev->kind == EVENT_END && ev->end->finish != FINISH_ERROR &&
                 ev->end->finish != FINISH_CANCELLED;
    if (ev->kind == EVENT_CHAT && ev->chat->kind == CHAT_CONTENT) {
        open_frame(g, c, ev->chat->text, ev->chat->n);
        buf_puts(&g->frame, ",\"stop\":false");
        if (g->timings && c->first_ns) api_put_timings(g, &g->frame);
        buf_puts(&g->frame, "}\n\n");
        gen_put(g, &g->frame);
    } else if (ev->kind == EVENT_PREFILL) {
        open_frame(g, c, "", 0);
        buf_puts(&g->frame, ",\"stop\":false,");
        api_put_progress(g, ev, &g->frame);
        buf_puts(&g->frame, "}\n\n");
        gen_put(g, &g->frame);
    } else if (ended) {
        open_frame(g, c, "", 0);
        put_stop(g, c, &g->frame);
        buf_puts(&g->frame, "}\n\n");
        gen_put(g, &g->frame);
    }
}

static void on_end(struct gen *g) {
    if (!g->cut.code) return;
    api_put_error_frame(g, SHAPE_OPENAI, NULL);
    gen_put(g, &g->frame);
}

/* response_fields: keeps only the named members of each answer. "a/b" is a member of an inner object and keeps that
 * name. */
static void put_chosen(const json_t *names, const struct buf *all, struct buf *out) {
    json_t *whole = json_loadb(all->p ? all->p : "", all->n, 0, NULL), *kept = json_object(), *name;
    size_t i;
    json_array_foreach(names, i, name) {
        const char *s = json_string_value(name), *slash = s ? strchr(s, '/') : NULL;
        char outer[64];
        if (!s) continue;
        snprintf(outer, sizeof outer, "%.*s", slash ? (int)(slash - s) : 63, s);
        json_t *v = json_object_get(whole, outer);
        if (slash) v = json_object_get(v, slash + 1);
        if (v) json_object_set(kept, s, v);
    }
    json_out_value(out, kept);
    json_decref(kept);
    json_decref(whole);
}

static void whole(struct gen *g, struct buf *out) {
    const json_t *names = json_object_get(g->echo, "response_fields");
    if (g->n_choice > 1) buf_putc(out, '[');
    for (int32_t i = 0; i < g->n_choice; i++) {
        struct gen_choice *c = &g->choices[i];
        struct buf one;
        buf_init(&one, out->max);
        buf_printf(&one, "{\"index\":%d,\"content\":", i);
        json_out_text(&one, c->content.p, c->content.n);
        put_extra(g, c, &one);
        put_stop(g, c, &one);
        buf_putc(&one, '}');
        if (i) buf_putc(out, ',');
        if (json_array_size(names)) put_chosen(names, &one, out);
        else if (one.n) buf_put(out, one.p, one.n);
        buf_fini(&one);
    }
    if (g->n_choice > 1) buf_putc(out, ']');
}

static const struct gen_form form = {.ping = ": ping\n\n",
                                     .begin = on_begin,
                                     .event = on_event,
                                     .end = on_end,
                                     .whole = whole,
                                     .probs = on_probs};

/* Takes ownership of request. */
static void complete(struct http_request *r, json_t *request) {
    struct gen *g = gen_new(r, &form, "cmpl-");
    if (g && api_take(g, FIELDS_TEXT, request)) {
        g->echo = json_incref(request);
        if (wants(g, "return_tokens") && !g->request.probs) {
            /* token ids are only reported together with their probabilities */
            g->request.probs = true;
            g->request.sampling.n_probs = 1;
        }
        gen_go(g);
    }
    json_decref(request);
}

void api_completion(struct http_request *r) {
    json_t *request = api_json(r);
    if (request) complete(r, request);
}

void api_infill(struct http_request *r) {
    static const char *const own[] = {"input_prefix", "input_suffix", "input_extra", "prompt"};
    json_t *request = api_json(r), *ids;
    struct err e = {0};
    if (!request) return;
    struct backend *b = gen_backend(r, json_object_get(request, "model"), &e);
    int rc = b ? 0 : e.code;
    if (!rc && !b->model)
        rc = err_set(&e, CHIMERE_EUNSUPPORTED, "model: its tokens are not known here");
    if (!rc)
        rc = api_llama_fill(b->model->tok, json_object_get(request, own[2]),
                            json_object_get(request, own[0]), json_object_get(request, own[3]),
                            json_object_get(request, own[1]), &ids, &e);
    if (rc) {
        json_decref(request);
        http_fail(r, &e);
        return;
    }
    for (size_t i = 0; i < 4; i++) json_object_del(request, own[i]);
    json_object_set_new(request, "prompt", ids);
    complete(r, request);
}

/* ---- counts, adapters ---- */

static void count(struct http_request *r, enum fields_api api, const char *format) {
    static const struct gen_form none = {0};
    struct gen *g = gen_new(r, &none, "");
    struct err e = {0};
    json_t *request;
    size_t n = 0;
    if (!g || !api_read(g, api, &request)) return;
    json_decref(request);
    if (g->backend->ops->render(g->backend, &g->request, NULL, NULL, &n, &e)) {
        gen_fail(g, &e);
        return;
    }
    struct buf out;
    buf_init(&out, 256);
    buf_printf(&out, "{\"object\":\"%s\",\"input_tokens\":%zu}", format, n);
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
    http_job_done(r);
}

void api_count_input(struct http_request *r) {
    count(r, FIELDS_RESPONSES, "response.input_tokens");
}
void api_count_chat(struct http_request *r) {
    count(r, FIELDS_CHAT, "chat.completion.input_tokens");
}

/* Adapters are identified by their index, as in the field `lora`. The list of loaded adapters does not change. */
void api_adapters(struct http_request *r) {
    const struct backend_model *m = catalog_at(http_server(r)->p.catalog, 0)->model;
    struct buf out;
    buf_init(&out, 1 << 16);
    buf_putc(&out, '[');
    for (int32_t i = 0; m && i < m->n_lora; i++)
        buf_printf(&out, "%s{\"id\":%d,\"path\":\"\",\"scale\":%g}", i ? "," : "", i,
                   (double)m->loras[i].scale);
    buf_putc(&out, ']');
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}
