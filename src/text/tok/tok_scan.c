/* tok_scan.c: hand-written equivalents of the most common splits, several times faster than their regular
 * expressions; tests compare the two. */
#include "text/tok/tok_pre_impl.h"

struct cursor {
    const char *s;
    size_t to;
    const uint8_t *classes;
};

/* Returns the class of the character at i, 0 at the end; *next is the position after it. */
static inline uint8_t class_at(const struct cursor *c, size_t i, size_t *next) {
    *next = i;
    return i < c->to ? c->classes[tok_next_cp(c->s, next)] : 0;
}

/* Returns the end of the run of characters with (class & mask) != 0 that begins at i. */
static inline size_t run_of(const struct cursor *c, size_t i, uint8_t mask) {
    size_t next;
    while (class_at(c, i, &next) & mask) i = next;
    return i;
}

/* Returns the end of the run of characters that have none of these classes. */
static inline size_t run_outside(const struct cursor *c, size_t i, uint8_t mask) {
    for (size_t next; i < c->to; i = next)
        if (class_at(c, i, &next) & mask) break;
    return i;
}

/* Returns the length of 's 't 're 've 'm 'll 'd at i, otherwise 0. */
static size_t contraction(const struct cursor *c, size_t i, bool any_case) {
    if (c->s[i] != '\'' || i + 1 >= c->to) return 0;
    char fold = any_case ? 0x20 : 0;
    char a = (char)(c->s[i + 1] | fold), b = i + 2 < c->to ? (char)(c->s[i + 2] | fold) : 0;
    /* | 0x20 also changes bytes that are not letters, but none of them to a letter */
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* Returns the end of a word of white space that begins at i. The run of white space ends at `end`; its last
 * character belongs to the word after it. */
static size_t space_word(const struct cursor *c, size_t i, size_t end) {
    if (end == c->to) return end;
    size_t last = end - 1; /* start of the last character of the run */
    while (last > i && ((unsigned char)c->s[last] & 0xC0) == 0x80) last--;
    return last > i ? last : end;
}

int tok_scan_gpt2(const char *text, uint32_t from, uint32_t to, struct tok_ids *ends) {
    const struct cursor c = {text, to, tok_classes()};
    for (size_t i = from, next; i < to;) {
        size_t n = contraction(&c, i, false), at = i + (text[i] == ' ');
        uint8_t k = n ? 0 : class_at(&c, at, &next);
        if (n) {
            i += n;
        } else if (k & CLASS_L) {
            i = run_of(&c, next, CLASS_L);
        } else if (k & CLASS_N) {
            i = run_of(&c, next, CLASS_N);
        } else if (at < to && !(k & CLASS_SPACE)) {
            i = run_outside(&c, next, CLASS_SPACE | CLASS_L | CLASS_N);
        } else {
            i = space_word(&c, i, run_of(&c, i, CLASS_SPACE));
        }
        if (tok_ids_put(ends, (uint32_t)i)) return CHIMERE_ENOMEM;
    }
    return 0;
}

/* Matches \s*[\r\n]+, else \s+(?!\S), else \s+, for white space at i. */
static size_t space_or_lines(const struct cursor *c, size_t i) {
    size_t end = i, line_end = 0, next;
    while (class_at(c, end, &next) & CLASS_SPACE) {
        if (c->s[end] == '\n' || c->s[end] == '\r') line_end = next;
        end = next;
    }
    return line_end ? line_end : space_word(c, i, end);
}

int tok_scan_words(const struct pre_scan_opt *o, const char *text, uint32_t from, uint32_t to,
                   struct tok_ids *ends) {
    const struct cursor c = {text, to, tok_classes()};
    const uint8_t letters = o->letters, word = CLASS_SPACE | CLASS_N | CLASS_L | letters;
    for (size_t i = from, next, after; i < to;) {
        size_t n = contraction(&c, i, true);
        uint8_t k = class_at(&c, i, &next);
        bool line = text[i] == '\r' || text[i] == '\n';
        if (n) {
            i += n;
        } else if (k & letters) {
            i = run_of(&c, next, letters);
        } else if (!line && !(k & (CLASS_N | CLASS_L)) && (class_at(&c, next, &after) & letters)) {
            i = run_of(&c, after, letters);
        } else if (k & CLASS_N) {
            i = next;
            for (int d = 1; d < o->max_digits && (class_at(&c, i, &next) & CLASS_N); d++) i = next;
        } else if (!(k & CLASS_SPACE) ||
                   (text[i] == ' ' && next < to && !(class_at(&c, next, &after) & word))) {
            i = run_outside(&c, next, word);
            while (i < to && (text[i] == '\r' || text[i] == '\n')) i++;
        } else {
            i = space_or_lines(&c, i);
        }
        if (tok_ids_put(ends, (uint32_t)i)) return CHIMERE_ENOMEM;
    }
    return 0;
}
