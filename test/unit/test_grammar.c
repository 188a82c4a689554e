/* test_grammar.c: GBNF and JSON Schema: what is accepted and where it stops, refusals by name, limits;
 * masks against brute force over the vocabulary; 10,000 masked random texts against a validator of
 * its own (patterns by PCRE2); rewind, fork, collection, allocation failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_mask.h"

#define N_ELEMENT(array) (sizeof(array) / sizeof *(array))

/* ---- a small vocabulary: all bytes, pieces that JSON and the grammars below use, cut characters ---- */

static const char *const pieces_text[] = {
    "{\"",      "\":",      "\": ", "\",\"",   "\"}",    "\"},",       "true",       "false",
    "null",     "[]",       "],",   "}}",      "]}",     ", ",         "  ",         "\n",
    "\n  ",     "ab",       "abc",  "name",    "\"name", "\"name\"",   "na",         "me\"",
    "\\u00",    "\\ud83d",  "\\n",  "123",     "0.",     "-1",         "1e",         "e+",
    ".5",       "00",       "99",   "\"},{\"", "é",      "日本",       "\xe6\x97",   "\xa5",
    "\xf0\x9f", "\x98\x80", "a\"",  "a\",\"b", "x\":1",  "\"a\":",     "\"b\": \"",  "red",
    "green",    "re",       "d\"",  "gre",     "tag",    "\"tag\":\"", "kind",       "value",
    "-0",       "2026-",    "02-",  "-29",     "12:",    ":30",        "Z\"",        "T",
    "AB-",      "{}",       "[1",   "[[",      "]]",     "foo",        "bar",        "(",
    ")",        "((",       "))",   "+",       "*",      " + ",        "root",       "item\n",
    "- ",       "zz",       "\"\"", "\"x\"",   "left",   "right",      "\"left\":{", "\"right\":{",
    "leaf",     "1,2",      "1, 2", ",1",      "5]",     "a\xc3",      "\xa9z",      "\"leaf\":"};

enum {
    N_PIECE = N_ELEMENT(pieces_text),
    N_SMALL = 256 + N_PIECE + 3,
    SPECIAL = 256 + N_PIECE,
    END,
    EMPTY
};

static struct grammar_vocab *small_vocab(void) {
    static char bytes[256];
    static struct slice pieces[N_SMALL];
    static uint8_t kinds[N_SMALL];
    struct grammar_vocab *v;
    struct err e = {0};
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        pieces[i] = (struct slice){&bytes[i], 1};
    }
    for (size_t i = 0; i < N_PIECE; i++)
        pieces[256 + i] = (struct slice){pieces_text[i], strlen(pieces_text[i])};
    pieces[SPECIAL] = SLICE("<think>");
    kinds[SPECIAL] = GRAMMAR_TOKEN_SPECIAL;
    pieces[END] = SLICE("<end>");
    kinds[END] = GRAMMAR_TOKEN_EOG;
    pieces[EMPTY] = (struct slice){"", 0};
    assert_int_equal(grammar_vocab_new(&v, N_SMALL, pieces, kinds, &e), 0);
    return v;
}

static const char *piece_text(int id, size_t *n) {
    static char byte;
    if (id < 256) {
        byte = (char)id;
        *n = 1;
        return &byte;
    }
    *n = strlen(pieces_text[id - 256]);
    return pieces_text[id - 256];
}

static struct grammar *compile_under(bool gbnf, const char *text,
                                     const struct grammar_limits *lim) {
    struct grammar *g;
    struct err e = {0};
    int rc = gbnf ? grammar_from_gbnf(&g, text, strlen(text), lim, &e)
                  : grammar_from_schema(&g, text, strlen(text), lim, &e);
    if (rc) print_error("%s\n  %s\n", text, e.text);
    assert_int_equal(rc, 0);
    return g;
}

static struct grammar *compile(bool gbnf, const char *text) {
    return compile_under(gbnf, text, NULL);
}

/* -1: matches; else the offset at which it stops. */
static long stops_at(const struct grammar *g, const char *text, size_t n) {
    struct grammar_vocab *v = small_vocab();
    struct grammar_matcher *m;
    struct grammar_state *s;
    size_t at;
    assert_int_equal(grammar_matcher_new(&m, g, v, 1, NULL), 0);
    assert_int_equal(grammar_state_new(&s, m, NULL), 0);
    int rc = grammar_accept_bytes(s, text, n, &at);
    long result = rc == 0 && grammar_is_complete(s) ? -1 : (long)at;
    grammar_state_free(s);
    grammar_matcher_free(m);
    grammar_vocab_free(v);
    return result;
}

struct example {
    const char *grammar, *text;
    long stop; /* -1: matches */
};

static void check_examples(bool gbnf, const struct example *examples, size_t n,
                           const struct grammar_limits *lim) {
    for (size_t i = 0; i < n; i++) {
        struct grammar *g = compile_under(gbnf, examples[i].grammar, lim);
        long stop = stops_at(g, examples[i].text, strlen(examples[i].text));
        if (stop != examples[i].stop)
            fail_msg("%s\n  on '%s' stops at %ld, not at %ld", examples[i].grammar,
                     examples[i].text, stop, examples[i].stop);
        grammar_free(g);
    }
}

static void gbnf_matches_whole_texts(void **state) {
    (void)state;
    static const struct example examples[] = {
        {"root ::= \"yes\" | \"no\"", "yes", -1},
        {"root ::= \"yes\" | \"no\"", "ye", 2},
        {"root ::= \"yes\" | \"no\"", "yesno", 3},
        {"root ::= [a-c]+ # letters\n", "abcabc", -1},
        {"root ::= [a-c]+", "", 0},
        {"root ::= [^\"\\\\\\x00-\\x1f]*", "d\xc3\xa9j\xc3\xa0 \xe6\x97\xa5", -1},
        {"root ::= [^a]", "\xc3\x28", 1}, /* half a character, then another */
        {"root ::= [\\u00e9-\\u00eb]", "\xc3\xaa", -1},
        {"root ::= [\\u00e9-\\u00eb]", "\xc3\xac", 1},
        {"root ::= .", "\xf0\x9f\x98\x80", -1},
        {"root ::= .", "\xed\xa0\x80", 1}, /* surrogate */
        {"root ::= (\"a\" | \"b\" \"c\"){2,3}", "abca", -1},
        {"root ::= (\"a\" | \"b\" \"c\"){2,3}", "aaaa", 3},
        {"root ::= (\"a\" | \"b\" \"c\"){2,3}", "bc", 2},
        {"root ::= \"a\"{3}", "aaa", -1},
        {"root ::= \"a\"{2,}", "aaaaaaa", -1},
        {"root ::= \"a\"{,2} \"b\"", "aab", -1},
        {"root ::= \"a\"? \"b\"", "b", -1},
        {"root ::= \"\" | x\nx ::=\n  \"a\" |\n  \"b\"\n", "b", -1},
        {"root ::= \"\"", "", -1},
        {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
         "1+(2+(33))", -1},
        {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
         "1+(2+(33)", 9},
        {"root ::= a\na ::= \"x\" a | \"y\"", "xxxxxxxxy", -1},
        {"root ::= (\"a\"? \"b\"?)* \"c\"", "abbaac", -1},
        {"root ::= (((\"a\"*)*)*)*", "aaa", -1},
        {"root ::= a-b \"!\"\na-b ::= \"x\"", "x!", -1},
        {"root ::= \"\\\"\\n\\x41\\u00e9\\U0001F600\"", "\"\nA\xc3\xa9\xf0\x9f\x98\x80", -1},
        {"root ::= [\\]\\-a]+", "]-a", -1},
        {"root ::= [a-]+", "a-", -1},
        {"root ::= a b\na ::= \"x\" | \nb ::= \"y\"", "y", -1},
        {"root ::= \"p\" dead | \"p\" \"q\"\ndead ::= \"z\" dead", "pz", 1}, /* dead never ends */
    };
    check_examples(true, examples, N_ELEMENT(examples), NULL);
}

struct refusal {
    const char *grammar;
    int code;
    const char *says;
};

static void check_refusals(bool gbnf, const struct refusal *refusals, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct grammar *g;
        struct err e = {0};
        const char *text = refusals[i].grammar;
        int rc = gbnf ? grammar_from_gbnf(&g, text, strlen(text), NULL, &e)
                      : grammar_from_schema(&g, text, strlen(text), NULL, &e);
        if (rc != refusals[i].code || !strstr(e.text, refusals[i].says))
            fail_msg("%s\n  gives %d '%s', not %d '%s'", text, rc, e.text, refusals[i].code,
                     refusals[i].says);
        assert_null(g);
    }
}

static void gbnf_refuses_by_name(void **state) {
    (void)state;
    static const struct refusal refusals[] = {
        {"", CHIMERE_EFORMAT, "'root'"},
        {"start ::= \"a\"", CHIMERE_EFORMAT, "'root'"},
        {"root ::= missing", CHIMERE_EFORMAT, "'missing'"},
        {"root ::= root \"a\" | \"b\"", CHIMERE_EFORMAT, "'root' is left-recursive"},
        {"root ::= a\na ::= b? a \"x\" | \"y\"\nb ::= \"b\"", CHIMERE_EFORMAT,
         "'a' is left-recursive"},
        {"root ::= (root)* \"a\"", CHIMERE_EFORMAT, "left-recursive"},
        {"root ::= \"a\" root", CHIMERE_EREFUSED, "no text"},
        {"root ::= \"a", CHIMERE_EFORMAT, "line 1"},
        {"\n\nroot ::= [a", CHIMERE_EFORMAT, "line 3"},
        {"root ::= (\"a\"", CHIMERE_EFORMAT, "parenthesis"},
        {"root ::= \"a\")", CHIMERE_EFORMAT, "unexpected"},
        {"root ::= \"a\"{3,2}", CHIMERE_EFORMAT, "maximum below"},
        {"root ::= \"a\"{x}", CHIMERE_EFORMAT, "{m,n}"},
        {"root ::= [z-a]", CHIMERE_EFORMAT, "out of order"},
        {"root ::= \"\\q\"", CHIMERE_EFORMAT, "escape"},
        {"root ::= \"\\uD800\"", CHIMERE_EFORMAT, "Unicode"},
        {"root ::= <[1000]>", CHIMERE_EUNSUPPORTED, "token references"},
        {"root ::= \"a\"\nroot ::= \"b\"", CHIMERE_EFORMAT, "twice"},
        {"root ::= \"\xff\"", CHIMERE_EFORMAT, "UTF-8"},
        {"root ::= (\"ab\" | \"cd\"){1,1000000}", CHIMERE_ELIMIT, "more than"},
        {"root ::= [a-z]{999999999}", CHIMERE_ELIMIT, "more than"},
        {"root ::= ((((\"a\"{999}){999}){999}){999})", 0, ""},
    };
    check_refusals(true, refusals, N_ELEMENT(refusals) - 1);
}

static void schema_matches_values(void **state) {
    (void)state;
    static const struct example examples[] = {
        {"{}", " {\"a\" : [1 , 2.5e-3, \"x\", null, true] } \n", -1},
        {"{}", "[01]", 2},
        {"{}", "\"\x01\"", 1},
        {"{}", "\"\\ud83d\\ude00\\u00e9\\/\"", -1},
        {"{}", "\"\\ude00\"", 4},
        {"{}", "\"\xff\"", 1},
        {"true", "{}", -1},
        {"{\"type\":\"integer\"}", "-12", -1},
        {"{\"type\":\"integer\"}", "1.0", -1},
        {"{\"type\":\"integer\"}", "1.5", 2},
        {"{\"type\":[\"integer\",\"null\"]}", "null", -1},
        {"{\"minimum\":-3.5,\"exclusiveMaximum\":12}", "-3.50", -1},
        {"{\"minimum\":-3.5,\"exclusiveMaximum\":12}", "-3.51", 4},
        {"{\"minimum\":-3.5,\"exclusiveMaximum\":12}", "11.999999", -1},
        {"{\"minimum\":-3.5,\"exclusiveMaximum\":12}", "12", 1},
        {"{\"minimum\":-3.5,\"exclusiveMaximum\":12}", "120", 1},
        {"{\"minimum\":-3.5,\"exclusiveMaximum\":12}", "\"not a number\"", -1},
        {"{\"type\":\"integer\",\"minimum\":100,\"maximum\":1999}", "1999.000", -1},
        {"{\"type\":\"integer\",\"minimum\":100,\"maximum\":1999}", "99", 2},
        {"{\"type\":\"integer\",\"minimum\":100,\"maximum\":1999}", "2000", 3},
        {"{\"type\":\"integer\",\"minimum\":-9223372036854775808}", "-9223372036854775808", -1},
        {"{\"type\":\"integer\",\"minimum\":-9223372036854775808}", "-9223372036854775809", 19},
        {"{\"exclusiveMinimum\":0,\"type\":\"number\"}", "0.0000000000000000001", -1},
        {"{\"exclusiveMinimum\":0,\"type\":\"number\"}", "-0", 0},
        {"{\"multipleOf\":0.01}", "17.250", -1},
        {"{\"multipleOf\":0.01}", "17.255", 5},
        {"{\"multipleOf\":7}", "700", -1},
        {"{\"multipleOf\":7}", "701", 3},
        {"{\"const\":\"caf\\u00e9\"}", "\"caf\\u00E9\"", -1},
        {"{\"const\":\"caf\\u00e9\"}", "\"caf\xc3\xa9\"", -1},
        {"{\"const\":\"caf\\u00e9\"}", "\"cafe\"", 4},
        {"{\"const\":2}", "2.0", -1},
        {"{\"const\":{\"a\":[1,{}]}}", "{ \"a\" : [ 1.0 , { } ] }", -1},
        {"{\"enum\":[\"red\",\"green\",4,null,[1]]}", "\"green\"", -1},
        {"{\"enum\":[\"red\",\"green\",4,null,[1]]}", "\"gr\"", 3},
        {"{\"enum\":[\"red\",\"green\",4,null,[1]]}", "[1]", -1},
        {"{\"enum\":[\"red\",\"green\",4,null,[1]]}", "[1,1]", 2},
        {"{\"minLength\":2,\"maxLength\":3}", "\"\\ud83d\\ude00\xc3\xa9z\"", -1},
        {"{\"minLength\":2,\"maxLength\":3}", "\"\xf0\x9f\x98\x80\"", 5},
        {"{\"minLength\":2,\"maxLength\":3}", "\"abcd\"", 4},
        {"{\"pattern\":\"^a+$\",\"maxLength\":3,\"type\":\"string\"}", "\"aaaa\"", 4},
        {"{\"pattern\":\"^(ab)*$\",\"maxLength\":3,\"type\":\"string\"}", "\"aba\"", 3},
        {"{\"pattern\":\"b$\",\"minLength\":3}", "\"xyb\"", -1},
        {"{\"pattern\":\"b$\",\"minLength\":3}", "\"yb\"", 3},
        {"{\"pattern\":\"^\\\\p{Lu}\\\\w{1,3}$\"}", "\"\xc3\x89t_9\"", -1},
        {"{\"pattern\":\"[^a-c]\"}", "\"abcab\"", 6},
        {"{\"format\":\"date\"}", "\"2024-02-29\"", -1},
        {"{\"format\":\"date\"}", "\"2023-02-29\"", 10},
        {"{\"format\":\"ipv6\"}", "\"::ffff:1.2.3.4\"", -1},
        {"{\"format\":\"uuid\"}", "\"2eb8aa08-aa98-11ea-b4aa-73b441d16380\"", -1},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         "[1,2 ,3]", -1},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         "[1]", 2},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         "[1,2,3,4]", 6},
        {"{\"prefixItems\":[{\"type\":\"null\"}],\"items\":false}", "[null]", -1},
        {"{\"prefixItems\":[{\"type\":\"null\"}],\"items\":false}", "[null,1]", 5},
        {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":true},\"required\":[\"b\"]}",
         "{\"b\":1,\"a\":null}", -1},
        {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":true},\"required\":[\"b\"]}",
         "{\"a\":null}", 9},
        {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":true},\"required\":[\"b\"]}", "{\"a\":1",
         5},
        {"{\"properties\":{\"a\":true}}", "{\"a\":1,\"a\":1}", 9}, /* a name comes once */
        {"{\"properties\":{\"a\":false}}", "{\"aa\":1}", -1},
        {"{\"properties\":{\"a\":false}}", "{\"a\":1}", 3},
        {"{\"additionalProperties\":{\"type\":\"null\"},\"properties\":{\"x\":{\"type\":"
         "\"integer\"}}}",
         "{\"y\":null,\"x\":1}", -1},
        {"{\"additionalProperties\":{\"type\":\"null\"},\"properties\":{\"x\":{\"type\":"
         "\"integer\"}}}",
         "{\"y\":1}", 5},
        {"{\"patternProperties\":{\"^n\":{\"type\":\"null\"}},\"additionalProperties\":false}",
         "{\"n1\":null}", -1},
        {"{\"patternProperties\":{\"^n\":{\"type\":\"null\"}},\"additionalProperties\":false}",
         "{\"m", 2},
        {"{\"propertyNames\":{\"maxLength\":2}}", "{\"ab\":1}", -1},
        {"{\"propertyNames\":{\"maxLength\":2}}", "{\"abc\":1}", 4},
        {"{\"minProperties\":1,\"maxProperties\":2}", "{\"a\":1,\"b\":2,\"c\":3}", 12},
        {"{\"minProperties\":1,\"type\":\"object\"}", "{ }", 2},
        {"{\"required\":[\"a\",\"b\"],\"maxProperties\":2}", "{\"c\":1}", 2}, /* no room for c */
        {"{\"allOf\":[{\"minimum\":3},{\"maximum\":5}],\"type\":\"integer\"}", "4", -1},
        {"{\"allOf\":[{\"minimum\":3},{\"maximum\":5}],\"type\":\"integer\"}", "6", 0},
        {"{\"oneOf\":[{\"multipleOf\":2},{\"not\":{\"maximum\":10}}],\"type\":\"integer\"}", "8",
         -1},
        {"{\"not\":{\"type\":[\"string\",\"number\"]}}", "\"x\"", 0},
        {"{\"if\":{\"type\":\"string\"},\"then\":{\"minLength\":2},\"else\":{\"type\":\"null\"}}",
         "\"a\"", 2},
        {"{\"dependentRequired\":{\"a\":[\"b\"]}}", "{\"a\":1}", 6},
        {"{\"dependentRequired\":{\"a\":[\"b\"]}}", "{\"a\":1,\"b\":1}", -1},
        {"{\"$ref\":\"#/$defs/"
         "t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"kids\":{\"type\":"
         "\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}},\"additionalProperties\":false}}}",
         "{\"kids\":[{\"kids\":[]},{}]}", -1},
        {"{\"$ref\":\"#/$defs/a~1b%25\",\"$defs\":{\"a/b%\":{\"type\":\"null\"}}}", "null", -1},
    };
    check_examples(false, examples, N_ELEMENT(examples), NULL);
}

/* What a model may write of it (limits.plain), and what only a reader takes. */
static void plain_texts_are_one_way_to_write(void **state) {
    (void)state;
    static const char object[] =
        "{\"properties\":{\"id\":{\"type\":\"integer\"},\"a\\\"b/\xc3\xa9\":{\"type\":\"string\"},"
        "\"list\":{\"items\":{\"type\":\"number\"}}},\"additionalProperties\":false,\"type\":"
        "\"object\"}";
    static const struct example examples[] = {
        {object, "{\"id\": 1212, \"list\": [1, 2.50, 1e3]}", -1},
        {object, "{\n  \"id\": -5,\n  \"list\": [\n\t\t1,\n\t\t2\n  ]\n}", -1},
        {object, "{\"list\": [ ]}", -1},
        {object,
         "{\"a\\\"b/\xc3\xa9\":\"/ \\\" \\\\ \\n \\u0001 \\u00e9 \\ud83d\\ude00 \xc3\xa9\"}", -1},
        {object, "{\"id\": 1\n }", -1},
        {object, " {}", 0}, /* nothing around the value */
        {object, "{} ", 2},
        {object, "{  \"id\":1}", 2},   /* one space */
        {object, "{\n\n\"id\":1}", 2}, /* one line end */
        {object, "{\"id\" :1}", 5},    /* none before a colon */
        {object, "{\"id\":\n1}", 6},
        {object, "{\"id\":1 ,\"list\":[]}", 8}, /* none before a comma */
        {object, "{\"list\":[1 ,2]}", 11},
        {object, "{\"id\":1212.0}", 10}, /* an integer is written as one */
        {object, "{\"id\":1e3}", 7},
        {object, "{\"\\u0069d\":1}", 2}, /* names in one spelling */
        {object, "{\"a\\\"b\\/\xc3\xa9\":\"\"}", 6},
        {object, "{\"a\\\"b/\\u00e9\":\"\"}", 7},
        {"{\"const\":5}", "5", -1},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":40}", "40.0", 2},
        {"{\"type\":\"object\"}", "{\"a\": {\"b\": [1, {\"c\": null}]}}", -1},
    };
    const struct grammar_limits plain = {.space = 5, .plain = true};
    check_examples(false, examples, N_ELEMENT(examples), &plain);
}

static void schema_refuses_by_name(void **state) {
    (void)state;
    static const struct refusal refusals[] = {
        {"{\"type\":\"strin\"}", CHIMERE_EFORMAT, "'type'"},
        {"{\"contains\":{},\"minContains\":9999}", CHIMERE_EUNSUPPORTED, "'contains'"},
        {"{\"properties\":{\"a\":{\"uniqueItems\":true}}}", CHIMERE_EUNSUPPORTED,
         "'uniqueItems' at #/properties/a"},
        {"{\"$dynamicRef\":\"#a\"}", CHIMERE_EUNSUPPORTED, "'$dynamicRef'"},
        {"{\"minLength\":-1}", CHIMERE_EFORMAT, "'minLength'"},
        {"{\"items\":[7]}", CHIMERE_EFORMAT, "'prefixItems'"},
        {"{\"pattern\":\"(?<=a)\"}", CHIMERE_EUNSUPPORTED, "lookbehind"},
        {"{\"pattern\":\"(a)\\\\1\"}", CHIMERE_EUNSUPPORTED, "back references"},
        {"{\"pattern\":\"\\\\bx\"}", CHIMERE_EUNSUPPORTED, "word boundaries"},
        {"{\"pattern\":\"(a\"}", CHIMERE_EFORMAT, "parenthesis"},
        {"{\"$ref\":\"http://example.com/x\"}", CHIMERE_EUNSUPPORTED, "'$ref'"},
        {"{\"$ref\":\"#/$defs/none\"}", CHIMERE_EFORMAT, "leads nowhere"},
        {"{\"$ref\":\"#\"}", CHIMERE_EFORMAT, "loop"},
        {"{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
         "a\"},true]}},"
         "\"properties\":{\"x\":{\"$ref\":\"#/$defs/a\"}}}",
         CHIMERE_EFORMAT, "loop"},
        {"false", CHIMERE_EREFUSED, "no value"},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", CHIMERE_EREFUSED, "no value"},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}",
         CHIMERE_EREFUSED, "no value"},
        {"{\"not\":{\"items\":{\"type\":\"null\"}}}", CHIMERE_EUNSUPPORTED, "'items'"},
        {"[]", CHIMERE_EFORMAT, "expected an object"},
        {"{\"a\":", CHIMERE_EFORMAT, "line 1"},
        {"{\"type\":\"null\",\"type\":\"string\"}", CHIMERE_EFORMAT, "duplicate"},
        {"{\"maximum\":18446744073709551616}", CHIMERE_EFORMAT, "big integer"},
        {"{\"const\":\"\\ud800\"}", CHIMERE_EFORMAT, "Unicode"},
        {"{\"type\":\"string\",\"pattern\":\"^a{99}$\",\"minLength\":100}", CHIMERE_EREFUSED,
         "no value"},
        {"{\"pattern\":\"(((a{900}){900}){900})\"}", CHIMERE_ELIMIT, "more than"},
        {"{\"pattern\":\"^(a|b)*a(a|b){30}$\"}", CHIMERE_ELIMIT, "more than"},
    };
    check_refusals(false, refusals, N_ELEMENT(refusals));
}

/* ---- hostile sizes: an error within the limits and within a second ---- */

static void check_hostile(bool gbnf, struct buf *text, const char *what, bool may_compile) {
    struct grammar *g;
    struct err e = {0};
    int64_t start = clock_cpu_ns();
    assert_false(text->failed);
    int rc = gbnf ? grammar_from_gbnf(&g, text->p, text->n, NULL, &e)
                  : grammar_from_schema(&g, text->p, text->n, NULL, &e);
    double ms = (double)(clock_cpu_ns() - start) * 1e-6;
    if (rc == 0 && !may_compile) fail_msg("%s: compiled", what);
    if (rc) assert_true(e.text[0] != 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (ms > 1000) fail_msg("%s: %.0f ms", what, ms);
#else
    (void)ms;
#endif
    grammar_free(g);
    buf_fini(text);
}

static void repeat(struct buf *b, const char *s, int n) {
    for (int i = 0; i < n; i++) buf_puts(b, s);
}

static void hostile_sources_end_in_time(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 4 << 20);
    buf_puts(&b, "root ::= ");
    repeat(&b, "(", 10000);
    buf_puts(&b, "\"a\"");
    repeat(&b, ")", 10000);
    check_hostile(true, &b, "nested groups", false);
    buf_init(&b, 4 << 20);
    repeat(&b, "{\"items\":", 10000);
    buf_puts(&b, "{}");
    repeat(&b, "}", 10000);
    check_hostile(false, &b, "10,000-deep JSON", false);
    buf_init(&b, 4 << 20);
    repeat(&b, "{\"not\":", 1500);
    buf_puts(&b, "{}");
    repeat(&b, "}", 1500);
    check_hostile(false, &b, "nested negation", false);
    buf_init(&b, 4 << 20);
    buf_puts(&b, "root ::= a0\n");
    for (int i = 0; i < 9999; i++) buf_printf(&b, "a%d ::= a%d | \"x\"\n", i, i + 1);
    buf_puts(&b, "a9999 ::= \"y\"\n");
    check_hostile(true, &b, "a chain of rules", true);
    buf_init(&b, 4 << 20);
    buf_puts(&b, "{\"allOf\":[");
    for (int i = 0; i < 30; i++)
        buf_printf(&b, "%s{\"anyOf\":[{\"minimum\":%d},{\"maximum\":-%d},{\"multipleOf\":%d}]}",
                   i ? "," : "", i, i, i + 2);
    buf_puts(&b, "]}");
    check_hostile(false, &b, "exponential alternation", false);
    buf_init(&b, 4 << 20);
    buf_puts(&b, "{\"enum\":[");
    for (int i = 0; i < 60000; i++) buf_printf(&b, "%s\"word%d\"", i ? "," : "", i * 7919);
    buf_puts(&b, "]}");
    check_hostile(false, &b, "a large enum", true);
    buf_init(&b, 4 << 20);
    buf_puts(&b, "{\"properties\":{");
    for (int i = 0; i < 20000; i++) buf_printf(&b, "%s\"p%d\":{}", i ? "," : "", i);
    buf_puts(&b, "}}");
    check_hostile(false, &b, "20,000 properties", false);
    buf_init(&b, 4 << 20);
    buf_puts(&b, "{\"patternProperties\":{");
    for (int i = 0; i < 40; i++)
        buf_printf(&b, "%s\"x%d.*y%d\":{\"minimum\":%d}", i ? "," : "", i, i, i);
    buf_puts(&b, "}}");
    check_hostile(false, &b, "patterns that cut names", false);
    buf_init(&b, 4 << 20);
    buf_puts(&b, "root ::= [");
    for (int i = 0; i < 100000; i++) buf_printf(&b, "\\U%08x", 0x10ffff - 7 * i);
    buf_puts(&b, "]");
    check_hostile(true, &b, "a large class", true);
    buf_init(&b, 4 << 20);
    buf_puts(&b, "{\"$defs\":{");
    for (int i = 0; i < 5000; i++) buf_printf(&b, "\"d%d\":{\"$ref\":\"#/$defs/d%d\"},", i, i + 1);
    buf_puts(&b, "\"d5000\":{}},\"$ref\":\"#/$defs/d0\"}");
    check_hostile(false, &b, "a chain of references", false);
}

/* Alternatives that only their ends tell apart, nested: without shared frames 2^depth configurations. */
static void nested_alternatives_stay_small(void **state) {
    (void)state;
    struct grammar *g =
        compile(false, "{\"$ref\":\"#/$defs/e\",\"$defs\":{\"e\":{\"anyOf\":["
                       "{\"type\":\"object\",\"properties\":{\"l\":{\"$ref\":\"#/$defs/e\"},\"op\":"
                       "{\"const\":\"+\"}},\"required\":[\"op\"]},"
                       "{\"type\":\"object\",\"properties\":{\"l\":{\"$ref\":\"#/$defs/e\"},\"op\":"
                       "{\"const\":\"-\"}},\"required\":[\"op\"]},{\"type\":\"null\"}]}}}");
    struct buf b;
    buf_init(&b, 1 << 20);
    repeat(&b, "{\"l\":", 500);
    buf_puts(&b, "null");
    repeat(&b, ",\"op\":\"-\"}", 500);
    int64_t start = clock_cpu_ns();
    assert_int_equal(stops_at(g, b.p, b.n), -1);
    assert_true(clock_cpu_ns() - start < 2000000000);
    buf_fini(&b);
    grammar_free(g);
}

/* ---- masks ---- */

static const struct {
    bool gbnf;
    const char *text;
} grammars[] = {
    {true, "root ::= [^\"]* \"\\\"\" | \"(\" root \")\""},
    {true, "root ::= item+\nitem ::= \"- \" [^\\n]{1,8} \"\\n\""},
    {true, "root ::= expr\nexpr ::= term (\" \"? [+*] \" \"? term){0,3}\nterm ::= [0-9]+ | \"(\" "
           "expr \")\""},
    {true, "root ::= ((\"a\"? \"ab\"? \"abc\"?)* | \"foo\"){2} [é日]"},
    {false, "{}"},
    {false, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":5}"},
    {false, "{\"type\":\"string\",\"minLength\":3}"},
    {false, "{\"type\":\"string\",\"maxLength\":40}"},
    {false, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":2},\"minItems\":2,"
            "\"maxItems\":4}"},
    {false, "{\"type\":\"string\",\"pattern\":\"^(a|é|日本)+[^x]?b?$\",\"maxLength\":7}"},
    {false, "{\"type\":\"string\",\"pattern\":\"foo\"}"},
    {false, "{\"format\":\"date-time\",\"type\":\"string\"}"},
    {false, "{\"format\":\"hostname\",\"type\":\"string\"}"},
    {false, "{\"properties\":{\"name\":{\"type\":\"string\"},\"value\":{\"type\":\"integer\","
            "\"minimum\":-5,"
            "\"maximum\":120},\"tag\":{\"enum\":[\"red\",\"green\",null,1.5]}},\"required\":["
            "\"name\"],\"type\":"
            "\"object\"}"},
    {false, "{\"properties\":{\"name\":{\"const\":\"ab\"},\"na\":{\"type\":\"number\","
            "\"multipleOf\":0.5}},"
            "\"required\":[\"na\",\"name\"],\"type\":\"object\",\"additionalProperties\":false}"},
    {false,
     "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"boolean\"},\"minProperties\":1,"
     "\"maxProperties\":3,\"propertyNames\":{\"pattern\":\"^[a-z]+$\"}}"},
    {false,
     "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"a\"},\"x\":{\"type\":"
     "\"integer\"}},\"required\":[\"kind\",\"x\"],\"additionalProperties\":false},{\"type\":"
     "\"object\","
     "\"properties\":{\"kind\":{\"const\":\"b\"},\"y\":{\"type\":\"string\"}},\"required\":["
     "\"kind\"],"
     "\"additionalProperties\":false}]}"},
    {false, "{\"$ref\":\"#/$defs/"
            "t\",\"$defs\":{\"t\":{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"left\":"
            "{\"$ref\":\"#/$defs/t\"},\"right\":{\"$ref\":\"#/$defs/"
            "t\"}},\"required\":[\"left\",\"right\"],"
            "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"leaf\":{"
            "\"type\":\"integer\"}},"
            "\"required\":[\"leaf\"],\"additionalProperties\":false}]}}}"},
    {false, "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\",\"exclusiveMinimum\":0},{"
            "\"type\":\"boolean\"}"
            "],\"items\":{\"type\":\"null\"},\"maxItems\":4,\"minItems\":1}"},
    {false,
     "{\"type\":\"object\",\"properties\":{\"foo\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"number\"}}},"
     "\"patternProperties\":{\"^b\":{\"type\":\"null\"},\"r$\":{\"type\":[\"null\",\"integer\"]}},"
     "\"additionalProperties\":{\"type\":\"string\",\"maxLength\":1}}"},
    {false, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
            "\"integer\"}},"
            "\"not\":{\"required\":[\"a\"]},\"maxProperties\":2}"},
    {false, "{\"type\":[\"number\",\"string\"],\"not\":{\"enum\":[\"\",\"ab\",1,0]},\"maxLength\":"
            "4,\"minimum\":-1}"},
};

static void assert_mask_is_brute_force(struct grammar_state *s, const uint64_t *bits,
                                       const char *what) {
    for (int id = 0; id < N_SMALL; id++) {
        uint64_t mark = grammar_mark(s);
        bool was_complete = grammar_is_complete(s);
        int rc = grammar_accept_token(s, id);
        if (rc == 0) assert_int_equal(grammar_rewind(s, mark), 0);
        if (id == END) assert_int_equal(rc == 0, was_complete);
        if (id == SPECIAL || id == EMPTY) assert_int_equal(rc, CHIMERE_EREFUSED);
        if ((rc == 0) != (bits[id / 64] >> id % 64 & 1))
            fail_msg("%s: token %d: mask %d, automaton %d", what, id,
                     (int)(bits[id / 64] >> id % 64 & 1), rc);
    }
}

/* A random allowed token; beyond `hurry` tokens, one that tends to end things. */
static int pick(struct rng *r, const uint64_t *bits, bool hurry) {
    static const char *const enders[] = {
        "\"leaf\":", "leaf", "\"name\"", "\"left\":{", "\"right\":{", "name", "na", "kind", "foo",
        "\"}",       "\"",   "}",        "]",          "}}",          "]}",   ")",  "null", "1",
        "0",         "{}",   ":",        "b",          "a",           "x",    "\n", ",",    "-"};
    int allowed[N_SMALL], n = 0;
    if ((hurry || rng_below(r, 4) == 0) && (bits[END / 64] >> END % 64 & 1)) return END;
    size_t start = rng_below(r, 8) ? 0 : rng_below(r, N_ELEMENT(enders));
    for (size_t i = 0; hurry && i < N_ELEMENT(enders); i++)
        for (int id = 0; id < SPECIAL; id++) {
            size_t len, k = (start + i) % N_ELEMENT(enders);
            const char *p = piece_text(id, &len);
            bool same = len == strlen(enders[k]) && memcmp(p, enders[k], len) == 0;
            if (same && (bits[id / 64] >> id % 64 & 1) && rng_below(r, 3)) return id;
        }
    bool pieces_only = rng_below(r, 2);
    for (int id = pieces_only ? 256 : 0; id < SPECIAL; id++)
        if (bits[id / 64] >> id % 64 & 1) allowed[n++] = id;
    for (int id = 0; n == 0 && id < N_SMALL; id++)
        if (bits[id / 64] >> id % 64 & 1) return id;
    return n ? allowed[rng_below(r, (uint64_t)n)] : -1;
}

static void masks_are_brute_force(void **state) {
    (void)state;
    struct grammar_vocab *v = small_vocab();
    struct rng r;
    rng_seed(&r, 3);
    for (size_t i = 0; i < N_ELEMENT(grammars); i++) {
        struct grammar *g = compile(grammars[i].gbnf, grammars[i].text);
        struct grammar_matcher *m;
        uint64_t bits[N_SMALL / 64 + 1];
        assert_int_equal(grammar_matcher_new(&m, g, v, 0, NULL), 0);
        for (int round = 0; round < 12; round++) {
            struct grammar_state *s;
            assert_int_equal(grammar_state_new(&s, m, NULL), 0);
            for (int n = 0; n < 120; n++) {
                assert_int_equal(grammar_mask(s, bits), 0);
                assert_mask_is_brute_force(s, bits, grammars[i].text);
                int id = pick(&r, bits, n > 30);
                assert_true(id >= 0); /* no state without a way on */
                assert_int_equal(grammar_accept_token(s, id), 0);
                if (id == END) break;
            }
            grammar_state_free(s);
        }
        grammar_matcher_free(m);
        grammar_free(g);
    }
    grammar_vocab_free(v);
}

/* ---- a validator of its own ---- */

static bool is_valid(const json_t *schema, const json_t *value, const json_t *root);

static bool has_type(const json_t *v, const char *type) {
    if (strcmp(type, "null") == 0) return json_is_null(v);
    if (strcmp(type, "boolean") == 0) return json_is_boolean(v);
    if (strcmp(type, "integer") == 0)
        return json_is_integer(v) ||
               (json_is_real(v) && floor(json_real_value(v)) == json_real_value(v));
    if (strcmp(type, "number") == 0) return json_is_number(v);
    if (strcmp(type, "string") == 0) return json_is_string(v);
    if (strcmp(type, "array") == 0) return json_is_array(v);
    return json_is_object(v);
}

static bool equal(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal((json_t *)a, (json_t *)b);
}

static bool search(const char *pattern, const char *text, size_t n) {
    int error;
    PCRE2_SIZE offset;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &error, &offset, NULL);
    assert_non_null(code);
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
    int rc = pcre2_match(code, (PCRE2_SPTR)text, n, 0, 0, match, NULL);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return rc >= 0;
}

static size_t n_char(const json_t *v) {
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(v); i++)
        n += (json_string_value(v)[i] & 0xc0) != 0x80;
    return n;
}

static bool number_is_valid(const json_t *s, const json_t *v) {
    const json_t *k;
    double x = json_number_value(v);
    if ((k = json_object_get(s, "minimum")) && x < json_number_value(k)) return false;
    if ((k = json_object_get(s, "maximum")) && x > json_number_value(k)) return false;
    if ((k = json_object_get(s, "exclusiveMinimum")) && x <= json_number_value(k)) return false;
    if ((k = json_object_get(s, "multipleOf")) && fmod(x, json_number_value(k)) != 0) return false;
    return true;
}

static bool string_is_valid(const json_t *s, const json_t *v) {
    const json_t *k;
    if ((k = json_object_get(s, "minLength")) && n_char(v) < (size_t)json_integer_value(k))
        return false;
    if ((k = json_object_get(s, "maxLength")) && n_char(v) > (size_t)json_integer_value(k))
        return false;
    if ((k = json_object_get(s, "pattern")) &&
        !search(json_string_value(k), json_string_value(v), json_string_length(v)))
        return false;
    k = json_object_get(s, "format");
    const char *date =
        "^\\d{4}-\\d\\d-\\d\\d[Tt]\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?([Zz]|[+-]\\d\\d:\\d\\d)$";
    const char *host = "^(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*$";
    return !k || (search(strcmp(json_string_value(k), "hostname") == 0 ? host : date,
                         json_string_value(v), json_string_length(v)) &&
                  json_string_length(v) < 254);
}

static bool array_is_valid(const json_t *s, const json_t *v, const json_t *root) {
    const json_t *k, *prefix = json_object_get(s, "prefixItems"),
                     *items = json_object_get(s, "items");
    if ((k = json_object_get(s, "minItems")) && json_array_size(v) < (size_t)json_integer_value(k))
        return false;
    if ((k = json_object_get(s, "maxItems")) && json_array_size(v) > (size_t)json_integer_value(k))
        return false;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (one && !is_valid(one, json_array_get(v, i), root)) return false;
    }
    return true;
}

static bool object_is_valid(const json_t *s, const json_t *v, const json_t *root) {
    const json_t *k;
    const char *key, *pattern;
    json_t *child, *one, *name;
    size_t i;
    json_array_foreach(json_object_get(s, "required"), i, name) {
        if (!json_object_get(v, json_string_value(name))) return false;
    }
    if ((k = json_object_get(s, "minProperties")) &&
        json_object_size(v) < (size_t)json_integer_value(k))
        return false;
    if ((k = json_object_get(s, "maxProperties")) &&
        json_object_size(v) > (size_t)json_integer_value(k))
        return false;
    json_object_foreach((json_t *)v, key, child) {
        bool known = false;
        if ((one = json_object_get(json_object_get(s, "properties"), key))) {
            known = true;
            if (!is_valid(one, child, root)) return false;
        }
        json_object_foreach(json_object_get(s, "patternProperties"), pattern, one) {
            if (!search(pattern, key, strlen(key))) continue;
            known = true;
            if (!is_valid(one, child, root)) return false;
        }
        if (!known && (one = json_object_get(s, "additionalProperties")) &&
            !is_valid(one, child, root))
            return false;
        if ((one = json_object_get(s, "propertyNames"))) {
            json_t *text = json_string(key);
            bool valid = is_valid(one, text, root);
            json_decref(text);
            if (!valid) return false;
        }
    }
    return true;
}

static bool is_valid(const json_t *s, const json_t *v, const json_t *root) {
    const json_t *k;
    json_t *one;
    size_t i, n = 0;
    bool found = false;
    if (json_is_boolean(s)) return json_is_true(s);
    if ((k = json_object_get(s, "$ref")) &&
        !is_valid(json_object_get(json_object_get(root, "$defs"), json_string_value(k) + 8), v,
                  root))
        return false;
    if ((k = json_object_get(s, "type"))) {
        bool fits = json_is_string(k) && has_type(v, json_string_value(k));
        json_array_foreach(k, i, one) fits |= has_type(v, json_string_value(one));
        if (!fits) return false;
    }
    if ((k = json_object_get(s, "const")) && !equal(k, v)) return false;
    if ((k = json_object_get(s, "enum"))) {
        json_array_foreach(k, i, one) found |= equal(one, v);
        if (!found) return false;
    }
    if ((k = json_object_get(s, "not")) && is_valid(k, v, root)) return false;
    if ((k = json_object_get(s, "anyOf"))) {
        json_array_foreach(k, i, one) n += is_valid(one, v, root);
        if (n == 0) return false;
    }
    n = 0;
    if ((k = json_object_get(s, "oneOf"))) {
        json_array_foreach(k, i, one) n += is_valid(one, v, root);
        if (n != 1) return false;
    }
    if (json_is_number(v)) return number_is_valid(s, v);
    if (json_is_string(v)) return string_is_valid(s, v);
    if (json_is_array(v)) return array_is_valid(s, v, root);
    return !json_is_object(v) || object_is_valid(s, v, root);
}

static void masked_texts_are_valid(void **state) {
    (void)state;
    struct grammar_vocab *v = small_vocab();
    struct rng r;
    int n_sample = 0, n_schema = 0, longest = 0;
    rng_seed(&r, 11);
    for (size_t i = 0; i < N_ELEMENT(grammars); i++) n_schema += !grammars[i].gbnf;
    for (size_t i = 0; i < N_ELEMENT(grammars); i++) {
        if (grammars[i].gbnf) continue;
        struct grammar *g = compile(false, grammars[i].text);
        struct grammar_matcher *m;
        json_t *schema = json_loads(grammars[i].text, JSON_DECODE_ANY, NULL);
        assert_int_equal(grammar_matcher_new(&m, g, v, 0, NULL), 0);
        for (int round = 0; round < 10000 / n_schema + 1; round++, n_sample++) {
            struct grammar_state *s;
            struct buf text;
            uint64_t bits[N_SMALL / 64 + 1];
            int id = -1, n = 0;
            buf_init(&text, 1 << 20);
            assert_int_equal(grammar_state_new(&s, m, NULL), 0);
            for (; n < 4000 && id != END; n++) {
                size_t len;
                assert_int_equal(grammar_mask(s, bits), 0);
                id = pick(&r, bits, n > 20);
                assert_true(id >= 0);
                assert_int_equal(grammar_accept_token(s, id), 0);
                if (id == END) break;
                const char *p = piece_text(id, &len);
                buf_put(&text, p, len);
            }
            grammar_state_free(s);
            if (id != END) fail_msg("%s: a text did not end: %.200s", grammars[i].text, text.p);
            json_error_t je;
            json_t *value = json_loadb(text.p, text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
            /* jansson reads no integers beyond 64 bits, no reals beyond doubles, no NUL in names */
            bool too_big = !value && (json_error_code(&je) == json_error_numeric_overflow ||
                                      json_error_code(&je) == json_error_null_byte_in_key);
            if (!too_big && (!value || !is_valid(schema, value, schema)))
                fail_msg("%s\n  lets through %.*s (%s)", grammars[i].text, (int)text.n, text.p,
                         value ? "" : je.text);
            json_decref(value);
            if (n > longest) longest = n;
            buf_fini(&text);
        }
        json_decref(schema);
        grammar_matcher_free(m);
        grammar_free(g);
    }
    assert_true(n_sample >= 10000);
    print_message("%d texts under %d schemas, up to %d tokens, all valid\n", n_sample, n_schema,
                  longest);
    grammar_vocab_free(v);
}

/* ---- states ---- */

/* The same walk with ample and with the least memory (which collects all the time), with forks and
 * rewinds on the way: masks must be the same. */
static void collection_changes_nothing(void **state) {
    (void)state;
    struct grammar_vocab *v = small_vocab();
    struct rng r;
    rng_seed(&r, 5);
    for (size_t i = 0; i < N_ELEMENT(grammars); i++) {
        struct grammar *g = compile(grammars[i].gbnf, grammars[i].text);
        struct grammar_matcher *big, *small;
        struct grammar_state *a, *b, *fork;
        uint64_t x[N_SMALL / 64 + 1], y[N_SMALL / 64 + 1];
        assert_int_equal(grammar_matcher_new(&big, g, v, 0, NULL), 0);
        assert_int_equal(grammar_matcher_new(&small, g, v, 1, NULL), 0);
        assert_int_equal(grammar_state_new(&a, big, NULL), 0);
        assert_int_equal(grammar_state_new(&b, small, NULL), 0);
        mem_guard_begin(); /* nothing below may allocate */
        for (int n = 0; n < 300; n++) {
            assert_int_equal(grammar_mask(a, x), 0);
            assert_int_equal(grammar_mask(b, y), 0);
            assert_memory_equal(x, y, sizeof x);
            int id = pick(&r, x, n > 200);
            assert_int_equal(grammar_accept_token(a, id), 0);
            assert_int_equal(grammar_accept_token(b, id), 0);
            if (id == END || rng_below(&r, 10) == 0) {
                uint64_t back = rng_below(&r, 20);
                uint64_t to = grammar_mark(a) > back ? grammar_mark(a) - back : 0;
                assert_int_equal(grammar_rewind(a, to), 0);
                assert_int_equal(grammar_rewind(b, to), 0);
            }
        }
        mem_guard_end();
        assert_int_equal(grammar_state_fork(&fork, b, NULL), 0);
        assert_int_equal(grammar_mask(a, x), 0);
        grammar_state_free(b);
        assert_int_equal(grammar_mask(fork, y), 0);
        assert_memory_equal(x, y, sizeof x);
        assert_int_equal(grammar_rewind(fork, grammar_mark(fork) + 1), CHIMERE_EINVAL);
        grammar_state_free(a);
        grammar_state_free(fork);
        grammar_matcher_free(big);
        grammar_matcher_free(small);
        grammar_free(g);
    }
    grammar_vocab_free(v);
}

static void rewind_reaches_back_256_tokens(void **state) {
    (void)state;
    struct grammar_vocab *v = small_vocab();
    struct grammar *g = compile(true, "root ::= [a-z]*");
    struct grammar_matcher *m;
    struct grammar_state *s;
    assert_int_equal(grammar_matcher_new(&m, g, v, 0, NULL), 0);
    assert_int_equal(grammar_state_new(&s, m, NULL), 0);
    for (int i = 0; i < 1000; i++) assert_int_equal(grammar_accept_token(s, 'a'), 0);
    assert_int_equal(grammar_rewind(s, 743), CHIMERE_EINVAL);
    assert_int_equal(grammar_rewind(s, 800), 0);
    assert_int_equal(grammar_rewind(s, 743), CHIMERE_EINVAL);
    assert_int_equal(grammar_rewind(s, 744), 0);
    assert_int_equal(grammar_accept_token(s, '1'), CHIMERE_EREFUSED);
    assert_int_equal(grammar_accept_token(s, END), 0);
    assert_int_equal(grammar_accept_token(s, 'a'), CHIMERE_EREFUSED);
    assert_true(grammar_is_complete(s));
    assert_int_equal(grammar_mark(s), 745);
    grammar_state_free(s);
    grammar_matcher_free(m);
    grammar_free(g);
    grammar_vocab_free(v);
}

static void forced_bytes_are_the_only_ones(void **state) {
    (void)state;
    struct grammar_vocab *v = small_vocab();
    struct grammar *g = compile(true, "root ::= \"answer: \" (\"yes\" | \"yet\") \" done\"");
    struct grammar_matcher *m;
    struct grammar_state *s;
    char out[64];
    size_t n_good;
    assert_int_equal(grammar_matcher_new(&m, g, v, 0, NULL), 0);
    assert_int_equal(grammar_state_new(&s, m, NULL), 0);
    assert_int_equal(grammar_forced(s, out, sizeof out), 10);
    assert_memory_equal(out, "answer: ye", 10);
    assert_int_equal(grammar_forced(s, out, 3), 3);
    assert_int_equal(grammar_accept_bytes(s, "answer: yes", 11, &n_good), 0);
    assert_int_equal(grammar_forced(s, out, sizeof out), 5);
    assert_int_equal(grammar_accept_bytes(s, " done", 5, &n_good), 0);
    assert_int_equal(grammar_forced(s, out, sizeof out), 0);
    grammar_state_free(s);
    grammar_matcher_free(m);
    grammar_free(g);
    grammar_vocab_free(v);
}

static void allocation_failures_are_reported(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ELEMENT(grammars); i++) {
        for (int nth = 1;; nth++) {
            struct grammar *g = NULL;
            struct err e = {0};
            const char *text = grammars[i].text;
            mem_fail_nth(nth);
            int rc = grammars[i].gbnf ? grammar_from_gbnf(&g, text, strlen(text), NULL, &e)
                                      : grammar_from_schema(&g, text, strlen(text), NULL, &e);
            mem_fail_nth(0);
            grammar_free(g);
            if (rc == 0) break;
            if (rc != CHIMERE_ENOMEM)
                fail_msg("%s: failure %d gives %d '%s'", text, nth, rc, e.text);
        }
    }
    struct grammar *g = compile(false, "{}");
    struct grammar_vocab *v = small_vocab(), *w;
    struct slice one = SLICE("a");
    int nth = 1;
    for (;; nth++) {
        struct grammar_matcher *m;
        mem_fail_nth(nth);
        int rc = grammar_matcher_new(&m, g, v, 0, NULL);
        mem_fail_nth(0);
        grammar_matcher_free(m);
        if (rc == 0) break;
        assert_int_equal(rc, CHIMERE_ENOMEM);
    }
    for (nth = 1;; nth++) {
        mem_fail_nth(nth);
        int rc = grammar_vocab_new(&w, 1, &one, NULL, NULL);
        mem_fail_nth(0);
        grammar_vocab_free(w);
        if (rc == 0) break;
        assert_int_equal(rc, CHIMERE_ENOMEM);
    }
    grammar_free(g);
    grammar_vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gbnf_matches_whole_texts),
        cmocka_unit_test(gbnf_refuses_by_name),
        cmocka_unit_test(schema_matches_values),
        cmocka_unit_test(plain_texts_are_one_way_to_write),
        cmocka_unit_test(schema_refuses_by_name),
        cmocka_unit_test(hostile_sources_end_in_time),
        cmocka_unit_test(nested_alternatives_stay_small),
        cmocka_unit_test(masks_are_brute_force),
        cmocka_unit_test(masked_texts_are_valid),
        cmocka_unit_test(collection_changes_nothing),
        cmocka_unit_test(rewind_reaches_back_256_tokens),
        cmocka_unit_test(forced_bytes_are_the_only_ones),
        cmocka_unit_test(allocation_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
