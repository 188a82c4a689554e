/* load.cu: weights on their way from the file's map to the device: all threads rearrange a part of a matrix
 * into pinned memory while the part before it is copied, on a stream of its own. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"

extern "C" {
#include "base/mem.h"
#include "base/pool.h"
}

enum { N_PART = 2 };
static const size_t PART_BYTES = (size_t)32 << 20, PLANE_ALIGN = 256;

struct loader {
    struct pool *pool;          /* owned */
    cudaStream_t stream;        /* owned: of the copies */
    uint8_t *host[N_PART];      /* owned, pinned [PART_BYTES] */
    cudaEvent_t copied[N_PART]; /* owned: what lay in host[i] is on the device */
    cudaEvent_t before, all;    /* owned: ops before the last brought(); all copies */
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
    for (int i = 0; i < N_PART; i++) {
        if (l->host[i]) cudaFreeHost(l->host[i]);
        if (l->copied[i]) cudaEventDestroy(l->copied[i]);
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
    for (int i = 0; ok && i < N_PART; i++)
        ok = cudaMallocHost((void **)&l->host[i], PART_BYTES) == cudaSuccess &&
             cudaEventCreateWithFlags(&l->copied[i], flags) == cudaSuccess;
    if (ok) return true;
    cudaGetLastError();
    cuda_fail_with(c, CHIMERE_ENOMEM, "out of memory for rearranging weights");
    cuda_loader_free(c);
    return false;
}

struct packing { /* of rows [first, first + n) */
    const struct weight *w;
    const struct plane_part *part; /* [4] */
    int64_t first, n;
    uint8_t *to[4];
    bool is_bad; /* by any thread */
};

static void pack_share(void *arg, int ith, int n_thread) {
    struct packing *p = (struct packing *)arg;
    int64_t from = p->n * ith / n_thread, end = p->n * (ith + 1) / n_thread;
    uint8_t *to[4];
    for (int i = 0; i < 4; i++) to[i] = p->to[i] + (size_t)from * p->part[i].row_bytes;
    if (!planes_pack(p->w, p->first + from, end - from, to))
        __atomic_store_n(&p->is_bad, true, __ATOMIC_RELAXED);
}

static struct weight laid_out(const struct cuda *c, const struct weight *w) {
    struct weight v = *w;
    v.layout = c->layout;
    return v;
}

size_t cuda_prepared_bytes(struct dev *d, const struct weight *w) {
    struct weight v = laid_out((struct cuda *)d, w);
    return planes_bytes(&v);
}

void cuda_brought(struct dev *d) {
    struct cuda *c = (struct cuda *)d;
    cuda_send(c);
    if (c->err.code || !cuda_loader_open(c)) return;
    cuda_fail(c, cudaEventRecord(c->loader->before, c->stream), "event");
    cuda_fail(c, cudaStreamWaitEvent(c->stream, c->loader->all, 0), "event");
}

int cuda_bring(struct dev *d, const struct weight *w, void *dst, struct weight *w2) {
    struct cuda *c = (struct cuda *)d;
    struct weight v = laid_out(c, w);
    *w2 = v;
    w2->data = dst;
    struct plane_part part[4];
    size_t n_bytes = planes_parts(&v, part), row_bytes = 0;
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
        uint8_t *room = l->host[l->turn];
        p.n = n_row - p.first < most ? n_row - p.first : most;
        for (int i = 0; i < 4; i++) {
            p.to[i] = room;
            room += ((size_t)p.n * part[i].row_bytes + PLANE_ALIGN - 1) & ~(PLANE_ALIGN - 1);
        }
        cuda_fail(c, cudaEventSynchronize(l->copied[l->turn]), "upload");
        pool_run(l->pool, pack_share, &p);
        for (int i = 0; i < 4; i++) {
            uint8_t *to = (uint8_t *)dst + part[i].at + (size_t)p.first * part[i].row_bytes;
            if (part[i].row_bytes)
                cuda_fail(c,
                          cudaMemcpyAsync(to, p.to[i], (size_t)p.n * part[i].row_bytes,
                                          cudaMemcpyHostToDevice, l->stream),
                          "upload");
        }
        cuda_fail(c, cudaEventRecord(l->copied[l->turn], l->stream), "event");
        l->turn = (l->turn + 1) % N_PART;
    }
    cuda_fail(c, cudaEventRecord(l->all, l->stream), "event");
    if (c->err.code) return c->err.code;
    return p.is_bad ? CHIMERE_ENUMERIC : 0;
}

int cuda_prepare(struct dev *d, const struct weight *w, void *dst, struct weight *w2) {
    cuda_brought(d); /* what clears dst is on its way too */
    int rc = cuda_bring(d, w, dst, w2);
    cuda_brought(d);
    return rc;
}
