/* hf_tokens.c: converts tokenizer.json to arrays.
 *
 * The file may have tens of megabytes, nearly all of it vocabulary and merges. These are scanned into their arrays
 * without building a tree; the few small members that control text processing are parsed with jansson. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "convert/hf_vocab_impl.h"
#include "format/json_scan.h"
#include "text/tok/tok.h"

enum { TOKENIZER_MAX = 256 << 20, TREE_MAX = 32 << 20, MERGES_MAX = GGUF_MAX_STRINGS };

/* Raw texts of the members that are used. */
struct members {
    struct slice added, normalizer, pre_tokenizer, post_processor; /* of the file */
    struct slice type, vocab, merges, unk_token, unk_id, byte_fallback,
        ignore_merges; /* of model */
};

int hf_bad(const struct hf_reader *r, const struct json_scan *s) {
    return err_set(r->e, CHIMERE_EFORMAT, "%s: byte %zu: expected %s", r->path,
                   (size_t)(s->p - s->start), s->expected ? s->expected : "a value");
}

int hf_no_memory(const struct hf_reader *r) {
    return err_set(r->e, CHIMERE_ENOMEM, "%s: out of memory", r->path);
}

int hf_collect(const struct hf_reader *r, struct slice raw, const struct hf_wanted *list) {
    struct json_scan s;
    struct slice key;
    bool first = true;
    json_scan_init(&s, raw.p ? raw.p : "", raw.n);
    json_open(&s, '{');
    while (json_more(&s, '}', &first) && json_key(&s, &key)) {
        json_peek(&s);
        const char *begin = s.p;
        if (!json_skip(&s)) break;
        for (const struct hf_wanted *w = list; w->name; w++)
            if (key.n == strlen(w->name) && memcmp(key.p, w->name, key.n) == 0)
                *w->to = (struct slice){begin, (size_t)(s.p - begin)};
    }
    return s.expected || !json_end(&s) ? hf_bad(r, &s) : 0;
}

static bool is_text(struct slice raw, const char *text) {
    return raw.n == strlen(text) && memcmp(raw.p, text, raw.n) == 0;
}

/* ---- growing arrays ---- */

static int need_ids(const struct hf_reader *r, uint64_t n) {
    struct hf_vocab *v = r->v;
    if (n > ARCH_MAX_VOCAB)
        return err_set(r->e, CHIMERE_ELIMIT, "%s: vocabulary: expected ids below %d, got %" PRIu64,
                       r->path, ARCH_MAX_VOCAB, n - 1);
    if (n > v->cap) {
        uint32_t cap = v->cap ? v->cap : 32768;
        while (cap < n) cap *= 2;
        struct slice *pieces = mem_alloc_array(cap, sizeof *pieces);
        int32_t *kinds = mem_alloc_array(cap, sizeof *kinds);
        float *scores = mem_alloc_array(cap, sizeof *scores);
        if (!pieces || !kinds || !scores) {
            mem_free(pieces);
            mem_free(kinds);
            mem_free(scores);
            return hf_no_memory(r);
        }
        if (v->n) {
            memcpy(pieces, v->pieces, v->n * sizeof *pieces);
            memcpy(kinds, v->kinds, v->n * sizeof *kinds);
            memcpy(scores, v->scores, v->n * sizeof *scores);
        }
        mem_free(v->pieces);
        mem_free(v->kinds);
        mem_free(v->scores);
        v->pieces = pieces;
        v->kinds = kinds;
        v->scores = scores;
        v->cap = cap;
    }
    if (n > v->n) v->n = (uint32_t)n;
    return 0;
}

/* Copies the text of a raw JSON string to the arena. */
static int keep(const struct hf_reader *r, struct slice raw, struct slice *out) {
    size_t n;
    char *p = arena_alloc(&r->v->text, raw.n + 1);
    if (!p) return hf_no_memory(r);
    if (!json_unescape(raw, p, &n))
        return err_set(r->e, CHIMERE_EFORMAT, "%s: expected text, got a lone surrogate", r->path);
    *out = (struct slice){p, n};
    return 0;
}

int hf_vocab_put(const struct hf_reader *r, uint64_t id, struct slice text, int32_t kind) {
    int rc = need_ids(r, id + 1);
    if (rc) return rc;
    r->v->pieces[id] = text;
    r->v->kinds[id] = kind;
    rc = map_put(&r->v->ids, text.p, text.n, (uint32_t)id);
    return rc < 0 ? hf_no_memory(r) : 0;
}

/* ---- vocabulary and merges ---- */

/* {"piece": id, ...} */
static int read_vocab_object(const struct hf_reader *r, struct json_scan *s) {
    bool first = true;
    int rc = 0;
    json_open(s, '{');
    while (!rc && json_more(s, '}', &first)) {
        struct slice raw, text = {NULL, 0};
        uint64_t id;
        if (!json_key(s, &raw) || !json_u64(s, &id)) break;
        rc = keep(r, raw, &text);
        if (!rc && id < r->v->n && r->v->kinds[id])
            rc = err_set(r->e, CHIMERE_EFORMAT,
                         "%s: vocabulary: id %" PRIu64 ": expected once, got twice", r->path, id);
        if (!rc) rc = hf_vocab_put(r, id, text, TOK_NORMAL);
    }
    return rc;
}

/* [["piece", score], ...] */
static int read_vocab_list(const struct hf_reader *r, struct json_scan *s) {
    bool first = true;
    int rc = 0;
    json_open(s, '[');
    for (uint64_t id = 0; !rc && json_more(s, ']', &first); id++) {
        bool in_first = true;
        struct slice raw, text = {NULL, 0};
        if (!json_open(s, '[') || !json_more(s, ']', &in_first) || !json_raw_string(s, &raw) ||
            !json_more(s, ']', &in_first))
            break;
        json_peek(s);
        const char *number = s->p;
        if (!json_skip(s) || json_more(s, ']', &in_first)) break;
        rc = keep(r, raw, &text);
        if (!rc) rc = hf_vocab_put(r, id, text, TOK_NORMAL);
        if (!rc) r->v->scores[id] = strtof(number, NULL); /* strtof stops at the bracket */
    }
    return rc;
}

int hf_vocab_merge(const struct hf_reader *r, struct slice text) {
    struct hf_vocab *v = r->v;
    if (v->n_merges == MERGES_MAX)
        return err_set(r->e, CHIMERE_ELIMIT, "%s: merges: expected at most %d, got more", r->path,
                       MERGES_MAX);
    if (v->n_merges == v->cap_merges) {
        size_t cap = v->cap_merges ? v->cap_merges * 2 : 65536;
        struct slice *grown = mem_realloc(v->merges, cap * sizeof *grown);
        if (!grown) return hf_no_memory(r);
        v->merges = grown;
        v->cap_merges = cap;
    }
    v->merges[v->n_merges++] = text;
    return 0;
}

/* Spaces inside the halves of a merge would be ambiguous: they become U+0120, as in GGUF files. */
static int join_pair(const struct hf_reader *r, struct slice a, struct slice b, struct slice *out) {
    struct slice left = {NULL, 0}, right = left;
    int rc = keep(r, a, &left);
    if (!rc) rc = keep(r, b, &right);
    if (rc) return rc;
    char *p = arena_alloc(&r->v->text, (left.n + right.n) * 2 + 1), *o = p;
    if (!p) return hf_no_memory(r);
    for (int half = 0; half < 2; half++) {
        struct slice s = half ? right : left;
        if (half) *o++ = ' ';
        for (size_t i = 0; i < s.n; i++) {
            if (s.p[i] == ' ') *o++ = '\xc4';
            *o++ = s.p[i] == ' ' ? '\xa0' : s.p[i];
        }
    }
    *out = (struct slice){p, (size_t)(o - p)};
    return 0;
}

/* ["a b", ...] or [["a", "b"], ...] */
static int read_merges(const struct hf_reader *r, struct json_scan *s) {
    bool first = true;
    int rc = 0;
    json_open(s, '[');
    while (!rc && json_more(s, ']', &first)) {
        struct slice a, b, text = {NULL, 0};
        if (json_peek(s) == '"') {
            if (!json_raw_string(s, &a)) break;
            rc = keep(r, a, &text);
        } else {
            bool in_first = true;
            if (!json_open(s, '[') || !json_more(s, ']', &in_first) || !json_raw_string(s, &a) ||
                !json_more(s, ']', &in_first) || !json_raw_string(s, &b) ||
                json_more(s, ']', &in_first))
                break;
            rc = join_pair(r, a, b, &text);
        }
        if (!rc) rc = hf_vocab_merge(r, text);
    }
    return rc;
}

static int scan_part(const struct hf_reader *r, struct slice raw,
                     int (*read)(const struct hf_reader *, struct json_scan *)) {
    if (!raw.n) return 0;
    struct json_scan s;
    json_scan_init(&s, raw.p, raw.n);
    int rc = read(r, &s);
    if (!rc && (s.expected || !json_end(&s))) rc = hf_bad(r, &s);
    return rc;
}

/* ---- kinds and scores ---- */

static bool is_byte_piece(struct slice s) {
    static const char hex[] = "0123456789ABCDEFabcdef";
    return s.n == 6 && memcmp(s.p, "<0x", 3) == 0 && strchr(hex, s.p[3]) && strchr(hex, s.p[4]) &&
           s.p[3] && s.p[4] && s.p[5] == '>';
}

/* Score-driven merging needs an order of pieces: the rank of a piece is that of the first merge that produces it. */
static void score_by_merges(struct hf_vocab *v) {
    for (uint32_t i = 0; i < v->n; i++) v->scores[i] = -(float)(v->n_merges + i);
    for (size_t k = v->n_merges; k-- > 0;) {
        struct slice m = v->merges[k];
        char joined[1024];
        const char *space = memchr(m.p, ' ', m.n);
        if (!space || m.n > sizeof joined) continue;
        size_t left = (size_t)(space - m.p);
        memcpy(joined, m.p, left);
        memcpy(joined + left, space + 1, m.n - left - 1);
        int64_t id = hf_vocab_id(v, joined, m.n - 1);
        if (id >= 0) v->scores[id] = -(float)k;
    }
}

static void mark_spm_kinds(struct hf_vocab *v) {
    for (uint32_t i = 0; i < v->n; i++) {
        if (!is_byte_piece(v->pieces[i])) continue;
        v->kinds[i] = TOK_BYTE;
        v->scores[i] = 0;
    }
    int64_t unk = v->unk[0] ? hf_vocab_id(v, v->unk, strlen(v->unk)) : v->unk_id;
    if (unk >= 0 && unk < v->n) {
        v->kinds[unk] = TOK_UNKNOWN;
        v->scores[unk] = 0;
        v->unk_id = unk;
    }
}

/* Some checkpoints do not mark tokens as special that obviously are. */
static bool looks_special(struct slice s) {
    static const char *const words[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (is_text(s, words[i])) return true;
    static const char bar[] = "\xef\xbd\x9c"; /* U+FF5C */
    if (s.n >= 4 && !memcmp(s.p, "<|", 2) && !memcmp(s.p + s.n - 2, "|>", 2)) return true;
    if (s.n >= 8 && s.p[0] == '<' && !memcmp(s.p + 1, bar, 3) && !memcmp(s.p + s.n - 4, bar, 3) &&
        s.p[s.n - 1] == '>')
        return true;
    return s.n >= 8 && !memcmp(s.p, "<unused", 7) && s.p[s.n - 1] == '>';
}

/* Added tokens are control tokens, or matched as a whole in the user's text. */
static int read_added(const struct hf_reader *r) {
    struct hf_vocab *v = r->v;
    size_t i;
    json_t *item;
    json_array_foreach(v->added, i, item) {
        const json_t *id = json_object_get(item, "id"), *content = json_object_get(item, "content");
        if (!json_is_integer(id) || json_integer_value(id) < 0 || !json_is_string(content))
            return err_set(r->e, CHIMERE_EFORMAT, "%s: added_tokens[%zu]: expected id and content",
                           r->path, i);
        struct slice text = {json_string_value(content), json_string_length(content)};
        bool special = json_is_true(json_object_get(item, "special")) || looks_special(text);
        uint64_t at = (uint64_t)json_integer_value(id);
        if (at < v->n && v->kinds[at] == TOK_UNKNOWN) continue;
        char *p = arena_alloc(&v->text, text.n + 1);
        if (!p) return hf_no_memory(r);
        memcpy(p, text.p, text.n);
        text.p = p;
        int rc = hf_vocab_put(r, at, text, special ? TOK_CONTROL : TOK_USER_DEFINED);
        if (rc) return rc;
        v->scores[at] = v->model == HF_SPM ? -1000.0f : 0;
    }
    return 0;
}

/* ---- the file ---- */

static bool has_byte_level(const json_t *pre) {
    const char *type = json_string_value(json_object_get(pre, "type"));
    if (type && strcmp(type, "ByteLevel") == 0) return true;
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(pre, "pretokenizers"), i,
                       item) if (has_byte_level(item)) return true;
    return false;
}

static int choose_model(const struct hf_reader *r, const struct members *m) {
    struct hf_vocab *v = r->v;
    bool fallback = is_text(m->byte_fallback, "true");
    if (is_text(m->type, "\"WordPiece\"")) v->model = HF_WORDPIECE;
    else if (is_text(m->type, "\"Unigram\"")) v->model = HF_UNIGRAM;
    else if (m->type.n == 0 || is_text(m->type, "\"BPE\""))
        v->model = fallback && !has_byte_level(v->pre_tokenizer) ? HF_SPM : HF_BPE;
    else
        return err_set(r->e, CHIMERE_EUNSUPPORTED,
                       "%s: model.type: expected BPE, Unigram or WordPiece, got %.*s", r->path,
                       (int)(m->type.n < 40 ? m->type.n : 40), m->type.p);
    v->ignore_merges = is_text(m->ignore_merges, "true");
    if (m->unk_token.n > 2 && m->unk_token.n < sizeof v->unk)
        snprintf(v->unk, sizeof v->unk, "%.*s", (int)m->unk_token.n - 2, m->unk_token.p + 1);
    if (m->unk_id.n && m->unk_id.p[0] >= '0' && m->unk_id.p[0] <= '9')
        v->unk_id = strtoll(m->unk_id.p, NULL, 10);
    return 0;
}

int hf_load_tree(const struct hf_reader *r, struct slice raw, json_t **out) {
    json_error_t why;
    if (raw.n == 0 || is_text(raw, "null")) return 0;
    if (raw.n > TREE_MAX)
        return err_set(r->e, CHIMERE_ELIMIT, "%s: expected at most %d bytes of settings", r->path,
                       TREE_MAX);
    *out = json_loadb(raw.p, raw.n, JSON_ALLOW_NUL, &why);
    return *out ? 0
                : err_set(r->e, CHIMERE_EFORMAT, "%s: expected JSON, got: %s", r->path, why.text);
}

static int read_all(const struct hf_reader *r, const char *text, size_t n) {
    struct hf_vocab *v = r->v;
    struct members m = {.added = {NULL, 0}};
    struct slice model = {NULL, 0};
    const struct hf_wanted outer[] = {{"model", &model},
                                      {"added_tokens", &m.added},
                                      {"normalizer", &m.normalizer},
                                      {"pre_tokenizer", &m.pre_tokenizer},
                                      {"post_processor", &m.post_processor},
                                      {NULL, NULL}};
    const struct hf_wanted inner[] = {{"type", &m.type},
                                      {"vocab", &m.vocab},
                                      {"merges", &m.merges},
                                      {"unk_token", &m.unk_token},
                                      {"unk_id", &m.unk_id},
                                      {"byte_fallback", &m.byte_fallback},
                                      {"ignore_merges", &m.ignore_merges},
                                      {NULL, NULL}};
    int rc = hf_collect(r, (struct slice){text, n}, outer);
    if (!rc) rc = hf_collect(r, model, inner);
    if (!rc) rc = hf_load_tree(r, m.added, &v->added);
    if (!rc) rc = hf_load_tree(r, m.normalizer, &v->normalizer);
    if (!rc) rc = hf_load_tree(r, m.pre_tokenizer, &v->pre_tokenizer);
    if (!rc) rc = hf_load_tree(r, m.post_processor, &v->post_processor);
    if (!rc) rc = choose_model(r, &m);
    if (!rc)
        rc = scan_part(r, m.vocab,
                       m.vocab.n && m.vocab.p[0] == '[' ? read_vocab_list : read_vocab_object);
    if (!rc) rc = scan_part(r, m.merges, read_merges);
    if (!rc && v->model == HF_SPM) score_by_merges(v);
    if (!rc && (v->model == HF_SPM || v->model == HF_UNIGRAM)) mark_spm_kinds(v);
    if (!rc) rc = read_added(r);
    if (!rc && v->n == 0)
        rc = err_set(r->e, CHIMERE_EFORMAT, "%s: model.vocab: expected tokens, got none", r->path);
    return rc;
}

void hf_vocab_init(struct hf_vocab *v) {
    *v = (struct hf_vocab){.unk_id = -1};
    arena_init(&v->text, TOKENIZER_MAX);
    map_init(&v->ids, TOKENIZER_MAX);
}

int hf_vocab_parse(struct hf_vocab *v, const char *text, size_t n, const char *name,
                   struct err *e) {
    hf_vocab_init(v);
    const struct hf_reader r = {v, name, e};
    return read_all(&r, text, n);
}

int hf_vocab_read(struct hf_vocab *v, const char *dir, struct err *e) {
    *v = (struct hf_vocab){.unk_id = -1};
    size_t size = strlen(dir) + 32, n;
    char *path = mem_alloc(size), *text = NULL;
    if (!path) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", dir);
    snprintf(path, size, "%s/tokenizer.json", dir);
    int rc = file_exists(path) ? CHIMERE_ENOENT : hf_ranked_read(v, dir, e);
    if (rc == CHIMERE_ENOENT) { /* no other vocabulary */
        rc = file_read(path, TOKENIZER_MAX, &text, &n, e);
        if (rc == CHIMERE_ENOENT)
            err_hint(e, "saving the tokenizer again with transformers writes tokenizer.json");
        if (!rc) rc = hf_vocab_parse(v, text, n, path, e);
    }
    mem_free(text);
    mem_free(path);
    return rc;
}

void hf_vocab_fini(struct hf_vocab *v) {
    mem_free(v->pieces);
    mem_free(v->kinds);
    mem_free(v->scores);
    mem_free(v->merges);
    arena_fini(&v->text);
    map_fini(&v->ids);
    json_decref(v->added);
    json_decref(v->normalizer);
    json_decref(v->pre_tokenizer);
    json_decref(v->post_processor);
}

int64_t hf_vocab_id(const struct hf_vocab *v, const char *piece, size_t n) {
    uint32_t id;
    return map_find(&v->ids, piece, n, &id) ? (int64_t)id : -1;
}
