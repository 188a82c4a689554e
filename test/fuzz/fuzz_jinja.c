/* fuzz_jinja.c: template text, a NUL, a JSON context. Whatever comes in, the limits hold. */
#include <stdint.h>
#include <string.h>

#include "text/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool trust_some(const char *top, const char *key, const char *s, size_t n) {
    (void)key, (void)s;
    return top[0] == 'b' && n < 8;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct jinja_limits limits = {20000, 60, 1 << 16, 1 << 21};
    static const struct tm now = {.tm_year = 126, .tm_mday = 1};
    static const char fallback[] = "{\"s\":\"a "
                                   "b\",\"u\":\"\\u00e9\\ud83d\\ude00\",\"i\":3,\"f\":1.5,\"n\":"
                                   "null,\"t\":true,\"l\":[3,1,\"x\"],"
                                   "\"d\":{\"k\":\"v\",\"o\":{\"p\":[1]}},\"messages\":[{\"role\":"
                                   "\"user\",\"content\":\"hi\"}],\"bos\":\"<s>\"}";
    const uint8_t *end = memchr(data, 0, size);
    size_t n = end ? (size_t)(end - data) : size;
    json_t *context = end ? json_loadb((const char *)end + 1, size - n - 1, 0, NULL) : NULL;
    if (!json_is_object(context)) {
        json_decref(context);
        context = json_loads(fallback, 0, NULL);
    }
    struct jinja *j = NULL;
    struct err e = {0};
    if (jinja_compile(&j, (const char *)data, n, &e) == 0) {
        struct jinja_env env = {.limits = &limits, .now = &now, .is_trusted = trust_some};
        struct jinja_output out;
        if (jinja_render(j, context, &env, &out, &e) == 0) {
            size_t total = 0;
            for (size_t i = 0; i < out.n_run; i++) total += out.runs[i].n;
            if (total != out.text.n || total > limits.max_output_bytes) __builtin_trap();
        } else if (!e.text[0] && e.code != CHIMERE_EREFUSED) {
            __builtin_trap();
        }
        jinja_output_fini(&out);
    }
    jinja_free(j);
    json_decref(context);
    return 0;
}
