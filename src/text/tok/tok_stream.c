/* tok_stream.c: streaming detokenization: whole characters only, nothing lost, no allocation. */
#include <string.h>

#include "text/tok/tok_impl.h"

void tok_stream_init(struct tok_stream *s, const struct tok *t, bool show_control) {
    *s = (struct tok_stream){.t = t, .show_control = show_control, .at_start = true};
}

struct slice tok_stream_bytes(struct tok_stream *s, int32_t id) {
    const struct tok *t = s->t;
    struct slice p = tok_piece(t, id);
    enum tok_kind kind = tok_kind(t, id);
    bool control = kind == TOK_CONTROL || kind == TOK_UNKNOWN;
    bool shown = s->show_control || (control && (t->flags[id] & FLAG_VISIBLE));
    if (control && !shown) p.n = 0;
    if (control || kind == TOK_USER_DEFINED) {
        s->at_start = true; /* encoding puts a space also before the text after a special token */
    } else if (p.n) {
        bool prefixed = t->space_prefix || t->model == TOK_WORDPIECE;
        if (s->at_start && prefixed && p.p[0] == ' ') p.p++, p.n--;
        s->at_start = false;
    }
    return p;
}

/* Returns how many bytes at s[0..n) one U+FFFD replaces: as many as could have begun a character (the "maximal
 * subpart" of Unicode 3.9). So the result does not depend on how tokens divide the text. */
static size_t broken_len(const char *s, size_t n) {
    size_t k = 1;
    while (k < n && utf8_valid_len(s, k) == 0) k++;
    return k > 1 ? k - 1 : 1;
}

/* Writes the characters that s->held and p complete; keeps bytes that may still become a character. */
static size_t put(struct tok_stream *s, struct slice p, char *out) {
    size_t n = 0, i = 0;
    while (s->n_held && i < p.n) { /* at most four rounds */
        s->held[s->n_held] = (unsigned char)p.p[i];
        int len = utf8_valid_len((const char *)s->held, s->n_held + 1);
        if (len < 0) {
            memcpy(out + n, "\xEF\xBF\xBD", 3);
            n += 3, s->n_held = 0;
            break; /* the byte that did not continue the character begins a new one */
        }
        i++, s->n_held++;
        if (len > 0) {
            memcpy(out + n, s->held, (size_t)len);
            n += (size_t)len, s->n_held = 0;
        }
    }
    while (s->n_held == 0 && i < p.n) {
        int len = utf8_valid_len(p.p + i, p.n - i);
        if (len > 0) {
            memcpy(out + n, p.p + i, (size_t)len);
            n += (size_t)len, i += (size_t)len;
        } else if (len < 0) {
            memcpy(out + n, "\xEF\xBF\xBD", 3);
            n += 3, i += broken_len(p.p + i, p.n - i);
        } else {
            s->n_held = (uint32_t)(p.n - i);
            memcpy(s->held, p.p + i, s->n_held);
        }
    }
    return n;
}

size_t tok_stream_push(struct tok_stream *s, int32_t id, char *out) {
    return put(s, tok_stream_bytes(s, id), out);
}

size_t tok_stream_flush(struct tok_stream *s, char *out) {
    size_t n = s->n_held ? 3 : 0;
    if (n) memcpy(out, "\xEF\xBF\xBD", 3);
    s->n_held = 0;
    return n;
}
