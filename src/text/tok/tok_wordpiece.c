/* tok_wordpiece.c: BERT's method: normalises the text, splits it at white space and around punctuation and Han
 * characters, then repeatedly takes the longest token. A word with an unmatched rest becomes the unknown token.
 *
 * GGUF files mark the first piece of a word with U+2581 instead of marking all others with ##, so a word is
 * matched with a space before it. */
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/tok/tok_trie_impl.h"

int tok_wordpiece_build(struct tok *t, struct err *e) {
    t->trie = mem_zalloc(sizeof *t->trie);
    int rc = t->trie ? tok_trie_build(t->trie, t) : CHIMERE_ENOMEM;
    return rc ? err_set(e, rc, "%s for %u tokens", err_name(rc), t->n_vocab) : 0;
}

/* Han characters as in BERT's reference, including its gap (U+2B820 to U+2B91F). */
static bool is_han(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Encodes one word, which begins with a space. */
static int put_word(struct enc *c, const char *word, size_t n) {
    const struct tok *t = c->t;
    size_t n_before = c->out.n;
    for (size_t i = 0; i < n;) {
        uint32_t node = 0, token = 0;
        size_t end = i;
        const struct trie_edge *edge;
        for (size_t k = i; k < n && (edge = tok_trie_step(t->trie, node, word[k])) != NULL; k++) {
            node = edge->child;
            if (edge->token) token = edge->token, end = k + 1;
        }
        if (!token) {
            c->out.n = n_before;
            return tok_ids_put(&c->out, (uint32_t)t->unk);
        }
        if (tok_ids_put(&c->out, token - 1)) return CHIMERE_ENOMEM;
        i = end;
    }
    return 0;
}

struct words {
    struct enc *c;
    char *word; /* owned; " " and the current word */
    size_t n, cap;
};

static int end_word(struct words *w) {
    int rc = w->n > 1 ? put_word(w->c, w->word, w->n) : 0;
    w->n = 1;
    return rc;
}

/* Processes one character of the normalised text. */
static int put_char(struct words *w, uint32_t cp) {
    const struct tok *t = w->c->t;
    uint8_t k = tok_classes()[cp];
    if (t->strip_accents && (k & CLASS_MN)) return 0;
    if (t->lowercase) cp = (uint32_t)utf8proc_tolower((int32_t)cp);
    bool alone = (k & CLASS_P) || (cp < 0x7f && (k & CLASS_S)) || is_han(cp);
    int rc = alone ? end_word(w) : 0;
    if (rc) return rc;
    if (w->cap - w->n < 4) {
        char *p = mem_realloc(w->word, w->cap * 2);
        if (!p) return CHIMERE_ENOMEM;
        w->word = p;
        w->cap *= 2;
    }
    w->n += (size_t)utf8_encode(cp, w->word + w->n);
    return alone ? end_word(w) : 0;
}

/* Canonical decomposition; the order of the marks does not matter, because they are removed. */
static int decompose(uint32_t cp, int32_t parts[16]) {
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((int32_t)cp, parts, 16, UTF8PROC_DECOMPOSE, &boundary);
    if (n > 0 && n <= 16) return (int)n;
    parts[0] = (int32_t)cp;
    return 1;
}

int tok_wordpiece_encode(struct enc *c, const char *text, uint32_t n) {
    struct words w = {.c = c, .cap = 256, .n = 1, .word = mem_alloc(256)};
    if (!w.word) return CHIMERE_ENOMEM;
    w.word[0] = ' ';
    const uint8_t *classes = tok_classes();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n;) {
        uint32_t cp;
        int len = utf8_decode(text + i, n - i, &cp);
        i += len > 0 ? (size_t)len : 1;
        if (len <= 0 || cp == 0 || cp == 0xFFFD) continue;
        uint8_t k = classes[cp];
        if (cp == '\t' || cp == '\n' || cp == '\r' ||
            (k & (CLASS_SPACE | CLASS_OTHER)) == CLASS_SPACE) {
            rc = end_word(&w);
        } else if (!(k &
                     CLASS_OTHER)) { /* other control characters are dropped, even white space */
            int32_t parts[16] = {(int32_t)cp};
            int n_part = c->t->strip_accents && cp >= 0x80 ? decompose(cp, parts) : 1;
            for (int p = 0; rc == 0 && p < n_part; p++) rc = put_char(&w, (uint32_t)parts[p]);
        }
    }
    if (rc == 0) rc = end_word(&w);
    mem_free(w.word);
    return rc;
}
