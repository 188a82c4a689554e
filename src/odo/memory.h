/* memory.h: what is remembered about a user, and how it is added to a prompt.
 *
 * A fact is something that a user wants to keep. It is stored by a sentence ("Remember that ..."), a tool, a
 * request or a command. A talk is a question with its answer, stored if a pipeline or a request asks for it.
 * A fact that contradicts an older one (facts/fact.h) replaces it; the older one stays in the history. A prompt gets
 * pinned facts first, then entries that share words with the question, until a token budget is used up. If the
 * question is about everything that is remembered, it gets the newest facts too. A user's memory is never shown to another user: each function takes the owner. Any
 * thread. */
#ifndef CHIMERE_ODO_MEMORY_H
#define CHIMERE_ODO_MEMORY_H

#include <jansson.h>

#include "base/buf.h"
#include "backend/backend.h"
#include "store/memory.h"

struct tool_set;

enum { MEMORY_MAX_OWNER = 700, MEMORY_MAX_FACT = 1000, MEMORY_MAX_TALK = 1600 };
#define MEMORY_LOCAL "local" /* a user on this machine without a key */

/* Writes "KEY", or "KEY<tab>USER" if the client names a user. KEY is the key that the request was sent with.
 * Requests from this machine without a key, and commands, get MEMORY_LOCAL. owner, user: NULL or "" if there is
 * none. */
void memory_owner(const char *owner, const char *user, char out[MEMORY_MAX_OWNER]);
/* Finds the fact in a question such as "Remember that I ..." or "Retiens que je ...". Returns false if there is
 * none. */
bool memory_told(const char *question, const char **fact, size_t *n);

/* *id may be NULL. The text is trimmed. Facts that it contradicts are replaced. CHIMERE_EINVAL: empty, too long or
 * not UTF-8. */
int memory_keep_fact(struct store *s, const char *owner, const char *text, size_t n, bool pinned,
                     int64_t *id, struct err *e);
int memory_edit_fact(struct store *s, const char *owner, int64_t id, const char *text, size_t n,
                     struct err *e); /* CHIMERE_ENOENT: no such fact */
int memory_keep_talk(struct store *s, const char *owner, const char *question, const char *answer,
                     size_t n_answer, bool tainted, int64_t *id, struct err *e);

struct memory_recall {
    const char *owner, *question; /* view; question NULL: pinned and newest facts */
    int32_t max_tokens;
    /* counts tokens; NULL: estimated from bytes */
    int32_t (*count)(void *ud, const char *text, size_t n);
    void *ud;
    /* out */
    int32_t n_pin, n_found, n_left_out, n_token;
    bool tainted; /* at least one appended entry contains untrusted text */
};
/* Appends lines "- TEXT"; appends nothing if no entry fits. */
int memory_recall(struct store *s, struct memory_recall *r, struct buf *out, struct err *e);

/* [{"id", "kind", "text", "pinned", "created", "replaced_by"}]; a new reference. history: also replaced facts, which
 * alone have "replaced_by". */
int memory_list(struct store *s, const char *owner, bool history, int32_t most, json_t **out,
                struct err *e);
/* The tools "remember" and "recall", for the owner of each call. */
int memory_add_tools(struct store *s, struct tool_set *tools, struct err *e);

#endif
