/* api_memory.c: what the orchestrator remembers of the caller: list, add, pin, delete (/v1/memory); and its skills
 * (/v1/skills). If several users share a key, the header X-User names the user. */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "odo/memory.h"
#include "odo/odo.h"
#include "serve/api/api.h"
#include "serve/api/api_odo.h"
#include "serve/http/http_impl.h"
#include "serve/http/http_target.h"

/* Returns NULL if an error was sent. */
static struct store *open_memory(struct http_request *r, char owner[MEMORY_MAX_OWNER]) {
    struct store *s = r->s->p.odo ? odo_store(r->s->p.odo) : NULL;
    struct err e;
    memory_owner(http_owner(r), http_header(r, "X-User"), owner);
    if (s) return s;
    err_set(&e, CHIMERE_ENOENT, "this server runs without its orchestrator");
    http_fail(r, &e);
    return NULL;
}

void api_memory(struct http_request *r) {
    char owner[MEMORY_MAX_OWNER];
    struct store *s = open_memory(r, owner);
    struct err e = {0};
    json_t *list = NULL;
    if (!s) return;
    const char *history = http_query(r, "history");
    int rc =
        memory_list(s, owner, history && !strcmp(history, "true"), STORE_MAX_MEMORIES, &list, &e);
    api_answer(r, rc, rc ? NULL : json_pack("{s:s, s:o}", "object", "list", "data", list), &e);
}

static int check_fields(const json_t *q, const char *const *names, struct err *e) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)q, key, v) {
        const char *const *n = names;
        while (*n && strcmp(*n, key) != 0) ++n;
        if (!*n) return err_set(e, CHIMERE_EUNSUPPORTED, "%.80s: unknown field", key);
    }
    v = json_object_get(q, "pinned");
    return !v || json_is_boolean(v) ? 0
                                    : err_set(e, CHIMERE_EINVAL, "pinned: expected true or false");
}

void api_memory_add(struct http_request *r) {
    static const char *const names[] = {"text", "pinned", NULL};
    char owner[MEMORY_MAX_OWNER];
    struct err e = {0};
    struct store *s = open_memory(r, owner);
    json_t *q = s ? api_json(r) : NULL;
    if (!q) return;
    const json_t *text = json_object_get(q, "text");
    bool pinned = json_is_true(json_object_get(q, "pinned"));
    int64_t id = 0;
    int rc = check_fields(q, names, &e);
    if (!rc)
        rc = memory_keep_fact(s, owner, json_is_string(text) ? json_string_value(text) : "",
                              json_string_length(text), pinned, &id, &e);
    api_answer(r, rc,
               rc ? NULL
                  : json_pack("{s:I, s:s, s:O, s:b}", "id", (json_int_t)id, "kind", "fact", "text",
                              text, "pinned", pinned),
               &e);
    json_decref(q);
}

/* Reads the number after /v1/memory/. */
static int id_of(struct http_request *r, int64_t *id, struct err *e) {
    return str_to_i64(http_rest(r), 1, INT64_MAX, id)
               ? 0
               : err_set(e, CHIMERE_ENOENT, "memory: there is no '%.40s'", http_rest(r));
}

void api_memory_change(struct http_request *r) {
    static const char *const names[] = {"pinned", "text", NULL};
    char owner[MEMORY_MAX_OWNER];
    struct err e = {0};
    struct store *s = open_memory(r, owner);
    json_t *q = s ? api_json(r) : NULL;
    if (!q) return;
    const json_t *pinned = json_object_get(q, "pinned"), *text = json_object_get(q, "text");
    int64_t id = 0;
    int rc = id_of(r, &id, &e);
    if (!rc) rc = check_fields(q, names, &e);
    if (!rc && !pinned == !text)
        rc = err_set(&e, CHIMERE_EINVAL, "pinned: expected true or false, or a text instead");
    if (!rc && pinned) rc = store_memory_pin(s, owner, id, json_is_true(pinned), &e);
    if (!rc && text)
        rc = memory_edit_fact(s, owner, id, json_is_string(text) ? json_string_value(text) : "",
                              json_string_length(text), &e);
    json_t *o = rc       ? NULL
                : pinned ? json_pack("{s:I, s:O}", "id", (json_int_t)id, "pinned", pinned)
                         : json_pack("{s:I, s:O}", "id", (json_int_t)id, "text", text);
    api_answer(r, rc, o, &e);
    json_decref(q);
}

/* Deletes one memory, or "all", including pinned ones. */
void api_memory_remove(struct http_request *r) {
    char owner[MEMORY_MAX_OWNER];
    struct err e = {0};
    struct store *s = open_memory(r, owner);
    int64_t id = 0, n = 1;
    if (!s) return;
    bool all = !strcmp(http_rest(r), "all");
    int rc = all ? 0 : id_of(r, &id, &e);
    if (!rc && all) {
        n = store_memory_forget(s, owner, INT64_MAX, true, &e);
        rc = n < 0 ? (int)n : 0;
    } else if (!rc) {
        rc = store_memory_remove(s, owner, id, &e);
    }
    api_answer(r, rc, rc ? NULL : json_pack("{s:I}", "deleted", (json_int_t)n), &e);
}

void api_skills(struct http_request *r) {
    struct err e;
    if (!r->s->p.odo) {
        err_set(&e, CHIMERE_ENOENT, "this server runs without its orchestrator");
        http_fail(r, &e);
        return;
    }
    json_t *list = odo_skills(r->s->p.odo);
    api_answer(r, 0, list ? json_pack("{s:s, s:o}", "object", "list", "data", list) : NULL, NULL);
}
