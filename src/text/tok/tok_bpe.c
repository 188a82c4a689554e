/* tok_bpe.c: byte-pair encoding: the table of merges, and the steps from text to words to tokens.
 *
 * There are two forms. Byte-level pieces are written in an alphabet of 256 characters, one per byte, and words are
 * merged from bytes. "Raw" pieces are UTF-8 with U+2581 for a space. Their words are whole lines, which are merged
 * from characters; <0xHH> tokens encode characters that are not in the vocabulary. */
#include <string.h>
#include <utf8proc.h>

#include "base/hash.h"
#include "base/mem.h"
#include "text/tok/tok_merge_impl.h"

static int intern(struct tok *t, const char *s, size_t n, uint32_t *id) {
    *id = tok_match(t, s, n);
    if (*id != TOK_NO_SYMBOL) return 0;
    int rc = tok_add_symbol(t, s, n, id);
    return rc ? rc : tok_match_add(t, *id);
}

static void put_pair(struct tok *t, uint32_t left, uint32_t right, uint32_t rank, uint32_t to) {
    uint32_t i = (uint32_t)hash_mix((uint64_t)left << 32 | right) & t->pair_mask;
    for (; t->pairs[i].left != TOK_NO_SYMBOL; i = (i + 1) & t->pair_mask)
        /* the first of equal pairs is used */
        if (t->pairs[i].left == left && t->pairs[i].right == right) return;
    t->pairs[i] = (struct pair){left, right, rank, to};
}

/* Adds merge `rank`; buf holds 2 * TOK_MAX_PIECE bytes. */
static int add_merge(struct tok *t, struct slice m, uint32_t rank, char *buf, struct err *e) {
    /* if the first byte is a space, it belongs to the left half */
    const char *gap = m.n > 1 ? memchr(m.p + 1, ' ', m.n - 1) : NULL;
    if (!gap || gap == m.p + m.n - 1 || m.n > TOK_MAX_PIECE)
        return err_set(e, CHIMERE_EFORMAT,
                       "merge %u: expected two pieces and a space between, got '%.*s'", rank,
                       (int)(m.n < 60 ? m.n : 60), m.p ? m.p : "");
    struct slice a = {m.p, (size_t)(gap - m.p)}, b = {gap + 1, m.n - a.n - 1};
    size_t na, nb;
    if (t->pre->flags & PRE_RAW) {
        na = tok_unmark(a, buf);
        nb = tok_unmark(b, buf + na);
    } else if (!tok_alphabet_decode(a, buf, &na) || !tok_alphabet_decode(b, buf + na, &nb)) {
        return 0; /* no text can produce it */
    }
    uint32_t left, right, to;
    int rc = intern(t, buf, na, &left);
    if (rc == 0) rc = intern(t, buf + na, nb, &right);
    if (rc == 0) rc = intern(t, buf, na + nb, &to);
    if (rc) return err_set(e, rc, "%s for merge %u", err_name(rc), rank);
    put_pair(t, left, right, rank, to);
    return 0;
}

int tok_bpe_build(struct tok *t, const struct tok_spec *spec, struct err *e) {
    uint32_t cap = 64;
    while (cap < 2 * spec->n_merges) cap *= 2;
    t->pairs = mem_alloc_array(cap, sizeof *t->pairs);
    t->pair_mask = cap - 1;
    char *buf = mem_alloc(2 * TOK_MAX_PIECE);
    int rc = t->pairs && buf
                 ? 0
                 : err_set(e, CHIMERE_ENOMEM, "out of memory for %u merges", spec->n_merges);
    for (uint32_t i = 0; rc == 0 && i < cap; i++) t->pairs[i].left = TOK_NO_SYMBOL;
    for (uint32_t i = 0; rc == 0 && i < spec->n_merges; i++)
        rc = add_merge(t, spec->merges[i], i, buf, e);
    mem_free(buf);
    if (rc) return rc;
    bool raw = t->pre->flags & PRE_RAW;
    t->lowercase = (t->pre->flags & PRE_DROP_SPACES) && spec->lowercase > 0;
    for (uint32_t b = 0; !raw && rc == 0 && b < 256; b++)
        rc = intern(t, &(char){(char)b}, 1, &t->byte_symbol[b]);
    if (rc == 0 && raw) rc = tok_cross_build(t);
    return rc ? err_set(e, rc, "%s for the merges", err_name(rc)) : 0;
}

/* Encodes well-formed text. */
static int encode_valid(struct enc *c, const char *text, uint32_t from, uint32_t to) {
    const struct tok *t = c->t;
    int rc = tok_pre_split(t->split, text, from, to, &c->ends, &c->scratch, c->e);
    if (rc == 0 && (t->pre->flags & PRE_RAW)) { /* split lines into words */
        c->scratch.n = 0;
        uint32_t at = from;
        for (size_t i = 0; rc == 0 && i < c->ends.n; at = c->ends.p[i++])
            rc = tok_cross_split(t, text, at, c->ends.p[i], &c->scratch);
        struct tok_ids swap = c->ends;
        c->ends = c->scratch, c->scratch = swap;
    }
    return rc ? rc : tok_merge_words(c, text, from, &c->ends);
}

static int encode_runs(struct enc *c, const char *text, uint32_t n) {
    for (uint32_t i = 0; i < n;) {
        uint32_t run = (uint32_t)tok_valid_run(text + i, n - i);
        int rc = run ? encode_valid(c, text, i, i + run) : tok_put_bytes(c, text + i, 1);
        if (rc) return rc;
        i += run ? run : 1;
    }
    return 0;
}

/* White space separates words and is dropped; each word is encoded separately. buf holds 4 * n bytes, because a
 * character may become longer in lower case. */
static int encode_words_alone(struct enc *c, const char *text, uint32_t n, char *buf) {
    const uint8_t *classes = tok_classes();
    for (size_t i = 0; i < n;) {
        size_t n_word = 0;
        while (i < n) {
            uint32_t cp;
            int len = utf8_decode(text + i, n - i, &cp);
            if (len <= 0) {
                buf[n_word++] = text[i++];
                continue;
            }
            i += (size_t)len;
            if (classes[cp] & CLASS_SPACE) break;
            if (c->t->lowercase) cp = (uint32_t)utf8proc_tolower((int32_t)cp);
            n_word += (size_t)utf8_encode(cp, buf + n_word);
        }
        int rc = encode_runs(c, buf, (uint32_t)n_word);
        if (rc) return rc;
    }
    return 0;
}

int tok_bpe_encode(struct enc *c, const char *text, uint32_t n) {
    unsigned flags = c->t->pre->flags;
    if (!(flags & PRE_RAW)) return encode_runs(c, text, n);
    char *copy = mem_alloc(flags & PRE_DROP_SPACES ? 4 * (size_t)n : n);
    if (!copy) return CHIMERE_ENOMEM;
    int rc = flags & PRE_DROP_SPACES
                 ? encode_words_alone(c, text, n, copy)
                 : encode_runs(c, copy, (uint32_t)tok_unmark((struct slice){text, n}, copy));
    mem_free(copy);
    return rc;
}
