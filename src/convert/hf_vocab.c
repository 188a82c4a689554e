/* hf_vocab.c: tokenizer.* keys: tokens, merges, special ids, chat templates. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "convert/hf_vocab_impl.h"
#include "text/tok/tok.h"

enum { TOKENIZER_CONFIG_MAX = 64 << 20, TEMPLATE_MAX = 4 << 20, MAX_EOS = 8 };

/* U+2581, SentencePiece's visible space. */
static const char block[] = "\xe2\x96\x81";

struct put {
    const struct hf *h;
    struct hf_vocab v;
    json_t *config;     /* owned: tokenizer_config.json, may be NULL */
    json_t *generation; /* owned: generation_config.json, may be NULL */
    struct gguf_writer *w;
};

/* ---- tokens ---- */

/* Fills unused ids up to the embedding's rows with padding. */
static int pad_pieces(struct put *p, struct slice *pieces, int32_t *kinds, float *scores,
                      struct err *e) {
    struct hf_vocab *v = &p->v;
    for (uint32_t i = 0; i < p->h->n_vocab; i++) {
        if (i < v->n && v->kinds[i]) {
            pieces[i] = v->pieces[i];
            kinds[i] = v->kinds[i];
            scores[i] = v->scores[i];
            continue;
        }
        char *text = arena_alloc(&v->text, 24);
        if (!text) return err_set(e, CHIMERE_ENOMEM, "vocabulary: out of memory");
        pieces[i] = (struct slice){text, (size_t)snprintf(text, 24, "[PAD%" PRIu32 "]", i)};
        kinds[i] = TOK_UNUSED;
        scores[i] = -10000.0f;
    }
    return 0;
}

/* Word pieces: "##x" continues a word in the source; GGUF files mark the beginning of a word instead. */
static int mark_word_begins(struct put *p, struct slice *pieces, const int32_t *kinds,
                            struct err *e) {
    for (uint32_t i = 0; i < p->h->n_vocab; i++) {
        struct slice s = pieces[i];
        if (kinds[i] == TOK_CONTROL || kinds[i] == TOK_UNUSED) continue;
        if (s.n > 2 && s.p[0] == '#' && s.p[1] == '#') {
            pieces[i] = (struct slice){s.p + 2, s.n - 2};
            continue;
        }
        char *text = arena_alloc(&p->v.text, s.n + 3);
        if (!text) return err_set(e, CHIMERE_ENOMEM, "vocabulary: out of memory");
        memcpy(text, block, 3);
        memcpy(text + 3, s.p, s.n);
        pieces[i] = (struct slice){text, s.n + 3};
    }
    return 0;
}

/* User-defined pieces are matched in plain text: with a real space, not the visible one. */
static void plain_spaces(const struct put *p, struct slice *pieces, const int32_t *kinds) {
    for (uint32_t i = 0; i < p->h->n_vocab; i++) {
        if (kinds[i] != TOK_USER_DEFINED) continue;
        char *s = (char *)pieces[i].p; /* in the vocabulary's arena */
        size_t o = 0;
        for (size_t j = 0; j < pieces[i].n; j++) {
            bool is_block = pieces[i].n - j >= 3 && memcmp(s + j, block, 3) == 0;
            s[o++] = is_block ? ' ' : s[j];
            j += is_block ? 2 : 0;
        }
        pieces[i].n = o;
    }
}

static int put_tokens(struct put *p, struct err *e) {
    uint32_t n = p->h->n_vocab;
    if (p->v.n > n)
        return err_set(e, CHIMERE_EMISMATCH,
                       "%s/tokenizer.json: expected ids below the embedding's %" PRIu32
                       " rows, got %" PRIu32,
                       p->h->options->dir, n, p->v.n - 1);
    struct slice *pieces = mem_alloc_array(n, sizeof *pieces);
    int32_t *kinds = mem_alloc_array(n, sizeof *kinds);
    float *scores = mem_alloc_array(n, sizeof *scores);
    int rc =
        pieces && kinds && scores ? 0 : err_set(e, CHIMERE_ENOMEM, "vocabulary: out of memory");
    if (!rc) rc = pad_pieces(p, pieces, kinds, scores, e);
    if (!rc && p->v.model == HF_WORDPIECE) rc = mark_word_begins(p, pieces, kinds, e);
    if (!rc) {
        plain_spaces(p, pieces, kinds);
        gguf_put_strings(p->w, "tokenizer.ggml.tokens", pieces, n);
        gguf_put_array(p->w, "tokenizer.ggml.token_type", GGUF_I32, kinds, n);
        if (p->v.model == HF_SPM || p->v.model == HF_UNIGRAM)
            gguf_put_array(p->w, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    }
    mem_free(pieces);
    mem_free(kinds);
    mem_free(scores);
    return rc;
}

/* ---- spaces and case ---- */

/* 1: a space before the text, 0: none, -1: not specified. */
static int prefix_space(const json_t *node, int depth) {
    const char *type = json_string_value(json_object_get(node, "type"));
    if (!type || depth > 8) return -1;
    if (strcmp(type, "Prepend") == 0) return 1;
    if (strcmp(type, "Metaspace") == 0) {
        const char *scheme = json_string_value(json_object_get(node, "prepend_scheme"));
        if (scheme) return strcmp(scheme, "never") != 0;
        return !json_is_false(json_object_get(node, "add_prefix_space"));
    }
    size_t i;
    json_t *item;
    const json_t *list = json_object_get(node, "normalizers");
    if (!list) list = json_object_get(node, "pretokenizers");
    json_array_foreach(list, i, item) {
        int said = prefix_space(item, depth + 1);
        if (said >= 0) return said;
    }
    return -1;
}

/* The normalizer's table, base64 in tokenizer.json. */
static const json_t *find_charsmap(const json_t *node, int depth) {
    const json_t *own = json_object_get(node, "precompiled_charsmap"), *found = NULL, *item;
    size_t i;
    if (json_is_string(own) || depth > 8) return json_is_string(own) ? own : NULL;
    json_array_foreach(json_object_get(node, "normalizers"), i, item) {
        if (!found) found = find_charsmap(item, depth + 1);
    }
    return found;
}

static int put_charsmap(const struct put *p, struct err *e) {
    const json_t *text = find_charsmap(p->v.normalizer, 0);
    size_t n = json_string_length(text), n_out;
    if (!n) return 0;
    char *bytes = mem_alloc(n);
    if (!bytes) return err_set(e, CHIMERE_ENOMEM, "vocabulary: out of memory");
    bool ok = str_base64((struct slice){json_string_value(text), n}, bytes, &n_out);
    if (ok) gguf_put_array(p->w, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, bytes, n_out);
    mem_free(bytes);
    return ok ? 0
              : err_set(e, CHIMERE_EFORMAT,
                        "%s/tokenizer.json: precompiled_charsmap: expected base64",
                        p->h->options->dir);
}

static void put_spaces(const struct put *p) {
    int said = prefix_space(p->v.normalizer, 0);
    if (said < 0) said = prefix_space(p->v.pre_tokenizer, 0);
    gguf_put_bool(p->w, "tokenizer.ggml.add_space_prefix", said > 0);
    if (p->v.model == HF_UNIGRAM)
        gguf_put_bool(p->w, "tokenizer.ggml.remove_extra_whitespaces", true);
}

static void put_case(const struct put *p, const json_t *node, int depth) {
    const char *type = json_string_value(json_object_get(node, "type"));
    if (!type || depth > 8) return;
    if (strcmp(type, "Lowercase") == 0)
        gguf_put_bool(p->w, "tokenizer.ggml.normalizer.lowercase", true);
    if (strcmp(type, "StripAccents") == 0)
        gguf_put_bool(p->w, "tokenizer.ggml.normalizer.strip_accents", true);
    if (strcmp(type, "BertNormalizer") == 0) {
        const json_t *lower = json_object_get(node, "lowercase"),
                     *strip = json_object_get(node, "strip_accents");
        if (json_is_boolean(lower))
            gguf_put_bool(p->w, "tokenizer.ggml.normalizer.lowercase", json_is_true(lower));
        if (json_is_boolean(strip))
            gguf_put_bool(p->w, "tokenizer.ggml.normalizer.strip_accents", json_is_true(strip));
    }
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(node, "normalizers"), i, item) put_case(p, item, depth + 1);
}

/* ---- special tokens ---- */

/* Content of "bos_token" and the like: a string or an object. */
static const char *config_token(const struct put *p, const char *name) {
    char key[32];
    snprintf(key, sizeof key, "%s_token", name);
    const json_t *v = json_object_get(p->config, key);
    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

static int64_t token_id(const struct put *p, const char *text) {
    return text ? hf_vocab_id(&p->v, text, strlen(text)) : -1;
}

/* From tokenizer_config.json, else from the ids in config.json (the first of a list). */
static int64_t special_id(const struct put *p, const char *name) {
    char key[32];
    int64_t id = token_id(p, config_token(p, name));
    if (id >= 0) return id;
    snprintf(key, sizeof key, "%s_token_id", name);
    const json_t *v = json_object_get(p->h->root, key);
    if (!v || json_is_null(v)) v = json_object_get(p->h->config, key);
    if (json_is_array(v)) v = json_array_get(v, 0);
    if (!json_is_integer(v)) return -1;
    id = json_integer_value(v);
    return id >= 0 && id < p->h->n_vocab ? id : -1;
}

/* The token that a template puts first, or last, around a single text; NULL: no special token. */
static const char *template_token(const json_t *node, bool last) {
    const char *type = json_string_value(json_object_get(node, "type"));
    if (type && strcmp(type, "Sequence") == 0) {
        size_t i;
        json_t *item;
        json_array_foreach(json_object_get(node, "processors"), i, item) {
            const char *t = template_token(item, last);
            if (t) return t;
        }
        return NULL;
    }
    if (type && strcmp(type, "BertProcessing") == 0)
        return json_string_value(json_array_get(json_object_get(node, last ? "sep" : "cls"), 0));
    if (type && strcmp(type, "RobertaProcessing") == 0)
        return json_string_value(json_array_get(json_object_get(node, last ? "sep" : "cls"), 0));
    const json_t *single = json_object_get(node, "single");
    size_t n = json_array_size(single);
    if (n < 2) return NULL;
    const json_t *at = json_array_get(single, last ? n - 1 : 0);
    return json_string_value(json_object_get(json_object_get(at, "SpecialToken"), "id"));
}

static void put_added(const struct put *p, const char *name, const char *key, bool last,
                      int64_t id) {
    char option[32];
    snprintf(option, sizeof option, "add_%s_token", name);
    const json_t *said = json_object_get(p->config, option);
    int64_t in_template = token_id(p, template_token(p->v.post_processor, last));
    bool in = id >= 0 && in_template == id;
    bool add = json_is_boolean(said) && !(p->h->embeds && last && in) ? json_is_true(said) : in;
    gguf_put_bool(p->w, key, add && id >= 0);
}

/* Further ids that end a generation: GGUF has keys for two in addition to the first. */
static void put_more_ends(const struct put *p, int64_t eos) {
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const json_t *list = json_object_get(p->generation, "eos_token_id");
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(list) && used < 2; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v)) continue;
        int64_t id = json_integer_value(v);
        if (id >= 0 && id < p->h->n_vocab && id != eos)
            gguf_put_u32(p->w, keys[used++], (uint32_t)id);
    }
}

/* Writes the sampling parameters that generation_config.json recommends, under llama.cpp's names. */
static void put_sampling(const struct put *p) {
    static const struct {
        const char *hf, *gguf;
        bool is_whole;
    } rows[] = {{"temperature", "temp", false},
                {"top_k", "top_k", true},
                {"top_p", "top_p", false},
                {"min_p", "min_p", false},
                {"repetition_penalty", "penalty_repeat", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *v = json_object_get(p->generation, rows[i].hf);
        double x = json_number_value(v);
        char key[64];
        snprintf(key, sizeof key, "general.sampling.%s", rows[i].gguf);
        if (!json_is_number(v) || !(x >= 0 && x <= INT32_MAX)) continue;
        if (rows[i].is_whole) gguf_put_i32(p->w, key, (int32_t)x);
        else gguf_put_f32(p->w, key, (float)x);
    }
}

static void put_specials(const struct put *p) {
    static const struct {
        const char *name, *key;
    } rows[] = {
        {"bos", "tokenizer.ggml.bos_token_id"},     {"eos", "tokenizer.ggml.eos_token_id"},
        {"unk", "tokenizer.ggml.unknown_token_id"}, {"sep", "tokenizer.ggml.seperator_token_id"},
        {"pad", "tokenizer.ggml.padding_token_id"}, {"cls", "tokenizer.ggml.cls_token_id"},
        {"mask", "tokenizer.ggml.mask_token_id"}};
    int64_t ids[7];
    for (int i = 0; i < 7; i++) ids[i] = special_id(p, rows[i].name);
    if (ids[2] < 0 && p->v.model != HF_BPE) ids[2] = p->v.unk_id;
    if (ids[0] < 0) ids[0] = ids[5]; /* an encoder's text starts with CLS and ends with SEP */
    if (ids[1] < 0) ids[1] = ids[3];
    /* The text of an embedding model or encoder begins and ends with the tokens that the tokenizer adds, whatever
     * config.json states about generation. */
    bool reads_whole = p->h->embeds || !p->h->hp->is_causal;
    int64_t first = token_id(p, template_token(p->v.post_processor, false));
    int64_t last = token_id(p, template_token(p->v.post_processor, true));
    if (reads_whole && first >= 0) ids[0] = first;
    if (reads_whole && last >= 0) ids[1] = last;
    for (int i = 0; i < 7; i++)
        if (ids[i] >= 0) gguf_put_u32(p->w, rows[i].key, (uint32_t)ids[i]);
    put_added(p, "bos", "tokenizer.ggml.add_bos_token", false, ids[0]);
    put_added(p, "eos", "tokenizer.ggml.add_eos_token", true, ids[1]);
    put_more_ends(p, ids[1]);
}

/* ---- chat templates ---- */

static int put_template_file(const struct put *p, bool *found, struct err *e) {
    size_t size = strlen(p->h->options->dir) + 32, n;
    char *path = mem_alloc(size), *text = NULL;
    int rc = path ? 0 : err_set(e, CHIMERE_ENOMEM, "chat template: out of memory");
    if (!rc) snprintf(path, size, "%s/chat_template.jinja", p->h->options->dir);
    *found = !rc && file_exists(path);
    if (*found) rc = file_read(path, TEMPLATE_MAX, &text, &n, e);
    if (*found && !rc) gguf_put_str(p->w, "tokenizer.chat_template", text, n);
    mem_free(text);
    mem_free(path);
    return rc;
}

/* A list of named templates: "default" gets the plain key, others a key with their name. */
static void put_named_template(const struct put *p, const json_t *item) {
    const char *name = json_string_value(json_object_get(item, "name"));
    const json_t *text = json_object_get(item, "template");
    char key[GGUF_MAX_NAME];
    if (!name || !json_is_string(text) || strlen(name) > 64) return;
    if (strcmp(name, "default") == 0) snprintf(key, sizeof key, "tokenizer.chat_template");
    else snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
    gguf_put_str(p->w, key, json_string_value(text), json_string_length(text));
}

static int put_templates(const struct put *p, struct err *e) {
    bool found;
    int rc = put_template_file(p, &found, e);
    if (rc || found) return rc;
    const json_t *t = json_object_get(p->config, "chat_template");
    size_t i;
    json_t *item;
    if (json_is_string(t))
        gguf_put_str(p->w, "tokenizer.chat_template", json_string_value(t), json_string_length(t));
    json_array_foreach(t, i, item) put_named_template(p, item);
    return 0;
}

/* ---- all ---- */

static int put_model(struct put *p, struct err *e) {
    static const char *const names[] = {
        [HF_BPE] = "gpt2", [HF_SPM] = "llama", [HF_UNIGRAM] = "t5", [HF_WORDPIECE] = "bert"};
    const char *name = names[p->v.model],
               *pre = p->h->options->pre ? p->h->options->pre : "default";
    int rc = 0;
    if (p->v.model == HF_BPE && !p->h->options->pre) rc = hf_pre_name(&p->v, &pre, e);
    if (rc) return rc;
    gguf_put_str(p->w, "tokenizer.ggml.model", name, strlen(name));
    gguf_put_str(p->w, "tokenizer.ggml.pre", pre, strlen(pre));
    rc = put_tokens(p, e);
    if (!rc && p->v.model == HF_BPE)
        gguf_put_strings(p->w, "tokenizer.ggml.merges", p->v.merges, p->v.n_merges);
    if (p->v.model == HF_SPM || p->v.model == HF_UNIGRAM) put_spaces(p);
    if (!rc && p->v.model == HF_UNIGRAM) rc = put_charsmap(p, e);
    if (p->v.model == HF_WORDPIECE) put_case(p, p->v.normalizer, 0);
    /* llama.cpp opens no encoder without it */
    if (!p->h->hp->is_causal)
        gguf_put_u32(p->w, "tokenizer.ggml.token_type_count",
                     p->h->n_token_type ? p->h->n_token_type : 1);
    return rc;
}

static int find_labels(struct hf *h, const struct hf_vocab *v, struct err *e) {
    static const char *const labels[] = {"yes", "no"};
    for (size_t i = 0; h->judges && i < 2; i++) {
        int64_t id = hf_vocab_id(v, labels[i], strlen(labels[i]));
        if (id < 0)
            return err_set(e, CHIMERE_EFORMAT, "%s/tokenizer.json: expected a token '%s'",
                           h->options->dir, labels[i]);
        h->labels[i] = (uint32_t)id;
    }
    return 0;
}

int hf_put_vocab(struct hf *h, struct gguf_writer *w, struct err *e) {
    struct put p = {.h = h, .w = w};
    const char *dir = h->options->dir;
    int rc = hf_vocab_read(&p.v, dir, e);
    if (!rc)
        rc = hf_read_json(dir, "tokenizer_config.json", TOKENIZER_CONFIG_MAX, false, &p.config, e);
    if (!rc)
        rc = hf_read_json(dir, "generation_config.json", TEMPLATE_MAX, false, &p.generation, e);
    if (!rc) rc = put_model(&p, e);
    if (!rc) rc = find_labels(h, &p.v, e);
    if (!rc) put_specials(&p);
    if (!rc) put_sampling(&p);
    if (!rc) rc = put_templates(&p, e);
    hf_vocab_fini(&p.v);
    json_decref(p.config);
    json_decref(p.generation);
    return rc;
}
