/* grammar_dfa.c: tables, products and trimming of automata over code points. */
#include "text/grammar/grammar_dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void dfa_free(struct dfa *d) {
    mem_free(d->intervals), mem_free(d->next), mem_free(d->accepts);
    *d = (struct dfa){.n_state = 0};
}

bool dfa_alloc(struct grammar_builder *b, struct dfa *d, uint32_t n_state, uint32_t n_atom,
               uint32_t n_interval) {
    *d = (struct dfa){.n_state = n_state, .n_atom = n_atom, .n_interval = n_interval};
    if (b->rc) return false;
    if (n_state > DFA_MAX_STATE || (uint64_t)n_state * n_atom > DFA_MAX_TABLE) {
        grammar_fail(b, CHIMERE_ELIMIT, "schema: a string constraint needs more than %u states",
                     DFA_MAX_STATE);
        return false;
    }
    size_t n = (size_t)n_state * n_atom;
    d->intervals = mem_alloc_array((size_t)n_interval + 1, sizeof *d->intervals);
    d->next = mem_alloc_array(n + 1, sizeof *d->next);
    d->accepts = mem_alloc_array((size_t)n_state + 1, sizeof *d->accepts);
    if (!d->intervals || !d->next || !d->accepts) {
        grammar_nomem(b);
        return false;
    }
    memset(d->next, 0xff, n * sizeof *d->next);
    return grammar_tick(b, n_state);
}

static uint32_t *row(const struct dfa *d, uint32_t s) { return d->next + (size_t)s * d->n_atom; }

bool dfa_is_empty(const struct dfa *d) { return d->n_state == 0; }

bool dfa_is_universal(const struct dfa *d, uint32_t s) {
    for (uint32_t a = 0; a < d->n_atom; a++)
        if (row(d, s)[a] != s) return false;
    return d->accepts[s];
}

static uint32_t atom_of(const struct dfa *d, uint32_t cp) {
    uint32_t lo = 0, hi = d->n_interval;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (d->intervals[mid].hi < cp) lo = mid + 1;
        else hi = mid;
    }
    return d->intervals[lo].to;
}

bool dfa_matches(const struct dfa *d, struct slice text) {
    uint32_t s = 0, cp;
    if (dfa_is_empty(d)) return false;
    for (size_t i = 0; i < text.n;) {
        int n = utf8_decode(text.p + i, text.n - i, &cp);
        if (n <= 0) return false;
        s = row(d, s)[atom_of(d, cp)];
        if (s == GRAMMAR_NONE) return false;
        i += (size_t)n;
    }
    return d->accepts[s];
}

/* Removes states from which no accepting state can be reached, and states that cannot be reached; the automaton
 * may become empty. */
void dfa_trim(struct grammar_builder *b, struct dfa *d) {
    size_t n = d->n_state, n_edge = n * d->n_atom;
    if (b->rc || n == 0) return;
    uint32_t *first = mem_alloc_array(n + 2, 4), *from = mem_alloc_array(n_edge + 1, 4);
    uint32_t *work = mem_alloc_array(n + 1, 4), *name = mem_alloc_array(n + 1, 4), n_work = 0;
    /* 1: leads to an accepting state, 2: is also reachable */
    uint8_t *mark = mem_zalloc(n + 1);
    if (first && from && work && name && mark) {
        for (size_t i = 0; i < n_edge; i++)
            if (d->next[i] != GRAMMAR_NONE) first[d->next[i] + 1]++;
        for (size_t s = 0; s < n; s++) first[s + 1] += first[s];
        for (size_t i = 0; i < n_edge; i++)
            if (d->next[i] != GRAMMAR_NONE) from[first[d->next[i]]++] = (uint32_t)(i / d->n_atom);
        memmove(first + 1, first, n * sizeof *first);
        first[0] = 0;
        for (uint32_t s = 0; s < n; s++)
            if (d->accepts[s]) mark[s] = 1, work[n_work++] = s;
        while (n_work) {
            uint32_t s = work[--n_work];
            for (uint32_t k = first[s]; k < first[s + 1]; k++)
                if (!mark[from[k]]) mark[from[k]] = 1, work[n_work++] = from[k];
        }
        uint32_t n_kept = 0;
        if (mark[0]) mark[0] = 3, name[n_kept++] = 0;
        for (uint32_t i = 0; i < n_kept; i++)
            for (uint32_t a = 0; a < d->n_atom; a++) {
                uint32_t *to = &row(d, name[i])[a];
                if (*to != GRAMMAR_NONE && !(mark[*to] & 1)) *to = GRAMMAR_NONE;
                if (*to != GRAMMAR_NONE && mark[*to] == 1) mark[*to] = 3, name[n_kept++] = *to;
            }
        for (uint32_t i = 0; i < n_kept; i++) work[name[i]] = i; /* old state -> new state */
        uint32_t *next = mem_alloc_array((size_t)n_kept * d->n_atom + 1, 4);
        bool *accepts = mem_alloc_array((size_t)n_kept + 1, sizeof *accepts);
        if (next && accepts) {
            for (uint32_t i = 0; i < n_kept; i++) {
                accepts[i] = d->accepts[name[i]];
                for (uint32_t a = 0; a < d->n_atom; a++) {
                    uint32_t to = row(d, name[i])[a];
                    next[(size_t)i * d->n_atom + a] = to == GRAMMAR_NONE ? to : work[to];
                }
            }
            mem_free(d->next), mem_free(d->accepts);
            d->next = next, d->accepts = accepts;
            d->n_state = n_kept;
        } else {
            mem_free(next), mem_free(accepts);
            grammar_nomem(b);
        }
    } else {
        grammar_nomem(b);
    }
    mem_free(first), mem_free(from), mem_free(work), mem_free(name), mem_free(mark);
    grammar_tick(b, (uint32_t)(n_edge / 16 + n));
}

/* ---- literal texts ---- */

struct trie_build {            /* transitions on single code points, before the alphabet is known */
    struct grammar_vec states; /* struct { first edge } */
    struct grammar_vec edges;  /* struct trie_edge, linked per state */
};
struct trie_edge {
    uint32_t cp, to, next;
};
struct trie_state {
    uint32_t first;
    bool accepts;
};

static uint32_t trie_child(struct grammar_builder *b, struct trie_build *t, uint32_t s,
                           uint32_t cp) {
    struct trie_edge *edges = t->edges.p;
    for (uint32_t k = ((struct trie_state *)t->states.p)[s].first; k != GRAMMAR_NONE;
         k = edges[k].next)
        if (edges[k].cp == cp) return edges[k].to;
    uint32_t to = grammar_vec_add(b, &t->states, 1, sizeof(struct trie_state), "characters in enum",
                                  DFA_MAX_STATE);
    uint32_t e = grammar_vec_add(b, &t->edges, 1, sizeof(struct trie_edge), "characters in enum",
                                 DFA_MAX_STATE);
    if (e == GRAMMAR_NONE) return 0;
    struct trie_state *from = (struct trie_state *)t->states.p + s;
    ((struct trie_edge *)t->edges.p)[e] = (struct trie_edge){cp, to, from->first};
    from->first = e;
    ((struct trie_state *)t->states.p)[to].first = GRAMMAR_NONE;
    return to;
}

/* Makes intervals: each code point of the set has its own; the code points in between are atom 0. */
static uint32_t single_intervals(const uint32_t *sorted, uint32_t n, struct grammar_range *out,
                                 uint32_t *n_interval) {
    uint32_t lo = 0, n_atom = 1, k = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (sorted[i] > lo) out[k++] = (struct grammar_range){lo, sorted[i] - 1, 0};
        out[k++] = (struct grammar_range){sorted[i], sorted[i], n_atom++};
        lo = sorted[i] + 1;
    }
    if (lo <= 0x10FFFF) out[k++] = (struct grammar_range){lo, 0x10FFFF, 0};
    *n_interval = k;
    return n_atom;
}

static int by_value(const void *x, const void *y) {
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

static void trie_to_dfa(struct grammar_builder *b, const struct trie_build *t, struct dfa *out) {
    uint32_t n = t->edges.n, n_cp = 0;
    uint32_t *cps = mem_alloc_array((size_t)n + 1, 4);
    struct grammar_range *iv = mem_alloc_array(2 * (size_t)n + 2, sizeof *iv);
    if (!cps || !iv) grammar_nomem(b);
    for (uint32_t i = 0; !b->rc && i < n; i++) cps[i] = ((struct trie_edge *)t->edges.p)[i].cp;
    if (!b->rc) {
        qsort(cps, n, 4, by_value);
        for (uint32_t i = 0; i < n; i++)
            if (n_cp == 0 || cps[i] != cps[n_cp - 1]) cps[n_cp++] = cps[i];
        uint32_t n_iv, n_atom = single_intervals(cps, n_cp, iv, &n_iv);
        if (dfa_alloc(b, out, t->states.n, n_atom, n_iv)) {
            memcpy(out->intervals, iv, n_iv * sizeof *iv);
            for (uint32_t s = 0; s < t->states.n; s++) {
                const struct trie_state *from = (struct trie_state *)t->states.p + s;
                out->accepts[s] = from->accepts;
                for (uint32_t k = from->first; k != GRAMMAR_NONE;) {
                    const struct trie_edge *e = (struct trie_edge *)t->edges.p + k;
                    row(out, s)[atom_of(out, e->cp)] = e->to;
                    k = e->next;
                }
            }
        }
    }
    mem_free(cps), mem_free(iv);
}

void dfa_from_texts(struct grammar_builder *b, const struct slice *texts, uint32_t n,
                    struct dfa *out) {
    struct trie_build t = {{NULL, 0, 0}, {NULL, 0, 0}};
    *out = (struct dfa){.n_state = 0};
    if (grammar_vec_add(b, &t.states, 1, sizeof(struct trie_state), "texts", 1) == 0)
        ((struct trie_state *)t.states.p)[0].first = GRAMMAR_NONE;
    for (uint32_t i = 0; i < n && !b->rc; i++) {
        uint32_t s = 0, cp = 0;
        for (size_t k = 0; k < texts[i].n && !b->rc;) {
            int len = utf8_decode(texts[i].p + k, texts[i].n - k, &cp);
            if (len <= 0) {
                grammar_fail(b, CHIMERE_EFORMAT, "schema: a text is not UTF-8");
                break;
            }
            s = trie_child(b, &t, s, cp);
            k += (size_t)len;
        }
        if (!b->rc) ((struct trie_state *)t.states.p)[s].accepts = true;
        grammar_tick(b, (uint32_t)texts[i].n + 1);
    }
    if (!b->rc) trie_to_dfa(b, &t, out);
    dfa_trim(b, out);
    mem_free(t.states.p), mem_free(t.edges.p);
}

void dfa_from_length(struct grammar_builder *b, uint32_t min, uint32_t max, struct dfa *out) {
    *out = (struct dfa){.n_state = 0};
    if (min > max) return;
    uint32_t last = max == UINT32_MAX ? min : max;
    if (last >= DFA_MAX_STATE) {
        grammar_fail(b, CHIMERE_ELIMIT, "schema: minLength or maxLength above %u beside a pattern",
                     DFA_MAX_STATE);
        return;
    }
    if (!dfa_alloc(b, out, last + 1, 1, 1)) return;
    out->intervals[0] = (struct grammar_range){0, 0x10FFFF, 0};
    for (uint32_t s = 0; s <= last; s++) {
        out->next[s] = s < last ? s + 1 : max == UINT32_MAX ? s : GRAMMAR_NONE;
        out->accepts[s] = s >= min;
    }
}

/* ---- product ---- */

struct product {
    struct grammar_builder *b;
    const struct dfa *x, *y;
    struct map seen;           /* pair of states -> state */
    struct grammar_vec states; /* struct { x, y } */
};

static uint32_t pair_state(struct product *p, uint32_t sx, uint32_t sy) {
    uint32_t key[2] = {sx, sy}, s;
    if (map_find(&p->seen, (const char *)key, sizeof key, &s)) return s;
    s = grammar_vec_add(p->b, &p->states, 1, sizeof key, "states of string constraints",
                        DFA_MAX_STATE);
    if (s == GRAMMAR_NONE) return 0;
    memcpy((uint32_t *)p->states.p + 2 * s, key, sizeof key);
    if (map_put(&p->seen, (const char *)key, sizeof key, s) < 0) grammar_nomem(p->b);
    return s;
}

/* Computes the common refinement of both alphabets: its atoms are the pairs that occur. Returns the number of
 * atoms. */
static uint32_t refine(const struct dfa *x, const struct dfa *y, struct grammar_range *iv,
                       uint32_t *n_iv, uint32_t (*atoms)[2]) {
    uint32_t i = 0, j = 0, lo = 0, n_atom = 0, n = 0;
    while (i < x->n_interval && j < y->n_interval) {
        uint32_t hx = x->intervals[i].hi, hy = y->intervals[j].hi, hi = hx < hy ? hx : hy, a = 0;
        uint32_t ax = x->intervals[i].to, ay = y->intervals[j].to;
        while (a < n_atom && (atoms[a][0] != ax || atoms[a][1] != ay)) a++;
        if (a == n_atom) atoms[n_atom][0] = ax, atoms[n_atom++][1] = ay;
        iv[n++] = (struct grammar_range){lo, hi, a};
        lo = hi + 1;
        i += hx == hi;
        j += hy == hi;
    }
    *n_iv = n;
    return n_atom;
}

void dfa_intersect(struct grammar_builder *b, const struct dfa *x, const struct dfa *y, bool negate,
                   struct dfa *out) {
    *out = (struct dfa){.n_state = 0};
    if (b->rc || dfa_is_empty(x) || (!negate && dfa_is_empty(y))) return;
    static const struct grammar_range whole = {0, 0x10FFFF, 0};
    uint32_t none = GRAMMAR_NONE;
    bool no = false;
    struct dfa nothing = {1, 1, 1, (struct grammar_range *)&whole, &none, &no};
    if (dfa_is_empty(y)) y = &nothing;
    struct product p = {.b = b, .x = x, .y = y};
    size_t n_iv_max = (size_t)x->n_interval + y->n_interval + 1;
    struct grammar_range *iv = mem_alloc_array(n_iv_max, sizeof *iv);
    uint32_t(*atoms)[2] = mem_alloc_array(n_iv_max, sizeof *atoms), n_iv = 0, n_atom = 0;
    struct grammar_vec next = {NULL, 0, 0};
    map_init(&p.seen, (size_t)DFA_MAX_STATE * 32);
    if (iv && atoms) n_atom = refine(x, y, iv, &n_iv, atoms);
    else grammar_nomem(b);
    if (!b->rc) pair_state(&p, 0, 0);
    for (uint32_t s = 0; s < p.states.n && grammar_tick(b, n_atom); s++) {
        uint32_t sx = ((uint32_t *)p.states.p)[2 * s], sy = ((uint32_t *)p.states.p)[2 * s + 1];
        uint32_t at =
            grammar_vec_add(b, &next, n_atom, 4, "states of string constraints", DFA_MAX_TABLE);
        for (uint32_t a = 0; a < n_atom && !b->rc; a++) {
            uint32_t tx = row(x, sx)[atoms[a][0]];
            uint32_t ty = sy == GRAMMAR_NONE ? GRAMMAR_NONE : row(y, sy)[atoms[a][1]];
            bool dead = tx == GRAMMAR_NONE || (!negate && ty == GRAMMAR_NONE);
            uint32_t to = dead ? GRAMMAR_NONE : pair_state(&p, tx, ty);
            if (!b->rc) ((uint32_t *)next.p)[at + a] = to;
        }
    }
    if (!b->rc && dfa_alloc(b, out, p.states.n, n_atom, n_iv)) {
        memcpy(out->intervals, iv, n_iv * sizeof *iv);
        memcpy(out->next, next.p, (size_t)next.n * 4);
        for (uint32_t s = 0; s < p.states.n; s++) {
            uint32_t sx = ((uint32_t *)p.states.p)[2 * s], sy = ((uint32_t *)p.states.p)[2 * s + 1];
            out->accepts[s] = x->accepts[sx] && (sy != GRAMMAR_NONE && y->accepts[sy]) != negate;
        }
    }
    mem_free(iv), mem_free(atoms), mem_free(next.p), mem_free(p.states.p);
    map_fini(&p.seen);
    dfa_trim(b, out);
}
