/* bench_odo.c: what the orchestrator adds to chimere-nano, part by part.
 *
 * Items: 200 questions on facts that training never saw (eval/fact_withheld.jsonl) with articles about them and
 * 200 others indexed, and 200 sums, differences and products of three-digit numbers. Greedy; an item is right when
 * its answer stands in the text (facts) or is its last number (arithmetic). Rows switch one part off, or on where it
 * is off by default. Intervals are Wilson's at 95 %; the last column compares a row with "odo" item by item: how many
 * it alone has right and wrong, and McNemar's p. Then: time and model calls that deciding adds to a request that rules
 * decide. Arguments: number of items. Rows with an embedding model want all-minilm-l6-v2.gguf (script/embedder). */
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
#include "eval/embed.h"
#include "eval/stats.h"
#include "kernels/cpu/cpu.h"
#include "model/vocab.h"
#include "odo/call.h"
#include "odo/docs.h"
#include "odo/odo.h"
#include "store/store.h"

enum { N_THREAD = 4, MAX_ITEMS = 2000 };

struct item {
    char *text, *answer;
    bool number;
};

struct bench {
    struct item items[MAX_ITEMS];
    int n_item;
    struct ask_backend *backend, *plain;    /* who is asked now; the model itself */
    const char *wish;                       /* extra, as JSON */
    bool right[MAX_ITEMS], base[MAX_ITEMS]; /* base: of the row that others are compared with */
    _Atomic int next;
};

static void die(const char *what, const struct err *e) {
    fprintf(stderr, "bench_odo: %s: %s\n", what, e->text);
    exit(1);
}

static void load_facts(struct bench *b, int n) {
    char *text, *line, *rest;
    size_t size;
    struct err e = {0};
    if (file_read(TEST_DATA "/../../eval/fact_withheld.jsonl", 1 << 24, &text, &size, &e))
        die("items", &e);
    for (rest = text; (line = strsep(&rest, "\n")) && b->n_item < n;) {
        json_t *o = json_loads(line, 0, NULL);
        if (!o) continue;
        json_t *m = json_array_get(json_object_get(o, "messages"), 0);
        json_t *a = json_array_get(json_object_get(json_object_get(o, "check"), "answer"), 0);
        b->items[b->n_item++] =
            (struct item){.text = mem_strdup(json_string_value(json_object_get(m, "content"))),
                          .answer = mem_strdup(json_string_value(a))};
        json_decref(o);
    }
    mem_free(text);
}

static void make_sums(struct bench *b, int n) {
    static const char *const forms[] = {"What is %d %s %d?", "Compute %d %s %d.", "%d %s %d?",
                                        "Tell me %d %s %d.", "Combien font %d %s %d ?"};
    static const char *const signs[] = {"+", "-", "x"};
    struct rng r;
    rng_seed(&r, 2026);
    for (int i = 0; i < n; ++i) {
        int x = 100 + (int)rng_below(&r, 900), y = 100 + (int)rng_below(&r, 900),
            op = (int)rng_below(&r, 3);
        char text[100], answer[20];
        snprintf(text, sizeof text, forms[rng_below(&r, 5)], x, signs[op], y);
        snprintf(answer, sizeof answer, "%d", op == 0 ? x + y : op == 1 ? x - y : x * y);
        b->items[b->n_item++] = (struct item){mem_strdup(text), mem_strdup(answer), true};
    }
}

static bool is_right(const struct item *it, const char *text) {
    if (!it->number) return strcasestr(text, it->answer) != NULL;
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

static void *work(void *ud) {
    struct bench *b = ud;
    for (int i; (i = b->next++) < b->n_item;) {
        struct ask a;
        struct call_result out;
        ask_init(&a);
        a.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", b->items[i].text);
        a.sampling.temperature = 0;
        a.max_tokens = 96;
        if (b->wish) a.extra = json_loads(b->wish, 0, NULL);
        struct call c = {.backend = b->backend, .ask = &a};
        b->right[i] =
            !call_run(&c, &out, NULL) && out.content.n && is_right(&b->items[i], out.content.p);
        if (getenv("VERBOSE"))
            fprintf(stderr, "%d %s | %s | %s\n", b->right[i], b->items[i].text, b->items[i].answer,
                    out.content.n ? out.content.p : "");
        call_fini(&out);
        ask_fini(&a);
    }
    return NULL;
}

static void row(struct bench *b, const char *name, struct ask_backend *backend, const char *wish) {
    pthread_t threads[N_THREAD];
    b->backend = backend;
    b->wish = wish;
    b->next = 0;
    int64_t start = clock_ns();
    for (int i = 0; i < N_THREAD; ++i) pthread_create(&threads[i], NULL, work, b);
    for (int i = 0; i < N_THREAD; ++i) pthread_join(threads[i], NULL);
    printf("%-34s", name);
    for (int number = 0; number < 2; ++number) {
        int n = 0, k = 0;
        for (int i = 0; i < b->n_item; ++i)
            if (b->items[i].number == number) ++n, k += b->right[i];
        struct share s = stats_share(k, n);
        printf("  %5.1f (%4.1f-%5.1f)", 100 * s.value, 100 * s.low, 100 * s.high);
    }
    printf("  %7.0f", clock_ms_since(start) / b->n_item);
    int better = 0, worse = 0;
    for (int i = 0; i < b->n_item; ++i) {
        better += b->right[i] && !b->base[i];
        worse += !b->right[i] && b->base[i];
    }
    if (!strcmp(name, "odo")) memcpy(b->base, b->right, sizeof b->base);
    else if (backend != b->plain)
        printf("  +%d -%d p=%.3g", better, worse, stats_mcnemar(better, worse));
    putchar('\n');
    fflush(stdout);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int ignore(void *ud, const struct ask_event *ev) {
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
static void overhead(struct ask_backend *plain, struct odo *o, const char *text) {
    enum { N = 300 };
    static double t[2][N];
    struct ask_backend *odo = odo_find(o, "odo");
    int64_t n_call = model_calls(o);
    for (int i = 0; i < N; ++i)
        for (int k = 0; k < 2; ++k) {
            struct ask_backend *b = k ? odo : plain;
            struct ask a;
            struct ask_run *run = NULL;
            struct ask_sink sink = {ignore, NULL};
            ask_init(&a);
            a.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", text);
            int64_t start = clock_ns();
            if (b->ops->prepare(b, &a, &sink, &run, NULL, NULL)) exit(1);
            t[k][i] = clock_ms_since(start);
            b->ops->free(run);
            ask_fini(&a);
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

/* Facts that training did see, as validated answers: shown before a question they teach the form alone. */
static void learn(struct meaning *x, const char *domain) {
    char *text, *line, *rest;
    size_t size;
    struct err e = {0};
    struct examples *all;
    int32_t n_vec = docs_n_vec(x->docs), n = 0;
    float *v = mem_alloc_array((size_t)n_vec, sizeof *v);
    if (!v || file_read(TEST_DATA "/../../eval/fact.jsonl", 1 << 24, &text, &size, &e) ||
        examples_open(&all, x->store, (uint64_t)docs_embedder(x->docs), n_vec, &e))
        die("examples", &e);
    for (rest = text; (line = strsep(&rest, "\n")) && n < 200;) {
        json_t *o = json_loads(line, 0, NULL);
        json_t *q = json_object_get(json_array_get(json_object_get(o, "messages"), 0), "content");
        json_t *a = json_array_get(json_object_get(json_object_get(o, "check"), "answer"), 0);
        int64_t id;
        struct store_example one = {.domain = domain,
                                    .question = json_string_value(q),
                                    .answer = json_string_value(a),
                                    .score = 5};
        if (q && a && !docs_embed(x->docs, one.question, v, &e) &&
            !examples_add(all, &one, v, &id, &e))
            ++n;
        json_decref(o);
    }
    printf("examples: %d\n", n);
    examples_close(all);
    mem_free(text);
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
    if (engram_vec_is_built_in()) {
        learn(&x, "default");
        row(b, "odo, vectors and examples on", odo_find(x.odo, "odo"),
            "{\"odo\": {\"few_shot\": true}}");
        row(b, "odo, examples on, documents off", odo_find(x.odo, "odo"),
            "{\"odo\": {\"few_shot\": true, \"documents\": false}}");
    }
    odo_close(x.odo);
    docs_close(x.docs);
    store_close(x.store);
    embed_close(x.embed);
    tok_free(x.tok);
    model_close(x.m);
    x.dev->ops->close(x.dev);
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 200;
    struct err e = {0};
    static struct bench b;
    char dir[] = "bench_odo.XXXXXX", db[64], model_path[4096], command[64];
    struct load_params lp;
    struct loaded l;
    if (n < 1 || n > MAX_ITEMS / 2 || !mkdtemp(dir)) return 1;
    load_defaults(&lp);
    if (file_find_data("chimere-nano.gguf", model_path, sizeof model_path))
        snprintf(model_path, sizeof model_path, "%s", TEST_NANO);
    lp.path = model_path;
    lp.quiet = true;
    lp.plan.n_seq = N_THREAD;
    lp.plan.n_ctx = N_THREAD * 2048;
    if (load_open(&l, &lp, &e)) die(model_path, &e);
    struct ask_model model = {
        .m = l.model, .engine = l.engine, .tok = l.tok, .template = l.template, .n_seq = N_THREAD};
    struct ask_backend *plain;
    struct store *store;
    struct docs *docs;
    struct odo *all, *bare;
    struct tool_set *tools;
    snprintf(db, sizeof db, "%s/odo.db", dir);
    if (ask_local_new(&plain, &model, "nano", &e) || store_open(&store, db, &e) ||
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
    load_facts(&b, n);
    make_sums(&b, n);
    printf("%-34s  %-19s  %-19s  %7s  %s\n", "right, %", "withheld facts", "3-digit arithmetic",
           "ms/item", "against odo");
    b.plain = plain;
    row(&b, "chimere-nano alone", plain, NULL);
    row(&b, "odo", odo_find(all, "odo"), NULL);
    row(&b, "odo, documents off", odo_find(all, "odo"), "{\"odo\": {\"documents\": false}}");
    row(&b, "odo, tools off", odo_find(all, "odo"), "{\"odo\": {\"tools\": false}}");
    row(&b, "odo, the model judges nothing", odo_find(bare, "odo"), NULL);
    row(&b, "odo, dynamic Engram off", odo_find(all, "odo"),
        "{\"odo\": {\"dynamic_engram\": false}}");
    char embedder[4096];
    if (!file_find_data("all-minilm-l6-v2.gguf", embedder, sizeof embedder))
        meaning_rows(&b, &p, embedder, dir);
    else puts("skip: rows with vectors and examples, script/embedder");
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
