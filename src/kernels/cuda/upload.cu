/* upload.cu: copies weights from the memory-mapped file to the device. All threads repack one part of a matrix into
 * pinned memory while the previous part is copied, on a stream of its own. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"

extern "C" {
#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
}

enum { N_PART = 2 };
static const size_t PART_BYTES = (size_t)32 << 20, PLANE_ALIGN = 256;

struct part {
    uint8_t *host;             /* owned, pinned [PART_BYTES] */
    cudaEvent_t begun, copied; /* owned: before and after the copies from host */
    size_t n_bytes;            /* in flight, or not counted yet */
};

struct loader {
    struct pool *pool;   /* owned */
    cudaStream_t stream; /* owned: for the copies */
    struct part parts[N_PART];
    cudaEvent_t before, all; /* owned: before: ops up to the last stage_fence(); all: all copies */
    int turn;
};

void cuda_loader_free(struct cuda *c) {
    struct loader *l = c->loader;
    if (!l) return;
    if (l->stream) {
        cuda_fail(c, cudaStreamSynchronize(l->stream), "upload");
        cudaStreamDestroy(l->stream);
    }
    pool_free(l->pool);
    for (struct part &p : l->parts) {
        if (p.host) cudaFreeHost(p.host);
        if (p.begun) cudaEventDestroy(p.begun);
        if (p.copied) cudaEventDestroy(p.copied);
    }
    if (l->before) cudaEventDestroy(l->before);
    if (l->all) cudaEventDestroy(l->all);
    mem_free(l);
    c->loader = NULL;
}

bool cuda_loader_open(struct cuda *c) {
    if (c->loader) return true;
    const unsigned flags = cudaEventDisableTiming;
    struct loader *l = c->loader = (struct loader *)mem_zalloc(sizeof *c->loader);
    bool ok = l && (l->pool = pool_new(c->params.n_thread)) != NULL &&
              cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking) == cudaSuccess &&
              cudaEventCreateWithFlags(&l->before, flags) == cudaSuccess &&
              cudaEventCreateWithFlags(&l->all, flags) == cudaSuccess;
    for (int i = 0; ok && i < N_PART; i++) {
        struct part *p = &l->parts[i];
        ok = cudaMallocHost((void **)&p->host, PART_BYTES) == cudaSuccess &&
             cudaEventCreate(&p->begun) == cudaSuccess &&
             cudaEventCreate(&p->copied) == cudaSuccess;
    }
    if (ok) {
        c->stats.load.n_thread = pool_n_thread(l->pool);
        return true;
    }
    cudaGetLastError();
    cuda_fail_with(c, CHIMERE_ENOMEM, "out of memory for rearranging weights");
    cuda_loader_free(c);
    return false;
}

struct packing { /* job: rows [first, first + n) */
    const struct weight *w;
    const struct plane_part *part; /* [4] */
    int64_t first, n;
    uint8_t *to[4];
    bool is_bad; /* set by any thread */
};

static void pack_share(void *arg, int ith, int n_thread) {
    struct packing *p = (struct packing *)arg;
    int64_t from = p->n * ith / n_thread, end = p->n * (ith + 1) / n_thread;
    uint8_t *to[4];
    for (int i = 0; i < 4; i++) to[i] = p->to[i] + (size_t)from * p->part[i].row_bytes;
    if (!cuda_repack_pack(p->w, p->first + from, end - from, to))
        __atomic_store_n(&p->is_bad, true, __ATOMIC_RELAXED);
}

static struct weight laid_out(const struct weight *w, uint32_t layout) {
    struct weight v = *w;
    v.layout = layout;
    return v;
}

size_t cuda_prepared_bytes(struct dev *d, const struct weight *w) {
    struct weight v = laid_out(w, ((struct cuda *)d)->layout);
    return cuda_repack_bytes(&v);
}

void cuda_stage_fence(struct dev *d) {
    struct cuda *c = (struct cuda *)d;
    cuda_use(c);
    cuda_send(c);
    if (c->err.code || !cuda_loader_open(c)) return;
    c->busy = true;
    cuda_fail(c, cudaEventRecord(c->loader->before, c->stream), "event");
    cuda_fail(c, cudaStreamWaitEvent(c->stream, c->loader->all, 0), "event");
}

/* Waits until a part's buffer is free again, and adds its bytes and time to the statistics. */
static void part_free(struct cuda *c, struct part *p) {
    float ms = 0;
    if (!p->n_bytes) return;
    cuda_fail(c, cudaEventSynchronize(p->copied), "upload");
    if (c->err.code || cudaEventElapsedTime(&ms, p->begun, p->copied) != cudaSuccess) return;
    c->stats.load.copied_bytes += p->n_bytes;
    c->stats.load.copy_us += 1e3 * (double)ms;
    p->n_bytes = 0;
}

/* Repacks rows [p->first, p->first + p->n) into the current part and starts their copy to dst. */
static void stage_part(struct cuda *c, struct packing *p, uint8_t *dst) {
    struct loader *l = c->loader;
    struct part *part = &l->parts[l->turn];
    uint8_t *room = part->host;
    for (int i = 0; i < 4; i++) {
        p->to[i] = room;
        room += ((size_t)p->n * p->part[i].row_bytes + PLANE_ALIGN - 1) & ~(PLANE_ALIGN - 1);
    }
    part_free(c, part);
    int64_t start = clock_ns();
    pool_run(l->pool, pack_share, p);
    c->stats.load.pack_us += 1e-3 * (double)(clock_ns() - start);
    c->stats.load.packed_bytes += (size_t)p->n * p->w->row_bytes;
    cuda_fail(c, cudaEventRecord(part->begun, l->stream), "event");
    for (int i = 0; i < 4; i++) {
        size_t n = (size_t)p->n * p->part[i].row_bytes;
        uint8_t *to = dst + p->part[i].at + (size_t)p->first * p->part[i].row_bytes;
        if (!n) continue;
        part->n_bytes += n;
        cuda_fail(c, cudaMemcpyAsync(to, p->to[i], n, cudaMemcpyHostToDevice, l->stream), "upload");
    }
    cuda_fail(c, cudaEventRecord(part->copied, l->stream), "event");
    l->turn = (l->turn + 1) % N_PART;
}

static int stage(struct cuda *c, const struct weight *w, uint32_t layout, void *dst,
                 struct weight *w2) {
    struct weight v = laid_out(w, layout);
    *w2 = v;
    w2->data = dst;
    struct plane_part part[4];
    size_t n_bytes = cuda_repack_parts(&v, part), row_bytes = 0;
    cuda_use(c);
    if (c->err.code || !cuda_loader_open(c)) return c->err.code;
    struct loader *l = c->loader;
    cuda_wrote(c, dst, n_bytes);
    for (int i = 0; i < 4; i++) row_bytes += part[i].row_bytes;
    int64_t n_row = w->n_out * w->n_mat,
            most = (int64_t)((PART_BYTES - 4 * PLANE_ALIGN) / row_bytes);
    if (most < 1) cuda_fail_with(c, CHIMERE_ELIMIT, "a row of weights is too long");
    cuda_fail(c, cudaStreamWaitEvent(l->stream, l->before, 0), "event");
    struct packing p = {&v, part, 0, 0, {}, false};
    for (; p.first < n_row && !c->err.code; p.first += p.n) {
        p.n = n_row - p.first < most ? n_row - p.first : most;
        stage_part(c, &p, (uint8_t *)dst);
    }
    cuda_fail(c, cudaEventRecord(l->all, l->stream), "event");
    if (c->err.code) return c->err.code;
    return p.is_bad ? CHIMERE_ENUMERIC : 0;
}

/* Always PLANES: a weight that is streamed for one pass must be repacked and copied quickly. IQ3_S as nibbles takes a
 * core twelve times as long as with its own fields, and the bus transfers a quarter more. */
int cuda_stage(struct dev *d, const struct weight *w, void *dst, struct weight *w2) {
    return stage((struct cuda *)d, w, PLANES, dst, w2);
}

int cuda_prepare(struct dev *d, const struct weight *w, void *dst, struct weight *w2) {
    struct cuda *c = (struct cuda *)d;
    cuda_stage_fence(d); /* dst may still be cleared by an op in flight */
    int rc = stage(c, w, c->layout, dst, w2);
    cuda_stage_fence(d);
    return rc;
}

int cuda_pack(struct dev *d, const struct weight *w, void *dst, struct weight *w2) {
    struct cuda *c = (struct cuda *)d;
    struct weight v = laid_out(w, c->layout);
    struct plane_part part[4];
    cuda_repack_parts(&v, part);
    cuda_use(c);
    if (c->err.code || !cuda_loader_open(c)) return c->err.code;
    struct packing p = {&v, part, 0, w->n_out * w->n_mat, {}, false};
    for (int i = 0; i < 4; i++) p.to[i] = (uint8_t *)dst + part[i].at;
    int64_t start = clock_ns();
    pool_run(c->loader->pool, pack_share, &p);
    c->stats.load.pack_us += 1e-3 * (double)(clock_ns() - start);
    c->stats.load.packed_bytes += (size_t)p.n * w->row_bytes;
    *w2 = v;
    w2->data = dst;
    return p.is_bad ? CHIMERE_ENUMERIC : 0;
}
