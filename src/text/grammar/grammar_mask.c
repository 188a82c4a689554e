/* grammar_mask.c: the trie of the vocabulary, and the masks that are computed by walking it.
 *
 * A mask is found in one of three ways, cheapest first. First, the whole mask stored with the state. Second, the
 * union of the local masks of the state's configurations, plus the branches of the trie that leave their rules,
 * which are walked with the real stack. Third, a local mask computed as a difference from the mask of a similar
 * node: inside `"nam`, for example, all strings but one may follow, so only a few branches are walked. The mask
 * inside a JSON string is computed once per vocabulary. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "text/grammar/grammar_match_impl.h"

#define MAX_PIECE_BYTES 16384 /* longer pieces are never allowed */

/* ---- vocabulary ---- */

struct sort_context {
    const struct slice *pieces;
};

static int by_bytes(const void *x, const void *y, void *context) {
    const struct slice *pieces = ((struct sort_context *)context)->pieces;
    uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;
    const struct slice *a = &pieces[i], *b = &pieces[j];
    int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    if (c) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return i < j ? -1 : i > j;
}

static size_t n_shared_bytes(struct slice a, struct slice b) {
    size_t n = a.n < b.n ? a.n : b.n, i = 0;
    while (i < n && a.p[i] == b.p[i]) i++;
    return i;
}

static int build_trie(struct grammar_vocab *v, const struct slice *pieces) {
    size_t n_node = 1;
    for (uint32_t i = 0; i < v->n_token; i++) {
        struct slice piece = pieces[v->tokens[i]];
        n_node += piece.n - (i ? n_shared_bytes(pieces[v->tokens[i - 1]], piece) : 0);
        if (piece.n > v->max_piece_bytes) v->max_piece_bytes = (uint32_t)piece.n;
    }
    if (n_node >= UINT32_MAX - 1) return CHIMERE_ELIMIT;
    v->trie = mem_alloc_array(n_node + 1, sizeof *v->trie);
    uint32_t *open = mem_alloc_array((size_t)v->max_piece_bytes + 1, sizeof *open);
    if (!v->trie || !open) {
        mem_free(open);
        return CHIMERE_ENOMEM;
    }
    uint32_t n = 1, depth = 0; /* open[d]: the node of depth d on the current path */
    for (uint32_t i = 0; i < v->n_token; i++) {
        struct slice piece = pieces[v->tokens[i]];
        size_t keep = i ? n_shared_bytes(pieces[v->tokens[i - 1]], piece) : 0;
        for (; depth > keep; depth--) v->trie[open[depth]].end = n;
        while (depth < piece.n) {
            open[++depth] = n;
            v->trie[n++] = (struct trie_node){0, i, (uint16_t)depth, (uint8_t)piece.p[depth - 1]};
        }
    }
    for (; depth > 0; depth--) v->trie[open[depth]].end = n;
    v->trie[0].end = n;
    v->trie[n] = (struct trie_node){n + 1, v->n_token, 0, 0};
    v->n_trie = n;
    mem_free(open);
    return 0;
}

static int copy_pieces(struct grammar_vocab *v, const struct slice *pieces, const uint8_t *kinds) {
    size_t n_byte = 0;
    for (uint32_t i = 0; i < v->n_vocab; i++)
        if (!size_add(n_byte, pieces[i].n, &n_byte) || n_byte > UINT32_MAX / 2)
            return CHIMERE_ELIMIT;
    v->kinds = mem_alloc((size_t)v->n_vocab + 1);
    v->bytes = mem_alloc(n_byte + 1);
    v->piece = mem_alloc_array((size_t)v->n_vocab + 1, sizeof *v->piece);
    v->tokens = mem_alloc_array((size_t)v->n_vocab + 1, sizeof *v->tokens);
    v->eog = mem_alloc_array((size_t)v->n_vocab + 1, sizeof *v->eog);
    if (!v->kinds || !v->bytes || !v->piece || !v->tokens || !v->eog) return CHIMERE_ENOMEM;
    uint32_t at = 0;
    for (uint32_t i = 0; i < v->n_vocab; i++) {
        uint32_t n = (uint32_t)pieces[i].n;
        v->kinds[i] = kinds ? kinds[i] : GRAMMAR_TOKEN_TEXT;
        v->piece[i] = at;
        if (n) memcpy(v->bytes + at, pieces[i].p, n);
        at += n;
        if (v->kinds[i] == GRAMMAR_TOKEN_EOG) v->eog[v->n_eog++] = i;
        if (v->kinds[i] == GRAMMAR_TOKEN_TEXT && n > MAX_PIECE_BYTES)
            v->kinds[i] = GRAMMAR_TOKEN_SPECIAL;
        if (v->kinds[i] == GRAMMAR_TOKEN_TEXT && n > 0) v->tokens[v->n_token++] = i;
    }
    v->piece[v->n_vocab] = at;
    return 0;
}

/* ---- the inside of JSON strings ---- */

/* Sorts tokens[n] by chars[i] (both in walking order) into list. */
static int fill_char_list(struct char_list *list, const uint32_t *tokens, const uint16_t *chars,
                          uint32_t n, uint32_t max_chars) {
    list->tokens = mem_alloc_array((size_t)n + 1, sizeof *list->tokens);
    list->first = mem_alloc_array((size_t)max_chars + 3, sizeof *list->first);
    if (!list->tokens || !list->first) return CHIMERE_ENOMEM;
    for (uint32_t i = 0; i < n; i++) list->first[chars[i] + 2]++;
    for (uint32_t c = 2; c < max_chars + 3; c++) list->first[c] += list->first[c - 1];
    for (uint32_t i = 0; i < n; i++) list->tokens[list->first[chars[i] + 1]++] = tokens[i];
    return 0;
}

struct free_walk {
    struct grammar_matcher *m;
    uint32_t start;           /* the state between two characters */
    uint32_t *state;          /* owned: states along the trie path */
    uint16_t *chars;          /* owned: number of characters completed along the path */
    uint32_t *tokens[2];      /* owned: tokens that stay in the string, tokens that close it */
    uint16_t *token_chars[2]; /* owned */
    uint32_t n[2];
};

/* Walks the trie from inside a string; fills the lists of w, and the bits and exits of v. */
static int walk_free(struct free_walk *w, struct grammar_vocab *v) {
    const struct trie_node *trie = v->trie;
    w->state[0] = w->start;
    w->chars[0] = 0;
    for (uint32_t n = 1; n < v->n_trie;) {
        uint32_t depth = trie[n].depth, to = match_step(w->m, w->state[depth - 1], trie[n].byte);
        if (to == HANDLE_UNKNOWN) return CHIMERE_ELIMIT;
        if (to == HANDLE_DEAD) {
            n = trie[n].end;
            continue;
        }
        bool closes = state_flags(w->m, to) & STATE_EXIT;
        uint16_t chars = w->chars[depth - 1];
        uint16_t room = closes ? chars : (uint16_t)(chars + 1);
        for (uint32_t k = trie[n].token; k < trie[n + 1].token; k++) {
            w->tokens[closes][w->n[closes]] = v->tokens[k];
            w->token_chars[closes][w->n[closes]++] = room;
            v->free_bits[v->tokens[k] / 64] |= 1ULL << v->tokens[k] % 64;
        }
        if (closes && trie[n].end > n + 1) {
            v->free_exits[v->n_free_exit] = n;
            v->free_exit_chars[v->n_free_exit++] = chars;
        }
        w->state[depth] = to;
        w->chars[depth] = to == w->start ? (uint16_t)(chars + 1) : chars;
        n = closes ? trie[n].end : n + 1;
    }
    return 0;
}

static int find_free_lists(struct grammar_vocab *v, struct grammar_matcher *m, uint32_t start) {
    struct free_walk w = {.m = m, .start = start};
    size_t n_path = (size_t)v->max_piece_bytes + 2;
    w.state = mem_alloc_array(n_path, sizeof *w.state);
    w.chars = mem_alloc_array(n_path, sizeof *w.chars);
    int rc = w.state && w.chars ? 0 : CHIMERE_ENOMEM;
    for (int i = 0; i < 2; i++) {
        w.tokens[i] = mem_alloc_array((size_t)v->n_token + 1, sizeof **w.tokens);
        w.token_chars[i] = mem_alloc_array((size_t)v->n_token + 1, sizeof **w.token_chars);
        if (!w.tokens[i] || !w.token_chars[i]) rc = CHIMERE_ENOMEM;
    }
    v->free_bits = mem_alloc_array((size_t)v->n_vocab / 64 + 1, sizeof *v->free_bits);
    v->free_exits = mem_alloc_array((size_t)v->n_trie + 1, sizeof *v->free_exits);
    v->free_exit_chars = mem_alloc_array((size_t)v->n_trie + 1, sizeof *v->free_exit_chars);
    if (!v->free_bits || !v->free_exits || !v->free_exit_chars) rc = CHIMERE_ENOMEM;
    if (rc == 0) rc = walk_free(&w, v);
    if (rc == 0)
        rc = fill_char_list(&v->staying, w.tokens[0], w.token_chars[0], w.n[0], v->max_piece_bytes);
    if (rc == 0)
        rc = fill_char_list(&v->closing, w.tokens[1], w.token_chars[1], w.n[1], v->max_piece_bytes);
    mem_free(w.state), mem_free(w.chars);
    for (int i = 0; i < 2; i++) mem_free(w.tokens[i]), mem_free(w.token_chars[i]);
    return rc;
}

static int find_free_mask(struct grammar_vocab *v, struct err *e) {
    static const char any_string[] = "{\"type\":\"string\"}";
    struct grammar *g;
    struct grammar_matcher *m = NULL;
    int rc = grammar_from_schema(&g, any_string, sizeof any_string - 1, NULL, e);
    if (rc) return rc;
    rc = grammar_matcher_new(&m, g, v, 0, e);
    if (rc == 0) {
        uint32_t start = mask_local_start(m, g->free_string, m->data_none);
        rc = start > HANDLE_DEAD ? find_free_lists(v, m, start) : CHIMERE_EINTERNAL;
        if (rc) err_set(e, rc, "grammar: out of memory for the vocabulary");
    }
    grammar_matcher_free(m);
    grammar_free(g);
    return rc;
}

int grammar_vocab_new(struct grammar_vocab **out, uint32_t n_vocab, const struct slice *pieces,
                      const uint8_t *kinds, struct err *e) {
    *out = NULL;
    if (n_vocab == 0 || n_vocab > INT32_MAX / 2)
        return err_set(e, CHIMERE_EINVAL, "grammar: a vocabulary of %u tokens", n_vocab);
    struct grammar_vocab *v = mem_zalloc(sizeof *v);
    if (!v) return err_set(e, CHIMERE_ENOMEM, "grammar: out of memory");
    v->n_vocab = n_vocab;
    int rc = copy_pieces(v, pieces, kinds);
    if (rc == 0) {
        struct sort_context context = {pieces};
        qsort_r(v->tokens, v->n_token, sizeof *v->tokens, by_bytes, &context);
        rc = build_trie(v, pieces);
    }
    if (rc)
        err_set(e, rc,
                rc == CHIMERE_ENOMEM ? "grammar: out of memory for the vocabulary"
                                     : "grammar: the vocabulary's pieces are too long");
    else rc = find_free_mask(v, e);
    if (rc) {
        grammar_vocab_free(v);
        return rc;
    }
    *out = v;
    return 0;
}

void grammar_vocab_free(struct grammar_vocab *v) {
    if (!v) return;
    mem_free(v->trie), mem_free(v->tokens), mem_free(v->eog), mem_free(v->kinds),
        mem_free(v->bytes);
    mem_free(v->piece), mem_free(v->free_bits), mem_free(v->free_exits);
    mem_free(v->free_exit_chars), mem_free(v->staying.tokens), mem_free(v->staying.first);
    mem_free(v->closing.tokens), mem_free(v->closing.first);
    mem_free(v);
}

/* ---- local masks ---- */

int mask_init(struct grammar_matcher *m, size_t cache_bytes) {
    const struct grammar_vocab *v = m->v;
    m->n_mask_word = (v->n_vocab + 63) / 64;
    size_t mask_bytes = (size_t)m->n_mask_word * 8;
    /* one third each for whole masks, local bitmaps and lists; at least four bitmaps and one full list */
    size_t n_mask = cache_bytes / 3 / mask_bytes;
    m->cap_mask = n_mask < 4 ? 4 : n_mask > 65536 ? 65536 : (uint32_t)n_mask;
    m->cap_local_bits = m->cap_mask;
    m->cap_list = (uint32_t)(cache_bytes / 3 / 4) + v->n_trie + v->n_token;
    m->cap_local = 1 << 14;
    m->masks = mem_alloc_array((size_t)m->cap_mask * m->n_mask_word, 8);
    m->mask_owner = mem_alloc_array(m->cap_mask, 4);
    m->mask_used = mem_zalloc(m->cap_mask);
    m->locals = mem_alloc_array(m->cap_local, sizeof *m->locals);
    m->local_bits = mem_alloc_array((size_t)m->cap_local_bits * m->n_mask_word, 8);
    m->lists = mem_alloc_array(m->cap_list, 4);
    m->token_buf = mem_alloc_array((size_t)v->n_token + 1, 4);
    m->exit_buf = mem_alloc_array((size_t)v->n_trie + 1, 4);
    m->walk = mem_alloc_array(2 * ((size_t)v->max_piece_bytes + 2), 4);
    if (!m->masks || !m->mask_owner || !m->mask_used || !m->locals || !m->local_bits || !m->lists ||
        !m->token_buf || !m->exit_buf || !m->walk)
        return CHIMERE_ENOMEM;
    mask_flush(m);
    return 0;
}

void mask_fini(struct grammar_matcher *m) {
    mem_free(m->masks), mem_free(m->mask_owner), mem_free(m->mask_used), mem_free(m->locals);
    mem_free(m->local_bits), mem_free(m->lists), mem_free(m->token_buf), mem_free(m->exit_buf);
    mem_free(m->walk);
}

static void flush_locals(struct grammar_matcher *m) {
    for (uint32_t i = 0; i < m->cap_local; i++) m->locals[i].node = GRAMMAR_NONE;
    m->n_local = m->n_local_bits = m->n_list = 0;
    m->local_epoch++;
}

void mask_flush(struct grammar_matcher *m) {
    memset(m->mask_owner, 0, m->cap_mask * sizeof *m->mask_owner);
    memset(m->mask_used, 0, m->cap_mask);
    flush_locals(m);
}

static bool has_confs(const struct grammar_matcher *m, uint32_t s) { return object_n(m, s) > 3; }

struct found { /* numbers of results of a walk */
    uint32_t n_token, n_exit;
};

/* Walks the subtree of `top` from state s. Stores the tokens in m->token_buf. Stores in m->exit_buf the nodes at
 * which the bottom frame was left and after which tokens continue. Returns false on overflow. */
static bool walk_all(struct grammar_matcher *m, uint32_t top, uint32_t s, struct found *found) {
    const struct trie_node *trie = m->v->trie;
    const uint32_t *tokens = m->v->tokens;
    uint32_t *state = m->walk, from = trie[top].depth, end = trie[top].end;
    state[0] = s;
    if (!has_confs(m, s)) return true;
    for (uint32_t n = top + 1; n < end;) {
        uint32_t depth = trie[n].depth - from;
        uint32_t to = match_step(m, state[depth - 1], trie[n].byte);
        if (to <= HANDLE_DEAD) {
            if (to == HANDLE_UNKNOWN) return false;
            n = trie[n].end;
            continue;
        }
        for (uint32_t k = trie[n].token; k < trie[n + 1].token; k++)
            m->token_buf[found->n_token++] = tokens[k];
        if ((state_flags(m, to) & STATE_EXIT) && trie[n].end > n + 1)
            m->exit_buf[found->n_exit++] = n;
        if (!has_confs(m, to)) {
            n = trie[n].end;
            continue;
        }
        state[depth] = to;
        n++;
    }
    return true;
}

static void set_tokens(const struct grammar_vocab *v, uint64_t *bits, uint32_t first, uint32_t end,
                       bool value) {
    for (uint32_t k = first; k < end; k++) {
        uint64_t bit = 1ULL << v->tokens[k] % 64;
        if (value) bits[v->tokens[k] / 64] |= bit;
        else bits[v->tokens[k] / 64] &= ~bit;
    }
}

/* The same from s, if `bits` and `base` are the results for state t: only branches in which the two states differ
 * are walked. Exits are stored in m->exit_buf in trie order. */
static bool walk_difference(struct grammar_matcher *m, uint32_t s, uint32_t t,
                            const struct local_mask *base, uint64_t *bits, struct found *found) {
    const struct trie_node *trie = m->v->trie;
    uint32_t *state = m->walk, *other = m->walk + m->v->max_piece_bytes + 2, at = 0;
    state[0] = s, other[0] = t;
    for (uint32_t n = 1; n < m->v->n_trie;) {
        uint32_t depth = trie[n].depth, a = state[depth - 1], b = other[depth - 1];
        a = a > HANDLE_DEAD ? match_step(m, a, trie[n].byte) : HANDLE_DEAD;
        b = b > HANDLE_DEAD ? match_step(m, b, trie[n].byte) : HANDLE_DEAD;
        if (a == HANDLE_UNKNOWN || b == HANDLE_UNKNOWN) return false;
        uint32_t end = trie[n].end;
        while (at < base->n_exit && base->exits[at] < n) at++;
        if (a == b) { /* as in base */
            for (; at < base->n_exit && base->exits[at] < end; at++)
                m->exit_buf[found->n_exit++] = base->exits[at];
            n = end;
        } else if (a == HANDLE_DEAD) {
            set_tokens(m->v, bits, trie[n].token, trie[end].token, false);
            n = end;
        } else {
            set_tokens(m->v, bits, trie[n].token, trie[n + 1].token, true);
            if ((state_flags(m, a) & STATE_EXIT) && end > n + 1) m->exit_buf[found->n_exit++] = n;
            state[depth] = a, other[depth] = b;
            n++;
        }
    }
    return true;
}

/* Copies n words to the list arena; NULL if it is full. */
static const uint32_t *keep_list(struct grammar_matcher *m, const uint32_t *p, uint32_t n) {
    if (m->cap_list - m->n_list < n) return NULL;
    uint32_t *to = m->lists + m->n_list;
    if (n) memcpy(to, p, n * sizeof *p);
    m->n_list += n;
    return to;
}

static struct local_mask *local_slot(struct grammar_matcher *m, uint32_t node, uint32_t data) {
    uint32_t i = (uint32_t)hash_mix((uint64_t)node << 32 | data) & (m->cap_local - 1);
    while (m->locals[i].node != GRAMMAR_NONE &&
           (m->locals[i].node != node || m->locals[i].data != data))
        i = (i + 1) & (m->cap_local - 1);
    return &m->locals[i];
}

/* Returns data whose count allows the same tokens as the original count: one token raises a count by at most
 * max_piece_bytes. */
static uint32_t canonical_data(struct grammar_matcher *m, uint32_t data) {
    const uint32_t *p = object_at(m, data);
    if (p[0] == GRAMMAR_NONE || !m->g->rules[p[0]].counts) return data;
    const struct grammar_rule *r = &m->g->rules[p[0]];
    uint32_t count = p[1], reach = m->v->max_piece_bytes + 1, made[2] = {p[0], count};
    bool far_from_max = r->max == UINT32_MAX || r->max - count > reach;
    if (count >= r->min && far_from_max) made[1] = r->min;
    else if (count < r->min && r->min - count > reach && far_from_max) made[1] = 0;
    if (made[1] == count || object_n(m, data) != 2) return data;
    return match_intern(m, OBJ_DATA, made, 2);
}

/* Returns the state, below the bottom frame, from which the local walk of (node, data) starts. */
uint32_t mask_local_start(struct grammar_matcher *m, uint32_t node, uint32_t data) {
    uint32_t frame[2] = {m->links_bottom, data};
    struct conf c = {node, match_intern(m, OBJ_FRAME, frame, 2)};
    return c.frame ? match_closure(m, &c, 1) : 0;
}

static void clear_tokens(uint64_t *bits, const struct char_list *list, uint32_t from,
                         uint32_t end) {
    for (uint32_t k = list->first[from]; k < list->first[end]; k++)
        bits[list->tokens[k] / 64] &= ~(1ULL << list->tokens[k] % 64);
}

/* Computes the mask inside a string that may close after `need` more characters and has room for `room`: the mask
 * of a string without constraints, minus the tokens that violate this. Returns false if the arenas are full. */
static bool compute_counted(struct grammar_matcher *m, struct local_mask *l, uint32_t need,
                            uint32_t room) {
    const struct grammar_vocab *v = m->v;
    uint32_t end = v->max_piece_bytes + 1, n_exit = 0;
    if (m->n_local_bits >= m->cap_local_bits) return false;
    uint64_t *bits = m->local_bits + (size_t)m->n_local_bits * m->n_mask_word;
    memcpy(bits, v->free_bits, m->n_mask_word * sizeof *bits);
    if (room < end) {
        clear_tokens(bits, &v->staying, room + 1, end + 1);
        clear_tokens(bits, &v->closing, room + 1, end + 1);
    }
    clear_tokens(bits, &v->closing, 0, need < end ? need : end + 1);
    for (uint32_t i = 0; i < v->n_free_exit; i++)
        if (v->free_exit_chars[i] >= need && v->free_exit_chars[i] <= room)
            m->exit_buf[n_exit++] = v->free_exits[i];
    l->exits = keep_list(m, m->exit_buf, n_exit);
    if (!l->exits) return false;
    l->n_exit = n_exit;
    l->bits = bits;
    m->n_local_bits++;
    return true;
}

/* Fills l by walking the trie; uses free space at the end of the arenas. Returns false on overflow. */
static bool compute_local(struct grammar_matcher *m, struct local_mask *l, int depth) {
    uint32_t base_node = m->g->nodes[l->node].c, s = mask_local_start(m, l->node, l->data);
    struct found found = {0, 0};
    const uint32_t *data = object_at(m, l->data);
    if (s <= HANDLE_DEAD) return false;
    if (base_node == m->g->free_string && data[0] != GRAMMAR_NONE && m->v->free_bits) {
        const struct grammar_rule *r = &m->g->rules[data[0]];
        return compute_counted(m, l, data[1] < r->min ? r->min - data[1] : 0,
                               r->max == UINT32_MAX ? r->max : r->max - data[1]);
    }
    if (m->n_local_bits >= m->cap_local_bits) return false;
    uint64_t *bits = m->local_bits + (size_t)m->n_local_bits * m->n_mask_word;
    const struct local_mask *base = NULL;
    if (base_node != GRAMMAR_NONE && base_node != l->node && l->data == m->data_none && depth < 4) {
        base = mask_local(m, base_node, m->data_none, depth + 1);
        if (!base || m->n_local_bits >= m->cap_local_bits) return false;
        bits = m->local_bits + (size_t)m->n_local_bits * m->n_mask_word;
    }
    if (base && base->bits) {
        struct local_mask from = *base;
        uint32_t t = mask_local_start(m, base_node, m->data_none);
        if (t <= HANDLE_DEAD) return false;
        memcpy(bits, from.bits, m->n_mask_word * sizeof *bits);
        if (!walk_difference(m, s, t, &from, bits, &found)) return false;
        l->bits = bits;
        m->n_local_bits++;
    } else {
        if (!walk_all(m, 0, s, &found)) return false;
        if (found.n_token > m->v->n_vocab / 64) {
            memset(bits, 0, m->n_mask_word * sizeof *bits);
            for (uint32_t i = 0; i < found.n_token; i++)
                bits[m->token_buf[i] / 64] |= 1ULL << m->token_buf[i] % 64;
            l->bits = bits;
            m->n_local_bits++;
        } else {
            l->list = keep_list(m, m->token_buf, found.n_token);
            if (!l->list) return false;
            l->n_list = found.n_token;
        }
    }
    l->exits = keep_list(m, m->exit_buf, found.n_exit);
    l->n_exit = found.n_exit;
    return l->exits != NULL;
}

const struct local_mask *mask_local(struct grammar_matcher *m, uint32_t node, uint32_t data,
                                    int depth) {
    struct local_mask made = {.node = node, .data = canonical_data(m, data)};
    if (!made.data) return NULL;
    struct local_mask *slot = local_slot(m, node, made.data);
    if (slot->node == node) return slot;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (m->n_local >= m->cap_local / 2) flush_locals(m);
        uint32_t epoch = m->local_epoch;
        if (node == m->g->free_string && made.data == m->data_none && m->v->free_bits) {
            made.bits = m->v->free_bits;
            made.exits = m->v->free_exits;
            made.n_exit = m->v->n_free_exit;
        } else if (!compute_local(m, &made, depth)) {
            if (m->is_full || attempt || depth || epoch != m->local_epoch) return NULL;
            flush_locals(m); /* the arenas of the masks were full */
            made = (struct local_mask){.node = node, .data = made.data};
            continue;
        }
        slot = local_slot(m, node, made.data);
        *slot = made;
        m->n_local++;
        return slot;
    }
    return NULL;
}

/* ---- whole masks ---- */

/* Adds the tokens that leave the frame at the trie nodes exits[n]; they are walked in the callers' states. */
static bool add_exits(struct grammar_matcher *m, uint32_t frame, const uint32_t *exits, uint32_t n,
                      uint64_t *bits) {
    uint32_t links = object_at(m, frame)[0], n_link = object_n(m, links);
    if (n_link < 2 || n == 0) return true;
    /* (node, frame) pairs in the order of the closure; links store (frame, node) */
    struct conf confs[64];
    uint32_t after = 0;
    if (n_link / 2 <= 64) {
        for (uint32_t i = 0; i < n_link / 2; i++)
            confs[i] = (struct conf){object_at(m, links)[2 * i + 1], object_at(m, links)[2 * i]};
        after = match_closure(m, confs, n_link / 2);
    } else {
        struct conf ret = {GRAMMAR_NONE, frame};
        for (uint32_t i = 0; i < m->g->n_node && ret.node == GRAMMAR_NONE; i++)
            if (m->g->nodes[i].op == G_RET) ret.node = i;
        after = match_closure(m, &ret, 1);
    }
    if (after == HANDLE_UNKNOWN) return false;
    if (after == HANDLE_DEAD) return true;
    for (uint32_t i = 0; i < n; i++) {
        struct found found = {0, 0};
        if (!walk_all(m, exits[i], after, &found)) return false;
        for (uint32_t k = 0; k < found.n_token; k++)
            bits[m->token_buf[k] / 64] |= 1ULL << m->token_buf[k] % 64;
    }
    return true;
}

static bool compose(struct grammar_matcher *m, uint32_t s, uint64_t *bits) {
    memset(bits, 0, m->n_mask_word * sizeof *bits);
    uint32_t n = object_n(m, s);
    for (uint32_t i = 3; i < n; i += 2) {
        uint32_t node = object_at(m, s)[i], frame = object_at(m, s)[i + 1];
        const struct local_mask *found = mask_local(m, node, object_at(m, frame)[1], 0);
        if (!found) return false;
        struct local_mask l = *found;
        if (l.bits)
            for (uint32_t w = 0; w < m->n_mask_word; w++) bits[w] |= l.bits[w];
        for (uint32_t k = 0; k < l.n_list; k++) bits[l.list[k] / 64] |= 1ULL << l.list[k] % 64;
        if (!add_exits(m, frame, l.exits, l.n_exit, bits)) return false;
    }
    if (state_flags(m, s) & STATE_COMPLETE)
        for (uint32_t i = 0; i < m->v->n_eog; i++)
            bits[m->v->eog[i] / 64] |= 1ULL << m->v->eog[i] % 64;
    return true;
}

/* Returns a slot for a whole mask by the clock algorithm: the first slot not used since the clock hand passed it. */
static uint32_t take_mask(struct grammar_matcher *m) {
    for (;; m->clock = (m->clock + 1) % m->cap_mask) {
        if (m->mask_used[m->clock]) {
            m->mask_used[m->clock] = 0;
            continue;
        }
        uint32_t i = m->clock, owner = m->mask_owner[i];
        m->clock = (m->clock + 1) % m->cap_mask;
        if (owner) m->words[owner + 2] = 0;
        m->mask_owner[i] = 0;
        return i;
    }
}

int grammar_mask(struct grammar_state *s, uint64_t *bits) {
    struct grammar_matcher *m = s->m;
    if (s->now == HANDLE_ENDED) {
        memset(bits, 0, m->n_mask_word * sizeof *bits);
        for (uint32_t i = 0; i < m->v->n_eog; i++)
            bits[m->v->eog[i] / 64] |= 1ULL << m->v->eog[i] % 64;
        return 0;
    }
    if (match_is_crowded(m)) match_collect(m);
    uint32_t slot = m->words[s->now + 2];
    if (slot == 0) {
        uint64_t *made;
        slot = take_mask(m) + 1;
        made = m->masks + (size_t)(slot - 1) * m->n_mask_word;
        if (!compose(m, s->now, made)) {
            match_collect(m);
            made = m->masks + (size_t)(slot - 1) * m->n_mask_word;
            if (!compose(m, s->now, made)) return CHIMERE_ELIMIT;
        }
        m->mask_owner[slot - 1] = s->now;
        m->words[s->now + 2] = slot;
    }
    m->mask_used[slot - 1] = 1;
    memcpy(bits, m->masks + (size_t)(slot - 1) * m->n_mask_word, m->n_mask_word * sizeof *bits);
    return 0;
}
