#include "backend/request.h"

#include <string.h>

#include "base/hash.h"

enum { MAX_ARENA_BYTES = 64 << 20 };

void request_init(struct request *a) {
    *a = (struct request){.n = 1, .slot = -1, .n_lora = -1};
    arena_init(&a->arena, MAX_ARENA_BYTES);
    sampler_defaults(&a->sampling);
}

uint64_t request_owner_hash(const struct request *a) {
    return a->owner && *a->owner ? hash_bytes(a->owner, strlen(a->owner), 1) : 0;
}

uint64_t request_scope(const char *owner, const char *user) {
    uint64_t h = hash_bytes(owner, strlen(owner), 2);
    if (user) h = hash_bytes(user, strlen(user), h + 1);
    return h ? h : 1;
}

void request_fini(struct request *a) {
    json_decref(a->messages);
    json_decref(a->prompt);
    json_decref(a->tools);
    json_decref(a->tool_forms);
    json_decref(a->template_context);
    json_decref(a->schema);
    json_decref(a->extra);
    arena_fini(&a->arena);
}
