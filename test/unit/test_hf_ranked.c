/* test_hf_ranked.c: vocabularies by rank: tekken.json and tiktoken's lines become pieces and merges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "convert/hf_vocab_impl.h"
#include "text/tok/tok.h"

/* a, b, c, a space, 0x80, "ab", "abc", "bc" */
#define LINES "YQ== 0\nYg== 1\nYw== 2\nIA== 3\ngA== 4\nYWI= 5\nYWJj 6\nYmM= 7\n"

static void check_piece(const struct hf_vocab *v, uint32_t id, const char *text, int32_t kind) {
    assert_true(id < v->n);
    assert_int_equal(v->pieces[id].n, strlen(text));
    assert_memory_equal(v->pieces[id].p, text, strlen(text));
    assert_int_equal(v->kinds[id], kind);
    assert_int_equal(hf_vocab_id(v, text, strlen(text)), id);
}

static void check_merges(const struct hf_vocab *v, const char *joined) {
    char all[256] = "";
    for (size_t i = 0; i < v->n_merges; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%.*s;", (int)v->merges[i].n,
                 v->merges[i].p);
    assert_string_equal(all, joined);
}

static int parse(struct hf_vocab *v, const char *text, struct err *e) {
    return hf_ranked_parse(v, "/nowhere", text, strlen(text), "input", e);
}

static void test_tiktoken(void **state) {
    struct hf_vocab v;
    struct err e = {0};
    const char *name;
    (void)state;
    if (parse(&v, LINES, &e)) fail_msg("%s", e.text);
    assert_int_equal(v.n, 8);
    check_piece(&v, 0, "a", TOK_NORMAL);
    check_piece(&v, 3, "\u0120", TOK_NORMAL); /* the space */
    check_piece(&v, 4, "\u0122", TOK_NORMAL); /* 0x80 */
    check_piece(&v, 6, "abc", TOK_NORMAL);
    check_merges(&v, "a b;a bc;ab c;b c;"); /* each cut of each token, by rank of its halves */
    assert_true(v.ignore_merges);
    /* without a config.json, the pre-tokenizer is unknown */
    assert_int_equal(hf_pre_name(&v, &name, &e), CHIMERE_EUNSUPPORTED);
    hf_vocab_fini(&v);
}

#define CONFIG "\"config\":{\"default_vocab_size\":7,\"default_num_special_tokens\":3}"
#define VOCAB                                                                                      \
    "\"vocab\":[{\"rank\":0,\"token_bytes\":\"YQ==\",\"token_str\":\"a\"},{\"token_bytes\":"       \
    "\"Yg==\",\"rank\":1},{\"rank\":2,\"token_bytes\":\"YWI=\"},{\"rank\":3,\"token_bytes\":"      \
    "\"Yw==\"},{\"rank\":4,\"token_bytes\":\"ZA==\"}]"

static void test_tekken(void **state) {
    static const char *const texts[] = {
        "{" CONFIG "," VOCAB "}",
        "{" VOCAB ",\"special_tokens\":[{\"rank\":1,\"token_str\":\"<s>\"},{\"rank\":2,"
        "\"token_str\":\"[X]\",\"is_control\":false}]," CONFIG "}"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct hf_vocab v;
        struct err e = {0};
        const char *name = NULL;
        if (parse(&v, texts[i], &e)) fail_msg("%s", e.text);
        assert_int_equal(v.n, 7); /* the fifth token is beyond the size */
        check_piece(&v, 0, i ? "<SPECIAL_0>" : "<unk>", TOK_CONTROL);
        check_piece(&v, 1, "<s>", TOK_CONTROL);
        check_piece(&v, 2, i ? "[X]" : "</s>", i ? TOK_USER_DEFINED : TOK_CONTROL);
        check_piece(&v, 5, "ab", TOK_NORMAL);
        check_merges(&v, "a b;");
        assert_int_equal(hf_pre_name(&v, &name, &e), 0);
        assert_string_equal(name, "tekken");
        hf_vocab_fini(&v);
    }
}

static void test_bad(void **state) {
    static const char *const rows[][2] = {
        {"", "expected tekken.json or tiktoken's lines"},
        {"\x0a\x0b\x08<unk>\x12",
         "expected tekken.json or tiktoken's lines"}, /* SentencePiece's own form */
        {"YQ== 0\nYQ== 1\n", "rank 1: its bytes have another rank too"},
        {"YQ== 0\nYg== 0\n", "rank 0: expected once, got twice"},
        {"YQ== 0\n*** 1\n", "rank 1: expected base64"},
        {"YQ== 0\nYg== x\n", "expected a rank"},
        {"YQ== 0\nYg==\n", "expected base64 and a rank"},
        {"YQ== 4000000000\n", "expected ranks below"},
        {"YQ== 99999999999999999999999\n", "expected ranks below"},
        {"{" VOCAB "}", "config: expected default_vocab_size"},
        {"{" CONFIG "}", "expected tokens, got none"},
        {"{" CONFIG ",\"vocab\":[{\"rank\":0}]}", "rank 0: expected base64"},
        {"{" CONFIG ",\"vocab\":[{\"token_bytes\":\"YQ==\"}]}", "expected ranks below"},
        {"{" CONFIG "," VOCAB ",\"special_tokens\":[{\"rank\":3,\"token_str\":\"x\"}]}",
         "special_tokens[0]: expected token_str and a rank below 3"},
        {"{" CONFIG "," VOCAB, "expected"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hf_vocab v;
        struct err e = {0};
        if (!parse(&v, rows[i][0], &e)) fail_msg("row %zu was read", i);
        if (!strstr(e.text, rows[i][1])) fail_msg("row %zu: %s", i, e.text);
        hf_vocab_fini(&v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiktoken),
        cmocka_unit_test(test_tekken),
        cmocka_unit_test(test_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
