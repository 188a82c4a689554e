/* quantize_mix.c: the table of quantization recipes ("mixes"). A new mix is a row and its rules. */
#include "convert/quantize_mix.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "format/quant.h"
#include "model/weights.h"

/* ---- roles of tensors ---- */

enum role {
    OUTPUT = 1,
    EMBED = 2,
    ATTN_Q = 4,
    ATTN_K = 8,
    ATTN_V = 16, /* also if fused with others */
    ATTN_OUT = 32,
    FFN_UP = 64,
    FFN_GATE = 128,
    FFN_DOWN = 256,
    EXPERT = 512, /* routed; in addition to its FFN_ role */
    SHARED = 1024,
    DECAY = 2048, /* gates of a recurrent state */
    FUSED = 4096, /* queries, keys and values in one matrix; in addition to ATTN_V */
};

static const struct {
    const char *part;
    unsigned roles;
} names[] = {
    {"attn_qkv.", ATTN_V | FUSED},
    {"attn_kv_b.", ATTN_V},
    {"attn_v.", ATTN_V},
    {"attn_k.", ATTN_K},
    {"attn_q.", ATTN_Q},
    {"attn_output.", ATTN_OUT},
    {"ffn_up", FFN_UP},
    {"ffn_gate", FFN_GATE},
    {"ffn_down", FFN_DOWN},
    {"_exps.", EXPERT},
    {"_shexp.", SHARED},
    {"ssm_alpha.", DECAY},
    {"ssm_beta.", DECAY},
    {"ssm_beta_alpha.", DECAY},
};

static unsigned roles_of(const char *name) {
    if (strcmp(name, "output.weight") == 0) return OUTPUT;
    if (strcmp(name, "token_embd.weight") == 0 || strcmp(name, "per_layer_token_embd.weight") == 0)
        return EMBED;
    unsigned roles = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(name, names[i].part)) roles |= names[i].roles;
    return roles;
}

/* Parts of names of matrices that are not changed. */
static const char *const kept[] = {
    "meta_embd",       "_norm.weight",    "ffn_gate_inp",
    "altup",           "laurel",          "per_layer_model_proj",
    "position_embd",   "token_types.",    "ssm_conv1d",
    "shortconv.conv.", "indexer.k_proj.", "indexer.q_proj",
    "time_mix_w",      "time_mix_v0.",    "time_mix_v1.",
    "time_mix_v2.",    "time_mix_a0.",    "time_mix_a1.",
    "time_mix_a2.",    "time_mix_g1.",    "time_mix_g2.",
    "time_mix_first",  "time_mix_decay",  "time_mix_lerp",
    "attn_rel_b.",     ".patch_embd",     ".patch_merger",
    ".rel_pos",        "sam.pos_embd",    "sam.neck.",
    "sam.net_",
};

bool quantize_mix_is_matrix(const struct gguf_tensor *t) {
    if (t->ne[1] * t->ne[2] * t->ne[3] == 1 || !str_ends(t->name, "weight")) return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(t->name, kept[i])) return false;
    return true;
}

/* ---- rules ---- */

enum where {
    ANYWHERE,
    FIRST_2,
    FIRST_4,
    FIRST_16TH,
    FIRST_8TH,
    MIDDLE, /* all except the first and the last eighth */
    SPREAD, /* the first and the last eighth, and every third in between */
};

enum when {
    ALWAYS,
    WIDE_GROUPS, /* at least 4 query heads per key head: keys and values are small */
    WIDE_OR_MOE, /* the same, or at least 4 experts */
    EIGHT_EXPERTS,
    NO_IMATRIX,
};

struct rule {
    unsigned roles; /* any of them; 0 ends the list */
    enum where where;
    enum when when;
    uint32_t type;
};

#define EIGHT                                                                                      \
    {ATTN_V | ATTN_K, ANYWHERE, EIGHT_EXPERTS, QUANT_Q8_0}, {                                      \
        ATTN_OUT, ANYWHERE, EIGHT_EXPERTS, QUANT_Q5_K                                              \
    }
#define LOW(floor, out)                                                                            \
    {ATTN_V, ANYWHERE, WIDE_OR_MOE, QUANT_Q4_K}, {ATTN_V, ANYWHERE, ALWAYS, floor},                \
        {ATTN_K, ANYWHERE, EIGHT_EXPERTS, QUANT_Q4_K}, {FFN_DOWN, FIRST_8TH, ALWAYS, floor},       \
        {ATTN_OUT, ANYWHERE, EIGHT_EXPERTS, QUANT_Q5_K}, {                                         \
        ATTN_OUT, ANYWHERE, ALWAYS, out                                                            \
    }

/* clang-format off */
static const struct rule
    none[] = {{0}},
    iq1[] = {LOW(QUANT_Q2_K, QUANT_IQ2_XXS), {0}},
    iq2_xxs[] = {LOW(QUANT_Q2_K, QUANT_IQ2_XXS), {0}},
    iq2_xs[] = {LOW(QUANT_Q2_K, QUANT_IQ2_XS), {0}},
    iq2_s[] = {LOW(QUANT_IQ3_S, QUANT_IQ3_S), {0}},
    q2_k[] = {EIGHT, {ATTN_V, ANYWHERE, WIDE_GROUPS, QUANT_Q4_K},
              {ATTN_V | FFN_DOWN | ATTN_OUT, ANYWHERE, ALWAYS, QUANT_Q3_K}, {0}},
    q2_k_s[] = {EIGHT, {ATTN_V, ANYWHERE, WIDE_GROUPS, QUANT_Q4_K},
                {FFN_DOWN, FIRST_8TH, ALWAYS, QUANT_Q4_K}, {0}},
    iq3_xxs[] = {EIGHT, {ATTN_V, ANYWHERE, WIDE_GROUPS, QUANT_Q4_K},
                 {ATTN_V, ANYWHERE, NO_IMATRIX, QUANT_IQ3_S},
                 {ATTN_Q | ATTN_K, ANYWHERE, ALWAYS, QUANT_IQ2_S},
                 {FFN_DOWN, FIRST_8TH, NO_IMATRIX, QUANT_Q4_K},
                 {FFN_DOWN, ANYWHERE, NO_IMATRIX, QUANT_Q3_K},
                 {ATTN_OUT, ANYWHERE, ALWAYS, QUANT_IQ3_S}, {0}},
    iq3_xs[] = {EIGHT, {ATTN_V, ANYWHERE, WIDE_GROUPS, QUANT_Q4_K},
                {ATTN_Q | ATTN_K, ANYWHERE, ALWAYS, QUANT_IQ3_XXS},
                {FFN_GATE | FFN_UP, MIDDLE, ALWAYS, QUANT_IQ3_XXS}, {0}},
    iq3_s[] = {EIGHT, {ATTN_V, ANYWHERE, WIDE_GROUPS, QUANT_Q4_K}, {0}},
    iq3_m[] = {EIGHT, {ATTN_V | ATTN_OUT, ANYWHERE, ALWAYS, QUANT_Q4_K},
               {FFN_DOWN, FIRST_8TH, ALWAYS, QUANT_Q4_K}, {0}},
    q3_k_s[] = {EIGHT, {0}},
    q3_k_m[] = {EIGHT, {ATTN_V, FIRST_2, ALWAYS, QUANT_Q5_K}, {ATTN_V, ANYWHERE, ALWAYS, QUANT_Q4_K},
                {FFN_DOWN, FIRST_16TH, ALWAYS, QUANT_Q5_K},
                {FFN_DOWN | ATTN_OUT, ANYWHERE, ALWAYS, QUANT_Q4_K}, {0}},
    q3_k_l[] = {EIGHT, {ATTN_V | FFN_DOWN | ATTN_OUT, ANYWHERE, ALWAYS, QUANT_Q5_K}, {0}},
    iq4[] = {EIGHT, {ATTN_V, ANYWHERE, WIDE_GROUPS, QUANT_Q5_K},
             {FFN_DOWN, FIRST_8TH, NO_IMATRIX, QUANT_Q5_K}, {0}},
    q4_k_s[] = {EIGHT, {ATTN_V, FIRST_4, ALWAYS, QUANT_Q5_K},
                {FFN_DOWN, FIRST_8TH, ALWAYS, QUANT_Q5_K}, {0}},
    q4_k_m[] = {EIGHT, {ATTN_V | FFN_DOWN, SPREAD, ALWAYS, QUANT_Q6_K}, {0}},
    q5_k_m[] = {{ATTN_V | FFN_DOWN, SPREAD, ALWAYS, QUANT_Q6_K}, {0}},
    mxfp4_moe[] = {{EXPERT, ANYWHERE, ALWAYS, QUANT_MXFP4}, {0}},
    ramp3[] = {{EXPERT, ANYWHERE, ALWAYS, QUANT_IQ3_S}, {DECAY, ANYWHERE, ALWAYS, QUANT_Q8_0},
               {FUSED, ANYWHERE, ALWAYS, QUANT_Q5_K},
               {ATTN_Q | ATTN_K | ATTN_V, ANYWHERE, ALWAYS, QUANT_Q6_K}, {0}},
    q4km[] = {{EXPERT, ANYWHERE, ALWAYS, QUANT_Q4_K}, {DECAY, ANYWHERE, ALWAYS, QUANT_Q8_0}, {0}};

enum { GUESSED = 1024 }; /* file type flag: derived from the tensors alone */

static const struct quantize_mix {
    const char *name;
    uint32_t file_type; /* general.file_type */
    uint32_t base, output, embed;
    const struct rule *rules;
} mixes[] = {
    {"Q2_K", 10, QUANT_Q2_K, QUANT_Q6_K, QUANT_Q2_K, q2_k},
    {"Q2_K_S", 21, QUANT_Q2_K, QUANT_Q6_K, QUANT_Q2_K, q2_k_s},
    {"Q3_K_S", 11, QUANT_Q3_K, QUANT_Q6_K, QUANT_Q3_K, q3_k_s},
    {"Q3_K_M", 12, QUANT_Q3_K, QUANT_Q6_K, QUANT_Q3_K, q3_k_m},
    {"Q3_K_L", 13, QUANT_Q3_K, QUANT_Q6_K, QUANT_Q3_K, q3_k_l},
    {"Q4_K_S", 14, QUANT_Q4_K, QUANT_Q6_K, QUANT_Q4_K, q4_k_s},
    {"Q4_K_M", 15, QUANT_Q4_K, QUANT_Q6_K, QUANT_Q4_K, q4_k_m},
    {"Q5_K_S", 16, QUANT_Q5_K, QUANT_Q6_K, QUANT_Q5_K, none},
    {"Q5_K_M", 17, QUANT_Q5_K, QUANT_Q6_K, QUANT_Q5_K, q5_k_m},
    {"Q6_K", 18, QUANT_Q6_K, QUANT_Q6_K, QUANT_Q6_K, none},
    {"IQ1_S", 24, QUANT_IQ1_S, QUANT_Q5_K, QUANT_Q2_K, iq1},
    {"IQ1_M", 31, QUANT_IQ1_M, QUANT_Q5_K, QUANT_Q2_K, iq1},
    {"IQ2_XXS", 19, QUANT_IQ2_XXS, QUANT_Q5_K, QUANT_Q2_K, iq2_xxs},
    {"IQ2_XS", 20, QUANT_IQ2_XS, QUANT_Q5_K, QUANT_Q2_K, iq2_xs},
    {"IQ2_S", 28, QUANT_IQ2_XS, QUANT_Q5_K, QUANT_IQ3_S, iq2_s},
    {"IQ2_M", 29, QUANT_IQ2_S, QUANT_Q5_K, QUANT_IQ3_S, iq2_s},
    {"IQ3_XXS", 23, QUANT_IQ3_XXS, QUANT_Q5_K, QUANT_IQ3_S, iq3_xxs},
    {"IQ3_XS", 22, QUANT_IQ3_S, QUANT_Q6_K, QUANT_IQ3_S, iq3_xs},
    {"IQ3_S", 26, QUANT_IQ3_S, QUANT_Q6_K, QUANT_IQ3_S, iq3_s},
    {"IQ3_M", 27, QUANT_IQ3_S, QUANT_Q6_K, QUANT_IQ3_S, iq3_m},
    {"IQ4_NL", 25, QUANT_IQ4_NL, QUANT_Q6_K, QUANT_IQ4_NL, iq4},
    {"IQ4_XS", 30, QUANT_IQ4_XS, QUANT_Q6_K, QUANT_IQ4_XS, iq4},
    {"MXFP4_MOE", 38, QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0, mxfp4_moe},
    {"ramp3", 26, QUANT_Q5_K, QUANT_Q6_K, QUANT_Q5_K, ramp3},
    {"q4km", 15, QUANT_Q6_K, QUANT_Q6_K, QUANT_Q4_K, q4km},
    /* plain types */
    {"F32", 0, QUANT_F32, QUANT_F32, QUANT_F32, none},
    {"F16", 1, QUANT_F16, QUANT_F16, QUANT_F16, none},
    {"BF16", 32, QUANT_BF16, QUANT_BF16, QUANT_BF16, none},
    {"Q8_0", 7, QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0, none},
    {"Q4_0", 2, QUANT_Q4_0, QUANT_Q6_K, QUANT_Q4_0, none},
    {"Q4_1", 3, QUANT_Q4_1, QUANT_Q6_K, QUANT_Q4_1, none},
    {"Q5_0", 8, QUANT_Q5_0, QUANT_Q6_K, QUANT_Q5_0, none},
    {"Q5_1", 9, QUANT_Q5_1, QUANT_Q6_K, QUANT_Q5_1, none},
    {"Q3_K", 11, QUANT_Q3_K, QUANT_Q6_K, QUANT_Q3_K, none},
    {"Q4_K", 14, QUANT_Q4_K, QUANT_Q6_K, QUANT_Q4_K, none},
    {"Q5_K", 16, QUANT_Q5_K, QUANT_Q6_K, QUANT_Q5_K, none},
    {"TQ1_0", 36, QUANT_TQ1_0, QUANT_Q6_K, QUANT_Q4_K, none},
    {"TQ2_0", 37, QUANT_TQ2_0, QUANT_Q6_K, QUANT_Q4_K, none},
    {"MXFP4", 38, QUANT_MXFP4, QUANT_Q8_0, QUANT_Q8_0, none},
    {"IQ2_K", GUESSED, QUANT_IQ2_K, QUANT_Q6_K, QUANT_Q4_K, none},
    {"IQ3_K", GUESSED, QUANT_IQ3_K, QUANT_Q6_K, QUANT_Q4_K, none},
    {"IQ4_K", GUESSED, QUANT_IQ4_K, QUANT_Q6_K, QUANT_IQ4_K, none},
    {"IQ5_K", GUESSED, QUANT_IQ5_K, QUANT_Q6_K, QUANT_IQ5_K, none},
    {"IQ6_K", GUESSED, QUANT_IQ6_K, QUANT_Q6_K, QUANT_IQ6_K, none},
    {"IQ2_KS", GUESSED, QUANT_IQ2_KS, QUANT_Q6_K, QUANT_Q4_K, none},
    {"IQ3_KS", GUESSED, QUANT_IQ3_KS, QUANT_Q6_K, QUANT_Q4_K, none},
    {"IQ2_KL", GUESSED, QUANT_IQ2_KL, QUANT_Q6_K, QUANT_Q4_K, none},
    {"IQ4_KS", GUESSED, QUANT_IQ4_KS, QUANT_Q6_K, QUANT_IQ4_KS, none},
    {"IQ5_KS", GUESSED, QUANT_IQ5_KS, QUANT_Q6_K, QUANT_IQ5_KS, none},
    {"IQ4_KSS", GUESSED, QUANT_IQ4_KSS, QUANT_Q6_K, QUANT_IQ4_KSS, none},
};
/* clang-format on */

enum { N_MIX = sizeof mixes / sizeof *mixes };

const struct quantize_mix *quantize_mix_find(const char *name) {
    for (int i = 0; i < N_MIX; i++)
        if (str_eq_nocase(mixes[i].name, name)) return &mixes[i];
    return NULL;
}

const char *quantize_mix_name(int i) { return i >= 0 && i < N_MIX ? mixes[i].name : NULL; }
uint32_t quantize_mix_file_type(const struct quantize_mix *m) { return m->file_type; }
uint32_t quantize_mix_base(const struct quantize_mix *m) { return m->base; }

/* Largest item of an integer key of the model's architecture; 0: absent. */
static uint64_t model_key(const struct gguf *g, const char *suffix) {
    const struct gguf_kv *arch = gguf_find(g, "general.architecture");
    uint64_t cursor = 0, top = 0, v;
    struct slice name;
    char key[GGUF_MAX_NAME + 64];
    if (!arch || arch->type != GGUF_STR || !gguf_next_str(arch, &cursor, &name)) return 0;
    if (name.n > GGUF_MAX_NAME) return 0;
    snprintf(key, sizeof key, "%.*s.%s", (int)name.n, name.p, suffix);
    const struct gguf_kv *kv = gguf_find(g, key);
    for (uint64_t i = 0; kv && i < kv->n; i++)
        if (gguf_item_u64(kv, i, &v) && v > top) top = v;
    return top;
}

void quantize_mix_shape(struct quantize_shape *s, const struct gguf *g, bool has_imatrix) {
    uint64_t n_layer = model_key(g, "block_count"), n_expert = model_key(g, "expert_count");
    uint64_t n_head = model_key(g, "attention.head_count");
    uint64_t n_kv_head = model_key(g, "attention.head_count_kv");
    *s = (struct quantize_shape){
        .n_layer = n_layer < UINT16_MAX ? (uint32_t)n_layer : UINT16_MAX,
        .n_expert = n_expert < UINT16_MAX ? (uint32_t)n_expert : UINT16_MAX,
        .n_gqa = n_kv_head && n_head / n_kv_head < UINT16_MAX ? (uint32_t)(n_head / n_kv_head) : 1,
        .has_output = gguf_find_tensor(g, "output.weight") != NULL,
        .has_imatrix = has_imatrix,
    };
}

static bool is_there(enum where where, uint32_t il, uint32_t n) {
    uint32_t eighth = n / 8;
    bool early = il < eighth, late = il >= 7 * n / 8;
    switch (where) {
    case ANYWHERE: return true;
    case FIRST_2: return il < 2;
    case FIRST_4: return il < 4;
    case FIRST_16TH: return il < n / 16;
    case FIRST_8TH: return early;
    case MIDDLE: return !early && !late;
    case SPREAD: return early || late || (il - eighth) % 3 == 2;
    }
    return false;
}

static bool is_so(enum when when, const struct quantize_shape *s) {
    switch (when) {
    case ALWAYS: return true;
    case WIDE_GROUPS: return s->n_gqa >= 4;
    case WIDE_OR_MOE: return s->n_gqa >= 4 || s->n_expert >= 4;
    case EIGHT_EXPERTS: return s->n_expert == 8;
    case NO_IMATRIX: return !s->has_imatrix;
    }
    return false;
}

uint32_t quantize_mix_type(const struct quantize_mix *m, const struct quantize_shape *shape,
                           const struct gguf_tensor *t, bool pure) {
    if (pure) return m->base;
    unsigned roles = roles_of(t->name), il = 0;
    if (roles == OUTPUT || (roles == EMBED && !shape->has_output)) return m->output;
    if (roles == EMBED) return m->embed;
    if (sscanf(t->name, "blk.%u.", &il) != 1) il = 0;
    for (const struct rule *r = m->rules; r->roles; r++)
        if ((r->roles & roles) && is_there(r->where, il, shape->n_layer) && is_so(r->when, shape))
            return r->type;
    return m->base;
}

uint32_t quantize_mix_fit(uint32_t type, uint64_t n) {
    static const struct {
        uint32_t from, to;
    } smaller[] = {
        {QUANT_IQ1_S, QUANT_IQ4_NL},  {QUANT_IQ1_M, QUANT_IQ4_NL},   {QUANT_IQ2_XXS, QUANT_IQ4_NL},
        {QUANT_IQ2_XS, QUANT_IQ4_NL}, {QUANT_IQ2_S, QUANT_IQ4_NL},   {QUANT_IQ3_XXS, QUANT_IQ4_NL},
        {QUANT_IQ3_S, QUANT_IQ4_NL},  {QUANT_IQ4_XS, QUANT_IQ4_NL},  {QUANT_Q2_K, QUANT_Q4_0},
        {QUANT_Q3_K, QUANT_Q4_0},     {QUANT_TQ1_0, QUANT_Q4_0},     {QUANT_TQ2_0, QUANT_Q4_0},
        {QUANT_IQ2_K, QUANT_IQ4_NL},  {QUANT_IQ3_K, QUANT_IQ4_NL},   {QUANT_IQ4_K, QUANT_IQ4_NL},
        {QUANT_IQ2_KS, QUANT_IQ4_NL}, {QUANT_IQ3_KS, QUANT_IQ4_NL},  {QUANT_IQ4_KS, QUANT_IQ4_NL},
        {QUANT_IQ2_KL, QUANT_IQ4_NL}, {QUANT_IQ4_KSS, QUANT_IQ4_NL}, {QUANT_IQ5_K, QUANT_Q5_1},
        {QUANT_IQ5_KS, QUANT_Q5_1},   {QUANT_IQ6_K, QUANT_Q8_0},     {QUANT_Q4_K, QUANT_Q5_0},
        {QUANT_Q5_K, QUANT_Q5_1},     {QUANT_Q6_K, QUANT_Q8_0},
    };
    if (n % quant_traits(type)->block_elements == 0) return type;
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller; i++)
        if (smaller[i].from == type) type = smaller[i].to;
    return n % quant_traits(type)->block_elements == 0 ? type : QUANT_F16;
}

/* Number of first columns, a multiple of the type's block, if rows are divided; 0: they fit, or cannot be. */
static uint64_t divide_at(const struct gguf_tensor *t, uint32_t type) {
    uint64_t block = quant_traits(type)->block_elements, n = t->ne[0];
    if (n <= block || n % block == 0 || n % WEIGHT_TAIL_BLOCK || block % WEIGHT_TAIL_BLOCK)
        return 0;
    /* stacks of which every head's matrix is bound separately */
    if (strstr(t->name, "attn_k_b.") || strstr(t->name, "attn_v_b.")) return 0;
    return n / block * block;
}

bool quantize_mix_columns(struct quantize_columns *out, const struct gguf_tensor *t, uint32_t type,
                          bool divide) {
    uint64_t n_row = t->n_elements / t->ne[0], row = 0, tail_row = 0, all;
    uint64_t first = divide && type != t->type ? divide_at(t, type) : 0;
    *out = (struct quantize_columns){.type = type, .n_first = first ? first : t->ne[0]};
    if (first) out->tail = quantize_mix_fit(type, t->ne[0] - first);
    else if (type != t->type) out->type = quantize_mix_fit(type, t->ne[0]);
    return quant_row_bytes(out->type, out->n_first, &row) &&
           (!first || quant_row_bytes(out->tail, t->ne[0] - first, &tail_row)) &&
           u64_mul(row, n_row, &out->n_bytes) && u64_mul(tail_row, n_row, &out->tail_bytes) &&
           u64_add(out->n_bytes, out->tail_bytes, &all);
}
