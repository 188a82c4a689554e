#include "engine/ask.h"

enum { MAX_ARENA_BYTES = 64 << 20 };

void ask_init(struct ask *a) {
    *a = (struct ask){.n = 1, .slot = -1, .n_lora = -1};
    arena_init(&a->arena, MAX_ARENA_BYTES);
    sampler_defaults(&a->sampling);
}

void ask_fini(struct ask *a) {
    json_decref(a->messages);
    json_decref(a->prompt);
    json_decref(a->tools);
    json_decref(a->template_context);
    json_decref(a->schema);
    json_decref(a->extra);
    arena_fini(&a->arena);
}
