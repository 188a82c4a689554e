/* serve_watch.h: notices that the engine of a running server has lost the cards it needs, so that the server can start
 * again. The watch waits first: a card that is reset needs a moment. */
#ifndef CHIMERE_CLI_SERVE_WATCH_H
#define CHIMERE_CLI_SERVE_WATCH_H

#include "engine/engine.h"

enum { SERVE_RESTARTS = 5, SERVE_STEADY_MS = 600 * 1000 };

struct serve_watch;

/* Pause before the next start, after n in quick succession: 1 s, doubled each time. -1: no further start. */
int32_t serve_watch_pause_ms(int32_t n);

/* Once g is lost, waits pause_ms, then sends SIGUSR1 to the calling thread. g is borrowed until close; NULL: waits at
 * once. */
int serve_watch_open(struct serve_watch **out, struct engine *g, int32_t pause_ms, struct err *e);
void serve_watch_close(struct serve_watch *w); /* w may be NULL */

#endif
