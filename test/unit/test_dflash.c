/* test_dflash.c: drafters that read hidden states: logits of blocks against PyTorch (test/golden/make_dflash.py) and
 * chains of DSpark's heads against numpy (make_dspark.py), in both dialects of their files and from Hugging Face
 * folders; the text of an engine is the same with and without; what is not this model's is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#include "base/buf.h"
#include "engine/draft/drafter.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "format/gguf.h"
#include "format/quant.h"
#include "golden_model.h"
#include "kernels/cpu/cpu.h"
#include "model/dflash.h"

enum { WIDTH = 32, N_LAYER = 2, N_HEAD = 4, N_KV = 2, HEAD_WIDTH = 16, N_FF = 48, N_TAP = 3 };
enum { N_DRAFT = 7, N_VOCAB = 96, MASK = 95, RANK = 6 };
enum dialect { MAINLINE, OTHER, FOLDER };

static char scratch[64]; /* folder of this process */
static int32_t tokens[256], n_tok;
static struct dev *dev;
static struct model *target;

/* ---- files of drafters ---- */

/* What is changed in a file; all zero: nothing. */
struct fault {
    int32_t width, n_tap, tap, mask, n_vocab; /* in place of the right ones; tap: the last one */
    bool is_nan, is_nano; /* is_nano: for the shipped model, with heads that q8_0 divides */
    bool has_heads;       /* DSpark's */
    const char *more;     /* a tensor that no drafter here has */
};

struct part {
    const char *mainline, *other, *hf; /* its name in the dialects, after that of the layer */
    int64_t rows, cols;                /* rows 0: a vector around 1 */
    double loud;                       /* 0: 1.5 */
};

static float *part_values(const struct part *p, int il, const struct fault *f) {
    char key[120], layer[20] = "";
    if (il >= 0) snprintf(layer, sizeof layer, "blk.%d.", il);
    snprintf(key, sizeof key, "dflash.%s%s", layer, p->mainline);
    size_t n = (size_t)(p->rows ? p->rows * p->cols : p->cols);
    float *x = make_values(
        key, n, p->rows ? 0.0 : 1.0,
        p->rows ? (p->loud > 0 ? p->loud : 1.5) * sqrt(3.0) / sqrt((double)p->cols) : 0.5, false);
    if (f->is_nan && il == 1) x[0] = NAN;
    return x;
}

static void add_part(struct gguf_writer *w, const struct part *p, int il, bool is_other, int pass,
                     const struct fault *f) {
    char name[100], layer[20] = "";
    if (il >= 0) snprintf(layer, sizeof layer, "blk.%d.", il);
    snprintf(name, sizeof name, "%s%s", layer, is_other ? p->other : p->mainline);
    size_t n = (size_t)(p->rows ? p->rows * p->cols : p->cols);
    if (pass == 0) {
        uint64_t ne[2] = {(uint64_t)p->cols, (uint64_t)p->rows};
        gguf_add_tensor(w, name, QUANT_F32, p->rows ? 2 : 1, ne);
        return;
    }
    struct err e = {0};
    float *x = part_values(p, il, f);
    assert_int_equal(gguf_write_data(w, x, n * sizeof *x, &e), 0);
    mem_free(x);
}

static void put_keys(struct gguf_writer *w, bool is_other, int32_t window, const struct fault *f) {
    const char *arch = is_other ? "dflash-draft" : "dflash";
    char key[100];
    int32_t taps[N_TAP + 1] = {0, 2, f->tap ? f->tap : 3, 3};
    struct {
        const char *suffix;
        int32_t value;
    } const keys[] = {{"block_count", N_LAYER},
                      {"embedding_length", f->width ? f->width : WIDTH},
                      {"feed_forward_length", N_FF},
                      {"attention.head_count", N_HEAD},
                      {"attention.head_count_kv", N_KV},
                      {"attention.key_length", f->is_nano ? 32 : HEAD_WIDTH},
                      {"attention.value_length", f->is_nano ? 32 : HEAD_WIDTH},
                      {is_other ? "dflash.block_size" : "block_size", N_DRAFT + 1}};
    gguf_put_str(w, "general.architecture", arch, strlen(arch));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i].suffix);
        gguf_put_u32(w, key, (uint32_t)keys[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_put_f32(w, key, 1e-6f);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    gguf_put_f32(w, key, 10000);
    for (int i = 0; i < N_TAP; i++) taps[i] += !is_other;
    snprintf(key, sizeof key, "%s.%s", arch,
             is_other ? "dflash.target_layer_ids" : "target_layers");
    gguf_put_array(w, key, GGUF_I32, taps, (uint64_t)(f->n_tap ? f->n_tap : N_TAP));
    gguf_put_u32(w, is_other ? "dflash-draft.dflash.mask_token_id" : "tokenizer.ggml.mask_token_id",
                 (uint32_t)(f->mask ? f->mask : MASK));
    if (window) {
        const bool sees[N_LAYER] = {true, false};
        snprintf(key, sizeof key, "%s.attention.sliding_window", arch);
        gguf_put_u32(w, key, (uint32_t)window);
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
        gguf_put_array(w, key, GGUF_BOOL, sees, N_LAYER);
    }
    if (f->n_vocab) {
        struct slice pieces[128];
        for (int i = 0; i < f->n_vocab; i++) pieces[i] = (struct slice){"piece", 5};
        gguf_put_strings(w, "tokenizer.ggml.tokens", pieces, (size_t)f->n_vocab);
    }
}

enum { N_ONCE = 3, N_HEADS = 4, N_EACH = 11 };
struct parts {
    struct part once[N_ONCE + N_HEADS], each[N_EACH];
    int n_once;
};

static struct parts parts_of(const struct fault *f) {
    const int32_t d = f->width ? f->width : WIDTH, head = f->is_nano ? 32 : HEAD_WIDTH;
    const int32_t n_in = N_TAP * (f->is_nano ? d : WIDTH), q = N_HEAD * head, kv = N_KV * head;
    return (struct parts){
        .once = {{"fc.weight", "dflash_fc.weight", "fc.weight", d, n_in, 0},
                 {"enc.output_norm.weight", "dflash_hidden_norm.weight", "hidden_norm.weight", 0, d,
                  0},
                 {"output_norm.weight", "output_norm.weight", "norm.weight", 0, d, 0},
                 {"markov_w1.weight", "markov_w1.weight", "markov_head.markov_w1.weight", N_VOCAB,
                  RANK, 3},
                 {"markov_w2.weight", "markov_w2.weight", "markov_head.markov_w2.weight", N_VOCAB,
                  RANK, 3},
                 {"conf_proj.weight", "conf_proj.weight", "confidence_head.proj.weight", 1,
                  d + RANK, 0},
                 {"conf_proj.bias", "conf_proj.bias", "confidence_head.proj.bias", 0, 1, 0}},
        .each = {{"attn_norm.weight", "attn_norm.weight", "input_layernorm.weight", 0, d, 0},
                 {"attn_q.weight", "attn_q.weight", "self_attn.q_proj.weight", q, d, 0},
                 {"attn_k.weight", "attn_k.weight", "self_attn.k_proj.weight", kv, d, 0},
                 {"attn_v.weight", "attn_v.weight", "self_attn.v_proj.weight", kv, d, 0},
                 {"attn_output.weight", "attn_output.weight", "self_attn.o_proj.weight", d, q, 0},
                 {"attn_q_norm.weight", "attn_q_norm.weight", "self_attn.q_norm.weight", 0, head,
                  0},
                 {"attn_k_norm.weight", "attn_k_norm.weight", "self_attn.k_norm.weight", 0, head,
                  0},
                 {"ffn_norm.weight", "post_attention_norm.weight",
                  "post_attention_layernorm.weight", 0, d, 0},
                 {"ffn_gate.weight", "ffn_gate.weight", "mlp.gate_proj.weight", N_FF, d, 0},
                 {"ffn_up.weight", "ffn_up.weight", "mlp.up_proj.weight", N_FF, d, 0},
                 {"ffn_down.weight", "ffn_down.weight", "mlp.down_proj.weight", d, N_FF, 0}},
        .n_once = f->has_heads ? N_ONCE + N_HEADS : N_ONCE};
}

static void write_drafter(char *path, size_t size, bool is_other, int32_t window,
                          const struct fault *f) {
    const struct parts parts = parts_of(f);
    struct gguf_writer *w;
    struct err e = {0};
    snprintf(path, size, "%s/drafter.gguf", scratch);
    assert_int_equal(gguf_writer_new(&w, path, 32, 0, &e), 0);
    put_keys(w, is_other, window, f);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < parts.n_once; i++) add_part(w, &parts.once[i], -1, is_other, pass, f);
        for (int il = 0; il < N_LAYER; il++)
            for (int i = 0; i < N_EACH; i++) add_part(w, &parts.each[i], il, is_other, pass, f);
        const uint64_t ne[2] = {32, 1};
        const float zeros[32] = {0};
        if (f->more && pass == 0) gguf_add_tensor(w, f->more, QUANT_F32, 2, ne);
        if (f->more && pass == 1) assert_int_equal(gguf_write_data(w, zeros, sizeof zeros, &e), 0);
    }
    if (gguf_writer_close(w, &e)) fail_msg("%s", e.text);
}

/* ---- Hugging Face folders ---- */

static const char dflash_fields[] = "\"architectures\":[\"DFlashDraftModel\"],\"block_size\":8,"
                                    "\"dflash_config\":{\"mask_token_id\":95,"
                                    "\"target_layer_ids\":[0,2,3]}";
/* As DeepSpec writes them: everything beside the rest, and copies of the embedding and the head. */
static const char dspark_fields[] =
    "\"architectures\":[\"Qwen3DSparkModel\"],\"block_size\":8,\"mask_token_id\":95,"
    "\"target_layer_ids\":[0,2,3],\"num_anchors\":512,\"markov_rank\":6,"
    "\"markov_head_type\":\"vanilla\",\"enable_confidence_head\":true,"
    "\"confidence_head_with_markov\":true";

static void put_tensor(json_t *head, struct buf *data, const char *name, const struct part *p,
                       const float *x) {
    json_t *shape = p->rows ? json_pack("[I,I]", (json_int_t)p->rows, (json_int_t)p->cols)
                            : json_pack("[I]", (json_int_t)p->cols);
    size_t n = (size_t)(p->rows ? p->rows * p->cols : p->cols) * sizeof *x;
    json_object_set_new(head, name,
                        json_pack("{s:s,s:o,s:[I,I]}", "dtype", "F32", "shape", shape,
                                  "data_offsets", (json_int_t)data->n, (json_int_t)(data->n + n)));
    buf_put(data, x, n);
}

static void write_weights(const char *dir, const struct fault *f) {
    const struct parts parts = parts_of(f);
    char path[200], name[120];
    struct buf data, all;
    struct err e = {0};
    json_t *head = json_object();
    buf_init(&data, 1 << 24);
    buf_init(&all, 1 << 24);
    for (int il = -1; il < N_LAYER; il++)
        for (int i = 0; i < (il < 0 ? parts.n_once : N_EACH); i++) {
            const struct part *p = il < 0 ? &parts.once[i] : &parts.each[i];
            float *x = part_values(p, il, f);
            if (il < 0) snprintf(name, sizeof name, "%s", p->hf);
            else snprintf(name, sizeof name, "layers.%d.%s", il, p->hf);
            put_tensor(head, &data, name, p, x);
            mem_free(x);
        }
    static const float zeros[N_VOCAB * WIDTH];
    const struct part copy = {.rows = N_VOCAB, .cols = WIDTH}, more = {.rows = 1, .cols = 32};
    if (f->has_heads) put_tensor(head, &data, "embed_tokens.weight", &copy, zeros);
    if (f->has_heads) put_tensor(head, &data, "lm_head.weight", &copy, zeros);
    if (f->more) put_tensor(head, &data, f->more, &more, zeros);
    char *text = json_dumps(head, JSON_COMPACT);
    uint64_t n = strlen(text);
    buf_put(&all, &n, sizeof n);
    buf_put(&all, text, n);
    buf_put(&all, data.p, data.n);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(file_write(path, all.p, all.n, &e), 0);
    buf_fini(&data);
    buf_fini(&all);
    free(text);
    json_decref(head);
}

/* A folder like those published; converts it to path. */
static int convert_folder(char *path, size_t size, const char *fields, int32_t window,
                          const struct fault *f, struct err *e) {
    char dir[100], config[120], text[2000], windows[120] = "";
    struct hf_result r;
    snprintf(dir, sizeof dir, "%s/folder", scratch);
    mkdir(dir, 0700);
    write_weights(dir, f);
    if (window)
        snprintf(windows, sizeof windows,
                 ",\"sliding_window\":%d,\"layer_types\":[\"sliding_attention\","
                 "\"full_attention\"]",
                 window);
    int n = snprintf(text, sizeof text,
                     "{%s,\"model_type\":\"qwen3\",\"hidden_size\":%d,\"intermediate_size\":%d,"
                     "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
                     "\"num_key_value_heads\":%d,\"head_dim\":%d,\"vocab_size\":%d,"
                     "\"num_target_layers\":4,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,"
                     "\"hidden_act\":\"silu\",\"max_position_embeddings\":512%s}",
                     fields, f->width ? f->width : WIDTH, N_FF, N_LAYER, N_HEAD, N_KV, HEAD_WIDTH,
                     f->n_vocab ? f->n_vocab : N_VOCAB, windows);
    snprintf(config, sizeof config, "%s/config.json", dir);
    assert_int_equal(file_write(config, text, (size_t)n, e), 0);
    snprintf(path, size, "%s/drafter.gguf", scratch);
    const struct hf_options o = {.dir = dir, .out = path, .n_thread = 1};
    return hf_convert(&o, &r, e);
}

static void write_as(enum dialect form, char *path, size_t size, int32_t window,
                     const struct fault *f) {
    struct err e = {0};
    if (form != FOLDER) write_drafter(path, size, form == OTHER, window, f);
    else if (convert_folder(path, size, f->has_heads ? dspark_fields : dflash_fields, window, f,
                            &e))
        fail_msg("%s", e.text);
}

/* ---- blocks ---- */

static void compare(const float *got, const float *want, const char *what) {
    double range = 0, worst = 0;
    for (int i = 0; i < N_DRAFT * N_VOCAB; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (fabs((double)want[i]) > range) range = fabs((double)want[i]);
        if (!(d <= worst)) worst = d;
    }
    if (!(worst <= 1e-4 * range)) fail_msg("%s: off by %.2e of the range", what, worst / range);
}

/* A drafter over the target, which has run 100 tokens; path NULL: only the target's parts. */
struct bench {
    struct seq_pool *pool;
    struct seq *seq;
    struct forward *f;
    struct dflash *d;
};

static void open_bench(struct bench *b, const char *path) {
    struct err e = {0};
    const struct seq_pool_params p = {
        .n_slot = 2, .n_ctx = 512, .k_type = QUANT_F32, .v_type = QUANT_F32};
    assert_int_equal(seq_pool_new(&b->pool, target, &p, &e), 0);
    assert_int_equal(seq_new(&b->seq, b->pool, &e), 0);
    assert_int_equal(forward_new(&b->f, target, b->pool, 256, 1, &e), 0);
    b->d = NULL;
    if (!path) return;
    const struct dflash_params params = {.target = target,
                                         .f = b->f,
                                         .n_slot = 2,
                                         .n_ctx = 512,
                                         .n_ctx_seq = 256,
                                         .k_type = QUANT_F32,
                                         .v_type = QUANT_F32};
    if (dflash_open(&b->d, path, &params, &e)) fail_msg("%s", e.text);
    const struct batch_item run = {.seq = b->seq, .tokens = tokens, .n_tok = 100};
    const float *logits;
    assert_int_equal(forward_run(b->f, &run, 1, &logits, &e), 0);
}

static void close_bench(struct bench *b) {
    dflash_close(b->d);
    forward_free(b->f);
    seq_free(b->seq);
    seq_pool_free(b->pool);
}

static void try_blocks(const float *want, enum dialect form, int32_t window) {
    static const char *const names[] = {"dflash", "dflash-draft", "folder"};
    char path[128], what[64];
    struct err e = {0};
    struct bench b;
    const float *logits;
    const struct fault none = {.width = 0};
    snprintf(what, sizeof what, "%s, window %d", names[form], window);
    write_as(form, path, sizeof path, window, &none);
    open_bench(&b, path);
    struct dflash *d = b.d;
    assert_int_equal(dflash_n_draft(d), N_DRAFT);
    assert_false(dflash_has_heads(d));
    /* 100 tokens in one slot, 30 in the other, in parts; what a block wrote is gone from the next */
    assert_int_equal(dflash_observe(d, 0, 0, 100, &e), 0);
    assert_int_equal(dflash_observe(d, 1, 0, 7, &e), 0);
    assert_int_equal(dflash_draft(d, 1, tokens[7], 3, &logits, &e), 0);
    for (int i = 7; i < 30; i++) assert_int_equal(dflash_observe(d, 1, i, 1, &e), 0);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(dflash_draft(d, 0, tokens[100], N_DRAFT, &logits, &e), 0);
        compare(logits, want, what);
        assert_int_equal(dflash_draft(d, 1, tokens[30], N_DRAFT, &logits, &e), 0);
        compare(logits, want + N_DRAFT * N_VOCAB, what);
    }
    /* another sequence in the slot leaves nothing of the one before */
    dflash_reset(d, 0);
    assert_int_equal(dflash_observe(d, 0, 0, 30, &e), 0);
    assert_int_equal(dflash_draft(d, 0, tokens[30], N_DRAFT, &logits, &e), 0);
    compare(logits, want + N_DRAFT * N_VOCAB, what);
    assert_int_equal(dflash_draft(d, 0, tokens[30], N_DRAFT + 1, &logits, &e), CHIMERE_EINVAL);
    close_bench(&b);
}

static void blocks_are_those_of_pytorch(void **state) {
    (void)state;
    size_t n;
    float *want = golden_floats("dflash", ".logits", &n);
    assert_int_equal(n, 2 * 2 * N_DRAFT * N_VOCAB);
    for (enum dialect form = MAINLINE; form <= FOLDER; form++) {
        try_blocks(want, form, 0);
        try_blocks(want + 2 * N_DRAFT * N_VOCAB, form, 20);
    }
    mem_free(want);
}

/* With DSpark's heads, each token of a block depends on the one before, and the first row drafts too. */
static void chains_are_those_of_numpy(void **state) {
    (void)state;
    enum { N = N_DRAFT + 1 };
    size_t n;
    float *want = golden_floats("dspark", ".chain", &n);
    assert_int_equal(n, 2 * N * 2);
    for (enum dialect form = MAINLINE; form <= FOLDER; form++) {
        char path[128];
        struct err e = {0};
        struct bench b;
        const float *logits;
        write_as(form, path, sizeof path, 0, &(struct fault){.has_heads = true});
        open_bench(&b, path);
        assert_true(dflash_has_heads(b.d));
        assert_int_equal(dflash_n_draft(b.d), N);
        for (int32_t k = 0; k < 2; k++) {
            int32_t at = k ? 30 : 100, prev = tokens[at];
            assert_int_equal(dflash_observe(b.d, k, 0, at, &e), 0);
            assert_int_equal(dflash_draft(b.d, k, prev, N, &logits, &e), 0);
            for (int32_t i = 0; i < N; i++) {
                float sure;
                const float *row = logits + i * N_VOCAB, *expected = want + (k * N + i) * 2;
                assert_int_equal(dflash_follow(b.d, i, prev, &sure, &e), 0);
                prev = 0;
                for (int32_t t = 1; t < N_VOCAB; t++)
                    if (row[t] > row[prev]) prev = t;
                assert_int_equal(prev, (int32_t)expected[0]);
                assert_true(fabsf(sure - expected[1]) < 1e-4f);
            }
        }
        close_bench(&b);
    }
    mem_free(want);
}

/* The shapes of two published companions of a mixture of 35B: layers, taps, windows, mask and heads are the file's. */
static void published_folders_are_read(void **state) {
    (void)state;
    static const struct {
        int32_t n_layer, n_kv, mask, n_tap, taps[8],
            window; /* window: of all layers but the last */
    } of[] = {{8, 4, 248070, 5, {1, 10, 19, 28, 37}, 0},
              {6, 8, 248077, 8, {1, 6, 11, 16, 22, 27, 32, 37}, 4096}};
    for (size_t k = 0; k < 2; k++) {
        struct gguf_writer *w;
        struct gguf *g;
        struct buf image;
        struct err e = {0};
        struct hparams *hp = mem_zalloc(sizeof *hp);
        json_t *taps = json_array(), *types = json_array();
        for (int32_t i = 0; i < of[k].n_tap; i++)
            json_array_append_new(taps, json_integer(of[k].taps[i]));
        for (int32_t i = 0; i < of[k].n_layer; i++)
            json_array_append_new(types, json_string(of[k].window && i + 1 < of[k].n_layer
                                                         ? "sliding_attention"
                                                         : "full_attention"));
        json_t *config =
            json_pack("{s:[s],s:s,s:i,s:{s:i,s:o},s:o,s:i,s:i}", "architectures",
                      "DFlashDraftModel", "model_type", "qwen3", "block_size", 16, "dflash_config",
                      "mask_token_id", of[k].mask, "target_layer_ids", taps, "layer_types", types,
                      "sliding_window", of[k].window, "num_hidden_layers", of[k].n_layer);
        const struct arch *a = arch_find_hf("qwen3", config);
        assert_non_null(a);
        assert_true(arch_is_drafter(a));
        assert_int_equal(gguf_writer_new(&w, "config.json", 0, 0, &e), 0);
        gguf_put_str(w, "general.architecture", a->name, strlen(a->name));
        gguf_put_u32(w, "dflash.block_count", (uint32_t)of[k].n_layer);
        gguf_put_u32(w, "dflash.embedding_length", 2048);
        gguf_put_u32(w, "dflash.feed_forward_length", 6144);
        gguf_put_u32(w, "dflash.attention.head_count", 32);
        gguf_put_u32(w, "dflash.attention.head_count_kv", (uint32_t)of[k].n_kv);
        gguf_put_u32(w, "dflash.attention.key_length", 128);
        gguf_put_u32(w, "dflash.attention.value_length", 128);
        gguf_put_f32(w, "dflash.attention.layer_norm_rms_epsilon", 1e-6f);
        if (a->derive(config, w, &e)) fail_msg("%s", e.text);
        gguf_add_tensor(w, "fc.weight", QUANT_I8, 2, (uint64_t[]){2048 * (uint64_t)of[k].n_tap, 1});
        buf_init(&image, 1 << 20);
        assert_int_equal(gguf_render(w, &image, &e), 0);
        if (gguf_open_memory(&g, image.p, image.n, "config.json", &e)) fail_msg("%s", e.text);
        if (hparams_read_drafter(hp, g, &e)) fail_msg("%s", e.text);
        assert_int_equal(hp->n_layer, of[k].n_layer);
        assert_int_equal(hp->dflash.mask, of[k].mask);
        assert_int_equal(hp->dflash.n_block, 16);
        assert_int_equal(hp->dflash.n_tap, of[k].n_tap);
        assert_memory_equal(hp->dflash.taps, of[k].taps, (size_t)of[k].n_tap * sizeof(int32_t));
        for (int32_t il = 0; il < of[k].n_layer; il++) {
            assert_int_equal(hp->layer[il].window, il + 1 < of[k].n_layer ? of[k].window : 0);
            assert_int_equal(hp->layer[il].n_kv_head, of[k].n_kv);
        }
        gguf_close(g);
        gguf_writer_abort(w);
        buf_fini(&image);
        json_decref(config);
        mem_free(hp);
    }
}

/* ---- engines ---- */

struct answer {
    int32_t tokens[128], n,
        n_most; /* n_most: the reader goes away behind so many tokens; 0: it stays */
};

static bool on_token(struct engine_job *j, int32_t token, bool is_end,
                     const struct sampler_probs *probs) {
    struct answer *a = j->ud;
    (void)is_end;
    (void)probs;
    a->tokens[a->n++] = token;
    return a->n != a->n_most;
}

static void on_done(struct engine_job *j) { (void)j; }

/* Greedy answers that end in the middle of a round, by their reader or by a cancel. */
static void end_early(struct engine *en) {
    struct err e = {0};
    for (int i = 0; i < 12; i++) {
        struct answer a = {.n_most = 2 + i};
        struct engine_job j = {.p = {.prompt = tokens, .n_prompt = 40 + i, .max_tokens = 60},
                               .on_token = on_token,
                               .on_done = on_done,
                               .ud = &a};
        sampler_defaults(&j.p.sampling);
        j.p.sampling.temperature = 0;
        assert_int_equal(engine_run(en, &j, &e), 0);
        assert_int_equal(a.n, a.n_most);
    }
}

static int32_t n_head; /* rows of the head that drafts read; 0: all */

static void answer_with(struct model *m, const char *drafter, uint32_t type, struct answer *a) {
    struct engine_params p;
    struct engine *en;
    struct err e = {0};
    engine_defaults(&p);
    p.n_seq = 1;
    p.n_ctx = p.n_ctx_seq = 512;
    p.k_type = p.v_type = type;
    p.speculate = drafter != NULL;
    p.draft = drafter;
    p.n_draft_max = 4;
    p.n_draft_head = n_head;
    if (engine_new(&en, m, NULL, &p, &e)) fail_msg("%s", e.text);
    *a = (struct answer){.n = 0};
    if (drafter) end_early(en);
    struct engine_job j = {.p = {.prompt = tokens, .n_prompt = 50, .max_tokens = 100},
                           .on_token = on_token,
                           .on_done = on_done,
                           .ud = a};
    sampler_defaults(&j.p.sampling);
    j.p.sampling.temperature = 0;
    j.p.sampling.ignore_eos = true;
    assert_int_equal(engine_run(en, &j, &e), 0);
    assert_int_equal(j.finish, FINISH_LENGTH);
    assert_int_equal(a->n, 100);
    engine_free(en);
}

static void same_with(struct model *m, const char *drafter, uint32_t type) {
    struct answer with, without;
    answer_with(m, NULL, type, &without);
    answer_with(m, drafter, type, &with);
    assert_memory_equal(with.tokens, without.tokens, sizeof with.tokens);
}

/* A drafter of random weights is hardly ever right: the text is as without, in all types of cache. */
static void drafts_change_no_text(void **state) {
    (void)state;
    char path[128];
    struct err e = {0};
    struct model *nano;
    const struct fault none = {.width = 0}, of_nano = {.is_nano = true, .width = 256};
    write_drafter(path, sizeof path, false, 20, &none);
    same_with(target, path, QUANT_F32);
    same_with(target, path, QUANT_F16);
    write_drafter(path, sizeof path, true, 0, &(struct fault){.has_heads = true});
    same_with(target, path, QUANT_F16);
    write_drafter(path, sizeof path, true, 0, &of_nano);
    if (model_open(&nano, TEST_DATA "/../../models/chimere-nano-bf16.gguf", dev, true, &e))
        fail_msg("%s", e.text);
    same_with(nano, path, QUANT_F16);
    same_with(nano, path, QUANT_Q8_0);
    n_head = 512;
    same_with(nano, path, QUANT_F16);
    assert_int_equal(nano->draft_head.n_out, n_head);
    n_head = 0;
    model_close(nano);
}

static void the_plan_counts_the_drafter(void **state) {
    (void)state;
    const char *nano = TEST_DATA "/../../models/chimere-nano-bf16.gguf";
    char path[128];
    struct err e = {0};
    struct memory_plan with, without;
    struct model *m;
    struct dflash_bytes own;
    const struct fault of_nano = {.is_nano = true, .width = 256};
    write_drafter(path, sizeof path, false, 0, &of_nano);
    struct plan_params p = {.n_ctx = 512, .n_seq = 2, .full_ctx = true, .budget_bytes = 1 << 30};
    engine_defaults(&p.engine);
    p.engine.speculate = true;
    if (plan_make(&without, nano, &p, &e)) fail_msg("%s", e.text);
    p.engine.draft = path;
    if (plan_make(&with, nano, &p, &e)) fail_msg("%s", e.text);
    const struct dflash_params params = {.n_slot = 2,
                                         .n_ctx = 1024,
                                         .n_ctx_seq = 512,
                                         .k_type = p.engine.k_type,
                                         .v_type = p.engine.v_type};
    if (model_open(&m, nano, dev, true, &e)) fail_msg("%s", e.text);
    if (dflash_plan(path, m, &params, with.engine.n_batch, &own, &e)) fail_msg("%s", e.text);
    model_close(m);
    /* 2 layers, 2 heads of 32, keys and values in f16, of 1024 positions and 2 pages for each sequence */
    assert_int_equal(own.cache, 2 * 2 * 2 * 32 * 2 * (1024 + 2 * 2 * 64));
    assert_true(own.weights > 4 * (3 * 256 * 256 + 2 * 3 * 256 * 48));
    assert_int_equal(with.total_bytes - without.total_bytes, own.weights + own.cache + own.scratch);
}

/* ---- refusals ---- */

static void refuse_file(const char *path, int code, const char *why) {
    struct engine_params p;
    struct engine *en;
    struct err e = {0};
    engine_defaults(&p);
    p.n_seq = 1;
    p.n_ctx = p.n_ctx_seq = 256;
    p.speculate = true;
    p.draft = path;
    assert_int_equal(engine_new(&en, target, NULL, &p, &e), code);
    if (!strstr(e.text, why)) fail_msg("expected '%s', got '%s'", why, e.text);
    assert_non_null(strstr(e.text, "drafter.gguf"));
}

static void refuse(const struct fault *f, bool is_other, int code, const char *why) {
    char path[128];
    write_drafter(path, sizeof path, is_other, 0, f);
    refuse_file(path, code, why);
}

static void what_does_not_fit_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        struct fault f;
        int code;
        const char *why;
    } cases[] = {
        {{.width = 64}, CHIMERE_EMISMATCH, "a width of 64, the model has 32"},
        {{.n_tap = 4}, CHIMERE_EMISMATCH, "4 layers of 32 are 128"},
        {{.tap = 4}, CHIMERE_EMISMATCH, "reads layer 4, the model has 4"},
        {{.mask = 96}, CHIMERE_EMISMATCH, "its mask is token 96"},
        {{.n_vocab = 90}, CHIMERE_EMISMATCH, "drafts for 90 tokens, the model has 96"},
        {{.n_vocab = 96}, CHIMERE_EMISMATCH, "its token 0 is another"},
        {{.is_nan = true}, CHIMERE_ENUMERIC, "blk.1."},
        {{.more = "markov_w1.weight"}, CHIMERE_EFORMAT, "tensor markov_w2.weight"},
        {{.more = "blk.0.attn_gate.weight"}, CHIMERE_EUNSUPPORTED, "blk.0.attn_gate.weight"},
        {{.more = "conf_proj.weight", .width = 64}, CHIMERE_EFORMAT, "conf_proj.weight"},
        {{.is_nan = true, .has_heads = true}, CHIMERE_ENUMERIC, "blk.1."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int other = 0; other < 2; other++)
            refuse(&cases[i].f, other, cases[i].code, cases[i].why);
}

/* What a folder has that these drafters have not. */
static void folders_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        struct fault f;
        int code;
        const char *why;
    } cases[] = {
        {"\"architectures\":[\"DFlash2DraftModel\"],\"dflash_config\":{\"block_size\":8,"
         "\"mask_token_id\":95,\"target_layer_ids\":[0,2,3],\"selector_rank\":8}",
         {.width = 0},
         CHIMERE_EUNSUPPORTED,
         "selector_rank"},
        {"\"architectures\":[\"DSparkDraftModel\"],\"dflash_config\":{\"mask_token_id\":95,"
         "\"target_layer_ids\":[0,2,3],\"markov_rank\":6,\"markov_head_type\":\"gated\"}",
         {.has_heads = true},
         CHIMERE_EUNSUPPORTED,
         "expected vanilla, got 'gated'"},
        {dflash_fields, {.more = "layers.0.attn_conv.weight"}, CHIMERE_EUNSUPPORTED, "attn_conv"},
        {dflash_fields, {.is_nan = true}, CHIMERE_ENUMERIC, "layers.1."},
        {dflash_fields, {.n_vocab = -1}, CHIMERE_EFORMAT, "vocab_size"},
        {"\"architectures\":[\"DFlashDraftModel\"],\"dflash_config\":{\"mask_token_id\":95}",
         {.width = 0},
         CHIMERE_EFORMAT,
         "target_layer_ids"},
        {"\"architectures\":[\"DFlashDraftModel\"],\"dflash_config\":{\"target_layer_ids\":[0,2,3]"
         "}",
         {.width = 0},
         CHIMERE_EFORMAT,
         "mask_token_id"},
        {"\"architectures\":[\"DFlashDraftModel\"],\"dflash_config\":{\"mask_token_id\":95,"
         "\"target_layer_ids\":[0,2]}",
         {.width = 0},
         CHIMERE_EMISMATCH,
         "2 layers of 32 are 64"},
    };
    char path[128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        int rc = convert_folder(path, sizeof path, cases[i].fields, 0, &cases[i].f, &e);
        if (!rc) { /* a folder does not say how wide its model is */
            assert_int_equal(cases[i].code, CHIMERE_EMISMATCH);
            refuse_file(path, cases[i].code, cases[i].why);
            continue;
        }
        assert_int_equal(rc, cases[i].code);
        if (!strstr(e.text, cases[i].why))
            fail_msg("expected '%s', got '%s'", cases[i].why, e.text);
    }
    struct err e = {0};
    const struct fault other = {.n_vocab = 90};
    assert_int_equal(convert_folder(path, sizeof path, dflash_fields, 0, &other, &e), 0);
    refuse_file(path, CHIMERE_EMISMATCH, "drafts for 90 tokens, the model has 96");
}

/* Every length: a file that ends early is refused, not read beyond. */
static void truncated_files_are_refused(void **state) {
    (void)state;
    char path[128], cut[128], *bytes;
    size_t n;
    struct err e = {0};
    struct model *m;
    const struct fault none = {.width = 0};
    write_drafter(path, sizeof path, false, 0, &none);
    assert_int_equal(file_read(path, 1 << 24, &bytes, &n, &e), 0);
    snprintf(cut, sizeof cut, "%s/cut.gguf", scratch);
    for (size_t k = 0; k < n; k += k < 3000 ? 7 : 1501) {
        assert_int_equal(file_write(cut, bytes, k, &e), 0);
        assert_int_not_equal(model_open_drafter(&m, cut, dev, &e), 0);
        assert_non_null(strstr(e.text, "cut.gguf"));
    }
    mem_free(bytes);
}

/* Memory that runs out anywhere while one opens: an error, and nothing is lost. */
static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    char path[128];
    struct engine_params p;
    struct engine *en;
    struct err e = {0};
    const struct fault none = {.width = 0};
    write_drafter(path, sizeof path, false, 0, &none);
    engine_defaults(&p);
    p.n_seq = 1;
    p.n_ctx = p.n_ctx_seq = 256;
    p.speculate = true;
    p.draft = path;
    int rc = CHIMERE_ENOMEM;
    for (int64_t n = 1; rc; n += 3) {
        mem_fail_nth(n);
        rc = engine_new(&en, target, NULL, &p, &e);
        mem_fail_nth(0);
        if (rc) assert_int_equal(rc, CHIMERE_ENOMEM);
    }
    engine_free(en);
}

/* Standard error to a file, or back. */
static void catch_errors(const char *path) {
    static int kept = -1;
    fflush(stderr);
    if (path) {
        kept = dup(2);
        assert_non_null(freopen(path, "w", stderr));
        return;
    }
    dup2(kept, 2);
    close(kept);
}

/* Where its cache is full, a sequence is decoded without the drafter, which is said once. */
static void a_drafter_without_room_is_left_out(void **state) {
    (void)state;
    char path[128], file[128], *text;
    size_t n;
    struct err e = {0};
    struct bench b;
    struct drafter *d;
    struct engine_params p;
    write_as(MAINLINE, path, sizeof path, 0, &(struct fault){.width = 0});
    open_bench(&b, NULL);
    engine_defaults(&p);
    p.n_ctx = p.n_ctx_seq = 64; /* and two pages of 64 for each of two sequences: 320 positions */
    p.draft = path;
    const struct drafter_params dp = {.m = target, .f = b.f, .n_seq = 2, .engine = &p};
    if (drafter_open(&d, &dp, &e)) fail_msg("%s", e.text);
    snprintf(file, sizeof file, "%s/errors", scratch);
    const struct batch_item run = {.seq = b.seq, .tokens = tokens, .n_tok = 100};
    const float *logits;
    assert_int_equal(forward_run(b.f, &run, 1, &logits, &e), 0);
    const bool follow = true;
    catch_errors(file);
    for (int k = 0; k < 3; k++) { /* twice too much, then not */
        struct drafter_request ask = {.seq = b.seq, .next = tokens[100], .n_draft = 3};
        d->ops->rewind(d, b.seq);
        int rc = 0;
        for (int i = 0; !rc && i < (k < 2 ? 4 : 1); i++)
            rc = d->ops->observe(d, &run, &run.n_tok, &follow, 1, &e);
        if (!rc) rc = d->ops->draft(d, &ask, 1, &e);
        if (rc || ask.n_draft != (k < 2 ? 0 : 3)) {
            catch_errors(NULL);
            fail_msg("turn %d: %d, %d drafts", k, rc, ask.n_draft);
        }
    }
    catch_errors(NULL);
    assert_int_equal(file_read(file, 1 << 16, &text, &n, &e), 0);
    const char *first = strstr(text, "decoded without it");
    assert_non_null(first);
    assert_null(strstr(first + 1, "decoded without it"));
    mem_free(text);
    d->ops->close(d);
    close_bench(&b);
}

static int set_up(void **state) {
    (void)state;
    char path[512];
    json_error_t why;
    struct err e = {0};
    size_t i;
    json_t *t;
    snprintf(scratch, sizeof scratch, "dflash-%ld", (long)getpid());
    if (mkdir(scratch, 0700)) return -1;
    snprintf(path, sizeof path, "%s/golden/qwen35moe.json", TEST_DATA);
    json_t *spec = json_load_file(path, 0, &why);
    assert_non_null(spec);
    json_array_foreach(json_object_get(spec, "tokens"), i, t) tokens[n_tok++] =
        (int32_t)json_integer_value(t);
    golden_build(spec, "qwen35moe", scratch, NULL, path, sizeof path);
    json_decref(spec);
    assert_int_equal(cpu_open(&dev, 2, CPU_ISA_BEST, &e), 0);
    return model_open(&target, path, dev, true, &e);
}

static int tear_down(void **state) {
    (void)state;
    char cmd[100];
    model_close(target);
    dev->ops->close(dev);
    snprintf(cmd, sizeof cmd, "rm -rf %s", scratch);
    return system(cmd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_those_of_pytorch),
        cmocka_unit_test(chains_are_those_of_numpy),
        cmocka_unit_test(published_folders_are_read),
        cmocka_unit_test(drafts_change_no_text),
        cmocka_unit_test(the_plan_counts_the_drafter),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(folders_that_do_not_fit_are_refused),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
        cmocka_unit_test(a_drafter_without_room_is_left_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
