#include "serve/resource/conversations_turn.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "odo/odo.h"
#include "serve/resource/conversations_impl.h"
#include "store/doc.h"
#include "store/doc_scope.h"

struct conversations_turn {
    struct store *s; /* borrowed from the server */
    char owner[MEMORY_MAX_OWNER], id[CONVERSATION_MAX_NAME];
    json_t *input; /* owned */
};

const char *conversations_turn_id(const struct conversations_turn *t) { return t->id; }

void conversations_turn_free(struct conversations_turn *t) {
    if (!t) return;
    json_decref(t->input);
    mem_free(t);
}

/* ---- what precedes the input ---- */

struct reading {
    json_t *items; /* the newest branch, newest first */
    char wanted[CONVERSATION_MAX_NAME];
    size_t n_byte;
    bool begun, full;
};

/* Items come newest first, and a parent is older than what follows it, so one pass finds the branch. */
static int read_item(void *ud, const struct store_item *x) {
    struct reading *l = ud;
    if (l->begun && strcmp(x->name, l->wanted) != 0) return 0;
    l->begun = true;
    l->n_byte += strlen(x->body);
    l->full = l->n_byte > CONVERSATION_MAX_OUT;
    if (l->full) return 1;
    json_t *item = json_loads(x->body, 0, NULL);
    json_object_del(item, "chimere"); /* notes of the Studio page */
    json_object_set_new(item, "id", json_string(x->name));
    json_array_append_new(l->items, item);
    if (!x->parent) return 1;
    snprintf(l->wanted, sizeof l->wanted, "%s", x->parent);
    return 0;
}

static int read_branch(const struct conversations_turn *t, json_t **out, struct err *e) {
    struct reading l = {.items = json_array()};
    int rc = store_items_list(t->s, t->owner, t->id, NULL, true, read_item, &l, e);
    if (l.full)
        rc = err_set(e, CHIMERE_ELIMIT, "conversation: expected items of at most %d MiB",
                     CONVERSATION_MAX_OUT >> 20);
    *out = rc < 0 ? NULL : json_array();
    for (size_t i = json_array_size(l.items); i-- > 0 && rc >= 0;)
        json_array_append(*out, json_array_get(l.items, i));
    json_decref(l.items);
    return rc < 0 ? rc : 0;
}

/* ---- its documents ---- */

static int found_doc(void *ud, const struct store_doc *d) {
    (void)ud, (void)d;
    return 1;
}

/* Sets odo.collection, unless the request says which collection, or a wrong odo is to be reported. */
static int select_documents(struct http_request *r, const struct conversations_turn *t,
                            json_t *request, struct err *e) {
    char scope[STORE_DOC_SCOPE_BYTES], name[CONVERSATION_DOCUMENTS_NAME];
    json_t *wish = json_object_get(request, "odo");
    struct store *s = r->s->p.odo ? odo_store(r->s->p.odo) : NULL;
    if (!s || (wish && !json_is_object(wish)) || json_object_get(wish, "collection")) return 0;
    int rc = conversations_documents(t->owner, t->id, name, scope, e);
    if (!rc) rc = store_doc_page(s, scope, NULL, found_doc, NULL, e);
    if (rc <= 0) return rc;
    if (!wish) json_object_set_new(request, "odo", wish = json_object());
    return json_object_set_new(wish, "collection", json_string(name))
               ? err_set(e, CHIMERE_ENOMEM, "out of memory")
               : 0;
}

/* ---- begin, end ---- */

static int found(void *ud, const struct store_conversation *c) {
    (void)ud, (void)c;
    return 0;
}

/* The user of the body, or else of the header, which the orchestrator then sees too. */
static int name_owner(struct http_request *r, json_t *request, struct conversations_turn *t,
                      struct err *e) {
    const json_t *user = json_object_get(request, "user");
    const char *header = http_header(r, "X-User");
    if ((!user || json_is_null(user)) && header && *header) {
        if (json_object_set_new(request, "user", json_string(header)))
            return err_set(e, CHIMERE_EINVAL, "X-User: expected UTF-8");
        user = json_object_get(request, "user");
    }
    memory_owner(http_owner(r), json_string_value(user), t->owner);
    return 0;
}

int conversations_turn_begin(struct http_request *r, json_t *request,
                             struct conversations_turn **out, json_t **before, struct err *e) {
    const json_t *v = json_object_get(request, "conversation");
    *out = NULL;
    *before = NULL;
    if (!v || json_is_null(v)) return 0;
    const char *id = json_string_value(json_is_object(v) ? json_object_get(v, "id") : v);
    const json_t *previous = json_object_get(request, "previous_response_id");
    if (!id)
        return err_set(e, CHIMERE_EINVAL, "conversation: expected an id, or an object with an id");
    if (previous && !json_is_null(previous))
        return err_set(e, CHIMERE_EINVAL,
                       "conversation: expected no previous_response_id beside it");
    struct conversations_turn *t = mem_zalloc(sizeof *t);
    if (!t) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    t->s = serve_store(r->s);
    snprintf(t->id, sizeof t->id, "%s", id);
    int rc = name_owner(r, request, t, e);
    if (!rc && !t->s)
        rc = err_set(e, CHIMERE_ENOENT, "conversation: this server keeps no conversations");
    if (!rc) rc = store_conversation_find(t->s, t->owner, id, found, NULL, e);
    if (!rc) rc = read_branch(t, before, e);
    if (!rc) rc = select_documents(r, t, request, e);
    if (!rc) {
        *out = t;
        return 0;
    }
    conversations_turn_free(t);
    json_decref(*before);
    *before = NULL;
    return rc;
}

void conversations_turn_input(struct conversations_turn *t, const json_t *items) {
    t->input = json_deep_copy(items);
}

void conversations_turn_end(const struct conversations_turn *t, const char *output, size_t n) {
    json_t *added = json_loadb(output, n, 0, NULL), *list = json_deep_copy(t->input), *item;
    struct store_conversation_key k = {t->owner, t->id, 0};
    struct conversation_items l = {0};
    struct err e = {0};
    size_t i;
    /* The ids of input are the client's own, and may be in the conversation already. */
    json_array_foreach(list, i, item) {
        json_object_del(item, "id");
        json_object_del(item, "parent");
        json_object_del(item, "created_at");
    }
    json_array_extend(list, added);
    int rc = conversations_items_read(list, &l, &e);
    if (!rc) rc = store_items_add(t->s, &k, l.items, l.n, &e);
    if (rc) log_warn("conversation %s: a response is not added: %s", t->id, e.text);
    conversations_items_fini(&l);
    json_decref(list);
    json_decref(added);
}
