/* grade.h: a grade from 1 to 5 of a whole answer, given by a model that judges.
 *
 * The model reads the question and the answer, and writes one digit. The grade is the mean of all digits, weighted by
 * their probabilities, so answers with the same digit can still be compared. If the backend reports no probabilities,
 * the grade is the digit itself. The text of the answer can try to persuade the model: a grade is evidence, not proof.
 * Blocks; any thread. */
#ifndef CHIMERE_STRATEGY_GRADE_H
#define CHIMERE_STRATEGY_GRADE_H

#include <stdatomic.h>

#include "backend/backend.h"

struct grade_ask {
    struct backend *backend;       /* borrowed: the judge */
    const char *question, *answer; /* borrowed */
    _Atomic bool *cancelled;       /* borrowed; may be NULL */
    int64_t deadline_ns;           /* 0: none */
};
/* *grade: 1..5. CHIMERE_ENOENT: the model wrote no grade in time. */
int grade_answer(double *grade, const struct grade_ask *a, struct err *e);

#endif
