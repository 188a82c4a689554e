/* export.h: exports what a night may learn from as lines of JSON, for training elsewhere.
 *
 * Secrets are masked. Held-out questions are not exported either: training on them elsewhere would invalidate what
 * nights measure. */
#ifndef CHIMERE_LEARN_DATA_EXPORT_H
#define CHIMERE_LEARN_DATA_EXPORT_H

#include <stdio.h>

#include "store/quality.h"

struct learn_exported {
    size_t n_line, n_held; /* lines written, questions held out */
    /* left out: equal answers, very different lengths (dpo), no accepted answer (spin), repeated questions, not UTF-8 */
    size_t n_left;
    size_t n_secret; /* secrets masked */
};

/* Writes one line {"messages": [user, assistant], "score"} per question: its best answer, if its worth is at least
 * `least`. */
int learn_export_sft(FILE *f, struct store *store, double least, struct learn_exported *out,
                     struct err *e);
/* Writes one line {"prompt", "chosen", "rejected", "score_chosen", "score_rejected", "model"} per question. The
 * worth of the two answers differs by at least `gap`. Their lengths differ by less than a factor of two, because
 * otherwise a judge that prefers long answers would teach length. */
int learn_export_dpo(FILE *f, struct store *store, double gap, struct learn_exported *out,
                     struct err *e);
/* Writes one line {"real": [user, assistant], "generated": [user, assistant], "model"} per question: the answer that a
 * user wrote or rated as good, and an answer of the model that no user accepted. Any lengths and worths. */
int learn_export_spin(FILE *f, struct store *store, struct learn_exported *out, struct err *e);

#endif
