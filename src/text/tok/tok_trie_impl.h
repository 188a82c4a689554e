/* tok_trie_impl.h: the tokens as a trie, for WordPiece and unigram, which search for the tokens that begin at a
 * position. All edges are in one hash table. */
#ifndef CHIMERE_TEXT_TOK_TOK_TRIE_IMPL_H
#define CHIMERE_TEXT_TOK_TOK_TRIE_IMPL_H

#include "base/hash.h"
#include "text/tok/tok_impl.h"

struct trie_edge {
    uint64_t key;   /* node << 8 | byte */
    uint32_t child; /* 0: empty slot, because the root is not a child */
    uint32_t token; /* id + 1 of the token that ends here; 0: none */
};
struct trie {
    struct trie_edge *edges; /* owned */
    uint32_t mask, n;
};

/* Adds all tokens of t that text may match. */
int tok_trie_build(struct trie *trie, const struct tok *t);

static inline const struct trie_edge *tok_trie_step(const struct trie *t, uint32_t node,
                                                    char byte) {
    uint64_t key = (uint64_t)node << 8 | (unsigned char)byte;
    for (uint32_t i = (uint32_t)hash_mix(key) & t->mask; t->edges[i].child; i = (i + 1) & t->mask)
        if (t->edges[i].key == key) return &t->edges[i];
    return NULL;
}

#endif
