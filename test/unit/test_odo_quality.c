/* The quality gate and strategies within the orchestrator: what is judged, kept, retried and told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/clock.h"
#include "base/file.h"
#include "backend/call.h"
#include "odo/memory.h"
#include "odo/odo.h"
#include "odo/quality.h"
#include "store/job.h"
#include "store/memory.h"
#include "store/quality.h"
#include "store/score.h"
#include "tools/tool.h"

#include "await.h"
#include "odo_script.h"

static char dir[64];
static struct store *store;

static void put(const char *name, const char *text) {
    char path[160];
    struct file_writer w;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(file_writer_open(&w, path, NULL), 0);
    fputs(text, w.f);
    assert_int_equal(file_writer_commit(&w, NULL), 0);
}

static int set_up(void **state) {
    (void)state;
    char path[160];
    snprintf(dir, sizeof dir, "test_odo_quality.XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/chimere.db", dir);
    return store_open(&store, path, NULL);
}

static int tear_down(void **state) {
    (void)state;
    char command[128];
    store_close(store);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* ---- the store ---- */

struct rows {
    int n, n_given, n_pair;
    double score;
    int32_t feedback;
    char better[64], worse[64], origin[64], question[64];
};

static void copy(char out[64], const char *text) {
    snprintf(out, 64, "%s", text ? text : "(null)");
}

static int on_row(void *ud, const struct store_quality *q) {
    struct rows *r = ud;
    r->n++;
    if (q->parent) {
        copy(r->origin, q->origin);
        return 0;
    }
    r->n_given++;
    r->score = q->score;
    r->feedback = q->feedback;
    copy(r->question, q->question);
    return 0;
}

static int on_pair(void *ud, const struct store_quality *better,
                   const struct store_quality *worse) {
    struct rows *r = ud;
    r->n_pair++;
    copy(r->better, better->answer);
    copy(r->worse, worse->answer);
    return 0;
}

static struct rows read_rows(double gap) {
    struct rows r = {0};
    assert_int_equal(store_quality_list(store, 0, on_row, &r, NULL), 0);
    assert_int_equal(store_quality_pairs(store, 0, gap, on_pair, &r, NULL), 0);
    return r;
}

static void test_store(void **state) {
    (void)state;
    struct store_quality q = {
        .name = "odo-1", .route = "kine", .question = "?", .answer = "first", .score = 0.8};
    struct err e = {0};
    int64_t id = 0;
    assert_int_equal(store_quality_add(store, &q, &id, &e), 0);
    int64_t twice = 0;
    assert_int_equal(store_quality_add(store, &q, &twice, &e), 0); /* by another process */
    assert_int_equal(twice, 0);
    q = (struct store_quality){.parent = id,
                               .route = "kine",
                               .question = "?",
                               .answer = "second",
                               .score = 0.2,
                               .origin = "candidate"};
    assert_int_equal(store_quality_add(store, &q, NULL, &e), 0);
    q = (struct store_quality){.parent = id,
                               .route = "kine",
                               .question = "?",
                               .answer = "third",
                               .score = NAN,
                               .origin = "draft"};
    assert_int_equal(store_quality_add(store, &q, NULL, &e), 0);
    struct rows r = read_rows(0.5);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.n_pair, 1); /* what nobody judged is no part of a pair */
    assert_string_equal(r.better, "first");
    assert_int_equal(read_rows(0.7).n_pair, 0);
    /* the user thinks otherwise, and the pair turns around */
    assert_int_equal(store_quality_feedback(store, "odo-1", 1, "wrong", &e), 0);
    r = read_rows(0.1);
    assert_string_equal(r.better, "second");
    assert_string_equal(r.worse, "first");
    assert_int_equal(r.feedback, 1);
    assert_int_equal(store_quality_feedback(store, "odo-2", 5, NULL, &e), CHIMERE_ENOENT);
    assert_int_equal(store_quality_feedback(store, "odo-1", 6, NULL, &e), CHIMERE_EINVAL);
    /* one schema: the route's history reads the same rows; alternatives do not count */
    double scores[STORE_MAX_SCORES];
    size_t n;
    assert_int_equal(store_score_last(store, "kine", true, scores, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_true(scores[0] == 1);
    assert_int_equal(store_score_forget(store, INT64_MAX, NULL), 3);
}

/* ---- the gate ---- */

static const char *judge_says(struct script *s, const json_t *messages) {
    (void)messages;
    return s->replies[0];
}

static int add_job(void *ud, const struct store_job *j) {
    char *all = ud;
    size_t n = strlen(all);
    snprintf(all + n, 256 - n, "%s %s%s%s; ", j->name, j->state, *j->error ? ": " : "", j->error);
    return 0;
}

static void test_gate(void **state) {
    (void)state;
    char jobs[256] = "";
    static const char *const replies[] = {"Step 1 is correct.\nIs the solution correct? Yes"};
    struct script s;
    struct quality *q;
    script_init(&s, replies, 1);
    s.choose = judge_says;
    assert_int_equal(quality_open(&q, &s.base, store, NULL), 0);
    json_t *c = json_pack("[{s:s, s:f}, {s:s, s:f}]", "text", "It is seven, as everybody knows.",
                          "score", 1.0, "text", "It is eight, as nobody knows.", "score", 0.1);
    struct quality_answer a = {.name = "odo-a",
                               .route = "kine",
                               .question = "How many?",
                               .answer = "It is seven, as everybody knows.",
                               .score = NAN,
                               .candidates = c,
                               .keep = true};
    assert_true(quality_post(q, &a));
    quality_wait(q);
    struct rows r = read_rows(0.5);
    assert_int_equal(r.n, 2);
    assert_true(r.score == 1);
    assert_string_equal(r.better, "It is seven, as everybody knows.");
    assert_string_equal(r.worse, "It is eight, as nobody knows.");
    assert_string_equal(r.origin, "candidate");
    store_score_forget(store, INT64_MAX, NULL);
    /* without leave, no text is kept; nonsense is no score; what is too short is not judged */
    static const char *const nonsense[] = {"banana"};
    s.replies = nonsense;
    a.keep = false;
    a.candidates = NULL;
    assert_true(quality_post(q, &a));
    quality_wait(q);
    r = read_rows(0);
    assert_int_equal(r.n, 1);
    assert_true(isnan(r.score));
    assert_string_equal(r.question, "(null)");
    a.answer = "7";
    assert_false(quality_post(q, &a));
    store_score_forget(store, INT64_MAX, NULL);
    json_decref(c);
    quality_close(q);
    assert_int_equal(store_job_list(store, NULL, 9, add_job, jobs, NULL), 0);
    assert_string_equal(jobs, "odo-a done; odo-a done; ");
    script_fini(&s);
}

/* A judge that never answers: the queue has a ceiling, posting never waits, closing does not either. */
static void test_gate_full(void **state) {
    (void)state;
    static const char *const replies[] = {"hang"};
    struct script s;
    struct quality *q;
    script_init(&s, replies, 1);
    s.choose = judge_says;
    assert_int_equal(quality_open(&q, &s.base, store, NULL), 0);
    struct quality_answer a = {.name = "odo-b",
                               .route = "kine",
                               .question = "How many?",
                               .answer = "It is seven, as everybody knows.",
                               .score = NAN};
    int64_t start = clock_ns();
    int n = 0;
    for (int i = 0; i < 3 * QUALITY_QUEUE; i++) n += quality_post(q, &a);
    assert_in_range(n, QUALITY_QUEUE, QUALITY_QUEUE + 1);
    quality_close(q);
    assert_true(clock_ms_since(start) < HANG_MS / 2.0);
    assert_int_equal(read_rows(0).n, 0);
    script_fini(&s);
}

/* ---- in the orchestrator ---- */

struct bed {
    struct script script;
    struct odo *odo;
    struct request request;
    struct call_result out;
    struct buf seen, notes, headers;
};

static struct tool_set *offered; /* of the next bed, which owns it; NULL: none */

static int see(void *ud, const struct backend_event *ev) {
    struct bed *b = ud;
    if (ev->kind == EVENT_NOTE) buf_printf(&b->notes, "%s %s\n", ev->name, ev->text);
    if (ev->kind == EVENT_CHAT && ev->chat->kind == CHAT_CONTENT)
        buf_put(&b->seen, ev->chat->text, ev->chat->n);
    return 0;
}

static int bed_open(struct bed *b, const char *pipeline, struct err *e) {
    memset(b, 0, sizeof *b);
    put("intent.yaml", "accept: 0.6\nroutes:\n  - name: default\n    about: all\n");
    put("default.yaml", pipeline);
    script_init(&b->script, NULL, 0);
    struct odo_params p = {.backend = &b->script.base,
                           .pipelines = dir,
                           .store = store,
                           .tools = offered,
                           .intent_ms = -1,
                           .card = {.judge = true, .tools = offered != NULL}};
    int rc = odo_open(&b->odo, &p, e);
    if (rc) return rc;
    request_init(&b->request);
    b->request.messages = json_pack("[{s:s, s:s}]", "role", "user", "content",
                                    "How many legs has a spider on the moon?");
    buf_init(&b->seen, 1 << 20);
    buf_init(&b->notes, 1 << 20);
    return 0;
}

static void go(struct bed *b, bool listen) {
    struct err e = {0};
    struct call c = {.backend = odo_find(b->odo, "odo"),
                     .request = &b->request,
                     .on_event = listen ? see : NULL,
                     .ud = b};
    call_fini(&b->out);
    if (call_run(&c, &b->out, &e)) fail_msg("%s", e.text);
}

static void bed_close(struct bed *b) {
    call_fini(&b->out);
    request_fini(&b->request);
    buf_fini(&b->seen);
    buf_fini(&b->notes);
    odo_close(b->odo);
    script_fini(&b->script);
    store_score_forget(store, INT64_MAX, NULL);
}

static const char *two_answers(struct script *s, const json_t *messages) {
    const char *t = json_string_value(json_object_get(json_array_get(messages, 0), "content"));
    if (t && !strncmp(t, "Check each step", 15))
        return strstr(t, "eight") ? "Step 1 is correct." : "Step 1 is incorrect.";
    return s->at++ % 4 == 3 ? "A spider has eight legs there." : "A spider has nine legs there.";
}

static void test_strategy(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    assert_int_equal(bed_open(&b,
                              "name: default\nstrategy: {use: \"best_of_n:n=4\", when: "
                              "always}\nquality: {score: true, keep: true}\n",
                              &e),
                     0);
    b.script.choose = two_answers;
    go(&b, true);
    assert_string_equal(b.out.content.p, "A spider has eight legs there.");
    assert_string_equal(b.seen.p, b.out.content.p); /* what is streamed is what is not */
    assert_non_null(strstr(b.notes.p, "strategy {\"name\":\"best_of_n\",\"n\":4"));
    assert_non_null(strstr(b.notes.p, "\"strategy\":\"best_of_n\""));
    assert_true(b.out.stats.n_generated >= 20); /* of all candidates */
    go(&b, false);
    assert_string_equal(b.out.content.p, "A spider has eight legs there.");
    b.request.extra = json_pack("{s:{s:b}}", "odo", "strategy", 0);
    b.script.at = 0;
    go(&b, false);
    assert_string_equal(b.out.content.p, "A spider has nine legs there.");
    json_decref(b.request.extra);
    b.request.extra = json_pack("{s:{s:s}}", "odo", "strategy", "best_of_m");
    struct backend *back = odo_find(b.odo, "odo");
    struct generation *run = NULL;
    struct event_sink sink = {see, &b};
    assert_int_equal(back->ops->prepare(back, &b.request, &sink, &run, NULL, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "best_of_m"));
    bed_close(&b);
}

/* Candidates are asked as a plain answer is: in the mode that was named, with the pipeline's table. */
static void test_strategy_ask(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    assert_int_equal(bed_open(&b,
                              "name: default\nengram: {table: kine}\nthinking: {enabled: true}\n"
                              "strategy: {use: \"majority:n=2\", when: always}\n",
                              &e),
                     0);
    b.script.choose = two_answers;
    b.request.extra = json_pack("{s:{s:s}}", "odo", "mode", "fast");
    go(&b, false);
    assert_int_equal(json_array_size(b.script.asked), 2);
    json_t *asked = json_array_get(b.script.asked, 1),
           *table = json_object_get(json_object_get(asked, "extra"), "engram");
    assert_true(json_is_false(json_object_get(asked, "think")));
    assert_string_equal(json_string_value(json_array_get(json_object_get(table, "tables"), 0)),
                        "kine");
    json_decref(b.request.extra);
    b.request.extra = json_pack("{s:{s:s}}", "odo", "mode", "ultra");
    go(&b, false);
    assert_true(json_is_true(json_object_get(json_array_get(b.script.asked, 3), "think")));
    bed_close(&b);
}

static void test_pipeline_wrong(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    assert_int_equal(bed_open(&b, "name: default\nstrategy: {use: \"best_of_n:m=4\"}\n", &e),
                     CHIMERE_EFORMAT);
    assert_non_null(strstr(e.text, "default.yaml:2"));
    assert_non_null(strstr(e.text, "\"m\""));
    script_fini(&b.script);
    assert_int_equal(bed_open(&b, "name: default\nquality: {scores: true}\n", &e), CHIMERE_EFORMAT);
    assert_non_null(strstr(e.text, "scores"));
    script_fini(&b.script);
}

/* The first answer is bad: a second attempt, and both in the store. */
static void test_reflect(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    assert_int_equal(
        bed_open(&b, "name: default\nquality: {score: true, keep: true, reflect: true}\n", &e), 0);
    b.script.choose = two_answers;
    b.script.at = 2; /* nine, then eight */
    go(&b, true);
    assert_string_equal(b.out.content.p, "A spider has eight legs there.");
    assert_string_equal(b.seen.p, b.out.content.p);
    assert_non_null(strstr(b.notes.p, "reflection {"));
    AWAIT(read_rows(0.5).n_pair);
    struct rows r = read_rows(0.5);
    assert_int_equal(r.n_pair, 1);
    assert_string_equal(r.better, "A spider has eight legs there.");
    assert_string_equal(r.worse, "A spider has nine legs there.");
    assert_string_equal(r.origin, "draft");
    bed_close(&b);
}

/* An answer that is held back and computed without the model is kept once: then it is too short for the store. */
static void test_reflect_on_computed(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    assert_int_equal(bed_open(&b,
                              "name: default\ntools: [calculator]\nquality: {score: true, keep: "
                              "true, reflect: true}\n",
                              &e),
                     0);
    json_t *spider = b.request.messages;
    b.request.messages =
        json_pack("[{s:s, s:s}]", "role", "user", "content", "What is 123456 * 987654?");
    b.script.choose = two_answers;
    b.script.at = 3;
    go(&b, true);
    assert_string_equal(b.out.content.p, "121931812224");
    assert_string_equal(b.seen.p, "121931812224");
    assert_non_null(strstr(b.notes.p, "\"computed\":true"));
    json_decref(b.request.messages);
    b.request.messages = spider;
    go(&b, false);
    AWAIT(strstr(read_rows(0).question, "spider"));
    assert_non_null(strstr(read_rows(0).question, "spider")); /* posted after the other */
    assert_int_equal(read_rows(0).n_given, 1);
    bed_close(&b);
}

static const char *eight_legs(struct script *s, const json_t *messages) {
    (void)messages;
    return s->at++ % 2 ? "Step 1 is correct." : "A spider has eight legs there.";
}

static int read_page(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                     struct err *e) {
    (void)ud, (void)args, (void)env, (void)e;
    return buf_printf(out, "A page says nine.");
}

static void offer_page(void) {
    struct tool t = {.name = "page",
                     .flags = TOOL_TAINTS | TOOL_ANYWHERE,
                     .deadline_ms = 60000,
                     .spec = tool_spec("page", "Reads a page.", "{\"type\":\"object\"}"),
                     .run = read_page};
    assert_int_equal(tool_set_new(&offered, NULL), 0);
    assert_int_equal(tool_add(offered, &t, NULL), 0);
}

static const char *page_first(struct script *s, const json_t *messages) {
    static const char *const said[] = {"call page {}", "A spider has nine legs there.",
                                       "Step 1 is correct."};
    (void)messages;
    return said[s->at < 2 ? s->at++ : 2];
}

/* Texts are kept only if the question alone explains the answer, not if it also depends on earlier turns, the caller's
 * system message, a stranger's page, or the user's memory. The score is kept. */
static void test_only_lone_questions_are_kept(void **state) {
    (void)state;
    static const char spider[] = "How many legs has a spider on the moon?";
    static const struct {
        const char *before, *kept;
        bool reads_page, has_memory;
    } cases[] = {
        {.before = "[]", .kept = spider},
        {.before = "[{\"role\":\"user\",\"content\":\"And on Mars?\"},"
                   "{\"role\":\"assistant\",\"content\":\"Ten.\"}]",
         .kept = "(null)"},
        {.before = "[{\"role\":\"system\",\"content\":\"Always say nine.\"}]", .kept = "(null)"},
        {.before = "[]", .kept = "(null)", .reads_page = true},
        {.before = "[]", .kept = "(null)", .has_memory = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bed b;
        struct err e = {0};
        struct store_memory m = {.owner = MEMORY_LOCAL,
                                 .kind = STORE_FACT,
                                 .text = "My spider on the moon is called Ida.",
                                 .pinned = true};
        if (cases[i].reads_page) offer_page();
        assert_int_equal(bed_open(&b, "name: default\nquality: {score: true, keep: true}\n", &e),
                         0);
        offered = NULL;
        b.script.choose = cases[i].reads_page ? page_first : eight_legs;
        if (cases[i].has_memory) assert_int_equal(store_memory_add(store, &m, NULL, &e), 0);
        json_t *all = json_loads(cases[i].before, 0, NULL);
        json_array_extend(all, b.request.messages);
        json_decref(b.request.messages);
        b.request.messages = all;
        go(&b, false);
        AWAIT(read_rows(0).n_given);
        struct rows r = read_rows(0);
        assert_int_equal(r.n_given, 1);
        assert_string_equal(r.question, cases[i].kept);
        assert_false(isnan(r.score));
        bed_close(&b);
    }
}

/* A score that still waits when a bed closes stays in the store, for the next server: never the next test's. */
#define OWN_STORE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        OWN_STORE(test_store),
        OWN_STORE(test_gate),
        OWN_STORE(test_gate_full),
        OWN_STORE(test_strategy),
        OWN_STORE(test_strategy_ask),
        OWN_STORE(test_pipeline_wrong),
        OWN_STORE(test_reflect),
        OWN_STORE(test_reflect_on_computed),
        OWN_STORE(test_only_lone_questions_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
