/* fuzz_chat.c: bytes 0 and 1 choose the form of calls, the options and the seed of the cuts, the rest is model output.
 * Whole and in pieces must give the same message; the arguments of a call are a
 * JSON object once it is complete, and never before. */
#include <stdint.h>
#include <string.h>

#include "base/rng.h"
#include "text/chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_CALL 64
struct seen {
    char args[MAX_CALL][4096];
    size_t n[MAX_CALL];
    bool too_long[MAX_CALL];
};

static int on_event(void *arg, const struct chat_event *ev) {
    struct seen *s = arg;
    int i = ev->index;
    if (i < 0 || i >= MAX_CALL) return 0;
    if (ev->kind == CHAT_ARGS) {
        if (s->n[i] + ev->n >= sizeof s->args[i]) s->too_long[i] = true;
        else memcpy(s->args[i] + s->n[i], ev->text, ev->n), s->n[i] += ev->n;
    }
    bool is_cut = ev->kind == CHAT_CALL_CUT || ev->kind == CHAT_MALFORMED;
    if ((ev->kind == CHAT_CALL_END || is_cut) && !s->too_long[i]) {
        json_error_t why;
        json_t *j = json_loadb(s->args[i], s->n[i], 0, &why);
        /* a number that is too large for jansson is still JSON */
        bool is_known = j || json_error_code(&why) != json_error_numeric_overflow;
        if (!s->n[i] || (is_known && json_is_object(j) == is_cut)) __builtin_trap();
        json_decref(j);
    }
    return 0;
}

static json_t *parse(const struct chat_parse_spec *base, const char *text, size_t n,
                     uint64_t seed) {
    static struct seen seen;
    memset(&seen, 0, sizeof seen);
    struct chat_parse_spec spec = *base;
    spec.on_event = on_event;
    spec.arg = &seen;
    struct chat_parser *p;
    struct rng rng;
    rng_seed(&rng, seed);
    if (chat_parser_new(&p, &spec, NULL)) return NULL;
    for (size_t at = 0; at < n;) {
        size_t k = seed ? 1 + rng_below(&rng, 5) : n;
        if (k > n - at) k = n - at;
        if (chat_parser_push(p, text + at, k)) __builtin_trap();
        at += k;
    }
    if (chat_parser_finish(p, base->hold)) __builtin_trap();
    json_t *m = chat_parser_message(p);
    struct chat_result r;
    chat_parser_result(p, &r);
    json_object_set_new(m, "malformed", json_integer(r.n_malformed));
    chat_parser_free(p);
    return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char tools_text[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"s\":{\"type\":\"string\"},"
        "\"i\":{\"type\":\"integer\"},\"o\":{\"type\":\"object\"},\"u\":{\"anyOf\":[{\"type\":"
        "\"string\"},{\"type\":\"null\"}]}}}}},{\"name\":\"python\"}]";
    static json_t *tools;
    if (!tools) tools = json_loads(tools_text, 0, NULL);
    if (size < 2) return 0;
    struct chat_parse_spec spec = {
        .calls = (enum chat_calls)((data[0] % 8 + 8 * data[1]) % CHAT_CALLS_COUNT),
        .reasoning = !(data[0] & 8),
        .in_think = data[0] & 16,
        .hold = data[0] & 32,
        .tools = data[0] & 64 ? NULL : tools,
        .id_seed = 1};
    const char *text = (const char *)data + 2;
    json_t *whole = parse(&spec, text, size - 2, 0),
           *cut = parse(&spec, text, size - 2, 1 + data[1]);
    if (!json_equal(whole, cut)) __builtin_trap();
    json_decref(whole);
    json_decref(cut);
    return 0;
}
