/* cmd_bench.c: speed of prefill and decode, for one or several sequences, at a depth; and of verification
 * (bench_speculate.h).
 *
 * Inside the timing window: the forward passes and, for decoding, the choice of the largest logit; on a device,
 * the selection that the engine's samplers read instead of complete rows. Outside: loading, tokenizing, text.
 * Token ids are a fixed pseudo-random sequence. The printed value is the median of the repetitions. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/os/energy.h"
#include "base/os/os.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "cli/args/bench_args.h"
#include "cli/bench_cards.h"
#include "cli/bench_url.h"
#include "cli/cmd/bench_card.h"
#include "cli/cmd/bench_speculate.h"
#include "cli/args/model_args.h"
#include "cli/args/remote_args.h"
#include "engine/plan.h"
#include "engine/sampler/sampler.h"
#include "model/forward.h"
#include "model/experts/routing.h"
#include "model/experts/tier.h"

const struct cfg_opt bench_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    BENCH_OPTIONS,
    CARDS_OPTIONS,
    {"card", 0, CFG_STR, "NAME", NULL, 0, 0, NULL,
     "predict the speed of another GPU, e.g. rtx-5060-ti-16g; sets --sms to all and to the number "
     "that it has"},
    {"json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "print an array of JSON objects"},
    REMOTE_OPTIONS,
    LOAD_OPTIONS,
    {0}};

enum { IDLE_MS = 500 };

struct rig {
    struct model *m;
    struct seq_pool *pool;
    struct forward *f;
    struct bench_cards cards; /* --gpus: owns m; there is no pool and no forward pass */
    struct seq **seqs;
    int32_t n_seq, batch, depth, n_prompt, n_gen, n_repeat;
    struct sampler *sampler; /* owned; greedy */
    int32_t *tokens;         /* for the longest run */
    struct select_row *rows; /* owned [n_seq]; NULL: complete rows are read in place */
    double *rates;           /* owned [n_repeat] */
    double bandwidth;        /* bytes per second */
    double idle_watts;       /* NAN: not readable */
    uint64_t cache_bytes;    /* keys and values of one position */
    bool by_op, by_kernel;
    int32_t n_sm; /* multiprocessors in use, if --sms limits them; else 0 */
    int32_t sms[8], n_sms;
    struct moe_keep keep;             /* which experts to keep */
    struct routing *routing;          /* owned; NULL: the routers choose */
    bool verifies;                    /* --verify or --speculate-as */
    struct bench_speculate speculate; /* filled if so */
    const struct ramp_card *card;     /* --card; NULL: none */
    struct bench_card_runs runs;      /* owned */
};

/* ---- the model, on one device or on several ---- */

static int run_batch(struct rig *r, const struct batch_item *runs, int32_t n_run,
                     const float **logits, struct err *e) {
    struct lm *l = r->cards.lm;
    return l ? l->ops->run(l, runs, n_run, logits, e) : forward_run(r->f, runs, n_run, logits, e);
}

static int new_seq(struct rig *r, int32_t i, struct err *e) {
    struct lm *l = r->cards.lm;
    return l ? l->ops->seq_new(l, &r->seqs[i], e) : seq_new(&r->seqs[i], r->pool, e);
}

static void free_seq(struct rig *r, int32_t i) {
    struct lm *l = r->cards.lm;
    if (l) l->ops->seq_free(l, r->seqs[i]);
    else seq_free(r->seqs[i]);
    r->seqs[i] = NULL;
}

static int reset(struct rig *r, int32_t i, struct err *e) {
    if (!r->cards.lm) {
        seq_reset(r->seqs[i]);
        return 0;
    }
    free_seq(r, i);
    return new_seq(r, i, e);
}

static int select_rows(struct rig *r, struct err *e) {
    struct select_args select = {.rows = r->rows};
    struct lm *l = r->cards.lm;
    return l ? l->ops->select(l, &select, e) : forward_select(r->f, &select, e);
}

/* ---- the tests ---- */

static int prefill(struct rig *r, struct seq *s, int32_t n, struct err *e) {
    for (int32_t at = 0; at < n; at += r->batch) {
        int32_t n_tok = n - at < r->batch ? n - at : r->batch;
        const struct batch_item run = {.seq = s,
                                       .tokens = r->tokens + at,
                                       .n_tok = n_tok,
                                       .keep = r->keep,
                                       .want = at + n_tok == n ? WANT_LAST : WANT_NONE};
        const float *logits;
        /* rows that stay on the first of several devices add the time of their sums */
        bool stays = r->cards.lm && r->rows;
        int rc = run_batch(r, &run, 1, stays ? NULL : &logits, e);
        if (rc) return rc;
    }
    return 0;
}

static int decode(struct rig *r, int32_t n_seq, int32_t n, struct err *e) {
    int32_t next[512];
    struct batch_item runs[512];
    for (int32_t i = 0; i < n_seq; i++) next[i] = r->tokens[i];
    for (int32_t step = 0; step < n; step++) {
        for (int32_t i = 0; i < n_seq; i++)
            runs[i] = (struct batch_item){.seq = r->seqs[i],
                                          .tokens = &next[i],
                                          .n_tok = 1,
                                          .want = WANT_LAST,
                                          .keep = r->keep};
        const float *logits = NULL;
        int rc = run_batch(r, runs, n_seq, r->rows ? NULL : &logits, e);
        if (!rc && r->rows) rc = select_rows(r, e);
        if (rc) return rc;
        for (int32_t i = 0; i < n_seq; i++) {
            if (logits &&
                sampler_pick(r->sampler, logits + (int64_t)i * r->m->hp.n_vocab, NULL) < 0)
                return err_set(e, CHIMERE_ENUMERIC, "the model's output is not finite");
            next[i] =
                /* fixed ids, so that every engine has the same routing */
                r->tokens[(step * n_seq + i) % r->n_gen];
        }
    }
    return 0;
}

struct result {
    double median, sd; /* tokens per second */
    double joules;     /* per token, over all readable counters; NAN: not readable */
    double n_launch;   /* kernel launches per pass; 0: the device launches none */
    double pass_us;    /* median */
    int32_t n_op;      /* ops or kernels of one more pass, the longest first; 0: not timed */
    struct op_time ops[DEV_MAX_TIMES];
    struct load_stats load; /* weights loaded in that pass */
    struct tier_stats tier; /* over the measured repetitions; n_expert 0: no experts are on disk */
    struct bench_link link; /* what several devices exchanged; zeros on one */
    double seconds;         /* duration of the measured repetitions */
};

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct dev_stats stats_of(const struct rig *r) {
    struct dev_stats s = {0};
    if (r->m->dev->ops->stats) r->m->dev->ops->stats(r->m->dev, &s);
    return s;
}

/* Runs one more pass in which every op is timed: a decode step, or the whole prompt. */
static int time_ops(struct rig *r, int32_t n_seq, bool is_decode, struct result *out,
                    struct err *e) {
    const struct ops *ops = r->m->dev->ops;
    int rc = is_decode ? 0 : reset(r, 0, e);
    if (rc) return rc;
    struct load_stats before = stats_of(r).load;
    enum time_by by = r->by_kernel ? TIME_BY_KERNEL : TIME_BY_OP;
    ops->time_ops(r->m->dev, by, NULL);
    rc = is_decode ? decode(r, n_seq, 1, e) : prefill(r, r->seqs[0], r->n_prompt, e);
    out->n_op = ops->time_ops(r->m->dev, by, out->ops);
    out->load = stats_of(r).load;
    out->load.packed_bytes -= before.packed_bytes;
    out->load.copied_bytes -= before.copied_bytes;
    out->load.pack_us -= before.pack_us;
    out->load.copy_us -= before.copy_us;
    return rc ? rc : ops->status(r->m->dev, e);
}

/* Adds to out what was counted since `before`. */
static void add_tier(const struct rig *r, const struct tier_stats *before, struct tier_stats *out) {
    struct tier_stats now;
    if (!experts_stats(&r->m->weights.experts, &now)) return;
    out->n_hit += now.n_hit - before->n_hit;
    out->n_miss += now.n_miss - before->n_miss;
    out->n_pass += now.n_pass - before->n_pass;
    out->n_bytes += now.n_bytes - before->n_bytes;
    out->wait_ns += now.wait_ns - before->wait_ns;
    out->busy_ns += now.busy_ns - before->busy_ns;
    out->n_slot = now.n_slot;
    out->n_expert = now.n_expert;
    out->pool_bytes = now.pool_bytes;
    out->is_direct = now.is_direct;
    out->is_uring = now.is_uring;
    out->is_device = now.is_device;
}

static int measure(struct rig *r, int32_t n_seq, bool is_decode, struct result *out,
                   struct err *e) {
    double sum = 0, square = 0, used = 0;
    uint64_t n_launch = 0;
    struct energy_joules from, to;
    struct link_stats link = {0}, linked;
    bool has_energy = energy_now(&from);
    for (int32_t k = -1; k < r->n_repeat; k++) {
        for (int32_t i = 0; i < n_seq; i++) {
            int rc = reset(r, i, e);
            if (!rc) rc = prefill(r, r->seqs[i], r->depth, e);
            if (rc) return rc;
        }
        uint64_t before = stats_of(r).n_launch;
        struct tier_stats tier = {0};
        experts_stats(&r->m->weights.experts, &tier);
        if (!k) bench_cards_stats(&r->cards, &link);
        energy_now(&from);
        int64_t start = clock_ns();
        int rc = is_decode ? decode(r, n_seq, r->n_gen, e) : prefill(r, r->seqs[0], r->n_prompt, e);
        if (rc) return rc;
        double s = (double)(clock_ns() - start) * 1e-9;
        double rate = (is_decode ? (double)r->n_gen * n_seq : r->n_prompt) / s;
        n_launch = stats_of(r).n_launch - before;
        energy_now(&to);
        if (k < 0) continue;
        add_tier(r, &tier, &out->tier);
        out->seconds += s;
        used += energy_total(&to) - energy_total(&from);
        r->rates[k] = rate;
        sum += rate;
        square += rate * rate;
    }
    bench_cards_stats(&r->cards, &linked);
    out->link = bench_cards_link(&link, &linked, r->n_repeat * (is_decode ? r->n_gen : 1));
    qsort(r->rates, (size_t)r->n_repeat, sizeof *r->rates, by_size);
    double mean = sum / r->n_repeat, var = square / r->n_repeat - mean * mean;
    out->median = (r->rates[r->n_repeat / 2] + r->rates[(r->n_repeat - 1) / 2]) / 2;
    out->sd = sqrt(var > 0 ? var : 0);
    if (has_energy)
        out->joules = used / r->n_repeat / (is_decode ? (double)r->n_gen * n_seq : r->n_prompt);
    out->n_launch = (double)n_launch / (is_decode ? r->n_gen : 1);
    out->pass_us = 1e6 * (is_decode ? n_seq : r->n_prompt) / out->median;
    return r->by_op || r->by_kernel ? time_ops(r, n_seq, is_decode, out, e) : 0;
}

/* ---- output ---- */

/* Returns the power of the machine when idle, in watts; NAN if no counter is readable. */
static double idle_watts(void) {
    struct energy_joules a, b;
    if (!energy_now(&a)) return NAN;
    int64_t start = clock_ns();
    os_sleep_ms(IDLE_MS);
    energy_now(&b);
    return (energy_total(&b) - energy_total(&a)) / ((double)(clock_ns() - start) * 1e-9);
}

/* Returns the bytes that one token of one sequence reads: weights, states, and the keys and values of the depth
 * plus half of the generated tokens. */
static double bytes_per_tok(const struct rig *r) {
    return (double)model_bytes_per_tok(r->m) +
           (double)r->cache_bytes * (r->depth + (double)r->n_gen / 2);
}

static json_t *report_ops(const struct result *x) {
    json_t *a = json_array();
    for (int32_t i = 0; i < x->n_op; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "op", json_string(x->ops[i].name));
        json_object_set_new(o, "us", json_real(round(x->ops[i].us * 100) / 100));
        json_object_set_new(o, "launches", json_integer((json_int_t)x->ops[i].n_launch));
        if (x->ops[i].bytes)
            json_object_set_new(o, "bytes", json_integer((json_int_t)x->ops[i].bytes));
        json_array_append_new(a, o);
    }
    return a;
}

static double hit_rate(const struct tier_stats *t) {
    uint64_t n = t->n_hit + t->n_miss;
    return n ? (double)t->n_hit / (double)n : 0;
}

/* Of the disk or the bus, while reads are in progress. */
static double bytes_per_s(const struct result *x) {
    const struct tier_stats *t = &x->tier;
    return t->busy_ns > 0 ? (double)t->n_bytes / ((double)t->busy_ns * 1e-9) : 0;
}

static json_t *report_tier(const struct result *x) {
    const struct tier_stats *t = &x->tier;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:f, s:b, s:b}", "from",
                     t->is_device ? "host memory" : "disk", "slots", (json_int_t)t->n_slot,
                     "experts", (json_int_t)t->n_expert, "pool_bytes", (json_int_t)t->pool_bytes,
                     "hits", (json_int_t)t->n_hit, "misses", (json_int_t)t->n_miss, "hit_rate",
                     hit_rate(t), "misses_per_layer",
                     (double)t->n_miss / (double)(t->n_pass ? t->n_pass : 1), "read_bytes",
                     (json_int_t)t->n_bytes, "read_bytes_per_s", bytes_per_s(x), "waiting",
                     (double)t->wait_ns * 1e-9 / x->seconds, "direct", (int)t->is_direct,
                     "io_uring", (int)t->is_uring);
}

static void print_tier(const struct result *x) {
    const struct tier_stats *t = &x->tier;
    if (!t->n_expert) return;
    printf("    experts      %llu of %llu in %.2f GB, %.1f %% hits, %.2f misses per layer, %.2f GB "
           "read ",
           (unsigned long long)t->n_slot, (unsigned long long)t->n_expert,
           (double)t->pool_bytes * 1e-9, 100 * hit_rate(t),
           (double)t->n_miss / (double)(t->n_pass ? t->n_pass : 1), (double)t->n_bytes * 1e-9);
    printf("%s at %.2f GB/s, %.1f %% of the time waiting\n",
           t->is_device   ? "from host memory"
           : t->is_direct ? "from disk"
                          : "from disk through the page cache",
           1e-9 * bytes_per_s(x), 100 * (double)t->wait_ns * 1e-9 / x->seconds);
}

static json_t *report(const struct rig *r, bool is_decode, int32_t n_seq, const struct result *x) {
    double bytes = bytes_per_tok(r);
    json_t *o = json_object();
    json_object_set_new(o, "model", json_string(r->m->name));
    json_object_set_new(o, "test", json_string(is_decode ? "decode" : "prefill"));
    json_object_set_new(o, "n_prompt", json_integer(is_decode ? 0 : r->n_prompt));
    json_object_set_new(o, "n_gen", json_integer(is_decode ? r->n_gen : 0));
    json_object_set_new(o, "depth", json_integer(r->depth));
    json_object_set_new(o, "n_seq", json_integer(n_seq));
    if (r->n_sm) json_object_set_new(o, "multiprocessors", json_integer(r->n_sm));
    json_object_set_new(o, "tok_s", json_real(round(x->median * 100) / 100));
    json_object_set_new(o, "tok_s_sd", json_real(round(x->sd * 100) / 100));
    json_object_set_new(o, "bytes_per_tok", json_integer((json_int_t)bytes));
    uint64_t host = r->m->weights.host_bytes_per_tok;
    if (host) json_object_set_new(o, "host_bytes_per_tok", json_integer((json_int_t)host));
    if (is_decode && n_seq == 1 && r->bandwidth > 0 && !host)
        json_object_set_new(o, "bandwidth_fraction",
                            json_real(round(x->median * bytes / r->bandwidth * 1e4) / 1e4));
    json_object_set_new(o, "bandwidth", json_integer((json_int_t)r->bandwidth));
    if (x->n_launch > 0) json_object_set_new(o, "launches", json_real(x->n_launch));
    if (x->n_op) json_object_set_new(o, "ops", report_ops(x));
    if (x->link.n_sum > 0) json_object_set_new(o, "link", bench_cards_report(&x->link));
    if (x->tier.n_expert) json_object_set_new(o, "tier", report_tier(x));
    if (isfinite(x->joules)) json_object_set_new(o, "joules_per_tok", json_real(x->joules));
    if (isfinite(r->idle_watts)) json_object_set_new(o, "idle_watts", json_real(r->idle_watts));
    return o;
}

static void print_ops(const struct result *x) {
    double sum = 0;
    uint64_t n = 0;
    for (int32_t i = 0; i < x->n_op; i++) {
        sum += x->ops[i].us;
        n += x->ops[i].n_launch;
    }
    printf("    %-28s %10s %7s %8s\n", "op", "us", "share", "launches");
    for (int32_t i = 0; i < x->n_op; i++) {
        const struct op_time *t = &x->ops[i];
        double each = t->us / (double)t->n_launch, bytes = (double)t->bytes;
        printf("    %-28s %10.1f %5.1f %% %8llu", t->name, t->us, sum > 0 ? 100 * t->us / sum : 0,
               (unsigned long long)t->n_launch);
        if (t->bytes)
            printf("  each %7.2f us by %8.3f MB, %5.0f GB/s", each, bytes * 1e-6,
                   bytes * 1e-3 / each);
        putchar('\n');
    }
    printf("    %-28s %10.1f %15llu; %.1f us by the clock when they overlap\n", "all", sum,
           (unsigned long long)n, x->pass_us);
}

/* Prints the weights that were loaded during the pass, concurrently with the ops. */
static void print_load(const struct load_stats *l) {
    if (!l->packed_bytes || !(l->pack_us > 0) || !(l->copy_us > 0)) return;
    printf("    beside them  %10.1f us: %d threads rearranged %.2f GB, %.1f GB/s\n", l->pack_us,
           l->n_thread, (double)l->packed_bytes * 1e-9,
           (double)l->packed_bytes * 1e-3 / l->pack_us);
    printf("    %-12s %10.1f us: the bus brought %.2f GB, %.1f GB/s\n", "", l->copy_us,
           (double)l->copied_bytes * 1e-9, (double)l->copied_bytes * 1e-3 / l->copy_us);
}

static void print_row(const struct rig *r, bool is_decode, int32_t n_seq, const struct result *x) {
    char test[48];
    if (is_decode) snprintf(test, sizeof test, "decode %d", r->n_gen);
    else snprintf(test, sizeof test, "prefill %d", r->n_prompt);
    printf("%-32.32s  %-14s %6d %5d %12.2f +- %-8.2f", r->m->name, test, r->depth, n_seq, x->median,
           x->sd);
    double bytes = bytes_per_tok(r), host = (double)r->m->weights.host_bytes_per_tok;
    if (is_decode && n_seq == 1 && host > 0)
        printf(" %.3f GB by the GPU, %.3f GB by the processor", (bytes - host) * 1e-9, host * 1e-9);
    else if (is_decode && n_seq == 1 && r->bandwidth > 0)
        printf(" %5.1f %% of %.1f GB/s by %.3f GB", 100 * x->median * bytes / r->bandwidth,
               r->bandwidth * 1e-9, bytes * 1e-9);
    if (x->n_launch > 0)
        printf("%s%.0f launches", is_decode && n_seq == 1 ? ", " : "  ", x->n_launch);
    if (isfinite(x->joules)) printf("  %.4g J/token", x->joules);
    putchar('\n');
    if (x->n_op) print_ops(x);
    if (x->link.n_sum > 0) bench_cards_print(&x->link, x->pass_us);
    print_tier(x);
    print_load(&x->load);
    fflush(stdout);
}

static int run_test(struct rig *r, bool is_decode, int32_t n_seq, json_t *array, struct err *e) {
    struct result x = {.joules = NAN};
    int rc = measure(r, n_seq, is_decode, &x, e);
    if (rc) return rc;
    if (array) json_array_append_new(array, report(r, is_decode, n_seq, &x));
    else print_row(r, is_decode, n_seq, &x);
    if (!r->card) return 0;
    struct card_run run = {.n_sm = r->n_sm,
                           .n_seq = n_seq,
                           .n_prompt = is_decode ? 0 : r->n_prompt,
                           .n_kernel = x.n_op,
                           .us = x.pass_us};
    memcpy(run.kernels, x.ops, sizeof run.kernels);
    return bench_card_add(&r->runs, &run, e);
}

static int parse_list(const char *option, const char *s, int32_t least, int32_t *out, int32_t max,
                      int32_t *n, struct err *e) {
    while (*s) {
        size_t len = strcspn(s, ",");
        char num[16];
        int64_t v;
        snprintf(num, sizeof num, "%.*s", (int)(len < 15 ? len : 15), s);
        if (!str_to_i64(num, least, 256, &v) || *n == max)
            return err_set(e, CHIMERE_EINVAL, "%s: expected numbers from %d to 256, got '%s'",
                           option, least, num);
        out[(*n)++] = (int32_t)v;
        s += len + (s[len] == ',');
    }
    return *n ? 0 : err_set(e, CHIMERE_EINVAL, "%s: expected a list of numbers", option);
}

/* Returns the number of positions of the longest test, for one sequence. */
static int64_t longest_test(const struct rig *r) {
    return (int64_t)r->depth + (r->n_prompt > r->n_gen ? r->n_prompt : r->n_gen) + KV_PAGE;
}

/* Places the model as run and serve do, so that the results apply to them. */
static int open_model(struct rig *r, const struct cfg *c, struct dev **dev, struct err *e) {
    struct plan_params want = {.n_ctx = longest_test(r), .n_seq = r->n_seq, .full_ctx = true};
    struct memory_plan plan = {0};
    engine_defaults(&want.engine);
    if (r->verifies) {
        int64_t n_ctx = bench_speculate_ctx(&r->speculate);
        int32_t n_seq = bench_speculate_seqs(&r->speculate);
        if (n_ctx > want.n_ctx) want.n_ctx = n_ctx;
        if (n_seq > want.n_seq) want.n_seq = n_seq;
        want.engine.n_draft_max = r->speculate.n_rate;
        want.engine.n_draft_head = r->speculate.n_head;
    }
    want.engine.n_batch = (int32_t)cfg_int(c, "batch");
    want.engine.k_type = model_args_type(c, "cache-type-k");
    want.engine.v_type = model_args_type(c, "cache-type-v");
    if (cfg_has(c, "gpus") && cfg_str(c, "gpus")) {
        want.n_ctx = longest_test(r);
        int rc = bench_cards_open(&r->cards, c, &want, e);
        r->m = r->cards.loaded.model;
        *dev = r->cards.loaded.dev;
        r->batch = r->cards.loaded.plan.engine.n_batch;
        return rc;
    }
    int rc = model_args_open_planned(c, &want, &plan, dev, &r->m, e);
    r->batch = plan.engine.n_batch;
    return rc;
}

static int replay(struct rig *r, const struct cfg *c, struct err *e) {
    struct routing_shape shape = routing_shape_of(&r->m->hp);
    int rc = shape.n_mixture
                 ? routing_open(&r->routing, cfg_str(c, "routing"), &shape,
                                (uint64_t)cfg_int(c, "routing-seed"), e)
                 : err_set(e, CHIMERE_EINVAL, "--routing: %s has no experts", r->m->name);
    return rc ? rc : experts_replay(forward_experts(r->f), r->routing, r->n_seq, e);
}

static int read_speculate(struct rig *r, const struct cfg *c, const int32_t *parallel,
                          int32_t n_parallel, struct err *e) {
    const char *rates = cfg_str(c, "speculate-as");
    r->verifies = rates || cfg_bool(c, "verify");
    r->speculate = (struct bench_speculate){.has_table = cfg_bool(c, "verify"),
                                            .k_type = model_args_type(c, "cache-type-k"),
                                            .v_type = model_args_type(c, "cache-type-v"),
                                            .depth = r->depth,
                                            .n_gen = r->n_gen,
                                            .n_repeat = r->n_repeat,
                                            .n_head = (int32_t)cfg_int(c, "draft-head"),
                                            .parallel = parallel,
                                            .n_parallel = n_parallel};
    return rates ? bench_speculate_rates(&r->speculate, rates, e) : 0;
}

static int set_up(struct rig *r, const struct cfg *c, struct err *e) {
    int64_t longest = longest_test(r);
    const struct seq_pool_params params = {.n_slot = r->n_seq,
                                           .n_ctx = longest * r->n_seq,
                                           .k_type = model_args_type(c, "cache-type-k"),
                                           .v_type = model_args_type(c, "cache-type-v")};
    int rc = r->cards.lm ? 0 : seq_pool_new(&r->pool, r->m, &params, e);
    if (!rc && !r->cards.lm)
        rc = forward_new(&r->f, r->m, r->pool, r->batch > r->n_seq ? r->batch : r->n_seq, r->n_seq,
                         e);
    if (!rc && cfg_str(c, "routing")) rc = replay(r, c, e);
    struct seq_pool_params one = params, two = params;
    one.n_ctx = 64 * KV_PAGE;
    two.n_ctx = 128 * KV_PAGE;
    r->cache_bytes = (seq_pool_bytes(r->m, &two) - seq_pool_bytes(r->m, &one)) / (64 * KV_PAGE);
    r->rates = mem_alloc_array((size_t)r->n_repeat, sizeof *r->rates);
    r->seqs = mem_alloc_array((size_t)r->n_seq, sizeof *r->seqs);
    r->tokens = mem_alloc_array((size_t)longest + 512, sizeof *r->tokens);
    const struct lm *l = r->cards.lm;
    bool selects = l ? l->ops->select != NULL : !r->m->dev->ops->is_host;
    if (selects) r->rows = mem_alloc_array((size_t)r->n_seq, sizeof *r->rows);
    if (!rc && (!r->rates || !r->seqs || !r->tokens || (selects && !r->rows)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct sampler_params greedy;
    sampler_defaults(&greedy);
    greedy.temperature = 0;
    if (!rc) rc = sampler_new(&r->sampler, &greedy, r->m->hp.n_vocab, NULL, e);
    for (int32_t i = 0; !rc && i < r->n_seq; i++) rc = new_seq(r, i, e);
    struct rng rng;
    rng_seed(&rng, 1);
    for (int64_t i = 0; !rc && i < longest + 512; i++)
        r->tokens[i] = (int32_t)rng_below(&rng, (uint64_t)r->m->hp.n_vocab);
    return rc;
}

static void tear_down(struct rig *r) {
    for (int32_t i = 0; r->seqs && i < r->n_seq; i++) free_seq(r, i);
    sampler_free(r->sampler);
    forward_free(r->f);
    routing_free(r->routing);
    seq_pool_free(r->pool);
    mem_free(r->seqs);
    mem_free(r->rows);
    mem_free(r->rates);
    mem_free(r->tokens);
    r->sampler = NULL, r->f = NULL, r->pool = NULL, r->seqs = NULL;
    r->rows = NULL, r->rates = NULL, r->tokens = NULL, r->routing = NULL;
}

/* --card: which one; its multiprocessors, if --sms gives none, then all of this card's and as many as it has. */
static int read_card(struct rig *r, const struct cfg *c, struct err *e) {
    const char *name = cfg_str(c, "card");
    r->card = name ? ramp_card_find(name) : NULL;
    if (name && !r->card) {
        err_set(e, CHIMERE_ENOENT, "--card: no card named '%.60s'", name);
        err_hint(e, "one of the names of ramp --card, such as rtx-5060-ti-16g or h100-80g");
        return CHIMERE_ENOENT;
    }
    if (!name) return 0;
    r->by_kernel = true;
    if (r->n_sms == 1 && !r->sms[0]) r->sms[r->n_sms++] = r->card->n_sm;
    if (r->n_sms < 2)
        return err_set(e, CHIMERE_EINVAL, "--card: expected several numbers in --sms");
    return 0;
}

/* Makes the device use so many multiprocessors, 0: all. */
static int limit(struct rig *r, int32_t n_sm, bool prints, struct err *e) {
    struct dev *d = r->m->dev;
    if (r->n_sms == 1 && !n_sm) return 0;
    if (!d->ops->limit)
        return err_set(e, CHIMERE_EUNSUPPORTED, "--sms: device %s has no multiprocessors",
                       d->ops->name);
    r->n_sm = d->ops->limit(d, n_sm, e);
    if (!r->n_sm) return e->code;
    if (prints) printf("%d multiprocessors\n", r->n_sm);
    return 0;
}

static int run_all(struct rig *r, const int32_t *parallel, int32_t n_parallel, json_t *array,
                   struct err *e) {
    if (!array) printf("%-32s  %-14s %6s %5s %12s\n", "model", "test", "depth", "seqs", "tok/s");
    int rc = 0;
    r->idle_watts = idle_watts();
    for (int32_t k = 0; !rc && k < r->n_sms; k++) {
        rc = limit(r, r->sms[k], !array, e);
        if (!rc && r->n_prompt) rc = run_test(r, false, 1, array, e);
        for (int32_t i = 0; !rc && r->n_gen && i < n_parallel; i++)
            rc = run_test(r, true, parallel[i], array, e);
    }
    if (!rc && r->card) {
        const struct ramp_card *here = card_of(bench_card_sms(&r->runs), r->bandwidth);
        if (!here) return err_set(e, CHIMERE_EUNSUPPORTED, "--card: this GPU's clock is not known");
        bench_card_print(&r->runs, here, r->card, array);
    }
    if (!rc && r->verifies) {
        r->speculate.m = r->m;
        r->speculate.batch = r->batch;
        tear_down(r); /* the plan has memory for only one pool */
        rc = bench_speculate_run(&r->speculate, array, e);
    }
    return rc;
}

int bench_rows(const struct cfg *c, json_t *rows, struct err *e) {
    struct dev *dev = NULL;
    int32_t parallel[32], n_parallel = 0;
    struct rig r = {.depth = (int32_t)cfg_int(c, "depth"),
                    .n_prompt = (int32_t)cfg_int(c, "prompt"),
                    .n_gen = (int32_t)cfg_int(c, "gen"),
                    .n_repeat = (int32_t)cfg_int(c, "repeat"),
                    .by_op = cfg_bool(c, "by-op"),
                    .by_kernel = cfg_bool(c, "by-kernel"),
                    .keep = model_args_keep(c),
                    .n_seq = 1};
    int rc = parse_list("--parallel", cfg_str(c, "parallel"), 1, parallel, 32, &n_parallel, e);
    if (!rc) rc = parse_list("--sms", cfg_str(c, "sms"), 0, r.sms, 8, &r.n_sms, e);
    for (int32_t i = 0; i < n_parallel; i++)
        if (parallel[i] > r.n_seq) r.n_seq = parallel[i];
    if (!rc) rc = read_card(&r, c, e);
    if (!rc) rc = read_speculate(&r, c, parallel, n_parallel, e);
    if (!rc) rc = open_model(&r, c, &dev, e);
    if (rc) return rc;
    if ((r.by_op || r.by_kernel) && !dev->ops->time_ops)
        rc = err_set(e, CHIMERE_EUNSUPPORTED, "--by-op: device %s does not time its ops",
                     dev->ops->name);
    r.bandwidth = cfg_is_set(c, "bandwidth") ? cfg_float(c, "bandwidth") * 1e9
                                             : dev->ops->read_bandwidth(dev);
    if (!rc) rc = set_up(&r, c, e);
    if (!rc) rc = run_all(&r, parallel, n_parallel, rows, e);
    tear_down(&r);
    bench_card_free(&r.runs);
    if (r.cards.lm) {
        bench_cards_close(&r.cards);
        return rc;
    }
    model_close(r.m);
    dev->ops->close(dev);
    return rc;
}

int cmd_bench(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, bench_options,
                   "usage: chimere bench [-m FILE] [-p N] [-n N] [-d N] [--parallel 1,4,8]\n"
                   "                     [--verify] [--speculate-as 0.88,0.8] [--json]\n"
                   "       chimere bench --url URL [-p N] [-n N] [--concurrency 1,8] [--rate N] "
                   "[--requests N]",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    json_t *rows = cfg_bool(c, "json") ? json_array() : NULL;
    int rc = cfg_str(c, "url") ? bench_url(c, &e) : bench_rows(c, rows, &e);
    if (!rc && rows && !cfg_str(c, "url")) {
        json_dumpf(rows, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
        putchar('\n');
    }
    json_decref(rows);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
