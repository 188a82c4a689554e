/* fields_parts.h: parts and blocks of a message's content as text, and images as OpenAI writes them; notes: a note takes the place
 * of what is neither, and of images. */
#ifndef CHIMERE_SERVE_FIELDS_PARTS_H
#define CHIMERE_SERVE_FIELDS_PARTS_H

#include "base/buf.h"
#include "serve/fields.h"

/* Content of a message as a string or a list of parts, texts and images; *out is new. */
int fields_text(const json_t *content, const char *where, bool notes, json_t **out, struct err *e);
/* The text of content, or of one part, appended. */
int fields_put_text(const json_t *content, const char *where, bool notes, struct buf *out,
                    struct err *e);
int fields_part(const json_t *p, const char *where, bool notes, struct buf *out, struct err *e);

/* An image of any API as {"type": "image_url", "image_url": {"url"}}, a new reference; NULL: the part is none, or *rc says what
 * is wrong with it. Whether the model sees, and the file, are for whoever reads the request. */
json_t *fields_image(const json_t *p, const char *where, int *rc, struct err *e);

#endif
