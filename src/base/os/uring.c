#include "base/os/uring.h"

#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
#endif

#ifdef IORING_FEAT_EXT_ARG /* headers of Linux 5.11 */

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"

struct uring {
    int fd;             /* owned */
    unsigned char *map; /* owned [map_bytes]: the kernel's indices, and the queue of results */
    size_t map_bytes;
    struct io_uring_sqe *requests; /* owned [request_bytes] */
    size_t request_bytes;
    unsigned *tail, *slots, mask; /* views of map: requests */
    unsigned *done_head, *done_tail, done_mask;
    const struct io_uring_cqe *results;
};

static int enter(const struct uring *u, unsigned n_submit, unsigned n_wait) {
    return (int)syscall(SYS_io_uring_enter, u->fd, n_submit, n_wait,
                        n_wait ? IORING_ENTER_GETEVENTS : 0U, NULL, (size_t)0);
}

/* Maps the rings. The kernel keeps head and tail of both queues in one mapping since 5.4. */
static bool map_rings(struct uring *u, const struct io_uring_params *p) {
    size_t of_requests = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t of_results = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    u->map_bytes = of_requests > of_results ? of_requests : of_results;
    u->request_bytes = p->sq_entries * sizeof *u->requests;
    const int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    void *map = mmap(NULL, u->map_bytes, prot, flags, u->fd, IORING_OFF_SQ_RING);
    if (map == MAP_FAILED) return false;
    u->map = map;
    void *requests = mmap(NULL, u->request_bytes, prot, flags, u->fd, IORING_OFF_SQES);
    if (requests == MAP_FAILED) return false;
    u->requests = requests;
    u->tail = (unsigned *)(u->map + p->sq_off.tail);
    u->slots = (unsigned *)(u->map + p->sq_off.array);
    memcpy(&u->mask, u->map + p->sq_off.ring_mask, sizeof u->mask);
    u->done_head = (unsigned *)(u->map + p->cq_off.head);
    u->done_tail = (unsigned *)(u->map + p->cq_off.tail);
    memcpy(&u->done_mask, u->map + p->cq_off.ring_mask, sizeof u->done_mask);
    u->results = (const struct io_uring_cqe *)(u->map + p->cq_off.cqes);
    return true;
}

/* Returns a request to fill in; nothing else uses the queue until submit. */
static struct io_uring_sqe *request(struct uring *u, uint8_t op, uint64_t tag) {
    unsigned at = *u->tail & u->mask;
    u->slots[at] = at;
    struct io_uring_sqe *s = &u->requests[at];
    memset(s, 0, sizeof *s);
    s->opcode = op;
    s->user_data = tag;
    return s;
}

static bool submit(struct uring *u) {
    unsigned tail = *u->tail;
    __atomic_store_n(u->tail, tail + 1, __ATOMIC_RELEASE);
    if (enter(u, 1, 0) == 1) return true;
    __atomic_store_n(u->tail, tail, __ATOMIC_RELEASE); /* the kernel reads it only in enter */
    return false;
}

/* A filter may allow the set-up and refuse the rest: one request that does nothing must come back. */
static bool works(struct uring *u) {
    uint64_t tag;
    int32_t result;
    request(u, IORING_OP_NOP, 1);
    return submit(u) && enter(u, 0, 1) >= 0 && uring_next(u, &tag, &result) && tag == 1;
}

struct uring *uring_open(unsigned depth) {
    struct io_uring_params p = {.flags = 0};
    struct uring *u = mem_zalloc(sizeof *u);
    if (!u) return NULL;
    u->fd = (int)syscall(SYS_io_uring_setup, depth, &p);
    const unsigned needs = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
    if (u->fd >= 0 && (p.features & needs) == needs && map_rings(u, &p) && works(u)) return u;
    uring_close(u);
    return NULL;
}

void uring_close(struct uring *u) {
    if (!u) return;
    if (u->requests) munmap(u->requests, u->request_bytes);
    if (u->map) munmap(u->map, u->map_bytes);
    if (u->fd >= 0) close(u->fd);
    mem_free(u);
}

bool uring_read(struct uring *u, int fd, void *to, uint32_t n, uint64_t at, uint64_t tag) {
    struct io_uring_sqe *s = request(u, IORING_OP_READ, tag);
    s->fd = fd;
    s->addr = (uint64_t)(uintptr_t)to;
    s->len = n;
    s->off = at;
    return submit(u);
}

void uring_wait(struct uring *u) {
    if (enter(u, 0, 1) < 0) thread_yield(); /* a signal; or refused since: results arrive anyway */
}

bool uring_next(struct uring *u, uint64_t *tag, int32_t *result) {
    unsigned head = *u->done_head;
    if (head == __atomic_load_n(u->done_tail, __ATOMIC_ACQUIRE)) return false;
    const struct io_uring_cqe *c = &u->results[head & u->done_mask];
    *tag = c->user_data;
    *result = c->res;
    __atomic_store_n(u->done_head, head + 1, __ATOMIC_RELEASE);
    return true;
}

#else

struct uring *uring_open(unsigned depth) {
    (void)depth;
    return NULL;
}
void uring_close(struct uring *u) { (void)u; }
bool uring_read(struct uring *u, int fd, void *to, uint32_t n, uint64_t at, uint64_t tag) {
    (void)u, (void)fd, (void)to, (void)n, (void)at, (void)tag;
    return false;
}
void uring_wait(struct uring *u) { (void)u; }
bool uring_next(struct uring *u, uint64_t *tag, int32_t *result) {
    (void)u, (void)tag, (void)result;
    return false;
}

#endif
