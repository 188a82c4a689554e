#include "strategy/strategy_key.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Parses a number at text[i..n). Returns its end, or i if there is none. Commas between groups of three digits are
 * part of the number. */
static size_t number_at(const char *text, size_t n, size_t i, double *out) {
    char digits[40];
    size_t len = 0, at = i;
    if (at < n && (text[at] == '-' || text[at] == '+') && (!i || !is_digit(text[i - 1])))
        digits[len++] = text[at++];
    size_t first = at;
    bool point = false;
    while (at < n && len + 1 < sizeof digits) {
        if (is_digit(text[at])) {
            digits[len++] = text[at++];
        } else if (text[at] == ',' && at > first && !point && at + 3 < n &&
                   is_digit(text[at + 1]) && is_digit(text[at + 2]) && is_digit(text[at + 3]) &&
                   (at + 4 >= n || !is_digit(text[at + 4]))) {
            at++;
        } else if (text[at] == '.' && !point && at > first && at + 1 < n &&
                   is_digit(text[at + 1])) {
            point = true;
            digits[len++] = text[at++];
        } else {
            break;
        }
    }
    if (at == first) return i;
    digits[len] = 0;
    *out = strtod(digits, NULL);
    return at;
}

static bool last_number(const char *text, size_t n, double *out) {
    bool any = false;
    for (size_t i = 0; i < n;) {
        double x;
        size_t end = number_at(text, n, i, &x);
        if (end == i) {
            i++;
            continue;
        }
        *out = x;
        any = true;
        i = end;
    }
    return any;
}

static void key_of(const char *text, size_t n, char out[STRATEGY_KEY_BYTES]) {
    double x;
    if (last_number(text, n, &x)) {
        snprintf(out, STRATEGY_KEY_BYTES, "%.12g", x == 0 ? 0 : x);
        return;
    }
    size_t len = 0;
    bool blank = false;
    uint64_t h = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == ' ' || c == '\n' || c == '\t' || c == '*' || c == '.' || c == '\r') {
            blank = len > 0;
            continue;
        }
        if (c >= 'A' && c <= 'Z') c = (char)(c + 32);
        char pair[2] = {' ', c};
        h = hash_bytes(blank ? pair : pair + 1, blank ? 2 : 1, h);
        if (len < 40) {
            if (blank) out[len++] = ' ';
            out[len++] = c;
        }
        blank = false;
    }
    out[len] = 0;
    if (len >= 40) snprintf(out, STRATEGY_KEY_BYTES, "text %016llx", (unsigned long long)h);
}

/* Finds the text after the last occurrence of a phrase, up to the end of its line. Returns false if the phrase
 * does not occur. */
static bool behind(const char *text, size_t n, const char *phrase, const char **at, size_t *len) {
    size_t m = strlen(phrase);
    for (size_t i = n < m ? 0 : n - m + 1; i-- > 0;) {
        if (strncasecmp(text + i, phrase, m) != 0) continue;
        *at = text + i + m;
        *len = n - i - m;
        const char *line = memchr(*at, '\n', *len);
        if (line && line > *at) *len = (size_t)(line - *at);
        return true;
    }
    return false;
}

void strategy_key(const char *text, size_t n, char out[STRATEGY_KEY_BYTES]) {
    static const char *const phrases[] = {"answer is", "answer:", "ponse est", "ponse :"};
    const char *at;
    size_t len;
    out[0] = 0;
    if (!n) return;
    if (behind(text, n, "\\boxed{", &at, &len)) {
        const char *close = memchr(at, '}', len);
        key_of(at, close ? (size_t)(close - at) : len, out);
        return;
    }
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
        if (!behind(text, n, phrases[i], &at, &len)) continue;
        const char *stop = memmem(at, len, ". ", 2);
        key_of(at, stop ? (size_t)(stop - at) : len, out);
        return;
    }
    key_of(text, n, out);
}
