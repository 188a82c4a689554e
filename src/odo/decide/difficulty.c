#include "odo/decide/difficulty.h"

#include <math.h>
#include <string.h>

#include "odo/decide/classify.h"

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

void difficulty_of(const char *text, size_t n, const double *scores, size_t n_score,
                   const struct limits *limits, struct difficulty *out) {
    struct classified c;
    const struct limits usual = limits_default(), *l = limits ? limits : &usual;
    classify_text(text, n, &c);
    out->complexity = 0.5 * c.level[DIFFICULTY_MEDIUM] + c.level[DIFFICULTY_HIGH];
    out->history = difficulty_history(scores, n_score);
    out->score = fmin(1, fmax(0, out->complexity + 0.4 * (out->history - 0.5)));
    out->class = out->score < l->v[LIMIT_EASY]    ? DIFFICULTY_LOW
                 : out->score >= l->v[LIMIT_HARD] ? DIFFICULTY_HIGH
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
