#include "odo/cite.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 3 };

void cite_flush(struct cite *c, struct buf *out) {
    buf_put(out, c->held, c->n_held);
    c->n_held = 0;
}

/* Decides about the held text: blanks, an opening bracket and numbers. Numbers of existing sources are kept. */
static void judge(struct cite *c, struct buf *out) {
    size_t open = 0, n_good = 0, before = out->n;
    bool bad = false;
    while (c->held[open] != '[') ++open;
    buf_put(out, c->held, open + 1);
    for (size_t i = open + 1; i < c->n_held;) {
        if (!isdigit((unsigned char)c->held[i])) {
            ++i;
            continue;
        }
        int32_t v = 0;
        size_t n = 0;
        for (; isdigit((unsigned char)c->held[i]); ++i, ++n)
            if (n <= MOST_DIGITS) v = 10 * v + (c->held[i] - '0');
        if (n > MOST_DIGITS || (v > 0 && v <= c->n_source)) {
            buf_printf(out, "%s%.*s", n_good++ ? ", " : "", (int)n, c->held + i - n);
            continue;
        }
        bad = true;
        if (c->n_removed < CITE_MAX_REMOVED) c->removed[c->n_removed++] = v;
    }
    buf_putc(out, ']');
    if (!bad || !n_good) buf_cut(out, before);
    if (!bad) buf_put(out, c->held, c->n_held);
    c->n_held = 0;
}

/* A code span begins and ends with the same number of backticks. */
static void count_ticks(struct cite *c, char ch) {
    if (ch == '`') {
        ++c->n_tick;
    } else if (c->n_tick) {
        if (!c->n_fence) c->n_fence = c->n_tick;
        else if (c->n_fence == c->n_tick) c->n_fence = 0;
        c->n_tick = 0;
    }
}

static bool continues(const struct cite *c, char ch) {
    bool open = memchr(c->held, '[', c->n_held) != NULL;
    if (ch == ' ') return !c->n_held || open;
    if (ch == '[') return !open;
    return open && (isdigit((unsigned char)ch) || strchr(",;-]", ch));
}

void cite_feed(struct cite *c, const char *text, size_t n, struct buf *out) {
    if (!c->n_source) {
        cite_flush(c, out);
        buf_put(out, text, n);
        return;
    }
    for (size_t i = 0; i < n; ++i) {
        char ch = text[i];
        count_ticks(c, ch);
        bool code = c->n_fence || c->n_tick, more = !code && ch && continues(c, ch);
        if (c->n_held && (!more || c->n_held == CITE_MAX_HELD)) {
            cite_flush(c, out);
            more = !code && ch && continues(c, ch);
        }
        if (!more) {
            buf_putc(out, ch);
            continue;
        }
        c->held[c->n_held++] = ch;
        if (ch == ']') {
            /* "[]" and "[ , ]" contain no number, so they are not citations */
            bool any = false;
            for (size_t k = 0; k < c->n_held; ++k) any |= isdigit((unsigned char)c->held[k]) != 0;
            if (any) judge(c, out);
            else cite_flush(c, out);
        }
    }
}
