/* forget.h: removes what nights have learned from one person, in every version.
 *
 * Tables lose that person's documents. An adapter cannot lose a part of its training. It is removed if the
 * person's answers trained it, or if it is not known whose did. Records keep their measurements, and a return to
 * any night remains possible. If the process is killed, the next call completes the work. */
#ifndef CHIMERE_LEARN_FORGET_H
#define CHIMERE_LEARN_FORGET_H

#include "learn/nights.h"

struct learn_forgotten {
    size_t n_night;   /* records that changed */
    size_t n_doc;     /* documents removed from tables, over all versions */
    size_t n_adapter; /* removed adapters */
};

/* owner: as in the rows of the store: "KEY" (with all its users), "KEY\tUSER", or "" for rows without a known
 * owner. nights must be open for writing. */
int learn_forget(struct nights *nights, const char *owner, struct learn_forgotten *out,
                 struct err *e);

#endif
