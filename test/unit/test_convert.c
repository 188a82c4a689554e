/* test_convert.c: Hugging Face checkpoints converted and run, against transformers; tokenizers
 * converted and run, against the tokenizers library (test/golden/make_hf.py made what is compared). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "convert/hf.h"
#include "engine/load.h"
#include "backend/embed/embed.h"
#include "backend/embed/rerank.h"
#include "format/gguf.h"
#include "format/quant.h"
#include "format/safetensors.h"
#include "kernels/cpu/cpu.h"
#include "model/forward.h"
#include "model/vocab.h"
#include "hf_folder.h"

static const int32_t tokens[12] = {5, 17, 299, 42, 7, 100, 200, 33, 3, 9, 250, 11};

/* Largest difference to the expected rows, relative to their largest value. */
static double run_and_compare(const char *family) {
    struct err e = {0};
    struct model *m;
    struct dev *dev;
    assert_int_equal(cpu_open(&dev, 2, CPU_ISA_BEST, &e), 0);
    if (model_open(&m, at("out.gguf"), dev, true, &e)) fail_msg("%s", e.text);
    size_t n;
    char *expected = slurp(data(family, "expected.f32"), &n);
    n /= sizeof(float);
    float *got = mem_alloc_array(n, sizeof *got);
    struct seq_pool *pool = NULL;
    struct seq *seq = NULL;
    struct forward *f = NULL;
    int rc = 0;
    if (!m->hp.is_causal) {
        struct encode_text text = {.tokens = tokens, .n_tok = 12};
        rc = forward_new(&f, m, NULL, 12, 1, &e);
        if (!rc) rc = forward_encode(f, &text, 1, got, &e);
    } else {
        const float *logits;
        rc = seq_pool_new(&pool, m,
                          &(struct seq_pool_params){
                              .n_slot = 1, .n_ctx = 64, .k_type = QUANT_F32, .v_type = QUANT_F32},
                          &e);
        if (!rc) rc = seq_new(&seq, pool, &e);
        if (!rc) rc = forward_new(&f, m, pool, 12, 12, &e);
        if (!rc)
            rc = forward_run(
                f,
                &(struct batch_item){.seq = seq, .tokens = tokens, .n_tok = 12, .want = WANT_ALL},
                1, &logits, &e);
        if (!rc) memcpy(got, logits, n * sizeof *got);
    }
    if (rc) fail_msg("%s: %s", family, e.text);
    double worst = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, expected + i * sizeof x, sizeof x);
        worst = fmax(worst, fabs((double)got[i] - (double)x));
        scale = fmax(scale, fabs((double)x));
    }
    forward_free(f);
    if (seq) seq_free(seq);
    if (pool) seq_pool_free(pool);
    model_close(m);
    dev->ops->close(dev);
    mem_free(expected);
    mem_free(got);
    return worst / scale;
}

static void families_compute_what_transformers_does(void **state) {
    (void)state;
    static const struct {
        const char *family, *tokenizer;
        struct store store;
    } rows[] = {
        {"qwen35moe", "qwen35", {.dtype = "F32", .prefix = "model.language_model."}},
        {"qwen35", "qwen35", {.dtype = "F32", .sharded = true}},
        {"qwen3next", "qwen2", {.dtype = "F32"}},
        {"llama", "llama3", {.dtype = "F32", .sharded = true}},
        {"qwen2", "qwen2", {.dtype = "F32"}},
        {"qwen3", "qwen2", {.dtype = "F32"}},
        {"qwen3moe", "qwen2", {.dtype = "F32"}},
        {"bert", "wordpiece", {.dtype = "F32", .prefix = NULL}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        new_folder();
        make_folder(rows[i].family, &rows[i].store);
        use_tokenizer(rows[i].tokenizer);
        convert(NULL);
        double worst = run_and_compare(rows[i].family);
        print_message("%s: %.2g\n", rows[i].family, worst);
        if (!(worst < 1e-5)) fail_msg("%s: relative difference %g", rows[i].family, worst);
    }
}

/* A cross-encoder's scores of pairs, tokens and segments joined as its own tokenizer joins them. */
static void pairs_score_as_transformers_has_it(void **state) {
    (void)state;
    struct err e = {0};
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    struct rerank *r;
    size_t n, i;
    new_folder();
    make_folder("bertpair", &(struct store){.dtype = "F32"});
    use_tokenizer("wordpiece");
    convert(NULL);
    assert_int_equal(cpu_open(&dev, 2, CPU_ISA_BEST, &e), 0);
    if (model_open(&m, at("out.gguf"), dev, true, &e)) fail_msg("%s", e.text);
    assert_int_equal(vocab_load(&tok, m->gguf, &e), 0);
    if (rerank_open(&r, m, tok, 0, &e)) fail_msg("%s", e.text);
    char *text = slurp(data("bertpair", "pairs.json"), &n);
    json_t *all = json_loadb(text, n, 0, NULL), *row;
    assert_int_equal(json_array_size(all), 5);
    json_array_foreach(all, i, row) {
        const char *a = json_string_value(json_object_get(row, "question")),
                   *b = json_string_value(json_object_get(row, "text"));
        float score;
        if (rerank_score(r, a, strlen(a), b, strlen(b), &score, &e)) fail_msg("%s", e.text);
        double expected = json_real_value(json_object_get(row, "score"));
        if (!(fabs((double)score - expected) < 1e-5))
            fail_msg("pair %zu: %g, expected %g", i, (double)score, expected);
    }
    /* longer than the model reads: cut, not refused, and the end mark stays */
    char longer[4000];
    for (size_t k = 0; k < sizeof longer - 1; k++) longer[k] = k % 4 == 3 ? ' ' : "the"[k % 4];
    longer[sizeof longer - 1] = 0;
    float score;
    assert_int_equal(rerank_score(r, longer, strlen(longer), longer, strlen(longer), &score, &e),
                     0);
    assert_int_equal(rerank_score(r, "fox", 3, longer, strlen(longer), &score, &e), 0);
    json_decref(all);
    mem_free(text);
    rerank_close(r);
    tok_free(tok);
    model_close(m);
    /* no head, no scores */
    new_folder();
    make_folder("bert", &(struct store){.dtype = "F32"});
    use_tokenizer("wordpiece");
    convert(NULL);
    if (model_open(&m, at("out.gguf"), dev, true, &e)) fail_msg("%s", e.text);
    assert_int_equal(rerank_open(&r, m, NULL, 0, &e), CHIMERE_EUNSUPPORTED);
    model_close(m);
    dev->ops->close(dev);
}

static int64_t number(const struct gguf *g, const char *key) {
    int64_t v = -1;
    const struct gguf_kv *kv = gguf_find(g, key);
    return kv && gguf_item_i64(kv, 0, &v) ? v : -1;
}

/* Stored types carry over, wider ones lose nothing, a narrow one loses little. */
static void types_are_kept_or_made(void **state) {
    (void)state;
    static const struct {
        const char *family, *type;
        uint32_t matrix, file_type; /* llama.cpp's number */
        double worst;
    } rows[] = {{"qwen35moe", NULL, QUANT_BF16, 32, 0.05},
                {"qwen35moe", "f32", QUANT_F32, 0, 0.05},
                {"qwen35", "q8_0", QUANT_Q8_0, 7, 0.05},
                {"qwen35", "f16", QUANT_F16, 1, 0.05}};
    struct store s = {.dtype = "BF16", .no_mtp = true};
    for (size_t i = 0; i < 4; i++) {
        new_folder();
        make_folder(rows[i].family, &s);
        use_tokenizer("qwen35");
        convert(rows[i].type);
        struct gguf *g;
        struct err e = {0};
        assert_int_equal(gguf_open(&g, at("out.gguf"), &e), 0);
        assert_int_equal(gguf_find_tensor(g, "blk.0.attn_qkv.weight")->type, rows[i].matrix);
        assert_int_equal(number(g, "general.file_type"), rows[i].file_type);
        assert_int_equal(gguf_find_tensor(g, "blk.0.attn_norm.weight")->type, QUANT_F32);
        const struct gguf_tensor *router = gguf_find_tensor(g, "blk.0.ffn_gate_inp.weight");
        if (router) assert_int_equal(router->type, QUANT_F32);
        assert_null(gguf_find(g, "qwen35moe.nextn_predict_layers"));
        gguf_close(g);
        double worst = run_and_compare(rows[i].family);
        if (!(worst < rows[i].worst))
            fail_msg("%s %s: %g", rows[i].family, rows[i].type ? rows[i].type : "source", worst);
    }
}

/* Value i of a converted f32 tensor. */
static float value(const struct gguf *g, const char *name, size_t i) {
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    if (!t || t->type != QUANT_F32 || i >= t->n_elements) fail_msg("%s", name);
    float x;
    memcpy(&x, t->data + i * 4, 4);
    return x;
}
static float source(const char *name, double scale, double offset, size_t i) {
    return (float)(((double)(rng_at(hash_fnv1a(name, strlen(name)), i) >> 40) * 0x1p-23 - 1.0) *
                       scale +
                   offset);
}

static void prediction_blocks_follow_the_trunk(void **state) {
    (void)state;
    new_folder();
    make_folder("qwen35moe", &(struct store){.dtype = "F32"});
    use_tokenizer("qwen35");
    convert(NULL);
    struct gguf *g;
    struct err e = {0};
    uint64_t n;
    assert_int_equal(gguf_open(&g, at("out.gguf"), &e), 0);
    assert_true(gguf_item_u64(gguf_find(g, "qwen35moe.block_count"), 0, &n) && n == 5);
    assert_true(gguf_item_u64(gguf_find(g, "qwen35moe.nextn_predict_layers"), 0, &n) && n == 1);
    assert_int_equal(gguf_find(g, "qwen35moe.attention.recurrent_layers")->n, 5);
    assert_true(value(g, "blk.4.attn_norm.weight", 3) ==
                source("mtp.layers.0.input_layernorm.weight", 0.375, 0, 3) + 1);
    assert_true(value(g, "blk.4.nextn.enorm.weight", 5) ==
                source("mtp.pre_fc_norm_embedding.weight", 0.375, 0, 5) + 1);
    assert_true(value(g, "blk.4.nextn.shared_head_norm.weight", 5) ==
                source("mtp.norm.weight", 0.375, 0, 5) + 1);
    double fc = sqrt(3.0 / 128);
    assert_true(fabs((double)value(g, "blk.4.nextn.eh_proj.weight", 777) -
                     (double)source("mtp.fc.weight", fc, 0, 777)) < 1e-6);
    /* fused experts [4, 64, 64]: gate rows 0..31, up rows 32..63 of each */
    double up = sqrt(3.0 / 64);
    assert_true(fabs((double)value(g, "blk.4.ffn_up_exps.weight", (2 * 32 + 7) * 64 + 9) -
                     (double)source("mtp.layers.0.mlp.experts.gate_up_proj", up, 0,
                                    (2 * 64 + 32 + 7) * 64 + 9)) < 1e-6);
    gguf_close(g);
}

/* ---- tokenizers ---- */

static void compare_cases(const char *name, const struct tok *t) {
    char folder[64];
    snprintf(folder, sizeof folder, "tokenizer-%s", name);
    json_error_t why;
    json_t *cases = json_load_file(data(folder, "cases.json"), 0, &why), *c;
    assert_non_null(cases);
    size_t i;
    json_array_foreach(cases, i, c) {
        const char *text = json_string_value(json_object_get(c, "text"));
        const json_t *want = json_object_get(c, "ids");
        int32_t *ids;
        size_t n;
        struct err e = {0};
        assert_int_equal(tok_encode(t, text, strlen(text),
                                    json_is_true(json_object_get(c, "special")), true, &ids, &n,
                                    &e),
                         0);
        struct buf got;
        buf_init(&got, 4096);
        bool same = n == json_array_size(want);
        for (size_t j = 0; j < n; j++) {
            buf_printf(&got, " %d", ids[j]);
            same = same && ids[j] == json_integer_value(json_array_get(want, j));
        }
        if (!same) {
            char *dump = json_dumps(want, JSON_COMPACT);
            fail_msg("%s: '%s': expected %s, got%s", name, text, dump, got.p ? got.p : "");
        }
        buf_fini(&got);
        mem_free(ids);
    }
    json_decref(cases);
}

static void tokenizers_split_as_published(void **state) {
    (void)state;
    static const struct {
        const char *name, *model, *pre;
    } rows[] = {{"qwen2", "gpt2", "qwen2"},         {"qwen35", "gpt2", "qwen35"},
                {"llama3", "gpt2", "llama-bpe"},    {"gpt2", "gpt2", "gpt-2"},
                {"starcoder", "gpt2", "starcoder"}, {"spm", "llama", "default"},
                {"wordpiece", "bert", "default"}};
    new_folder();
    make_folder("qwen2", &(struct store){.dtype = "F32"});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        use_tokenizer(rows[i].name);
        struct err e = {0};
        struct gguf *g;
        struct tok *t;
        struct slice s;
        uint64_t cursor = 0;
        convert(NULL);
        assert_int_equal(gguf_open(&g, at("out.gguf"), &e), 0);
        assert_true(gguf_next_str(gguf_find(g, "tokenizer.ggml.model"), &cursor, &s));
        assert_true(s.n == strlen(rows[i].model) && !memcmp(s.p, rows[i].model, s.n));
        cursor = 0;
        assert_true(gguf_next_str(gguf_find(g, "tokenizer.ggml.pre"), &cursor, &s));
        assert_true(s.n == strlen(rows[i].pre) && !memcmp(s.p, rows[i].pre, s.n));
        if (vocab_load(&t, g, &e)) fail_msg("%s: %s", rows[i].name, e.text);
        compare_cases(rows[i].name, t);
        tok_free(t);
        gguf_close(g);
    }
}

/* Python's json writes what JSON has no word for; inside strings it stays. */
static void infinity_in_a_config_is_a_number(void **state) {
    (void)state;
    new_folder();
    make_folder("qwen3", &(struct store){.dtype = "F32"});
    use_tokenizer("qwen2");
    size_t n;
    char *text = slurp(data("qwen3", "config.json"), &n);
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_printf(&b,
               "{\"id2label\": [0.0, Infinity, -Infinity], \"prefix\": \"to \\\" Infinity\",%.*s",
               (int)(n - 1), text + 1);
    save(at("hf/config.json"), b.p, b.n);
    buf_fini(&b);
    mem_free(text);
    convert(NULL);
}

/* ---- quantised checkpoints ---- */

/* Adds the parts of a form to the folder's checkpoint, as o_proj of layer 0, in a file of their own. */
static void add_projection(const char *form) {
    static const char stem[] = "model.layers.0.self_attn.o_proj.";
    struct safetensors *st;
    struct err e = {0};
    struct buf header, body;
    char name[64];
    json_t *map = json_object(), *index;
    json_error_t why;
    snprintf(name, sizeof name, "%s.safetensors", form);
    if (safetensors_open(&st, data("quantised", name), &e)) fail_msg("%s", e.text);
    buf_init(&header, 1 << 20);
    buf_init(&body, 1 << 24);
    for (size_t i = 0; i < safetensors_n_tensors(st); i++) {
        const struct st_tensor *t = safetensors_at(st, i);
        if (strcmp(t->name, "expected") == 0) continue;
        buf_printf(&header, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[", header.n ? "," : "{", stem,
                   t->name, safetensors_dtype_name(t->dtype));
        for (uint32_t d = 0; d < t->n_dims; d++)
            buf_printf(&header, "%s%d", d ? "," : "", (int)t->shape[d]);
        buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", body.n, body.n + (size_t)t->n_bytes);
        buf_put(&body, t->data, (size_t)t->n_bytes);
        char full[256];
        snprintf(full, sizeof full, "%s%s", stem, t->name);
        json_object_set_new(map, full, json_string("form.safetensors"));
    }
    buf_putc(&header, '}');
    write_safetensors(at("hf/form.safetensors"), &header, &body);
    safetensors_close(st);
    buf_fini(&header);
    buf_fini(&body);
    index = json_load_file(at("hf/model.safetensors.index.json"), 0, &why);
    json_t *all = json_object_get(index, "weight_map");
    json_object_update(all, map);
    assert_int_equal(json_dump_file(index, at("hf/model.safetensors.index.json"), 0), 0);
    json_decref(index);
    json_decref(map);
    json_t *config = json_load_file(data("qwen3", "config.json"), 0, &why);
    snprintf(name, sizeof name, "%s.json", form);
    json_object_set_new(config, "quantization_config",
                        json_load_file(data("quantised", name), 0, &why));
    assert_int_equal(json_dump_file(config, at("hf/config.json"), 0), 0);
    json_decref(config);
}

static void quantised_checkpoints_are_decoded(void **state) {
    (void)state;
    static const char *const forms[] = {"fp8-tensor",   "fp8-channel",  "fp8-block", "int8-zero",
                                        "packed4",      "packed4-zero", "packed8",   "nvfp4",
                                        "nvfp4-packed", "mxfp4",        "gptq4",     "gptq8-v2",
                                        "awq",          "bnb-nf4",      "bnb-fp4",   "bnb-int8"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct safetensors *st;
        struct gguf *g;
        struct err e = {0};
        char name[64];
        new_folder();
        make_folder("qwen3", &(struct store){.dtype = "F32",
                                             .sharded = true,
                                             .without = "model.layers.0.self_attn.o_proj.weight"});
        use_tokenizer("qwen2");
        add_projection(forms[i]);
        convert("f32");
        snprintf(name, sizeof name, "%s.safetensors", forms[i]);
        assert_int_equal(safetensors_open(&st, data("quantised", name), &e), 0);
        assert_int_equal(gguf_open(&g, at("out.gguf"), &e), 0);
        const struct st_tensor *want = safetensors_find(st, "expected");
        assert_int_equal(want->n_elements, 16 * 128);
        for (size_t k = 0; k < 16 * 128; k++) {
            size_t row = k / 128 < 8 ? k / 128 : k / 128 + 48;
            float x, got = value(g, "blk.0.attn_output.weight", row * 128 + k % 128);
            memcpy(&x, want->data + k * 4, 4);
            if (!(fabsf(got - x) <= 1e-6f * (1 + fabsf(x))))
                fail_msg("%s, row %zu, column %zu: %g, not %g", forms[i], row, k % 128, (double)got,
                         (double)x);
        }
        gguf_close(g);
        safetensors_close(st);
    }
}

/* ---- embedding models ---- */

static void refused(const char *words) {
    struct hf_options o = {.dir = at("hf"), .out = at("no.gguf"), .n_thread = 1};
    struct hf_result r;
    struct err e = {0};
    assert_int_not_equal(hf_convert(&o, &r, &e), 0);
    if (!strstr(e.text, words)) fail_msg("'%s' lacks '%s'", e.text, words);
    assert_false(file_exists(at("no.gguf")));
}

/* Experts of gpt-oss, 2 of 32 x 64 in both directions: as blocks of MXFP4 with a row per output, or as floats with
 * a row per input. Gate and up take turns. */
enum { OSS_N = 64, OSS_FF = 32 };
static uint8_t oss_byte(const char *name, size_t i) {
    return (uint8_t)(rng_at(hash_fnv1a(name, strlen(name)), i) >> 40);
}
static float oss_value(const char *name, size_t e, size_t n_out, size_t n_in, size_t out,
                       size_t in) {
    static const float e2m1[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
    size_t block = ((e * n_out + out) * n_in + in) / 32, item = in % 32;
    uint8_t byte = oss_byte(name, block * 16 + item / 2);
    int code = item % 2 ? byte >> 4 : byte & 15, exponent = oss_byte(name, block) % 8;
    return ldexpf(code & 8 ? -e2m1[code & 7] : e2m1[code & 7], exponent - 4);
}
static void add_experts(struct buf *header, struct buf *body, const char *name, size_t n_out,
                        size_t n_in, bool packed) {
    size_t begin = body->n, n_block = 2 * n_out * n_in / 32;
    if (!packed) {
        for (size_t e = 0; e < 2; e++)
            for (size_t in = 0; in < n_in; in++)
                for (size_t out = 0; out < n_out; out++) {
                    float v = oss_value(name, e, n_out, n_in, out, in);
                    buf_put(body, &v, 4);
                }
        buf_printf(header,
                   ",\"%s\":{\"dtype\":\"F32\",\"shape\":[2,%zu,%zu],\"data_offsets\":[%zu,%zu]}",
                   name, n_in, n_out, begin, body->n);
        return;
    }
    for (size_t i = 0; i < n_block * 16; i++) buf_putc(body, (char)oss_byte(name, i));
    buf_printf(
        header,
        ",\"%s_blocks\":{\"dtype\":\"U8\",\"shape\":[2,%zu,%zu,16],\"data_offsets\":[%zu,%zu]}",
        name, n_out, n_in / 32, begin, body->n);
    begin = body->n;
    for (size_t i = 0; i < n_block; i++) buf_putc(body, (char)(127 - 4 + oss_byte(name, i) % 8));
    buf_printf(header,
               ",\"%s_scales\":{\"dtype\":\"U8\",\"shape\":[2,%zu,%zu],\"data_offsets\":[%zu,%zu]}",
               name, n_out, n_in / 32, begin, body->n);
}

static void make_gpt_oss(bool packed) {
    static const char *const rows[][2] = {
        {"model.embed_tokens.weight", "320,64"},
        {"model.norm.weight", "64"},
        {"lm_head.weight", "320,64"},
        {"model.layers.0.input_layernorm.weight", "64"},
        {"model.layers.0.post_attention_layernorm.weight", "64"},
        {"model.layers.0.self_attn.q_proj.weight", "64,64"},
        {"model.layers.0.self_attn.k_proj.weight", "32,64"},
        {"model.layers.0.self_attn.v_proj.weight", "32,64"},
        {"model.layers.0.self_attn.o_proj.weight", "64,64"},
        {"model.layers.0.self_attn.sinks", "4"},
        {"model.layers.0.mlp.router.weight", "2,64"},
        {"model.layers.0.mlp.router.bias", "2"},
        {"model.layers.0.mlp.experts.gate_up_proj_bias", "2,64"},
        {"model.layers.0.mlp.experts.down_proj_bias", "2,64"},
    };
    struct buf header, body;
    buf_init(&header, 1 << 20);
    buf_init(&body, 1 << 24);
    buf_putc(&header, '{');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        add_entry(&header, &body, rows[i][0], rows[i][1], &(struct store){.dtype = "F32"}, 1, 0,
                  rows[i][0]);
    add_experts(&header, &body, "model.layers.0.mlp.experts.gate_up_proj", (size_t)OSS_FF * 2,
                OSS_N, packed);
    add_experts(&header, &body, "model.layers.0.mlp.experts.down_proj", OSS_N, OSS_FF, packed);
    buf_putc(&header, '}');
    write_safetensors(at("hf/model.safetensors"), &header, &body);
    buf_fini(&header);
    buf_fini(&body);
    use_tokenizer("qwen2");
    write_text("hf/config.json",
               "{\"model_type\":\"gpt_oss\",\"vocab_size\":320,\"hidden_size\":64,"
               "\"intermediate_size\":32,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
               "\"num_key_value_heads\":2,\"head_dim\":16,\"num_local_experts\":2,"
               "\"num_experts_per_tok\":1,\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,"
               "\"sliding_window\":16,\"layer_types\":[\"sliding_attention\"],\"rope_theta\":1e4,"
               "\"swiglu_limit\":7.0,\"quantization_config\":{\"quant_method\":\"mxfp4\"}}");
}

static float oss_item(const struct gguf *g, const char *name, size_t i) {
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    const struct quant_traits *q = quant_traits(t->type);
    float block[32];
    q->decode(t->data + i / 32 * 32 / q->block_elements * q->block_bytes, block, 32);
    return block[i % 32];
}

static void experts_of_gpt_oss_keep_their_values(void **state) {
    (void)state;
    static const char up[] = "model.layers.0.mlp.experts.gate_up_proj",
                      down[] = "model.layers.0.mlp.experts.down_proj",
                      bias[] = "model.layers.0.mlp.experts.gate_up_proj_bias";
    for (int packed = 0; packed < 2; packed++) {
        struct gguf *g;
        struct err e = {0};
        new_folder();
        make_gpt_oss(packed);
        convert(NULL);
        assert_int_equal(gguf_open(&g, at("out.gguf"), &e), 0);
        assert_int_equal(gguf_find_tensor(g, "blk.0.ffn_up_exps.weight")->type,
                         packed ? QUANT_MXFP4 : QUANT_F32);
        assert_int_equal(number(g, "general.file_type"), packed ? 38 : 0);
        for (size_t x = 0; x < 2; x++)
            for (size_t out = 0; out < OSS_N; out++)
                for (size_t in = 0; in < OSS_FF; in++) {
                    size_t wide = (x * OSS_FF + in) * OSS_N + out; /* the other way round */
                    assert_true(oss_item(g, "blk.0.ffn_gate_exps.weight", wide) ==
                                oss_value(up, x, OSS_FF * 2, OSS_N, 2 * in, out));
                    assert_true(oss_item(g, "blk.0.ffn_up_exps.weight", wide) ==
                                oss_value(up, x, OSS_FF * 2, OSS_N, 2 * in + 1, out));
                    assert_true(oss_item(g, "blk.0.ffn_down_exps.weight",
                                         (x * OSS_N + out) * OSS_FF + in) ==
                                oss_value(down, x, OSS_N, OSS_FF, out, in));
                }
        for (size_t i = 0; i < 2 * OSS_FF; i++) {
            assert_true(value(g, "blk.0.ffn_gate_exps.bias", i) == source(bias, 1, 0, 2 * i));
            assert_true(value(g, "blk.0.ffn_up_exps.bias", i) == source(bias, 1, 0, 2 * i + 1));
        }
        gguf_close(g);
    }
    /* a limit that the kernels do not have */
    json_error_t why;
    json_t *config = json_load_file(at("hf/config.json"), 0, &why);
    json_object_set_new(config, "swiglu_limit", json_real(6));
    assert_int_equal(json_dump_file(config, at("hf/config.json"), 0), 0);
    json_decref(config);
    refused("swiglu_limit: expected 7, got 6");
}

/* An encoder's text begins and ends with its tokenizer's tokens, although config.json has other ids for generation. */
static void marks_of_an_encoder_are_its_tokenizers(void **state) {
    (void)state;
    json_error_t why;
    struct gguf *g;
    struct err e = {0};
    new_folder();
    make_folder("bert", &(struct store){.dtype = "F32"});
    use_tokenizer("wordpiece");
    json_t *config = json_load_file(data("bert", "config.json"), 0, &why);
    json_object_set_new(config, "bos_token_id", json_integer(1));
    json_object_set_new(config, "eos_token_id", json_integer(1));
    assert_int_equal(json_dump_file(config, at("hf/config.json"), 0), 0);
    json_decref(config);
    convert(NULL);
    assert_int_equal(gguf_open(&g, at("out.gguf"), &e), 0);
    assert_int_equal(number(g, "tokenizer.ggml.bos_token_id"), 2); /* [CLS] */
    assert_int_equal(number(g, "tokenizer.ggml.eos_token_id"), 3); /* [SEP] */
    gguf_close(g);
}

#define MODULE(type, path)                                                                         \
    "{\"type\":\"sentence_transformers.models." type "\",\"path\":\"" path "\"}"

/* What follows the transformer is computed, or refused by its name; a path stays in the folder. */
static void modules_that_are_not_computed_are_refused(void **state) {
    (void)state;
    new_folder();
    make_folder("bert", &(struct store){.dtype = "F32"});
    use_tokenizer("wordpiece");
    write_text("hf/modules.json", "[" MODULE("Transformer", "") "," MODULE("CNN", "1") "]");
    refused("got 'sentence_transformers.models.CNN'");
    write_text("hf/modules.json", "[" MODULE("Normalize", "1") "," MODULE("Pooling", "2") "]");
    refused("in this order, got 'sentence_transformers.models.Pooling'");
    static const char *const paths[] = {"../2_Dense", ".", "a/b", ""};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char text[128];
        snprintf(text, sizeof text, "[" MODULE("Dense", "%s") "]", paths[i]);
        write_text("hf/modules.json", text);
        refused("modules.json: path: expected a folder beside it");
    }
    write_text("hf/modules.json", "[" MODULE("Dense", "2_Dense") "]");
    refused("2_Dense/config.json");
    assert_int_equal(mkdir(at("hf/2_Dense"), 0700), 0);
    write_text("hf/2_Dense/config.json", "{\"in_features\":-1,\"out_features\":8}");
    refused("in_features or out_features: expected 1 to");
    write_text("hf/2_Dense/config.json", "{\"in_features\":64,\"out_features\":8,"
                                         "\"activation_function\":\"torch.nn.ReLU\"}");
    refused("expected Identity or Tanh");
    write_text("hf/2_Dense/config.json", "{\"in_features\":64,\"out_features\":8}");
    refused("2_Dense/model.safetensors");
    write_text("hf/modules.json", "{\"type\":[1");
    refused("modules.json");
    write_text("hf/modules.json", "[" MODULE("Transformer", "") "," MODULE("Pooling", "1") "]");
    convert(NULL);
}

/* The tokenizer appends a token that ends no answer, and pooling takes its vector: Qwen3-Embedding. */
static void last_token_is_pooled(void **state) {
    (void)state;
    struct err e = {0};
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    struct embed *embed;
    json_error_t why;
    new_folder();
    make_folder("qwen3", &(struct store){.dtype = "F32"});
    use_tokenizer("qwen2");
    json_t *t = json_load_file(at("hf/tokenizer.json"), 0, &why);
    assert_non_null(t);
    json_object_set_new(t, "post_processor",
                        json_pack("{s:s,s:[{s:{s:s,s:i}},{s:{s:s,s:i}}],s:[],s:{}}", "type",
                                  "TemplateProcessing", "single", "Sequence", "id", "A", "type_id",
                                  0, "SpecialToken", "id", "<|endoftext|>", "type_id", 0, "pair",
                                  "special_tokens"));
    assert_int_equal(json_dump_file(t, at("hf/tokenizer.json"), 0), 0);
    json_decref(t);
    assert_int_equal(mkdir(at("hf/1_Pooling"), 0700), 0);
    write_text("hf/1_Pooling/config.json",
               "{\"pooling_mode_mean_tokens\":false,\"pooling_mode_lasttoken\":true}");
    convert("f32");
    assert_int_equal(cpu_open(&dev, 2, CPU_ISA_BEST, &e), 0);
    if (model_open(&m, at("out.gguf"), dev, true, &e)) fail_msg("%s", e.text);
    assert_int_equal(vocab_load(&tok, m->gguf, &e), 0);
    if (embed_open(&embed, m, tok, 0, &e)) fail_msg("%s", e.text);
    json_t *all = json_load_file(data("qwen3", "embed.json"), 0, &why), *row;
    assert_int_equal(json_array_size(all), 3);
    size_t i;
    json_array_foreach(all, i, row) {
        const char *text = json_string_value(json_object_get(row, "text"));
        const json_t *want = json_object_get(row, "vector");
        float got[64];
        int32_t n_tok;
        bool cut;
        assert_int_equal(json_array_size(want), 64);
        assert_int_equal(embed_text(embed, text, strlen(text), true, got, &n_tok, &cut, &e), 0);
        assert_int_equal(n_tok, json_array_size(json_object_get(row, "ids")));
        for (size_t k = 0; k < 64; k++) {
            double x = json_real_value(json_array_get(want, k));
            if (!(fabs((double)got[k] - x) < 1e-5)) fail_msg("text %zu: %g, not %g", i, got[k], x);
        }
    }
    json_decref(all);
    embed_close(embed);
    tok_free(tok);
    model_close(m);
    dev->ops->close(dev);
}

/* What a checkpoint recommends becomes a file's, and a file's the sampling of its model. */
static void recommended_sampling_is_carried(void **state) {
    (void)state;
    new_folder();
    make_folder("qwen2", &(struct store){.dtype = "F32"});
    use_tokenizer("qwen2");
    write_text("hf/generation_config.json",
               "{\"temperature\":0.6,\"top_k\":17,\"top_p\":7,\"repetition_penalty\":1.05,"
               "\"min_p\":\"much\"}");
    convert("f32");
    struct gguf *g;
    struct err e = {0};
    double top_k = 0;
    struct sampler_params p;
    sampler_defaults(&p);
    const struct sampler_params usual = p;
    assert_int_equal(gguf_open(&g, at("out.gguf"), &e), 0);
    const struct gguf_kv *kv = gguf_find(g, "general.sampling.top_k");
    assert_true(kv && kv->type == GGUF_I32 && gguf_item_f64(kv, 0, &top_k) && top_k == 17);
    assert_null(gguf_find(g, "general.sampling.min_p"));
    load_sampling(g, &p);
    assert_true(p.temperature == 0.6f && p.top_k == 17 && p.repeat_penalty == 1.05f);
    assert_true(p.top_p == usual.top_p && p.min_p == usual.min_p); /* out of range, and none */
    assert_int_equal(sampler_check(&p, 320, &e), 0);
    gguf_close(g);
}

/* ---- refusals ---- */

/* Values that the target type cannot hold, and forms without a reader. */
static void what_cannot_be_kept_is_refused(void **state) {
    (void)state;
    struct hf_result r;
    struct err e = {0};
    new_folder();
    make_folder("qwen3", &(struct store){.dtype = "F32", .louder = 1e7});
    use_tokenizer("qwen2");
    struct hf_options o = {.dir = at("hf"), .out = at("no.gguf"), .type = "f16", .n_thread = 1};
    assert_int_equal(hf_convert(&o, &r, &e), CHIMERE_ENUMERIC);
    assert_non_null(strstr(e.text, "up to 65519, as f16"));
    assert_false(file_exists(at("no.gguf")));
    convert("f32");

    static const char name[] = "model.layers.0.self_attn.o_proj.weight";
    new_folder();
    make_folder("qwen3", &(struct store){.dtype = "F32", .sharded = true, .without = name});
    use_tokenizer("qwen2");
    add_projection("fp8-tensor");
    json_error_t why;
    json_t *config = json_load_file(at("hf/config.json"), 0, &why);
    json_object_set_new(config, "quantization_config", json_pack("{s:s}", "quant_method", "aqlm"));
    assert_int_equal(json_dump_file(config, at("hf/config.json"), 0), 0);
    json_decref(config);
    refused("quant_method: 'aqlm'");
    copy(data("qwen3", "config.json"), at("hf/config.json"));
    struct buf header, body; /* codes without their scale */
    buf_init(&header, 1 << 12);
    buf_init(&body, 1 << 16);
    buf_printf(&header,
               "{\"%s\":{\"dtype\":\"F8_E4M3\",\"shape\":[64,128],\"data_offsets\":[0,8192]}}",
               name);
    for (int i = 0; i < 8192; i++) buf_putc(&body, 1);
    write_safetensors(at("hf/form.safetensors"), &header, &body);
    buf_fini(&header);
    buf_fini(&body);
    json_t *index = json_load_file(at("hf/model.safetensors.index.json"), 0, &why);
    json_object_del(json_object_get(index, "weight_map"),
                    "model.layers.0.self_attn.o_proj.weight_scale");
    assert_int_equal(json_dump_file(index, at("hf/model.safetensors.index.json"), 0), 0);
    json_decref(index);
    refused("scales beside it");
}

/* A field is read, known to be harmless, or refused by name. */
static void unknown_fields_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *field, *words; /* NULL: converts */
    } rows[] = {
        {"\"hidden_act\":\"gelu\"", "hidden_act: expected silu|swish, got gelu"},
        {"\"norm_before\":true", "'norm_before': not known for model_type 'qwen3'"},
        {"\"norm_before\":null", NULL},
        {"\"use_mrope\":true", "use_mrope: expected false, got true"},
        {"\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6", "'a', 'b', 'c', 'd' and 2 more"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0,\"twist\":1}",
         "'rope_scaling.twist'"},
        {"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}", "rope_type"},
        {"\"partial_rotary_factor\":0.5", "partial_rotary_factor: expected 1, got 0.5"},
        {"\"transformers_version\":\"9\",\"top_k\":3", NULL},
    };
    new_folder();
    make_folder("qwen3", &(struct store){.dtype = "F32"});
    use_tokenizer("qwen2");
    size_t n;
    char *text = slurp(data("qwen3", "config.json"), &n);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b;
        json_error_t why;
        buf_init(&b, 1 << 20);
        buf_printf(&b, "{%s}", rows[i].field);
        json_t *config = json_loadb(text, n, 0, &why), *more = json_loadb(b.p, b.n, 0, &why);
        assert_int_equal(json_object_update(config, more), 0);
        assert_int_equal(json_dump_file(config, at("hf/config.json"), 0), 0);
        json_decref(config);
        json_decref(more);
        buf_fini(&b);
        if (rows[i].words) refused(rows[i].words);
        else convert(NULL);
    }
    static const char *const ignored[] = {"f", "twist"};
    struct hf_options o = {
        .dir = at("hf"), .out = at("out.gguf"), .n_thread = 1, .ignore = ignored, .n_ignore = 2};
    struct hf_result r;
    struct err e = {0};
    json_error_t why;
    json_t *config = json_loadb(text, n, 0, &why);
    json_object_set_new(config, "twist", json_integer(1));
    assert_int_equal(json_dump_file(config, at("hf/config.json"), 0), 0);
    if (hf_convert(&o, &r, &e)) fail_msg("%s", e.text);
    json_decref(config);
    mem_free(text);
    copy(data("qwen3", "config.json"), at("hf/config.json"));
    mkdir(at("hf/1_Pooling"), 0700);
    write_text("hf/1_Pooling/config.json", "{\"pooling_mode_weightedmean_tokens\":true}");
    refused("pooling_mode_weightedmean_tokens");
    write_text("hf/1_Pooling/config.json", "{\"pooling_mode\":\"max\"}");
    refused("pooling_mode: expected mean, cls or lasttoken, got 'max'");
    write_text("hf/1_Pooling/config.json", "{\"pooling_mode\":\"mean\"}");
    write_text("hf/modules.json", "[{\"type\":\"sentence_transformers.models.Dense\"}]");
    refused("modules.json");
}

static void broken_folders_are_refused(void **state) {
    (void)state;
    new_folder();
    refused("config.json");
    make_folder("llama", &(struct store){.dtype = "F32", .without = "lm_head.weight"});
    use_tokenizer("llama3");
    refused("lm_head.weight: expected, as tie_word_embeddings is false");
    new_folder();
    make_folder("qwen2", &(struct store){.dtype = "F32"});
    refused("tokenizer.json");
    write_text("hf/tokenizer.json", "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":400}}}");
    refused("320 rows");
    use_tokenizer("qwen2");
    write_text("hf/config.json", "{\"model_type\":\"nobody\"}");
    refused("'nobody' is not a family");
    write_text("hf/config.json", "{\"model_type\":\"qwen2\",\"hidden_size\":-1}");
    refused("config.json");
    write_text("hf/config.json", "{\"model_type\":");
    refused("expected JSON");
    static const struct {
        const char *field;
        int value;
        const char *words;
    } lies[] = {{"num_hidden_layers", 3, "includes tensor model.layers.3."},
                {"vocab_size", 999, "vocab_size: expected the embedding's 320 rows, got 999"},
                {"intermediate_size", 95, "expected 64 x 95"}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        json_error_t why;
        json_t *config = json_load_file(data("qwen2", "config.json"), 0, &why);
        json_object_set_new(config, lies[i].field, json_integer(lies[i].value));
        assert_int_equal(json_dump_file(config, at("hf/config.json"), 0), 0);
        json_decref(config);
        refused(lies[i].words);
    }
    copy(data("llama", "config.json"), at("hf/config.json")); /* its head size is another */
    refused("expected");
    copy(data("qwen2", "config.json"), at("hf/config.json"));
    write_text("hf/tokenizer.json",
               "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}");
    refused("twice");
    write_text("hf/tokenizer.json",
               "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}");
    refused("ids below");
    write_text("hf/tokenizer.json",
               "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    refused("pre_tokenizer");
    write_text("hf/tokenizer.json", "{\"model\":{\"type\":\"Magic\",\"vocab\":{\"a\":0}}}");
    refused("model.type");
    write_text("hf/tokenizer.json", "[");
    refused("expected '{'");
    use_tokenizer("qwen2");
    make_folder("qwen3", &(struct store){.dtype = "F32"}); /* no biases, other norms: not a qwen2 */
    copy(data("qwen2", "config.json"), at("hf/config.json"));
    refused("expected");
}

/* Allocations fail one after the other: always the same error, never a file, never a leak (asan). */
static void short_memory_is_an_error(void **state) {
    (void)state;
    new_folder();
    make_folder("qwen3", &(struct store){.dtype = "F32", .sharded = true});
    use_tokenizer("qwen35");
    int failed = 0;
    for (int64_t n = 1; n < 100000; n += n < 60 ? 1 : n / 16) {
        struct hf_options o = {.dir = at("hf"), .out = at("short.gguf"), .n_thread = 1};
        struct hf_result r;
        struct err e = {0};
        mem_fail_nth(n);
        int rc = hf_convert(&o, &r, &e);
        mem_fail_nth(0);
        if (rc == 0) {
            assert_true(failed > 60);
            return;
        }
        if (rc != CHIMERE_ENOMEM) fail_msg("allocation %d: %d '%s'", (int)n, rc, e.text);
        assert_false(file_exists(at("short.gguf")));
        failed++;
    }
    fail_msg("never converted");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_compute_what_transformers_does),
        cmocka_unit_test(pairs_score_as_transformers_has_it),
        cmocka_unit_test(types_are_kept_or_made),
        cmocka_unit_test(prediction_blocks_follow_the_trunk),
        cmocka_unit_test(infinity_in_a_config_is_a_number),
        cmocka_unit_test(tokenizers_split_as_published),
        cmocka_unit_test(quantised_checkpoints_are_decoded),
        cmocka_unit_test(experts_of_gpt_oss_keep_their_values),
        cmocka_unit_test(recommended_sampling_is_carried),
        cmocka_unit_test(marks_of_an_encoder_are_its_tokenizers),
        cmocka_unit_test(modules_that_are_not_computed_are_refused),
        cmocka_unit_test(last_token_is_pooled),
        cmocka_unit_test(what_cannot_be_kept_is_refused),
        cmocka_unit_test(unknown_fields_are_refused),
        cmocka_unit_test(broken_folders_are_refused),
        cmocka_unit_test(short_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
