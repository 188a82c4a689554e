/* memory.h: what is remembered of a user, and how it gets into a prompt.
 *
 * Facts are what a user wants kept: told in words ("Remember that ..."), by a tool, a request or a command.
 * Talks are questions with their answers, kept where a pipeline or a request says so. Pins come first into
 * a prompt, then what shares words with the question, then the newest facts, until a budget of tokens is
 * used up. Nobody's memory is ever shown to another: each function names the owner. Any thread. */
#ifndef CHIMERE_ODO_MEMORY_H
#define CHIMERE_ODO_MEMORY_H

#include <jansson.h>

#include "base/buf.h"
#include "backend/backend.h"
#include "store/memory.h"

struct tool_set;

enum { MEMORY_MAX_OWNER = 700, MEMORY_MAX_FACT = 1000, MEMORY_MAX_TALK = 1600 };
#define MEMORY_LOCAL "local" /* whoever sits at this machine and needs no key */

/* "KEY" or "KEY<tab>USER": the person that the client names, if it names one, behind the key that it came
 * with. Requests without a key from this machine, and commands, are MEMORY_LOCAL. owner, user: NULL or
 * "" where there is none. */
void memory_owner(const char *owner, const char *user, char out[MEMORY_MAX_OWNER]);
/* "Remember that I ...", "Retiens que je ...": the fact within the question; false: nothing was told. */
bool memory_told(const char *question, const char **fact, size_t *n);

/* *id may be NULL. The text is trimmed; empty, too long or no UTF-8: CHIMERE_EINVAL. */
int memory_keep_fact(struct store *s, const char *owner, const char *text, size_t n, bool pinned,
                     int64_t *id, struct err *e);
int memory_edit_fact(struct store *s, const char *owner, int64_t id, const char *text, size_t n,
                     struct err *e); /* CHIMERE_ENOENT */
int memory_keep_talk(struct store *s, const char *owner, const char *question, const char *answer,
                     size_t n_answer, bool tainted, int64_t *id, struct err *e);

struct memory_recall {
    const char *owner, *question; /* view; question NULL: pins and newest facts alone */
    int32_t max_tokens;
    int32_t (*count)(void *ud, const char *text, size_t n); /* tokens; NULL: a guess from bytes */
    void *ud;
    /* out */
    int32_t n_pin, n_found, n_left_out, n_token;
    bool tainted; /* one of them has strangers' text in it */
};
/* Appends lines "- TEXT"; nothing where nothing fits. */
int memory_recall(struct store *s, struct memory_recall *r, struct buf *out, struct err *e);

/* [{"id", "kind", "text", "pinned", "created"}]; a new reference. */
int memory_list(struct store *s, const char *owner, int32_t most, json_t **out, struct err *e);
/* The tools "remember" and "recall", for the owner of each call. */
int memory_add_tools(struct store *s, struct tool_set *tools, struct err *e);

#endif
