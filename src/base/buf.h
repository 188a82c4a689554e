/* buf.h: a growing byte buffer with a size limit that is set at init; errors are sticky.
 *
 * The content is always followed by a NUL byte. The first put that fails (limit or memory) frees the content and sets
 * `failed`; every later put fails too. So a sequence of puts needs only one check at its end. */
#ifndef CHIMERE_BASE_BUF_H
#define CHIMERE_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>

struct buf {
    char *p; /* owned; NULL while empty */
    size_t n, cap, max;
    int failed; /* 0, CHIMERE_ELIMIT or CHIMERE_ENOMEM */
};

void buf_init(struct buf *b, size_t max);
int buf_put(struct buf *b, const void *data, size_t n);
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_reserve(struct buf *b, size_t more); /* makes room for `more` bytes after n */
void buf_clear(struct buf *b);               /* keeps the memory; clears a failure */
void buf_cut(struct buf *b, size_t n);       /* shortens to n bytes */
char *buf_take(struct buf *b); /* free it with mem_free; "" if empty; NULL if failed */
void buf_fini(struct buf *b);

#endif
