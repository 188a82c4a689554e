/* bench_odo.c: what the orchestrator adds to chimere-nano, part by part.
 *
 * Items of four kinds, N of each: questions on facts that training never saw (eval/fact_withheld.jsonl) with articles
 * about them and 200 others indexed, or on the pages of a search engine's stand-in; on facts that it did see
 * (eval/fact.jsonl), which need no help; sums, differences and products of three-digit numbers; and messages whose
 * department is wanted, which validated examples alone tell (at most as many as there are sentences). Greedy; an item
 * is right when its answer, and no other department, stands in the text, or is its last number (arithmetic). Rows
 * switch one part off, or on where it is off by default. Intervals are Wilson's at 95 %; "tokens": generated for an
 * answer; the last columns compare a row with "odo" item by item: how many it alone has right and wrong, McNemar's p,
 * points with their paired interval; "searched": how many items of
 * each kind went to the web. Then: time and model calls that deciding adds to a request that rules decide, with a
 * memory of twenty facts. Arguments: N. Rows with an embedding model want all-minilm-l6-v2.gguf (script/embedder). */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/load.h"
#include "engram/examples.h"
#include "backend/embed/embed.h"
#include "eval/stats.h"
#include "kernels/cpu/cpu.h"
#include "model/vocab.h"
#include "backend/call.h"
#include "retrieval/docs.h"
#include "odo/memory.h"
#include "odo/odo.h"
#include "retrieval/web.h"
#include "store/store.h"

#include "../unit/loopback.h"

enum { N_THREAD = 4, MAX_ITEMS = 4000 };
enum kind { WITHHELD, KNOWN, NUMBER, LABEL, N_KIND };
static const char *const kind_names[N_KIND] = {"withheld facts", "known facts", "arithmetic",
                                               "departments"};

struct item {
    char *text, *answer;
    enum kind kind;
};

struct bench {
    struct item items[MAX_ITEMS];
    int n_item;
    struct backend *backend, *plain;        /* who is asked now; the model itself */
    const char *wish;                       /* extra, as JSON */
    bool right[MAX_ITEMS], base[MAX_ITEMS]; /* base: of the row that others are compared with */
    bool searched[MAX_ITEMS];
    _Atomic int next;
    _Atomic int64_t n_token; /* generated, of all items */
};

static _Noreturn void die(const char *what, const struct err *e) {
    fprintf(stderr, "bench_odo: %s: %s\n", what, e->text);
    exit(1);
}

static void load_facts(struct bench *b, const char *path, enum kind kind, int n) {
    char *text, *line, *rest;
    size_t size;
    struct err e = {0};
    if (file_read(path, 1 << 24, &text, &size, &e)) die("items", &e);
    for (rest = text; (line = strsep(&rest, "\n")) && n > 0;) {
        json_t *o = json_loads(line, 0, NULL);
        if (!o) continue;
        json_t *m = json_array_get(json_object_get(o, "messages"), 0);
        json_t *a = json_array_get(json_object_get(json_object_get(o, "check"), "answer"), 0);
        b->items[b->n_item++] =
            (struct item){.text = mem_strdup(json_string_value(json_object_get(m, "content"))),
                          .answer = mem_strdup(json_string_value(a)),
                          .kind = kind};
        --n;
        json_decref(o);
    }
    mem_free(text);
}

static void make_sums(struct bench *b, int n) {
    static const char *const forms[][2] = {{"What is ", "?"},
                                           {"Compute ", "."},
                                           {"", "?"},
                                           {"Tell me ", "."},
                                           {"Combien font ", " ?"}};
    static const char *const signs[] = {"+", "-", "x"};
    struct rng r;
    rng_seed(&r, 2026);
    for (int i = 0; i < n; ++i) {
        int x = 100 + (int)rng_below(&r, 900), y = 100 + (int)rng_below(&r, 900),
            op = (int)rng_below(&r, 3);
        char text[100], answer[20];
        const char *const *form = forms[rng_below(&r, 5)];
        snprintf(text, sizeof text, "%s%d %s %d%s", form[0], x, signs[op], y, form[1]);
        snprintf(answer, sizeof answer, "%d", op == 0 ? x + y : op == 1 ? x - y : x * y);
        b->items[b->n_item++] = (struct item){mem_strdup(text), mem_strdup(answer), NUMBER};
    }
}

/* What goes to which department is nobody's guess: the names say nothing. Every other sentence is an example. */
static const char *const departments[] = {"Avola", "Bernic", "Corvan"};
static const char *const messages[][16] = {
    {"My invoice shows the wrong amount.", "The invoice of May has the wrong total.",
     "You charged my card twice.", "My credit card was charged two times.",
     "I want my money back for last month.", "Please give me my money back.",
     "Which taxes are on the bill?", "The bill lists a tax that I do not know.",
     "Can I pay by bank transfer?", "May I pay by transfer from my bank?",
     "The discount is missing on my bill.", "My discount was not taken off the price.",
     "I need a receipt for my payment.", "Send me a receipt of what I paid.",
     "The price is higher than you said.", "Why is the price higher than in the offer?"},
    {"My parcel has not arrived.", "The parcel still did not arrive.", "The box came damaged.",
     "The package was broken when it came.", "Where is my delivery now?",
     "Can you tell me where the delivery is?", "The courier left it with a neighbour.",
     "The driver gave my box to a neighbour.", "I want it sent to another address.",
     "Please ship it to a different address.", "Two of the three boxes are missing.",
     "One box of the shipment is missing.", "How long does shipping to Spain take?",
     "How many days does shipping to Italy take?", "The tracking number does not work.",
     "Your tracking number shows nothing."},
    {"I forgot my password.", "I cannot remember my password.", "I cannot log in any more.",
     "The login page does not let me in.", "Please change my user name.", "I want a new user name.",
     "Delete my account and my data.", "How do I close my account?",
     "The code for the login never comes.", "I get no code when I log in.",
     "Somebody else uses my account.", "A stranger signed in to my account.",
     "My profile picture does not load.", "I cannot upload a profile photo.",
     "How do I change my e-mail in the profile?", "The profile shows my old e-mail."},
};
enum { N_DEPARTMENT = 3, N_MESSAGE = 16 };

static void make_messages(struct bench *b, int n) {
    for (int i = 1; i < N_MESSAGE; i += 2)
        for (int k = 0; k < N_DEPARTMENT && n-- > 0; ++k) {
            char text[160];
            snprintf(text, sizeof text, "Which department? %s", messages[k][i]);
            b->items[b->n_item++] =
                (struct item){mem_strdup(text), mem_strdup(departments[k]), LABEL};
        }
}

static bool is_right(const struct item *it, const char *text) {
    int n_label = 0;
    for (int i = 0; i < N_DEPARTMENT; ++i) n_label += strcasestr(text, departments[i]) != NULL;
    if (it->kind == LABEL && n_label != 1) return false;
    if (it->kind != NUMBER) return strcasestr(text, it->answer) != NULL;
    double last = NAN; /* the last number of the text, commas between groups removed */
    for (const char *p = text; *p; ++p) {
        if (*p < '0' || *p > '9') continue;
        bool minus = p > text && p[-1] == '-';
        double v = 0;
        for (; (*p >= '0' && *p <= '9') || (*p == ',' && p[1] >= '0' && p[1] <= '9'); ++p)
            if (*p != ',') v = v * 10 + (*p - '0');
        if (*p == '.' && p[1] >= '0' && p[1] <= '9') v = strtod(p, NULL) + v;
        last = minus ? -v : v;
        --p;
    }
    return last == atof(it->answer);
}

/* Did the web take part, and not because the probe said no? */
static int watch(void *ud, const struct backend_event *ev) {
    const char *web = ev->kind == EVENT_NOTE && !strcmp(ev->name, "done")
                          ? strstr(ev->text, "\"part\":\"web\"")
                          : NULL;
    if (web) *(bool *)ud = !strstr(ev->text, "the model is confident");
    return 0;
}

static void *work(void *ud) {
    struct bench *b = ud;
    for (int i; (i = b->next++) < b->n_item;) {
        struct request a;
        struct call_result out;
        request_init(&a);
        a.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", b->items[i].text);
        a.sampling.temperature = 0;
        a.max_tokens = 96;
        if (b->wish) a.extra = json_loads(b->wish, 0, NULL);
        b->searched[i] = false;
        struct call c = {
            .backend = b->backend, .request = &a, .on_event = watch, .ud = &b->searched[i]};
        b->right[i] =
            !call_run(&c, &out, NULL) && out.content.n && is_right(&b->items[i], out.content.p);
        b->n_token += out.stats.n_generated;
        if (getenv("VERBOSE"))
            fprintf(stderr, "%d %s | %s | %s\n", b->right[i], b->items[i].text, b->items[i].answer,
                    out.content.n ? out.content.p : "");
        call_fini(&out);
        request_fini(&a);
    }
    return NULL;
}

static void row(struct bench *b, const char *name, struct backend *backend, const char *wish) {
    pthread_t threads[N_THREAD];
    b->backend = backend;
    b->wish = wish;
    b->next = 0;
    b->n_token = 0;
    int64_t start = clock_ns();
    for (int i = 0; i < N_THREAD; ++i) pthread_create(&threads[i], NULL, work, b);
    for (int i = 0; i < N_THREAD; ++i) pthread_join(threads[i], NULL);
    printf("%-30s", name);
    bool any = false;
    for (int kind = 0; kind < N_KIND; ++kind) {
        int n = 0, k = 0;
        for (int i = 0; i < b->n_item; ++i)
            if ((int)b->items[i].kind == kind) ++n, k += b->right[i], any |= b->searched[i];
        struct share s = stats_share(k, n);
        printf("  %5.1f (%4.1f-%5.1f)", 100 * s.value, 100 * s.low, 100 * s.high);
    }
    printf("  %7.1f  %7.0f", (double)b->n_token / b->n_item, clock_ms_since(start) / b->n_item);
    int better = 0, worse = 0;
    for (int i = 0; i < b->n_item; ++i) {
        better += b->right[i] && !b->base[i];
        worse += !b->right[i] && b->base[i];
    }
    if (!strcmp(name, "odo")) memcpy(b->base, b->right, sizeof b->base);
    else if (backend != b->plain) {
        struct share gain = stats_pair(b->n_item, worse, better);
        printf("  +%d -%d p=%.3g %+.1f (%+.1f..%+.1f)", better, worse, stats_mcnemar(better, worse),
               100 * gain.value, 100 * gain.low, 100 * gain.high);
    }
    for (int kind = 0; kind < N_KIND && any; ++kind) {
        int n = 0, k = 0;
        for (int i = 0; i < b->n_item; ++i)
            if ((int)b->items[i].kind == kind) ++n, k += b->searched[i];
        printf("%s %d/%d %s", kind ? "," : "  searched", k, n, kind_names[kind]);
    }
    putchar('\n');
    fflush(stdout);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int ignore(void *ud, const struct backend_event *ev) {
    (void)ud, (void)ev;
    return 0;
}

static int64_t model_calls(struct odo *o) {
    struct buf text;
    buf_init(&text, (size_t)1 << 16);
    odo_metrics(o, &text);
    const char *p = text.n ? strstr(text.p, "\nchimere_odo_model_calls_total ") : NULL;
    int64_t n = p ? atoll(p + strlen("\nchimere_odo_model_calls_total ")) : -1;
    buf_fini(&text);
    return n;
}

/* Time from the request to the engine's hands: prepare of the orchestrator against prepare of the engine. */
static void overhead(struct backend *plain, struct odo *o, const char *text) {
    enum { N = 300 };
    static double t[2][N];
    struct backend *odo = odo_find(o, "odo");
    int64_t n_call = model_calls(o);
    for (int i = 0; i < N; ++i)
        for (int k = 0; k < 2; ++k) {
            struct backend *b = k ? odo : plain;
            struct request a;
            struct generation *run = NULL;
            struct event_sink sink = {ignore, NULL};
            request_init(&a);
            a.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", text);
            int64_t start = clock_ns();
            if (b->ops->prepare(b, &a, &sink, &run, NULL, NULL)) exit(1);
            t[k][i] = clock_ms_since(start);
            b->ops->free(run);
            request_fini(&a);
        }
    for (int k = 0; k < 2; ++k) qsort(t[k], N, sizeof(double), by_value);
    printf("overhead, \"%s\": engine %.3f ms (p99 %.3f), orchestrator %.3f ms (p99 %.3f), medians "
           "of %d: adds %.3f ms and %lld model calls\n",
           text, t[0][N / 2], t[0][N * 99 / 100], t[1][N / 2], t[1][N * 99 / 100], N,
           t[1][N / 2] - t[0][N / 2], (long long)(model_calls(o) - n_call));
}

static void index_articles(struct docs *docs, const char *dir) {
    char *text, *line, *rest, path[300];
    size_t size;
    struct err e = {0};
    struct docs_report rep;
    if (file_read(TEST_DATA "/odo/articles.jsonl", 1 << 24, &text, &size, &e)) die("articles", &e);
    for (int i = 0; i < 2; ++i) {
        snprintf(path, sizeof path, "%s/%s", dir, i ? "noise" : "mixed");
        file_mkdirs(path, NULL);
    }
    for (rest = text; (line = strsep(&rest, "\n"));) {
        json_t *o = json_loads(line, 0, NULL);
        if (!o) continue;
        snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(o, "name")));
        FILE *f = fopen(path, "w");
        if (f) {
            fputs(json_string_value(json_object_get(o, "text")), f);
            fclose(f);
        }
        json_decref(o);
    }
    mem_free(text);
    if (docs_index(docs, dir, "default", &rep, &e)) die("index", &e);
    printf("index: %d files, %d passages, %s\n", rep.n_read, rep.n_chunk,
           docs_has_vectors(docs) ? "with vectors" : "BM25 alone (nano is no embedding model)");
}

/* ---- with an embedding model ---- */

struct meaning {
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    struct embed *embed;
    struct store *store;
    struct docs *docs;
    struct odo *odo;
};

/* The messages that are no items, with their departments, as validated answers. */
static void learn(struct bench *b, struct meaning *x, const char *domain) {
    struct err e = {0};
    struct examples *all;
    int32_t n_vec = docs_n_vec(x->docs), n = 0;
    float *v = mem_alloc_array((size_t)n_vec, sizeof *v);
    if (!v || examples_open(&all, x->store, (uint64_t)docs_embedder(x->docs), n_vec, &e))
        die("examples", &e);
    for (int i = 0; i < N_MESSAGE; i += 2)
        for (int k = 0; k < N_DEPARTMENT; ++k) {
            char text[160];
            int64_t id;
            snprintf(text, sizeof text, "Which department? %s", messages[k][i]);
            struct store_example one = {
                .domain = domain, .question = text, .answer = departments[k], .score = 5};
            if (docs_embed(x->docs, text, v, &e) || examples_add(all, &one, 1, v, &id, &e))
                die("examples", &e);
            ++n;
        }
    int n_item = 0, n_good = 0;
    for (int i = 0; i < b->n_item; ++i) {
        struct examples_hits h = {.n = 0};
        if (b->items[i].kind != LABEL) continue;
        if (docs_embed(x->docs, b->items[i].text, v, &e) ||
            examples_search(all, domain, v, 1, 0, &h, &e))
            die("examples", &e);
        ++n_item;
        n_good += h.n && !strcmp(h.v[0].answer, b->items[i].answer);
        examples_hits_fini(&h);
    }
    printf("examples: %d; the nearest one is of the right department for %d of %d messages\n", n,
           n_good, n_item);
    examples_close(all);
    mem_free(v);
}

static void meaning_rows(struct bench *b, struct odo_params *p, const char *path, const char *dir) {
    struct meaning x = {.dev = NULL};
    struct err e = {0};
    char db[64];
    snprintf(db, sizeof db, "%s/meaning.db", dir);
    if (cpu_open(&x.dev, 2, CPU_ISA_BEST, &e) || model_open(&x.m, path, x.dev, true, &e) ||
        vocab_load(&x.tok, x.m->gguf, &e) || embed_open(&x.embed, x.m, x.tok, 0, &e) ||
        store_open(&x.store, db, &e))
        die(path, &e);
    struct docs_models models = {.embed = x.embed};
    if (docs_open(&x.docs, x.store, &models, &e)) die("documents", &e);
    index_articles(x.docs, dir);
    p->docs = x.docs, p->store = x.store, p->tools = NULL, p->intent_ms = 0;
    if (odo_open(&x.odo, p, &e)) die("odo", &e);
    row(b, "odo, vectors on", odo_find(x.odo, "odo"), NULL);
    learn(b, &x, "default");
    row(b, "odo, vectors, examples on", odo_find(x.odo, "odo"), "{\"odo\": {\"few_shot\": true}}");
    row(b, "  the same, documents off", odo_find(x.odo, "odo"),
        "{\"odo\": {\"few_shot\": true, \"documents\": false}}");
    odo_close(x.odo);
    docs_close(x.docs);
    store_close(x.store);
    embed_close(x.embed);
    tok_free(x.tok);
    model_close(x.m);
    x.dev->ops->close(x.dev);
}

/* ---- the web: a search engine and pages on this machine ---- */

static struct docs *library; /* what the engine has read: the articles */
static char library_dir[64];

/* The text behind a question's "q=", its escapes undone. */
static void query_of(const char *path, char *out, size_t size) {
    const char *q = strstr(path, "&q=");
    size_t n = 0;
    for (q = q ? q + 3 : ""; *q && *q != '&' && *q != ' ' && n < size - 1; ++q) {
        unsigned c = (unsigned char)*q;
        if (c == '%' && sscanf(q + 1, "%2x", &c) == 1) q += 2;
        out[n++] = (char)c;
    }
    out[n] = 0;
}

static void handle(struct loopback *l, int fd, const char *path, const char *request) {
    char file[400], query[512], *text;
    size_t size;
    (void)request;
    if (!strncmp(path, "/search?", 8)) {
        struct docs_hits h;
        json_t *results = json_array();
        query_of(path, query, sizeof query);
        if (!docs_search(library, query, "default", 5, 0, NULL, &h, NULL))
            for (int i = 0; i < h.n; ++i)
                json_array_append_new(
                    results,
                    json_pack("{s:o, s:s, s:s#}", "url",
                              json_sprintf("http://127.0.0.1:%d%s", l->port,
                                           strstr(h.v[i].path, library_dir) + strlen(library_dir)),
                              "title", h.v[i].title, "content", h.v[i].text,
                              (int)strcspn(h.v[i].text, ".")));
        docs_hits_fini(&h);
        json_t *o = json_pack("{s:o}", "results", results);
        text = json_dumps(o, 0);
        loopback_reply(fd, "200 OK", "application/json", text);
        free(text);
        json_decref(o);
        return;
    }
    snprintf(file, sizeof file, "%s%s", library_dir, path);
    if (strstr(path, "..") || file_read(file, 1 << 20, &text, &size, NULL)) {
        loopback_reply(fd, "404 Not Found", "text/plain", "no");
        return;
    }
    loopback_reply(fd, "200 OK", "text/plain; charset=utf-8", text);
    mem_free(text);
}

static void web_rows(struct bench *b, struct odo_params *p, struct docs *docs, const char *dir) {
    struct loopback server;
    struct web *web;
    struct odo *o;
    struct err e = {0};
    char url[64];
    library = docs;
    snprintf(library_dir, sizeof library_dir, "%s", dir);
    loopback_open(&server, handle);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", server.port);
    struct web_params wp = {.searxng = url, .private_pages = true};
    struct odo_params with = *p;
    if (web_open(&web, &wp, &e)) die("web", &e);
    with.web = web, with.docs = NULL, with.tools = NULL;
    if (odo_open(&o, &with, &e)) die("odo", &e);
    row(b, "odo, web for documents", odo_find(o, "odo"), "{\"odo\": {\"web\": true}}");
    row(b, "  the same, expanded", odo_find(o, "odo"),
        "{\"odo\": {\"web\": true, \"mode\": \"quality\"}}");
    row(b, "  the same, where unsure", odo_find(o, "odo"), "{\"odo\": {\"mode\": \"quality\"}}");
    odo_close(o);
    web_close(web);
    loopback_close(&server);
}

static void remember(struct store *s) {
    char owner[MEMORY_MAX_OWNER], text[64];
    int64_t id;
    struct err e = {0};
    memory_owner(NULL, NULL, owner);
    for (int i = 0; i < 20; ++i) {
        int n = snprintf(text, sizeof text, "My boat number %d is called Ada %d.", i, 7 * i);
        if (memory_keep_fact(s, owner, text, (size_t)n, false, &id, &e)) die("memory", &e);
    }
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 200;
    struct err e = {0};
    static struct bench b;
    char dir[] = "bench_odo.XXXXXX", db[64], model_path[4096], command[64];
    struct load_params lp;
    struct loaded l;
    if (n < 1 || n > MAX_ITEMS / N_KIND || !mkdtemp(dir)) return 1;
    load_defaults(&lp);
    if (file_find_data("chimere-nano.gguf", model_path, sizeof model_path))
        snprintf(model_path, sizeof model_path, "%s", TEST_NANO);
    lp.path = model_path;
    lp.quiet = true;
    lp.plan.n_seq = N_THREAD;
    lp.plan.n_ctx = N_THREAD * 2048;
    if (load_open(&l, &lp, &e)) die(model_path, &e);
    struct backend_model model = {
        .m = l.model, .engine = l.engine, .tok = l.tok, .template = l.template, .n_seq = N_THREAD};
    struct backend *plain;
    struct store *store;
    struct docs *docs;
    struct odo *all, *bare;
    struct tool_set *tools;
    snprintf(db, sizeof db, "%s/odo.db", dir);
    if (backend_local_new(&plain, &model, "nano", &e) || store_open(&store, db, &e) ||
        docs_open(&docs, store, NULL, &e) || tool_set_new(&tools, &e) ||
        docs_add_tool(docs, tools, &e))
        die("setting up", &e);
    index_articles(docs, dir);
    struct odo_params p = {.backend = plain,
                           .pipelines = TEST_DATA "/../../pipelines",
                           .tools = tools,
                           .store = store,
                           .docs = docs};
    if (odo_open(&all, &p, &e)) die("odo", &e);
    p.tools = NULL, p.intent_ms = -1;
    if (odo_open(&bare, &p, &e)) die("odo", &e);
    load_facts(&b, TEST_DATA "/../../eval/fact_withheld.jsonl", WITHHELD, n);
    load_facts(&b, TEST_DATA "/../../eval/fact.jsonl", KNOWN, n);
    make_sums(&b, n);
    make_messages(&b, n);
    printf("%-30s", "right, %");
    for (int i = 0; i < N_KIND; ++i) printf("  %-18s", kind_names[i]);
    printf("  %7s  %7s  %s\n", "tokens", "ms/item", "against odo, points");
    b.plain = plain;
    row(&b, "chimere-nano alone", plain, NULL);
    row(&b, "odo", odo_find(all, "odo"), NULL);
    row(&b, "odo, documents off", odo_find(all, "odo"), "{\"odo\": {\"documents\": false}}");
    row(&b, "odo, tools off", odo_find(all, "odo"), "{\"odo\": {\"tools\": false}}");
    row(&b, "odo, the model judges nothing", odo_find(bare, "odo"), NULL);
    row(&b, "odo, dynamic Engram off", odo_find(all, "odo"),
        "{\"odo\": {\"dynamic_engram\": false}}");
    p.tools = NULL, p.intent_ms = 0;
    web_rows(&b, &p, docs, dir);
    char embedder[4096];
    if (!file_find_data("all-minilm-l6-v2.gguf", embedder, sizeof embedder))
        meaning_rows(&b, &p, embedder, dir);
    else puts("skip: rows with vectors and examples, script/embedder");
    remember(store);
    overhead(plain, all, "Tell me a joke.");
    overhead(plain, all, "What is 123 + 456?");
    odo_close(all);
    odo_close(bare);
    plain->ops->close(plain);
    docs_close(docs);
    store_close(store);
    load_close(&l);
    for (int i = 0; i < b.n_item; ++i) {
        mem_free(b.items[i].text);
        mem_free(b.items[i].answer);
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}
