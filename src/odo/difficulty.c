#include "odo/difficulty.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "retrieval/fold.h"

enum { MAX_TEXT = 8000 };

/* Beginnings of words: the original ended its stems with a word border, so that half never matched. */
static const char *const ambiguous[] = {
    "depend",     "nuance",    "recommand", "recommend", "trade-off", "best way",      "meilleur",
    "controvers", "uncertain", "incertain", "should i",  "dois-je",   "pros and cons", "versus"};
static const char *const multi_step[] = {
    "step by step", "etape",    "first",  "then ",     "ensuite", "d'abord",
    "puis ",        "finally",  "enfin",  "exhausti",  "detail",  "compare",
    "prove",        "demontre", "design", "concevoir", "plan"};
static const char *const technical[] = {
    "algorithm", "algorithme", "complexit",  "asymptot",   "theorem",    "theoreme",
    "integral",  "matri",      "probabilit", "architect",  "protocol",   "optimi",
    "concurren", "distribu",   "vulnerabil", "pathophysi", "physiopath", "meta-anal",
    "statisti",  "kernel",     "quantum",    "quantique"};
static const char *const simple[] = {"capital of", "capitale d",    "translate ",   "traduis ",
                                     "define ",    "definis ",      "who is ",      "qui est ",
                                     "when was ",  "what time",     "quelle heure", "convert ",
                                     "convertis ", "how do you say"};

static int count_stems(const char *text, const char *const *stems, size_t n) {
    int found = 0;
    for (size_t i = 0; i < n; ++i) {
        for (const char *p = text; (p = strstr(p, stems[i])); ++p)
            if (p == text || !isalnum((unsigned char)p[-1])) {
                ++found;
                break;
            }
    }
    return found;
}
#define COUNT(text, stems) count_stems(text, stems, sizeof stems / sizeof *stems)

static double length_part(size_t n) {
    return n < 20 ? 0 : n < 80 ? 0.05 : n < 200 ? 0.10 : n < 500 ? 0.18 : 0.25;
}

static double complexity(const char *text, size_t n) {
    double part = length_part(n);
    int questions = 0, sentences = 0;
    for (size_t i = 0; i < n; ++i) {
        questions += text[i] == '?';
        sentences += (text[i] == '.' || text[i] == '?' || text[i] == '!') &&
                     (i + 1 == n || text[i + 1] == ' ');
    }
    if (n < 120 && questions <= 1 && COUNT(text, simple)) return fmin(part + 0.05, 0.20);
    double c = part + (questions >= 3 ? 0.15 : questions == 2 ? 0.08 : questions ? 0.03 : 0);
    c += fmin(0.25, 0.10 * COUNT(text, ambiguous));
    c += fmin(0.20, 0.08 * COUNT(text, multi_step));
    c += fmin(0.20, 0.06 * COUNT(text, technical));
    if (strstr(text, "```") || strstr(text, "def ") || strstr(text, "fn ")) c += 0.05;
    c += sentences >= 5 ? 0.10 : sentences >= 3 ? 0.05 : 0;
    return fmin(c, 1);
}

double difficulty_history(const double *scores, size_t n) {
    if (n < 3) return 0.5;
    double mean = 0, var = 0;
    for (size_t i = 0; i < n; ++i) mean += scores[i] / (double)n;
    for (size_t i = 0; i < n; ++i) var += (scores[i] - mean) * (scores[i] - mean) / (double)n;
    double base = mean >= 4.5 ? 0
                  : mean >= 4 ? 0.15
                  : mean >= 3 ? 0.50 - 0.15 * (mean - 3)
                  : mean >= 2 ? 0.50 + 0.25 * (3 - mean)
                              : 0.85;
    return fmin(1, base + fmin(0.15, 0.10 * sqrt(var)));
}

void difficulty_of(const char *text, size_t n, double route_confidence, const double *scores,
                   size_t n_score, struct difficulty *out) {
    struct buf folded;
    buf_init(&folded, 4 * MAX_TEXT);
    fold_text(&folded, text, n < MAX_TEXT ? n : MAX_TEXT, true);
    for (size_t i = 0; i < folded.n; ++i) folded.p[i] = (char)tolower((unsigned char)folded.p[i]);
    out->complexity = folded.n ? complexity(folded.p, folded.n) : 0;
    if (n >= MAX_TEXT) out->complexity = fmin(1, out->complexity + 0.25);
    buf_fini(&folded);
    out->history = difficulty_history(scores, n_score);
    out->score = 0.45 * out->complexity + 0.30 * (1 - fmin(1, fmax(0, route_confidence))) +
                 0.25 * out->history;
    out->class = out->score <= 0.28   ? DIFFICULTY_LOW
                 : out->score >= 0.52 ? DIFFICULTY_HIGH
                                      : DIFFICULTY_MEDIUM;
    out->mode = out->class == DIFFICULTY_LOW    ? DIFFICULTY_FAST
                : out->class == DIFFICULTY_HIGH ? DIFFICULTY_ULTRA
                                                : DIFFICULTY_QUALITY;
}

static const char *const modes[] = {"fast", "quality", "ultra"};

const char *difficulty_class_name(enum difficulty_class c) {
    static const char *const names[] = {"low", "medium", "high"};
    return names[c];
}

const char *difficulty_mode_name(enum difficulty_mode m) { return modes[m]; }

int difficulty_mode_from(const char *name) {
    for (int i = 0; i < 3; ++i)
        if (!strcmp(modes[i], name)) return i;
    return -1;
}
