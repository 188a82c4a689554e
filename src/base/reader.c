/* reader.c: reads pieces of files into aligned rooms, by io_uring or by threads, and passes them to threads.
 *
 * With io_uring, reader_post starts the read, and one idle thread waits in the kernel for the end of any read. Without
 * it, each thread reads a piece itself. */
#include "base/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os/fs.h"
#include "base/os/uring.h"

enum {
    SECTOR = READER_SECTOR,
    N_THREAD = 16, /* without io_uring: disks reach full speed with 16 reads of some 100 KB */
    MAX_FILES = 1024,
    STACK_BYTES = 256 << 10
};
/* Reads in progress with io_uring: measured disks are as fast as they can be with 32 reads of some 100 KB. */
enum { DEPTH = 32 };

struct source {
    char *path; /* owned */
    int fd;     /* owned */
    bool is_direct;
    uint64_t size;
    int64_t modified_ns;
};

/* Memory for one piece while it is read and used. */
struct room {
    unsigned char *bytes; /* owned */
    unsigned char *at;    /* where the piece is read to */
    struct reader_piece *piece;
    ssize_t got; /* bytes read so far, or a negative errno */
    struct room *next;
};

struct reader {
    struct source *files; /* owned [MAX_FILES] */
    uint32_t n_file;
    struct room *rooms; /* owned [n_room] */
    int n_room;
    pthread_t threads[N_THREAD];
    int n_thread;        /* that were started */
    struct uring *uring; /* owned; NULL: threads read */

    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t more, done;
    struct reader_piece *first, **last; /* queue of pieces */
    struct room *idle, *full;           /* lists: rooms without a piece; rooms that were read */
    int n_flying;                       /* reads that uring has not returned */
    bool is_led;                        /* a thread is in uring_wait */
    int64_t n_open;                     /* pieces posted and not done */
    int64_t since_ns;                   /* when n_open rose above 0 */
    struct reader_stats stats;
    bool quits;
};

static _Atomic int64_t fail_in;
static _Atomic int fail_with;

void reader_fail_nth(int64_t nth, int error) {
    atomic_store(&fail_with, error);
    atomic_store(&fail_in, nth);
}

/* Applies the test hook to a read that succeeded. */
static ssize_t injected(ssize_t got) {
    if (got < 0 || atomic_load(&fail_in) <= 0 || atomic_fetch_sub(&fail_in, 1) != 1) return got;
    int error = atomic_load(&fail_with);
    return error ? -error : got / 2;
}

/* Reads the rest of a range, of which the first `have` bytes are there. Returns less than n at the end of the file; a
 * negative errno on error. */
static ssize_t read_rest(int fd, unsigned char *to, size_t have, size_t n, uint64_t at) {
    while (have < n &&
           have % SECTOR == 0) { /* a direct read is short only at the end of the file */
        ssize_t got = pread(fd, to + have, n - have, (off_t)(at + have));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got == 0) break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

static bool is_changed(const struct source *s) {
    struct fs_info i;
    return fs_stat_fd(s->fd, &i) || i.bytes != s->size || i.mtime_ns != s->modified_ns;
}

/* What is read for a piece: whole sectors from `from` on. */
struct extent {
    uint64_t from;
    size_t skip, n;
};
static struct extent extent_of(const struct reader_piece *p) {
    struct extent x = {.from = p->offset / SECTOR * SECTOR};
    x.skip = (size_t)(p->offset - x.from);
    x.n = (x.skip + p->n + SECTOR - 1) / SECTOR * SECTOR;
    return x;
}

/* Reads what is missing, and uses the piece. */
static void complete(struct reader *r, struct room *m) {
    struct reader_piece *p = m->piece;
    const struct source *s = &r->files[p->file];
    const struct extent x = extent_of(p);
    ssize_t got = m->got == -EINTR || m->got == -EAGAIN ? 0 : m->got;
    if (got >= 0 && (size_t)got < x.n) got = read_rest(s->fd, m->at, (size_t)got, x.n, x.from);
    got = injected(got);
    if (got < 0) {
        err_set(&p->err, CHIMERE_EIO, "%s: cannot read: %s", s->path, strerror((int)-got));
    } else if (is_changed(s)) { /* checked after reading, so that the bytes are of one version */
        err_set(&p->err, CHIMERE_EIO, "%s: the file was changed while it is in use", s->path);
        err_hint(&p->err, "load the model again");
    } else if ((size_t)got < x.skip + p->n) {
        err_set(&p->err, CHIMERE_EIO, "%s: expected %zu bytes at %llu, got %zu", s->path, p->n,
                (unsigned long long)p->offset, (size_t)got > x.skip ? (size_t)got - x.skip : 0);
    } else {
        p->use(p, m->at + x.skip);
    }
}

/* ---- with the lock held ---- */

static struct room *pop(struct room **list) {
    struct room *m = *list;
    if (m) *list = m->next;
    return m;
}

/* At the end, so that pieces are used in the order in which they were posted or read. */
static void push(struct room **list, struct room *m) {
    while (*list) list = &(*list)->next;
    m->next = NULL;
    *list = m;
}

/* Gives pieces of the queue to rooms. With io_uring their reads start; a read that the kernel does not accept, like
 * all without io_uring, is left to the thread that uses the piece. */
static void start_reads(struct reader *r) {
    while (r->first && r->idle) {
        struct room *m = pop(&r->idle);
        struct reader_piece *p = r->first;
        r->first = p->next;
        if (!r->first) r->last = &r->first;
        m->piece = p;
        m->at = p->to ? p->to : m->bytes;
        m->got = 0;
        const struct extent x = extent_of(p);
        if (r->uring && uring_read(r->uring, r->files[p->file].fd, m->at, (uint32_t)x.n, x.from,
                                   (uint64_t)(m - r->rooms))) {
            r->n_flying++;
            continue;
        }
        push(&r->full, m);
        pthread_cond_signal(&r->more);
    }
}

static void use_room(struct reader *r, struct room *m) {
    struct reader_piece *p = m->piece;
    pthread_mutex_unlock(&r->lock);
    complete(r, m);
    pthread_mutex_lock(&r->lock);
    r->stats.n_piece++;
    r->stats.n_bytes += p->n;
    if (--r->n_open == 0) r->stats.busy_ns += clock_ns() - r->since_ns;
    p->is_done = true;
    push(&r->idle, m);
    start_reads(r);
    pthread_cond_broadcast(&r->done);
}

/* Waits in the kernel for reads, as the only thread that does. Then there is work for as many threads as reads have
 * ended, and another thread must wait for the rest. */
static void lead(struct reader *r) {
    uint64_t tag;
    int32_t result;
    r->is_led = true;
    pthread_mutex_unlock(&r->lock);
    uring_wait(r->uring);
    pthread_mutex_lock(&r->lock);
    r->is_led = false;
    while (uring_next(r->uring, &tag, &result)) {
        struct room *m = &r->rooms[tag];
        m->got = result;
        r->n_flying--;
        push(&r->full, m);
        pthread_cond_signal(&r->more);
    }
    if (r->n_flying) pthread_cond_signal(&r->more);
}

/* Uses a room that was read, or waits for a read. Returns false if there is nothing for this thread to do. */
static bool advance(struct reader *r) {
    struct room *m = pop(&r->full);
    if (m) use_room(r, m);
    else if (r->n_flying && !r->is_led) lead(r);
    else return false;
    return true;
}

/* ---- threads ---- */

static void *work(void *arg) {
    struct reader *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->quits)
        if (!advance(r)) pthread_cond_wait(&r->more, &r->lock);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

void reader_post(struct reader *r, struct reader_piece *p) {
    p->next = NULL;
    p->is_done = false;
    p->err = (struct err){0};
    pthread_mutex_lock(&r->lock);
    *r->last = p;
    r->last = &p->next;
    if (r->n_open++ == 0) r->since_ns = clock_ns();
    start_reads(r);
    pthread_mutex_unlock(&r->lock);
}

void reader_run(struct reader *r) {
    pthread_mutex_lock(&r->lock);
    if (r->n_flying && !r->is_led) pthread_cond_signal(&r->more);
    pthread_mutex_unlock(&r->lock);
}

bool reader_is_done(struct reader *r, const struct reader_piece *p) {
    pthread_mutex_lock(&r->lock);
    bool is = p->is_done;
    pthread_mutex_unlock(&r->lock);
    return is;
}

void reader_wait(struct reader *r, const struct reader_piece *p) {
    pthread_mutex_lock(&r->lock);
    while (!p->is_done)
        if (!advance(r)) pthread_cond_wait(&r->done, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

void reader_stats(struct reader *r, struct reader_stats *out) {
    pthread_mutex_lock(&r->lock);
    *out = r->stats;
    if (r->n_open) out->busy_ns += clock_ns() - r->since_ns;
    pthread_mutex_unlock(&r->lock);
}

static size_t room_bytes(size_t max_bytes) {
    return (max_bytes + 2 * SECTOR - 1) / SECTOR * SECTOR;
}

size_t reader_bytes(size_t max_bytes) {
    return DEPTH * room_bytes(max_bytes) + (size_t)N_THREAD * STACK_BYTES;
}

static bool start_thread(struct reader *r) {
    pthread_attr_t attr;
    if (pthread_attr_init(&attr)) return false;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    bool ok = pthread_create(&r->threads[r->n_thread], &attr, work, r) == 0;
    pthread_attr_destroy(&attr);
    r->n_thread += ok;
    return ok;
}

static bool alloc_rooms(struct reader *r, int n, size_t max_bytes) {
    r->rooms = mem_alloc_array((size_t)n, sizeof *r->rooms);
    for (; r->rooms && r->n_room < n; r->n_room++) {
        struct room *m = &r->rooms[r->n_room];
        m->bytes = mem_aligned(SECTOR, room_bytes(max_bytes));
        if (!m->bytes) return false;
        push(&r->idle, m);
    }
    return r->rooms;
}

int reader_new(struct reader **out, size_t max_bytes, struct err *e) {
    struct reader *r = *out = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "reader: out of memory");
    r->last = &r->first;
    r->stats.is_direct = true;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->more, NULL);
    pthread_cond_init(&r->done, NULL);
    if (max_bytes < UINT32_MAX / 2) r->uring = uring_open(DEPTH);
    r->stats.is_uring = r->uring;
    if (!r->uring) log_info("reader: the system refuses io_uring: %d threads read", N_THREAD);
    r->files = mem_alloc_array(MAX_FILES, sizeof *r->files);
    bool ok = r->files && alloc_rooms(r, r->uring ? DEPTH : N_THREAD, max_bytes);
    while (ok && r->n_thread < N_THREAD) ok = start_thread(r);
    if (ok) return 0;
    reader_free(r);
    *out = NULL;
    return err_set(e, CHIMERE_ENOMEM, "reader: out of memory or threads");
}

void reader_free(struct reader *r) {
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->quits = true;
    pthread_cond_broadcast(&r->more);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_thread; i++) pthread_join(r->threads[i], NULL);
    uring_close(r->uring);
    for (int i = 0; i < r->n_room; i++) mem_free(r->rooms[i].bytes);
    for (uint32_t i = 0; i < r->n_file; i++) {
        close(r->files[i].fd);
        mem_free(r->files[i].path);
    }
    pthread_cond_destroy(&r->more);
    pthread_cond_destroy(&r->done);
    pthread_mutex_destroy(&r->lock);
    mem_free(r->files);
    mem_free(r->rooms);
    mem_free(r);
}

int reader_add(struct reader *r, const char *path, uint64_t n_bytes, struct err *e) {
    struct fs_info i;
    if (r->n_file == MAX_FILES) return err_set(e, CHIMERE_ELIMIT, "%s: too many files", path);
    struct source *s = &r->files[r->n_file];
    *s = (struct source){.fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT), .is_direct = true};
    if (s->fd < 0 && errno == EINVAL) { /* the file system does not support direct reads */
        s->fd = open(path, O_RDONLY | O_CLOEXEC);
        s->is_direct = r->stats.is_direct = false;
    }
    if (s->fd < 0 || fs_stat_fd(s->fd, &i)) {
        int rc = err_set(e, CHIMERE_EIO, "%s: cannot open: %s", path, strerror(errno));
        if (s->fd >= 0) close(s->fd);
        return rc;
    }
    s->size = i.bytes;
    s->modified_ns = i.mtime_ns;
    s->path = mem_strdup(path);
    if (s->path && i.bytes == n_bytes) {
        r->n_file++;
        return 0;
    }
    int rc = !s->path ? err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path)
                      : err_set(e, CHIMERE_EIO, "%s: expected %llu bytes, got %llu", path,
                                (unsigned long long)n_bytes, (unsigned long long)i.bytes);
    close(s->fd);
    mem_free(s->path);
    return rc;
}
