/* grammar_match_impl.h: internals of matcher and vocabulary, shared by grammar_match.c and grammar_mask.c.
 *
 * A position in the grammar consists of interned objects in one array of words:
 *
 *   DATA   [rule, count, bits...]     a frame's counter and property set; rule GRAMMAR_NONE: none
 *   LINKS  [frame, node, ...]         where to continue when the rule is done, sorted; one special word:
 *                                     the bottom (unknown caller) or the root
 *   FRAME  [links, data]              one activation of a rule; shared by all callers at one place
 *   STATE  [row, mask, flags, node, frame, ...]   a set of configurations at G_BYTES nodes, sorted
 *
 * A handle is the index of an object's header. Equal content has equal handles, so a state is one number.
 * Transitions are stored in rows with one handle per byte class. Garbage collection copies the objects that the
 * sequences' states reach to the spare array. */
#ifndef CHIMERE_TEXT_GRAMMAR_GRAMMAR_MATCH_IMPL_H
#define CHIMERE_TEXT_GRAMMAR_GRAMMAR_MATCH_IMPL_H

#include "text/grammar/grammar_impl.h"
#include "text/grammar/grammar_mask.h"

enum { HANDLE_UNKNOWN, HANDLE_DEAD, HANDLE_ENDED, HANDLE_FIRST };
enum object_kind { OBJ_DATA, OBJ_LINKS, OBJ_FRAME, OBJ_STATE };
enum state_flag { STATE_COMPLETE = 1, STATE_EXIT = 2 }; /* root or bottom frame was left */

struct trie_node { /* in preorder; node 0 is the root */
    uint32_t end;  /* first node after the subtree */
    /* first of its tokens in tokens[]; they end where the next node's tokens begin */
    uint32_t token;
    uint16_t depth; /* bytes from the root */
    uint8_t byte;
};

struct grammar_vocab {
    uint32_t n_vocab, n_trie, n_token, n_eog, max_piece_bytes;
    struct trie_node *trie; /* owned [n_trie + 1]; the last one is a sentinel */
    uint32_t *tokens;       /* owned [n_token], in byte order */
    uint32_t *eog;          /* owned [n_eog] */
    uint8_t *kinds;         /* owned [n_vocab] */
    char *bytes;            /* owned */
    uint32_t *piece;        /* owned [n_vocab + 1]: offsets into bytes */
    /* Results for the inside of a JSON string; NULL until computed. A token that stays inside needs room for its
     * characters, where a partial one counts as one; a token that closes the string has some characters before the
     * quote. */
    uint64_t *free_bits;       /* owned: the mask */
    uint32_t *free_exits;      /* owned [n_free_exit]: trie nodes after the closing quote */
    uint16_t *free_exit_chars; /* owned [n_free_exit]: characters before the quote */
    uint32_t n_free_exit;
    struct char_list {
        uint32_t *tokens; /* owned, sorted by characters */
        uint32_t *first; /* owned [max_piece_bytes + 3]: first token of each number of characters */
    } staying, closing;
};

struct conf {
    uint32_t node, frame;
};

struct local_mask { /* tokens allowed from (node, data), whatever is below the frame */
    uint32_t node, data;
    uint32_t n_list, n_exit;
    const uint64_t *bits;  /* view: bitmap; NULL: list is used */
    const uint32_t *list;  /* view [n_list] token ids */
    const uint32_t *exits; /* view [n_exit]: trie nodes at which the frame may have been left */
};

struct grammar_matcher {
    const struct grammar *g;       /* borrowed */
    const struct grammar_vocab *v; /* borrowed */
    struct grammar_state *states;  /* list of all states of the matcher, borrowed */

    uint32_t *words, *spare; /* owned [cap_word] */
    uint32_t n_word, cap_word;
    uint32_t *table; /* owned [cap_table]: handles by hash */
    uint32_t n_object, cap_table;
    uint32_t *rows; /* owned [cap_row * n_class] */
    uint32_t n_row, cap_row;
    uint32_t links_bottom, links_root, data_none, start;
    bool is_full; /* an arena is full: collect before the next attempt */

    /* temporary memory of one closure */
    struct conf *work;    /* owned [cap_conf] */
    struct conf *leaves;  /* owned [cap_conf] */
    struct conf *seen;    /* owned [cap_seen] */
    uint32_t *seen_stamp; /* owned [cap_seen] */
    uint32_t stamp, cap_conf, cap_seen, n_seen, n_work, n_leaf;
    struct pending { /* frames being made */
        uint32_t rule, first_link, frame;
        bool is_open; /* its final frame is being made */
    } * pending;      /* owned [cap_pending] */
    uint32_t n_pending, cap_pending;
    struct link {
        uint32_t frame, node, next;
    } * links; /* owned [cap_conf] */
    uint32_t n_link;
    uint32_t *rule_stamp, *rule_pending; /* owned [n_rule] */
    uint32_t *buf;                       /* owned [cap_buf]: one object under construction */
    uint32_t cap_buf;
    uint32_t step_flags;

    /* masks */
    uint32_t n_mask_word; /* 64-bit words of one mask */
    uint64_t *masks;      /* owned [cap_mask * n_mask_word]: whole masks of states */
    uint32_t *mask_owner; /* owned [cap_mask]: state */
    uint8_t *mask_used;   /* owned [cap_mask] */
    uint32_t cap_mask, clock;
    struct local_mask *locals; /* owned [cap_local]: hash table, node GRAMMAR_NONE: empty */
    uint32_t n_local, cap_local;
    uint64_t *local_bits; /* owned [cap_local_bits * n_mask_word] */
    uint32_t n_local_bits, cap_local_bits;
    uint32_t *lists; /* owned [cap_list]: token lists and exits */
    uint32_t n_list, cap_list;
    uint32_t *token_buf, *exit_buf; /* owned [n_token], [n_trie] */
    uint32_t *walk;       /* owned [2 * (max_piece_bytes + 2)]: states along a trie path */
    uint32_t local_epoch; /* number of times that locals was flushed */
};

struct grammar_state {
    struct grammar_matcher *m; /* borrowed */
    struct grammar_state *prev, *next;
    uint32_t now, origin;                /* origin: state before the current token */
    uint64_t n_token, oldest;            /* the states before tokens oldest..n_token-1 are stored */
    uint32_t before[GRAMMAR_MAX_REWIND]; /* state before token i at i % GRAMMAR_MAX_REWIND */
};

static inline uint32_t object_n(const struct grammar_matcher *m, uint32_t h) {
    return m->words[h] & 0x0fffffff;
}
static inline const uint32_t *object_at(const struct grammar_matcher *m, uint32_t h) {
    return m->words + h + 1;
}
static inline uint32_t state_flags(const struct grammar_matcher *m, uint32_t s) {
    return s >= HANDLE_FIRST ? m->words[s + 3] : 0;
}

/* Returns the interned object; 0 if the arena is full (m->is_full is set). */
uint32_t match_intern(struct grammar_matcher *m, enum object_kind kind, const uint32_t *p,
                      uint32_t n);
/* Returns the state reached from confs[n] without input; 0 on overflow. */
uint32_t match_closure(struct grammar_matcher *m, const struct conf *confs, uint32_t n);
uint32_t match_step_slow(struct grammar_matcher *m, uint32_t s, uint8_t byte);
/* Frees what no sequence needs, and all masks. Returns 0 or CHIMERE_ELIMIT. */
int match_collect(struct grammar_matcher *m);
bool match_is_crowded(const struct grammar_matcher *m);

/* Returns the state after one byte; HANDLE_DEAD, or 0 on overflow. */
static inline uint32_t match_step(struct grammar_matcher *m, uint32_t s, uint8_t byte) {
    uint32_t row = m->words[s + 1];
    uint32_t to = row ? m->rows[(size_t)row * m->g->n_class + m->g->class_of[byte]] : 0;
    return to ? to : match_step_slow(m, s, byte);
}

int mask_init(struct grammar_matcher *m, size_t cache_bytes);
void mask_fini(struct grammar_matcher *m);
void mask_flush(struct grammar_matcher *m);
/* Returns the state, below the bottom frame, from which the local walk of (node, data) starts. */
uint32_t mask_local_start(struct grammar_matcher *m, uint32_t node, uint32_t data);
/* Returns the mask of (node, data) for an unknown caller; NULL on overflow. */
const struct local_mask *mask_local(struct grammar_matcher *m, uint32_t node, uint32_t data,
                                    int depth);

#endif
