/* ahead.c: a thread that advises the system, and a ring of memory that a reader fills.
 *
 * In the ring, the parts from the one in use to the last one posted follow each other; a part is contiguous. */
#include "base/ahead.h"

#include <pthread.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/os/os.h"
#include "base/reader.h"

enum {
    CHUNK_BYTES = 8 << 20, /* of one call of madvise, which returns when the reads are queued */
    PIECE_BYTES = 1 << 20, /* of a read into the ring */
    SECTOR = READER_SECTOR /* to which these are aligned */
};

struct held {              /* a part that is read into the ring */
    size_t n;              /* bytes there, whole sectors; 0: it is used in the mapping */
    size_t at, skip;       /* offset in the ring; of the part's first byte there */
    size_t first, n_piece; /* its pieces */
};

struct ahead {
    const struct ahead_part *part; /* borrowed until ahead_free */
    size_t n;
    pthread_t thread;
    bool has_thread;

    /* of the thread that uses the parts */
    struct reader *reader;       /* owned; NULL: all parts are used in the mapping */
    struct held *held;           /* owned [n] */
    struct reader_piece *pieces; /* owned */
    unsigned char *ring;         /* owned [cap] */
    size_t cap, next;            /* next: the part that is posted next */
    uint64_t direct_bytes;

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t more;
    size_t used;    /* the part in use */
    uint64_t limit; /* bytes of all parts, in order, that may be asked for */
    bool quits;
};

/* ---- the mapping ---- */

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
        bool is_mapped = !a->held || !a->held[i].n;
        for (size_t done = 0, n; done < a->part[i].n; done += n, asked += n) {
            n = a->part[i].n - done < CHUNK_BYTES ? a->part[i].n - done : CHUNK_BYTES;
            size_t skip = (uintptr_t)(at + done) % os_page_bytes();
            if (!await(a, asked)) return NULL;
            if (is_mapped) madvise((void *)(uintptr_t)(at + done - skip), n + skip, MADV_WILLNEED);
        }
    }
    return NULL;
}

/* Whether most pages of the part are in memory, or the system does not say. */
static bool is_cached(const struct ahead_part *p) {
    enum { AT_ONCE = 4096 };
    unsigned char is_there[AT_ONCE];
    size_t page = os_page_bytes(), skip = (uintptr_t)p->at % page;
    size_t n_page = (p->n + skip + page - 1) / page, n_there = 0;
    for (size_t i = 0; i < n_page; i += AT_ONCE) {
        size_t n_here = n_page - i < AT_ONCE ? n_page - i : AT_ONCE;
        char *from = (char *)(uintptr_t)p->at - skip + i * page;
        if (mincore(from, n_here * page, (void *)is_there)) return true;
        for (size_t k = 0; k < n_here; k++) n_there += is_there[k] & 1;
    }
    return 2 * n_there > n_page;
}

/* ---- the ring ---- */

static int keep(struct reader_piece *p, const unsigned char *bytes) {
    (void)p, (void)bytes;
    return 0;
}

/* Lists the parts that are read into the ring, and their pieces. Returns the number of the latter. */
static size_t list_held(struct ahead *a, const struct ahead_params *p) {
    size_t n_piece = 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct ahead_part *part = &a->part[i];
        struct held *h = &a->held[i];
        *h = (struct held){.skip = (size_t)(part->offset % SECTOR), .first = n_piece};
        size_t n = (h->skip + part->n + SECTOR - 1) / SECTOR * SECTOR;
        if (!part->is_once || !part->n || n > p->room_bytes || is_cached(part)) continue;
        h->n = n;
        n_piece += h->n_piece = (n + PIECE_BYTES - 1) / PIECE_BYTES;
        a->cap = 2 * n > a->cap ? 2 * n : a->cap; /* one is read while another is used */
    }
    if (a->cap > p->room_bytes) a->cap = p->room_bytes / SECTOR * SECTOR;
    return n_piece;
}

static void drop_ring(struct ahead *a) {
    reader_free(a->reader);
    mem_free(a->ring);
    mem_free(a->pieces);
    mem_free(a->held);
    a->reader = NULL;
    a->ring = NULL;
    a->pieces = NULL;
    a->held = NULL;
}

/* Without memory, or without direct reads, all parts are used in the mapping. */
static void open_ring(struct ahead *a, const struct ahead_params *p) {
    struct err ignored;
    struct reader_stats s = {.is_direct = false};
    a->held = mem_alloc_array(a->n, sizeof *a->held);
    size_t n_piece = a->held ? list_held(a, p) : 0;
    bool ok = n_piece > 0;
    if (ok) a->pieces = mem_alloc_array(n_piece, sizeof *a->pieces);
    if (ok) a->ring = mem_aligned(SECTOR, a->cap);
    ok = ok && a->pieces && a->ring && !reader_new(&a->reader, 0, &ignored);
    for (uint32_t i = 0; ok && i < p->n_file; i++)
        ok = !reader_add(a->reader, p->file[i].path, p->file[i].n_bytes, &ignored);
    if (ok) reader_stats(a->reader, &s);
    if (!s.is_direct) drop_ring(a);
}

/* Finds room for n bytes between the end of the last part and the start of the first one that are there. */
static bool place(const struct ahead *a, size_t n, size_t *at) {
    const struct held *first = NULL, *last = NULL;
    for (size_t i = a->used; i < a->next; i++) {
        if (!a->held[i].n) continue;
        if (!first) first = &a->held[i];
        last = &a->held[i];
    }
    size_t from = first ? first->at : 0, end = last ? last->at + last->n : 0;
    bool is_wrapped = first && last->at < first->at;
    *at = end;
    if (is_wrapped) return n <= from - end;
    if (n <= a->cap - end) return true;
    *at = 0;
    return n <= from;
}

/* Starts the reads of as many parts as there is room for. */
static void post(struct ahead *a) {
    for (; a->next < a->n; a->next++) {
        struct held *h = &a->held[a->next];
        const struct ahead_part *part = &a->part[a->next];
        if (!h->n) continue;
        if (!place(a, h->n, &h->at)) break;
        for (size_t k = 0; k < h->n_piece; k++) {
            struct reader_piece *one = &a->pieces[h->first + k];
            size_t done = k * PIECE_BYTES, left = h->skip + part->n - done;
            *one = (struct reader_piece){.file = part->file,
                                         .offset = part->offset - h->skip + done,
                                         .n = left < PIECE_BYTES ? left : PIECE_BYTES,
                                         .use = keep,
                                         .to = a->ring + h->at + done};
            reader_post(a->reader, one);
        }
    }
    reader_run(a->reader);
}

static bool is_read(struct ahead *a, const struct held *h) {
    bool ok = true;
    for (size_t k = 0; k < h->n_piece && a->pieces[h->first + k].use; k++) {
        reader_wait(a->reader, &a->pieces[h->first + k]);
        ok &= !a->pieces[h->first + k].err.code;
    }
    return ok;
}

/* ---- both ---- */

int ahead_new(struct ahead **out, const struct ahead_params *p, struct err *e) {
    struct ahead *a = *out = mem_zalloc(sizeof *a);
    if (!a) return err_set(e, CHIMERE_ENOMEM, "out of memory for reading ahead");
    a->part = p->part;
    a->n = p->n;
    a->limit = p->n ? p->part[0].n + AHEAD_BYTES : 0;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->more, NULL);
    if (p->n && p->room_bytes) open_ring(a, p);
    if (a->reader) post(a);
    a->has_thread = !pthread_create(&a->thread, NULL, work, a);
    if (a->has_thread) return 0;
    ahead_free(a);
    *out = NULL;
    return err_set(e, CHIMERE_ENOMEM, "cannot start a thread");
}

const void *ahead_use(struct ahead *a, size_t i) {
    pthread_mutex_lock(&a->lock);
    while (a->used < i) a->limit += a->part[++a->used].n;
    pthread_cond_signal(&a->more);
    pthread_mutex_unlock(&a->lock);
    if (!a->reader) return a->part[i].at;
    if (a->next < i) a->next = i; /* parts that were never used are not read */
    post(a);
    const struct held *h = &a->held[i];
    if (!h->n || !is_read(a, h)) return a->part[i].at;
    a->direct_bytes += a->part[i].n;
    return a->ring + h->at + h->skip;
}

uint64_t ahead_direct_bytes(const struct ahead *a) { return a->direct_bytes; }

void ahead_free(struct ahead *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->quits = true;
    pthread_cond_signal(&a->more);
    pthread_mutex_unlock(&a->lock);
    if (a->has_thread) pthread_join(a->thread, NULL);
    for (size_t i = 0; a->reader && i < a->next; i++) is_read(a, &a->held[i]);
    drop_ring(a);
    pthread_cond_destroy(&a->more);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}
