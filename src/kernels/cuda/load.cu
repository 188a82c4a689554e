/* load.cu: weights on their way from the file's map to the device: all threads rearrange a part of a matrix
 * into pinned memory while the part before it is copied. */
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
    uint8_t *host[N_PART];      /* owned, pinned [PART_BYTES] */
    cudaEvent_t copied[N_PART]; /* owned: what lay in host[i] is on the device */
    int turn;
};

void cuda_loader_free(struct cuda *c) {
    struct loader *l = c->loader;
    if (!l) return;
    cuda_fail(c, cudaStreamSynchronize(c->stream), "upload");
    pool_free(l->pool);
    for (int i = 0; i < N_PART; i++) {
        if (l->host[i]) cudaFreeHost(l->host[i]);
        if (l->copied[i]) cudaEventDestroy(l->copied[i]);
    }
    mem_free(l);
    c->loader = NULL;
}

static struct loader *loader_of(struct cuda *c) {
    if (c->loader) return c->loader;
    struct loader *l = c->loader = (struct loader *)mem_zalloc(sizeof *c->loader);
    bool ok = l && (l->pool = pool_new(c->params.n_thread)) != NULL;
    for (int i = 0; ok && i < N_PART; i++)
        ok = cudaMallocHost((void **)&l->host[i], PART_BYTES) == cudaSuccess &&
             cudaEventCreateWithFlags(&l->copied[i], cudaEventDisableTiming) == cudaSuccess;
    if (ok) return l;
    cudaGetLastError();
    cuda_fail_with(c, CHIMERE_ENOMEM, "out of memory for rearranging weights");
    cuda_loader_free(c);
    return NULL;
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

/* Copies end in the order of the stream; dst may be pinned memory of the host as well. */
int cuda_prepare(struct dev *d, const struct weight *w, void *dst, struct weight *w2) {
    struct cuda *c = (struct cuda *)d;
    struct weight v = laid_out(c, w);
    *w2 = v;
    w2->data = dst;
    struct plane_part part[4];
    size_t n_bytes = planes_parts(&v, part), row_bytes = 0;
    struct loader *l = c->err.code ? NULL : loader_of(c);
    if (!l) return c->err.code;
    cuda_wrote(c, dst, n_bytes);
    cuda_send(c);
    for (int i = 0; i < 4; i++) row_bytes += part[i].row_bytes;
    int64_t n_row = w->n_out * w->n_mat,
            most = (int64_t)((PART_BYTES - 4 * PLANE_ALIGN) / row_bytes);
    if (most < 1) cuda_fail_with(c, CHIMERE_ELIMIT, "a row of weights is too long");
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
        for (int i = 0; i < 4; i++)
            if (part[i].row_bytes)
                cuda_fail(c,
                          cudaMemcpyAsync((uint8_t *)dst + part[i].at +
                                              (size_t)p.first * part[i].row_bytes,
                                          p.to[i], (size_t)p.n * part[i].row_bytes,
                                          cudaMemcpyDefault, c->stream),
                          "upload");
        cuda_fail(c, cudaEventRecord(l->copied[l->turn], c->stream), "event");
        l->turn = (l->turn + 1) % N_PART;
    }
    if (c->err.code) return c->err.code;
    return p.is_bad ? CHIMERE_ENUMERIC : 0;
}
