/* api_openai.c: /v1/chat/completions. A request passes from here to fields.c, gen.c and the backend. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "serve/api/api.h"
#include "serve/api/api_out.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"
#include "odo/odo.h"

/* ---- shared by the APIs ---- */

/* Reads the body as a JSON object. While the request exists, its values count against the server's budget for
 * bodies. */
static json_t *read_body(struct http_request *r, struct err *e) {
    size_t n;
    const char *text = http_body(r, &n);
    size_t cost = chat_json_cost(text, n);
    if (cost <= CHAT_JSON_MAX_COST && !http_reserve(r, n + cost)) {
        r->retry_s = 1;
        err_set(e, CHIMERE_ENOMEM, "the bodies of all requests take more than this server allows");
        return NULL;
    }
    return chat_json_object(text, n, "body", e);
}

json_t *api_json(struct http_request *r) {
    struct err e = {0};
    json_t *v = read_body(r, &e);
    if (!v) http_fail(r, &e);
    return v;
}

void api_answer(struct http_request *r, int rc, json_t *o, const struct err *e) {
    struct err none;
    struct buf out;
    buf_init(&out, (size_t)64 << 20);
    if (o) json_out_value(&out, o);
    err_set(&none, CHIMERE_ENOMEM, "out of memory");
    if (rc || !o || out.failed) http_fail(r, rc ? e : &none);
    else http_reply(r, 200, NULL, &out);
    buf_fini(&out);
    json_decref(o);
}

/* Names the session, which belongs to the caller's key. If the request names only a slot, its number is the name. */
static void name_session(struct gen *g) {
    char name[700];
    const char *session = g->request.session;
    if (!session && g->request.slot < 0) return;
    if (session) snprintf(name, sizeof name, "%s/%.512s", g->request.owner, session);
    else snprintf(name, sizeof name, "%s/slot-%d", g->request.owner, g->request.slot);
    g->request.session = arena_strndup(&g->request.arena, name, strlen(name));
}

bool api_take(struct gen *g, enum fields_api api, json_t *v) {
    struct err e = {0};
    struct fields f = {.request = &g->request};
    const char *session = http_header(g->r, "X-Session-Id");
    if (session && session[0])
        g->request.session = arena_strndup(&g->request.arena, session, strnlen(session, 512));
    int rc = gen_model(g, json_object_get(v, "model"));
    if (!rc) {
        f.tok = g->backend->model ? g->backend->model->tok : NULL;
        struct backend *searching =
            g->r->s->p.odo ? odo_searching(g->r->s->p.odo, g->backend) : NULL;
        f.can_search = searching != NULL;
        rc = fields_defaults(&f, g->r->s->p.defaults, &e);
        const struct sampler_params usual = g->request.sampling;
        if (!rc) rc = fields_read(&f, v, api, &e);
        if (rc) gen_fail(g, &e);
        if (g->request.search) g->backend = searching;
        /* greedy means the most likely token: the model's default penalty applies only if the request names it */
        struct sampler_params *p = &g->request.sampling;
        if (p->temperature <= 0 && p->dry_multiplier == usual.dry_multiplier) p->dry_multiplier = 0;
    }
    if (rc) return false;
    name_session(g);
    gen_scope(g);
    for (size_t i = 0; i < FIELDS_MAX_ROWS; i++)
        if (f.ignored[i / 64] >> (i % 64) & 1) g->r->s->metrics.ignored[i]++;
    g->old_calls = f.old_calls;
    g->stream = f.stream;
    g->usage = f.usage;
    g->progress = f.progress;
    g->timings = f.timings;
    g->verbose = f.verbose || g->r->s->p.verbose;
    g->n_top = f.n_probs;
    g->prompts = json_incref(f.prompts);
    return true;
}

/* Inputs of tool calls in a history of Anthropic's API may contain integers of more than 64 bits; keeps them exact. */
static void keep_integers(struct http_request *r, json_t *request) {
    size_t n, i, k;
    const char *text = http_body(r, &n);
    json_t *exact = chat_json_exact(text, n), *message, *block;
    const json_t *messages = json_object_get(exact, "messages");
    json_array_foreach(json_object_get(request, "messages"), i, message) {
        const json_t *same = json_object_get(json_array_get(messages, i), "content");
        json_array_foreach(json_object_get(message, "content"), k, block) {
            json_t *input = json_object_get(json_array_get(same, k), "input");
            if (json_is_object(input) && json_object_get(block, "input"))
                json_object_set(block, "input", input);
        }
    }
    json_decref(exact);
}

bool api_read(struct gen *g, enum fields_api api, json_t **request) {
    struct err e = {0};
    *request = read_body(g->r, &e);
    if (!*request) {
        gen_fail(g, &e);
        return false;
    }
    if (api == FIELDS_MESSAGES) keep_integers(g->r, *request);
    if (api_take(g, api, *request)) return true;
    json_decref(*request);
    return false;
}

void api_put_usage(struct gen *g, struct buf *out) {
    struct generation_end s = gen_sum(g);
    int32_t n_prompt = s.stats.n_prompt, n_gen = s.stats.n_generated;
    buf_printf(out,
               "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%d,\"evaluated_tokens\":%d},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":%d,"
               "\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}",
               n_prompt, n_gen, n_prompt + n_gen, s.stats.n_cached, n_prompt - s.stats.n_cached,
               s.n_reasoning);
}

/* A rate over fewer than two tokens is not meaningful. */
static void put_rate(struct buf *out, const char *name, int32_t n, double ms) {
    if (n < 2 || ms <= 0) buf_printf(out, ",\"%s\":null", name);
    else buf_printf(out, ",\"%s\":%.2f", name, n * 1000 / ms);
}

static void put_slots(struct buf *out, const char *name, const int32_t *n, int n_slot) {
    buf_printf(out, "\"%s\":[", name);
    for (int k = 0; k < n_slot; k++) buf_printf(out, "%s%d", k ? "," : "", n[k]);
    buf_puts(out, "]");
}

/* For each source that drafted: tokens by position in the draft. */
static void put_drafts(struct buf *out, const struct draft_stats *s) {
    bool any = false;
    buf_printf(out, ",\"draft_rounds\":%d,\"drafts\":{", s->n_round);
    for (int i = 0; i < DRAFT_N_SOURCE; i++) {
        int n_slot = DRAFT_N_SLOT;
        while (n_slot && !s->n_drafted[i][n_slot - 1]) n_slot--;
        if (!n_slot) continue;
        buf_printf(out, "%s\"%s\":{", any ? "," : "", draft_source_name((enum draft_source)i));
        put_slots(out, "drafted", s->n_drafted[i], n_slot);
        buf_puts(out, ",");
        put_slots(out, "accepted", s->n_accepted[i], n_slot);
        buf_puts(out, "}");
        any = true;
    }
    buf_puts(out, "}");
}

void api_put_timings(struct gen *g, struct buf *out) {
    struct generation_end s = gen_sum(g);
    int32_t n_eval = s.stats.n_prompt - s.stats.n_cached;
    buf_printf(out, ",\"timings\":{\"queue_ms\":%.3f,\"prompt_n\":%d,\"prompt_ms\":%.3f",
               s.stats.queue_ms, n_eval, s.stats.prefill_ms);
    buf_printf(out, ",\"cache_n\":%d", s.stats.n_cached);
    if (n_eval > 0) buf_printf(out, ",\"prompt_per_token_ms\":%.3f", s.stats.prefill_ms / n_eval);
    if (s.stats.n_generated > 0)
        buf_printf(out, ",\"predicted_per_token_ms\":%.3f",
                   s.stats.decode_ms / s.stats.n_generated);
    put_rate(out, "prompt_per_second", n_eval, s.stats.prefill_ms);
    buf_printf(out, ",\"predicted_n\":%d,\"predicted_ms\":%.3f", s.stats.n_generated,
               s.stats.decode_ms);
    put_rate(out, "predicted_per_second", s.stats.n_generated, s.stats.decode_ms);
    buf_printf(out, ",\"draft_n\":%d,\"draft_n_accepted\":%d", s.stats.n_drafted,
               s.stats.n_accepted);
    if (s.stats.drafts.n_round) put_drafts(out, &s.stats.drafts);
    if (s.n_repaired) buf_printf(out, ",\"repaired_calls\":%d", s.n_repaired);
    buf_puts(out, "}");
}

bool api_search_read(struct api_search *s, const struct backend_event *ev) {
    if (strcmp(ev->name, "tool")) return false;
    json_t *note = json_loadb(ev->text, ev->n, 0, NULL);
    const char *name = json_string_value(json_object_get(note, "name"));
    *s = (struct api_search){.note = note,
                             .arguments = json_string_value(json_object_get(note, "arguments")),
                             .found = json_object_get(note, "found"),
                             .ok = json_is_true(json_object_get(note, "ok"))};
    json_t *arguments = s->arguments ? json_loads(s->arguments, 0, NULL) : NULL;
    json_t *query = json_object_get(arguments, "query");
    bool is_search = name && !strcmp(name, "web_search") && json_is_string(query) &&
                     !json_object_set(note, "query", query);
    json_decref(arguments);
    s->query = json_string_value(json_object_get(note, "query"));
    if (!is_search) json_decref(note);
    return is_search;
}

/* Sends the prompt that the template made (field verbose, or serve --verbose), in llama-server's form. */
void api_put_verbose(struct gen *g, struct buf *out) {
    const struct gen_choice *c = &g->choices[0];
    char *text = NULL;
    size_t n;
    struct err e = {0};
    if (!g->verbose) return;
    if (g->backend->ops->render(g->backend, &g->request, &text, NULL, &n, &e)) text = NULL;
    buf_puts(out, ",\"__verbose\":{\"index\":0,\"content\":");
    json_out_text(out, c->content.p, c->content.n);
    buf_puts(out, ",\"prompt\":");
    json_out_string(out, text ? text : "");
    buf_printf(out, ",\"tokens_predicted\":%d,\"tokens_evaluated\":%d,\"stop\":true}",
               c->end.stats.n_generated, c->end.stats.n_prompt);
    mem_free(text);
}

const char *api_finish(const struct gen_choice *c) {
    switch (c->end.finish) {
    case FINISH_LENGTH: return "length";
    case FINISH_CALLS: return c->old_calls ? "function_call" : "tool_calls";
    default: return "stop";
    }
}

const json_t *api_call_form(const struct gen *g, const char *name) {
    return json_object_get(g->request.tool_forms, name);
}

void api_put_input(const struct gen_call *call, struct buf *out) {
    json_t *args = json_loadb(call->args.n ? call->args.p : "", call->args.n, 0, NULL);
    const json_t *input = json_object_get(args, "input");
    json_out_text(out, json_string_value(input), json_string_length(input));
    json_decref(args);
}

static void put_call(struct gen *g, const struct gen_call *call, struct buf *out) {
    bool is_custom = json_object_get(api_call_form(g, call->name), "custom");
    const char *kind = is_custom ? "custom" : "function";
    buf_puts(out, "{\"id\":");
    json_out_string(out, call->id);
    buf_printf(out, ",\"type\":\"%s\",\"%s\":{\"name\":", kind, kind);
    json_out_string(out, call->name);
    buf_puts(out, is_custom ? ",\"input\":" : ",\"arguments\":");
    if (is_custom) api_put_input(call, out);
    else json_out_text(out, call->args.p, call->args.n);
    buf_puts(out, "}}");
}

/* Selects the calls to report: every call that the stream has begun, even if it failed later. Then its arguments are
 * incomplete and its text is content. Calls of custom tools are streamed once they are complete. */
static bool is_shown(const struct gen *g, const struct gen_call *call) {
    return call->is_done || !json_object_get(api_call_form(g, call->name), "custom");
}

void api_put_calls(struct gen *g, struct gen_choice *c, struct buf *out) {
    bool first = true;
    buf_putc(out, '[');
    for (int i = 0; i < c->n_call; i++) {
        struct gen_call *call = &c->calls[i];
        if (!is_shown(g, call)) continue;
        if (!first) buf_putc(out, ',');
        put_call(g, call, out);
        first = false;
    }
    buf_putc(out, ']');
}

void api_put_error_frame(struct gen *g, enum http_shape shape, const char *event) {
    if (event) buf_printf(&g->frame, "event: %s\n", event);
    buf_puts(&g->frame, "data: ");
    reply_error_object(&g->frame, shape, http_status_of(g->cut.code), &g->cut);
    buf_puts(&g->frame, "\n\n");
}

/* ---- log-probabilities ---- */

static void put_one(struct buf *out, const struct tok *tok, int32_t id, float logprob) {
    struct slice s = tok_piece(tok, id);
    buf_puts(out, "{\"token\":");
    json_out_text(out, s.p, s.n);
    buf_puts(out, ",\"logprob\":");
    json_out_number(out, logprob < -9999 ? -9999 : (double)logprob);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < s.n; i++)
        buf_printf(out, i ? ",%u" : "%u", (unsigned)(unsigned char)s.p[i]);
    buf_puts(out, "]");
}

void api_put_probs(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    struct buf *out = &c->probs[0];
    const struct tok *tok = g->backend->model->tok;
    if (out->n) buf_putc(out, ',');
    put_one(out, tok, ev->token, ev->probs->chosen);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int32_t i = 0; i < g->n_top && i < ev->probs->n; i++) {
        if (i) buf_putc(out, ',');
        put_one(out, tok, ev->probs->ids[i], ev->probs->logprobs[i]);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

/* Writes the pending log-probabilities as a value and clears them. */
static void put_pending(struct gen *g, struct gen_choice *c, struct buf *out) {
    if (!g->request.probs || !c->probs[0].n) {
        buf_puts(out, "null");
        return;
    }
    buf_puts(out, "{\"content\":[");
    buf_put(out, c->probs[0].p, c->probs[0].n);
    buf_puts(out, "],\"refusal\":null}");
    buf_clear(&c->probs[0]);
}

/* ---- stream ---- */

static int index_of(const struct gen *g, const struct gen_choice *c) {
    return (int)(c - g->choices);
}

static void chunk_open(struct gen *g, struct gen_choice *c) {
    buf_put(&g->frame, g->prefix.p, g->prefix.n);
    buf_printf(&g->frame, "[{\"index\":%d,\"delta\":", index_of(g, c));
}

/* The stop string that ended the answer, in vLLM's form. */
static void put_finish(const struct gen_choice *c, const char *finish, struct buf *out) {
    buf_printf(out, ",\"finish_reason\":\"%s\"", finish);
    if (!c->end.stop) return;
    buf_puts(out, ",\"stop_reason\":");
    json_out_string(out, c->end.stop);
}

static void chunk_close(struct gen *g, struct gen_choice *c, const char *finish) {
    buf_puts(&g->frame, ",\"logprobs\":");
    put_pending(g, c, &g->frame);
    if (finish) put_finish(c, finish, &g->frame);
    else buf_puts(&g->frame, ",\"finish_reason\":null");
    buf_puts(&g->frame, "}]");
    if (g->usage) buf_puts(&g->frame, ",\"usage\":null");
    if (g->timings && !finish && c->first_ns) api_put_timings(g, &g->frame);
}

static void send_frame(struct gen *g) {
    buf_puts(&g->frame, "}\n\n");
    gen_put(g, &g->frame);
}

static void chat_begin(struct gen *g) {
    buf_puts(&g->prefix, "data: {\"id\":");
    json_out_string(&g->prefix, g->id);
    buf_printf(&g->prefix, ",\"object\":\"chat.completion.chunk\",\"created\":%lld,\"model\":",
               (long long)g->created);
    json_out_string(&g->prefix, g->model);
    buf_puts(&g->prefix, ",\"system_fingerprint\":\"chimere\",\"choices\":");
    for (int i = 0; i < g->n_choice; i++) {
        chunk_open(g, &g->choices[i]);
        buf_puts(&g->frame, "{\"role\":\"assistant\",\"content\":\"\"}");
        chunk_close(g, &g->choices[i], NULL);
        send_frame(g);
    }
}

static void put_text_delta(struct gen *g, const struct chat_event *ev) {
    buf_puts(&g->frame, ev->kind == CHAT_CONTENT ? "{\"content\":" : "{\"reasoning_content\":");
    json_out_text(&g->frame, ev->text, ev->n);
    buf_putc(&g->frame, '}');
}

/* Sends a custom tool's call as a whole, once it is complete. */
static void put_custom_delta(struct gen *g, const struct gen_call *call) {
    struct buf *out = &g->frame;
    buf_printf(out, "{\"tool_calls\":[{\"index\":%d,\"id\":", call->index);
    json_out_string(out, call->id);
    buf_puts(out, ",\"type\":\"custom\",\"custom\":{\"name\":");
    json_out_string(out, call->name);
    buf_puts(out, ",\"input\":");
    api_put_input(call, out);
    buf_puts(out, "}}]}");
}

static void put_call_delta(struct gen *g, const struct chat_event *ev) {
    struct buf *out = &g->frame;
    if (g->old_calls) buf_puts(out, "{\"function_call\":");
    else buf_printf(out, "{\"tool_calls\":[{\"index\":%d,", ev->index);
    if (ev->kind == CHAT_CALL && !g->old_calls) {
        buf_puts(out, "\"id\":");
        json_out_string(out, ev->id);
        buf_puts(out, ",\"type\":\"function\",\"function\":");
    } else if (!g->old_calls) {
        buf_puts(out, "\"function\":");
    }
    if (ev->kind == CHAT_CALL) {
        buf_puts(out, "{\"name\":");
        json_out_string(out, ev->name);
        buf_puts(out, ",\"arguments\":\"\"}");
    } else {
        buf_puts(out, "{\"arguments\":");
        json_out_text(out, ev->text, ev->n);
        buf_putc(out, '}');
    }
    buf_puts(out, g->old_calls ? "}" : "}]}");
}

static void put_chat(struct gen *g, struct gen_choice *c, const struct chat_event *ev) {
    struct gen_call *call =
        ev->kind == CHAT_CONTENT || ev->kind == CHAT_REASONING ? NULL : gen_call(c, ev->index);
    bool is_custom = call && json_object_get(api_call_form(g, call->name), "custom");
    bool is_end =
        ev->kind == CHAT_CALL_END || ev->kind == CHAT_CALL_CUT || ev->kind == CHAT_MALFORMED;
    if (is_custom ? ev->kind != CHAT_CALL_END : is_end) return;
    chunk_open(g, c);
    if (is_custom) put_custom_delta(g, call);
    else if (call) put_call_delta(g, ev);
    else put_text_delta(g, ev);
    chunk_close(g, c, NULL);
    send_frame(g);
}

void api_put_progress(struct gen *g, const struct backend_event *ev, struct buf *out) {
    buf_printf(out,
               "\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,"
               "\"time_ms\":%.1f}",
               ev->n_prompt, ev->n_cached, ev->n_done, clock_ms_since(g->r->begin_ns));
}

static void put_progress(struct gen *g, const struct backend_event *ev) {
    buf_put(&g->frame, g->prefix.p, g->prefix.n);
    buf_puts(&g->frame, "[],");
    api_put_progress(g, ev, &g->frame);
    send_frame(g);
}

static void chat_event(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    if (ev->kind == EVENT_CHAT) put_chat(g, c, ev->chat);
    else if (ev->kind == EVENT_PREFILL) put_progress(g, ev);
    /* a step of the orchestrator; an extension of OpenAI's API */
    else if (ev->kind == EVENT_NOTE) {
        buf_put(&g->frame, g->prefix.p, g->prefix.n);
        buf_puts(&g->frame, "[],\"odo\":{\"step\":");
        json_out_string(&g->frame, ev->name);
        buf_puts(&g->frame, ",\"data\":");
        if (ev->n) buf_put(&g->frame, ev->text, ev->n);
        else buf_puts(&g->frame, "null");
        buf_putc(&g->frame, '}');
        send_frame(g);
    } else if (ev->kind == EVENT_END && ev->end->finish != FINISH_ERROR &&
               ev->end->finish != FINISH_CANCELLED) {
        chunk_open(g, c);
        buf_puts(&g->frame, "{}");
        chunk_close(g, c, api_finish(c));
        if (!g->usage && g->request.n == 1) {
            api_put_timings(g, &g->frame);
            api_put_verbose(g, &g->frame);
        }
        send_frame(g);
    }
}

static void chat_end(struct gen *g) {
    if (g->cut.code) {
        api_put_error_frame(g, SHAPE_OPENAI, NULL);
    } else if (g->usage) {
        buf_put(&g->frame, g->prefix.p, g->prefix.n);
        buf_puts(&g->frame, "[],\"usage\":");
        api_put_usage(g, &g->frame);
        api_put_timings(g, &g->frame);
        api_put_verbose(g, &g->frame);
        buf_puts(&g->frame, "}\n\n");
    }
    buf_puts(&g->frame, "data: [DONE]\n\n");
    gen_put(g, &g->frame);
}

/* ---- whole response ---- */

/* The older member "function_call": only the first call. */
static void put_old_call(struct gen_choice *c, struct buf *out) {
    buf_puts(out, ",\"function_call\":{\"name\":");
    json_out_string(out, c->calls[0].name);
    buf_puts(out, ",\"arguments\":");
    json_out_text(out, c->calls[0].args.p, c->calls[0].args.n);
    buf_putc(out, '}');
}

static void put_choice(struct gen *g, struct gen_choice *c, struct buf *out) {
    bool has_call = false;
    for (int i = 0; i < c->n_call; i++) has_call |= is_shown(g, &c->calls[i]);
    buf_printf(out,
               "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", index_of(g, c));
    if (has_call && !c->content.n) buf_puts(out, "null");
    else json_out_text(out, c->content.p, c->content.n);
    buf_puts(out, ",\"refusal\":null");
    if (c->reasoning.n) {
        buf_puts(out, ",\"reasoning_content\":");
        json_out_text(out, c->reasoning.p, c->reasoning.n);
    }
    if (has_call && g->old_calls) {
        put_old_call(c, out);
    } else if (has_call) {
        buf_puts(out, ",\"tool_calls\":");
        api_put_calls(g, c, out);
    }
    buf_puts(out, "},\"logprobs\":");
    put_pending(g, c, out);
    put_finish(c, api_finish(c), out);
    buf_putc(out, '}');
}

static void chat_whole(struct gen *g, struct buf *out) {
    buf_puts(out, "{\"id\":");
    json_out_string(out, g->id);
    buf_printf(
        out, ",\"object\":\"chat.completion\",\"created\":%lld,\"model\":", (long long)g->created);
    json_out_string(out, g->model);
    buf_puts(out, ",\"choices\":[");
    for (int i = 0; i < g->n_choice; i++) {
        if (i) buf_putc(out, ',');
        put_choice(g, &g->choices[i], out);
    }
    buf_puts(out, "],\"usage\":");
    api_put_usage(g, out);
    api_put_timings(g, out);
    api_put_verbose(g, out);
    if (g->note.n) {
        buf_puts(out, ",\"odo\":");
        buf_put(out, g->note.p, g->note.n);
    }
    buf_puts(out, ",\"service_tier\":\"default\",\"system_fingerprint\":\"chimere\"}");
}

static const struct gen_form chat_form = {.ping = ": ping\n\n",
                                          .begin = chat_begin,
                                          .event = chat_event,
                                          .end = chat_end,
                                          .whole = chat_whole,
                                          .probs = api_put_probs};

void api_chat(struct http_request *r) {
    struct gen *g = gen_new(r, &chat_form, "chatcmpl-");
    json_t *request;
    if (!g || !api_read(g, FIELDS_CHAT, &request)) return;
    json_decref(request);
    gen_go(g);
}
