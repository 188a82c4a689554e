#include "backend/request.h"

#include <string.h>

#include "base/buf.h"
#include "base/hash.h"

enum { MAX_ARENA_BYTES = 64 << 20 };

void request_init(struct request *a) {
    *a = (struct request){.n = 1, .slot = -1, .n_lora = -1};
    arena_init(&a->arena, MAX_ARENA_BYTES);
    sampler_defaults(&a->sampling);
}

void request_choose(struct request *a, size_t at, float value) {
    memcpy((char *)&a->sampling + at, &value, sizeof value);
    a->has_temperature |= at == offsetof(struct sampler_params, temperature);
    a->has_top_p |= at == offsetof(struct sampler_params, top_p);
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

char *request_question(const json_t *messages, bool *has_image) {
    *has_image = false;
    for (size_t i = json_array_size(messages); i-- > 0;) {
        const json_t *m = json_array_get(messages, i), *content = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!role || strcmp(role, "user")) continue;
        if (json_is_string(content))
            return mem_strndup(json_string_value(content), json_string_length(content));
        struct buf text;
        buf_init(&text, (size_t)64 << 20);
        size_t k;
        json_t *part;
        json_array_foreach(content, k, part) {
            const char *type = json_string_value(json_object_get(part, "type"));
            const char *s = json_string_value(json_object_get(part, "text"));
            if (type && (!strcmp(type, "image_url") || !strcmp(type, "image"))) *has_image = true;
            if (s) buf_printf(&text, "%s%s", text.n ? "\n" : "", s);
        }
        return buf_take(&text);
    }
    return mem_strdup("");
}

const char *request_lone_question(const json_t *messages) {
    const json_t *m = json_array_size(messages) == 1 ? json_array_get(messages, 0) : NULL;
    const char *role = json_string_value(json_object_get(m, "role"));
    return role && !strcmp(role, "user") ? json_string_value(json_object_get(m, "content")) : NULL;
}
