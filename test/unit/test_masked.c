/* test_masked.c: what a real model writes under a schema's mask is valid, every time: 1,500 answers of chimere-nano at
 * a high temperature, or as many as MASKED_SAMPLES in the environment asks for (10,000 take minutes), checked by
 * hand-written rules over jansson's reading. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "backend/answer.h"
#include "kernels/cpu/cpu.h"
#include "model/model.h"
#include "model/vocab.h"
#include "text/grammar/grammar_mask.h"

enum { N_SEQ = 32 };
#ifdef __SANITIZE_ADDRESS__
enum { N_SAMPLE = 64 }; /* every step costs twenty times as much there */
#else
enum { N_SAMPLE = 1500 };
#endif

static const char schema[] = "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\","
                             "\"minimum\":-5,\"maximum\":120},"
                             "\"kind\":{\"enum\":[\"cat\",\"dog\",null,7]},\"tags\":{\"type\":"
                             "\"array\",\"items\":{\"type\":\"string\","
                             "\"maxLength\":4},\"minItems\":1,\"maxItems\":2}},\"required\":[\"n\","
                             "\"kind\"],\"additionalProperties\":false}";

static bool is_valid(const json_t *v) {
    const char *key;
    json_t *x;
    const json_t *n = json_object_get(v, "n"), *kind = json_object_get(v, "kind");
    double d = json_number_value(n); /* 55.0 is an integer too */
    if (!json_is_object(v) || !json_is_number(n) || !kind) return false;
    if (d < -5 || d > 120 || d != floor(d)) return false;
    const char *s = json_string_value(kind);
    if (!(s && (!strcmp(s, "cat") || !strcmp(s, "dog"))) && !json_is_null(kind) &&
        json_number_value(kind) != 7)
        return false;
    json_object_foreach((json_t *)v, key, x) {
        if (!strcmp(key, "n") || !strcmp(key, "kind")) continue;
        if (strcmp(key, "tags") || !json_is_array(x) || json_array_size(x) < 1 ||
            json_array_size(x) > 2)
            return false;
        for (size_t i = 0; i < json_array_size(x); i++) {
            const json_t *tag = json_array_get(x, i);
            const char *t = json_string_value(tag);
            size_t points = 0;
            for (size_t k = 0; k < json_string_length(tag); k++) points += (t[k] & 0xC0) != 0x80;
            if (!t || points > 4) return false;
        }
    }
    return true;
}

/* White space may stand almost anywhere, and a hot model would fill its answers with it: rarer. */
static struct logit_bias *rarer_space(const struct tok *tok, size_t *n) {
    struct logit_bias *b = mem_alloc_array(tok_n_vocab(tok), sizeof *b);
    assert_non_null(b);
    for (uint32_t id = 0; id < tok_n_vocab(tok); id++) {
        struct slice s = tok_piece(tok, (int32_t)id);
        size_t k = 0;
        while (k < s.n && strchr(" \t\r\n", s.p[k])) k++;
        if (s.n && k == s.n) b[(*n)++] = (struct logit_bias){(int32_t)id, -9};
    }
    return b;
}

struct text {
    char s[4096];
    size_t n;
};

static int on_event(void *ud, const struct chat_event *ev) {
    struct text *t = ud;
    if (ev->kind != CHAT_CONTENT || t->n + ev->n >= sizeof t->s) return 1;
    memcpy(t->s + t->n, ev->text, ev->n);
    t->n += ev->n;
    return 0;
}

static void every_masked_answer_is_valid(void **state) {
    (void)state;
    struct err e = {0};
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    struct engine *g;
    struct grammar *grammar;
    struct grammar_vocab *vocab;
    struct grammar_matcher *matcher;
    if (cpu_open(&dev, 0, CPU_ISA_BEST, &e)) fail_msg("%s", e.text);
    if (model_open(&m, TEST_NANO, dev, true, &e)) fail_msg("%s", e.text);
    if (vocab_load(&tok, m->gguf, &e)) fail_msg("%s", e.text);
    if (grammar_from_schema(&grammar, schema, sizeof schema - 1, NULL, &e)) fail_msg("%s", e.text);
    if (grammar_vocab_from_tok(&vocab, tok, NULL, &e)) fail_msg("%s", e.text);
    if (grammar_matcher_new(&matcher, grammar, vocab, 0, &e)) fail_msg("%s", e.text);
    struct engine_params p;
    engine_defaults(&p);
    p.n_seq = N_SEQ;
    p.n_ctx = N_SEQ * 512;
    p.n_ctx_seq = 512;
    p.speculate = false;
    if (engine_new(&g, m, tok, &p, &e)) fail_msg("%s", e.text);
    int32_t *ids;
    size_t n_ids;
    static const char prompt[] =
        "{\"n\":3,\"kind\":\"cat\",\"tags\":[\"soft\"]}\n{\"n\":42,\"kind\":\"dog\"}\n"
        "{\"kind\":null,\"n\":-1}\n{\"n\":9,\"kind\":7,\"tags\":[\"a\",\"bc\"]}\n";
    assert_int_equal(tok_encode(tok, prompt, sizeof prompt - 1, false, false, &ids, &n_ids, &e), 0);
    struct answer_params ap = {.job.prompt = ids,
                               .job.n_prompt = (int32_t)n_ids,
                               .job.max_tokens = 64,
                               .on_event = on_event};
    sampler_defaults(&ap.job.sampling);
    ap.job.sampling.temperature = 1;
    ap.job.sampling.top_k = 0;
    ap.job.sampling.top_p = 1;
    ap.job.sampling.grammar = matcher;
    struct logit_bias *bias = rarer_space(tok, &ap.job.sampling.n_bias);
    ap.job.sampling.bias = bias;
    static struct text texts[N_SEQ];
    int n_kind[3] = {0};
    const char *asked = getenv("MASKED_SAMPLES");
    int n_sample = asked ? atoi(asked) : N_SAMPLE, n_done = 0;
    for (int at = 0; n_done < n_sample && at < 20 * n_sample; at += N_SEQ) {
        struct answer *a[N_SEQ];
        for (int i = 0; i < N_SEQ; i++) {
            texts[i].n = 0;
            ap.ud = &texts[i];
            ap.job.sampling.seed = (uint64_t)(at + i);
            if (answer_start(&a[i], g, tok, &ap, &e)) fail_msg("%s", e.text);
        }
        for (int i = 0; i < N_SEQ; i++) {
            answer_wait(a[i]);
            if (answer_finish(a[i]) ==
                FINISH_LENGTH) { /* "7.000000..." is an integer without end */
                answer_free(a[i]);
                continue;
            }
            if (answer_finish(a[i]) != FINISH_STOP)
                fail_msg("sample %d: finish %d %s", at + i, answer_finish(a[i]),
                         answer_err(a[i])->text);
            n_done++;
            json_t *v =
                json_loadb(texts[i].s, texts[i].n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
            if (!is_valid(v)) fail_msg("sample %d: %.*s", at + i, (int)texts[i].n, texts[i].s);
            n_kind[json_is_string(json_object_get(v, "kind"))]++;
            n_kind[2] += json_object_get(v, "tags") != NULL;
            json_decref(v);
            answer_free(a[i]);
        }
    }
    assert_true(n_done >= n_sample);
    /* The mask leaves the choice to the model: given enough samples, every branch is taken. */
    if (n_sample >= 1000) assert_true(n_kind[0] > 0 && n_kind[1] > 0 && n_kind[2] > 0);
    engine_free(g);
    mem_free(ids);
    mem_free(bias);
    grammar_matcher_free(matcher);
    grammar_vocab_free(vocab);
    grammar_free(grammar);
    tok_free(tok);
    model_close(m);
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_masked_answer_is_valid)};
    mem_guard_arm(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
