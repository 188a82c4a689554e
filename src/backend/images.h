/* images.h: the images of one request, from its messages to their positions in the prompt.
 *
 * Messages contain them in OpenAI's form: {"type": "image_url", "image_url": {"url": "data:..."}}. For the template,
 * each image is replaced by a text with a secret that users cannot guess. In the template's output, that text is then
 * replaced by the image's token ids. Used by one thread. */
#ifndef CHIMERE_BACKEND_IMAGES_H
#define CHIMERE_BACKEND_IMAGES_H

#include <jansson.h>

#include "engine/vision.h"

enum { IMAGES_MAX = 32 }; /* images of one request */

struct images {
    struct vision *vision; /* borrowed; NULL: the model cannot process images */
    const struct vision_image *list[IMAGES_MAX];
    int32_t n;
    uint64_t secret;
    struct job_image *runs; /* owned [n_run, cap_run]: positions in the prompt */
    int32_t n_run, cap_run;
};

/* Returns CHIMERE_EUNSUPPORTED if there is an image; for models without vision. */
int images_refuse(const json_t *messages, struct err *e);
/* Decodes and checks all images. *marked: the messages for the template, in which a text with the secret replaces each
 * image; a new reference. Call images_close also after an error. */
int images_open(struct images *im, struct vision *v, json_t *messages, json_t **marked,
                struct err *e);
void images_close(struct images *im);

/* Finds the next mark in text [n]: returns its image and position; NULL: none. */
const struct vision_image *images_find(const struct images *im, const char *text, size_t n,
                                       size_t *at, size_t *n_mark);
/* Records that the image's rows begin at token `at` of the prompt. */
int images_place(struct images *im, const struct vision_image *i, size_t at, struct err *e);

#endif
