/* clock.h: monotonic time and processor time. */
#ifndef CHIMERE_BASE_CLOCK_H
#define CHIMERE_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_ns(void);     /* monotonic */
int64_t clock_cpu_ns(void); /* processor time of the calling thread */
static inline double clock_ms_since(int64_t start_ns) {
    return (double)(clock_ns() - start_ns) * 1e-6;
}

#endif
