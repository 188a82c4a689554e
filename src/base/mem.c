#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/mman.h>

static _Atomic int64_t n_alloc, fail_at;
static _Atomic bool guard_armed;
static _Thread_local int guard_depth;
static _Thread_local int64_t n_short;

/* Counts one allocation; returns true if it must fail (test hook). */
static bool hook(void) {
    if (guard_depth && atomic_load_explicit(&guard_armed, memory_order_relaxed)) {
        fputs("chimere: allocation inside a guarded step\n", stderr);
        abort();
    }
    int64_t n = atomic_fetch_add_explicit(&n_alloc, 1, memory_order_relaxed) + 1;
    return n == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

/* Counts what could not be allocated. */
static void *given(void *p) {
    if (!p) n_short++;
    return p;
}

void *mem_alloc(size_t n) { return given(hook() ? NULL : malloc(n ? n : 1)); }
void *mem_zalloc(size_t n) { return given(hook() ? NULL : calloc(n ? n : 1, 1)); }
void *mem_library_alloc(size_t n) { return given(malloc(n ? n : 1)); }
int64_t mem_shortages(void) { return n_short; }

void *mem_alloc_array(size_t n, size_t size) {
    size_t bytes;
    return size_mul(n, size, &bytes) ? mem_zalloc(bytes) : NULL;
}

void *mem_realloc(void *p, size_t n) { return given(hook() ? NULL : realloc(p, n ? n : 1)); }

/* Large blocks come from the kernel, zeroed, on pages of 2 MB if available: with pages of 4 KB, page walks cost a fifth
 * of the bandwidth when weights are read. mem_free finds these blocks in this list. */
enum { HUGE_PAGE = 2 << 20, HUGE_FROM = 4 << 20 };
static struct huge {
    struct huge *next;
    void *p, *base;
    size_t bytes;
} * huge_list;
static pthread_mutex_t huge_lock = PTHREAD_MUTEX_INITIALIZER;

static void *huge_new(size_t n) {
    size_t bytes;
    struct huge *h = size_add(n, HUGE_PAGE, &bytes) ? malloc(sizeof *h) : NULL;
    if (!h) return NULL;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        free(h);
        return NULL;
    }
    void *p = (void *)(((uintptr_t)base + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    madvise(p, n, MADV_HUGEPAGE); /* only a hint: it also works without such pages */
    *h = (struct huge){.p = p, .base = base, .bytes = bytes};
    pthread_mutex_lock(&huge_lock);
    h->next = huge_list;
    huge_list = h;
    pthread_mutex_unlock(&huge_lock);
    return p;
}

static bool huge_free(void *p) {
    if (!p || (uintptr_t)p % HUGE_PAGE) return false;
    pthread_mutex_lock(&huge_lock);
    struct huge **at = &huge_list, *h;
    while (*at && (*at)->p != p) at = &(*at)->next;
    h = *at;
    if (h) *at = h->next;
    pthread_mutex_unlock(&huge_lock);
    if (!h) return false;
    munmap(h->base, h->bytes);
    free(h);
    return true;
}

void *mem_aligned(size_t align, size_t n) {
    size_t rounded;
    if (hook() || !size_add(n ? n : 1, align - 1, &rounded)) return given(NULL);
    rounded &= ~(align - 1);
    if (rounded >= HUGE_FROM && align <= HUGE_PAGE) return given(huge_new(rounded));
    void *p = aligned_alloc(align, rounded);
    if (p) memset(p, 0, rounded);
    return given(p);
}

char *mem_strndup(const char *s, size_t n) {
    size_t bytes;
    if (!size_add(n, 1, &bytes)) return NULL;
    char *p = mem_alloc(bytes);
    if (!p) return NULL;
    if (n) memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *mem_strdup(const char *s) { return mem_strndup(s, strlen(s)); }
void mem_free(void *p) {
    if (!huge_free(p)) free(p);
}

void mem_fail_nth(int64_t n) { atomic_store(&fail_at, n > 0 ? atomic_load(&n_alloc) + n : 0); }
int64_t mem_alloc_count(void) { return atomic_load(&n_alloc); }
void mem_guard_arm(bool on) { atomic_store(&guard_armed, on); }
void mem_guard_begin(void) { guard_depth++; }
void mem_guard_end(void) { guard_depth--; }
int mem_guard_lift(void) {
    int depth = guard_depth;
    guard_depth = 0;
    return depth;
}
void mem_guard_restore(int depth) { guard_depth = depth; }

struct arena_block {
    struct arena_block *next; /* owned */
    size_t used, cap;
    _Alignas(16) unsigned char data[];
};

void arena_init(struct arena *a, size_t max_bytes) {
    *a = (struct arena){.head = NULL, .used_bytes = 0, .max_bytes = max_bytes};
}

void *arena_alloc(struct arena *a, size_t n) {
    size_t need;
    if (!size_add(n, 15, &need)) return NULL;
    need &= ~(size_t)15;
    if (need > a->max_bytes || a->used_bytes > a->max_bytes - need) return NULL;
    struct arena_block *b = a->head;
    if (!b || b->cap - b->used < need) {
        size_t cap = b ? b->cap * 2 : 4096, bytes;
        if (cap > (1u << 20)) cap = 1u << 20;
        if (cap < need) cap = need;
        if (!size_add(sizeof *b, cap, &bytes)) return NULL;
        b = mem_alloc(bytes);
        if (!b) return NULL;
        b->next = a->head;
        b->used = 0;
        b->cap = cap;
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += need;
    a->used_bytes += need;
    memset(p, 0, need);
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n) {
    size_t bytes;
    if (!size_add(n, 1, &bytes)) return NULL;
    char *p = arena_alloc(a, bytes);
    if (p && n) memcpy(p, s, n);
    return p;
}

void arena_fini(struct arena *a) {
    for (struct arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    a->head = NULL;
    a->used_bytes = 0;
}
