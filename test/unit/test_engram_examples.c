/* test_engram_examples.c: validated examples against brute force, through adding, replacing and removing, by one
 * process and by another; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engram/examples.h"
#include "scratch.h"

enum { DIM = 16, EMBEDDER = 7 };

static struct store *open_store(void) {
    struct store *s;
    struct err e = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/chimere.db", scratch);
    if (store_open(&s, path, &e)) fail_msg("%s", e.text);
    return s;
}

static struct examples *open_examples(struct store *s, uint64_t embedder) {
    struct examples *x;
    struct err e = {0};
    if (examples_open(&x, s, embedder, DIM, &e)) fail_msg("%s", e.text);
    return x;
}

static void unit_vector(uint64_t seed, float v[DIM]) {
    struct rng r;
    float sum = 0;
    rng_seed(&r, seed);
    for (int i = 0; i < DIM; i++) v[i] = (float)rng_normal(&r), sum += v[i] * v[i];
    for (int i = 0; i < DIM; i++) v[i] /= sqrtf(sum);
}

static int64_t add(struct examples *x, const char *domain, int number, uint64_t seed) {
    struct err e = {0};
    char q[64], a[64];
    float v[DIM];
    int64_t id;
    snprintf(q, sizeof q, "question %d", number);
    snprintf(a, sizeof a, "answer %d of %d", number, (int)seed);
    unit_vector(seed, v);
    struct store_example row = {
        .domain = domain, .question = q, .answer = a, .source = "test", .score = 0.5 * number};
    if (examples_add(x, &row, 1, v, &id, &e)) fail_msg("%s", e.text);
    return id;
}

static float dot(const float *a, const float *b) {
    float s = 0;
    for (int i = 0; i < DIM; i++) s += a[i] * b[i];
    return s;
}

/* The nearest of seeds[n] (0: gone) by brute force is the first that is found. */
static void check(struct examples *x, const char *domain, const uint64_t *seeds, int n,
                  uint64_t at) {
    struct examples_hits h;
    struct err e = {0};
    float q[DIM], v[DIM], best = -2;
    char answer[64] = "";
    int n_alive = 0;
    unit_vector(at, q);
    for (int i = 0; i < n; i++) {
        if (!seeds[i]) continue;
        unit_vector(seeds[i], v);
        n_alive++;
        if (dot(q, v) > best) {
            best = dot(q, v);
            snprintf(answer, sizeof answer, "answer %d of %d", i, (int)seeds[i]);
        }
    }
    if (examples_search(x, domain, q, 5, -2, &h, &e)) fail_msg("%s", e.text);
    assert_int_equal(h.n, n_alive < 5 ? n_alive : 5);
    for (int32_t i = 1; i < h.n; i++) assert_true(h.v[i].nearness <= h.v[i - 1].nearness);
    if (n_alive) {
        assert_true(fabsf(h.v[0].nearness - best) < 1e-5f);
        assert_string_equal(h.v[0].answer, answer);
        assert_string_equal(h.v[0].source, "test");
    }
    examples_hits_fini(&h);
}

/* Two views of one file, as of two processes: whoever writes, both answer as brute force does. */
static void stays_in_step(void **state) {
    (void)state;
    struct store *s[2] = {open_store(), open_store()};
    struct examples *x[2] = {open_examples(s[0], EMBEDDER), open_examples(s[1], EMBEDDER)};
    struct rng r;
    struct err e = {0};
    uint64_t seeds[60] = {0}, other[3];
    int64_t ids[60] = {0};
    rng_seed(&r, 1);
    check(x[0], "kine", seeds, 60, 5); /* nothing yet */
    for (int i = 0; i < 3; i++) add(x[0], "code", i, other[i] = 9000 + (uint64_t)i);
    for (int step = 0; step < 300; step++) {
        int i = (int)rng_below(&r, 60), who = (int)rng_below(&r, 2);
        if (seeds[i] && rng_below(&r, 2)) {
            assert_int_equal(examples_remove(x[who], "kine", ids[i], &e), 0);
            seeds[i] = 0;
        } else {
            int64_t id = add(x[who], "kine", i, seeds[i] = 100 + (uint64_t)step);
            assert_true(id != ids[i]); /* the same question: in the other's place */
            ids[i] = id;
        }
        check(x[step % 2], "kine", seeds, 60, 5000 + (uint64_t)step);
    }
    check(x[0], "code", other, 3, 5);
    /* another embedder sees nothing of it, and takes nothing away */
    struct examples *foreign = open_examples(s[0], EMBEDDER + 1);
    uint64_t none[1] = {0};
    check(foreign, "kine", none, 1, 5);
    examples_close(foreign);
    check(x[1], "kine", seeds, 60, 6);
    for (int k = 0; k < 2; k++) examples_close(x[k]), store_close(s[k]);
}

/* Enough that cells are made, their centres kept, used at the next start, and outgrown. */
static void many_are_found_again(void **state) {
    (void)state;
    if (!engram_vec_has_faiss()) skip(); /* cells are its own */
    enum { N = ENGRAM_VEC_EXACT + 500 };
    struct store *s = open_store();
    struct examples *x = open_examples(s, EMBEDDER);
    struct err e = {0};
    void *centres;
    size_t n_bytes;
    float v[DIM];
    for (int i = 0; i < N; i++) add(x, "many", i, 100000 + (uint64_t)i);
    for (int again = 0; again < 3; again++) {
        int found = 0;
        for (int i = 0; i < 100; i++) { /* each finds itself */
            struct examples_hits h;
            char q[64];
            snprintf(q, sizeof q, "question %d", i * 17);
            unit_vector(100000 + (uint64_t)i * 17, v);
            assert_int_equal(examples_search(x, "many", v, 1, 0.99f, &h, &e), 0);
            found += h.n == 1 && strcmp(h.v[0].question, q) == 0;
            examples_hits_fini(&h);
        }
        assert_int_equal(found, 100);
        assert_int_equal(store_example_get_index(s, "many", EMBEDDER, &centres, &n_bytes, &e), 0);
        assert_true(n_bytes && n_bytes % (DIM * sizeof(float)) == 0);
        mem_free(centres);
        examples_close(x);
        if (again == 1) { /* a damaged index is made anew */
            const float nonsense[3] = {NAN, 1, 2};
            assert_int_equal(
                store_example_put_index(s, "many", EMBEDDER, nonsense, sizeof nonsense, &e), 0);
        }
        x = open_examples(s, EMBEDDER);
    }
    examples_close(x);
    store_close(s);
}

static void *search_on(void *arg) {
    struct examples *x = arg;
    float v[DIM];
    for (uint64_t i = 1; i < 200; i++) {
        struct examples_hits h;
        struct err e = {0};
        unit_vector(i, v);
        if (examples_search(x, "busy", v, 3, -2, &h, &e)) return "failed";
        examples_hits_fini(&h);
    }
    return NULL;
}

static void searching_while_it_changes(void **state) {
    (void)state;
    struct store *s = open_store();
    struct examples *x = open_examples(s, EMBEDDER);
    struct err e = {0};
    pthread_t threads[2];
    int64_t ids[100];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, search_on, x);
    for (int i = 0; i < 100; i++) {
        ids[i] = add(x, "busy", i, 40000 + (uint64_t)i);
        if (i % 3 == 2) assert_int_equal(examples_remove(x, "busy", ids[i - 1], &e), 0);
    }
    for (int i = 0; i < 2; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    examples_close(x);
    store_close(s);
}

static void nonsense_is_refused(void **state) {
    (void)state;
    struct store *s = open_store();
    struct examples *x = open_examples(s, EMBEDDER);
    struct examples_hits h;
    struct err e = {0};
    int64_t id;
    float v[DIM], longer[DIM] = {2};
    unit_vector(1, v);
    struct store_example row = {.domain = "d", .question = "q", .answer = "a"};
    assert_int_equal(examples_add(x, &row, 1, longer, &id, &e), CHIMERE_EINVAL);
    longer[0] = NAN;
    assert_int_equal(examples_add(x, &row, 1, longer, &id, &e), CHIMERE_EINVAL);
    row.domain = "../d";
    assert_int_equal(examples_add(x, &row, 1, v, &id, &e), CHIMERE_EINVAL);
    row.domain = "d";
    row.answer = "\xff";
    assert_int_equal(examples_add(x, &row, 1, v, &id, &e), CHIMERE_EINVAL);
    row.answer = "a";
    row.question = "";
    assert_int_equal(examples_add(x, &row, 1, v, &id, &e), CHIMERE_EINVAL);
    row.question = "q";
    row.score = INFINITY;
    assert_int_equal(examples_add(x, &row, 1, v, &id, &e), CHIMERE_EINVAL);
    assert_int_equal(examples_remove(x, "d", 12345, &e), CHIMERE_ENOENT);
    assert_int_equal(examples_remove(x, "d", 0, &e), CHIMERE_ENOENT);
    assert_int_equal(examples_search(x, "d", v, 0, 0, &h, &e), CHIMERE_EINVAL);
    assert_int_equal(examples_search(x, "d", v, EXAMPLES_MAX_HITS + 1, 0, &h, &e), CHIMERE_EINVAL);
    assert_int_equal(examples_search(x, "d/", v, 1, 0, &h, &e), CHIMERE_EINVAL);
    examples_close(x);
    assert_int_equal(examples_open(&x, s, 1, 0, &e), CHIMERE_EINVAL);
    store_close(s);
}

static int count_row(void *ud, const struct store_example *row) {
    (void)row;
    ++*(int *)ud;
    return 0;
}

/* Several at once: all of them or none; of the same question the last. Without an index over questions, ten thousand took
 * minutes. */
static void together_or_not_at_all(void **state) {
    (void)state;
    enum { N = 400, ROUNDS = 25 };
    struct store *s = open_store();
    struct examples *x = open_examples(s, EMBEDDER);
    struct store_example rows[N];
    struct err e = {0};
    static char q[N][32];
    static float vecs[N][DIM];
    int64_t ids[N];
    int n = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N; i++) {
            snprintf(q[i], sizeof q[i], "q%d", round * N + (i == N - 1 ? 0 : i));
            unit_vector((uint64_t)i, vecs[i]);
            rows[i] = (struct store_example){.domain = "together", .question = q[i], .answer = "a"};
        }
        if (round == 1) { /* the last one is none */
            rows[N - 1].answer = "";
            assert_int_equal(examples_add(x, rows, N, vecs[0], ids, &e), CHIMERE_EINVAL);
            assert_int_equal(store_example_list(s, "together", count_row, &n, &e), 0);
            assert_int_equal(n, N - 1);
            rows[N - 1].answer = "a";
        }
        if (examples_add(x, rows, N, vecs[0], ids, &e)) fail_msg("%s", e.text);
        for (int i = 1; i < N; i++) assert_true(ids[i] > ids[i - 1]);
    }
    n = 0;
    assert_int_equal(store_example_list(s, "together", count_row, &n, &e), 0);
    assert_int_equal(n, ROUNDS * (N - 1));
    assert_int_equal(examples_add(x, rows, 0, vecs[0], ids, &e), 0);
    examples_close(x);
    store_close(s);
}

int main(void) {
    if (!engram_vec_has_faiss())
        puts("skip: cells: FAISS was not found at build; apt-get install libfaiss-dev");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stays_in_step),
        cmocka_unit_test(many_are_found_again),
        cmocka_unit_test(searching_while_it_changes),
        cmocka_unit_test(together_or_not_at_all),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
