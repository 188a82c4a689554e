/* fields_parts.h: converts parts and blocks of a message's content to text, and images to OpenAI's form. notes: images,
 * and parts that are neither text nor image, are replaced by a note. */
#ifndef CHIMERE_SERVE_FIELDS_PARTS_H
#define CHIMERE_SERVE_FIELDS_PARTS_H

#include "base/buf.h"
#include "serve/fields/fields.h"

/* Reads a message's content, which is a string or a list of parts with texts and images; *out is new. */
int fields_text(const json_t *content, const char *where, bool notes, json_t **out, struct err *e);
/* Appends the text of content, or of one part. */
int fields_put_text(const json_t *content, const char *where, bool notes, struct buf *out,
                    struct err *e);
int fields_part(const json_t *p, const char *where, bool notes, struct buf *out, struct err *e);

/* Converts an image of any API to {"type": "image_url", "image_url": {"url"}}, a new reference. NULL: the part is not
 * an image, or *rc is the error. The caller must check whether the model can process images, and must read the file. */
json_t *fields_image(const json_t *p, const char *where, int *rc, struct err *e);

#endif
