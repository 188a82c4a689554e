/* conversations_items.c: the items of /v1/conversations: messages, function calls and their results. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "serve/api/api.h"
#include "serve/resource/conversations_impl.h"
#include "serve/http/http_target.h"
#include "serve/api/json_out.h"

/* ---- items from a client ---- */

static bool is_name(const char *s, size_t n) {
    if (!n || n >= CONVERSATION_MAX_NAME) return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("_-.", s[i])) return false;
    return true;
}

static bool is_of(const char *s, const char *const *list) {
    for (; s && *list; list++)
        if (strcmp(s, *list) == 0) return true;
    return false;
}

/* Reads a message's content as parts, each an object with a type; plain text becomes one part. */
static int read_content(json_t *item, int32_t i, struct err *e) {
    static const char *const roles[] = {"user", "assistant", "system", "developer", NULL};
    const char *role = json_string_value(json_object_get(item, "role"));
    json_t *content = json_object_get(item, "content"), *part;
    size_t k;
    if (!is_of(role, roles))
        return err_set(e, CHIMERE_EINVAL,
                       "items[%d].role: expected user, assistant, system or developer", i);
    if (json_is_string(content)) {
        json_t *parts =
            json_pack("[{s:s, s:O}]", "type",
                      strcmp(role, "assistant") ? "input_text" : "output_text", "text", content);
        return parts && !json_object_set_new(item, "content", parts)
                   ? 0
                   : err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    if (!json_is_array(content))
        return err_set(e, CHIMERE_EINVAL, "items[%d].content: expected a text or a list of parts",
                       i);
    json_array_foreach(content, k, part) if (
        !json_is_string(json_object_get(
            part,
            "type"))) return err_set(e, CHIMERE_EINVAL,
                                     "items[%d].content[%zu].type: expected the type of a part", i,
                                     k);
    return 0;
}

/* Collects the text that search looks at. */
static void put_text(const json_t *item, struct buf *out) {
    const json_t *content = json_object_get(item, "content"), *part;
    size_t k;
    json_array_foreach(content, k, part) {
        const char *text = json_string_value(json_object_get(part, "text"));
        if (!text) continue;
        if (out->n) buf_putc(out, '\n');
        buf_puts(out, text);
    }
}

/* Moves id, parent and time, which have their own columns, from the item to *x. status stays a member: all stored items
 * are complete. */
static int take_own(json_t *item, int32_t i, const char *prefix, struct store_item *x,
                    struct err *e) {
    const json_t *id = json_object_get(item, "id"), *parent = json_object_get(item, "parent"),
                 *at = json_object_get(item, "created_at");
    char name[CONVERSATION_MAX_NAME];
    if (id && !is_name(json_string_value(id), json_string_length(id)))
        return err_set(e, CHIMERE_EINVAL,
                       "items[%d].id: expected letters, digits, '_', '-' and '.', at most %d", i,
                       CONVERSATION_MAX_NAME - 1);
    if (parent && !json_is_null(parent) && !json_is_string(parent))
        return err_set(e, CHIMERE_EINVAL, "items[%d].parent: expected an id or null", i);
    if (at && (!json_is_integer(at) || json_integer_value(at) < 0 ||
               json_integer_value(at) > store_now_ms() / 1000 + 86400))
        return err_set(e, CHIMERE_EINVAL, "items[%d].created_at: expected seconds since 1970", i);
    conversations_new_name(prefix, name);
    x->name = mem_strdup(id ? json_string_value(id) : name);
    x->is_root = json_is_null(parent);
    x->parent = json_is_string(parent) ? mem_strdup(json_string_value(parent)) : NULL;
    x->at_ms = json_integer_value(at) * 1000;
    json_object_del(item, "id");
    json_object_del(item, "parent");
    json_object_del(item, "created_at");
    return x->name && (x->parent || !json_is_string(parent))
               ? 0
               : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

static int read_item(json_t *item, int32_t i, struct store_item *x, struct err *e) {
    struct buf text;
    if (!json_is_object(item))
        return err_set(e, CHIMERE_EINVAL, "items[%d]: expected an object", i);
    const json_t *type = json_object_get(item, "type");
    if (!type && json_object_set_new(item, "type", json_string("message")))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!type) type = json_object_get(item, "type");
    if (!is_name(json_string_value(type), json_string_length(type)) ||
        !strcmp(json_string_value(type), "item_reference"))
        return err_set(e, CHIMERE_EINVAL,
                       "items[%d].type: expected message, function_call, function_call_output, "
                       "reasoning or another type of item",
                       i);
    bool message = !strcmp(json_string_value(type), "message");
    int rc = message ? read_content(item, i, e) : 0;
    if (!rc) rc = take_own(item, i, message ? "msg_" : "item_", x, e);
    if (rc) return rc;
    if (!json_object_get(item, "status") &&
        json_object_set_new(item, "status", json_string("completed")))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    buf_init(&text, STORE_MAX_ITEM_BYTES);
    put_text(item, &text);
    x->text = buf_take(&text);
    x->body = json_dumps(item, JSON_COMPACT);
    return x->text && x->body ? 0
                              : err_set(e, CHIMERE_ELIMIT, "items[%d]: expected at most %d MiB", i,
                                        STORE_MAX_ITEM_BYTES >> 20);
}

void conversations_items_fini(struct conversation_items *l) {
    for (int32_t i = 0; i < l->n; i++) {
        mem_free((char *)l->items[i].name);
        mem_free((char *)l->items[i].parent);
        mem_free((char *)l->items[i].body);
        mem_free((char *)l->items[i].text);
    }
    mem_free(l->items);
    *l = (struct conversation_items){0};
}

int conversations_items_read(const json_t *list, struct conversation_items *out, struct err *e) {
    size_t n = json_array_size(list);
    *out = (struct conversation_items){0};
    if (!json_is_array(list) || n > CONVERSATION_MAX_ITEMS)
        return err_set(e, CHIMERE_EINVAL, "items: expected a list of at most %d items",
                       CONVERSATION_MAX_ITEMS);
    if (!n) return 0;
    out->items = mem_alloc_array(n, sizeof *out->items);
    if (!out->items) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        out->items[i] = (struct store_item){0};
        rc = read_item(json_array_get(list, i), (int32_t)i, &out->items[i], e);
        out->n++;
    }
    if (rc) conversations_items_fini(out);
    return rc;
}

/* ---- items to a client ---- */

struct writing {
    struct buf *out;
    int32_t n, limit; /* limit 0: a single item */
    bool more;
    char first[CONVERSATION_MAX_NAME], last[CONVERSATION_MAX_NAME];
};

/* Writes an item: the members from columns, followed by the members of the body, which is a non-empty JSON object. */
static int put(void *ud, const struct store_item *x) {
    struct writing *w = ud;
    if (w->limit && (w->n == w->limit || w->out->n > CONVERSATION_PAGE_BYTES)) {
        w->more = true;
        return 1;
    }
    if (w->n++) buf_putc(w->out, ',');
    else snprintf(w->first, sizeof w->first, "%s", x->name);
    snprintf(w->last, sizeof w->last, "%s", x->name);
    buf_puts(w->out, "{\"id\":");
    json_out_string(w->out, x->name);
    buf_puts(w->out, ",\"parent\":");
    json_out_string(w->out, x->parent);
    buf_printf(w->out, ",\"created_at\":%lld,%s", (long long)(x->at_ms / 1000), x->body + 1);
    return 0;
}

static void end_list(struct writing *w) {
    buf_puts(w->out, "],\"first_id\":");
    json_out_string(w->out, w->n ? w->first : NULL);
    buf_puts(w->out, ",\"last_id\":");
    json_out_string(w->out, w->n ? w->last : NULL);
    buf_printf(w->out, ",\"has_more\":%s}", w->more ? "true" : "false");
}

/* ?limit=N&after=ID&order=asc|desc. */
void conversations_items_list(struct http_request *r) {
    struct conversation_call c;
    struct err e = {0};
    struct buf out;
    if (!conversations_call(r, &c)) return;
    buf_init(&out, CONVERSATION_MAX_OUT);
    struct writing w = {.out = &out};
    const char *order = http_query(r, "order");
    int rc = conversations_limit(r, &w.limit, &e);
    if (!rc && order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        rc = err_set(&e, CHIMERE_EINVAL, "order: expected asc or desc");
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    if (!rc)
        rc = store_items_list(c.s, c.owner, c.name, http_query(r, "after"),
                              !order || !strcmp(order, "desc"), put, &w, &e);
    if (rc > 0) rc = 0;
    end_list(&w);
    conversations_reply(r, rc, 0, &out, &e);
}

/* Writes the items of a request as stored, by reading each of them back. */
static int put_added(const struct conversation_call *c, const struct conversation_items *l,
                     struct writing *w, struct err *e) {
    int rc = 0;
    for (int32_t i = 0; i < l->n && !rc; i++)
        rc = store_item_find(c->s, c->owner, c->name, l->items[i].name, put, w, e);
    return rc;
}

void conversations_items_create(struct http_request *r) {
    struct conversation_call c;
    struct conversation_items l = {0};
    struct err e = {0};
    struct buf out;
    const char *key;
    json_t *v;
    if (!conversations_call(r, &c)) return;
    json_t *q = api_json(r);
    if (!q) return;
    int rc = 0;
    json_object_foreach(q, key, v) {
        if (!rc && strcmp(key, "items") != 0)
            rc = err_set(&e, CHIMERE_EUNSUPPORTED, "%.80s: unknown field", key);
    }
    struct store_conversation_key k = conversations_key(&c);
    if (!rc) rc = conversations_items_read(json_object_get(q, "items"), &l, &e);
    if (!rc) rc = store_items_add(c.s, &k, l.items, l.n, &e);
    buf_init(&out, CONVERSATION_MAX_OUT);
    struct writing w = {.out = &out};
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    if (!rc) rc = put_added(&c, &l, &w, &e);
    end_list(&w);
    conversations_items_fini(&l);
    json_decref(q);
    conversations_reply(r, rc, k.version, &out, &e);
}

static void show_item(struct http_request *r, const struct conversation_call *c, int64_t version,
                      int rc, struct err *e) {
    struct buf out;
    buf_init(&out, CONVERSATION_MAX_OUT);
    struct writing w = {.out = &out};
    if (!rc) rc = store_item_find(c->s, c->owner, c->name, c->item, put, &w, e);
    conversations_reply(r, rc, version, &out, e);
}

void conversations_items_find(struct http_request *r) {
    struct conversation_call c;
    struct err e = {0};
    if (conversations_call(r, &c)) show_item(r, &c, 0, 0, &e);
}

/* Replaces the item by the body; its position in the tree stays. */
void conversations_items_change(struct http_request *r) {
    struct conversation_call c;
    struct conversation_items l = {0};
    struct err e = {0};
    if (!conversations_call(r, &c)) return;
    json_t *q = api_json(r);
    if (!q) return;
    json_object_del(q, "id");
    json_object_del(q, "parent");
    json_object_del(q, "created_at");
    json_t *list = json_pack("[O]", q);
    struct store_conversation_key k = conversations_key(&c);
    int rc = list ? conversations_items_read(list, &l, &e)
                  : err_set(&e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) {
        struct store_item x = l.items[0];
        x.name = c.item;
        rc = store_item_change(c.s, &k, &x, &e);
    }
    conversations_items_fini(&l);
    json_decref(list);
    json_decref(q);
    show_item(r, &c, k.version, rc, &e);
}

/* With ?below=true, also deletes all items after it. */
void conversations_items_remove(struct http_request *r) {
    struct conversation_call c;
    struct err e = {0};
    if (!conversations_call(r, &c)) return;
    const char *below = http_query(r, "below");
    struct store_conversation_key k = conversations_key(&c);
    int rc = below && strcmp(below, "true") != 0 && strcmp(below, "false") != 0
                 ? err_set(&e, CHIMERE_EINVAL, "below: expected true or false")
                 : store_item_remove(c.s, &k, c.item, below && !strcmp(below, "true"), &e);
    conversations_show(r, &c, rc, &e);
}
