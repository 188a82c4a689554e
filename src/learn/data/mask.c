#include "learn/data/mask.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { MIN_RANDOM = 24, MAX_IBAN = 34, MIN_IBAN = 15, MIN_CARD = 13, MAX_CARD = 19 };

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.' || c == '+' || c == '/' ||
           c == '=' || c == '@';
}

/* Returns the length of a private key block at the start of s; 0: none. */
static size_t key_block(const char *s, size_t n) {
    static const char begin[] = "-----BEGIN ", end[] = "-----END ";
    if (n < sizeof begin || memcmp(s, begin, sizeof begin - 1) != 0) return 0;
    const char *title = memchr(s, '\n', n);
    if (!title || !memmem(s, (size_t)(title - s), "PRIVATE KEY", 11)) return 0;
    const char *last = memmem(s, n, end, sizeof end - 1);
    if (!last) return n;
    const char *line = memchr(last, '\n', n - (size_t)(last - s));
    return line ? (size_t)(line - s) : n;
}

static bool is_mail(const char *s, size_t n) {
    const char *at = memchr(s, '@', n);
    if (!at || at == s) return false;
    const char *dot = memrchr(at, '.', n - (size_t)(at - s));
    return dot && dot > at + 1 && dot + 2 < s + n;
}

static bool has_prefix(const char *s, size_t n) {
    static const char *const known[] = {"sk-",    "sk_live_", "pk_live_", "ghp_", "gho_", "ghs_",
                                        "glpat-", "xoxb-",    "xoxp-",    "AKIA", "ASIA", "hf_",
                                        "AIza",   "eyJ",      "npm_",     "pypi-"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t k = strlen(known[i]);
        if (n >= k + 12 && !memcmp(s, known[i], k)) return true;
    }
    return false;
}

/* Returns true for a long word in which letters and digits alternate, unlike words of a language. */
static bool is_random(const char *s, size_t n) {
    size_t digit = 0, alpha = 0, turns = 0;
    if (n < MIN_RANDOM) return false;
    for (size_t i = 0; i < n; i++) {
        bool d = isdigit((unsigned char)s[i]);
        if (d) digit++;
        else if (isalpha((unsigned char)s[i])) alpha++;
        else return false;
        if (i && d != (bool)isdigit((unsigned char)s[i - 1])) turns++;
    }
    return digit * 8 >= n && alpha * 8 >= n && turns >= 4;
}

static bool is_iban(const char *s, size_t n) {
    if (n < MIN_IBAN || n > MAX_IBAN || !isupper((unsigned char)s[0]) ||
        !isupper((unsigned char)s[1]) || !isdigit((unsigned char)s[2]) ||
        !isdigit((unsigned char)s[3]))
        return false;
    unsigned rest = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[(i + 4) % n];
        if (isdigit((unsigned char)c)) rest = (rest * 10 + (unsigned)(c - '0')) % 97;
        else if (isupper((unsigned char)c)) rest = (rest * 100 + (unsigned)(c - 'A' + 10)) % 97;
        else return false;
    }
    return rest == 1;
}

/* Returns the length of a card number at s: 13 to 19 digits, possibly in groups, with a valid check digit. 0:
 * none. */
static size_t card(const char *s, size_t n) {
    char digits[MAX_CARD + 1];
    size_t n_digit = 0, i = 0, end = 0;
    for (; i < n && n_digit <= MAX_CARD; i++) {
        if (isdigit((unsigned char)s[i])) {
            if (n_digit == MAX_CARD) return 0;
            digits[n_digit++] = s[i];
            end = i + 1;
        } else if ((s[i] != ' ' && s[i] != '-') || !n_digit || !isdigit((unsigned char)s[i - 1])) {
            break;
        }
    }
    if (n_digit < MIN_CARD) return 0;
    int sum = 0;
    for (size_t k = 0; k < n_digit; k++) {
        int d = digits[n_digit - 1 - k] - '0';
        if (k % 2) d = d > 4 ? 2 * d - 9 : 2 * d;
        sum += d;
    }
    return sum % 10 == 0 ? end : 0;
}

/* Returns the length of the secret at s, which is the start of a word, and its kind; 0: none. */
static size_t secret_at(const char *s, size_t n, const char **kind) {
    size_t k = key_block(s, n), word = 0;
    *kind = "[key]";
    if (k) return k;
    *kind = "[card]";
    if ((k = card(s, n)) != 0) return k;
    while (word < n && is_word(s[word])) word++;
    while (word && strchr(".=/-", s[word - 1])) word--; /* punctuation of the sentence */
    *kind = "[mail]";
    if (is_mail(s, word)) return word;
    *kind = "[iban]";
    if (is_iban(s, word)) return word;
    *kind = "[key]";
    return has_prefix(s, word) || is_random(s, word) ? word : 0;
}

size_t mask_secrets(struct buf *out, const char *text, size_t n) {
    size_t found = 0;
    for (size_t i = 0; i < n;) {
        const char *kind;
        bool begins = !i || !is_word(text[i - 1]);
        size_t k = begins ? secret_at(text + i, n - i, &kind) : 0;
        if (k) {
            buf_puts(out, kind);
            found++;
            i += k;
        } else {
            buf_putc(out, text[i]);
            i++;
        }
    }
    return found;
}
