/* tok.c: builds a tokenizer from plain arrays. Encodes a text by cutting it at special tokens and passing the rest
 * to the encoder of the tokenizer's kind. Answers queries about tokens. */
#include "text/tok/tok_merge_impl.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

static const char space_mark[] = "\xE2\x96\x81"; /* U+2581 */

int tok_ids_reserve(struct tok_ids *a, size_t more) {
    if (a->cap - a->n >= more) return 0;
    size_t cap = a->cap + a->cap / 2 + 64;
    if (cap - a->n < more) cap = a->n + more;
    size_t bytes;
    if (!size_mul(cap, sizeof *a->p, &bytes)) return CHIMERE_ENOMEM;
    uint32_t *p = mem_realloc(a->p, bytes);
    if (!p) return CHIMERE_ENOMEM;
    a->p = p;
    a->cap = cap;
    return 0;
}

/* ---- strings ---- */

int tok_add_symbol(struct tok *t, const char *s, size_t n, uint32_t *id) {
    if (n > TOK_MAX_BLOB - t->n_blob) return CHIMERE_ELIMIT;
    if (t->n_symbol == t->cap_symbol) {
        uint32_t cap = t->cap_symbol + t->cap_symbol / 2 + 256;
        uint32_t *p = mem_realloc(t->offset, ((size_t)cap + 1) * sizeof *p);
        if (!p) return CHIMERE_ENOMEM;
        t->offset = p;
        t->cap_symbol = cap;
    }
    if (t->cap_blob - t->n_blob < n || !t->blob) { /* an empty string needs an address too */
        size_t cap = t->cap_blob + t->cap_blob / 2 + n + 4096;
        char *p = mem_realloc(t->blob, cap);
        if (!p) return CHIMERE_ENOMEM;
        t->blob = p;
        t->cap_blob = cap;
    }
    if (n) memcpy(t->blob + t->n_blob, s, n);
    t->offset[t->n_symbol] = (uint32_t)t->n_blob;
    t->n_blob += n;
    *id = t->n_symbol++;
    t->offset[t->n_symbol] = (uint32_t)t->n_blob;
    return 0;
}

/* Returns the slot of s in a map of symbol + 1, or the empty slot in which it would be stored. */
static uint32_t *slot_of(const struct tok *t, uint32_t *map, uint32_t mask, const char *s,
                         size_t n) {
    for (uint32_t i = (uint32_t)hash_bytes(s, n, t->seed) & mask;; i = (i + 1) & mask) {
        if (!map[i]) return &map[i];
        struct slice have = tok_symbol(t, map[i] - 1);
        if (have.n == n && memcmp(have.p, s, n) == 0) return &map[i];
    }
}

static int map_alloc(uint32_t **map, uint32_t *mask, uint32_t n) {
    uint32_t cap = 64;
    while (cap < 2 * n) cap *= 2;
    *map = mem_alloc_array(cap, sizeof **map);
    *mask = cap - 1;
    return *map ? 0 : CHIMERE_ENOMEM;
}

uint32_t tok_match(const struct tok *t, const char *s, size_t n) {
    if (n == 0 || n > t->max_piece) return TOK_NO_SYMBOL;
    return *slot_of(t, t->match, t->match_mask, s, n) - 1; /* empty slot: TOK_NO_SYMBOL */
}

int tok_match_add(struct tok *t, uint32_t symbol) {
    if (2 * t->n_match > t->match_mask) {
        uint32_t *old = t->match, n_old = t->match ? t->match_mask + 1 : 0;
        int rc = map_alloc(&t->match, &t->match_mask, 2 * t->n_match);
        if (rc) return t->match = old, t->match_mask = n_old - 1, rc;
        for (uint32_t i = 0; i < n_old; i++) {
            if (!old[i]) continue;
            struct slice s = tok_symbol(t, old[i] - 1);
            *slot_of(t, t->match, t->match_mask, s.p, s.n) = old[i];
        }
        mem_free(old);
    }
    struct slice s = tok_symbol(t, symbol);
    uint32_t *slot = slot_of(t, t->match, t->match_mask, s.p, s.n);
    t->n_match += *slot == 0;
    *slot = symbol + 1; /* of equal strings the last one is used, as in other loaders */
    if (s.n > t->max_piece) t->max_piece = (uint32_t)s.n;
    return 0;
}

/* ---- building ---- */

static int hex(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Returns the value of "<0xHH>", otherwise -1. */
static int byte_of(struct slice s) {
    if (s.n != 6 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>') return -1;
    int hi = hex(s.p[3]), lo = hex(s.p[4]);
    return hi < 0 || lo < 0 ? -1 : hi << 4 | lo;
}

/* Returns the byte that a character of the byte-level alphabet represents, -1 for other characters. Printable
 * ASCII and Latin-1 characters represent themselves; the 68 other bytes are consecutive from U+0100. */
static int alphabet_byte(uint32_t cp) {
    if ((cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xac) || (cp >= 0xae && cp <= 0xff))
        return (int)cp;
    if (cp < 0x100 || cp > 0x143) return -1;
    uint32_t k = cp - 0x100; /* 0..32: 00..20; 33..66: 7F..A0; 67: AD */
    return k <= 0x20 ? (int)k : k <= 0x42 ? (int)(k - 0x21 + 0x7f) : 0xad;
}

bool tok_alphabet_decode(struct slice s, char *out, size_t *n) {
    *n = 0;
    for (size_t i = 0; i < s.n;) {
        uint32_t cp;
        int len = utf8_decode(s.p + i, s.n - i, &cp);
        int byte = len > 0 ? alphabet_byte(cp) : -1;
        if (byte < 0) return false;
        out[(*n)++] = (char)byte;
        i += (size_t)len;
    }
    return true;
}

size_t tok_unmark(struct slice s, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        if (s.n - i >= 3 && memcmp(s.p + i, space_mark, 3) == 0) out[n++] = ' ', i += 3;
        else out[n++] = s.p[i++];
    }
    return n;
}

size_t tok_valid_run(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        uint64_t w;
        if (n - i >= 8 && (memcpy(&w, s + i, 8), (w & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        int len = utf8_valid_len(s + i, n - i);
        if (len <= 0) break;
        i += (size_t)len;
    }
    return i;
}

static bool is_byte_level(const struct tok *t) {
    return t->model == TOK_BPE && !(t->pre->flags & PRE_RAW);
}

/* Converts piece i to its matching form and adds it; buf holds TOK_MAX_PIECE bytes. */
static int add_piece(struct tok *t, const struct tok_spec *spec, uint32_t i, char *buf,
                     struct err *e) {
    struct slice s = spec->pieces[i];
    if (s.n > TOK_MAX_PIECE)
        return err_set(e, CHIMERE_ELIMIT, "token %u: expected at most %d bytes, got %zu", i,
                       TOK_MAX_PIECE, s.n);
    uint8_t kind = spec->kinds ? spec->kinds[i] : TOK_NORMAL;
    if (kind > TOK_BYTE)
        return err_set(e, CHIMERE_EFORMAT, "token %u: unknown token type %u", i, kind);
    int byte = is_byte_level(t) && kind != TOK_BYTE ? -1 : byte_of(s);
    if (byte >= 0 && !spec->kinds) kind = TOK_BYTE;
    if (kind == TOK_BYTE && byte < 0)
        return err_set(e, CHIMERE_EFORMAT,
                       "token %u of type byte: expected <0x00> to <0xFF>, got '%.*s'", i,
                       (int)(s.n < 40 ? s.n : 40), s.p);
    bool matches = s.n > 0;
    size_t n = s.n;
    if (kind == TOK_BYTE) {
        buf[0] = (char)byte;
        n = 1;
    } else if (kind == TOK_CONTROL || kind == TOK_UNKNOWN || kind == TOK_USER_DEFINED) {
        if (n) memcpy(buf, s.p, n);
        /* the text must be equal in both forms, otherwise merging cannot produce it */
        for (size_t k = 0; k < n; k++)
            matches &= is_byte_level(t) ? s.p[k] > 0x20 && s.p[k] < 0x7f : s.p[k] != ' ';
    } else if (is_byte_level(t)) {
        matches &= tok_alphabet_decode(s, buf, &n);
        if (!matches && s.n) memcpy(buf, s.p, n = s.n);
    } else {
        matches &= s.n && !memchr(s.p, ' ', s.n);
        n = tok_unmark(s, buf);
    }
    uint32_t id;
    int rc = tok_add_symbol(t, buf, n, &id);
    if (rc) return err_set(e, rc, "%s for the token texts", err_name(rc));
    t->kinds[id] = kind;
    if (n > t->max_piece) t->max_piece = (uint32_t)n;
    t->hash = hash_bytes(s.p, s.n, t->hash ^ kind);
    if (byte >= 0 && t->byte_symbol[byte] == TOK_NO_SYMBOL) t->byte_symbol[byte] = id;
    if (matches && tok_is_plain(t, id) && (rc = tok_match_add(t, id)) != 0)
        return err_set(e, rc, "%s for the token map", err_name(rc));
    return 0;
}

static int add_pieces(struct tok *t, const struct tok_spec *spec, struct err *e) {
    char *buf = mem_alloc(TOK_MAX_PIECE);
    int rc = buf ? map_alloc(&t->match, &t->match_mask, spec->n_vocab) : CHIMERE_ENOMEM;
    if (rc) err_set(e, rc, "%s for the token map", err_name(rc));
    for (uint32_t i = 0; rc == 0 && i < spec->n_vocab; i++) rc = add_piece(t, spec, i, buf, e);
    mem_free(buf);
    if (rc) return rc;
    if (map_alloc(&t->find, &t->find_mask, t->n_vocab))
        return err_set(e, CHIMERE_ENOMEM, "out of memory for the token map");
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        struct slice s = tok_symbol(t, i);
        if (!s.n) continue;
        uint32_t *slot = slot_of(t, t->find, t->find_mask, s.p, s.n);
        if (!*slot || (t->kinds[i] != TOK_NORMAL && t->kinds[*slot - 1] == TOK_NORMAL))
            *slot = i + 1;
    }
    return 0;
}

/* Tokens with which models end a turn or a text, for files that do not list them. */
static const char *const eog_names[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    ("<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
    "[e~[",
    /* fill-in-the-middle: padding, repository, file separator */
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
};
/* Streams show these although they are control tokens: the frame of messages of o200k_harmony, which separates
 * reasoning from the answer. They stay control tokens, so a user's text cannot contain them. */
static const char *const visible_names[] = {"<|channel|>", "<|message|>", "<|start|>",
                                            "<|constrain|>"};

static int32_t find_text(const struct tok *t, const char *s) { return tok_find(t, s, strlen(s)); }

static void mark_eog(struct tok *t, const struct tok_spec *spec) {
    for (size_t i = 0; i < sizeof eog_names / sizeof *eog_names; i++) {
        int32_t id = find_text(t, eog_names[i]);
        if (id < 0) continue;
        t->flags[id] |= FLAG_EOG;
        t->kinds[id] = TOK_CONTROL;
    }
    for (size_t i = 0; i < sizeof visible_names / sizeof *visible_names; i++) {
        int32_t id = find_text(t, visible_names[i]);
        if (id >= 0) t->flags[id] |= FLAG_VISIBLE;
    }
    if (spec->eos >= 0) t->flags[spec->eos] |= FLAG_EOG;
    if (spec->eot >= 0) t->flags[spec->eot] |= FLAG_EOG;
    for (uint32_t i = 0; i < spec->n_eog; i++) t->flags[spec->eog[i]] |= FLAG_EOG;
    /* If messages end with other tokens, <|end|> only ends a part of a message. */
    bool call = find_text(t, "<|call|>") >= 0 || find_text(t, "<|calls|>") >= 0;
    bool harmony = call && (find_text(t, "<|return|>") >= 0 || find_text(t, "<|flush|>") >= 0);
    int32_t end = find_text(t, "<|end|>"), s = find_text(t, "</s>");
    if (harmony && end >= 0) t->flags[end] = FLAG_VISIBLE;
    if (find_text(t, "<|tool_response>") >= 0 &&
        s >= 0) /* in these vocabularies </s> is the tag of struck-out text */
        t->flags[s] &= (uint8_t)~FLAG_EOG, t->kinds[s] = TOK_NORMAL;
}

static int check_spec(const struct tok_spec *s, struct err *e) {
    if (s->n_vocab == 0 || s->n_vocab > TOK_MAX_VOCAB)
        return err_set(e, CHIMERE_EFORMAT, "tokenizer: expected 1 to %d tokens, got %u",
                       TOK_MAX_VOCAB, s->n_vocab);
    if (s->n_merges > TOK_MAX_MERGES)
        return err_set(e, CHIMERE_ELIMIT, "tokenizer: expected at most %d merges, got %u",
                       TOK_MAX_MERGES, s->n_merges);
    const struct {
        const char *name;
        int32_t id;
    } special[] = {{"bos", s->bos}, {"eos", s->eos}, {"unk", s->unk},   {"sep", s->sep},
                   {"pad", s->pad}, {"cls", s->cls}, {"mask", s->mask}, {"eot", s->eot}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i].id < -1 || special[i].id >= (int64_t)s->n_vocab)
            return err_set(e, CHIMERE_EFORMAT, "%s token: expected an id below %u, got %d",
                           special[i].name, s->n_vocab, special[i].id);
    for (uint32_t i = 0; i < s->n_eog; i++)
        if (s->eog[i] < 0 || (uint32_t)s->eog[i] >= s->n_vocab)
            return err_set(e, CHIMERE_EFORMAT,
                           "end-of-generation token: expected an id below %u, got %d", s->n_vocab,
                           s->eog[i]);
    for (uint32_t i = 0; s->scores && i < s->n_vocab; i++)
        if (isnan(s->scores[i]))
            return err_set(e, CHIMERE_EFORMAT, "score of token %u: expected a number, got nan", i);
    return 0;
}

static int set_flags(struct tok *t, const struct tok_spec *s, struct err *e) {
    unsigned pre = t->pre ? t->pre->flags : 0;
    bool bert = t->model == TOK_WORDPIECE, spm = t->model == TOK_SPM, ugm = t->model == TOK_UNIGRAM;
    t->bos = s->bos, t->eos = s->eos, t->unk = s->unk, t->sep = s->sep;
    t->cls = s->cls >= 0 ? s->cls : s->bos;
    t->add_bos = s->add_bos >= 0 ? s->add_bos : spm || bert || (pre & PRE_ADD_BOS);
    if (pre & PRE_FORCE_BOS) t->add_bos = true;
    t->add_eos = s->add_eos >= 0 ? s->add_eos : ugm;
    t->space_prefix = (spm || ugm) && (s->add_space_prefix >= 0 ? s->add_space_prefix : spm);
    t->squeeze_spaces = s->remove_extra_whitespace;
    t->lowercase = s->lowercase >= 0;
    t->strip_accents = s->strip_accents >= 0;
    if (bert && t->unk < 0)
        return err_set(e, CHIMERE_EFORMAT, "WordPiece tokenizer without unknown token");
    if (ugm && t->unk < 0)
        return err_set(e, CHIMERE_EFORMAT, "unigram tokenizer without unknown token");
    if (bert && t->add_bos && (t->cls < 0 || t->sep < 0))
        return err_set(e, CHIMERE_EFORMAT, "WordPiece tokenizer without CLS or SEP token");
    if (!bert && t->add_bos && t->bos < 0)
        return err_set(e, CHIMERE_EFORMAT, "the tokenizer asks for a BOS token and has none");
    if (!bert && t->add_eos && t->eos < 0)
        return err_set(e, CHIMERE_EFORMAT, "the tokenizer asks for an EOS token and has none");
    return 0;
}

static int build(struct tok *t, const struct tok_spec *spec, struct err *e) {
    int rc = check_spec(spec, e);
    if (rc) return rc;
    t->model = spec->model;
    t->n_vocab = spec->n_vocab;
    t->seed = rng_process_seed();
    for (int i = 0; i < 256; i++) t->byte_symbol[i] = TOK_NO_SYMBOL;
    if (spec->model == TOK_BPE) {
        const char *name = spec->pre && *spec->pre ? spec->pre : "default";
        t->pre = tok_pre_find(name);
        if (!t->pre) return err_set(e, CHIMERE_EUNSUPPORTED, "unknown pre-tokenizer '%.60s'", name);
        t->is_nfc = tok_pre_is_nfc(name);
        if ((rc = tok_pre_new(&t->split, t->pre, false, e)) != 0) return rc;
    }
    t->kinds = mem_zalloc(spec->n_vocab);
    t->flags = mem_zalloc(spec->n_vocab);
    if (spec->strips && (t->strips = mem_alloc(spec->n_vocab)) != NULL)
        memcpy(t->strips, spec->strips, spec->n_vocab);
    if (!t->kinds || !t->flags || (spec->strips && !t->strips))
        return err_set(e, CHIMERE_ENOMEM, "out of memory for %u tokens", spec->n_vocab);
    if ((rc = add_pieces(t, spec, e)) != 0) return rc;
    mark_eog(t, spec);
    for (uint32_t i = 0; i < spec->n_merges; i++)
        t->hash = hash_bytes(spec->merges[i].p, spec->merges[i].n, t->hash);
    if ((rc = set_flags(t, spec, e)) != 0) return rc;
    rc = t->model == TOK_BPE       ? tok_bpe_build(t, spec, e)
         : t->model == TOK_SPM     ? tok_spm_build(t, spec, e)
         : t->model == TOK_UNIGRAM ? tok_unigram_build(t, spec, e)
                                   : tok_wordpiece_build(t, e);
    if (rc) return rc;
    return tok_special_build(t) ? err_set(e, CHIMERE_ENOMEM, "out of memory for special tokens")
                                : 0;
}

int tok_new(struct tok **out, const struct tok_spec *spec, struct err *e) {
    *out = NULL;
    struct tok *t = mem_zalloc(sizeof *t);
    if (!t) return err_set(e, CHIMERE_ENOMEM, "out of memory for a tokenizer");
    int rc = build(t, spec, e);
    if (rc) {
        tok_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void tok_free(struct tok *t) {
    if (!t) return;
    tok_pre_free(t->split);
    tok_unigram_free(t);
    tok_special_free(&t->all);
    tok_special_free(&t->user);
    mem_free(t->blob);
    mem_free(t->offset);
    mem_free(t->kinds);
    mem_free(t->flags);
    mem_free(t->strips);
    mem_free(t->order);
    mem_free(t->match);
    mem_free(t->find);
    mem_free(t->pairs);
    mem_free(t->cross);
    mem_free(t);
}

/* ---- encoding ---- */

int tok_put_bytes(struct enc *c, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t id = c->t->byte_symbol[(unsigned char)s[i]];
        if (id >= c->t->n_vocab) { /* the vocabulary has no token for this byte */
            if (c->t->unk < 0) continue;
            id = (uint32_t)c->t->unk;
        }
        if (tok_ids_put(&c->out, id)) return CHIMERE_ENOMEM;
    }
    return 0;
}

/* Encodes one range of text between special tokens. */
static int encode_plain(struct enc *c, const char *text, uint32_t n, bool after_special) {
    switch (c->t->model) {
    case TOK_BPE: return tok_bpe_encode(c, text, n);
    case TOK_SPM: return tok_spm_encode(c, text, n, c->t->space_prefix && after_special);
    case TOK_WORDPIECE: return tok_wordpiece_encode(c, text, n);
    case TOK_UNIGRAM: return tok_unigram_encode(c, text, n);
    }
    return CHIMERE_EINTERNAL;
}

static int encode_all(struct enc *c, const char *text, uint32_t n, bool parse_special,
                      bool add_bos) {
    const struct tok *t = c->t;
    bool bert = t->model == TOK_WORDPIECE, after_special = true;
    struct fragments f = {0};
    int rc = 0;
    if (add_bos && t->add_bos) rc = tok_ids_put(&c->out, (uint32_t)(bert ? t->cls : t->bos));
    if (rc == 0) rc = tok_special_cut(t, text, n, parse_special, &f);
    for (size_t i = 0; rc == 0 && i < f.n; i++) {
        after_special = i == 0 || f.p[i - 1].id >= 0;
        rc = f.p[i].id >= 0
                 ? tok_ids_put(&c->out, (uint32_t)f.p[i].id)
                 : encode_plain(c, text + f.p[i].from, f.p[i].to - f.p[i].from, after_special);
    }
    if (rc == 0 && add_bos && (bert ? t->add_bos : t->add_eos))
        rc = tok_ids_put(&c->out, (uint32_t)(bert ? t->sep : t->eos));
    mem_free(f.p);
    return rc;
}

int tok_encode(const struct tok *t, const char *text, size_t n_text, bool parse_special,
               bool add_bos, int32_t **ids, size_t *n, struct err *e) {
    *ids = NULL;
    *n = 0;
    if (n_text > TOK_MAX_TEXT)
        return err_set(e, CHIMERE_ELIMIT, "text: expected at most %d bytes, got %zu", TOK_MAX_TEXT,
                       n_text);
    struct enc c = {.t = t, .e = e};
    char *normal = NULL;
    if (e) e->code = 0;
    int rc = t->is_nfc ? tok_nfc(text, n_text, &normal, &n_text) : 0;
    if (!rc && n_text > TOK_MAX_TEXT) rc = CHIMERE_ELIMIT;
    if (!rc) rc = encode_all(&c, normal ? normal : text, (uint32_t)n_text, parse_special, add_bos);
    mem_free(normal);
    struct tok_ids *work[] = {&c.ends, &c.scratch, &c.sym, &c.len, &c.prev, &c.to};
    for (size_t i = 0; i < sizeof work / sizeof *work; i++) mem_free(work[i]->p);
    mem_free(c.heap);
    mem_free(c.cache);
    if (rc == 0 && !c.out.p && tok_ids_reserve(&c.out, 1)) rc = CHIMERE_ENOMEM;
    if (rc) {
        mem_free(c.out.p);
        return e && e->code ? rc
                            : err_set(e, rc, "%s while encoding %zu bytes", err_name(rc), n_text);
    }
    *ids = (int32_t *)c.out.p;
    *n = c.out.n;
    return 0;
}

/* ---- queries ---- */

struct slice tok_piece(const struct tok *t, int32_t id) {
    return id < 0 || (uint32_t)id >= t->n_vocab ? (struct slice){"", 0}
                                                : tok_symbol(t, (uint32_t)id);
}
uint32_t tok_n_vocab(const struct tok *t) { return t->n_vocab; }
enum tok_kind tok_kind(const struct tok *t, int32_t id) {
    return id < 0 || (uint32_t)id >= t->n_vocab ? TOK_UNDEFINED : (enum tok_kind)t->kinds[id];
}
bool tok_is_eog(const struct tok *t, int32_t id) {
    return id >= 0 && (uint32_t)id < t->n_vocab && (t->flags[id] & FLAG_EOG);
}
int32_t tok_bos(const struct tok *t) { return t->bos; }
int32_t tok_eos(const struct tok *t) { return t->eos; }
int32_t tok_find(const struct tok *t, const char *piece, size_t n) {
    return n ? (int32_t)(*slot_of(t, t->find, t->find_mask, piece, n) - 1) : -1;
}
unsigned tok_strips(const struct tok *t, int32_t id) {
    return t->strips && id >= 0 && (uint32_t)id < t->n_vocab ? t->strips[id] : 0;
}
uint64_t tok_hash(const struct tok *t) { return t->hash; }
size_t tok_max_piece_bytes(const struct tok *t) { return t->max_piece; }
