/* vision.h: turns images into a prompt for a model that libllama runs: token ids, and rows that replace some of them.
 *
 * The ids of rows are computed from the image's bytes. So prompts with the same image share states, as prompts with the
 * same text do, and different images do not. Encoded images are cached up to a limit in bytes, because a conversation
 * sends its images with every message. Any thread may call this; one image is encoded at a time. */
#ifndef CHIMERE_ENGINE_VISION_H
#define CHIMERE_ENGINE_VISION_H

#include "base/err.h"
#include "engine/engine.h"
#include "llama/llama_shim.h"

enum {
    VISION_MAX_BYTES = 16 << 20, /* size of an image file */
    VISION_MAX_SIDE = 16384,
    VISION_MAX_PIXELS = 40000000, /* decoded size: 120 MB */
    VISION_KEPT_BYTES = 64 << 20  /* size of the cache of encoded images */
};

struct vision;
struct vision_image {
    int32_t n_tok;
    int32_t *ids;           /* owned [n_tok] */
    struct job_image *runs; /* owned [n_run]; `at` is relative to the image's first token */
    int32_t n_run;
    float *rows; /* owned: rows of all runs */
};

/* m is borrowed until vision_free; salt identifies the encoder file. */
int vision_new(struct vision **out, const struct llama_shim *shim, struct shim_model *m,
               const struct llama_shim_info *info, uint64_t salt, struct err *e);
void vision_free(struct vision *v); /* all images must be closed; v may be NULL */

/* Checks from the file's header whether the image can be decoded: CHIMERE_ELIMIT, CHIMERE_EUNSUPPORTED,
 * CHIMERE_EINVAL. */
int vision_check(const void *data, size_t n, struct err *e);
int vision_open(struct vision *v, const void *data, size_t n, const struct vision_image **out,
                struct err *e);
void vision_close(struct vision *v, const struct vision_image *i); /* i may be NULL */

#endif
