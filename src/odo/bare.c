/* bare.c: see bare.h. The question is split into tokens; "the sum of A and B" and "A plus B" become an expression. */
#include "odo/bare.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "retrieval/fold.h"

enum { MAX_TEXT = 400, MAX_TOKENS = 64, MAX_TOKEN = 32 };

static const char around[] =
    " what what's whats is the s are how much many please can could you compute calculate evaluate "
    "solve work out find give me tell say result value answer equals equal only number "
    "combien font fait vaut calcule calculer calculez quel quelle est le la l resultat valeur "
    "donne moi dis que qu s'il te vous plait peux pouvez tu peut on ";
/* Words that mean one operator. */
static const char *const infix[][2] = {
    {"plus", "+"},    {"minus", "-"},  {"moins", "-"},     {"times", "*"},  {"x", "*"},
    {"fois", "*"},    {"over", "/"},   {"mod", "%"},       {"modulo", "%"}, {"multiplied", "*"},
    {"divided", "/"}, {"divise", "/"}, {"multiplie", "*"},
};
/* Words that come before both operands. swapped: the second operand comes first, as in "subtract 3 from 5". */
static const struct {
    const char *word, *sign;
    bool swapped;
} prefix[] = {
    {"sum", "+", 0},      {"somme", "+", 0},      {"add", "+", 0},        {"additionne", "+", 0},
    {"ajoute", "+", 0},   {"difference", "-", 0}, {"product", "*", 0},    {"produit", "*", 0},
    {"multiply", "*", 0}, {"multiplie", "*", 0},  {"multiplier", "*", 0}, {"quotient", "/", 0},
    {"divide", "/", 0},   {"divise", "/", 0},     {"diviser", "/", 0},    {"subtract", "-", 1},
    {"take", "-", 1},     {"soustrais", "-", 1},
};
static const char joins[] = " and et by par from de of to a entre between with avec des du ";

struct tokens {
    char v[MAX_TOKENS][MAX_TOKEN];
    int n;
};

static bool listed(const char *list, const char *word) {
    char key[MAX_TOKEN + 3];
    snprintf(key, sizeof key, " %s ", word);
    return strstr(list, key) != NULL;
}

static bool is_number(const char *t) { return isdigit((unsigned char)t[0]) != 0; }
static bool is_sign(const char *t) { return t[0] && !t[1] && strchr("+-*/^%()", t[0]); }

static const char *infix_of(const char *word) {
    for (size_t i = 0; i < sizeof infix / sizeof *infix; ++i)
        if (!strcmp(infix[i][0], word)) return infix[i][1];
    return NULL;
}

/* Returns the length in bytes of the number at p. Commas may group thousands. */
static size_t number_at(const char *p) {
    size_t n = 0;
    while (isdigit((unsigned char)p[n]) ||
           (n && (p[n] == '.' || p[n] == ',') && isdigit((unsigned char)p[n + 1])))
        ++n;
    return n;
}

/* Copies a number without its commas. A comma groups thousands ("1,250") or is a decimal point ("3,5"). Returns
 * false if it is neither for certain ("1,2,30"). */
static bool put_number(char out[MAX_TOKEN], const char *p, size_t n) {
    size_t k = 0, n_comma = 0, after = 0;
    bool grouped = true, dot = memchr(p, '.', n) != NULL;
    for (size_t i = 0; i < n; ++i) {
        if (p[i] == ',') {
            grouped &= !n_comma || after == 3;
            n_comma++;
            after = 0;
        } else {
            after++;
        }
    }
    grouped &= dot || after == 3;
    if (n + 1 > MAX_TOKEN || (n_comma && !grouped && (n_comma > 1 || dot))) return false;
    for (size_t i = 0; i < n; ++i)
        if (p[i] != ',') out[k++] = p[i];
        else if (!grouped) out[k++] = '.';
    out[k] = 0;
    return true;
}

/* Reads an operator, including the signs "×" and "÷". Returns its length in bytes, or 0. */
static size_t sign_at(const char *p, char *sign) {
    if (strchr("+-*/^%()", *p)) return *sign = *p, 1;
    if (!strncmp(p, "\xc3\x97", 2)) return *sign = '*', 2;
    if (!strncmp(p, "\xc3\xb7", 2)) return *sign = '/', 2;
    return 0;
}

/* Splits the text into numbers, operators and words. Words of the list `around` are dropped. Returns false if the
 * text contains something that cannot be part of a calculation. */
static bool read_tokens(struct tokens *t, const char *p) {
    while (*p) {
        char *out = t->v[t->n < MAX_TOKENS ? t->n : 0];
        size_t k = number_at(p);
        if (t->n == MAX_TOKENS) return false;
        if (k) {
            if (!put_number(out, p, k)) return false;
            t->n++;
        } else if ((k = sign_at(p, out))) {
            out[1] = 0;
            t->n++;
        } else if (isalpha((unsigned char)*p) || (unsigned char)*p >= 0x80) {
            while (isalpha((unsigned char)p[k]) || p[k] == '\'' || (unsigned char)p[k] >= 0x80) ++k;
            if (k >= MAX_TOKEN) return false;
            for (size_t i = 0; i < k; ++i) out[i] = (char)tolower((unsigned char)p[i]);
            out[k] = 0;
            if (!listed(around, out)) t->n++;
        } else if (strchr(" .,?!:=\n", *p)) {
            k = 1;
        } else {
            return false;
        }
        p += k;
    }
    return true;
}

static bool append(char *out, const char *text) {
    size_t n = strlen(out), k = strlen(text);
    if (n + k + 2 > BARE_MAX) return false;
    if (n) out[n++] = ' ';
    memcpy(out + n, text, k + 1);
    return true;
}

/* Reads "sum of 3 and 4", "subtract 3 from 5" or "multiply 5 by 44": one word, then two operands. A sum or a
 * product may have more operands. */
static bool read_prefix(const struct tokens *t, char *out) {
    size_t i = 0, n_row = sizeof prefix / sizeof *prefix;
    while (i < n_row && strcmp(t->v[0], prefix[i].word) != 0) ++i;
    if (i == n_row) return false;
    const char *operand[8];
    int n = 0;
    bool expects = true; /* the next token must be a number */
    for (int k = 1; k < t->n; ++k) {
        if (is_number(t->v[k])) {
            if (n == 8) return false;
            operand[n++] = t->v[k];
            expects = false;
        } else if (!listed(joins, t->v[k])) {
            return false;
        } else {
            expects = true;
        }
    }
    if (n < 2 || expects || (n > 2 && !strchr("+*", *prefix[i].sign))) return false;
    bool ok = true;
    for (int k = 0; ok && k < n; ++k) {
        if (k) ok = append(out, prefix[i].sign);
        ok = ok && append(out, operand[prefix[i].swapped ? n - 1 - k : k]);
    }
    return ok;
}

/* Copies numbers and operators in the order of the text. A word for an operator may be followed by "by". */
static bool read_infix(const struct tokens *t, char *out) {
    int n_number = 0, n_operator = 0;
    bool ok = true;
    for (int k = 0; ok && k < t->n; ++k) {
        const char *sign = infix_of(t->v[k]);
        if (is_number(t->v[k])) {
            ++n_number;
            ok = append(out, t->v[k]);
        } else if (is_sign(t->v[k])) {
            n_operator += !strchr("()", t->v[k][0]);
            ok = append(out, t->v[k]);
        } else if (sign) {
            ++n_operator;
            ok = append(out, sign);
            if (k + 1 < t->n && (!strcmp(t->v[k + 1], "by") || !strcmp(t->v[k + 1], "par"))) ++k;
        } else {
            ok = false;
        }
    }
    return ok && n_number >= 2 && n_operator >= 1;
}

bool bare_calculation(const char *text, char expression[BARE_MAX]) {
    struct buf b;
    struct tokens t = {.n = 0};
    expression[0] = 0;
    if (strlen(text) >= MAX_TEXT) return false;
    buf_init(&b, 4 * MAX_TEXT);
    fold_text(&b, text, strlen(text), true);
    buf_putc(&b, 0);
    bool ok = !b.failed && read_tokens(&t, b.p) && t.n >= 3;
    buf_fini(&b);
    if (ok && !isalpha((unsigned char)t.v[0][0])) ok = read_infix(&t, expression);
    else if (ok) ok = read_prefix(&t, expression);
    if (!ok) expression[0] = 0;
    return ok;
}

bool bare_is_single(const char *expression) {
    int n = 0;
    for (const char *p = expression; *p; ++p) n += strchr("+-*/^%", *p) != NULL;
    return n == 1;
}
