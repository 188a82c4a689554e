/* call.h: sends one request to a model and waits for the answer. The orchestrator's own requests go directly to its
 * backend and never through the orchestrator itself.
 *
 * Blocks the calling thread. Cancelling and the deadline take effect within one step of the model. */
#ifndef CHIMERE_BACKEND_CALL_H
#define CHIMERE_BACKEND_CALL_H

#include <stdatomic.h>

#include "base/buf.h"
#include "backend/backend.h"

enum { CALL_MAX_TEXT = 16 << 20, CALL_MAX_CALLS = 64 };

struct call_result {
    struct buf content, reasoning;
    json_t *calls; /* owned; [{"id", "name", "arguments": text}], only complete calls */
    enum finish finish;
    struct engine_stats stats;
    int32_t n_reasoning;
    struct err err;
    const char *stop; /* owned copy, or NULL */
    int32_t n_token;  /* with request.probs: number of tokens */
    double entropy;   /* with request.probs: sum of their entropies, in nats */
    double first_entropy;
};

struct call {
    struct backend *backend;       /* borrowed */
    const struct request *request; /* borrowed */
    /* Receives every event except the end, on the backend's thread; a nonzero result cancels. May be NULL. */
    int (*on_event)(void *ud, const struct backend_event *ev);
    void *ud;
    _Atomic bool *cancelled; /* borrowed; may be NULL */
    int64_t deadline_ns;     /* 0: none */
};

/* Returns 0, also if the answer was cut (see out->finish); CHIMERE_E* if the request could not be sent or the model
 * failed; CHIMERE_ETIMEOUT at the deadline. Call call_fini for out in every case. */
int call_run(const struct call *c, struct call_result *out, struct err *e);
void call_fini(struct call_result *r);

/* Sends an internal question: system (may be NULL) and user text, greedy, without thinking, at most max_tokens. gbnf
 * NULL: free text. scope: as in struct request. */
int call_text(struct backend *b, uint64_t scope, const char *system, const char *user,
              const char *gbnf, int32_t max_tokens, _Atomic bool *cancelled, int64_t deadline_ns,
              struct call_result *out, struct err *e);

#endif
