/* test_judge.c: rerankers that are decoders (Qwen3-Reranker): converted, and scored as transformers does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>

#include "backend/embed/embed.h"
#include "backend/embed/rerank.h"
#include "format/gguf.h"
#include "hf_folder.h"
#include "kernels/cpu/cpu.h"
#include "model/vocab.h"

/* The tokenizer with the two answers as tokens, as make_hf.py has it. */
static void make_judge(const char *readme) {
    json_error_t why;
    new_folder();
    make_folder("qwen3", &(struct store){.dtype = "F32"});
    use_tokenizer("qwen2");
    json_t *t = json_load_file(at("hf/tokenizer.json"), 0, &why);
    json_t *added = json_object_get(t, "added_tokens"), *item;
    static const char *const words[] = {"yes", "no"};
    json_int_t last = 0;
    size_t i;
    json_array_foreach(added, i, item) {
        json_int_t id = json_integer_value(json_object_get(item, "id"));
        last = id > last ? id : last;
    }
    for (i = 0; i < 2; i++) {
        item = json_deep_copy(json_array_get(added, json_array_size(added) - 1));
        json_object_set_new(item, "id", json_integer(last + 1 + (json_int_t)i));
        json_object_set_new(item, "content", json_string(words[i]));
        json_object_set_new(item, "special", json_false());
        json_array_append_new(added, item);
    }
    assert_int_equal(json_dump_file(t, at("hf/tokenizer.json"), 0), 0);
    json_decref(t);
    if (readme) write_text("hf/README.md", readme);
    convert("f32");
}

static void answers_are_scored_as_transformers_has_it(void **state) {
    (void)state;
    struct err e = {0};
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    struct rerank *r;
    struct embed *embed;
    json_error_t why;
    json_t *row;
    size_t i;
    make_judge("---\nlicense: apache-2.0\n---\n# Qwen3-Reranker-0.6B\n");
    assert_int_equal(cpu_open(&dev, 2, CPU_ISA_BEST, &e), 0);
    if (model_open(&m, at("out.gguf"), dev, true, &e)) fail_msg("%s", e.text);
    /* what llama.cpp needs of such a file */
    const struct gguf_tensor *cls = gguf_find_tensor(m->gguf, "cls.output.weight");
    assert_true(cls && cls->ne[0] == 64 && cls->ne[1] == 2);
    assert_non_null(gguf_find(m->gguf, "qwen3.classifier.output_labels"));
    assert_int_equal(vocab_load(&tok, m->gguf, &e), 0);
    const struct gguf_tensor *embd = gguf_find_tensor(m->gguf, "token_embd.weight");
    int32_t yes = tok_find(tok, "yes", 3);
    assert_true(yes > 0);
    assert_memory_equal(cls->data, embd->data + (size_t)yes * 64 * sizeof(float),
                        64 * sizeof(float));
    if (rerank_open(&r, m, tok, 0, &e)) fail_msg("%s", e.text);
    json_t *all = json_load_file(data("qwen3", "judge.json"), 0, &why);
    assert_int_equal(json_array_size(all), 3);
    json_array_foreach(all, i, row) {
        const char *a = json_string_value(json_object_get(row, "question")),
                   *b = json_string_value(json_object_get(row, "text"));
        double want = json_real_value(json_object_get(row, "score"));
        float score;
        if (rerank_score(r, a, strlen(a), b, strlen(b), &score, &e)) fail_msg("%s", e.text);
        assert_int_equal(rerank_n_tok(r), json_integer_value(json_object_get(row, "n")));
        if (!(fabs((double)score - want) < 1e-2)) /* the cache is f16 */
            fail_msg("pair %zu: %g, expected %g", i, (double)score, want);
    }
    /* too long for the model's 512 positions: the text is cut, the question about it is not */
    char longer[4000];
    for (size_t k = 0; k < sizeof longer; k++) longer[k] = "the "[k % 4];
    float score;
    if (rerank_score(r, "fox", 3, longer, sizeof longer, &score, &e)) fail_msg("%s", e.text);
    assert_int_equal(rerank_n_tok(r), 512);
    assert_int_equal(embed_open(&embed, m, tok, 0, &e), CHIMERE_EUNSUPPORTED);
    json_decref(all);
    rerank_close(r);
    tok_free(tok);
    model_close(m);
    dev->ops->close(dev);
}

/* A chat model of the same family is none. */
static void other_decoders_are_no_rerankers(void **state) {
    (void)state;
    struct err e = {0};
    struct dev *dev;
    struct model *m;
    struct rerank *r;
    make_judge(NULL);
    assert_int_equal(cpu_open(&dev, 2, CPU_ISA_BEST, &e), 0);
    if (model_open(&m, at("out.gguf"), dev, true, &e)) fail_msg("%s", e.text);
    assert_null(gguf_find_tensor(m->gguf, "cls.output.weight"));
    assert_int_equal(rerank_open(&r, m, NULL, 0, &e), CHIMERE_EUNSUPPORTED);
    model_close(m);
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_scored_as_transformers_has_it),
        cmocka_unit_test(other_decoders_are_no_rerankers),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
