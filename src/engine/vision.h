/* vision.h: images as the prompt of a model that libllama runs: ids, and rows in place of some of them.
 *
 * Rows have ids of the vocabulary that follow from the image's bytes, so that states of prompts with the same image are
 * shared as those of the same text are, and no others. Encoded images are kept within a limit of bytes: a conversation
 * sends its images with every message. Any thread; one image is encoded at a time. */
#ifndef CHIMERE_ENGINE_VISION_H
#define CHIMERE_ENGINE_VISION_H

#include "base/err.h"
#include "engine/engine.h"
#include "llama/llama_shim.h"

enum {
    VISION_MAX_BYTES = 16 << 20, /* of a file */
    VISION_MAX_SIDE = 16384,
    VISION_MAX_PIXELS = 40000000, /* decoded: 120 MB */
    VISION_KEPT_BYTES = 64 << 20  /* of encoded images */
};

struct vision;
struct vision_image {
    int32_t n_tok;
    int32_t *ids;           /* owned [n_tok] */
    struct job_image *runs; /* owned [n_run]; at: from the image's first token */
    int32_t n_run;
    float *rows; /* owned: of all runs */
};

/* m is borrowed until vision_free; salt: of what it sees with. */
int vision_new(struct vision **out, const struct llama_shim *shim, struct shim_model *m,
               const struct llama_shim_info *info, uint64_t salt, struct err *e);
void vision_free(struct vision *v); /* no image is open; may be NULL */

/* What a decoder would have to decode is judged by the file's head: CHIMERE_ELIMIT, CHIMERE_EUNSUPPORTED, CHIMERE_EINVAL. */
int vision_check(const void *data, size_t n, struct err *e);
int vision_open(struct vision *v, const void *data, size_t n, const struct vision_image **out,
                struct err *e);
void vision_close(struct vision *v, const struct vision_image *i); /* i may be NULL */

#endif
