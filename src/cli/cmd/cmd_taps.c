/* cmd_taps.c: writes hidden states of a model's layers over texts, for train/dflash. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/args/model_args.h"
#include "format/quant.h"
#include "model/taps.h"
#include "model/vocab.h"

const struct cfg_opt taps_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    {"file", 'f', CFG_STR, "FILE", NULL, 0, 0, NULL, "text to read; -: standard input"},
    {"tokens", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "or lines of JSON: {\"tokens\": [..], \"n_prompt\": N}, one text per line"},
    {"out", 'o', CFG_STR, "DIR", NULL, 0, 0, NULL, "folder of the shards"},
    {"layers", 0, CFG_STR, "LIST", NULL, 0, 0, NULL,
     "layers, counted from 0 (default: at 1/3, at 2/3 and the last)"},
    {"type", 0, CFG_ENUM, "TYPE", "bf16", 0, 0, "f32|f16|bf16", "type of the values"},
    {"ctx", 'c', CFG_INT, "N", "2048", 2, 1 << 20, NULL, "cut texts into pieces of N tokens"},
    {"shard", 0, CFG_INT, "N", "65536", 1, 1 << 24, NULL, "tokens per shard"},
    {"batch", 'b', CFG_INT, "N", "512", 1, 65536, NULL, "tokens per forward pass"},
    {0}};

enum { MAX_FILE_BYTES = 512 << 20, MAX_TOK = 64 << 20 };

/* All texts of a run, cut into pieces. */
struct texts {
    int32_t *tokens; /* owned */
    size_t n_tok, cap_tok;
    struct taps_text *list; /* owned; the pointers to tokens are set after all texts were added */
    size_t n, cap;
    int32_t n_ctx;
};

static int add_token(struct texts *t, int32_t token, struct err *e) {
    if (t->n_tok == MAX_TOK)
        return err_set(e, CHIMERE_ELIMIT, "expected at most %d tokens", MAX_TOK);
    if (t->n_tok == t->cap_tok) {
        size_t cap = t->cap_tok ? 2 * t->cap_tok : 4096;
        int32_t *more = mem_realloc(t->tokens, cap * sizeof *more);
        if (!more) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        t->tokens = more;
        t->cap_tok = cap;
    }
    t->tokens[t->n_tok++] = token;
    return 0;
}

/* Adds a text that consists of the last n tokens; n_prompt of them are the prompt. */
static int add_text(struct texts *t, size_t n, int64_t n_prompt, struct err *e) {
    while (n) {
        int32_t piece = n < (size_t)t->n_ctx ? (int32_t)n : t->n_ctx;
        if (t->n == t->cap) {
            size_t cap = t->cap ? 2 * t->cap : 64;
            struct taps_text *more = mem_realloc(t->list, cap * sizeof *more);
            if (!more) return err_set(e, CHIMERE_ENOMEM, "out of memory");
            t->list = more;
            t->cap = cap;
        }
        int32_t of_prompt = n_prompt < piece ? (int32_t)n_prompt : piece;
        t->list[t->n++] = (struct taps_text){.n_tok = piece, .n_prompt = of_prompt};
        n -= (size_t)piece;
        n_prompt -= of_prompt;
    }
    return 0;
}

static int read_text(struct texts *t, const struct model *m, const char *path, struct err *e) {
    char *text = NULL;
    size_t n_text, n = 0;
    int32_t *ids = NULL;
    struct tok *tok = NULL;
    int rc = file_read(path, MAX_FILE_BYTES, &text, &n_text, e);
    if (!rc) rc = vocab_load(&tok, m->gguf, e);
    if (!rc) rc = tok_encode(tok, text, n_text, true, false, &ids, &n, e);
    for (size_t i = 0; !rc && i < n; i++) rc = add_token(t, ids[i], e);
    if (!rc) rc = add_text(t, n, 0, e);
    tok_free(tok);
    mem_free(ids);
    mem_free(text);
    return rc;
}

static int read_line(struct texts *t, const char *line, size_t n_line, struct err *e) {
    json_error_t why;
    json_t *o = json_loadb(line, n_line, 0, &why), *ids = json_object_get(o, "tokens"), *id;
    json_t *n_prompt = json_object_get(o, "n_prompt");
    size_t i, n = json_array_size(ids);
    int rc = 0;
    if (!o) rc = err_set(e, CHIMERE_EFORMAT, "no JSON: %s", why.text);
    else if (!n) rc = err_set(e, CHIMERE_EFORMAT, "tokens: expected a list of ids");
    else if (n_prompt && (!json_is_integer(n_prompt) || json_integer_value(n_prompt) < 0 ||
                          json_integer_value(n_prompt) > (json_int_t)n))
        rc = err_set(e, CHIMERE_EFORMAT, "n_prompt: expected 0 to %zu", n);
    if (!rc) json_array_foreach(ids, i, id) {
            json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
            if (v < 0 || v > INT32_MAX)
                rc = err_set(e, CHIMERE_EFORMAT, "tokens: expected ids, at %zu", i);
            else rc = add_token(t, (int32_t)v, e);
            if (rc) break;
        }
    if (!rc) rc = add_text(t, n, (int64_t)json_integer_value(n_prompt), e);
    json_decref(o);
    return rc;
}

static int read_lines(struct texts *t, const char *path, struct err *e) {
    char *text;
    size_t n, number = 1;
    int rc = file_read(path, MAX_FILE_BYTES, &text, &n, e);
    if (rc) return rc;
    for (char *at = text, *end = text + n; !rc && at < end; number++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);
        if (len && (rc = read_line(t, at, len, e))) err_prefix(e, "%s, line %zu", path, number);
        at += len + 1;
    }
    mem_free(text);
    return rc;
}

static int parse_layers(const char *list, struct taps_params *p, struct err *e) {
    for (const char *s = list; *s;) {
        size_t len = strcspn(s, ",");
        char num[24];
        int64_t v;
        snprintf(num, sizeof num, "%.*s", (int)(len < 23 ? len : 23), s);
        if (!str_to_i64(num, 0, 1 << 20, &v))
            return err_set(e, CHIMERE_EINVAL, "--layers: expected numbers and commas, got '%s'",
                           num);
        if (p->n_layer == TAPS_MAX)
            return err_set(e, CHIMERE_EINVAL, "--layers: expected at most %d", TAPS_MAX);
        p->layers[p->n_layer++] = (int32_t)v;
        s += len + (s[len] == ',');
    }
    return 0;
}

static int record(struct model *m, const struct cfg *c, struct taps_params *p, struct err *e) {
    struct texts t = {.n_ctx = (int32_t)cfg_int(c, "ctx")};
    struct taps_result r;
    int rc = cfg_str(c, "file") ? read_text(&t, m, cfg_str(c, "file"), e)
                                : read_lines(&t, cfg_str(c, "tokens"), e);
    if (!p->n_layer) p->n_layer = taps_default_layers(&m->hp, p->layers);
    size_t at = 0;
    for (size_t i = 0; !rc && i < t.n; at += (size_t)t.list[i++].n_tok)
        t.list[i].tokens = t.tokens + at;
    if (!rc) rc = taps_record(m, p, t.list, t.n, &r, e);
    if (!rc)
        printf("%s: %zu texts, %" PRId64 " tokens in %d shards, %d of them there before\n", p->dir,
               t.n, r.n_tok, r.n_shard, r.n_old);
    mem_free(t.tokens);
    mem_free(t.list);
    return rc;
}

int cmd_taps(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(
            &c, taps_options,
            "usage: chimere taps -m FILE -f TEXT -o DIR [--layers LIST]\n"
            "       chimere taps -m FILE --tokens LINES -o DIR [--layers LIST]\n"
            "Writes the hidden states after the given layers; a second run resumes the first.",
            argc, argv, &status))
        return status;
    struct err e = {0};
    struct dev *dev = NULL;
    struct model *m = NULL;
    int rc = 0;
    struct taps_params p = {.dir = cfg_str(c, "out"),
                            .type = (uint32_t)quant_type_from_name(cfg_str(c, "type")),
                            .n_batch = (int32_t)cfg_int(c, "batch"),
                            .shard_tok = cfg_int(c, "shard"),
                            .k_type = model_args_type(c, "cache-type-k"),
                            .v_type = model_args_type(c, "cache-type-v")};
    if (!p.dir) rc = err_set(&e, CHIMERE_EINVAL, "--out is missing");
    else if (!cfg_str(c, "file") == !cfg_str(c, "tokens"))
        rc = err_set(&e, CHIMERE_EINVAL, "expected one of --file and --tokens");
    else if (cfg_str(c, "layers")) rc = parse_layers(cfg_str(c, "layers"), &p, &e);
    struct plan_params want =
        model_args_want(c, cfg_int(c, "ctx"), 1, (int32_t)cfg_int(c, "batch"));
    if (!rc) rc = model_args_open_planned(c, &want, NULL, &dev, &m, &e);
    if (!rc) {
        rc = record(m, c, &p, &e);
        model_close(m);
        dev->ops->close(dev);
    }
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
