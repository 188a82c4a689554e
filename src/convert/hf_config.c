/* hf_config.c: config.json -> keys. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "convert/hf_impl.h"
#include "model/arch/arch_missing.h"

enum { CONFIG_MAX = 8 << 20 };

/* JSON has no infinity, but Python writes one ("time_step_limit": [0.0, Infinity]). It is replaced by a
 * number that is infinite as a float. */
static void tame_infinity(char *text, size_t n) {
    static const char word[] = "Infinity", number[] = "1e308   ";
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (in_string && text[i] == '\\') i++;
        else if (text[i] == '"') in_string = !in_string;
        else if (!in_string && n - i >= sizeof word - 1 && !memcmp(text + i, word, sizeof word - 1))
            memcpy(text + i, number, sizeof number - 1);
    }
}

int hf_read_json(const char *dir, const char *name, size_t max, bool required, json_t **out,
                 struct err *e) {
    *out = NULL;
    size_t size = strlen(dir) + strlen(name) + 2, n = 0;
    char *path = mem_alloc(size), *text = NULL;
    if (!path) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", dir);
    snprintf(path, size, "%s/%s", dir, name);
    int rc = 0;
    if (required || file_exists(path)) rc = file_read(path, max, &text, &n, e);
    if (!rc && text) {
        json_error_t why;
        int64_t shortages = mem_shortages();
        tame_infinity(text, n);
        *out = json_loadb(text, n, JSON_ALLOW_NUL, &why);
        /* "no limit" is often written as 10^30; then all numbers of the file are parsed as reals */
        if (!*out && json_error_code(&why) == json_error_numeric_overflow)
            *out = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
        if (mem_shortages() != shortages) /* the parser drops what it cannot allocate */
            rc = err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
        else if (!*out)
            rc = err_set(e, CHIMERE_EFORMAT, "%s: line %d: expected JSON, got: %s", path, why.line,
                         why.text);
    }
    mem_free(text);
    mem_free(path);
    return rc;
}

const json_t *hf_config_find(const json_t *config, const char *paths) {
    while (*paths) {
        size_t n = strcspn(paths, "|");
        const json_t *v = config;
        for (size_t at = 0; v && at <= n;) {
            size_t len = strcspn(paths + at, ".|");
            char key[64];
            if (len >= sizeof key) return NULL;
            memcpy(key, paths + at, len);
            key[len] = 0;
            v = json_object_get(v, key);
            at += len + 1;
        }
        if (v && !json_is_null(v)) return v;
        paths += n + (paths[n] == '|');
    }
    return NULL;
}

/* Quantization methods whose tensors hf_source.c reads. */
static int read_quantization(struct hf *h, struct err *e) {
    static const char *const known[] = {
        "fp8",   "fbgemm_fp8", "modelopt", "modelopt_fp4", "compressed-tensors",
        "mxfp4", "gptq",       "awq",      "bitsandbytes", "finegrained_fp8"};
    static const char paths[] = "quantization_config|compression_config";
    h->quantization = hf_config_find(h->config, paths);
    if (!h->quantization) h->quantization = hf_config_find(h->root, paths);
    if (!h->quantization) return 0;
    const char *method = json_string_value(json_object_get(h->quantization, "quant_method"));
    for (size_t i = 0; method && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(method, known[i]) == 0) return 0;
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "%s/config.json: quantization_config.quant_method: '%s' is not a form we read",
                   h->options->dir, method ? method : "(none)");
}

static const struct arch_missing *find_missing(const struct hf *h, const char *inner,
                                               const char *outer) {
    const struct arch_missing *m = NULL;
    if (inner) m = arch_missing_find((struct slice){inner, strlen(inner)}, h->config);
    if (!m && outer) m = arch_missing_find((struct slice){outer, strlen(outer)}, h->config);
    return m;
}

int hf_read_config(struct hf *h, struct err *e) {
    int rc = hf_read_json(h->options->dir, "config.json", CONFIG_MAX, true, &h->root, e);
    if (rc) return rc;
    json_t *text = json_object_get(h->root, "text_config");
    h->config = json_is_object(text) ? text : h->root;
    const char *outer = json_string_value(json_object_get(h->root, "model_type"));
    const char *inner = json_string_value(json_object_get(h->config, "model_type"));
    if (inner) h->arch = arch_find_hf(inner, h->config);
    if (!h->arch && outer) h->arch = arch_find_hf(outer, h->config);
    h->is_drafter = h->arch && arch_is_drafter(h->arch);
    const char *name = inner ? inner : outer ? outer : "(none)";
    const struct arch_missing *missing = find_missing(h, inner, outer);
    if (missing)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "%s/config.json: model_type: '%s' is not a family we convert: %s needs %s; "
                       "README.md lists all such families",
                       h->options->dir, name, missing->title, missing->lacks);
    if (h->arch) return read_quantization(h, e);
    err_set(e, CHIMERE_EUNSUPPORTED, "%s/config.json: model_type: '%s' is not a family we convert",
            h->options->dir, name);
    char list[140] = "known:";
    for (const struct arch *const *a = arch_table; *a; a++)
        for (const char *const *t = (*a)->hf_model_types; *t; t++) {
            size_t n = strlen(list);
            snprintf(list + n, sizeof list - n, " %s", *t);
        }
    err_hint(e, "%s", list);
    return CHIMERE_EUNSUPPORTED;
}

static int bad_key(const struct hf *h, const struct key_row *k, const char *expected,
                   struct err *e) {
    return err_set(e, CHIMERE_EFORMAT, "%s/config.json: %s: expected %s", h->options->dir, k->hf,
                   expected);
}

static bool is_u32(const json_t *v) {
    return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= UINT32_MAX;
}

static int put_u32_array(const struct hf *h, struct gguf_writer *w, const struct key_row *k,
                         const char *key, const json_t *v, struct err *e) {
    uint32_t items[ARCH_MAX_LAYERS];
    size_t n = json_array_size(v);
    if (n == 0 || n > ARCH_MAX_LAYERS) return bad_key(h, k, "a list of 1 to 512 numbers", e);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(v, i);
        if (!is_u32(item)) return bad_key(h, k, "whole numbers below 2^32", e);
        items[i] = (uint32_t)json_integer_value(item);
    }
    gguf_put_array(w, key, GGUF_U32, items, n);
    return 0;
}

static int put_key(const struct hf *h, struct gguf_writer *w, const struct key_row *k,
                   struct err *e) {
    char key[GGUF_MAX_NAME];
    snprintf(key, sizeof key, "%s.%s", h->arch->name, k->gguf);
    const json_t *v = hf_config_find(h->config, k->hf);
    if (!v && k->required) return bad_key(h, k, "a value, got none", e);
    if (!v && isnan(k->def)) return 0;
    switch (k->type) {
    case KEY_U32:
        if (v && !is_u32(v)) return bad_key(h, k, "a whole number below 2^32", e);
        gguf_put_u32(w, key, v ? (uint32_t)json_integer_value(v) : (uint32_t)k->def);
        return 0;
    case KEY_F32:
        if (v && !json_is_number(v)) return bad_key(h, k, "a number", e);
        gguf_put_f32(w, key, v ? (float)json_number_value(v) : (float)k->def);
        return 0;
    case KEY_BOOL:
        if (v && !json_is_boolean(v)) return bad_key(h, k, "true or false", e);
        gguf_put_bool(w, key, v ? json_is_true(v) : k->def != 0);
        return 0;
    case KEY_U32_ARRAY: return v ? put_u32_array(h, w, k, key, v, e) : 0;
    }
    return 0;
}

/* YaRN's factor of sines and cosines, if config.json sets it; 0: the usual factor. */
static double yarn_magnitude(const json_t *rope, double factor) {
    const json_t *v = hf_config_find(rope, "attention_factor|attn_factor");
    if (json_is_number(v)) return json_number_value(v);
    const json_t *one = json_object_get(rope, "mscale"),
                 *all = json_object_get(rope, "mscale_all_dim");
    if (!(json_number_value(one) > 0) || !(json_number_value(all) > 0) || factor <= 1) return 0;
    return (0.1 * json_number_value(one) * log(factor) + 1) /
           (0.1 * json_number_value(all) * log(factor) + 1);
}

static void put_yarn(const struct hf *h, struct gguf_writer *w, const json_t *rope) {
    static const struct {
        const char *hf, *gguf;
    } betas[] = {{"beta_fast", "yarn_beta_fast"}, {"beta_slow", "yarn_beta_slow"}};
    char key[GGUF_MAX_NAME];
    for (size_t i = 0; i < sizeof betas / sizeof betas[0]; i++) {
        const json_t *v = json_object_get(rope, betas[i].hf);
        if (!json_is_number(v)) continue;
        snprintf(key, sizeof key, "%s.rope.scaling.%s", h->arch->name, betas[i].gguf);
        gguf_put_f32(w, key, (float)json_number_value(v));
    }
    snprintf(key, sizeof key, "%s.rope.scaling.yarn_truncate", h->arch->name);
    gguf_put_bool(w, key, !json_is_false(json_object_get(rope, "truncate")));
    if (h->arch->scales_scores) { /* llama.cpp's key has a tenth of mscale_all_dim */
        snprintf(key, sizeof key, "%s.rope.scaling.yarn_log_multiplier", h->arch->name);
        gguf_put_f32(w, key,
                     (float)(0.1 * json_number_value(json_object_get(rope, "mscale_all_dim"))));
        return;
    }
    /* readers multiply this by 0.1 ln(factor) + 1 */
    double factor = json_number_value(json_object_get(rope, "factor"));
    double magnitude = yarn_magnitude(rope, factor);
    if (magnitude > 0 && factor > 0) {
        snprintf(key, sizeof key, "%s.rope.scaling.attn_factor", h->arch->name);
        gguf_put_f32(w, key, (float)(magnitude / (0.1 * log(factor) + 1)));
    }
}

/* Scaling of positions has the same form in all families. Those of Llama 3 and Gemma 4 are a tensor: hf_tensor.c. */
static int put_rope_scaling(const struct hf *h, struct gguf_writer *w, struct err *e) {
    char key[GGUF_MAX_NAME];
    const json_t *rope =
        hf_config_find(h->config, "rope_parameters.full_attention|rope_scaling|rope_parameters");
    const char *type = json_string_value(hf_config_find(rope, "rope_type|type"));
    if (!type || !strcmp(type, "default") || !strcmp(type, "llama3") || !strcmp(type, "mrope") ||
        !strcmp(type, "proportional"))
        return 0;
    if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
        return err_set(
            e, CHIMERE_EUNSUPPORTED,
            "%s/config.json: rope_type: expected default, linear, yarn or llama3, got '%s'",
            h->options->dir, type);
    snprintf(key, sizeof key, "%s.rope.scaling.type", h->arch->name);
    gguf_put_str(w, key, type, strlen(type));
    const json_t *v = json_object_get(rope, "factor");
    snprintf(key, sizeof key, "%s.rope.scaling.factor", h->arch->name);
    if (json_is_number(v)) gguf_put_f32(w, key, (float)json_number_value(v));
    v = json_object_get(rope, "original_max_position_embeddings");
    if (is_u32(v)) {
        snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", h->arch->name);
        gguf_put_u32(w, key, (uint32_t)json_integer_value(v));
    }
    if (strcmp(type, "yarn") == 0) put_yarn(h, w, rope);
    return 0;
}

/* Writes the limits of Mamba-2's time step, unless they are trivial. */
static void put_time_step_limit(const struct hf *h, struct gguf_writer *w) {
    static const char *const names[] = {"min", "max"};
    const json_t *limit = json_object_get(h->config, "time_step_limit");
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_array_get(limit, i);
        double x = json_number_value(v);
        if (!json_is_number(v) || (i ? x > 1e30 : x <= 0)) continue;
        char key[GGUF_MAX_NAME];
        snprintf(key, sizeof key, "%s.ssm.time_step_%s", h->arch->name, names[i]);
        gguf_put_f32(w, key, (float)x);
    }
}

/* Reads the pooling of a sentence-transformers folder. Older files have a boolean per mode, newer ones a name. */
static int read_pooling(const json_t *pooling, int *kind, struct err *e) {
    static const struct {
        const char *flag, *name;
        enum pooling kind;
    } modes[] = {{"pooling_mode_mean_tokens", "mean", POOL_MEAN},
                 {"pooling_mode_cls_token", "cls", POOL_CLS},
                 {"pooling_mode_lasttoken", "lasttoken", POOL_LAST}};
    const size_t n_mode = sizeof modes / sizeof modes[0];
    const char *name = json_string_value(json_object_get(pooling, "pooling_mode")), *key;
    json_t *v;
    json_object_foreach((json_t *)pooling, key, v) {
        size_t i = 0;
        if (!str_starts(key, "pooling_mode_") || !json_is_true(v)) continue;
        while (i < n_mode && strcmp(key, modes[i].flag) != 0) i++;
        if (i == n_mode || *kind >= 0)
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "1_Pooling/config.json: expected one of mean, cls and lasttoken, got %s",
                           key);
        *kind = (int)modes[i].kind;
    }
    for (size_t i = 0; name && i < n_mode; i++)
        if (strcmp(name, modes[i].name) == 0) *kind = (int)modes[i].kind;
    if (name && *kind < 0)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "1_Pooling/config.json: pooling_mode: expected mean, cls or lasttoken, got "
                       "'%s'",
                       name);
    return 0;
}

/* Qwen3-Reranker has the configuration of a chat model. Its README names it. */
static int find_judge(struct hf *h, struct err *e) {
    static const char name[] = "Qwen3-Reranker";
    const char *dir = h->options->dir;
    size_t size = strlen(dir) + sizeof "/README.md", n = 0;
    char *path = mem_alloc(size), *text = NULL;
    if (!path) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", dir);
    snprintf(path, size, "%s/README.md", dir);
    int rc = 0;
    if (strcmp(h->arch->name, "qwen3") == 0 && file_exists(path))
        rc = file_read(path, CONFIG_MAX, &text, &n, e);
    h->judges = false;
    for (size_t i = 0; text && !h->judges && i + sizeof name - 1 <= n; i++)
        h->judges = memcmp(text + i, name, sizeof name - 1) == 0;
    mem_free(text);
    mem_free(path);
    return rc;
}

/* Keys of such a model. Its classifier is two rows of the head: TF_LABEL_ROWS. */
static void put_judge(const struct hf *h, struct gguf_writer *w) {
    static const struct slice labels[] = {{"yes", 3}, {"no", 2}};
    static const char form[] =
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        "and the Instruct provided. Note that the answer can only be \"yes\" or \"no\"."
        "<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant "
        "passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n";
    char key[GGUF_MAX_NAME];
    snprintf(key, sizeof key, "%s.pooling_type", h->arch->name);
    gguf_put_u32(w, key, POOL_RANK);
    snprintf(key, sizeof key, "%s.classifier.output_labels", h->arch->name);
    gguf_put_strings(w, key, labels, 2);
    gguf_put_str(w, "tokenizer.chat_template.rerank", form, sizeof form - 1);
}

static int put_pooling(struct hf *h, struct gguf_writer *w, struct err *e) {
    json_t *pooling;
    int kind = -1;
    hf_put_dense(h, w);
    int rc = hf_read_json(h->options->dir, "1_Pooling/config.json", CONFIG_MAX, false, &pooling, e);
    if (!rc && !pooling) rc = find_judge(h, e);
    if (!rc && h->judges) put_judge(h, w);
    if (rc || !pooling) return rc;
    rc = read_pooling(pooling, &kind, e);
    json_decref(pooling);
    char key[GGUF_MAX_NAME];
    snprintf(key, sizeof key, "%s.pooling_type", h->arch->name);
    if (!rc && kind >= 0) gguf_put_u32(w, key, (uint32_t)kind);
    h->embeds = kind >= 0;
    return rc;
}

static void put_general(const struct hf *h, struct gguf_writer *w) {
    gguf_put_str(w, "general.architecture", h->arch->name, strlen(h->arch->name));
    gguf_put_str(w, "general.type", "model", 5);
    if (h->mix) gguf_put_u32(w, "general.file_type", quantize_mix_file_type(h->mix));
    gguf_put_u32(w, "general.quantization_version", 2);
}

int hf_put_keys(struct hf *h, struct gguf_writer *w, struct err *e) {
    put_general(h, w);
    int rc = 0;
    for (const struct key_row *k = h->arch->keys; !rc && k->gguf; k++) rc = put_key(h, w, k, e);
    if (!rc) rc = put_rope_scaling(h, w, e);
    if (!rc) put_time_step_limit(h, w);
    if (!rc && h->arch->derive) rc = h->arch->derive(h->config, w, e);
    if (!rc) rc = put_pooling(h, w, e);
    char key[GGUF_MAX_NAME];
    snprintf(key, sizeof key, "%s.vocab_size", h->arch->name);
    gguf_put_u32(w, key, h->n_vocab);
    return rc;
}
