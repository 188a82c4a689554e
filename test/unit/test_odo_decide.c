/* What is decided before an answer, on sentences that the rules and the classifier never saw; bare calculations; answers
 * that go round in circles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/clock.h"
#include "eval/harness.h"
#include "odo/bare.h"
#include "odo/card.h"
#include "odo/decide/classify.h"
#include "odo/measure/measure.h"
#include "odo/repeat.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "odo_bed.h"

static const char *const levels[CLASSIFY_N_LEVEL] = {"low", "medium", "high"};

static int best(const double *v, int n) {
    int k = 0;
    for (int i = 1; i < n; ++i)
        if (v[i] > v[k]) k = i;
    return k;
}

/* Shares right of routes and of levels over one half's sentences of one language. */
static void score(const char *half, const char *skill, double *route, double *level) {
    json_t *items = json_array(), *item;
    char path[300];
    size_t i, n = 0, right = 0, at_level = 0;
    snprintf(path, sizeof path, "%s/../../eval/odo/%s.jsonl", TEST_DATA, half);
    assert_int_equal(measure_load(items, path, 0, NULL), 0);
    json_array_foreach(items, i, item) {
        const json_t *expect = json_object_get(item, "expect");
        if (strcmp(json_string_value(json_object_get(item, "skill")), skill) != 0) continue;
        const char *text = json_string_value(
            json_object_get(json_array_get(json_object_get(item, "messages"), 0), "content"));
        struct classified c;
        classify_text(text, strlen(text), &c);
        ++n;
        right += !strcmp(classify_routes[best(c.route, CLASSIFY_N_ROUTE)],
                         json_string_value(json_object_get(expect, "route")));
        at_level += !strcmp(levels[best(c.level, CLASSIFY_N_LEVEL)],
                            json_string_value(json_object_get(expect, "difficulty")));
    }
    assert_int_equal(n, 75);
    *route = (double)right / (double)n;
    *level = (double)at_level / (double)n;
    json_decref(items);
}

static void test_unseen(void **state) {
    (void)state;
    static const char *const skills[] = {"routes_unseen_en", "routes_unseen_fr"};
    for (int i = 0; i < 2; ++i) {
        double route, level;
        score("routes_unseen", skills[i], &route, &level);
        print_message("%s: routes %.3f, difficulty %.3f\n", skills[i], route, level);
        assert_true(route >= 0.80 && level >= 0.70);
    }
}

static void test_any_bytes(void **state) {
    (void)state;
    static char text[100000];
    struct classified c;
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof text; ++i) text[i] = (char)((x = x * 1664525 + 1013904223) >> 24);
    int64_t start = clock_cpu_ns();
    for (size_t n = 0; n < sizeof text; n += 9973) {
        classify_text(text, n, &c);
        double sum = 0;
        for (int i = 0; i < CLASSIFY_N_ROUTE; ++i) sum += c.route[i];
        assert_true(sum > 0.999 && sum < 1.001);
    }
    assert_true(clock_cpu_ns() - start < (int64_t)1000000000 * TEST_SLOWNESS); /* eleven of them */
}

static void test_bare(void **state) {
    (void)state;
    static const char *const yes[][2] = {{"What is 914 x 408?", "914 * 408"},
                                         {"417*2", "417 * 2"},
                                         {"Combien font 8 fois 7 ?", "8 * 7"},
                                         {"compute (3 + 4) / 5", "( 3 + 4 ) / 5"},
                                         {"What is the sum of 12 and 30?", "12 + 30"},
                                         {"Find the product of 21 and 6.", "21 * 6"},
                                         {"Can you multiply 5 by 44?", "5 * 44"},
                                         {"Subtract 3 from 1,250", "1250 - 3"},
                                         {"Combien font 12,5 divis\xc3\xa9 par 5 ?", "12.5 / 5"},
                                         {"add 3, 4 and 5", "3 + 4 + 5"},
                                         {"12 \xc3\x97 3 = ?", "12 * 3"},
                                         {"What is 90 divided by 7?", "90 / 7"}};
    static const char *const no[] = {"",
                                     "Anna has 12 apples and gives 5 away. How many are left?",
                                     "Convert 5 km to m.",
                                     "Which is larger, 3 or 5?",
                                     "Continue: 2 4 8 16",
                                     "What is Python 3?",
                                     "In 1789 - 1799, what happened?",
                                     "914",
                                     "What is the difference of 3, 4 and 5?",
                                     "What is 20 percent of 50?",
                                     "1,2,30 + 4",
                                     "sum of 3 and"};
    char got[BARE_MAX];
    for (size_t i = 0; i < sizeof yes / sizeof *yes; ++i)
        if (!bare_calculation(yes[i][0], got) || strcmp(got, yes[i][1]) != 0)
            fail_msg("%s: \"%s\"", yes[i][0], got);
    for (size_t i = 0; i < sizeof no / sizeof *no; ++i)
        if (bare_calculation(no[i], got) || got[0]) fail_msg("%s", no[i]);
}

/* French wordings that were written before the rules, and sentences with no certain reading. */
static void test_bare_french(void **state) {
    (void)state;
    static const char *const french[][2] = {
        {"Combien fait 417 plus 58 ?", "417 + 58"},
        {"Ça fait combien, 417 plus 58 ?", "417 + 58"},
        {"417 + 58, ça donne quoi ?", "417 + 58"},
        {"Quelle est la somme de 417 et de 58 ?", "417 + 58"},
        {"Additionne 417 et 58.", "417 + 58"},
        {"Ajoute 58 à 417.", "58 + 417"},
        {"Fais l'addition de 417 et 58.", "417 + 58"},
        {"Calcule-moi la somme des nombres 417 et 58.", "417 + 58"},
        {"À combien est égal 417 + 58 ?", "417 + 58"},
        {"Quel est le résultat de l'addition 417 + 58 ?", "417 + 58"},
        {"Combien font 417 et 58 additionnés ?", "417 + 58"},
        {"Si j'ajoute 58 à 417, j'obtiens combien ?", "58 + 417"},
        {"Si on additionne 417 et 58, combien obtient-on ?", "417 + 58"},
        {"Combien obtient-on en ajoutant 58 à 417 ?", "58 + 417"},
        {"Donne-moi le total de 417 et 58.", "417 + 58"},
        {"Quelle est la différence entre 417 et 58 ?", "417 - 58"},
        {"Soustrais 58 de 417.", "417 - 58"},
        {"Retire 58 de 417.", "417 - 58"},
        {"Retranche 58 à 417.", "417 - 58"},
        {"Combien reste-t-il si on enlève 58 à 417 ?", "417 - 58"},
        {"À 417, retire 58.", "417 - 58"},
        {"417 moins 58, s'il te plaît.", "417 - 58"},
        {"Peux-tu me calculer 417 moins 58 ?", "417 - 58"},
        {"Effectue la soustraction 417 - 58.", "417 - 58"},
        {"Ôte 58 de 417.", "417 - 58"},
        {"417 diminué de 58, cela fait combien ?", "417 - 58"},
        {"Que vaut 417 augmenté de 58 ?", "417 + 58"},
        {"Quel est le produit de 417 par 58 ?", "417 * 58"},
        {"Multiplie 417 par 58.", "417 * 58"},
        {"Combien font 417 multipliés par 58 ?", "417 * 58"},
        {"Combien vaut 417 fois 58 ?", "417 * 58"},
        {"Effectue la multiplication de 417 par 58.", "417 * 58"},
        {"Pourrais-tu multiplier 417 par 58 ?", "417 * 58"},
        {"En multipliant 417 par 58, on trouve combien ?", "417 * 58"},
        {"Divise 416 par 4.", "416 / 4"},
        {"Quel est le quotient de 416 par 4 ?", "416 / 4"},
        {"Quelle est la division de 416 par 4 ?", "416 / 4"},
        {"Je voudrais le résultat de 417 × 58.", "417 * 58"},
        {"Combien ça fait, 1 417 fois 58 ?", "1417 * 58"},
        {"Dis-moi ce que donne 417 - 58.", "417 - 58"},
        {"Subtract 3 from 1 250,5", "1250.5 - 3"},
    };
    static const char *const french_no[] = {
        "Est-ce que 807 + 5 = 812 ?",
        "Pourquoi 3 plus 5 fait 8 ?",
        "Quelle est la différence entre 58 et 417 ?",
        "Combien de temps faut-il pour ajouter 3 à 5 ?",
        "Soustrais 58 et 417.",
        "Soustraction de 417 et de 58",
        "Ajoute 3 à 5 et retire 2",
        "Il a 12 pommes et en retire 3",
    };
    char got[BARE_MAX];
    for (size_t i = 0; i < sizeof french / sizeof *french; ++i)
        if (!bare_calculation(french[i][0], got) || strcmp(got, french[i][1]) != 0)
            fail_msg("%s: \"%s\"", french[i][0], got);
    for (size_t i = 0; i < sizeof french_no / sizeof *french_no; ++i)
        if (bare_calculation(french_no[i], got)) fail_msg("%s: \"%s\"", french_no[i], got);
}

/* A model that nobody measured gets the question as it is: no prompt of a route that was guessed, no tools beside a
 * question that is not a sum; a sum is worked out in its name. What the user names holds all the same. */
static void test_unmeasured(void **state) {
    (void)state;
    static const char *const asked[] = {"Write a Python function that sorts a list.",
                                        "What is 10 divided by 3?"};
    static const char *const replies[] = {"an answer", "3 1/3"};
    for (size_t i = 0; i < 2; ++i) {
        struct bed b;
        bed_open(&b, replies + i, 1, NULL);
        odo_set_card(b.odo, &(struct odo_card){.tools = false});
        say(&b, "user", asked[i]);
        assert_int_equal(ask_it(&b, NULL), 0);
        json_t *first = json_array_get(b.script.asked, 0);
        json_t *messages = json_object_get(first, "messages");
        assert_int_equal(json_array_size(b.script.asked), 1);
        assert_null(json_object_get(first, "tools"));
        assert_int_equal(json_array_size(messages), i ? 3 : 1);
        if (i)
            assert_string_equal(script_text(&b.script, 0, -1), "10 / 3 = 3.33333333333333 (10/3)");
        bed_close(&b);
    }
    struct bed b;
    bed_open(&b, replies, 1, NULL);
    odo_set_card(b.odo, &(struct odo_card){.tools = false});
    say(&b, "user", asked[0]);
    b.request.extra = json_loads("{\"odo\": {\"route\": \"code\"}}", 0, NULL);
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_non_null(strstr(script_text(&b.script, 0, 0), "careful software engineer"));
    bed_close(&b);
}

static void test_card(void **state) {
    (void)state;
    char path[160];
    struct odo_card c;
    struct err e = {0};
    bool known;
    snprintf(path, sizeof path, "chimere_cards.%ld.json", (long)getpid());
    assert_int_equal(card_read(path, "a", &c, &known, &e), 0);
    assert_false(known || c.tools || c.prompts);
    assert_int_equal(card_write(path, "a", &(struct odo_card){.tools = true}, 270, &e), 0);
    assert_int_equal(card_write(path, "b/c \"d\"",
                                &(struct odo_card){.prompts = true, .no_documents = true}, 270, &e),
                     0);
    assert_int_equal(card_read(path, "a", &c, &known, &e), 0);
    assert_true(known && c.tools && !c.prompts && !c.no_documents);
    assert_int_equal(card_read(path, "b/c \"d\"", &c, &known, &e), 0);
    assert_true(known && !c.tools && c.prompts && c.no_documents);
    assert_int_equal(file_write(path, "[1", 2, &e), 0);
    assert_int_equal(card_read(path, "a", &c, &known, &e), CHIMERE_EFORMAT);
    unlink(path);
}

static void test_repeat(void **state) {
    (void)state;
    struct repeat r = {.n = 0};
    char text[80];
    bool found = false;
    for (int i = 0; i < 400; ++i) { /* lines that differ, as a table's do */
        int n = snprintf(text, sizeof text, "| row %d | value %d |\n", i, i * 37 % 101);
        found |= repeat_feed(&r, text, (size_t)n);
    }
    assert_false(found);
    int fed = 0;
    while (!found && fed < 4000) {
        found = repeat_feed(&r, "and then he said that ", 22);
        fed += 22;
    }
    assert_true(found && fed >= REPEAT_LEAST && fed < 2 * REPEAT_LEAST);
    struct repeat one = {.n = 0};
    for (fed = 0, found = false; !found && fed < 4000; ++fed) found = repeat_feed(&one, "a", 1);
    assert_true(found && fed < 2 * REPEAT_LEAST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unseen),     cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_bare),       cmocka_unit_test(test_bare_french),
        cmocka_unit_test(test_unmeasured), cmocka_unit_test(test_card),
        cmocka_unit_test(test_repeat)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
