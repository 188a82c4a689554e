/* Answers kept: the same request, the same meaning, and everything that must not stand for something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/file.h"
#include "odo/cache.h"

#include "odo_bed.h"

static void test_alike(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        bool alike;
    } rows[] = {
        {"What is the capital of France?", "Tell me the capital of France.", true},
        {"What is the capital of France?", "What is the capital of Germany?", false},
        {"What is 3 plus 4?", "What is 4 plus 5?", false},
        {"What is 3 plus 4?", "How much is 3 plus 4?", true},
        {"Which birds can fly?", "Which birds can not fly?", false},
        {"Which birds can fly?", "Which birds can't fly?", false},
        {"Quels oiseaux volent ?", "Quels oiseaux ne volent pas ?", false},
        {"Is the smallest planet Mercury?", "is mercury the smallest planet?", true},
        {"Wash before eating?", "Wash after eating?", false},
        {"open a .tar.gz file in linux", "open a .tar.gz file in iOS", false},
        {"the cheapest car at most 4000", "the cheapest car at least 4000", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        if (cache_is_alike(rows[i].a, rows[i].b) != rows[i].alike)
            fail_msg("%s | %s", rows[i].a, rows[i].b);
        if (cache_is_alike(rows[i].b, rows[i].a) != rows[i].alike)
            fail_msg("%s | %s", rows[i].b, rows[i].a);
    }
}

static void test_timeless(void **state) {
    (void)state;
    static const char *const timely[] = {"What is the weather in Oslo?",
                                         "Who is the current king?",
                                         "What's the latest Python?",
                                         "What time is it?",
                                         "Quelle heure est-il ?",
                                         "Quel temps fait-il aujourd'hui ?",
                                         "Les derni\u00e8res nouvelles",
                                         "Price of gold",
                                         "Is it Monday TODAY"};
    static const char *const timeless[] = {"What is the capital of France?", "Explain recursion.",
                                           "Quelle est la capitale du Chili ?",
                                           "Who was the first king of Norway?"};
    for (size_t i = 0; i < sizeof timely / sizeof *timely; ++i)
        if (cache_is_timeless(timely[i])) fail_msg("%s", timely[i]);
    for (size_t i = 0; i < sizeof timeless / sizeof *timeless; ++i)
        if (!cache_is_timeless(timeless[i])) fail_msg("%s", timeless[i]);
}

/* Vectors by letters: alike texts lie near, and it can fail. */
static int n_vector;

static int by_letters(void *ud, const char *text, float *out, struct err *e) {
    double sum = 0;
    ++n_vector;
    if (*(bool *)ud) return err_set(e, CHIMERE_EIO, "no vectors");
    for (int i = 0; i < 32; ++i) out[i] = 0;
    for (const char *p = text; *p; ++p) out[*p & 31] += 1;
    for (int i = 0; i < 32; ++i) sum += (double)out[i] * (double)out[i];
    for (int i = 0; i < 32; ++i) out[i] = (float)((double)out[i] / sqrt(sum + 1e-9));
    return 0;
}

static bool fails;
static const struct cache_vectors letters = {32, by_letters, &fails};

static const char *count_answers(struct script *s, const json_t *messages) {
    static char text[32];
    static int n;
    (void)s, (void)messages;
    snprintf(text, sizeof text, "answer %d", ++n);
    return text;
}

struct question {
    const char *owner, *user, *text, *wish;
};

static void request(struct bed *b, const struct question *q, char *out, size_t size) {
    struct err e = {0};
    json_decref(b->request.messages);
    b->request.messages = json_array();
    say(b, "user", q->text);
    b->request.owner = q->owner;
    b->request.user = q->user;
    json_decref(b->request.extra);
    b->request.extra = json_pack("{s:{s:s}}", "odo", "cache", q->wish);
    if (ask_it(b, &e)) fail_msg("%s", e.text);
    snprintf(out, size, "%s", content(b));
}

static bool same(struct bed *b, const struct question *first, const struct question *second) {
    char one[64], two[64];
    request(b, first, one, sizeof one);
    request(b, second, two, sizeof two);
    return !strcmp(one, two);
}

#define SAME(o1, u1, t1, w1, o2, u2, t2, w2)                                                       \
    same(&b, &(struct question){o1, u1, t1, w1}, &(struct question){o2, u2, t2, w2})

static void test_near(void **state) {
    (void)state;
    struct odo_params p = {.vectors = &letters};
    struct bed b;
    bed_open(&b, NULL, 0, &p);
    b.script.choose = count_answers;
    const char *q = "Tell me why the sky is blue", *near = "Tell me why is the sky blue",
               *far = "Tell me how bees make honey";
    assert_true(SAME("a", NULL, q, "semantic", "a", NULL, q, "semantic"));
    assert_true(SAME("a", NULL, q, "semantic", "a", NULL, near, "semantic"));
    assert_non_null(strstr(notes(&b), "\"cached_cosine\":0.99"));
    assert_false(SAME("a", NULL, q, "semantic", "a", NULL, far, "semantic"));
    /* another owner's, another user's behind the same key, another kind of keeping */
    assert_false(SAME("a", NULL, q, "semantic", "b", NULL, near, "semantic"));
    assert_false(SAME("a", NULL, q, "semantic", "a", "kim", near, "semantic"));
    assert_false(SAME("a", "kim", q, "semantic", "a", "bo", q, "semantic"));
    assert_false(SAME("c", NULL, q, "exact", "c", NULL, near, "exact"));
    assert_true(SAME("c", NULL, q, "exact", "c", NULL, q, "exact"));
    assert_false(SAME("d", NULL, q, "no", "d", NULL, q, "no"));
    /* time, and numbers */
    const char *now = "Tell me what is new today";
    assert_false(SAME("a", NULL, now, "semantic", "a", NULL, now, "semantic"));
    struct buf m; /* near twice: the second question of "a", the second of "kim" */
    buf_init(&m, 1 << 16);
    odo_metrics(b.odo, &m);
    assert_non_null(strstr(m.p, "chimere_odo_cache_total{found=\"near\"} 2\n"));
    buf_fini(&m);
    /* without vectors the very same alone */
    fails = true;
    assert_false(SAME("e", NULL, q, "semantic", "e", NULL, near, "semantic"));
    assert_true(SAME("e", NULL, q, "semantic", "e", NULL, q, "semantic"));
    fails = false;
    /* the conversation before it is part of the request */
    char one[64], two[64];
    request(&b, &(struct question){"f", NULL, q, "semantic"}, one, sizeof one);
    json_array_insert_new(b.request.messages, 0,
                          json_pack("{s:s, s:s}", "role", "system", "content", "Rhyme."));
    assert_int_equal(ask_it(&b, NULL), 0);
    snprintf(two, sizeof two, "%s", content(&b));
    assert_string_not_equal(one, two);
    bed_close(&b);
}

/* An answer that a tool had a part in is asked for again. */
static void test_tools(void **state) {
    (void)state;
    static const char *const replies[] = {"call calculator {\"expression\": \"2+3\"}", "5",
                                          "call calculator {\"expression\": \"2+3\"}", "5"};
    struct bed b;
    bed_open(&b, replies, 4, NULL);
    assert_true(SAME("a", NULL, "What is 2+3+1?", "exact", "a", NULL, "What is 2+3+1?", "exact"));
    assert_int_equal(json_array_size(b.script.asked), 4);
    bed_close(&b);
}

static void test_end(void **state) {
    (void)state;
    struct cache *c;
    struct cache_place place;
    struct request a;
    double cosine;
    assert_int_equal(cache_new(&c, 30, NULL, NULL), 0);
    request_init(&a);
    a.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "hi");
    a.n = 1;
    assert_int_equal(cache_place(c, &a, "r", "m", "", "hi", true, &place), 0);
    assert_non_null(place.key);
    cache_put(c, &place, "text", 4);
    char *t = cache_find(c, &place, &cosine);
    assert_true(!t || (!strcmp(t, "text") && cosine == 1)); /* a slow machine may be past its end */
    mem_free(t);
    usleep(40000);
    assert_null(cache_find(c, &place, &cosine));
    cache_place_fini(&place);
    /* more than there is room for: bounded, and the newest is there */
    cache_free(c);
    assert_int_equal(cache_new(&c, 3600000, NULL, NULL), 0);
    for (int i = 0; i < 2 * CACHE_N; ++i) {
        char mode[16];
        snprintf(mode, sizeof mode, "%d", i);
        assert_int_equal(cache_place(c, &a, "r", mode, "", "hi", false, &place), 0);
        cache_put(c, &place, mode, strlen(mode));
        t = cache_find(c, &place, &cosine);
        assert_string_equal(t, mode);
        mem_free(t);
        cache_place_fini(&place);
    }
    assert_int_equal(cache_place(c, &a, "r", "0", "", "hi", false, &place), 0);
    assert_null(cache_find(c, &place, &cosine));
    cache_place_fini(&place);
    cache_free(c);
    request_fini(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike), cmocka_unit_test(test_timeless), cmocka_unit_test(test_near),
        cmocka_unit_test(test_tools), cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
