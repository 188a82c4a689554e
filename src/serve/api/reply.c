/* reply.c: errors in the format of each API. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"

static const struct {
    int code, status;
} statuses[] = {
    {CHIMERE_EINVAL, 400},   {CHIMERE_EFORMAT, 400},    {CHIMERE_EUNSUPPORTED, 400},
    {CHIMERE_EREFUSED, 400}, {CHIMERE_EMISMATCH, 400},  {CHIMERE_ELIMIT, 400},
    {CHIMERE_ENOENT, 404},   {CHIMERE_EBUSY, 429},      {CHIMERE_ENOMEM, 503},
    {CHIMERE_ETIMEOUT, 504}, {CHIMERE_ECANCELLED, 503},
};

int http_status_of(int code) {
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].code == code) return statuses[i].status;
    return 500;
}

static const struct {
    int status;
    const char *openai, *code, *anthropic;
} kinds[] = {
    {400, "invalid_request_error", NULL, "invalid_request_error"},
    {401, "invalid_request_error", "invalid_api_key", "authentication_error"},
    {403, "invalid_request_error", "forbidden", "permission_error"},
    {404, "invalid_request_error", "not_found", "not_found_error"},
    {405, "invalid_request_error", "method_not_allowed", "invalid_request_error"},
    {412, "invalid_request_error", "precondition_failed", "invalid_request_error"},
    {413, "invalid_request_error", "request_too_large", "request_too_large"},
    {429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"},
    {502, "server_error", "bad_gateway", "api_error"},
    {503, "server_error", "unavailable", "overloaded_error"},
    {504, "server_error", "timeout", "timeout_error"},
    {0, "server_error", "internal_error", "api_error"},
};

/* Length of the field's name that an error begins with: a name, possibly with indices, before ": ". 0: none. */
size_t reply_field(const struct err *e) {
    const char *colon = strstr(e->text, ": ");
    if (!colon || colon == e->text) return 0;
    size_t n = (size_t)(colon - e->text);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)e->text[i]) && !strchr("_.[]-$", e->text[i])) return 0;
    return n;
}

/* Extracts the numbers from engine_refuse_prompt's sentence, with the meaning that llama-server gives them. */
static bool is_overflow(const struct err *e, long long *n_prompt, long long *n_ctx) {
    bool is = e->code == CHIMERE_ELIMIT &&
              sscanf(e->text, "prompt is too long: %lld tokens > %lld", n_prompt, n_ctx) == 2;
    ++*n_ctx; /* the sentence excludes the position for the answer */
    return is;
}

bool reply_is_overflow(const struct err *e) {
    long long n_prompt, n_ctx = 0;
    return is_overflow(e, &n_prompt, &n_ctx);
}

void reply_error_object(struct buf *out, enum http_shape shape, int status, const struct err *e) {
    size_t k = 0, n_field = status < 500 ? reply_field(e) : 0;
    while (kinds[k].status && kinds[k].status != status) k++;
    const char *code = kinds[k].code;
    long long n_prompt, n_ctx = 0;
    bool overflow = is_overflow(e, &n_prompt, &n_ctx);
    if (overflow) code = "context_length_exceeded";
    else if (status == 400 && e->code == CHIMERE_EUNSUPPORTED) code = "unsupported";
    if (status == 400 && str_starts(e->text, "previous_response_id: "))
        code = "previous_response_not_found";
    if (status == 404 && str_starts(e->text, "model: ")) code = "model_not_found";
    struct buf text;
    buf_init(&text, 2048);
    /* no hint for an overflow: clients match the exact sentence */
    bool hint = e->hint[0] && !overflow;
    buf_printf(&text, "%s%s%s%s", e->text[0] ? e->text : err_name(e->code), hint ? " (" : "",
               hint ? e->hint : "", hint ? ")" : "");
    if (shape == SHAPE_OLLAMA) {
        buf_puts(out, "{\"error\":");
        json_out_text(out, text.p, text.n);
        buf_putc(out, '}');
    } else if (shape == SHAPE_ANTHROPIC) {
        buf_printf(
            out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", kinds[k].anthropic);
        json_out_text(out, text.p, text.n);
        if (e->code == CHIMERE_EUNSUPPORTED &&
            str_starts(e->text, "thread: ")) /* client libraries match this text */
            buf_puts(out, ",\"details\":{\"error_code\":\"thread_unsupported_request\"}");
        if (overflow) buf_printf(out, ",\"n_prompt_tokens\":%lld,\"n_ctx\":%lld", n_prompt, n_ctx);
        buf_puts(out, "}}");
    } else {
        buf_puts(out, "{\"error\":{\"message\":");
        json_out_text(out, text.p, text.n);
        buf_printf(out, ",\"type\":\"%s\",\"param\":", kinds[k].openai);
        if (n_field) json_out_text(out, e->text, n_field);
        else buf_puts(out, "null");
        buf_printf(out, ",\"code\":%s%s%s", code ? "\"" : "", code ? code : "null",
                   code ? "\"" : "");
        if (overflow) buf_printf(out, ",\"n_prompt_tokens\":%lld,\"n_ctx\":%lld", n_prompt, n_ctx);
        buf_puts(out, "}}");
    }
    buf_fini(&text);
}

/* The format for a path without a route: that of the API to which the path seems to belong. */
enum http_shape reply_shape(const struct http_request *r) {
    const char *path = r->path ? r->path : "";
    if (r->route && r->route->shape != SHAPE_OPENAI) return r->route->shape;
    if (str_starts(path, "/api/")) return SHAPE_OLLAMA;
    if (str_starts(path, "/v1/messages") || str_starts(path, "/messages")) return SHAPE_ANTHROPIC;
    /* both APIs have /v1/models */
    return http_header(r, "anthropic-version") ? SHAPE_ANTHROPIC : SHAPE_OPENAI;
}

void reply_error(struct http_request *r, int status, const struct err *e) {
    struct buf body;
    buf_init(&body, 1 << 16);
    reply_error_object(&body, reply_shape(r), status, e);
    http_reply(r, status, NULL, &body);
    buf_fini(&body);
}
