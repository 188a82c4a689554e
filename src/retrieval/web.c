/* web.c: the stages of one search. */
#include "retrieval/web.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "retrieval/chunk.h"
#include "retrieval/extract.h"
#include "retrieval/rank.h"
#include "retrieval/robots.h"
#include "tools/tool.h"
#include "retrieval/web_impl.h"
#include "retrieval/words.h"
#include "text/chat/chat.h"

enum { MAX_SEARCH_BYTES = 1 << 20, MAX_PIECES = 400, PIECES_A_PAGE = 60, MAX_PAGES = 16 };
#define MIN_COVERAGE 0.35
#define AGENT "chimere"

enum { MAX_KEY_BYTES = 400 };
static const char brave_default[] = "https://api.search.brave.com/res/v1/web/search";

/* Returns true if the key contains only visible characters, as a header must. The key is never shown in messages. */
static bool is_key(const char *key) {
    size_t n = strlen(key);
    for (size_t i = 0; i < n; ++i)
        if (key[i] <= ' ' || key[i] > '~') return false;
    return n && n <= MAX_KEY_BYTES;
}

int web_open(struct web **out, const struct web_params *p, struct err *e) {
    *out = NULL;
    if (!p->searxng && !p->brave_key)
        return err_set(e, CHIMERE_EINVAL, "web: expected a SearXNG address or a Brave key");
    char origin[WEB_MAX_URL];
    const char *path;
    if (p->searxng && !web_split(p->searxng, origin, sizeof origin, &path))
        return err_set(e, CHIMERE_EINVAL,
                       "web: expected an http address of SearXNG, got \"%.100s\"", p->searxng);
    if (p->brave_key && !is_key(p->brave_key))
        return err_set(e, CHIMERE_EINVAL,
                       "web: Brave's key: expected one line of 1 to %d visible letters",
                       MAX_KEY_BYTES);
    struct web *w = mem_zalloc(sizeof *w);
    if (!w) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&w->lock, NULL);
    w->p = *p;
    const char *brave = p->brave_url ? p->brave_url : brave_default;
    w->p.searxng = p->searxng ? mem_strdup(p->searxng) : NULL;
    w->p.brave_key = p->brave_key ? mem_strdup(p->brave_key) : NULL;
    w->p.brave_url = mem_strdup(brave);
    if (!w->p.n_page) w->p.n_page = 4;
    if (w->p.n_page > MAX_PAGES) w->p.n_page = MAX_PAGES;
    if (!w->p.search_s) w->p.search_s = 3600;
    if (!w->p.page_s) w->p.page_s = 86400;
    if (!w->p.brave_url || (p->searxng && !w->p.searxng) || (p->brave_key && !w->p.brave_key)) {
        web_close(w);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    *out = w;
    return 0;
}

void web_close(struct web *w) {
    if (!w) return;
    for (int i = 0; i < WEB_N_CACHE; ++i) {
        mem_free(w->cache[i].key);
        mem_free(w->cache[i].body);
    }
    if (w->p.brave_key) memset((char *)w->p.brave_key, 0, strlen(w->p.brave_key));
    mem_free((char *)w->p.searxng);
    mem_free((char *)w->p.brave_key);
    mem_free((char *)w->p.brave_url);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

/* ---- search ---- */

struct result {
    char *url, *title, *snippet; /* owned */
};

struct search {
    struct web *w;
    const struct web_question *q;
    struct result results[WEB_MAX_RESULTS];
    int32_t n_result;
    struct rank_item order[WEB_MAX_RESULTS];
    size_t n_order;
    int n_failed, n_refused, n_cut;
    json_t *ms, *failures;
};

static int64_t add_result(struct search *s, const json_t *o) {
    const char *url = json_string_value(json_object_get(o, "url")),
               *title = json_string_value(json_object_get(o, "title")),
               *text = json_string_value(json_object_get(o, "content")), *path;
    char origin[WEB_MAX_URL];
    if (!text) text = json_string_value(json_object_get(o, "description"));
    if (!url || strlen(url) >= WEB_MAX_URL || !web_split(url, origin, sizeof origin, &path))
        return -1;
    for (int32_t i = 0; i < s->n_result; ++i)
        if (!strcmp(s->results[i].url, url)) return i;
    if (s->n_result == WEB_MAX_RESULTS) return -1;
    struct result *r = &s->results[s->n_result];
    *r = (struct result){mem_strdup(url), mem_strdup(title ? title : url),
                         mem_strdup(text ? text : "")};
    if (r->url && r->title && r->snippet) return s->n_result++;
    mem_free(r->url), mem_free(r->title), mem_free(r->snippet);
    return -1;
}

/* Adds the result list of one engine for one query to the fused ranking. */
static int add_list(struct search *s, const struct web_get *g) {
    struct err e = {0};
    json_t *all = chat_json_object(g->body.n ? g->body.p : "", g->body.n, "results", &e);
    json_t *list = json_object_get(all, "results"), *o;
    if (!list) list = json_object_get(json_object_get(all, "web"), "results");
    int64_t ids[32];
    size_t i, n = 0;
    json_array_foreach(list, i, o) {
        int64_t id = n < 32 ? add_result(s, o) : -1;
        if (id >= 0) ids[n++] = id;
    }
    rank_fuse(s->order, &s->n_order, WEB_MAX_RESULTS, ids, n, 1);
    bool good = json_is_array(list);
    json_decref(all);
    return good ? 0 : CHIMERE_EFORMAT;
}

static void query_get(struct search *s, struct web_get *g, const char *query, bool brave,
                      char *secret, size_t secret_size) {
    struct buf b;
    buf_init(&b, WEB_MAX_URL);
    buf_puts(&b, brave ? s->w->p.brave_url : s->w->p.searxng);
    if (!brave) {
        while (b.n && b.p[b.n - 1] == '/') buf_cut(&b, b.n - 1);
        if (!str_ends(b.p, "/search")) buf_puts(&b, "/search");
    }
    buf_puts(&b, brave ? "?count=10&q=" : "?format=json&q=");
    web_escape(&b, query);
    web_get_init(g, "search", b.failed ? "" : b.p, MAX_SEARCH_BYTES);
    buf_fini(&b);
    g->keep_s = s->w->p.search_s;
    if (brave) {
        snprintf(secret, secret_size, "X-Subscription-Token: %s", s->w->p.brave_key);
        g->headers[0] = secret;
    }
}

static int search_all(struct search *s, struct err *e) {
    struct web_get *g = mem_alloc_array(2 * WEB_MAX_QUERIES, sizeof *g);
    if (!g) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    char secret[512];
    int32_t n = 0, n_good = 0, n_query = s->q->n_more + 1;
    if (n_query > WEB_MAX_QUERIES) n_query = WEB_MAX_QUERIES;
    for (int32_t i = 0; i < n_query; ++i) {
        char query[300]; /* the beginning of a long message says what it is about */
        size_t len = strnlen(i ? s->q->more[i - 1] : s->q->text, sizeof query - 1);
        memcpy(query, i ? s->q->more[i - 1] : s->q->text, len);
        while (len && ((unsigned char)query[len - 1] & 0x80) && !utf8_is_valid(query, len)) --len;
        query[len] = 0;
        if (s->w->p.searxng) query_get(s, &g[n++], query, false, secret, sizeof secret);
        if (s->w->p.brave_key) query_get(s, &g[n++], query, true, secret, sizeof secret);
    }
    web_get_all(s->w, g, n, s->q);
    for (int32_t i = 0; i < n; ++i) {
        if (!g[i].rc && !add_list(s, &g[i])) ++n_good;
        else
            json_array_append_new(
                s->failures,
                json_sprintf("search: %s", g[i].why[0] ? g[i].why : "no results in the answer"));
        buf_fini(&g[i].body);
    }
    mem_free(g);
    memset(secret, 0, sizeof secret);
    rank_sort(s->order, s->n_order);
    if (n_good) return 0;
    return err_set(e, CHIMERE_EIO, "web: the search engine does not answer: %s",
                   json_string_value(json_array_get(s->failures, 0)));
}

/* ---- pages ---- */

/* Fetches robots.txt of each page's host concurrently, and marks the pages that may be read. */
static void check_robots(struct search *s, const int64_t *ids, bool *may, int32_t n) {
    struct web_get *g = mem_alloc_array((size_t)n, sizeof *g);
    char origin[WEB_MAX_URL], url[WEB_MAX_URL + 16];
    const char *path;
    for (int32_t i = 0; i < n && g; ++i) {
        web_split(s->results[ids[i]].url, origin, sizeof origin, &path);
        snprintf(url, sizeof url, "%s/robots.txt", origin);
        web_get_init(&g[i], "robots", url, ROBOTS_MAX_BYTES);
        g[i].public_only = !s->w->p.private_pages;
        g[i].keep_s = s->w->p.page_s;
    }
    if (g) web_get_all(s->w, g, n, s->q);
    for (int32_t i = 0; i < n && g; ++i) {
        web_split(s->results[ids[i]].url, origin, sizeof origin, &path);
        /* no robots.txt: everything is allowed; if the server fails or refuses: nothing is */
        if (g[i].rc == CHIMERE_ENOENT) may[i] = true;
        else
            may[i] =
                !g[i].rc && robots_allow(g[i].body.n ? g[i].body.p : "", g[i].body.n, AGENT, path);
        if (!may[i]) ++s->n_refused;
        buf_fini(&g[i].body);
    }
    mem_free(g);
}

struct piece {
    int32_t result, from, to;
    char *text; /* owned */
    double score, coverage;
};

static int32_t cut_page(struct search *s, const struct web_get *g, int32_t result, struct piece *p,
                        int32_t n) {
    enum extract_kind kind = extract_kind_of_type(g->type);
    struct extract x;
    struct err e = {0};
    if (kind == EXTRACT_NONE) kind = extract_kind_of(s->results[result].url);
    struct extract_how how = {s->q->deadline_ns, s->q->cancelled};
    int rc = extract_text(&x, kind, g->body.n ? g->body.p : "", g->body.n, &how, &e);
    if (rc) json_array_append_new(s->failures, json_sprintf("page: %s", e.text));
    struct chunk_cursor c;
    struct chunk k;
    chunk_begin(&c, x.text.n ? x.text.p : "", x.text.n);
    for (int32_t m = 0; !rc && n < MAX_PIECES && m < PIECES_A_PAGE && chunk_next(&c, &k); ++m) {
        p[n] = (struct piece){.result = result, .from = k.from, .to = k.to};
        if ((p[n].text = mem_strndup(x.text.p + k.from, (size_t)(k.to - k.from)))) ++n;
    }
    extract_fini(&x);
    return n;
}

static int32_t read_pages(struct search *s, struct piece *pieces) {
    int64_t ids[MAX_PAGES] = {0};
    bool may[MAX_PAGES] = {false};
    int32_t n = 0, n_piece = 0, n_get = 0, of[MAX_PAGES];
    for (size_t i = 0; i < s->n_order && n < s->w->p.n_page; ++i) ids[n++] = s->order[i].id;
    struct web_get *g = mem_alloc_array((size_t)n + 1, sizeof *g);
    check_robots(s, ids, may, n);
    for (int32_t i = 0; i < n && g; ++i) {
        if (!may[i]) continue;
        web_get_init(&g[n_get], "page", s->results[ids[i]].url, WEB_MAX_PAGE_BYTES);
        g[n_get].public_only = !s->w->p.private_pages;
        g[n_get].keep_s = s->w->p.page_s;
        of[n_get++] = (int32_t)ids[i];
    }
    /* shorter deadline, so that a slow page leaves time to parse the others */
    struct web_question until = *s->q;
    if (until.deadline_ns) until.deadline_ns -= (until.deadline_ns - clock_ns()) / 4;
    if (g) web_get_all(s->w, g, n_get, &until);
    for (int32_t i = 0; i < n_get; ++i) {
        s->n_cut += g[i].cut;
        if (g[i].rc) {
            ++s->n_failed;
            json_array_append_new(s->failures, json_sprintf("page: %s", g[i].why));
        } else {
            n_piece = cut_page(s, &g[i], of[i], pieces, n_piece);
        }
        buf_fini(&g[i].body);
    }
    mem_free(g);
    return n_piece;
}

/* Used if no page could be read: takes the snippet that the engine returned for each result. */
static int32_t use_snippets(struct search *s, struct piece *p) {
    int32_t n = 0;
    for (size_t i = 0; i < s->n_order && n < 10; ++i) {
        const struct result *r = &s->results[s->order[i].id];
        p[n] = (struct piece){.result = (int32_t)s->order[i].id, .to = (int32_t)strlen(r->snippet)};
        if (*r->snippet && (p[n].text = mem_strdup(r->snippet))) ++n;
    }
    return n;
}

/* ---- rank and filter ---- */

static int by_score(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->result != y->result ? x->result - y->result : x->from - y->from;
}

/* Ranks the passages by BM25 and computes how much of the weight of the question's words each contains. */
static void rank_pieces(const struct search *s, struct piece *p, int32_t n) {
    const struct web_question *q = s->q;
    /* per page: a page may name its subject only once, in another passage */
    bool named[WEB_MAX_RESULTS] = {false};
    struct words w;
    words_of(&w, q->text, strlen(q->text));
    struct buf *folded = mem_alloc_array((size_t)n + 1, sizeof *folded);
    if (!folded) return;
    double mean = 1, idf[WORDS_MAX], total = 0;
    for (int32_t i = 0; i < n; ++i) {
        buf_init(&folded[i], (size_t)64 << 10);
        words_fold(&folded[i], p[i].text, strlen(p[i].text));
        named[p[i].result] |= words_has_name(&w, folded[i].n ? folded[i].p : "");
        mean += (double)folded[i].n / (n ? n : 1);
    }
    for (size_t k = 0; k < w.n; ++k) {
        int32_t df = 0;
        for (int32_t i = 0; i < n; ++i)
            df += words_count(folded[i].n ? folded[i].p : "", w.v[k]) > 0;
        idf[k] = log(1 + (n - df + 0.5) / (df + 0.5));
        /* no passage contains the word; it may be only the question's wording */
        if (!df) idf[k] *= 0.3;
        total += idf[k];
    }
    for (int32_t i = 0; i < n; ++i) {
        double found = 0;
        for (size_t k = 0; k < w.n; ++k) {
            double tf = words_count(folded[i].n ? folded[i].p : "", w.v[k]);
            if (tf > 0) found += idf[k];
            p[i].score +=
                idf[k] * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * (double)folded[i].n / mean));
        }
        p[i].coverage = total > 0 && named[p[i].result] ? found / total : 0;
        buf_fini(&folded[i]);
    }
    mem_free(folded);
}

/* Keeps the best passages that are about the question; at most half may come from one page. */
static void keep(struct search *s, struct piece *p, int32_t n, struct web_hits *out) {
    int32_t k = s->q->k < WEB_MAX_HITS ? s->q->k : WEB_MAX_HITS, per_page = k > 1 ? (k + 1) / 2 : 1;
    qsort(p, (size_t)n, sizeof *p, by_score);
    for (int32_t i = 0; i < n && out->n < k; ++i) {
        int32_t same = 0;
        if (p[i].coverage < MIN_COVERAGE) continue;
        for (int32_t j = 0; j < out->n; ++j)
            same += !strcmp(out->v[j].url, s->results[p[i].result].url);
        if (same >= per_page) continue;
        struct web_hit *h = &out->v[out->n];
        *h = (struct web_hit){mem_strdup(s->results[p[i].result].url),
                              mem_strdup(s->results[p[i].result].title),
                              mem_strdup(p[i].text),
                              p[i].from,
                              p[i].to,
                              p[i].score};
        ++out->n;
        if (!h->url || !h->title || !h->text) {
            mem_free(h->url), mem_free(h->title), mem_free(h->text);
            --out->n;
        }
    }
}

static int64_t lap(struct search *s, const char *stage, int64_t from) {
    int64_t now = clock_ns();
    json_object_set_new(s->ms, stage, json_real((double)(now - from) * 1e-6));
    return now;
}

int web_search(struct web *w, const struct web_question *q, struct web_hits *out, struct err *e) {
    *out = (struct web_hits){0};
    struct search *s = mem_zalloc(sizeof *s);
    struct piece *pieces = mem_alloc_array(MAX_PIECES, sizeof *pieces);
    int32_t n = 0;
    bool snippets = false;
    int rc = s && pieces ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) {
        s->w = w;
        s->q = q;
        s->ms = json_object();
        s->failures = json_array();
        int64_t t = clock_ns();
        rc = search_all(s, e);
        t = lap(s, "search", t);
        if (!rc) n = read_pages(s, pieces);
        if (!rc && !n) {
            snippets = true;
            n = use_snippets(s, pieces);
        }
        t = lap(s, "pages", t);
        if (!rc) rank_pieces(s, pieces, n);
        if (!rc) keep(s, pieces, n, out);
        lap(s, "rank", t);
        out->report = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:O, s:O}", "results",
                                (int)s->n_order, "passages", (int)n, "kept", (int)out->n, "failed",
                                s->n_failed, "refused_by_robots", s->n_refused, "cut", s->n_cut,
                                "snippets_only", snippets, "failures", s->failures, "ms", s->ms);
        json_decref(s->ms);
        json_decref(s->failures);
    }
    for (int32_t i = 0; i < n; ++i) mem_free(pieces[i].text);
    for (int32_t i = 0; s && i < s->n_result; ++i) {
        mem_free(s->results[i].url);
        mem_free(s->results[i].title);
        mem_free(s->results[i].snippet);
    }
    mem_free(pieces);
    mem_free(s);
    return rc;
}

void web_hits_fini(struct web_hits *h) {
    for (int32_t i = 0; i < h->n; ++i) {
        mem_free(h->v[i].url);
        mem_free(h->v[i].title);
        mem_free(h->v[i].text);
    }
    json_decref(h->report);
    *h = (struct web_hits){0};
}

/* ---- the tool ---- */

static int run_tool(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                    struct err *e) {
    struct web_hits h;
    struct web_question q = {.text = json_string_value(json_object_get(args, "query")),
                             .k = 5,
                             .deadline_ns = env->deadline_ns,
                             .cancelled = env->cancelled};
    int rc = web_search(ud, &q, &h, e);
    if (!rc && !h.n) buf_puts(out, "nothing found");
    for (int32_t i = 0; i < h.n; ++i) {
        buf_printf(out, "[%d] %s (%s)\n%s\n\n", i + 1, h.v[i].title, h.v[i].url, h.v[i].text);
        if (env->found)
            json_array_append_new(
                env->found, json_pack("{s:s, s:s}", "url", h.v[i].url, "title", h.v[i].title));
    }
    web_hits_fini(&h);
    return rc;
}

int web_add_tool(struct web *w, struct tool_set *tools, struct err *e) {
    struct tool t = {.name = "web_search",
                     .flags = TOOL_SENDS | TOOL_TAINTS,
                     .deadline_ms = 20000,
                     .spec = tool_spec("web_search", "Search the internet for a query.",
                                       "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":"
                                       "\"string\",\"description\":\"What to search for\"}},"
                                       "\"required\":[\"query\"]}"),
                     .run = run_tool,
                     .ud = w};
    return tool_add(tools, &t, e);
}
