/* test_schema.c: keywords of JSON Schema in all drafts: what is an annotation, what old forms mean, what
 * uniqueItems, contains and lookaheads allow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_mask.h"

#define N_ELEMENT(array) (sizeof(array) / sizeof *(array))

static struct grammar_vocab *vocab; /* the bytes and an end */

static int make_vocab(void **state) {
    (void)state;
    static char bytes[256];
    static struct slice pieces[257];
    static uint8_t kinds[257];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        pieces[i] = (struct slice){&bytes[i], 1};
    }
    pieces[256] = SLICE("<end>");
    kinds[256] = GRAMMAR_TOKEN_EOG;
    return grammar_vocab_new(&vocab, 257, pieces, kinds, NULL);
}

static int free_vocab(void **state) {
    (void)state;
    grammar_vocab_free(vocab);
    return 0;
}

static bool matches(struct grammar_matcher *m, const char *text, size_t n) {
    struct grammar_state *s;
    size_t at;
    assert_int_equal(grammar_state_new(&s, m, NULL), 0);
    bool ok = grammar_accept_bytes(s, text, n, &at) == 0 && grammar_is_complete(s);
    grammar_state_free(s);
    return ok;
}

static struct grammar *compile(const char *schema, const struct grammar_limits *lim) {
    struct grammar *g = NULL;
    struct err e = {0};
    if (grammar_from_schema(&g, schema, strlen(schema), lim, &e))
        fail_msg("%s: %s", schema, e.text);
    return g;
}

struct example {
    const char *schema;
    const char *yes[6], *no[6];
};

/* In the reader's and the writer's form. */
static void check(const struct example *x, size_t n) {
    static const struct grammar_limits plain = {.space = 21, .plain = true};
    for (size_t i = 0; i < 2 * n; i++) {
        const struct example *one = &x[i / 2];
        struct grammar *g = compile(one->schema, i % 2 ? &plain : NULL);
        struct grammar_matcher *m;
        assert_int_equal(grammar_matcher_new(&m, g, vocab, 1 << 20, NULL), 0);
        for (int k = 0; k < 6 && one->yes[k]; k++)
            if (!matches(m, one->yes[k], strlen(one->yes[k])))
                fail_msg("%s does not allow %s", one->schema, one->yes[k]);
        for (int k = 0; k < 6 && one->no[k]; k++)
            if (matches(m, one->no[k], strlen(one->no[k])))
                fail_msg("%s allows %s", one->schema, one->no[k]);
        grammar_matcher_free(m);
        grammar_free(g);
    }
}

static void unknown_keywords_are_annotations(void **state) {
    (void)state;
    static const struct example x[] = {
        {"{\"type\":\"string\",\"markdownDescription\":\"x\",\"enumNames\":[\"a\"]}",
         {"\"a\""},
         {"1"}},
        {"{\"maxlength\":3}", {"\"abcd\"", "1"}, {NULL}},
        {"{\"type\":\"string\",\"format\":\"password\"}", {"\"a\"", "\"\""}, {"1"}},
        {"{\"not\":{\"type\":\"string\",\"format\":\"colour\"}}", {"1"}, {"\"a\""}},
        {"{\"type\":\"string\",\"minLength\":null,\"enum\":null}", {"\"a\""}, {"1"}},
        {"{\"additionalItems\":false}", {"[1]"}, {NULL}},
        {"{\"if\":{\"type\":\"string\"}}", {"1", "\"a\""}, {NULL}},
        {"{\"minContains\":2}", {"[]"}, {NULL}},
    };
    check(x, N_ELEMENT(x));
}

static void forms_of_old_drafts_are_read(void **state) {
    (void)state;
    static const struct example x[] = {
        {"{\"items\":[{\"type\":\"number\"},{\"type\":\"string\"}],\"type\":\"array\"}",
         {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null]"},
         {"[\"a\"]", "[1,2]"}},
        {"{\"items\":[{\"type\":\"number\"}],\"additionalItems\":false,\"type\":\"array\"}",
         {"[]", "[1]"},
         {"[\"a\"]", "[1,2]"}},
        {"{\"items\":[{\"type\":\"number\"}],\"additionalItems\":{\"type\":\"null\"}}",
         {"[1]", "[1,null]"},
         {"[1,2]"}},
        {"{\"items\":[],\"type\":\"array\"}", {"[]", "[1]"}, {NULL}},
        {"{\"type\":\"integer\",\"minimum\":3,\"exclusiveMinimum\":true}", {"4"}, {"3", "2"}},
        {"{\"type\":\"integer\",\"minimum\":3,\"exclusiveMinimum\":false}", {"3"}, {"2"}},
        {"{\"type\":\"integer\",\"maximum\":3,\"exclusiveMaximum\":true}", {"2"}, {"3"}},
        {"{\"type\":\"integer\",\"exclusiveMaximum\":true}", {"99"}, {"1.5"}},
        {"{\"dependencies\":{\"a\":[\"b\"],\"c\":{\"required\":[\"d\"]}}}",
         {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"c\":1,\"d\":1}"},
         {"{\"a\":1}", "{\"c\":1}", "{\"c\":1,\"b\":1}"}},
        {"{\"type\":\"string\",\"nullable\":true}", {"\"a\"", "null"}, {"1"}},
        {"{\"type\":\"string\",\"nullable\":false}", {"\"a\""}, {"null"}},
        {"{\"type\":[\"string\",\"null\"],\"nullable\":true}", {"\"a\"", "null"}, {"1"}},
        {"{\"properties\":{\"a\":{\"type\":\"string\",\"required\":true}},\"type\":\"object\"}",
         {"{\"a\":\"x\"}"},
         {"{}", "{\"a\":1}"}},
        {"{\"properties\":{\"a\":{\"required\":false}},\"type\":\"object\"}", {"{}"}, {NULL}},
        {"{\"type\":\"any\"}", {"1", "null"}, {NULL}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"$ref\":\"#/definitions/a\","
         "\"minimum\":5,\"definitions\":{\"a\":{\"type\":\"integer\"}}}",
         {"1"},
         {"\"a\""}},
        {"{\"$ref\":\"#/$defs/a\",\"minimum\":5,\"$defs\":{\"a\":{\"type\":\"integer\"}}}",
         {"5"},
         {"1"}},
        {"{\"properties\":{\"l\":{\"items\":[{\"type\":\"null\"}]},\"m\":{\"$ref\":"
         "\"#/properties/l/items/0\"}},\"type\":\"object\"}",
         {"{\"m\":null}"},
         {"{\"m\":1}"}},
        {"{\"properties\":{\"m\":{\"$ref\":\"#/components/schemas/x\"}},\"type\":\"object\","
         "\"components\":{\"schemas\":{\"x\":{\"type\":\"string\",\"nullable\":true}}}}",
         {"{\"m\":null}", "{\"m\":\"a\"}"},
         {"{\"m\":1}"}},
        {"{\"const\":{\"items\":[1],\"nullable\":true,\"type\":\"x\"}}",
         {"{\"items\":[1],\"nullable\":true,\"type\":\"x\"}"},
         {"{\"prefixItems\":[1]}"}},
    };
    check(x, N_ELEMENT(x));
}

static void arrays_of_few_values_are_distinct(void **state) {
    (void)state;
    static const struct example x[] = {
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",3,3.0]},\"uniqueItems\":true}",
         {"[]", "[\"a\"]", "[\"b\", \"a\"]", "[\"a\",3,\"b\"]"},
         {"[\"a\",\"a\"]", "[3,\"b\",3]", "[\"c\"]", "[\"a\",]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"uniqueItems\":true,\"minItems\":"
         "2}",
         {"[true,false]", "[false, true]"},
         {"[]", "[true]", "[true,true]"}},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
         "d\"},\"uniqueItems\":true,\"maxItems\":2,"
         "\"$defs\":{\"d\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":7}}}",
         {"[]", "[7]", "[1,2]"},
         {"[1,1]", "[8]", "[1,2,3]"}},
        {"{\"type\":\"array\",\"items\":{\"anyOf\":[{\"const\":null},{\"enum\":[[1],{\"a\":1}]}]},"
         "\"uniqueItems\":true}",
         {"[null,[1]]", "[{\"a\":1},[1],null]"},
         {"[[1],null,[1]]", "[{\"a\":1},{\"a\":1}]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true,\"maxItems\":1}",
         {"[]", "[\"a\"]"},
         {"[\"a\",\"b\"]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":false}",
         {"[\"a\",\"a\"]"},
         {NULL}},
    };
    check(x, N_ELEMENT(x));
}

static void arrays_contain_what_they_must(void **state) {
    (void)state;
    static const struct example x[] = {
        {"{\"type\":\"array\",\"contains\":{\"const\":1}}",
         {"[1]", "[2,1]", "[1,1]", "[\"a\",1,null]"},
         {"[]", "[2]"}},
        {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":2,\"maxItems\":3}",
         {"[1,1]", "[1,2,1]", "[1,1,1]"},
         {"[1]", "[1,2]", "[1,2,3]", "[1,1,1,1]"}},
        {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":0,\"maxContains\":1}",
         {"[]", "[1]", "[2,3,1,4]"},
         {"[1,1]", "[1,2,1]"}},
        {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":0}",
         {"[]", "[2]"},
         {NULL}},
        {"{\"prefixItems\":[{\"const\":2}],\"items\":{\"type\":\"integer\"},\"type\":\"array\","
         "\"contains\":{\"const\":1},\"minItems\":3}",
         {"[2,1,1]", "[2,1,3]", "[2,3,4,1]"},
         {"[2,1]", "[2,3,4]", "[1,1,1]", "[2,1,\"a\"]"}},
        {"{\"type\":\"array\",\"not\":{\"contains\":{\"const\":1}}}",
         {"[]", "[2]"},
         {"[1]", "[2,1]"}},
    };
    check(x, N_ELEMENT(x));
}

/* All texts of up to five characters of "ab1x": how many match, and a hash (FNV-1a) of the verdicts in
 * their order, as Python's re.search decides. */
static void lookaheads_match_as_in_python(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        uint32_t n, hash;
    } x[] = {
        {"^(?!x)[a-z]+1[a-z]+$", 204, 0x9624c4ffu},
        {"^(?=.*a)(?=.*1).{2,}$", 700, 0xd2d8a13fu},
        {"^(?!.*ab)[abx1]*$", 1065, 0xe7d556f0u},
        {"(?=a)x", 0, 0x50b2d33fu},
        {"a(?=b)", 300, 0x4408b8c7u},
        {"a(?!b)", 849, 0x13a9b764u},
        {"(a(?=b)|x)+1", 300, 0xe10b5277u},
        {"^(?:(?!11).)*$", 1112, 0x6a3980d5u},
        {"(?=(?!a)b)b", 1001, 0x17757be4u},
        {"(?!^a)b", 1001, 0x17757be4u},
        {"^(?=^a).b", 85, 0xfa704790u},
        {"x(?=$)", 341, 0xd9252e8cu},
        {"x(?!$)", 880, 0xfbfbb3cfu},
        {"^(?=a|b$)..?$", 6, 0x5316121du},
        {"(?!)", 0, 0x50b2d33fu},
        {"(?=)a", 1001, 0x655aa93eu},
        {"^(?!a(?=b))", 1280, 0x6ffe98dbu},
        {"^(?=.*x)(?!.*xx)(?=.*[ab]).{3,}$", 718, 0x0796dc01u},
        {"(?:(?=a)a|(?=b)b1){2}", 346, 0x5e11b44fu},
        {"a(?!.*1)$", 341, 0xd99a1b2eu},
    };
    for (size_t i = 0; i < N_ELEMENT(x); i++) {
        char schema[200];
        struct grammar_matcher *m;
        uint32_t n = 0, hash = 2166136261u, n_text = 1;
        snprintf(schema, sizeof schema, "{\"pattern\":\"%s\"}", x[i].pattern);
        struct grammar *g = compile(schema, NULL);
        assert_int_equal(grammar_matcher_new(&m, g, vocab, 1 << 20, NULL), 0);
        for (size_t length = 0; length < 6; length++, n_text *= 4)
            for (uint32_t k = 0; k < n_text; k++) {
                char text[8] = "\"";
                for (size_t c = 0; c < length; c++)
                    text[1 + c] = "ab1x"[k >> 2 * (length - 1 - c) & 3];
                text[1 + length] = '"';
                bool yes = matches(m, text, length + 2);
                n += yes;
                hash = (hash ^ (yes ? '1' : '0')) * 16777619u;
            }
        if (n != x[i].n || hash != x[i].hash)
            fail_msg("%s matches %u texts (hash %08x), not %u", x[i].pattern, n, hash, x[i].n);
        grammar_matcher_free(m);
        grammar_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_keywords_are_annotations),
        cmocka_unit_test(forms_of_old_drafts_are_read),
        cmocka_unit_test(arrays_of_few_values_are_distinct),
        cmocka_unit_test(arrays_contain_what_they_must),
        cmocka_unit_test(lookaheads_match_as_in_python),
    };
    return cmocka_run_group_tests(tests, make_vocab, free_vocab);
}
