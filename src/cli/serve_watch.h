/* serve_watch.h: notices that the engine of a running server has lost its device, so that the server can open the model
 * again. The watch waits first: a device that is reset needs a moment. */
#ifndef CHIMERE_CLI_SERVE_WATCH_H
#define CHIMERE_CLI_SERVE_WATCH_H

#include "engine/engine.h"

enum { SERVE_RESTARTS = 5, SERVE_STEADY_MS = 600 * 1000 };

struct serve_watch;

/* Time before the engine is opened again, if it was opened again n times before: 1 s, doubled each time. -1: not again. */
int32_t serve_watch_pause_ms(int32_t n);

/* If the device is lost: waits pause_ms, then sends SIGUSR1 to the calling thread. g is borrowed until close. */
int serve_watch_open(struct serve_watch **out, struct engine *g, int32_t pause_ms, struct err *e);
void serve_watch_close(struct serve_watch *w); /* w may be NULL */

#endif
