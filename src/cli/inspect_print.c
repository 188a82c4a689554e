/* inspect_print.c: prints text for users and JSON for programs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "cli/inspect.h"

static const char *const part_names[N_PART] = {"experts", "dense", "embedding", "output",
                                               "vectors"};

/* Writes the shortest decimal that gives the same single-precision number. */
static void format_f32(char out[40], float v) {
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(out, 40, "%.*g", digits, (double)v);
        if (strtof(out, NULL) == v) return;
    }
}

/* Writes a number or boolean of a key. Infinity and NaN are quoted, because JSON has no form for them. */
static void format_item(char out[48], const struct gguf_kv *kv, uint64_t i) {
    double f;
    uint64_t u;
    int64_t s;
    bool b;
    if (gguf_item_bool(kv, i, &b)) snprintf(out, 48, "%s", b ? "true" : "false");
    else if (gguf_item_i64(kv, i, &s)) snprintf(out, 48, "%" PRId64, s);
    else if (gguf_item_u64(kv, i, &u)) snprintf(out, 48, "%" PRIu64, u);
    else if (!gguf_item_f64(kv, i, &f)) snprintf(out, 48, "null");
    else if (!isfinite(f)) snprintf(out, 48, "\"%s\"", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
    else if (kv->item_type == GGUF_F32) format_f32(out, (float)f);
    else str_f64(out, f);
}

/* Writes the characters of s, at most max bytes; invalid UTF-8 as '?'. */
static void put_text(struct slice s, size_t max, bool is_json) {
    size_t n = s.n < max ? s.n : max;
    for (size_t i = 0; i < n;) {
        int len = utf8_valid_len(s.p + i, s.n - i);
        unsigned char c = (unsigned char)s.p[i];
        if (len <= 0) {
            putchar('?');
            i++;
            continue;
        }
        if (is_json && (c == '"' || c == '\\')) printf("\\%c", c);
        else if (c == '\n') fputs("\\n", stdout);
        else if (c < 0x20 || c == 0x7f) printf(is_json ? "\\u%04x" : "\\x%02x", c);
        else fwrite(s.p + i, 1, (size_t)len, stdout);
        i += (size_t)len;
    }
    if (n < s.n && !is_json) fputs("...", stdout);
}

static struct slice slice_of(const char *s) { return (struct slice){s, strlen(s)}; }

/* ---- text ---- */

static void text_value(const struct gguf_kv *kv) {
    char item[48];
    struct slice s;
    uint64_t cursor = 0, shown = kv->n < 8 ? kv->n : 8;
    if (kv->type == GGUF_ARR) printf("%" PRIu64 " x %s: [", kv->n, gguf_type_name(kv->item_type));
    for (uint64_t i = 0; i < shown; i++) {
        if (i) fputs(", ", stdout);
        if (kv->item_type == GGUF_STR) {
            gguf_next_str(kv, &cursor, &s);
            putchar('"');
            put_text(s, kv->type == GGUF_ARR ? 24 : 72, false);
            putchar('"');
        } else {
            format_item(item, kv, i);
            fputs(item, stdout);
        }
    }
    if (shown < kv->n) fputs(", ...", stdout);
    if (kv->type == GGUF_ARR) putchar(']');
    putchar('\n');
}

static void text_shape(uint32_t n_dims, const uint64_t *ne) {
    char out[160];
    size_t n = 0;
    for (uint32_t d = 0; d < n_dims && n < sizeof out; d++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%" PRIu64, d ? " x " : "", ne[d]);
    printf("  %-28s", n_dims ? out : "scalar");
}

static void text_tensors(const struct inspection *x) {
    char size[16];
    puts("\ntensors");
    for (size_t i = 0; x->gguf && i < gguf_n_tensors(x->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(x->gguf, i);
        str_bytes(size, t->n_bytes);
        printf("  %-44s %-8s", t->name, quant_traits(t->type)->name);
        text_shape(t->n_dims, t->ne);
        printf(" %10s\n", size);
    }
    for (size_t i = 0; x->st && i < safetensors_n_tensors(x->st); i++) {
        const struct st_tensor *t = safetensors_at(x->st, i);
        str_bytes(size, t->n_bytes);
        printf("  %-64s %-8s", t->name, safetensors_dtype_name(t->dtype));
        text_shape(t->n_dims, t->shape);
        printf(" %10s\n", size);
    }
}

static void text_line(const char *what, uint64_t n_bytes, const char *note) {
    char size[16];
    str_bytes(size, n_bytes);
    printf("  %-22s %12s  %s\n", what, size, note);
}

static void text_memory(const struct inspection *x) {
    const struct inspect_plan *p = &x->plan;
    char note[96], each[16];
    puts("\nmemory");
    for (int i = 0; i < N_PART; i++) {
        if (!x->part_bytes[i]) continue;
        snprintf(note, sizeof note, "weights: %s", part_names[i]);
        text_line(note, x->part_bytes[i], "");
    }
    if (!p->is_known) {
        puts("  cache and state are unknown: the family is not implemented");
        return;
    }
    str_bytes(each, p->cache_bytes_per_tok);
    snprintf(note, sizeof note, "%" PRId64 " positions, %s each", p->n_ctx, each);
    text_line("key/value cache", p->cache_bytes, note);
    str_bytes(each, p->state_bytes_per_seq);
    snprintf(note, sizeof note, "%d sequence%s, %s each", p->n_seq, p->n_seq > 1 ? "s" : "", each);
    text_line("recurrent state", p->state_bytes, note);
    snprintf(note, sizeof note, "forward passes of %d tokens", p->n_batch);
    text_line("activations", p->scratch_bytes, note);
    text_line("program and tokenizer", p->program_bytes, "an estimate");
    if (p->weight_bytes > x->n_bytes)
        text_line("embedding, for products", p->weight_bytes - x->n_bytes,
                  "some of its rows are stored twice");
    text_line("in all", p->total_bytes, "and the file's pages, which the system may drop");
}

static double bits(uint64_t n_bytes, uint64_t n_weights) {
    return n_weights ? (double)n_bytes * 8 / (double)n_weights : 0;
}

void inspect_print_text(const struct inspection *x) {
    char size[16];
    str_bytes(size, x->file_bytes);
    printf("%s\n", x->path);
    if (x->gguf)
        printf("  GGUF version %" PRIu32 ", alignment %" PRIu32 ", ", gguf_version(x->gguf),
               gguf_alignment(x->gguf));
    else fputs("  safetensors, ", stdout);
    size_t n = x->gguf ? gguf_n_tensors(x->gguf) : safetensors_n_tensors(x->st);
    printf("%" PRIu32 " file%s, %s\n", x->n_files, x->n_files > 1 ? "s" : "", size);
    printf("  %zu tensors, %" PRIu64 " weights (%.3f B), %.3f bits per weight\n", n, x->n_weights,
           (double)x->n_weights * 1e-9, bits(x->n_bytes, x->n_weights));
    if (x->gguf && gguf_n_kv(x->gguf)) puts("\nkeys");
    for (size_t i = 0; x->gguf && i < gguf_n_kv(x->gguf); i++) {
        const struct gguf_kv *kv = gguf_kv_at(x->gguf, i);
        printf("  %-44.*s ", (int)kv->key.n, kv->key.p);
        text_value(kv);
    }
    if (x->n_types) puts("\ntypes");
    for (size_t i = 0; i < x->n_types; i++) {
        const struct inspect_type *t = &x->types[i];
        str_bytes(size, t->n_bytes);
        printf("  %-8s %6" PRIu64 " tensors %14" PRIu64 " weights %10s\n", t->name, t->n_tensors,
               t->n_weights, size);
    }
    if (x->list_tensors) text_tensors(x);
    if (x->has_plan) text_memory(x);
}

/* ---- JSON ---- */

static void json_string(struct slice s) {
    putchar('"');
    put_text(s, s.n, true);
    putchar('"');
}

/* Long arrays are summarised, not printed: a vocabulary is too long to read. */
static void json_value(const struct gguf_kv *kv) {
    char item[48];
    struct slice s;
    uint64_t cursor = 0;
    if (kv->type == GGUF_ARR && kv->n > INSPECT_SHORT_ARRAY) {
        printf("{\"items\":%" PRIu64 ",\"type\":\"%s\"}", kv->n, gguf_type_name(kv->item_type));
        return;
    }
    if (kv->type == GGUF_ARR) putchar('[');
    for (uint64_t i = 0; i < kv->n; i++) {
        if (i) putchar(',');
        if (kv->item_type == GGUF_STR) {
            gguf_next_str(kv, &cursor, &s);
            json_string(s);
        } else {
            format_item(item, kv, i);
            fputs(item, stdout);
        }
    }
    if (kv->type == GGUF_ARR) putchar(']');
}

static void json_tensor(const char *name, const char *type, uint32_t n_dims, const uint64_t *ne,
                        uint32_t file, uint64_t offset, uint64_t n_bytes) {
    fputs("{\"name\":", stdout);
    json_string(slice_of(name));
    printf(",\"type\":\"%s\",\"shape\":[", type);
    for (uint32_t d = 0; d < n_dims; d++) printf("%s%" PRIu64, d ? "," : "", ne[d]);
    printf("],\"file\":%" PRIu32 ",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", file, offset,
           n_bytes);
}

static void json_tensors(const struct inspection *x) {
    fputs(",\"tensors\":[", stdout);
    for (size_t i = 0; x->gguf && i < gguf_n_tensors(x->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(x->gguf, i);
        if (i) putchar(',');
        json_tensor(t->name, quant_traits(t->type)->name, t->n_dims, t->ne, t->file, t->offset,
                    t->n_bytes);
    }
    for (size_t i = 0; x->st && i < safetensors_n_tensors(x->st); i++) {
        const struct st_tensor *t = safetensors_at(x->st, i);
        if (i) putchar(',');
        json_tensor(t->name, safetensors_dtype_name(t->dtype), t->n_dims, t->shape, t->file,
                    t->offset, t->n_bytes);
    }
    putchar(']');
}

static void json_memory(const struct inspection *x) {
    const struct inspect_plan *p = &x->plan;
    printf(",\"memory\":{\"weights\":%" PRIu64 ",\"parts\":{", x->n_bytes);
    for (int i = 0; i < N_PART; i++)
        printf("%s\"%s\":%" PRIu64, i ? "," : "", part_names[i], x->part_bytes[i]);
    putchar('}');
    if (p->is_known)
        printf(
            ",\"n_ctx\":%" PRId64 ",\"n_seq\":%d,\"n_batch\":%d,\"cache\":%" PRIu64
            ",\"cache_per_token\":%" PRIu64 ",\"state\":%" PRIu64 ",\"state_per_sequence\":%" PRIu64
            ",\"activations\":%" PRIu64 ",\"program\":%" PRIu64 ",\"total\":%" PRIu64,
            p->n_ctx, p->n_seq, p->n_batch, p->cache_bytes, p->cache_bytes_per_tok, p->state_bytes,
            p->state_bytes_per_seq, p->scratch_bytes, p->program_bytes, p->total_bytes);
    if (p->has_tiers)
        printf(",\"experts\":{\"device\":%" PRIu64 ",\"memory\":%" PRIu64 ",\"disk\":%" PRIu64 "}",
               p->device_bytes, p->memory_bytes, p->disk_bytes);
    putchar('}');
}

void inspect_print_json(const struct inspection *x) {
    fputs("{\"path\":", stdout);
    json_string(slice_of(x->path));
    if (x->gguf)
        printf(",\"format\":\"gguf\",\"version\":%" PRIu32 ",\"alignment\":%" PRIu32,
               gguf_version(x->gguf), gguf_alignment(x->gguf));
    else fputs(",\"format\":\"safetensors\"", stdout);
    char number[32];
    str_f64(number, bits(x->n_bytes, x->n_weights));
    printf(",\"n_files\":%" PRIu32 ",\"file_bytes\":%" PRIu64
           ",\"n_tensors\":%zu,\"n_weights\":%" PRIu64 ",\"tensor_bytes\":%" PRIu64
           ",\"bits_per_weight\":%s,\"types\":{",
           x->n_files, x->file_bytes,
           x->gguf ? gguf_n_tensors(x->gguf) : safetensors_n_tensors(x->st), x->n_weights,
           x->n_bytes, number);
    for (size_t i = 0; i < x->n_types; i++)
        printf("%s\"%s\":{\"n_tensors\":%" PRIu64 ",\"n_weights\":%" PRIu64 ",\"bytes\":%" PRIu64
               "}",
               i ? "," : "", x->types[i].name, x->types[i].n_tensors, x->types[i].n_weights,
               x->types[i].n_bytes);
    putchar('}');
    if (x->gguf) fputs(",\"keys\":{", stdout);
    for (size_t i = 0; x->gguf && i < gguf_n_kv(x->gguf); i++) {
        const struct gguf_kv *kv = gguf_kv_at(x->gguf, i);
        if (i) putchar(',');
        json_string(kv->key);
        putchar(':');
        json_value(kv);
    }
    if (x->gguf) putchar('}');
    if (x->list_tensors) json_tensors(x);
    if (x->has_plan) json_memory(x);
    puts("}");
}
