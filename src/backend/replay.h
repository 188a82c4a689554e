/* replay.h: reuses the tokens of past answers in prompts that contain these answers again.
 *
 * A client returns an answer as a message, and the template renders it again. The result differs: the reasoning is
 * missing, arguments are formatted differently, and the same text may have other tokens. The state that was kept for
 * the conversation would then not match the prompt. So the tokens of answers are stored by a hash of scope, content and
 * calls. If a prompt contains such a message as the template renders it, the stored tokens replace it, and the prompt
 * continues exactly what was computed. Any thread may call this. */
#ifndef CHIMERE_BACKEND_REPLAY_H
#define CHIMERE_BACKEND_REPLAY_H

#include "backend/backend.h"
#include "backend/images.h"

struct replay;

int replay_new(struct replay **out, const struct chat_template *t, const struct tok *tok,
               size_t max_bytes, struct err *e);
/* From now on answers whose tokens do not follow from their text are also stored in a folder that servers share
 * (replay_shared.h), and those of other servers are found there. At most once. */
int replay_share(struct replay *p, const char *dir, struct err *e);
void replay_free(struct replay *p);
/* Stores an answer that ended by itself, as a message. Fast enough for the engine's thread. */
void replay_put(struct replay *p, uint64_t scope, bool think, const json_t *message,
                const int32_t *ids, int32_t n);
/* Returns the ids of a rendered prompt as chat_encode does, except for stored answers and for images; im receives the
 * positions of the images. */
int replay_encode(struct replay *p, uint64_t scope, const json_t *messages,
                  const struct chat_prompt *prompt, struct images *im, int32_t **ids, size_t *n,
                  struct err *e);

#endif
