/* card.h: what a model was measured to gain from, or at least not to lose by. One JSON file for all models, by name.
 * A model without a card gets nothing that could make it worse: no prompt of a pipeline that the user did not name, no
 * tools that it was not asked to use. */
#ifndef CHIMERE_ODO_CARD_H
#define CHIMERE_ODO_CARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct odo_card {
    bool tools;   /* calls those that pipelines and skills offer only if they help */
    bool prompts; /* answers no worse under the prompts of routes and skills that nobody named */
    bool no_documents; /* answers worse with unrequested passages of an index */
};

/* path NULL: "cards.json" of the user's data folder. No folder, no file or no such model: *card is all false, *known
 * false. */
int card_read(const char *path, const char *model, struct odo_card *card, bool *known,
              struct err *e);
int card_write(const char *path, const char *model, const struct odo_card *card, int64_t n_item,
               struct err *e);

#endif
