#include "serve/resource/engram.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "engram/build.h"
#include "serve/api/api.h"
#include "serve/http/http_impl.h"
#include "serve/http/http_target.h"
#include "serve/api/json_out.h"

enum {
    MAX_OUT = 32 << 20,
    MAX_TABLES = 256,
    MAX_LOOKED = 4096, /* tokens of one request */
    MAX_NAME = 64,
    MAX_NEXT = 8,
    MAX_SOURCES = 20,
    SORT_BYTES = 64 << 20,
};

static void answer(struct http_request *r, int rc, struct buf *out, const struct err *e) {
    if (rc) http_fail(r, e);
    else http_reply(r, 200, NULL, out);
    buf_fini(out);
}

static int folder_of(struct http_request *r, char out[PATH_MAX], struct err *e) {
    const char *dir = r->s->p.engram_dir;
    if (!dir) return file_user_data("engram", out, PATH_MAX, e);
    return snprintf(out, PATH_MAX, "%s", dir) < PATH_MAX
               ? 0
               : err_set(e, CHIMERE_ELIMIT, "engram-dir: the path is too long");
}

static int path_of(struct http_request *r, const char *name, char out[PATH_MAX], struct err *e) {
    char dir[PATH_MAX];
    size_t n = name ? strlen(name) : 0;
    bool good = n && n <= MAX_NAME && name[0] != '.';
    for (size_t i = 0; i < n && good; i++)
        good = isalnum((unsigned char)name[i]) || strchr("-_.", name[i]);
    if (!good)
        return err_set(e, CHIMERE_EINVAL,
                       "table: expected 1 to %d letters, digits, '-', '_' and '.'", MAX_NAME);
    int rc = folder_of(r, dir, e);
    if (!rc && snprintf(out, PATH_MAX, "%s/%s.engram", dir, name) >= PATH_MAX)
        rc = err_set(e, CHIMERE_ELIMIT, "table: the path is too long");
    return rc;
}

/* ---- list ---- */

static void put_table(struct buf *out, const char *name, const struct engram_table *t) {
    struct engram_info info;
    engram_table_info(t, &info);
    buf_puts(out, "{\"name\":");
    json_out_string(out, name);
    buf_printf(out,
               ",\"bytes\":%llu,\"tokens\":%llu,\"contexts\":%llu,\"documents\":%u,\"orders\":[%u,"
               "%u],\"fitted\":%s,\"sources\":[",
               (unsigned long long)info.n_bytes, (unsigned long long)info.n_tok,
               (unsigned long long)info.n_entry, info.n_doc, info.order_min, info.order_max,
               info.n_weight ? "true" : "false");
    for (uint32_t i = 0; i < info.n_source && i < MAX_SOURCES; i++) {
        struct slice s = engram_table_source(t, i, NULL);
        if (i) buf_putc(out, ',');
        json_out_text(out, s.p, s.n);
    }
    buf_printf(out, "],\"n_source\":%u}", info.n_source);
}

void engram_list(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    char dir[PATH_MAX], path[PATH_MAX];
    buf_init(&out, MAX_OUT);
    int rc = folder_of(r, dir, &e), n = 0;
    struct fs_folder *d = rc ? NULL : fs_open(dir); /* a missing folder is an empty list */
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    for (const char *f; d && n < MAX_TABLES && (f = fs_next(d));) {
        char name[256];
        struct engram_table *t;
        struct err broken = {0};
        size_t len = strlen(f);
        if (!str_ends(f, ".engram") || f[0] == '.' || len >= sizeof name) continue;
        memcpy(name, f, len - 7);
        name[len - 7] = 0;
        if (path_of(r, name, path, &broken)) continue;
        int bad = engram_table_open(&t, path, 0, ENGRAM_MAX_VOCAB, &broken);
        if (n++) buf_putc(&out, ',');
        if (!bad) {
            put_table(&out, name, t);
            engram_table_close(t);
            continue;
        }
        buf_puts(&out, "{\"name\":");
        json_out_string(&out, name);
        buf_puts(&out, ",\"error\":");
        json_out_string(&out, broken.text);
        buf_putc(&out, '}');
    }
    fs_close(d);
    buf_puts(&out, "]}");
    answer(r, rc, &out, &e);
}

/* ---- inspect ---- */

static void put_hit(struct buf *out, const struct engram_table *t, const struct tok *tok,
                    const struct engram_hit *h) {
    struct engram_doc doc;
    buf_printf(out, "{\"order\":%d,\"count\":%.2f,\"documents\":%u,\"next\":[", h->order,
               (double)h->total / (double)h->unit, h->n_doc);
    for (uint32_t i = 0; i < h->n_next && i < MAX_NEXT; i++) {
        const struct engram_next *x = engram_hit_next(h) + i;
        struct slice s = tok_piece(tok, (int32_t)x->token);
        buf_puts(out, i ? ",{\"text\":" : "{\"text\":");
        json_out_text(out, s.p, s.n);
        buf_printf(out, ",\"share\":%.4f}", h->total ? (double)x->count / (double)h->total : 0);
    }
    buf_puts(out, "],\"source\":");
    struct slice s = {0};
    if (engram_table_doc_at(t, h->pos, &doc)) s = engram_table_source(t, doc.source, NULL);
    json_out_text(out, s.p, s.n);
    buf_putc(out, '}');
}

/* For each token: its share among the successors of its longest known context. Then the likely tokens after the
 * text. */
static void put_evidence(struct buf *out, const struct engram_table *t, const struct tok *tok,
                         const int32_t *ids, int32_t n) {
    struct engram_hit hits[ENGRAM_N_ORDER];
    buf_puts(out, "{\"object\":\"engram.evidence\",\"tokens\":[");
    for (int32_t i = 0; i < n; i++) {
        int n_hit = engram_lookup(t, ids, i, hits);
        double share = 0;
        for (uint32_t k = 0; n_hit && hits[0].total && k < hits[0].n_next; k++)
            if (engram_hit_next(&hits[0])[k].token == (uint32_t)ids[i])
                share = (double)engram_hit_next(&hits[0])[k].count / (double)hits[0].total;
        struct slice s = tok_piece(tok, ids[i]);
        buf_puts(out, i ? ",{\"text\":" : "{\"text\":");
        json_out_text(out, s.p, s.n);
        buf_printf(out, ",\"order\":%d,\"share\":%.4f}", n_hit ? hits[0].order : 0, share);
    }
    buf_puts(out, "],\"next\":[");
    int n_hit = engram_lookup(t, ids, n, hits);
    for (int i = 0; i < n_hit; i++) {
        if (i) buf_putc(out, ',');
        put_hit(out, t, tok, &hits[i]);
    }
    buf_puts(out, "]}");
}

static int tok_of(struct http_request *r, const json_t *model, const struct tok **tok,
                  struct err *e) {
    struct backend *b = gen_backend(r, model, e);
    if (!b) return e->code;
    if (!b->model) return err_set(e, CHIMERE_EUNSUPPORTED, "model: its tokens are not known here");
    *tok = b->model->tok;
    return 0;
}

void engram_look(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    char path[PATH_MAX];
    const struct tok *tok = NULL;
    struct engram_table *t = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    json_t *q = api_json(r);
    if (!q) return;
    const json_t *text = json_object_get(q, "text");
    buf_init(&out, MAX_OUT);
    int rc = json_is_string(text) && json_object_size(q) == 3
                 ? path_of(r, json_string_value(json_object_get(q, "table")), path, &e)
                 : err_set(&e, CHIMERE_EINVAL, "text: expected model, table and text, alone");
    if (!rc) rc = tok_of(r, json_object_get(q, "model"), &tok, &e);
    if (!rc)
        rc = tok_encode(tok, json_string_value(text), json_string_length(text), false, false, &ids,
                        &n, &e);
    if (!rc && n > MAX_LOOKED)
        rc =
            err_set(&e, CHIMERE_ELIMIT, "text: expected at most %d tokens, got %zu", MAX_LOOKED, n);
    if (!rc) rc = engram_table_open(&t, path, tok_hash(tok), tok_n_vocab(tok), &e);
    if (!rc) put_evidence(&out, t, tok, ids, (int32_t)n);
    engram_table_close(t);
    mem_free(ids);
    answer(r, rc, &out, &e);
    json_decref(q);
}

/* ---- create, remove ---- */

static int build(const char *path, const char *name, const struct tok *tok, const int32_t *ids,
                 size_t n, struct err *e) {
    struct engram_build_params p = {
        .tok_hash = tok_hash(tok), .n_vocab = tok_n_vocab(tok), .memory_bytes = SORT_BYTES};
    struct engram_builder *b;
    uint32_t source;
    int rc = engram_builder_new(&b, path, &p, e);
    if (rc) return rc;
    rc = engram_builder_source(b, (struct slice){name, strlen(name)}, 0, &source, e);
    for (size_t i = 0; i < n && !rc; i += ENGRAM_MAX_DOC) {
        size_t part = n - i < ENGRAM_MAX_DOC ? n - i : ENGRAM_MAX_DOC;
        rc = engram_builder_doc(b, ids + i, part, source, time(NULL), ENGRAM_UNIT, e);
    }
    if (!rc) return engram_builder_finish(b, e);
    engram_builder_abort(b);
    return rc;
}

void engram_make(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    char path[PATH_MAX], dir[PATH_MAX];
    const struct tok *tok = NULL;
    struct engram_table *t = NULL;
    int32_t *ids = NULL;
    size_t n_text, n = 0;
    const char *text = http_body(r, &n_text), *name = http_query(r, "name");
    const char *model = http_query(r, "model");
    json_t *which = json_string(model ? model : "");
    buf_init(&out, 1 << 20);
    int rc = path_of(r, name, path, &e);
    if (!rc && (!n_text || !utf8_is_valid(text, n_text)))
        rc = err_set(&e, CHIMERE_EINVAL, "expected a text in UTF-8 as the body");
    if (!rc) rc = tok_of(r, which, &tok, &e);
    if (!rc) rc = folder_of(r, dir, &e);
    if (!rc) rc = file_mkdirs(dir, &e);
    if (!rc) rc = tok_encode(tok, text, n_text, false, false, &ids, &n, &e);
    if (!rc) rc = build(path, name, tok, ids, n, &e);
    if (!rc) rc = engram_table_open(&t, path, tok_hash(tok), tok_n_vocab(tok), &e);
    if (!rc) put_table(&out, name, t);
    engram_table_close(t);
    mem_free(ids);
    json_decref(which);
    answer(r, rc, &out, &e);
}

void engram_remove(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    char path[PATH_MAX];
    buf_init(&out, 1 << 10);
    int rc = path_of(r, http_rest(r), path, &e);
    if (!rc && fs_remove(path))
        rc = err_set(&e, errno == ENOENT ? CHIMERE_ENOENT : CHIMERE_EIO, "%s: %s", path,
                     strerror(errno));
    buf_puts(&out, "{\"deleted\":true}");
    answer(r, rc, &out, &e);
}
