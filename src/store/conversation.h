/* conversation.h: conversations that clients keep here: a tree of items each, found by words.
 *
 * An owner sees, finds and changes its own rows alone: every question names it. An item follows an earlier item of
 * the same conversation, or none, so that there are no cycles. What a key's users take together is a running sum,
 * which each transaction checks. A conversation's version counts its changes: a caller that names the version it
 * has seen is refused (CHIMERE_EMISMATCH) if another caller was faster. */
#ifndef CHIMERE_STORE_CONVERSATION_H
#define CHIMERE_STORE_CONVERSATION_H

#include "store/store.h"

enum {
    STORE_MAX_TITLE = 512,
    STORE_MAX_ITEM_BYTES = 4 << 20, /* of one item's body */
    STORE_MAX_ITEMS = 20000,        /* of one conversation */
    STORE_MAX_CONVERSATIONS = 10000 /* of all users of one key */
};
#define STORE_MAX_USER_BYTES ((int64_t)256 << 20) /* of all conversations of one user */
#define STORE_MAX_KEY_BYTES ((int64_t)1 << 30)    /* of all users of one key */

struct store_conversation {
    const char *name; /* view; what clients call it, unique in the store */
    const char *title, *project, *metadata, *settings; /* view; the latter two: JSON objects */
    bool pinned;
    int64_t created_ms, updated_ms, version, n_item;
    const char *match; /* view; of a search: the words around what was found, or NULL */
};
/* What changes; NULL and below zero: nothing. */
struct store_conversation_change {
    const char *title, *project, *metadata, *settings; /* view */
    int pinned;
};
struct store_item {
    const char *name; /* view; unique in the conversation */
    const char
        *parent; /* view; the item before; NULL: the newest one there is, or none if is_root */
    bool is_root;
    const char *body; /* view; JSON */
    const char *text; /* view; what is searched */
    int64_t at_ms;    /* 0: now */
};
/* Which conversation, as which version; version 0: any. *version becomes the one it has now. */
struct store_conversation_key {
    const char *owner, *name; /* view; "KEY" or "KEY\tUSER" */
    int64_t version;
};
struct store_conversation_query {
    const char *owner, *after, *words, *project; /* view; NULL: from the first, all */
    int32_t limit;
};
typedef int (*store_conversation_each)(void *ud, const struct store_conversation *c);
typedef int (*store_item_each)(void *ud, const struct store_item *item);

/* With its items, or not at all. CHIMERE_ELIMIT: the owner has no room. */
int store_conversation_add(struct store *s, const char *owner, const struct store_conversation *c,
                           const struct store_item *items, int32_t n, struct err *e);
/* CHIMERE_ENOENT, also of the functions below. */
int store_conversation_find(struct store *s, const char *owner, const char *name,
                            store_conversation_each each, void *ud, struct err *e);
/* Pinned ones first, then the last changed. Nonzero from each stops, and is returned. */
int store_conversation_list(struct store *s, const struct store_conversation_query *q,
                            store_conversation_each each, void *ud, struct err *e);
int store_conversation_change(struct store *s, struct store_conversation_key *k,
                              const struct store_conversation_change *c, struct err *e);
int store_conversation_remove(struct store *s, struct store_conversation_key *k, struct err *e);
/* All of them or none. CHIMERE_EINVAL: a name is taken, or a parent is not there. */
int store_items_add(struct store *s, struct store_conversation_key *k,
                    const struct store_item *items, int32_t n, struct err *e);
/* Replaces the body of one item, which stays in its place. */
int store_item_change(struct store *s, struct store_conversation_key *k,
                      const struct store_item *item, struct err *e);
/* One item, or all that came after it too. What follows a single one then follows its parent. */
int store_item_remove(struct store *s, struct store_conversation_key *k, const char *item,
                      bool below, struct err *e);
/* after: the name of an item, or NULL. Nonzero from each stops, and is returned. */
int store_items_list(struct store *s, const char *owner, const char *name, const char *after,
                     bool newest_first, store_item_each each, void *ud, struct err *e);
int store_item_find(struct store *s, const char *owner, const char *name, const char *item,
                    store_item_each each, void *ud, struct err *e);

#endif
