/* fuzz_request.c: byte 0 chooses the API, the rest is a request body. What is taken must lie within the
 * bounds that the engine relies on, and what is refused must name a field or the body. */
#include <stdint.h>
#include <string.h>

#include "serve/fields/fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct fields *f) {
    const struct request *a = f->request;
    const struct sampler_params *p = &a->sampling;
    struct err e;
    bool ok = a->n >= 1 && a->n <= REQUEST_MAX_CHOICES && a->n_stop <= ANSWER_MAX_STOPS &&
              json_array_size(a->tools) <= REQUEST_MAX_TOOLS && p->n_probs <= SAMPLER_MAX_PROBS &&
              (a->messages || a->prompt) && a->n_lora <= REQUEST_MAX_LORAS;
    for (size_t i = 0; i < a->n_stop; i++) {
        size_t n = strlen(a->stops[i]);
        ok = ok && n >= 1 && n <= ANSWER_MAX_STOP_BYTES;
    }
    /* all but the vocabulary's size and the thinking marks, which the backend knows */
    struct sampler_params own = *p;
    own.n_bias = 0;
    own.think_budget = -1;
    if (!ok || sampler_check(&own, INT32_MAX, &e)) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum fields_api apis[] = {FIELDS_CHAT, FIELDS_TEXT, FIELDS_RESPONSES,
                                           FIELDS_MESSAGES};
    struct err e = {0};
    if (size < 1) return 0;
    json_t *body = chat_json_object((const char *)data + 1, size - 1, "body", &e);
    if (!body) {
        if (strncmp(e.text, "body: ", 6) != 0) __builtin_trap();
        return 0;
    }
    struct request a;
    struct fields f = {.request = &a};
    request_init(&a);
    int rc = fields_read(&f, body, apis[data[0] % 4], &e);
    if (rc && (e.code != rc || !e.text[0])) __builtin_trap();
    if (!rc) check(&f);
    request_fini(&a);
    json_decref(body);
    return 0;
}
