/* docs.c: search in the index. docs_index.c fills the index. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "backend/embed/embed.h"
#include "backend/embed/rerank.h"
#include "retrieval/docs_impl.h"
#include "retrieval/rank.h"
#include "backend/embed/remote_embed.h"
#include "tools/tool.h"
#include "retrieval/words.h"
#include "store/doc.h"
#include "store/doc_scope.h"

enum { POOL = 40, COUNT_MOST = 5000 };
#define MIN_COVERAGE                                                                               \
    0.35 /* below this coverage, a passage shares little but common words with the question */
#define TITLE_WEIGHT 0.5
/* the same limit for a passage that contains a rare name of the question */
#define NAME_COVERAGE 0.45
#define STRONG_COVERAGE 0.5 /* smallest coverage of a passage if no documents were requested */
/* A passage is about the question, whatever its words, if its cosine is this share of the way from the cosine of
 * unrelated sentences to 1. Published models differ in the cosine of unrelated sentences, from 0.05 (MiniLM:
 * answers to a question reach 0.45 to 0.62, other texts at most 0.23) to 0.6. */
#define NEAR_SHARE 0.33F

int docs_embed(struct docs *d, const char *text, float *out, struct err *e) {
    return docs_vector(d, "", text, out, e);
}

static int measure_unrelated(struct docs *d, struct err *e) {
    static const char *const texts[] = {"The ferry to the island leaves at half past nine.",
                                        "Sourdough needs flour, water, salt and a day of patience.",
                                        "The court rejected the appeal of the tenants.",
                                        "A prime number has exactly two divisors.",
                                        "Le chirurgien a recousu le tendon du genou.",
                                        "Her grandfather played the cello in a small orchestra."};
    enum { N = sizeof texts / sizeof *texts };
    size_t n = (size_t)docs_n_vec(d);
    float *x = mem_alloc_array(N * n, sizeof *x), sum = 0;
    if (!x) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = 0;
    for (size_t i = 0; i < N && !rc; ++i) rc = docs_embed(d, texts[i], x + i * n, e);
    for (size_t i = 0; i < N && !rc; ++i)
        for (size_t j = 0; j < i; ++j)
            for (size_t k = 0; k < n; ++k) sum += x[i * n + k] * x[j * n + k];
    d->unrelated = fmaxf(0, 2 * sum / (float)(N * (N - 1)));
    mem_free(x);
    return rc;
}

static int resolve_trusted(struct docs *d, struct err *e) {
    const struct docs_models *m = &d->models;
    char real[PATH_MAX];
    if (!m->n_trusted) return 0;
    if (!(d->trusted = mem_alloc_array(m->n_trusted, sizeof *d->trusted)))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < m->n_trusted; ++i) {
        if (!realpath(m->trusted[i], real))
            return err_set(e, CHIMERE_ENOENT, "%s: not found", m->trusted[i]);
        if (!(d->trusted[i] = mem_strdup(real))) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    return 0;
}

/* Returns true if the path is in a trusted folder. Documents without a folder have names that are not absolute
 * paths. */
static bool is_trusted(const struct docs *d, const char *path) {
    for (size_t i = 0; i < d->models.n_trusted; ++i) {
        size_t n = strlen(d->trusted[i]);
        if (!strncmp(path, d->trusted[i], n) && (path[n] == '/' || d->trusted[i][n - 1] == '/'))
            return true;
    }
    return false;
}

int docs_open(struct docs **out, struct store *s, const struct docs_models *models, struct err *e) {
    *out = mem_zalloc(sizeof **out);
    if (!*out) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    (*out)->store = s;
    if (models) (*out)->models = *models;
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_mutex_init(&(*out)->near_lock, NULL);
    int rc = resolve_trusted(*out, e);
    if (!rc && docs_has_vectors(*out)) rc = measure_unrelated(*out, e);
    if (rc) {
        docs_close(*out);
        *out = NULL;
    }
    return rc;
}

void docs_close(struct docs *d) {
    if (!d) return;
    for (int i = 0; i < DOCS_NEAR_KEPT; ++i) docs_near_fini(&d->near[i]);
    for (size_t i = 0; d->trusted && i < d->models.n_trusted; ++i) mem_free(d->trusted[i]);
    mem_free(d->trusted);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->near_lock);
    mem_free(d);
}

bool docs_is_empty(const struct docs *d) { return !d || store_doc_passages(d->store, NULL) <= 0; }

bool docs_has_vectors(const struct docs *d) { return d->models.embed || d->models.remote; }

int32_t docs_n_vec(const struct docs *d) {
    return d->models.embed    ? embed_size(d->models.embed)
           : d->models.remote ? remote_embed_size(d->models.remote)
                              : 0;
}

float docs_near_from(const struct docs *d) {
    return d->unrelated + NEAR_SHARE * (1 - d->unrelated);
}

int64_t docs_embedder(const struct docs *d) {
    return (int64_t)(d->models.embed    ? embed_hash(d->models.embed)
                     : d->models.remote ? remote_embed_hash(d->models.remote)
                                        : 0);
}

const char *docs_ranking(const struct docs_hits *h) {
    return h->by_vectors ? h->reranked ? "bm25+vectors+reranker" : "bm25+vectors"
           : h->reranked ? "bm25+reranker"
                         : "bm25 alone";
}

void docs_hits_fini(struct docs_hits *h) {
    for (int32_t i = 0; i < h->n; ++i) {
        mem_free(h->v[i].path);
        mem_free(h->v[i].title);
        mem_free(h->v[i].heading);
        mem_free(h->v[i].text);
    }
    h->n = 0;
}

int docs_vector(struct docs *d, const char *heading, const char *text, float *out, struct err *e) {
    int32_t n_tok;
    bool cut;
    struct buf b;
    buf_init(&b, (size_t)1 << 20);
    buf_printf(&b, "%s%s%s", heading, heading[0] ? "\n" : "", text);
    int rc = b.failed ? err_set(e, CHIMERE_ENOMEM, "out of memory") : 0;
    if (!rc && d->models.remote) {
        rc = remote_embed_text(d->models.remote, b.n ? b.p : "", b.n, out, e);
    } else if (!rc) {
        pthread_mutex_lock(&d->lock);
        rc = embed_text(d->models.embed, b.n ? b.p : "", b.n, true, out, &n_tok, &cut, e);
        pthread_mutex_unlock(&d->lock);
    }
    buf_fini(&b);
    return rc;
}

/* ---- two rankings ---- */

struct ranking {
    int64_t ids[POOL];
    float cosines[POOL]; /* cosines of the ranking by vectors */
    size_t n;
};

static int add_match(void *ud, const struct store_chunk *c) {
    struct ranking *r = ud;
    if (r->n < POOL) r->ids[r->n++] = c->id;
    return 0;
}

/* Writes "a" OR "b". Words contain only letters and digits, so a word cannot act as an operator. */
static void expression(struct buf *b, const struct words *w) {
    for (size_t i = 0; i < w->n; ++i) buf_printf(b, "%s\"%s\"", i ? " OR " : "", w->v[i]);
}

static int by_vectors(struct docs *d, const char *question, const char *collection,
                      struct ranking *r, struct err *e) {
    float *query = mem_alloc_array((size_t)docs_n_vec(d), sizeof *query);
    if (!query) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = docs_embed(d, question, query, e);
    if (!rc) rc = docs_nearest(d, collection, query, POOL, r->ids, r->cosines, e);
    mem_free(query);
    if (rc > 0) r->n = (size_t)rc;
    return rc < 0 ? rc : 0;
}

/* Adds the ranking by vectors if there is one. Without it only the words rank, and out->why gives the reason. */
static void add_vectors(struct docs *d, const char *question, const char *collection,
                        int64_t deadline_ns, struct ranking *r, struct docs_hits *out) {
    struct err e = {0};
    if (!docs_has_vectors(d)) return;
    if (deadline_ns && clock_ns() > deadline_ns)
        snprintf(out->why, sizeof out->why, "vectors: the deadline came first");
    else if (by_vectors(d, question, collection, r, &e))
        snprintf(out->why, sizeof out->why, "vectors: %.140s", e.text);
    else if (!r->n)
        snprintf(out->why, sizeof out->why, "vectors: no file was indexed with this model");
    else out->by_vectors = true;
}

/* ---- is the best passage about the question at all? ---- */

/* Number of passages added to the size of the index, so that a word of a small index still counts as rare. */
#define UNSEEN 1000.0
#define BY_CHANCE                                                                                  \
    0.2 /* if fewer passages are expected to share the words by chance, the match is strong */
#define TITLE_CHANCE                                                                               \
    20.0 /* the same for words of the title, which name the subject: fewer passages than this */
/* share of passages with a word; a word below this names a subject alone */
#define RARE_SHARE 0.005
#define NAME_SHARE 0.006 /* the same limit for a name, if other words match too */

struct rarity {
    double nats;  /* weight of the word in the coverage */
    double share; /* share of the passages that contain the word */
    bool unknown; /* no word of general text: it names what only the documents know */
};

static struct rarity rarity(struct docs *d, const char *word, double n_passage) {
    char quoted[WORDS_MAX_BYTES + 4];
    snprintf(quoted, sizeof quoted, "\"%s\"", word);
    int64_t n = store_doc_count(d->store, quoted, COUNT_MOST, NULL);
    double found = n < 0 ? 0 : (double)n;
    double general = words_general_share(word), share = (found + 1) / (n_passage + UNSEEN);
    /* a word counts as at least as common as in general text: manuals contain "sister" once, without being about
     * anybody's sister */
    found = fmax(found, general * n_passage);
    share = fmax(share, general);
    return (struct rarity){.nats = log(1 + (double)COUNT_MOST / (1 + found)),
                           .share = fmin(1, share),
                           .unknown = general <= 0};
}

static void fold_title(struct buf *out, const struct docs_hit *h) {
    const char *name = strrchr(h->path, '/');
    const char *parts[] = {name ? name : h->path, h->title, h->heading};
    buf_init(out, (size_t)64 << 10);
    for (int i = 0; i < 3; ++i) words_fold(out, parts[i], strlen(parts[i]));
}

/* Computes what a passage has in common with the question. */
static void compare(const struct words *w, const struct rarity *rare, double n_passage,
                    struct docs_hit *h) {
    struct buf title, text;
    fold_title(&title, h);
    buf_init(&text, (size_t)256 << 10);
    words_fold(&text, h->text, strlen(h->text));
    double total = 0, found = 0, in_titles = 0, rarest = 1, by_chance = log(n_passage + UNSEEN);
    double names_total = 0, names_found = 0, title_chance = by_chance;
    int n_word = 0;
    bool rare_name = false, rare_in_title = false, is_subject = false;
    /* numbers alone are no subject: every calculation would find a page that contains them */
    bool any = false;
    int n_title = 0;
    h->named = !words_n_name(w);
    for (size_t i = 0; i < w->n && !title.failed && !text.failed; ++i) {
        bool in_title = words_count(title.p, w->v[i]) > 0;
        total += rare[i].nats;
        names_total += w->is_name[i] ? rare[i].nats : 0;
        if (!in_title && !words_count(text.p, w->v[i])) continue;
        found += rare[i].nats;
        h->named |= w->is_name[i];
        if (words_is_number(w->v[i])) continue;
        any = true;
        rare_name |= w->is_name[i] && rare[i].share < NAME_SHARE;
        n_title += in_title;
        ++n_word;
        names_found += w->is_name[i] ? rare[i].nats : 0;
        bool titled = in_title && w->is_name[i] && rare[i].share < NAME_SHARE;
        rare_in_title |= titled;
        is_subject |= titled && rare[i].unknown;
        title_chance += in_title ? log(rare[i].share) : 0;
        in_titles += in_title ? rare[i].nats : 0;
        by_chance += log(rare[i].share);
        rarest = fmin(rarest, rare[i].share);
    }
    h->coverage = any ? found / total : 0;
    h->title_coverage = any ? in_titles / total : 0;
    bool much = by_chance < log(BY_CHANCE) || (n_title >= 2 && title_chance < log(TITLE_CHANCE)) ||
                (h->coverage > 0.99 && rarest < RARE_SHARE);
    /* If only a minority of the question's names matches, or only a name outside titles, the passage is about
     * another person, place or thing. */
    bool most_names = names_found >= names_total / 2;
    rare_name &= most_names && (n_word >= 2 || rare_in_title);
    is_subject &= most_names;
    /* Other words of a question with a name often do not occur in its answer: "Which person invented the Zaper?" In
     * chatty questions they are the majority: "We need to lift a Livomur onto a truck. What weight should we plan
     * for?" A title that is a name unknown elsewhere is their subject, whatever else they say. */
    h->strong = h->named && (is_subject || (rare_name && h->coverage >= NAME_COVERAGE) ||
                             (much && h->coverage >= STRONG_COVERAGE));
    buf_fini(&title);
    buf_fini(&text);
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
    ++out->n; /* counted also on failure, so that docs_hits_fini frees the texts */
    return h->path && h->title && h->heading && h->text ? 0 : CHIMERE_ENOMEM;
}

/* ---- the cross-encoder ---- */

bool docs_has_reranker(const struct docs *d) { return d->models.rerank != NULL; }

int docs_score(struct docs *d, const char *question, const char *text, float *score,
               struct err *e) {
    pthread_mutex_lock(&d->lock);
    int rc = rerank_score(d->models.rerank, question, strnlen(question, DOCS_MAX_QUERY), text,
                          strlen(text), score, e);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

static int by_score(const void *a, const void *b) {
    const struct docs_hit *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : 0;
}

/* Orders the hits by the scores of a cross-encoder, which reads question and passage together. If not all hits are
 * scored before the deadline, the fused order stays, because the two kinds of scores cannot be compared. */
static void rerank(struct docs *d, const char *question, int64_t deadline_ns,
                   _Atomic bool *cancelled, struct docs_hits *out) {
    double scores[DOCS_MAX_HITS];
    struct err e = {0};
    int rc = 0;
    if (!d->models.rerank || !out->n) return;
    for (int32_t i = 0; i < out->n && !rc; ++i) {
        const struct docs_hit *h = &out->v[i];
        struct buf b;
        float score = 0;
        if (cancelled && *cancelled) rc = err_set(&e, CHIMERE_ECANCELLED, "cancelled");
        else if (deadline_ns && clock_ns() > deadline_ns)
            rc = err_set(&e, CHIMERE_ETIMEOUT, "the deadline came first");
        if (rc) break;
        buf_init(&b, (size_t)1 << 20);
        buf_printf(&b, "%s%s%s", h->heading, h->heading[0] ? "\n" : "", h->text);
        rc = b.failed ? err_set(&e, CHIMERE_ENOMEM, "out of memory")
                      : docs_score(d, question, b.n ? b.p : "", &score, &e);
        buf_fini(&b);
        scores[i] = (double)score;
    }
    if (rc) {
        snprintf(out->why, sizeof out->why, "reranker: %.140s", e.text);
        return;
    }
    for (int32_t i = 0; i < out->n; ++i) out->v[i].score = scores[i];
    qsort(out->v, (size_t)out->n, sizeof *out->v, by_score);
    out->reranked = true;
}

/* Keeps only the first k hits. */
static void keep(struct docs_hits *out, int32_t k) {
    for (; out->n > k; --out->n) {
        struct docs_hit *h = &out->v[out->n - 1];
        mem_free(h->path);
        mem_free(h->title);
        mem_free(h->heading);
        mem_free(h->text);
    }
}

/* Collects the best passages of both rankings in fused order. */
static int candidates(struct docs *d, const struct ranking *text, const struct ranking *vectors,
                      struct docs_hits *out, struct err *e) {
    struct rank_item items[2 * POOL];
    size_t n = 0;
    int rc = 0;
    rank_fuse(items, &n, 2 * POOL, text->ids, text->n, 1);
    rank_fuse(items, &n, 2 * POOL, vectors->ids, vectors->n, 1);
    rank_sort(items, n);
    for (size_t i = 0; i < n && out->n < DOCS_MAX_HITS && !rc; ++i) {
        int32_t at = out->n;
        rc = store_doc_chunk(d->store, items[i].id, take, out, e);
        if (!rc && out->n > at) out->v[at].score = items[i].score;
    }
    return rc;
}

/* Adds a third ranking. BM25 sums how often words occur in a passage; this ranking counts how many of the
 * question's words the passage and its title contain. */
static void rank_by_words(struct docs_hits *out) {
    double key[DOCS_MAX_HITS];
    for (int32_t i = 0; i < out->n; ++i)
        key[i] = out->v[i].coverage + TITLE_WEIGHT * out->v[i].title_coverage;
    for (int32_t i = 0; i < out->n; ++i) {
        int rank = 1;
        for (int32_t k = 0; k < out->n; ++k) rank += key[k] > key[i] || (key[k] == key[i] && k < i);
        out->v[i].score += 1.0 / (RANK_RRF_K + rank);
    }
    qsort(out->v, (size_t)out->n, sizeof *out->v, by_score);
}

/* Drops passages with equal text, because manuals contain the same page under several names. Best first. */
static void drop_copies(struct docs_hits *h) {
    int32_t n = 0;
    for (int32_t i = 0; i < h->n; ++i) {
        struct docs_hit *d = &h->v[i];
        int32_t k = 0;
        while (k < n && strcmp(h->v[k].text, d->text) != 0) ++k;
        if (k == n) {
            h->v[n++] = *d;
            continue;
        }
        mem_free(d->path);
        mem_free(d->title);
        mem_free(d->heading);
        mem_free(d->text);
    }
    h->n = n;
}

/* Computes what the k best passages have in common with the question. Drops all hits if that is too little. */
static void judge(struct docs *d, const struct words *w, const struct ranking *vectors, int32_t k,
                  struct docs_hits *out) {
    struct rarity rare[WORDS_MAX];
    bool named = false;
    double n_passage = fmax(0, (double)store_doc_passages(d->store, NULL));
    for (size_t i = 0; i < w->n; ++i) rare[i] = rarity(d, w->v[i], n_passage);
    for (int32_t i = 0; i < out->n; ++i) compare(w, rare, n_passage, &out->v[i]);
    for (int32_t i = 0; i < out->n; ++i) out->v[i].trusted = is_trusted(d, out->v[i].path);
    rank_by_words(out);
    drop_copies(out);
    for (int32_t i = 0; i < out->n && i < k; ++i) {
        const struct docs_hit *h = &out->v[i];
        named |= h->named;
        out->coverage = fmax(out->coverage, h->coverage);
        out->strong |= h->strong;
    }
    bool near = named && vectors->n && vectors->cosines[0] > docs_near_from(d);
    out->strong |= near;
    if (out->coverage < MIN_COVERAGE && !out->strong) docs_hits_fini(out);
}

int docs_search(struct docs *d, const char *question, const char *scope, int32_t k,
                int64_t deadline_ns, _Atomic bool *cancelled, struct docs_hits *out,
                struct err *e) {
    *out = (struct docs_hits){0};
    struct words w;
    size_t n_question = strnlen(question, DOCS_MAX_QUERY);
    words_of(&w, question, n_question);
    if (!w.n) return 0;
    struct ranking text = {0}, vectors = {0};
    struct buf b;
    buf_init(&b, 8192);
    expression(&b, &w);
    scope = store_doc_narrow(d->store, scope);
    int rc = b.failed ? err_set(e, CHIMERE_ENOMEM, "out of memory")
                      : store_doc_match(d->store, b.p, scope, POOL, add_match, &text, e);
    buf_fini(&b);
    if (!rc && cancelled && *cancelled) rc = err_set(e, CHIMERE_ECANCELLED, "cancelled");
    if (!rc) add_vectors(d, question, scope, deadline_ns, &vectors, out);
    if (!rc) rc = candidates(d, &text, &vectors, out, e);
    if (k > DOCS_MAX_HITS) k = DOCS_MAX_HITS;
    if (!rc) judge(d, &w, &vectors, k, out);
    else docs_hits_fini(out);
    keep(out, 3 * k);
    if (!rc) rerank(d, question, deadline_ns, cancelled, out);
    keep(out, k);
    return rc;
}

/* ---- the tool ---- */

static int run_tool(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                    struct err *e) {
    struct docs_hits h;
    int rc = docs_search(ud, json_string_value(json_object_get(args, "query")),
                         env->documents ? env->documents : STORE_DOC_SHARED, 5, env->deadline_ns,
                         env->cancelled, &h, e);
    if (rc) return rc;
    if (!h.n) buf_puts(out, "nothing found");
    for (int32_t i = 0; i < h.n; ++i) env->tainted |= !h.v[i].trusted;
    for (int32_t i = 0; i < h.n; ++i)
        buf_printf(out, "[%d] %s%s%s (%s:%d)\n%s\n\n", i + 1, h.v[i].title,
                   h.v[i].heading[0] ? ", " : "", h.v[i].heading, h.v[i].path, h.v[i].line,
                   h.v[i].text);
    docs_hits_fini(&h);
    return 0;
}

int docs_add_tool(struct docs *d, struct tool_set *tools, struct err *e) {
    struct tool t = {.name = "documents",
                     .deadline_ms = 5000,
                     .spec = tool_spec("documents", "Search the user's documents.",
                                       "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":"
                                       "\"string\",\"description\":\"What to look for\"}},"
                                       "\"required\":[\"query\"]}"),
                     .run = run_tool,
                     .ud = d};
    return tool_add(tools, &t, e);
}
