/* mem.h: allocation, arenas, and two test hooks for allocation.
 *
 * All heap memory of the project is allocated with mem_*. These return NULL if memory is short (callers report
 * CHIMERE_ENOMEM) and never abort. The mul/add helpers below check sizes for overflow. Test hooks: mem_fail_nth(n)
 * makes the n-th next allocation of the process fail (1: the next). The guard, armed by test programs, aborts the
 * process if anything allocates between begin and end. The engine sets it around its steps; a pool's workers inherit it
 * from the thread that runs the job. */
#ifndef CHIMERE_BASE_MEM_H
#define CHIMERE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t n);                    /* uninitialised; n == 0 returns a unique pointer */
void *mem_zalloc(size_t n);                   /* zeroed */
void *mem_alloc_array(size_t n, size_t size); /* zeroed; also NULL if n * size overflows */
void *mem_realloc(void *p, size_t n);         /* if it returns NULL, p stays valid */
void *mem_aligned(size_t align, size_t n); /* zeroed; align: a power of two; free with mem_free */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n); /* adds a final NUL */
void mem_free(void *p);

/* For libraries that accept a function for their allocations. Neither test hook applies to it. */
void *mem_library_alloc(size_t n);
/* Number of allocations of this thread that failed so far. Builders of JSON trees and of buffers drop what they cannot
 * allocate; if the number is the same before and after, what they built is complete. */
int64_t mem_shortages(void);

void mem_fail_nth(int64_t n);  /* 0: off */
int64_t mem_alloc_count(void); /* allocations of this process so far */
void mem_guard_arm(bool on);   /* for all threads; off at start */
void mem_guard_begin(void);    /* for this thread only; nests */
void mem_guard_end(void);
/* Suspends all guards of this thread until restored: for callbacks that may allocate. */
int mem_guard_lift(void);
void mem_guard_restore(int depth);

/* Size arithmetic: returns true and sets *out, or false on overflow. */
static inline bool size_mul(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool size_add(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool u64_mul(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool u64_add(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* Allocates many small objects from blocks, with a size limit; all are freed together. Not thread-safe. */
struct arena {
    struct arena_block *head; /* owned */
    size_t used_bytes, max_bytes;
};
void arena_init(struct arena *a, size_t max_bytes);
/* 16-byte aligned, zeroed; NULL if the limit is exceeded */
void *arena_alloc(struct arena *a, size_t n);
char *arena_strndup(struct arena *a, const char *s, size_t n);
void arena_fini(struct arena *a); /* frees everything; the arena may be used again */

#endif
