#include "serve/resource/personas.h"

#include <string.h>

#include "base/str.h"
#include "odo/memory.h"
#include "serve/api/api.h"
#include "serve/http/http_impl.h"
#include "serve/http/http_target.h"
#include "store/persona.h"

/* Returns NULL if an error was sent. */
static struct store *open_store(struct http_request *r, char owner[MEMORY_MAX_OWNER]) {
    struct store *s = serve_store(r->s);
    struct err e = {0};
    memory_owner(http_owner(r), http_header(r, "X-User"), owner);
    if (s) return s;
    err_set(&e, CHIMERE_ENOENT, "this server keeps no personas");
    err_hint(&e, "--state-dir names a folder for them");
    http_fail(r, &e);
    return NULL;
}

static json_t *as_json(const struct store_persona *p) {
    return json_pack("{s:I, s:s, s:s, s:s}", "id", (json_int_t)p->id, "object", "persona", "name",
                     p->name, "text", p->text);
}

static int add(void *ud, const struct store_persona *p) {
    return json_array_append_new(ud, as_json(p));
}

void personas_list(struct http_request *r) {
    char owner[MEMORY_MAX_OWNER];
    struct err e = {0};
    struct store *s = open_store(r, owner);
    if (!s) return;
    json_t *list = json_array();
    int rc = list ? store_persona_list(s, owner, add, list, &e) : -1;
    json_t *o = rc ? NULL : json_pack("{s:s, s:O}", "object", "list", "data", list);
    if (rc && !e.code) rc = err_set(&e, CHIMERE_ENOMEM, "out of memory");
    json_decref(list);
    api_answer(r, rc, o, &e);
}

/* Text of 1 to `most` bytes. */
static int text_of(const json_t *q, const char *name, size_t most, const char **out,
                   struct err *e) {
    const json_t *v = json_object_get(q, name);
    size_t n = json_string_length(v);
    *out = json_string_value(v);
    return *out && n && n <= most && strlen(*out) == n
               ? 0
               : err_set(e, CHIMERE_EINVAL, "%s: expected a text of at most %zu bytes", name, most);
}

/* A name is shown in lists and menus, on one line. */
static int check_name(const char *name, struct err *e) {
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(e, CHIMERE_EINVAL, "name: expected one line of text");
    return 0;
}

static int id_of(struct http_request *r, int64_t *id, struct err *e) {
    return str_to_i64(http_rest(r), 1, INT64_MAX, id)
               ? 0
               : err_set(e, CHIMERE_ENOENT, "persona: there is no '%.40s'", http_rest(r));
}

static void put(struct http_request *r, bool is_new) {
    char owner[MEMORY_MAX_OWNER];
    struct err e = {0};
    struct store *s = open_store(r, owner);
    json_t *q = s ? api_json(r) : NULL;
    if (!q) return;
    struct store_persona p = {.id = 0};
    int rc = is_new ? 0 : id_of(r, &p.id, &e);
    if (!rc && json_object_size(q) != 2)
        rc = err_set(&e, CHIMERE_EINVAL, "expected name and text, and no other field");
    if (!rc) rc = text_of(q, "name", STORE_MAX_PERSONA_NAME, &p.name, &e);
    if (!rc) rc = check_name(p.name, &e);
    if (!rc) rc = text_of(q, "text", STORE_MAX_PERSONA_TEXT, &p.text, &e);
    if (!rc) rc = store_persona_put(s, owner, &p, &p.id, &e);
    api_answer(r, rc, rc ? NULL : as_json(&p), &e);
    json_decref(q);
}

/* {"name", "text"} */
void personas_create(struct http_request *r) { put(r, true); }
void personas_change(struct http_request *r) { put(r, false); }

void personas_remove(struct http_request *r) {
    char owner[MEMORY_MAX_OWNER];
    struct err e = {0};
    struct store *s = open_store(r, owner);
    int64_t id = 0;
    if (!s) return;
    int rc = id_of(r, &id, &e);
    if (!rc) rc = store_persona_remove(s, owner, id, &e);
    api_answer(r, rc, rc ? NULL : json_pack("{s:I, s:b}", "id", (json_int_t)id, "deleted", 1), &e);
}
