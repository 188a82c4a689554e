/* tok_special.c: finds special tokens written in a text.
 *
 * Longer tokens are searched first, over the whole text, then shorter ones in the rest, from left to right. One
 * pass over the text finds which lengths occur at all (in ordinary text: none), and only those are searched for. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "text/tok/tok_impl.h"

static bool may_begin(const struct special_set *s, const char *p) {
    uint32_t k = (uint32_t)(unsigned char)p[0] << 8 | (unsigned char)p[1];
    return s->first_two[k >> 6] >> (k & 63) & 1;
}

static uint32_t *slot_of(const struct tok *t, const struct special_set *s, const char *p,
                         size_t n) {
    for (uint32_t i = (uint32_t)hash_bytes(p, n, t->seed) & s->mask;; i = (i + 1) & s->mask) {
        if (!s->slots[i]) return &s->slots[i];
        struct slice have = tok_symbol(t, s->slots[i] - 1);
        if (have.n == n && memcmp(have.p, p, n) == 0) return &s->slots[i];
    }
}

static bool belongs(const struct tok *t, uint32_t id, bool user_only) {
    uint8_t k = t->kinds[id];
    bool special = k == TOK_USER_DEFINED || (!user_only && (k == TOK_CONTROL || k == TOK_UNKNOWN));
    return special && tok_symbol(t, id).n > 0;
}

static int longest_first(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

static int set_build(struct tok *t, struct special_set *s, bool user_only) {
    uint32_t n = 0, cap = 64;
    for (uint32_t i = 0; i < t->n_vocab; i++) n += belongs(t, i, user_only);
    if (n == 0) return 0;
    while (cap < 2 * n) cap *= 2;
    s->slots = mem_alloc_array(cap, sizeof *s->slots);
    s->lengths = mem_alloc_array(n, sizeof *s->lengths);
    s->first_two = mem_alloc_array(65536 / 64, sizeof *s->first_two);
    if (!s->slots || !s->lengths || !s->first_two) return CHIMERE_ENOMEM;
    s->mask = cap - 1;
    n = 0;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        if (!belongs(t, i, user_only)) continue;
        struct slice p = tok_symbol(t, i);
        uint32_t *slot = slot_of(t, s, p.p, p.n), first = (uint32_t)(unsigned char)p.p[0] << 8;
        if (*slot) continue;
        *slot = i + 1;
        s->lengths[n++] = (uint32_t)p.n;
        if (p.n == 1) memset(&s->first_two[first >> 6], 0xff, 256 / 8);
        else
            first |= (unsigned char)p.p[1], s->first_two[first >> 6] |= (uint64_t)1 << (first & 63);
    }
    qsort(s->lengths, n, sizeof *s->lengths, longest_first);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || s->lengths[i] != s->lengths[s->n_length - 1])
            s->lengths[s->n_length++] = s->lengths[i];
    return 0;
}

int tok_special_build(struct tok *t) {
    int rc = set_build(t, &t->all, false);
    return rc ? rc : set_build(t, &t->user, true);
}

void tok_special_free(struct special_set *s) {
    mem_free(s->slots);
    mem_free(s->lengths);
    mem_free(s->first_two);
}

/* ---- cutting ---- */

static int put(struct fragments *f, uint32_t from, uint32_t to, int32_t id) {
    if (from == to && id < 0) return 0;
    if (f->n == f->cap) {
        size_t cap = f->cap * 2 + 16, bytes;
        if (!size_mul(cap, sizeof *f->p, &bytes)) return CHIMERE_ENOMEM;
        struct fragment *p = mem_realloc(f->p, bytes);
        if (!p) return CHIMERE_ENOMEM;
        f->p = p;
        f->cap = cap;
    }
    f->p[f->n++] = (struct fragment){from, to, id};
    return 0;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Sets present[k] if a member of length s->lengths[k] occurs. Stops and sets all of them if this costs more than
 * the searches that it would save. */
static bool mark_lengths(const struct tok *t, const struct special_set *s, const char *text,
                         uint32_t n, bool *present) {
    bool any = false;
    uint64_t budget = (uint64_t)n + 4096, spent = 0;
    for (uint32_t i = 0; i < n; i++) {
        char two[2] = {text[i], i + 1 < n ? text[i + 1] : 0};
        if (!may_begin(s, two)) continue;
        for (uint32_t k = 0; k < s->n_length; k++) {
            if (present[k] || s->lengths[k] > n - i) continue;
            spent += 1 + s->lengths[k] / 8;
            if (*slot_of(t, s, text + i, s->lengths[k])) present[k] = any = true;
        }
        if (spent > 8 * budget) {
            memset(present, true, s->n_length);
            return true;
        }
    }
    return any;
}

/* Cuts the plain fragments of `in` at the members of one length. */
static int cut_length(const struct tok *t, const struct special_set *s, const char *text,
                      uint32_t len, const struct fragments *in, struct fragments *out) {
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < in->n; k++) {
        const struct fragment f = in->p[k];
        if (f.id >= 0 || f.to - f.from < len) {
            rc = put(out, f.from, f.to, f.id);
            continue;
        }
        uint32_t from = f.from; /* start of the text that is not cut yet */
        for (uint32_t i = f.from; rc == 0 && i + len <= f.to;) {
            char two[2] = {text[i], i + 1 < f.to ? text[i + 1] : 0};
            int32_t id = may_begin(s, two) ? (int32_t)(*slot_of(t, s, text + i, len) - 1) : -1;
            if (id < 0) {
                i++;
                continue;
            }
            uint32_t end = i, next = i + len;
            unsigned strip = t->strips ? t->strips[id] : 0;
            if (strip & TOK_STRIP_LEFT)
                while (end > from && is_space(text[end - 1])) end--;
            if (strip & TOK_STRIP_RIGHT)
                while (next < f.to && is_space(text[next])) next++;
            rc = put(out, from, end, -1);
            if (rc == 0) rc = put(out, i, i + len, id);
            from = i = next;
        }
        if (rc == 0) rc = put(out, from, f.to, -1);
    }
    return rc;
}

int tok_special_cut(const struct tok *t, const char *text, uint32_t n, bool parse_special,
                    struct fragments *out) {
    const struct special_set *s = parse_special ? &t->all : &t->user;
    int rc = put(out, 0, n, -1);
    if (rc || n == 0 || s->n_length == 0) return rc;
    bool *present = mem_zalloc(s->n_length);
    if (!present) return CHIMERE_ENOMEM;
    if (mark_lengths(t, s, text, n, present)) {
        for (uint32_t k = 0; rc == 0 && k < s->n_length; k++) {
            if (!present[k]) continue;
            struct fragments next = {0};
            rc = cut_length(t, s, text, s->lengths[k], out, &next);
            mem_free(out->p);
            *out = next;
        }
    }
    mem_free(present);
    return rc;
}
