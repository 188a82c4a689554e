/* replay.h: past answers' own tokens, for prompts that contain them again.
 *
 * A client sends an answer back as a message, and the template writes it anew: without the reasoning,
 * arguments spelt in another way, other tokens for the same text. The state that was kept for the
 * conversation then no longer fits its prompt. So the tokens of answers are remembered by a hash of
 * scope, content and calls; where a prompt contains such a message as the template writes it, they take
 * its place, and the prompt continues what was computed exactly. Any thread. */
#ifndef CHIMERE_BACKEND_REPLAY_H
#define CHIMERE_BACKEND_REPLAY_H

#include "backend/backend.h"
#include "backend/images.h"

struct replay;

int replay_new(struct replay **out, const struct chat_template *t, const struct tok *tok,
               size_t max_bytes, struct err *e);
void replay_free(struct replay *p);
/* An answer that ended by itself, as a message. Quick: for the engine's thread. */
void replay_put(struct replay *p, uint64_t scope, bool think, const json_t *message,
                const int32_t *ids, int32_t n);
/* The ids of a rendered prompt, as chat_encode gives them but for the answers that are remembered and for images, whose
 * places im gets. */
int replay_encode(struct replay *p, uint64_t scope, const json_t *messages,
                  const struct chat_prompt *prompt, struct images *im, int32_t **ids, size_t *n,
                  struct err *e);

#endif
