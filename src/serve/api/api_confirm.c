/* api_confirm.c: tool calls that wait for the caller's approval (/v1/confirm). If several users share a key, the header
 * X-User names the user. */
#include <string.h>

#include "odo/confirm.h"
#include "odo/memory.h"
#include "serve/api/api.h"
#include "serve/api/api_odo.h"
#include "serve/http/http_impl.h"

/* Returns NULL if an error was sent. */
static struct confirms *open_confirms(struct http_request *r, char owner[MEMORY_MAX_OWNER]) {
    struct err e;
    memory_owner(http_owner(r), http_header(r, "X-User"), owner);
    if (r->s->p.odo) return odo_confirms(r->s->p.odo);
    err_set(&e, CHIMERE_ENOENT, "this server runs without its orchestrator");
    http_fail(r, &e);
    return NULL;
}

void api_confirm_list(struct http_request *r) {
    char owner[MEMORY_MAX_OWNER];
    struct confirms *c = open_confirms(r, owner);
    json_t *list = c ? confirm_list(c, owner) : NULL;
    if (c)
        api_answer(r, 0, list ? json_pack("{s:s, s:o}", "object", "list", "data", list) : NULL,
                   NULL);
}

/* {"id", "allow": true | false} */
void api_confirm(struct http_request *r) {
    char owner[MEMORY_MAX_OWNER];
    struct err e = {0};
    struct confirms *c = open_confirms(r, owner);
    json_t *q = c ? api_json(r) : NULL, *v;
    if (!q) return;
    const char *id = json_string_value(json_object_get(q, "id")), *key;
    const json_t *allow = json_object_get(q, "allow");
    int rc = 0;
    json_object_foreach(q, key, v) if (!rc && strcmp(key, "id") != 0 && strcmp(key, "allow") != 0)
        rc = err_set(&e, CHIMERE_EUNSUPPORTED, "%.80s: unknown field", key);
    if (!rc && !id) rc = err_set(&e, CHIMERE_EINVAL, "id: expected the name of a call that waits");
    if (!rc && !json_is_boolean(allow))
        rc = err_set(&e, CHIMERE_EINVAL, "allow: expected true or false");
    if (!rc) rc = confirm_answer(c, owner, id, json_is_true(allow), &e);
    api_answer(r, rc, rc ? NULL : json_pack("{s:s, s:O}", "id", id, "allow", allow), &e);
    json_decref(q);
}
