/* hf_folder.h: writes checkpoint folders that test/golden/make_hf.py describes, and converts them. */
#ifndef CHIMERE_TEST_HF_FOLDER_H
#define CHIMERE_TEST_HF_FOLDER_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "convert/hf.h"
#include "format/quant.h"
#include "scratch.h"

static inline const char *at(const char *name) {
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", scratch, name);
    return path[next];
}
static inline const char *data(const char *folder, const char *name) {
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], TEST_DATA "/hf/%s/%s", folder, name);
    return path[next];
}
static inline char *slurp(const char *path, size_t *n) {
    char *text;
    struct err e = {0};
    if (file_read(path, 64 << 20, &text, n, &e)) fail_msg("%s", e.text);
    return text;
}
static inline void save(const char *path, const void *p, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}
static inline void copy(const char *from, const char *to) {
    size_t n;
    char *text = slurp(from, &n);
    save(to, text, n);
    mem_free(text);
}

static inline void write_text(const char *name, const char *text) {
    save(at(name), text, strlen(text));
}

/* ---- checkpoints ---- */

/* How a checkpoint is stored; the result may not depend on it. */
struct store {
    const char *dtype;  /* F32, BF16 */
    const char *prefix; /* in place of "model." */
    bool sharded;
    bool no_mtp;
    const char *without; /* a tensor that is left out */
    double louder;       /* factor of all values; 0: 1 */
};

static inline void write_safetensors(const char *path, const struct buf *header,
                                     const struct buf *body) {
    struct buf b;
    buf_init(&b, 1 << 28);
    uint64_t n = header->n;
    buf_put(&b, &n, 8);
    buf_put(&b, header->p, header->n);
    buf_put(&b, body->p, body->n);
    assert_int_equal(b.failed, 0);
    save(path, b.p, b.n);
    buf_fini(&b);
}

/* Values as in make_hf.py. */
static inline void put_values(struct buf *body, const char *name, size_t n, double scale,
                              double offset, bool bf16) {
    uint64_t seed = hash_fnv1a(name, strlen(name));
    for (size_t i = 0; i < n; i++) {
        double u = (double)(rng_at(seed, i) >> 40) * 0x1p-23 - 1.0;
        float v = (float)(u * scale + offset);
        uint16_t half = quant_f32_to_bf16(v);
        if (bf16) buf_put(body, &half, 2);
        else buf_put(body, &v, 4);
    }
}

static inline void add_entry(struct buf *header, struct buf *body, const char *name,
                             const char *shape, const struct store *s, double scale, double offset,
                             const char *stored) {
    size_t n = 1, begin = body->n;
    for (const char *p = shape; *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ','))
        n *= strtoul(p, NULL, 10);
    put_values(body, name, n, scale, offset, strcmp(s->dtype, "BF16") == 0);
    buf_printf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
               header->n > 1 ? "," : "", stored, s->dtype, shape, begin, body->n);
}

static inline void make_folder(const char *family, const struct store *s) {
    size_t n;
    char *text = slurp(data(family, "weights.tsv"), &n), *line, *rest = text;
    struct buf header[2], body[2], index;
    for (int i = 0; i < 2; i++) {
        buf_init(&header[i], 1 << 24);
        buf_init(&body[i], 1 << 26);
        buf_putc(&header[i], '{');
    }
    buf_init(&index, 1 << 24);
    buf_puts(&index, "{\"metadata\":{},\"weight_map\":{");
    bool first = true;
    while ((line = strsep(&rest, "\n")) && *line) {
        char *name = strsep(&line, "\t"), *shape = strsep(&line, "\t"),
             *scale = strsep(&line, "\t");
        char stored[256];
        if (s->no_mtp && str_starts(name, "mtp.")) continue;
        if (s->without && strcmp(name, s->without) == 0) continue;
        bool moved = s->prefix && str_starts(name, "model.");
        snprintf(stored, sizeof stored, "%s%s", moved ? s->prefix : "", moved ? name + 6 : name);
        int part = s->sharded && hash_fnv1a(name, strlen(name)) % 2;
        add_entry(&header[part], &body[part], name, shape, s,
                  strtod(scale, NULL) * (s->louder > 0 ? s->louder : 1), strtod(line, NULL),
                  stored);
        buf_printf(&index, "%s\"%s\":\"part%d.safetensors\"", first ? "" : ",", stored, part);
        first = false;
    }
    buf_puts(&index, "}}");
    for (int i = 0; i < 2; i++) {
        char name[32];
        buf_putc(&header[i], '}');
        snprintf(name, sizeof name, "hf/part%d.safetensors", i);
        if (s->sharded) write_safetensors(at(name), &header[i], &body[i]);
        else if (i == 0) write_safetensors(at("hf/model.safetensors"), &header[i], &body[i]);
        buf_fini(&header[i]);
        buf_fini(&body[i]);
    }
    if (s->sharded) save(at("hf/model.safetensors.index.json"), index.p, index.n);
    buf_fini(&index);
    mem_free(text);
    copy(data(family, "config.json"), at("hf/config.json"));
}

static inline void use_tokenizer(const char *name) {
    char folder[64];
    snprintf(folder, sizeof folder, "tokenizer-%s", name);
    copy(data(folder, "tokenizer.json"), at("hf/tokenizer.json"));
    copy(data(folder, "tokenizer_config.json"), at("hf/tokenizer_config.json"));
}

static inline void new_folder(void) {
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s/hf' && mkdir -p '%s/hf'", scratch, scratch);
    assert_int_equal(system(command), 0);
}

static inline void convert(const char *type) {
    struct hf_options o = {.dir = at("hf"), .out = at("out.gguf"), .type = type, .n_thread = 2};
    struct hf_result r;
    struct err e = {0};
    if (hf_convert(&o, &r, &e)) fail_msg("%s (%s)", e.text, e.hint);
    assert_int_equal(r.n_unused, 0);
}

#endif
