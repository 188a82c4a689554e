/* test_safetensors.c: headers whole and damaged, indexes, and the scanner below them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "format/json_scan.h"
#include "format/quant.h"
#include "format/safetensors.h"
#include "scratch.h"

/* Header text and n_data bytes 0, 1, 2... as one file in memory. */
static void make(struct buf *b, const char *header, size_t n_data) {
    uint64_t n = strlen(header);
    buf_init(b, 1 << 28);
    buf_put(b, &n, 8);
    buf_puts(b, header);
    for (size_t i = 0; i < n_data; i++) buf_putc(b, (char)i);
    assert_int_equal(b->failed, 0);
}

static int open_copy(const void *data, size_t n, struct safetensors **st, void **copy,
                     struct err *e) {
    *copy = malloc(n ? n : 1); /* exact size: a sanitizer sees reads beyond */
    memcpy(*copy, data, n);
    return safetensors_open_memory(st, *copy, n, "t.safetensors", e);
}

static uint64_t touch(const struct safetensors *st) {
    uint64_t sum = 0;
    for (size_t i = 0; i < safetensors_n_tensors(st); i++) {
        const struct st_tensor *t = safetensors_at(st, i);
        for (uint64_t j = 0; j < t->n_bytes; j++) sum += t->data[j];
        assert_ptr_equal(safetensors_find(st, t->name), t);
    }
    return sum;
}

static const char sample[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"b\\u00e9\":{\"shape\":[2,3],\"data_offsets\":[4,28],\"dtype\":\"F32\"}, "
    "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
    "\"empty\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[28,28]},"
    "\"s\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[28,30]}} ";

static void sample_is_read_exactly(void **state) {
    (void)state;
    struct buf b;
    make(&b, sample, 30);
    struct safetensors *st;
    struct err e = {0};
    if (safetensors_open_memory(&st, b.p, b.n, "t", &e)) fail_msg("%s", e.text);
    assert_int_equal(safetensors_n_tensors(st), 4);
    const struct st_tensor *t = safetensors_find(st, "b\xc3\xa9");
    assert_non_null(t);
    assert_int_equal(t->dtype, ST_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->n_elements, 6);
    assert_int_equal(t->data[0], 4);
    assert_int_equal(t->data[23], 27);
    t = safetensors_find(st, "s");
    assert_int_equal(t->n_elements, 1);
    assert_int_equal(t->n_bytes, 2);
    assert_int_equal(safetensors_find(st, "empty")->n_bytes, 0);
    assert_int_equal(safetensors_dtype_quant(ST_BF16), QUANT_BF16);
    assert_string_equal(safetensors_dtype_name(ST_F8_E4M3), "F8_E4M3");
    assert_null(safetensors_find(st, "c"));
    safetensors_close(st);
    buf_fini(&b);
}

static void damage_is_survived(void **state) {
    (void)state;
    struct buf b;
    make(&b, sample, 30);
    struct err e;
    struct safetensors *st;
    void *copy;
    for (size_t n = 0; n < b.n; n++) {
        assert_int_not_equal(open_copy(b.p, n, &st, &copy, &e), 0);
        free(copy);
    }
    static const char bytes[] = "\0\"\\{}[],:0129-eE.truxn \x7f\xff\xc3";
    size_t opened = 0;
    for (size_t i = 0; i < b.n; i++) {
        char saved = b.p[i];
        for (size_t j = 0; j < sizeof bytes; j++) {
            b.p[i] = bytes[j];
            if (open_copy(b.p, b.n, &st, &copy, &e) == 0) {
                touch(st);
                safetensors_close(st);
                opened++;
            }
            free(copy);
        }
        b.p[i] = saved;
    }
    assert_true(opened > 100);
    buf_fini(&b);
}

static void refusals_say_what(void **state) {
    (void)state;
#define ONE(fields) "{\"t\":{" fields "}}"
#define OK "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"
    static const struct {
        const char *header;
        size_t n_data;
        int code;
        const char *words;
    } rows[] = {
        {ONE(OK), 7, CHIMERE_EFORMAT, "expected at most the 7 bytes of data, got 8"},
        {ONE(OK), 9, CHIMERE_EFORMAT, "as its tensors need"},
        {ONE("\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, CHIMERE_EUNSUPPORTED,
         "'F33'"},
        {ONE("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]"), 8, CHIMERE_EFORMAT,
         "expected 12 bytes"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), 8, CHIMERE_EFORMAT,
         "8 to 0"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]"), 8, CHIMERE_EFORMAT,
         "two data_offsets"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]"), 8, CHIMERE_EFORMAT,
         "header"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2]"), 8, CHIMERE_EFORMAT, "got less"},
        {ONE(OK ",\"x\":1"), 8, CHIMERE_EFORMAT, "got 'x'"},
        {ONE(OK ",\"dtype\":\"F32\""), 8, CHIMERE_EFORMAT, "got 'dtype'"},
        {ONE("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]"), 8, CHIMERE_EFORMAT,
         "whole number"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]"), 8, CHIMERE_EFORMAT,
         "whole number"},
        {ONE("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0,
         CHIMERE_EFORMAT, "2^60"},
        {ONE("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]"), 8,
         CHIMERE_EFORMAT, "8 dimensions"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,99999999999999999999]"), 8,
         CHIMERE_EFORMAT, "2^64"},
        {"{\"t\":{" OK "},\"t\":{" OK "}}", 8, CHIMERE_EFORMAT, "tensor 't': expected once"},
        {"{\"t\":{" OK "},\"u\":{" OK "}}", 8, CHIMERE_EFORMAT, "overlap"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, CHIMERE_EFORMAT,
         "gap"},
        {"{\"\":{" OK "}}", 8, CHIMERE_EFORMAT, "name"},
        {"{\"a\\u0000\":{" OK "}}", 8, CHIMERE_EFORMAT, "name"},
        {"{\"\\ud800\":{" OK "}}", 8, CHIMERE_EFORMAT, "name"},
        {"{\"t\":{" OK "}} x", 8, CHIMERE_EFORMAT, "the end"},
        {"{\"t\":{" OK "},}", 8, CHIMERE_EFORMAT, "string"},
        {"[]", 0, CHIMERE_EFORMAT, "'{'"},
        {"", 0, CHIMERE_EFORMAT, "'{'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf b;
        struct err e = {0};
        struct safetensors *st = NULL;
        void *copy;
        make(&b, rows[i].header, rows[i].n_data);
        int rc = open_copy(b.p, b.n, &st, &copy, &e);
        if (rc != rows[i].code || !strstr(e.text, rows[i].words))
            fail_msg("row %zu: %d '%s' lacks '%s'", i, rc, e.text, rows[i].words);
        assert_null(st);
        free(copy);
        buf_fini(&b);
    }
}

static void deep_and_long_headers_are_cheap(void **state) {
    (void)state;
    size_t n = 20 << 20;
    char *text = malloc(n + 1);
    memset(text, '[', n);
    memcpy(text, "{\"__metadata__\":", 16);
    text[n] = 0;
    struct json_scan s;
    struct slice key;
    json_scan_init(&s, text, n);
    int64_t start = clock_cpu_ns();
    assert_true(json_open(&s, '{') && json_key(&s, &key));
    assert_false(json_skip(&s));
    assert_string_equal(s.expected, "at most 64 levels");
    for (size_t i = 16; i < n; i++) text[i] = i % 2 ? ',' : '1';
    text[16] = '[';
    text[17] = '1';
    memcpy(text + n - 2, "]}", 2);
    text[n - 3] = '1';
    json_scan_init(&s, text, n);
    assert_true(json_open(&s, '{') && json_key(&s, &key));
    (void)json_skip(&s);
    assert_true((clock_cpu_ns() - start) * 1e-6 < 1000 * TEST_SLOWNESS);
    free(text);
}

/* The scanner and jansson agree on what JSON is, over every mutation of one byte. */
static void scanner_agrees_with_jansson(void **state) {
    (void)state;
    static const char text[] =
        "{\"a\":[1,-2.5e+3,0,true,false,null],\"b\":{\"c\":\"\\u00e9\\n\xc3\xa9\"},\"d\":\"\"}";
    char t[sizeof text];
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        for (int c = 1; c < 256; c++) {
            memcpy(t, text, sizeof text);
            t[i] = (char)c;
            struct json_scan s;
            json_scan_init(&s, t, sizeof text - 1);
            bool ours = json_skip(&s) && json_end(&s);
            json_error_t why = {.text = ""};
            json_t *j = json_loadb(t, sizeof text - 1, JSON_DECODE_ANY, &why);
            /* jansson refuses surrogates at once, we when a name is resolved; and big exponents */
            if (ours != (j != NULL) && !strstr(why.text, "surrogate") &&
                !strstr(why.text, "overflow") && !strstr(why.text, "\\u"))
                fail_msg("'%s': ours %d, jansson '%s'", t, ours, j ? "ok" : why.text);
            json_decref(j);
        }
    }
}

static void save(const char *name, const char *header, size_t n_data) {
    char path[160];
    struct buf b;
    make(&b, header, n_data);
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(b.p, 1, b.n, f);
    fclose(f);
    buf_fini(&b);
}
static void save_text(const char *name, const char *text) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}
static void open_dir(int code, const char *words) {
    struct safetensors *st;
    struct err e = {0};
    int rc = safetensors_open(&st, scratch, &e);
    if (rc != code || !strstr(e.text, words)) fail_msg("%d '%s' lacks '%s'", rc, e.text, words);
    if (rc) return;
    assert_int_equal(safetensors_n_files(st), 2);
    assert_int_equal(safetensors_n_tensors(st), 2);
    assert_int_equal(safetensors_find(st, "u")->file, 1);
    touch(st);
    safetensors_close(st);
}

static void indexes_are_followed_and_checked(void **state) {
    (void)state;
    open_dir(CHIMERE_ENOENT, "got neither");
    save("one.safetensors", "{\"t\":{" OK "}}", 8);
    save("two.safetensors", "{\"u\":{" OK "}}", 8);
    static const char name[] = "model.safetensors.index.json";
    save_text(name,
              "{\"metadata\":{\"total_size\":16},\"weight_map\":{\"t\":\"one.safetensors\",\"u\":"
              "\"two.safetensors\"}}");
    open_dir(0, "");
    save_text(name, "{\"weight_map\":{\"t\":\"two.safetensors\",\"u\":\"one.safetensors\"}}");
    open_dir(CHIMERE_EFORMAT, "expected tensor 't' in two.safetensors");
    save_text(name, "{\"weight_map\":{\"t\":\"one.safetensors\",\"v\":\"two.safetensors\"}}");
    open_dir(CHIMERE_EFORMAT, "'v'");
    save_text(name, "{\"weight_map\":{\"t\":\"one.safetensors\",\"v\":\"three.safetensors\"}}");
    open_dir(CHIMERE_ENOENT, "three.safetensors");
    save_text(name, "{\"weight_map\":{\"t\":\"../one.safetensors\"}}");
    open_dir(CHIMERE_EREFUSED, "beside the index");
    save_text(name, "{\"weight_map\":[]}");
    open_dir(CHIMERE_EFORMAT, "'{'");
    save_text(name, "{}");
    open_dir(CHIMERE_EFORMAT, "weight_map");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_is_read_exactly),
        cmocka_unit_test(damage_is_survived),
        cmocka_unit_test(refusals_say_what),
        cmocka_unit_test(deep_and_long_headers_are_cheap),
        cmocka_unit_test(scanner_agrees_with_jansson),
        cmocka_unit_test(indexes_are_followed_and_checked),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
