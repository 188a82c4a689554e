/* test_gguf.c: reader on hand-made bytes, whole and damaged; writer read back, split and not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "format/quant.h"
#include "scratch.h"

static void u32(struct buf *b, uint32_t v) { assert_int_equal(buf_put(b, &v, 4), 0); }
static void u64(struct buf *b, uint64_t v) { assert_int_equal(buf_put(b, &v, 8), 0); }
static void str(struct buf *b, const char *s) {
    u64(b, strlen(s));
    assert_int_equal(buf_puts(b, s), 0);
}
static void head(struct buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv) {
    buf_init(b, 1 << 30);
    buf_puts(b, "GGUF");
    u32(b, version);
    u64(b, n_tensors);
    u64(b, n_kv);
}
static void kv_u32(struct buf *b, const char *key, uint32_t v) {
    str(b, key);
    u32(b, GGUF_U32);
    u32(b, v);
}
static void tensor(struct buf *b, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1,
                   uint64_t offset) {
    str(b, name);
    u32(b, 2);
    u64(b, ne0);
    u64(b, ne1);
    u32(b, type);
    u64(b, offset);
}
static void pad(struct buf *b, size_t align) {
    while (b->n % align) buf_putc(b, 0);
}

/* Offsets inside the sample whose bytes tests overwrite. */
static struct {
    size_t version, n_tensors, n_kv, key_len, str_len, arr_item, arr_n, align, ndims, ne0, type,
        offset;
} at;

/* Every value type, an array of numbers, one of strings, two tensors of q8_0 and f32. */
static void sample(struct buf *b) {
    head(b, 3, 2, 8);
    at.version = 4, at.n_tensors = 8, at.n_kv = 16;
    at.key_len = b->n;
    str(b, "general.architecture");
    u32(b, GGUF_STR);
    at.str_len = b->n;
    str(b, "test");
    str(b, "general.alignment");
    u32(b, GGUF_U32);
    at.align = b->n;
    u32(b, 64);
    str(b, "an.i8");
    u32(b, GGUF_I8);
    buf_putc(b, (char)-5);
    str(b, "a.bool");
    u32(b, GGUF_BOOL);
    buf_putc(b, 1);
    str(b, "a.f32");
    u32(b, GGUF_F32);
    u32(b, 0x3fc00000); /* 1.5 */
    str(b, "a.u64");
    u32(b, GGUF_U64);
    u64(b, UINT64_MAX);
    str(b, "some.numbers");
    u32(b, GGUF_ARR);
    at.arr_item = b->n;
    u32(b, GGUF_I32);
    at.arr_n = b->n;
    u64(b, 3);
    for (uint32_t i = 0; i < 3; i++) u32(b, i - 1);
    str(b, "some.strings");
    u32(b, GGUF_ARR);
    u32(b, GGUF_STR);
    u64(b, 3);
    str(b, "one");
    str(b, "");
    str(b, "three");
    size_t t = b->n;
    at.ndims = t + 8 + 5, at.ne0 = at.ndims + 4, at.type = at.ne0 + 16, at.offset = at.type + 4;
    tensor(b, "first", QUANT_Q8_0, 64, 2, 0);
    tensor(b, "last", QUANT_F32, 3, 5, 192); /* 136 bytes, padded to 64 */
    pad(b, 64);
    for (int i = 0; i < 136; i++) buf_putc(b, (char)i);
    pad(b, 64);
    for (int i = 0; i < 60; i++) buf_putc(b, (char)(100 + i));
    assert_int_equal(b->failed, 0);
}

/* Reads every byte that the directory promises. */
static uint64_t touch(const struct gguf *g) {
    uint64_t sum = 0;
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        for (uint64_t j = 0; j < kv->n_bytes; j++) sum += kv->data[j];
        struct slice s;
        uint64_t cursor = 0, n = 0;
        while (gguf_next_str(kv, &cursor, &s)) n++;
        if (kv->item_type == GGUF_STR) assert_int_equal(n, kv->n);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        assert_int_equal((uintptr_t)t->offset % gguf_alignment(g), 0);
        for (uint64_t j = 0; j < t->n_bytes; j++) sum += t->data[j];
        assert_ptr_equal(gguf_find_tensor(g, t->name), t);
    }
    return sum;
}

/* The bytes end where an unreadable page begins. */
struct fence {
    unsigned char *map, *p;
    size_t size;
};
static void fence_init(struct fence *f, size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    f->size = (n + page - 1) / page * page + page;
    f->map = mmap(NULL, f->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f->map != MAP_FAILED);
    assert_int_equal(mprotect(f->map + f->size - page, page, PROT_NONE), 0);
    f->p = f->map + f->size - page - n;
}
static int open_fenced(const struct buf *b, size_t n, struct err *e) {
    struct fence f;
    fence_init(&f, n);
    memcpy(f.p, b->p, n);
    struct gguf *g = NULL;
    int rc = gguf_open_memory(&g, f.p, n, "sample.gguf", e);
    if (rc == 0) {
        touch(g);
        gguf_close(g);
    } else {
        assert_null(g);
        assert_true(strstr(e->text, "sample.gguf") != NULL);
    }
    munmap(f.map, f.size);
    return rc;
}

static void sample_is_read_exactly(void **state) {
    (void)state;
    struct buf b;
    sample(&b);
    struct err e = {0};
    struct gguf *g;
    assert_int_equal(gguf_open_memory(&g, b.p, b.n, "sample.gguf", &e), 0);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_alignment(g), 64);
    assert_int_equal(gguf_n_kv(g), 8);
    assert_int_equal(gguf_n_tensors(g), 2);
    uint64_t u;
    int64_t i;
    double f;
    bool t;
    const struct gguf_kv *kv = gguf_find(g, "an.i8");
    assert_non_null(kv);
    assert_false(gguf_item_u64(kv, 0, &u));
    assert_true(gguf_item_i64(kv, 0, &i) && i == -5);
    assert_true(gguf_item_f64(kv, 0, &f) && f == -5.0);
    assert_false(gguf_item_i64(kv, 1, &i));
    kv = gguf_find(g, "a.u64");
    assert_true(gguf_item_u64(kv, 0, &u) && u == UINT64_MAX);
    assert_false(gguf_item_i64(kv, 0, &i));
    assert_true(gguf_item_f64(gguf_find(g, "a.f32"), 0, &f) && f == 1.5);
    assert_true(gguf_item_bool(gguf_find(g, "a.bool"), 0, &t) && t);
    assert_false(gguf_item_bool(kv, 0, &t));
    kv = gguf_find(g, "some.numbers");
    assert_int_equal(kv->type, GGUF_ARR);
    assert_int_equal(kv->item_type, GGUF_I32);
    assert_int_equal(kv->n, 3);
    assert_true(gguf_item_i64(kv, 0, &i) && i == -1);
    assert_true(gguf_item_i64(kv, 2, &i) && i == 1);
    static const char *const words[] = {"one", "", "three"};
    uint64_t cursor = 0;
    struct slice s;
    for (int w = 0; w < 3; w++) {
        assert_true(gguf_next_str(gguf_find(g, "some.strings"), &cursor, &s));
        assert_int_equal(s.n, strlen(words[w]));
        assert_memory_equal(s.p, words[w], s.n);
    }
    assert_false(gguf_next_str(gguf_find(g, "some.strings"), &cursor, &s));
    assert_null(gguf_find(g, "absent"));
    assert_null(gguf_find_tensor(g, "absent"));
    const struct gguf_tensor *x = gguf_find_tensor(g, "first"), *y = gguf_find_tensor(g, "last");
    assert_int_equal(x->n_bytes, 136);
    assert_int_equal(x->n_elements, 128);
    assert_int_equal(x->data[135], 135);
    assert_int_equal(y->n_bytes, 60);
    assert_int_equal(y->data[0], 100);
    assert_int_equal(y->ne[3], 1);
    gguf_close(g);
    buf_fini(&b);
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    struct buf b;
    sample(&b);
    struct err e;
    assert_int_equal(open_fenced(&b, b.n, &e), 0);
    for (size_t n = 0; n < b.n; n++) assert_int_equal(open_fenced(&b, n, &e), CHIMERE_EFORMAT);
    buf_fini(&b);
}

/* Whatever the damage, an opened file can be read to the end of every promise. */
static void any_damage_is_survived(void **state) {
    (void)state;
    static const uint64_t extremes[] = {0,          1,          0x7f,       0xffff,
                                        INT32_MAX,  UINT32_MAX, INT64_MAX,  UINT64_MAX,
                                        1ull << 63, 1ull << 32, 1ull << 40, UINT64_MAX - 31};
    struct buf b;
    sample(&b);
    struct err e;
    size_t opened = 0, refused = 0;
    for (size_t i = 0; i + 8 <= b.n; i++) {
        unsigned char saved[8];
        memcpy(saved, b.p + i, 8);
        for (size_t x = 0; x < sizeof extremes / sizeof extremes[0]; x++) {
            memcpy(b.p + i, &extremes[x], 8);
            if (open_fenced(&b, b.n, &e) == 0) opened++;
            else refused++;
            memcpy(b.p + i, saved, 8);
        }
        for (int bit = 0; bit < 8; bit++) {
            b.p[i] = (char)(b.p[i] ^ 1 << bit);
            if (open_fenced(&b, b.n, &e) == 0) opened++;
            else refused++;
            memcpy(b.p + i, saved, 8);
        }
    }
    assert_true(opened > 100 && refused > 1000);
    buf_fini(&b);
}

static void refused_with(struct buf *b, int code, const char *words) {
    struct err e = {0};
    assert_int_equal(open_fenced(b, b->n, &e), code);
    if (!strstr(e.text, words)) fail_msg("'%s' lacks '%s'", e.text, words);
    buf_fini(b);
}
static void patched(size_t where, uint64_t value, size_t n, int code, const char *words) {
    struct buf b;
    sample(&b);
    memcpy(b.p + where, &value, n);
    refused_with(&b, code, words);
}

static void refusals_name_the_field(void **state) {
    (void)state;
    struct buf b;
    sample(&b);
    buf_fini(&b); /* fills `at` */
    patched(0, 0x4c4d4747, 4, CHIMERE_EFORMAT, "magic");
    patched(at.version, 1, 4, CHIMERE_EUNSUPPORTED, "version: expected 2 or 3, got 1");
    patched(at.version, 0x03000000, 4, CHIMERE_EUNSUPPORTED, "big-endian 3");
    patched(at.version, 4, 4, CHIMERE_EUNSUPPORTED, "got 4");
    patched(at.n_tensors, 1ull << 40, 8, CHIMERE_ELIMIT, "n_tensors: expected at most 65536");
    patched(at.n_tensors, 50, 8, CHIMERE_EFORMAT, "n_tensors");
    patched(at.n_kv, UINT64_MAX, 8, CHIMERE_ELIMIT, "n_kv");
    patched(at.n_kv, 500, 8, CHIMERE_EFORMAT, "n_kv");
    patched(at.key_len, 1 << 20, 8, CHIMERE_EFORMAT,
            "key at byte 24: expected a length of 1 to 256");
    patched(at.key_len + 9, 0x0a, 1, CHIMERE_EFORMAT, "control characters");
    patched(at.key_len + 9, 0xff, 1, CHIMERE_EFORMAT, "UTF-8");
    patched(at.str_len - 4, 13, 4, CHIMERE_EFORMAT, "general.architecture");
    patched(at.str_len, UINT64_MAX - 8, 8, CHIMERE_EFORMAT, "general.architecture': truncated");
    patched(at.arr_item, GGUF_ARR, 4, CHIMERE_EFORMAT, "nested");
    patched(at.arr_item, 99, 4, CHIMERE_EFORMAT, "some.numbers");
    patched(at.arr_n, 1ull << 62, 8, CHIMERE_EFORMAT, "some.numbers");
    patched(at.arr_n, 1ull << 30, 8, CHIMERE_EFORMAT, "some.numbers': truncated");
    patched(at.align, 0, 4, CHIMERE_EFORMAT, "general.alignment");
    patched(at.align, 48, 4, CHIMERE_EFORMAT, "general.alignment");
    patched(at.align, 1 << 30, 4, CHIMERE_EFORMAT, "general.alignment");
    patched(at.ndims, 5, 4, CHIMERE_EFORMAT, "'first': n_dims");
    patched(at.ndims, 0, 4, CHIMERE_EFORMAT, "'first': n_dims");
    patched(at.ne0, 0, 8, CHIMERE_EFORMAT, "'first': dimension");
    patched(at.ne0, 33, 8, CHIMERE_EFORMAT, "multiple of 32 for q8_0");
    patched(at.ne0, 1ull << 62, 8, CHIMERE_EFORMAT, "'first': dimensions: expected a product");
    patched(at.ne0, 1ull << 61, 8, CHIMERE_EFORMAT, "'first'");
    patched(at.type, 4, 4, CHIMERE_EUNSUPPORTED, "'first': type: expected a known one, got id 4");
    patched(at.type, 1 << 20, 4, CHIMERE_EUNSUPPORTED, "'first': type");
    patched(at.offset, 1, 8, CHIMERE_EFORMAT, "multiple of 64");
    patched(at.offset, UINT64_MAX - 63, 8, CHIMERE_EFORMAT, "'first'");
    patched(at.offset, 1 << 20, 8, CHIMERE_EFORMAT, "too short");
    patched(at.offset, 64, 8, CHIMERE_EFORMAT, "overlap");
}

static void doubles_are_refused(void **state) {
    (void)state;
    struct buf b;
    head(&b, 3, 0, 2);
    kv_u32(&b, "same", 1);
    kv_u32(&b, "same", 2);
    refused_with(&b, CHIMERE_EFORMAT, "key 'same': expected once");
    head(&b, 2, 2, 0);
    tensor(&b, "same", QUANT_F32, 8, 1, 0);
    tensor(&b, "same", QUANT_F32, 8, 1, 32);
    pad(&b, 32);
    for (int i = 0; i < 64; i++) buf_putc(&b, 0);
    refused_with(&b, CHIMERE_EFORMAT, "tensor 'same': expected once");
    head(&b, 3, 0, 1);
    str(&b, "flag");
    u32(&b, GGUF_BOOL);
    buf_putc(&b, 2);
    refused_with(&b, CHIMERE_EFORMAT, "'flag': expected a boolean");
    head(&b, 3, 0, 1);
    str(&b, "split.count");
    u32(&b, GGUF_U32);
    u32(&b, 3);
    refused_with(&b, CHIMERE_EFORMAT, "split.count: expected one file, got 3");
    buf_init(&b, 100);
    buf_puts(&b, "version https://git-lfs.github.com/spec/v1\n");
    refused_with(&b, CHIMERE_EFORMAT, "Git LFS pointer");
}

/* ---- files ---- */

static const char *in_dir(const char *name) {
    static char path[4][160];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", scratch, name);
    return path[next];
}

/* Ten f32 tensors of 1000 values i * 1000 + j; keys of several types. */
static void write_ten(const char *path, uint64_t split_bytes) {
    struct gguf_writer *w;
    struct err e = {0};
    assert_int_equal(gguf_writer_new(&w, path, 0, split_bytes, &e), 0);
    gguf_put_str(w, "general.architecture", "test", 4);
    gguf_put_u32(w, "wrong", 1);
    gguf_put_u32(w, "dropped", 1);
    gguf_put_i32(w, "negative", -7);
    gguf_put_u32(w, "wrong", 2);
    gguf_drop(w, "dropped");
    gguf_put_f32(w, "float", 0.5f);
    gguf_put_bool(w, "yes", true);
    gguf_put_u64(w, "long", 1ull << 40);
    gguf_put_array(w, "three", GGUF_U16, (uint16_t[]){1, 2, 65535}, 3);
    gguf_put_strings(w, "words", (struct slice[]){SLICE("a"), SLICE(""), SLICE("\xc3\xa9")}, 3);
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        gguf_add_tensor(w, name, QUANT_F32, 2, (uint64_t[]){250, 4});
    }
    for (int i = 0; i < 10; i++) {
        float x[1000];
        for (int j = 0; j < 1000; j++) x[j] = (float)(i * 1000 + j);
        assert_int_equal(gguf_write_data(w, x, 1500, &e), 0);
        assert_int_equal(gguf_write_data(w, (char *)x + 1500, 2500, &e), 0);
    }
    assert_int_equal(gguf_writer_close(w, &e), 0);
}

static void check_ten(const char *path, uint32_t n_files) {
    struct gguf *g;
    struct err e = {0};
    int rc = gguf_open(&g, path, &e);
    if (rc) fail_msg("%s", e.text);
    assert_int_equal(gguf_n_files(g), n_files);
    assert_int_equal(gguf_n_tensors(g), 10);
    uint64_t u;
    int64_t v;
    assert_true(gguf_item_u64(gguf_find(g, "wrong"), 0, &u) && u == 2);
    assert_true(gguf_item_i64(gguf_find(g, "negative"), 0, &v) && v == -7);
    assert_true(gguf_item_u64(gguf_find(g, "long"), 0, &u) && u == 1ull << 40);
    assert_true(gguf_item_u64(gguf_find(g, "three"), 2, &u) && u == 65535);
    assert_null(gguf_find(g, "dropped"));
    assert_int_equal(gguf_find(g, "words")->n, 3);
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        const struct gguf_tensor *t = gguf_find_tensor(g, name);
        assert_non_null(t);
        assert_int_equal(t->ne[0], 250);
        const float *x = (const float *)(const void *)t->data;
        for (int j = 0; j < 1000; j++) assert_true(x[j] == (float)(i * 1000 + j));
    }
    gguf_close(g);
}

static void written_files_read_back(void **state) {
    (void)state;
    write_ten(in_dir("one.gguf"), 0);
    check_ten(in_dir("one.gguf"), 1);
    write_ten(in_dir("whole.gguf"), 1 << 20); /* fits one file: no split name */
    check_ten(in_dir("whole.gguf"), 1);
    write_ten(in_dir("many.gguf"), 12500); /* three tensors of 4000 bytes each */
    check_ten(in_dir("many-00001-of-00004.gguf"), 4);
}

static void open_fails(const char *path, int code, const char *words) {
    struct gguf *g;
    struct err e = {0};
    assert_int_equal(gguf_open(&g, path, &e), code);
    assert_null(g);
    if (!strstr(e.text, words)) fail_msg("'%s' lacks '%s'", e.text, words);
}

static void split_sets_must_be_whole(void **state) {
    (void)state;
    write_ten(in_dir("many.gguf"), 12500);
    open_fails(in_dir("many-00002-of-00004.gguf"), CHIMERE_EINVAL, "part 2 of 4");
    open_fails(in_dir("absent.gguf"), CHIMERE_ENOENT, "absent.gguf");
    assert_int_equal(rename(in_dir("many-00003-of-00004.gguf"), in_dir("away")), 0);
    open_fails(in_dir("many-00001-of-00004.gguf"), CHIMERE_ENOENT, "part 3 of 4 is missing");
    /* the fourth in place of the third */
    assert_int_equal(link(in_dir("many-00004-of-00004.gguf"), in_dir("many-00003-of-00004.gguf")),
                     0);
    open_fails(in_dir("many-00001-of-00004.gguf"), CHIMERE_EFORMAT, "split.no and split.count");
    /* the first under a single file's name */
    assert_int_equal(rename(in_dir("many-00001-of-00004.gguf"), in_dir("first.gguf")), 0);
    open_fails(in_dir("first.gguf"), CHIMERE_EFORMAT, "expected one file, got 4");
    write_ten(in_dir("x-00001-of-00002.gguf"), 0);
    open_fails(in_dir("x-00001-of-00002.gguf"), CHIMERE_EFORMAT, "got none");
}

static void writer_refuses_what_it_cannot_keep(void **state) {
    (void)state;
    struct gguf_writer *w;
    struct err e = {0};
    assert_int_equal(gguf_writer_new(&w, in_dir("bad.gguf"), 24, 0, &e), CHIMERE_EINVAL);
    assert_int_equal(gguf_writer_new(&w, in_dir("bad.gguf"), 32, 0, &e), 0);
    gguf_add_tensor(w, "t", QUANT_Q8_0, 1, (uint64_t[]){33});
    assert_int_equal(gguf_writer_close(w, &e), CHIMERE_EINVAL);
    assert_true(strstr(e.text, "'t'") != NULL);
    assert_int_equal(gguf_writer_new(&w, in_dir("bad.gguf"), 32, 0, &e), 0);
    gguf_add_tensor(w, "t", QUANT_F32, 1, (uint64_t[]){4});
    float x[5] = {0};
    assert_int_equal(gguf_write_data(w, x, 12, &e), 0);
    assert_int_equal(gguf_writer_close(w, &e), CHIMERE_EINVAL);
    assert_true(strstr(e.text, "expected 16 bytes of data, got 12") != NULL);
    assert_int_equal(gguf_writer_new(&w, in_dir("bad.gguf"), 32, 0, &e), 0);
    gguf_add_tensor(w, "t", QUANT_F32, 1, (uint64_t[]){4});
    assert_int_equal(gguf_write_data(w, x, 20, &e), CHIMERE_EINVAL);
    gguf_writer_abort(w);
    assert_false(file_exists(in_dir("bad.gguf")));
}

/* Every allocation of writing and reading fails once; nothing leaks (asan) and all say ENOMEM. */
static void short_memory_is_an_error(void **state) {
    (void)state;
    write_ten(in_dir("many.gguf"), 12500);
    for (int n = 1; n < 200; n++) {
        struct gguf *g = NULL;
        struct err e = {0};
        mem_fail_nth(n);
        int rc = gguf_open(&g, in_dir("many-00001-of-00004.gguf"), &e);
        mem_fail_nth(0);
        if (rc == 0) {
            gguf_close(g);
            assert_true(n > 10);
            return;
        }
        assert_int_equal(rc, CHIMERE_ENOMEM);
    }
    fail_msg("never opened");
}

static uint64_t peak_rss(void) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[128];
    uint64_t kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %" SCNu64, &kb) == 1) break;
    if (f) fclose(f);
    return kb << 10;
}

/* In a process of its own, so that the peak is this file's. */
static void refuse_cheaply(const char *path) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        FILE *f = fopen("/proc/self/clear_refs", "w"); /* 5: peak = present */
        if (f) {
            fputs("5", f);
            fclose(f);
        }
        uint64_t before = peak_rss();
        int64_t start = clock_cpu_ns();
        struct gguf *g;
        struct err e = {0};
        int rc = gguf_open(&g, path, &e);
        double ms = (double)(clock_cpu_ns() - start) * 1e-6;
        uint64_t more = peak_rss() - before;
        fprintf(stderr, "%s: %.0f ms, %.1f MB: %s\n", path, ms, (double)more / 1e6, e.text);
        _exit(rc == 0 ? 2 : ms > 1000 * TEST_SLOWNESS ? 3 : more > 64 << 20 ? 4 : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void save(struct buf *b, const char *path) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->p, 1, b->n, f), b->n);
    fclose(f);
    buf_fini(b);
}

static void hostile_files_are_refused_cheaply(void **state) {
    (void)state;
    struct buf b;
    head(&b, 3, 0, 2); /* the most strings that may be, then rubbish */
    str(&b, "tokens");
    u32(&b, GGUF_ARR);
    u32(&b, GGUF_STR);
    u64(&b, GGUF_MAX_STRINGS);
    for (int i = 0; i < GGUF_MAX_STRINGS; i++) u64(&b, 0);
    for (int i = 0; i < 10; i++) u64(&b, UINT64_MAX);
    save(&b, in_dir("strings.gguf"));
    refuse_cheaply(in_dir("strings.gguf"));
    head(&b, 3, 0, 2); /* long strings: every length on a page of its own */
    str(&b, "tokens");
    u32(&b, GGUF_ARR);
    u32(&b, GGUF_STR);
    u64(&b, 30000);
    buf_reserve(&b, 30000 * 4096);
    for (int i = 0; i < 30000; i++) {
        u64(&b, 4088);
        memset(b.p + b.n, 'x', 4088);
        b.n += 4088;
    }
    for (int i = 0; i < 10; i++) u64(&b, UINT64_MAX);
    save(&b, in_dir("pages.gguf"));
    refuse_cheaply(in_dir("pages.gguf"));
    head(&b, 3, GGUF_MAX_TENSORS, 0); /* the longest names, backwards in the file, two alike */
    for (int i = 0; i < GGUF_MAX_TENSORS; i++) {
        char name[GGUF_MAX_NAME + 1];
        memset(name, 'n', sizeof name);
        int id = i ? i : 1;
        snprintf(name + GGUF_MAX_NAME - 8, 9, "%08d", id);
        tensor(&b, name, QUANT_F32, 8, 1, (uint64_t)(GGUF_MAX_TENSORS - i) * 32);
    }
    pad(&b, 32);
    buf_reserve(&b, (size_t)(GGUF_MAX_TENSORS + 1) * 32);
    memset(b.p + b.n, 0, (size_t)(GGUF_MAX_TENSORS + 1) * 32);
    b.n += (size_t)(GGUF_MAX_TENSORS + 1) * 32;
    save(&b, in_dir("names.gguf"));
    refuse_cheaply(in_dir("names.gguf"));
}

/* A file of 16 GB (a hole on disk) costs its header. */
static void size_does_not_slow_opening(void **state) {
    (void)state;
    struct buf b;
    head(&b, 3, 1, 0);
    tensor(&b, "huge", QUANT_Q8_0, 1 << 20, 15 << 10, 0);
    pad(&b, 32);
    size_t start = b.n;
    save(&b, in_dir("huge.gguf"));
    uint64_t bytes = (uint64_t)(15 << 10) * (1 << 20) / 32 * 34;
    assert_int_equal(truncate(in_dir("huge.gguf"), (off_t)(start + bytes)), 0);
    struct gguf *g;
    struct err e = {0};
    int64_t from = clock_cpu_ns();
    assert_int_equal(gguf_open(&g, in_dir("huge.gguf"), &e), 0);
    assert_true((clock_cpu_ns() - from) * 1e-6 < 100 * TEST_SLOWNESS);
    assert_true(gguf_tensor_at(g, 0)->n_bytes == bytes && bytes > 16000000000);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_is_read_exactly),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(any_damage_is_survived),
        cmocka_unit_test(refusals_name_the_field),
        cmocka_unit_test(doubles_are_refused),
        cmocka_unit_test(written_files_read_back),
        cmocka_unit_test(split_sets_must_be_whole),
        cmocka_unit_test(writer_refuses_what_it_cannot_keep),
        cmocka_unit_test(short_memory_is_an_error),
        cmocka_unit_test(hostile_files_are_refused_cheaply),
        cmocka_unit_test(size_does_not_slow_opening),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
