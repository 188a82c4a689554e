/* api_text.c: /v1/completions: continues a raw prompt. */
#include <string.h>

#include "serve/api/api.h"
#include "serve/api/api_llama.h"
#include "serve/api/api_out.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"

#define MAX_ECHO ((size_t)64 << 20)

/* Log-probabilities in the older form: tokens, token_logprobs, top_logprobs, text_offset. */
static void text_probs(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    const struct tok *tok = g->backend->model->tok;
    struct buf *p = c->probs;
    for (int i = 0; p[0].n && i < 4; i++) buf_putc(&p[i], ',');
    json_out_text(&p[0], ev->text, ev->n);
    buf_printf(&p[3], "%zu", c->n_offset);
    c->n_offset += ev->n;
    if (!ev->probs) { /* the first token of an echoed prompt has none */
        buf_puts(&p[1], "null");
        buf_puts(&p[2], "null");
        return;
    }
    json_out_number(&p[1], (double)ev->probs->chosen);
    buf_putc(&p[2], '{');
    for (int32_t i = 0; i < g->n_top && i < ev->probs->n; i++) {
        struct slice s = tok_piece(tok, ev->probs->ids[i]);
        if (i) buf_putc(&p[2], ',');
        json_out_text(&p[2], s.p, s.n);
        buf_putc(&p[2], ':');
        json_out_number(&p[2], (double)ev->probs->logprobs[i]);
    }
    buf_putc(&p[2], '}');
}

static void put_probs(struct gen *g, struct gen_choice *c, struct buf *out) {
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    if (!g->request.probs || !c->probs[0].n) {
        buf_puts(out, "null");
        return;
    }
    for (int i = 0; i < 4; i++) {
        buf_printf(out, "%s\"%s\":[", i ? "," : "{", names[i]);
        buf_put(out, c->probs[i].p, c->probs[i].n);
        buf_putc(out, ']');
        buf_clear(&c->probs[i]);
    }
    buf_putc(out, '}');
}

static void put_head(struct gen *g, struct buf *out) {
    buf_puts(out, "{\"id\":");
    json_out_string(out, g->id);
    buf_printf(
        out, ",\"object\":\"text_completion\",\"created\":%lld,\"model\":", (long long)g->created);
    json_out_string(out, g->model);
    buf_puts(out, ",\"system_fingerprint\":\"chimere\",\"choices\":[");
}

static void put_choice(struct gen *g, struct gen_choice *c, const char *text, size_t n,
                       const char *finish, struct buf *out) {
    buf_printf(out, "{\"index\":%d,\"text\":", (int)(c - g->choices));
    json_out_text(out, text, n);
    buf_puts(out, ",\"logprobs\":");
    put_probs(g, c, out);
    buf_puts(out, ",\"finish_reason\":");
    json_out_string(out, finish);
    if (finish && c->end.stop) {
        buf_puts(out, ",\"stop_reason\":");
        json_out_string(out, c->end.stop);
    }
    buf_putc(out, '}');
}

static void send_text(struct gen *g, struct gen_choice *c, const char *text, size_t n,
                      const char *finish) {
    buf_put(&g->frame, g->prefix.p, g->prefix.n);
    put_choice(g, c, text, n, finish, &g->frame);
    buf_puts(&g->frame, g->usage ? "],\"usage\":null" : "]");
    if (g->timings && c->first_ns) api_put_timings(g, &g->frame);
    buf_puts(&g->frame, "}\n\n");
    gen_put(g, &g->frame);
}

/* Writes the prompt's text if it is to be repeated; token ids are detokenized. */
static void put_echo(struct gen *g, int32_t choice, struct buf *out) {
    const json_t *prompt = gen_prompt(g, choice), *id;
    size_t i;
    if (!g->request.echo) return;
    if (json_is_string(prompt)) buf_put(out, json_string_value(prompt), json_string_length(prompt));
    json_array_foreach(prompt, i, id) {
        if (json_is_string(id)) {
            buf_put(out, json_string_value(id), json_string_length(id));
            continue;
        }
        struct slice s = tok_piece(g->backend->model->tok, (int32_t)json_integer_value(id));
        buf_put(out, s.p, s.n);
    }
}

static void text_begin(struct gen *g) {
    buf_puts(&g->prefix, "data: ");
    put_head(g, &g->prefix);
    for (int32_t i = 0; g->request.echo && i < g->n_choice; i++) {
        struct buf text;
        buf_init(&text, MAX_ECHO);
        put_echo(g, i, &text);
        send_text(g, &g->choices[i], text.p, text.n, NULL);
        buf_fini(&text);
    }
}

static void text_event(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    if (ev->kind == EVENT_PREFILL) {
        buf_put(&g->frame, g->prefix.p, g->prefix.n);
        buf_puts(&g->frame, "],");
        api_put_progress(g, ev, &g->frame);
        buf_puts(&g->frame, "}\n\n");
        gen_put(g, &g->frame);
    }
    if (ev->kind == EVENT_CHAT && ev->chat->kind == CHAT_CONTENT)
        send_text(g, c, ev->chat->text, ev->chat->n, NULL);
    if (ev->kind == EVENT_END && ev->end->finish != FINISH_ERROR &&
        ev->end->finish != FINISH_CANCELLED)
        send_text(g, c, "", 0, api_finish(c));
}

static void text_end(struct gen *g) {
    if (g->cut.code) {
        api_put_error_frame(g, SHAPE_OPENAI, NULL);
    } else if (g->usage) {
        buf_put(&g->frame, g->prefix.p, g->prefix.n);
        buf_puts(&g->frame, "],\"usage\":");
        api_put_usage(g, &g->frame);
        api_put_timings(g, &g->frame);
        buf_puts(&g->frame, "}\n\n");
    }
    buf_puts(&g->frame, "data: [DONE]\n\n");
    gen_put(g, &g->frame);
}

static void text_whole(struct gen *g, struct buf *out) {
    put_head(g, out);
    for (int32_t i = 0; i < g->n_choice; i++) {
        struct gen_choice *c = &g->choices[i];
        struct buf text;
        buf_init(&text, 2 * MAX_ECHO);
        put_echo(g, i, &text);
        if (c->content.n) buf_put(&text, c->content.p, c->content.n);
        if (i) buf_putc(out, ',');
        put_choice(g, c, text.p, text.n, api_finish(c), out);
        buf_fini(&text);
    }
    buf_puts(out, "],\"usage\":");
    api_put_usage(g, out);
    api_put_timings(g, out);
    api_put_verbose(g, out);
    buf_putc(out, '}');
}

static const struct gen_form text_form = {.ping = ": ping\n\n",
                                          .begin = text_begin,
                                          .event = text_event,
                                          .end = text_end,
                                          .whole = text_whole,
                                          .probs = text_probs};

/* Converts a prompt and a suffix to a fill-in-the-middle prompt. */
static int fill(struct http_request *r, json_t *request, struct err *e) {
    json_t *suffix = json_object_get(request, "suffix"),
           *prompt = json_object_get(request, "prompt");
    json_t *ids;
    if (!suffix || json_is_null(suffix) || (json_is_string(suffix) && !json_string_length(suffix)))
        return 0;
    struct backend *b = gen_backend(r, json_object_get(request, "model"), e);
    if (!b) return e->code;
    if (!json_is_string(prompt))
        return err_set(e, CHIMERE_EUNSUPPORTED, "suffix: expected one text as the prompt");
    if (json_is_true(json_object_get(request, "echo")) || !b->model)
        return err_set(e, CHIMERE_EUNSUPPORTED, "suffix: not with echo, nor with a remote model");
    int rc = api_llama_fill(b->model->tok, NULL, prompt, NULL, suffix, &ids, e);
    return rc ? rc : json_object_set_new(request, "prompt", ids);
}

void api_text(struct http_request *r) {
    json_t *request = api_json(r);
    struct err e = {0};
    if (!request) return;
    if (fill(r, request, &e)) {
        json_decref(request);
        http_fail(r, &e);
        return;
    }
    struct gen *g = gen_new(r, &text_form, "cmpl-");
    bool ok = g && api_take(g, FIELDS_TEXT, request);
    json_decref(request);
    if (!ok) return;
    bool is_remote = !g->backend->model || !g->backend->ops->tokens;
    if (g->request.echo && is_remote &&
        (g->request.prompt_probs || !json_is_string(g->request.prompt))) {
        e = (struct err){0};
        err_set(&e, CHIMERE_EUNSUPPORTED, "echo: the tokens of this model are not known here");
        gen_fail(g, &e);
        return;
    }
    gen_go(g);
}
