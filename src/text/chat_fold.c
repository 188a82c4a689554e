/* chat_fold.c: moves system messages for a template that accepts one at the front, or none.
 *
 * System messages before the first user turn become one system message, or the beginning of that turn if the
 * template has no system messages. A later one is added to the user turn before it, or else to the one after it. */
#include <string.h>

#include "base/buf.h"
#include "text/chat_fold.h"

enum { MAX_BYTES = 64 << 20, PROBE_BYTES = 64 };

static bool has_role(const json_t *m, const char *role) {
    const char *r = json_string_value(json_object_get(m, "role"));
    return r && strcmp(r, role) == 0;
}

static bool is_system(const json_t *m) { return has_role(m, "system") || has_role(m, "developer"); }

/* Appends the text of a message, after a blank line if out is not empty. */
static void add_text(struct buf *out, const json_t *m) {
    json_t *content = json_object_get(m, "content"), *part;
    size_t i;
    if (out->n) buf_puts(out, "\n\n");
    if (json_is_string(content))
        buf_put(out, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, part) {
        const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
        if (json_is_string(text)) buf_put(out, json_string_value(text), json_string_length(text));
    }
}

static json_t *message(const char *role, const struct buf *text) {
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string(role));
    json_object_set_new(m, "content", json_stringn(text->p ? text->p : "", text->n));
    return m;
}

/* Returns a copy of the user's message with a text before or after its content. */
static json_t *joined(const json_t *user, const struct buf *text, bool before) {
    json_t *m = json_copy((json_t *)user), *content = json_object_get(user, "content");
    struct buf all;
    buf_init(&all, MAX_BYTES);
    if (before) buf_put(&all, text->p, text->n);
    if (before) buf_puts(&all, "\n\n");
    if (json_is_string(content))
        buf_put(&all, json_string_value(content), json_string_length(content));
    if (!before) buf_puts(&all, "\n\n");
    if (!before) buf_put(&all, text->p, text->n);
    json_t *value = all.failed || text->failed ? NULL : json_stringn(all.p, all.n);
    buf_fini(&all);
    if (value && json_is_array(content)) { /* a separate part next to the user's parts */
        json_t *part = json_object(), *parts = json_copy(content);
        json_object_set_new(part, "type", json_string("text"));
        json_object_set_new(part, "text", value);
        if (before) json_array_insert_new(parts, 0, part);
        else json_array_append_new(parts, part);
        value = parts;
    }
    if (!value || json_object_set_new(m, "content", value)) {
        json_decref(m);
        return NULL;
    }
    return m;
}

static int put_head(json_t *out, const struct buf *head, bool has_system) {
    json_t *m;
    size_t i;
    if (!head->n) return 0;
    if (has_system) return json_array_insert_new(out, 0, message("system", head));
    json_array_foreach(out, i, m) if (has_role(m, "user")) return json_array_set_new(
        out, i, joined(m, head, true));
    return json_array_insert_new(out, 0, message("user", head));
}

/* Adds a later system message to the user turn before it, or keeps it for the turn after it. */
static int put_later(json_t *out, const json_t *m, struct buf *pending) {
    size_t n = json_array_size(out);
    const json_t *last = json_array_get(out, n - 1);
    if (pending->n || !has_role(last, "user")) {
        add_text(pending, m);
        return 0;
    }
    struct buf text;
    buf_init(&text, MAX_BYTES);
    add_text(&text, m);
    int rc = text.failed || json_array_set_new(out, n - 1, joined(last, &text, false));
    buf_fini(&text);
    return rc;
}

static int put_other(json_t *out, json_t *m, struct buf *pending) {
    int rc = pending->failed;
    if (pending->n && has_role(m, "user")) {
        rc = json_array_append_new(out, joined(m, pending, true));
    } else {
        if (pending->n) rc = json_array_append_new(out, message("user", pending));
        rc |= json_array_append(out, m);
    }
    buf_clear(pending);
    return rc;
}

json_t *chat_fold(const json_t *messages, bool has_system) {
    struct buf head, pending;
    json_t *out = json_array(), *m;
    bool has_user = false;
    size_t i;
    int rc = 0;
    buf_init(&head, MAX_BYTES);
    buf_init(&pending, MAX_BYTES);
    json_array_foreach(messages, i, m) {
        if (is_system(m) && !has_user) add_text(&head, m);
        else if (is_system(m)) rc |= put_later(out, m, &pending);
        else rc |= put_other(out, m, &pending);
        has_user |= has_role(m, "user");
    }
    if (pending.n) rc |= json_array_append_new(out, message("user", &pending));
    rc |= put_head(out, &head, has_system);
    if (rc || head.failed || pending.failed) {
        json_decref(out);
        out = NULL;
    }
    buf_fini(&head);
    buf_fini(&pending);
    return out;
}

bool chat_has_later_system(const json_t *messages) {
    const json_t *m;
    size_t i;
    json_array_foreach(messages, i, m) if (i && is_system(m)) return true;
    return false;
}

bool chat_drops_system(const json_t *messages, const char *text, size_t n) {
    const json_t *m;
    size_t i;
    bool drops = false;
    json_array_foreach(messages, i, m) {
        struct buf b;
        if (!i || !is_system(m)) continue;
        buf_init(&b, MAX_BYTES);
        add_text(&b, m);
        size_t from = 0, len;
        while (from < b.n && strchr(" \t\r\n", b.p[from])) from++; /* templates trim white space */
        len = strcspn(b.n ? b.p + from : "", "\r\n");
        if (len > PROBE_BYTES) len = PROBE_BYTES;
        while (len && strchr(" \t", b.p[from + len - 1])) len--;
        drops |= len && !memmem(text, n, b.p + from, len);
        buf_fini(&b);
    }
    return drops;
}
