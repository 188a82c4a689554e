/* quantize.c: see quantize.h. */
#include "convert/quantize.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "convert/encode.h"
#include "convert/imatrix_read.h"
#include "format/quant.h"
#include "model/weights.h"

enum {
    COPY = 1 << 22, /* bytes per write of a tensor that is copied */
    MAX_RULES = 4096,
    QUANTIZATION_VERSION = 2, /* of ggml's blocks, as in all files since 2023 */
};

struct rule {
    pcre2_code *pattern; /* owned */
    uint32_t type;
    bool has_matched;
};

struct quantize {
    struct gguf *gguf;               /* owned */
    struct imatrix *imatrix;         /* owned; NULL without */
    struct quantize_options options; /* strings borrowed until quantize_close */
    const struct quantize_mix *mix;
    struct quantize_shape shape;
    struct rule *rules; /* owned */
    size_t n_rule;
    struct quantize_item *items; /* owned; one for each tensor, in file order */
    size_t n_item;
};

/* ---- plan ---- */

static int parse_rule(struct quantize *q, const char *text, struct err *e) {
    const char *equals = strrchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return err_set(e, CHIMERE_EINVAL, "tensor-type: expected REGEX=TYPE, got '%s'", text);
    int id = quant_type_from_name(equals + 1);
    if (id < 0 || !quant_traits((uint32_t)id)->encode)
        return err_set(e, CHIMERE_EINVAL, "tensor-type %s: no type '%s' to encode to", text,
                       equals + 1);
    int code;
    PCRE2_SIZE at;
    pcre2_code *pattern =
        pcre2_compile((PCRE2_SPTR)text, (PCRE2_SIZE)(equals - text), PCRE2_UTF, &code, &at, NULL);
    if (!pattern) {
        PCRE2_UCHAR message[128];
        pcre2_get_error_message(code, message, sizeof message);
        return err_set(e, CHIMERE_EINVAL, "tensor-type %s: at character %zu: %s", text, (size_t)at,
                       (const char *)message);
    }
    q->rules[q->n_rule++] = (struct rule){pattern, (uint32_t)id, false};
    return 0;
}

static int parse_rules(struct quantize *q, struct err *e) {
    const struct quantize_options *o = &q->options;
    if (o->n_tensor_types > MAX_RULES)
        return err_set(e, CHIMERE_ELIMIT, "tensor-type: expected at most %d rules, got %zu",
                       MAX_RULES, o->n_tensor_types);
    q->rules = mem_alloc_array(o->n_tensor_types + 1, sizeof *q->rules);
    if (!q->rules) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = 0;
    for (size_t i = 0; i < o->n_tensor_types && !rc; i++) rc = parse_rule(q, o->tensor_types[i], e);
    return rc;
}

/* The first rule that matches; NULL: none. A pattern that exceeds the match limit is an error, not a mismatch. */
static int find_rule(struct quantize *q, const char *name, pcre2_match_data *match,
                     struct rule **found, struct err *e) {
    *found = NULL;
    for (size_t i = 0; i < q->n_rule && !*found; i++) {
        int n = pcre2_match(q->rules[i].pattern, (PCRE2_SPTR)name, PCRE2_ZERO_TERMINATED, 0, 0,
                            match, NULL);
        if (n >= 0) *found = &q->rules[i];
        else if (n != PCRE2_ERROR_NOMATCH)
            return err_set(e, CHIMERE_ELIMIT, "tensor-type %s: gives up on the name %s (%d)",
                           q->options.tensor_types[i], name, n);
    }
    return 0;
}

/* A tensor that is not a matrix may change its float type by a rule, if it has rows; it is never quantized. */
static bool may_override(const struct gguf_tensor *t, bool is_matrix, uint32_t type) {
    if (is_matrix) return true;
    return quant_traits(t->type)->decode && t->n_elements > t->ne[0] &&
           quant_traits(type)->block_elements == 1;
}

/* Sets the types and sizes of the columns of a tensor that is to have type `wanted`. */
static int plan_columns(const struct quantize *q, struct quantize_item *item, uint32_t wanted,
                        struct err *e) {
    const struct gguf_tensor *t = item->tensor;
    if (!quantize_mix_columns(&item->to, t, wanted, q->options.tails))
        return err_set(e, CHIMERE_ELIMIT, "tensor %s: its size overflows as %s", t->name,
                       quant_traits(item->to.type)->name);
    item->is_refitted = item->to.type != wanted;
    if (item->to.tail_bytes && strlen(t->name) + strlen(WEIGHT_TAIL) >= GGUF_MAX_NAME)
        return err_set(e, CHIMERE_ELIMIT, "tensor %s: its name is too long for a second part",
                       t->name);
    return 0;
}

/* Matrices get the mix's type or a rule's. Of the other tensors, 16- and 64-bit floats become f32, as engines expect
 * for tensors that are not used in products; everything else is unchanged. */
static int plan_tensor(struct quantize *q, struct quantize_item *item, pcre2_match_data *match,
                       struct err *e) {
    const struct gguf_tensor *t = item->tensor;
    struct rule *rule;
    int rc = find_rule(q, t->name, match, &rule, e);
    if (rc) return rc;
    bool is_matrix = quantize_mix_is_matrix(t) && quant_traits(t->type)->decode;
    const struct quantize_choice *choice = q->options.choice;
    uint32_t type = t->type;
    if (rule && may_override(t, is_matrix, rule->type)) {
        rule->has_matched = true;
        type = rule->type;
    } else if (choice && choice->types[item - q->items] != QUANTIZE_BY_MIX) {
        type = choice->types[item - q->items];
    } else if (is_matrix) {
        type = quantize_mix_type(q->mix, &q->shape, t, q->options.pure);
    } else if (t->type == QUANT_F16 || t->type == QUANT_BF16 || t->type == QUANT_F64) {
        type = QUANT_F32;
    }
    rc = plan_columns(q, item, type, e);
    if (rc) return rc;
    if (!q->imatrix || item->to.type == t->type || quant_traits(item->to.type)->block_elements == 1)
        return 0;
    rc = imatrix_check(q->imatrix, t->name, t->ne[0], t->ne[2] * t->ne[3], e);
    item->is_weighted = rc == 0;
    return rc == CHIMERE_ENOENT ? 0 : rc;
}

static int check_weights(const struct quantize *q, const struct quantize_item *item,
                         struct err *e) {
    const struct quant_traits *to = quant_traits(item->to.type);
    if (!to->needs_weights || item->is_weighted || item->to.type == item->tensor->type) return 0;
    err_set(e, CHIMERE_EINVAL, "tensor %s: %s needs importance weights, and %s", item->tensor->name,
            to->name, q->imatrix ? "the importance matrix has none for it" : "none are given");
    err_hint(e, q->imatrix ? "give the tensor another type with --tensor-type"
                           : "give an importance matrix with --imatrix, or take another type");
    return CHIMERE_EINVAL;
}

static int plan(struct quantize *q, struct err *e) {
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    q->n_item = gguf_n_tensors(q->gguf);
    q->items = mem_alloc_array(q->n_item + 1, sizeof *q->items);
    int rc = match && q->items ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    size_t n_weighted = 0, n_coded = 0;
    for (size_t i = 0; i < q->n_item && !rc; i++) {
        q->items[i].tensor = gguf_tensor_at(q->gguf, i);
        rc = plan_tensor(q, &q->items[i], match, e);
        if (!rc) rc = check_weights(q, &q->items[i], e);
        n_weighted += q->items[i].is_weighted;
        n_coded += quant_traits(q->items[i].to.type)->block_elements > 1;
    }
    pcre2_match_data_free(match);
    /* a caller's choice may leave all tensors that have entries as they are */
    if (!rc && q->imatrix && !q->options.choice && n_coded && !n_weighted)
        rc = err_set(e, CHIMERE_EMISMATCH,
                     "%s: none of its %zu entries names a tensor that is quantised here",
                     q->options.imatrix, imatrix_n_entries(q->imatrix));
    for (size_t i = 0; i < q->n_rule && !rc; i++)
        if (!q->rules[i].has_matched)
            log_warn("tensor-type %s: applies to no tensor", q->options.tensor_types[i]);
    return rc;
}

int quantize_open(struct quantize **out, const char *path, const struct quantize_options *options,
                  struct err *e) {
    const struct quantize_mix *mix = quantize_mix_find(options->type);
    if (!mix) {
        err_set(e, CHIMERE_EINVAL, "no type or mix named '%s'", options->type);
        err_hint(e, "chimere quantize --help lists them");
        return CHIMERE_EINVAL;
    }
    struct quantize *q = mem_zalloc(sizeof *q);
    if (!q) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    q->options = *options;
    q->mix = mix;
    int rc = parse_rules(q, e);
    if (!rc) rc = gguf_open(&q->gguf, path, e);
    if (!rc && options->imatrix) rc = imatrix_open(&q->imatrix, options->imatrix, e);
    if (!rc) {
        quantize_mix_shape(&q->shape, q->gguf, q->imatrix != NULL);
        rc = plan(q, e);
    }
    if (rc) {
        quantize_close(q);
        return rc;
    }
    *out = q;
    return 0;
}

void quantize_close(struct quantize *q) {
    if (!q) return;
    for (size_t i = 0; i < q->n_rule; i++) pcre2_code_free(q->rules[i].pattern);
    mem_free(q->rules);
    mem_free(q->items);
    imatrix_close(q->imatrix);
    if (q->gguf) gguf_close(q->gguf);
    mem_free(q);
}

size_t quantize_n_items(const struct quantize *q) { return q->n_item; }
const struct quantize_item *quantize_item_at(const struct quantize *q, size_t i) {
    return &q->items[i];
}

void quantize_sizes(const struct quantize *q, uint64_t *n_elements, uint64_t *bytes_before,
                    uint64_t *bytes_after) {
    *n_elements = *bytes_before = *bytes_after = 0;
    for (size_t i = 0; i < q->n_item; i++) {
        *n_elements += q->items[i].tensor->n_elements;
        *bytes_before += q->items[i].tensor->n_bytes;
        *bytes_after += q->items[i].to.n_bytes + q->items[i].to.tail_bytes;
    }
}

/* ---- run ---- */

struct run {
    struct quantize *q;
    struct gguf_writer *w;
    struct encoder *encoder; /* owned */
    uint64_t done;           /* source bytes processed */
};

/* Releases source pages that were processed; an access would read them again from the file. */
static void give_back(struct run *r, const struct gguf_tensor *t, uint64_t from, uint64_t to) {
    const struct file_map map = {t->data - t->offset, gguf_file_bytes(r->q->gguf, t->file)};
    file_map_drop(&map, t->offset + from, t->offset + to);
    progress_step(r->done + to);
}

static int copy_tensor(struct run *r, const struct gguf_tensor *t, struct err *e) {
    int rc = 0;
    for (uint64_t at = 0; at < t->n_bytes && !rc; at += COPY) {
        size_t n = t->n_bytes - at < COPY ? (size_t)(t->n_bytes - at) : COPY;
        rc = gguf_write_data(r->w, t->data + at, n, e);
        give_back(r, t, at, at + n);
    }
    return rc;
}

/* The data of encode_run's sink. */
struct slab_sink {
    struct run *r;
    const struct gguf_tensor *t;
    uint64_t from; /* source bytes released so far; tails do not count, and are read again */
    bool is_tail;
};

static int put_slab(void *ud, const void *data, size_t n, uint64_t source, struct err *e) {
    struct slab_sink *s = ud;
    int rc = gguf_write_data(s->r->w, data, n, e);
    if (!s->is_tail) give_back(s->r, s->t, s->from, source);
    s->from = source;
    return rc;
}

static int code_tensor(struct run *r, const struct quantize_item *item, struct err *e) {
    const struct gguf_tensor *t = item->tensor;
    struct slab_sink s = {r, t, 0, false}, tail = {r, t, 0, true};
    struct hints *hints;
    int rc = hints_open(&hints, item->is_weighted ? r->q->imatrix : NULL, t, e);
    if (!rc)
        rc = encode_run(r->encoder, t, 0, item->to.n_first, item->to.type, hints, put_slab, &s, e);
    if (!rc && item->to.tail_bytes)
        rc = encode_run(r->encoder, t, item->to.n_first, t->ne[0] - item->to.n_first, item->to.tail,
                        hints, put_slab, &tail, e);
    hints_close(hints);
    return rc;
}

/* Writes a caller's encoding of the whole tensor, made earlier with the same hints. */
static int put_ready(struct run *r, const struct quantize_item *item, const void *data,
                     struct err *e) {
    const struct quantize_columns *to = &item->to;
    int rc = gguf_write_data(r->w, data, (size_t)to->n_bytes, e);
    if (!rc && to->tail_bytes)
        rc = gguf_write_data(r->w, (const char *)data + to->n_bytes, (size_t)to->tail_bytes, e);
    give_back(r, item->tensor, 0, item->tensor->n_bytes);
    return rc;
}

static int write_tensor(struct run *r, const struct quantize_item *item, struct err *e) {
    const struct gguf_tensor *t = item->tensor;
    if (item->to.type == t->type) return copy_tensor(r, t, e);
    const struct quantize_choice *choice = r->q->options.choice;
    const void *ready = choice && choice->ready ? choice->ready(choice->ud, t, &item->to) : NULL;
    return ready ? put_ready(r, item, ready, e) : code_tensor(r, item, e);
}

static void put_keys(const struct quantize *q, struct gguf_writer *w) {
    for (size_t i = 0; i < gguf_n_kv(q->gguf); i++) gguf_put_kv(w, gguf_kv_at(q->gguf, i));
    gguf_drop(w, "split.no");
    gguf_drop(w, "split.count");
    gguf_drop(w, "split.tensors.count");
    gguf_put_u32(w, "general.quantization_version", QUANTIZATION_VERSION);
    gguf_put_u32(w, "general.file_type", quantize_mix_file_type(q->mix));
    const struct quantize_choice *choice = q->options.choice;
    if (choice && choice->put_keys) choice->put_keys(choice->ud, w);
    if (!q->imatrix) return;
    const char *path = q->options.imatrix, *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path; /* without the folder, which is private */
    if (utf8_is_valid(name, strlen(name)))
        gguf_put_str(w, "quantize.imatrix.file", name, strlen(name));
    const char *dataset = imatrix_dataset(q->imatrix);
    if (dataset[0]) gguf_put_str(w, "quantize.imatrix.dataset", dataset, strlen(dataset));
    gguf_put_u32(w, "quantize.imatrix.entries_count", (uint32_t)imatrix_n_entries(q->imatrix));
    int64_t n_chunk = imatrix_n_chunks(q->imatrix);
    if (n_chunk >= 0 && n_chunk <= UINT32_MAX)
        gguf_put_u32(w, "quantize.imatrix.chunks_count", (uint32_t)n_chunk);
}

int quantize_check_target(const struct gguf *source, const char *path, struct err *e) {
    struct fs_info to, from;
    if (fs_stat(path, &to)) return 0;
    if (to.is_folder)
        return err_set(e, CHIMERE_EINVAL, "%s: expected the name of a file, got a folder", path);
    for (uint32_t i = 0; i < gguf_n_files(source); i++)
        if (!fs_stat(gguf_path(source, i), &from) && from.device == to.device &&
            from.inode == to.inode)
            return err_set(e, CHIMERE_EINVAL, "%s: the result would replace its source", path);
    return 0;
}

static void add_tensor(struct gguf_writer *w, const struct quantize_item *item) {
    const struct gguf_tensor *t = item->tensor;
    uint64_t ne[GGUF_MAX_DIMS];
    char name[GGUF_MAX_NAME + 8];
    memcpy(ne, t->ne, sizeof ne);
    ne[0] = item->to.n_first;
    gguf_add_tensor(w, t->name, item->to.type, t->n_dims, ne);
    if (!item->to.tail_bytes) return;
    snprintf(name, sizeof name, "%s%s", t->name, WEIGHT_TAIL);
    ne[0] = t->ne[0] - item->to.n_first;
    gguf_add_tensor(w, name, item->to.tail, t->n_dims, ne);
}

static int write_all(struct run *r, struct err *e) {
    const struct quantize *q = r->q;
    put_keys(q, r->w);
    for (size_t i = 0; i < q->n_item; i++) {
        add_tensor(r->w, &q->items[i]);
    }
    int rc = 0;
    for (size_t i = 0; i < q->n_item && !rc; i++) {
        rc = write_tensor(r, &q->items[i], e);
        r->done += q->items[i].tensor->n_bytes;
    }
    return rc;
}

int quantize_run(struct quantize *q, const char *path, bool show_progress, struct err *e) {
    int rc = quantize_check_target(q->gguf, path, e);
    if (rc) return rc;
    struct run r = {.q = q};
    rc = encode_new(&r.encoder, q->options.n_thread, e);
    if (!rc) rc = gguf_writer_new(&r.w, path, gguf_alignment(q->gguf), q->options.split_bytes, e);
    if (!rc) {
        uint64_t n_elements, before, after;
        quantize_sizes(q, &n_elements, &before, &after);
        if (show_progress) progress_begin("quantize", before, true);
        rc = write_all(&r, e);
        if (show_progress) progress_end();
        if (rc) gguf_writer_abort(r.w);
        else rc = gguf_writer_close(r.w, e);
    }
    encode_free(r.encoder);
    return rc;
}
