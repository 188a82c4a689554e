/* bench_grammar.c: time of one grammar step on a vocabulary of 250,000 tokens.
 *
 * usage: bench_grammar [VOCAB.gguf]. Without a file the vocabulary is synthetic: words of random
 * syllables with and without a space before them, numbers, punctuation as JSON and code have it, all
 * single bytes. A step is grammar_mask and then grammar_accept_token; texts are cut by longest match.
 * "cold" is the first text under a fresh matcher (what the first request with a schema sees), "warm"
 * the same text again. Compiling and building the index are timed apart. One table to standard
 * output, CPU times in microseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "format/gguf.h"
#include "model/vocab.h"
#include "text/grammar/grammar_mask.h"

enum { N_VOCAB = 250000, MAX_STEP = 4096 };

static const struct {
    const char *name, *schema, *gbnf, *text;
} cases[] = {
    {"object, strings",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"city\":{\"type\":"
     "\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0},\"tags\":{\"type\":\"array\","
     "\"items\":{\"type\":\"string\"}},\"note\":{\"type\":\"string\"}},\"required\":[\"name\","
     "\"age\"],\"additionalProperties\":false}",
     NULL,
     "{\"name\": \"Marguerite Dupont\", \"age\": 43, \"city\": \"Clermont-Ferrand\", \"tags\": "
     "[\"one "
     "thing\", \"another, longer thing\"], \"note\": \"a longer text, with some punctuation; and "
     "more "
     "than one sentence. It goes on for a while.\"}"},
    {"open object",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"city\":{\"type\":"
     "\"string\"},\"age\":{\"type\":\"integer\"}},\"required\":[\"name\"]}",
     NULL,
     "{\"nationality\": \"none\", \"name\": \"Marguerite\", \"age\": 43, \"other\": [1, 2.5, "
     "{\"deep\": null, \"deeper\": {\"x\": \"y\"}}], \"city\": \"Lyon\"}"},
    {"any JSON", "{}", NULL,
     "{\"id\": 17, \"items\": [{\"sku\": \"A-1\", \"price\": 12.5e1, \"ok\": true}, {\"sku\": "
     "\"B-2\", "
     "\"price\": -3, \"ok\": false}], \"comment\": \"nothing to add\"}"},
    {"lengths, patterns",
     "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}-[0-"
     "9]"
     "{4}$\"},\"when\":{\"type\":\"string\",\"format\":\"date-time\"},\"text\":{\"type\":"
     "\"string\","
     "\"minLength\":3,\"maxLength\":400},\"kind\":{\"enum\":[\"red\",\"green\",\"blue\"]}},"
     "\"required\":[\"id\",\"when\",\"text\",\"kind\"],\"additionalProperties\":false}",
     NULL,
     "{\"id\": \"AB-1234\", \"when\": \"2026-03-14T09:26:53Z\", \"text\": \"some words that are "
     "not "
     "too long\", \"kind\": \"green\"}"},
    {"GBNF list of lines", NULL, "root ::= item+\nitem ::= \"- \" [^\\r\\n]+ \"\\n\"\n",
     "- first thing to do, when there is time\n- second thing\n- third: \"quoted\" and more\n"},
};

static const char *const punctuation[] = {
    "\"",   "\",",  "\", \"", "\":",  "\": ",  "\": \"", "\"}",    "\"},",  "\"]", "\"],",
    "{\"",  "[{\"", "}",      "},",   "}}",    "]",      "],",     "]}",    "[",   "{",
    ":",    ": ",   ", ",     ",",    "-",     "- ",     "\n",     "\n\n",  "  ",  "    ",
    "\t",   ".",    ". ",     ";",    "; ",    "(",      ")",      "()",    "();", "\\n",
    "\\\"", "/",    "//",     "=",    " =",    "==",     "\r\n",   "!",     "?",   ".\"",
    ".\",", "!\"",  "?\"",    "'s",   "\"\"",  "\":{\"", "\":[\"", "\",\"", "0",   "1",
    "2",    "true", "false",  "null", " true", " false", " null",  "e1",    "12",  "2026",
    "09",   ":26",  "T"};

struct vocab {
    struct slice *pieces;
    uint8_t *kinds;
    struct map ids;
    uint32_t n;
    size_t longest;
};

static void add_piece(struct vocab *v, const char *p, size_t n) {
    uint32_t known;
    if (v->n == N_VOCAB || map_find(&v->ids, p, n, &known) || map_put(&v->ids, p, n, v->n)) return;
    v->pieces[v->n++] = (struct slice){mem_strndup(p, n), n};
    if (n > v->longest) v->longest = n;
}

static void synthetic(struct vocab *v) {
    static const char *const syllables[] = {"ma",  "ri", "ter", "on", "in", "ing", "al", "pro",
                                            "com", "de", "lo",  "st", "er", "ion", "ed", "ly",
                                            "un",  "re", "k",   "z",  "th", "qu",  "o",  "a",
                                            "e",   "é",  "日",  "本", "да", "ни"};
    struct rng r;
    rng_seed(&r, 1);
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        add_piece(v, &byte, 1);
    }
    for (size_t i = 0; i < sizeof punctuation / sizeof *punctuation; i++)
        add_piece(v, punctuation[i], strlen(punctuation[i]));
    while (v->n < N_VOCAB - 1) {
        char word[128] = "";
        if (rng_below(&r, 2)) strcat(word, " ");
        for (uint64_t k = 1 + rng_below(&r, 5); k > 0; k--)
            strcat(word, syllables[rng_below(&r, sizeof syllables / sizeof *syllables)]);
        if (rng_below(&r, 200) == 0)
            strcat(word, punctuation[rng_below(&r, sizeof punctuation / sizeof *punctuation)]);
        if (word[0] == ' ' ? rng_below(&r, 3) == 0 && (word[1] | 32) >= 'a'
                           : rng_below(&r, 4) == 0) {
            char *c = word + (word[0] == ' ');
            if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 32);
        }
        add_piece(v, word, strlen(word));
    }
    v->kinds[v->n] = GRAMMAR_TOKEN_EOG;
    v->pieces[v->n] = (struct slice){mem_strdup("<end>"), 5};
    v->n++;
}

static void from_file(struct vocab *v, const struct tok *t) {
    for (uint32_t i = 0; i < tok_n_vocab(t) && v->n < N_VOCAB; i++) {
        struct slice p = tok_piece(t, (int32_t)i);
        if (tok_kind(t, (int32_t)i) == TOK_NORMAL) add_piece(v, p.p, p.n);
    }
}

static size_t cut(const struct vocab *v, const char *text, int32_t *ids) {
    size_t n = strlen(text), k = 0;
    for (size_t i = 0; i < n;) {
        size_t len = v->longest < n - i ? v->longest : n - i;
        uint32_t id = 0;
        while (len > 1 && !map_find(&v->ids, text + i, len, &id)) len--;
        if (len == 1) map_find(&v->ids, text + i, 1, &id);
        ids[k++] = (int32_t)id;
        i += len;
    }
    return k;
}

static int by_time(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static int run(struct grammar_matcher *m, const int32_t *ids, size_t n, uint64_t *bits,
               double *us) {
    struct grammar_state *s;
    if (grammar_state_new(&s, m, NULL)) return 1;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        int64_t start = clock_cpu_ns(); /* other load on the machine does not count */
        rc = grammar_mask(s, bits);
        bool allowed = bits[ids[i] / 64] >> ids[i] % 64 & 1;
        if (rc == 0) rc = grammar_accept_token(s, ids[i]);
        us[i] = (double)(clock_cpu_ns() - start) * 1e-3;
        if (rc || !allowed) {
            fprintf(stderr, "bench_grammar: token %zu of %zu is refused\n", i, n);
            rc = 1;
        }
    }
    grammar_state_free(s);
    return rc;
}

static void print_times(const char *pass, double *us, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += us[i];
    qsort(us, n, sizeof *us, by_time);
    printf("  %s %8.1f %8.1f %8.1f %8.1f", pass, sum / (double)n, us[n / 2], us[n * 95 / 100],
           us[n - 1]);
}

int main(int argc, char **argv) {
    struct vocab v = {.n = 0};
    struct grammar_vocab *gv;
    struct err e = {0};
    map_init(&v.ids, (size_t)1 << 30);
    v.pieces = mem_alloc_array(N_VOCAB, sizeof *v.pieces);
    v.kinds = mem_zalloc(N_VOCAB);
    struct gguf *file = NULL;
    struct tok *t = NULL;
    if (argc > 1 && (gguf_open(&file, argv[1], &e) || vocab_load(&t, file, &e))) {
        fprintf(stderr, "bench_grammar: %s\n", e.text);
        return 1;
    }
    if (t) from_file(&v, t);
    else synthetic(&v);
    int64_t start = clock_ns();
    if (grammar_vocab_new(&gv, v.n, v.pieces, v.kinds, &e)) {
        fprintf(stderr, "bench_grammar: %s\n", e.text);
        return 1;
    }
    printf("%u tokens; index built in %.0f ms\n", v.n, clock_ms_since(start));
    printf("%-20s %8s %6s  %4s %8s %8s %8s %8s  %4s %8s %8s %8s %8s\n", "grammar", "compile",
           "steps", "", "mean", "median", "p95", "max", "", "mean", "median", "p95", "max");
    uint64_t *bits = mem_alloc_array(v.n / 64 + 1, 8);
    int32_t *ids = mem_alloc_array(MAX_STEP, sizeof *ids);
    double *us = mem_alloc_array(MAX_STEP, sizeof *us);
    int rc = bits && ids && us ? 0 : 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && rc == 0; i++) {
        struct grammar *g;
        struct grammar_matcher *m;
        struct grammar_stats stats;
        rc = cases[i].gbnf
                 ? grammar_from_gbnf(&g, cases[i].gbnf, strlen(cases[i].gbnf), NULL, &e)
                 : grammar_from_schema(&g, cases[i].schema, strlen(cases[i].schema), NULL, &e);
        if (rc == 0) rc = grammar_matcher_new(&m, g, gv, 0, &e);
        if (rc) break;
        grammar_stats(g, &stats);
        size_t n = cut(&v, cases[i].text, ids);
        printf("%-20s %8.0f %6zu", cases[i].name, stats.compile_ms * 1e3, n);
        rc = run(m, ids, n, bits, us);
        print_times("cold", us, n);
        if (rc == 0) rc = run(m, ids, n, bits, us);
        print_times("warm", us, n);
        putchar('\n');
        grammar_matcher_free(m);
        grammar_free(g);
    }
    if (rc) fprintf(stderr, "bench_grammar: %s\n", e.text);
    for (uint32_t i = 0; i < v.n; i++) mem_free((char *)v.pieces[i].p);
    mem_free(bits), mem_free(ids), mem_free(us), mem_free(v.pieces), mem_free(v.kinds);
    map_fini(&v.ids);
    grammar_vocab_free(gv);
    tok_free(t);
    gguf_close(file);
    return rc != 0;
}
