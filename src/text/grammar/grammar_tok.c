/* grammar_tok.c: builds the vocabulary index of a tokenizer. */
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

/* Marks the piece as different from its text, so that no string may contain it. */
static bool set_apart(struct arena *a, struct slice *piece) {
    char *s = arena_alloc(a, piece->n + 1);
    if (!s) return false;
    *s = GRAMMAR_MARK_BYTE;
    memcpy(s + 1, piece->p, piece->n);
    *piece = (struct slice){s, piece->n + 1};
    return true;
}

int grammar_vocab_from_tok(struct grammar_vocab **out, const struct tok *t,
                           const char *const *marks, struct err *e) {
    uint32_t n = tok_n_vocab(t);
    struct slice *pieces = mem_alloc_array(n, sizeof *pieces);
    uint8_t *kinds = mem_zalloc(n);
    struct arena arena;
    int rc;
    *out = NULL;
    arena_init(&arena, 1 << 20);
    bool ok = pieces && kinds;
    for (uint32_t i = 0; ok && i < n; i++) {
        pieces[i] = tok_piece(t, (int32_t)i);
        kinds[i] = (uint8_t)kind_of(t, (int32_t)i, marks);
        if (is_mark(pieces[i], marks)) ok = set_apart(&arena, &pieces[i]);
        else if (marks && pieces[i].n && memchr(pieces[i].p, GRAMMAR_MARK_BYTE, pieces[i].n))
            kinds[i] = GRAMMAR_TOKEN_SPECIAL;
    }
    if (ok) {
        rc = grammar_vocab_new(out, n, pieces, kinds, e);
    } else {
        rc = err_set(e, CHIMERE_ENOMEM, "grammar: out of memory for the vocabulary");
    }
    arena_fini(&arena);
    mem_free(pieces);
    mem_free(kinds);
    return rc;
}
