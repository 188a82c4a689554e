/* bare.c: see bare.h. The question is split into tokens, and words that only ask are dropped. What is left
 * must be numbers, operators, prepositions and names of one operation. French verbs are recognized by stem and
 * ending. */
#include "odo/bare.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/fold.h"

enum { MAX_TEXT = 400, MAX_TOKENS = 64, MAX_TOKEN = 32 };

/* Words without a meaning for the calculation. */
static const char around[] =
    " what what's whats is the s are how much many please can could you compute calculate evaluate "
    "solve work out find give me tell say result value answer equals equal only number "
    /* French: pronouns, articles and the like */
    "je tu on nous vous il elle ce c ca cela ceci moi te me toi t j l le la les un une si s en y "
    "que "
    "qu quoi quel quelle combien se suivant suivante alors donc bien "
    /* ... auxiliaries and verbs of asking */
    "est es soit sera serait egal egale egaux fait font fais faire fera feront ferait vaut vaudra "
    "valent peux peut pouvez pouvoir pourrais pourrait pourriez dis dire dites veux voudrais "
    "aimerais savoir sais obtiens obtient obtenir obtenons obtiendra obtiendrait resous resoudre "
    /* ... nouns and words of politeness */
    "resultat valeur reponse operation calcul nombre nombres chiffre chiffres seulement juste "
    "uniquement plait merci bonjour svp stp pour ";
/* Stems of regular French verbs without a meaning for the calculation. */
static const char *const around_stem[] = {"calcul", "donn",  "trouv", "effectu",
                                          "rest",   "evalu", "compt", "pos"};
/* What can follow the stem of a French verb: inflections of the first group, and those of soustraire. */
static const char endings[] =
    " e es er ez ons ent ee ees s ant ai as a ais ait ions iez era erai "
    "eras erait erais erons eront ire is it its ite ites ira yant yez yons ion ";
/* Words that mean one operator. */
static const char *const infix[][2] = {
    {"plus", "+"},    {"minus", "-"},  {"moins", "-"},     {"times", "*"},  {"x", "*"},
    {"fois", "*"},    {"over", "/"},   {"mod", "%"},       {"modulo", "%"}, {"multiplied", "*"},
    {"divided", "/"}, {"divise", "/"}, {"multiplie", "*"},
};
/* Words for one operation on all operands, before, between or after them. A verb of removal has the number from
 * which it removes after a preposition: "subtract 3 from 5", "de 5, retire 3". */
enum role { IN_ORDER, REMOVAL, DIVISION };
static const struct {
    const char *word, *sign;
    enum role role;
    bool inflected; /* `word` is the stem of a French verb */
} operations[] = {
    {"sum", "+", 0, 0},
    {"somme", "+", 0, 0},
    {"total", "+", 0, 0},
    {"add", "+", 0, 0},
    {"adding", "+", 0, 0},
    {"added", "+", 0, 0},
    {"addition", "+", 0, 0},
    {"additionn", "+", 0, 1},
    {"ajout", "+", 0, 1},
    {"augment", "+", 0, 1},
    {"difference", "-", 0, 0},
    {"diminu", "-", 0, 1},
    {"product", "*", 0, 0},
    {"produit", "*", 0, 0},
    {"multiply", "*", 0, 0},
    {"multiplying", "*", 0, 0},
    {"multiplied", "*", 0, 0},
    {"multiplication", "*", 0, 0},
    {"multipli", "*", 0, 1},
    {"quotient", "/", DIVISION, 0},
    {"divide", "/", DIVISION, 0},
    {"dividing", "/", DIVISION, 0},
    {"divided", "/", DIVISION, 0},
    {"divis", "/", DIVISION, 1},
    {"subtract", "-", REMOVAL, 0},
    {"subtracting", "-", REMOVAL, 0},
    {"subtracted", "-", REMOVAL, 0},
    {"take", "-", REMOVAL, 0},
    {"taking", "-", REMOVAL, 0},
    {"soustra", "-", REMOVAL, 1},
    {"soustraction", "-", REMOVAL, 0},
    {"retir", "-", REMOVAL, 1},
    {"retranch", "-", REMOVAL, 1},
    {"enlev", "-", REMOVAL, 1},
    {"ot", "-", REMOVAL, 1},
};
static const char joins[] =
    " and et by par from de of to a entre between with avec des du d au aux ";

struct tokens {
    char v[MAX_TOKENS][MAX_TOKEN];
    int n;
};

static bool listed(const char *list, const char *word) {
    char key[MAX_TOKEN + 3];
    int n = snprintf(key, sizeof key, " %.*s ", MAX_TOKEN, word);
    return n < (int)sizeof key && strstr(list, key) != NULL;
}

static bool has_ending(const char *word, const char *stem) {
    size_t n = strlen(stem);
    return !strncmp(word, stem, n) && word[n] && listed(endings, word + n);
}

static bool is_around(const char *word) {
    bool found = listed(around, word);
    for (size_t i = 0; !found && i < sizeof around_stem / sizeof *around_stem; ++i)
        found = has_ending(word, around_stem[i]);
    return found;
}

/* Returns the row of operations, or -1. */
static int operation_of(const char *word) {
    for (size_t i = 0; i < sizeof operations / sizeof *operations; ++i)
        if (operations[i].inflected ? has_ending(word, operations[i].word)
                                    : !strcmp(word, operations[i].word))
            return (int)i;
    return -1;
}

static bool is_number(const char *t) { return isdigit((unsigned char)t[0]) != 0; }
static bool is_sign(const char *t) { return t[0] && !t[1] && strchr("+-*/^%()", t[0]); }

static const char *infix_of(const char *word) {
    for (size_t i = 0; i < sizeof infix / sizeof *infix; ++i)
        if (!strcmp(infix[i][0], word)) return infix[i][1];
    return NULL;
}

static size_t digits_at(const char *p) { return strspn(p, "0123456789"); }

/* Returns the length in bytes of the number at p. Commas may group thousands, and so may single spaces. */
static size_t number_at(const char *p) {
    size_t n = digits_at(p);
    if (n && n <= 3)
        while (p[n] == ' ' && digits_at(p + n + 1) == 3) n += 4;
    while (n && (isdigit((unsigned char)p[n]) ||
                 ((p[n] == '.' || p[n] == ',') && isdigit((unsigned char)p[n + 1]))))
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
    bool spaced = memchr(p, ' ', n) != NULL; /* then a comma is a decimal point */
    grouped &= !spaced && (dot || after == 3);
    if (n + 1 > MAX_TOKEN || (n_comma && !grouped && (n_comma > 1 || dot))) return false;
    for (size_t i = 0; i < n; ++i)
        if (p[i] != ',' && p[i] != ' ') out[k++] = p[i];
        else if (p[i] == ',' && !grouped) out[k++] = '.';
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

/* Reads a word. An elided French word before an apostrophe is dropped ("l'addition"). Returns its length in bytes;
 * out is empty if the word has no meaning for the calculation; 0: it is too long. */
static size_t word_at(const char *p, char *out) {
    size_t k = 0, from = 0;
    while (isalpha((unsigned char)p[k]) || p[k] == '\'' || (unsigned char)p[k] >= 0x80) ++k;
    if (k >= MAX_TOKEN) return 0;
    for (size_t i = 0; i < k; ++i) out[i] = (char)tolower((unsigned char)p[i]);
    out[k] = 0;
    for (size_t i = 1; i <= 2 && i + 1 < k && !listed(around, out); ++i)
        if (out[i] == '\'') from = i + 1;
    memmove(out, out + from, k + 1 - from);
    if (is_around(out)) out[0] = 0;
    return k;
}

/* Splits the text into numbers, operators and words with a meaning. Returns false if the text contains something
 * that cannot be part of a calculation. */
static bool read_tokens(struct tokens *t, const char *p) {
    const char *start = p;
    while (*p) {
        char *out = t->v[t->n < MAX_TOKENS ? t->n : 0];
        size_t k = number_at(p);
        if (t->n == MAX_TOKENS) return false;
        if (k) {
            if (!put_number(out, p, k)) return false;
            t->n++;
        } else if (*p == '-' && p > start && isalpha((unsigned char)p[-1]) &&
                   isalpha((unsigned char)p[1])) {
            k = 1; /* joins words: "calcule-moi" */
        } else if ((k = sign_at(p, out))) {
            out[1] = 0;
            t->n++;
        } else if (isalpha((unsigned char)*p) || (unsigned char)*p >= 0x80) {
            if (!(k = word_at(p, out))) return false;
            t->n += out[0] != 0;
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

enum { MAX_OPERANDS = 8 };
struct operands {
    const char *v[MAX_OPERANDS],
        *before[MAX_OPERANDS]; /* numbers, and the preposition of each; "": none */
    int n, row;                /* row of operations; -1: none yet */
};

/* Reads numbers and one operation, which may be named twice ("the addition 3 + 4"). */
static bool read_operands(const struct tokens *t, struct operands *o) {
    const char *join = "";
    o->n = 0, o->row = -1;
    for (int k = 0; k < t->n; ++k) {
        const char *sign = is_sign(t->v[k]) ? t->v[k] : infix_of(t->v[k]);
        int row = operation_of(t->v[k]);
        if (is_number(t->v[k])) {
            if (o->n == MAX_OPERANDS) return false;
            o->before[o->n] = join;
            o->v[o->n++] = t->v[k];
            join = "";
        } else if (row >= 0) {
            if (o->row >= 0 && *operations[row].sign != *operations[o->row].sign) return false;
            if (o->row < 0) o->row = row;
            join = "";
        } else if (listed(joins, t->v[k])) {
            join = t->v[k];
        } else if (!sign || o->row < 0 || *sign != *operations[o->row].sign || !o->n) {
            return false;
        } else {
            join = "="; /* the sign states the order of the operands */
        }
    }
    return o->row >= 0 && o->n >= 2 && !*join;
}

/* Returns 1 if the second operand comes first, 0 if not, and -1 if the order is not certain. */
static int is_swapped(const struct operands *o) {
    const char *one = o->before[0], *two = o->before[1];
    double first = strtod(o->v[0], NULL), second = strtod(o->v[1], NULL);
    if (!strcmp(two, "=")) return 0;
    switch (operations[o->row].role) {
    case DIVISION: return listed(" by par ", one) && !listed(" by par ", two);
    case REMOVAL: {
        bool from_one = listed(" de du from a au ", one),
             from_two = listed(" de du from a au ", two);
        if (from_one != from_two) return from_two;
        return from_one && listed(" a from au ", two) ? 1 : -1;
    }
    default:
        /* the difference between 3 and 5 is 2 for some, -2 for others */
        return *operations[o->row].sign == '-' && first < second ? -1 : 0;
    }
}

/* Reads one operation that is named by a word: "sum of 3 and 4", "subtract 3 from 5", "417 multiplied by 58". A sum
 * or a product may have more operands. */
static bool read_operation(const struct tokens *t, char *out) {
    struct operands o;
    if (!read_operands(t, &o)) return false;
    const char *sign = operations[o.row].sign;
    if (o.n > 2 && !strchr("+*", *sign)) return false;
    int swapped = strchr("+*", *sign) ? 0 : is_swapped(&o);
    bool ok = swapped >= 0;
    for (int k = 0; ok && k < o.n; ++k) {
        if (k) ok = append(out, sign);
        ok = ok && append(out, o.v[swapped ? o.n - 1 - k : k]);
    }
    return ok;
}

/* Copies numbers and operators in the order of the text. A word for an operator may be followed by "by". */
static bool read_infix(const struct tokens *t, char *out) {
    int n_number = 0, n_operator = 0;
    bool ok = true;
    for (int k = 0; ok && k < t->n; ++k) {
        const char *sign = infix_of(t->v[k]);
        if (!k && listed(" a d de du of ", t->v[k])) continue; /* "the result of 3 + 4" */
        if (is_number(t->v[k])) {
            ++n_number;
            ok = !k || !is_number(t->v[k - 1]); /* "2 + 2 = 4?" is no calculation */
            ok = ok && append(out, t->v[k]);
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
    if (ok && !read_infix(&t, expression)) {
        expression[0] = 0;
        ok = read_operation(&t, expression);
    }
    if (!ok) expression[0] = 0;
    return ok;
}

bool bare_is_single(const char *expression) {
    int n = 0;
    for (const char *p = expression; *p; ++p) n += strchr("+-*/^%", *p) != NULL;
    return n == 1;
}
