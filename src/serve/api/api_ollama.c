/* api_ollama.c: Ollama's API. A request is converted to OpenAI's chat form and read with the same field table. Frames
 * are lines of JSON. This API does not download or delete models. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/str.h"
#include "model/model.h"
#include "serve/api/api.h"
#include "serve/api/api_ollama.h"
#include "serve/api/api_out.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"

enum { MAX_OUT = 256 << 20 };

/* Clients compare it with the version in which a feature appeared. */
static const char version[] = "0.12.6";

/* ---- requests ---- */

static const struct {
    const char *name, *ours; /* OpenAI's name; NULL: a hint about loading, without effect here */
} options[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"typical_p", "typical_p"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"repeat_penalty", "repeat_penalty"},
    {"repeat_last_n", "repeat_last_n"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"mirostat", "mirostat"},
    {"mirostat_tau", "mirostat_tau"},
    {"mirostat_eta", "mirostat_eta"},
    {"num_predict", "max_tokens"},
    {"num_ctx", NULL},
    {"num_keep", NULL},
    {"num_batch", NULL},
    {"num_gpu", NULL},
    {"main_gpu", NULL},
    {"num_thread", NULL},
    {"use_mmap", NULL},
    {"use_mlock", NULL},
    {"low_vram", NULL},
    {"f16_kv", NULL},
    {"numa", NULL},
    {"penalize_newline", NULL},
    {"tfs_z", NULL},
    {"vocab_only", NULL},
    {"logits_all", NULL},
};

static int put_option(json_t *out, const char *name, json_t *v, struct err *e) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (strcmp(name, options[i].name) != 0) continue;
        bool no_limit = !strcmp(name, "num_predict") && json_number_value(v) < 0;
        if (!options[i].ours || no_limit || json_is_null(v)) return 0;
        return json_object_set(out, options[i].ours, v) ? CHIMERE_ENOMEM : 0;
    }
    return err_set(e, CHIMERE_EUNSUPPORTED, "options.%.60s: unknown field", name);
}

/* Field "format": "json", or a schema. */
static void put_format(json_t *out, json_t *v) {
    if (json_is_object(v))
        json_object_set_new(out, "response_format",
                            json_pack("{s:s,s:{s:s,s:O}}", "type", "json_schema", "json_schema",
                                      "name", "answer", "schema", v));
    else if (json_string_length(v))
        json_object_set_new(out, "response_format", json_pack("{s:s}", "type", "json_object"));
}

static void put_think(json_t *out, json_t *v) {
    json_object_set(out, json_is_string(v) ? "reasoning_effort" : "think", v);
}

/* Returns the name without the tag that Ollama appends. */
static json_t *model_name(const json_t *v) {
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    if (!s) return json_null();
    return json_stringn(s, str_ends(s, ":latest") ? n - strlen(":latest") : n);
}

/* Tool calls in a history: arguments are objects, and calls have no ids. The results follow the calls in the same
 * order. */
static void put_calls(json_t *m, const json_t *calls, int *n_call) {
    json_t *list = json_array();
    const json_t *c;
    size_t i;
    json_array_foreach(calls, i, c) {
        char id[24];
        snprintf(id, sizeof id, "call_%d", ++*n_call);
        json_array_append_new(list, json_pack("{s:s,s:s,s:O}", "id", id, "type", "function",
                                              "function", json_object_get(c, "function")));
    }
    json_object_set_new(m, "tool_calls", list);
}

/* Ollama's images are base64 without a type. Returns the type according to the first bytes. */
static const char *image_type(const char *data) {
    if (str_starts(data, "/9j/")) return "jpeg";
    if (str_starts(data, "R0lG")) return "gif";
    return str_starts(data, "UklG") ? "webp" : "png";
}

/* Sets the content of a message: its text, or a list of its text and images. */
static int put_content(json_t *m, json_t *text, const json_t *images, const char *where,
                       struct err *e) {
    json_t *parts, *image;
    size_t i;
    bool empty = !text || json_is_null(text) || (json_is_string(text) && !json_string_length(text));
    if (!json_array_size(images)) {
        if (text) json_object_set(m, "content", text);
        return 0;
    }
    json_object_set_new(m, "content", parts = json_array());
    if (!empty) json_array_append_new(parts, json_pack("{s:s,s:O}", "type", "text", "text", text));
    json_array_foreach(images, i, image) {
        if (!json_is_string(image))
            return err_set(e, CHIMERE_EINVAL, "%s: expected a list of base64 texts", where);
        const char *data = json_string_value(image);
        json_t *url = json_sprintf("data:image/%s;base64,%s", image_type(data), data);
        json_array_append_new(parts, json_pack("{s:s,s:o}", "type", "image_url", "image_url", url));
    }
    return 0;
}

static json_t *messages(const json_t *given, struct err *e) {
    json_t *out = json_array(), *m;
    int n_call = 0, n_result = 0;
    size_t i;
    if (!json_is_array(given)) {
        err_set(e, CHIMERE_EINVAL, "messages: expected a list");
        json_decref(out);
        return NULL;
    }
    json_array_foreach(given, i, m) {
        json_t *copy = json_object(), *calls = json_object_get(m, "tool_calls");
        const char *role = json_string_value(json_object_get(m, "role"));
        char where[40];
        snprintf(where, sizeof where, "messages[%zu].images", i);
        if (put_content(copy, json_object_get(m, "content"), json_object_get(m, "images"), where,
                        e)) {
            json_decref(copy);
            json_decref(out);
            return NULL;
        }
        if (json_object_get(m, "role")) json_object_set(copy, "role", json_object_get(m, "role"));
        json_t *thinking = json_object_get(m, "thinking");
        if (json_string_length(thinking)) json_object_set(copy, "reasoning_content", thinking);
        if (json_array_size(calls)) put_calls(copy, calls, &n_call);
        if (role && strcmp(role, "tool") == 0) {
            char id[24];
            snprintf(id, sizeof id, "call_%d", ++n_result);
            json_object_set_new(copy, "tool_call_id", json_string(id));
        }
        json_array_append_new(out, copy);
    }
    return out;
}

static int put_shared(json_t *out, const json_t *q, const char *const *others, struct err *e) {
    const char *key;
    json_t *v;
    json_object_set_new(out, "stream", json_true());
    json_object_foreach((json_t *)q, key, v) {
        const char *const *o = others;
        while (*o && strcmp(*o, key) != 0) o++;
        if (*o || json_is_null(v) || !strcmp(key, "model") || !strcmp(key, "keep_alive")) continue;
        if ((!strcmp(key, "suffix") || !strcmp(key, "template")) && !json_string_length(v))
            continue;
        if (!strcmp(key, "stream")) json_object_set(out, key, v);
        else if (!strcmp(key, "format")) put_format(out, v);
        else if (!strcmp(key, "think")) put_think(out, v);
        else if (!strcmp(key, "options") && json_is_object(v)) {
            const char *name;
            json_t *x;
            json_object_foreach(v, name, x) {
                int rc = put_option(out, name, x, e);
                if (rc) return rc;
            }
        } else {
            return err_set(e, CHIMERE_EUNSUPPORTED, "%.60s: unknown field", key);
        }
    }
    json_object_set_new(out, "model", model_name(json_object_get(q, "model")));
    return 0;
}

/* Converts a request of /api/chat to OpenAI's chat form; *out is new. */
static int chat_request(const json_t *q, json_t **out, struct err *e) {
    static const char *const own[] = {"messages", "tools", NULL};
    *out = json_object();
    int rc = put_shared(*out, q, own, e);
    json_t *list = rc ? NULL : messages(json_object_get(q, "messages"), e);
    if (!rc && !list) rc = e->code;
    if (list) json_object_set_new(*out, "messages", list);
    json_t *tools = json_object_get(q, "tools");
    if (json_array_size(tools)) json_object_set(*out, "tools", tools);
    return rc;
}

/* Converts a request of /api/generate: the prompt is used unchanged (raw), or as the only message. */
static int generate_request(const json_t *q, json_t **out, bool *raw, struct err *e) {
    static const char *const own[] = {"prompt", "system", "raw", "context", "images", NULL};
    json_t *prompt = json_object_get(q, "prompt"), *system = json_object_get(q, "system"),
           *images = json_object_get(q, "images");
    *raw = json_is_true(json_object_get(q, "raw"));
    *out = json_object();
    int rc = put_shared(*out, q, own, e);
    if (!rc && !json_is_string(prompt)) rc = err_set(e, CHIMERE_EINVAL, "prompt: expected a text");
    if (rc) return rc;
    if (*raw && json_array_size(images))
        return err_set(e, CHIMERE_EUNSUPPORTED, "images: not with raw");
    if (*raw) {
        json_object_set(*out, "prompt", prompt);
        json_object_del(*out, "think");
        return 0;
    }
    json_t *list = json_array();
    if (json_string_length(system))
        json_array_append_new(list, json_pack("{s:s,s:O}", "role", "system", "content", system));
    json_t *user = json_pack("{s:s}", "role", "user");
    json_array_append_new(list, user);
    json_object_set_new(*out, "messages", list);
    return put_content(user, prompt, images, "images", e);
}

/* ---- frames ---- */

static void put_time(struct buf *out, const char *name, time_t t) {
    char text[40] = "1970-01-01T00:00:00Z";
    struct tm tm;
    if (gmtime_r(&t, &tm)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    buf_printf(out, "\"%s\":\"%s\"", name, text);
}

static void open_line(struct gen *g, struct buf *out) {
    buf_puts(out, "{\"model\":");
    json_out_string(out, g->model);
    buf_putc(out, ',');
    put_time(out, "created_at", g->created);
}

static bool is_generate(const struct gen *g) {
    return strcmp(g->r->route->path, "/api/generate") == 0;
}

static void send_line(struct gen *g, const char *tail) {
    buf_puts(&g->frame, tail);
    gen_put(g, &g->frame);
}

static void put_tool_call(const struct gen_call *call, struct buf *out) {
    buf_puts(out, "{\"function\":{\"name\":");
    json_out_string(out, call->name);
    buf_puts(out, ",\"arguments\":");
    buf_put(out, call->args.n ? call->args.p : "{}", call->args.n ? call->args.n : 2);
    buf_puts(out, "}}");
}

static void on_chat(struct gen *g, struct gen_choice *c, const struct chat_event *ev) {
    struct buf *out = &g->frame;
    bool text = ev->kind == CHAT_CONTENT, thought = ev->kind == CHAT_REASONING;
    const struct gen_call *call = ev->kind == CHAT_CALL_END ? gen_call(c, ev->index) : NULL;
    if (!text && !thought && !call) return;
    open_line(g, out);
    if (is_generate(g)) {
        buf_puts(out, text ? ",\"response\":" : ",\"response\":\"\",\"thinking\":");
        json_out_text(out, ev->text, ev->n);
        send_line(g, ",\"done\":false}\n");
        return;
    }
    buf_puts(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    json_out_text(out, text ? ev->text : "", text ? ev->n : 0);
    if (thought) {
        buf_puts(out, ",\"thinking\":");
        json_out_text(out, ev->text, ev->n);
    }
    if (call) {
        buf_puts(out, ",\"tool_calls\":[");
        put_tool_call(call, out);
        buf_putc(out, ']');
    }
    send_line(g, "},\"done\":false}\n");
}

static void put_end(struct gen *g, struct buf *out) {
    struct generation_end s = gen_sum(g);
    double total = s.stats.queue_ms + s.stats.prefill_ms + s.stats.decode_ms;
    buf_printf(out,
               ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%.0f,\"load_duration\":0,"
               "\"prompt_eval_count\":%d,\"prompt_eval_duration\":%.0f,\"eval_count\":%d,"
               "\"eval_duration\":%.0f}",
               g->choices[0].end.finish == FINISH_LENGTH ? "length" : "stop", total * 1e6,
               s.stats.n_prompt, s.stats.prefill_ms * 1e6, s.stats.n_generated,
               s.stats.decode_ms * 1e6);
}

static void on_begin(struct gen *g) { (void)g; }

static void on_event(struct gen *g, struct gen_choice *c, const struct backend_event *ev) {
    if (ev->kind == EVENT_CHAT) on_chat(g, c, ev->chat);
}

static void on_end(struct gen *g) {
    struct buf *out = &g->frame;
    if (g->cut.code) {
        reply_error_object(out, SHAPE_OLLAMA, http_status_of(g->cut.code), &g->cut);
    } else {
        open_line(g, out);
        buf_puts(out, is_generate(g) ? ",\"response\":\"\""
                                     : ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}");
        put_end(g, out);
    }
    send_line(g, "\n");
}

static void whole(struct gen *g, struct buf *out) {
    struct gen_choice *c = &g->choices[0];
    bool generate = is_generate(g), first = true;
    open_line(g, out);
    buf_puts(out,
             generate ? ",\"response\":" : ",\"message\":{\"role\":\"assistant\",\"content\":");
    json_out_text(out, c->content.p, c->content.n);
    if (c->reasoning.n) {
        buf_puts(out, ",\"thinking\":");
        json_out_text(out, c->reasoning.p, c->reasoning.n);
    }
    for (int i = 0; i < c->n_call && !generate; i++) {
        if (!c->calls[i].is_done) continue;
        buf_puts(out, first ? ",\"tool_calls\":[" : ",");
        put_tool_call(&c->calls[i], out);
        first = false;
    }
    if (!first) buf_putc(out, ']');
    if (!generate) buf_putc(out, '}');
    put_end(g, out);
}

static const struct gen_form form = {.collects = true,
                                     .type = "application/x-ndjson",
                                     .begin = on_begin,
                                     .event = on_event,
                                     .end = on_end,
                                     .whole = whole};

/* Returns the backend of a model's name; NULL if an error was sent. */
static struct backend *backend_of(struct http_request *r, const json_t *want) {
    struct err e = {0};
    json_t *name = model_name(want);
    struct backend *b = NULL;
    if (!json_is_string(name)) err_set(&e, CHIMERE_EINVAL, "model: expected a text");
    else b = gen_backend(r, name, &e);
    if (!b) http_fail(r, &e);
    json_decref(name);
    return b;
}

/* keep_alive: seconds, or a text such as "5m"; 0: the client is done with the model. */
static bool is_unload(const json_t *q) {
    const json_t *v = json_object_get(q, "keep_alive");
    const char *s = json_string_value(v);
    return (json_is_number(v) && json_number_value(v) == 0) ||
           (s && *s == '0' && strspn(s, "0hms") == strlen(s));
}

/* A request without a question asks to load the model, or to unload it. Both succeed without an effect: a model that
 * is loaded on demand is loaded by the first question. */
static void loaded(struct http_request *r, const json_t *q, const char *field) {
    struct buf out;
    if (!backend_of(r, json_object_get(q, "model"))) return;
    buf_init(&out, 1 << 16);
    buf_puts(&out, "{\"model\":");
    json_out_value(&out, json_object_get(q, "model"));
    buf_putc(&out, ',');
    put_time(&out, "created_at", time(NULL));
    buf_printf(&out, ",%s,\"done\":true,\"done_reason\":\"%s\"}", field,
               is_unload(q) ? "unload" : "load");
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}

static void go(struct http_request *r, int rc, json_t *request, enum fields_api api,
               struct err *e) {
    struct gen *g = rc ? NULL : gen_new(r, &form, "");
    if (rc) http_fail(r, e);
    if (g && api_take(g, api, request)) gen_go(g);
    json_decref(request);
}

void api_ollama_chat(struct http_request *r) {
    json_t *q = api_json(r), *request;
    struct err e = {0};
    if (!q) return;
    if (json_is_array(json_object_get(q, "messages")) &&
        !json_array_size(json_object_get(q, "messages"))) {
        loaded(r, q, "\"message\":{\"role\":\"assistant\",\"content\":\"\"}");
    } else {
        int rc = chat_request(q, &request, &e);
        go(r, rc, request, FIELDS_CHAT, &e);
    }
    json_decref(q);
}

void api_ollama_generate(struct http_request *r) {
    json_t *q = api_json(r), *request;
    struct err e = {0};
    bool raw = false;
    if (!q) return;
    const json_t *prompt = json_object_get(q, "prompt");
    if (!json_string_length(prompt) &&
        (!prompt || json_is_string(prompt) || json_is_null(prompt))) {
        loaded(r, q, "\"response\":\"\"");
    } else {
        int rc = generate_request(q, &request, &raw, &e);
        go(r, rc, request, raw ? FIELDS_TEXT : FIELDS_CHAT, &e);
    }
    json_decref(q);
}

/* ---- embeddings ---- */

void api_ollama_embed(struct http_request *r) {
    static const char *const names[] = {"input", "dimensions"};
    json_t *q = api_json(r), *request = json_object();
    struct err e = {0};
    struct buf body, out;
    if (!q) {
        json_decref(request);
        return;
    }
    bool old = json_object_get(q, "prompt"); /* the older route /api/embeddings */
    json_object_set_new(request, "model", model_name(json_object_get(q, "model")));
    for (size_t i = 0; i < 2; i++)
        if (json_object_get(q, names[i]))
            json_object_set(request, names[i], json_object_get(q, names[i]));
    if (old) json_object_set(request, "input", json_object_get(q, "prompt"));
    buf_init(&body, MAX_OUT);
    buf_init(&out, MAX_OUT);
    if (api_embed(r, request, &body, &e)) {
        http_fail(r, &e);
    } else {
        json_t *reply = json_loadb(body.p, body.n, 0, NULL), *data = json_object_get(reply, "data"),
               *one;
        size_t i;
        buf_puts(&out, "{\"model\":");
        json_out_value(&out, json_object_get(reply, "model"));
        buf_puts(&out, old ? ",\"embedding\":" : ",\"embeddings\":[");
        json_array_foreach(data, i, one) {
            if (i) buf_putc(&out, ',');
            json_out_value(&out, json_object_get(one, "embedding"));
        }
        buf_printf(&out, "%s,\"prompt_eval_count\":%lld}", old ? "" : "]",
                   (long long)json_integer_value(
                       json_object_get(json_object_get(reply, "usage"), "prompt_tokens")));
        json_decref(reply);
        http_reply(r, 200, NULL, &out);
    }
    buf_fini(&body);
    buf_fini(&out);
    json_decref(request);
    json_decref(q);
}

/* ---- models ---- */

static const struct gguf *file_of(const struct backend *b) {
    return b->model ? backend_model_file(b->model) : NULL; /* NULL: not loaded, or no model */
}

static const char *family(const struct backend *b, char name[64]) {
    const struct gguf *g = file_of(b);
    const struct gguf_kv *kv = g ? gguf_find(g, "general.architecture") : NULL;
    uint64_t cursor = 0;
    struct slice s;
    bool known = kv && gguf_next_str(kv, &cursor, &s);
    snprintf(name, 64, "%.*s", known ? (int)(s.n < 63 ? s.n : 63) : 7, known ? s.p : "unknown");
    return name;
}

static uint64_t n_bytes(const struct backend *b) {
    const struct gguf *g = file_of(b);
    uint64_t sum = 0;
    for (uint32_t i = 0; g && i < gguf_n_files(g); i++) sum += gguf_file_bytes(g, i);
    return sum;
}

/* "50M", "3.4B"; "" if it is not known. */
static void put_n_weights(const struct backend *b, struct buf *out) {
    const struct gguf *g = file_of(b);
    double sum = 0;
    for (size_t i = 0; g && i < gguf_n_tensors(g); i++)
        sum += (double)gguf_tensor_at(g, i)->n_elements;
    if (sum >= 1e9) buf_printf(out, "%.1fB", sum / 1e9);
    else if (sum > 0) buf_printf(out, "%.0fM", sum / 1e6);
}

static void put_details(const struct backend *b, struct buf *out) {
    char name[64];
    buf_puts(out, "\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":");
    json_out_string(out, family(b, name));
    buf_puts(out, ",\"families\":[");
    json_out_string(out, family(b, name));
    buf_puts(out, "],\"parameter_size\":\"");
    put_n_weights(b, out);
    buf_puts(out, "\",\"quantization_level\":\"\"}");
}

static void put_model(const struct server *s, const struct backend *b, struct buf *out) {
    char name[160];
    snprintf(name, sizeof name, "%s%s", b->name, strchr(b->name, ':') ? "" : ":latest");
    buf_puts(out, "{\"name\":");
    json_out_string(out, name);
    buf_puts(out, ",\"model\":");
    json_out_string(out, name);
    buf_putc(out, ',');
    put_time(out, "modified_at", (time_t)s->created);
    buf_printf(out, ",\"size\":%llu,\"digest\":\"%064llx\",", (unsigned long long)n_bytes(b),
               b->model ? (unsigned long long)tok_hash(b->model->tok) : 0ull);
    put_details(b, out);
}

static void list(struct http_request *r, bool running) {
    struct server *s = http_server(r);
    struct buf out;
    bool first = true;
    buf_init(&out, 4 << 20);
    buf_puts(&out, "{\"models\":[");
    for (size_t i = 0; i < s->n_gate; i++) {
        const struct backend *b = catalog_at(s->p.catalog, i);
        /* a model that is loaded on demand and is not in memory */
        if (running && b->model && !b->model->engine) continue;
        if (!first) buf_putc(&out, ',');
        put_model(s, b, &out);
        if (running) {
            buf_puts(&out, ",\"size_vram\":0,");
            put_time(&out, "expires_at", time(NULL) + 86400);
            if (b->model)
                buf_printf(&out, ",\"context_length\":%lld",
                           (long long)engine_ctx(b->model->engine));
        }
        buf_putc(&out, '}');
        first = false;
    }
    buf_puts(&out, "]}");
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}

void api_ollama_tags(struct http_request *r) { list(r, false); }
void api_ollama_ps(struct http_request *r) { list(r, true); }

void api_ollama_version(struct http_request *r) {
    struct buf out;
    buf_init(&out, 256);
    buf_printf(&out, "{\"version\":\"%s\"}", version);
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}

/* Returns the backend that a request with the field "model" names; NULL if an error was sent. */
static struct backend *named(struct http_request *r) {
    json_t *q = api_json(r);
    if (!q) return NULL;
    const json_t *want = json_object_get(q, "model");
    struct backend *b = backend_of(r, want ? want : json_object_get(q, "name"));
    json_decref(q);
    return b;
}

void api_ollama_show(struct http_request *r) {
    struct backend *b = named(r);
    struct buf out;
    if (!b) return;
    const struct chat_caps *caps =
        b->model && b->model->template ? chat_template_caps(b->model->template) : NULL;
    char arch[64];
    buf_init(&out, 1 << 20);
    buf_puts(&out, "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\",");
    put_details(b, &out);
    buf_puts(&out, ",\"model_info\":{\"general.architecture\":");
    json_out_string(&out, family(b, arch));
    buf_puts(&out, ",\"general.basename\":");
    json_out_string(&out, b->name);
    if (b->model && b->model->engine) {
        char key[160];
        snprintf(key, sizeof key, "%.120s.context_length", arch);
        buf_putc(&out, ',');
        json_out_string(&out, key);
        buf_printf(&out, ":%lld", (long long)engine_ctx(b->model->engine));
    }
    buf_printf(&out, "},\"capabilities\":[\"completion\"%s%s%s]}",
               b->model && b->model->vision ? ",\"vision\"" : "",
               !caps || caps->has_tools ? ",\"tools\"" : "",
               caps && caps->has_reasoning ? ",\"thinking\"" : "");
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}

/* Reports success for a model that is present: it needs no download. */
void api_ollama_pull(struct http_request *r) {
    struct buf out;
    if (!named(r)) return;
    buf_init(&out, 256);
    buf_puts(&out, "{\"status\":\"success\"}\n");
    http_reply(r, 200, "application/x-ndjson", &out);
    buf_fini(&out);
}

void api_ollama_delete(struct http_request *r) {
    struct err e;
    err_set(&e, CHIMERE_EREFUSED, "this server does not delete model files");
    http_fail(r, &e);
}
