/* prm.h: a process reward model: how likely each step of a solution is right, as judged by a model.
 *
 * Any model that follows instructions can be the judge. It is shown the problem and the solution in numbered
 * steps. It writes a verdict on each step ("Step 2 is incorrect. \boxed{incorrect}") and on the whole ("Yes",
 * "No"), as ThinkPRM does (Khalifa et al., 2025). The score of a step is the probability of "correct" against
 * "incorrect" at the first token of the verdict. If the backend reports no probabilities, the score is 1 or 0. If
 * the judge writes no verdict, the score is the neutral 0.5. Many solutions are judged in one batch. prm_score
 * blocks; the other functions are pure. */
#ifndef CHIMERE_STRATEGY_PRM_H
#define CHIMERE_STRATEGY_PRM_H

#include "base/str.h"
#include "backend/batch.h"

enum { PRM_MAX_STEPS = 24, PRM_MAX_PROBLEM = 16 << 10, PRM_MAX_SOLUTION = 64 << 10 };

struct prm_steps {
    struct slice step[PRM_MAX_STEPS]; /* views into the text */
    int32_t n;
};
/* Splits an answer into steps, by the first form that it has: numbered items, headings, bullets, code blocks,
 * paragraphs, lines, or sentences and calculations. Numbers and list marks are not part of a step. If there are
 * more than PRM_MAX_STEPS, the rest belongs to the last step. */
void prm_split(const char *text, size_t n, struct prm_steps *out);

struct prm_verdict {
    double step[PRM_MAX_STEPS]; /* [n_step]: 0..1, 0.5 without a verdict */
    bool said[PRM_MAX_STEPS];
    int32_t n_step, n_said;
    bool has_whole;
    double whole; /* probability that the solution is right; 0.5 without a verdict */
    double score; /* smallest of all verdicts: candidates are compared by it */
};
/* A position in the judge's text where a verdict may begin, with the probabilities there. */
struct prm_mark {
    size_t at;
    /* probability of words that mean yes (correct, right), and of words that mean no */
    double yes, no;
};
/* Parses the judge's text. marks [n_mark] in ascending order; NULL: no probabilities. */
void prm_read(const char *text, size_t n, int32_t n_step, const struct prm_mark *marks,
              size_t n_mark, struct prm_verdict *out);
void prm_sum(struct prm_verdict *v); /* computes score from the other fields */
/* Removes a last step that only repeats the number at the end of the step before ("The answer is 12."): there is
 * nothing to judge in it. */
void prm_conclusion(struct prm_steps *s);
/* Returns +1 if the bytes may begin a word that means yes, -1 for no, otherwise 0. */
int prm_word(const char *text, size_t n);

struct prm_item {
    const char *problem, *solution; /* borrowed */
    /* the solution is not complete: the judge is not asked whether the whole is right */
    bool is_part;
    /* Verdict on the first steps from an earlier call, and its text: these steps are not judged again. NULL: none. */
    const struct prm_verdict *known; /* borrowed */
    const char *before;              /* borrowed */
    /* results; prm_drop */
    struct prm_verdict verdict;
    struct buf critique; /* the judge's text on the steps, including `before` */
    struct engine_stats stats;
    bool failed;
};
struct reward;
struct prm_use {
    struct backend *backend; /* borrowed: the judge */
    struct reward *reward;   /* borrowed: judges instead of it (reward.h); NULL: none */
    _Atomic bool *cancelled; /* borrowed; may be NULL */
    int64_t deadline_ns;     /* 0: none */
    int32_t max_tokens;      /* of all verdicts together; 0: no limit */
};
/* Judges all items, at most BATCH_MAX. An item that failed or was late has the neutral score and `failed` set.
 * Returns CHIMERE_E* only if memory is short. */
int prm_score(const struct prm_use *u, struct prm_item *items, int32_t n, struct err *e);
void prm_drop(struct prm_item *it);

#endif
