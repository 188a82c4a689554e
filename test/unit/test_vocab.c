/* test_vocab.c: tokenizers from GGUF files: the reference vocabularies with the ids that the models' own
 * tokenizers give, and files that are wrong in one place each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/vocab.h"

static const char *const names[] = {"gpt-2",  "llama-bpe", "qwen2",
                                    "qwen35", "llama-spm", "bert-bge"};
enum { N_NAME = sizeof names / sizeof *names };

/* Makes the file of qwen35 of that of qwen2: the published files differ in the name of the pre-tokenizer alone. */
static void rename_pre(struct buf *b) {
    static const char key[] = "tokenizer.ggml.pre\x08\0\0\0\x05\0\0\0\0\0\0\0qwen2";
    assert_int_equal(buf_put(b, "", 1), 0);
    char *at = memmem(b->p, b->n, key, sizeof key - 1);
    assert_non_null(at);
    char *end = at + sizeof key - 1;
    memmove(end + 1, end, (size_t)((char *)b->p + b->n - 1 - end));
    at[22] = 6;
    memcpy(end - 5, "qwen35", 6);
}

/* The unpacked file; freed with mem_free. */
static char *unpack(const char *name, size_t *n) {
    bool qwen35 = strcmp(name, "qwen35") == 0;
    char command[512];
    snprintf(command, sizeof command, "xz -dc '%s/vocab/ggml-vocab-%s.gguf.xz'", TEST_DATA,
             qwen35 ? "qwen2" : name);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    struct buf b;
    buf_init(&b, 1 << 26);
    static char chunk[1 << 16];
    for (size_t k; (k = fread(chunk, 1, sizeof chunk, f)) > 0;) buf_put(&b, chunk, k);
    if (pclose(f) != 0) fail_msg("xz cannot unpack %s", name);
    if (qwen35) rename_pre(&b);
    *n = b.n;
    char *p = buf_take(&b);
    assert_non_null(p);
    return p;
}

static struct tok *load(const char *name) {
    size_t n;
    char *data = unpack(name, &n);
    struct gguf *g;
    struct tok *t = NULL;
    struct err e = {0};
    if (gguf_open_memory(&g, data, n, name, &e) || vocab_load(&t, g, &e)) fail_msg("%s", e.text);
    gguf_close(g); /* the tokenizer must not need it */
    mem_free(data);
    return t;
}

static char *read_text(const char *name, const char *suffix, size_t *n) {
    char path[512];
    snprintf(path, sizeof path, "%s/vocab/ggml-vocab-%s.gguf.%s", TEST_DATA, name, suffix);
    char *s;
    struct err e = {0};
    if (file_read(path, 1 << 20, &s, n, &e)) fail_msg("%s", e.text);
    return s;
}

static void expect_line(const struct tok *t, const char *name, const char *text, size_t n,
                        const char *line) {
    int32_t *ids;
    size_t n_ids, k = 0;
    struct err e = {0};
    if (tok_encode(t, text, n, false, false, &ids, &n_ids, &e)) fail_msg("%s: %s", name, e.text);
    char *end;
    for (const char *p = line;; p = end, k++) {
        long want = strtol(p, &end, 10);
        if (end == p) break;
        if (k >= n_ids || ids[k] != want)
            fail_msg("%s: '%.*s': id %zu: expected %ld, got %d of %zu", name, (int)n, text, k, want,
                     k < n_ids ? ids[k] : -1, n_ids);
    }
    assert_int_equal(k, n_ids);
    mem_free(ids);
}

/* The references leave out the NFC of Qwen's tokenizer.json: their texts with combining marks of U+0300 to
 * U+033F say nothing here (test_convert has such a text, with the ids of the published tokenizer). */
static bool is_reference(const char *name, const char *text, size_t n) {
    return strncmp(name, "qwen", 4) != 0 || !memchr(text, 0xcc, n);
}

static void ids_equal_the_references(void **state) {
    (void)state;
    size_t n_text = 0;
    for (int i = 0; i < N_NAME; i++) {
        struct tok *t = load(names[i]);
        size_t n_in, n_out;
        char *in = read_text(names[i], "inp", &n_in), *out = read_text(names[i], "out", &n_out);
        const char *text = in, *line = out;
        for (const char *next; text; text = next, n_text++) {
            static const char separator[] = "\n__ggml_vocab_test__\n";
            const char *end = strstr(text, separator);
            next = end ? end + sizeof separator - 1 : NULL;
            const char *line_end = line + strcspn(line, "\n");
            char *copy = mem_strndup(line, (size_t)(line_end - line));
            size_t n_one = end ? (size_t)(end - text) : strlen(text);
            if (is_reference(names[i], text, n_one)) expect_line(t, names[i], text, n_one, copy);
            mem_free(copy);
            line = line_end + (*line_end == '\n');
        }
        mem_free(in), mem_free(out);
        tok_free(t);
    }
    assert_int_equal(n_text, 286);
}

/* Bytes that are no text at all, and all texts of the references, come back as they were. */
static void bytes_come_back(void **state) {
    (void)state;
    static char bytes[5000];
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)((x = x * 1664525 + 1013904223) >> 24);
    for (int i = 0; i < N_NAME; i++) {
        if (strcmp(names[i], "bert-bge") == 0 || !strncmp(names[i], "qwen", 4))
            continue; /* they normalise */
        struct tok *t = load(names[i]);
        size_t n_in;
        char *in = read_text(names[i], "inp", &n_in);
        const struct slice all[] = {{bytes, sizeof bytes}, {in, n_in}};
        for (size_t k = 0; k < 2; k++) {
            int32_t *ids;
            size_t n_ids, at = 0;
            assert_int_equal(tok_encode(t, all[k].p, all[k].n, false, true, &ids, &n_ids, NULL), 0);
            struct tok_stream s;
            tok_stream_init(&s, t, false);
            for (size_t j = 0; j < n_ids; j++) {
                struct slice p = tok_stream_bytes(&s, ids[j]);
                assert_true(at + p.n <= all[k].n);
                assert_memory_equal(p.p, all[k].p + at, p.n);
                at += p.n;
            }
            assert_int_equal(at, all[k].n);
            mem_free(ids);
        }
        mem_free(in);
        tok_free(t);
    }
}

static void special_tokens_of_real_files(void **state) {
    (void)state;
    struct tok *t = load("llama-bpe");
    int32_t *ids;
    size_t n;
    const char text[] = "<|start_header_id|>Hello world<|eot_id|>";
    assert_int_equal(tok_encode(t, text, strlen(text), true, true, &ids, &n, NULL), 0);
    const int32_t want[] = {128000, 128006, 9906, 1917, 128009};
    assert_int_equal(n, 5);
    assert_memory_equal(ids, want, sizeof want);
    mem_free(ids);
    assert_true(tok_is_eog(t, 128009) && tok_is_eog(t, 128001) && !tok_is_eog(t, 128006));
    assert_int_equal(tok_find(t, "<|eot_id|>", 10), 128009);
    assert_int_equal(tok_find(t, " world", 6), 1917);
    assert_int_equal(tok_n_vocab(t), 128256);
    tok_free(t);
    t = load("bert-bge");
    assert_int_equal(tok_encode(t, "Hello", 5, false, true, &ids, &n, NULL), 0);
    assert_true(n == 3 && ids[0] == 101 && ids[1] == 7592 && ids[2] == 102);
    mem_free(ids);
    tok_free(t);
}

/* Ordinary English: at least 5 million characters in a second of one core. */
static void english_is_fast_enough(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
    print_message("skip: tokenizer speed: needs a release build\n");
#else
    static const char *const files[] = {"LICENSE", "README.md", "ARCHITECTURE.md",
                                        "CONTRIBUTING.md"};
    struct buf b;
    buf_init(&b, 1 << 24);
    while (b.n < 3000000)
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            char path[512], *s;
            size_t n;
            snprintf(path, sizeof path, "%s/../../%s", TEST_DATA, files[i]);
            assert_int_equal(file_read(path, 1 << 20, &s, &n, NULL), 0);
            assert_int_equal(buf_put(&b, s, n), 0);
            mem_free(s);
        }
    for (int i = 0; i < N_NAME; i++) {
        struct tok *t = load(names[i]);
        double best = 1e9;
        for (int round = 0; round < 3; round++) {
            struct timespec from, to;
            int32_t *ids;
            size_t n;
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
            assert_int_equal(tok_encode(t, b.p, b.n, false, false, &ids, &n, NULL), 0);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
            mem_free(ids);
            double s =
                (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
            best = s < best ? s : best;
        }
        if ((double)b.n / best < 5e6)
            fail_msg("%s: %.1f MB/s", names[i], (double)b.n / best * 1e-6);
        tok_free(t);
    }
    buf_fini(&b);
#endif
}

/* ---- files that are wrong in one place ---- */

struct change {
    const char *model, *pre, *drop;
    int n_score, n_kind; /* -1: as many as tokens */
    bool string_scores, bad_kind, odd_bos;
    int64_t bos, pad;
    const char *merge;
};
static const struct change right = {.model = "gpt2",
                                    .pre = "gpt-2",
                                    .n_score = -1,
                                    .n_kind = -1,
                                    .bos = 1,
                                    .pad = -1,
                                    .merge = "a b"};

static int load_changed(struct change c, struct tok **t, struct err *e) {
    static const struct slice tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"", 0}};
    static const float scores[8] = {0};
    const int32_t kinds[8] = {1, 1, c.bad_kind ? 77 : 1, 1, 1, 1, 1, 1};
    char path[64];
    snprintf(path, sizeof path, "test_vocab.%d.gguf", (int)getpid());
    struct gguf_writer *w;
    assert_int_equal(gguf_writer_new(&w, path, 32, 0, e), 0);
    gguf_put_str(w, "general.architecture", "llama", 5);
    if (c.model) gguf_put_str(w, "tokenizer.ggml.model", c.model, strlen(c.model));
    gguf_put_str(w, "tokenizer.ggml.pre", c.pre, strlen(c.pre));
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, 4);
    if (c.string_scores) gguf_put_strings(w, "tokenizer.ggml.scores", tokens, 4);
    else
        gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores,
                       c.n_score < 0 ? 4 : (size_t)c.n_score);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, kinds,
                   c.n_kind < 0 ? 4 : (size_t)c.n_kind);
    const struct slice merge = {c.merge, strlen(c.merge)};
    gguf_put_strings(w, "tokenizer.ggml.merges", &merge, 1);
    if (c.odd_bos) gguf_put_str(w, "tokenizer.ggml.bos_token_id", "1", 1);
    else gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)c.bos);
    gguf_put_u32(w, "tokenizer.ggml.padding_token_id", (uint32_t)c.pad);
    gguf_put_str(w, "tokenizer.chat_template", "plain", 5);
    gguf_put_str(w, "tokenizer.chat_template.tool_use", "tools", 5);
    if (c.drop) gguf_drop(w, c.drop);
    assert_int_equal(gguf_writer_close(w, e), 0);
    struct gguf *g;
    assert_int_equal(gguf_open(&g, path, e), 0);
    int rc = vocab_load(t, g, e);
    struct slice s = vocab_chat_template(g, NULL), tools = vocab_chat_template(g, "tool_use");
    assert_true(s.n == 5 && memcmp(s.p, "plain", 5) == 0);
    assert_true(tools.n == 5 && memcmp(tools.p, "tools", 5) == 0);
    assert_int_equal(vocab_chat_template(g, "rag").n, 0);
    gguf_close(g);
    remove(path);
    return rc;
}

static void expect_refused(struct change c, int code, const char *part) {
    struct tok *t;
    struct err e = {0};
    int rc = load_changed(c, &t, &e);
    if (rc != code || !strstr(e.text, part))
        fail_msg("%d '%s', expected %d '%s'", rc, e.text, code, part);
    if (!strstr(e.text, "test_vocab.")) fail_msg("'%s' does not name the file", e.text);
    assert_null(t);
}

static void files_that_do_not_fit_are_refused_by_name(void **state) {
    (void)state;
    struct tok *t;
    struct err e = {0};
    if (load_changed(right, &t, &e)) fail_msg("%s", e.text);
    assert_int_equal(tok_bos(t), 1);
    assert_int_equal(tok_piece(t, 3).n, 0);
    tok_free(t);
    struct change c = right;
    c.pad = 4; /* of no use in encoding, and wrong in files that people have */
    assert_int_equal(load_changed(c, &t, &e), 0);
    tok_free(t);
#define REFUSED(field, value, code, text)                                                          \
    c = right, c.field = (value), expect_refused(c, code, text)
    REFUSED(model, "no_vocab", CHIMERE_EUNSUPPORTED, "the file has no vocabulary");
    REFUSED(model, NULL, CHIMERE_EUNSUPPORTED, "tokenizer.ggml.model is missing");
    REFUSED(model, "gpt3", CHIMERE_EUNSUPPORTED, "unknown tokenizer 'gpt3'");
    REFUSED(pre, "gpt-3", CHIMERE_EUNSUPPORTED, "unknown pre-tokenizer 'gpt-3'");
    REFUSED(drop, "tokenizer.ggml.tokens", CHIMERE_EFORMAT, "tokenizer.ggml.tokens is missing");
    REFUSED(drop, "tokenizer.ggml.merges", CHIMERE_EFORMAT, "tokenizer.ggml.merges is missing");
    REFUSED(n_score, 3, CHIMERE_EFORMAT,
            "tokenizer.ggml.scores: expected 4 items, one per token, got 3");
    REFUSED(n_kind, 5, CHIMERE_EFORMAT,
            "tokenizer.ggml.token_type: expected 4 items, one per token, got 5");
    REFUSED(string_scores, true, CHIMERE_EFORMAT,
            "tokenizer.ggml.scores: expected an array of numbers");
    REFUSED(bad_kind, true, CHIMERE_EFORMAT, "token 2: unknown type 77");
    REFUSED(bos, 4, CHIMERE_EFORMAT,
            "tokenizer.ggml.bos_token_id: expected the id of a token, below 4, got 4");
    REFUSED(odd_bos, true, CHIMERE_EFORMAT, "tokenizer.ggml.bos_token_id: expected an integer");
    REFUSED(merge, "ab", CHIMERE_EFORMAT,
            "merge 0: expected two pieces and a space between, got 'ab'");
    REFUSED(model, "bert", CHIMERE_EFORMAT, "without unknown token");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_equal_the_references),
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(special_tokens_of_real_files),
        cmocka_unit_test(english_is_fast_enough),
        cmocka_unit_test(files_that_do_not_fit_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
