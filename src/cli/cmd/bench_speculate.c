#include "cli/cmd/bench_speculate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "engine/draft/drafter.h"
#include "engine/sampler/sampler.h"
#include "engine/draft/spec_cost.h"
#include "model/forward.h"

static const int32_t batches[] = {1, 4, BENCH_MAX_BATCH};
enum { N_BATCH = 3, MAX_SEQ = 256, MAX_STEPS = 64, LOOK_AHEAD = KV_PAGE };

struct rig {
    const struct bench_speculate *b;
    struct seq_pool *pool;
    struct forward *f;
    struct drafter *drafter; /* owned; NULL: the model has none */
    struct seq **seqs;       /* owned [n_seq] */
    int32_t n_seq, n_step;
    struct sampler *sampler;        /* owned; greedy */
    struct select_row *rows;        /* owned; NULL: complete rows are read in place */
    struct drafter_request *drafts; /* owned [n_seq] */
    struct batch_item *runs;        /* owned [n_seq] */
    int32_t *n_kept;                /* owned [n_seq] */
    bool *follow;                   /* owned [n_seq] */
    int32_t *tokens;                /* owned [n_token] */
    int32_t n_token;
    double *times; /* owned [BENCH_MAX_VERIFY, n_repeat * n_step] */
    struct rng rng;
};

int bench_speculate_rates(struct bench_speculate *b, const char *list, struct err *e) {
    b->n_rate = 0;
    for (const char *s = list; *s || s == list;) {
        size_t len = strcspn(s, ",");
        char num[32];
        double v;
        snprintf(num, sizeof num, "%.*s", (int)(len < 31 ? len : 31), s);
        if (!str_to_f64(num, 0, 1, &v))
            return err_set(e, CHIMERE_EINVAL,
                           "--speculate-as: expected rates from 0 to 1, got '%s'", num);
        if (b->n_rate == BENCH_MAX_RATES)
            return err_set(e, CHIMERE_ELIMIT, "--speculate-as: expected at most %d rates",
                           BENCH_MAX_RATES);
        b->rates[b->n_rate++] = v;
        s += len;
        if (*s == ',' && !*++s)
            return err_set(e, CHIMERE_EINVAL,
                           "--speculate-as: expected a rate after the last comma");
    }
    return 0;
}

static int32_t n_steps(const struct bench_speculate *b) {
    return b->n_gen < 1 ? 1 : b->n_gen < MAX_STEPS ? b->n_gen : MAX_STEPS;
}

int32_t bench_speculate_seqs(const struct bench_speculate *b) {
    int32_t most = b->has_table ? BENCH_MAX_BATCH : 1;
    for (int32_t i = 0; b->n_rate && i < b->n_parallel; i++)
        if (b->parallel[i] > most) most = b->parallel[i];
    return most;
}

/* A round keeps at most all tokens that it verified. */
int64_t bench_speculate_ctx(const struct bench_speculate *b) {
    int64_t n = (int64_t)b->depth + (int64_t)n_steps(b) * (b->n_rate + 1) + LOOK_AHEAD;
    return (n + KV_PAGE - 1) / KV_PAGE * KV_PAGE;
}

/* ---- steps ---- */

static void observe(struct rig *r, int32_t n_seq, struct err *e) {
    if (r->drafter) r->drafter->ops->observe(r->drafter, r->runs, r->n_kept, r->follow, n_seq, e);
}

/* Returns to the depth at which the next step begins. */
static int rewind_all(struct rig *r, int32_t n_seq, struct err *e) {
    const struct bench_speculate *b = r->b;
    int rc = 0;
    for (int32_t i = 0; i < n_seq && !rc; i++) {
        seq_reset(r->seqs[i]);
        if (r->drafter) r->drafter->ops->rewind(r->drafter, r->seqs[i]);
        for (int32_t at = 0; at < b->depth && !rc; at += b->batch) {
            int32_t n = b->depth - at < b->batch ? b->depth - at : b->batch;
            r->runs[0] = (struct batch_item){.seq = r->seqs[i],
                                             .tokens = r->tokens + at,
                                             .n_tok = n,
                                             .want = at + n == b->depth ? WANT_LAST : WANT_NONE};
            r->n_kept[0] = n;
            const float *logits;
            rc = forward_run(r->f, r->runs, 1, &logits, e);
            if (!rc) observe(r, 1, e);
        }
    }
    return rc;
}

/* Returns the fixed ids of a step, so that every depth and every engine has the same routing. */
static const int32_t *ids_of(const struct rig *r, int32_t step, int32_t i, int32_t n) {
    return r->tokens + (int32_t)(((int64_t)step * 131 + (int64_t)i * 17) % (r->n_token - n));
}

static int draft(struct rig *r, int32_t n_seq, int32_t step, int32_t k, struct err *e) {
    if (!r->drafter || !k) return 0;
    for (int32_t i = 0; i < n_seq; i++)
        r->drafts[i] = (struct drafter_request){
            .seq = r->seqs[i], .next = *ids_of(r, step, i, k + 1), .n_draft = k};
    return r->drafter->ops->draft(r->drafter, r->drafts, n_seq, e);
}

/* Runs one step that verifies n tokens of each sequence, and chooses a token from each row. */
static int verify(struct rig *r, int32_t n_seq, int32_t step, int32_t n, struct err *e) {
    const float *logits = NULL;
    struct select_args select = {.rows = r->rows};
    for (int32_t i = 0; i < n_seq; i++)
        r->runs[i] = (struct batch_item){.seq = r->seqs[i],
                                         .tokens = ids_of(r, step, i, n),
                                         .n_tok = n,
                                         .defer = n > 1,
                                         .want = WANT_ALL};
    int rc = forward_run(r->f, r->runs, n_seq, r->rows ? NULL : &logits, e);
    if (!rc && r->rows) rc = forward_select(r->f, &select, e);
    for (int32_t i = 0; logits && !rc && i < n_seq * n; i++)
        if (sampler_pick(r->sampler, logits + (int64_t)i * r->b->m->hp.n_vocab, NULL) < 0)
            rc = err_set(e, CHIMERE_ENUMERIC, "the model's output is not finite");
    return rc;
}

/* Draws how many tokens of a draft of k are accepted in this round. */
static int32_t draw_accepted(struct rig *r, int32_t k) {
    int32_t n = 0;
    while (n < k && rng_uniform(&r->rng) < r->b->rates[n]) n++;
    return n;
}

static int32_t keep(struct rig *r, int32_t n_seq, int32_t n, bool simulate) {
    int32_t sum = 0;
    for (int32_t i = 0; i < n_seq; i++) {
        r->n_kept[i] = 1 + (simulate ? draw_accepted(r, n - 1) : 0);
        if (n > r->n_kept[i]) seq_drop(r->seqs[i], n - r->n_kept[i]);
        sum += r->n_kept[i];
    }
    return sum;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int32_t n) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return (x[n / 2] + x[(n - 1) / 2]) / 2;
}

/* ---- the table ---- */

/* Runs n_step steps that verify n tokens of each sequence and keep one, after one more step as warm-up. */
static int time_verify(struct rig *r, int32_t n_seq, int32_t n, double *times, struct err *e) {
    int rc = rewind_all(r, n_seq, e);
    for (int32_t step = 0; step <= r->n_step && !rc; step++) {
        int64_t start = clock_ns();
        rc = verify(r, n_seq, step, n, e);
        if (step) times[step - 1] = clock_ms_since(start);
        if (!rc) keep(r, n_seq, n, false);
    }
    return rc;
}

/* Computes the median ms of the steps, ms[1..BENCH_MAX_VERIFY]. The lengths alternate, so that a change of the
 * machine's speed affects all of them. */
static int time_all(struct rig *r, int32_t n_seq, double *ms, struct err *e) {
    int32_t n_time = r->b->n_repeat * r->n_step;
    for (int32_t k = 0; k < r->b->n_repeat; k++)
        for (int32_t n = 1; n <= BENCH_MAX_VERIFY; n++) {
            double *times =
                r->times + (size_t)(n - 1) * (size_t)n_time + (size_t)k * (size_t)r->n_step;
            int rc = time_verify(r, n_seq, n, times, e);
            if (rc) return rc;
        }
    for (int32_t n = 1; n <= BENCH_MAX_VERIFY; n++)
        ms[n] = median(r->times + (size_t)(n - 1) * (size_t)n_time, n_time);
    return 0;
}

static void report_verify(json_t *array, int32_t n_seq, const double *ms) {
    for (int32_t n = 1; array && n <= BENCH_MAX_VERIFY; n++)
        json_array_append_new(array, json_pack("{ss si si sf sf}", "test", "verify", "n_seq", n_seq,
                                               "n_tok", n, "ms", ms[n], "ratio", ms[n] / ms[1]));
    if (array) return;
    printf("%-9d %8.3f ", n_seq, ms[1]);
    for (int32_t n = 1; n <= BENCH_MAX_VERIFY; n++) printf(" %6.2f", ms[n] / ms[1]);
    putchar('\n');
    fflush(stdout);
}

static int print_table(struct rig *r, json_t *array, struct err *e) {
    if (!array) {
        printf("\nt_verify(n) / t_1: a step that verifies n tokens of each sequence\n%-9s %8s ",
               "sequences", "t_1 ms");
        for (int32_t n = 1; n <= BENCH_MAX_VERIFY; n++) printf(" %6d", n);
        putchar('\n');
    }
    for (int32_t k = 0; k < N_BATCH; k++) {
        double ms[BENCH_MAX_VERIFY + 1] = {0};
        int rc = time_all(r, batches[k], ms, e);
        if (rc) return rc;
        report_verify(array, batches[k], ms);
    }
    return 0;
}

/* ---- the simulation ---- */

struct arm { /* the result for one draft depth */
    double tok_s, tokens_per_round, round_ms;
};

/* Runs n_step rounds of depth k; adds to tokens and seconds. */
static int run_rounds(struct rig *r, int32_t n_seq, int32_t k, double *tokens, double *s,
                      struct err *e) {
    int rc = rewind_all(r, n_seq, e);
    for (int32_t step = 0; step <= r->n_step && !rc; step++) {
        int64_t start = clock_ns();
        rc = draft(r, n_seq, step, k, e);
        if (!rc) rc = verify(r, n_seq, step, 1 + k, e);
        if (rc) break;
        int32_t n = keep(r, n_seq, 1 + k, true);
        if (k) observe(r, n_seq, e); /* plain decoding does not need the drafter */
        if (!step) continue;         /* warm-up */
        *tokens += n;
        *s += (double)(clock_ns() - start) * 1e-9;
    }
    return rc;
}

/* The depths alternate, so that a change of the machine's speed affects all of them. A repetition that is not measured
 * comes first: on a GPU, rounds have dozens of lists of launches, each of which is recorded as a graph at its second use. */
static int simulate(struct rig *r, int32_t n_seq, struct arm *arms, struct err *e) {
    int32_t n_arm = r->b->n_rate + 1;
    double *rates = mem_zalloc((size_t)n_arm * (size_t)r->b->n_repeat * sizeof *rates);
    double tokens[BENCH_MAX_RATES + 1] = {0}, s[BENCH_MAX_RATES + 1] = {0};
    int rc = rates ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = -1; i < r->b->n_repeat && !rc; i++)
        for (int32_t k = 0; k < n_arm && !rc; k++) {
            double t = 0, time = 0;
            rc = run_rounds(r, n_seq, k, &t, &time, e);
            if (i < 0) continue;
            rates[k * r->b->n_repeat + i] = t / time;
            tokens[k] += t, s[k] += time;
        }
    double n_round = (double)r->b->n_repeat * r->n_step * n_seq;
    for (int32_t k = 0; k < n_arm && !rc; k++)
        arms[k] = (struct arm){.tok_s = median(rates + k * r->b->n_repeat, r->b->n_repeat),
                               .tokens_per_round = tokens[k] / n_round,
                               .round_ms = 1e3 * s[k] / ((double)r->b->n_repeat * r->n_step)};
    mem_free(rates);
    return rc;
}

static void report_arm(const struct rig *r, json_t *array, int32_t n_seq, int32_t k,
                       const struct arm *arms) {
    double gain = arms[k].tok_s / arms[0].tok_s, expected = spec_expected(r->b->rates, k);
    if (array)
        json_array_append_new(array,
                              json_pack("{ss si si sf sf sf sf sf}", "test", "speculate", "n_seq",
                                        n_seq, "n_draft", k, "tokens_per_round",
                                        arms[k].tokens_per_round, "expected", expected, "round_ms",
                                        arms[k].round_ms, "tok_s", arms[k].tok_s, "gain", gain));
    else
        printf("%-9d %5d %9.3f %9.3f %9.3f %10.2f %6.2f\n", n_seq, k, arms[k].tokens_per_round,
               expected, arms[k].round_ms, arms[k].tok_s, gain);
}

static int print_simulation(struct rig *r, int32_t n_seq, json_t *array, struct err *e) {
    struct arm arms[BENCH_MAX_RATES + 1];
    double cost[BENCH_MAX_RATES + 1], gain;
    int rc = simulate(r, n_seq, arms, e);
    if (rc) return rc;
    for (int32_t k = 0; k <= r->b->n_rate; k++) {
        report_arm(r, array, n_seq, k, arms);
        cost[k] = arms[k].round_ms;
    }
    int32_t best = spec_best_depth(r->b->rates, cost, r->b->n_rate, &gain);
    if (array)
        json_array_append_new(array, json_pack("{ss si si sf}", "test", "best depth", "n_seq",
                                               n_seq, "n_draft", best, "gain", gain));
    else printf("%-9d best depth %d, %.2f x plain by expected tokens\n", n_seq, best, gain);
    fflush(stdout);
    return 0;
}

static int print_simulations(struct rig *r, json_t *array, struct err *e) {
    int rc = 0;
    if (!array)
        printf("\nsimulated acceptance, drafts by %s\n%-9s %5s %9s %9s %9s %10s %6s\n",
               r->drafter ? r->drafter->ops->name : "nothing (free)", "sequences", "draft",
               "tok/round", "expected", "round ms", "tok/s", "gain");
    for (int32_t i = 0; i < r->b->n_parallel && !rc; i++)
        rc = print_simulation(r, r->b->parallel[i], array, e);
    return rc;
}

/* ---- the rig ---- */

/* Returns the number of rows of logits of the largest step. */
static int32_t n_rows(const struct rig *r) {
    int32_t n = r->n_seq * (r->b->n_rate + 1);
    int32_t table = r->b->has_table ? BENCH_MAX_BATCH * BENCH_MAX_VERIFY : 0;
    return n > table ? n : table;
}

static int alloc_rig(struct rig *r, struct err *e) {
    size_t n = (size_t)r->n_seq, n_row = (size_t)n_rows(r);
    r->n_token = (r->b->depth > 4096 ? r->b->depth : 4096) + STEP_MAX_TOK;
    r->seqs = mem_alloc_array(n, sizeof *r->seqs);
    r->drafts = mem_alloc_array(n, sizeof *r->drafts);
    r->runs = mem_alloc_array(n, sizeof *r->runs);
    r->n_kept = mem_alloc_array(n, sizeof *r->n_kept);
    r->follow = mem_alloc_array(n, sizeof *r->follow);
    r->tokens = mem_alloc_array((size_t)r->n_token, sizeof *r->tokens);
    r->times = mem_alloc_array((size_t)r->b->n_repeat * (size_t)r->n_step,
                               BENCH_MAX_VERIFY * sizeof *r->times);
    bool selects = !r->b->m->dev->ops->is_host;
    if (selects) r->rows = mem_alloc_array(n_row, sizeof *r->rows);
    return r->seqs && r->drafts && r->runs && r->n_kept && r->follow && r->tokens && r->times &&
                   (r->rows || !selects)
               ? 0
               : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

static int open_rig(struct rig *r, struct err *e) {
    const struct bench_speculate *b = r->b;
    int64_t n_ctx = bench_speculate_ctx(b);
    const struct seq_pool_params params = {.n_slot = r->n_seq,
                                           .n_ctx = n_ctx * r->n_seq,
                                           .n_ctx_seq = n_ctx,
                                           .k_type = b->k_type,
                                           .v_type = b->v_type,
                                           .log = true};
    int32_t n_out = n_rows(r);
    int rc = alloc_rig(r, e);
    if (!rc) rc = seq_pool_new(&r->pool, b->m, &params, e);
    if (!rc) rc = forward_new(&r->f, b->m, r->pool, b->batch > n_out ? b->batch : n_out, n_out, e);
    const struct drafter_params draft = {
        .m = b->m, .f = r->f, .n_seq = r->n_seq, .select = r->rows != NULL, .n_head = b->n_head};
    if (!rc && b->n_rate) rc = drafter_open(&r->drafter, &draft, e);
    struct sampler_params greedy;
    sampler_defaults(&greedy);
    greedy.temperature = 0;
    if (!rc) rc = sampler_new(&r->sampler, &greedy, b->m->hp.n_vocab, NULL, e);
    for (int32_t i = 0; !rc && i < r->n_seq; i++) rc = seq_new(&r->seqs[i], r->pool, e);
    rng_seed(&r->rng, 1);
    for (int32_t i = 0; !rc && i < r->n_token; i++)
        r->tokens[i] = (int32_t)rng_below(&r->rng, (uint64_t)b->m->hp.n_vocab);
    for (int32_t i = 0; !rc && i < r->n_seq; i++) r->follow[i] = true;
    return rc;
}

static void close_rig(struct rig *r) {
    for (int32_t i = 0; r->seqs && i < r->n_seq; i++) seq_free(r->seqs[i]);
    sampler_free(r->sampler);
    if (r->drafter) r->drafter->ops->close(r->drafter);
    forward_free(r->f);
    seq_pool_free(r->pool);
    mem_free(r->seqs);
    mem_free(r->drafts);
    mem_free(r->runs);
    mem_free(r->n_kept);
    mem_free(r->follow);
    mem_free(r->tokens);
    mem_free(r->times);
    mem_free(r->rows);
}

int bench_speculate_run(const struct bench_speculate *b, json_t *array, struct err *e) {
    struct rig r = {.b = b, .n_seq = bench_speculate_seqs(b), .n_step = n_steps(b)};
    int rc = open_rig(&r, e);
    if (!rc && b->has_table) rc = print_table(&r, array, e);
    if (!rc && b->n_rate) rc = print_simulations(&r, array, e);
    close_rig(&r);
    return rc;
}
