/* sampler_trigger.c: texts that start a grammar in the middle of an answer.
 *
 * The last bytes of the answer are kept, so that a trigger may be spelled by any number of tokens. A token
 * that completes a trigger and continues in a way that the grammar does not allow is rejected. Such tokens
 * are rare, so the chosen token is checked instead of all of them being masked. */
#include <string.h>

#include "engine/sampler/sampler_impl.h"

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == ';'; /* ; may separate calls */
}

/* Returns the offset in the piece after the trigger t, if the piece completes it; else 0. */
static size_t find_end(const struct sampler *s, const struct sampler_trigger *t,
                       struct slice piece) {
    char cross[2 * SAMPLER_MAX_TRIGGER];
    size_t n = strlen(t->text), n_tail = s->lazy.n_tail, from = 0;
    size_t n_piece = piece.n < SAMPLER_MAX_TRIGGER ? piece.n : SAMPLER_MAX_TRIGGER;
    if (!n || n > SAMPLER_MAX_TRIGGER || (t->at_start && !s->lazy.at_start)) return 0;
    memcpy(cross, s->lazy.tail, n_tail);
    memcpy(cross + n_tail, piece.p, n_piece);
    size_t n_cross = n_tail + n_piece;
    if (t->at_start) {
        while (from < n_cross && is_blank(cross[from])) from++;
        bool fits = n_cross - from >= n && memcmp(cross + from, t->text, n) == 0;
        return fits && from + n > n_tail ? from + n - n_tail : 0;
    }
    if (n_tail >= n) from = n_tail - n + 1;
    for (; from + n <= n_cross; from++)
        if (memcmp(cross + from, t->text, n) == 0) return from + n - n_tail;
    const char *at = piece.n > n_piece ? memmem(piece.p, piece.n, t->text, n) : NULL;
    return at ? (size_t)(at - piece.p) + n : 0;
}

/* Returns the trigger that the piece completes first; NULL: none. */
static const struct sampler_trigger *met(const struct sampler *s, struct slice piece, size_t *end) {
    const struct sampler_trigger *first = NULL;
    for (size_t i = 0; i < s->p.n_trigger; i++) {
        size_t at = find_end(s, &s->p.triggers[i], piece);
        if (at && (!first || at < *end)) first = &s->p.triggers[i], *end = at;
    }
    return first;
}

/* Runs the grammar over the trigger and the rest of the piece. */
static bool begin(struct sampler *s, const struct sampler_trigger *t, struct slice rest) {
    size_t n;
    grammar_state_restart(s->grammar);
    return !grammar_accept_bytes(s->grammar, t->text, strlen(t->text), &n) &&
           (!rest.n || !grammar_accept_bytes(s->grammar, rest.p, rest.n, &n));
}

bool sampler_trigger_refuses(struct sampler *s, int32_t token) {
    size_t end = 0;
    if (!s->p.n_trigger || s->lazy.is_on || s->think.inside || !s->grammar || !s->tok) return false;
    struct slice piece = tok_piece(s->tok, token);
    const struct sampler_trigger *t = met(s, piece, &end);
    return t && !begin(s, t, (struct slice){piece.p + end, piece.n - end});
}

static void keep_tail(struct sampler *s, struct slice piece) {
    size_t room = sizeof s->lazy.tail, n = s->lazy.n_tail;
    if (piece.n > room) piece = (struct slice){piece.p + piece.n - room, room};
    size_t drop = n + piece.n > room ? n + piece.n - room : 0;
    if (drop) memmove(s->lazy.tail, s->lazy.tail + drop, n - drop);
    memcpy(s->lazy.tail + n - drop, piece.p, piece.n);
    s->lazy.n_tail = (uint32_t)(n - drop + piece.n);
    if (drop) s->lazy.at_start = false;
}

void sampler_trigger_accept(struct sampler *s, int32_t token) {
    size_t end = 0;
    if (!s->tok) return;
    struct slice piece = tok_piece(s->tok, token);
    const struct sampler_trigger *t = met(s, piece, &end);
    if (!t) {
        keep_tail(s, piece);
        return;
    }
    s->lazy.is_on = begin(s, t, (struct slice){piece.p + end, piece.n - end});
    s->lazy.n_tail = 0;
    s->lazy.at_start = false;
    if (s->lazy.is_on && grammar_is_complete(s->grammar)) sampler_trigger_reset(s);
}

void sampler_trigger_reset(struct sampler *s) {
    s->lazy.is_on = false;
    s->lazy.n_tail = 0;
    s->lazy.at_start = true;
}
