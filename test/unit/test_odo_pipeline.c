/* Pipelines: the shipped files, what is refused and on which line, hot reload, snapshots; difficulty. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "odo/decide/difficulty.h"
#include "odo/pipeline/pipeline.h"

#include "await.h"
#include "scratch.h"

static int make_dir(void **state) {
    assert_int_equal(scratch_make(state), 0);
    scratch_put("intent.yaml",
                "routes:\n  - name: default\n  - name: wine\n    strong: [merlot]\n");
    scratch_put("default.yaml", "name: default\n");
    return 0;
}

static void test_shipped(void **state) {
    (void)state;
    struct pipeline_dir *d;
    struct err e = {0};
    if (pipeline_dir_open(&d, TEST_DATA "/../../pipelines", false, NULL, &e))
        fail_msg("%s", e.text);
    struct pipeline_set *s = pipeline_hold(d);
    static const char *const names[] = {"code", "cyber", "default", "kine", "research"};
    for (size_t i = 0; i < 5; ++i) {
        const struct pipeline *p = pipeline_find(s, names[i]);
        assert_non_null(p);
        bool known = false;
        for (int k = 0; k < intent_n_route(pipeline_rules(s)); ++k)
            known |= !strcmp(intent_route(pipeline_rules(s), k), names[i]);
        assert_true(known);
    }
    const struct pipeline *kine = pipeline_find(s, "kine"), *code = pipeline_find(s, "code");
    assert_int_equal(kine->n_step, 3);
    assert_int_equal(kine->steps[0].group, kine->steps[1].group); /* the parallel group */
    assert_int_not_equal(kine->steps[1].group, kine->steps[2].group);
    assert_string_equal(code->steps[1].tools.v[0], "run_code");
    assert_true(code->steps[1].sampling.temperature == 0.2);
    assert_true(isnan(code->sampling.temperature)); /* unset: the caller's */
    assert_int_equal(code->think, -1);
    assert_null(pipeline_find(s, "intent"));
    pipeline_dir_close(d);
    assert_string_equal(kine->name, "kine"); /* a set that is held outlives its folder */
    pipeline_release(s);
}

static void refused(const char *yaml, const char *where, const char *what) {
    scratch_put("x.yaml", yaml);
    struct pipeline_dir *d;
    struct err e = {0};
    assert_int_not_equal(pipeline_dir_open(&d, scratch, false, NULL, &e), 0);
    if (!strstr(e.text, where) || !strstr(e.text, what))
        fail_msg("expected %s and %s in: %s", where, what, e.text);
    scratch_put("x.yaml", "name: x\n");
}

static void test_refused(void **state) {
    (void)state;
    refused("name: y\n", "x.yaml:1:", "expected the file's own");
    refused("name: x\npersona: ../../etc\n", "x.yaml", "persona");
    refused("name: x\npersona: nobody\n", "SOUL.md", "");
    refused("name: x\ntools: {a: b}\n", "x.yaml:2:", "list");
    refused("name: x\nsampling:\n  temperature: hot\n", "x.yaml:3:", "0..100");
    refused("name: x\nsampling:\n  temprature: 1\n", "x.yaml:3:", "unknown key \"temprature\"");
    refused("name: x\nsteps:\n  - agent: a\n  - prompt: b\n", "x.yaml:4:", "agent");
    refused("name: x\nsteps:\n  - parallel:\n      - parallel: []\n", "x.yaml:4:", "parallel");
    refused("name: x\nname: x\n", "x.yaml:2:", "twice");
    refused("name: x\ntools: [calculator, telport]\n", "x.yaml", "no tool \"telport\"");
    refused("name: x\nsteps:\n  - {agent: a, tools: [no_tool]}\n", "x.yaml", "no tool \"no_tool\"");
    refused("name: x\nskills: [juggle]\n", "x.yaml", "no skill \"juggle\"");
    refused("name: x\nskills: [../x]\n", "x.yaml", "no skill");
    refused("name: x\nsteps:\n  - agent: a\n  - agent: b\n    if: {step: c, contains: y}\n",
            "x.yaml:5:", "no earlier step \"c\"");
    refused("name: x\nsteps:\n  - agent: a\n  - agent: b\n    if: {step: a}\n  - agent: c\n",
            "x.yaml:5:", "contains or equals");
    refused("name: x\nsteps:\n  - agent: a\n  - {agent: b, if: {contains: y}}\n", "x.yaml", "last");
    refused("name: x\nsteps:\n  - loop: {most: 2, until: {contains: y}, steps: [{agent: a}]}\n",
            "x.yaml", "last");
    refused("name: x\nsteps:\n  - loop: {most: 99, until: {contains: y}, steps: [{agent: a}]}\n",
            "x.yaml:3:", "1..16");
    refused("name: x\nsteps:\n  - loop: {most: 2, steps: [{agent: a}]}\n  - agent: b\n",
            "x.yaml:3:", "until");
    refused("name: x\nsteps:\n  - loop: {most: 2, until: {contains: y}, steps: [{loop: {}}]}\n",
            "x.yaml:3:", "outside other loops");
    refused("name: x\nsteps:\n  - {agent: a, output: {type: thing}}\n", "x.yaml:3:", "output");
    refused("name: x\nsteps:\n  - {agent: a, output: text}\n", "x.yaml:3:", "JSON Schema");
    refused("name: x\nenrich: {web: maybe}\n", "x.yaml:2:", "never|probe|always");
    refused("name: x\n\tabout: y\n", "x.yaml:2:", "");
    refused("name: x\nrun_steps: ultra\nthinking: {enabled: perhaps}\n",
            "x.yaml:3:", "true or false");
    refused("- a\n- b\n", "x.yaml:1:", "key: value");
    refused("name: x\nabout: \xff\n", "x.yaml", "UTF-8");
    refused("a: &a [*a, *a]\nname: *a\n", "x.yaml:1:", "unknown key");
    refused("name: &a x\nsteps: &s [*s]\n", "x.yaml:2:", "key: value");
}

static bool is_newer(struct pipeline_dir *d, uint64_t version) {
    struct pipeline_set *s = pipeline_hold(d);
    bool is = pipeline_version(s) > version;
    pipeline_release(s);
    return is;
}

/* Waits for the watcher. */
static struct pipeline_set *await(struct pipeline_dir *d, uint64_t version) {
    AWAIT(is_newer(d, version));
    struct pipeline_set *s = pipeline_hold(d);
    assert_true(pipeline_version(s) > version);
    return s;
}

static void test_reload(void **state) {
    (void)state;
    scratch_put("wine.yaml", "name: wine\nprompt: red\n");
    struct pipeline_dir *d;
    assert_int_equal(pipeline_dir_open(&d, scratch, true, NULL, NULL), 0);
    struct pipeline_set *first = pipeline_hold(d), *s;
    assert_string_equal(pipeline_find(first, "wine")->prompt, "red");
    scratch_put("wine.yaml", "name: wine\nprompt: white\n");
    s = await(d, pipeline_version(first));
    assert_string_equal(pipeline_find(s, "wine")->prompt, "white");
    assert_string_equal(pipeline_find(first, "wine")->prompt, "red"); /* who holds it keeps it */
    uint64_t v = pipeline_version(s);
    pipeline_release(s);
    scratch_put("wine.yaml", "name: wine\nprompt: [broken\n");
    s = await(d, v);
    assert_string_equal(pipeline_find(s, "wine")->prompt, "white");
    assert_non_null(strstr(pipeline_problem(s), "wine.yaml:"));
    v = pipeline_version(s);
    pipeline_release(s);
    scratch_put("intent.yaml", "routes: [\n");
    s = await(d, v);
    assert_int_equal(intent_n_route(pipeline_rules(s)), 2); /* the old rules */
    v = pipeline_version(s);
    pipeline_release(s);
    scratch_put("intent.yaml", "routes:\n  - name: default\n");
    char path[128];
    snprintf(path, sizeof path, "%s/wine.yaml", scratch);
    unlink(path);
    s = await(d, v);
    if (pipeline_find(s, "wine")) { /* the two changes came apart */
        v = pipeline_version(s);
        pipeline_release(s);
        s = await(d, v);
    }
    assert_null(pipeline_find(s, "wine"));
    assert_string_equal(pipeline_problem(s), "");
    pipeline_release(s);
    pipeline_release(first);
    pipeline_dir_close(d);
}

static void test_persona(void **state) {
    (void)state;
    char path[128];
    struct pipeline_dir *d;
    snprintf(path, sizeof path, "%s/personas/sage", scratch);
    assert_int_equal(file_mkdirs(path, NULL), 0);
    scratch_put("personas/sage/SOUL.md", "You are calm.\n\n");
    scratch_put("x.yaml", "name: x\npersona: sage\n");
    assert_int_equal(pipeline_dir_open(&d, scratch, false, NULL, NULL), 0);
    struct pipeline_set *s = pipeline_hold(d);
    assert_string_equal(pipeline_find(s, "x")->persona, "You are calm.");
    pipeline_release(s);
    pipeline_dir_close(d);
}

/* Each class occurs on plain examples; good scores make a question easier, bad ones harder. */
static void test_difficulty(void **state) {
    (void)state;
    struct difficulty d;
    const char *fact = "What is the capital of France?",
               *hard = "Compare two distributed consensus algorithms, prove their complexity, "
                       "design a protocol "
                       "for a kernel, justify each choice and say what remains uncertain.";
    difficulty_of("hi", 2, NULL, 0, NULL, &d);
    assert_true(d.class == DIFFICULTY_LOW && d.mode == DIFFICULTY_FAST);
    difficulty_of(fact, strlen(fact), NULL, 0, NULL, &d);
    assert_int_equal(d.class, DIFFICULTY_LOW);
    difficulty_of("", 0, NULL, 0, NULL, &d);
    assert_true(d.score >= 0 && d.score <= 1);
    double bad[] = {1, 2, 1, 2}, good[] = {5, 5, 5};
    difficulty_of(hard, strlen(hard), bad, 4, NULL, &d);
    assert_true(d.class == DIFFICULTY_HIGH && d.mode == DIFFICULTY_ULTRA);
    double with_bad = d.score;
    difficulty_of(hard, strlen(hard), good, 3, NULL, &d);
    assert_true(d.score < with_bad);
    static const double mean4[] = {4, 4, 4}, mean25[] = {2.5, 2.5, 2.5}, two[] = {1, 1};
    assert_true(fabs(difficulty_history(mean4, 3) - 0.15) < 1e-9);
    assert_true(fabs(difficulty_history(mean25, 3) - 0.625) < 1e-9);
    assert_true(fabs(difficulty_history(two, 2) - 0.5) < 1e-9);
    assert_int_equal(difficulty_mode_from("ultra"), DIFFICULTY_ULTRA);
    assert_int_equal(difficulty_mode_from("Ultra"), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped),
        cmocka_unit_test_setup_teardown(test_refused, make_dir, scratch_drop),
        cmocka_unit_test_setup_teardown(test_reload, make_dir, scratch_drop),
        cmocka_unit_test_setup_teardown(test_persona, make_dir, scratch_drop),
        cmocka_unit_test(test_difficulty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
