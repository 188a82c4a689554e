/* fields_parts.h: parts and blocks of a message's content as text; notes: a note takes the place of what is none. */
#ifndef CHIMERE_SERVE_FIELDS_PARTS_H
#define CHIMERE_SERVE_FIELDS_PARTS_H

#include "base/buf.h"
#include "serve/fields.h"

/* Content of a message as a string or a list of text parts; *out is new. */
int fields_text(const json_t *content, const char *where, bool notes, json_t **out, struct err *e);
/* The text of content, or of one part, appended. */
int fields_put_text(const json_t *content, const char *where, bool notes, struct buf *out,
                    struct err *e);
int fields_part(const json_t *p, const char *where, bool notes, struct buf *out, struct err *e);

#endif
