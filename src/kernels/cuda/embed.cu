/* embed.cu: rows of the embedding table. The table stays in the memory-mapped file: the host repacks the requested rows
 * into planes, a quarter of the size of floats, and the device dequantizes them, bit for bit as the codecs do. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"
#include "kernels/cuda/gemv_float.cuh"

extern "C" {
#include "format/quant.h"
}

enum { EMBED_THREADS = 64 };

template <int F>
__global__ void __launch_bounds__(EMBED_THREADS)
    embed_kernel(float *out, planes w, float scale, grid_tables tables) {
    pdl_trigger();
    pdl_wait();
    out += blockIdx.x * (int64_t)w.n_in;
    for (int k = (int)threadIdx.x; k < w.n_unit; k += EMBED_THREADS) {
        raw<F> r;
        unpacked u;
        load_unit<F>(r, w, blockIdx.x * (int64_t)w.n_unit + k);
        unpack<F>(r, tables, u);
        for (int i = 0; i < 8; i++)
            for (int b = 0; b < 4; b++) { /* _rn: no fused multiply-add */
                float y = __fmul_rn(u.scale[i / 4], (float)(int8_t)(u.q[i] >> 8 * b & 255u));
                out[32 * k + 4 * i + b] = __fmul_rn(__fsub_rn(y, u.offset[i / 4]), scale);
            }
    }
}

__global__ void __launch_bounds__(EMBED_THREADS)
    embed_number_kernel(float *out, planes w, float scale) {
    pdl_trigger();
    pdl_wait();
    int64_t row = blockIdx.x * (int64_t)w.n_in;
    for (int64_t i = row + threadIdx.x; i < row + w.n_in; i += EMBED_THREADS) {
        float x;
        if (w.form == FORM_F16) x = to_float(((const uint16_t *)w.codes)[i]);
        else {
            uint32_t bits = w.form == FORM_F32 ? ((const uint32_t *)w.codes)[i]
                                               : (uint32_t)((const uint16_t *)w.codes)[i] << 16;
            memcpy(&x, &bits, 4);
        }
        out[i] = __fmul_rn(x, scale);
    }
}

/* Writes rows ids[0 .. n_tok) of w to `to`, as `part` describes. Forms that cuda_repack_pack
 * only approximates: as floats. */
static void put_rows(const struct weight *w, const int32_t *ids, int32_t n_tok, bool decodes,
                     const struct plane_part part[4], uint8_t *to) {
    for (int32_t i = 0; i < n_tok; i++) {
        uint8_t *at[4];
        for (int k = 0; k < 4; k++) at[k] = to + part[k].at + (size_t)i * part[k].row_bytes;
        const char *row = (const char *)w->data + (size_t)ids[i] * w->row_bytes;
        const struct weight *tail = w->tail;
        if (decodes) quant_traits(w->type)->decode(row, (float *)at[0], (uint64_t)w->n_in);
        if (decodes && tail)
            quant_traits(tail->type)
                ->decode((const char *)tail->data + (size_t)ids[i] * tail->row_bytes,
                         (float *)at[0] + w->n_in, (uint64_t)tail->n_in);
        if (!decodes) cuda_repack_pack(w, ids[i], 1, at);
    }
}

void cuda_embed(struct dev *d, float *out, const struct weight *w, const int32_t *ids,
                int32_t n_tok, float scale) {
    struct cuda *c = (struct cuda *)d;
    const struct quant_traits *t = quant_traits(w->type);
    cuda_batch_begin(c, n_tok);
    if (!cuda_begin(c)) return;
    if (w->layout != 0 || !t || !t->decode) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "embedding of a type that cannot be decoded");
        return;
    }
    enum plane_form f = cuda_repack_form(w->type, w->layout);
    bool decodes = f == FORM_NONE || f == FORM_I8X || f == FORM_X6K || w->tail;
    struct weight rows = *w;
    if (decodes) rows.type = QUANT_F32;
    rows.n_in = tensor_n_in(w);
    rows.n_out = n_tok;
    rows.n_mat = 1;
    struct plane_part part[4];
    size_t n_bytes = cuda_repack_parts(&rows, part);
    uint8_t *host = (uint8_t *)cuda_stage_room(c, n_bytes);
    if (!host) return;
    put_rows(w, ids, n_tok, decodes, part, host);
    rows.data = cuda_staged(c, host);
    planes p = cuda_repack_of(&rows);
    dim3 grid((unsigned)n_tok), block(EMBED_THREADS);
    cuda_wrote(c, out, (size_t)n_tok * (size_t)rows.n_in * sizeof *out);
    switch (p.form) {
#define X(F)                                                                                       \
    case F: launch(c, embed_kernel<F>, grid, block, 0, out, p, scale, c->tables); break;
        FOR_EACH_FORM(X)
#undef X
    default: launch(c, embed_number_kernel, grid, block, 0, out, p, scale);
    }
}
