#include "odo/facts/fact.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "retrieval/fold.h"

enum { MAX_WORDS = 48, MAX_WORD = 32, MAX_SUBJECT = 8 };

struct folded { /* words of a text in lower case, without accents; apostrophes divide words */
    char v[MAX_WORDS][MAX_WORD];
    int n;
    bool cut; /* the text has more words */
};

/* Words that do not change what a sentence states. */
static const char *const fillers[] = {
    "now",      "actually",     "currently",  "really",   "also",     "just",  "please", "that",
    "that's",   "maintenant",   "desormais",  "vraiment", "aussi",    "que",   "qu",     "the",
    "a",        "an",           "of",         "le",       "la",       "les",   "un",     "une",
    "du",       "de",           "d",          "des",      "l",        "today", "new",    "nouveau",
    "nouvelle", "actuellement", "finalement", "however",  "recently", "have",  "just"};
static const char *const negations[] = {"not",   "no",   "never", "longer", "anymore", "don",
                                        "doesn", "isn",  "aren",  "won",    "can",     "cannot",
                                        "t",     "ne",   "n",     "pas",    "plus",    "jamais",
                                        "any",   "more", "do",    "does",   "didn",    "did"};
/* Attributes that have one value: "My address is ...". Other sentences of this form, such as "My dog is brown", do
 * not exclude each other. */
static const char *const attributes[] = {
    "name",     "surname", "number",    "phone",    "address",   "birthday", "age",
    "email",    "mail",    "code",      "password", "pin",       "job",      "profession",
    "employer", "boss",    "favourite", "favorite", "colour",    "color",    "size",
    "height",   "weight",  "language",  "city",     "town",      "country",  "school",
    "wife",     "husband", "partner",   "doctor",   "plan",      "deadline", "budget",
    "timezone", "nom",     "prenom",    "numero",   "telephone", "adresse",  "anniversaire",
    "courriel", "metier",  "travail",   "patron",   "prefere",   "preferee", "couleur",
    "taille",   "poids",   "langue",    "ville",    "pays",      "ecole",    "femme",
    "mari",     "medecin", "mot",       "echeance"};
/* Beginnings of sentences, and the property that they state. */
static const struct {
    const char *begin, *key;
} sentences[] = {
    {"i live", "live"},
    {"i am living", "live"},
    {"i m living", "live"},
    {"i moved to", "live"},
    {"i ve moved to", "live"},
    {"we live", "live"},
    {"my home is in", "live"},
    {"i am called", "name"},
    {"i m called", "name"},
    {"my name is", "name"},
    {"call me", "name"},
    {"i work at", "work at"},
    {"i work for", "work at"},
    {"i work in", "work in"},
    {"i work as", "work as"},
    {"i was born in", "born in"},
    {"i was born on", "born on"},
    {"i drive", "drive"},
    {"i weigh", "weigh"},
    {"i study", "study"},
    {"i am married to", "married"},
    {"i m married to", "married"},
    {"j habite", "habite"},
    {"je vis", "habite"},
    {"j ai demenage", "habite"},
    {"nous habitons", "habite"},
    {"je m appelle", "nom"},
    {"mon nom est", "nom"},
    {"appelle moi", "nom"},
    {"je travaille chez", "travaille chez"},
    {"je travaille pour", "travaille chez"},
    {"je travaille comme", "travaille comme"},
    {"je suis ne a", "ne a"},
    {"je suis nee a", "ne a"},
    {"je suis ne en", "ne en"},
    {"je suis nee en", "ne en"},
    {"je suis ne le", "ne le"},
    {"je suis nee le", "ne le"},
    {"je conduis", "conduis"},
    {"je pese", "pese"},
    {"j etudie", "etudie"},
    {"je mesure", "mesure"},
};
static const char *const owners[] = {"my", "our", "mon", "ma", "mes", "notre", "nos"};
static const char *const verbs[] = {"is", "are", "s", "est", "sont"};
static const char *const first_person[] = {"i",   "my", "me",  "we",  "our",  "je",   "j",
                                           "mon", "ma", "mes", "moi", "nous", "notre"};
static const char *const about_memory[] = {
    "know",  "remember",   "recall",   "told",    "tell",     "about",     "facts", "what", "do",
    "you",   "everything", "anything", "did",     "have",     "i",         "me",    "my",   "of",
    "all",   "can",        "sais",     "connais", "souviens", "rappelles", "tu",    "te",   "moi",
    "que",   "qu",         "est",      "ce",      "de",       "sur",       "tout",  "dis",  "ai",
    "dit",   "je",         "t",        "a",       "mon",      "ma",        "list",  "the",  "vous",
    "savez", "memory",     "memoire",  "ta",      "your",     "in",        "dans",  "quoi", "la"};

#define HAS(list, word) has(list, sizeof(list) / sizeof *(list), word)

static bool has(const char *const *list, size_t n, const char *word) {
    for (size_t i = 0; i < n; ++i)
        if (!strcmp(list[i], word)) return true;
    return false;
}

static void fold(struct folded *f, const char *text, size_t n) {
    struct buf b;
    *f = (struct folded){.n = 0};
    buf_init(&b, (size_t)64 << 10);
    fold_text(&b, text, n < 8192 ? n : 8192, true);
    for (size_t i = 0; i < b.n;) {
        while (i < b.n && !isalnum((unsigned char)b.p[i])) ++i;
        size_t from = i;
        while (i < b.n && isalnum((unsigned char)b.p[i])) ++i;
        if (i == from) break;
        if (f->n == MAX_WORDS) {
            f->cut = true;
            break;
        }
        size_t len = i - from < MAX_WORD - 1 ? i - from : MAX_WORD - 1;
        for (size_t k = 0; k < len; ++k)
            f->v[f->n][k] = (char)tolower((unsigned char)b.p[from + k]);
        f->v[f->n++][len] = 0;
    }
    buf_fini(&b);
}

/* Removes the words of a list. Returns how many were removed. */
static int drop(struct folded *f, const char *const *list, size_t n) {
    int kept = 0, before = f->n;
    for (int i = 0; i < f->n; ++i) {
        if (has(list, n, f->v[i])) continue;
        if (kept != i) memmove(f->v[kept], f->v[i], MAX_WORD);
        ++kept;
    }
    f->n = kept;
    return before - kept;
}

/* Returns the number of words that follow the beginning, or -1 if the sentence begins otherwise. */
static int after(const struct folded *f, const char *begin) {
    int i = 0;
    for (const char *p = begin; *p; ++i) {
        size_t n = strcspn(p, " ");
        if (i == f->n || strlen(f->v[i]) != n || strncmp(f->v[i], p, n) != 0) return -1;
        p += n + (p[n] == ' ');
    }
    return f->n - i;
}

/* The property of "My SUBJECT is VALUE" and "My SUBJECT is called VALUE". */
static bool of_subject(const struct folded *f, char key[FACT_MAX_KEY]) {
    int at = 1;
    bool named = false, single = false;
    if (f->n < 3 || !HAS(owners, f->v[0])) return false;
    for (; at < f->n && at <= MAX_SUBJECT && !HAS(verbs, f->v[at]); ++at)
        single |= HAS(attributes, f->v[at]);
    if (at == 1 || at >= f->n - 1 || at > MAX_SUBJECT) return false;
    named = !strcmp(f->v[at + 1], "called") || !strcmp(f->v[at + 1], "named") ||
            !strcmp(f->v[at + 1], "appelle") || !strcmp(f->v[at + 1], "appellent");
    if (!named && !single) return false;
    if (named && at + 2 >= f->n) return false;
    key[0] = 0;
    for (int i = 1; i < at; ++i)
        snprintf(key + strlen(key), FACT_MAX_KEY - strlen(key), "%s ", f->v[i]);
    snprintf(key + strlen(key), FACT_MAX_KEY - strlen(key), "%s", named ? "called" : "is");
    return true;
}

bool fact_property(const char *text, size_t n, char key[FACT_MAX_KEY]) {
    struct folded f;
    fold(&f, text, n);
    if (f.cut) return false;
    drop(&f, fillers, sizeof fillers / sizeof *fillers);
    for (int i = 0; i < f.n; ++i)
        if (HAS(negations, f.v[i]) && strcmp(f.v[i], "do") != 0) return false;
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences; ++i)
        if (after(&f, sentences[i].begin) > 0) {
            snprintf(key, FACT_MAX_KEY, "%s", sentences[i].key);
            return true;
        }
    /* "I am 34 years old", "J'ai 34 ans" */
    bool am = (f.n >= 4 && !strcmp(f.v[0], "i") && !strcmp(f.v[f.n - 1], "old")) ||
              (f.n == 4 && !strcmp(f.v[1], "ai") && !strcmp(f.v[3], "ans"));
    for (int i = 0; am && i < f.n; ++i)
        if (isdigit((unsigned char)f.v[i][0])) {
            snprintf(key, FACT_MAX_KEY, "age");
            return true;
        }
    return of_subject(&f, key);
}

bool fact_contradicts(const char *older, const char *newer) {
    char a[FACT_MAX_KEY], b[FACT_MAX_KEY];
    bool has_a = fact_property(older, strlen(older), a);
    bool has_b = fact_property(newer, strlen(newer), b);
    if (has_a && has_b) return !strcmp(a, b);
    struct folded x, y;
    fold(&x, older, strlen(older));
    fold(&y, newer, strlen(newer));
    drop(&x, fillers, sizeof fillers / sizeof *fillers);
    drop(&y, fillers, sizeof fillers / sizeof *fillers);
    int no_x = drop(&x, negations, sizeof negations / sizeof *negations);
    int no_y = drop(&y, negations, sizeof negations / sizeof *negations);
    if (!no_x == !no_y || x.n != y.n || x.n < 2 || x.cut || y.cut) return false;
    for (int i = 0; i < x.n; ++i)
        if (strcmp(x.v[i], y.v[i]) != 0) return false;
    return true;
}

bool fact_may_state(const char *message) {
    for (const char *p = message; *p;) {
        size_t n = strcspn(p, ".!?\n");
        struct folded f;
        fold(&f, p, n);
        bool own = false;
        for (int i = 0; i < f.n; ++i) own |= HAS(first_person, f.v[i]);
        if (own && p[n] != '?' && f.n >= 3) return true;
        p += n + (p[n] != 0);
    }
    return false;
}

bool fact_asks_all(const char *question) {
    struct folded f;
    fold(&f, question, strlen(question));
    bool own = false, memory = false;
    for (int i = 0; i < f.n; ++i) {
        if (!HAS(about_memory, f.v[i])) return false;
        own |= HAS(first_person, f.v[i]);
        memory |= !strcmp(f.v[i], "know") || !strcmp(f.v[i], "remember") ||
                  !strcmp(f.v[i], "recall") || !strcmp(f.v[i], "told") || !strcmp(f.v[i], "sais") ||
                  !strcmp(f.v[i], "connais") || !strcmp(f.v[i], "souviens") ||
                  !strcmp(f.v[i], "rappelles") || !strcmp(f.v[i], "savez") ||
                  !strcmp(f.v[i], "dit") || !strcmp(f.v[i], "memory") || !strcmp(f.v[i], "memoire");
    }
    return own && memory;
}

bool fact_is_from(const char *sentence, const char *message) {
    struct buf b;
    struct folded f;
    int n_in = 0;
    fold(&f, sentence, strlen(sentence));
    buf_init(&b, (size_t)256 << 10);
    fold_text(&b, message, strnlen(message, (size_t)64 << 10), true);
    for (size_t i = 0; i < b.n; ++i) {
        unsigned char c = (unsigned char)b.p[i];
        b.p[i] = (char)(isalnum(c) ? tolower(c) : ' ');
    }
    for (int i = 0; i < f.n && b.n; ++i) {
        size_t len = strlen(f.v[i]);
        for (const char *p = b.p; (p = strstr(p, f.v[i])); p += len)
            if ((p == b.p || p[-1] == ' ') && (!p[len] || p[len] == ' ')) {
                ++n_in;
                break;
            }
    }
    buf_fini(&b);
    return f.n > 0 && !f.cut && 3 * n_in >= 2 * f.n;
}
