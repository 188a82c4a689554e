/* shim_mtmd.h: images with libmtmd, or an empty implementation; included only by shim.c.
 *
 * CMake defines CHIMERE_LLAMA_HAS_MTMD if mtmd.h and libmtmd exist with the functions used here. libmtmd converts an
 * image to chunks: tokens of the text model around and between the images, and runs of rows. */
#ifndef CHIMERE_LLAMA_SHIM_MTMD_H
#define CHIMERE_LLAMA_SHIM_MTMD_H

#include <llama.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "llama/llama_shim.h"

struct shim_image {
    int32_t *ids; /* owned [n_tok] */
    float *rows;  /* owned [n_row, width] */
    int32_t n_tok, n_row;
    int32_t width;
};

static void compat_image_free(struct shim_image *i) {
    if (!i) return;
    mem_free(i->ids);
    mem_free(i->rows);
    mem_free(i);
}

#ifdef CHIMERE_LLAMA_HAS_MTMD
#include <mtmd-helper.h>
#include <mtmd.h>

typedef struct mtmd_context compat_mtmd;

static compat_mtmd *compat_mtmd_open(const char *path, const struct llama_model *model,
                                     int32_t n_thread, bool use_gpu, ggml_log_callback log) {
    struct mtmd_context_params p = mtmd_context_params_default();
    mtmd_helper_log_set(log, NULL);
    p.n_threads = n_thread;
    p.print_timings = false;
    p.use_gpu = use_gpu;
    return mtmd_init_from_file(path, model, p);
}
static void compat_mtmd_free(compat_mtmd *c) { mtmd_free(c); }
/* Returns NULL, or the reason why its images cannot be used. */
static const char *compat_mtmd_lacks(const compat_mtmd *c) {
    if (!mtmd_support_vision(c)) return "it sees no images";
    if (mtmd_decode_use_mrope(c))
        return "positions in several dimensions (M-RoPE) are not supported";
    return NULL;
}

static bool compat_grow(struct shim_image *i, int32_t n_tok, int32_t n_row) {
    int32_t *ids = mem_realloc(i->ids, (size_t)(i->n_tok + n_tok) * sizeof *ids);
    if (ids) i->ids = ids;
    float *rows =
        n_row ? mem_realloc(i->rows, (size_t)(i->n_row + n_row) * (size_t)i->width * sizeof *rows)
              : i->rows;
    if (rows) i->rows = rows;
    return ids && (rows || !n_row);
}

/* Appends chunk number k to i. */
static bool compat_chunk(compat_mtmd *c, struct shim_image *i, const mtmd_input_chunk *chunk,
                         int32_t k) {
    int32_t n = (int32_t)mtmd_input_chunk_get_n_tokens(chunk);
    if (n < 1) return true;
    if (mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
        size_t n_text;
        const llama_token *text = mtmd_input_chunk_get_tokens_text(chunk, &n_text);
        if (!compat_grow(i, (int32_t)n_text, 0)) return false;
        memcpy(i->ids + i->n_tok, text, n_text * sizeof *text);
        i->n_tok += (int32_t)n_text;
        return true;
    }
    if (mtmd_encode_chunk(c, chunk) || !compat_grow(i, n, n)) return false;
    bool whole = mtmd_decode_use_non_causal(c, chunk);
    memcpy(i->rows + (size_t)i->n_row * (size_t)i->width, mtmd_get_output_embd(c),
           (size_t)n * (size_t)i->width * sizeof *i->rows);
    for (int32_t t = 0; t < n; t++) i->ids[i->n_tok + t] = -2 - 2 * k + whole;
    i->n_tok += n;
    i->n_row += n;
    return true;
}

/* Returns NULL, or what failed. */
static const char *compat_image(compat_mtmd *c, const void *data, size_t n, struct shim_image *i) {
    const char *marker = mtmd_default_marker();
    const struct mtmd_input_text text = {
        .text = marker, .text_len = strlen(marker), .add_special = false, .parse_special = true};
    struct mtmd_helper_bitmap_wrapper w =
        mtmd_helper_bitmap_init_from_buf(c, data, n, false, mtmd_helper_init_opt_default());
    if (w.video_ctx) mtmd_helper_video_free(w.video_ctx);
    if (!w.bitmap || w.video_ctx) {
        if (w.bitmap) mtmd_bitmap_free(w.bitmap);
        return "the file cannot be decoded";
    }
    const mtmd_bitmap *list[1] = {w.bitmap};
    mtmd_input_chunks *chunks = mtmd_input_chunks_init();
    const char *why = mtmd_tokenize(c, chunks, &text, list, 1) ? "it is not taken" : NULL;
    for (size_t k = 0; !why && k < mtmd_input_chunks_size(chunks); k++)
        if (!compat_chunk(c, i, mtmd_input_chunks_get(chunks, k), (int32_t)k))
            why = "encoding fails";
    mtmd_input_chunks_free(chunks);
    mtmd_bitmap_free(w.bitmap);
    return why;
}
static int32_t compat_row_embd(const struct llama_model *m) { return llama_model_n_embd_inp(m); }

#else

typedef struct shim_image compat_mtmd;
static void compat_mtmd_free(compat_mtmd *c) { compat_image_free(c); }

#endif
#endif
