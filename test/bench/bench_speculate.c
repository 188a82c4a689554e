/* bench_speculate.c: speculation against plain decoding, on one model, by kind of text.
 *
 *   bench_speculate [MODEL [PAIRS [TYPE [THREADS [cold|warm [KIND]]]]]]    default: chimere-nano, 8, f16, 2, cold, all
 *
 * Each prompt is answered twice at temperature 0, with and without drafts, in turn; which comes first alternates. Printed
 * first: the ceiling, n t_1 / t_verify(n) of the best n up to 8, where every round has n - 1 drafts and all are accepted. Printed
 * per kind: the median over pairs of plain time per token divided by drafted time per token, how many texts are the same, and
 * what was drafted. TYPE: of the cache, f16 or q8_0. warm: texts of earlier pairs draft for later ones, as in a server that
 * one caller asks alike; else each pair is a caller of its own. Environment: DRAFT, file of a drafter that drafts in place of
 * the model's prediction blocks; DEVICE, cpu (default) or cuda. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/request_grammar.h"
#include "base/clock.h"
#include "base/mem.h"
#include "format/quant.h"
#include "kernels/device.h"
#include "model/forward.h"
#include "model/model.h"
#include "model/vocab.h"

enum { MAX_TEXT = 160, MAX_PAIR = 256, N_TOPIC = 8 };
enum { MAX_VERIFY = 8, N_TIMED = 31, N_CTX = 1024 };

struct side {
    struct engine *g;
    struct request_grammars *grammars;
    int32_t tokens[MAX_TEXT], n;
};

struct bed {
    struct model *m;
    struct tok *tok;
    bool is_warm;         /* earlier pairs' texts draft for later ones */
    struct side sides[2]; /* plain, drafted */
};

static void fail(const struct err *e) {
    fprintf(stderr, "bench_speculate: %s\n", e->text);
    exit(1);
}

/* ---- what is asked ---- */

static const char *const topics[N_TOPIC] = {"a red fox",    "the old bridge", "a small shop",
                                            "Anna and Ben", "a blue car",     "the night train",
                                            "two brothers", "a garden"};

#define CHAT(system, user)                                                                         \
    "<|im_start|>system\n" system "<|im_end|>\n<|im_start|>user\n" user                            \
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

static const char schemas[][1024] = {
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":24},\"age\":{"
    "\"type\":\"integer\",\"minimum\":0,\"maximum\":120},\"occupation\":{\"type\":\"string\","
    "\"maxLength\":24},\"is_student\":{\"type\":\"boolean\"},\"address\":{\"type\":\"object\","
    "\"properties\":{\"street\":{\"type\":\"string\",\"maxLength\":20},\"city\":{\"type\":"
    "\"string\",\"maxLength\":20},\"country\":{\"enum\":[\"France\",\"Germany\",\"Spain\"]}},"
    "\"required\":[\"street\",\"city\",\"country\"],\"additionalProperties\":false}},\"required\":["
    "\"name\",\"age\",\"occupation\",\"is_student\",\"address\"],\"additionalProperties\":false}",
    "{\"type\":\"object\",\"properties\":{\"items\":{\"type\":\"array\",\"minItems\":3,"
    "\"maxItems\":3,\"items\":{\"type\":\"object\",\"properties\":{\"product\":{\"type\":"
    "\"string\",\"maxLength\":16},\"quantity\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":99},"
    "\"category\":{\"enum\":[\"food\",\"tools\",\"clothing\"]},\"available\":{\"type\":"
    "\"boolean\"}},\"required\":[\"product\",\"quantity\",\"category\",\"available\"],"
    "\"additionalProperties\":false}}},\"required\":[\"items\"],\"additionalProperties\":false}",
};

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_current_weather\",\"parameters\":{"
    "\"type\":\"object\",\"properties\":{\"location\":{\"type\":\"string\",\"maxLength\":24},"
    "\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]}},\"required\":[\"location\",\"unit\"],"
    "\"additionalProperties\":false}}},{\"type\":\"function\",\"function\":{\"name\":"
    "\"search_documents\",\"parameters\":{\"type\":\"object\",\"properties\":{\"query\":{\"type\":"
    "\"string\",\"maxLength\":32},\"max_results\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":"
    "20}},\"required\":[\"query\",\"max_results\"],\"additionalProperties\":false}}}]";

enum form { FORM_TEXT, FORM_JSON, FORM_CALL };
static const struct kind {
    const char *name;
    enum form form;
    const char *prompt; /* %s: a topic */
    const char *schema;
} kinds[] = {
    {"JSON", FORM_JSON,
     CHAT("Answer with JSON.", "Invent a person who knows %s. Fields: name, age, occupation, "
                               "is_student, address with street, city and country."),
     schemas[0]},
    {"JSON list", FORM_JSON,
     CHAT("Answer with JSON.", "List three items for %s. Fields of each of the items: product, "
                               "quantity, category, available."),
     schemas[1]},
    {"JSON unnamed", FORM_JSON, /* the prompt does not name the fields */
     CHAT("Answer with JSON.", "Describe %s as JSON with all fields of the schema."), schemas[0]},
    {"tool call", FORM_CALL,
     CHAT("# Tools\n\n<tools>\n{\"name\": \"get_current_weather\", \"parameters\": {\"location\": "
          "\"string\", \"unit\": \"string\"}}\n{\"name\": \"search_documents\", \"parameters\": "
          "{\"query\": \"string\", \"max_results\": \"integer\"}}\n</tools>\n\nFor each call write "
          "<tool_call>\n{\"name\": NAME, \"arguments\": ARGUMENTS}\n</tool_call>",
          "Find documents about %s."),
     NULL},
    {"repetition", FORM_TEXT,
     "One day %s was in the house. The cat sat on the mat near the door, and the dog ran to the "
     "shop for bread and milk.\nOne day %s was in the house. The cat sat on the mat near the door, "
     "and the dog ran to the shop for bread and milk.\nOne day %s was in the house. The cat",
     NULL},
    {"loop", FORM_TEXT, /* small models that do not copy a prompt go on with a loop */
     "A story of %s. We will be going to the station. We will be going to the station. We will be "
     "going to the station. We will be going to the station. ",
     NULL},
    {"code", FORM_TEXT,
     "/* %s */\nint add(int a, int b) {\n    return a + b;\n}\n\nint subtract(int a, int b) {\n    "
     "return a - b;\n}\n\nint multiply(int a, int b) {\n",
     NULL},
    {"story", FORM_TEXT, CHAT("You are a friendly assistant.", "Tell me a story about %s."), NULL},
};
enum { N_KIND = sizeof kinds / sizeof *kinds };

/* ---- answers ---- */

static bool collect(struct engine_job *j, int32_t token, bool is_end,
                    const struct sampler_probs *probs) {
    struct side *s = j->ud;
    (void)is_end, (void)probs;
    if (s->n < MAX_TEXT) s->tokens[s->n++] = token;
    return true;
}
static void ended(struct engine_job *j) { (void)j; }

/* Sums over the pairs of a kind. */
struct tally {
    int64_t n_step, n_generated;
    struct draft_stats drafts;
};

/* The i-th prompt of a kind: its topic, and a number before the later ones. */
static void fill_prompt(char *out, size_t size, const struct kind *k, int i) {
    size_t n = 0;
    if (i >= N_TOPIC && k->form == FORM_TEXT) n = (size_t)snprintf(out, size, "%d. ", i / N_TOPIC);
    for (const char *p = k->prompt; *p && n + 1 < size; p++) {
        if (strncmp(p, "%s", 2) == 0) {
            n += (size_t)snprintf(out + n, size - n, "%s", topics[i % N_TOPIC]);
            p++;
        } else {
            out[n++] = *p;
        }
    }
    out[n] = 0;
}

/* Decoding time per token, in ms. */
static double answer(struct bed *b, struct side *s, const struct kind *k, int i, int scope,
                     struct tally *t) {
    char text[4096];
    int32_t *ids = NULL;
    size_t n = 0;
    struct err e = {0};
    struct request a;
    struct request_grammar *grammar = NULL;
    fill_prompt(text, sizeof text, k, i);
    request_init(&a);
    a.messages = json_array();
    if (k->form == FORM_JSON) {
        a.format = REQUEST_JSON_SCHEMA;
        a.schema = json_loads(k->schema, 0, NULL);
    } else if (k->form == FORM_CALL) {
        a.tools = json_loads(tools, 0, NULL);
        a.tool_choice = REQUEST_TOOLS_REQUIRED;
    }
    if (request_grammar_take(s->grammars, &a, CHAT_CALLS_HERMES, &grammar, &e) ||
        tok_encode(b->tok, text, strlen(text), true, false, &ids, &n, &e))
        fail(&e);
    struct engine_job j = {.p.prompt = ids,
                           .p.n_prompt = (int32_t)n,
                           .p.max_tokens = MAX_TEXT,
                           .p.no_cache = true,
                           .p.scope = b->is_warm ? 0 : (uint64_t)scope,
                           .on_token = collect,
                           .on_done = ended,
                           .ud = s};
    sampler_defaults(&j.p.sampling);
    j.p.sampling.temperature = 0;
    if (grammar) j.p.sampling.grammar = request_grammar_matcher(grammar);
    s->n = 0;
    struct engine_totals before, after;
    engine_totals(s->g, &before);
    if (engine_run(s->g, &j, &e)) fail(&e);
    engine_totals(s->g, &after);
    t->n_step += after.n_step - before.n_step;
    t->n_generated += j.stats.n_generated;
    draft_stats_add(&t->drafts, &j.stats.drafts);
    request_grammar_drop(s->grammars, grammar);
    request_fini(&a);
    mem_free(ids);
    return j.stats.decode_ms / (j.stats.n_generated > 1 ? j.stats.n_generated - 1 : 1);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- the ceiling ---- */

/* Time of a step of n tokens that all stay. */
static double verify(struct forward *f, struct seq *s, struct select_row *rows, int32_t n) {
    static const int32_t tokens[MAX_VERIFY] = {40, 41, 42, 43, 44, 45, 46, 47};
    const struct batch_item run = {
        .seq = s, .tokens = tokens, .n_tok = n, .defer = n > 1, .want = WANT_ALL};
    struct select_args select = {.rows = rows};
    const float *logits;
    struct err e = {0};
    int64_t start = clock_ns();
    if (forward_run(f, &run, 1, rows ? NULL : &logits, &e) ||
        (rows && forward_select(f, &select, &e)))
        fail(&e);
    return clock_ms_since(start);
}

/* The largest n t_1 / t_verify(n); a plain step is timed after another one, so that it repeats no inputs of drafts. */
static double find_ceiling(const struct bed *b, uint32_t type, int32_t *best) {
    static double ms[MAX_VERIFY + 1][N_TIMED];
    static struct select_row rows[MAX_VERIFY];
    const struct seq_pool_params pp = {
        .n_slot = 1, .n_ctx = N_CTX, .k_type = type, .v_type = type, .log = true};
    struct select_row *to = b->m->dev->ops->is_host ? NULL : rows;
    struct seq_pool *pool;
    struct forward *f;
    struct seq *s;
    struct err e = {0};
    double most = 0;
    if (seq_pool_new(&pool, b->m, &pp, &e) ||
        forward_new(&f, b->m, pool, STEP_MAX_TOK, STEP_MAX_TOK, &e) || seq_new(&s, pool, &e))
        fail(&e);
    for (int i = -4; i < N_TIMED; i++) { /* the first ones warm up */
        if (seq_pos(s) > N_CTX / 4) seq_reset(s);
        for (int32_t n = 1; n <= MAX_VERIFY; n++) {
            if (n == 1) verify(f, s, to, n);
            ms[n][i < 0 ? 0 : i] = verify(f, s, to, n);
        }
    }
    for (int32_t n = 1; n <= MAX_VERIFY; n++) {
        qsort(ms[n], N_TIMED, sizeof ms[n][0], by_size);
        double gain = n * ms[1][N_TIMED / 2] / ms[n][N_TIMED / 2];
        if (gain > most) most = gain, *best = n;
    }
    seq_free(s);
    forward_free(f);
    seq_pool_free(pool);
    return most;
}

/* Accepted of drafted tokens, by source and slot. */
static void print_slots(const struct draft_stats *d) {
    for (int i = 0; i < DRAFT_N_SOURCE; i++) {
        int sum = 0;
        for (int k = 0; k < DRAFT_N_SLOT; k++) sum += d->n_drafted[i][k];
        if (!sum) continue;
        printf("    %-8s", draft_source_name((enum draft_source)i));
        for (int k = 0; k < DRAFT_N_SLOT; k++)
            if (d->n_drafted[i][k])
                printf(" %d:%d/%d", k + 1, d->n_accepted[i][k], d->n_drafted[i][k]);
        putchar('\n');
    }
}

static int compare(struct bed *b, const struct kind *k, int n_pair, double ceiling) {
    double ratios[MAX_PAIR], plain[MAX_PAIR];
    struct tally t[2] = {{0}};
    int n_same = 0;
    for (int i = -1; i < n_pair; i++) { /* the first warms up, as a caller of its own */
        double ms[2];
        if (!i) memset(t, 0, sizeof t);
        for (int turn = 0; turn < 2; turn++) {
            int which = (i + 1 + turn) % 2;
            ms[which] = answer(b, &b->sides[which], k, i < 0 ? 0 : i, i + 2, &t[which]);
        }
        if (i < 0) continue;
        ratios[i] = ms[0] / ms[1];
        plain[i] = ms[0];
        const struct side *x = &b->sides[0], *y = &b->sides[1];
        n_same += x->n == y->n && !memcmp(x->tokens, y->tokens, (size_t)x->n * sizeof *x->tokens);
    }
    qsort(ratios, (size_t)n_pair, sizeof *ratios, by_size);
    qsort(plain, (size_t)n_pair, sizeof *plain, by_size);
    double median = (ratios[n_pair / 2] + ratios[(n_pair - 1) / 2]) / 2;
    printf("%-12s %6.3f x  (%.3f to %.3f)  of the ceiling %.2f  plain %8.3f ms/token  same %d/%d  "
           "tokens/step %.2f\n",
           k->name, median, ratios[n_pair / 4], ratios[n_pair - 1 - n_pair / 4], median / ceiling,
           plain[n_pair / 2], n_same, n_pair, (double)t[1].n_generated / (double)t[1].n_step);
    print_slots(&t[1].drafts);
    fflush(stdout);
    return n_same == n_pair;
}

int main(int argc, char **argv) {
    struct bed b = {.m = NULL};
    struct dev *dev;
    struct err e = {0};
    const char *type = argc > 3 ? argv[3] : "f16";
    int n_pair = argc > 2 ? atoi(argv[2]) : 8, all_same = 1;
    if (n_pair < 1 || n_pair > MAX_PAIR) n_pair = 8;
    struct device_params device = {.name = getenv("DEVICE") ? getenv("DEVICE") : "cpu",
                                   .n_thread = argc > 4 ? atoi(argv[4]) : 2};
    if (device_open(&dev, &device, &e) ||
        model_open(&b.m, argc > 1 ? argv[1] : TEST_NANO, dev, true, &e) ||
        vocab_load(&b.tok, b.m->gguf, &e))
        fail(&e);
    b.is_warm = argc > 5 && strcmp(argv[5], "warm") == 0;
    for (int k = 0; k < 2; k++) {
        struct engine_params p;
        engine_defaults(&p);
        p.n_ctx = N_CTX;
        p.speculate = k;
        p.draft = k ? getenv("DRAFT") : NULL;
        p.k_type = p.v_type = strcmp(type, "q8_0") == 0 ? QUANT_Q8_0 : QUANT_F16;
        if (engine_new(&b.sides[k].g, b.m, b.tok, &p, &e) ||
            request_grammars_new(&b.sides[k].grammars, b.tok, &e))
            fail(&e);
    }
    printf("%s, cache %s, %d pairs per kind%s; plain time / drafted time: median (quartiles)\n",
           b.m->name, type, n_pair, b.is_warm ? ", warm" : "");
    int32_t best = 1;
    double ceiling = find_ceiling(&b, strcmp(type, "q8_0") == 0 ? QUANT_Q8_0 : QUANT_F16, &best);
    printf("ceiling      %6.3f x  n t_1 / t_verify(n) at n = %d\n", ceiling, best);
    for (int k = 0; k < N_KIND; k++)
        if (argc < 7 || strcmp(argv[6], kinds[k].name) == 0)
            all_same &= compare(&b, &kinds[k], n_pair, ceiling);
    for (int k = 0; k < 2; k++) {
        engine_free(b.sides[k].g);
        request_grammars_free(b.sides[k].grammars);
    }
    tok_free(b.tok);
    model_close(b.m);
    dev->ops->close(dev);
    return all_same ? 0 : 1;
}
