/* test_tier.c: experts on disk: the same bits as with all in memory, whatever the pool; every failure of the disk is
 * one sentence and no result; streams of routing and their files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/mem.h"
#include "base/reader.h"
#include "base/rng.h"
#include "convert/synth.h"
#include "kernels/cpu/cpu.h"
#include "model/experts/experts_share.h"
#include "model/experts/routing.h"
#include "model/experts/tier.h"
#include "model/forward.h"
#include "model/seq/seq_impl.h"
#include "await.h"
#include "scratch.h"

enum {
    N_LAYER = 4,
    N_EXPERT = 48,
    N_VOCAB = 512,
    N_PROMPT = 70,
    N_STEP = 24,
    N_TOK = N_PROMPT + N_STEP
};

static char path[256];
static float *all_in_memory; /* [N_TOK, N_VOCAB]: logits of each token */
static int32_t tokens[N_TOK];

struct bed {
    struct dev *dev;
    struct model *m;
    struct seq_pool *pool;
    struct seq *seq;
    struct forward *f;
};

static void bed_close(struct bed *b) {
    forward_free(b->f);
    seq_free(b->seq);
    seq_pool_free(b->pool);
    model_close(b->m);
    b->dev->ops->close(b->dev);
}

/* room_bytes: for the pages of n_ctx positions, if they hold experts while they are idle. */
static int bed_open_lent(struct bed *b, const char *file, uint64_t pool_bytes, uint64_t room_bytes,
                         int64_t n_ctx, struct err *e) {
    const struct expert_placement where = {.pool_bytes = pool_bytes, .room_bytes = room_bytes};
    const struct seq_pool_params p = {.n_slot = 2, .n_ctx = n_ctx, .k_type = 1, .v_type = 1};
    *b = (struct bed){.dev = NULL};
    if (cpu_open(&b->dev, 2, CPU_ISA_BEST, e)) return e->code;
    int rc = model_open_placed(&b->m, file, b->dev, &where, true, e);
    if (!rc) rc = seq_pool_new(&b->pool, b->m, &p, e);
    if (!rc) rc = seq_new(&b->seq, b->pool, e);
    if (!rc) rc = forward_new(&b->f, b->m, b->pool, N_PROMPT, N_PROMPT, e);
    if (rc) bed_close(b);
    return rc;
}

static int bed_open(struct bed *b, const char *file, uint64_t pool_bytes, struct err *e) {
    return bed_open_lent(b, file, pool_bytes, 0, 2 * N_TOK, e);
}

/* The prompt at once, then step by step; logits of all to out. */
static int run_all(struct bed *b, float *out, struct err *e) {
    const float *logits;
    seq_reset(b->seq);
    struct batch_item run = {.seq = b->seq, .tokens = tokens, .n_tok = N_PROMPT, .want = WANT_ALL};
    int rc = forward_run(b->f, &run, 1, &logits, e);
    if (!rc) memcpy(out, logits, sizeof *out * N_PROMPT * N_VOCAB);
    for (int i = N_PROMPT; !rc && i < N_TOK; i++) {
        run.tokens = tokens + i, run.n_tok = 1;
        rc = forward_run(b->f, &run, 1, &logits, e);
        if (!rc) memcpy(out + (size_t)i * N_VOCAB, logits, sizeof *out * N_VOCAB);
    }
    return rc;
}

static uint64_t all_experts(void) {
    struct bed b;
    struct err e = {0};
    uint64_t n = 0;
    if (bed_open(&b, path, 0, &e)) fail_msg("%s", e.text);
    for (int32_t il = 0; il < N_LAYER; il++) {
        const struct layer_weights *l = &b.m->weights.layer[il];
        const struct weight *const part[3] = {&l->moe.gate, &l->moe.up, &l->moe.down};
        for (int i = 0; i < 3; i++) n += part[i]->mat_bytes * N_EXPERT;
    }
    bed_close(&b);
    return n;
}

static float *room(void) {
    float *p = mem_alloc_array((size_t)N_TOK * N_VOCAB, sizeof *p);
    assert_non_null(p);
    return p;
}

static int setup(void **state) {
    struct err e = {0};
    struct synth_result r;
    struct bed b;
    if (scratch_make(state)) return -1;
    snprintf(path, sizeof path, "%s/m.gguf", scratch);
    const struct synth_options o = {"qwen35moe-mini", "q4km",  path, N_LAYER,
                                    N_EXPERT,         N_VOCAB, false};
    if (synth_write(&o, &r, &e) || bed_open(&b, path, 0, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return -1;
    }
    for (int i = 0; i < N_TOK; i++) tokens[i] = (i * 131 + i * i * 17) % N_VOCAB;
    all_in_memory = mem_alloc_array((size_t)N_TOK * N_VOCAB, sizeof *all_in_memory);
    int rc = run_all(&b, all_in_memory, &e);
    bed_close(&b);
    return rc;
}

static int teardown(void **state) {
    mem_free(all_in_memory);
    return scratch_drop(state);
}

static void any_pool_gives_the_same_bits(void **s) {
    (void)s;
    uint64_t all = all_experts();
    const uint64_t pools[] = {all * 37 / 100, all / 2, all * 4 / 5, 2 * all};
    float *got = room();
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        struct bed b;
        struct err e = {0};
        struct tier_stats t;
        if (bed_open(&b, path, pools[i], &e)) fail_msg("%s", e.text);
        for (int k = 0; k < 2; k++) {
            if (run_all(&b, got, &e)) fail_msg("%s", e.text);
            assert_memory_equal(got, all_in_memory, sizeof *got * N_TOK * N_VOCAB);
        }
        assert_true(experts_stats(&b.m->weights.experts, &t));
        assert_true(t.pool_bytes <= pools[i]);
        assert_true(t.n_slot <= t.n_expert && t.n_expert == N_LAYER * N_EXPERT);
        assert_int_equal(t.n_pass, 2 * N_LAYER * (1 + N_STEP));
        if (pools[i] > all) assert_true(t.n_miss <= t.n_expert); /* each is read once */
        else assert_true(t.n_miss > t.n_expert - t.n_slot);
        assert_true(t.n_bytes >= t.n_miss * (all / t.n_expert));
        bed_close(&b);
    }
    mem_free(got);
}

static void a_pool_that_is_too_small_is_refused(void **s) {
    (void)s;
    struct bed b;
    struct err e = {0};
    assert_int_equal(bed_open(&b, path, 4096, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "experts: expected memory of at least"));
}

/* Every read fails once, in turn; the batch fails in a sentence, and the next one is right. */
static void a_failed_read_fails_the_batch(void **s) {
    (void)s;
    float *got = room();
    const struct {
        int error, code;
        const char *text;
    } kinds[] = {{EIO, CHIMERE_EIO, "cannot read: Input/output error"},
                 {0, CHIMERE_EIO, "bytes at"}};
    for (int64_t nth = 1; nth < 400; nth = nth * 3 + 1)
        for (int k = 0; k < 2; k++) {
            struct bed b;
            struct err e = {0};
            if (bed_open(&b, path, all_experts() / 2, &e)) fail_msg("%s", e.text);
            reader_fail_nth(nth, kinds[k].error);
            assert_int_equal(run_all(&b, got, &e), kinds[k].code);
            assert_non_null(strstr(e.text, kinds[k].text));
            assert_non_null(strstr(e.text, "m.gguf"));
            reader_fail_nth(0, 0);
            if (run_all(&b, got, &e)) fail_msg("%s", e.text);
            assert_memory_equal(got, all_in_memory, sizeof *got * N_TOK * N_VOCAB);
            bed_close(&b);
        }
    mem_free(got);
}

/* Waits until the fill has read n experts. */
static struct tier_stats after_fill(struct bed *b, uint64_t n) {
    struct tier_stats t = {.n_bytes = 0};
    uint64_t each = all_experts() / (N_LAYER * N_EXPERT);
    AWAIT(!experts_stats(&b->m->weights.experts, &t) || t.n_bytes >= n * each);
    return t;
}

/* The uses of one run fill the pool of the next: fewer misses, the same bits, also if the batch does not wait for it,
 * or if a read of it fails. */
static void earlier_uses_fill_the_pool(void **s) {
    (void)s;
    enum { USES = N_LAYER * N_EXPERT };
    uint32_t uses[USES], none[USES] = {0};
    uint64_t n_cold = 0, pool = all_experts() / 2;
    float *got = room();
    for (int kind = 0; kind < 5; kind++) { /* cold, no uses, filled, not waited for, a read fails */
        struct bed b;
        struct err e = {0};
        struct tier_stats t;
        if (bed_open(&b, path, pool, &e)) fail_msg("%s", e.text);
        const struct expert_store *x = &b.m->weights.experts;
        if (kind == 4) reader_fail_nth(20, EIO);
        if (kind) assert_int_equal(experts_fill(x, kind == 1 ? none : uses, &e), 0);
        if (kind == 2) {
            assert_true(experts_stats(x, &t));
            uint64_t n_slot = t.n_slot;
            t = after_fill(&b, n_slot);
            assert_true(t.n_bytes >= n_slot * (all_experts() / USES));
        }
        if (kind == 4) { /* of the reads at once, one fails, and no more follow */
            usleep(200000);
            reader_fail_nth(0, 0);
        }
        if (run_all(&b, got, &e)) fail_msg("%s", e.text);
        assert_memory_equal(got, all_in_memory, sizeof *got * N_TOK * N_VOCAB);
        assert_true(experts_stats(x, &t));
        if (kind == 0) {
            n_cold = t.n_miss;
            memcpy(uses, experts_uses(x), sizeof uses);
            uint64_t sum = 0;
            for (int i = 0; i < USES; i++) sum += uses[i];
            assert_int_equal(sum, N_LAYER * N_TOK * (uint64_t)b.m->hp.moe.n_used);
        }
        if (kind == 1) assert_int_equal(t.n_miss, n_cold);
        if (kind == 2) assert_true(t.n_miss < n_cold);
        bed_close(&b);
    }
    mem_free(got);
}

/* K experts for a token, each drawn with a weight of (1 + number)^-power; distinct. */
enum { SHARE_E = 64, SHARE_K = 8, SHARE_L = 3, SHARE_N = 2000 };
static void draw(struct rng *r, double power, int32_t ids[SHARE_K]) {
    double sum = 0;
    for (int x = 0; x < SHARE_E; x++) sum += pow(1 + x, -power);
    for (int k = 0; k < SHARE_K; k++) {
        double u = rng_uniform(r) * sum;
        int32_t x = 0;
        while (x + 1 < SHARE_E && (u -= pow(1 + x, -power)) > 0) x++;
        ids[k] = x;
        for (int i = 0; i < k; i++)
            if (ids[i] == x) k--, i = k;
    }
}

/* Hits of an LRU with n slots. */
static int lru_hits(uint64_t seed, double power, int32_t n) {
    struct rng r;
    int64_t last[SHARE_E] = {0};
    int32_t ids[SHARE_K];
    int hits = 0;
    rng_seed(&r, seed);
    for (int64_t t = 1; t <= SHARE_N; t++) {
        draw(&r, power, ids);
        for (int k = 0; k < SHARE_K; k++) {
            int newer = 0;
            for (int x = 0; x < SHARE_E; x++) newer += last[x] > last[ids[k]];
            hits += last[ids[k]] && newer < n;
        }
        for (int k = 0; k < SHARE_K; k++) last[ids[k]] = t * SHARE_K + k;
    }
    return hits;
}

/* A layer that prefers some experts gets fewer slots than those that use all, and the sum of hits grows; with few
 * counts all get the same. */
static void layers_share_slots_by_their_uses(void **s) {
    (void)s;
    static const double power[SHARE_L] = {2.5, 0.3, 0};
    static const size_t record[SHARE_L] = {100, 100, 200};
    static uint32_t uses[SHARE_L][SHARE_E];
    for (int few = 0; few < 2; few++) {
        struct share_layer l[SHARE_L + 1] = {{.record = 0}};
        struct rng r;
        int32_t ids[SHARE_K];
        uint64_t bytes = 32 * 400 + 50, all = 0;
        int hits = 0, equal = 0;
        rng_seed(&r, 5);
        memset(uses, 0, sizeof uses);
        for (int il = 0; il < SHARE_L; il++) {
            l[il + 1] = (struct share_layer){uses[il], record[il], 0};
            for (int t = 0; t < (few ? 1 : SHARE_N); t++) {
                draw(&r, power[il], ids);
                for (int k = 0; k < SHARE_K; k++) uses[il][ids[k]]++;
            }
        }
        experts_share(l, SHARE_L + 1, SHARE_E, SHARE_K, SHARE_K, bytes);
        assert_int_equal(l[0].n, 0);
        for (int il = 1; il <= SHARE_L; il++) {
            assert_in_range(l[il].n, SHARE_K, SHARE_E);
            all += (uint64_t)l[il].n * l[il].record;
            hits += lru_hits(77, power[il - 1], l[il].n);
            equal += lru_hits(77, power[il - 1], 32);
        }
        assert_true(all <= bytes && all + 200 > bytes);
        if (few) assert_true(abs(l[1].n - l[2].n) <= 1 && abs(l[2].n - l[3].n) <= 1);
        else assert_true(l[1].n + 4 < l[2].n && hits > equal + equal / 50);
    }
    struct share_layer whole = {uses[0], 100, 0};
    experts_share(&whole, 1, SHARE_E, SHARE_K, SHARE_K, UINT64_MAX);
    assert_int_equal(whole.n, SHARE_E);
    experts_share(&whole, 1, SHARE_E, SHARE_K, SHARE_K, 100 * SHARE_K);
    assert_int_equal(whole.n, SHARE_K);
}

/* Misses of the bed's runs until now. */
static uint64_t misses(const struct bed *b) {
    struct tier_stats t;
    assert_true(experts_stats(&b->m->weights.experts, &t));
    return t.n_miss;
}

/* Pages that no sequence uses are records of the pool. A sequence takes them while another runs, asks for more than
 * there are, and ends; a failed read of such a record is one of any other. The bits are the same at all times. */
static void idle_pages_hold_experts(void **s) {
    (void)s;
    enum { N_PAGE = 512 };
    struct bed b, without;
    struct seq *other;
    struct err e = {0};
    float *got = room();
    uint64_t pool = all_experts() / 3, before;
    if (bed_open(&without, path, pool, &e)) fail_msg("%s", e.text);
    if (run_all(&without, got, &e)) fail_msg("%s", e.text);
    if (bed_open_lent(&b, path, pool, 1 << 26, N_PAGE * KV_PAGE, &e)) fail_msg("%s", e.text);
    assert_true(seq_pool_lends(b.pool));
    for (int kind = 0; kind < 3; kind++) { /* idle, taken, given back */
        if (kind == 1) {
            assert_int_equal(seq_new(&other, b.pool, &e), 0);
            if (seq_reserve(other, (N_PAGE - 3) * KV_PAGE, &e)) fail_msg("%s", e.text);
            assert_int_equal(b.pool->lend.lent, 0);
            assert_int_equal(seq_reserve(other, N_PAGE * KV_PAGE, &e), CHIMERE_ELIMIT);
            assert_non_null(strstr(e.text, "context memory is full"));
        }
        if (kind == 2) {
            seq_free(other);
            reader_fail_nth(30, EIO);
            assert_int_equal(run_all(&b, got, &e), CHIMERE_EIO);
            reader_fail_nth(0, 0);
        }
        before = misses(&b);
        if (run_all(&b, got, &e)) fail_msg("%s", e.text);
        assert_memory_equal(got, all_in_memory, sizeof *got * N_TOK * N_VOCAB);
        if (kind == 0) assert_true(misses(&b) < misses(&without));
        if (kind == 1) assert_true(misses(&b) - before > N_LAYER * N_EXPERT / 2);
        if (kind != 1) assert_true(b.pool->lend.lent > 1);
    }
    bed_close(&without);
    bed_close(&b);
    mem_free(got);
}

static void copy_file(const char *to) {
    char command[600];
    snprintf(command, sizeof command, "cp '%s' '%s'", path, to);
    assert_int_equal(system(command), 0);
}

/* A file that is cut or written to fails the batch; one that is replaced by name is read on. */
static void a_file_that_changes_is_noticed(void **s) {
    (void)s;
    char other[300], third[300];
    float *got = room();
    struct stat st;
    snprintf(other, sizeof other, "%s/other.gguf", scratch);
    snprintf(third, sizeof third, "%s/third.gguf", scratch);
    for (int kind = 0; kind < 3; kind++) {
        struct bed b;
        struct err e = {0};
        copy_file(other);
        copy_file(third);
        if (bed_open(&b, other, all_experts() / 2, &e)) fail_msg("%s", e.text);
        if (run_all(&b, got, &e)) fail_msg("%s", e.text);
        assert_int_equal(stat(other, &st), 0);
        if (kind == 0) assert_int_equal(truncate(other, st.st_size / 2), 0);
        if (kind == 1) {
            int fd = open(other, O_WRONLY);
            assert_int_equal(pwrite(fd, "x", 1, st.st_size / 2), 1);
            close(fd);
        }
        if (kind == 2) assert_int_equal(rename(third, other), 0);
        int rc = run_all(&b, got, &e);
        if (kind == 2) {
            assert_int_equal(rc, 0);
            assert_memory_equal(got, all_in_memory, sizeof *got * N_TOK * N_VOCAB);
        } else {
            assert_int_equal(rc, CHIMERE_EIO);
            assert_non_null(strstr(e.text, "the file was changed while it is in use"));
        }
        bed_close(&b);
    }
    mem_free(got);
}

/* A model in memory still reads rows of tables from the file's map. If the file is cut, requests fail, and so does the
 * start; nothing is computed from the zeros. */
static void a_file_that_is_cut_does_not_end_the_process(void **s) {
    (void)s;
    char other[300];
    struct bed b;
    struct err e = {0};
    float *got = room();
    snprintf(other, sizeof other, "%s/cut.gguf", scratch);
    copy_file(other);
    guard_begin();
    if (bed_open(&b, other, 0, &e)) fail_msg("%s", e.text);
    if (run_all(&b, got, &e)) fail_msg("%s", e.text);
    assert_int_equal(truncate(other, 4096), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run_all(&b, got, &e), CHIMERE_EIO);
        assert_non_null(strstr(e.text, "cut.gguf: the file was truncated or cannot be read"));
    }
    bed_close(&b);
    struct gguf *g;
    copy_file(other);
    assert_int_equal(gguf_open(&g, other, &e), 0);
    gguf_guard(g);
    assert_int_equal(gguf_check(g, &e), 0);
    assert_int_equal(truncate(other, 4096), 0);
    const struct gguf_tensor *last = gguf_tensor_at(g, gguf_n_tensors(g) - 1);
    assert_int_equal(((const volatile unsigned char *)last->data)[0], 0);
    assert_int_equal(gguf_check(g, &e), CHIMERE_EIO);
    gguf_close(g);
    mem_free(got);
}

static void memory_may_be_short_at_any_point(void **s) {
    (void)s;
    uint64_t pool = all_experts() / 2;
    bool opened = false;
    for (int64_t nth = 1; nth < 4000 && !opened; nth += nth < 40 ? 1 : 7) {
        struct bed b;
        struct err e = {0};
        mem_fail_nth(nth);
        int rc = bed_open(&b, path, pool, &e);
        mem_fail_nth(0);
        opened = rc == 0;
        if (opened) bed_close(&b);
        else assert_true(e.code == CHIMERE_ENOMEM && e.text[0]);
    }
    assert_true(opened);
}

/* As filters of system calls in containers: a call fails from now on, in this process. */
static bool refuse(unsigned call) {
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rows / sizeof *rows, rows};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/* In a child without io_uring: 0: threads read the same bits, and a failed read fails the batch. */
static int read_by_threads(unsigned call) {
    struct bed b;
    struct err e = {0};
    struct tier_stats t;
    float *got = mem_alloc_array((size_t)N_TOK * N_VOCAB, sizeof *got);
    if (!refuse(call)) return 77;
    if (!got || bed_open(&b, path, all_experts() / 2, &e)) return 1;
    if (run_all(&b, got, &e) || memcmp(got, all_in_memory, sizeof *got * N_TOK * N_VOCAB) != 0)
        return 2;
    if (!experts_stats(&b.m->weights.experts, &t) || t.is_uring) return 3;
    reader_fail_nth(9, EIO);
    if (run_all(&b, got, &e) != CHIMERE_EIO) return 4;
    reader_fail_nth(9, 0);
    if (run_all(&b, got, &e) != CHIMERE_EIO) return 5;
    bed_close(&b);
    return 0;
}

static void threads_read_if_io_uring_is_refused(void **s) {
    (void)s;
    const unsigned calls[] = {SYS_io_uring_setup, SYS_io_uring_enter};
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(read_by_threads(calls[i]));
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77)
            puts("skip: no seccomp filters here, a kernel that has them");
        else assert_int_equal(WEXITSTATUS(status), 0);
    }
}

/* ---- streams ---- */

static void generated_streams_reuse_experts_as_trained_models_do(void **s) {
    (void)s;
    enum { E = 128, K = 8, N = 2048 };
    const struct routing_shape shape = {2, E, K};
    struct routing *r, *again;
    struct err e = {0};
    assert_int_equal(routing_generate(&r, &shape, N, 7, &e), 0);
    assert_int_equal(routing_generate(&again, &shape, N, 7, &e), 0);
    for (int m = 0; m < 2; m++) {
        int last[E], next = 0, near = 0, n = 0;
        for (int i = 0; i < E; i++) last[i] = -1000;
        for (int t = 0; t < N; t++) {
            const uint16_t *ids = routing_at(r, m, t);
            assert_memory_equal(ids, routing_at(again, m, t), K * sizeof *ids);
            for (int k = 0; k < K; k++) {
                assert_true(ids[k] < E);
                assert_true(last[ids[k]] < t); /* distinct */
                int back = t - last[ids[k]];
                next += back == 1;
                near += back <= 8;
                last[ids[k]] = t;
                n++;
            }
        }
        /* Qwen3-30B-A3B: 45 % of the choices are those of the token before, 80 % of one of the last 8 */
        assert_true(next > 0.42 * n && next < 0.52 * n);
        assert_true(near > 0.74 * n && near < 0.84 * n);
    }
    routing_free(r);
    routing_free(again);
}

static void streams_survive_their_file(void **s) {
    (void)s;
    const struct routing_shape shapes[] = {{3, 256, 4}, {2, 300, 5}};
    char file[300];
    snprintf(file, sizeof file, "%s/r", scratch);
    for (int k = 0; k < 2; k++) {
        struct routing *r, *back;
        struct routing_writer *w;
        struct err e = {0};
        const struct routing_shape *h = &shapes[k];
        assert_int_equal(routing_generate(&r, h, 20, 3, &e), 0);
        assert_int_equal(routing_writer_open(&w, file, h, &e), 0);
        for (int t = 0; t < 20; t += 5)
            for (int m = 0; m < h->n_mixture; m++) {
                int32_t ids[5 * 5];
                for (int i = 0; i < 5 * h->n_used; i++)
                    ids[i] = routing_at(r, m, t + i / h->n_used)[i % h->n_used];
                routing_put(w, m, ids, 5);
            }
        assert_int_equal(routing_writer_close(w, &e), 0);
        assert_int_equal(routing_open(&back, file, h, 0, &e), 0);
        assert_int_equal(routing_n_tok(back), 20);
        for (int t = 0; t < 40; t++)
            for (int m = 0; m < h->n_mixture; m++)
                assert_memory_equal(routing_at(back, m, t), routing_at(r, m, t % 20),
                                    (size_t)h->n_used * sizeof(uint16_t));
        struct routing_shape other = *h;
        other.n_expert++;
        struct routing *no;
        assert_int_equal(routing_open(&no, file, &other, 0, &e), CHIMERE_EINVAL);
        assert_non_null(strstr(e.text, "experts per token, got"));
        routing_free(r);
        routing_free(back);
    }
}

static void damaged_streams_are_refused(void **s) {
    (void)s;
    unsigned char good[24 + 4 + 4] = "CHIMROUT";
    struct routing *r;
    struct err e = {0};
    good[8] = 1, good[12] = 2, good[16] = 9, good[20] = 2, good[24] = 1;
    good[28] = 3, good[29] = 8, good[30] = 0, good[31] = 1;
    assert_int_equal(routing_parse(&r, (char *)good, sizeof good, "x", &e), 0);
    assert_int_equal(routing_at(r, 0, 0)[1], 8);
    routing_free(r);
    for (size_t n = 0; n < sizeof good; n++)
        assert_int_equal(routing_parse(&r, (char *)good, n, "x", &e), CHIMERE_EFORMAT);
    static const struct {
        int at, value;
    } bad[] = {{0, 'X'}, {8, 2},  {12, 0}, {15, 255}, {16, 1}, {20, 0},
               {20, 65}, {24, 0}, {24, 2}, {27, 255}, {28, 9}, {29, 3}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        unsigned char x[sizeof good];
        memcpy(x, good, sizeof x);
        x[bad[i].at] = (unsigned char)bad[i].value;
        assert_int_equal(routing_parse(&r, (char *)x, sizeof x, "x", &e), CHIMERE_EFORMAT);
        assert_null(r);
    }
}

/* The logits of a run whose experts are those that its routers chose before are the same; others change them. */
static void watch(void *ud, int32_t mixture, const int32_t *ids, int32_t n_tok) {
    routing_put(ud, mixture, ids, n_tok);
}

static void a_recorded_choice_replays_to_the_same_bits(void **s) {
    (void)s;
    char file[300];
    struct bed b;
    struct err e = {0};
    struct routing_writer *w;
    float *got = room();
    snprintf(file, sizeof file, "%s/own", scratch);
    for (int kind = 0; kind < 3; kind++) { /* record, replay, replay with experts on disk */
        struct routing *r = NULL;
        if (bed_open(&b, path, kind == 2 ? all_experts() / 2 : 0, &e)) fail_msg("%s", e.text);
        struct routing_shape shape = routing_shape_of(&b.m->hp);
        struct experts *x = forward_experts(b.f);
        if (kind == 0) {
            assert_int_equal(routing_writer_open(&w, file, &shape, &e), 0);
            assert_int_equal(experts_observe(x, watch, w, &e), 0);
        } else {
            assert_int_equal(routing_open(&r, file, &shape, 0, &e), 0);
            assert_int_equal(routing_n_tok(r), N_TOK);
            assert_int_equal(experts_replay(x, r, 1, &e), 0);
        }
        if (run_all(&b, got, &e)) fail_msg("%s", e.text);
        assert_memory_equal(got, all_in_memory, sizeof *got * N_TOK * N_VOCAB);
        if (kind == 0) assert_int_equal(routing_writer_close(w, &e), 0);
        bed_close(&b);
        routing_free(r);
    }
    struct routing *r;
    if (bed_open(&b, path, 0, &e)) fail_msg("%s", e.text);
    struct routing_shape shape = routing_shape_of(&b.m->hp);
    assert_int_equal(routing_open(&r, "trace-like", &shape, 5, &e), 0);
    assert_int_equal(experts_replay(forward_experts(b.f), r, 1, &e), 0);
    if (run_all(&b, got, &e)) fail_msg("%s", e.text);
    assert_memory_not_equal(got, all_in_memory, sizeof *got * N_TOK * N_VOCAB);
    bed_close(&b);
    routing_free(r);
    mem_free(got);
}

int main(void) {
    mem_guard_arm(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_pool_gives_the_same_bits),
        cmocka_unit_test(a_pool_that_is_too_small_is_refused),
        cmocka_unit_test(a_failed_read_fails_the_batch),
        cmocka_unit_test(earlier_uses_fill_the_pool),
        cmocka_unit_test(layers_share_slots_by_their_uses),
        cmocka_unit_test(idle_pages_hold_experts),
        cmocka_unit_test(a_file_that_changes_is_noticed),
        cmocka_unit_test(a_file_that_is_cut_does_not_end_the_process),
        cmocka_unit_test(memory_may_be_short_at_any_point),
        cmocka_unit_test(threads_read_if_io_uring_is_refused),
        cmocka_unit_test(generated_streams_reuse_experts_as_trained_models_do),
        cmocka_unit_test(streams_survive_their_file),
        cmocka_unit_test(damaged_streams_are_refused),
        cmocka_unit_test(a_recorded_choice_replays_to_the_same_bits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
