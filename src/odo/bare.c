/* bare.c: see bare.h. */
#include "odo/bare.h"

#include <ctype.h>
#include <string.h>

#include "retrieval/fold.h"

enum { MAX_TEXT = 400 };

static const char around[] =
    " what what's whats is the s are how much many please can you compute calculate evaluate solve "
    "work out "
    "find give me tell result value answer of equals equal to and by with only number "
    "combien font fait vaut calcule calculer calculez quel quelle est le la l resultat valeur de "
    "du "
    "des et par donne moi dis que qu combien s'il te plait ";
static const char operators[] =
    " plus minus times over divided multiplied added subtracted sum difference product quotient "
    "power "
    "squared cubed percent mod modulo x fois moins divise multiplie somme produit puissance carre "
    "pour cent ";

static bool listed(const char *list, const char *word, size_t n) {
    char key[32] = " ";
    if (n + 3 > sizeof key) return false;
    memcpy(key + 1, word, n);
    key[n + 1] = ' ';
    key[n + 2] = 0;
    return strstr(list, key) != NULL;
}

/* Bytes of the number at p. */
static size_t number_at(const char *p) {
    size_t n = 0;
    while (isdigit((unsigned char)p[n]) ||
           (n && (p[n] == '.' || p[n] == ',') && isdigit((unsigned char)p[n + 1])))
        ++n;
    return n;
}

/* The signs that text puts for times and divided by. */
static size_t sign_at(const char *p) {
    if (strchr("+-*/^%", *p)) return 1;
    if (!strncmp(p, "\xc3\x97", 2) || !strncmp(p, "\xc3\xb7", 2)) return 2;
    return 0;
}

bool bare_calculation(const char *text) {
    struct buf b;
    int n_number = 0, n_operator = 0;
    bool bare = strlen(text) < MAX_TEXT;
    buf_init(&b, 4 * MAX_TEXT);
    if (bare) fold_text(&b, text, strlen(text), true);
    buf_putc(&b, 0);
    for (const char *p = b.failed ? "" : b.p; bare && *p;) {
        size_t k = number_at(p), sign = k ? 0 : sign_at(p);
        n_number += k > 0;
        n_operator += sign > 0;
        if (!k && !sign && (isalpha((unsigned char)*p) || (unsigned char)*p >= 0x80)) {
            char word[32];
            while (isalpha((unsigned char)p[k]) || p[k] == '\'' || (unsigned char)p[k] >= 0x80) ++k;
            for (size_t i = 0; i < k && i < sizeof word; ++i)
                word[i] = (char)tolower((unsigned char)p[i]);
            bool op = k < sizeof word && listed(operators, word, k);
            n_operator += op;
            bare = op || (k < sizeof word && listed(around, word, k));
        } else if (!k && !sign) {
            bare = strchr(" ().,?!:=\n", *p) != NULL;
            k = 1;
        }
        p += k ? k : sign;
    }
    bool whole = bare && !b.failed;
    buf_fini(&b);
    return whole && n_number >= 2 && n_operator >= 1;
}
