/* forget.h: what nights have learned from one person, taken out of every version.
 *
 * Tables lose that person's documents. An adapter cannot lose a part: it goes where the person's answers trained it, or
 * where it is not known whose did. Records keep their figures; a return to any night stays possible. A process that
 * is killed leaves a state from which the next call completes the work. */
#ifndef CHIMERE_LEARN_FORGET_H
#define CHIMERE_LEARN_FORGET_H

#include "learn/nights.h"

struct learn_forgotten {
    size_t n_night;   /* records that changed */
    size_t n_doc;     /* documents taken out of tables, in all versions together */
    size_t n_adapter; /* adapters that went */
};

/* owner: as in rows of the store, "KEY" with all its users, or "KEY\tUSER"; "": of nobody known. nights: opened for
 * writing. */
int learn_forget(struct nights *nights, const char *owner, struct learn_forgotten *out,
                 struct err *e);

#endif
