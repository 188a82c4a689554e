/* test_cuda_link.c: sums over CUDA devices that access each other's memory: right in every bit and in every run, none
 * of them hangs; with as many ranks as there are devices, of which the emulator has eight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/cuda.h"
#include "kernels/link.h"

enum { N_MAX = 140003, N_SUM = 9, MOST = LINK_MAX_RANKS };

#ifdef CHIMERE_EMULATE
static const int counts[] = {3, MOST};
#else
static const int counts[] = {2, 4, MOST};
#endif
static int n_rank; /* of the running group */
static struct dev *dev[MOST];
static bool has_all; /* devices that access each other's memory */

static int open_all(void **state) {
    struct err e = {0};
    (void)state;
    for (int i = 0; i < n_rank; i++) {
        const struct cuda_params p = {.device = i, .precise = true};
        const struct dev_need need = {.n_tok = 1, .n_in = 256, .n_out = 256, .n_ff = 256};
        if (cuda_open(&dev[i], &p, &e) || dev[i]->ops->reserve(dev[i], &need, &e)) {
            print_message("skip: %d GPUs: %s\n", n_rank, e.text);
            return 0;
        }
    }
    has_all = dev[0]->ops->peer_open(dev[0], dev, n_rank);
    if (!has_all) print_message("skip: GPUs that access each other's memory\n");
    return 0;
}

static int close_all(void **state) {
    (void)state;
    for (int i = 0; i < n_rank && dev[i]; i++) {
        dev[i]->ops->close(dev[i]);
        dev[i] = NULL;
    }
    has_all = false;
    return 0;
}

static struct link *open_link(int32_t deadline_ms) {
    struct link *l;
    struct err e = {0};
    if (link_new(&l, dev, n_rank, N_MAX, LINK_PEER, deadline_ms, &e)) fail_msg("%s", e.text);
    assert_true(link_is_peer(l));
    return l;
}

/* Of one rank's thread. */
struct summer {
    struct link *l;
    int32_t rank, n_sum;
    bool measures;
    float *out; /* [N_SUM, 2, N_MAX] what part and x are after each sum */
};

static const int64_t lengths[N_SUM] = {1, 2, 7, 512, 4096, N_MAX, 131073, 33, N_MAX - 1};

static float part_of(int32_t rank, int32_t sum, int64_t i) {
    return (float)((rank + 1) * 37 % 11) * 0.1f + (float)(i % 101) * 1e-3f + (float)sum * 0.3f;
}
static float x_of(int64_t i) { return (float)(i % 13) * 0.7f; }

static void *sum_up(void *arg) {
    struct summer *s = arg;
    struct dev *d = dev[s->rank];
    const struct ops *ops = d->ops;
    size_t n_bytes = N_MAX * sizeof(float);
    float *part = ops->alloc(d, n_bytes), *x = ops->alloc(d, n_bytes), *host = mem_alloc(n_bytes);
    assert_true(part && x && host);
    if (s->measures) link_measure(s->l, s->rank);
    for (int32_t k = 0; k < s->n_sum; k++) {
        for (int64_t i = 0; i < N_MAX; i++) host[i] = part_of(s->rank, k, i);
        ops->upload(d, part, host, n_bytes);
        for (int64_t i = 0; i < N_MAX; i++) host[i] = x_of(i);
        ops->upload(d, x, host, n_bytes);
        link_sum(s->l, s->rank, part, lengths[k], k % 2 ? x : NULL, 0.5f);
        ops->download(d, s->out + (int64_t)2 * k * N_MAX, part, n_bytes);
        ops->download(d, s->out + (int64_t)(2 * k + 1) * N_MAX, x, n_bytes);
    }
    ops->free(d, part);
    ops->free(d, x);
    mem_free(host);
    return NULL;
}

/* Ranks below n take part. */
static void run(struct link *l, struct summer *s, int32_t n, int32_t n_sum, bool measures) {
    pthread_t t[MOST];
    link_begin(l);
    for (int32_t i = 0; i < n; i++) {
        float *out = s[i].out;
        if (!out) out = mem_zalloc((size_t)N_SUM * 2 * N_MAX * sizeof *out);
        assert_non_null(out);
        s[i] = (struct summer){.l = l, .rank = i, .n_sum = n_sum, .measures = measures, .out = out};
        assert_int_equal(pthread_create(&t[i], NULL, sum_up, &s[i]), 0);
    }
    for (int32_t i = 0; i < n; i++) pthread_join(t[i], NULL);
}

static void drop(struct summer *s) {
    for (int32_t i = 0; i < n_rank; i++) mem_free(s[i].out);
}

static void check(const float *out, int32_t k) {
    const float *part = out + (int64_t)2 * k * N_MAX, *x = part + N_MAX;
    for (int64_t i = 0; i < N_MAX; i++) {
        float sum = part_of(0, k, i), was = part_of(0, k, i);
        for (int32_t r = 1; r < n_rank; r++) sum += part_of(r, k, i);
        bool is_in = i < lengths[k];
        float want = is_in ? sum : was, left = k % 2 ? 0.0f : sum;
        if (is_in && part[i] != left) fail_msg("sum %d: element %d of part", k, (int)i);
        float moved = x_of(i) + (is_in && k % 2 ? 0.5f * want : 0.0f);
        float d = x[i] - moved;
        if (d < -1e-6f || d > 1e-6f) fail_msg("sum %d: element %d of x", k, (int)i);
    }
}

static void sums_are_the_same_on_all_ranks(void **state) {
    (void)state;
    if (!has_all) skip();
    struct summer s[MOST] = {{0}}, again[MOST] = {{0}};
    struct link *l = open_link(LINK_DEADLINE_MS);
    struct link_stats stats;
    struct err e = {0};
    run(l, s, n_rank, N_SUM, true);
    if (link_status(l, &e) || link_choose(l, &e)) fail_msg("%s", e.text);
    for (int32_t k = 0; k < N_SUM; k++) check(s[0].out, k);
    size_t n_bytes = (size_t)N_SUM * 2 * N_MAX * sizeof(float);
    for (int32_t i = 1; i < n_rank; i++)
        for (int32_t k = 0; k < N_SUM; k++)
            assert_memory_equal(s[0].out + (int64_t)(2 * k + 1) * N_MAX,
                                s[i].out + (int64_t)(2 * k + 1) * N_MAX, N_MAX * sizeof(float));
    run(l, again, n_rank, N_SUM, false);
    assert_int_equal(link_status(l, &e), 0);
    assert_memory_equal(s[0].out, again[0].out, n_bytes);
    link_stats(l, 1, &stats);
    assert_true(stats.is_peer);
    assert_int_equal(stats.n_sum, 2 * N_SUM);
    assert_true(stats.n_bytes > 0 && stats.peer_us[0] > 0 && stats.host_us[1] > 0);
    link_free(l);
    drop(s);
    drop(again);
}

/* A rank that leaves, and one that never comes: an error; the next step is a new one. */
static void nobody_waits_for_ever(void **state) {
    (void)state;
    if (!has_all) skip();
    struct summer s[MOST] = {{0}};
    struct err e = {0};
    struct link *l = open_link(LINK_DEADLINE_MS);
    pthread_t t;
    link_begin(l);
    s[0].out = mem_zalloc((size_t)N_SUM * 2 * N_MAX * sizeof(float));
    s[0].l = l, s[0].n_sum = N_SUM;
    assert_non_null(s[0].out);
    assert_int_equal(pthread_create(&t, NULL, sum_up, &s[0]), 0);
    link_leave(l, 1);
    pthread_join(t, NULL);
    assert_int_equal(link_status(l, &e), CHIMERE_EDEVICE);
    assert_non_null(strstr(e.text, "card 2 of"));
    run(l, s, n_rank, N_SUM, false);
    assert_int_equal(link_status(l, &e), 0);
    for (int32_t k = 0; k < N_SUM; k++) check(s[n_rank - 1].out, k);
    link_free(l);
    l = open_link(100);
    run(l, s, 1, 1, false); /* the others do not come */
    assert_int_equal(link_status(l, &e), CHIMERE_ETIMEOUT);
    assert_non_null(strstr(e.text, "card 2 of"));
    assert_non_null(strstr(e.text, "did not answer"));
    link_free(l);
    drop(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_same_on_all_ranks),
        cmocka_unit_test(nobody_waits_for_ever),
    };
    int n_failed = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        n_rank = counts[i];
        n_failed += cmocka_run_group_tests(tests, open_all, close_all);
    }
    return n_failed;
}
