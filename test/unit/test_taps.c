/* test_taps.c: shards of hidden states against those of transformers (test/golden/make.py); what is there already. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#include "format/quant.h"
#include "golden_model.h"
#include "kernels/cpu/cpu.h"
#include "model/taps.h"

static char scratch[64]; /* folder of this process */

static double worst(const float *a, const float *b, size_t n) {
    double w = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        if (!(d <= w)) w = d;
    }
    return w;
}

struct tapped {
    json_t *spec; /* owned */
    int32_t tokens[256], n_tok;
    struct dev *dev;
    struct model *m;
};

static void open_case(struct tapped *g, const char *name) {
    char path[512];
    json_error_t why;
    struct err e = {0};
    size_t i;
    json_t *t;
    *g = (struct tapped){.spec = NULL};
    snprintf(path, sizeof path, "%s/golden/%s.json", TEST_DATA, name);
    g->spec = json_load_file(path, 0, &why);
    assert_non_null(g->spec);
    json_array_foreach(json_object_get(g->spec, "tokens"), i, t) g->tokens[g->n_tok++] =
        (int32_t)json_integer_value(t);
    golden_build(g->spec, name, scratch, NULL, path, sizeof path);
    assert_int_equal(cpu_open(&g->dev, 2, CPU_ISA_BEST, &e), 0);
    if (model_open(&g->m, path, g->dev, true, &e)) fail_msg("%s", e.text);
}

static void close_case(struct tapped *g) {
    model_close(g->m);
    g->dev->ops->close(g->dev);
    json_decref(g->spec);
}

/* A shard of `chimere taps` by its description in taps.h, read as a foreign program would. */
struct shard {
    char *bytes; /* owned */
    size_t n;
    uint32_t n_embd, n_tap, n_text, type, layer[TAPS_MAX];
    uint64_t n_tok;
    const int32_t *tokens;
    const float *rows;
};

static void read_shard(struct shard *s, const char *dir, int number) {
    char path[400];
    struct err e = {0};
    uint32_t head[16];
    snprintf(path, sizeof path, "%s/taps-%06d.bin", dir, number);
    if (file_read(path, 1 << 24, &s->bytes, &s->n, &e)) fail_msg("%s", e.text);
    assert_true(s->n > sizeof head);
    assert_memory_equal(s->bytes, "chtaps01", 8);
    memcpy(head, s->bytes, sizeof head);
    s->n_embd = head[2], s->n_tap = head[4], s->n_text = head[5], s->n_tok = head[6];
    s->type = head[12];
    memcpy(s->layer, s->bytes + sizeof head, s->n_tap * 4);
    char *at = s->bytes + sizeof head + (size_t)s->n_tap * 4 + (size_t)s->n_text * 8;
    s->tokens = (const int32_t *)(const void *)at;
    s->rows = (const float *)(const void *)(at + s->n_tok * 4);
    assert_int_equal(s->bytes + s->n - (const char *)s->rows,
                     s->n_tok * s->n_tap * s->n_embd * sizeof(float));
}

static void taps_are_the_hidden_states_of_transformers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int32_t layers[3];
    } cases[] = {{"qwen35moe", {0, 2, 3}}, {"llama", {0, 1, 2}}, {"gemma3", {1, 2, 3}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tapped g;
        struct taps_result r;
        struct err e = {0};
        char dir[300];
        size_t n_want;
        open_case(&g, cases[i].name);
        float *want = golden_floats(cases[i].name, ".hidden", &n_want), range = 0;
        for (size_t k = 0; k < n_want; k++)
            if (fabsf(want[k]) > range) range = fabsf(want[k]);
        snprintf(dir, sizeof dir, "%s/taps-%s", scratch, cases[i].name);
        struct taps_params p = {.dir = dir,
                                .n_layer = 3,
                                .type = QUANT_F32,
                                .n_batch = 64,
                                .shard_tok = 150,
                                .k_type = QUANT_F32,
                                .v_type = QUANT_F32};
        memcpy(p.layers, cases[i].layers, sizeof cases[i].layers);
        /* the whole text, then its first half as two texts: three shards of at least 150, but for the last */
        const struct taps_text texts[] = {
            {g.tokens, g.n_tok, 7}, {g.tokens, 100, 100}, {g.tokens, 99, 0}, {g.tokens, 1, 0}};
        if (taps_record(g.m, &p, texts, 4, &r, &e)) fail_msg("%s", e.text);
        assert_int_equal(r.n_shard, 3);
        assert_int_equal(r.n_old, 0);
        assert_int_equal(r.n_tok, g.n_tok + 200);
        struct shard s, half;
        read_shard(&s, dir, 0);
        assert_int_equal(s.n_tok, g.n_tok);
        assert_int_equal(s.type, QUANT_F32);
        assert_memory_equal(s.layer, cases[i].layers, sizeof cases[i].layers);
        assert_memory_equal(s.tokens, g.tokens, (size_t)g.n_tok * sizeof *g.tokens);
        assert_int_equal(n_want, s.n_tok * s.n_tap * s.n_embd);
        double d = worst(s.rows, want, n_want) / (double)range;
        if (!(d <= 1e-4)) fail_msg("%s: off by %.2e of the range", cases[i].name, d);
        read_shard(&half, dir, 1);
        assert_int_equal(half.n_text, 2);
        d = worst(half.rows, want, (size_t)100 * half.n_tap * half.n_embd) / (double)range;
        if (!(d <= 1e-4)) fail_msg("%s, half: off by %.2e", cases[i].name, d);

        /* cut off after the second shard, a run resumes; the shards that exist stay as they were */
        char path[400];
        snprintf(path, sizeof path, "%s/taps-000002.bin", dir);
        assert_int_equal(remove(path), 0);
        if (taps_record(g.m, &p, texts, 4, &r, &e)) fail_msg("%s", e.text);
        assert_int_equal(r.n_old, 2);
        /* other layers, fewer texts, no such layer */
        p.layers[0] = cases[i].layers[0] + (i == 2 ? -1 : 1);
        p.layers[0] =
            cases[i].layers[0] + 1 - 2 * (i == 2); /* other layers, fewer texts, no such layer */
        p.n_layer = 1;
        assert_int_equal(taps_record(g.m, &p, texts, 4, &r, &e), CHIMERE_EMISMATCH);
        assert_non_null(strstr(e.text, "taps-000000.bin"));
        p.n_layer = 3;
        p.layers[0] = cases[i].layers[0];
        assert_int_equal(taps_record(g.m, &p, texts, 3, &r, &e), CHIMERE_EMISMATCH);
        p.layers[2] = g.m->hp.n_layer;
        assert_int_equal(taps_record(g.m, &p, texts, 4, &r, &e), CHIMERE_EINVAL);
        mem_free(s.bytes);
        mem_free(half.bytes);
        mem_free(want);
        close_case(&g);
    }
}

static int make_scratch(void **state) {
    (void)state;
    snprintf(scratch, sizeof scratch, "taps-%ld", (long)getpid());
    return mkdir(scratch, 0700);
}

static int drop_scratch(void **state) {
    (void)state;
    char cmd[100];
    snprintf(cmd, sizeof cmd, "rm -rf %s", scratch);
    return system(cmd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taps_are_the_hidden_states_of_transformers)};
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
