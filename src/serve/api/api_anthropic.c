/* api_anthropic.c: /v1/messages and count_tokens. A response is a list of blocks (thinking, text, tool_use). The same
 * events produce the frames of a stream and the list of a whole response. */
#include <string.h>

#include "serve/api/api.h"
#include "serve/api/api_out.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"

enum { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_CALL };

static void send_frame(struct gen *g) {
    buf_puts(&g->frame, "}\n\n");
    gen_put(g, &g->frame);
}

static void open_frame(struct gen *g, const char *type) {
    buf_printf(&g->frame, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static struct gen_call *call_of(struct gen_choice *c) {
    return c->call >= 0 && c->call < c->n_call ? &c->calls[c->call] : NULL;
}

/* The complete open block; its text begins at c->from. */
static void put_block(struct gen_choice *c, struct buf *out) {
    struct gen_call *call = call_of(c);
    if (c->block == BLOCK_TEXT) {
        buf_puts(out, "{\"type\":\"text\",\"text\":");
        json_out_text(out, c->content.n ? c->content.p + c->from : "", c->content.n - c->from);
    } else if (c->block == BLOCK_THINKING) {
        buf_puts(out, "{\"type\":\"thinking\",\"thinking\":");
        json_out_text(out, c->reasoning.n ? c->reasoning.p + c->from : "",
                      c->reasoning.n - c->from);
        buf_puts(out, ",\"signature\":\"\"");
    } else if (call) {
        buf_puts(out, "{\"type\":\"tool_use\",\"id\":");
        json_out_string(out, call->id);
        buf_puts(out, ",\"name\":");
        json_out_string(out, call->name);
        buf_puts(out, ",\"input\":");
        buf_put(out, call->args.n ? call->args.p : "{}", call->args.n ? call->args.n : 2);
    }
    buf_putc(out, '}');
}

static void close_block(struct gen *g, struct gen_choice *c) {
    if (c->block == BLOCK_NONE) return;
    if (c->blocks.n) buf_putc(&c->blocks, ',');
    put_block(c, &c->blocks);
    open_frame(g, "content_block_stop");
    buf_printf(&g->frame, ",\"index\":%d", c->n_block++);
    send_frame(g);
    c->block = BLOCK_NONE;
    c->call = -1;
}

/* ev->n bytes of the block were already collected from the event. */
static void open_block(struct gen *g, struct gen_choice *c, int kind, const struct chat_event *ev) {
    close_block(g, c);
    c->block = kind;
    open_frame(g, "content_block_start");
    buf_printf(&g->frame, ",\"index\":%d,\"content_block\":", c->n_block);
    if (kind == BLOCK_TEXT) {
        c->from = c->content.n - ev->n;
        buf_puts(&g->frame, "{\"type\":\"text\",\"text\":\"\"}");
    } else if (kind == BLOCK_THINKING) {
        c->from = c->reasoning.n - ev->n;
        buf_puts(&g->frame, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else {
        c->call = c->n_call - 1;
        buf_puts(&g->frame, "{\"type\":\"tool_use\",\"id\":");
        json_out_string(&g->frame, c->calls[c->call].id);
        buf_puts(&g->frame, ",\"name\":");
        json_out_string(&g->frame, c->calls[c->call].name);
        buf_puts(&g->frame, ",\"input\":{}}");
    }
    send_frame(g);
}

static void put_delta(struct gen *g, struct gen_choice *c, const char *type, const char *field,
                      const char *text, size_t n) {
    open_frame(g, "content_block_delta");
    buf_printf(&g->frame, ",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":", c->n_block, type,
               field);
    json_out_text(&g->frame, text, n);
    buf_putc(&g->frame, '}');
    send_frame(g);
}

/* A call is sent only when it is complete: clients of this API would take the partial input of a cut call, such as {}
 * or its first members, as the whole input. */
static void put_call(struct gen *g, struct gen_choice *c, const struct chat_event *ev) {
    open_block(g, c, BLOCK_CALL, ev);
    const struct buf *args = &c->calls[c->call].args;
    put_delta(g, c, "input_json_delta", "partial_json", args->p, args->n);
    close_block(g, c);
}

static void on_chat(struct gen *g, struct gen_choice *c, const struct chat_event *ev) {
    switch (ev->kind) {
    case CHAT_CONTENT:
        if (c->block != BLOCK_TEXT) open_block(g, c, BLOCK_TEXT, ev);
        put_delta(g, c, "text_delta", "text", ev->text, ev->n);
        break;
    case CHAT_REASONING:
        if (c->block != BLOCK_THINKING) open_block(g, c, BLOCK_THINKING, ev);
        put_delta(g, c, "thinking_delta", "thinking", ev->text, ev->n);
        break;
    case CHAT_CALL_END: put_call(g, c, ev); break;
    case CHAT_CALL:
    case CHAT_ARGS:
    case CHAT_CALL_CUT:
    case CHAT_MALFORMED: break;
    }
}

static void put_result(const struct api_search *s, const char *id, struct buf *out) {
    const json_t *page;
    size_t i;
    buf_printf(out, "{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"%s\",\"content\":", id);
    if (!s->ok) {
        buf_puts(out,
                 "{\"type\":\"web_search_tool_result_error\",\"error_code\":\"unavailable\"}}");
        return;
    }
    buf_putc(out, '[');
    json_array_foreach(s->found, i, page) {
        buf_printf(out, "%s{\"type\":\"web_search_result\",\"url\":", i ? "," : "");
        json_out_value(out, json_object_get(page, "url"));
        buf_puts(out, ",\"title\":");
        json_out_value(out, json_object_get(page, "title"));
        buf_puts(out, ",\"encrypted_content\":\"\",\"page_age\":null}");
    }
    buf_puts(out, "]}");
}

/* A web search by the orchestrator: its query and its results. */
static void on_search(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    static const char use[] =
        "{\"type\":\"server_tool_use\",\"id\":\"%s\",\"name\":\"web_search\",\"input\":";
    struct api_search s;
    char id[64];
    if (!api_search_read(&s, ev)) return;
    close_block(g, c);
    snprintf(id, sizeof id, "srvtoolu_%s_%d", http_id(g->r), c->n_block);
    for (int i = 0; i < 2; i++) {
        open_frame(g, "content_block_start");
        buf_printf(&g->frame, ",\"index\":%d,\"content_block\":", c->n_block);
        if (i) put_result(&s, id, &g->frame);
        else {
            buf_printf(&g->frame, use, id);
            buf_puts(&g->frame, "{}}");
        }
        send_frame(g);
        if (!i)
            put_delta(g, c, "input_json_delta", "partial_json", s.arguments, strlen(s.arguments));
        if (c->blocks.n) buf_putc(&c->blocks, ',');
        if (i) put_result(&s, id, &c->blocks);
        else {
            buf_printf(&c->blocks, use, id);
            buf_printf(&c->blocks, "%s}", s.arguments);
        }
        open_frame(g, "content_block_stop");
        buf_printf(&g->frame, ",\"index\":%d", c->n_block++);
        send_frame(g);
    }
    json_decref(s.note);
}

static const char *stop_reason(const struct gen_choice *c) {
    if (c->end.stop) return "stop_sequence";
    switch (c->end.finish) {
    case FINISH_LENGTH: return "max_tokens";
    case FINISH_CALLS: return "tool_use";
    default: return "end_turn";
    }
}

static void put_usage(struct gen *g, struct buf *out) {
    struct generation_end s = gen_sum(g);
    buf_printf(out,
               "{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,"
               "\"cache_read_input_tokens\":%d,\"output_tokens\":%d}",
               s.stats.n_prompt - s.stats.n_cached, s.stats.n_cached, s.stats.n_generated);
}

static void put_head(struct gen *g, struct buf *out) {
    buf_puts(out, "{\"id\":");
    json_out_string(out, g->id);
    buf_puts(out, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    json_out_string(out, g->model);
}

static void on_event(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    if (ev->kind == EVENT_CHAT) on_chat(g, c, ev->chat);
    if (ev->kind == EVENT_NOTE) on_search(g, c, ev);
    if (ev->kind != EVENT_END) return;
    close_block(g, c);
    if (ev->end->finish == FINISH_ERROR || ev->end->finish == FINISH_CANCELLED) return;
    open_frame(g, "message_delta");
    buf_printf(&g->frame, ",\"delta\":{\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(c));
    json_out_string(&g->frame, c->end.stop);
    buf_puts(&g->frame, "},\"usage\":");
    put_usage(g, &g->frame);
    send_frame(g);
}

static void on_begin(struct gen *g) {
    open_frame(g, "message_start");
    buf_puts(&g->frame, ",\"message\":");
    put_head(g, &g->frame);
    buf_printf(&g->frame,
               ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{"
               "\"input_tokens\":%d,\"cache_creation_input_tokens\":0,"
               "\"cache_read_input_tokens\":0,\"output_tokens\":0}}",
               g->n_prompt);
    send_frame(g);
    buf_puts(&g->frame, g->form->ping);
    gen_put(g, &g->frame);
}

static void on_end(struct gen *g) {
    if (g->cut.code) {
        api_put_error_frame(g, SHAPE_ANTHROPIC, "error");
        gen_put(g, &g->frame);
        return;
    }
    open_frame(g, "message_stop");
    send_frame(g);
}

static void whole(struct gen *g, struct buf *out) {
    struct gen_choice *c = &g->choices[0];
    put_head(g, out);
    buf_puts(out, ",\"content\":[");
    if (c->blocks.n) buf_put(out, c->blocks.p, c->blocks.n);
    buf_printf(out, "],\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(c));
    json_out_string(out, c->end.stop);
    buf_puts(out, ",\"usage\":");
    put_usage(g, out);
    buf_putc(out, '}');
}

static const struct gen_form messages_form = {
    .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    .collects = true,
    .always = true,
    .begin = on_begin,
    .event = on_event,
    .end = on_end,
    .whole = whole,
};

void api_messages(struct http_request *r) {
    struct gen *g = gen_new(r, &messages_form, "msg_");
    json_t *request;
    if (!g || !api_read(g, FIELDS_MESSAGES, &request)) return;
    json_decref(request);
    if (g->request.max_tokens <= 0) {
        struct err e;
        err_set(&e, CHIMERE_EINVAL, "max_tokens: expected a number of tokens");
        gen_fail(g, &e);
        return;
    }
    gen_go(g);
}

void api_count_tokens(struct http_request *r) {
    struct gen *g = gen_new(r, &messages_form, "msg_");
    struct err e = {0};
    json_t *request;
    size_t n = 0;
    if (!g || !api_read(g, FIELDS_MESSAGES, &request)) return;
    json_decref(request);
    if (g->backend->ops->render(g->backend, &g->request, NULL, NULL, &n, &e)) {
        gen_fail(g, &e);
        return;
    }
    struct buf out;
    buf_init(&out, 256);
    buf_printf(&out, "{\"input_tokens\":%zu}", n);
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
    http_job_done(r);
}
