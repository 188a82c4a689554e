#include "serve/resource/documents.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "odo/memory.h"
#include "odo/odo.h"
#include "retrieval/docs.h"
#include "retrieval/docs_put.h"
#include "retrieval/extract.h"
#include "serve/http/http_impl.h"
#include "serve/http/http_target.h"
#include "serve/api/json_out.h"
#include "store/conversation.h"
#include "store/doc.h"
#include "store/doc_scope.h"

enum {
    MAX_NAME = 512,
    MAX_COLLECTION = 64,
    MAX_HITS = 10,
    MAX_OUT = 64 << 20,
    MAX_LISTED = 1000, /* on one page */
};

static const char *const no_odo =
    "this server runs without its orchestrator, which keeps documents";

/* ---- names in a request ---- */

static bool is_name(const char *s, size_t most) {
    size_t n = strlen(s);
    if (!n || n > most || !utf8_is_valid(s, n)) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f) return false;
    return true;
}

/* Reads ?name=FILE. */
static int name_of(struct http_request *r, const char **out, struct err *e) {
    *out = http_query(r, "name");
    return *out && is_name(*out, MAX_NAME)
               ? 0
               : err_set(e, CHIMERE_EINVAL, "name: expected the name of a file, at most %d bytes",
                         MAX_NAME);
}

static int scope_of(struct http_request *r, const char *name, char out[STORE_DOC_SCOPE_BYTES],
                    struct err *e) {
    char owner[MEMORY_MAX_OWNER];
    memory_owner(http_owner(r), http_header(r, "X-User"), owner);
    return store_doc_scope(owner, name, out, e);
}

/* Reads ?collection=NAME; if it is missing, uses fallback. */
static int collection_of(struct http_request *r, const char *fallback,
                         char out[STORE_DOC_SCOPE_BYTES], struct err *e) {
    const char *name = http_query(r, "collection");
    if (!name || !*name) name = fallback;
    return !name || is_name(name, MAX_COLLECTION)
               ? scope_of(r, name, out, e)
               : err_set(e, CHIMERE_EINVAL, "collection: expected a name of at most %d bytes",
                         MAX_COLLECTION);
}

static int found(void *ud, const struct store_conversation *c) {
    (void)ud, (void)c;
    return 0;
}

/* Reads the collection that a request changes. Only administrators change shared ones; the documents of a
 * conversation need the conversation, with which they are removed. */
static int changed_of(struct http_request *r, char out[STORE_DOC_SCOPE_BYTES], struct err *e) {
    char owner[MEMORY_MAX_OWNER];
    int rc = collection_of(r, "default", out, e);
    if (!rc && !store_doc_is_private(out) && !r->is_admin) {
        err_set(e, CHIMERE_EREFUSED, "the collection '%.64s' is changed by administrators", out);
        err_hint(e, "collection=my:NAME is your own");
        return CHIMERE_EREFUSED;
    }
    const char *name = store_doc_shown(out);
    if (rc || name == out || !str_starts(name, STORE_DOC_CHAT)) return rc;
    memory_owner(http_owner(r), http_header(r, "X-User"), owner);
    return store_conversation_find(serve_store(r->s), owner, name + strlen(STORE_DOC_CHAT), found,
                                   NULL, e);
}

struct change {
    struct docs *d;
    const char *name; /* view */
    char collection[STORE_DOC_SCOPE_BYTES];
};

static int docs_of(struct http_request *r, struct docs **d, struct err *e) {
    *d = r->s->p.odo ? odo_docs(r->s->p.odo) : NULL;
    return *d ? 0 : err_set(e, CHIMERE_ENOENT, "%s", no_odo);
}

static void answer(struct http_request *r, int rc, struct buf *out, const struct err *e) {
    if (rc) http_fail(r, e);
    else http_reply(r, 200, NULL, out);
    buf_fini(out);
}

/* Returns false if an error was sent. */
static bool begin_change(struct http_request *r, struct change *c) {
    struct err e = {0};
    int rc = docs_of(r, &c->d, &e);
    if (!rc) rc = name_of(r, &c->name, &e);
    if (!rc) rc = changed_of(r, c->collection, &e);
    if (rc == CHIMERE_EREFUSED) reply_error(r, 403, &e);
    else if (rc) http_fail(r, &e);
    return !rc;
}

/* ---- list ---- */

struct listing {
    struct buf *out;
    int32_t n, limit;
    char last[MAX_COLLECTION + MAX_NAME + 2]; /* the cursor after the last one */
};

static int put_doc(void *ud, const struct store_doc *d) {
    struct listing *l = ud;
    if (l->n == l->limit) return 1;
    snprintf(l->last, sizeof l->last, "%s\t%s", store_doc_shown(d->collection), d->path);
    buf_puts(l->out, l->n++ ? ",{\"name\":" : "{\"name\":");
    json_out_string(l->out, d->path);
    buf_puts(l->out, ",\"title\":");
    json_out_string(l->out, d->title);
    buf_puts(l->out, ",\"collection\":");
    json_out_string(l->out, store_doc_shown(d->collection));
    buf_printf(l->out, ",\"bytes\":%lld,\"chunks\":%d,\"has_vectors\":%s,\"changed_at\":%lld}",
               (long long)d->n_bytes, d->n_chunk, d->embedder ? "true" : "false",
               (long long)(d->mtime_ns / 1000000000));
    return 0;
}

/* Reads ?after=COLLECTION<tab>NAME, which a page returns as its last_id. Names contain no tab. */
static int after_of(struct http_request *r, char scope[STORE_DOC_SCOPE_BYTES], const char **name,
                    struct err *e) {
    char collection[MAX_COLLECTION + 1];
    const char *after = http_query(r, "after");
    *name = NULL;
    if (!after) return 0;
    size_t n = strcspn(after, "\t");
    if (!after[n] || n > MAX_COLLECTION || !is_name(after + n + 1, MAX_NAME))
        return err_set(e, CHIMERE_EINVAL, "after: expected the last_id of a page");
    memcpy(collection, after, n);
    collection[n] = 0;
    *name = after + n + 1;
    return scope_of(r, collection, scope, e);
}

/* ?collection=NAME&limit=N&after=CURSOR */
void documents_list(struct http_request *r) {
    struct err e = {0};
    struct docs *d;
    struct buf out;
    const char *after = NULL;
    char collection[STORE_DOC_SCOPE_BYTES], from[STORE_DOC_SCOPE_BYTES] = "";
    buf_init(&out, MAX_OUT);
    struct listing l = {.out = &out};
    int rc = docs_of(r, &d, &e);
    if (!rc) rc = collection_of(r, NULL, collection, &e);
    if (!rc) rc = http_limit(r, MAX_LISTED, MAX_LISTED, &l.limit, &e);
    if (!rc) rc = after_of(r, from, &after, &e);
    const struct store_doc_place place = {from, after};
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    if (!rc)
        rc = store_doc_page(odo_store(r->s->p.odo), collection, after ? &place : NULL, put_doc, &l,
                            &e);
    buf_puts(&out, "],\"last_id\":");
    if (l.n) json_out_string(&out, l.last);
    else buf_puts(&out, "null");
    buf_printf(&out, ",\"has_more\":%s,\"has_vectors\":%s,\"has_reranker\":%s}",
               rc > 0 ? "true" : "false", rc >= 0 && docs_has_vectors(d) ? "true" : "false",
               rc >= 0 && docs_has_reranker(d) ? "true" : "false");
    answer(r, rc > 0 ? 0 : rc, &out, &e);
}

/* ---- put, remove ---- */

/* The request body is the file itself. */
void documents_put(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct change c;
    struct docs_report report = {0};
    size_t n;
    const char *data = http_body(r, &n);
    if (!begin_change(r, &c)) return;
    int rc = docs_put(c.d, c.name, c.collection, data, n, &report, &e);
    buf_init(&out, 1 << 16);
    buf_puts(&out, "{\"object\":\"document\",\"name\":");
    json_out_string(&out, c.name);
    buf_puts(&out, ",\"collection\":");
    json_out_string(&out, store_doc_shown(c.collection));
    buf_printf(&out, ",\"bytes\":%zu,\"chunks\":%d}", n, report.n_chunk);
    answer(r, rc, &out, &e);
}

void documents_remove(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct change c;
    int32_t n_removed;
    if (!begin_change(r, &c)) return;
    int rc = docs_remove(c.d, c.name, c.collection, &n_removed, &e);
    buf_init(&out, 4096);
    buf_printf(&out, "{\"object\":\"document.deleted\",\"deleted\":true,\"documents\":%d}",
               n_removed);
    answer(r, rc, &out, &e);
}

/* ---- search ---- */

static void put_hit(struct buf *out, const struct docs_hit *h, bool first) {
    buf_puts(out, first ? "{\"name\":" : ",{\"name\":");
    json_out_string(out, h->path);
    buf_puts(out, ",\"title\":");
    json_out_string(out, h->title);
    buf_puts(out, ",\"heading\":");
    json_out_string(out, h->heading);
    buf_puts(out, ",\"text\":");
    json_out_string(out, h->text);
    buf_printf(out, ",\"page\":%d,\"line\":%d,\"from\":%d,\"to\":%d,\"score\":", h->page, h->line,
               h->from, h->to);
    json_out_number(out, h->score);
    buf_putc(out, '}');
}

/* ?query=TEXT&collection=NAME&limit=N */
void documents_search(struct http_request *r) {
    struct err e = {0};
    struct docs *d;
    struct buf out;
    struct docs_hits h = {0};
    const char *query = http_query(r, "query");
    char collection[STORE_DOC_SCOPE_BYTES];
    int32_t k;
    int rc = docs_of(r, &d, &e);
    if (!rc) rc = collection_of(r, NULL, collection, &e);
    if (!rc && (!query || !*query || strlen(query) > DOCS_MAX_QUERY))
        rc = err_set(&e, CHIMERE_EINVAL, "query: expected a text of at most %d bytes",
                     DOCS_MAX_QUERY);
    if (!rc) rc = http_limit(r, 5, MAX_HITS, &k, &e);
    if (!rc) rc = docs_search(d, query, collection, k, 0, NULL, &h, &e);
    buf_init(&out, MAX_OUT);
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    for (int32_t i = 0; !rc && i < h.n; i++) put_hit(&out, &h.v[i], !i);
    buf_puts(&out, "],\"ranking\":");
    json_out_string(&out, rc ? "" : docs_ranking(&h));
    buf_puts(&out, ",\"coverage\":");
    json_out_number(&out, h.coverage);
    buf_putc(&out, '}');
    if (!rc) docs_hits_fini(&h);
    answer(r, rc, &out, &e);
}

/* ---- text of a file ---- */

void documents_extract(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct extract x = {0};
    const char *name;
    size_t n;
    const char *data = http_body(r, &n);
    int rc = name_of(r, &name, &e);
    enum extract_kind kind = rc ? EXTRACT_NONE : extract_kind_of(name);
    if (!rc && kind == EXTRACT_NONE)
        rc = err_set(&e, CHIMERE_EUNSUPPORTED, "name: files such as '%.80s' cannot be read", name);
    bool begun = !rc;
    if (!rc) rc = extract_text(&x, kind, data, n, &(struct extract_how){0}, &e);
    buf_init(&out, MAX_OUT);
    buf_puts(&out, "{\"object\":\"text\",\"title\":");
    json_out_string(&out, x.title);
    buf_printf(&out, ",\"pages\":%d,\"is_cut\":%s,\"text\":", x.n_page, x.cut ? "true" : "false");
    json_out_text(&out, x.text.n ? x.text.p : "", x.text.n);
    buf_putc(&out, '}');
    if (begun) extract_fini(&x);
    answer(r, rc, &out, &e);
}
