/* ramp_set.c: see ramp_set.h. */
#include "ramp/ramp_set.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "convert/hints.h"
#include "format/quant.h"
#include "ramp/ramp_type.h"

enum {
    KEYS_BYTES = 1024, /* for the metadata that build adds, names of files not counted */
    /* of the second part of a tensor in the directory: lengths, ".tail", type and offset; name and shape come on top */
    ENTRY_BYTES = 29,
};

static uint64_t align_up(const struct ramp_set *s, uint64_t n) {
    return (n + s->alignment - 1) / s->alignment * s->alignment;
}

/* ---- genes ---- */

static void name_role(struct ramp_gene *g) {
    const char *name = g->tensor->name;
    int layer = -1, at = 0;
    /* more digits name no layer: a model has at most ARCH_MAX_LAYERS */
    if (sscanf(name, "blk.%4d.%n", &layer, &at) == 1 && at > 0 && layer >= 0) name += at;
    else layer = -1;
    size_t n = strlen(name);
    if (n > 7 && strcmp(name + n - 7, ".weight") == 0) n -= 7;
    if (n >= sizeof g->role) n = sizeof g->role - 1;
    memcpy(g->role, name, n);
    g->layer = layer;
}

/* Forms are in ascending size; of two with the same size, the first in the table comes first. */
static void add_form(struct ramp_gene *g, const struct quantize_columns *to) {
    uint64_t bytes = to->n_bytes + to->tail_bytes;
    if (g->n_form == RAMP_MAX_FORMS) return;
    int at = g->n_form++;
    for (; at > 0 && g->forms[at - 1].n_bytes > bytes; at--) g->forms[at] = g->forms[at - 1];
    g->forms[at] = (struct ramp_form){.to = *to, .n_bytes = bytes};
}

static int fill_forms(struct ramp_set *s, struct ramp_gene *g, enum ramp_mode mode, struct err *e) {
    const struct gguf_tensor *t = g->tensor;
    if (s->imatrix) {
        int rc = imatrix_check(s->imatrix, t->name, t->ne[0], t->ne[2] * t->ne[3], e);
        if (rc && rc != CHIMERE_ENOENT) return rc;
        g->has_weight = rc == 0;
        g->is_correlated = rc == 0 && hints_are_correlated(s->imatrix, t);
        if (g->has_weight) s->n_unseen += imatrix_n_unseen(s->imatrix, t->name);
    }
    const uint32_t *types = ramp_types(mode, t->ne[0]);
    bool has_blocks = quant_traits(t->type)->block_elements > 1;
    struct quantize_columns to;
    for (int i = 0; types[i] != RAMP_NO_TYPE; i++) {
        const struct quant_traits *q = quant_traits(types[i]);
        if (!q || !q->encode || (q->needs_weights && s->imatrix && !g->has_weight)) continue;
        if (!quantize_mix_columns(&to, t, types[i], mode == RAMP_CHIMERE) || to.type != types[i])
            continue;
        /* a tensor that is quantized already gains nothing from more bits */
        if (has_blocks && to.n_bytes + to.tail_bytes >= t->n_bytes) continue;
        add_form(g, &to);
    }
    if ((!g->n_form || has_blocks) && quantize_mix_columns(&to, t, t->type, false))
        add_form(g, &to);
    return 0;
}

static bool is_gene(const struct gguf_tensor *t) {
    return quantize_mix_is_matrix(t) && quant_traits(t->type)->decode;
}

static uint64_t key_of(const struct gguf *g, const char *suffix) {
    const struct gguf_kv *arch = gguf_find(g, "general.architecture");
    uint64_t cursor = 0, v = 0;
    struct slice name;
    char key[GGUF_MAX_NAME + 64];
    if (!arch || arch->type != GGUF_STR || !gguf_next_str(arch, &cursor, &name)) return 0;
    snprintf(key, sizeof key, "%.*s.%s", (int)name.n, name.p, suffix);
    const struct gguf_kv *kv = gguf_find(g, key);
    return kv && gguf_item_u64(kv, 0, &v) ? v : 0;
}

static int add_genes(struct ramp_set *s, enum ramp_mode mode, struct err *e) {
    size_t n = gguf_n_tensors(s->gguf);
    s->genes = mem_alloc_array(n + 1, sizeof *s->genes);
    if (!s->genes) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    uint64_t n_layer = key_of(s->gguf, "block_count"),
             n_draft = key_of(s->gguf, "nextn_predict_layers");
    uint64_t n_expert = key_of(s->gguf, "expert_count"),
             n_used = key_of(s->gguf, "expert_used_count");
    bool has_output = gguf_find_tensor(s->gguf, "output.weight") != NULL;
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(s->gguf, i);
        s->n_weights += t->n_elements;
        if (!is_gene(t)) {
            bool widens = t->type == QUANT_F16 || t->type == QUANT_BF16 || t->type == QUANT_F64;
            s->fixed_bytes += align_up(s, widens ? 4 * t->n_elements : t->n_bytes);
            continue;
        }
        struct ramp_gene *g = &s->genes[s->n_gene++];
        *g = (struct ramp_gene){.tensor = t, .index = i, .gain = 1, .share = 1};
        name_role(g);
        g->is_draft = g->layer >= 0 && n_layer && (uint64_t)g->layer + n_draft >= n_layer;
        if (strstr(g->role, "_exps") && n_expert && n_used < n_expert)
            g->share = (double)n_used / (double)n_expert;
        if (strcmp(g->role, "token_embd") == 0 && has_output) g->share = 0; /* one row is read */
        if (g->is_draft) g->share = 0;
        s->was_quantized |= quant_traits(t->type)->block_elements > 1;
        if (g->layer >= s->n_layer) s->n_layer = g->layer + 1;
        int rc = fill_forms(s, g, mode, e);
        if (rc) return rc;
    }
    if (!s->n_gene)
        return err_set(e, CHIMERE_EINVAL, "%s: no tensor's type can be chosen",
                       gguf_path(s->gguf, 0));
    return 0;
}

/* ---- set ---- */

static uint64_t hash_tensor(uint64_t h, const struct gguf_tensor *t) {
    h = hash_bytes(t->name, strlen(t->name), h);
    h = hash_bytes(t->ne, sizeof t->ne, h ^ t->type);
    size_t n = t->n_bytes < 4096 ? (size_t)t->n_bytes : 4096;
    h = hash_bytes(t->data, n, h);
    return hash_bytes(t->data + t->n_bytes - n, n, h);
}

static int hash_all(struct ramp_set *s, enum ramp_mode mode, const char *imatrix, struct err *e) {
    s->hash = (uint64_t)mode + 1;
    for (size_t i = 0; i < gguf_n_tensors(s->gguf); i++)
        s->hash = hash_tensor(s->hash, gguf_tensor_at(s->gguf, i));
    if (!imatrix) return 0;
    struct file_map map;
    int rc = file_map(&map, imatrix, e);
    if (rc) return rc;
    s->hash = hash_bytes(map.data, map.size, s->hash);
    file_unmap(&map);
    return 0;
}

/* Bytes of keys and directory in the result at most: those of the source, keys of build, entries of second parts. */
static uint64_t header_bytes(const struct ramp_set *s, const char *imatrix) {
    uint64_t data = 0, n = 0;
    for (size_t i = 0; i < gguf_n_tensors(s->gguf); i++)
        data += align_up(s, gguf_tensor_at(s->gguf, i)->n_bytes);
    for (uint32_t i = 0; i < gguf_n_files(s->gguf); i++) n += gguf_file_bytes(s->gguf, i);
    n = (n > data ? n - data : 0) + KEYS_BYTES + (imatrix ? strlen(imatrix) : 0);
    for (size_t i = 0; i < s->n_gene; i++) {
        bool divides = false;
        for (int k = 0; k < s->genes[i].n_form; k++)
            divides |= s->genes[i].forms[k].to.tail_bytes > 0;
        const struct gguf_tensor *t = s->genes[i].tensor;
        int n_dim = t->ne[3] > 1 ? 4 : t->ne[2] > 1 ? 3 : 2;
        if (divides) n += ENTRY_BYTES + strlen(t->name) + (uint64_t)n_dim * sizeof t->ne[0];
    }
    return n;
}

int ramp_set_open(struct ramp_set **out, const char *path, enum ramp_mode mode, const char *imatrix,
                  struct err *e) {
    *out = NULL;
    struct ramp_set *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = gguf_open(&s->gguf, path, e);
    if (!rc && imatrix) rc = imatrix_open(&s->imatrix, imatrix, e);
    if (!rc) {
        s->alignment = gguf_alignment(s->gguf);
        rc = add_genes(s, mode, e);
    }
    if (!rc) rc = hash_all(s, mode, imatrix, e);
    if (!rc) s->header_bytes = header_bytes(s, imatrix);
    if (rc) ramp_set_close(s);
    else *out = s;
    return rc;
}

void ramp_set_close(struct ramp_set *s) {
    if (!s) return;
    imatrix_close(s->imatrix);
    if (s->gguf) gguf_close(s->gguf);
    mem_free(s->genes);
    mem_free(s);
}

uint64_t ramp_form_bytes(const struct ramp_set *s, const struct ramp_gene *g, int form) {
    const struct quantize_columns *to = &g->forms[form].to;
    return align_up(s, to->n_bytes) + align_up(s, to->tail_bytes);
}

uint64_t ramp_set_bytes(const struct ramp_set *s, const uint8_t *choice) {
    uint64_t n = s->header_bytes + s->fixed_bytes;
    for (size_t i = 0; i < s->n_gene; i++) n += ramp_form_bytes(s, &s->genes[i], choice[i]);
    return n;
}

double ramp_set_bpw(const struct ramp_set *s, const uint8_t *choice) {
    return (double)(ramp_set_bytes(s, choice) - s->header_bytes) * 8 / (double)s->n_weights;
}

uint64_t ramp_set_bytes_of_bpw(const struct ramp_set *s, double bpw) {
    return s->header_bytes + (uint64_t)(bpw * (double)s->n_weights / 8);
}

void ramp_set_range(const struct ramp_set *s, uint64_t *least, uint64_t *most) {
    *least = *most = s->header_bytes + s->fixed_bytes;
    for (size_t i = 0; i < s->n_gene; i++) {
        *least += ramp_form_bytes(s, &s->genes[i], 0);
        *most += ramp_form_bytes(s, &s->genes[i], s->genes[i].n_form - 1);
    }
}

double ramp_set_predict(const struct ramp_set *s, const uint8_t *choice) {
    double sum = 0;
    for (size_t i = 0; i < s->n_gene; i++)
        sum += s->genes[i].gain * s->genes[i].forms[choice[i]].error;
    return sum;
}

int ramp_gene_form(const struct ramp_gene *g, uint32_t type) {
    for (int i = 0; i < g->n_form; i++)
        if (g->forms[i].to.type == type) return i;
    return -1;
}
