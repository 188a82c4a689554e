/* seq_copy.h: copies pieces of a state between the device and the host's memory; all are there after seq_copy_end.
 * Only the thread of the pool's device calls this. */
#ifndef CHIMERE_MODEL_SEQ_SEQ_COPY_H
#define CHIMERE_MODEL_SEQ_SEQ_COPY_H

#include "model/seq/seq_impl.h"

enum { SEQ_COPY_PIECES = 64 };
struct seq_copy {
    struct seq_pool *p; /* borrowed */
    bool to_host;
    int32_t n;   /* pieces on their way */
    size_t used; /* bytes of p->room */
    struct {
        char *host;
        size_t at, n;
    } piece[SEQ_COPY_PIECES];
};
int seq_copy_open(struct seq_pool *p, struct err *e); /* allocates p->room if the device needs it */
void seq_copy_close(struct seq_pool *p);
void seq_copy_add(struct seq_copy *c, void *at, char *host, size_t n);
void seq_copy_end(struct seq_copy *c);

#endif
