/* test_quantize.c: whole files through convert/quantize: types by mix, rule and shape; bytes equal to
 * encoding each row by itself; importance matrices of both forms, and broken ones; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "convert/hints.h"
#include "convert/quantize.h"
#include "convert/quantize_mix.h"
#include "format/quant.h"
#include "format/quant_refine.h"

static char folder[] = "quantize.XXXXXX";
static char source[64], result[64], matrix[64];

enum { EMBD = 512, FF = 1056, N_EXPERT = 4, FF_EXPERT = 6, N_LAYER = 8, MAX_TENSOR = 100 };

struct spec {
    char name[64];
    uint32_t type, n_dims;
    uint64_t ne[4];
    float *x; /* what the source holds, after rounding to its type */
};
static struct spec specs[MAX_TENSOR];
static int n_spec;

static void add(const char *name, int layer, uint32_t type, uint64_t ne0, uint64_t ne1,
                uint64_t ne2) {
    struct spec *s = &specs[n_spec++];
    if (layer >= 0) snprintf(s->name, sizeof s->name, "blk.%d.%s", layer, name);
    else snprintf(s->name, sizeof s->name, "%s", name);
    s->type = type;
    s->n_dims = ne2 ? 3 : ne1 ? 2 : 1;
    s->ne[0] = ne0;
    s->ne[1] = ne1 ? ne1 : 1;
    s->ne[2] = ne2 ? ne2 : 1;
    s->ne[3] = 1;
}

static uint64_t elements(const struct spec *s) { return s->ne[0] * s->ne[1] * s->ne[2]; }

static void describe_model(void) {
    n_spec = 0;
    add("token_embd.weight", -1, QUANT_F16, EMBD, 30, 0);
    add("output.weight", -1, QUANT_BF16, EMBD, 30, 0);
    add("output_norm.weight", -1, QUANT_F32, EMBD, 0, 0);
    for (int i = 0; i < N_LAYER; i++) {
        add("attn_norm.weight", i, QUANT_F16, EMBD, 0, 0);
        add("attn_q.weight", i, QUANT_F32, EMBD, 9, 0);
        add("attn_v.weight", i, QUANT_F16, EMBD, 3, 0);
        add("ffn_gate_inp.weight", i, QUANT_F32, EMBD, N_EXPERT, 0);
        add("ffn_up_exps.weight", i, QUANT_F32, EMBD, FF_EXPERT, N_EXPERT);
        add("ffn_down.weight", i, QUANT_F32, FF, 5, 0);
        add("ssm_conv1d.weight", i, QUANT_F32, 4, 10, 0);
        add("odd.weight", i, QUANT_F32, 50, 2, 0);
        add("ids.weight", i, QUANT_I32, EMBD, 2, 0);
    }
    add("wide.weight", -1, QUANT_F32, 40960, 2, 0); /* more than a thread takes at once */
}

/* Writes the model; `spoil` is put at element 77 of the tensor that is named, NULL for none. */
static void write_source(const char *path, uint64_t split, const char *spoiled, float spoil) {
    struct gguf_writer *w;
    struct err e = {0};
    struct rng r;
    assert_int_equal(gguf_writer_new(&w, path, 64, split, &e), 0);
    gguf_put_str(w, "general.architecture", "test", 4);
    gguf_put_u32(w, "test.block_count", N_LAYER);
    gguf_put_u32(w, "test.attention.head_count", 8);
    gguf_put_u32(w, "test.attention.head_count_kv", 4);
    gguf_put_u32(w, "general.file_type", 0);
    for (int i = 0; i < n_spec; i++)
        gguf_add_tensor(w, specs[i].name, specs[i].type, specs[i].n_dims, specs[i].ne);
    rng_seed(&r, 3);
    for (int i = 0; i < n_spec; i++) {
        struct spec *s = &specs[i];
        uint64_t n = elements(s), bytes;
        assert_true(quant_row_bytes(s->type, n, &bytes));
        float *x = mem_alloc(n * sizeof *x);
        char *raw = mem_zalloc(bytes);
        for (uint64_t k = 0; k < n; k++) x[k] = (float)rng_normal(&r) * 0.05f;
        if (spoiled && strcmp(s->name, spoiled) == 0) x[77] = spoil;
        const struct quant_traits *t = quant_traits(s->type);
        if (t->encode) {
            t->encode(x, raw, n, NULL);
            t->decode(raw, x, n);
        }
        mem_free(s->x);
        s->x = x;
        assert_int_equal(gguf_write_data(w, raw, bytes, &e), 0);
        mem_free(raw);
    }
    assert_int_equal(gguf_writer_close(w, &e), 0);
}

static int start(void **s) {
    (void)s;
    if (!mkdtemp(folder)) return -1;
    snprintf(source, sizeof source, "%s/source.gguf", folder);
    snprintf(result, sizeof result, "%s/result.gguf", folder);
    snprintf(matrix, sizeof matrix, "%s/imatrix", folder);
    log_set_level(LOG_ERROR);
    describe_model();
    write_source(source, 0, NULL, 0);
    return 0;
}

static int finish(void **s) {
    (void)s;
    for (int i = 0; i < n_spec; i++) mem_free(specs[i].x);
    unlink(source);
    unlink(result);
    unlink(matrix);
    return rmdir(folder);
}

static int run(const struct quantize_options *o, const char *from, struct err *e) {
    struct quantize *q;
    unlink(result);
    int rc = quantize_open(&q, from, o, e);
    if (rc) return rc;
    rc = quantize_run(q, result, false, e);
    quantize_close(q);
    return rc;
}

static struct gguf *made(const struct quantize_options *o) {
    struct err e = {0};
    struct gguf *g = NULL;
    if (run(o, source, &e) || gguf_open(&g, result, &e)) fail_msg("%s", e.text);
    return g;
}

static void expect_type(const struct gguf *g, const char *name, uint32_t type) {
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    assert_non_null(t);
    if (t->type != type)
        fail_msg("%s: expected %s, got %s", name, quant_traits(type)->name,
                 quant_traits(t->type)->name);
}

static const struct spec *spec_of(const char *name) {
    for (int i = 0; i < n_spec; i++)
        if (strcmp(specs[i].name, name) == 0) return &specs[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Bytes of every float tensor are those of encoding its rows one by one; weights: [n_expert, EMBD] of
 * the tensor that is named. */
static void expect_rows(const struct gguf *g, const char *weighted, const float *weights) {
    for (int i = 0; i < n_spec; i++) {
        const struct spec *s = &specs[i];
        const struct gguf_tensor *t = gguf_find_tensor(g, s->name);
        const struct quant_traits *q = quant_traits(t->type);
        if (!q->encode) continue;
        uint64_t bytes;
        assert_true(quant_row_bytes(t->type, s->ne[0], &bytes));
        char *row = mem_alloc(bytes);
        for (uint64_t r = 0; r < s->ne[1] * s->ne[2]; r++) {
            const float *w = weighted && strcmp(weighted, s->name) == 0
                                 ? weights + r / s->ne[1] * s->ne[0]
                                 : NULL;
            q->encode(s->x + r * s->ne[0], row, s->ne[0], w);
            if (memcmp(row, t->data + r * bytes, bytes))
                fail_msg("%s as %s: row %" PRIu64 " differs", s->name, q->name, r);
        }
        mem_free(row);
    }
}

static uint64_t key(const struct gguf *g, const char *name) {
    const struct gguf_kv *kv = gguf_find(g, name);
    uint64_t v = UINT64_MAX;
    if (kv) gguf_item_u64(kv, 0, &v);
    return v;
}

static void a_mix_gives_each_tensor_its_type(void **s) {
    (void)s;
    struct gguf *g = made(&(struct quantize_options){.type = "q4_k_M", .n_thread = 3});
    expect_type(g, "token_embd.weight", QUANT_Q4_K);
    expect_type(g, "output.weight", QUANT_Q6_K);
    expect_type(g, "output_norm.weight", QUANT_F32);
    expect_type(g, "blk.3.attn_norm.weight", QUANT_F32); /* was f16 */
    expect_type(g, "blk.3.attn_q.weight", QUANT_Q4_K);
    expect_type(g, "blk.0.attn_v.weight", QUANT_Q6_K); /* first eighth, last eighth, every third */
    expect_type(g, "blk.1.attn_v.weight", QUANT_Q4_K);
    expect_type(g, "blk.2.attn_v.weight", QUANT_Q4_K);
    expect_type(g, "blk.3.attn_v.weight", QUANT_Q6_K);
    expect_type(g, "blk.7.attn_v.weight", QUANT_Q6_K);
    expect_type(g, "blk.0.ffn_down.weight", QUANT_Q8_0); /* 1056 columns: q6_K does not fit */
    expect_type(g, "blk.1.ffn_down.weight", QUANT_Q5_0);
    expect_type(g, "blk.1.ffn_gate_inp.weight", QUANT_F32);
    expect_type(g, "blk.1.ssm_conv1d.weight", QUANT_F32);
    expect_type(g, "blk.1.odd.weight", QUANT_F16);
    expect_type(g, "blk.1.ids.weight", QUANT_I32);
    expect_type(g, "blk.1.ffn_up_exps.weight", QUANT_Q4_K);
    expect_rows(g, NULL, NULL);
    assert_int_equal(key(g, "general.file_type"), 15);
    assert_int_equal(key(g, "general.quantization_version"), 2);
    assert_int_equal(key(g, "test.block_count"), N_LAYER);
    assert_int_equal(gguf_alignment(g), 64);
    gguf_close(g);
}

static void every_mix_writes_what_rows_encode_to(void **s) {
    (void)s;
    const char *name;
    for (int i = 0; (name = quantize_mix_name(i)) != NULL; i++) {
        struct err e = {0};
        struct quantize_options o = {.type = name, .n_thread = 2};
        int rc = run(&o, source, &e);
        if (quant_traits(quantize_mix_base(quantize_mix_find(name)))->needs_weights) {
            assert_int_equal(rc, CHIMERE_EINVAL);
            assert_non_null(strstr(e.text, "needs importance weights"));
            continue;
        }
        if (rc) fail_msg("%s: %s", name, e.text);
        struct gguf *g;
        assert_int_equal(gguf_open(&g, result, &e), 0);
        assert_int_equal(key(g, "general.file_type"),
                         quantize_mix_file_type(quantize_mix_find(name)));
        expect_rows(g, NULL, NULL);
        gguf_close(g);
    }
}

static void rules_override_the_mix(void **s) {
    (void)s;
    static const char *const rules[] = {"attn_v=F16", "attn_[qv]\\.weight$=q5_K", "exps=iq3_s",
                                        "norm=q8_0", "gate_inp=bf16"};
    struct gguf *g = made(
        &(struct quantize_options){.type = "Q8_0", .tensor_types = rules, .n_tensor_types = 5});
    expect_type(g, "blk.0.attn_v.weight", QUANT_F16);
    expect_type(g, "blk.0.attn_q.weight", QUANT_Q5_K);
    expect_type(g, "blk.0.ffn_up_exps.weight", QUANT_IQ3_S);
    expect_type(g, "blk.0.attn_norm.weight", QUANT_F32); /* a norm never gets blocks */
    expect_type(g, "blk.0.ffn_gate_inp.weight", QUANT_BF16);
    expect_type(g, "output.weight", QUANT_Q8_0);
    expect_rows(g, NULL, NULL);
    gguf_close(g);
    g = made(&(struct quantize_options){.type = "Q2_K", .pure = true});
    expect_type(g, "output.weight", QUANT_Q2_K);
    expect_type(g, "blk.7.attn_v.weight", QUANT_Q2_K);
    gguf_close(g);
}

static void wrong_options_are_named(void **s) {
    (void)s;
    static const struct {
        const char *type, *rule, *says;
    } cases[] = {
        {"Q9_K", NULL, "no type or mix named 'Q9_K'"},
        {"Q8_0", "attn", "expected REGEX=TYPE, got 'attn'"},
        {"Q8_0", "=q8_0", "expected REGEX=TYPE"},
        {"Q8_0", "attn=", "expected REGEX=TYPE"},
        {"Q8_0", "attn=i32", "no type 'i32' to encode to"},
        {"Q8_0", "attn(=q8_0", "tensor-type attn(=q8_0: at character 5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        const char *const rules[] = {cases[i].rule};
        struct quantize_options o = {
            .type = cases[i].type, .tensor_types = rules, .n_tensor_types = cases[i].rule ? 1 : 0};
        assert_int_equal(run(&o, source, &e), CHIMERE_EINVAL);
        if (!strstr(e.text, cases[i].says)) fail_msg("'%s' lacks '%s'", e.text, cases[i].says);
    }
    struct err e = {0};
    struct quantize *q;
    static const char *const runaway[] = {"([a-z0-9_.]+)+[A-Z]=q8_0"};
    struct quantize_options o = {.type = "Q8_0", .tensor_types = runaway, .n_tensor_types = 1};
    assert_int_equal(quantize_open(&q, source, &o, &e), CHIMERE_ELIMIT);
    o.n_tensor_types = 0;
    assert_int_equal(quantize_open(&q, source, &o, &e), 0);
    assert_int_equal(quantize_run(q, source, false, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "replace its source"));
    quantize_close(q);
}

static void values_that_are_not_finite_are_refused_by_place(void **s) {
    (void)s;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    char spoiled[64];
    snprintf(spoiled, sizeof spoiled, "%s/spoiled.gguf", folder);
    for (int i = 0; i < 3; i++) {
        struct err e = {0};
        struct quantize_options o = {.type = "Q4_K_M", .n_thread = 2};
        write_source(spoiled, 0, "blk.2.odd.weight", bad[i]);
        assert_int_equal(run(&o, spoiled, &e), CHIMERE_ENUMERIC);
        if (!strstr(e.text, "tensor blk.2.odd.weight: row 1, column 27"))
            fail_msg("does not name the place: %s", e.text);
        assert_false(file_exists(result));
    }
    unlink(spoiled);
    write_source(source, 0, NULL, 0);
}

/* Opens STEM-00001-of-0000N.gguf of the folder, whatever N, and removes the files' names. */
static struct gguf *open_set(const char *stem, char path[80]) {
    struct err e = {0};
    struct gguf *g;
    for (unsigned n = 2; n < 30; n++) {
        snprintf(path, 80, "%s/%s-00001-of-%05u.gguf", folder, stem, n);
        if (!file_exists(path)) continue;
        if (gguf_open(&g, path, &e)) fail_msg("%s", e.text);
        assert_int_equal(gguf_n_files(g), n);
        return g;
    }
    fail_msg("no set %s", stem);
    return NULL;
}

static void remove_set(const struct gguf *g) {
    for (uint32_t i = 0; i < gguf_n_files(g); i++) unlink(gguf_path(g, i));
}

static void split_sets_go_in_and_out(void **s) {
    (void)s;
    char path[80];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/set.gguf", folder);
    write_source(path, 300000, NULL, 0);
    struct gguf *from = open_set("set", path);
    struct quantize_options o = {.type = "Q8_0", .n_thread = 2, .split_bytes = 100000};
    if (run(&o, path, &e)) fail_msg("%s", e.text);
    struct gguf *to = open_set("result", path);
    assert_int_equal(gguf_n_tensors(to), n_spec);
    expect_rows(to, NULL, NULL);
    remove_set(from);
    remove_set(to);
    gguf_close(from);
    gguf_close(to);
}

/* ---- importance ---- */

static float importance[N_EXPERT][EMBD]; /* of the experts of layer 0 */

static void fill_importance(void) {
    struct rng r;
    rng_seed(&r, 9);
    for (int i = 0; i < N_EXPERT; i++)
        for (int j = 0; j < EMBD; j++) /* expert 2 is never used */
            importance[i][j] = i == 2 ? 1 : ldexpf((float)(1 + rng_below(&r, 1000)), -4);
}

static const float n_rows[N_EXPERT] = {4, 8, 0, 2}; /* that each expert of the matrix saw */

/* What an entry with counts weighs: the mean over all experts counts as 64 rows more. */
static void shrink_importance(float out[N_EXPERT][EMBD]) {
    for (int j = 0; j < EMBD; j++) {
        double sum = 0, n = 0;
        for (int i = 0; i < N_EXPERT; i++) {
            sum += (double)(importance[i][j] * n_rows[i]);
            n += (double)n_rows[i];
        }
        for (int i = 0; i < N_EXPERT; i++)
            out[i][j] = (float)(((double)(importance[i][j] * n_rows[i]) + 64 * (sum / n)) /
                                ((double)n_rows[i] + 64));
    }
}

static void write_matrix_gguf(const char *name, uint64_t n_column, float spoil) {
    struct gguf_writer *w;
    struct err e = {0};
    char sums[80], counts[80];
    float x[N_EXPERT][EMBD];
    uint64_t ne[2] = {n_column, N_EXPERT}, ne_count[2] = {1, N_EXPERT};
    snprintf(sums, sizeof sums, "%s.in_sum2", name);
    snprintf(counts, sizeof counts, "%s.counts", name);
    for (int i = 0; i < N_EXPERT; i++)
        for (int j = 0; j < EMBD; j++) x[i][j] = importance[i][j] * n_rows[i];
    x[1][5] = isnan(spoil) || spoil < 0 ? spoil : x[1][5];
    assert_int_equal(gguf_writer_new(&w, matrix, 0, 0, &e), 0);
    gguf_put_str(w, "general.type", "imatrix", 7);
    gguf_put_strings(w, "imatrix.datasets", &SLICE("some text"), 1);
    gguf_put_u32(w, "imatrix.chunk_count", 12);
    gguf_add_tensor(w, sums, QUANT_F32, 2, ne);
    gguf_add_tensor(w, counts, QUANT_F32, 2, ne_count);
    gguf_write_data(w, x, n_column * N_EXPERT * sizeof(float), &e);
    gguf_write_data(w, n_rows, sizeof n_rows, &e);
    assert_int_equal(gguf_writer_close(w, &e), 0);
}

/* Correlations of the experts' inputs: input i of a block with its neighbours, weaker in each expert. */
static float correlation_of(int expert, int i, int j) {
    if (i == j) return 1;
    return abs(i - j) == 1 && i / QUANT_REFINE_BLOCK == j / QUANT_REFINE_BLOCK
               ? .5f / (float)(1 << expert)
               : 0;
}

static void write_correlated_gguf(uint16_t spoil) {
    struct gguf_writer *w;
    struct err e = {0};
    float x[N_EXPERT][EMBD];
    uint64_t ne[2] = {EMBD, N_EXPERT}, ne_count[2] = {1, N_EXPERT},
             ne_corr[3] = {QUANT_REFINE_BLOCK, EMBD, N_EXPERT};
    for (int i = 0; i < N_EXPERT; i++)
        for (int j = 0; j < EMBD; j++) x[i][j] = importance[i][j] * n_rows[i];
    assert_int_equal(gguf_writer_new(&w, matrix, 0, 0, &e), 0);
    gguf_put_str(w, "general.type", "imatrix", 7);
    gguf_add_tensor(w, "blk.0.ffn_up_exps.weight.in_sum2", QUANT_F32, 2, ne);
    gguf_add_tensor(w, "blk.0.ffn_up_exps.weight.counts", QUANT_F32, 2, ne_count);
    gguf_add_tensor(w, "blk.0.ffn_up_exps.weight.in_corr", QUANT_F16, 3, ne_corr);
    gguf_write_data(w, x, sizeof x, &e);
    gguf_write_data(w, n_rows, sizeof n_rows, &e);
    for (int k = 0; k < N_EXPERT; k++)
        for (int i = 0; i < EMBD; i++) {
            uint16_t row[QUANT_REFINE_BLOCK];
            for (int j = 0; j < QUANT_REFINE_BLOCK; j++)
                row[j] = quant_f32_to_f16(
                    correlation_of(k, i, i / QUANT_REFINE_BLOCK * QUANT_REFINE_BLOCK + j));
            if (spoil && k == 1 && i == 7) row[3] = spoil;
            gguf_write_data(w, row, sizeof row, &e);
        }
    assert_int_equal(gguf_writer_close(w, &e), 0);
}

/* Mean product of two inputs of an expert, drawn to all experts' by 64 rows. */
static double product_of(int expert, int i, int j) {
    double own = 0, all = 0, n = 0;
    for (int k = 0; k < N_EXPERT; k++) {
        double v = (double)n_rows[k] * (i == j ? 1 : .99) * (double)correlation_of(k, i, j) *
                   sqrt((double)importance[k][i] * (double)importance[k][j]);
        all += v;
        n += (double)n_rows[k];
        if (k == expert) own = v;
    }
    return (own + 64 * all / n) / ((double)n_rows[expert] + 64);
}

static void put_i32(struct buf *b, int32_t v) { buf_put(b, &v, sizeof v); }

/* Two entries, the second for the experts, and the tail of newer files. */
static void build_legacy(struct buf *b, const char *name, int32_t n_value) {
    static const float few[2] = {1, 2};
    buf_init(b, 1 << 20);
    put_i32(b, 2);
    put_i32(b, 5);
    buf_puts(b, "other");
    put_i32(b, 1);
    put_i32(b, 2);
    buf_put(b, few, sizeof few);
    put_i32(b, (int32_t)strlen(name));
    buf_puts(b, name);
    put_i32(b, 4);
    put_i32(b, n_value);
    for (int i = 0; i < N_EXPERT; i++)
        for (int j = 0; j < EMBD; j++) {
            float v = importance[i][j] * 4;
            buf_put(b, &v, sizeof v);
        }
    put_i32(b, 12);
    put_i32(b, 9);
    buf_puts(b, "some text");
}

static void write_bytes(const char *path, const char *p, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static const char experts[] = "blk.0.ffn_up_exps.weight";
static const struct quantize_options weighted = {.type = "IQ3_S", .imatrix = matrix, .n_thread = 2};

static void both_forms_of_importance_weigh_each_expert(void **s) {
    (void)s;
    fill_importance();
    for (int form = 0; form < 2; form++) {
        if (form == 0) {
            write_matrix_gguf(experts, EMBD, 0);
        } else {
            struct buf b;
            build_legacy(&b, experts, N_EXPERT * EMBD);
            write_bytes(matrix, b.p, b.n);
            buf_fini(&b);
        }
        struct gguf *g = made(&weighted);
        expect_type(g, experts, QUANT_IQ3_S);
        static float shrunk[N_EXPERT][EMBD];
        shrink_importance(shrunk);
        expect_rows(g, experts, form == 0 ? &shrunk[0][0] : &importance[0][0]);
        assert_int_equal(key(g, "quantize.imatrix.chunks_count"), 12);
        assert_int_equal(key(g, "quantize.imatrix.entries_count"), form + 1);
        struct slice file;
        uint64_t cursor = 0;
        assert_true(gguf_next_str(gguf_find(g, "quantize.imatrix.file"), &cursor, &file));
        assert_int_equal(file.n, 7); /* without its folder */
        gguf_close(g);
    }
}

static void correlations_of_each_expert_refine_codes(void **s) {
    (void)s;
    fill_importance();
    write_correlated_gguf(0);
    struct gguf *g = made(&weighted), *plain;
    const struct gguf_tensor *t = gguf_find_tensor(g, experts);
    static float got[EMBD * QUANT_REFINE_BLOCK];
    struct err e = {0};
    struct imatrix *m;
    struct hints *h;
    assert_int_equal(imatrix_open(&m, matrix, &e), 0);
    assert_int_equal(hints_open(&h, m, t, &e), 0);
    assert_true(hints_has_correlation(h));
    uint64_t bytes;
    uint8_t row[1024];
    assert_true(quant_row_bytes(t->type, EMBD, &bytes));
    for (int k = 0; k < N_EXPERT; k++) {
        assert_int_equal(hints_correlation(h, (uint64_t)k, got, &e), 0);
        for (int i = 0; i < EMBD; i++)
            for (int j = 0; j < QUANT_REFINE_BLOCK; j++) {
                double v = product_of(k, i, i / QUANT_REFINE_BLOCK * QUANT_REFINE_BLOCK + j);
                if (fabs((double)got[i * QUANT_REFINE_BLOCK + j] - v) > 1e-4 * (1e-3 + fabs(v)))
                    fail_msg("expert %d, inputs %d and %d: expected %g, got %g", k, i, j, v,
                             (double)got[i * QUANT_REFINE_BLOCK + j]);
            }
        const struct quant_hints hints = {hints_weights(h, (uint64_t)k), got};
        for (int r = 0; r < FF_EXPERT; r++) {
            const float *x = spec_of(experts)->x + (k * FF_EXPERT + r) * EMBD;
            assert_true(quant_refine_encode(t->type, x, row, EMBD, &hints));
            assert_memory_equal(row, t->data + (uint64_t)(k * FF_EXPERT + r) * bytes, bytes);
        }
    }
    hints_close(h);
    imatrix_close(m);
    write_matrix_gguf(experts, EMBD, 0);
    uint8_t *kept = mem_alloc((size_t)t->n_bytes);
    memcpy(kept, t->data, (size_t)t->n_bytes);
    gguf_close(g);
    plain = made(&weighted);
    assert_memory_not_equal(kept, gguf_find_tensor(plain, experts)->data, bytes);
    gguf_close(plain);
    mem_free(kept);
}

static void one_matrix_of_importance_serves_all_experts(void **s) {
    (void)s;
    struct buf b;
    float same[N_EXPERT][EMBD];
    build_legacy(&b, experts, EMBD);
    write_bytes(matrix, b.p, b.n - 17 - (N_EXPERT - 1) * EMBD * sizeof(float));
    buf_fini(&b);
    for (int i = 0; i < N_EXPERT; i++) memcpy(same[i], importance[0], sizeof same[i]);
    struct gguf *g = made(&weighted);
    expect_rows(g, experts, &same[0][0]);
    gguf_close(g);
}

static void expect_refusal(int code, const char *says) {
    struct err e = {0};
    int rc = run(&weighted, source, &e);
    if (rc != code || !strstr(e.text, says))
        fail_msg("expected %d with '%s', got %d: %s", code, says, rc, e.text);
    assert_false(file_exists(result));
}

static void broken_importance_is_refused(void **s) {
    (void)s;
    struct buf b;
    write_matrix_gguf(experts, EMBD, NAN);
    expect_refusal(CHIMERE_ENUMERIC, "entry blk.0.ffn_up_exps.weight, value 517");
    write_matrix_gguf(experts, EMBD, -1);
    expect_refusal(CHIMERE_ENUMERIC, "value 517: expected a number from 0, got -1");
    write_matrix_gguf(experts, EMBD / 2, 0);
    expect_refusal(CHIMERE_EMISMATCH, "expected 512 x 4 values");
    write_matrix_gguf("blk.99.attn_q.weight", EMBD, 0);
    expect_refusal(CHIMERE_EMISMATCH, "none of its 1 entries names a tensor");
    write_correlated_gguf(0x7e00);
    expect_refusal(CHIMERE_ENUMERIC, "input 7: expected a correlation from -1 to 1");
    write_correlated_gguf(0x4000);
    expect_refusal(CHIMERE_ENUMERIC, "expected a correlation from -1 to 1, got 1.98");
    write_bytes(matrix, "", 0);
    expect_refusal(CHIMERE_EFORMAT, "expected an importance matrix");
    write_bytes(matrix, "\xff\xff\xff\x7f", 4);
    expect_refusal(CHIMERE_EFORMAT, "from 1 to 1048576 entries");
    build_legacy(&b, "other", N_EXPERT * EMBD);
    write_bytes(matrix, b.p, b.n);
    expect_refusal(CHIMERE_EFORMAT, "entry other: given twice");
    buf_fini(&b);
    build_legacy(&b, experts, 3 * EMBD);
    write_bytes(matrix, b.p, b.n);
    expect_refusal(CHIMERE_EMISMATCH, "expected 512 x 4 values");
    buf_fini(&b);
    build_legacy(&b, experts, INT32_MAX);
    write_bytes(matrix, b.p, b.n);
    expect_refusal(CHIMERE_EFORMAT, "got a file that ends");
    buf_fini(&b);
}

/* Reads all there is to read; the only claim is that it ends well. */
static void read_through(const char *path) {
    static float weights[N_EXPERT * EMBD];
    struct imatrix *m;
    struct err e = {0};
    if (imatrix_open(&m, path, &e)) {
        assert_true(e.text[0]);
        return;
    }
    if (imatrix_check(m, experts, EMBD, N_EXPERT, &e) == 0)
        imatrix_weights(m, experts, EMBD, N_EXPERT, weights, &e);
    imatrix_close(m);
}

static void cut_and_flipped_importance_ends_well(void **s) {
    (void)s;
    struct buf b;
    build_legacy(&b, experts, N_EXPERT * EMBD);
    size_t head = 4 + 4 + 5 + 8 + 8 + 4 + sizeof experts - 1 + 8;
    size_t body = head + sizeof importance;
    for (size_t n = 0; n <= b.n; n += n < head + 8 || n >= body - 8 ? 1 : 997) {
        struct imatrix *m;
        struct err e = {0};
        write_bytes(matrix, b.p, n);
        if (n < body) assert_int_equal(imatrix_open(&m, matrix, &e), CHIMERE_EFORMAT);
        else read_through(matrix);
    }
    static const unsigned char flips[] = {0x01, 0x80, 0xff};
    for (size_t at = 0; at < head; at++)
        for (int k = 0; k < 3; k++) {
            b.p[at] = (char)((unsigned char)b.p[at] ^ flips[k]);
            write_bytes(matrix, b.p, b.n);
            read_through(matrix);
            b.p[at] = (char)((unsigned char)b.p[at] ^ flips[k]);
        }
    buf_fini(&b);
}

static void memory_may_run_out_anywhere(void **s) {
    (void)s;
    write_matrix_gguf(experts, EMBD, 0);
    struct quantize_options o = {.type = "Q8_0", .imatrix = matrix, .n_thread = 1};
    int64_t before = mem_alloc_count();
    struct err e = {0};
    assert_int_equal(run(&o, source, &e), 0);
    int64_t n = mem_alloc_count() - before;
    for (int64_t i = 1; i <= n; i += i < 64 ? 1 : 37) {
        mem_fail_nth(i);
        int rc = run(&o, source, &e);
        mem_fail_nth(0);
        assert_true(rc < 0);
        assert_false(file_exists(result));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mix_gives_each_tensor_its_type),
        cmocka_unit_test(every_mix_writes_what_rows_encode_to),
        cmocka_unit_test(rules_override_the_mix),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(values_that_are_not_finite_are_refused_by_place),
        cmocka_unit_test(split_sets_go_in_and_out),
        cmocka_unit_test(both_forms_of_importance_weigh_each_expert),
        cmocka_unit_test(correlations_of_each_expert_refine_codes),
        cmocka_unit_test(one_matrix_of_importance_serves_all_experts),
        cmocka_unit_test(broken_importance_is_refused),
        cmocka_unit_test(cut_and_flipped_importance_ends_well),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
