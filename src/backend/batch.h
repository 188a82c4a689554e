/* batch.h: many questions to one backend at once, asked and waited for together.
 *
 * All are started before the first is waited for, so that a local engine runs them side by side in its
 * slots and they share what their prompts begin with. One that cannot be asked, or fails, fails alone. At
 * the deadline, or when cancelled, those that still run are cancelled and keep what they wrote; when
 * batch_run returns, nothing is left running. Blocks the calling thread. */
#ifndef CHIMERE_BACKEND_BATCH_H
#define CHIMERE_BACKEND_BATCH_H

#include <stdatomic.h>

#include "base/buf.h"
#include "backend/backend.h"

enum { BATCH_MAX = 128, BATCH_MAX_TEXT = 1 << 20 };

struct batch_item {
    const struct request *request; /* borrowed; of its choices the first counts */
    /* Tokens with their probabilities, where the request wants them, on the backend's thread. May be NULL. */
    void (*on_token)(void *ud, const struct backend_event *ev);
    void *ud;

    /* results; batch_fini */
    struct buf content, reasoning;
    bool has_calls;
    char *stop; /* owned; the stop string that ended it, or NULL */
    enum finish finish;
    struct engine_stats stats;
    int32_t n_reasoning;
    struct err err; /* FINISH_ERROR */
};

struct batch {
    struct backend *backend;  /* borrowed */
    struct batch_item *items; /* [n] */
    int32_t n;
    _Atomic bool *cancelled; /* borrowed; may be NULL */
    int64_t deadline_ns;     /* 0: none */
};

/* 0 where at least one was answered or cut short by cancelling or the deadline; otherwise the first error. */
int batch_run(struct batch *b, struct err *e);
/* True: every word that it was going to say is there. */
bool batch_is_whole(const struct batch_item *it);
void batch_fini(struct batch_item *items, int32_t n);

#endif
