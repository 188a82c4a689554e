/* cmd_engram_examples.c: chimere engram examples: validated answers by domain, found by nearness of meaning. */
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
#include "cli/engram_args.h"
#include "engram/examples.h"
#include "eval/embed.h"
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

static int open_store(struct rig *r, const struct cfg *c, struct err *e) {
    char path[4096];
    const char *given = cfg_str(c, "db");
    int rc = given ? 0 : file_user_data("chimere.db", path, sizeof path, e);
    return rc ? rc : store_open(&r->store, given ? given : path, e);
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
    if (!rc) rc = open_store(r, c, e);
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

/* One line of a file: {"question" or "q", "answer" or "a", "score", "source"}. */
static int add_line(struct rig *r, const struct cfg *c, const char *domain, const json_t *row,
                    struct err *e) {
    struct store_example x = {.domain = domain,
                              .question = string_of(row, "question", "q"),
                              .answer = string_of(row, "answer", "a"),
                              .source = string_of(row, "source", "source"),
                              .score = json_number_value(json_object_get(row, "score"))};
    int64_t id;
    if (!x.question || !x.answer)
        return err_set(e, CHIMERE_EFORMAT,
                       "expected an object with \"question\" and \"answer\", or \"q\" and \"a\"");
    if (!x.source) x.source = cfg_str(c, "source");
    int rc = engram_args_date(c, &x.at_ms, e);
    x.at_ms *= 1000;
    if (!rc) rc = embed_question(r, x.question, e);
    return rc ? rc : examples_add(r->examples, &x, r->vec, &id, e);
}

static int add_file(struct rig *r, const struct cfg *c, const char *domain, const char *path,
                    uint64_t *n, struct err *e) {
    enum { MAX_FILE = 1 << 30 };
    char *text;
    size_t size;
    uint64_t number = 0;
    int rc = file_read(path, MAX_FILE, &text, &size, e);
    if (rc) return rc;
    for (const char *p = text, *end = text + size; p < end && !rc;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((stop ? stop : end) - p);
        number++;
        if (len > 1) {
            json_t *row = json_loadb(p, len, 0, NULL);
            rc = row ? add_line(r, c, domain, row, e)
                     : err_set(e, CHIMERE_EFORMAT, "expected a JSON object");
            json_decref(row);
            if (rc) err_prefix(e, "%s:%" PRIu64, path, number);
            else ++*n;
        }
        p += len + 1;
    }
    mem_free(text);
    return rc;
}

static int run_add(struct rig *r, const struct cfg *c, struct err *e) {
    const char *domain;
    uint64_t n = 0;
    int rc = domain_of(c, &domain, e);
    if (!rc && !cfg_pos(c, 2))
        rc = err_set(e, CHIMERE_EINVAL, "examples add: expected files of JSON lines, or -");
    if (!rc) rc = rig_open(r, c, e);
    int64_t start = clock_ns();
    for (int i = 2; !rc && cfg_pos(c, i); i++) rc = add_file(r, c, domain, cfg_pos(c, i), &n, e);
    /* a search makes the index of a large domain and keeps its centres: here and not at a request */
    struct examples_hits h = {.n = 0};
    if (!rc && n && engram_vec_is_built_in())
        rc = examples_search(r->examples, domain, r->vec, 1, -1, &h, e);
    examples_hits_fini(&h);
    if (!rc)
        printf("%s: %" PRIu64 " examples added in %.1f s\n", domain, n,
               clock_ms_since(start) * 1e-3);
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
    int rc = open_store(r, c, e);
    return rc ? rc : store_example_list(r->store, cfg_str(c, "domain"), print_row, &json, e);
}

static int run_remove(struct rig *r, const struct cfg *c, struct err *e) {
    const char *domain;
    int64_t id;
    int n = 0, rc = domain_of(c, &domain, e);
    if (!rc && !cfg_pos(c, 2)) rc = err_set(e, CHIMERE_EINVAL, "examples remove: expected ids");
    if (!rc) rc = open_store(r, c, e);
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
