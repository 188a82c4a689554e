/* Skills: what a SKILL.md may say, which is chosen, and commands that no shell ever reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <time.h>

#include "base/file.h"
#include "odo/pipeline/pipeline.h"
#include "odo/pipeline/skill.h"
#include "tools/tool.h"

#include "await.h"
#include "odo_bed.h"
#include "scratch.h"

static int setup(void **state) {
    assert_int_equal(scratch_make(state), 0);
    scratch_put("intent.yaml", "routes:\n  - name: default\n");
    scratch_put("default.yaml", "name: default\n");
    scratch_put("picky.yaml", "name: picky\nskills: [poem]\n");
    scratch_put("bare.yaml", "name: bare\nskills: []\n");
    scratch_put(
        "skills/word-count/SKILL.md",
        "---\nname: word-count\ndescription: Counts the words and lines of a text. Use when a text "
        "is "
        "to be measured.\ncommand: [/usr/bin/printf, '%s|%s', '{input}', '{folder}']\n"
        "timeout_ms: 5000\nlicense: MIT\n---\n\nGive both numbers in one sentence.\n");
    scratch_put("skills/poem/SKILL.md",
                "---\nname: poem\ndescription: Writes short poems and verses about "
                "the sea.\n---\nRhyme.\n");
    scratch_put("skills/stdin/SKILL.md",
                "---\nname: stdin\ndescription: Sorts a list of cities by their names.\n"
                "command: ['{folder}/sort.sh']\n---\n");
    scratch_put("skills/stdin/sort.sh",
                "#!/bin/sh\nsort; cat \"$0\" | wc -l; touch /skill/x 2>&1\n");
    scratch_put("skills/README.md", "not a skill\n");
    char path[200];
    snprintf(path, sizeof path, "%s/skills/stdin/sort.sh", scratch);
    return chmod(path, 0755);
}

static void refused(const char *text, size_t n, const char *where, const char *what) {
    struct arena a;
    struct skill s;
    struct err e = {0};
    arena_init(&a, 1 << 20);
    assert_int_not_equal(skill_parse(&s, "d", "x", text, n, &a, &e), 0);
    if (!strstr(e.text, where) || !strstr(e.text, what))
        fail_msg("expected %s and %s in: %s", where, what, e.text);
    arena_fini(&a);
}

static void test_refused(void **state) {
    (void)state;
#define REFUSED(text, where, what) refused(text, sizeof(text) - 1, where, what)
    REFUSED("", "d/SKILL.md:1:", "---");
    REFUSED("name: x\n", "d/SKILL.md:1:", "---");
    REFUSED("---\nname: x\ndescription: y\n", "d/SKILL.md:1:", "---");
    REFUSED("---\nname: y\ndescription: y\n---\n", "SKILL.md:2:", "folder's own, x");
    REFUSED("---\nname: x\n---\n", "SKILL.md:2:", "description");
    REFUSED("---\nname: x\ndescription: y\ncolour: z\n---\n", "SKILL.md:4:", "unknown key");
    REFUSED("---\nname: x\ndescription: y\ncommand: ls -l\n---\n", "SKILL.md:2:", "whole path");
    REFUSED("---\nname: x\ndescription: y\ncommand: {a: b}\n---\n", "SKILL.md:4:", "list");
    REFUSED("---\nname: x\ndescription: y\ntimeout_ms: 0\n---\n", "SKILL.md:4:", "10..600000");
    REFUSED("---\nname: x\ndescription: y\n---\n\xff\n", "SKILL.md", "UTF-8");
    REFUSED("---\nname: [x\n---\n", "SKILL.md:", "");
}

static const char *chosen(struct pipeline_dir *d, const char *question) {
    struct pipeline_set *s = pipeline_hold(d);
    int n;
    const struct skill *const *all = pipeline_skills(s, &n);
    int k = skill_choose(all, n, question);
    const char *name = k < 0 ? "none" : all[k]->name;
    pipeline_release(s); /* the folder holds it, too */
    return name;
}

static void test_choice(void **state) {
    (void)state;
    struct pipeline_dir *d;
    struct err e = {0};
    if (pipeline_dir_open(&d, scratch, false, NULL, &e)) fail_msg("%s", e.text);
    assert_string_equal(chosen(d, "Count the words in this text, please"), "word-count");
    assert_string_equal(chosen(d, "Write a short poem about the sea"), "poem");
    assert_string_equal(chosen(d, "Sort these cities by name"), "stdin");
    assert_string_equal(chosen(d, "What is the capital of France?"), "none");
    assert_string_equal(chosen(d, "The sea is blue, and which of my colleagues works tomorrow at "
                                  "the office in Lisbon?"),
                        "none");
    assert_string_equal(chosen(d, ""), "none");
    pipeline_dir_close(d);
}

static bool can_run(void) {
    struct tool_set *tools;
    struct tool_env env = {0};
    struct skill s = {.name = "x",
                      .about = "x",
                      .folder = scratch,
                      .command = {(const char *[]){"/bin/true"}, 1},
                      .timeout_ms = 5000};
    struct tool t;
    struct buf out;
    buf_init(&out, 1 << 20);
    assert_int_equal(tool_set_new(&tools, NULL), 0);
    assert_int_equal(skill_tool(&s, &t, NULL), 0);
    int rc = tool_run(&t, "{\"input\":\"\"}", &env, &out);
    if (rc) {
        assert_non_null(strstr(out.p, "sandbox: this kernel or container forbids it"));
        print_message("skip: commands of skills: user namespaces are forbidden here\n");
    }
    json_decref(t.spec);
    buf_fini(&out);
    tool_set_free(tools);
    return !rc;
}

/* Whatever the model hands over stays one argument: the first orchestrator pasted it into a shell's line. */
static void test_commands(void **state) {
    (void)state;
    if (!can_run()) skip();
    static const char *const inputs[] = {
        "plain", "'; touch x; echo '", "$(id)",   "`id`", "a b  c",  "\" | cat /etc/passwd", "-n",
        "%s%n",  "{folder}",           "{input}", "\n\n", "\xc3\xa9"};
    struct pipeline_dir *d;
    assert_int_equal(pipeline_dir_open(&d, scratch, false, NULL, NULL), 0);
    struct pipeline_set *s = pipeline_hold(d);
    int n;
    const struct skill *const *all = pipeline_skills(s, &n);
    assert_int_equal(n, 3);
    for (int i = 0; i < n; ++i) {
        struct tool t;
        if (!all[i]->command.n) {
            assert_int_equal(skill_tool(all[i], &t, NULL), CHIMERE_ENOENT);
            continue;
        }
        assert_int_equal(skill_tool(all[i], &t, NULL), 0);
        bool prints = !strcmp(all[i]->name, "word-count");
        for (size_t k = 0; k < sizeof inputs / sizeof *inputs && prints; ++k) {
            struct tool_env env = {0};
            struct buf out;
            buf_init(&out, 1 << 20);
            json_t *args = json_pack("{s:s}", "input", inputs[k]);
            char *text = json_dumps(args, 0), want[100];
            assert_int_equal(tool_run(&t, text, &env, &out), 0);
            snprintf(want, sizeof want, "%s|/skill", inputs[k]);
            assert_string_equal(out.p, want);
            free(text);
            json_decref(args);
            buf_fini(&out);
        }
        if (!prints) { /* on the standard input; its folder is there and cannot be written */
            struct tool_env env = {0};
            struct buf out;
            buf_init(&out, 1 << 20);
            assert_int_equal(tool_run(&t, "{\"input\":\"Rome\\nBern\\n\"}", &env, &out), 0);
            assert_non_null(strstr(out.p, "Bern\nRome\n2\n"));
            assert_non_null(strstr(out.p, "Read-only file system"));
            env.tainted = true; /* what strangers wrote runs nothing */
            assert_int_equal(tool_run(&t, "{\"input\":\"x\"}", &env, &out), CHIMERE_EREFUSED);
            buf_fini(&out);
        }
        json_decref(t.spec);
    }
    pipeline_release(s);
    pipeline_dir_close(d);
}

static void test_in_a_run(void **state) {
    (void)state;
    static const char *const replies[] = {"call skill_word-count {\"input\": \"a b\"}",
                                          "Two words."};
    struct odo_params p = {.pipelines = scratch};
    struct bed b;
    bed_open(&b, replies, 2, &p);
    say(&b, "system", "Be brief.");
    say(&b, "user", "Count the words of this text: a b");
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_string_equal(content(&b), "Two words.");
    assert_non_null(strstr(script_text(&b.script, 0, 0), "Be brief."));
    assert_non_null(strstr(script_text(&b.script, 0, 0), "Give both numbers in one sentence."));
    assert_non_null(strstr(notes(&b), "\"skill\":\"word-count\""));
    char *tools = json_dumps(json_object_get(json_array_get(b.script.asked, 0), "tools"), 0);
    assert_non_null(strstr(tools, "skill_word-count"));
    free(tools);
    bed_close(&b);
    /* a pipeline's list, a request's wish */
    static const struct {
        const char *wish;
        const char *skill; /* NULL: none */
    } rows[] = {{"{\"route\": \"picky\"}", NULL},
                {"{\"route\": \"bare\"}", NULL},
                {"{\"skill\": false}", NULL},
                {"{\"skill\": \"poem\"}", "\"skill\":\"poem\""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        bed_open(&b, (const char *const[]){"x"}, 1, &p);
        say(&b, "user", "Count the words of this text: a b");
        b.request.extra = json_pack("{s:o}", "odo", json_loads(rows[i].wish, 0, NULL));
        assert_int_equal(ask_it(&b, NULL), 0);
        assert_true((strstr(notes(&b), "\"skill\":") != NULL) == (rows[i].skill != NULL));
        if (rows[i].skill) assert_non_null(strstr(notes(&b), rows[i].skill));
        bed_close(&b);
    }
    struct err e = {0};
    bed_open(&b, NULL, 0, &p);
    say(&b, "user", "Count");
    b.request.extra = json_loads("{\"odo\": {\"skill\": \"nothing\"}}", 0, NULL);
    assert_int_equal(ask_it(&b, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "odo.skill: no skill \"nothing\""));
    bed_close(&b);
}

/* The fool says this, and there are n skills. */
static bool jests(struct pipeline_dir *d, const char *text, int n) {
    int n_skill;
    struct pipeline_set *s = pipeline_hold(d);
    const char *fool = pipeline_persona(s, "fool");
    pipeline_skills(s, &n_skill);
    bool is = fool && !strcmp(fool, text) && n_skill == n;
    pipeline_release(s);
    return is;
}

/* A persona is chosen by a request; one that appears or changes is there at once, a broken skill costs itself alone. */
static void test_reload(void **state) {
    (void)state;
    struct pipeline_dir *d;
    scratch_put("personas/sage/SOUL.md", "You are calm.\n");
    scratch_put("skills/broken/SKILL.md", "---\nname: broken\n---\n");
    assert_int_equal(pipeline_dir_open(&d, scratch, true, NULL, NULL), 0);
    struct pipeline_set *s = pipeline_hold(d);
    assert_string_equal(pipeline_persona(s, "sage"), "You are calm.");
    assert_null(pipeline_persona(s, "fool"));
    assert_non_null(strstr(pipeline_problem(s), "broken/SKILL.md:2: description"));
    int n;
    pipeline_skills(s, &n);
    assert_int_equal(n, 3);
    pipeline_release(s);
    scratch_put("personas/fool/SOUL.md", "You jest.\n");
    scratch_put("skills/broken/SKILL.md", "---\nname: broken\ndescription: Mended.\n---\n");
    AWAIT(jests(d, "You jest.", 4));
    assert_true(jests(d, "You jest.", 4));
    scratch_put("personas/fool/SOUL.md",
                "You jest a lot.\n"); /* in a folder that was not there at the start */
    AWAIT(jests(d, "You jest a lot.", 4));
    assert_true(jests(d, "You jest a lot.", 4));
    pipeline_dir_close(d);
    struct odo_params p = {.pipelines = scratch};
    struct bed b;
    struct err e = {0};
    bed_open(&b, (const char *const[]){"x"}, 1, &p);
    say(&b, "user", "Tell me a joke.");
    b.request.extra = json_loads("{\"odo\": {\"persona\": \"fool\"}}", 0, NULL);
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_string_equal(script_text(&b.script, 0, 0), "You jest a lot.");
    json_decref(b.request.extra);
    b.request.extra = json_loads("{\"odo\": {\"persona\": \"../..\"}}", 0, NULL);
    assert_int_equal(ask_it(&b, &e), CHIMERE_EINVAL);
    bed_close(&b);
}

/* What ships: a skill that counts, and a persona. The numbers were counted by hand. */
static void test_shipped(void **state) {
    (void)state;
    static const char shipped[] = TEST_DATA "/../../pipelines";
    struct pipeline_dir *d;
    struct err e = {0};
    int n;
    if (pipeline_dir_open(&d, shipped, false, NULL, &e)) fail_msg("%s", e.text);
    assert_string_equal(chosen(d, "How many words does this text have: to be or not to be"),
                        "word-count");
    assert_string_equal(chosen(d, "Count the characters and lines of my poem"), "word-count");
    static const char *const others[] = {"What is 12 plus 30?", "How many people live in Oslo?",
                                         "Write a text for my website", "Translate: one word",
                                         "Explain how to read a file line by line in Python"};
    for (size_t i = 0; i < sizeof others / sizeof *others; ++i)
        assert_string_equal(chosen(d, others[i]), "none");
    struct pipeline_set *s = pipeline_hold(d);
    const char *soul = pipeline_persona(s, "plain");
    assert_non_null(soul);
    const struct skill *count = pipeline_skills(s, &n)[0];
    static const char *const rows[][2] = {
        {"Hello there, Zo\xc3\xab! How are you? Fine...",
         "words: 7\ncharacters: 38\nsentences: 3\nlines: 1\nminutes aloud: 0.1\n"},
        {"It is 3.5 km. \"Far!\" (yes.) And\r\non",
         "words: 8\ncharacters: 33\nsentences: 4\nlines: 2\nminutes aloud: 0.1\n"},
        {"", "words: 0\ncharacters: 0\nsentences: 0\nlines: 0\nminutes aloud: 0.0\n"}};
    bool runs = can_run() && !access("/usr/bin/awk", X_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && runs; ++i) {
        struct tool t;
        struct tool_env env = {0};
        struct buf out;
        buf_init(&out, 1 << 20);
        assert_int_equal(skill_tool(count, &t, NULL), 0);
        json_t *args = json_pack("{s:s}", "input", rows[i][0]);
        char *text = json_dumps(args, 0);
        if (tool_run(&t, text, &env, &out)) fail_msg("%s", out.p);
        assert_string_equal(out.p, rows[i][1]);
        free(text);
        json_decref(args);
        json_decref(t.spec);
        buf_fini(&out);
    }
    struct bed b;
    bed_open(&b, (const char *const[]){"x"}, 1, NULL);
    say(&b, "user", "Tell me a joke.");
    b.request.extra = json_loads("{\"odo\": {\"persona\": \"plain\"}}", 0, NULL);
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_string_equal(script_text(&b.script, 0, 0), soul);
    bed_close(&b);
    pipeline_release(s);
    pipeline_dir_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_choice),
        cmocka_unit_test(test_commands), cmocka_unit_test(test_in_a_run),
        cmocka_unit_test(test_reload),   cmocka_unit_test(test_shipped),
    };
    return cmocka_run_group_tests(tests, setup, scratch_drop);
}
