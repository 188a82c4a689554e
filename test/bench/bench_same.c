/* bench_same.c: whether drafts change greedy text, on many prompts.
 *
 *   bench_same [MODEL [PROMPTS [TYPE [N]]]]      default: chimere-nano, train/dflash/prompts.txt, f16, 200
 *
 * Each prompt, a line of PROMPTS, is answered at temperature 0 without drafts, with drafts where the engine expects them to
 * pay, and with drafts always; every fourth answer is under a JSON schema. TYPE: of the cache, f16 or q8_0. A text that
 * differs is a tie if, where it first does, the logits of the two tokens differ by at most 1 % of the range of all logits.
 * Exit status 1: a text differs and is no tie, or any text differs on a processor. Environment: DRAFT, file of a drafter that
 * drafts in place of the model's prediction blocks; DEVICE, cpu (default) or cuda. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/request_grammar.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/quant.h"
#include "kernels/device.h"
#include "model/forward.h"
#include "model/vocab.h"

enum { MAX_TEXT = 96, MAX_ASKED = 512, N_CTX = 1024, RULED_EVERY = 4 };
enum arm { ARM_PLAIN, ARM_CHOSEN, ARM_ALWAYS, N_ARM };
static const char *const arm_names[] = {"plain", "drafts where they pay", "drafts always"};
static const double tie = 0.01; /* of the range of logits */

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\",\"maxLength\":32},"
    "\"answer\":{\"type\":\"string\",\"maxLength\":64},\"is_certain\":{\"type\":\"boolean\"}},"
    "\"required\":[\"title\",\"answer\",\"is_certain\"],\"additionalProperties\":false}";

struct text {
    int32_t tokens[MAX_TEXT], n;
};
struct bed {
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    struct engine *g[N_ARM];
    struct request_grammars *grammars;
    struct seq_pool *pool; /* for logits where texts part */
    struct forward *f;
};
struct tally {
    int n_same, n_tie, n_other;
    struct draft_stats drafts;
};

static void fail(const struct err *e) {
    fprintf(stderr, "bench_same: %s\n", e->text);
    exit(1);
}

static bool collect(struct engine_job *j, int32_t token, bool is_end,
                    const struct sampler_probs *probs) {
    struct text *t = j->ud;
    (void)is_end, (void)probs;
    if (t->n < MAX_TEXT) t->tokens[t->n++] = token;
    return true;
}
static void ended(struct engine_job *j) { (void)j; }

static void answer(struct bed *b, enum arm arm, const int32_t *ids, int32_t n, bool ruled,
                   struct text *out, struct draft_stats *sum) {
    struct err e = {0};
    struct request a;
    struct request_grammar *grammar = NULL;
    request_init(&a);
    a.messages = json_array();
    if (ruled) {
        a.format = REQUEST_JSON_SCHEMA;
        a.schema = json_loads(schema, 0, NULL);
    }
    if (request_grammar_take(b->grammars, &a, CHAT_CALLS_HERMES, &grammar, &e)) fail(&e);
    struct engine_job j = {.p.prompt = ids,
                           .p.n_prompt = n,
                           .p.max_tokens = MAX_TEXT,
                           .p.no_cache = true,
                           .on_token = collect,
                           .on_done = ended,
                           .ud = out};
    sampler_defaults(&j.p.sampling);
    j.p.sampling.temperature = 0;
    if (grammar) j.p.sampling.grammar = request_grammar_matcher(grammar);
    out->n = 0;
    if (engine_run(b->g[arm], &j, &e)) fail(&e);
    draft_stats_add(sum, &j.stats.drafts);
    request_grammar_drop(b->grammars, grammar);
    request_fini(&a);
}

/* Whether the first tokens that differ are nearly as likely after what both texts begin with. */
static bool is_tie(struct bed *b, const int32_t *ids, int32_t n, const struct text *x,
                   const struct text *y) {
    struct err e = {0};
    struct seq *s;
    int32_t all[MAX_ASKED + MAX_TEXT], at = 0;
    while (at < x->n && at < y->n && x->tokens[at] == y->tokens[at]) at++;
    if (at == x->n || at == y->n) return false; /* one ended before the other */
    memcpy(all, ids, (size_t)n * sizeof *all);
    memcpy(all + n, x->tokens, (size_t)at * sizeof *all);
    if (seq_new(&s, b->pool, &e)) fail(&e);
    const struct batch_item run = {.seq = s, .tokens = all, .n_tok = n + at, .want = WANT_LAST};
    const float *logits;
    if (forward_run(b->f, &run, 1, &logits, &e)) fail(&e);
    float least = logits[0], most = logits[0];
    for (int32_t i = 1; i < b->m->hp.n_vocab; i++) {
        if (logits[i] < least) least = logits[i];
        if (logits[i] > most) most = logits[i];
    }
    double off = fabs((double)logits[x->tokens[at]] - (double)logits[y->tokens[at]]);
    seq_free(s);
    return off <= tie * ((double)most - (double)least);
}

static void print_tally(enum arm arm, const struct tally *t) {
    printf("%-22s %3d the same, %d ties, %d others; accepted of drafted:", arm_names[arm],
           t->n_same, t->n_tie, t->n_other);
    for (int i = 0; i < DRAFT_N_SOURCE; i++) {
        int drafted = 0, accepted = 0;
        for (int k = 0; k < DRAFT_N_SLOT; k++) {
            drafted += t->drafts.n_drafted[i][k];
            accepted += t->drafts.n_accepted[i][k];
        }
        if (drafted)
            printf(" %s %d of %d", draft_source_name((enum draft_source)i), accepted, drafted);
    }
    putchar('\n');
}

/* One prompt in all arms. */
static void compare(struct bed *b, const char *line, int len, int i, struct tally t[N_ARM]) {
    char text[4096];
    int32_t *ids = NULL;
    size_t n = 0;
    struct err e = {0};
    struct text out[N_ARM];
    snprintf(text, sizeof text,
             "<|im_start|>user\n%.*s<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
             len < 2048 ? len : 2048, line);
    if (tok_encode(b->tok, text, strlen(text), true, false, &ids, &n, &e)) fail(&e);
    if (n > MAX_ASKED) n = MAX_ASKED;
    for (int arm = 0; arm < N_ARM; arm++) {
        answer(b, (enum arm)arm, ids, (int32_t)n, i % RULED_EVERY == RULED_EVERY - 1, &out[arm],
               &t[arm].drafts);
        size_t bytes = (size_t)out[0].n * sizeof *out[0].tokens;
        if (out[arm].n == out[0].n && !memcmp(out[arm].tokens, out[0].tokens, bytes))
            t[arm].n_same++;
        else if (is_tie(b, ids, (int32_t)n, &out[0], &out[arm])) t[arm].n_tie++;
        else t[arm].n_other++;
    }
    mem_free(ids);
}

static void open_bed(struct bed *b, const char *model, uint32_t type) {
    struct err e = {0};
    const struct device_params device = {.name = getenv("DEVICE") ? getenv("DEVICE") : "cpu",
                                         .n_thread = 2};
    const struct seq_pool_params pool = {
        .n_slot = 1, .n_ctx = N_CTX, .n_ctx_seq = N_CTX, .k_type = type, .v_type = type};
    if (device_open(&b->dev, &device, &e) || model_open(&b->m, model, b->dev, true, &e) ||
        vocab_load(&b->tok, b->m->gguf, &e) || request_grammars_new(&b->grammars, b->tok, &e) ||
        seq_pool_new(&b->pool, b->m, &pool, &e) || forward_new(&b->f, b->m, b->pool, N_CTX, 1, &e))
        fail(&e);
    for (int arm = 0; arm < N_ARM; arm++) {
        struct engine_params p;
        engine_defaults(&p);
        p.n_ctx = N_CTX;
        p.speculate = arm != ARM_PLAIN;
        p.deterministic = arm == ARM_ALWAYS;
        p.draft = arm == ARM_PLAIN ? NULL : getenv("DRAFT");
        p.k_type = p.v_type = type;
        if (engine_new(&b->g[arm], b->m, b->tok, &p, &e)) fail(&e);
    }
}

static void close_bed(struct bed *b) {
    for (int arm = 0; arm < N_ARM; arm++) engine_free(b->g[arm]);
    forward_free(b->f);
    seq_pool_free(b->pool);
    request_grammars_free(b->grammars);
    tok_free(b->tok);
    model_close(b->m);
    b->dev->ops->close(b->dev);
}

int main(int argc, char **argv) {
    struct bed b = {.m = NULL};
    struct err e = {0};
    struct tally t[N_ARM] = {{0}};
    const char *prompts = argc > 2 ? argv[2] : TEST_DATA "/../../train/dflash/prompts.txt";
    const char *type = argc > 3 ? argv[3] : "f16";
    int n = argc > 4 ? atoi(argv[4]) : 200, n_line = 0, at = 0;
    char *all;
    size_t size;
    if (file_read(prompts, 1 << 24, &all, &size, &e)) fail(&e);
    for (size_t i = 0; i < size; i++) n_line += all[i] == '\n';
    if (n < 1 || n > n_line) n = n_line;
    open_bed(&b, argc > 1 ? argv[1] : TEST_NANO, strcmp(type, "q8_0") ? QUANT_F16 : QUANT_Q8_0);
    for (const char *line = all; n_line && line < all + size; at++) { /* evenly over the file */
        const char *end = memchr(line, '\n', (size_t)(all + size - line));
        if (!end) break;
        int i = (int)((int64_t)at * n / n_line);
        if (i != (int)((int64_t)(at - 1) * n / n_line) || !at)
            compare(&b, line, (int)(end - line), i, t);
        line = end + 1;
    }
    printf("%s, cache %s, %d prompts\n", b.m->name, type, n);
    for (int arm = ARM_CHOSEN; arm < N_ARM; arm++) print_tally((enum arm)arm, &t[arm]);
    int n_bad = 0;
    for (int arm = ARM_CHOSEN; arm < N_ARM; arm++)
        n_bad += t[arm].n_other + (b.dev->ops->is_host ? t[arm].n_tie : 0);
    close_bed(&b);
    mem_free(all);
    return n_bad != 0;
}
