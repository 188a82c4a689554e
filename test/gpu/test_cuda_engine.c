/* test_cuda_engine.c: what stands around the kernels: the plan of a GPU's memory, experts that stay with the
 * processor, memory that runs out anywhere, a device that is lost, activations that are NaN. Runs on a GPU, whose
 * runtime's calls inject.c makes fail, or over the emulator, which fails by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/draft_rounds.h"
#include "../unit/scratch.h"
#include "base/buf.h"
#include "base/mem.h"
#include "convert/synth.h"
#include "engine/load.h"
#include "engine/team.h"
#include "format/quant.h"
#include "kernels/cuda/cuda.h"
#include "kernels/link.h"
#include "model/experts/tier.h"
#include "model/forward.h"

extern int inject_fail_nth, inject_lose_nth, inject_lose_device;

static char small[64], several[64], deep[64], dense[64], whole[64];

/* Two layers and four experts, which the emulator runs in a second a token; and the 35B's header. */
static int make_files(void **state) {
    struct err e = {0};
    struct synth_result r;
    if (scratch_make(state)) return -1;
    snprintf(small, sizeof small, "%s/small.gguf", scratch);
    snprintf(whole, sizeof whole, "%s/whole.gguf", scratch);
    const struct synth_options s = {"qwen35moe-mini", "q8", small, 2, 4, 512, false};
    snprintf(several, sizeof several, "%s/several.gguf", scratch);
    const struct synth_options m = {"qwen35moe-mini", "q8", several, 2, 12, 512, false};
    snprintf(deep, sizeof deep, "%s/deep.gguf", scratch);
    const struct synth_options n = {"qwen35moe-mini", "q8", deep, 5, 24, 512, false};
    snprintf(dense, sizeof dense, "%s/dense.gguf", scratch);
    const struct synth_options d = {"olmo-hybrid-mini", "q8", dense, 2, 0, 512, false};
    if (synth_write(&m, &r, &e) || synth_write(&n, &r, &e) || synth_write(&d, &r, &e))
        fail_msg("%s", e.text);
    const struct synth_options w = {"qwen35moe-35b", "ramp3", whole, 0, 0, 0, true};
    if (synth_write(&s, &r, &e) || synth_write(&w, &r, &e)) fail_msg("%s", e.text);
    return 0;
}

static struct dev *open_cuda(uint64_t vram) {
    struct dev *d;
    struct err e = {0};
    const struct cuda_params p = {.precise = true, .vram_bytes = vram};
    if (cuda_open(&d, &p, &e)) fail_msg("%s", e.text);
    return d;
}

/* ---- plans ---- */

enum { IN_SLOTS = -2 }; /* instead of the number of layers on the processor; -1: as few as fit */
static int plan(struct memory_plan *out, uint64_t vram, int64_t n_ctx, int32_t n_cpu_moe,
                struct err *e) {
    struct dev *d = open_cuda(vram);
    struct plan_params p = {.n_ctx = n_ctx,
                            .n_seq = 1,
                            .budget_bytes = (uint64_t)64 << 30,
                            .dev = d,
                            .vram_bytes = vram,
                            .expert_slots = n_cpu_moe == IN_SLOTS,
                            .fix_cpu_moe = n_cpu_moe >= 0,
                            .n_cpu_moe = n_cpu_moe};
    engine_defaults(&p.engine);
    p.engine.k_type = p.engine.v_type = QUANT_Q8_0;
    int rc = plan_make(out, whole, &p, e);
    d->ops->close(d);
    if (rc) return rc;
    assert_true(out->is_device);
    assert_true(out->total_bytes <= out->budget_bytes);
    assert_int_equal(out->total_bytes,
                     out->weight_bytes + out->cache_bytes + out->state_bytes + out->scratch_bytes);
    return 0;
}

static const uint64_t card = (uint64_t)(15.3 * (1 << 30)); /* what a card of 16 GB leaves */

static void the_35b_fits_a_card_of_16_gb(void **state) {
    (void)state;
    struct memory_plan p;
    struct err e = {0};
    struct buf b;
    if (plan(&p, card, 65536, -1, &e)) fail_msg("%s", e.text);
    buf_init(&b, 1 << 16);
    plan_print(&p, &b);
    print_message("%s", b.p);
    buf_fini(&b);
    assert_int_equal(p.engine.n_ctx_seq, 65536);
    assert_in_range(p.n_cpu_moe, 0,
                    3); /* 14.8 GiB of weights: experts of two layers stay outside */
    /* by hand: 10 layers of attention, 2 kv heads of 256, keys and values at 34 bytes for 32 */
    assert_int_equal(p.cache_bytes_per_tok / 100, 10 * 2 * 2 * 256 * 34 / 32 / 100);
}

static void what_does_not_fit_goes_to_the_processor(void **state) {
    (void)state;
    struct memory_plan full, p;
    struct err e = {0};
    if (plan(&full, (uint64_t)16 << 30, 65536, 0, &e)) fail_msg("%s", e.text);
    int32_t last = 0;
    bool brings = false;
    for (uint64_t vram = full.total_bytes; vram > full.total_bytes / 4;
         vram -= full.total_bytes / 8) {
        if (plan(&p, vram, 65536, -1, &e)) fail_msg("%s", e.text);
        assert_true(p.n_cpu_moe >= last && p.n_cpu_moe <= p.n_moe);
        assert_int_equal(p.n_cpu_moe == 0, p.expert_bytes == 0);
        assert_true(p.host_bytes >= p.expert_bytes);
        /* two places of a layer's experts, each of 256 x 3 matrices, at a bit less than 0.45 bytes a weight */
        uint64_t two = 2 * (uint64_t)256 * 3 * 2048 * 512;
        if (p.staging_bytes) assert_in_range(p.staging_bytes, two * 38 / 100, two * 70 / 100);
        assert_true(p.n_cpu_moe || !p.staging_bytes);
        brings |= p.staging_bytes > 0;
        last = p.n_cpu_moe;
    }
    assert_true(brings);
    assert_true(last > 20);
    /* too little for all but the experts: refused, with the numbers */
    assert_int_equal(plan(&p, (uint64_t)1 << 30, 65536, -1, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "does not fit"));
    /* as the user says, whether it must be or not */
    assert_int_equal(plan(&p, card, 65536, 7, &e), 0);
    assert_int_equal(p.n_cpu_moe, 7);
    assert_true(p.weight_bytes < full.weight_bytes);
    assert_int_equal(plan(&p, full.total_bytes / 2, 65536, 0, &e), CHIMERE_ELIMIT);
}

/* What the card lacks for experts costs at most three of the 40 layers, then slots; never context. */
static void experts_in_use_get_slots(void **state) {
    (void)state;
    struct memory_plan full, p;
    struct err e = {0};
    struct buf b;
    if (plan(&full, (uint64_t)16 << 30, 65536, 0, &e)) fail_msg("%s", e.text);
    assert_int_equal(full.slot_bytes, 0);
    uint64_t last = UINT64_MAX, least = full.total_bytes / 4;
    int n_by_layers = 0;
    for (uint64_t vram = full.total_bytes - 1; vram > least; vram -= full.total_bytes / 8) {
        if (plan(&p, vram, 65536, IN_SLOTS, &e)) fail_msg("%s", e.text);
        assert_int_equal(p.engine.n_ctx_seq, 65536);
        assert_true(p.total_bytes <= vram);
        if (!p.slot_bytes) {
            assert_in_range(p.n_cpu_moe, 1, 3);
            assert_true(last == UINT64_MAX);
            n_by_layers++;
            continue;
        }
        assert_int_equal(p.n_cpu_moe, 0);
        assert_true(p.slot_bytes < last);
        assert_in_range(p.expert_bytes, (uint64_t)9 << 30, (uint64_t)14 << 30);
        assert_true(p.host_bytes >= p.expert_bytes);
        last = p.slot_bytes;
    }
    assert_int_equal(n_by_layers, 1);
    assert_true(last != UINT64_MAX);
    buf_init(&b, 1 << 16);
    plan_print(&p, &b);
    print_message("%s", b.p);
    assert_non_null(strstr(b.p, "for those in use"));
    buf_fini(&b);
    assert_int_equal(plan(&p, (uint64_t)1 << 30, 65536, IN_SLOTS, &e), CHIMERE_ELIMIT);
}

/* More of a prompt at once where there is room, and not at the cost of anything else. */
static void a_batch_takes_the_room_that_is_left(void **state) {
    (void)state;
    struct memory_plan p;
    struct err e = {0};
    struct plan_params want = {.n_ctx = 4096, .n_seq = 1, .budget_bytes = (uint64_t)64 << 30};
    engine_defaults(&want.engine);
    const uint64_t all = (uint64_t)15 << 30;
    uint64_t few = 0, most = 0; /* bytes with either batch */
    const struct {
        int32_t wanted, chosen;
        uint64_t *fits; /* no byte more than that is there; NULL: all */
        uint64_t *takes;
    } cases[] = {
        {PLAN_BATCH, PLAN_BATCH, NULL, &few}, {PLAN_DEVICE_BATCH, PLAN_DEVICE_BATCH, NULL, &most},
        {0, PLAN_DEVICE_BATCH, NULL, NULL},   {0, PLAN_BATCH, &few, NULL},
        {0, PLAN_DEVICE_BATCH, &most, NULL},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        want.engine.n_batch = cases[k].wanted;
        want.vram_bytes = cases[k].fits ? *cases[k].fits : all;
        want.dev = open_cuda(want.vram_bytes);
        if (cases[k].fits) want.vram_bytes += want.vram_bytes - want.dev->ops->free_bytes(want.dev);
        want.dev->ops->close(want.dev);
        want.dev = open_cuda(want.vram_bytes);
        if (plan_make(&p, small, &want, &e)) fail_msg("%s", e.text);
        want.dev->ops->close(want.dev);
        assert_int_equal(p.engine.n_batch, cases[k].chosen);
        assert_int_equal(p.n_cpu_moe, 0);
        if (cases[k].takes) *cases[k].takes = p.total_bytes;
    }
    assert_true(few < most);
}

/* ---- running ---- */

enum { N_TOK = 5 };

static void load_small(struct load_params *p) {
    load_defaults(p);
    p->path = small;
    p->quiet = true;
    p->plan.n_ctx = 128;
    p->plan.n_seq = 1;
    p->plan.engine.n_batch = 32;
    p->plan.engine.speculate = false;
    p->plan.budget_bytes = (uint64_t)8 << 30;
}

/* Where the last step's ops are timed: what the device says of it. */
struct timed {
    struct op_time ops[DEV_MAX_TIMES];
    int32_t n_op;
    uint64_t n_launch;
    enum time_by by;
    int32_t n_sm; /* multiprocessors to use; 0: all */
};

static const char *mixture = small;     /* the file of last_logits */
static uint64_t slot_budget;            /* with IN_SLOTS: device memory for them */
static struct tier_stats slots_counted; /* with IN_SLOTS: after the last step */

/* Logits of the last of N_TOK tokens: a prompt, then steps; or of a prompt alone. */
static int last_logits(int32_t n_cpu_moe, int32_t prompt, struct timed *timed, float *out,
                       int32_t *n_vocab, struct err *e) {
    struct dev *d = open_cuda(0);
    struct expert_placement where = {.n_layer = n_cpu_moe, .streams = prompt > 0};
    if (n_cpu_moe == IN_SLOTS) where = (struct expert_placement){.slot_bytes = slot_budget};
    struct model *m = NULL;
    struct seq_pool *pool = NULL;
    struct forward *f = NULL;
    struct seq *s = NULL;
    if (timed && timed->n_sm && d->ops->limit(d, timed->n_sm, e) < timed->n_sm) return e->code;
    int rc = n_cpu_moe > 0 ? cpu_open(&where.host, 2, CPU_ISA_SCALAR, e) : 0;
    if (!rc) rc = model_open_placed(&m, mixture, d, &where, true, e);
    const struct seq_pool_params pp = {
        .n_slot = 1, .n_ctx = 128, .k_type = QUANT_F16, .v_type = QUANT_F16};
    if (!rc) rc = seq_pool_new(&pool, m, &pp, e);
    if (!rc) rc = forward_new(&f, m, pool, 32, 1, e);
    if (!rc) rc = seq_new(&s, pool, e);
    int32_t end = prompt ? prompt : N_TOK, first = prompt ? prompt : N_TOK - 2;
    for (int32_t at = 0; !rc && at < end; at = at ? at + 1 : first) {
        int32_t tokens[32], n = at ? 1 : first;
        for (int32_t i = 0; i < n; i++) tokens[i] = (at + i) * 7 % 300;
        const struct batch_item run = {.seq = s, .tokens = tokens, .n_tok = n, .want = WANT_LAST};
        const float *logits;
        struct dev_stats before, after;
        bool times = timed && at == N_TOK - 1;
        if (times) d->ops->time_ops(d, timed->by, NULL);
        d->ops->stats(d, &before);
        rc = forward_run(f, &run, 1, &logits, e);
        if (times) timed->n_op = d->ops->time_ops(d, timed->by, timed->ops);
        d->ops->stats(d, &after);
        if (times) timed->n_launch = after.n_launch - before.n_launch;
        *n_vocab = rc ? 0 : m->hp.n_vocab;
        if (!rc) memcpy(out, logits, (size_t)*n_vocab * sizeof *out);
    }
    if (m) experts_stats(&m->weights.experts, &slots_counted);
    if (s) seq_free(s);
    forward_free(f);
    seq_pool_free(pool);
    model_close(m);
    d->ops->close(d);
    return rc;
}

static void experts_give_the_same_wherever_they_are(void **state) {
    (void)state;
    enum { MAX = 4096 };
    static float want[MAX], got[MAX];
    int32_t n, n2;
    struct err e = {0};
    if (last_logits(0, 0, NULL, want, &n, &e)) fail_msg("%s", e.text);
    assert_in_range(n, 1, MAX);
    double range = 0;
    for (int32_t i = 0; i < n; i++)
        range = fabs((double)want[i]) > range ? fabs((double)want[i]) : range;
    for (int32_t n_cpu = 1; n_cpu <= 2; n_cpu++) {
        if (last_logits(n_cpu, 0, NULL, got, &n2, &e)) fail_msg("%s", e.text);
        assert_int_equal(n, n2);
        double most = 0;
        for (int32_t i = 0; i < n; i++) {
            double d = fabs((double)got[i] - want[i]);
            most = d > most || isnan(d) ? d : most;
        }
        /* the processor rounds activations to 8 bits, the device in precise mode does not */
        if (!(most < 0.02 * range)) fail_msg("%d layers: off by %g of %g", n_cpu, most, range);
    }
}

/* Experts streamed for a long prompt are those that would be resident: the same bits. */
static void streamed_experts_give_the_same_bits(void **state) {
    (void)state;
    enum { MAX = 4096, PROMPT = 24 };
    static float want[MAX], got[MAX];
    int32_t n, n2;
    struct err e = {0};
    if (last_logits(0, PROMPT, NULL, want, &n, &e)) fail_msg("%s", e.text);
    for (int32_t n_cpu = 1; n_cpu <= 2; n_cpu++) {
        if (last_logits(n_cpu, PROMPT, NULL, got, &n2, &e)) fail_msg("%s", e.text);
        assert_int_equal(n, n2);
        assert_memory_equal(want, got, (size_t)n * sizeof *want);
    }
}

/* Experts in slots are those that would be resident: the same bits, with all slots and with the fewest. */
static void experts_in_slots_give_the_same_bits(void **state) {
    (void)state;
    enum { MAX = 4096 };
    static float want[MAX], got[MAX];
    int32_t n, n2;
    struct err e = {0};
    static const int32_t prompts[] = {0, 24};
    mixture = several;
    for (int i = 0; i < 4; i++) {
        int32_t prompt = prompts[i % 2];
        if (last_logits(0, prompt, NULL, want, &n, &e)) fail_msg("%s", e.text);
        /* hardly more than the least that is not refused */
        for (slot_budget = 1 << 16; last_logits(IN_SLOTS, prompt, NULL, got, &n2, &e);
             slot_budget += slot_budget / 4)
            assert_int_equal(e.code, CHIMERE_ELIMIT);
        if (i >= 2) {
            slot_budget *= 16;
            if (last_logits(IN_SLOTS, prompt, NULL, got, &n2, &e)) fail_msg("%s", e.text);
        }
        assert_int_equal(n, n2);
        assert_memory_equal(want, got, (size_t)n * sizeof *want);
        assert_true(slots_counted.is_device && slots_counted.n_miss > 0);
        if (i >= 2) assert_int_equal(slots_counted.n_slot, slots_counted.n_expert);
        else assert_true(slots_counted.n_slot < slots_counted.n_expert);
    }
    mixture = small;
}

/* Every launch of a step is one op's, and timing changes nothing of what is computed. */
static void ops_are_timed(void **state) {
    (void)state;
    enum { MAX = 4096 };
    static float want[MAX], got[MAX];
    static const char *const some[] = {"rms_norm", "linear", "gdn", "moe"};
    struct timed t = {.n_op = 0};
    int32_t n;
    struct err e = {0};
    if (last_logits(0, 0, NULL, want, &n, &e)) fail_msg("%s", e.text);
    if (last_logits(0, 0, &t, got, &n, &e)) fail_msg("%s", e.text);
    assert_memory_equal(want, got, (size_t)n * sizeof *want);
    uint64_t n_launch = 0;
    for (int32_t i = 0; i < t.n_op; i++) {
        n_launch += t.ops[i].n_launch;
        assert_true(t.ops[i].us > 0);
        if (i) assert_true(t.ops[i].us <= t.ops[i - 1].us);
#ifdef CHIMERE_EMULATE
        assert_true(fabs(t.ops[i].us - (double)t.ops[i].n_launch) < 1e-3); /* its clock */
#endif
    }
    assert_int_equal(n_launch, t.n_launch);
    assert_true(n_launch > 10);
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        bool has = false;
        for (int32_t i = 0; i < t.n_op; i++) has |= strcmp(t.ops[i].name, some[k]) == 0;
        if (!has) fail_msg("no time of %s", some[k]);
    }
}

static void kernels_are_timed_on_fewer_multiprocessors(void **state) {
    (void)state;
    enum { MAX = 4096 };
    static float want[MAX], got[MAX];
    struct timed t = {.by = TIME_BY_KERNEL, .n_sm = 2};
    int32_t n;
    uint64_t n_launch = 0, bytes = 0;
    struct err e = {0};
    if (last_logits(0, 0, NULL, want, &n, &e)) fail_msg("%s", e.text);
    int rc = last_logits(0, 0, &t, got, &n, &e);
    if (rc == CHIMERE_EUNSUPPORTED) skip(); /* a driver without green contexts */
    if (rc) fail_msg("%s", e.text);
    for (int32_t i = 0; i < n; i++) assert_true(fabsf(got[i] - want[i]) < 1e-2f);
    for (int32_t i = 0; i < t.n_op; i++) {
        n_launch += t.ops[i].n_launch;
        bytes += t.ops[i].n_launch * t.ops[i].bytes;
        for (int32_t k = 0; k < i; k++) /* one row for each kernel and size */
            assert_true(strcmp(t.ops[i].name, t.ops[k].name) != 0 ||
                        t.ops[i].bytes != t.ops[k].bytes);
    }
    assert_int_equal(n_launch, t.n_launch);
    assert_true(bytes > 0);
}

static void bandwidth_is_measured_and_costs_nothing_after(void **state) {
    (void)state;
    struct dev *d = open_cuda(0);
    struct dev_stats before, after;
    d->ops->stats(d, &before);
    assert_true(d->ops->read_bandwidth(d) > 0);
    assert_int_equal(d->ops->status(d, NULL), 0);
    d->ops->stats(d, &after);
    assert_int_equal(before.bytes_used, after.bytes_used);
    d->ops->close(d);
}

struct heard {
    int32_t n;
};
static bool hear(struct engine_job *j, int32_t token, bool is_end,
                 const struct sampler_probs *probs) {
    (void)token, (void)is_end, (void)probs;
    ((struct heard *)j->ud)->n++;
    return true;
}
static void ended(struct engine_job *j) { (void)j; }

static int answer(struct engine *g, struct err *e) {
    static const int32_t prompt[] = {5, 6, 7, 8};
    struct heard h = {0};
    struct engine_job j = {.p.prompt = prompt,
                           .p.n_prompt = 4,
                           .p.max_tokens = 2,
                           .on_token = hear,
                           .on_done = ended,
                           .ud = &h};
    sampler_defaults(&j.p.sampling);
    int rc = engine_run(g, &j, e);
    if (!rc) assert_int_equal(h.n, 2);
    return rc;
}

enum { SAID = 3 };
struct said {
    struct engine_job j;
    int32_t tokens[SAID], n;
    int32_t lose_after; /* after so many tokens, the second card is lost; 0: never */
    bool ended;
};
static bool hear_said(struct engine_job *j, int32_t token, bool is_end,
                      const struct sampler_probs *probs) {
    struct said *s = j->ud;
    (void)is_end, (void)probs;
    if (s->n < SAID) s->tokens[s->n++] = token;
    if (s->n == s->lose_after && j->member == 1) inject_lose_nth = 1;
    return true;
}
static void said_all(struct engine_job *j) {
    __atomic_store_n(&((struct said *)j->ud)->ended, true, __ATOMIC_RELEASE);
}
/* The likeliest SAID tokens, without waiting for them. */
static void say_and_lose(struct said *s, struct engine *g, int32_t lose_after) {
    static const int32_t prompt[] = {5, 6, 7, 8};
    struct err e = {0};
    *s = (struct said){.j = {.p.prompt = prompt,
                             .p.n_prompt = 4,
                             .p.max_tokens = SAID,
                             .on_token = hear_said,
                             .on_done = said_all,
                             .ud = s},
                       .lose_after = lose_after};
    sampler_defaults(&s->j.p.sampling);
    s->j.p.sampling.temperature = 0;
    s->j.p.sampling.ignore_eos = true;
    if (engine_submit(g, &s->j, &e)) fail_msg("%s", e.text);
}
static void say(struct said *s, struct engine *g) { say_and_lose(s, g, 0); }

/* Every allocation of the device fails once: a sentence, and nothing is left behind. */
static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    struct load_params p;
    struct err e = {0};
    load_small(&p);
    int n_failed = 0;
    for (int nth = 1;; nth += 1 + nth / 8) {
        struct loaded l;
        e = (struct err){0};
        p.opened = open_cuda(0);
        inject_fail_nth = nth;
        int rc = load_open(&l, &p, &e);
        bool reached = inject_fail_nth <= 0;
        inject_fail_nth = 0;
        if (!rc) {
            assert_false(reached);
            load_close(&l);
            break;
        }
        assert_true(reached);
        assert_int_equal(rc, CHIMERE_ENOMEM);
        assert_true(e.text[0] != 0);
        n_failed++;
    }
    assert_true(n_failed > 10);
}

/* If an allocation fails while experts get slots, above all of pinned memory, whole layers go to the processor and
 * requests are answered; elsewhere it is a sentence. */
static void refused_pinned_memory_puts_layers_on_the_processor(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct err e = {0};
    load_small(&p);
    p.path = deep;
    p.plan.expert_slots = true;
    p.opened = open_cuda(0);
    if (load_open(&l, &p, &e)) fail_msg("%s", e.text);
    assert_int_equal(l.plan.slot_bytes, 0);
    p.vram_bytes = l.plan.total_bytes;
    load_close(&l);
    for (uint64_t step = p.vram_bytes / 16, slots = 0; !slots;) {
        p.vram_bytes -= step;
        p.opened = open_cuda(p.vram_bytes);
        if (load_open(&l, &p, &e)) fail_msg("%s", e.text);
        slots = l.plan.slot_bytes;
        load_close(&l);
    }
    int n_other = 0, n_failed = 0;
    for (int nth = 1;; nth += 1 + nth / 16) {
        e = (struct err){0};
        p.opened = open_cuda(p.vram_bytes);
        inject_fail_nth = nth;
        int rc = load_open(&l, &p, &e);
        bool reached = inject_fail_nth <= 0;
        inject_fail_nth = 0;
        if (rc) {
            if (rc != CHIMERE_ENOMEM) fail_msg("allocation %d: %s", nth, e.text);
            assert_true(reached && e.text[0] != 0);
            n_failed++;
            continue;
        }
        bool is_first = reached && n_other++ == 0;
        assert_true(reached == (l.plan.slot_bytes == 0));
        assert_true(reached == (l.plan.n_cpu_moe > 0));
        if (is_first && answer(l.engine, &e)) fail_msg("%s", e.text);
        load_close(&l);
        if (!reached) break;
    }
    assert_true(n_other >= 4 && n_failed >= 4);
}

/* As few layers as will do are on the processor, and requests are answered; a card without room for the rest is
 * refused. */
static void a_dense_model_may_be_larger_than_the_card(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct err e = {0};
    struct buf b;
    load_small(&p);
    p.path = dense;
    p.opened = open_cuda(0);
    if (load_open(&l, &p, &e)) fail_msg("%s", e.text);
    assert_int_equal(l.plan.n_cpu_moe, 0);
    const struct memory_plan full = l.plan;
    load_close(&l);
    uint64_t each = 0;
    for (int n_layer = 1; n_layer <= 2; n_layer++) {
        p.vram_bytes = full.total_bytes - each - 1;
        p.opened = open_cuda(p.vram_bytes);
        if (load_open(&l, &p, &e)) fail_msg("%s", e.text);
        assert_int_equal(l.plan.n_cpu_moe, n_layer);
        assert_true(l.plan.total_bytes <= p.vram_bytes);
        if (n_layer == 1) each = full.weight_bytes - l.plan.weight_bytes;
        assert_int_equal(full.weight_bytes - l.plan.weight_bytes, (uint64_t)n_layer * each);
        buf_init(&b, 1 << 16);
        plan_print(&l.plan, &b);
        assert_non_null(strstr(b.p, n_layer == 1 ? "of 1 of 2 layers, on the processor"
                                                 : "of 2 of 2 layers, on the processor"));
        buf_fini(&b);
        if (answer(l.engine, &e)) fail_msg("%s", e.text);
        load_close(&l);
    }
    p.vram_bytes = full.total_bytes - 2 * each - 1;
    p.opened = open_cuda(p.vram_bytes);
    assert_int_equal(load_open(&l, &p, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "does not fit"));
}

/* Hits among the experts that the first answer uses, with a fresh start of the model. */
static double hits_of_first_answer(const struct load_params *p, uint64_t vram) {
    struct load_params own = *p;
    struct loaded l;
    struct tier_stats t;
    struct err e = {0};
    own.opened = open_cuda(own.vram_bytes = vram);
    if (load_open(&l, &own, &e)) fail_msg("%s", e.text);
    assert_true(l.plan.slot_bytes > 0);
    if (answer(l.engine, &e)) fail_msg("%s", e.text);
    assert_true(experts_stats(&l.model->weights.experts, &t));
    load_close(&l);
    return (double)t.n_hit / (double)(t.n_hit + t.n_miss);
}

/* What an earlier run used is in slots when the next one starts. A damaged file is as good as none. */
static void the_next_start_has_the_experts_in_use(void **state) {
    (void)state;
    struct load_params p;
    struct memory_plan plan;
    struct err e = {0};
    char folder[256], command[400];
    assert_non_null(getcwd(folder, 128));
    snprintf(folder + strlen(folder), 64, "/%s", scratch);
    setenv("XDG_DATA_HOME", folder, 1);
    load_small(&p);
    p.path = deep;
    p.plan.expert_slots = true;
    struct plan_params want = p.plan;
    uint64_t vram = 0, step = 0;
    do { /* the largest card that needs slots */
        want.vram_bytes = vram = vram ? vram - step : 0;
        want.dev = open_cuda(vram);
        if (plan_make(&plan, deep, &want, &e)) fail_msg("%s", e.text);
        want.dev->ops->close(want.dev);
        if (!vram) vram = plan.total_bytes, step = vram / 16;
    } while (!plan.slot_bytes);
    double cold = hits_of_first_answer(&p, vram); /* keeps no profile */
    p.expert_profile = true;
    assert_true(hits_of_first_answer(&p, vram) == cold);
    double warm = hits_of_first_answer(&p, vram);
    print_message("hits of the first answer: %.3f, with a profile %.3f\n", cold, warm);
    assert_true(warm > cold + .2);
    snprintf(command, sizeof command, "for f in '%s'/chimere/experts/*; do echo x >$f; done",
             scratch);
    assert_int_equal(system(command), 0);
    assert_true(hits_of_first_answer(&p, vram) == cold);
}

/* The host's allocations too, and the device's beside them are given back. */
static void host_memory_may_run_out_anywhere(void **state) {
    (void)state;
    struct load_params p;
    load_small(&p);
    for (int64_t nth = 1;; nth += 1 + nth / 3) {
        struct loaded l;
        struct err e = {0};
        p.opened = open_cuda(0);
        mem_fail_nth(nth);
        int rc = load_open(&l, &p, &e);
        mem_fail_nth(0);
        if (!rc) {
            load_close(&l);
            break;
        }
        assert_true(e.text[0] != 0);
    }
}

/* Wherever it is lost, the request fails with a sentence, and so do those after it; nothing hangs or crashes, all can
 * be closed. */
static void a_lost_device_fails_requests(void **state) {
    (void)state;
    int n_lost = 0;
    for (int nth = 1;; nth = 3 * nth + 1) {
        struct load_params p;
        struct loaded l;
        struct err e = {0};
        load_small(&p);
        p.opened = open_cuda(0);
        if (load_open(&l, &p, &e)) fail_msg("%s", e.text);
        inject_lose_nth = nth;
        int rc = answer(l.engine, &e);
        bool reached = inject_lose_nth == 1;
        if (reached) {
            assert_int_equal(rc, CHIMERE_EDEVICE);
            assert_non_null(strstr(e.text, "gpu: "));
            e = (struct err){0};
            assert_int_equal(answer(l.engine, &e), CHIMERE_EDEVICE);
            assert_non_null(strstr(e.text, "unspecified launch failure"));
            n_lost++;
        } else assert_int_equal(rc, 0);
        inject_lose_nth = 0;
        load_close(&l);
        if (!reached) break;
    }
    assert_true(n_lost >= 3);
}

/* Where nothing was sent since the last wait, nobody asks the device, which here would tell that it is lost. */
static void a_wait_behind_a_wait_is_free(void **state) {
    (void)state;
    struct dev *d = open_cuda(0);
    float *x = d->ops->alloc(d, 1024), y[4] = {0};
    d->ops->zero(d, x, 1024);
    d->ops->download(d, y, x, sizeof y);
    inject_lose_nth = 1;
    assert_int_equal(d->ops->status(d, NULL), 0);
    d->ops->zero(d, x, 1024);
    assert_int_equal(d->ops->status(d, NULL), CHIMERE_EDEVICE);
    inject_lose_nth = 0;
    d->ops->free(d, x);
    d->ops->close(d);
}

/* A row that is not finite fails its request by a sentence; the next one is answered. */
static void nan_fails_one_request(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct err e = {0};
    load_small(&p);
    p.opened = open_cuda(0);
    if (load_open(&l, &p, &e)) fail_msg("%s", e.text);
    float *norm = (float *)(uintptr_t)l.model->weights.global.output_norm, own, bad = NAN;
    l.dev->ops->download(l.dev, &own, norm + 3, sizeof own);
    l.dev->ops->upload(l.dev, norm + 3, &bad, sizeof bad);
    assert_int_equal(answer(l.engine, &e), CHIMERE_ENUMERIC);
    assert_non_null(strstr(e.text, "not a finite distribution"));
    l.dev->ops->upload(l.dev, norm + 3, &own, sizeof own);
    if (answer(l.engine, &e)) fail_msg("%s", e.text);
    load_close(&l);
}

/* Opened by one thread, driven by those of two engines at once: the second must not take the first one's place. */
static void two_devices_in_one_process(void **state) {
    (void)state;
    enum { N = 2 };
    struct loaded l[N];
    struct said s[N];
    struct err e = {0};
    for (int i = 0; i < N; i++) {
        struct load_params p;
        load_small(&p);
        const struct cuda_params c = {.device = i, .precise = true};
        if (cuda_open(&p.opened, &c, &e)) {
            print_message("skip: the second GPU: %s\n", e.text);
            if (i) load_close(&l[0]);
            return;
        }
        if (load_open(&l[i], &p, &e)) fail_msg("%s", e.text);
    }
    for (int i = 0; i < N; i++) say(&s[i], l[i].engine);
    for (int i = 0; i < N; i++) {
        while (!__atomic_load_n(&s[i].ended, __ATOMIC_ACQUIRE)) sched_yield();
        if (s[i].j.err.code) fail_msg("device %d: %s", i, s[i].j.err.text);
    }
    assert_int_equal(s[0].n, SAID);
    assert_memory_equal(s[0].tokens, s[1].tokens, sizeof s[0].tokens);
    for (int i = 0; i < N; i++) load_close(&l[i]);
}

/* Of a card that is too small for the model two take a part of the layers each, and say the same; auto chooses it. */
static void layers_on_two_devices(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct said one, parts;
    struct err e = {0};
    uint64_t vram = 0;
    for (int n = 1; n <= 2; n++) {
        struct dev *second = NULL;
        struct cuda_params c = {.device = 1, .precise = true, .vram_bytes = vram};
        load_small(&p);
        p.plan.fix_cpu_moe = true;
        p.vram_bytes = vram;
        if (n == 2) { /* alone it is refused */
            p.opened = open_cuda(vram);
            assert_int_equal(load_open(&l, &p, &e), CHIMERE_ELIMIT);
            if (cuda_open(&second, &c, &e)) {
                print_message("skip: the second GPU: %s\n", e.text);
                return;
            }
            p.more = &second;
            p.n_more = 1;
        }
        p.opened = open_cuda(vram);
        if (load_open(&l, &p, &e)) fail_msg("%d: %s", n, e.text);
        assert_int_equal(l.part.end > 0, n == 2);
        vram = l.plan.total_bytes * 5 / 6;
        struct said *s = n == 1 ? &one : &parts;
        say(s, l.engine);
        while (!__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE)) sched_yield();
        if (s->j.err.code) fail_msg("%d: %s", n, s->j.err.text);
        load_close(&l);
    }
    assert_int_equal(one.n, SAID);
    assert_memory_equal(one.tokens, parts.tokens, sizeof one.tokens);
}

/* The scheduler's totals are copied after the callbacks of the step. */
static void is_reported_lost(struct engine *g) {
    struct engine_totals t = {.is_lost = false};
    while (!t.is_lost) {
        engine_totals(g, &t);
        sched_yield();
    }
}

/* Two engines take turns on two devices: both say the same at once; one device is lost: both fail, none hangs. */
static void turns_on_two_devices(void **state) {
    (void)state;
    enum { N = 2 };
    struct load_params p;
    struct loaded l;
    struct said s[N];
    struct err e = {0};
    struct dev *second;
    const struct cuda_params c = {.device = 1, .precise = true};
    load_small(&p);
    p.plan.n_seq = N;
    p.split = SPLIT_LAYER;
    if (cuda_open(&second, &c, &e)) {
        print_message("skip: the second GPU: %s\n", e.text);
        return;
    }
    p.opened = open_cuda(0);
    p.more = &second;
    p.n_more = 1;
    if (load_open(&l, &p, &e)) fail_msg("%s", e.text);
    assert_int_equal(team_size(l.engine), N);
    for (int lost = 0; lost <= 1; lost++) {
        inject_lose_device = lost ? 1 : -1;
        inject_lose_nth = lost;
        for (int i = 0; i < N; i++) say(&s[i], l.engine);
        for (int i = 0; i < N; i++) {
            while (!__atomic_load_n(&s[i].ended, __ATOMIC_ACQUIRE)) sched_yield();
            assert_int_equal(s[i].j.err.code, lost ? CHIMERE_EDEVICE : 0);
            if (!lost) assert_int_equal(s[i].n, SAID);
        }
        if (!lost) assert_memory_equal(s[0].tokens, s[1].tokens, sizeof s[0].tokens);
    }
    is_reported_lost(l.engine);
    inject_lose_nth = 0;
    inject_lose_device = -1;
    load_close(&l);
}

/* One of two replicas is lost after its second token: the answer continues on the other card, token for token as the
 * answer that was there from the start. */
static void an_answer_of_a_lost_replica_moves(void **state) {
    (void)state;
    enum { N = 2 };
    struct said s[N];
    struct err e = {0};
    struct load_params p;
    struct loaded l;
    struct dev *second;
    struct team_member m;
    struct engine_totals t;
    const struct cuda_params c = {.device = 1, .precise = true};
    load_small(&p);
    p.plan.n_seq = N;
    if (cuda_open(&second, &c, &e)) {
        print_message("skip: the second GPU: %s\n", e.text);
        return;
    }
    p.opened = open_cuda(0);
    p.more = &second;
    p.n_more = 1;
    if (load_open(&l, &p, &e)) fail_msg("%s", e.text);
    assert_int_equal(l.part.end, 0);
    assert_int_equal(load_n_seq(&l), 2 * l.plan.engine.n_seq);
    inject_lose_device = 1;
    for (int i = 0; i < N; i++) say_and_lose(&s[i], l.engine, SAID - 1);
    for (int i = 0; i < N; i++) {
        while (!__atomic_load_n(&s[i].ended, __ATOMIC_ACQUIRE)) sched_yield();
        if (s[i].j.err.code) fail_msg("%d: %s", i, s[i].j.err.text);
        assert_int_equal(s[i].n, SAID);
    }
    assert_memory_equal(s[0].tokens, s[1].tokens, sizeof s[0].tokens);
    team_at(l.engine, 0, &m, NULL);
    assert_int_equal(m.n_moved, 1);
    team_at(l.engine, 1, &m, NULL);
    assert_true(m.lost);
    engine_totals(l.engine, &t);
    assert_false(t.is_lost);
    inject_lose_nth = 0;
    inject_lose_device = -1;
    load_close(&l);
}

/* A prediction block in slices drafts what a whole one drafts. */
static void drafts_on_two_devices(void **state) {
    (void)state;
    static const char nano[] = TEST_DATA "/../../models/chimere-nano-bf16.gguf";
    struct drafted one, slices;
    struct err e = {0};
    for (int32_t k = 0; k < 2; k++) {
        struct engine_params p;
        struct dev *dev[2] = {NULL};
        struct model *m[2] = {NULL};
        struct lm *lm;
        int32_t n = k ? 2 : 1;
        engine_defaults(&p);
        p.n_seq = DRAFT_SEQS;
        p.n_ctx = p.n_ctx_seq = 128;
        p.n_batch = 32;
        p.link = LINK_PEER;
        for (int32_t i = 0; i < n; i++) {
            const struct cuda_params c = {.device = i, .precise = true};
            if (cuda_open(&dev[i], &c, &e)) {
                print_message("skip: the second GPU: %s\n", e.text);
                model_close(m[0]);
                if (dev[0]) dev[0]->ops->close(dev[0]);
                return;
            }
            if (model_open_slice(&m[i], nano, dev[i], i, n, true, &e)) fail_msg("%s", e.text);
        }
        int rc = n > 1 ? lm_open_parts(&lm, m, n, NULL, &p, &e) : lm_open_model(&lm, m[0], &p, &e);
        if (rc) fail_msg("%s", e.text);
        draft_rounds(lm, 2, 1, k ? &slices : &one);
        if (k) assert_memory_equal(&one, &slices, sizeof one);
        lm->ops->close(lm);
        for (int32_t i = 0; i < n; i++) {
            model_close(m[i]);
            dev[i]->ops->close(dev[i]);
        }
    }
}

/* Slices of every layer on one device and on two, whose sums are exchanged in either way: the same tokens,
 * chimere-nano's attention and delta-net layers. */
static void slices_on_two_devices(void **state) {
    (void)state;
    static const enum link_way ways[] = {LINK_AUTO, LINK_PEER, LINK_HOST};
    struct said one, slices;
    struct err e = {0};
    for (int k = 0; k < 3; k++) {
        struct load_params p;
        struct loaded l;
        struct dev *second = NULL;
        const struct cuda_params c = {.device = 1, .precise = true};
        load_small(&p);
        p.path = TEST_DATA "/../../models/chimere-nano-bf16.gguf";
        p.split = SPLIT_TENSOR;
        p.plan.engine.link = ways[k];
        p.opened = open_cuda(0);
        if (k && cuda_open(&second, &c, &e)) {
            print_message("skip: the second GPU: %s\n", e.text);
            p.opened->ops->close(p.opened);
            return;
        }
        p.more = &second;
        p.n_more = k > 0;
        if (load_open(&l, &p, &e)) fail_msg("%d: %s", k, e.text);
        assert_int_equal(l.is_split, k > 0);
        struct said *s = k ? &slices : &one;
        say(s, l.engine);
        while (!__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE)) sched_yield();
        if (s->j.err.code) fail_msg("%d: %s", k, s->j.err.text);
        if (k) assert_memory_equal(one.tokens, slices.tokens, sizeof one.tokens);
        if (k) { /* one is lost: the request fails with an error, without waiting for it */
            inject_lose_device = 1;
            inject_lose_nth = 1;
            assert_int_equal(answer(l.engine, &e), CHIMERE_EDEVICE);
            assert_int_not_equal(e.text[0], 0);
            is_reported_lost(l.engine);
            inject_lose_nth = 0;
            inject_lose_device = -1;
        }
        load_close(&l);
    }
    assert_int_equal(one.n, SAID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_35b_fits_a_card_of_16_gb),
        cmocka_unit_test(what_does_not_fit_goes_to_the_processor),
        cmocka_unit_test(experts_in_use_get_slots),
        cmocka_unit_test(a_batch_takes_the_room_that_is_left),
        cmocka_unit_test(experts_give_the_same_wherever_they_are),
        cmocka_unit_test(streamed_experts_give_the_same_bits),
        cmocka_unit_test(a_dense_model_may_be_larger_than_the_card),
        cmocka_unit_test(experts_in_slots_give_the_same_bits),
        cmocka_unit_test(the_next_start_has_the_experts_in_use),
        cmocka_unit_test(ops_are_timed),
        cmocka_unit_test(kernels_are_timed_on_fewer_multiprocessors),
        cmocka_unit_test(bandwidth_is_measured_and_costs_nothing_after),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(refused_pinned_memory_puts_layers_on_the_processor),
        cmocka_unit_test(host_memory_may_run_out_anywhere),
        cmocka_unit_test(a_lost_device_fails_requests),
        cmocka_unit_test(a_wait_behind_a_wait_is_free),
        cmocka_unit_test(nan_fails_one_request),
        cmocka_unit_test(two_devices_in_one_process),
        cmocka_unit_test(layers_on_two_devices),
        cmocka_unit_test(turns_on_two_devices),
        cmocka_unit_test(an_answer_of_a_lost_replica_moves),
        cmocka_unit_test(drafts_on_two_devices),
        cmocka_unit_test(slices_on_two_devices),
    };
    return cmocka_run_group_tests(tests, make_files, scratch_drop);
}
