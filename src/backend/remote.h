/* remote.h: any OpenAI-compatible server as a backend: the orchestrator in front of somebody else's model.
 *
 * Each run is a thread that posts one streaming request and turns its frames into events. What the server
 * says is checked and has ceilings; its errors keep their text. Log-probabilities are not asked for. */
#ifndef CHIMERE_BACKEND_REMOTE_H
#define CHIMERE_BACKEND_REMOTE_H

#include "backend/backend.h"

/* url: base address, ".../v1" or the server's root. key: secret or NULL. name: the model asked for. */
int backend_remote_open(struct backend **out, const char *url, const char *key, const char *name,
                        struct err *e);
/* The address of path ("/embeddings") below url, by mem_free. */
int backend_remote_url(char **out, const char *url, const char *path, struct err *e);

#endif
