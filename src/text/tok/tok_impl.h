/* tok_impl.h: internals of struct tok; only for tok*.c and their tests.
 *
 * A *symbol* is a byte string with a number. Symbols below n_vocab are the tokens; those above are strings that
 * only merges use (single bytes or halves that are not in the vocabulary). All strings are in one blob, in the
 * form in which text is matched: byte-level pieces as the bytes that they represent, SentencePiece pieces with a
 * space for U+2581. */
#ifndef CHIMERE_TEXT_TOK_TOK_IMPL_H
#define CHIMERE_TEXT_TOK_TOK_IMPL_H

#include "text/tok/tok.h"
#include "text/tok/tok_pre_impl.h"

enum {
    TOK_MAX_VOCAB = 1 << 24,
    TOK_MAX_MERGES = 1 << 24,
    TOK_MAX_PIECE = 1 << 14, /* bytes of one piece */
    TOK_MAX_TEXT = 1 << 30,  /* bytes per call; offsets have 32 bits */
    TOK_MAX_BLOB = 1 << 29,  /* bytes of all strings */
};
#define TOK_NO_SYMBOL UINT32_MAX

struct special_set { /* strings to find literally in texts */
    uint32_t *slots; /* owned; hash of the string -> id + 1; 0: empty */
    uint32_t mask;
    uint32_t *lengths; /* owned; distinct lengths, longest first */
    uint32_t n_length;
    uint64_t *first_two; /* owned; 65,536 bits: whether a member may begin with these two bytes */
};
struct fragment {
    uint32_t from, to; /* byte range in the text */
    int32_t id;        /* the special token, or -1: plain text */
};
struct fragments {
    struct fragment *p; /* owned */
    size_t n, cap;
};

struct pair { /* one merge; left == TOK_NO_SYMBOL: empty slot */
    uint32_t left, right, rank, to;
};

enum tok_flag { FLAG_EOG = 1, FLAG_VISIBLE = 2 /* shown by every stream */ };

struct tok {
    enum tok_model model;
    const struct pre_def *pre; /* static; TOK_BPE */
    struct tok_pre *split;     /* owned; TOK_BPE */
    uint32_t n_vocab, n_symbol, cap_symbol;
    char *blob; /* owned; all strings, back to back */
    size_t n_blob, cap_blob;
    uint32_t *offset; /* owned; [n_symbol + 1] */
    uint8_t *kinds;   /* owned; [n_vocab] */
    uint8_t *flags;   /* owned; [n_vocab] */
    uint8_t *strips;  /* owned or NULL; [n_vocab] */
    uint32_t *order;  /* owned; TOK_SPM: [n_vocab] rank of the score, 0 is best */
    uint64_t seed;    /* seed of the two hash maps */
    uint32_t *match;  /* owned; string -> symbol + 1, for the symbols that matching may return */
    uint32_t match_mask, n_match;
    uint32_t *find; /* owned; string -> token + 1, for tokens of any kind */
    uint32_t find_mask;
    struct pair *pairs; /* owned; TOK_BPE */
    uint32_t pair_mask;
    uint32_t byte_symbol[256]; /* symbol of a single byte; TOK_NO_SYMBOL: none */
    uint32_t *cross; /* owned; characters that occur before a space inside strings, sorted */
    uint32_t n_cross;
    struct special_set all, user; /* all special tokens; those that match in any text */
    struct trie *trie;            /* owned; TOK_WORDPIECE, TOK_UNIGRAM */
    struct unigram *unigram;      /* owned; TOK_UNIGRAM */
    int32_t bos, eos, unk, sep, cls;
    bool is_nfc; /* text is normalized to NFC first */
    bool add_bos, add_eos, space_prefix, squeeze_spaces, lowercase, strip_accents;
    uint32_t max_piece;
    uint64_t hash;
};

static inline struct slice tok_symbol(const struct tok *t, uint32_t i) {
    return (struct slice){t->blob + t->offset[i], t->offset[i + 1] - t->offset[i]};
}
/* tok_normal.c. *out: owned; NULL if the text does not change. */
bool tok_pre_is_nfc(const char *pre);
int tok_nfc(const char *text, size_t n, char **out, size_t *n_out);
/* Returns true if text may match this token, false if the token needs a control sequence. */
static inline bool tok_is_plain(const struct tok *t, uint32_t id) {
    uint8_t k = t->kinds[id];
    return k != TOK_CONTROL && k != TOK_UNKNOWN && k != TOK_BYTE;
}
/* Returns the symbol with the string s[0..n), TOK_NO_SYMBOL if there is none. */
uint32_t tok_match(const struct tok *t, const char *s, size_t n);
/* Adds a symbol to the map that tok_match reads. */
int tok_match_add(struct tok *t, uint32_t symbol);
/* Appends a string; *id is its number. */
int tok_add_symbol(struct tok *t, const char *s, size_t n, uint32_t *id);

/* State of one call of tok_encode: output and work space. */
struct enc {
    const struct tok *t;               /* borrowed */
    struct tok_ids out;                /* token ids */
    struct tok_ids ends, scratch;      /* ends of words */
    struct tok_ids sym, len, prev, to; /* for the current word; see tok_merge.c */
    uint64_t *heap;                    /* owned */
    size_t n_heap, cap_heap;
    struct cached_word *cache; /* owned; NULL: the text is too short to benefit */
    struct err *e;             /* borrowed; may be NULL */
};

/* tok_special.c */
int tok_special_build(struct tok *t);
void tok_special_free(struct special_set *s);
/* Cuts text[0..n) at special tokens; the fragments are in the order of the text. */
int tok_special_cut(const struct tok *t, const char *text, uint32_t n, bool parse_special,
                    struct fragments *out);

#include "text/tok/tok_models_impl.h"

#endif
