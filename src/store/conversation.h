/* conversation.h: conversations that clients store here. Each is a tree of items that can be searched by words.
 *
 * An owner sees, finds and changes only its own rows, because every query names the owner. An item follows an
 * earlier item of the same conversation, or none, so there are no cycles. The usage of all users of a key is a
 * running sum that each transaction checks. The version of a conversation counts its changes: a caller that names
 * the version it has seen is refused (CHIMERE_EMISMATCH) if another caller has changed it since. */
#ifndef CHIMERE_STORE_CONVERSATION_H
#define CHIMERE_STORE_CONVERSATION_H

#include "store/store.h"

enum {
    STORE_MAX_TITLE = 512,
    STORE_MAX_ITEM_BYTES = 4 << 20, /* body of one item */
    STORE_MAX_ITEMS = 20000,        /* items per conversation */
    STORE_MAX_CONVERSATIONS = 10000 /* conversations of all users of one key */
};
#define STORE_MAX_USER_BYTES ((int64_t)256 << 20) /* all conversations of one user */
#define STORE_MAX_KEY_BYTES ((int64_t)1 << 30)    /* all conversations of all users of one key */

struct store_conversation {
    const char *name; /* view; the name that clients use, unique in the store */
    /* view; metadata and settings are JSON objects */
    const char *title, *project, *metadata, *settings;
    bool pinned;
    int64_t created_ms, updated_ms, version, n_item;
    const char *match; /* view; words around the match of a search, or NULL */
};
/* Values to change; NULL, or pinned below zero: not changed. */
struct store_conversation_change {
    const char *title, *project, *metadata, *settings; /* view */
    int pinned;
};
struct store_item {
    const char *name; /* view; unique in the conversation */
    const char
        *parent; /* view; the previous item; NULL: the newest existing item, or none if is_root */
    bool is_root;
    const char *body; /* view; JSON */
    const char *text; /* view; the text that is searched */
    int64_t at_ms;    /* 0: now */
};
/* Names a conversation and its expected version; version 0: any. A change sets version to the new one. */
struct store_conversation_key {
    const char *owner, *name; /* view; "KEY" or "KEY\tUSER" */
    int64_t version;
};
struct store_conversation_query {
    /* view; NULL: no condition (after: from the first one) */
    const char *owner, *after, *words, *project;
    int32_t limit;
};
typedef int (*store_conversation_each)(void *ud, const struct store_conversation *c);
typedef int (*store_item_each)(void *ud, const struct store_item *item);

/* Adds the conversation with all items, or nothing. CHIMERE_ELIMIT: the owner's limit is reached. */
int store_conversation_add(struct store *s, const char *owner, const struct store_conversation *c,
                           const struct store_item *items, int32_t n, struct err *e);
/* CHIMERE_ENOENT: no such conversation; so do the functions below. */
int store_conversation_find(struct store *s, const char *owner, const char *name,
                            store_conversation_each each, void *ud, struct err *e);
/* Pinned conversations come first, then the last changed. If `each` returns nonzero, the list stops and returns that value. */
int store_conversation_list(struct store *s, const struct store_conversation_query *q,
                            store_conversation_each each, void *ud, struct err *e);
int store_conversation_change(struct store *s, struct store_conversation_key *k,
                              const struct store_conversation_change *c, struct err *e);
int store_conversation_remove(struct store *s, struct store_conversation_key *k, struct err *e);
/* Adds all items or none. CHIMERE_EINVAL: a name is in use, or a parent does not exist. */
int store_items_add(struct store *s, struct store_conversation_key *k,
                    const struct store_item *items, int32_t n, struct err *e);
/* Replaces the body of one item; its position does not change. */
int store_item_change(struct store *s, struct store_conversation_key *k,
                      const struct store_item *item, struct err *e);
/* Removes one item, or (below) also all items that follow it. Items that followed a single removed item then
 * follow its parent. */
int store_item_remove(struct store *s, struct store_conversation_key *k, const char *item,
                      bool below, struct err *e);
/* after: the name of an item, or NULL. If `each` returns nonzero, the list stops and returns that value. */
int store_items_list(struct store *s, const char *owner, const char *name, const char *after,
                     bool newest_first, store_item_each each, void *ud, struct err *e);
int store_item_find(struct store *s, const char *owner, const char *name, const char *item,
                    store_item_each each, void *ud, struct err *e);

#endif
