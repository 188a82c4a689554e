/* encoder_args.h: an additional model next to the one that answers. An option names its file. It has its own
 * device, because the engine's thread owns the other one. */
#ifndef CHIMERE_CLI_ENCODER_ARGS_H
#define CHIMERE_CLI_ENCODER_ARGS_H

#include "backend/embed/embed.h"
#include "base/config.h"
#include "model/model.h"
#include "text/tok/tok.h"

struct encoder_rig {
    struct dev *dev; /* NULL: the option is not set */
    struct model *m;
    struct gguf *gguf; /* of a model that libllama runs; then m is NULL */
    struct tok *tok;
    char name[128]; /* name of the file, without folder and extension */
};

int encoder_rig_open(struct encoder_rig *r, const struct cfg *c, const char *option, struct err *e);
/* Does the same for embeddings, by libllama if the architecture is unknown here; *out is NULL if the option is not
 * set. */
int encoder_rig_embed(struct encoder_rig *r, const struct cfg *c, const char *option,
                      struct embed **out, struct err *e);
/* Writes the name of a model's file without folder, part number and extension. */
void encoder_stem(const char *path, char *out, size_t size);
void encoder_rig_close(struct encoder_rig *r); /* call it also after a failure */

#endif
