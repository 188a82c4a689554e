/* images.h: the images of one request, from its messages to places in its prompt.
 *
 * Messages keep them as OpenAI writes them: {"type": "image_url", "image_url": {"url": "data:..."}}. For the template each
 * becomes a text that nobody can know beforehand; where that text comes out, the image's ids take its place. Of one thread. */
#ifndef CHIMERE_BACKEND_IMAGES_H
#define CHIMERE_BACKEND_IMAGES_H

#include <jansson.h>

#include "engine/vision.h"

enum { IMAGES_MAX = 32 }; /* of a request */

struct images {
    struct vision *vision; /* borrowed; NULL: the model sees nothing */
    const struct vision_image *list[IMAGES_MAX];
    int32_t n;
    uint64_t secret;
    struct job_image *runs; /* owned [n_run, cap_run]: places in the prompt */
    int32_t n_run, cap_run;
};

/* CHIMERE_EUNSUPPORTED if there is an image: for those who cannot see. */
int images_refuse(const json_t *messages, struct err *e);
/* Decodes and checks all. *marked: the messages for the template, a new reference. images_close also after an error. */
int images_open(struct images *im, struct vision *v, json_t *messages, json_t **marked,
                struct err *e);
void images_close(struct images *im);

/* The next mark in text [n]: its image and where it is; NULL: there is none. */
const struct vision_image *images_find(const struct images *im, const char *text, size_t n,
                                       size_t *at, size_t *n_mark);
/* Its rows are in the prompt from token `at` on. */
int images_place(struct images *im, const struct vision_image *i, size_t at, struct err *e);

#endif
