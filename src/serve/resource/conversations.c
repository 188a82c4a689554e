#include "serve/resource/conversations.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "odo/odo.h"
#include "serve/api/api.h"
#include "serve/resource/conversations_impl.h"
#include "serve/http/http_target.h"
#include "serve/api/json_out.h"

enum {
    MAX_PAIRS = 16, /* metadata pairs; OpenAI's limit */
    MAX_PAIR_KEY = 64,
    MAX_PAIR_VALUE = 512,
    MAX_PROJECT = 128,
    MAX_SETTINGS = 64 << 10,
    MAX_SEARCH = 512,
    PAGE = 20,
};

/* ---- the conversation that a request names ---- */

/* Reads a version from an ETag: "3" with quotes. Compressing proxies turn it into a weak tag, which is accepted. "*":
 * any version. */
static bool read_tag(const char *tag, int64_t *version) {
    char text[24];
    if (strcmp(tag, "*") == 0) return true;
    if (str_starts(tag, "W/")) tag += 2;
    size_t n = strlen(tag);
    if (n < 3 || n - 2 >= sizeof text || tag[0] != '"' || tag[n - 1] != '"') return false;
    memcpy(text, tag + 1, n - 2);
    text[n - 2] = 0;
    return str_to_i64(text, 1, INT64_MAX, version);
}

bool conversations_call(struct http_request *r, struct conversation_call *c) {
    struct server *s = r->s;
    struct err e = {0};
    const char *tag = http_header(r, "If-Match");
    *c = (struct conversation_call){.s = serve_store(s)};
    memory_owner(http_owner(r), http_header(r, "X-User"), c->owner);
    if (!c->s) {
        err_set(&e, CHIMERE_ENOENT, "this server keeps no conversations");
        err_hint(&e, "--state-dir names a folder for them");
    } else if ((strchr(r->route->path, '*') && !http_part(r, 0, c->name, sizeof c->name)) ||
               (str_ends(r->route->path, "/*/items/*") &&
                !http_part(r, 1, c->item, sizeof c->item))) {
        err_set(&e, CHIMERE_ENOENT, "there is no %.200s", r->path);
    } else if (tag && !read_tag(tag, &c->version)) {
        err_set(&e, CHIMERE_EINVAL, "If-Match: expected an ETag of this server, got %.40s", tag);
    }
    if (!e.code) return true;
    http_fail(r, &e);
    return false;
}

struct store_conversation_key conversations_key(const struct conversation_call *c) {
    return (struct store_conversation_key){c->owner, c->name, c->version};
}

void conversations_reply(struct http_request *r, int rc, int64_t version, struct buf *out,
                         const struct err *e) {
    if (rc == CHIMERE_EMISMATCH) {
        reply_error(r, 412, e);
    } else if (rc) {
        http_fail(r, e);
    } else {
        if (version) {
            struct buf head;
            buf_init(&head, 64);
            buf_printf(&head, "ETag: \"%lld\"", (long long)version);
            http_headers(r, &head);
        }
        http_reply(r, 200, NULL, out);
    }
    buf_fini(out);
}

int conversations_limit(struct http_request *r, int32_t *limit, struct err *e) {
    return http_limit(r, PAGE, CONVERSATION_MAX_ITEMS, limit, e);
}

void conversations_new_name(const char *prefix, char out[CONVERSATION_MAX_NAME]) {
    snprintf(out, CONVERSATION_MAX_NAME, "%s%016llx%016llx", prefix,
             (unsigned long long)rng_entropy(), (unsigned long long)rng_entropy());
}

/* ---- a conversation as JSON ---- */

struct writing {
    struct buf *out;
    int64_t version; /* version of the conversation that was written */
    int32_t n, limit;
    char first[CONVERSATION_MAX_NAME], last[CONVERSATION_MAX_NAME];
    bool more;
};

static int put(void *ud, const struct store_conversation *c) {
    struct writing *w = ud;
    if (w->limit && w->n == w->limit) {
        w->more = true;
        return 1;
    }
    if (w->n++) buf_putc(w->out, ',');
    else snprintf(w->first, sizeof w->first, "%s", c->name);
    snprintf(w->last, sizeof w->last, "%s", c->name);
    w->version = c->version;
    buf_puts(w->out, "{\"id\":");
    json_out_string(w->out, c->name);
    buf_printf(w->out, ",\"object\":\"conversation\",\"created_at\":%lld,\"metadata\":%s",
               (long long)(c->created_ms / 1000), c->metadata);
    buf_puts(w->out, ",\"title\":");
    json_out_string(w->out, c->title);
    buf_puts(w->out, ",\"project\":");
    json_out_string(w->out, c->project);
    buf_printf(
        w->out,
        ",\"pinned\":%s,\"settings\":%s,\"updated_at\":%lld,\"version\":%lld,\"n_items\":%lld",
        c->pinned ? "true" : "false", c->settings, (long long)(c->updated_ms / 1000),
        (long long)c->version, (long long)c->n_item);
    if (c->match) {
        buf_puts(w->out, ",\"match\":");
        json_out_string(w->out, c->match);
    }
    buf_putc(w->out, '}');
    return 0;
}

void conversations_show(struct http_request *r, const struct conversation_call *c, int rc,
                        struct err *e) {
    struct buf out;
    buf_init(&out, CONVERSATION_MAX_OUT);
    struct writing w = {.out = &out};
    if (!rc) rc = store_conversation_find(c->s, c->owner, c->name, put, &w, e);
    conversations_reply(r, rc, w.version, &out, e);
}

/* ---- fields ---- */

struct given {
    /* its texts are views into the request or into the members below */
    struct store_conversation_change c;
    char *metadata, *settings; /* owned */
    const json_t *items;       /* view */
};

static void fini(struct given *f) {
    mem_free(f->metadata);
    mem_free(f->settings);
}

static int read_text(const json_t *v, const char *name, size_t most, const char **out,
                     struct err *e) {
    if (json_is_string(v) && json_string_length(v) <= most &&
        strlen(json_string_value(v)) == json_string_length(v)) {
        *out = json_string_value(v);
        return 0;
    }
    return err_set(e, CHIMERE_EINVAL, "%s: expected a text of at most %zu bytes", name, most);
}

static int check_pairs(const json_t *v, struct err *e) {
    const char *key;
    json_t *x;
    if (!json_is_object(v) || json_object_size(v) > MAX_PAIRS)
        return err_set(e, CHIMERE_EINVAL, "metadata: expected an object of at most %d texts",
                       MAX_PAIRS);
    json_object_foreach((json_t *)v, key, x) {
        if (strlen(key) > MAX_PAIR_KEY || !json_is_string(x) ||
            json_string_length(x) > MAX_PAIR_VALUE)
            return err_set(e, CHIMERE_EINVAL,
                           "metadata.%.64s: expected a text of at most %d bytes, a name of at most "
                           "%d",
                           key, MAX_PAIR_VALUE, MAX_PAIR_KEY);
    }
    return 0;
}

static int keep_json(const json_t *v, const char *name, size_t most, char **own, const char **out,
                     struct err *e) {
    mem_free(*own);
    *own = json_dumps(v, JSON_COMPACT);
    if (!*own) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (strlen(*own) > most)
        return err_set(e, CHIMERE_ELIMIT, "%s: expected at most %zu bytes", name, most);
    *out = *own;
    return 0;
}

static int read_field(struct given *f, const char *key, const json_t *v, bool creates,
                      struct err *e) {
    if (!strcmp(key, "title")) return read_text(v, key, STORE_MAX_TITLE, &f->c.title, e);
    if (!strcmp(key, "project")) return read_text(v, key, MAX_PROJECT, &f->c.project, e);
    if (!strcmp(key, "pinned")) {
        f->c.pinned = json_is_true(v);
        return json_is_boolean(v) ? 0
                                  : err_set(e, CHIMERE_EINVAL, "pinned: expected true or false");
    }
    if (!strcmp(key, "metadata")) {
        if (json_is_null(v)) return 0;
        int rc = check_pairs(v, e);
        return rc ? rc : keep_json(v, key, SIZE_MAX, &f->metadata, &f->c.metadata, e);
    }
    if (!strcmp(key, "settings")) {
        if (!json_is_object(v)) return err_set(e, CHIMERE_EINVAL, "settings: expected an object");
        return keep_json(v, key, MAX_SETTINGS, &f->settings, &f->c.settings, e);
    }
    if (creates && !strcmp(key, "items")) {
        f->items = json_is_null(v) ? NULL : v;
        return 0;
    }
    return err_set(e, CHIMERE_EUNSUPPORTED, "%.80s: unknown field", key);
}

static int read_fields(const json_t *q, bool creates, struct given *f, struct err *e) {
    const char *key;
    json_t *v;
    int rc = 0;
    *f = (struct given){.c.pinned = -1};
    json_object_foreach((json_t *)q, key, v) {
        if (!rc) rc = read_field(f, key, v, creates, e);
    }
    return rc;
}

/* ---- handlers ---- */

void conversations_create(struct http_request *r) {
    struct conversation_call c;
    struct conversation_items l = {0};
    struct given f;
    struct err e = {0};
    if (!conversations_call(r, &c)) return;
    size_t n;
    http_body(r, &n);
    json_t *q =
        n ? api_json(r) : json_object(); /* OpenAI's client sends no body if there are no fields */
    if (!q) return;
    int rc = read_fields(q, true, &f, &e);
    if (!rc && f.items) rc = conversations_items_read(f.items, &l, &e);
    conversations_new_name("conv_", c.name);
    const struct store_conversation new = {.name = c.name,
                                           .title = f.c.title ? f.c.title : "",
                                           .project = f.c.project ? f.c.project : "",
                                           .metadata = f.c.metadata ? f.c.metadata : "{}",
                                           .settings = f.c.settings ? f.c.settings : "{}",
                                           .pinned = f.c.pinned == 1};
    if (!rc) rc = store_conversation_add(c.s, c.owner, &new, l.items, l.n, &e);
    conversations_items_fini(&l);
    fini(&f);
    json_decref(q);
    conversations_show(r, &c, rc, &e);
}

void conversations_find(struct http_request *r) {
    struct conversation_call c;
    struct err e = {0};
    if (conversations_call(r, &c)) conversations_show(r, &c, 0, &e);
}

void conversations_change(struct http_request *r) {
    struct conversation_call c;
    struct given f;
    struct err e = {0};
    if (!conversations_call(r, &c)) return;
    json_t *q = api_json(r);
    if (!q) return;
    struct store_conversation_key k = conversations_key(&c);
    int rc = read_fields(q, false, &f, &e);
    if (!rc) rc = store_conversation_change(c.s, &k, &f.c, &e);
    fini(&f);
    json_decref(q);
    conversations_show(r, &c, rc, &e);
}

int conversations_documents(const char *owner, const char *id,
                            char name[CONVERSATION_DOCUMENTS_NAME],
                            char scope[STORE_DOC_SCOPE_BYTES], struct err *e) {
    snprintf(name, CONVERSATION_DOCUMENTS_NAME, STORE_DOC_CHAT "%s", id);
    return store_doc_scope(owner, name, scope, e);
}

static int remove_documents(struct http_request *r, const struct conversation_call *c,
                            struct err *e) {
    struct store *s = r->s->p.odo ? odo_store(r->s->p.odo) : NULL;
    char name[CONVERSATION_DOCUMENTS_NAME], scope[STORE_DOC_SCOPE_BYTES];
    int rc = conversations_documents(c->owner, c->name, name, scope, e);
    return rc || !s ? rc : store_doc_drop(s, scope, e);
}

void conversations_remove(struct http_request *r) {
    struct conversation_call c;
    struct err e = {0};
    struct buf out;
    if (!conversations_call(r, &c)) return;
    struct store_conversation_key k = conversations_key(&c);
    int rc = store_conversation_remove(c.s, &k, &e);
    if (!rc) rc = remove_documents(r, &c, &e);
    buf_init(&out, 4096);
    buf_puts(&out, "{\"id\":");
    json_out_string(&out, c.name);
    buf_puts(&out, ",\"object\":\"conversation.deleted\",\"deleted\":true}");
    conversations_reply(r, rc, 0, &out, &e);
}

/* ?limit=N&after=ID&search=WORDS&project=NAME */
void conversations_list(struct http_request *r) {
    struct conversation_call c;
    struct err e = {0};
    struct buf out;
    if (!conversations_call(r, &c)) return;
    buf_init(&out, CONVERSATION_MAX_OUT);
    struct writing w = {.out = &out};
    struct store_conversation_query q = {.owner = c.owner,
                                         .after = http_query(r, "after"),
                                         .words = http_query(r, "search"),
                                         .project = http_query(r, "project")};
    int rc = conversations_limit(r, &w.limit, &e);
    if (!rc && q.words && strlen(q.words) > MAX_SEARCH)
        rc = err_set(&e, CHIMERE_ELIMIT, "search: expected at most %d bytes", MAX_SEARCH);
    q.limit = w.limit + 1;
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    if (!rc) rc = store_conversation_list(c.s, &q, put, &w, &e);
    if (rc > 0) rc = 0;
    buf_puts(&out, "],\"first_id\":");
    json_out_string(&out, w.n ? w.first : NULL);
    buf_puts(&out, ",\"last_id\":");
    json_out_string(&out, w.n ? w.last : NULL);
    buf_printf(&out, ",\"has_more\":%s}", w.more ? "true" : "false");
    conversations_reply(r, rc, 0, &out, &e);
}
