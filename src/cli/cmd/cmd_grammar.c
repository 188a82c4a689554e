/* cmd_grammar.c: compiles a grammar and matches a whole text against it, byte by byte and, with -m, also token by
 * token with the masks; both results must be equal.
 *
 * Standard output: "yes", or "no: byte N". N is the offset of the first byte that is not allowed, or the length of
 * a text that ends too early. Exit status 0 for yes; 1 for no, and for a grammar that is refused (standard error
 * has the reason). Without --check: the size of the automaton. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/args/model_args.h"
#include "format/gguf.h"
#include "model/vocab.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_mask.h"

enum { MAX_SOURCE = 8 << 20 };

/* clang-format off */
const struct cfg_opt grammar_options[] = {
    {"schema", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "JSON Schema, draft 2020-12 (- for standard input)"},
    {"gbnf", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "GBNF grammar (- for standard input)"},
    {"model", 'm', CFG_STR, "FILE", NULL, 0, 0, NULL, "GGUF file: also check with its vocabulary"},
    {"check", 0, CFG_STR, "TEXT", NULL, 0, 0, NULL, "match this whole text"},
    {"check-file", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "match the whole content of this file"},
    {0}};
/* clang-format on */

static int load_grammar(struct grammar **g, const struct cfg *c, struct err *e) {
    const char *schema = cfg_str(c, "schema"), *gbnf = cfg_str(c, "gbnf");
    if (!schema == !gbnf)
        return err_set(e, CHIMERE_EINVAL, "grammar: give either --schema or --gbnf");
    char *text;
    size_t n;
    int rc = file_read(schema ? schema : gbnf, MAX_SOURCE, &text, &n, e);
    if (rc) return rc;
    rc = schema ? grammar_from_schema(g, text, n, NULL, e) : grammar_from_gbnf(g, text, n, NULL, e);
    mem_free(text);
    return rc;
}

static int load_tok(struct tok **t, const char *path, struct err *e) {
    struct gguf *file;
    int rc = gguf_open(&file, path, e);
    if (rc) return rc;
    rc = vocab_load(t, file, e);
    gguf_close(file);
    return rc;
}

struct token_check {
    const struct tok *t;
    const struct grammar_vocab *v;
    struct grammar_state *s;
    struct tok_stream stream;
    uint64_t *bits; /* owned */
    size_t at;      /* number of accepted bytes */
};

/* Checks one token: the mask and the automaton must agree about it. */
static int check_token(struct token_check *c, int32_t id, bool is_first, struct err *e) {
    size_t n_good = 0;
    struct slice shown = tok_stream_bytes(&c->stream, id), piece = tok_piece(c->t, id);
    int rc = grammar_mask(c->s, c->bits);
    if (rc) return err_set(e, rc, "grammar: the automaton outgrows its memory at byte %zu", c->at);
    bool allowed = c->bits[id / 64] >> id % 64 & 1;
    /* the space that encoding put before the text is not part of it */
    bool is_whole = !is_first || shown.n == piece.n;
    rc = grammar_accept_bytes(c->s, shown.p, shown.n, &n_good);
    c->at += n_good;
    if (rc == CHIMERE_ELIMIT)
        return err_set(e, rc, "grammar: the automaton outgrows its memory at byte %zu", c->at);
    if (is_whole && tok_kind(c->t, id) != TOK_CONTROL && allowed != (rc == 0))
        return err_set(e, CHIMERE_EINTERNAL, "grammar: mask and automaton disagree at byte %zu",
                       c->at);
    return rc;
}

static int check_tokens(struct grammar_matcher *m, struct token_check *c, const char *text,
                        size_t n, struct err *e) {
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int rc = tok_encode(c->t, text, n, false, false, &ids, &n_ids, e);
    if (rc == 0) rc = grammar_state_new(&c->s, m, e);
    c->bits = mem_alloc_array(tok_n_vocab(c->t) / 64 + 1, sizeof *c->bits);
    if (rc == 0 && !c->bits) rc = err_set(e, CHIMERE_ENOMEM, "grammar: out of memory");
    tok_stream_init(&c->stream, c->t, true);
    for (size_t i = 0; rc == 0 && i < n_ids; i++) rc = check_token(c, ids[i], i == 0, e);
    if (rc == 0 && !grammar_is_complete(c->s)) rc = CHIMERE_EREFUSED;
    grammar_state_free(c->s);
    mem_free(c->bits);
    mem_free(ids);
    return rc;
}

/* Checks the text byte by byte; with t also token by token, with the same result. */
static int check_text(const struct grammar *g, const struct tok *t, const char *text, size_t n,
                      size_t *at, struct err *e) {
    struct grammar_vocab *v = NULL;
    struct grammar_matcher *m = NULL;
    struct token_check c = {.t = t};
    int rc = grammar_check(g, text, n, at, e);
    if (!t || (rc && rc != CHIMERE_EREFUSED)) return rc;
    int rc_tokens = grammar_vocab_from_tok(&v, t, NULL, e);
    if (rc_tokens == 0) rc_tokens = grammar_matcher_new(&m, g, v, 0, e);
    if (rc_tokens == 0) rc_tokens = check_tokens(m, &c, text, n, e);
    bool same = rc_tokens == rc && (rc == 0 || c.at == *at);
    if (rc_tokens && rc_tokens != CHIMERE_EREFUSED) rc = rc_tokens;
    else if (!same)
        rc = err_set(e, CHIMERE_EINTERNAL,
                     "grammar: bytes stop at %zu, tokens at %zu: the vocabulary changes the text",
                     *at, c.at);
    grammar_matcher_free(m);
    grammar_vocab_free(v);
    return rc;
}

static void print_stats(const struct grammar *g) {
    struct grammar_stats s;
    grammar_stats(g, &s);
    printf("rules %u, states %u, transitions %u, %zu bytes, compiled in %.1f ms\n", s.n_rule,
           s.n_node, s.n_edge, s.n_bytes, s.compile_ms);
}

int cmd_grammar(int argc, char **argv) {
    struct cfg *c;
    struct err e = {0};
    int status;
    if (!cli_parse(
            &c, grammar_options,
            "usage: chimere grammar (--schema FILE | --gbnf FILE) [-m VOCAB] [--check TEXT]\n\n"
            "Prints yes, or no and the offset of the first byte that does not match.",
            argc, argv, &status))
        return status;
    struct grammar *g = NULL;
    struct tok *t = NULL;
    const char *path = cfg_str(c, "check-file"), *literal = cfg_str(c, "check");
    char *text = NULL;
    size_t n = literal ? strlen(literal) : 0, at = 0;
    int rc = cfg_n_pos(c)
                 ? err_set(&e, CHIMERE_EINVAL, "grammar: unexpected argument '%s'", cfg_pos(c, 0))
                 : load_grammar(&g, c, &e);
    if (rc == 0 && path) rc = file_read(path, MAX_SOURCE, &text, &n, &e);
    char own[4096];
    if (rc == 0 && cfg_str(c, "model")) {
        const char *given = cfg_str(c, "model");
        bool named = !file_exists(given) && model_args_own(given, own, sizeof own, NULL) == 0;
        rc = load_tok(&t, named ? own : given, &e);
    }
    if (rc) {
        status = cli_fail(&e);
    } else if (!path && !literal) {
        print_stats(g);
    } else {
        rc = check_text(g, t, path ? text : literal, n, &at, &e);
        status = rc != 0;
        if (rc == 0) puts("yes");
        else if (rc == CHIMERE_EREFUSED) printf("no: byte %zu\n", at);
        else status = cli_fail(&e);
    }
    tok_free(t);
    mem_free(text);
    grammar_free(g);
    cfg_free(c);
    return status;
}
