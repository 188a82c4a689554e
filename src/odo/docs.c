/* docs.c: searching the index. docs_index.c fills it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "eval/embed.h"
#include "odo/docs_impl.h"
#include "odo/rank.h"
#include "odo/tool.h"
#include "odo/words.h"
#include "store/doc.h"

enum { POOL = 40, COUNT_MOST = 5000 };
#define MIN_COVERAGE 0.5 /* below it the passage shares little but common words with the question */

int docs_open(struct docs **out, struct store *s, struct embed *embed, struct err *e) {
    *out = mem_zalloc(sizeof **out);
    if (!*out) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    (*out)->store = s;
    (*out)->embed = embed;
    pthread_mutex_init(&(*out)->lock, NULL);
    return 0;
}

void docs_close(struct docs *d) {
    if (!d) return;
    pthread_mutex_destroy(&d->lock);
    mem_free(d);
}

bool docs_has_vectors(const struct docs *d) { return d->embed != NULL; }

void docs_hits_fini(struct docs_hits *h) {
    for (int32_t i = 0; i < h->n; ++i) {
        mem_free(h->v[i].path);
        mem_free(h->v[i].title);
        mem_free(h->v[i].heading);
        mem_free(h->v[i].text);
    }
    h->n = 0;
}

int docs_vector(struct docs *d, const char *text, size_t n, float *out, struct err *e) {
    int32_t n_tok;
    bool cut;
    pthread_mutex_lock(&d->lock);
    int rc = embed_text(d->embed, text, n, true, out, &n_tok, &cut, e);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

/* ---- two rankings ---- */

struct ranking {
    int64_t ids[POOL];
    double scores[POOL];
    size_t n;
    const float *query; /* view */
    int32_t n_vec;
};

static int add_match(void *ud, const struct store_chunk *c) {
    struct ranking *r = ud;
    if (r->n < POOL) r->ids[r->n++] = c->id;
    return 0;
}

static int add_vector(void *ud, const struct store_chunk *c) {
    struct ranking *r = ud;
    if (c->n_vec != r->n_vec) return 0; /* of another model */
    double s = 0;
    for (int32_t i = 0; i < c->n_vec; ++i) s += (double)c->vec[i] * (double)r->query[i];
    if (r->n == POOL && s <= r->scores[POOL - 1]) return 0;
    size_t at = r->n < POOL ? r->n++ : POOL - 1;
    for (; at && r->scores[at - 1] < s; --at) {
        r->scores[at] = r->scores[at - 1];
        r->ids[at] = r->ids[at - 1];
    }
    r->scores[at] = s;
    r->ids[at] = c->id;
    return 0;
}

/* "a" OR "b": words hold letters and digits alone, so nothing of them is an operator. */
static void expression(struct buf *b, const struct words *w) {
    for (size_t i = 0; i < w->n; ++i) buf_printf(b, "%s\"%s\"", i ? " OR " : "", w->v[i]);
}

static int by_vectors(struct docs *d, const char *question, const char *collection,
                      struct ranking *r, struct err *e) {
    int32_t n = embed_size(d->embed);
    float *query = mem_alloc_array((size_t)n, sizeof *query);
    if (!query) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = docs_vector(d, question, strlen(question), query, e);
    r->query = query;
    r->n_vec = n;
    if (!rc) rc = store_doc_vectors(d->store, collection, add_vector, r, e);
    mem_free(query);
    return rc;
}

/* ---- is the best passage about the question at all? ---- */

/* A word that no document has says little about which one is meant: it may be the question's own wording. */
static double rarity(struct docs *d, const char *word) {
    char quoted[WORDS_MAX_BYTES + 4];
    snprintf(quoted, sizeof quoted, "\"%s\"", word);
    int64_t n = store_doc_count(d->store, quoted, COUNT_MOST, NULL);
    double r = log(1 + (double)COUNT_MOST / (1 + (double)(n < 0 ? 0 : n)));
    return n > 0 ? r : 0.3 * r;
}

static double coverage(const struct words *w, const double *rare, const struct docs_hit *h) {
    struct buf all;
    buf_init(&all, (size_t)256 << 10);
    const char *parts[] = {h->title, h->heading, h->text};
    for (int i = 0; i < 3; ++i) words_fold(&all, parts[i], strlen(parts[i]));
    double total = 0, found = 0;
    bool any = false; /* numbers alone are no subject: every sum would find a page that has them */
    for (size_t i = 0; i < w->n; ++i) {
        total += rare[i];
        if (all.failed || !words_count(all.p, w->v[i])) continue;
        found += rare[i];
        any |= !words_is_number(w->v[i]);
    }
    buf_fini(&all);
    return any ? found / total : 0;
}

static int take(void *ud, const struct store_chunk *c) {
    struct docs_hits *out = ud;
    struct docs_hit *h = &out->v[out->n];
    *h = (struct docs_hit){.path = mem_strdup(c->path),
                           .title = mem_strdup(c->title),
                           .heading = mem_strdup(c->heading),
                           .text = mem_strdup(c->text),
                           .from = c->from,
                           .to = c->to,
                           .page = c->page,
                           .line = c->line};
    ++out->n; /* fini frees what there is */
    return h->path && h->title && h->heading && h->text ? 0 : CHIMERE_ENOMEM;
}

int docs_search(struct docs *d, const char *question, const char *collection, int32_t k,
                int64_t deadline_ns, struct docs_hits *out, struct err *e) {
    *out = (struct docs_hits){0};
    struct words w;
    size_t n_question = strnlen(question, DOCS_MAX_QUERY);
    words_of(&w, question, n_question);
    if (!w.n) return 0;
    struct ranking text = {0}, vectors = {0};
    struct buf b;
    buf_init(&b, 8192);
    expression(&b, &w);
    int rc = b.failed ? err_set(e, CHIMERE_ENOMEM, "out of memory")
                      : store_doc_match(d->store, b.p, collection, POOL, add_match, &text, e);
    buf_fini(&b);
    bool late = deadline_ns && clock_ns() > deadline_ns;
    if (!rc && d->embed && !late) {
        rc = by_vectors(d, question, collection, &vectors, e);
        out->by_vectors = !rc;
    }
    struct rank_item items[2 * POOL];
    size_t n = 0;
    rank_fuse(items, &n, 2 * POOL, text.ids, text.n, 1);
    rank_fuse(items, &n, 2 * POOL, vectors.ids, vectors.n, 1);
    rank_sort(items, n);
    if (k > DOCS_MAX_HITS) k = DOCS_MAX_HITS;
    for (size_t i = 0; i < n && out->n < k && !rc; ++i) {
        int32_t at = out->n;
        rc = store_doc_chunk(d->store, items[i].id, take, out, e);
        if (!rc && out->n > at) out->v[at].score = items[i].score;
    }
    double rare[WORDS_MAX];
    for (size_t i = 0; i < w.n && !rc; ++i) rare[i] = rarity(d, w.v[i]);
    for (int32_t i = 0; i < out->n && !rc; ++i)
        out->coverage = fmax(out->coverage, coverage(&w, rare, &out->v[i]));
    bool near = vectors.n && vectors.scores[0] > 0.6;
    if (rc || (out->coverage < MIN_COVERAGE && !near)) docs_hits_fini(out);
    return rc;
}

/* ---- the tool ---- */

static int run_tool(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                    struct err *e) {
    struct docs_hits h;
    int rc = docs_search(ud, json_string_value(json_object_get(args, "query")), env->collection, 5,
                         env->deadline_ns, &h, e);
    if (rc) return rc;
    if (!h.n) buf_puts(out, "nothing found");
    for (int32_t i = 0; i < h.n; ++i)
        buf_printf(out, "[%d] %s%s%s (%s:%d)\n%s\n\n", i + 1, h.v[i].title,
                   h.v[i].heading[0] ? ", " : "", h.v[i].heading, h.v[i].path, h.v[i].line,
                   h.v[i].text);
    docs_hits_fini(&h);
    return 0;
}

int docs_add_tool(struct docs *d, struct tool_set *tools, struct err *e) {
    struct tool t = {.name = "documents",
                     .flags = TOOL_TAINTS,
                     .deadline_ms = 5000,
                     .spec = tool_spec("documents", "Search the user's documents.",
                                       "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":"
                                       "\"string\",\"description\":\"What to look for\"}},"
                                       "\"required\":[\"query\"]}"),
                     .run = run_tool,
                     .ud = d};
    return tool_add(tools, &t, e);
}
