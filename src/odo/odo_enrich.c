/* odo_enrich.c: fetches what the model lacks. The parts run concurrently; each is timed and has a deadline. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engram/transient.h"
#include "retrieval/docs.h"
#include "odo/odo_enrich_impl.h"
#include "odo/decide/query.h"
#include "retrieval/fold.h"
#include "retrieval/web.h"

struct part {
    struct odo_run *run;
    int (*fetch)(struct part *p, struct err *e);
    const char *name;
    int64_t deadline_ns;
    json_t *sources; /* owned; [{title, where, from, to, text, kind, score}], best first */
    json_t *said;    /* owned; what this part adds to the record */
    int rc;          /* result of fetch */
    int64_t start_ns;
    pthread_t thread;
    bool threaded;
};

static json_t *source(const char *kind, const char *title, const char *where, int32_t from,
                      int32_t to, int32_t line, int32_t page, const char *text, double score) {
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:f}", "kind", kind, "title", title,
                     "where", where, "from", (int)from, "to", (int)to, "line", (int)line, "page",
                     (int)page, "text", text, "score", score);
}

static int fetch_documents(struct part *p, struct err *e) {
    struct odo_run *r = p->run;
    struct buf query;
    query_write(&query, r->request->messages, r->question);
    struct docs_hits h;
    int rc = docs_search(r->odo->p.docs, query.n ? query.p : r->question, r->documents, ODO_N_HIT,
                         p->deadline_ns, r->cancelled, &h, e);
    if (query.n && strcmp(query.p, r->question))
        json_object_set_new(p->said, "query", json_string(query.p));
    buf_fini(&query);
    if (rc) return rc;
    /* If the request did not ask for documents, only strong matches may change the answer. */
    bool leave = h.n && !h.strong && !r->d.asked_documents;
    if (leave) json_object_set_new(p->said, "left_out", json_integer(h.n));
    for (int32_t i = 0; i < h.n && !leave; ++i) {
        const struct docs_hit *d = &h.v[i];
        json_t *s = source("document", d->heading[0] ? d->heading : d->title, d->path, d->from,
                           d->to, d->line, d->page, d->text, d->score);
        if (d->trusted) json_object_set_new(s, "trusted", json_true());
        json_array_append_new(p->sources, s);
    }
    json_object_set_new(p->said, "coverage", json_real(h.coverage));
    json_object_set_new(p->said, "ranking", json_string(docs_ranking(&h)));
    if (h.why[0]) json_object_set_new(p->said, "degraded", json_string(h.why));
    docs_hits_fini(&h);
    return 0;
}

/* ---- the web ---- */

/* The model gives a short greedy answer. It probably does not know if the answer hedges or its tokens are
 * uncertain. */
static const char *const hedges[] = {
    "i don't know",     "i do not know",     "not sure",          "i am unable",
    "i'm unable",       "cannot verify",     "can't verify",      "no information",
    "as of my",         "knowledge cutoff",  "my training",       "not aware of",
    "please check",     "je ne sais pas",    "pas certain",       "je ne peux pas",
    "pas sur",          "pas d'information", "mes connaissances", "verifiez",
    "donnees recentes", "not in the sources"};

static bool is_confident(struct part *p, json_t *said) {
    struct odo_run *r = p->run;
    struct request a;
    struct call_result out;
    request_init(&a);
    a.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", r->question);
    a.sampling.temperature = 0;
    a.sampling.n_probs = 5;
    a.probs = true;
    a.max_tokens = 48;
    a.scope = r->request->scope;
    struct call c = {.backend = r->odo->p.backend,
                     .request = &a,
                     .cancelled = r->cancelled,
                     .deadline_ns = clock_ns() + (p->deadline_ns - clock_ns()) / 3};
    ++r->odo->n_model_call;
    int rc = call_run(&c, &out, NULL);
    struct buf text;
    buf_init(&text, (size_t)1 << 16);
    fold_text(&text, out.content.n ? out.content.p : "", out.content.n, true);
    for (size_t i = 0; i < text.n; ++i) text.p[i] = (char)tolower((unsigned char)text.p[i]);
    bool hedge = false;
    for (size_t i = 0; i < sizeof hedges / sizeof *hedges && text.n; ++i)
        hedge |= strstr(text.p, hedges[i]) != NULL;
    double mean = out.n_token ? out.entropy / out.n_token : 0;
    json_object_set_new(said, "probe_entropy", json_real(mean));
    json_object_set_new(said, "probe_hedge", json_boolean(hedge));
    r->stats.n_generated += out.stats.n_generated;
    buf_fini(&text);
    call_fini(&out);
    request_fini(&a);
    return !rc && !hedge && mean < r->d.limits.v[LIMIT_WEB];
}

/* Asks the model for more queries; none if it does not return a JSON array of strings. */
static json_t *expand(struct part *p) {
    struct odo_run *r = p->run;
    if (r->d.mode == DIFFICULTY_FAST) return NULL;
    struct buf request;
    struct call_result out = {0};
    buf_init(&request, (size_t)16 << 10);
    buf_printf(&request, "Produce 3 search queries in a JSON array about: %.2000s", r->question);
    ++r->odo->n_model_call;
    int rc = request.failed ? CHIMERE_ENOMEM
                            : call_text(r->odo->p.backend, r->request->scope, NULL, request.p,
                                        "root ::= \"[\" s (\", \" s){0,4} \"]\"\n"
                                        "s ::= \"\\\"\" [^\"\\\\\\n]{1,120} \"\\\"\"",
                                        120, r->cancelled,
                                        clock_ns() + (p->deadline_ns - clock_ns()) / 4, &out, NULL);
    json_t *list = rc || !out.content.n ? NULL : json_loadb(out.content.p, out.content.n, 0, NULL);
    r->stats.n_generated += out.stats.n_generated;
    call_fini(&out);
    buf_fini(&request);
    return list;
}

static int by_score(const void *a, const void *b) {
    const struct web_hit *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : 0;
}

/* Orders passages of pages by the cross-encoder, if there is one and the time suffices for all of them. */
static void rerank(struct part *p, struct web_hits *h) {
    struct docs *d = p->run->odo->p.docs;
    double scores[WEB_MAX_HITS];
    float score;
    if (!d || !docs_has_reranker(d)) return;
    for (int32_t i = 0; i < h->n; ++i) {
        if (*p->run->cancelled || clock_ns() > p->deadline_ns ||
            docs_score(d, p->run->question, h->v[i].text, &score, NULL)) {
            json_object_set_new(p->said, "degraded",
                                json_string("reranker: the deadline came first"));
            return;
        }
        scores[i] = (double)score;
    }
    for (int32_t i = 0; i < h->n; ++i) h->v[i].score = scores[i];
    qsort(h->v, (size_t)h->n, sizeof *h->v, by_score);
    json_object_set_new(p->said, "ranking", json_string("bm25+reranker"));
}

static int fetch_web(struct part *p, struct err *e) {
    struct odo_run *r = p->run;
    if (r->d.web == PIPELINE_WEB_PROBE && is_confident(p, p->said)) {
        json_object_set_new(p->said, "skipped", json_string("the model is confident"));
        return 0;
    }
    json_t *more = expand(p), *t;
    const char *queries[WEB_MAX_QUERIES];
    size_t i;
    struct web_question q = {.text = r->question,
                             .more = queries,
                             .k = 8,
                             .deadline_ns = p->deadline_ns,
                             .cancelled = r->cancelled};
    json_array_foreach(more, i, t) {
        const char *s = json_string_value(t);
        if (s && *s && q.n_more < WEB_MAX_QUERIES - 1) queries[q.n_more++] = s;
    }
    struct web_hits h;
    int rc = web_search(r->odo->p.web, &q, &h, e);
    if (h.report) json_object_set(p->said, "report", h.report);
    json_object_set_new(p->said, "queries", json_integer(q.n_more + 1));
    if (!rc) rerank(p, &h);
    for (int32_t k = 0; k < h.n; ++k)
        json_array_append_new(p->sources, source("web", h.v[k].title, h.v[k].url, h.v[k].from,
                                                 h.v[k].to, 0, 0, h.v[k].text, h.v[k].score));
    web_hits_fini(&h);
    json_decref(more);
    return rc;
}

static int fetch_shots(struct part *p, struct err *e) { return odo_find_shots(p->run, p->said, e); }

static void *fetch(void *ud) {
    struct part *p = ud;
    struct err e = {0};
    int64_t shortages = mem_shortages();
    int64_t start = p->start_ns = clock_ns();
    int rc = p->rc = p->fetch(p, &e);
    json_object_set_new(p->said, "part", json_string(p->name));
    json_object_set_new(p->said, "ms", json_real(clock_ms_since(start)));
    json_object_set_new(p->said, "found", json_integer((json_int_t)json_array_size(p->sources)));
    if (rc) json_object_set_new(p->said, "error", json_string(e.text));
    odo_count(p->run->odo, ODO_ENRICH, clock_ms_since(start), rc != 0);
    if (rc == CHIMERE_ENOMEM || mem_shortages() != shortages) *p->run->starved = true;
    return NULL;
}

int32_t odo_count_tokens(const struct odo_run *r, const char *text, size_t n) {
    const struct backend_model *m = r->odo->p.backend->model;
    int32_t *ids = NULL;
    size_t n_tok = 0;
    if (!m || !m->tok || tok_encode(m->tok, text, n, false, false, &ids, &n_tok, NULL))
        return (int32_t)(n / 4 + 1);
    mem_free(ids);
    return (int32_t)n_tok;
}

/* Returns the number of tokens available for sources: the pipeline's limit, or what the context has left after the
 * conversation, its tools and the answer. Without this limit, a long source made requests fail that the model
 * alone could answer. */
static int32_t room(const struct odo_run *r) {
    int32_t most = r->d.pipeline->enrich_tokens;
    const struct backend_model *m = r->odo->p.backend->model;
    if (!m || !m->engine) return most;
    int64_t n_ctx = engine_ctx(m->engine), quarter = n_ctx / 4, answer = r->request->max_tokens;
    if (answer <= 0 || answer > quarter) answer = quarter;
    int64_t used = answer + 64; /* for the template and the words around the sources */
    const json_t *const texts[] = {r->messages, r->request->tools};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i) {
        char *text = texts[i] ? json_dumps(texts[i], JSON_COMPACT) : NULL;
        if (text) used += odo_count_tokens(r, text, strlen(text));
        mem_free(text);
    }
    int64_t left = n_ctx - used;
    return left < 0 ? 0 : left < most ? (int32_t)left : most;
}

/* Appends at most NAME_BYTES of a name from outside as one line: it must not look like another source. */
static void put_name(struct buf *out, const char *name) {
    enum { NAME_BYTES = 120 };
    size_t n = strlen(name);
    if (n > NAME_BYTES) n = NAME_BYTES;
    while (n && n < strlen(name) && ((unsigned char)name[n] & 0xc0) == 0x80) --n;
    for (size_t i = 0; i < n; ++i) buf_putc(out, (unsigned char)name[i] < 0x20 ? ' ' : name[i]);
}

/* Appends the line above a passage: file, section and page of a document, or title and host of a page. */
static void put_origin(struct buf *out, const json_t *s) {
    const char *where = json_string_value(json_object_get(s, "where")), *host = NULL;
    const char *title = json_string_value(json_object_get(s, "title"));
    json_int_t page = json_integer_value(json_object_get(s, "page"));
    bool is_page = where && (host = strstr(where, "://"));
    const char *file = where && strrchr(where, '/') ? strrchr(where, '/') + 1 : where;
    char own[128] = "";
    if (is_page) {
        snprintf(own, sizeof own, "%.*s", (int)strcspn(host + 3, "/?#"), host + 3);
        file = own;
    }
    put_name(out, file ? file : "");
    if (title && *title && file && strcmp(title, file) != 0) {
        if (*file) buf_puts(out, ", ");
        put_name(out, title);
    }
    if (page > 0) buf_printf(out, ", page %lld", (long long)page);
}

/* Takes sources from the parts in turn until the budget is full. A source that is too long is skipped, not cut. */
static void choose(struct odo_run *r, struct part *parts, int n) {
    int32_t most = room(r), left = most, number = 0;
    size_t longest = 0;
    for (int i = 0; i < n; ++i)
        if (json_array_size(parts[i].sources) > longest)
            longest = json_array_size(parts[i].sources);
    for (size_t k = 0; k < longest; ++k)
        for (int i = 0; i < n; ++i) {
            json_t *s = json_array_get(parts[i].sources, k);
            const char *text = json_string_value(json_object_get(s, "text"));
            if (!text) continue;
            size_t before = r->source_text.n;
            buf_printf(&r->source_text, "%s[%d] ", before ? "\n\n" : "", number + 1);
            put_origin(&r->source_text, s);
            buf_printf(&r->source_text, "\n%s", text);
            int32_t cost =
                odo_count_tokens(r, r->source_text.p + before, r->source_text.n - before);
            if (r->source_text.failed || cost > left) {
                buf_cut(&r->source_text, before);
                continue;
            }
            left -= cost;
            json_object_set_new(s, "n", json_integer(++number));
            json_object_del(s, "text");
            json_array_append(r->sources, s);
        }
    json_object_set_new(r->record, "enrich_tokens", json_integer(most - left));
}

/* Builds a table of all fetched texts, also those that the budget left out, for the answers of this request only. */
static void make_table(struct odo_run *r, struct part *parts, int n) {
    enum { MOST = 64 };
    struct slice texts[MOST];
    size_t n_text = 0;
    int64_t start = clock_ns();
    struct err e = {0};
    const struct backend_model *m = r->odo->p.backend->model;
    if (!r->d.dynamic_engram || !m || !m->tok) return;
    for (int i = 0; i < n; ++i) {
        json_t *s;
        size_t k;
        json_array_foreach(parts[i].sources, k, s) {
            const json_t *text = json_object_get(s, "text");
            if (n_text < MOST && json_is_string(text))
                texts[n_text++] = (struct slice){json_string_value(text), json_string_length(text)};
        }
    }
    if (!n_text) return;
    int rc = engram_transient_new(&r->table, texts, n_text, m->tok, &e);
    json_t *said = json_pack("{s:s, s:f, s:i}", "part", "dynamic_engram", "ms",
                             clock_ms_since(start), "found", (int)n_text);
    if (rc) json_object_set_new(said, "error", json_string(e.text));
    json_array_append_new(json_object_get(r->record, "enrich"), said);
}

/* Reports a failed part to the client, in the record, and to the model, which may have to admit that it lacks
 * data. */
static void tell_failures(struct odo_run *r, const struct part *parts, int n) {
    json_t *all = json_array();
    for (int i = 0; i < n; ++i) {
        const char *why = json_string_value(json_object_get(parts[i].said, "error"));
        if (!parts[i].rc || !why) continue;
        json_array_append_new(all, json_sprintf("%s: %s", parts[i].name, why));
        if (parts[i].fetch != fetch_shots) r->missing = parts[i].name;
    }
    if (json_array_size(all)) {
        json_object_set(r->record, "degraded", all);
        odo_note(r, "degraded", json_incref(all));
    }
    json_decref(all);
}

void odo_enrich(struct odo_run *r) {
    struct part parts[3] = {{0}};
    int n = 0;
    if (r->d.web) parts[n++] = (struct part){.name = "web", .fetch = fetch_web};
    if (r->d.few_shot) parts[n++] = (struct part){.name = "few_shot", .fetch = fetch_shots};
    if (r->d.documents) parts[n++] = (struct part){.name = "documents", .fetch = fetch_documents};
    json_t *said = json_array();
    json_object_set_new(r->record, "enrich", said);
    r->sources = json_array();
    if (!n) return;
    int64_t deadline = clock_ns() + (int64_t)r->d.pipeline->enrich_ms * 1000000;
    /* use at most half of the remaining time; the answer needs the rest */
    if (r->request->deadline_ns) {
        int64_t half = clock_ns() + (r->request->deadline_ns - clock_ns()) / 2;
        if (half < deadline) deadline = half;
    }
    for (int i = 0; i < n; ++i) {
        parts[i].run = r;
        parts[i].deadline_ns = deadline;
        parts[i].sources = json_array();
        parts[i].said = json_object();
        /* the last part runs on this thread */
        if (i < n - 1)
            parts[i].threaded = !pthread_create(&parts[i].thread, NULL, fetch, &parts[i]);
        if (!parts[i].threaded) fetch(&parts[i]);
    }
    for (int i = 0; i < n; ++i) {
        if (parts[i].threaded) pthread_join(parts[i].thread, NULL);
        if (r->trace.spans)
            trace_span(&r->trace, parts[i].name, parts[i].start_ns, parts[i].rc != 0,
                       json_pack("{s:i, s:f}", "odo.found", (int)json_array_size(parts[i].sources),
                                 "odo.ms",
                                 json_number_value(json_object_get(parts[i].said, "ms"))));
    }
    make_table(r, parts, n);
    choose(r, parts, n);
    odo_choose_shots(r);
    tell_failures(r, parts, n);
    for (int i = 0; i < n; ++i) {
        json_array_append_new(said, parts[i].said);
        json_decref(parts[i].sources);
    }
    if (json_array_size(r->sources)) {
        for (size_t i = 0; i < json_array_size(r->sources); ++i)
            r->tainted |= !json_object_get(json_array_get(r->sources, i), "trusted");
        odo_note(r, "sources", json_incref(r->sources));
    }
}

int odo_place_sources(struct odo_run *r) {
    if (!r->source_text.n && !r->missing) return 0;
    for (size_t i = json_array_size(r->messages); i-- > 0;) {
        json_t *m = json_array_get(r->messages, i), *content = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!role || strcmp(role, "user")) continue;
        struct buf b;
        buf_init(&b, (size_t)64 << 20);
        if (r->source_text.n)
            buf_printf(&b,
                       "Answer from the sources and cite them as [n]. If the answer is not there, "
                       "say so.\n\nSources:\n%s\n\nQuestion: %s",
                       r->source_text.p, r->question);
        else
            buf_printf(&b, "%s\n\n(The %s could not be searched. Say so if the answer needs it.)",
                       r->question, r->missing);
        json_t *copy = json_copy(m); /* the caller's messages are not modified */
        if (json_is_array(content)) {
            json_t *parts = json_array(), *part;
            size_t k;
            json_array_append_new(parts, json_pack("{s:s, s:s}", "type", "text", "text", b.p));
            json_array_foreach(content, k, part) if (!json_object_get(part, "text"))
                json_array_append(parts, part);
            json_object_set_new(copy, "content", parts);
        } else {
            json_object_set_new(copy, "content", json_stringn(b.n ? b.p : "", b.n));
        }
        bool bad = b.failed || !copy;
        buf_fini(&b);
        return json_array_set_new(r->messages, i, copy) || bad ? CHIMERE_ENOMEM : 0;
    }
    return 0;
}
