/* prm.h: a process reward model: how likely each step of a solution is right, as a model judges it.
 *
 * Any model that follows instructions can be the judge. It is shown the problem and the solution as
 * numbered steps, writes a verdict on each ("Step 2 is incorrect. \boxed{incorrect}") and whether all is
 * right ("Yes", "No"), as ThinkPRM does (Khalifa et al., 2025). A step's score is the probability of
 * "correct" against "incorrect" where the verdict begins; from a backend that tells no probabilities, 1
 * or 0. Whatever the judge writes that is no verdict leaves the neutral score 0.5. Many solutions are judged
 * at once, in one batch. prm_score blocks; the rest are pure functions. */
#ifndef CHIMERE_STRATEGY_PRM_H
#define CHIMERE_STRATEGY_PRM_H

#include "base/str.h"
#include "backend/batch.h"

enum { PRM_MAX_STEPS = 24, PRM_MAX_PROBLEM = 16 << 10, PRM_MAX_SOLUTION = 64 << 10 };

struct prm_steps {
    struct slice step[PRM_MAX_STEPS]; /* views into the text */
    int32_t n;
};
/* The steps of an answer; the first form that it has: numbered items, headings, bullets, code blocks,
 * paragraphs, lines, sentences and calculations. Numbers and marks in front are not part of a step. What
 * is beyond the last place belongs to the last step. */
void prm_split(const char *text, size_t n, struct prm_steps *out);

struct prm_verdict {
    double step[PRM_MAX_STEPS]; /* of n_step: 0..1, 0.5 where nothing was said */
    bool said[PRM_MAX_STEPS];
    int32_t n_step, n_said;
    bool has_whole;
    double whole; /* the solution is right; 0.5 where nothing was said */
    double score; /* the least of all that was said: what candidates are compared by */
};
/* A position of the judge's text where a verdict may begin, and what the model thought there. */
struct prm_mark {
    size_t at;
    double yes, no; /* probability of words that say yes (correct, right), and no */
};
/* Reads the judge's text. marks [n_mark] ascending; NULL: none were told. */
void prm_read(const char *text, size_t n, int32_t n_step, const struct prm_mark *marks,
              size_t n_mark, struct prm_verdict *out);
void prm_sum(struct prm_verdict *v); /* score of what the other fields say */
/* A last step that only repeats the number that the step before it ends with ("The answer is 12.") is no
 * step to judge. */
void prm_conclusion(struct prm_steps *s);
/* +1: the bytes may begin a word of yes, -1: of no, 0: neither. */
int prm_word(const char *text, size_t n);

struct prm_item {
    const char *problem, *solution; /* borrowed */
    bool is_part;                   /* the solution goes on: whether it is right is not asked */
    /* What was said of its first steps before, and the words: they are not judged again. NULL: nothing. */
    const struct prm_verdict *known; /* borrowed */
    const char *before;              /* borrowed */
    /* results; prm_drop */
    struct prm_verdict verdict;
    struct buf critique; /* the judge's words on steps, `before` too */
    struct engine_stats stats;
    bool failed;
};
struct prm_use {
    struct backend *backend; /* borrowed: the judge */
    _Atomic bool *cancelled; /* borrowed; may be NULL */
    int64_t deadline_ns;     /* 0: none */
};
/* Judges all, at most BATCH_MAX. What failed, or was late, has the neutral score and failed set; CHIMERE_E*
 * alone where there is no memory. */
int prm_score(const struct prm_use *u, struct prm_item *items, int32_t n, struct err *e);
void prm_drop(struct prm_item *it);

#endif
