#include "base/buf.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

void buf_init(struct buf *b, size_t max) { *b = (struct buf){.max = max}; }

static int fail(struct buf *b, int code) {
    mem_free(b->p);
    b->p = NULL;
    b->n = b->cap = 0;
    return b->failed = code;
}

int buf_reserve(struct buf *b, size_t more) {
    if (b->failed) return b->failed;
    if (more > b->max || b->n > b->max - more) return fail(b, CHIMERE_ELIMIT);
    size_t need = b->n + more + 1;
    if (need <= b->cap) return 0;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need) cap = cap > need / 2 ? need : cap * 2;
    if (cap < b->cap + b->cap / 2) cap = b->cap + b->cap / 2;
    char *p = mem_realloc(b->p, cap);
    if (!p) return fail(b, CHIMERE_ENOMEM);
    b->p = p;
    b->cap = cap;
    b->p[b->n] = 0;
    return 0;
}

int buf_put(struct buf *b, const void *data, size_t n) {
    int rc = buf_reserve(b, n);
    if (rc) return rc;
    if (n) memcpy(b->p + b->n, data, n);
    b->n += n;
    b->p[b->n] = 0;
    return 0;
}

int buf_puts(struct buf *b, const char *s) { return buf_put(b, s, strlen(s)); }
int buf_putc(struct buf *b, char c) { return buf_put(b, &c, 1); }

int buf_printf(struct buf *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    int rc = n < 0 ? fail(b, CHIMERE_EINVAL) : buf_reserve(b, (size_t)n);
    if (!rc) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
    return rc;
}

void buf_clear(struct buf *b) {
    b->n = 0;
    b->failed = 0;
    if (b->p) b->p[0] = 0;
}

void buf_cut(struct buf *b, size_t n) {
    if (n < b->n) {
        b->n = n;
        b->p[n] = 0;
    }
}

char *buf_take(struct buf *b) {
    if (b->failed) return NULL;
    char *p = b->p ? b->p : mem_strdup("");
    b->p = NULL;
    b->n = b->cap = 0;
    return p;
}

void buf_fini(struct buf *b) {
    mem_free(b->p);
    *b = (struct buf){.max = b->max};
}
