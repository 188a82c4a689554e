/* measure_impl.h: shared by the two source files of measure.h: decisions and answers. */
#ifndef CHIMERE_ODO_MEASURE_IMPL_H
#define CHIMERE_ODO_MEASURE_IMPL_H

#include "odo/measure/measure.h"

/* Returns a string of the item's "expect"; NULL: not given. */
const char *measure_expected(const json_t *item, const char *key);
/* Returns true if the text contains one of the listed texts, ignoring case. */
bool measure_has_any(const char *text, const json_t *list);
/* {"n", "right", "score", "low", "high"}; a new reference. */
json_t *measure_share(int64_t right, int64_t n);
/* Builds the request of an item. wish: the object to send as extra.odo; NULL: the model alone. */
void measure_request(const json_t *item, const struct measure_params *p, const json_t *wish,
                     struct request *a);
/* measure_decide.c: {"total", "skills": [...], "items": [...], "ms"}; *out is a new reference. */
int measure_decide(json_t **out, const json_t *items, const struct measure_params *p,
                   struct err *e);
/* measure_judge.c: lets the model grade its answers of a run. *out: {"auc", "right", "wrong", "good"}: the
 * probability that a right answer has the higher grade, the numbers of graded answers, and whether the grades may
 * count. */
int measure_judge(json_t **out, const json_t *items, const json_t *run,
                  const struct measure_params *p, struct err *e);

#endif
