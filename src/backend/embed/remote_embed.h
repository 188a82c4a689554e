/* remote_embed.h: computes vectors with a server's /v1/embeddings, if there is no local embedding model.
 *
 * One text per request; any thread. Blocks for at most REMOTE_EMBED_MS. Responses are checked: the values must be
 * finite, and as many as in the first response. */
#ifndef CHIMERE_BACKEND_EMBED_REMOTE_EMBED_H
#define CHIMERE_BACKEND_EMBED_REMOTE_EMBED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct remote_embed;

enum { REMOTE_EMBED_MS = 5000, REMOTE_EMBED_MAX = 65536 /* values of a vector */ };

/* url: base address, ".../v1" or the server's root. key: secret, or NULL. name: the model to request. Requests one
 * vector, to learn its length. */
int remote_embed_open(struct remote_embed **out, const char *url, const char *key, const char *name,
                      struct err *e);
void remote_embed_close(struct remote_embed *r);
int32_t remote_embed_size(const struct remote_embed *r);
/* identifies the model: only vectors with the same hash are comparable */
uint64_t remote_embed_hash(const struct remote_embed *r);
/* Fills out [remote_embed_size], of length 1. If the server reports that a text is too long, the first half is sent
 * instead, at most twice. */
int remote_embed_text(struct remote_embed *r, const char *text, size_t n, float *out,
                      struct err *e);

#endif
