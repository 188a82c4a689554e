/* hf_ranked.c: vocabularies that list byte strings by rank, without merges: tekken.json and tiktoken files.
 *
 * GGUF files contain merges. Encoding joins any two adjacent byte strings whose concatenation is in the vocabulary,
 * lowest rank first. So every split of every token into two tokens is a merge with that token's rank. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "convert/hf_vocab_impl.h"
#include "text/tok/tok.h"

enum { FILE_MAX = 128 << 20, CONFIG_MAX = 64 << 20, TOKEN_MAX = 512, SPECIAL_MAX = 65536 };

struct ranked {
    struct hf_reader r;
    struct slice *tokens; /* owned [n]: bytes by rank, in the arena; p NULL: no token */
    uint32_t n, cap;
    struct map ranks; /* bytes -> rank */
};

/* ---- tokens by rank ---- */

static int add_token(struct ranked *x, uint64_t rank, struct slice base64) {
    size_t n;
    if (rank >= ARCH_MAX_VOCAB || base64.n > 2 * TOKEN_MAX)
        return err_set(x->r.e, CHIMERE_ELIMIT,
                       "%s: rank %" PRIu64 ": expected ranks below %d and "
                       "at most %d bytes per token",
                       x->r.path, rank, ARCH_MAX_VOCAB, TOKEN_MAX);
    char *p = arena_alloc(&x->r.v->text, base64.n + 1);
    if (!p) return hf_no_memory(&x->r);
    if (!str_base64(base64, p, &n) || !n || n > TOKEN_MAX)
        return err_set(x->r.e, CHIMERE_EFORMAT,
                       "%s: rank %" PRIu64 ": expected base64 of 1 to %d bytes", x->r.path, rank,
                       TOKEN_MAX);
    if (rank >= x->cap) {
        uint32_t cap = x->cap ? x->cap : 65536;
        while (cap <= rank) cap *= 2;
        struct slice *grown = mem_realloc(x->tokens, cap * sizeof *grown);
        if (!grown) return hf_no_memory(&x->r);
        memset(grown + x->cap, 0, (cap - x->cap) * sizeof *grown);
        x->tokens = grown;
        x->cap = cap;
    }
    if (x->tokens[rank].p)
        return err_set(x->r.e, CHIMERE_EFORMAT, "%s: rank %" PRIu64 ": expected once, got twice",
                       x->r.path, rank);
    x->tokens[rank] = (struct slice){p, n};
    if (rank >= x->n) x->n = (uint32_t)rank + 1;
    int rc = map_put(&x->ranks, p, n, (uint32_t)rank);
    if (rc == 1)
        return err_set(x->r.e, CHIMERE_EFORMAT,
                       "%s: rank %" PRIu64 ": its bytes have another rank too", x->r.path, rank);
    return rc < 0 ? hf_no_memory(&x->r) : 0;
}

/* Bytes as in files of byte-level vocabularies: each byte as a visible character. */
static size_t put_visible(struct slice bytes, char *out) {
    char *o = out;
    for (size_t i = 0; i < bytes.n; i++) {
        unsigned b = (unsigned char)bytes.p[i], c = b;
        if (b <= 0x20) c = 0x100 + b;
        else if (b >= 0x7f && b <= 0xa0) c = 0x121 + b - 0x7f;
        else if (b == 0xad) c = 0x143;
        if (c < 0x80) {
            *o++ = (char)c;
        } else {
            *o++ = (char)(0xc0 | c >> 6);
            *o++ = (char)(0x80 | (c & 0x3f));
        }
    }
    return (size_t)(o - out);
}

struct cut {
    uint32_t left, right; /* ranks */
};

static int by_rank(const void *a, const void *b) {
    const struct cut *x = a, *y = b;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

/* Adds all merges that produce the token of this rank. */
static int add_merges(const struct ranked *x, uint32_t rank) {
    struct slice t = x->tokens[rank];
    struct cut cuts[TOKEN_MAX];
    size_t n_cut = 0;
    for (size_t i = 1; i < t.n; i++) {
        struct cut c;
        if (map_find(&x->ranks, t.p, i, &c.left) && map_find(&x->ranks, t.p + i, t.n - i, &c.right))
            cuts[n_cut++] = c;
    }
    qsort(cuts, n_cut, sizeof *cuts, by_rank);
    for (size_t i = 0; i < n_cut; i++) {
        struct slice left = x->tokens[cuts[i].left], right = x->tokens[cuts[i].right];
        char *p = arena_alloc(&x->r.v->text, 2 * t.n + 2);
        if (!p) return hf_no_memory(&x->r);
        size_t n = put_visible(left, p);
        p[n++] = ' ';
        n += put_visible(right, p + n);
        int rc = hf_vocab_merge(&x->r, (struct slice){p, n});
        if (rc) return rc;
    }
    return 0;
}

/* Tokens of rank below n get the ids from `first` on. */
static int take_tokens(struct ranked *x, uint64_t first, uint32_t n) {
    int rc = 0;
    for (uint32_t i = 0; i < n && i < x->n && !rc; i++) {
        if (!x->tokens[i].p) continue;
        char *p = arena_alloc(&x->r.v->text, 2 * x->tokens[i].n + 1);
        if (!p) return hf_no_memory(&x->r);
        struct slice text = {p, put_visible(x->tokens[i], p)};
        rc = hf_vocab_put(&x->r, first + i, text, TOK_NORMAL);
        if (!rc) rc = add_merges(x, i);
    }
    if (!rc && !x->n)
        rc = err_set(x->r.e, CHIMERE_EFORMAT, "%s: expected tokens, got none", x->r.path);
    return rc;
}

/* ---- tekken.json ---- */

/* Meanings of the first ids in files without a list of special tokens. */
static const char *const first_specials[] = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]",
                                             "[SYSTEM_PROMPT]",
                                             "[/SYSTEM_PROMPT]",
                                             "[TOOL_CONTENT]"};

static int add_special(const struct ranked *x, uint64_t id, const char *text, bool control) {
    char name[32];
    if (!text) snprintf(name, sizeof name, "<SPECIAL_%" PRIu64 ">", id);
    size_t n = strlen(text ? text : name);
    char *p = arena_alloc(&x->r.v->text, n + 1);
    if (!p) return hf_no_memory(&x->r);
    memcpy(p, text ? text : name, n + 1);
    return hf_vocab_put(&x->r, id, (struct slice){p, n}, control ? TOK_CONTROL : TOK_USER_DEFINED);
}

static int add_specials(const struct ranked *x, const json_t *list, uint64_t n) {
    static const size_t n_first = sizeof first_specials / sizeof *first_specials;
    size_t i;
    const json_t *item;
    int rc = 0;
    for (uint64_t id = 0; id < n && !rc; id++)
        rc = add_special(x, id, !list && id < n_first ? first_specials[id] : NULL, true);
    json_array_foreach(list, i, item) {
        const json_t *rank = json_object_get(item, "rank"),
                     *control = json_object_get(item, "is_control");
        const json_t *own = json_object_get(item, "token_str");
        const char *text = json_string_value(own);
        if (rc) break;
        if (!text || strlen(text) != json_string_length(own) || !json_is_integer(rank) ||
            json_integer_value(rank) < 0 || (uint64_t)json_integer_value(rank) >= n)
            return err_set(x->r.e, CHIMERE_EFORMAT,
                           "%s: special_tokens[%zu]: expected token_str and a rank below %" PRIu64,
                           x->r.path, i, n);
        rc = add_special(x, (uint64_t)json_integer_value(rank), text, !json_is_false(control));
    }
    return rc;
}

/* [{"rank": 0, "token_bytes": "AA=="}, ...] */
static int read_tekken_tokens(struct ranked *x, struct slice raw) {
    struct json_scan s;
    bool first = true;
    int rc = 0;
    json_scan_init(&s, raw.p, raw.n);
    json_open(&s, '[');
    while (!rc && json_more(&s, ']', &first)) {
        bool in_first = true;
        struct slice key, bytes = {NULL, 0};
        uint64_t rank = UINT64_MAX;
        json_open(&s, '{');
        while (json_more(&s, '}', &in_first) && json_key(&s, &key)) {
            if (key.n == 4 && !memcmp(key.p, "rank", 4)) json_u64(&s, &rank);
            else if (key.n == 11 && !memcmp(key.p, "token_bytes", 11)) json_raw_string(&s, &bytes);
            else json_skip(&s);
        }
        if (!s.expected) rc = add_token(x, rank, bytes);
    }
    return !rc && s.expected ? hf_bad(&x->r, &s) : rc;
}

static int read_tekken(struct ranked *x, const char *text, size_t size) {
    json_t *config = NULL, *special = NULL;
    struct slice vocab = {NULL, 0}, settings = vocab, list = vocab;
    const struct hf_wanted wanted[] = {
        {"vocab", &vocab}, {"config", &settings}, {"special_tokens", &list}, {NULL, NULL}};
    int rc = hf_collect(&x->r, (struct slice){text, size}, wanted);
    if (!rc && vocab.n) rc = read_tekken_tokens(x, vocab);
    if (!rc) rc = hf_load_tree(&x->r, settings, &config);
    if (!rc) rc = hf_load_tree(&x->r, list, &special);
    json_int_t n = json_integer_value(json_object_get(config, "default_vocab_size")),
               n_special =
                   json_integer_value(json_object_get(config, "default_num_special_tokens"));
    if (!rc && (n_special < 3 || n_special > SPECIAL_MAX || n <= n_special || n > ARCH_MAX_VOCAB))
        rc = err_set(
            x->r.e, CHIMERE_EFORMAT,
            "%s: config: expected default_vocab_size above default_num_special_tokens, 3 to %d",
            x->r.path, SPECIAL_MAX);
    if (!rc) rc = add_specials(x, special, (uint64_t)n_special);
    if (!rc) rc = take_tokens(x, (uint64_t)n_special, (uint32_t)(n - n_special));
    /* a text starts with <s>; nothing is appended */
    x->r.v->post_processor = json_pack("{s:[{s:{s:s}},{s:{s:s}}]}", "single", "SpecialToken", "id",
                                       "<s>", "Sequence", "id", "A");
    x->r.v->pre = "tekken";
    json_decref(config);
    json_decref(special);
    return rc;
}

/* ---- tiktoken: one line per token, base64 and rank ---- */

static bool is_tiktoken(const char *text, size_t n) {
    size_t i = 0;
    while (i < n && i < 2 * TOKEN_MAX && text[i] > ' ' && text[i] < 0x7f) i++;
    size_t digits = i + 1;
    while (digits < n && text[digits] >= '0' && text[digits] <= '9') digits++;
    return i && i < n && text[i] == ' ' && digits > i + 1 &&
           (digits == n || text[digits] == '\n' || text[digits] == '\r');
}

static int read_lines(struct ranked *x, const char *text, size_t n) {
    const char *p = text, *end = text + n;
    int rc = 0;
    while (p < end && !rc) {
        const char *line = memchr(p, '\n', (size_t)(end - p)), *stop = line ? line : end;
        const char *space = memchr(p, ' ', (size_t)(stop - p));
        char *after;
        if (stop > p && stop[-1] != '\r' ? !space : stop - p > 1 && !space)
            return err_set(x->r.e, CHIMERE_EFORMAT, "%s: byte %zu: expected base64 and a rank",
                           x->r.path, (size_t)(p - text));
        if (space) {
            unsigned long long rank = strtoull(space + 1, &after, 10); /* text ends with a NUL */
            if (after == space + 1 || (after < stop && *after != '\r'))
                return err_set(x->r.e, CHIMERE_EFORMAT, "%s: byte %zu: expected a rank", x->r.path,
                               (size_t)(space + 1 - text));
            rc = add_token(x, rank, (struct slice){p, (size_t)(space - p)});
        }
        p = stop + 1;
    }
    return rc;
}

/* The splitting expression is in the model's program; the family determines which one. */
static const char *pre_of(const char *model_type) {
    static const char *const rows[][2] = {{"kimi", "kimi-k2"},
                                          {"llama", "llama-bpe"},
                                          {"chatglm", "chatglm-bpe"},
                                          {"glm", "glm4"},
                                          {"qwen", "qwen2"}};
    for (size_t i = 0; model_type && i < sizeof rows / sizeof *rows; i++)
        if (strncmp(model_type, rows[i][0], strlen(rows[i][0])) == 0) return rows[i][1];
    return NULL;
}

static int read_tiktoken(struct ranked *x, const char *dir, const char *text, size_t n) {
    json_t *model = NULL, *config = NULL, *item;
    const char *id;
    int rc = read_lines(x, text, n);
    if (!rc) rc = take_tokens(x, 0, x->n);
    if (!rc) rc = hf_read_json(dir, "config.json", CONFIG_MAX, false, &model, x->r.e);
    if (!rc) rc = hf_read_json(dir, "tokenizer_config.json", CONFIG_MAX, false, &config, x->r.e);
    x->r.v->pre = pre_of(json_string_value(json_object_get(model, "model_type")));
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), id, item) {
        char *after;
        unsigned long long at = strtoull(id, &after, 10);
        const char *content = json_string_value(json_object_get(item, "content"));
        if (rc) break;
        if (!content || *after || after == id)
            rc = err_set(
                x->r.e, CHIMERE_EFORMAT,
                "%s/tokenizer_config.json: added_tokens_decoder: expected ids with content", dir);
        if (!rc) rc = add_special(x, at, content, json_is_true(json_object_get(item, "special")));
    }
    json_decref(model);
    json_decref(config);
    return rc;
}

/* ---- choice of the file ---- */

int hf_ranked_parse(struct hf_vocab *v, const char *dir, const char *text, size_t n,
                    const char *name, struct err *e) {
    struct ranked x = {.r = {v, name, e}};
    bool is_json = n && text[0] == '{';
    map_init(&x.ranks, FILE_MAX);
    hf_vocab_init(v);
    v->model = HF_BPE;
    v->ignore_merges = true;
    int rc = is_json                ? read_tekken(&x, text, n)
             : is_tiktoken(text, n) ? read_tiktoken(&x, dir, text, n)
                                    : err_set(e, CHIMERE_EUNSUPPORTED,
                                              "%s: expected tekken.json or tiktoken's lines", name);
    map_fini(&x.ranks);
    mem_free(x.tokens);
    return rc;
}

int hf_ranked_read(struct hf_vocab *v, const char *dir, struct err *e) {
    static const char *const names[] = {"tekken.json", "tiktoken.model", "qwen.tiktoken",
                                        "tokenizer.model"};
    size_t size = strlen(dir) + 32, n;
    char *path = mem_alloc(size), *text = NULL;
    int rc = CHIMERE_ENOENT;
    if (!path) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", dir);
    for (size_t i = 0; i < sizeof names / sizeof *names && rc == CHIMERE_ENOENT; i++) {
        snprintf(path, size, "%s/%s", dir, names[i]);
        if (!file_exists(path)) continue;
        rc = file_read(path, FILE_MAX, &text, &n, e);
        if (!rc) rc = hf_ranked_parse(v, dir, text, n, path, e);
    }
    mem_free(text);
    mem_free(path);
    return rc;
}
