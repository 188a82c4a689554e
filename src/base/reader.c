/* reader.c: threads that read pieces of files into aligned buffers. */
#include "base/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/os/fs.h"

/* Alignment of offsets, sizes and addresses of direct reads: the largest sector size of disks. */
enum { SECTOR = 4096, MAX_FILES = 1024, MAX_THREADS = 64, STACK_BYTES = 256 << 10 };

struct source {
    char *path; /* owned */
    int fd;     /* owned */
    bool is_direct;
    uint64_t size;
    int64_t modified_ns;
};

struct worker {
    pthread_t thread;
    struct reader *r;
    unsigned char *room; /* owned */
    bool runs;
};

struct reader {
    size_t max_bytes;
    struct source *files; /* owned [MAX_FILES] */
    uint32_t n_file;
    struct worker *workers; /* owned [n_thread] */
    int n_thread;

    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t more, done;
    struct reader_piece *first, **last; /* queue of pieces */
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

/* Reads a whole range with pread, with the test hook. Returns less than n at the end of the file; -1 with errno on
 * error. */
static ssize_t read_range(int fd, unsigned char *to, size_t n, uint64_t at) {
    size_t have = 0;
    if (atomic_load(&fail_in) > 0 && atomic_fetch_sub(&fail_in, 1) == 1) {
        errno = atomic_load(&fail_with);
        return errno ? -1 : (ssize_t)(n / 2);
    }
    while (have < n) {
        ssize_t got = pread(fd, to + have, n - have, (off_t)(at + have));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        have += (size_t)got;
        /* a direct read is short only at the end of the file */
        if (got == 0 || got % SECTOR) break;
    }
    return (ssize_t)have;
}

static bool is_changed(const struct source *s) {
    struct fs_info i;
    return fs_stat_fd(s->fd, &i) || i.bytes != s->size || i.mtime_ns != s->modified_ns;
}

static void read_piece(struct worker *w, struct reader_piece *p) {
    const struct source *s = &w->r->files[p->file];
    uint64_t from = p->offset / SECTOR * SECTOR;
    size_t skip = (size_t)(p->offset - from);
    size_t n = (skip + p->n + SECTOR - 1) / SECTOR * SECTOR;
    ssize_t got = read_range(s->fd, w->room, n, from);
    if (got < 0) {
        err_set(&p->err, CHIMERE_EIO, "%s: cannot read: %s", s->path, strerror(errno));
    } else if (is_changed(s)) { /* checked after reading, so that the bytes are of one version */
        err_set(&p->err, CHIMERE_EIO, "%s: the file was changed while it is in use", s->path);
        err_hint(&p->err, "load the model again");
    } else if ((size_t)got < skip + p->n) {
        err_set(&p->err, CHIMERE_EIO, "%s: expected %zu bytes at %llu, got %zu", s->path, p->n,
                (unsigned long long)p->offset, (size_t)got > skip ? (size_t)got - skip : 0);
    } else {
        p->use(p, w->room + skip);
    }
}

static struct reader_piece *take(struct reader *r) {
    struct reader_piece *p = r->first;
    r->first = p->next;
    if (!r->first) r->last = &r->first;
    return p;
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct reader *r = w->r;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->first && !r->quits) pthread_cond_wait(&r->more, &r->lock);
        if (r->quits) break;
        struct reader_piece *p = take(r);
        pthread_mutex_unlock(&r->lock);
        read_piece(w, p);
        pthread_mutex_lock(&r->lock);
        r->stats.n_piece++;
        r->stats.n_bytes += p->n;
        if (--r->n_open == 0) r->stats.busy_ns += clock_ns() - r->since_ns;
        p->is_done = true;
        pthread_cond_broadcast(&r->done);
    }
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
    pthread_cond_signal(&r->more);
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
    while (!p->is_done) pthread_cond_wait(&r->done, &r->lock);
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

size_t reader_bytes(int n_thread, size_t max_bytes) {
    return (size_t)n_thread * (room_bytes(max_bytes) + STACK_BYTES);
}

static bool start_worker(struct worker *w) {
    pthread_attr_t attr;
    if (pthread_attr_init(&attr)) return false;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    w->runs = pthread_create(&w->thread, &attr, work, w) == 0;
    pthread_attr_destroy(&attr);
    return w->runs;
}

int reader_new(struct reader **out, int n_thread, size_t max_bytes, struct err *e) {
    struct reader *r = *out = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "reader: out of memory");
    if (n_thread > MAX_THREADS) n_thread = MAX_THREADS;
    r->max_bytes = max_bytes;
    r->last = &r->first;
    r->stats.is_direct = true;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->more, NULL);
    pthread_cond_init(&r->done, NULL);
    r->files = mem_alloc_array(MAX_FILES, sizeof *r->files);
    r->workers = mem_alloc_array((size_t)n_thread, sizeof *r->workers);
    bool ok = r->files && r->workers;
    for (int i = 0; ok && i < n_thread; i++) {
        struct worker *w = &r->workers[r->n_thread++];
        *w = (struct worker){.r = r, .room = mem_aligned(SECTOR, room_bytes(max_bytes))};
        ok = w->room && start_worker(w);
    }
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
    for (int i = 0; i < r->n_thread; i++) {
        if (r->workers[i].runs) pthread_join(r->workers[i].thread, NULL);
        mem_free(r->workers[i].room);
    }
    for (uint32_t i = 0; i < r->n_file; i++) {
        close(r->files[i].fd);
        mem_free(r->files[i].path);
    }
    pthread_cond_destroy(&r->more);
    pthread_cond_destroy(&r->done);
    pthread_mutex_destroy(&r->lock);
    mem_free(r->files);
    mem_free(r->workers);
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
