/* card.h: measured facts about a model: which parts of the orchestrator improve its answers, or at least do not
 * make them worse. One JSON file for all models, keyed by name.
 * A model without a card gets no part that could make it worse: no prompt of a pipeline that the user did not
 * name, and no tools that the request did not ask for. */
#ifndef CHIMERE_ODO_CARD_H
#define CHIMERE_ODO_CARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct odo_card {
    bool tools; /* the tools of pipelines and skills do not make its answers worse */
    /* prompts of routes and skills that the user did not name do not make its answers worse */
    bool prompts;
    /* passages of an index that the request did not ask for make its answers worse */
    bool no_documents;
    bool facts; /* it finds in a message what should be remembered (facts/facts.h) */
    bool judge; /* its grades tell right answers from wrong ones */
};

/* path NULL: "cards.json" of the user's data folder. If the folder, the file or the model is missing, *card is all
 * false and *known is false. */
int card_read(const char *path, const char *model, struct odo_card *card, bool *known,
              struct err *e);
int card_write(const char *path, const char *model, const struct odo_card *card, int64_t n_item,
               struct err *e);

#endif
