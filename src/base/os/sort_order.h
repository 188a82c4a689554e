/* sort_order.h: glibc's qsort_r passes a comparison its context last; macOS and UCRT pass it first. */
#ifndef CHIMERE_BASE_OS_SORT_ORDER_H
#define CHIMERE_BASE_OS_SORT_ORDER_H

struct sort_order {
    int (*compare)(const void *, const void *, void *);
    void *context;
};

static inline int sort_order_compare(void *opaque, const void *a, const void *b) {
    const struct sort_order *o = opaque;
    return o->compare(a, b, o->context);
}

#endif
