#include "base/ahead.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/os/os.h"

/* Of one call of madvise, which returns when the reads are queued. ahead_free may have to wait for a call. */
enum { CHUNK_BYTES = 8 << 20 };

struct ahead {
    const struct ahead_part *part; /* borrowed until ahead_free */
    size_t n;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t more;
    size_t used;    /* the part in use */
    uint64_t limit; /* bytes of all parts, in order, that may be asked for */
    bool quits;
};

/* Waits until bytes from `asked` on may be asked for. Returns false at the end. */
static bool await(struct ahead *a, uint64_t asked) {
    pthread_mutex_lock(&a->lock);
    while (!a->quits && asked >= a->limit) pthread_cond_wait(&a->more, &a->lock);
    bool goes_on = !a->quits;
    pthread_mutex_unlock(&a->lock);
    return goes_on;
}

static void *work(void *arg) {
    struct ahead *a = arg;
    uint64_t asked = 0;
    for (size_t i = 0; i < a->n; i++) {
        const char *at = a->part[i].at;
        for (size_t done = 0, n; done < a->part[i].n; done += n, asked += n) {
            n = a->part[i].n - done < CHUNK_BYTES ? a->part[i].n - done : CHUNK_BYTES;
            size_t skip = (uintptr_t)(at + done) % os_page_bytes();
            if (!await(a, asked)) return NULL;
            madvise((void *)(uintptr_t)(at + done - skip), n + skip, MADV_WILLNEED);
        }
    }
    return NULL;
}

int ahead_new(struct ahead **out, const struct ahead_part *part, size_t n, struct err *e) {
    struct ahead *a = *out = mem_zalloc(sizeof *a);
    if (!a) return err_set(e, CHIMERE_ENOMEM, "out of memory for reading ahead");
    *a = (struct ahead){.part = part, .n = n, .limit = n ? part[0].n + AHEAD_BYTES : 0};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->more, NULL);
    a->has_thread = !pthread_create(&a->thread, NULL, work, a);
    if (a->has_thread) return 0;
    ahead_free(a);
    *out = NULL;
    return err_set(e, CHIMERE_ENOMEM, "cannot start a thread");
}

void ahead_use(struct ahead *a, size_t i) {
    pthread_mutex_lock(&a->lock);
    while (a->used < i) a->limit += a->part[++a->used].n;
    pthread_cond_signal(&a->more);
    pthread_mutex_unlock(&a->lock);
}

void ahead_free(struct ahead *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->quits = true;
    pthread_cond_signal(&a->more);
    pthread_mutex_unlock(&a->lock);
    if (a->has_thread) pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->more);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}
