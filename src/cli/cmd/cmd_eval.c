/* cmd_eval.c: exact-match evaluation of skills, comparison of two runs, bits per byte of a text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/args/chat_args.h"
#include "cli/args/engram_args.h"
#include "cli/eval_code.h"
#include "cli/eval_remote.h"
#include "cli/args/odo_args.h"
#include "cli/eval_strategy.h"
#include "strategy/reward.h"
#include "backend/request.h"
#include "engine/plan.h"
#include "engram/held.h"
#include "eval/harness.h"
#include "eval/perplexity.h"
#include "model/vocab.h"

const struct cfg_opt eval_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    ENGINE_OPTIONS,
    LLAMA_OPTIONS,
    ENGRAM_OPTIONS,
    REMOTE_OPTIONS,
    {"suite", 0, CFG_LIST, "S", NULL, 0, 0, NULL,
     "a skill, ten, a file of items or a folder of them; may be repeated (default: all skills)"},
    {"n", 'n', CFG_INT, "N", "0", 0, EVAL_MAX_ITEMS, NULL, "items of each skill; 0: all"},
    {"parallel", 0, CFG_INT, "N", "8", 1, ENGINE_MAX_SEQS, NULL, "concurrent answers"},
    {"strategy", 0, CFG_STR, "S", NULL, 0, 0, NULL,
     "how items are answered: [MODE+]NAME[:KEY=VALUE,...], e.g. quality, majority:n=8"},
    {"think", 0, CFG_STR, "JSON", NULL, 0, 0, NULL,
     "with --strategy: the field think of a request, a mode or an object"},
    {"seed", 0, CFG_INT, "N", "0", 0, 1 << 30, NULL, "seed of a strategy that samples"},
    {"prm", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "with --strategy: process reward model that scores steps (default: the model itself)"},
    {"json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "print the run as JSON, to be stored and compared"},
    {"compare", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "compare two saved runs: A.json B.json"},
    {"text", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "bits per byte of a text instead"},
    {0}};

/* ---- suites ---- */

/* Loads a path, or a skill of the shipped folder. */
static int load_suite(json_t *items, const char *suite, size_t n, struct err *e) {
    char path[4096], name[512];
    bool known = file_exists(suite);
    if (known) snprintf(path, sizeof path, "%s", suite);
    snprintf(name, sizeof name, "eval/%s.jsonl", suite);
    if (!known && !strchr(suite, '/') && file_find_data(name, path, sizeof path) == 0) known = true;
    /* suites that are not part of the default run */
    snprintf(name, sizeof name, "eval/%s/%s.jsonl", suite, suite);
    if (!known && (strchr(suite, '/') || file_find_data(name, path, sizeof path) != 0)) {
        err_set(e, CHIMERE_ENOENT, "--suite: no skill, file or folder named '%s'", suite);
        err_hint(e, "skills are the files of the folder eval, without .jsonl");
        return CHIMERE_ENOENT;
    }
    if (fs_is_folder(path)) return eval_load_folder(items, path, n, NULL, e);
    return eval_load(items, path, n, NULL, e);
}

static int load_items(const struct cfg *c, json_t *items, struct err *e) {
    const char *const *suites;
    size_t n_suite = cfg_list(c, "suite", &suites), n = (size_t)cfg_int(c, "n");
    char path[4096];
    if (!n_suite) {
        if (file_find_data("eval/add_sub.jsonl", path, sizeof path) != 0) {
            err_set(e, CHIMERE_ENOENT, "the folder eval with the items was not found");
            err_hint(e, "give a folder or file with --suite");
            return CHIMERE_ENOENT;
        }
        *strrchr(path, '/') = 0;
        return eval_load_folder(items, path, n, NULL, e);
    }
    int rc = 0;
    for (size_t i = 0; i < n_suite && !rc; i++) rc = load_suite(items, suites[i], n, e);
    return rc;
}

/* ---- skills ---- */

static double real(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}
static long long whole(const json_t *o, const char *key) {
    return (long long)json_integer_value(json_object_get(o, key));
}

static void print_row(const char *name, const json_t *o) {
    printf("%-18s %6lld %7.1f%%   %5.1f .. %5.1f%%", name, whole(o, "n"), 100 * real(o, "score"),
           100 * real(o, "low"), 100 * real(o, "high"));
    if (json_object_get(o, "valid")) printf(" %7.1f%%", 100 * real(o, "valid"));
    putchar('\n');
}

static void print_run(const json_t *run) {
    json_t *row;
    size_t i;
    printf("%-18s %6s %8s   %-16s %8s\n", "skill", "items", "score", "95% interval", "valid");
    json_array_foreach(json_object_get(run, "skills"), i, row) {
        print_row(json_string_value(json_object_get(row, "skill")), row);
    }
    const json_t *total = json_object_get(run, "total");
    print_row("all", total);
    if (!json_object_get(total, "strategy")) return;
    printf(
        "\n%s: an item took %.1f tokens, %.1f of them thinking, %.1f checking; %.0f ms of %.1f s\n",
        json_string_value(json_object_get(total, "strategy")), real(total, "n_tokens"),
        real(total, "n_thinking"), real(total, "n_check"), real(total, "ms"),
        real(total, "seconds"));
}

struct eval_rig {
    struct chat_rig r;
    const struct cfg *c;
};

static int remember(void *ud, const json_t *messages, struct ngram_memory **out, struct err *e) {
    struct eval_rig *x = ud;
    return chat_rig_memory(&x->r, x->c, messages, out, e);
}

/* Returns the number of items whose question is in the table. */
static size_t count_held(const struct engram_table *t, const struct tok *tok, const json_t *items) {
    size_t i, n_held = 0;
    json_t *item;
    json_array_foreach((json_t *)items, i, item) {
        int32_t *ids = NULL;
        size_t n = 0;
        char *text = request_question(json_object_get(item, "messages"), &(bool){false});
        if (text && !tok_encode(tok, text, strlen(text), false, false, &ids, &n, NULL))
            n_held += engram_is_held(t, ids, n);
        mem_free(ids);
        mem_free(text);
    }
    return n_held;
}

/* Warns about tables that contain the items themselves. */
static int warn_held(const struct cfg *c, const struct tok *tok, const json_t *items,
                     struct err *e) {
    const char *const *tables;
    size_t n = cfg_list(c, "engram", &tables);
    char path[4096];
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        struct engram_table *t = NULL;
        rc = engram_args_table(c, tables[i], path, sizeof path, e);
        if (!rc) rc = engram_table_open(&t, path, tok_hash(tok), tok_n_vocab(tok), e);
        size_t n_held = rc ? 0 : count_held(t, tok, items);
        if (n_held)
            fprintf(stderr,
                    "warning: --engram %s: the table contains the questions of %zu of %zu items: "
                    "the score says how well it remembers them\n",
                    tables[i], n_held, json_array_size(items));
        engram_table_close(t);
    }
    return rc;
}

static int encode(void *ud, json_t *messages, json_t *tools, bool think, int32_t **ids, size_t *n,
                  struct err *e) {
    bool in_think;
    return chat_rig_encode(&((struct eval_rig *)ud)->r, messages, tools, think, ids, n, &in_think,
                           e);
}

static int print_result(const struct cfg *c, json_t *o, void (*print)(const json_t *),
                        struct err *e) {
    int rc = 0;
    if (!cfg_bool(c, "json")) print(o);
    else if (json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) || putchar('\n') < 0)
        rc = err_set(e, CHIMERE_EIO, "standard output: cannot write");
    json_decref(o);
    return rc;
}

/* Returns the number of workers: enough that the slots are never idle, but so few that the engine's queue can hold
 * all their requests. */
static int32_t n_worker(const struct strategy *s, int32_t n_seq) {
    int32_t n = 2 * n_seq / (s->n > 0 ? s->n : 1), most = 192 / (s->n > 0 ? s->n : 1);
    if (n > most) n = most;
    return n < 2 ? 2 : n;
}

static int eval_skills(const struct cfg *c, struct err *e) {
    struct eval_rig x = {.c = c};
    struct eval_strategy way = {.seed = 0};
    struct encoder_rig scorer = {.dev = NULL};
    struct reward *prm = NULL;
    struct chat_rig *r = &x.r;
    json_t *items = json_array(), *run;
    bool by_strategy = cfg_str(c, "strategy") || cfg_str(c, "think") || cfg_str(c, "prm");
    int rc = by_strategy ? eval_strategy_init(&way, cfg_str(c, "strategy"), cfg_str(c, "think"),
                                              (uint64_t)cfg_int(c, "seed"), e)
                         : 0;
    if (!rc) rc = load_items(c, items, e);
    int32_t n_seq = (int32_t)cfg_int(c, "parallel");
    if (!rc && by_strategy) rc = odo_args_prm(c, &scorer, &prm, e);
    way.verifier = prm;
    if (!rc) rc = chat_rig_open(r, c, n_seq, e);
    if (!rc) {
        rc = warn_held(c, r->tok, items, e);
        if (!rc && by_strategy) rc = eval_strategy_open(&way, r, n_seq, e);
        const struct eval_host by = {.answer = eval_strategy_answer,
                                     .ud = &way,
                                     .n_worker = n_worker(&way.strategy, n_seq),
                                     .strategy = way.name,
                                     .judge = eval_code_judge,
                                     .what = cfg_bool(c, "quiet") ? NULL : "eval"};
        const struct eval_host h = {.engine = r->engine,
                                    .tok = r->tok,
                                    .encode = encode,
                                    .remember = remember,
                                    .ud = &x,
                                    .judge = eval_code_judge,
                                    .n_seq = n_seq,
                                    .what = cfg_bool(c, "quiet") ? NULL : "eval"};
        if (!rc) rc = eval_run(&run, items, by_strategy ? &by : &h, r->loaded.name, e);
        if (!rc) rc = print_result(c, run, print_run, e);
        eval_strategy_fini(&way);
        chat_rig_close(r);
    } else {
        eval_strategy_fini(&way);
    }
    reward_close(prm);
    encoder_rig_close(&scorer);
    json_decref(items);
    return rc;
}

/* Runs the same items on a running server. */
static int eval_endpoint(const struct cfg *c, struct err *e) {
    struct eval_remote x;
    json_t *items = json_array(), *run;
    int rc = cfg_str(c, "strategy") || cfg_str(c, "think") || cfg_str(c, "prm")
                 ? err_set(e, CHIMERE_EINVAL,
                           "--strategy, --think and --prm need a local model, not --url")
                 : load_items(c, items, e);
    if (!rc) rc = eval_remote_open(&x, c, e);
    if (!rc) {
        const struct eval_host h = {.answer = eval_remote_answer,
                                    .ud = &x,
                                    .judge = eval_code_judge,
                                    .n_worker = (int32_t)cfg_int(c, "parallel"),
                                    .strategy = "endpoint",
                                    .what = cfg_bool(c, "quiet") ? NULL : "eval"};
        rc = eval_run(&run, items, &h, x.remote.model, e);
        if (!rc) rc = print_result(c, run, print_run, e);
    }
    json_decref(items);
    return rc;
}

/* ---- two runs ---- */

static void print_pair(const char *name, const json_t *o) {
    printf("%-18s %6lld %7.1f%% %7.1f%% %7lld %7lld   %.4f\n", name, whole(o, "n"),
           100 * real(o, "a"), 100 * real(o, "b"), whole(o, "only_a"), whole(o, "only_b"),
           real(o, "p"));
}

static void print_compare(const json_t *o) {
    json_t *row;
    size_t i;
    printf("%-18s %6s %8s %8s %7s %7s   %s\n", "right", "items", "A", "B", "only A", "only B",
           "p (McNemar)");
    json_array_foreach(json_object_get(o, "skills"), i, row) {
        print_pair(json_string_value(json_object_get(row, "skill")), row);
    }
    const json_t *total = json_object_get(o, "total");
    print_pair("all", total);
    printf("\nB - A: %+.2f points, 95%% interval %+.2f .. %+.2f\n", 100 * real(total, "gain"),
           100 * real(total, "low"), 100 * real(total, "high"));
    static const char *const costs[] = {"tokens", "thinking"};
    for (int k = 0; k < 2; k++) {
        const json_t *x = json_object_get(total, costs[k]);
        if (x)
            printf("%s an item: %.1f, %.1f: %.1f%% fewer, %.1f .. %.1f%%\n", costs[k], real(x, "a"),
                   real(x, "b"), 100 * real(x, "saved"), 100 * real(x, "low"),
                   100 * real(x, "high"));
    }
}

static int load_run(const char *path, json_t **run, struct err *e) {
    char *text;
    size_t n;
    int rc = file_read(path, EVAL_MAX_FILE, &text, &n, e);
    if (rc) return rc;
    *run = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    mem_free(text);
    return *run ? 0 : err_set(e, CHIMERE_EFORMAT, "%s: expected a run saved by eval --json", path);
}

static int compare(const struct cfg *c, struct err *e) {
    json_t *a = NULL, *b = NULL, *out = NULL;
    if (cfg_n_pos(c) != 2) return err_set(e, CHIMERE_EINVAL, "--compare: expected A.json B.json");
    int rc = load_run(cfg_pos(c, 0), &a, e);
    if (!rc) rc = load_run(cfg_pos(c, 1), &b, e);
    if (!rc) rc = eval_compare(&out, a, b, e);
    if (!rc) rc = print_result(c, out, print_compare, e);
    json_decref(a);
    json_decref(b);
    return rc;
}

/* ---- a text ---- */

static void print_bits(const json_t *o) {
    printf("bits per byte  %.4f\nperplexity     %.4f\nscored         %lld tokens, %lld bytes\n",
           real(o, "bits_per_byte"), real(o, "ppl"), whole(o, "n_tokens"), whole(o, "n_bytes"));
}

enum { TEXT_CTX = 2048 }; /* tokens of a window at most, if not given */

static int text_bits(const struct cfg *c, struct err *e) {
    struct dev *dev = NULL;
    struct model *m = NULL;
    struct tok *tok = NULL;
    struct text_bits t = {0};
    char *text;
    size_t n;
    int rc = file_read(cfg_str(c, "text"), WINDOWS_MAX_TEXT, &text, &n, e);
    if (rc) return rc;
    int32_t ctx = (int32_t)cfg_int(c, "ctx"), n_batch = (int32_t)cfg_int(c, "batch");
    struct plan_params want =
        model_args_want(c, ctx ? ctx : TEXT_CTX, (int32_t)cfg_int(c, "parallel"),
                        n_batch ? n_batch : PLAN_DEVICE_BATCH);
    rc = model_args_open_planned(c, &want, NULL, &dev, &m, e);
    if (!rc) {
        if (!ctx) ctx = m->hp.n_ctx_train < TEXT_CTX ? m->hp.n_ctx_train : TEXT_CTX;
        const struct windows_params p = {.n_seq = (int32_t)cfg_int(c, "parallel"),
                                         .n_batch = plan_batch(dev, n_batch),
                                         .k_type = model_args_type(c, "cache-type-k"),
                                         .v_type = model_args_type(c, "cache-type-v"),
                                         .what = cfg_bool(c, "quiet") ? NULL : "bits per byte"};
        rc = vocab_load(&tok, m->gguf, e);
        if (!rc) rc = perplexity_bits(m, tok, text, n, ctx, &p, &t, e);
        tok_free(tok);
        model_close(m);
        dev->ops->close(dev);
    }
    mem_free(text);
    if (rc) return rc;
    return print_result(c,
                        json_pack("{s:f, s:f, s:I, s:I}", "bits_per_byte", t.bits_per_byte, "ppl",
                                  t.ppl, "n_tokens", (json_int_t)t.n_tok, "n_bytes",
                                  (json_int_t)t.n_bytes),
                        print_bits, e);
}

int cmd_eval(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, eval_options,
                   "usage: chimere eval [-m FILE | --url URL] [--suite S] [-n N] [--json]\n"
                   "       chimere eval --compare A.json B.json\n"
                   "       chimere eval [-m FILE] --text FILE",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    int rc = cfg_bool(c, "compare") ? compare(c, &e)
             : cfg_str(c, "text")   ? text_bits(c, &e)
             : cfg_str(c, "url")    ? eval_endpoint(c, &e)
                                    : eval_skills(c, &e);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
