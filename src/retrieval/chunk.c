#include "retrieval/chunk.h"

#include <string.h>

void chunk_begin(struct chunk_cursor *c, const char *text, size_t n) {
    *c = (struct chunk_cursor){.text = text, .n = n, .line = 1};
}

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f';
}

static void skip_blanks(struct chunk_cursor *c) {
    while (c->at < c->n && is_blank(c->text[c->at])) c->line += c->text[c->at++] == '\n';
}

/* If the line at `at` is a heading "# Title", returns its length; otherwise returns 0. */
static size_t heading_at(const struct chunk_cursor *c, size_t at) {
    size_t i = at;
    while (i < c->n && c->text[i] == '#' && i - at < 6) ++i;
    if (i == at || i >= c->n || c->text[i] != ' ') return 0;
    const char *end = memchr(c->text + i, '\n', c->n - i);
    size_t n = end ? (size_t)(end - c->text) - at : c->n - at;
    return n > 200 ? 0 : n;
}

static void take_heading(struct chunk_cursor *c, size_t at, size_t n) {
    size_t i = at;
    while (c->text[i] == '#' || c->text[i] == ' ') ++i;
    c->heading = (int32_t)i;
    c->n_heading = (int32_t)(at + n - i);
}

/* Returns the best place to cut in (low, high]: after a blank line, else after a line, a sentence, a word, or a
 * character. */
static size_t cut(const struct chunk_cursor *c, size_t low, size_t high) {
    size_t line = 0, sentence = 0, word = 0;
    for (size_t i = high; i > low; --i) {
        char a = c->text[i - 1];
        if (a == '\n' && i >= 2 && c->text[i - 2] == '\n') return i;
        if (a == '\n' && !line) line = i;
        if (is_blank(a) && i >= 2 && strchr(".!?", c->text[i - 2]) && !sentence) sentence = i;
        if (is_blank(a) && !word) word = i;
    }
    if (line) return line;
    if (sentence) return sentence;
    if (word) return word;
    while (high > low + 1 && ((unsigned char)c->text[high] & 0xc0) == 0x80) --high;
    return high;
}

bool chunk_next(struct chunk_cursor *c, struct chunk *out) {
    skip_blanks(c);
    if (c->at >= c->n) return false;
    size_t from = c->at, most = from + CHUNK_MOST, end;
    int32_t line = c->line;
    size_t h = heading_at(c, from);
    if (h) take_heading(c, from, h);
    *out = (struct chunk){.line = line, .heading = c->heading, .n_heading = c->n_heading};
    /* a new section begins a new chunk, unless the current chunk has hardly begun */
    end = c->n;
    for (const char *p = c->text + from; (p = memchr(p, '\n', c->n - (size_t)(p - c->text)));) {
        size_t i = (size_t)(++p - c->text);
        if (i >= most || i >= c->n) break;
        if (i > from + CHUNK_TARGET / 4 && heading_at(c, i)) {
            end = i;
            break;
        }
    }
    if (end > most) end = cut(c, from + CHUNK_TARGET / 2, most);
    for (size_t i = from; i < end; ++i) {
        c->line += c->text[i] == '\n';
        size_t inner = c->text[i] == '\n' && i + 1 < end ? heading_at(c, i + 1) : 0;
        if (inner) take_heading(c, i + 1, inner);
    }
    c->at = end;
    while (end > from && is_blank(c->text[end - 1])) --end;
    out->from = (int32_t)from;
    out->to = (int32_t)end;
    return true;
}
