/* test_cuda_dense.c: dense feed-forward blocks that are not in the device's memory: multiplied by the processor, or
 * streamed to the device. Each way is compared, bit for bit, with the engine that always computes so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "../unit/lora_file.h"
#include "../unit/scratch.h"
#include "base/mem.h"
#include "base/rng.h"
#include "convert/synth.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "model/experts/experts.h"
#include "model/forward.h"
#include "model/model.h"

/* As few as differ: the emulator needs a second per open model. */
enum { N_LAYER = 2, STEP = 2, PROMPT = STREAM_ROWS_DENSE };

static char path[64];

static int make_file(void **state) {
    struct err e = {0};
    struct synth_result r;
    if (scratch_make(state)) return -1;
    snprintf(path, sizeof path, "%s/dense.gguf", scratch);
    const struct synth_options s = {"olmo-hybrid-mini", "q8", path, N_LAYER, 0, 512, false};
    if (synth_write(&s, &r, &e)) fail_msg("%s", e.text);
    return 0;
}

struct opened {
    struct dev *d;
    struct model *m;
    struct experts *x;
};

/* On the emulator or the GPU; n_layer: feed-forward blocks in host memory; -1: all on the processor. */
static void open_model(struct opened *o, int32_t n_layer, bool streams) {
    struct err e = {0};
    const struct cuda_params p = {.precise = true};
    struct expert_placement where = {.n_layer = n_layer, .streams = streams};
    int rc = n_layer < 0 ? cpu_open(&o->d, 2, CPU_ISA_SCALAR, &e) : cuda_open(&o->d, &p, &e);
    if (!rc && n_layer > 0) rc = cpu_open(&where.host, 2, CPU_ISA_SCALAR, &e);
    if (!rc) rc = model_open_placed(&o->m, path, o->d, &where, true, &e);
    if (rc) fail_msg("%s", e.text);
    const struct dev_need need = forward_need(o->m, 128, 32);
    rc = o->d->ops->reserve(o->d, &need, &e);
    if (!rc) rc = experts_new(&o->x, o->m, &need, 32, &e);
    if (rc) fail_msg("%s", e.text);
}

static void close_model(struct opened *o) {
    experts_free(o->x);
    model_close(o->m);
    o->d->ops->close(o->d);
}

/* Adds the feed-forward of every layer of the same rows to out [N_LAYER, n_tok, n_embd]. */
static void add_all(struct opened *o, const float *x, int32_t n_tok, float *out) {
    struct err e = {0};
    const struct ops *ops = o->d->ops;
    size_t n = (size_t)n_tok * (size_t)o->m->hp.n_embd, bytes = n * sizeof(float);
    float *in = ops->alloc(o->d, bytes), *sum = ops->alloc(o->d, bytes);
    assert_true(in && sum);
    ops->upload(o->d, in, x, bytes);
    experts_begin(o->x, NULL, NULL, 0, n_tok);
    for (int32_t il = 0; il < N_LAYER; il++) {
        const struct layer_weights *l = &o->m->weights.layer[il];
        const struct ffn_args a = {.n_tok = n_tok,
                                   .act = o->m->hp.act,
                                   .x = in,
                                   .gate = &l->ffn.gate,
                                   .up = &l->ffn.up,
                                   .down = &l->ffn.down,
                                   .gate_scale = 1,
                                   .down_scale = 1,
                                   .out = sum};
        ops->upload(o->d, sum, out + (size_t)il * n, bytes);
        experts_run_dense(o->x, il, &a);
        ops->download(o->d, out + (size_t)il * n, sum, bytes);
    }
    if (experts_status(o->x, &e) || ops->status(o->d, &e)) fail_msg("%s", e.text);
    ops->free(o->d, in);
    ops->free(o->d, sum);
}

/* Results of n_tok random rows with n_layer blocks in host memory. The caller frees them. */
static float *results(int32_t n_layer, bool streams, int32_t n_tok, size_t *n_layer_out) {
    struct opened o;
    struct rng r;
    open_model(&o, n_layer, streams);
    size_t n = (size_t)n_tok * (size_t)o.m->hp.n_embd;
    float *x = mem_alloc_array(n, sizeof *x), *out = mem_alloc_array(N_LAYER * n, sizeof *out);
    assert_true(x && out);
    rng_seed(&r, 41);
    for (size_t i = 0; i < n; i++) x[i] = (float)rng_normal(&r);
    for (size_t i = 0; i < N_LAYER * n; i++) out[i] = (float)rng_normal(&r) / 8;
    add_all(&o, x, n_tok, out);
    mem_free(x);
    close_model(&o);
    *n_layer_out = n;
    return out;
}

/* The processor rounds activations to 8 bits and the device in precise mode does not, so the device's own products are
 * no reference for those of the processor. */
static void layers_on_the_processor_are_those_of_its_engine(void **state) {
    (void)state;
    size_t n;
    float *device = results(0, false, STEP, &n), *processor = results(-1, false, STEP, &n);
    for (size_t il = 0; il < N_LAYER; il++)
        assert_memory_not_equal(device + il * n, processor + il * n, n * sizeof(float));
    float *got = results(1, false, STEP, &n);
    assert_memory_equal(got, processor, n * sizeof *got);
    assert_memory_equal(got + n, device + n, n * sizeof *got);
    mem_free(got);
    mem_free(device);
    mem_free(processor);
}

static void streamed_layers_give_the_same_bits(void **state) {
    (void)state;
    size_t n;
    float *want = results(0, false, PROMPT, &n);
    float *got = results(N_LAYER, true, PROMPT, &n);
    assert_memory_equal(got, want, N_LAYER * n * sizeof *got);
    mem_free(got);
    mem_free(want);
}

/* An adapter of a block that stays on the processor is refused by the name of the matrix; one of a block on the device,
 * or of any other matrix, is not. */
static void adapters_of_moved_blocks_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *only;
        int32_t n_moved;
        int code;
    } cases[] = {{"ffn_up.weight", 0, 0},
                 {"ffn_up.weight", 1, CHIMERE_EUNSUPPORTED},
                 {"ffn_down.weight", N_LAYER, CHIMERE_EUNSUPPORTED},
                 {"ssm_out.weight", N_LAYER, 0}};
    char file[80];
    snprintf(file, sizeof file, "%s/lora.gguf", scratch);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct opened o;
        struct err e = {0};
        struct lora *l = NULL;
        lora_file_only = cases[i].only;
        assert_true(lora_file_write(path, file, &e) > 0);
        open_model(&o, cases[i].n_moved, false);
        assert_int_equal(lora_open(&l, o.m, file, &e), cases[i].code);
        if (cases[i].code) {
            assert_non_null(
                strstr(e.text, "adapters cannot change a matrix that is on the processor"));
            assert_non_null(strstr(e.text, cases[i].only));
        } else {
            lora_close(l);
        }
        close_model(&o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_on_the_processor_are_those_of_its_engine),
        cmocka_unit_test(streamed_layers_give_the_same_bits),
        cmocka_unit_test(adapters_of_moved_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, make_file, scratch_drop);
}
