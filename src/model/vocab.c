/* vocab.c: converts GGUF metadata to the arrays from which the tokenizer is made. */
#include "model/vocab.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

#define KEY(name) "tokenizer.ggml." name

struct vocab_arrays { /* all owned */
    struct slice *pieces, *merges;
    float *scores;
    uint8_t *kinds, *strips;
    char *pre;
};

/* Kinds of tokenizers by tokenizer.ggml.model, with the ids that old files omit; -1: none. */
static const struct kind {
    const char *name;
    enum tok_model model;
    const char *pre; /* fixed pre-tokenizer, NULL: from the file */
    int32_t bos, eos, unk, sep, pad, mask;
} kinds[] = {
    {"gpt2", TOK_BPE, NULL, -1, -1, -1, -1, -1, -1},
    {"gemma4", TOK_BPE, "gemma4", -1, -1, -1, -1, -1, -1},
    {"whitespace", TOK_BPE, "whitespace", -1, -1, -1, -1, -1, -1},
    {"llama", TOK_SPM, NULL, 1, 2, 0, -1, -1, -1},
    {"bert", TOK_WORDPIECE, NULL, 101, -1, 100, 102, 0, 103},
    {"t5", TOK_UNIGRAM, NULL, -1, 1, 2, -1, 0, -1},
};

static int wrong_type(const struct gguf_kv *kv, const char *expected, struct err *e) {
    bool array = kv->type == GGUF_ARR;
    return err_set(e, CHIMERE_EFORMAT, "%.*s: expected %s, got %s%s", (int)kv->key.n, kv->key.p,
                   expected, array ? "an array of " : "",
                   gguf_type_name(array ? kv->item_type : kv->type));
}

static int read_string(const struct gguf *g, const char *key, struct slice *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    *out = (struct slice){"", 0};
    if (!kv) return 0;
    uint64_t cursor = 0;
    if (kv->type != GGUF_STR || !gguf_next_str(kv, &cursor, out))
        return wrong_type(kv, "a string", e);
    return 0;
}

static int read_flag(const struct gguf *g, const char *key, int *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    bool on;
    if (!kv) return 0;
    if (kv->type != GGUF_BOOL || !gguf_item_bool(kv, 0, &on)) return wrong_type(kv, "a bool", e);
    *out = on;
    return 0;
}

/* Strings of an array; *n items, at most `max`. */
static int read_strings(const struct gguf_kv *kv, uint64_t max, struct slice **out, uint32_t *n,
                        struct err *e) {
    if (kv->type != GGUF_ARR || kv->item_type != GGUF_STR)
        return wrong_type(kv, "an array of strings", e);
    if (kv->n > max)
        return err_set(e, CHIMERE_ELIMIT, "%.*s: expected at most %llu items, got %llu",
                       (int)kv->key.n, kv->key.p, (unsigned long long)max,
                       (unsigned long long)kv->n);
    *out = mem_alloc_array((size_t)kv->n, sizeof **out);
    if (!*out)
        return err_set(e, CHIMERE_ENOMEM, "out of memory for %llu strings",
                       (unsigned long long)kv->n);
    *n = (uint32_t)kv->n;
    uint64_t cursor = 0;
    for (uint32_t i = 0; i < *n; i++)
        if (!gguf_next_str(kv, &cursor, &(*out)[i]))
            return err_set(e, CHIMERE_EFORMAT, "%.*s: item %u is cut off", (int)kv->key.n,
                           kv->key.p, i);
    return 0;
}

static int check_length(const struct gguf_kv *kv, uint32_t n_vocab, struct err *e) {
    if (kv->type != GGUF_ARR) return wrong_type(kv, "an array", e);
    if (kv->n == n_vocab) return 0;
    return err_set(e, CHIMERE_EFORMAT, "%.*s: expected %u items, one per token, got %llu",
                   (int)kv->key.n, kv->key.p, n_vocab, (unsigned long long)kv->n);
}

static int read_scores(const struct gguf *g, uint32_t n, float **out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, KEY("scores"));
    if (!kv) return 0;
    int rc = check_length(kv, n, e);
    if (rc) return rc;
    *out = mem_alloc_array(n, sizeof **out);
    if (!*out) return err_set(e, CHIMERE_ENOMEM, "out of memory for %u scores", n);
    for (uint32_t i = 0; i < n; i++) {
        double x;
        if (!gguf_item_f64(kv, i, &x)) return wrong_type(kv, "an array of numbers", e);
        (*out)[i] = (float)x;
    }
    return 0;
}

static int read_kinds(const struct gguf *g, uint32_t n, uint8_t **out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, KEY("token_type"));
    if (!kv) return 0;
    int rc = check_length(kv, n, e);
    if (rc) return rc;
    *out = mem_alloc(n);
    if (!*out) return err_set(e, CHIMERE_ENOMEM, "out of memory for %u token types", n);
    for (uint32_t i = 0; i < n; i++) {
        int64_t x;
        if (!gguf_item_i64(kv, i, &x)) return wrong_type(kv, "an array of integers", e);
        if (x < TOK_UNDEFINED || x > TOK_BYTE)
            return err_set(e, CHIMERE_EFORMAT, KEY("token_type") ": token %u: unknown type %lld", i,
                           (long long)x);
        (*out)[i] = (uint8_t)x;
    }
    return 0;
}

/* An id that encoding needs must be valid; a bad value of another id is only reported. Some
 * converters write "none" as all bits set. */
static int read_id(const struct gguf *g, const char *key, bool needed, uint32_t n_vocab,
                   int32_t *id, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (*id >= 0 && (uint32_t)*id >= n_vocab) *id = -1; /* a default id beyond a small vocabulary */
    if (!kv) return 0;
    int64_t x;
    if (kv->type == GGUF_ARR || !gguf_item_i64(kv, 0, &x)) return wrong_type(kv, "an integer", e);
    if (x == -1 || x == UINT32_MAX) {
        *id = -1;
    } else if (x >= 0 && x < n_vocab) {
        *id = (int32_t)x;
    } else if (needed) {
        return err_set(e, CHIMERE_EFORMAT, "%s: expected the id of a token, below %u, got %lld",
                       key, n_vocab, (long long)x);
    } else {
        log_warn("%s is %lld, beyond the %u tokens: ignored", key, (long long)x, n_vocab);
    }
    return 0;
}

static int read_ids(const struct gguf *g, struct tok_spec *s, int32_t eog[4], struct err *e) {
    int32_t eom = -1, fim_pad = -1, fim_rep = -1, fim_sep = -1;
    const struct {
        const char *key;
        bool needed;
        int32_t *id;
    } rows[] = {
        {KEY("bos_token_id"), true, &s->bos},       {KEY("eos_token_id"), true, &s->eos},
        {KEY("eot_token_id"), true, &s->eot},       {KEY("eom_token_id"), true, &eom},
        {KEY("unknown_token_id"), true, &s->unk},   {KEY("seperator_token_id"), true, &s->sep},
        {KEY("cls_token_id"), true, &s->cls},       {KEY("padding_token_id"), false, &s->pad},
        {KEY("mask_token_id"), false, &s->mask},    {KEY("fim_pad_token_id"), false, &fim_pad},
        {KEY("fim_rep_token_id"), false, &fim_rep}, {KEY("fim_sep_token_id"), false, &fim_sep},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = read_id(g, rows[i].key, rows[i].needed, s->n_vocab, rows[i].id, e);
        if (rc) return rc;
    }
    const int32_t more[] = {eom, fim_pad, fim_rep, fim_sep};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i] >= 0) eog[s->n_eog++] = more[i];
    s->eog = eog;
    return 0;
}

static bool contains(struct slice s, const char *part) {
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= s.n; i++) {
        size_t k = 0;
        while (k < n && tolower((unsigned char)s.p[i + k]) == part[k]) k++;
        if (k == n) return true;
    }
    return false;
}

static void strip_by_name(const struct tok_spec *s, uint8_t *strips, const char *piece,
                          uint8_t bits) {
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (s->pieces[i].n == strlen(piece) && memcmp(s->pieces[i].p, piece, s->pieces[i].n) == 0)
            strips[i] = bits;
}

/* No key lists the special tokens that swallow white space: other loaders derive it from the names of the
 * pre-tokenizer, the architecture and the model, and so does this. */
static int find_strips(const struct gguf *g, struct tok_spec *s, uint8_t **out, struct err *e) {
    struct slice name, arch, pre;
    int rc = read_string(g, "general.name", &name, e);
    if (rc == 0) rc = read_string(g, "general.architecture", &arch, e);
    if (rc == 0) rc = read_string(g, KEY("pre"), &pre, e);
    if (rc) return rc;
    bool mask = contains(pre, "jina-v2-de") || contains(pre, "jina-v2-es") ||
                contains(pre, "jina-v2-code") || contains(arch, "nomic-bert-moe") ||
                contains(arch, "jina-bert-v3");
    bool phi3 = !mask && (contains(name, "phi-3") || contains(name, "phi3"));
    bool modern = !mask && !phi3 && contains(name, "modern-bert");
    if (!mask && !phi3 && !modern) return 0;
    *out = mem_zalloc(s->n_vocab);
    if (!*out) return err_set(e, CHIMERE_ENOMEM, "out of memory for %u tokens", s->n_vocab);
    if (mask) strip_by_name(s, *out, "<mask>", TOK_STRIP_LEFT);
    if (modern) strip_by_name(s, *out, "[MASK]", TOK_STRIP_LEFT);
    if (phi3) {
        memset(*out, TOK_STRIP_RIGHT, s->n_vocab);
        strip_by_name(s, *out, "<unk>", 0);
        strip_by_name(s, *out, "<s>", 0);
        strip_by_name(s, *out, "<|endoftext|>", 0);
    }
    s->strips = *out;
    return 0;
}

static int read_merges(const struct gguf *g, struct tok_spec *s, struct vocab_arrays *a,
                       struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, KEY("merges"));
    if (!kv && (strcmp(s->pre, "kimi-k2") == 0 || strcmp(s->pre, "whitespace") == 0)) return 0;
    if (!kv) return err_set(e, CHIMERE_EFORMAT, "the key " KEY("merges") " is missing");
    int rc = read_strings(kv, 1u << 24, &a->merges, &s->n_merges, e);
    s->merges = a->merges;
    return rc;
}

static int read_options(const struct gguf *g, struct tok_spec *s, struct err *e) {
    int squeeze = 0, lower = -1, strip = -1;
    int rc = read_flag(g, KEY("add_bos_token"), &s->add_bos, e);
    if (rc == 0) rc = read_flag(g, KEY("add_eos_token"), &s->add_eos, e);
    if (rc == 0) rc = read_flag(g, KEY("add_space_prefix"), &s->add_space_prefix, e);
    if (rc == 0) rc = read_flag(g, KEY("remove_extra_whitespaces"), &squeeze, e);
    if (rc == 0) rc = read_flag(g, KEY("normalizer.lowercase"), &lower, e);
    strip = lower; /* as BERT: both or neither, unless the file sets it */
    if (rc == 0) rc = read_flag(g, KEY("normalizer.strip_accents"), &strip, e);
    if (rc) return rc;
    s->remove_extra_whitespace = squeeze;
    s->lowercase = lower < 0 ? 0 : lower ? 1 : -1;
    s->strip_accents = strip < 0 ? 0 : strip ? 1 : -1;
    const struct gguf_kv *kv = gguf_find(g, KEY("precompiled_charsmap"));
    if (!kv || s->model != TOK_UNIGRAM) return 0;
    if (kv->type != GGUF_ARR || (kv->item_type != GGUF_U8 && kv->item_type != GGUF_I8))
        return wrong_type(kv, "an array of bytes", e);
    s->charsmap = (struct slice){(const char *)kv->data, (size_t)kv->n};
    return 0;
}

static const struct kind *find_kind(const struct gguf *g, struct err *e) {
    struct slice model;
    if (!gguf_find(g, KEY("model"))) {
        err_set(e, CHIMERE_EUNSUPPORTED, "no vocabulary: the key " KEY("model") " is missing");
        return NULL;
    }
    if (read_string(g, KEY("model"), &model, e)) return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == model.n && memcmp(kinds[i].name, model.p, model.n) == 0)
            return &kinds[i];
    bool none = (model.n == 8 && memcmp(model.p, "no_vocab", 8) == 0) ||
                (model.n == 4 && memcmp(model.p, "none", 4) == 0);
    if (none)
        err_set(e, CHIMERE_EUNSUPPORTED, "the file has no vocabulary (" KEY("model") " is %.*s)",
                (int)model.n, model.p);
    else
        err_set(e, CHIMERE_EUNSUPPORTED, KEY("model") ": unknown tokenizer '%.*s'",
                (int)(model.n < 60 ? model.n : 60), model.p);
    return NULL;
}

static int fill(const struct gguf *g, struct tok_spec *s, struct vocab_arrays *a, int32_t eog[4],
                struct err *e) {
    struct err local = {0};
    if (!e) e = &local;
    const struct kind *k = find_kind(g, e);
    if (!k) return e->code;
    const struct gguf_kv *tokens = gguf_find(g, KEY("tokens"));
    if (!tokens) return err_set(e, CHIMERE_EFORMAT, "the key " KEY("tokens") " is missing");
    *s = (struct tok_spec){.model = k->model,
                           .bos = k->bos,
                           .eos = k->eos,
                           .unk = k->unk,
                           .sep = k->sep,
                           .pad = k->pad,
                           .mask = k->mask,
                           .cls = -1,
                           .eot = -1,
                           .add_bos = -1,
                           .add_eos = -1,
                           .add_space_prefix = -1};
    struct slice pre;
    int rc = read_string(g, KEY("pre"), &pre, e);
    if (rc) return rc;
    if (k->pre) pre = (struct slice){k->pre, strlen(k->pre)};
    if (memchr(pre.p, 0, pre.n))
        return err_set(e, CHIMERE_EFORMAT, KEY("pre") ": unexpected NUL byte");
    s->pre = a->pre = mem_strndup(pre.p, pre.n);
    if (!a->pre) return err_set(e, CHIMERE_ENOMEM, "out of memory for a name");
    if ((rc = read_strings(tokens, 1u << 24, &a->pieces, &s->n_vocab, e)) != 0) return rc;
    s->pieces = a->pieces;
    if ((rc = read_scores(g, s->n_vocab, &a->scores, e)) != 0) return rc;
    if ((rc = read_kinds(g, s->n_vocab, &a->kinds, e)) != 0) return rc;
    s->scores = a->scores;
    s->kinds = a->kinds;
    if ((rc = read_ids(g, s, eog, e)) != 0) return rc;
    if ((rc = read_options(g, s, e)) != 0) return rc;
    if ((rc = find_strips(g, s, &a->strips, e)) != 0) return rc;
    return k->model == TOK_BPE ? read_merges(g, s, a, e) : 0;
}

int vocab_load(struct tok **out, const struct gguf *g, struct err *e) {
    struct tok_spec spec;
    struct vocab_arrays a = {0};
    int32_t eog[4];
    *out = NULL;
    int rc = fill(g, &spec, &a, eog, e);
    if (rc == 0) rc = tok_new(out, &spec, e);
    if (rc) err_prefix(e, "%s", gguf_path(g, 0));
    mem_free(a.pieces);
    mem_free(a.merges);
    mem_free(a.scores);
    mem_free(a.kinds);
    mem_free(a.strips);
    mem_free(a.pre);
    return rc;
}

struct slice vocab_chat_template(const struct gguf *g, const char *name) {
    char key[GGUF_MAX_NAME + 1] = "tokenizer.chat_template";
    struct slice s;
    if (name && strlen(name) > 128) return (struct slice){"", 0};
    if (name && *name) snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
    return read_string(g, key, &s, NULL) ? (struct slice){"", 0} : s;
}

bool vocab_reads_key(struct slice key) {
    /* marks of code to fill in are found by their text, not by these ids */
    static const char *const names[] = {"model",
                                        "pre",
                                        "tokens",
                                        "scores",
                                        "token_type",
                                        "merges",
                                        "bos_token_id",
                                        "eos_token_id",
                                        "eot_token_id",
                                        "eom_token_id",
                                        "cls_token_id",
                                        "unknown_token_id",
                                        "mask_token_id",
                                        "add_bos_token",
                                        "seperator_token_id",
                                        "add_eos_token",
                                        "fim_pre_token_id",
                                        "padding_token_id",
                                        "fim_suf_token_id",
                                        "fim_mid_token_id",
                                        "fim_pad_token_id",
                                        "fim_rep_token_id",
                                        "fim_sep_token_id",
                                        "add_space_prefix",
                                        "token_type_count",
                                        "normalizer.lowercase",
                                        "normalizer.strip_accents",
                                        "precompiled_charsmap",
                                        "remove_extra_whitespaces"};
    static const char prefix[] = KEY(""), template[] = "tokenizer.chat_template";
    size_t n = sizeof prefix - 1;
    if (key.n >= sizeof template - 1 && memcmp(key.p, template, sizeof template - 1) == 0)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (key.n == n + strlen(names[i]) && memcmp(key.p, prefix, n) == 0 &&
            memcmp(key.p + n, names[i], key.n - n) == 0)
            return true;
    return false;
}
