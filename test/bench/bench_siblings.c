/* bench_siblings.c: what a second candidate of the prediction block would be worth, as a leaf beside the first draft.
 *
 *   bench_siblings [MODEL [THREADS [TOKENS]]]          default: chimere-nano, 2, 160
 *
 * The model answers prompts greedily, token by token, and its prediction block predicts each next token, with all earlier
 * ones in its context. Printed per kind of text: how often its best token is right, and how often its second token is
 * right if the first is wrong, as shares of all tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/lm.h"
#include "format/quant.h"
#include "kernels/device.h"
#include "model/forward.h"
#include "model/model.h"
#include "model/vocab.h"

enum { MAX_PROMPT = 256 };

#define CHAT(user)                                                                                 \
    "<|im_start|>user\n" user "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

#define JSON(user) "<|im_start|>system\nAnswer with JSON.<|im_end|>\n" CHAT(user)

static const struct kind {
    const char *name, *prompts[3];
} kinds[] = {
    {"story",
     {CHAT("Tell me a story about a red fox."), CHAT("Tell me a story about the old bridge."),
      CHAT("Tell me a story about two brothers.")}},
    {"JSON",
     {JSON("Invent a person who knows a red fox. Fields: name, age, occupation, is_student, "
           "address with street, city and country."),
      JSON("List three items for a garden. Fields of each of the items: product, quantity, "
           "category, available."),
      JSON("Describe the night train as JSON with all fields of the schema.")}},
    {"code",
     {"int add(int a, int b) {\n    return a + b;\n}\n\nint subtract(int a, int b) {\n",
      "def area(width, height):\n    return width * height\n\ndef volume(",
      "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n"}},
};

static _Noreturn void fail(const struct err *e) {
    fprintf(stderr, "bench_siblings: %s\n", e->text);
    exit(1);
}

static int32_t best_but(const float *logits, int32_t n, int32_t but) {
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++)
        if (i != but && (best < 0 || logits[i] > logits[best])) best = i;
    return best;
}

struct counts {
    int32_t n, n_first, n_second;
};

static void answer(struct model *m, const struct tok *tok, const char *prompt, int32_t n_more,
                   struct counts *c) {
    struct engine_params p;
    struct seq_pool *pool;
    struct forward *f;
    struct seq *s;
    struct err e = {0};
    int32_t *ids = NULL, first = -1, second = -1, next;
    size_t n_id = 0, row = (size_t)m->hp.n_embd * sizeof(float);
    const float *logits, *unused;
    engine_defaults(&p);
    p.n_ctx = 1024;
    p.k_type = p.v_type = QUANT_F16;
    struct seq_pool_params pp = lm_pool_params(&p);
    if (tok_encode(tok, prompt, strlen(prompt), true, false, &ids, &n_id, &e) ||
        seq_pool_new(&pool, m, &pp, &e) || forward_new(&f, m, pool, MAX_PROMPT, 2, &e) ||
        seq_new(&s, pool, &e))
        fail(&e);
    float *hidden = m->dev->ops->alloc(m->dev, MAX_PROMPT * row);
    struct batch_item run = {.seq = s, .tokens = ids, .n_tok = (int32_t)n_id, .want = WANT_LAST};
    for (int32_t i = 0; i < n_more; i++) {
        if (forward_run(f, &run, 1, &logits, &e)) fail(&e);
        next = best_but(logits, m->hp.n_vocab, -1);
        c->n += i > 0;
        c->n_first += i > 0 && next == first;
        c->n_second += i > 0 && next == second;
        /* the pairs end with the last evaluated row and the token just found */
        int32_t tokens[MAX_PROMPT];
        memcpy(tokens, run.tokens + 1, (size_t)(run.n_tok - 1) * sizeof *tokens);
        tokens[run.n_tok - 1] = next;
        m->dev->ops->copy(m->dev, hidden, forward_hidden(f), (size_t)run.n_tok * row);
        const struct mtp_item pairs = {.seq = s,
                                       .tokens = tokens,
                                       .n_tok = run.n_tok,
                                       .pos = seq_pos(s) - run.n_tok,
                                       .hidden = hidden,
                                       .want = true};
        if (seq_reserve(s, 1, &e) || forward_mtp(f, &pairs, 1, &logits, &unused, &e)) fail(&e);
        first = best_but(logits, m->hp.n_vocab, -1);
        second = best_but(logits, m->hp.n_vocab, first);
        ids[0] = next;
        run.tokens = ids;
        run.n_tok = 1;
        if (tok_is_eog(tok, next)) break;
    }
    m->dev->ops->free(m->dev, hidden);
    seq_free(s);
    forward_free(f);
    seq_pool_free(pool);
    mem_free(ids);
}

int main(int argc, char **argv) {
    struct model *m;
    struct tok *tok;
    struct dev *dev;
    struct err e = {0};
    struct device_params device = {.name = "cpu", .n_thread = argc > 2 ? atoi(argv[2]) : 2};
    int32_t n_more = argc > 3 ? atoi(argv[3]) : 160;
    if (device_open(&dev, &device, &e) ||
        model_open(&m, argc > 1 ? argv[1] : TEST_NANO, dev, true, &e) ||
        vocab_load(&tok, m->gguf, &e))
        fail(&e);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct counts c = {0};
        for (int i = 0; i < 3; i++) answer(m, tok, kinds[k].prompts[i], n_more, &c);
        printf("%-6s first %.3f, second %.3f of %d tokens\n", kinds[k].name,
               (double)c.n_first / c.n, (double)c.n_second / c.n, c.n);
    }
    tok_free(tok);
    model_close(m);
    dev->ops->close(dev);
    return 0;
}
