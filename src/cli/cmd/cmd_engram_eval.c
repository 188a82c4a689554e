/* cmd_engram_eval.c: chimere engram eval: measures the value of a table and fits the weights of its mixture. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cli/args/engram_args.h"
#include "engram/held.h"
#include "engram/ingest.h"
#include "eval/mixture.h"
#include "model/vocab.h"

/* One half of the documents of the given texts: one half to fit on, one to report on. */
struct half {
    struct mixture_doc *docs; /* owned [cap]; tokens owned */
    size_t n, cap, n_tok;
};

struct texts {
    struct half halves[2]; /* even documents, odd ones */
    size_t n_doc, n_known, n_held, limit;
    const struct engram_table *t;
    const uint64_t *known; /* borrowed, sorted: hashes of the table's documents */
    size_t n_table;
};

enum { FIT, REPORT, CTX = 512, N_SEQ = 8, N_BATCH = 512 };

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int take_doc(void *ud, const int32_t *ids, size_t n, struct err *e) {
    struct texts *t = ud;
    uint64_t hash = hash_bytes(ids, n * sizeof *ids, 0);
    if (bsearch(&hash, t->known, t->n_table, sizeof hash, by_value)) {
        t->n_known++; /* the table contains it: left out */
        return 0;
    }
    t->n_held += engram_is_held(t->t, ids, n);
    struct half *h = &t->halves[t->n_doc++ % 2];
    if (n < 2 || n > INT32_MAX || (t->limit && h->n_tok + n > t->limit)) return 0;
    if (h->n == h->cap) {
        size_t cap = h->cap ? 2 * h->cap : 64;
        struct mixture_doc *p = mem_realloc(h->docs, cap * sizeof *p);
        if (!p) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        h->docs = p;
        h->cap = cap;
    }
    int32_t *copy = mem_alloc(n * sizeof *copy);
    if (!copy) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    memcpy(copy, ids, n * sizeof *copy);
    h->docs[h->n++] = (struct mixture_doc){copy, (int32_t)n};
    h->n_tok += n;
    return 0;
}

static void texts_fini(struct texts *t) {
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < t->halves[k].n; i++)
            mem_free((int32_t *)t->halves[k].docs[i].tokens);
        mem_free(t->halves[k].docs);
    }
}

static int read_texts(const struct cfg *c, const char *option, const struct tok *tok,
                      struct texts *t, struct err *e) {
    const char *const *paths;
    size_t n = cfg_list(c, option, &paths);
    struct engram_ingest in = {.tok = tok, .take = take_doc, .ud = t};
    for (size_t i = 0; i < n; i++) {
        t->limit = (size_t)cfg_int(c, "eval-tokens") * (i + 1); /* each text adds its share */
        char **files;
        size_t n_file;
        int rc = engram_files(paths[i], &files, &n_file, e);
        for (size_t k = 0; k < n_file && !rc; k++)
            rc = engram_ingest_file(&in, files[k], SLICE(""), 0, e);
        engram_files_free(files, n_file);
        if (rc) return rc;
    }
    if (t->n_known)
        printf("--%s: %zu documents are in the table and are left out\n", option, t->n_known);
    if (t->n_held)
        fprintf(stderr,
                "warning: --%s: most of the text of %zu documents is in the table: the figures say "
                "how well it remembers them\n",
                option, t->n_held);
    return 0;
}

struct evaluation {
    const struct cfg *c;
    struct model *m;
    const struct engram_table *t;
    float weights[ENGRAM_N_FEATURE];
    bool fitted;
    struct mixture_points points[2][2]; /* [domain, other][fit, report] */
};

static int measure(struct evaluation *x, struct texts texts[2], struct err *e) {
    static const char *const what[] = {"domain", "other"};
    int rc = 0;
    for (int i = 0; i < 2; i++)
        for (int half = 0; half < 2 && !rc; half++) {
            const struct windows_params p = {.n_seq = N_SEQ,
                                             .n_batch = N_BATCH,
                                             .k_type = model_args_type(x->c, "cache-type-k"),
                                             .v_type = model_args_type(x->c, "cache-type-v"),
                                             .what = cfg_bool(x->c, "quiet") ? NULL : what[i]};
            struct half *h = &texts[i].halves[half];
            if (h->n)
                rc = mixture_measure(x->m, x->t, h->docs, h->n, CTX, &p, &x->points[i][half], e);
        }
    return rc;
}

static void print_row(const struct evaluation *x, const char *name,
                      const struct mixture_points *p) {
    if (!p->n) return;
    double without = exp(mixture_nll(p, x->weights, 0));
    double with = exp(mixture_nll(p, x->weights, 1));
    printf("%-14s %8zu %7.1f%% %10.3f %10.3f %+7.2f%%", name, p->n, 100 * mixture_known(p), without,
           with, 100 * (with / without - 1));
    for (int k = 0; k < 2; k++) {
        double former = exp(mixture_former_nll(p, k));
        printf("  %9.3f %+7.2f%%", former, 100 * (former / without - 1));
    }
    putchar('\n');
}

static const float alphas[] = {0, 0.0625f, 0.125f, 0.25f, 0.5f, 0.75f, 1, 1.5f, 2, 3, 4, 8};
enum { N_ALPHA = sizeof alphas / sizeof *alphas };

static void print_curve(const struct evaluation *x) {
    printf("\nalpha     domain      other\n");
    for (int i = 0; i < N_ALPHA; i++) {
        printf("%-6.4g", (double)alphas[i]);
        for (int k = 0; k < 2; k++)
            if (x->points[k][REPORT].n)
                printf(" %10.3f", exp(mixture_nll(&x->points[k][REPORT], x->weights, alphas[i])));
        putchar('\n');
    }
}

static int report(struct evaluation *x, const char *path, struct err *e) {
    struct engram_info info;
    engram_table_info(x->t, &info);
    bool fit = cfg_bool(x->c, "fit");
    int rc = 0;
    if (fit) rc = mixture_fit(&x->points[0][FIT], &x->points[1][FIT], x->weights, e);
    else if (info.n_weight == ENGRAM_N_FEATURE) memcpy(x->weights, info.weights, sizeof x->weights);
    else engram_default_weights(x->weights);
    if (rc) return rc;
    printf("%-14s %8s %8s %10s %10s %8s  %18s  %18s\n", "perplexity", "tokens", "known", "without",
           "with", "", "former, alpha 0.1", "former, alpha 0.35");
    print_row(x, "domain", &x->points[0][REPORT]);
    print_row(x, "other", &x->points[1][REPORT]);
    print_curve(x);
    if (!fit) return 0;
    printf("\nweights");
    for (int i = 0; i < ENGRAM_N_FEATURE; i++) printf(" %.4g", (double)x->weights[i]);
    putchar('\n');
    rc = engram_table_set_weights(path, x->weights, ENGRAM_N_FEATURE, e);
    if (!rc) printf("%s: weights written\n", path);
    return rc;
}

/* Returns the number of the table's documents and their sorted hashes in *out, freed with mem_free. */
static size_t known_docs(const struct engram_table *t, uint64_t **out) {
    struct engram_info info;
    struct engram_doc d;
    engram_table_info(t, &info);
    *out = mem_alloc_array((size_t)info.n_doc + 1, sizeof **out);
    uint32_t n = 0;
    while (*out && engram_table_doc(t, n, &d)) (*out)[n++] = d.hash;
    if (n) qsort(*out, n, sizeof **out, by_value);
    return n;
}

int engram_eval(const struct cfg *c, struct err *e) {
    struct evaluation x = {.c = c};
    struct engram_table *t = NULL;
    struct dev *dev = NULL;
    struct tok *tok = NULL;
    struct texts texts[2] = {{.t = NULL}, {.t = NULL}};
    uint64_t *known = NULL;
    char path[4096];
    if (!cfg_pos(c, 1)) return err_set(e, CHIMERE_EINVAL, "eval: expected a table");
    const char *const *list;
    if (!cfg_list(c, "in", &list) && !cfg_list(c, "other", &list))
        return err_set(
            e, CHIMERE_EINVAL,
            "eval: expected text to measure: --in TEXT of the table's domain, --other TEXT");
    int rc = engram_args_table(c, cfg_pos(c, 1), path, sizeof path, e);
    struct plan_params want = model_args_want(c, CTX, N_SEQ, N_BATCH);
    if (!rc) rc = model_args_open_planned(c, &want, NULL, &dev, &x.m, e);
    if (rc) return rc;
    rc = vocab_load(&tok, x.m->gguf, e);
    if (!rc) rc = engram_table_open(&t, path, tok_hash(tok), tok_n_vocab(tok), e);
    if (!rc) {
        x.t = texts[0].t = texts[1].t = t;
        texts[0].n_table = texts[1].n_table = known_docs(t, &known);
        texts[0].known = texts[1].known = known;
        rc = read_texts(c, "in", tok, &texts[0], e);
    }
    if (!rc) rc = read_texts(c, "other", tok, &texts[1], e);
    if (!rc) rc = measure(&x, texts, e);
    if (!rc) rc = report(&x, path, e);
    for (int i = 0; i < 2; i++) {
        mixture_points_fini(&x.points[i][FIT]);
        mixture_points_fini(&x.points[i][REPORT]);
        texts_fini(&texts[i]);
    }
    mem_free(known);
    engram_table_close(t);
    tok_free(tok);
    model_close(x.m);
    dev->ops->close(dev);
    return rc;
}
