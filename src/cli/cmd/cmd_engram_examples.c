/* cmd_engram_examples.c: chimere engram examples: validated answers per domain, found by the similarity of their
 * meaning. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/args/engram_args.h"
#include "cli/args/odo_args.h"
#include "engram/examples.h"
#include "backend/embed/embed.h"
#include "model/vocab.h"

struct rig {
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    struct embed *embed;
    struct store *store;
    struct examples *examples;
    float *vec; /* owned [embed_size] */
};

static void rig_close(struct rig *r) {
    examples_close(r->examples);
    store_close(r->store);
    embed_close(r->embed);
    tok_free(r->tok);
    model_close(r->m);
    if (r->dev) r->dev->ops->close(r->dev);
    mem_free(r->vec);
}

static int find_embedder(const struct cfg *c, char *path, size_t size, struct err *e) {
    const char *given = cfg_str(c, "embedding-model");
    static const char *const names[] = {"all-minilm-l6-v2.gguf", "models/all-minilm-l6-v2.gguf"};
    if (given && (size_t)snprintf(path, size, "%s", given) >= size)
        return err_set(e, CHIMERE_ELIMIT, "--embedding-model: path is too long");
    if (given) return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (file_find_data(names[i], path, size) == 0) return 0;
    err_set(e, CHIMERE_ENOENT, "no embedding model given, and all-minilm-l6-v2.gguf was not found");
    err_hint(e, "script/embedder installs it; or --embedding-model FILE");
    return CHIMERE_ENOENT;
}

static int rig_open(struct rig *r, const struct cfg *c, struct err *e) {
    char path[4096];
    int rc = find_embedder(c, path, sizeof path, e);
    if (!rc) rc = cpu_open(&r->dev, (int)cfg_int(c, "threads"), model_args_isa(c), e);
    if (!rc) rc = model_open(&r->m, path, r->dev, true, e);
    if (!rc) rc = vocab_load(&r->tok, r->m->gguf, e);
    if (!rc) rc = embed_open(&r->embed, r->m, r->tok, 0, e);
    if (!rc) rc = odo_args_store(c, &r->store, e);
    if (!rc) rc = examples_open(&r->examples, r->store, r->m->hash, embed_size(r->embed), e);
    if (!rc && !(r->vec = mem_alloc_array((size_t)embed_size(r->embed), sizeof *r->vec)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    return rc;
}

static int domain_of(const struct cfg *c, const char **domain, struct err *e) {
    *domain = cfg_str(c, "domain");
    return *domain ? 0 : err_set(e, CHIMERE_EINVAL, "examples: --domain NAME is missing");
}

static int embed_question(struct rig *r, const char *text, struct err *e) {
    int32_t n_tok;
    bool cut;
    return embed_text(r->embed, text, strlen(text), true, r->vec, &n_tok, &cut, e);
}

/* ---- add ---- */

static const char *string_of(const json_t *row, const char *a, const char *b) {
    const char *s = json_string_value(json_object_get(row, a));
    return s ? s : json_string_value(json_object_get(row, b));
}

/* BATCH: examples that are added in one transaction. */
enum { BATCH = 512, MAX_FILE = 1 << 30 };

struct adding {
    struct rig *r;
    const struct cfg *c;
    const char *domain;
    int64_t at_ms;
    /* the lines are only checked, so that an invalid one is found before any is added */
    bool is_check;
    struct store_example rows[BATCH]; /* texts: views of json */
    json_t *json[BATCH];              /* owned references [n] */
    float *vecs;                      /* owned [BATCH, embed_size] */
    int64_t ids[BATCH];
    size_t n;
    uint64_t n_line, n_added;
};

static int add_batch(struct adding *a, struct err *e) {
    int rc = a->n ? examples_add(a->r->examples, a->rows, a->n, a->vecs, a->ids, e) : 0;
    if (!rc) a->n_added += a->n;
    for (size_t i = 0; i < a->n; i++) json_decref(a->json[i]);
    a->n = 0;
    return rc;
}

/* Adds one line of a file: {"question" or "q", "answer" or "a", "score", "source"}. Takes ownership of row. */
static int add_line(struct adding *a, json_t *row, struct err *e) {
    struct store_example x = {.domain = a->domain,
                              .question = string_of(row, "question", "q"),
                              .answer = string_of(row, "answer", "a"),
                              .source = string_of(row, "source", "source"),
                              .score = json_number_value(json_object_get(row, "score")),
                              .at_ms = a->at_ms};
    if (!x.source) x.source = cfg_str(a->c, "source");
    int rc =
        x.question && x.answer
            ? examples_check(&x, e)
            : err_set(e, CHIMERE_EFORMAT,
                      "expected an object with \"question\" and \"answer\", or \"q\" and \"a\"");
    if (rc || a->is_check) {
        a->n_line++;
        json_decref(row);
        return rc;
    }
    rc = embed_question(a->r, x.question, e);
    if (rc) {
        json_decref(row);
        return rc;
    }
    size_t size = (size_t)embed_size(a->r->embed);
    memcpy(a->vecs + a->n * size, a->r->vec, size * sizeof *a->vecs);
    a->rows[a->n] = x;
    a->json[a->n++] = row;
    progress_step(a->n_added + a->n);
    return a->n == BATCH ? add_batch(a, e) : 0;
}

static int add_text(struct adding *a, const char *path, const char *text, size_t size,
                    struct err *e) {
    uint64_t number = 0;
    int rc = 0;
    for (const char *p = text, *end = text + size; p < end && !rc;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((stop ? stop : end) - p);
        number++;
        if (len > 1) {
            json_t *row = json_loadb(p, len, 0, NULL);
            rc = row ? add_line(a, row, e) : err_set(e, CHIMERE_EFORMAT, "expected a JSON object");
            if (rc) err_prefix(e, "%s:%" PRIu64, path, number);
        }
        p += len + 1;
    }
    return rc;
}

/* The inputs that the arguments name, in order; standard input can be read only once. */
struct input {
    char *text; /* owned */
    size_t n;
};

static int read_inputs(const struct cfg *c, struct input *in, struct err *e) {
    int rc = 0;
    for (int i = 2; !rc && cfg_pos(c, i); i++)
        rc = file_read(cfg_pos(c, i), MAX_FILE, &in[i - 2].text, &in[i - 2].n, e);
    return rc;
}

static int add_inputs(struct adding *a, const struct input *in, struct err *e) {
    int rc = 0;
    for (int i = 2; !rc && cfg_pos(a->c, i); i++)
        rc = add_text(a, cfg_pos(a->c, i), in[i - 2].text, in[i - 2].n, e);
    return rc;
}

static int add_all(struct rig *r, const struct cfg *c, struct adding *a, const struct input *in,
                   struct err *e) {
    a->r = r;
    a->c = c;
    a->is_check = true;
    int rc = engram_args_date(c, &a->at_ms, e);
    a->at_ms *= 1000;
    if (!rc) rc = add_inputs(a, in, e);
    if (!rc) rc = rig_open(r, c, e);
    if (!rc && !(a->vecs = mem_alloc_array(BATCH * (size_t)embed_size(r->embed), sizeof(float))))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    int64_t start = clock_ns();
    a->is_check = false;
    if (!rc && !cfg_bool(c, "quiet")) progress_begin("examples", a->n_line, false);
    if (!rc) {
        rc = add_inputs(a, in, e);
        int last = add_batch(a, rc ? NULL : e); /* examples added before a failure are kept */
        progress_end();
        if (!rc) rc = last;
    }
    /* A search builds the index of a large domain and stores its centres, so that the first request need not do
     * it. */
    struct examples_hits h = {.n = 0};
    if (!rc && a->n_added) rc = examples_search(r->examples, a->domain, r->vec, 1, -1, &h, e);
    examples_hits_fini(&h);
    if (!rc)
        printf("%s: %" PRIu64 " examples added in %.1f s\n", a->domain, a->n_added,
               clock_ms_since(start) * 1e-3);
    return rc;
}

static int run_add(struct rig *r, const struct cfg *c, struct err *e) {
    struct adding *a = mem_zalloc(sizeof *a);
    size_t n_in = 0;
    while (cfg_pos(c, (int)n_in + 2)) n_in++;
    struct input *in = mem_alloc_array(n_in + 1, sizeof *in);
    int rc = a && in ? domain_of(c, &a->domain, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && !n_in)
        rc = err_set(e, CHIMERE_EINVAL, "examples add: expected files of JSON lines, or -");
    if (!rc) rc = read_inputs(c, in, e);
    if (!rc) rc = add_all(r, c, a, in, e);
    for (size_t i = 0; in && i < n_in; i++) mem_free(in[i].text);
    mem_free(in);
    if (a) mem_free(a->vecs);
    mem_free(a);
    return rc;
}
/* ---- search, list, remove ---- */

static json_t *hit_json(const struct examples_hit *h) {
    return json_pack("{s:I, s:f, s:s, s:s, s:s, s:f, s:I}", "id", (json_int_t)h->id, "nearness",
                     round((double)h->nearness * 1e6) * 1e-6, "question", h->question, "answer",
                     h->answer, "source", h->source, "score", h->score, "at_ms",
                     (json_int_t)h->at_ms);
}

static int print_json(json_t *o, struct err *e) {
    int rc = json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(7)) || putchar('\n') < 0
                 ? err_set(e, CHIMERE_EIO, "standard output: cannot write")
                 : 0;
    json_decref(o);
    return rc;
}

static int run_search(struct rig *r, const struct cfg *c, struct err *e) {
    const char *domain, *text = cfg_pos(c, 2);
    struct examples_hits h = {.n = 0};
    int rc = domain_of(c, &domain, e);
    if (!rc && !text) rc = err_set(e, CHIMERE_EINVAL, "examples search: expected a question");
    if (!rc) rc = rig_open(r, c, e);
    if (!rc) rc = embed_question(r, text, e);
    if (!rc)
        rc = examples_search(r->examples, domain, r->vec, (int32_t)cfg_int(c, "n"),
                             (float)cfg_float(c, "least"), &h, e);
    for (int32_t i = 0; i < h.n && !rc; i++) {
        if (cfg_bool(c, "json")) rc = print_json(hit_json(&h.v[i]), e);
        else
            printf("%.3f  [%" PRId64 "] %s\n       %s\n", (double)h.v[i].nearness, h.v[i].id,
                   h.v[i].question, h.v[i].answer);
    }
    if (!rc && !h.n && !cfg_bool(c, "json")) puts("nothing as near as that");
    examples_hits_fini(&h);
    return rc;
}

static int print_row(void *ud, const struct store_example *x) {
    if (*(const bool *)ud) {
        struct err e;
        return print_json(json_pack("{s:I, s:s, s:s, s:s, s:s, s:f, s:I}", "id", (json_int_t)x->id,
                                    "domain", x->domain, "question", x->question, "answer",
                                    x->answer, "source", x->source, "score", x->score, "at_ms",
                                    (json_int_t)x->at_ms),
                          &e);
    }
    printf("%6" PRId64 "  %-12s %s\n", x->id, x->domain, x->question);
    return 0;
}

static int run_list(struct rig *r, const struct cfg *c, struct err *e) {
    bool json = cfg_bool(c, "json");
    int rc = odo_args_store(c, &r->store, e);
    return rc ? rc : store_example_list(r->store, cfg_str(c, "domain"), print_row, &json, e);
}

static int run_remove(struct rig *r, const struct cfg *c, struct err *e) {
    const char *domain;
    int64_t id;
    int n = 0, rc = domain_of(c, &domain, e);
    if (!rc && !cfg_pos(c, 2)) rc = err_set(e, CHIMERE_EINVAL, "examples remove: expected ids");
    if (!rc) rc = odo_args_store(c, &r->store, e);
    for (int i = 2; !rc && cfg_pos(c, i); i++, n++) {
        if (!str_to_i64(cfg_pos(c, i), 1, INT64_MAX, &id))
            rc = err_set(e, CHIMERE_EINVAL, "examples remove: expected a number, got '%.40s'",
                         cfg_pos(c, i));
        if (!rc) rc = store_example_remove(r->store, domain, id, e);
    }
    if (!rc) printf("%s: %d removed\n", domain, n);
    return rc;
}

static const struct {
    const char *name;
    int (*run)(struct rig *r, const struct cfg *c, struct err *e);
} actions[] = {
    {"add", run_add}, {"search", run_search}, {"list", run_list}, {"remove", run_remove}};

int engram_examples(const struct cfg *c, struct err *e) {
    const char *name = cfg_pos(c, 1) ? cfg_pos(c, 1) : "";
    struct rig r = {.dev = NULL};
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(actions[i].name, name) != 0) continue;
        int rc = actions[i].run(&r, c, e);
        rig_close(&r);
        return rc;
    }
    return err_set(e, CHIMERE_EINVAL, "examples: expected add, search, list or remove, got '%.40s'",
                   name);
}
