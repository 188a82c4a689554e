/* batch.h: sends many requests to one backend and waits for all of them.
 *
 * All requests are started before the first is waited for. So a local engine runs them concurrently in its slots, and
 * they share the common start of their prompts. If a request cannot be started, or fails, the others continue. At the
 * deadline, or if the batch is cancelled, running requests are cancelled and keep their output. When batch_run returns,
 * no request is running. Blocks the calling thread. */
#ifndef CHIMERE_BACKEND_BATCH_H
#define CHIMERE_BACKEND_BATCH_H

#include <stdatomic.h>

#include "base/buf.h"
#include "backend/backend.h"

enum { BATCH_MAX = 128, BATCH_MAX_TEXT = 1 << 20 };

/* One request of a batch: what the caller sets, then its results. */
struct batch_request {
    const struct request *request; /* borrowed; only its first choice is used */
    /* Called with each token and its probabilities, if the request has probs, on the backend's thread. May be NULL. */
    void (*on_token)(void *ud, const struct backend_event *ev);
    void *ud;

    /* results; free with batch_fini */
    struct buf content, reasoning;
    bool has_calls;
    char *stop; /* owned; the stop string that ended the answer, or NULL */
    enum finish finish;
    struct engine_stats stats;
    int32_t n_reasoning;
    struct err err; /* set if finish is FINISH_ERROR */
};

struct batch {
    struct backend *backend;     /* borrowed */
    struct batch_request *items; /* [n] */
    int32_t n;
    _Atomic bool *cancelled; /* borrowed; may be NULL */
    int64_t deadline_ns;     /* 0: none */
};

/* Returns 0 if at least one request was answered or was cut by the deadline or by cancelling; otherwise the first
 * error. */
int batch_run(struct batch *b, struct err *e);
/* Returns true if the answer is complete, not cut. */
bool batch_is_whole(const struct batch_request *it);
void batch_fini(struct batch_request *items, int32_t n);

#endif
