/* fuzz_routing.c: any bytes as a record of routed experts. What opens gives experts of its shape, wherever asked. */
#include <stddef.h>
#include <stdint.h>

#include "model/experts/routing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct routing *r;
    struct err e = {0};
    if (routing_parse(&r, (const char *)data, size, "input", &e)) {
        if (!e.text[0] || r) __builtin_trap();
        return 0;
    }
    const struct routing_shape *s = routing_shape(r);
    int64_t n = routing_n_tok(r);
    if (n < 1 || (size_t)n > size) __builtin_trap();
    for (int64_t t = 0; t < n; t++)
        for (int32_t m = 0; m < s->n_mixture; m++)
            for (int32_t k = 0; k < s->n_used; k++)
                if (routing_at(r, m, t)[k] >= s->n_expert) __builtin_trap();
    if (routing_at(r, 0, 3 * n) != routing_at(r, 0, 0)) __builtin_trap();
    routing_free(r);
    return 0;
}
