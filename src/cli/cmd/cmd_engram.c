/* cmd_engram.c: n-gram memory: builds tables from texts, and works with tables. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/os/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/args/engram_args.h"
#include "engram/ingest.h"
#include "engram/revise.h"
#include "model/vocab.h"

const struct cfg_opt engram_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    {"out", 'o', CFG_STR, "TABLE", NULL, 0, 0, NULL, "table to write"},
    {"engram-dir", 0, CFG_STR, "DIR", NULL, 0, 0, NULL,
     "folder of tables given by name (default: engram in the user's data directory)"},
    {"memory", 0, CFG_BYTES, "SIZE", "256M", 0, 0, NULL, "memory for sorting"},
    {"source", 0, CFG_STR, "ID", NULL, 0, 0, NULL,
     "build: name of the texts' source (default: their paths); forget: source whose texts are "
     "removed; examples add: who validated them"},
    {"date", 0, CFG_STR, "DATE", NULL, 0, 0, NULL,
     "build: time stamp of the texts (default: of the files); decay: the day (default: today)"},
    {"half-life", 0, CFG_STR, "T", "30d", 0, 0, NULL,
     "decay: age at which a text has half its weight"},
    {"drop", 0, CFG_STR, "T", "90d", 0, 0, NULL, "decay: age at which a text is removed"},
    {"domain", 0, CFG_STR, "NAME", NULL, 0, 0, NULL,
     "sync: name of the table; examples: of the domain"},
    {"n", 'n', CFG_INT, "N", "5", 1, 64, NULL,
     "query: continuations to show; examples search: nearest examples to show"},
    {"json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "stats, query, examples: print JSON"},
    {"db", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "examples: database (default: chimere.db in the user's data directory)"},
    {"embedding-model", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "examples: embedding model (default: all-minilm-l6-v2.gguf, if installed)"},
    {"least", 0, CFG_FLOAT, "X", "-1", -1, 1, NULL,
     "examples search: minimum similarity to be shown"},
    {"in", 0, CFG_LIST, "FILE", NULL, 0, 0, NULL, "eval: text of the table's domain, not in it"},
    {"other", 0, CFG_LIST, "FILE", NULL, 0, 0, NULL, "eval: text of other domains"},
    {"fit", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "eval: fit the mixture on every other document and write its weights into the table"},
    {"eval-tokens", 0, CFG_INT, "N", "0", 0, 1 << 30, NULL,
     "eval: maximum number of tokens of each half of a text; 0: all"},
    {0}};

/* ---- arguments ---- */

int engram_args_tok(const struct cfg *c, struct tok **tok, struct err *e) {
    char path[4096];
    struct gguf *g;
    int rc = model_args_path(c, path, sizeof path, e);
    if (!rc) rc = gguf_open(&g, path, e);
    if (rc) return rc;
    rc = vocab_load(tok, g, e);
    gguf_close(g);
    return rc;
}

static int tables_folder(const struct cfg *c, char *out, size_t out_size, struct err *e) {
    const char *dir = cfg_str(c, "engram-dir");
    if (!dir) {
        int rc = file_user_data("engram", out, out_size, e);
        return rc ? rc : file_mkdirs(out, e);
    }
    if ((size_t)snprintf(out, out_size, "%s", dir) >= out_size)
        return err_set(e, CHIMERE_ELIMIT, "--engram-dir: path is too long");
    return 0;
}

int engram_args_path(const struct cfg *c, const char *name, char *out, size_t out_size,
                     struct err *e) {
    char dir[3072];
    if (strchr(name, '/') || file_exists(name) || str_ends(name, ".engram") ||
        str_ends(name, ".engr")) {
        if ((size_t)snprintf(out, out_size, "%s", name) >= out_size)
            return err_set(e, CHIMERE_ELIMIT, "path is too long");
        return 0;
    }
    int rc = tables_folder(c, dir, sizeof dir, e);
    if (!rc && (size_t)snprintf(out, out_size, "%s/%s.engram", dir, name) >= out_size)
        rc = err_set(e, CHIMERE_ELIMIT, "path is too long");
    return rc;
}

int engram_args_table(const struct cfg *c, const char *name, char *out, size_t out_size,
                      struct err *e) {
    char shipped[256];
    int rc = engram_args_path(c, name, out, out_size, e);
    if (rc || cfg_str(c, "engram-dir") || strchr(name, '/') || file_exists(out)) return rc;
    if ((size_t)snprintf(shipped, sizeof shipped, "engram/%s.engram", name) < sizeof shipped) {
        char path[4096];
        if (file_find_data(shipped, path, sizeof path) == 0 && strlen(path) < out_size)
            memcpy(out, path, strlen(path) + 1);
    }
    return 0;
}

int engram_args_duration(const char *option, const char *text, double *seconds, struct err *e) {
    static const struct {
        char letter;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}, {'y', 31557600}};
    char number[32];
    size_t n = strlen(text);
    double unit = 1;
    if (n && n < sizeof number) {
        memcpy(number, text, n + 1);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            if (number[n - 1] != units[i].letter) continue;
            unit = units[i].seconds;
            number[n - 1] = 0;
            break;
        }
        if (str_to_f64(number, 1e-9, 1e9, seconds)) {
            *seconds *= unit;
            return 0;
        }
    }
    return err_set(e, CHIMERE_EINVAL, "%s: expected a time such as 30d or 12h, got '%.40s'", option,
                   text);
}

int engram_args_date(const struct cfg *c, int64_t *seconds, struct err *e) {
    const char *text = cfg_str(c, "date");
    struct tm tm = {0};
    *seconds = 0;
    if (!text) return 0;
    const char *end = strptime(text, "%Y-%m-%d", &tm);
    if (!end || *end)
        return err_set(e, CHIMERE_EINVAL, "--date: expected YEAR-MONTH-DAY, got '%.40s'", text);
    *seconds = (int64_t)timegm(&tm);
    return 0;
}

/* Returns the path of the table that the first argument after the subcommand names. */
static int table_argument(const struct cfg *c, char *out, size_t out_size, struct err *e) {
    if (!cfg_pos(c, 1)) return err_set(e, CHIMERE_EINVAL, "%s: expected a table", cfg_pos(c, 0));
    return engram_args_table(c, cfg_pos(c, 1), out, out_size, e);
}

static int output_argument(const struct cfg *c, char *out, size_t out_size, struct err *e) {
    if (!cfg_str(c, "out")) return err_set(e, CHIMERE_EINVAL, "-o TABLE is missing");
    return engram_args_path(c, cfg_str(c, "out"), out, out_size, e);
}

/* ---- build ---- */

static void show_bytes(void *ud, uint64_t done) {
    (void)ud;
    progress_step(done);
}

static void show_index(void *ud, uint64_t done, uint64_t total) {
    bool *begun = ud;
    if (!begun) return;
    if (!*begun) {
        progress_end(); /* of the reading phase */
        progress_begin("index", total, false);
    }
    *begun = true;
    progress_step(done);
}

static int build_from(const struct cfg *c, struct engram_ingest *in, char **files, size_t n,
                      struct err *e) {
    int64_t date;
    const char *source = cfg_str(c, "source");
    int rc = engram_args_date(c, &date, e);
    for (size_t i = 0; i < n && !rc; i++) {
        const char *name = source ? source : files[i];
        rc = engram_ingest_file(in, files[i], (struct slice){name, strlen(name)}, date, e);
    }
    return rc;
}

/* Lists the files of all arguments from the i-th on, and their total size. */
static int all_files(const struct cfg *c, int i, char ***files, size_t *n, uint64_t *bytes,
                     struct err *e) {
    *files = NULL;
    *n = 0;
    *bytes = 0;
    for (int rc; cfg_pos(c, i); i++) {
        char **more;
        size_t n_more;
        rc = engram_files(cfg_pos(c, i), &more, &n_more, e);
        if (rc) return rc;
        char **p = mem_realloc(*files, (*n + n_more + 1) * sizeof *p);
        if (!p) {
            engram_files_free(more, n_more);
            return err_set(e, CHIMERE_ENOMEM, "out of memory");
        }
        *files = p;
        if (n_more) memcpy(p + *n, more, n_more * sizeof *p);
        *n += n_more;
        mem_free(more);
    }
    struct fs_info st;
    for (size_t k = 0; k < *n; k++)
        if (fs_stat((*files)[k], &st) == 0) *bytes += st.bytes;
    return *n ? 0 : err_set(e, CHIMERE_EINVAL, "expected files or folders of text");
}

static struct engram_build_params build_params(const struct cfg *c, const struct tok *tok,
                                               bool *begun) {
    return (struct engram_build_params){.tok_hash = tok_hash(tok),
                                        .n_vocab = tok_n_vocab(tok),
                                        .memory_bytes = (size_t)cfg_bytes(c, "memory"),
                                        .refuse_empty = true,
                                        .progress = begun ? show_index : NULL,
                                        .ud = begun};
}

static int show_built(const char *path, const struct engram_ingest *in, double seconds,
                      struct err *e) {
    struct engram_table *t;
    struct engram_info info;
    char size[16];
    int rc = engram_table_open(&t, path, 0, 0, e);
    if (rc) return rc;
    engram_table_info(t, &info);
    engram_table_close(t);
    str_bytes(size, info.n_bytes);
    printf("%s: %" PRIu64 " entries from %" PRIu64
           " tokens of %u documents, %s; %.2f MB of text in "
           "%.1f s of one core (%.2f MB/s)\n",
           path, info.n_entry, info.n_tok, info.n_doc, size, (double)in->n_bytes * 1e-6, seconds,
           (double)in->n_bytes * 1e-6 / seconds);
    if (in->n_skipped)
        printf("%" PRIu64 " files that are no text were passed over\n", in->n_skipped);
    return 0;
}

static int run_build(const struct cfg *c, struct err *e) {
    char path[4096], **files = NULL;
    size_t n = 0;
    uint64_t bytes;
    bool quiet = cfg_bool(c, "quiet"), begun = false;
    struct engram_ingest in = {.progress = quiet ? NULL : show_bytes};
    struct tok *tok = NULL;
    int rc = output_argument(c, path, sizeof path, e);
    if (!rc) rc = all_files(c, 1, &files, &n, &bytes, e);
    if (!rc) rc = engram_args_tok(c, &tok, e);
    int64_t start = clock_cpu_ns();
    if (!rc) {
        struct engram_build_params p = build_params(c, tok, quiet ? NULL : &begun);
        in.tok = tok;
        rc = engram_builder_new(&in.b, path, &p, e);
        if (!rc) {
            if (!quiet) progress_begin("text", bytes, true);
            rc = build_from(c, &in, files, n, e);
            if (!quiet) progress_end();
            if (rc) engram_builder_abort(in.b);
            else rc = engram_builder_finish(in.b, e);
            if (begun) progress_end();
        }
    }
    if (!rc) rc = show_built(path, &in, (double)(clock_cpu_ns() - start) * 1e-9, e);
    tok_free(tok);
    engram_files_free(files, n);
    return rc;
}

static int run_sync(const struct cfg *c, struct err *e) {
    char path[4096], dir[3072];
    const char *domain = cfg_str(c, "domain");
    if (!domain || !cfg_pos(c, 1))
        return err_set(e, CHIMERE_EINVAL, "sync: expected --domain NAME and a folder of texts");
    if (strchr(domain, '/') || domain[0] == '.')
        return err_set(e, CHIMERE_EINVAL, "--domain: expected a name without slashes");
    struct tok *tok = NULL;
    struct engram_sync s = {.progress = NULL};
    int rc = tables_folder(c, dir, sizeof dir, e);
    if (!rc) rc = file_mkdirs(dir, e);
    if (!rc && (size_t)snprintf(path, sizeof path, "%s/%s.engram", dir, domain) >= sizeof path)
        rc = err_set(e, CHIMERE_ELIMIT, "path is too long");
    if (!rc) rc = engram_args_tok(c, &tok, e);
    if (!rc) {
        bool quiet = cfg_bool(c, "quiet"), begun = false;
        struct engram_build_params p = build_params(c, tok, quiet ? NULL : &begun);
        s.progress = quiet ? NULL : show_bytes;
        if (!quiet) progress_begin("text", 0, true);
        rc = engram_sync_folder(path, cfg_pos(c, 1), tok, &p, &s, e);
        progress_end();
    }
    if (!rc)
        printf("%s: %zu files unchanged, %zu new, %zu changed, %zu gone; ", path, s.n_kept, s.n_new,
               s.n_changed, s.n_removed);
    if (!rc && s.is_written)
        printf("%" PRIu64 " of %" PRIu64 " documents indexed anew\n", s.n_doc_sorted, s.n_doc);
    else if (!rc) puts("nothing to do");
    tok_free(tok);
    return rc;
}

/* ---- merge, decay, forget ---- */

static int revise(const struct cfg *c, const char *out, const char *const *in, size_t n,
                  struct engram_revision *r, struct err *e) {
    struct engram_revised done;
    r->memory_bytes = (size_t)cfg_bytes(c, "memory");
    int rc = engram_revise(out, in, n, r, &done, e);
    if (!rc)
        printf("%s: %" PRIu64 " documents, %" PRIu64 " dropped\n", out, done.n_doc, done.n_dropped);
    return rc;
}

static int run_merge(const struct cfg *c, struct err *e) {
    enum { MAX_TABLES = 64 };
    static char paths[MAX_TABLES][4096];
    const char *in[MAX_TABLES];
    char out[4096];
    size_t n = 0;
    int rc = output_argument(c, out, sizeof out, e);
    for (; !rc && cfg_pos(c, (int)n + 1); n++) {
        if (n == MAX_TABLES)
            return err_set(e, CHIMERE_ELIMIT, "merge: expected at most %d tables", MAX_TABLES);
        rc = engram_args_table(c, cfg_pos(c, (int)n + 1), paths[n], sizeof paths[n], e);
        in[n] = paths[n];
    }
    struct engram_revision r = {.strict = true};
    return rc ? rc : revise(c, out, in, n, &r, e);
}

/* Revises one table, in place unless -o is given. If the table was shipped with the program, the output is the
 * user's table of that name. */
static int revise_one(const struct cfg *c, struct engram_revision *r, struct err *e) {
    char in[4096], out[4096];
    int rc = table_argument(c, in, sizeof in, e);
    if (!rc && cfg_str(c, "out")) rc = output_argument(c, out, sizeof out, e);
    else if (!rc) rc = engram_args_path(c, cfg_pos(c, 1), out, sizeof out, e);
    const char *list[] = {in};
    return rc ? rc : revise(c, out, list, 1, r, e);
}

static int run_decay(const struct cfg *c, struct err *e) {
    struct engram_revision r = {.decay = true};
    int rc = engram_args_duration("--half-life", cfg_str(c, "half-life"), &r.half_life, e);
    if (!rc) rc = engram_args_duration("--drop", cfg_str(c, "drop"), &r.drop, e);
    if (!rc) rc = engram_args_date(c, &r.now, e);
    /* today, so that the result is the same all day */
    if (!rc && !r.now) r.now = (int64_t)time(NULL) / 86400 * 86400;
    return rc ? rc : revise_one(c, &r, e);
}

static int run_forget(const struct cfg *c, struct err *e) {
    struct engram_revision r = {.forget = cfg_str(c, "source"), .strict = true};
    if (!r.forget) return err_set(e, CHIMERE_EINVAL, "forget: --source ID is missing");
    return revise_one(c, &r, e);
}

/* ---- queries ---- */

static json_t *stats_json(const char *path, const struct engram_table *t) {
    struct engram_info i;
    char hash[17];
    json_t *sources = json_array();
    engram_table_info(t, &i);
    snprintf(hash, sizeof hash, "%016" PRIx64, i.tok_hash);
    uint64_t *n_tok = mem_alloc_array((size_t)i.n_source + 1, sizeof *n_tok);
    struct engram_doc d;
    int64_t oldest = INT64_MAX, newest = INT64_MIN;
    for (uint32_t k = 0; n_tok && engram_table_doc(t, k, &d); k++) {
        n_tok[d.source] += d.n_tok;
        if (d.time < oldest) oldest = d.time;
        if (d.time > newest) newest = d.time;
    }
    for (uint32_t k = 0; n_tok && k < i.n_source; k++) {
        struct slice s = engram_table_source(t, k, NULL);
        json_array_append_new(
            sources, json_pack("{s:s%, s:I}", "name", s.p, s.n, "n_tok", (json_int_t)n_tok[k]));
    }
    mem_free(n_tok);
    json_t *o = json_pack(
        "{s:s, s:i, s:s, s:i, s:[i,i], s:I, s:I, s:i, s:i, s:I, s:I, s:b}", "path", path, "version",
        (int)i.version, "tokenizer", hash, "n_vocab", (int)i.n_vocab, "orders", (int)i.order_min,
        (int)i.order_max, "n_entry", (json_int_t)i.n_entry, "n_tok", (json_int_t)i.n_tok, "n_doc",
        (int)i.n_doc, "n_source", (int)i.n_source, "n_bytes", (json_int_t)i.n_bytes, "decayed_at",
        (json_int_t)i.decayed_at, "fitted", i.n_weight > 0);
    if (i.n_doc)
        json_object_update_new(
            o, json_pack("{s:I, s:I}", "oldest", (json_int_t)oldest, "newest", (json_int_t)newest));
    json_object_set_new(o, "sources", sources);
    return o;
}

static void print_stats(const json_t *o) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v) {
        if (json_is_string(v)) printf("%-11s %s\n", key, json_string_value(v));
        else if (json_is_integer(v))
            printf("%-11s %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(v));
        else if (json_is_boolean(v)) printf("%-11s %s\n", key, json_is_true(v) ? "yes" : "no");
    }
    size_t i, shown = 20;
    json_t *sources = json_object_get(o, "sources");
    json_array_foreach(sources, i, v) {
        if (i < shown)
            printf("  %-50s %8" JSON_INTEGER_FORMAT " tokens\n",
                   json_string_value(json_object_get(v, "name")),
                   json_integer_value(json_object_get(v, "n_tok")));
    }
    if (json_array_size(sources) > shown)
        printf("  ... %zu more (--json lists all)\n", json_array_size(sources) - shown);
}

/* Opens the table of the first argument; also its tokenizer if tok is not NULL. */
static int open_argument(const struct cfg *c, struct tok **tok, struct engram_table **t, char *path,
                         size_t path_size, struct err *e) {
    int rc = table_argument(c, path, path_size, e);
    if (!rc && tok) rc = engram_args_tok(c, tok, e);
    if (!rc)
        rc = engram_table_open(t, path, tok ? tok_hash(*tok) : 0, tok ? tok_n_vocab(*tok) : 0, e);
    return rc;
}

static int print_json(json_t *o, struct err *e) {
    int rc = json_dumpf(o, stdout, JSON_INDENT(1)) || putchar('\n') < 0
                 ? err_set(e, CHIMERE_EIO, "standard output: cannot write")
                 : 0;
    json_decref(o);
    return rc;
}

static int run_stats(const struct cfg *c, struct err *e) {
    struct engram_table *t;
    char path[4096];
    int rc = open_argument(c, NULL, &t, path, sizeof path, e);
    if (rc) return rc;
    json_t *o = stats_json(path, t);
    engram_table_close(t);
    if (cfg_bool(c, "json")) return print_json(o, e);
    print_stats(o);
    json_decref(o);
    return 0;
}

static int run_verify(const struct cfg *c, struct err *e) {
    struct engram_table *t;
    char path[4096];
    int rc = open_argument(c, NULL, &t, path, sizeof path, e);
    if (rc) return rc;
    rc = engram_table_verify(t, e);
    engram_table_close(t);
    if (!rc) printf("%s: good\n", path);
    return rc;
}

static json_t *hit_json(const struct engram_table *t, const struct tok *tok,
                        const struct engram_hit *h, uint32_t most) {
    json_t *next = json_array();
    for (uint32_t i = 0; i < h->n_next && i < most; i++) {
        const struct engram_next *x = engram_hit_next(h) + i;
        struct slice s = tok_piece(tok, (int32_t)x->token);
        json_t *text = json_stringn(s.p ? s.p : "", s.n);
        json_array_append_new(next, json_pack("{s:i, s:o, s:f}", "token", (int)x->token, "text",
                                              text ? text : json_string("?"), "count",
                                              (double)x->count / (double)h->unit));
    }
    json_t *o = json_pack("{s:i, s:f, s:i, s:i, s:o}", "order", (int)h->order, "count",
                          (double)h->total / (double)h->unit, "documents", (int)h->n_doc,
                          "continuations", (int)h->n_next, "next", next);
    struct engram_doc d;
    if (engram_table_doc_at(t, h->pos, &d)) {
        struct slice s = engram_table_source(t, d.source, NULL);
        json_object_set_new(o, "source", json_stringn(s.p, s.n));
    }
    return o;
}

static void print_hits(const json_t *hits) {
    const json_t *h, *x;
    size_t i, k;
    if (!json_array_size(hits)) puts("no context of 2 tokens or more is known");
    json_array_foreach((json_t *)hits, i, h) {
        printf("order %d: %.4g times in %d documents, source %s\n",
               (int)json_integer_value(json_object_get(h, "order")),
               json_real_value(json_object_get(h, "count")),
               (int)json_integer_value(json_object_get(h, "documents")),
               json_string_value(json_object_get(h, "source")));
        json_array_foreach(json_object_get(h, "next"), k, x) {
            char *text = json_dumps(json_object_get(x, "text"), JSON_ENCODE_ANY);
            printf("  %-24s %.4g\n", text, json_real_value(json_object_get(x, "count")));
            mem_free(text);
        }
    }
}

static int run_query(const struct cfg *c, struct err *e) {
    struct engram_table *t = NULL;
    struct tok *tok = NULL;
    struct engram_hit hits[ENGRAM_N_ORDER];
    char path[4096];
    int32_t *ids;
    size_t n;
    const char *text = cfg_pos(c, 2);
    if (!text) return err_set(e, CHIMERE_EINVAL, "query: expected a table and a text");
    int rc = open_argument(c, &tok, &t, path, sizeof path, e);
    if (!rc) rc = tok_encode(tok, text, strlen(text), false, false, &ids, &n, e);
    if (!rc) {
        int n_hit = engram_lookup(t, ids, (int32_t)n, hits);
        json_t *list = json_array();
        for (int i = 0; i < n_hit; i++)
            json_array_append_new(list, hit_json(t, tok, &hits[i], (uint32_t)cfg_int(c, "n")));
        mem_free(ids);
        if (cfg_bool(c, "json")) {
            rc = print_json(list, e);
        } else {
            print_hits(list);
            json_decref(list);
        }
    }
    engram_table_close(t);
    tok_free(tok);
    return rc;
}

/* ---- the command ---- */

static const struct {
    const char *name;
    int (*run)(const struct cfg *c, struct err *e);
} subcommands[] = {
    {"build", run_build},          {"sync", run_sync},     {"merge", run_merge},
    {"decay", run_decay},          {"forget", run_forget}, {"query", run_query},
    {"stats", run_stats},          {"verify", run_verify}, {"eval", engram_eval},
    {"examples", engram_examples},
};

static const char usage[] =
    "usage: chimere engram build [-m MODEL] -o TABLE FILES...   build a table from texts\n"
    "       chimere engram sync [-m MODEL] --domain NAME DIR    update a table from a "
    "folder\n"
    "       chimere engram merge -o TABLE TABLES...             merge several tables\n"
    "       chimere engram decay TABLE [--half-life T] [--drop T] [--date D]\n"
    "       chimere engram forget TABLE --source ID             remove the texts of a source\n"
    "       chimere engram query [-m MODEL] TABLE TEXT          show what follows a text\n"
    "       chimere engram stats TABLE [--json]\n"
    "       chimere engram verify TABLE\n"
    "       chimere engram eval [-m MODEL] TABLE --in TEXT --other TEXT [--fit]\n"
    "                                                           measure its gain\n"
    "       chimere engram examples add --domain NAME FILES.jsonl   add validated answers\n"
    "       chimere engram examples search --domain NAME QUESTION   find the nearest\n"
    "       chimere engram examples list [--domain NAME] | remove --domain NAME IDS...";

int cmd_engram(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, engram_options, usage, argc, argv, &status)) return status;
    struct err e = {0};
    const char *name = cfg_pos(c, 0) ? cfg_pos(c, 0) : "";
    size_t i = 0, n = sizeof subcommands / sizeof *subcommands;
    while (i < n && strcmp(subcommands[i].name, name) != 0) i++;
    int rc;
    if (i < n) {
        rc = subcommands[i].run(c, &e);
    } else {
        rc = err_set(&e, CHIMERE_EINVAL, "engram: expected a subcommand, got '%.40s'", name);
        err_hint(&e, "chimere engram --help lists them");
    }
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
