/* tok_unigram.c: SentencePiece unigram (T5, XLM-R): of all ways to split the text into tokens, finds the one with
 * the highest sum of scores, from left to right (Viterbi).
 *
 * Texts are first normalised by a table in the file, the "precompiled charsmap" of SentencePiece:
 *   u32 n, little-endian | n bytes: a double array (darts-clone) of u32 units | strings, each ended by 0
 * Bits of a unit: 0-7 and 31 label, 8 "a leaf follows", 9 the offset is shifted by 8, 10-30 offset. The unit of
 * the leaf contains the offset of the replacement in the strings. */
#include <float.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/tok/tok_merge_impl.h"
#include "text/tok/tok_trie_impl.h"

struct best { /* the best split of the text up to here */
    double score;
    uint32_t from; /* start of its last token */
    uint32_t id;
};

struct unigram {
    uint32_t *units; /* owned; NULL: no normaliser */
    uint32_t n_unit;
    char *strings; /* owned */
    size_t n_string;
    float *scores; /* owned; [n_vocab] */
    double unknown_score;
};

void tok_unigram_free(struct tok *t) {
    if (t->trie) mem_free(t->trie->edges);
    mem_free(t->trie);
    t->trie = NULL;
    if (!t->unigram) return;
    mem_free(t->unigram->units);
    mem_free(t->unigram->strings);
    mem_free(t->unigram->scores);
    mem_free(t->unigram);
}

static int load_charsmap(struct unigram *u, struct slice map, struct err *e) {
    if (map.n == 0) return 0;
    const unsigned char *p = (const unsigned char *)map.p;
    uint32_t n = map.n < 4 ? 0
                           : (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                 (uint32_t)p[3] << 24;
    if (map.n < 4 || n % 4 != 0 || n == 0 || n >= map.n - 4)
        return err_set(e, CHIMERE_EFORMAT,
                       "precompiled charsmap: expected a table of fewer than %zu bytes, got %u",
                       map.n, n);
    if (p[map.n - 1] != 0)
        return err_set(e, CHIMERE_EFORMAT, "precompiled charsmap: the last string is cut off");
    u->n_unit = n / 4;
    u->n_string = map.n - 4 - n;
    u->units = mem_alloc(n);
    u->strings = mem_alloc(u->n_string);
    if (!u->units || !u->strings)
        return err_set(e, CHIMERE_ENOMEM, "out of memory for the charsmap");
    for (uint32_t i = 0; i < u->n_unit; i++, p += 4)
        u->units[i] =
            (uint32_t)p[4] | (uint32_t)p[5] << 8 | (uint32_t)p[6] << 16 | (uint32_t)p[7] << 24;
    memcpy(u->strings, map.p + 4 + n, u->n_string);
    return 0;
}

int tok_unigram_build(struct tok *t, const struct tok_spec *spec, struct err *e) {
    struct unigram *u = t->unigram = mem_zalloc(sizeof *u);
    t->trie = mem_zalloc(sizeof *t->trie);
    if (u) u->scores = mem_alloc_array(t->n_vocab, sizeof *u->scores);
    if (!u || !t->trie || !u->scores)
        return err_set(e, CHIMERE_ENOMEM, "out of memory for %u scores", t->n_vocab);
    float lowest = FLT_MAX;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        bool user = t->kinds[i] == TOK_USER_DEFINED;
        u->scores[i] = spec->scores && !user ? spec->scores[i] : 0;
        if (t->kinds[i] == TOK_NORMAL && u->scores[i] < lowest) lowest = u->scores[i];
    }
    u->unknown_score = (lowest == FLT_MAX ? 0 : lowest) - 10.0;
    int rc = load_charsmap(u, spec->charsmap, e);
    if (rc) return rc;
    rc = tok_trie_build(t->trie, t);
    if (rc == 0) rc = tok_cross_build(t);
    return rc ? err_set(e, rc, "%s for %u tokens", err_name(rc), t->n_vocab) : 0;
}

/* ---- normalising ---- */

static uint32_t unit_offset(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

/* Finds the replacement of the longest prefix of s[0..n) in the table; false if there is none. */
static bool replace(const struct unigram *u, const char *s, size_t n, size_t *used,
                    struct slice *by) {
    bool found = false;
    if (!u->n_unit) return false;
    uint32_t node = unit_offset(u->units[0]);
    for (size_t i = 0; i < n && s[i]; i++) {
        node ^= (unsigned char)s[i];
        if (node >= u->n_unit) break;
        uint32_t unit = u->units[node];
        if ((unit & (1u << 31 | 0xff)) != (unsigned char)s[i]) break;
        node ^= unit_offset(unit);
        if (node >= u->n_unit) break;
        if (!(unit >> 8 & 1)) continue;
        uint32_t at = u->units[node] & 0x7fffffff;
        if (at >= u->n_string) break;
        *by = (struct slice){u->strings + at,
                             strlen(u->strings + at)}; /* the last string ends with 0 */
        *used = i + 1;
        found = true;
    }
    return found;
}

/* Appends p with white space as the model expects it: squeezed, and one space before the first word. */
static int put_normal(const struct tok *t, struct buf *out, struct slice p, bool *in_word,
                      bool *prefixed) {
    for (size_t i = 0; i < p.n; i++) {
        bool space = p.p[i] == ' ';
        if (!space && !*in_word && (t->squeeze_spaces || (t->space_prefix && !*prefixed))) {
            buf_putc(out, ' ');
            *prefixed = true;
        }
        *in_word = !space;
        if (!space || !t->squeeze_spaces) buf_putc(out, p.p[i]);
    }
    return out->failed;
}

static int normalise(const struct tok *t, const char *text, size_t n, struct buf *out) {
    bool in_word = false, prefixed = false;
    for (size_t i = 0; i < n;) {
        struct slice p;
        size_t used;
        if (!replace(t->unigram, text + i, n - i, &used, &p)) {
            int len = utf8_valid_len(text + i, n - i);
            p = len > 0 ? (struct slice){text + i, (size_t)len} : SLICE("\xEF\xBF\xBD");
            used = len > 0 ? (size_t)len : 1;
        }
        int rc = put_normal(t, out, p, &in_word, &prefixed);
        if (rc) return rc;
        i += used;
    }
    if (out->n) out->n = tok_unmark((struct slice){out->p, out->n}, out->p);
    return 0;
}

/* ---- the best split ---- */

/* Computes best[i + 1] of s[0..n) from all earlier entries. */
static void search(const struct tok *t, const char *s, uint32_t n, struct best *best) {
    const struct unigram *u = t->unigram;
    best[0] = (struct best){0, 0, (uint32_t)t->unk};
    for (uint32_t i = 1; i <= n; i++) best[i] = (struct best){-DBL_MAX, 0, (uint32_t)t->unk};
    for (uint32_t i = 0, len; i < n; i += len) {
        size_t next = i;
        tok_next_cp(s, &next);
        len = (next > n ? n : (uint32_t)next) - i;
        bool single = false;
        uint32_t node = 0;
        const struct trie_edge *edge;
        for (uint32_t k = i; k < n && (edge = tok_trie_step(t->trie, node, s[k])) != NULL; k++) {
            node = edge->child;
            if (!edge->token) continue;
            single |= k + 1 - i == len;
            double score = best[i].score + (double)u->scores[edge->token - 1];
            if (score > best[k + 1].score) best[k + 1] = (struct best){score, i, edge->token - 1};
        }
        double score = best[i].score + u->unknown_score;
        if (!single && score > best[i + len].score)
            best[i + len] = (struct best){score, i, (uint32_t)t->unk};
    }
}

/* Appends the ids of one word; a run of unknown tokens becomes one. */
static int encode_word(struct enc *c, const char *s, uint32_t n, size_t first, struct best **best,
                       size_t *cap) {
    if (*cap < (size_t)n + 1) {
        size_t want = (size_t)n + n / 2 + 64;
        struct best *p = mem_realloc(*best, want * sizeof *p);
        if (!p) return CHIMERE_ENOMEM;
        *best = p;
        *cap = want;
    }
    search(c->t, s, n, *best);
    size_t n_before = c->out.n;
    for (uint32_t i = n; i > 0; i = (*best)[i].from)
        if (tok_ids_put(&c->out, (*best)[i].id)) return CHIMERE_ENOMEM;
    for (size_t a = n_before, b = c->out.n; a + 1 < b; a++, b--) {
        uint32_t swap = c->out.p[a];
        c->out.p[a] = c->out.p[b - 1], c->out.p[b - 1] = swap;
    }
    size_t n_out = n_before;
    for (size_t k = n_before; k < c->out.n; k++) {
        uint32_t id = c->out.p[k];
        bool again = id == (uint32_t)c->t->unk && n_out > first && c->out.p[n_out - 1] == id;
        if (!again) c->out.p[n_out++] = id;
    }
    c->out.n = n_out;
    return 0;
}

int tok_unigram_encode(struct enc *c, const char *text, uint32_t n) {
    struct buf b;
    buf_init(&b, 8 * (size_t)TOK_MAX_TEXT);
    int rc = normalise(c->t, text, n, &b);
    c->ends.n = 0;
    if (rc == 0 && b.n > TOK_MAX_TEXT) rc = CHIMERE_ELIMIT;
    if (rc == 0) rc = tok_cross_split(c->t, b.p, 0, (uint32_t)b.n, &c->ends);
    struct best *best = NULL;
    size_t cap = 0, first = c->out.n;
    uint32_t from = 0;
    for (size_t i = 0; rc == 0 && i < c->ends.n; from = c->ends.p[i++])
        rc = encode_word(c, b.p + from, c->ends.p[i] - from, first, &best, &cap);
    mem_free(best);
    buf_fini(&b);
    return rc;
}
