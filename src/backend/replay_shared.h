/* replay_shared.h: tokens of answers in a folder that servers share, for replay.h.
 *
 * An answer is found by a SHA-256 over its scope and its message, so a scope cannot find the answers of another one. Most
 * answers need no file: their text alone gives their tokens. A thread of its own reads and writes; a reader waits at most
 * REPLAY_SHARED_WAIT_MS for it. If that was not enough, the folder is not asked for REPLAY_SHARED_REST_MS. Files appear by
 * rename and have a checksum. The least recently used ones are removed. Any thread may call this. */
#ifndef CHIMERE_BACKEND_REPLAY_SHARED_H
#define CHIMERE_BACKEND_REPLAY_SHARED_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
    REPLAY_SHARED_WAIT_MS = 1000,
    REPLAY_SHARED_REST_MS = 30000,
    REPLAY_SHARED_MAX_TOKENS = 1 << 14, /* of an answer */
    REPLAY_SHARED_MAX_FILES = 8192
};

struct replay_shared;

struct replay_answer {
    uint64_t scope, key[2];
    json_t *message; /* owned; NULL in answers that were found */
    int32_t *ids;    /* owned [n] */
    int32_t n;
    bool think;
};

struct replay_shared_params {
    const char *dir; /* copied; created if missing */
    uint64_t form;   /* equal for equal tokenizers */
    /* Whether an answer needs a file. Called by the thread. */
    bool (*needs)(void *ud, const struct replay_answer *a);
    void *ud;
};
int replay_shared_new(struct replay_shared **out, const struct replay_shared_params *p,
                      struct err *e);
void replay_shared_free(struct replay_shared *s); /* writes what is waiting */

/* Takes message and ids. If too many answers are waiting, it is dropped. */
void replay_shared_put(struct replay_shared *s, const struct replay_answer *a);
/* Sets ids (mem_free), n and think for scope and key, and returns 1; 0: there is none. CHIMERE_E*: unknown. */
int replay_shared_find(struct replay_shared *s, struct replay_answer *a);
/* Removes all answers of dir, the p.dir of servers: no file says whose answer it has. They only save time. */
int replay_shared_forget(const char *dir, struct err *e);

#endif
