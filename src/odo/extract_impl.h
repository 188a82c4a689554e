/* extract_impl.h: what the readers of one kind share. */
#ifndef CHIMERE_ODO_EXTRACT_IMPL_H
#define CHIMERE_ODO_EXTRACT_IMPL_H

#include "odo/extract.h"

/* Control bytes but tab and line end go, and so do carriage returns; single foreign bytes are Latin-1. */
void extract_put_clean(struct buf *b, const char *s, size_t n);
void extract_set_title(struct extract *x, const char *s, size_t n);
void extract_new_line(struct buf *b); /* unless one stands there */
int extract_pdf(struct extract *x, const char *data, size_t n, int64_t deadline_ns, struct err *e);

#endif
