/* remote_embed.h: texts -> vectors by a server's /v1/embeddings, where no embedding model is at hand.
 *
 * One text a request, any thread; blocks, REMOTE_EMBED_MS at most. What comes back is checked: as many finite values
 * as the first time. */
#ifndef CHIMERE_BACKEND_REMOTE_EMBED_H
#define CHIMERE_BACKEND_REMOTE_EMBED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct remote_embed;

enum { REMOTE_EMBED_MS = 5000, REMOTE_EMBED_MAX = 65536 /* values of a vector */ };

/* url: base address, ".../v1" or the server's root. key: secret or NULL. name: the model asked for. Asks for one
 * vector, to know how long they are. */
int remote_embed_open(struct remote_embed **out, const char *url, const char *key, const char *name,
                      struct err *e);
void remote_embed_close(struct remote_embed *r);
int32_t remote_embed_size(const struct remote_embed *r);
uint64_t
remote_embed_hash(const struct remote_embed *r); /* names the model: its vectors fit together */
/* Fills out [remote_embed_size], of length 1. A text that the server finds too long is asked again by its first
 * half, twice at most. */
int remote_embed_text(struct remote_embed *r, const char *text, size_t n, float *out,
                      struct err *e);

#endif
