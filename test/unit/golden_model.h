/* golden_model.h: builds the tiny models that test/golden/make.py describes, from their numbers. */
#ifndef CHIMERE_TEST_GOLDEN_MODEL_H
#define CHIMERE_TEST_GOLDEN_MODEL_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "convert/hf.h"

static inline float *golden_floats(const char *name, const char *suffix, size_t *n) {
    char path[512], *text;
    size_t bytes;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/golden/%s%s", TEST_DATA, name, suffix);
    assert_int_equal(file_read(path, 1 << 24, &text, &bytes, &e), 0);
    *n = bytes / 4;
    return (float *)(void *)text;
}

/* Tensor `name` by the generator of make.py; `other` gives different numbers of the same kind. */
static inline float *make_values(const char *name, size_t n, double offset, double scale,
                                 bool other) {
    float *x = mem_alloc_array(n, sizeof *x);
    assert_non_null(x);
    uint64_t seed = hash_fnv1a(name, strlen(name)) + (other ? 1 : 0);
    for (size_t i = 0; i < n; i++) {
        double u = (double)(rng_at(seed, i) >> 11) * 0x1p-53;
        x[i] = (float)(offset + scale * (2 * u - 1));
    }
    return x;
}

static inline size_t n_elements(const json_t *shape) {
    size_t n = 1, i;
    json_t *d;
    json_array_foreach((json_t *)shape, i, d) n *= (size_t)json_integer_value(d);
    return n;
}

static inline void write_safetensors(const json_t *tensors, const char *changed, const char *path) {
    json_t *head = json_object(), *t;
    size_t i, at = 0;
    json_array_foreach((json_t *)tensors, i, t) {
        size_t bytes = n_elements(json_object_get(t, "shape")) * 4;
        json_object_set_new(head, json_string_value(json_object_get(t, "name")),
                            json_pack("{s:s,s:O,s:[I,I]}", "dtype", "F32", "shape",
                                      json_object_get(t, "shape"), "data_offsets", (json_int_t)at,
                                      (json_int_t)(at + bytes)));
        at += bytes;
    }
    char *text = json_dumps(head, JSON_COMPACT);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    uint64_t n = strlen(text);
    fwrite(&n, 8, 1, f);
    fwrite(text, 1, n, f);
    json_array_foreach((json_t *)tensors, i, t) {
        const char *name = json_string_value(json_object_get(t, "name"));
        size_t count = n_elements(json_object_get(t, "shape"));
        float *x = make_values(name, count, json_number_value(json_object_get(t, "offset")),
                               json_number_value(json_object_get(t, "scale")),
                               changed && strcmp(changed, name) == 0);
        fwrite(x, 4, count, f);
        mem_free(x);
    }
    assert_int_equal(fclose(f), 0);
    free(text);
    json_decref(head);
}

/* A vocabulary of single bytes, as conversion wants one. */
static inline void write_tokenizer(const char *dir, int32_t n_vocab) {
    json_t *vocab = json_object();
    for (int32_t i = 0; i < n_vocab; i++) {
        char piece[8];
        int n = utf8_encode((uint32_t)(i < 94 ? '!' + i : 0xA1 + i - 94), piece);
        piece[n] = 0;
        json_object_set_new(vocab, piece, json_integer(i));
    }
    json_t *t = json_pack("{s:s,s:{s:s,s:o,s:[]},s:{s:s,s:b,s:b},s:[]}", "version", "1.0", "model",
                          "type", "BPE", "vocab", vocab, "merges", "pre_tokenizer", "type",
                          "ByteLevel", "add_prefix_space", 0, "use_regex", 1, "added_tokens");
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_int_equal(json_dump_file(t, path, 0), 0);
    json_decref(t);
}

/* Builds the family's file from its numbers; `changed`: a tensor that gets other ones. */
static inline void golden_build(json_t *spec, const char *name, const char *scratch,
                                const char *changed, char *out, size_t out_size) {
    char dir[300], path[400];
    snprintf(dir, sizeof dir, "%s/%s", scratch, name);
    mkdir(dir, 0700);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(json_dump_file(json_object_get(spec, "config"), path, 0), 0);
    write_tokenizer(dir, (int32_t)json_integer_value(
                             json_object_get(json_object_get(spec, "config"), "vocab_size")));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_safetensors(json_object_get(spec, "tensors"), changed, path);
    snprintf(out, out_size, "%s/%s%s.gguf", scratch, name, changed ? "-changed" : "");
    struct hf_options o = {.dir = dir, .out = out, .type = "f32", .pre = "gpt-2", .n_thread = 1};
    struct hf_result r;
    struct err e = {0};
    if (hf_convert(&o, &r, &e)) fail_msg("%s: %s", name, e.text);
    assert_int_equal(r.n_unused, 0);
}

#endif
