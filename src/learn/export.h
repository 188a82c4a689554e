/* export.h: what a night may learn from, as lines of JSON for training elsewhere.
 *
 * Secrets are masked. Questions that are held out are left out here too: training on them elsewhere would
 * spoil what nights measure. */
#ifndef CHIMERE_LEARN_EXPORT_H
#define CHIMERE_LEARN_EXPORT_H

#include <stdio.h>

#include "store/quality.h"

struct learn_exported {
    size_t n_line, n_held; /* lines written, questions held out */
    size_t n_left; /* left out: alike, of very different length, a question seen before, no UTF-8 */
    size_t n_secret; /* masks made */
};

/* {"messages": [user, assistant], "score"} per line: the best answer to each question, worth `least` or more. */
int learn_export_sft(FILE *f, struct store *store, double least, struct learn_exported *out,
                     struct err *e);
/* {"prompt", "chosen", "rejected", "score_chosen", "score_rejected", "model"} per line: one pair per question,
 * whose worth differs by `gap` or more and whose lengths by less than a factor of two, since a judge that
 * likes length would teach length. */
int learn_export_dpo(FILE *f, struct store *store, double gap, struct learn_exported *out,
                     struct err *e);

#endif
