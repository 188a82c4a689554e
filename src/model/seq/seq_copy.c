/* seq_copy.c: pieces of a state between the device and the host's memory. A copy of one piece that waits takes 20 to 50
 * us, and a page of 16 layers has 32 pieces: pieces are gathered in pinned memory, and a wait is for all of them. */
#include "model/seq/seq_copy.h"

#include <string.h>

enum { ROOM = 4 << 20 };

int seq_copy_open(struct seq_pool *p, struct err *e) {
    const struct ops *ops = p->m->dev->ops;
    if (ops->is_host) return 0;
    p->room = ops->host_alloc(p->m->dev, ROOM);
    return p->room ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

void seq_copy_close(struct seq_pool *p) {
    if (p->room) p->m->dev->ops->host_free(p->m->dev, p->room);
    p->room = NULL;
}

void seq_copy_end(struct seq_copy *c) {
    struct dev *d = c->p->m->dev;
    if (!c->n) return;
    d->ops->status(d, NULL); /* waits; the device keeps its failure */
    for (int32_t i = 0; c->to_host && i < c->n; i++)
        memcpy(c->piece[i].host, c->p->room + c->piece[i].at, c->piece[i].n);
    c->n = 0;
    c->used = 0;
}

static void add_part(struct seq_copy *c, char *at, char *host, size_t n) {
    struct dev *d = c->p->m->dev;
    char *room = c->p->room + c->used;
    c->piece[c->n].host = host;
    c->piece[c->n].at = c->used;
    c->piece[c->n++].n = n;
    c->used += (n + 15) & ~(size_t)15;
    if (c->to_host) {
        d->ops->copy(d, room, at, n);
    } else {
        memcpy(room, host, n);
        d->ops->copy(d, at, room, n);
    }
}

void seq_copy_add(struct seq_copy *c, void *at, char *host, size_t n) {
    struct dev *d = c->p->m->dev;
    if (!c->p->room) {
        if (c->to_host) d->ops->download(d, host, at, n);
        else d->ops->upload(d, at, host, n);
        return;
    }
    for (size_t done = 0; done < n;) {
        if (c->n == SEQ_COPY_PIECES || c->used == ROOM) seq_copy_end(c);
        size_t left = n - done, part = left < ROOM - c->used ? left : ROOM - c->used;
        add_part(c, (char *)at + done, host + done, part);
        done += part;
    }
}
