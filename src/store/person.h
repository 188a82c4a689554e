/* person.h: deletes all data of one person: every row of an owner, or of one of its users. */
#ifndef CHIMERE_STORE_PERSON_H
#define CHIMERE_STORE_PERSON_H

#include "store/store.h"

struct store_person {
    /* view: "key-...", "local"; "": rows written before owners were recorded */
    const char *owner;
    const char *user;       /* view: a user of the owner; NULL: all users */
    int64_t key_id;         /* 0: no key */
    const uint64_t *states; /* view [n_state]: hashes that identify the saved states; 0: none */
    int n_state;
    bool states_are_scopes; /* they are their scopes; otherwise their owners */
};

struct store_forgotten {
    int64_t n_row;
    /* true: the deleted bytes are no longer in the file; false: its pages may contain them until they are
     * reused */
    bool is_overwritten;
};

/* Deletes answers and their alternatives, memories, private documents, personas, conversations, answers of /v1/responses, requests and saved
 * states, in one transaction. Then rewrites the file, so that freed pages contain no data. */
int store_person_forget(struct store *s, const struct store_person *p, struct store_forgotten *out,
                        struct err *e);

#endif
