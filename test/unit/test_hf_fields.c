/* test_hf_fields.c: every family refuses fields of config.json that it does not know, by name.
 *
 * The configurations are those of the golden models, so a new family is covered once it has one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "convert/hf.h"
#include "scratch.h"

/* Fields are checked before any weight is read, so the folder needs only its configuration. */
static void refused(const json_t *config, const char *words) {
    char path[256], out[256];
    snprintf(path, sizeof path, "%s/config.json", scratch);
    snprintf(out, sizeof out, "%s/out.gguf", scratch);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    struct hf_options o = {.dir = scratch, .out = out, .n_thread = 1};
    struct hf_result r;
    struct err e = {0};
    assert_int_not_equal(hf_convert(&o, &r, &e), 0);
    if (!strstr(e.text, words)) fail_msg("'%s' lacks '%s'", e.text, words);
    assert_false(file_exists(out));
}

static void every_family_checks_its_fields(void **state) {
    (void)state;
    static const char *const acts[] = {"hidden_act",     "hidden_activation",
                                       "mlp_hidden_act", "mamba_hidden_act",
                                       "activation",     "activation_function"};
    glob_t all;
    int n_act = 0;
    assert_int_equal(glob(TEST_DATA "/golden/*.json", 0, NULL, &all), 0);
    for (size_t i = 0; i < all.gl_pathc; i++) {
        json_error_t why;
        json_t *spec = json_load_file(all.gl_pathv[i], 0, &why),
               *config = json_object_get(spec, "config");
        assert_non_null(config);
        for (size_t k = 0; k < sizeof acts / sizeof *acts; k++) {
            char words[64];
            if (!json_is_string(json_object_get(config, acts[k]))) continue;
            json_t *other = json_copy(config);
            json_object_set_new(other, acts[k], json_string("tanh"));
            snprintf(words, sizeof words, "%s: expected ", acts[k]);
            refused(other, words);
            json_decref(other);
            n_act++;
        }
        json_object_set_new(config, "one_more", json_true());
        refused(config, "'one_more': not known for model_type");
        json_decref(spec);
    }
    assert_true(n_act > 30);
    globfree(&all);
}

/* Published model types of families that README.md lists as not implemented. */
static void missing_families_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *type, *words;
    } rows[] = {
        {"deepseek_v2", "'deepseek_v2' is not a family we convert: DeepSeek V2 needs experts"},
        {"deepseek_v32", "DeepSeek V3.2 and GLM-5 needs sparse attention"},
        {"glm_moe_dsa", "sparse attention"},
        {"bailing_moe_v2", "Ling needs norms"},
        {"bailing_moe_linear", "linear attention"},
        {"kimi_linear", "Kimi-Linear needs a delta net with a decay per channel; README.md lists"},
        {"qwen4_exp", "hyper-connections"},
        {"rwkv7", "RWKV needs its recurrence"},
        {"nomic_bert", "nomic-bert v2 needs experts in encoders"},
        {"minimax_m2", "block-sparse attention"},
        {"plamo2", "PLaMo needs Mamba-2"},
        {"nobody", "'nobody' is not a family we convert"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *config = json_pack("{s:s,s:i}", "model_type", rows[i].type, "num_experts", 8);
        refused(config, rows[i].words);
        json_decref(config);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_checks_its_fields),
        cmocka_unit_test(missing_families_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
