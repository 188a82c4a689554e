/* tok_trie.c: builds the trie of tokens. */
#include "text/tok/tok_trie_impl.h"

#include "base/mem.h"

static struct trie_edge *edge_slot(const struct trie *t, uint64_t key) {
    uint32_t i = (uint32_t)hash_mix(key) & t->mask;
    while (t->edges[i].child && t->edges[i].key != key) i = (i + 1) & t->mask;
    return &t->edges[i];
}

static int grow(struct trie *t) {
    uint64_t cap = t->edges ? 2 * ((uint64_t)t->mask + 1) : 1024;
    if (cap > UINT32_MAX) return CHIMERE_ELIMIT;
    struct trie next = {mem_alloc_array(cap, sizeof *next.edges), (uint32_t)cap - 1, t->n};
    if (!next.edges) return CHIMERE_ENOMEM;
    for (uint64_t i = 0; t->edges && i <= t->mask; i++)
        if (t->edges[i].child) *edge_slot(&next, t->edges[i].key) = t->edges[i];
    mem_free(t->edges);
    *t = next;
    return 0;
}

int tok_trie_build(struct trie *trie, const struct tok *t) {
    int rc = grow(trie);
    for (uint32_t id = 0; rc == 0 && id < t->n_vocab; id++) {
        struct slice s = tok_symbol(t, id);
        if (tok_match(t, s.p, s.n) != id) continue;
        struct trie_edge *edge = NULL;
        uint32_t node = 0;
        for (size_t i = 0; i < s.n; i++, node = edge->child) {
            if (4 * (uint64_t)trie->n >= 3 * (uint64_t)trie->mask && (rc = grow(trie)) != 0)
                return rc;
            uint64_t key = (uint64_t)node << 8 | (unsigned char)s.p[i];
            edge = edge_slot(trie, key);
            if (!edge->child) *edge = (struct trie_edge){key, ++trie->n, 0};
        }
        if (edge) edge->token = id + 1;
    }
    return rc;
}
