#include "engram/revise.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Returns the weight of a document of that age, at least one sixteenth; 0: the document is too old and is dropped. */
static uint32_t aged_weight(const struct engram_revision *r, int64_t time) {
    double age = (double)(r->now - time);
    if (age > r->drop) return 0;
    if (age <= 0) return ENGRAM_UNIT;
    double w = round(ENGRAM_UNIT * exp2(-age / r->half_life));
    return w < 1 ? 1 : (uint32_t)w;
}

static bool is_forgotten(const struct engram_revision *r, struct slice name) {
    size_t n = r->forget ? strlen(r->forget) : 0;
    if (!r->forget || name.n < n || memcmp(name.p, r->forget, n) != 0) return false;
    return name.n == n || (r->forget_below && name.p[n] == '/');
}

static int add_table(struct engram_builder *b, const struct engram_table *t,
                     const struct engram_revision *r, struct engram_revised *out, struct err *e) {
    struct engram_doc d;
    for (uint32_t i = 0; engram_table_doc(t, i, &d); i++) {
        uint64_t content;
        uint32_t id, weight = r->decay ? aged_weight(r, d.time) : d.weight;
        struct slice name = engram_table_source(t, d.source, &content);
        if (!weight || is_forgotten(r, name) || (r->keeps && !r->keeps(r->ud, &d))) {
            out->n_dropped++;
            continue;
        }
        int rc = engram_builder_source(b, name, content, &id, e);
        if (!rc) rc = engram_builder_doc(b, d.tokens, d.n_tok, id, d.time, weight, e);
        if (rc) return rc;
        out->n_doc++;
    }
    return 0;
}

static int open_all(struct engram_table **t, const char *const *paths, size_t n, struct err *e) {
    struct engram_info first, info;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = engram_table_open(&t[i], paths[i], 0, 0, e);
        if (rc) break;
        engram_table_info(t[i], &info);
        if (i == 0) first = info;
        if (info.tok_hash != first.tok_hash || info.n_vocab != first.n_vocab)
            rc = err_set(e, CHIMERE_EMISMATCH, "%s and %s were built for different tokenizers",
                         paths[0], paths[i]);
    }
    return rc;
}

int engram_revise(const char *out, const char *const *tables, size_t n,
                  const struct engram_revision *r, struct engram_revised *result, struct err *e) {
    *result = (struct engram_revised){0};
    if (!n) return err_set(e, CHIMERE_EINVAL, "expected at least one table");
    struct engram_table **t = mem_alloc_array(n, sizeof *t);
    if (!t) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct engram_builder *b = NULL;
    struct engram_info info = {0};
    int rc = open_all(t, tables, n, e);
    struct engram_build_params p = {.memory_bytes = r->memory_bytes, .refuse_empty = r->strict};
    for (size_t i = 0; i < n && !rc; i++) {
        engram_table_info(t[i], &info);
        p.tok_hash = info.tok_hash;
        p.n_vocab = info.n_vocab;
        if (info.n_weight) break;
    }
    p.weights = info.weights;
    p.n_weight = info.n_weight;
    p.decayed_at = r->decay ? r->now : info.decayed_at;
    if (!rc) rc = engram_builder_new(&b, out, &p, e);
    for (size_t i = 0; i < n && !rc; i++) rc = engram_builder_reuse(b, t[i], e);
    for (size_t i = 0; i < n && !rc; i++) rc = add_table(b, t[i], r, result, e);
    if (!rc && r->strict && r->forget && !result->n_dropped) {
        rc = err_set(e, CHIMERE_ENOENT, "%s: there is no source '%.200s'", tables[0], r->forget);
        err_hint(e, "chimere engram stats lists the sources of a table");
    }
    if (rc) engram_builder_abort(b);
    else rc = engram_builder_finish(b, e);
    for (size_t i = 0; i < n; i++) engram_table_close(t[i]);
    mem_free(t);
    return rc;
}
