/* person.h: forgetting one person: every row that an owner, or one of its users, has left. */
#ifndef CHIMERE_STORE_PERSON_H
#define CHIMERE_STORE_PERSON_H

#include "store/store.h"

struct store_person {
    const char *owner;     /* view: "key-...", "local"; "": rows from before owners were recorded */
    const char *user;      /* view: the owner's user; NULL: all of them */
    int64_t key_id;        /* 0: no key */
    uint64_t state_hash;   /* of saved states, 0: none: */
    bool state_is_a_scope; /*   their scope, else their owner */
};

struct store_forgotten {
    int64_t n_row;
    bool
        is_overwritten; /* the file has none of the bytes any more; else its pages may until they are reused */
};

/* Answers and their alternatives, memories, conversations, answers of /v1/responses, requests, saved states: in one
 * transaction. Then the file is written anew, so that freed pages keep nothing. */
int store_person_forget(struct store *s, const struct store_person *p, struct store_forgotten *out,
                        struct err *e);

#endif
