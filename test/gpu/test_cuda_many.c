/* test_cuda_many.c: a model on four devices and on eight: each split says what one device says, and every device allocates
 * what its plan counts. On GPUs, with as many as there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "../unit/scratch.h"
#include "convert/synth.h"
#include "engine/load.h"
#include "engine/team.h"
#include "kernels/cuda/cuda.h"
#include "kernels/link.h"

enum { SAID = 1, MOST = GPUS_MAX };

static char path[64];

/* As few layers as four devices need, and weights that do not vanish beside the rest. */
static int make_file(void **state) {
    struct err e = {0};
    struct synth_result r;
    if (scratch_make(state)) return -1;
    snprintf(path, sizeof path, "%s/many.gguf", scratch);
    const struct synth_options s = {"qwen35moe-mini", "q8", path, 4, 8, 512, false};
    if (synth_write(&s, &r, &e)) fail_msg("%s", e.text);
    return 0;
}

struct said {
    struct engine_job j;
    int32_t tokens[SAID], n;
    bool ended;
};

static bool hear(struct engine_job *j, int32_t token, bool is_end,
                 const struct sampler_probs *probs) {
    struct said *s = j->ud;
    (void)is_end, (void)probs;
    if (s->n < SAID) s->tokens[s->n++] = token;
    return true;
}

static void all_said(struct engine_job *j) {
    __atomic_store_n(&((struct said *)j->ud)->ended, true, __ATOMIC_RELEASE);
}

static void say(struct said *s, struct engine *g) {
    static const int32_t prompt[] = {5, 6};
    struct err e = {0};
    *s = (struct said){.j = {.p.prompt = prompt,
                             .p.n_prompt = 2,
                             .p.max_tokens = SAID,
                             .on_token = hear,
                             .on_done = all_said,
                             .ud = s}};
    sampler_defaults(&s->j.p.sampling);
    s->j.p.sampling.temperature = 0;
    s->j.p.sampling.ignore_eos = true;
    if (engine_submit(g, &s->j, &e)) fail_msg("%s", e.text);
    while (!__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE)) sched_yield();
    if (s->j.err.code) fail_msg("%s", s->j.err.text);
}

/* On n devices; false: there are fewer. */
static bool open_on(struct loaded *l, enum split split, int32_t n) {
    struct load_params p;
    struct dev *dev[MOST];
    struct err e = {0};
    for (int32_t i = 0; i < n; i++) {
        const struct cuda_params c = {.device = i, .precise = true};
        if (!cuda_open(&dev[i], &c, &e)) continue;
        print_message("skip: %d GPUs: %s\n", n, e.text);
        for (int32_t k = 0; k < i; k++) dev[k]->ops->close(dev[k]);
        return false;
    }
    load_defaults(&p);
    p.path = path;
    p.quiet = true;
    p.plan.n_ctx = 128;
    p.plan.n_seq = 2;
    p.plan.engine.n_batch = 32;
    p.plan.engine.speculate = false;
    p.plan.budget_bytes = (uint64_t)8 << 30;
    p.plan.engine.link = LINK_PEER; /* the memory for it is planned, and freed if it is slower */
    p.opened = dev[0];
    p.more = dev + 1;
    p.n_more = n - 1;
    p.split = split;
    if (load_open(l, &p, &e)) fail_msg("%d devices, split %d: %s", n, (int)split, e.text);
    return true;
}

static int n_off; /* devices that allocated other than what was planned */

static void check_memory(const struct dev *d, const struct memory_plan *plan, const char *where) {
    struct dev_stats s;
    d->ops->stats(d, &s);
    double off = (double)s.bytes_used / (double)plan->total_bytes - 1;
    if (off > -0.03 && off < 0.03) return;
    print_message("%s: %llu bytes allocated, %llu planned: %+.1f %%\n", where,
                  (unsigned long long)s.bytes_used, (unsigned long long)plan->total_bytes,
                  100 * off);
    n_off++;
}

static void check_split(enum split split, const char *name, int32_t n, const struct said *one) {
    struct loaded l;
    struct said s;
    char where[64];
    if (!open_on(&l, split, n)) return;
    assert_int_equal(l.n_replica, n - 1);
    assert_int_equal(l.is_split, split != SPLIT_REPLICA);
    if (split == SPLIT_REPLICA) assert_int_equal(team_size(l.engine), n);
    say(&s, l.engine);
    assert_int_equal(s.n, SAID);
    if (memcmp(s.tokens, one->tokens, sizeof s.tokens))
        fail_msg("%s on %d devices: other tokens", name, n);
    for (int32_t i = 0; i < n; i++) {
        snprintf(where, sizeof where, "%s, device %d of %d", name, i, n);
        check_memory(i ? l.replicas[i - 1].dev : l.dev, i ? &l.replicas[i - 1].plan : &l.plan,
                     where);
    }
    load_close(&l);
}

static void each_split_says_the_same_within_its_plan(void **state) {
    (void)state;
    static const struct {
        enum split split;
        const char *name;
        int32_t n;
    } rows[] = {{SPLIT_REPLICA, "replica", 4},
                {SPLIT_LAYER, "layer", 4},
                {SPLIT_TENSOR, "tensor", 4},
                {SPLIT_TENSOR, "tensor", MOST}};
    struct loaded l;
    struct said one;
    if (!open_on(&l, SPLIT_NONE, 1)) return;
    say(&one, l.engine);
    check_memory(l.dev, &l.plan, "one device");
    load_close(&l);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_split(rows[i].split, rows[i].name, rows[i].n, &one);
    assert_int_equal(n_off, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_split_says_the_same_within_its_plan),
    };
    return cmocka_run_group_tests(tests, make_file, scratch_drop);
}
