/* mem.h: allocation, arenas, and the two test hooks on allocation.
 *
 * All heap memory of the project goes through mem_*; they return NULL when memory is short (callers
 * report CHIMERE_ENOMEM), never abort. Sizes are checked by the mul/add helpers below.
 * Test hooks: mem_fail_nth(n) makes the n-th next allocation of the process fail (1 = the next);
 * the guard, armed by test programs, aborts the process when something allocates between begin and end:
 * the engine puts it around its steps, and a pool's workers inherit it from who runs the job. */
#ifndef CHIMERE_BASE_MEM_H
#define CHIMERE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t n);                    /* uninitialised; n == 0 gives a unique pointer */
void *mem_zalloc(size_t n);                   /* zeroed */
void *mem_alloc_array(size_t n, size_t size); /* NULL also when n * size overflows; zeroed */
void *mem_realloc(void *p, size_t n);         /* p stays valid when NULL is returned */
void *mem_aligned(size_t align, size_t n); /* align: power of two; zeroed; release with mem_free */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n); /* adds a final NUL */
void mem_free(void *p);

void mem_fail_nth(int64_t n);  /* 0 switches the injection off */
int64_t mem_alloc_count(void); /* allocations of this process so far */
void mem_guard_arm(bool on);   /* for all threads; off at start */
void mem_guard_begin(void);    /* nests; this thread only */
void mem_guard_end(void);
/* Outside of all guards until restored: for callbacks into code that may allocate. */
int mem_guard_lift(void);
void mem_guard_restore(int depth);

/* Overflow-safe sizes: true and *out on success, false on overflow. */
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

/* Bump allocator with a ceiling: many small objects, one release. Not thread-safe. */
struct arena {
    struct arena_block *head; /* owned */
    size_t used_bytes, max_bytes;
};
void arena_init(struct arena *a, size_t max_bytes);
void *arena_alloc(struct arena *a, size_t n); /* 16-byte aligned, zeroed; NULL above the ceiling */
char *arena_strndup(struct arena *a, const char *s, size_t n);
void arena_fini(struct arena *a); /* releases everything; the arena may be used again */

#endif
