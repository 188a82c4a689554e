/* hf_tensor.c: converts the family's rows to tensors.
 *
 * Every transform selects a source row for each row of the result; one of them also selects columns; at most one
 * function is applied per element. So tensors can be streamed: a batch of rows is decoded, gathered and encoded by all
 * threads, then written. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "convert/hf_impl.h"
#include "format/quant.h"
#include "model/weights.h"

enum { BATCH_BYTES = 8 << 20, MAX_NAME_BUF = 256 };

/* One tensor of the result and the sources of its values. */
struct plan {
    const struct tensor_row *row; /* NULL: rope_freqs, computed */
    struct hf_source *sources;    /* owned [n_source]: one, or one per expert or part */
    int32_t n_source, il;
    enum tensor_transform transform;
    uint32_t type, n_dims;
    uint64_t ne[3];
    bool is_vector; /* elements are treated as rows */
    bool has_parts; /* the rows of each source follow those of the one before */
    uint64_t skip;  /* rows before the wanted ones, for TF_OF_QKV and TF_BEHIND_* */
    bool by_input;  /* the source has one row per input, the result one per output */
    char name[MAX_NAME_BUF];
};

struct plans {
    struct plan *p; /* owned */
    size_t n, cap;
};

/* ---- names ---- */

/* Number of layers before il that use a shared block. */
static int32_t n_sharing_before(const struct hparams *hp, int32_t il) {
    int32_t n = 0;
    for (int32_t i = 0; i < il; i++) n += hp->layer[i].join == JOIN_SHARED;
    return n;
}

/* Replaces the '%' patterns (arch_tensor.h); hp may be NULL if the pattern has no layers. */
static bool fill_pattern(char *out, size_t size, const char *pattern, const struct hparams *hp,
                         int32_t il, int32_t expert) {
    size_t n = 0;
    for (const char *p = pattern; *p && n + 12 < size; p++) {
        int32_t v = il;
        if (p[0] != '%' || !p[1] || !strchr("deohp", p[1])) {
            out[n++] = *p;
            continue;
        }
        if (*++p == 'p') {
            out[n++] = "qkv"[expert];
            continue;
        }
        if (*p == 'e') v = expert;
        else if (*p == 'o' && hp && il >= 0) v = il - hp->layer[il].share_back;
        else if (*p == 'h' && hp) v = n_sharing_before(hp, il);
        n += (size_t)snprintf(out + n, size - n, "%" PRId32, v);
    }
    if (n + 12 >= size) return false;
    out[n] = 0;
    return true;
}

/* Checkpoints of a family differ in the prefix of names. */
static const struct st_tensor *find_prefixed(const struct safetensors *st, const char *name) {
    static const char *const roots[] = {"model.",
                                        "model.language_model.",
                                        "language_model.model.",
                                        "language_model.",
                                        "backbone.",
                                        "model.backbone.",
                                        ""};
    static const char *const others[] = {
        "",       "model.",      "bert.",          "roberta.", "distilbert.",
        "mpnet.", "nomic_bert.", "language_model."};
    bool rooted = str_starts(name, "model.");
    const char *const *list = rooted ? roots : others;
    size_t n = rooted ? sizeof roots / sizeof roots[0] : sizeof others / sizeof others[0];
    const char *rest = rooted ? name + 6 : name;
    for (size_t i = 0; i < n; i++) {
        char full[MAX_NAME_BUF];
        snprintf(full, sizeof full, "%s%s", list[i], rest);
        const struct st_tensor *t = hf_source_find(st, full);
        if (t) return t;
    }
    return NULL;
}

/* Finds the tensor under another spelling of its name, as used in other checkpoints or layers of the family. */
static const struct st_tensor *find_alias(const struct hf *h, const char *name) {
    for (const struct name_alias *a = h->arch->aliases; a && a->part; a++) {
        const char *at = strstr(name, a->part);
        char full[MAX_NAME_BUF];
        if (!at) continue;
        snprintf(full, sizeof full, "%.*s%s%s", (int)(at - name), name, a->also,
                 at + strlen(a->part));
        const struct st_tensor *t = find_prefixed(h->st, full);
        if (t) return t;
    }
    return NULL;
}

const struct st_tensor *hf_find(const struct hf *h, const char *pattern, int32_t il,
                                int32_t expert) {
    char name[MAX_NAME_BUF], moved[MAX_NAME_BUF];
    static const char layers[] = "model.layers.%d.";
    bool is_nextn = h->hp && il >= h->hp->n_layer;
    if (is_nextn && str_starts(pattern, layers)) { /* prediction blocks are numbered from 0 */
        snprintf(moved, sizeof moved, "mtp.layers.%%d.%s", pattern + sizeof layers - 1);
        pattern = moved;
        il -= h->hp->n_layer;
    }
    if (!fill_pattern(name, sizeof name, pattern, h->hp, il, expert)) return NULL;
    const struct st_tensor *t = find_prefixed(h->st, name);
    if (!t) t = find_alias(h, name);
    if (t || !strstr(name, "LayerNorm.")) return t;
    bool is_bias = str_ends(name, ".bias"); /* names in the first BERT checkpoints */
    name[strlen(name) - (is_bias ? 4 : 6)] = 0;
    size_t n = strlen(name);
    snprintf(name + n, sizeof name - n, "%s", is_bias ? "beta" : "gamma");
    return find_prefixed(h->st, name);
}

/* ---- planning ---- */

static int bad_source(const struct plan *p, const struct hf_source *s, const char *expected,
                      struct err *e) {
    char shape[128] = "";
    for (uint32_t d = 0; d < s->n_dims; d++) {
        size_t n = strlen(shape);
        snprintf(shape + n, sizeof shape - n, "%s%" PRIu64, d ? ", " : "", s->shape[d]);
    }
    return err_set(e, CHIMERE_EFORMAT, "tensor %s (for %s): expected %s, got %s [%s]", s->t->name,
                   p->name, expected, safetensors_dtype_name(s->t->dtype), shape);
}

/* The source's shape, without dimensions of 1, must be the wanted shape. */
static int check_shape(const struct plan *p, const struct hf_source *s, const uint64_t *want,
                       uint32_t n_want, struct err *e) {
    uint64_t a[ST_MAX_DIMS], b[4];
    uint32_t na = 0, nb = 0;
    for (uint32_t d = 0; d < s->n_dims; d++)
        if (s->shape[d] != 1) a[na++] = s->shape[d];
    for (uint32_t d = n_want; d-- > 0;) /* GGUF counts from the fastest */
        if (want[d] != 1) b[nb++] = want[d];
    if (na == nb && memcmp(a, b, na * sizeof a[0]) == 0) return 0;
    char expected[96];
    snprintf(expected, sizeof expected, "%" PRIu64 " x %" PRIu64 " x %" PRIu64 " (fastest first)",
             want[0], n_want > 1 ? want[1] : 1, n_want > 2 ? want[2] : 1);
    return bad_source(p, s, expected, e);
}

/* Without a mix, matrices keep the source's type; other tensors are f32, which every loader can read. */
static uint32_t choose_type(const struct hf *h, const struct plan *p) {
    struct gguf_tensor t = {.name = p->name, .type = QUANT_F32, .n_dims = p->n_dims};
    for (int d = 0; d < GGUF_MAX_DIMS; d++) t.ne[d] = d < 3 ? p->ne[d] : 1;
    if ((p->row->flags & TS_F32) || !quantize_mix_is_matrix(&t)) return QUANT_F32;
    if (!h->mix) {
        if (p->sources[0].form == HF_MXFP4) return QUANT_MXFP4;
        if (p->sources[0].form != HF_PLAIN) return QUANT_BF16;
        int source = safetensors_dtype_quant(p->sources[0].t->dtype);
        return source == QUANT_F64 ? QUANT_F32 : (uint32_t)source;
    }
    return quantize_mix_fit(quantize_mix_type(h->mix, &h->shape, &t, false), p->ne[0]);
}

/* Collects the experts' tensors; *found = false if the first is absent. */
static int find_experts(const struct hf *h, struct plan *p, bool *found, struct err *e) {
    int32_t n = h->hp->moe.n_expert;
    *found = hf_find(h, p->row->hf, p->il, 0) != NULL;
    if (!*found) return 0;
    p->sources = mem_alloc_array((size_t)n, sizeof *p->sources);
    if (!p->sources) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", p->name);
    p->n_source = n;
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++) {
        const struct st_tensor *t = hf_find(h, p->row->hf, p->il, i);
        if (!t)
            rc = err_set(e, CHIMERE_EFORMAT, "tensor %s: expected %d experts, number %d is missing",
                         p->name, n, i);
        else rc = hf_source_open(&p->sources[i], h->st, t, h->quantization, e);
        if (!rc) rc = check_shape(p, &p->sources[i], p->ne, 2, e);
    }
    return rc;
}

/* Collects the tensors of q, k and v; *found = false if the first is absent. */
static int find_parts(const struct hf *h, struct plan *p, bool *found, struct err *e) {
    enum { N_PART = 3 };
    uint64_t n_rows = 0;
    *found = hf_find(h, p->row->hf, p->il, 0) != NULL;
    if (!*found) return 0;
    p->sources = mem_alloc_array(N_PART, sizeof *p->sources);
    if (!p->sources) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", p->name);
    p->n_source = N_PART;
    p->has_parts = true;
    for (int32_t i = 0; i < N_PART; i++) {
        struct hf_source *s = &p->sources[i];
        const struct st_tensor *t = hf_find(h, p->row->hf, p->il, i);
        if (!t)
            return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected parts q, k and v, got %d",
                           p->name, i);
        int rc = hf_source_open(s, h->st, t, h->quantization, e);
        uint64_t left = p->ne[1] - n_rows, rows = s->n_dims && !rc ? s->shape[0] : 0;
        if (i + 1 == N_PART || rows > left) rows = left;
        if (!rc) rc = check_shape(p, s, (uint64_t[]){p->ne[0], rows}, 2, e);
        if (rc) return rc;
        n_rows += rows;
    }
    return 0;
}

/* Number of rows of the fused source before the wanted ones. */
static uint64_t rows_in_front(const struct hparams *hp, const struct plan *p) {
    uint64_t n = 0;
    if (p->transform >= TF_BEHIND_Q) n += (uint64_t)arch_dim(hp, D_Q, p->il);
    if (p->transform >= TF_BEHIND_QK) n += (uint64_t)arch_dim(hp, D_K, p->il);
    if (p->transform >= TF_BEHIND_QKV) n += (uint64_t)arch_dim(hp, D_V, p->il);
    return n;
}

static bool is_of_qkv(enum tensor_transform tf) { return tf >= TF_OF_QKV && tf <= TF_BEHIND_QKV; }

static bool takes_turns(enum tensor_transform tf) {
    return tf == TF_EXPERT_GATE || tf == TF_EXPERT_UP;
}
static bool is_of_items(enum tensor_transform tf) {
    return tf == TF_EVEN_ITEMS || tf == TF_ODD_ITEMS;
}

static bool is_latent(enum tensor_transform tf) {
    return tf == TF_LATENT_KEYS || tf == TF_LATENT_VALUES;
}
/* Rows of a head's keys and values in the matrix that makes both. */
static uint64_t latent_rows(const struct hparams *hp) {
    return (uint64_t)(hp->mla.d_k - hp->n_rot + hp->mla.d_v);
}

static int find_single(const struct hf *h, struct plan *p, const char *pattern,
                       enum tensor_transform transform, bool *found, struct err *e) {
    const struct st_tensor *t = pattern ? hf_find(h, pattern, p->il, 0) : NULL;
    *found = t != NULL;
    if (!t) return 0;
    p->sources = mem_alloc_array(1, sizeof *p->sources);
    if (!p->sources) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", p->name);
    int rc = hf_source_open(&p->sources[0], h->st, t, h->quantization, e);
    if (rc) return rc;
    const struct hf_source *s = &p->sources[0];
    p->n_source = 1;
    p->transform = transform;
    uint64_t want[3] = {p->ne[0], p->ne[1], p->ne[2]};
    if (transform == TF_FIRST_HALF || transform == TF_SECOND_HALF) want[1] *= 2;
    if (takes_turns(transform)) want[1] *= 2;
    if (is_of_items(transform)) want[0] *= 2;
    p->by_input = (takes_turns(transform) || transform == TF_EXPERT_DOWN) && s->form == HF_PLAIN;
    if (p->by_input) {
        uint64_t n_in = want[0];
        want[0] = want[1];
        want[1] = n_in;
    }
    if (is_latent(transform)) {
        want[0] = p->ne[transform == TF_LATENT_KEYS];
        want[1] = latent_rows(h->hp) * p->ne[2];
        want[2] = 1;
        if (s->form != HF_PLAIN && s->form != HF_SCALED)
            return bad_source(p, s, "floats or FP8", e);
    }
    if (transform == TF_RESHAPE) {
        want[0] *= want[1] * want[2];
        want[1] = want[2] = 1;
    }
    if (transform == TF_LAST_ROWS && s->n_dims == 2 && s->shape[0] >= want[1]) {
        p->skip = s->shape[0] - want[1];
        want[1] = s->shape[0];
    }
    if (transform == TF_LABEL_ROWS && s->n_dims == 2) want[1] = h->n_vocab;
    if (is_of_qkv(transform)) {
        p->skip = rows_in_front(h->hp, p);
        if (s->n_dims == 2 && s->shape[0] >= p->skip + want[1]) want[1] = s->shape[0];
    }
    return check_shape(p, s, want, 3, e);
}

/* Plans row for layer il; *found = false: it is optional and absent in the source. */
static int plan_row(const struct hf *h, const struct tensor_row *row, int32_t il, struct plan *p,
                    bool *found, struct err *e) {
    *p = (struct plan){.row = row, .il = il, .transform = row->transform, .ne = {1, 1, 1}};
    *found = false;
    if (!row->hf && !row->hf_fused) return 0;
    fill_pattern(p->name, sizeof p->name, row->gguf, h->hp, il, 0);
    for (int d = 0; d < 3; d++) {
        if (row->dims[d] == D_NONE) break;
        int64_t n = arch_dim(h->hp, row->dims[d], il);
        if (n < 1 && row->flags & TS_OPTIONAL) return 0;
        if (n < 1)
            return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected a positive size, got %" PRId64,
                           p->name, n);
        p->ne[d] = (uint64_t)n;
        p->n_dims++;
    }
    int rc = row->hf && strstr(row->hf, "%e") ? find_experts(h, p, found, e)
             : row->hf && strstr(row->hf, "%p")
                 ? find_parts(h, p, found, e)
                 : find_single(h, p, row->hf, row->transform, found, e);
    if (!rc && !*found) rc = find_single(h, p, row->hf_fused, row->fused_transform, found, e);
    if (!rc && !*found && !(row->flags & (TS_OPTIONAL | TS_TIED))) {
        char want[MAX_NAME_BUF];
        fill_pattern(want, sizeof want, row->hf ? row->hf : row->hf_fused, h->hp, il, 0);
        rc = err_set(e, CHIMERE_EFORMAT, "%s: expected tensor %s (for %s), got none",
                     h->options->dir, want, p->name);
    }
    if (rc || !*found) return rc;
    p->is_vector = p->n_dims == 1;
    p->type = choose_type(h, p);
    const struct quant_traits *q = quant_traits(p->type);
    if (q->encode && !q->needs_weights) return 0;
    return err_set(
        e, CHIMERE_EINVAL,
        "type: the mix needs %s for %s, which cannot be encoded without an importance matrix",
        q->name, p->name);
}

static int push(struct plans *list, const struct plan *p, struct err *e) {
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 256;
        struct plan *grown = mem_realloc(list->p, cap * sizeof *grown);
        if (!grown) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        list->p = grown;
        list->cap = cap;
    }
    list->p[list->n++] = *p;
    return 0;
}

static int plan_layer(const struct hf *h, struct plans *list, int32_t il, struct err *e) {
    for (const struct tensor_row *const *table = h->arch->tensors; *table; table++) {
        for (const struct tensor_row *row = *table; row->gguf; row++) {
            struct plan p;
            bool found;
            if ((row->where == AT_GLOBAL) != (il < 0) || !arch_has(h->hp, row->where, il)) continue;
            /* an embedding model does not include the pooler */
            if (str_starts(row->gguf, "cls.") && h->hp->pooling != POOL_RANK) continue;
            int rc = plan_row(h, row, il, &p, &found, e);
            if (!rc && found) rc = push(list, &p, e);
            if (rc || !found) mem_free(p.sources);
            if (rc) return rc;
        }
    }
    return 0;
}

static const json_t *rope_of(const struct hf *h) {
    return hf_config_find(h->config, "rope_parameters.full_attention|rope_scaling|rope_parameters");
}

static bool rope_is(const struct hf *h, const char *name) {
    const char *type = json_string_value(hf_config_find(rope_of(h), "rope_type|type"));
    return type && strcmp(type, name) == 0;
}

/* Llama 3 stretches low frequencies by a table of factors, Gemma 4 stops them; files store it as a tensor. */
static bool has_rope_freqs(const struct hf *h) {
    return rope_is(h, "llama3") || rope_is(h, "proportional") ||
           (strcmp(h->arch->name, "gemma4") == 0 && !rope_of(h));
}

static int plan_all(const struct hf *h, struct plans *list, struct err *e) {
    int rc = plan_layer(h, list, -1, e);
    if (!rc && has_rope_freqs(h)) {
        struct plan p = {.type = QUANT_F32, .n_dims = 1, .ne = {(uint64_t)h->hp->n_rot / 2, 1, 1}};
        snprintf(p.name, sizeof p.name, "rope_freqs.weight");
        rc = push(list, &p, e);
    }
    for (int32_t il = 0; !rc && il < arch_n_layer_all(h->hp); il++) rc = plan_layer(h, list, il, e);
    return rc;
}

/* ---- rows ---- */

/* Index in the source of the value head with index j in the result. */
static uint64_t source_head(const struct hparams *hp, uint64_t j) {
    if (hp->gdn.is_grouped || !hp->gdn.n_v_head) return j;
    return (uint64_t)gdn_source_head((int32_t)j, hp->gdn.n_k_head, hp->gdn.n_v_head);
}

static uint64_t source_in_heads(const struct hparams *hp, uint64_t j, uint64_t d) {
    return source_head(hp, j / d) * d + j % d;
}

/* Row of the source matrix for row j of the result's matrix. */
static uint64_t source_row(const struct hparams *hp, enum tensor_transform tf, uint64_t j) {
    uint64_t qk = 2 * (uint64_t)hp->gdn.n_k_head * (uint64_t)hp->gdn.d_k, half, in_head;
    switch (tf) {
    case TF_NEG_EXP:
    case TF_V_HEAD: return source_head(hp, j);
    case TF_V_HEAD_ROWS: return source_in_heads(hp, j, (uint64_t)hp->gdn.d_v);
    case TF_QKV_V_ROWS:
    case TF_CONV: return j < qk ? j : qk + source_in_heads(hp, j - qk, (uint64_t)hp->gdn.d_v);
    case TF_ROPE_PERMUTE_Q:
    case TF_ROPE_PERMUTE_K: /* adjacent elements i, i + 1 were half a head apart */
        half = (uint64_t)(hp->n_rot ? hp->n_rot : hp->d_k) / 2;
        in_head = j % (uint64_t)hp->d_k;
        return in_head >= 2 * half ? j : j - in_head + in_head / 2 + (j % 2) * half;
    default: return j;
    }
}

struct job {
    const struct hf *h;
    const struct plan *p;
    uint64_t first, n_rows; /* of the current batch; rows count over all matrices */
    uint64_t n_cols, rows_per_matrix;
    size_t row_bytes;
    unsigned char *out; /* [n_rows * row_bytes] */
    float *scratch;     /* [n_thread][3 * n_cols] */
    bool failed;        /* an encoder ran out of memory */
    bool overflowed;    /* a value is NaN or too large for the result's type */
};

/* Row j of a matrix whose source has more rows, or other rows: experts of gpt-oss. */
static void gather_turns(const struct job *b, const struct hf_source *from, uint64_t matrix,
                         uint64_t j, float *x, float *tmp) {
    const struct plan *p = b->p;
    uint64_t every = p->transform == TF_EXPERT_DOWN ? 1 : 2;
    uint64_t n_rows = every * b->rows_per_matrix;
    uint64_t at = j * every + (p->transform == TF_EXPERT_UP);
    if (is_of_items(p->transform)) {
        hf_source_row(from, j, tmp, 2 * b->n_cols);
        for (uint64_t c = 0; c < b->n_cols; c++) x[c] = tmp[2 * c + (p->transform == TF_ODD_ITEMS)];
    } else if (p->by_input) {
        hf_source_column(from, matrix * b->n_cols, b->n_cols, at, x, n_rows);
    } else {
        hf_source_row(from, matrix * n_rows + at, x, b->n_cols);
    }
}

/* Computes row r of the result in x[n_cols]; tmp is twice as long. */
static void gather(const struct job *b, uint64_t r, float *x, float *tmp) {
    const struct plan *p = b->p;
    const struct hparams *hp = b->h->hp;
    uint64_t matrix = r / b->rows_per_matrix, j = r % b->rows_per_matrix, s;
    const struct hf_source *from = p->sources;
    if (p->has_parts)
        for (; j >= from->shape[0]; from++) j -= from->shape[0];
    else from += p->n_source > 1 ? matrix : 0;
    if (p->n_source > 1) matrix = 0;
    if (p->transform >= TF_EXPERT_GATE) {
        gather_turns(b, from, matrix, j, x, tmp);
        return;
    }
    if (p->transform == TF_LATENT_KEYS) {
        hf_source_column(from, matrix * latent_rows(hp), b->n_cols, j, x, b->rows_per_matrix);
        return;
    }
    if (p->transform == TF_LATENT_VALUES)
        s = (matrix + 1) * latent_rows(hp) - b->rows_per_matrix + j;
    else if (p->transform == TF_FIRST_HALF) s = matrix * 2 * b->rows_per_matrix + j;
    else if (p->transform == TF_SECOND_HALF) s = (matrix * 2 + 1) * b->rows_per_matrix + j;
    else if (is_of_qkv(p->transform) || p->transform == TF_LAST_ROWS) s = p->skip + j;
    else if (p->transform == TF_LABEL_ROWS) s = b->h->labels[j];
    else s = matrix * b->rows_per_matrix + source_row(hp, p->transform, j);
    bool by_column = p->transform == TF_V_HEAD_COLS;
    hf_source_row(from, s, by_column ? tmp : x, b->n_cols);
    for (uint64_t c = 0; by_column && c < b->n_cols; c++)
        x[c] = tmp[source_in_heads(hp, c, (uint64_t)hp->gdn.d_v)];
    for (uint64_t c = 0; c < b->n_cols; c++) {
        if (p->transform == TF_NORM_PLUS_1) x[c] += 1.0f;
        else if (p->transform == TF_NEG_EXP) x[c] = -expf(x[c]);
        else break;
    }
    if (!b->h->arch->row_scale) return;
    float scale = (float)b->h->arch->row_scale(b->h->config, hp, p->row, j);
    for (uint64_t c = 0; c < b->n_cols && scale != 1; c++) x[c] *= scale;
}

/* Returns false for NaN too. */
static bool fits(const float *x, uint64_t n, float most) {
    bool fits = true;
    for (uint64_t i = 0; i < n; i++) fits &= fabsf(x[i]) <= most;
    return fits;
}

static void run_rows(void *arg, int ith, int n_thread) {
    struct job *b = arg;
    const struct quant_traits *q = quant_traits(b->p->type);
    float *x = b->scratch + (size_t)ith * 3 * (size_t)b->n_cols, *tmp = x + b->n_cols;
    for (uint64_t i = (uint64_t)ith; i < b->n_rows; i += (uint64_t)n_thread) {
        gather(b, b->first + i, x, tmp);
        if (!fits(x, b->n_cols, quant_max(b->p->type))) b->overflowed = true;
        if (!q->encode(x, b->out + i * b->row_bytes, (size_t)b->n_cols, NULL)) b->failed = true;
    }
}

/* The first pairs turn, the others have a frequency close to 0. */
static int write_partial_freqs(struct hf *h, uint64_t n, struct err *e) {
    const json_t *part = json_object_get(rope_of(h), "partial_rotary_factor");
    const json_t *slow = json_object_get(rope_of(h), "factor");
    double share = part ? json_number_value(part) : rope_of(h) ? 1 : 0.25;
    double factor = slow ? json_number_value(slow) : 1;
    if (!(share > 0) || share > 1 || !(factor > 0))
        return err_set(e, CHIMERE_EFORMAT,
                       "%s/config.json: rope_parameters: expected partial_rotary_factor of 0 to 1 "
                       "and a positive factor",
                       h->options->dir);
    uint64_t n_turn = (uint64_t)(share * (double)n);
    for (uint64_t i = 0; i < n; i++) {
        float f = i < n_turn ? (float)factor : 1e30f;
        int rc = gguf_write_data(h->out, &f, sizeof f, e);
        if (rc) return rc;
    }
    return 0;
}

static int write_rope_freqs(struct hf *h, uint64_t n, struct err *e) {
    if (!rope_is(h, "llama3")) return write_partial_freqs(h, n, e);
    const json_t *rope = rope_of(h);
    double factor = json_number_value(json_object_get(rope, "factor"));
    double low = json_number_value(json_object_get(rope, "low_freq_factor"));
    double high = json_number_value(json_object_get(rope, "high_freq_factor"));
    double n_ctx = json_number_value(json_object_get(rope, "original_max_position_embeddings"));
    if (!(factor > 0) || !(low > 0) || !(high > low) || !(n_ctx > 0))
        return err_set(
            e, CHIMERE_EFORMAT,
            "%s/config.json: rope_scaling: expected factor, low_freq_factor < high_freq_factor "
            "and original_max_position_embeddings",
            h->options->dir);
    for (uint64_t i = 0; i < n; i++) {
        double wave =
            2 * 3.14159265358979323846 * pow((double)h->hp->rope_base, (double)i / (double)n);
        double smooth = (n_ctx / wave - low) / (high - low);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        float f = (float)(1 / ((1 - smooth) / factor + smooth));
        int rc = gguf_write_data(h->out, &f, sizeof f, e);
        if (rc) return rc;
    }
    return 0;
}

/* Releases the source pages of a finished batch, so that memory does not grow with the tensor. */
static void drop_sources(const struct job *b) {
    uint64_t last = (b->first + b->n_rows - 1) / b->rows_per_matrix;
    uint64_t first = b->first / b->rows_per_matrix;
    if (b->p->has_parts) first = 0, last = (uint64_t)b->p->n_source - 1;
    for (uint64_t i = first; i <= last; i++)
        safetensors_drop(b->h->st, b->p->sources[b->p->n_source > 1 ? i : 0].t);
}

static int not_finite(const struct plan *p, struct err *e) {
    err_set(e, CHIMERE_ENUMERIC, "tensor %s: expected values up to %g, as %s holds them",
            p->sources[0].t->name, (double)quant_max(p->type), quant_traits(p->type)->name);
    err_hint(e, "--type f32 or bf16 has room for larger values");
    return CHIMERE_ENUMERIC;
}

static int write_tensor(struct hf *h, const struct plan *p, struct err *e) {
    if (!p->row) return write_rope_freqs(h, p->ne[0], e);
    struct job b = {.h = h, .p = p};
    uint64_t n_rows = p->is_vector ? p->ne[0] : p->ne[1] * p->ne[2], bytes;
    b.n_cols = p->is_vector ? 1 : p->ne[0];
    b.rows_per_matrix = p->is_vector ? p->ne[0] : p->ne[1];
    quant_row_bytes(p->type, b.n_cols, &bytes);
    b.row_bytes = (size_t)bytes;
    uint64_t batch = BATCH_BYTES / (b.n_cols * sizeof(float));
    if (batch < (uint64_t)pool_n_thread(h->pool)) batch = (uint64_t)pool_n_thread(h->pool);
    if (batch > n_rows) batch = n_rows;
    b.out = mem_alloc_array((size_t)batch, b.row_bytes);
    b.scratch =
        mem_alloc_array((size_t)pool_n_thread(h->pool) * 3, (size_t)b.n_cols * sizeof(float));
    int rc = b.out && b.scratch ? 0 : err_set(e, CHIMERE_ENOMEM, "%s: out of memory", p->name);
    for (b.first = 0; !rc && b.first < n_rows; b.first += b.n_rows) {
        b.n_rows = n_rows - b.first < batch ? n_rows - b.first : batch;
        pool_run(h->pool, run_rows, &b);
        if (b.failed) rc = err_set(e, CHIMERE_ENOMEM, "%s: out of memory", p->name);
        else if (b.overflowed) rc = not_finite(p, e);
        else rc = gguf_write_data(h->out, b.out, (size_t)b.n_rows * b.row_bytes, e);
        drop_sources(&b);
    }
    mem_free(b.out);
    mem_free(b.scratch);
    return rc;
}

/* ---- all ---- */

static void mark_used(struct hf *h, const struct plan *p) {
    const struct st_tensor *base = safetensors_at(h->st, 0);
    for (int32_t i = 0; i < p->n_source; i++) {
        const struct hf_source *s = &p->sources[i];
        h->used[s->t - base] = true;
        for (int k = 0; k < HF_MAX_PARTS; k++)
            if (s->part[k]) h->used[s->part[k] - base] = true;
    }
}

bool hf_is_foreign(const char *name) {
    static const char *const parts[] = {
        "visual.",           "vision",           "audio",
        "inv_freq",          "position_ids",     "rotary_emb",
        "predictions",       "seq_relationship", "pooler.",
        "weight_shape",      "weight_scale_2",   "weight_global_scale",
        "weight_format",     ".quant_state.",    "input_scale",
        "output_scale",      "k_scale",          "v_scale",
        "input_global_scale"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

/* Blocks that predict further tokens follow the trunk's layers, or have names of their own. */
static bool is_of_prediction_block(const struct hf *h, const char *name) {
    const char *layer = strstr(name, "layers.");
    int il;
    return str_starts(name, "mtp.") ||
           (layer && sscanf(layer, "layers.%d.", &il) == 1 && il >= arch_n_layer_all(h->hp));
}

/* Some drafters come with copies of the embedding and the head of their model, which training left as they were. */
static bool is_copy_of_target(const struct hf *h, const char *name) {
    return h->is_drafter &&
           (str_ends(name, "embed_tokens.weight") || str_ends(name, "lm_head.weight"));
}

/* A drafter with other parts would draft badly, and nothing would tell why. */
static int refuse_unused(const struct hf *h, struct err *e) {
    for (size_t i = 0; h->is_drafter && i < safetensors_n_tensors(h->st); i++) {
        const char *name = safetensors_at(h->st, i)->name;
        if (!h->used[i] && !hf_is_foreign(name) && !is_copy_of_target(h, name))
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "%s: tensor %s: has no place in the drafters that we run",
                           h->options->dir, name);
    }
    return 0;
}

static void warn_unused(struct hf *h) {
    uint64_t n_predict = 0;
    for (size_t i = 0; i < safetensors_n_tensors(h->st); i++) {
        const char *name = safetensors_at(h->st, i)->name;
        if (h->used[i] || hf_is_foreign(name) || is_copy_of_target(h, name)) continue;
        if (is_of_prediction_block(h, name)) {
            n_predict++;
            continue;
        }
        if (h->result.n_unused++ < 5)
            log_warn("convert: tensor %s has no place in %s", name, h->arch->name);
    }
    if (n_predict)
        log_warn("convert: %" PRIu64
                 " tensors of a prediction block (MTP) are left out: conversion "
                 "does not keep it for %s",
                 n_predict, h->arch->name);
    if (h->result.n_unused > 5)
        log_warn("convert: %" PRIu64 " tensors of the source are left out", h->result.n_unused);
}

/* llama.cpp's number: MXFP4 if experts have that type, otherwise of the type that most weights have. */
static uint32_t file_type_of(const struct plans *list) {
    static const struct {
        uint32_t type, file_type;
    } types[] = {{QUANT_F32, 0}, {QUANT_F16, 1}, {QUANT_BF16, 32}};
    enum { N = sizeof types / sizeof types[0], MXFP4_MOE = 38 };
    uint64_t n[N] = {0};
    size_t most = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct plan *p = &list->p[i];
        if (p->type == QUANT_MXFP4) return MXFP4_MOE;
        for (size_t k = 0; k < N; k++)
            if (p->type == types[k].type) n[k] += p->ne[0] * p->ne[1] * p->ne[2];
    }
    for (size_t k = 1; k < N; k++)
        if (n[k] > n[most]) most = k;
    return types[most].file_type;
}

int hf_add_tensors(struct hf *h, struct err *e) {
    struct plans list = {.p = NULL};
    uint64_t done = 0, n_in_experts = 0;
    int rc = plan_all(h, &list, e);
    for (size_t i = 0; !rc && i < list.n; i++) {
        const struct plan *p = &list.p[i];
        uint64_t n = p->ne[0] * p->ne[1] * p->ne[2], bytes = 0;
        gguf_add_tensor(h->out, p->name, p->type, p->n_dims, p->ne);
        quant_row_bytes(p->type, n, &bytes);
        mark_used(h, p);
        h->result.n_tensors++;
        h->result.n_weights += n;
        if (strstr(p->name, "_exps.")) n_in_experts += n;
        h->result.n_bytes += bytes;
    }
    if (!rc) rc = refuse_unused(h, e);
    if (!rc) warn_unused(h);
    hf_put_size_label(h->out, h->result.n_weights - n_in_experts, n_in_experts,
                      (uint32_t)h->hp->moe.n_expert);
    if (!h->mix) gguf_put_u32(h->out, "general.file_type", file_type_of(&list));
    progress_begin("convert", h->result.n_bytes, true);
    for (size_t i = 0; !rc && i < list.n; i++) {
        uint64_t bytes = 0;
        rc = write_tensor(h, &list.p[i], e);
        quant_row_bytes(list.p[i].type, list.p[i].ne[0] * list.p[i].ne[1] * list.p[i].ne[2],
                        &bytes);
        progress_step(done += bytes);
    }
    progress_end();
    for (size_t i = 0; i < list.n; i++) mem_free(list.p[i].sources);
    mem_free(list.p);
    return rc;
}
