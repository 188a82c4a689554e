/* api_responses.c: /v1/responses. A response is a list of items (reasoning, message, function_call). The same events
 * produce the frames of a stream and the list of a whole response. Responses are stored, so that later requests can
 * continue from them (kept.h), unless store is false. */
#include <stdio.h>
#include <string.h>

#include "serve/api/api.h"
#include "serve/api/api_out.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"
#include "serve/resource/conversations_turn.h"

enum { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL, ITEM_CUSTOM };
static const char *const id_prefixes[] = {"", "rs_", "msg_", "fc_", "ctc_"};

static void open_frame(struct gen *g, const char *type) {
    buf_printf(&g->frame, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lld", type, type,
               (long long)g->sequence++);
}

static void send_frame(struct gen *g) {
    buf_puts(&g->frame, "}\n\n");
    gen_put(g, &g->frame);
}

static void put_item_id(struct gen *g, struct gen_choice *c, struct buf *out) {
    buf_printf(out, "\"%s%s_%d\"", id_prefixes[c->block], http_id(g->r), c->n_block);
}

static void put_place(struct gen *g, struct gen_choice *c) {
    buf_puts(&g->frame, ",\"item_id\":");
    put_item_id(g, c, &g->frame);
    buf_printf(&g->frame, ",\"output_index\":%d", c->n_block);
    if (c->block == ITEM_MESSAGE || c->block == ITEM_REASONING)
        buf_puts(&g->frame, ",\"content_index\":0");
}

/* Text of the open item so far. */
static void put_text(struct gen_choice *c, struct buf *out) {
    const struct buf *all = c->block == ITEM_MESSAGE ? &c->content : &c->reasoning;
    json_out_text(out, all->n ? all->p + c->from : "", all->n - c->from);
}

static void put_part(struct gen_choice *c, bool done, struct buf *out) {
    bool is_message = c->block == ITEM_MESSAGE;
    buf_printf(out, "{\"type\":\"%s\",\"text\":", is_message ? "output_text" : "reasoning_text");
    if (done) put_text(c, out);
    else buf_puts(out, "\"\"");
    if (is_message) {
        buf_puts(out, ",\"annotations\":[],\"logprobs\":[");
        if (done && c->probs[1].n) buf_put(out, c->probs[1].p, c->probs[1].n);
        buf_putc(out, ']');
    }
    buf_putc(out, '}');
}

static void put_item_call(struct gen *g, const struct gen_choice *c, const struct gen_call *call,
                          bool done, struct buf *out) {
    const json_t *form = api_call_form(g, call->name), *space = json_object_get(form, "namespace");
    buf_printf(out, ",\"type\":\"%s\",\"call_id\":",
               c->block == ITEM_CUSTOM ? "custom_tool_call" : "function_call");
    json_out_string(out, call->id);
    buf_puts(out, ",\"name\":");
    json_out_string(out, space ? json_string_value(json_object_get(form, "name")) : call->name);
    if (space) {
        buf_puts(out, ",\"namespace\":");
        json_out_value(out, space);
    }
    buf_puts(out, c->block == ITEM_CUSTOM ? ",\"input\":" : ",\"arguments\":");
    if (!done) buf_puts(out, "\"\"");
    else if (c->block == ITEM_CUSTOM) api_put_input(call, out);
    else json_out_text(out, call->args.p, call->args.n);
}

static void put_item(struct gen *g, struct gen_choice *c, bool done, const char *status,
                     struct buf *out) {
    struct gen_call *call = c->call >= 0 ? &c->calls[c->call] : NULL;
    buf_puts(out, "{\"id\":");
    put_item_id(g, c, out);
    if (call) {
        put_item_call(g, c, call, done, out);
    } else if (c->block == ITEM_REASONING) {
        buf_puts(out, ",\"type\":\"reasoning\",\"summary\":[],\"content\":[");
        if (done) put_part(c, true, out);
        buf_putc(out, ']');
    } else {
        buf_puts(out, ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
        if (done) put_part(c, true, out);
        buf_putc(out, ']');
    }
    buf_printf(out, ",\"status\":\"%s\"}", status);
}

static void close_text(struct gen *g, struct gen_choice *c) {
    open_frame(g, c->block == ITEM_MESSAGE ? "response.output_text.done"
                                           : "response.reasoning_text.done");
    put_place(g, c);
    buf_puts(&g->frame, ",\"text\":");
    put_text(c, &g->frame);
    if (c->block == ITEM_MESSAGE) buf_puts(&g->frame, ",\"logprobs\":[]");
    send_frame(g);
    open_frame(g, "response.content_part.done");
    put_place(g, c);
    buf_puts(&g->frame, ",\"part\":");
    put_part(c, true, &g->frame);
    send_frame(g);
}

/* Sends the text of a custom tool's call in one piece: the client must not see the JSON around it. */
static void close_custom(struct gen *g, struct gen_choice *c, const struct gen_call *call) {
    static const char *const types[] = {"response.custom_tool_call_input.delta",
                                        "response.custom_tool_call_input.done"};
    for (int i = 0; i < 2; i++) {
        open_frame(g, types[i]);
        put_place(g, c);
        buf_puts(&g->frame, i ? ",\"input\":" : ",\"delta\":");
        api_put_input(call, &g->frame);
        send_frame(g);
    }
}

static void close_item(struct gen *g, struct gen_choice *c) {
    if (c->block == ITEM_NONE) return;
    struct gen_call *call = c->call >= 0 ? &c->calls[c->call] : NULL;
    bool is_call = c->block >= ITEM_CALL, ok = !is_call || (call && call->is_done);
    bool is_whole = is_call ? ok : c->end.finish != FINISH_LENGTH;
    const char *status = is_whole ? "completed" : "incomplete";
    if (is_call && !ok) {
        /* the arguments are incomplete; the item's status reports it */
    } else if (c->block == ITEM_CUSTOM) {
        close_custom(g, c, call);
    } else if (c->block == ITEM_CALL) {
        open_frame(g, "response.function_call_arguments.done");
        put_place(g, c);
        buf_puts(&g->frame, ",\"name\":");
        json_out_string(&g->frame, call->name);
        buf_puts(&g->frame, ",\"arguments\":");
        json_out_text(&g->frame, call->args.p, call->args.n);
        send_frame(g);
    } else {
        close_text(g, c);
    }
    open_frame(g, "response.output_item.done");
    buf_printf(&g->frame, ",\"output_index\":%d,\"item\":", c->n_block);
    put_item(g, c, true, status, &g->frame);
    send_frame(g);
    if (c->blocks.n) buf_putc(&c->blocks, ',');
    put_item(g, c, true, status, &c->blocks);
    if (c->block == ITEM_MESSAGE) buf_clear(&c->probs[1]);
    c->block = ITEM_NONE;
    c->call = -1;
    c->n_block++;
}

static void open_item(struct gen *g, struct gen_choice *c, int kind, const struct chat_event *ev) {
    close_item(g, c);
    c->block = kind;
    if (kind == ITEM_MESSAGE) c->from = c->content.n - ev->n;
    else if (kind == ITEM_REASONING) c->from = c->reasoning.n - ev->n;
    else c->call = c->n_call - 1;
    if (kind == ITEM_CALL && json_object_get(api_call_form(g, c->calls[c->call].name), "custom"))
        c->block = ITEM_CUSTOM;
    open_frame(g, "response.output_item.added");
    buf_printf(&g->frame, ",\"output_index\":%d,\"item\":", c->n_block);
    put_item(g, c, false, "in_progress", &g->frame);
    send_frame(g);
    if (kind == ITEM_CALL) return;
    open_frame(g, "response.content_part.added");
    put_place(g, c);
    buf_puts(&g->frame, ",\"part\":");
    put_part(c, false, &g->frame);
    send_frame(g);
}

static void put_delta(struct gen *g, struct gen_choice *c, const char *type,
                      const struct chat_event *ev) {
    open_frame(g, type);
    put_place(g, c);
    buf_puts(&g->frame, ",\"delta\":");
    json_out_text(&g->frame, ev->text, ev->n);
    if (c->block == ITEM_MESSAGE) {
        buf_puts(&g->frame, ",\"logprobs\":[");
        if (c->probs[0].n) {
            buf_put(&g->frame, c->probs[0].p, c->probs[0].n);
            if (c->probs[1].n) buf_putc(&c->probs[1], ',');
            buf_put(&c->probs[1], c->probs[0].p, c->probs[0].n);
        }
        buf_clear(&c->probs[0]);
        buf_putc(&g->frame, ']');
    }
    if (g->timings) api_put_timings(g, &g->frame);
    send_frame(g);
}

/* The prompt's progress, an extension of llama-server, in a frame type that clients know. */
static void put_progress(struct gen *g, const struct backend_event *ev) {
    open_frame(g, "response.in_progress");
    buf_putc(&g->frame, ',');
    api_put_progress(g, ev, &g->frame);
    send_frame(g);
}

static void on_chat(struct gen *g, struct gen_choice *c, const struct chat_event *ev) {
    switch (ev->kind) {
    case CHAT_CONTENT:
        if (c->block != ITEM_MESSAGE) open_item(g, c, ITEM_MESSAGE, ev);
        put_delta(g, c, "response.output_text.delta", ev);
        break;
    case CHAT_REASONING:
        if (c->block != ITEM_REASONING) open_item(g, c, ITEM_REASONING, ev);
        put_delta(g, c, "response.reasoning_text.delta", ev);
        break;
    case CHAT_CALL: open_item(g, c, ITEM_CALL, ev); break;
    case CHAT_ARGS:
        if (c->block == ITEM_CALL) put_delta(g, c, "response.function_call_arguments.delta", ev);
        break;
    case CHAT_CALL_END:
    case CHAT_CALL_CUT:
    case CHAT_MALFORMED:
        if (c->block >= ITEM_CALL) close_item(g, c);
        break;
    }
}

static void put_usage(struct gen *g, struct buf *out) {
    struct generation_end s = gen_sum(g);
    buf_printf(out,
               "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,"
               "\"evaluated_tokens\":%d},\"output_tokens\":%d,\"output_tokens_details\":{"
               "\"reasoning_tokens\":%d},\"total_tokens\":%d}",
               s.stats.n_prompt, s.stats.n_cached, s.stats.n_prompt - s.stats.n_cached,
               s.stats.n_generated, s.n_reasoning, s.stats.n_prompt + s.stats.n_generated);
}

/* Writes the request's value, or the default that applies if the request has none. */
static void put_echo(struct gen *g, struct buf *out, const char *name, const char *otherwise) {
    json_t *v = json_object_get(g->echo, name);
    buf_printf(out, ",\"%s\":", name);
    if (v && !json_is_null(v)) json_out_value(out, v);
    else buf_puts(out, otherwise);
}

static void put_response(struct gen *g, const char *status, struct buf *out) {
    struct gen_choice *c = &g->choices[0];
    bool ended = strcmp(status, "in_progress") != 0;
    buf_puts(out, "{\"id\":");
    json_out_string(out, g->id);
    buf_printf(out, ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"model\":",
               (long long)g->created, status);
    json_out_string(out, g->model);
    buf_puts(out, ",\"error\":");
    if (g->cut.code) {
        buf_puts(out, "{\"code\":\"server_error\",\"message\":");
        json_out_string(out, g->cut.text);
        buf_putc(out, '}');
    } else {
        buf_puts(out, "null");
    }
    buf_printf(out, ",\"incomplete_details\":%s",
               strcmp(status, "incomplete") ? "null" : "{\"reason\":\"max_output_tokens\"}");
    buf_puts(out, ",\"output\":[");
    if (ended && c->blocks.n) buf_put(out, c->blocks.p, c->blocks.n);
    buf_puts(out, "],\"usage\":");
    if (ended) put_usage(g, out);
    else buf_puts(out, "null");
    put_echo(g, out, "instructions", "null");
    put_echo(g, out, "max_output_tokens", "null");
    put_echo(g, out, "metadata", "{}");
    put_echo(g, out, "parallel_tool_calls", "true");
    put_echo(g, out, "reasoning", "{\"effort\":null,\"summary\":null}");
    put_echo(g, out, "temperature", "null");
    put_echo(g, out, "text", "{\"format\":{\"type\":\"text\"}}");
    put_echo(g, out, "tool_choice", "\"auto\"");
    put_echo(g, out, "tools", "[]");
    put_echo(g, out, "top_p", "null");
    put_echo(g, out, "truncation", "\"disabled\"");
    put_echo(g, out, "user", "null");
    put_echo(g, out, "previous_response_id", "null");
    if (g->turn) {
        buf_puts(out, ",\"conversation\":{\"id\":");
        json_out_string(out, conversations_turn_id(g->turn));
        buf_putc(out, '}');
    }
    buf_printf(out, ",\"store\":%s,\"background\":false}", g->items ? "true" : "false");
}

static void on_begin(struct gen *g) {
    static const char *const types[] = {"response.created", "response.in_progress"};
    for (int i = 0; i < 2; i++) {
        open_frame(g, types[i]);
        buf_puts(&g->frame, ",\"response\":");
        put_response(g, "in_progress", &g->frame);
        send_frame(g);
    }
}

/* A web search by the orchestrator, as a separate item. */
static void put_search(const struct gen *g, const struct gen_choice *c, const struct api_search *s,
                       const char *status, struct buf *out) {
    const json_t *page;
    size_t i;
    buf_printf(out, "{\"id\":\"ws_%s_%d\",\"type\":\"web_search_call\",\"status\":\"%s\",",
               http_id(g->r), c->n_block, status);
    buf_puts(out, "\"action\":{\"type\":\"search\",\"query\":");
    json_out_string(out, s->query);
    buf_puts(out, ",\"sources\":[");
    json_array_foreach(s->found, i, page) {
        buf_puts(out, i ? ",{\"type\":\"url\",\"url\":" : "{\"type\":\"url\",\"url\":");
        json_out_value(out, json_object_get(page, "url"));
        buf_putc(out, '}');
    }
    buf_puts(out, "]}}");
}

static void on_search(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    static const char *const steps[] = {"in_progress", "searching", "completed"};
    struct api_search s;
    if (!api_search_read(&s, ev)) return;
    const char *status = s.ok ? "completed" : "failed";
    close_item(g, c);
    open_frame(g, "response.output_item.added");
    buf_printf(&g->frame, ",\"output_index\":%d,\"item\":", c->n_block);
    put_search(g, c, &s, "in_progress", &g->frame);
    send_frame(g);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        char type[48];
        snprintf(type, sizeof type, "response.web_search_call.%s", steps[i]);
        open_frame(g, type);
        buf_printf(&g->frame, ",\"output_index\":%d,\"item_id\":\"ws_%s_%d\"", c->n_block,
                   http_id(g->r), c->n_block);
        send_frame(g);
    }
    open_frame(g, "response.output_item.done");
    buf_printf(&g->frame, ",\"output_index\":%d,\"item\":", c->n_block);
    put_search(g, c, &s, status, &g->frame);
    send_frame(g);
    if (c->blocks.n) buf_putc(&c->blocks, ',');
    put_search(g, c, &s, status, &c->blocks);
    c->n_block++;
    json_decref(s.note);
}

static void on_event(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    if (ev->kind == EVENT_CHAT) on_chat(g, c, ev->chat);
    if (ev->kind == EVENT_NOTE) on_search(g, c, ev);
    if (ev->kind == EVENT_PREFILL) put_progress(g, ev);
    if (ev->kind == EVENT_END) close_item(g, c);
}

static const char *status_of(const struct gen *g) {
    if (g->cut.code) return "failed";
    return g->choices[0].end.finish == FINISH_LENGTH ? "incomplete" : "completed";
}

/* Adds the response to its conversation, and stores it for requests that continue from it. If this fails, they do not
 * find it. */
static void keep(struct gen *g) {
    struct buf text;
    if (g->turn && !g->cut.code) {
        const struct buf *blocks = &g->choices[0].blocks;
        buf_init(&text, KEPT_MAX_BYTES);
        buf_putc(&text, '[');
        if (blocks->n) buf_put(&text, blocks->p, blocks->n);
        buf_putc(&text, ']');
        if (!text.failed) conversations_turn_end(g->turn, text.p, text.n);
        buf_fini(&text);
    }
    if (!g->items || g->cut.code) return;
    buf_init(&text, KEPT_MAX_BYTES);
    put_response(g, status_of(g), &text);
    if (!text.failed) kept_put(g->r->s->kept, g->r->owner, g->id, g->items, text.p);
    buf_fini(&text);
}

static void on_end(struct gen *g) {
    char type[40];
    snprintf(type, sizeof type, "response.%s", status_of(g));
    open_frame(g, type);
    buf_puts(&g->frame, ",\"response\":");
    put_response(g, status_of(g), &g->frame);
    keep(g);
    if (g->timings) api_put_timings(g, &g->frame);
    send_frame(g);
}

static void whole(struct gen *g, struct buf *out) {
    put_response(g, status_of(g), out);
    keep(g);
}

static const struct gen_form responses_form = {
    .ping = ": ping\n\n",
    .collects = true,
    .always = true,
    .begin = on_begin,
    .event = on_event,
    .end = on_end,
    .whole = whole,
    .probs = api_put_probs,
};

/* ---- stored responses ---- */

static int not_kept(const char *id, struct err *e) {
    return err_set(e, CHIMERE_ENOENT, "there is no response '%.80s' here", id ? id : "");
}

/* ---- items of stored responses, by id ---- */

enum { MAX_REFERRED = 64 }; /* stored responses that one request may refer to */

/* Returns all items, of input and output, of the stored response to which an item's id (KIND_RESPONSE_NUMBER) belongs.
 * The list is a view, cached in seen; NULL: there is no such response. */
static json_t *items_of(struct http_request *r, const char *id, json_t *seen) {
    const char *from = strchr(id, '_'), *to = strrchr(id, '_');
    char response[64];
    if (!from || to == from || to - from > 40) return NULL;
    snprintf(response, sizeof response, "resp_%.*s", (int)(to - from - 1), from + 1);
    json_t *items = json_object_get(seen, response), *before, *answer;
    if (items || json_object_size(seen) >= MAX_REFERRED ||
        kept_find(r->s->kept, r->owner, response, &before, &answer))
        return items;
    items = json_array();
    json_array_extend(items, before);
    json_array_extend(items, json_object_get(answer, "output"));
    json_decref(before);
    json_decref(answer);
    json_object_set_new(seen, response, items);
    return items;
}

static bool is_reference(const json_t *item) {
    const json_t *type = json_object_get(item, "type");
    if (type && !json_is_null(type)) {
        const char *name = json_string_value(type);
        return name && strcmp(name, "item_reference") == 0;
    }
    return json_object_get(item, "id") && !json_object_get(item, "role");
}

/* Replaces each item reference in the list by the item. */
static int resolve(struct http_request *r, json_t *list, struct err *e) {
    json_t *seen = json_object(), *item, *found;
    size_t i, k;
    int rc = 0;
    json_array_foreach(list, i, item) {
        if (rc || !is_reference(item)) continue;
        const char *id = json_string_value(json_object_get(item, "id"));
        json_t *items = id ? items_of(r, id, seen) : NULL, *it = NULL;
        json_array_foreach(items, k, found) {
            const char *name = json_string_value(json_object_get(found, "id"));
            if (name && strcmp(name, id) == 0) it = found;
        }
        if (it) json_array_set(list, i, it);
        else
            rc = err_set(e, CHIMERE_ENOENT, "input[%zu].id: there is no item '%.80s' here", i,
                         id ? id : "");
    }
    json_decref(seen);
    return rc;
}

/* Gives each item of the request an id, so that later requests can refer to it once it is stored. */
static void name_items(const struct http_request *r, json_t *list) {
    json_t *item;
    size_t i;
    json_array_foreach(list, i, item) {
        if (!json_is_object(item) || json_is_string(json_object_get(item, "id"))) continue;
        json_t *named = json_copy(item);
        json_object_set_new(named, "id", json_sprintf("item_%s_in%zu", http_id(r), i));
        json_array_set_new(list, i, named);
    }
}

/* Returns the items before this request's: those of the previous response, or of the conversation. */
static int items_before(struct http_request *r, json_t *request, struct conversations_turn **turn,
                        json_t **out, struct err *e) {
    json_t *before, *answer;
    const json_t *previous = json_object_get(request, "previous_response_id");
    int rc = conversations_turn_begin(r, request, turn, out, e);
    if (rc || *turn || !previous || json_is_null(previous)) return rc;
    const char *id = json_string_value(previous);
    if (!id || kept_find(r->s->kept, r->owner, id, &before, &answer))
        return err_set(e, CHIMERE_EINVAL, "previous_response_id: there is no response '%.80s' here",
                       id ? id : "");
    json_array_extend(before, json_object_get(answer, "output"));
    json_decref(answer);
    *out = before;
    return 0;
}

/* Converts the request's input to a list, preceded by the earlier items. */
static int add_previous(struct http_request *r, json_t *request, struct conversations_turn **turn,
                        struct err *e) {
    json_t *input = json_object_get(request, "input"), *before, *own = json_array();
    int rc = items_before(r, request, turn, &before, e);
    if (!rc && json_is_array(input)) rc = resolve(r, input, e);
    if (json_is_string(input))
        json_array_append_new(
            own, json_pack("{s:s,s:s,s:O}", "type", "message", "role", "user", "content", input));
    else if (json_is_array(input)) json_array_extend(own, input);
    /* an invalid input stays as it is: the field table reports it */
    if (!rc && (json_is_string(input) || json_is_array(input) || !input)) {
        json_t *list = before ? json_incref(before) : json_array();
        json_array_extend(list, own);
        json_object_set_new(request, "input", list);
    }
    if (!rc && *turn) conversations_turn_input(*turn, own);
    json_decref(before);
    json_decref(own);
    return rc;
}

void api_responses(struct http_request *r) {
    struct err e = {0};
    struct conversations_turn *turn = NULL;
    json_t *request = api_json(r);
    if (!request) return;
    if (add_previous(r, request, &turn, &e)) {
        conversations_turn_free(turn);
        json_decref(request);
        http_fail(r, &e);
        return;
    }
    struct gen *g = gen_new(r, &responses_form, "resp_");
    if (g) g->turn = turn;
    else conversations_turn_free(turn);
    if (!g || !api_take(g, FIELDS_RESPONSES, request)) {
        json_decref(request);
        return;
    }
    g->echo = request;
    if (!json_is_false(json_object_get(request, "store"))) {
        struct buf items;
        buf_init(&items, KEPT_MAX_BYTES);
        name_items(r, json_object_get(request, "input"));
        json_out_value(&items, json_object_get(request, "input"));
        if (!items.failed) g->items = buf_take(&items);
        buf_fini(&items);
    }
    gen_go(g);
}

/* Writes an input item. A message may have been sent as {"role", "content": "..."}; clients read it in the long form,
 * with a type and a list of parts. */
static void put_input(const json_t *item, struct buf *out) {
    json_t *content = json_object_get(item, "content"), *whole = json_copy((json_t *)item);
    const char *role = json_string_value(json_object_get(item, "role"));
    if (role && !json_object_get(item, "type"))
        json_object_set_new(whole, "type", json_string("message"));
    if (role && json_is_string(content)) {
        bool is_answer = strcmp(role, "assistant") == 0;
        json_t *part = json_pack("{s:s,s:O}", "type", is_answer ? "output_text" : "input_text",
                                 "text", content);
        if (is_answer) json_object_set_new(part, "annotations", json_array());
        json_object_set_new(whole, "content", json_pack("[o]", part));
    }
    json_out_value(out, whole);
    json_decref(whole);
}

static void put_items(const json_t *items, struct buf *out) {
    const json_t *item;
    size_t i;
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (i = json_array_size(items); i-- > 0;) { /* newest first, as in OpenAI's API */
        put_input(json_array_get(items, i), out);
        if (i) buf_putc(out, ',');
    }
    buf_puts(out, "],\"first_id\":");
    item = json_array_get(items, json_array_size(items) - 1);
    json_out_string(out, json_string_value(json_object_get(item, "id")));
    buf_puts(out, ",\"last_id\":");
    json_out_string(out, json_string_value(json_object_get(json_array_get(items, 0), "id")));
    buf_puts(out, ",\"has_more\":false}");
}

/* The path after /responses/: an id, optionally followed by /input_items. */
static bool id_of(const struct http_request *r, char id[64]) {
    const char *rest = http_rest(r), *slash = strchr(rest, '/');
    snprintf(id, 64, "%.*s", slash ? (int)(slash - rest) : 63, rest);
    return slash && strcmp(slash, "/input_items") == 0;
}

void api_response_get(struct http_request *r) {
    char id[64];
    json_t *input, *response;
    struct err e = {0};
    bool items = id_of(r, id);
    if ((!items && strchr(http_rest(r), '/')) ||
        kept_find(r->s->kept, r->owner, id, &input, &response)) {
        not_kept(id, &e);
        http_fail(r, &e);
        return;
    }
    struct buf out;
    buf_init(&out, 2 * (size_t)KEPT_MAX_BYTES);
    if (items) put_items(input, &out);
    else json_out_value(&out, response);
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
    json_decref(input);
    json_decref(response);
}

void api_response_delete(struct http_request *r) {
    char id[64];
    struct err e = {0};
    struct buf out;
    if (id_of(r, id) || kept_drop(r->s->kept, r->owner, id)) {
        not_kept(id, &e);
        http_fail(r, &e);
        return;
    }
    buf_init(&out, 256);
    buf_puts(&out, "{\"id\":");
    json_out_string(&out, id);
    buf_puts(&out, ",\"object\":\"response\",\"deleted\":true}");
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}
