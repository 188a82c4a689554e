/* keeper.h: a thread that deletes old usage records while the server runs: at the start, then hourly. */
#ifndef CHIMERE_SERVE_KEEPER_H
#define CHIMERE_SERVE_KEEPER_H

#include "store/retain.h"

struct keeper;

/* stores [2]: borrowed until keeper_close; NULL ones are skipped. */
int keeper_open(struct keeper **out, struct store *const stores[2], int32_t days,
                int64_t most_bytes, struct err *e);
void keeper_close(struct keeper *k);

#endif
