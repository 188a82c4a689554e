#include "engram/ingest.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/os/fs.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"

static const char separator[] = "<|doc|>";
enum { MAX_LINE = 64 << 20, SNIFF = 8192 };

/* Data that all documents of one file share. */
struct origin {
    uint32_t source;
    int64_t time;
};

static int add_text(struct engram_ingest *in, const char *text, size_t n, const struct origin *o,
                    struct err *e) {
    int32_t *ids;
    size_t n_ids;
    if (!n) return 0;
    int rc = tok_encode(in->tok, text, n, false, false, &ids, &n_ids, e);
    if (rc) return rc;
    rc = in->b ? engram_builder_doc(in->b, ids, n_ids, o->source, o->time, ENGRAM_UNIT, e)
               : in->take(in->ud, ids, n_ids, e);
    mem_free(ids);
    in->n_doc++;
    return rc;
}

/* Adds one document in pieces. A piece ends at a line end, if there is one in its second half. */
static int add_document(struct engram_ingest *in, const char *text, size_t n,
                        const struct origin *o, struct err *e) {
    int rc = 0;
    while (n && !rc) {
        size_t take = n < ENGRAM_MAX_PIECE ? n : ENGRAM_MAX_PIECE;
        if (take < n) {
            const char *end = memrchr(text + take / 2, '\n', take / 2);
            if (end) take = (size_t)(end - text) + 1;
        }
        rc = add_text(in, text, take, o, e);
        text += take;
        n -= take;
        in->n_bytes += take;
        if (in->progress) in->progress(in->ud, in->n_bytes);
    }
    return rc;
}

static int add_plain(struct engram_ingest *in, const char *p, size_t n, const struct origin *o,
                     struct err *e) {
    const char *end = p + n, *begin = p;
    int rc = 0;
    for (const char *line = p; line < end && !rc;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t len = (size_t)((stop ? stop : end) - line);
        if (len && line[len - 1] == '\r') len--;
        const char *next = stop ? stop + 1 : end;
        if (len == sizeof separator - 1 && memcmp(line, separator, len) == 0) {
            rc = add_document(in, begin, (size_t)(line - begin), o, e);
            begin = next;
        }
        line = next;
    }
    return rc ? rc : add_document(in, begin, (size_t)(end - begin), o, e);
}

/* Returns the text of a line's JSON object as a new reference to a string; NULL: it has none. */
static json_t *line_text(const json_t *row) {
    static const char *const pairs[][2] = {{"q", "a"}, {"question", "answer"}};
    json_t *text = json_object_get(row, "text");
    if (json_is_string(text)) return json_incref(text);
    for (int i = 0; i < 2; i++) {
        const json_t *q = json_object_get(row, pairs[i][0]), *a = json_object_get(row, pairs[i][1]);
        if (json_is_string(q) && json_is_string(a))
            return json_sprintf("%s\n%s", json_string_value(q), json_string_value(a));
    }
    return NULL;
}

static int add_lines(struct engram_ingest *in, const char *path, const char *p, size_t n,
                     const struct origin *o, struct err *e) {
    size_t number = 0;
    int rc = 0;
    for (const char *end = p + n; p < end && !rc;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((stop ? stop : end) - p);
        number++;
        if (len > MAX_LINE)
            return err_set(e, CHIMERE_ELIMIT, "%s:%zu: a line of %zu bytes", path, number, len);
        json_t *row = len > 1 ? json_loadb(p, len, 0, NULL) : NULL;
        json_t *text = row ? line_text(row) : NULL;
        if (len > 1 && !text)
            rc = err_set(e, CHIMERE_EFORMAT,
                         "%s:%zu: expected an object with \"text\", or \"q\" and \"a\", or "
                         "\"question\" and \"answer\"",
                         path, number);
        else if (text)
            rc = add_document(in, json_string_value(text), json_string_length(text), o, e);
        json_decref(text);
        json_decref(row);
        p += len + 1;
    }
    return rc;
}

int engram_ingest_file(struct engram_ingest *in, const char *path, struct slice source,
                       int64_t time, struct err *e) {
    struct file_map map;
    struct fs_info st;
    struct origin o = {.time = time};
    int rc = file_map(&map, path, e);
    if (rc) return rc;
    if (!time && fs_stat(path, &st) == 0) o.time = st.mtime_ns / 1000000000;
    const char *p = (const char *)map.data;
    size_t n = (size_t)map.size;
    if (!n || memchr(p, 0, n < SNIFF ? n : SNIFF)) {
        in->n_skipped++;
    } else {
        in->n_file++;
        if (in->b) rc = engram_builder_source(in->b, source, hash_bytes(p, n, 0), &o.source, e);
        if (!rc)
            rc = str_ends(path, ".jsonl") ? add_lines(in, path, p, n, &o, e)
                                          : add_plain(in, p, n, &o, e);
    }
    file_unmap(&map);
    return rc;
}

/* ---- sync ---- */

struct syncing {
    struct engram_ingest in;
    struct engram_table *old; /* owned; NULL: none that can be used */
    /* owned: documents of the old table, grouped by source; start of each group [n_source + 1] */
    uint32_t *docs, *first;
    struct map sources; /* of the old table: name -> index */
    struct engram_sync *out;
};

static int index_old(struct syncing *s, struct err *e) {
    struct engram_info info;
    engram_table_info(s->old, &info);
    s->docs = mem_alloc_array((size_t)info.n_doc + 1, sizeof *s->docs);
    s->first = mem_alloc_array((size_t)info.n_source + 2, sizeof *s->first);
    if (!s->docs || !s->first) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct engram_doc d;
    for (uint32_t i = 0; engram_table_doc(s->old, i, &d); i++) s->first[d.source + 1]++;
    for (uint32_t i = 0; i < info.n_source; i++) s->first[i + 1] += s->first[i];
    for (uint32_t i = 0; engram_table_doc(s->old, i, &d); i++) s->docs[s->first[d.source]++] = i;
    for (uint32_t i = info.n_source; i > 0; i--) s->first[i] = s->first[i - 1];
    s->first[0] = 0;
    for (uint32_t i = 0; i < info.n_source; i++) {
        struct slice name = engram_table_source(s->old, i, NULL);
        if (map_put(&s->sources, name.p, name.n, i) < 0)
            return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    return 0;
}

static int keep_source(struct syncing *s, uint32_t source, struct slice name, uint64_t content,
                       struct err *e) {
    uint32_t id;
    struct engram_doc d;
    int rc = engram_builder_source(s->in.b, name, content, &id, e);
    for (uint32_t i = s->first[source]; i < s->first[source + 1] && !rc; i++)
        if (engram_table_doc(s->old, s->docs[i], &d))
            rc = engram_builder_doc(s->in.b, d.tokens, d.n_tok, id, d.time, d.weight, e);
    return rc;
}

static int sync_file(struct syncing *s, const char *path, struct slice name, struct err *e) {
    struct file_map map;
    uint32_t source;
    uint64_t content = 0;
    bool known = s->old && map_find(&s->sources, name.p, name.n, &source);
    if (known) {
        int rc = file_map(&map, path, e);
        if (rc) return rc;
        uint64_t n = map.size, now = hash_bytes(map.data ? (const void *)map.data : "", n, 0);
        file_unmap(&map);
        engram_table_source(s->old, source, &content);
        if (now == content) {
            s->out->n_kept++;
            s->in.n_bytes += n;
            if (s->in.progress) s->in.progress(s->in.ud, s->in.n_bytes);
            return keep_source(s, source, name, content, e);
        }
    }
    uint64_t skipped = s->in.n_skipped;
    int rc = engram_ingest_file(&s->in, path, name, 0, e);
    if (s->in.n_skipped == skipped) known ? s->out->n_changed++ : s->out->n_new++;
    return rc;
}

static int sync_files(struct syncing *s, char **files, size_t n, size_t n_prefix, struct err *e) {
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const char *name = files[i] + n_prefix;
        while (*name == '/') name++;
        rc = sync_file(s, files[i], (struct slice){name, strlen(name)}, e);
    }
    return rc;
}

int engram_sync_folder(const char *path, const char *dir, const struct tok *tok,
                       const struct engram_build_params *p, struct engram_sync *out,
                       struct err *e) {
    struct syncing s = {.in = {.tok = tok, .progress = out->progress, .ud = out->ud}, .out = out};
    struct engram_build_params own = *p;
    struct engram_info info = {0};
    char **files = NULL;
    size_t n = 0;
    *out = (struct engram_sync){.progress = out->progress, .ud = out->ud};
    map_init(&s.sources, (size_t)1 << 28);
    int rc = engram_files(dir, &files, &n, e);
    /* if the old table has another tokenizer or is damaged, everything is read again */
    if (!rc && engram_table_open(&s.old, path, p->tok_hash, p->n_vocab, NULL) == 0) {
        engram_table_info(s.old, &info);
        rc = index_old(&s, e);
        own.weights = info.weights;
        own.n_weight = info.n_weight;
        own.decayed_at = info.decayed_at;
    }
    if (!rc) rc = engram_builder_new(&s.in.b, path, &own, e);
    if (!rc && s.old) rc = engram_builder_reuse(s.in.b, s.old, e);
    if (!rc) rc = sync_files(&s, files, n, strlen(dir), e);
    if (!rc) engram_builder_count(s.in.b, &out->n_doc, &out->n_doc_sorted);
    out->n_removed = info.n_source > out->n_kept + out->n_changed
                         ? info.n_source - out->n_kept - out->n_changed
                         : 0;
    out->is_written = !s.old || out->n_new || out->n_changed || out->n_removed;
    if (rc || !out->is_written) engram_builder_abort(s.in.b);
    else rc = engram_builder_finish(s.in.b, e);
    engram_table_close(s.old);
    mem_free(s.docs);
    mem_free(s.first);
    map_fini(&s.sources);
    engram_files_free(files, n);
    return rc;
}
