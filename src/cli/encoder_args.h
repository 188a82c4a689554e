/* encoder_args.h: a model beside the one that answers: its file named by an option, on a device of its own, since the
 * engine's thread owns the other one. */
#ifndef CHIMERE_CLI_ENCODER_ARGS_H
#define CHIMERE_CLI_ENCODER_ARGS_H

#include "backend/embed.h"
#include "base/config.h"
#include "model/model.h"
#include "text/tok/tok.h"

struct encoder_rig {
    struct dev *dev; /* NULL: the option is not set */
    struct model *m;
    struct gguf *gguf; /* of a model that libllama runs; m is NULL then */
    struct tok *tok;
    char name[128]; /* the file's, without folder and ending */
};

int encoder_rig_open(struct encoder_rig *r, const struct cfg *c, const char *option, struct err *e);
/* The same for embeddings, by libllama if our table lacks the family; *out is NULL if the option is not set. */
int encoder_rig_embed(struct encoder_rig *r, const struct cfg *c, const char *option,
                      struct embed **out, struct err *e);
/* A model's name by its file: without folder, number of its part and ending. */
void encoder_stem(const char *path, char *out, size_t size);
void encoder_rig_close(struct encoder_rig *r); /* also after a failure */

#endif
