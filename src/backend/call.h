/* call.h: one question to a model, asked and waited for. The orchestrator's own calls go straight to the
 * backend below it and never through itself.
 *
 * Blocks the calling thread; cancelling and the deadline take effect within one step of the model. */
#ifndef CHIMERE_BACKEND_CALL_H
#define CHIMERE_BACKEND_CALL_H

#include <stdatomic.h>

#include "base/buf.h"
#include "backend/backend.h"

enum { CALL_MAX_TEXT = 16 << 20, CALL_MAX_CALLS = 64 };

struct call_result {
    struct buf content, reasoning;
    json_t *calls; /* owned; [{"id", "name", "arguments": text}], complete ones */
    enum finish finish;
    struct engine_stats stats;
    int32_t n_reasoning;
    struct err err;
    const char *stop; /* owned copy, or NULL */
    int32_t n_token;  /* with request.probs: tokens seen, and */
    double entropy;   /* the sum of their entropies, nats */
    double first_entropy;
};

struct call {
    struct backend *backend;       /* borrowed */
    const struct request *request; /* borrowed */
    /* Sees every event but the end, on the backend's thread; nonzero cancels. May be NULL. */
    int (*on_event)(void *ud, const struct backend_event *ev);
    void *ud;
    _Atomic bool *cancelled; /* borrowed; may be NULL */
    int64_t deadline_ns;     /* 0: none */
};

/* 0, also when it was cut short (out->finish says so); CHIMERE_E* where nothing could be asked or the model
 * failed; CHIMERE_ETIMEOUT at the deadline. out wants call_fini in any case. */
int call_run(const struct call *c, struct call_result *out, struct err *e);
void call_fini(struct call_result *r);

/* A question of our own: system (may be NULL) and user text, greedy, no thinking, at most max_tokens;
 * gbnf NULL: free text. scope: as in struct request. */
int call_text(struct backend *b, uint64_t scope, const char *system, const char *user,
              const char *gbnf, int32_t max_tokens, _Atomic bool *cancelled, int64_t deadline_ns,
              struct call_result *out, struct err *e);

#endif
