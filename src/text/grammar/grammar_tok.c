/* grammar_tok.c: the vocabulary index of a tokenizer. */
#include <string.h>

#include "base/mem.h"
#include "text/grammar/grammar_mask.h"

static bool is_mark(struct slice piece, const char *const *marks) {
    for (; marks && *marks; marks++)
        if (strlen(*marks) == piece.n && memcmp(*marks, piece.p, piece.n) == 0) return true;
    return false;
}

static enum grammar_token kind_of(const struct tok *t, int32_t id, const char *const *marks) {
    if (tok_is_eog(t, id)) return GRAMMAR_TOKEN_EOG;
    if (is_mark(tok_piece(t, id), marks)) return GRAMMAR_TOKEN_TEXT;
    switch (tok_kind(t, id)) {
    case TOK_NORMAL:
    case TOK_USER_DEFINED:
    case TOK_BYTE: return GRAMMAR_TOKEN_TEXT;
    default: return GRAMMAR_TOKEN_SPECIAL;
    }
}

int grammar_vocab_from_tok(struct grammar_vocab **out, const struct tok *t,
                           const char *const *marks, struct err *e) {
    uint32_t n = tok_n_vocab(t);
    struct slice *pieces = mem_alloc_array(n, sizeof *pieces);
    uint8_t *kinds = mem_zalloc(n);
    int rc;
    *out = NULL;
    if (pieces && kinds) {
        for (uint32_t i = 0; i < n; i++) {
            pieces[i] = tok_piece(t, (int32_t)i);
            kinds[i] = (uint8_t)kind_of(t, (int32_t)i, marks);
        }
        rc = grammar_vocab_new(out, n, pieces, kinds, e);
    } else {
        rc = err_set(e, CHIMERE_ENOMEM, "grammar: out of memory for the vocabulary");
    }
    mem_free(pieces);
    mem_free(kinds);
    return rc;
}
