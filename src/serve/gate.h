/* gate.h: the fair queue in front of one backend.
 *
 * At most n_slot answers run. What waits is served by taking turns between owners (keys, sessions,
 * addresses), in order of arrival within one; so nobody's hundred requests delay another's single one by
 * more than one answer. Bounded: CHIMERE_EBUSY beyond max_waiting. Any thread; start runs under no lock. */
#ifndef CHIMERE_SERVE_GATE_H
#define CHIMERE_SERVE_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct gate_item { /* placed by the caller, untouched until started or dropped */
    void (*start)(struct gate_item *it);
    uint64_t owner;
    int32_t n_slot; /* slots that it takes */
    int64_t since_ns;
    bool waiting;
    struct gate_item *next;
};

struct gate;
int gate_new(struct gate **out, int32_t n_slot, int32_t max_waiting, struct err *e);
void gate_free(struct gate *g);
/* Starts it now (in this call) or later (in somebody's gate_leave). */
int gate_enter(struct gate *g, struct gate_item *it, int *retry_s, struct err *e);
/* True: it was waiting, and never starts. */
bool gate_drop(struct gate *g, struct gate_item *it);
/* A started item has ended. */
void gate_leave(struct gate *g, struct gate_item *it);
int32_t gate_n_waiting(struct gate *g);
int32_t gate_n_running(struct gate *g);

#endif
