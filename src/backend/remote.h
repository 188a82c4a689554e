/* remote.h: uses any OpenAI-compatible server as a backend, for example for the orchestrator.
 *
 * Each generation is a thread that posts one streaming request and converts its frames to events. The server's data is
 * checked and limited; the text of its errors is kept. Log-probabilities are not requested. */
#ifndef CHIMERE_BACKEND_REMOTE_H
#define CHIMERE_BACKEND_REMOTE_H

#include "backend/backend.h"

/* url: base address, ".../v1" or the server's root. key: secret, or NULL. name: the model to request. */
int backend_remote_open(struct backend **out, const char *url, const char *key, const char *name,
                        struct err *e);
/* Returns the address of path ("/embeddings") relative to url; free it with mem_free. */
int backend_remote_url(char **out, const char *url, const char *path, struct err *e);

#endif
