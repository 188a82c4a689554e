/* test_prefix_shared.c: a folder of states that engines share: what each finds, keeps out, replaces and survives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/rng.h"
#include "engine/lm.h"
#include "engine/prefix_shared.h"
#include "kernels/cpu/cpu.h"
#include "model/model.h"
#include "await.h"
#include "scratch.h"

enum { VOCAB = 500, MAX_TALK = 4096, STATE = 100, FILE_BYTES = 2900 };

struct talk {
    int32_t tokens[MAX_TALK], n, n_cached;
    uint64_t scope, owner;
    bool no_cache;
};

static void talk_init(struct talk *t, uint64_t seed, int32_t n) {
    struct rng r;
    rng_seed(&r, seed);
    *t = (struct talk){.n = n, .scope = 1, .owner = 1};
    for (int32_t i = 0; i < n; i++) t->tokens[i] = 1 + (int32_t)rng_below(&r, VOCAB - 1);
}

static bool collect(struct engine_job *j, int32_t token, bool is_end,
                    const struct sampler_probs *probs) {
    struct talk *t = j->ud;
    (void)is_end, (void)probs;
    t->tokens[t->n++] = token;
    return true;
}
static void ended(struct engine_job *j) { (void)j; }

/* One greedy answer of n tokens. */
static void answer(struct engine *g, struct talk *t, int32_t n) {
    struct err e = {0};
    int32_t prompt[MAX_TALK];
    memcpy(prompt, t->tokens, sizeof prompt);
    struct engine_job j = {.p.prompt = prompt,
                           .p.n_prompt = t->n,
                           .p.max_tokens = n,
                           .p.scope = t->scope,
                           .p.owner = t->owner,
                           .p.no_cache = t->no_cache,
                           .on_token = collect,
                           .on_done = ended,
                           .ud = t};
    sampler_defaults(&j.p.sampling);
    j.p.sampling.temperature = 0;
    j.p.sampling.ignore_eos = true;
    if (engine_run(g, &j, &e)) fail_msg("%s", e.text);
    t->n_cached = j.stats.n_cached;
}

static const char *folder(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static struct engine_params sharing(const char *name) {
    struct engine_params p;
    engine_defaults(&p);
    p.n_seq = 1;
    p.n_ctx = MAX_TALK;
    p.cache.ram_bytes = 1 << 22;
    p.cache.shared_dir = folder(name);
    p.cache.shared_bytes = (uint64_t)1 << 30;
    p.cache.shared_build = 7;
    return p;
}

/* Of the engines that are opened next: the device, the time of a step, and whether their folder is slow. */
static uint64_t device;
static int32_t step_us;
static bool is_slow;

static const struct lm_mark_ops *quick;
static int load_slowly(struct lm *l, const char *path, struct checkpoint **out, void **extra,
                       size_t *n_extra, struct err *e) {
    usleep(400000);
    return quick->load(l, path, out, extra, n_extra, e);
}
static void slow_down(struct lm *lm) {
    static struct lm_ops ops;
    static struct lm_mark_ops marks;
    quick = lm->ops->marks;
    marks = *quick;
    marks.load = load_slowly;
    ops = *lm->ops;
    ops.marks = &marks;
    lm->ops = &ops;
}

static struct engine *open_engine(const struct engine_params *p) {
    struct lm_fake_params fp = {.n_vocab = VOCAB,
                                .eos = 0,
                                .n_ctx = p->n_ctx,
                                .n_seq = p->n_seq,
                                .delay_us = step_us,
                                .checkpoint_bytes = STATE,
                                .page_bytes = 64 * sizeof(int32_t)}; /* as its files */
    struct lm *lm;
    struct engine *g;
    struct err e = {0};
    assert_int_equal(lm_open_fake(&lm, &fp, &e), 0);
    lm->device = device;
    if (is_slow) slow_down(lm);
    if (engine_new_over(&g, lm, NULL, p, &e)) fail_msg("%s", e.text);
    return g;
}

static bool is_state(const char *name) { return strlen(name) == 102 && strstr(name, ".seq"); }

/* Calls each with the path of every state; returns how many there are. */
static int each_state(const char *dir, void (*each)(const char *path)) {
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *x; d && (x = readdir(d));) {
        char path[600];
        if (!is_state(x->d_name)) continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", dir, x->d_name);
        if (each) each(path);
    }
    if (d) closedir(d);
    return n;
}

/* States are written after the answer. */
static void wait_for(const char *dir, int n) {
    AWAIT(each_state(dir, NULL) >= n);
    assert_int_equal(each_state(dir, NULL), n);
}

/* What an engine with these parameters reuses of the prompt of t, and that its text is that of a fresh evaluation. */
static int32_t reused(const struct engine_params *p, const struct talk *t) {
    struct talk a = *t, b = *t;
    struct engine *g = open_engine(p);
    b.no_cache = true;
    answer(g, &a, 20);
    answer(g, &b, 20);
    assert_memory_equal(a.tokens, b.tokens, sizeof a.tokens);
    engine_free(g);
    return a.n_cached;
}

static void another_engine_continues_a_conversation(void **state) {
    (void)state;
    struct engine_params p = sharing("two");
    struct engine *one = open_engine(&p), *two = open_engine(&p);
    struct talk t;
    talk_init(&t, 1, 700);
    answer(one, &t, 200);
    wait_for(folder("two"), 2); /* where the answer began and where it ended */
    for (int32_t i = 0; i < 30; i++) t.tokens[t.n++] = 1 + i;
    struct talk fresh = t, again = t;
    answer(two, &t, 100); /* the other engine's first prompt */
    assert_in_range(t.n_cached, 898 - 64, 899);
    fresh.no_cache = true;
    answer(two, &fresh, 100);
    assert_memory_equal(t.tokens, fresh.tokens, sizeof t.tokens);
    answer(one, &again, 100); /* the first engine has its own state in memory */
    assert_int_equal(again.n_cached, t.n_cached);
    engine_free(one);
    engine_free(two);
    for (int k = 0; k < 2; k++) { /* short texts are not worth a file */
        talk_init(&t, 2, 100);
        assert_int_equal(reused(&p, &t), 0);
    }
}

static void what_differs_is_not_shared(void **state) {
    (void)state;
    struct engine_params p = sharing("apart");
    struct engine *g = open_engine(&p);
    struct talk t;
    talk_init(&t, 3, 700);
    answer(g, &t, 70);
    wait_for(folder("apart"), 2);
    engine_free(g);
    struct talk other = t;
    int32_t most = (t.n - 1) / 64 * 64;
    other.scope = 2; /* another tenant asks the same */
    p.cache.shared_dir = folder("apart");
    struct engine *apart = open_engine(&p);
    other.no_cache = false;
    answer(apart, &other, 5);
    assert_int_equal(other.n_cached, 0);
    engine_free(apart);
    other = t;
    other.owner = 9; /* another owner of the same scope */
    assert_int_equal(reused(&p, &other), most);
    other = t;
    other.tokens[640]++; /* only the longer state has this token */
    assert_in_range(reused(&p, &other), 640, 640);
    p.cache.shared_build++;
    assert_int_equal(reused(&p, &t), 0);
    p.cache.shared_build--;
    device = 1; /* another card */
    assert_int_equal(reused(&p, &t), 0);
    device = 0;
    p.deterministic = true; /* prompts are cut at other places */
    assert_int_equal(reused(&p, &t), 0);
}

/* The number that keeps states of unequal devices apart. */
static void devices_of_equal_bits_have_equal_numbers(void **state) {
    (void)state;
    struct err e = {0};
    struct dev *best, *again, *scalar;
    assert_int_equal(cpu_open(&best, 1, CPU_ISA_BEST, &e), 0);
    assert_int_equal(cpu_open(&again, 2, CPU_ISA_BEST, &e), 0); /* threads change no bits */
    assert_int_equal(cpu_open(&scalar, 1, CPU_ISA_SCALAR, &e), 0);
    struct expert_layer layer[3] = {{.on_host = true}};
    struct model a = {.dev = best, .hp.n_layer = 3}, b = a, c = a;
    struct model *one[] = {&a, &b}, *other[] = {&b, &c};
    b.dev = again;
    c.dev = scalar;
    assert_int_equal(lm_device(&one[0], 1), lm_device(&one[1], 1));
    if (strcmp(cpu_isa_name(best), cpu_isa_name(scalar)))
        assert_int_not_equal(lm_device(&other[0], 1), lm_device(&other[1], 1));
    assert_int_not_equal(lm_device(one, 1), lm_device(one, 2));
    b.weights.experts.host = scalar; /* the host multiplies the experts of a layer */
    b.weights.experts.layer = layer;
    assert_int_not_equal(lm_device(&one[0], 1), lm_device(&one[1], 1));
    uint64_t first = lm_device(&one[1], 1);
    layer[1].on_host = true;
    assert_int_not_equal(lm_device(&one[1], 1), first);
    best->ops->close(best);
    again->ops->close(again);
    scalar->ops->close(scalar);
}

static void damage(const char *path) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, 100, SEEK_SET);
    fputc(0x5a, f);
    fputc(0xa5, f);
    fclose(f);
}
static void shorten(const char *path) { assert_int_equal(truncate(path, 9), 0); }
static char kept[600], swapped[600];
static void
swap_names(const char *path) { /* two states under each other's names: whole, but of other texts */
    if (!*kept) snprintf(kept, sizeof kept, "%s", path);
    else if (!*swapped) snprintf(swapped, sizeof swapped, "%s", path);
}
static void make_folder(const char *path) {
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void damaged_and_foreign_files_are_left_aside(void **state) {
    static void (*const hurt[])(const char *) = {damage, shorten, swap_names, make_folder};
    (void)state;
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "hurt%d", i);
        struct engine_params p = sharing(name);
        struct engine *g = open_engine(&p);
        struct talk t;
        talk_init(&t, 10 + (uint64_t)i, 700);
        answer(g, &t, 200);
        engine_free(g);
        assert_int_equal(each_state(folder(name), NULL), 2);
        char foreign[128];
        snprintf(foreign, sizeof foreign, "%s/notes.seq", name);
        scratch_put(foreign, "not ours");
        each_state(folder(name), hurt[i]);
        if (hurt[i] == swap_names) {
            char apart[128];
            snprintf(apart, sizeof apart, "%s/%s/x", scratch, name);
            assert_int_equal(rename(kept, apart) | rename(swapped, kept) | rename(apart, swapped),
                             0);
        }
        assert_int_equal(reused(&p, &t), 0);
        /* that engine wrote the states again, also over the damaged ones */
        if (hurt[i] != make_folder) assert_true(reused(&p, &t) > 640);
        snprintf(foreign, sizeof foreign, "%s/%s/notes.seq", scratch, name);
        assert_int_equal(access(foreign, F_OK), 0);
    }
}

static void make_old(const char *path) { /* last used two leases ago */
    struct timespec old[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = 0}};
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    old[1].tv_sec = st.st_mtim.tv_sec - 2 * PREFIX_SHARED_LEASE_S;
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
}

static void quotas_hold_and_leases_are_respected(void **state) {
    (void)state;
    struct engine_params p = sharing("quota");
    p.cache.shared_bytes = 7 * FILE_BYTES;
    p.cache.shared_owner_bytes = 5 * FILE_BYTES;
    struct engine *g = open_engine(&p);
    struct talk t, first;
    for (int i = 0; i < 6; i++) {
        talk_init(&t, 20 + (uint64_t)i, 600);
        if (i == 0) {
            first = t;
            reused(&p, &t); /* its end waits until the states of this talk are written */
        }
        answer(g, &t, 100);
    }
    engine_free(g); /* all that could be saved has been */
    int n = each_state(folder("quota"), NULL);
    assert_in_range(n, 4, 5); /* the owner's limit; all are leased, so later states found no room */
    assert_true(reused(&p, &first) > 0);
    each_state(folder("quota"), make_old);
    assert_true(reused(&p, &first) > 0); /* a lease, by use */
    g = open_engine(&p);
    for (int i = 0; i < 6; i++) {
        talk_init(&t, 40 + (uint64_t)i, 600);
        if (i == 0) reused(&p, &t);
        answer(g, &t, 100);
    }
    engine_free(g);
    n = each_state(folder("quota"), NULL);
    assert_in_range(n, 4, 5);
    assert_true(reused(&p, &first) > 0); /* the leased state is still there */
    talk_init(&t, 40, 600);
    assert_true(reused(&p, &t) > 0); /* and others were replaced by newer ones */
    for (int i = 0; i < 6; i++) {    /* another owner: what is left of the limit of all */
        talk_init(&t, 60 + (uint64_t)i, 600);
        t.owner = 2;
        reused(&p, &t);
    }
    n = each_state(folder("quota"), NULL);
    assert_in_range(n, 6, 8);
    /* one owner is forgotten, with what a write left that did not end; the other one is not */
    char partial[256];
    struct err e = {0};
    uint64_t n_gone = 0;
    snprintf(partial, sizeof partial, "%s/%016d-%016x-%064d.seq.tmp.1", folder("quota"), 7, 2, 0);
    assert_int_equal(fs_touch(partial), 0);
    assert_int_equal(prefix_shared_forget(folder("quota"), 2, &n_gone, &e), 0);
    assert_in_range(n_gone, 2, n);
    assert_int_equal(each_state(folder("quota"), NULL), n - (int)n_gone + 1);
    assert_false(file_exists(partial));
    assert_int_equal(reused(&p, &t), 0);
    talk_init(&t, 40, 600);
    assert_true(reused(&p, &t) > 0);
    assert_int_equal(prefix_shared_forget(folder("missing"), 2, &n_gone, &e), CHIMERE_EIO);
}

/* Whether a state is read or its tokens are evaluated depends on what both took before. */
static void what_is_faster_is_done(void **state) {
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        struct engine_params p = sharing(slow ? "slow" : "quick");
        struct engine *g = open_engine(&p);
        struct talk t[3];
        for (int i = 0; i < 3; i++) talk_init(&t[i], 90 + (uint64_t)i, 700);
        for (int i = 0; i < 2; i++) answer(g, &t[i], 70);
        engine_free(g);
        is_slow =
            slow; /* 400 ms, and nearly nothing for a step; or the file's own time, and 200 ms per prompt */
        step_us = slow ? 0 : 100000;
        g = open_engine(&p);
        answer(g, &t[2], 2); /* evaluated: measures that */
        answer(g, &t[0], 2); /* read: measures that */
        answer(g, &t[1], 2);
        engine_free(g);
        is_slow = false;
        step_us = 0;
        assert_int_equal(t[2].n_cached, 0);
        assert_true(t[0].n_cached > 640);
        if (slow) assert_int_equal(t[1].n_cached, 0);
        else assert_true(t[1].n_cached > 640);
    }
}

static void a_lost_folder_only_costs_the_gain(void **state) {
    (void)state;
    struct engine_params p = sharing("lost");
    struct engine *g = open_engine(&p);
    struct talk t;
    struct err e = {0};
    char away[128];
    snprintf(away, sizeof away, "%s/away", scratch);
    talk_init(&t, 80, 642);
    answer(g, &t, 10);
    wait_for(folder("lost"), 1); /* the answer is shorter than a block: one state */
    assert_int_equal(rename(folder("lost"), away), 0);
    talk_init(&t, 81, 700);
    answer(g, &t, 100); /* cannot be saved; nothing else is lost */
    engine_free(g);
    assert_int_equal(rename(away, folder("lost")), 0);
    assert_int_equal(each_state(folder("lost"), NULL), 1);
    scratch_put("file", "not a folder");
    p.cache.shared_dir = folder("file");
    struct lm *lm;
    const struct lm_fake_params fp = {.n_vocab = VOCAB, .n_ctx = p.n_ctx, .n_seq = 1};
    assert_int_equal(lm_open_fake(&lm, &fp, &e), 0);
    assert_true(engine_new_over(&g, lm, NULL, &p, &e) <
                0); /* a wrong option is said at the start */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_engine_continues_a_conversation),
        cmocka_unit_test(what_differs_is_not_shared),
        cmocka_unit_test(devices_of_equal_bits_have_equal_numbers),
        cmocka_unit_test(damaged_and_foreign_files_are_left_aside),
        cmocka_unit_test(quotas_hold_and_leases_are_respected),
        cmocka_unit_test(what_is_faster_is_done),
        cmocka_unit_test(a_lost_folder_only_costs_the_gain),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
