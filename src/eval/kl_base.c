/* kl_base.c: see kl_base.h. */
#include "eval/kl_base.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static const char magic[8] = {'C', 'H', 'K', 'L', 'B', 'A', 'S', 'E'};
enum { HEADER = 48, ROW_HEAD = 8, N_LEVEL = 65535 };

static uint64_t round8(uint64_t n) { return (n + 7) & ~(uint64_t)7; }
static uint64_t row_bytes(int32_t n_vocab) { return ROW_HEAD + round8(2 * (uint64_t)n_vocab); }

/* Computes where the rows begin and where the file ends; false on overflow. */
static bool layout(const struct kl_base_shape *s, uint64_t *rows_at, uint64_t *end) {
    uint64_t tokens, n_row, rows;
    if (!u64_mul(s->n_window, 4 * (uint64_t)s->ctx, &tokens) || tokens > UINT64_MAX - 64)
        return false;
    *rows_at = HEADER + round8(tokens);
    return u64_mul(s->n_window, (uint64_t)(s->ctx - 1 - s->first), &n_row) &&
           u64_mul(n_row, row_bytes(s->n_vocab), &rows) && u64_add(*rows_at, rows, end);
}

static bool shape_ok(const struct kl_base_shape *s) {
    return s->n_vocab >= 1 && s->n_vocab <= KL_BASE_MAX_VOCAB && s->ctx >= 2 &&
           s->ctx <= KL_BASE_MAX_CTX && s->first >= 0 && s->first < s->ctx - 1 && s->n_window >= 1;
}

static void header_bytes(const struct kl_base_shape *s, unsigned char h[HEADER]) {
    const uint32_t version = KL_BASE_VERSION;
    memset(h, 0, HEADER);
    memcpy(h, magic, sizeof magic);
    memcpy(h + 8, &version, 4);
    memcpy(h + 12, &s->n_vocab, 4);
    memcpy(h + 16, &s->tok_hash, 8);
    memcpy(h + 24, &s->ctx, 4);
    memcpy(h + 28, &s->first, 4);
    memcpy(h + 32, &s->n_window, 8);
    uint32_t crc = hash_crc32c(0, h, 40);
    memcpy(h + 40, &crc, 4);
}

/* ---- reading ---- */

static int read_header(struct kl_base_shape *s, const unsigned char *h, uint64_t n, struct err *e) {
    uint32_t version, crc;
    if (n < HEADER || memcmp(h, magic, sizeof magic) != 0)
        return err_set(e, CHIMERE_EFORMAT, "expected a base of perplexity --save-base");
    memcpy(&version, h + 8, 4);
    if (version != KL_BASE_VERSION)
        return err_set(e, CHIMERE_EUNSUPPORTED, "version: expected %d, got %" PRIu32,
                       KL_BASE_VERSION, version);
    memcpy(&crc, h + 40, 4);
    if (crc != hash_crc32c(0, h, 40)) return err_set(e, CHIMERE_ECHECKSUM, "header is damaged");
    memcpy(&s->n_vocab, h + 12, 4);
    memcpy(&s->tok_hash, h + 16, 8);
    memcpy(&s->ctx, h + 24, 4);
    memcpy(&s->first, h + 28, 4);
    memcpy(&s->n_window, h + 32, 8);
    return shape_ok(s) ? 0 : err_set(e, CHIMERE_EFORMAT, "header: sizes out of range");
}

static int read_all(struct kl_base *b, const unsigned char *data, uint64_t n, struct err *e) {
    struct kl_base_shape *s = &b->shape;
    uint64_t rows_at, end;
    int rc = read_header(s, data, n, e);
    if (rc) return rc;
    if (!layout(s, &rows_at, &end) || end != n)
        return err_set(e, CHIMERE_EFORMAT,
                       "expected %" PRIu64 " windows of %" PRId32 " tokens, got a file of %" PRIu64
                       " bytes",
                       s->n_window, s->ctx, n);
    b->tokens = (const int32_t *)(const void *)(data + HEADER);
    b->rows = data + rows_at;
    b->row_bytes = row_bytes(s->n_vocab);
    uint64_t n_tok = s->n_window * (uint64_t)s->ctx;
    for (uint64_t i = 0; i < n_tok; i++)
        if (b->tokens[i] < 0 || b->tokens[i] >= s->n_vocab)
            return err_set(e, CHIMERE_EFORMAT, "token %" PRIu64 ": expected an id below %" PRId32,
                           i, s->n_vocab);
    uint64_t n_row = s->n_window * (uint64_t)(s->ctx - 1 - s->first);
    for (uint64_t i = 0; i < n_row; i++) {
        float top;
        memcpy(&top, b->rows + i * b->row_bytes, 4);
        if (!(top <= 0) || !isfinite(top))
            return err_set(e, CHIMERE_ENUMERIC,
                           "row %" PRIu64 ": expected a log-probability, got %g", i, (double)top);
    }
    for (int32_t u = 0; u <= N_LEVEL; u++) {
        double q = (double)u / N_LEVEL;
        b->levels[u] = (float)(KL_BASE_RANGE * q * q);
    }
    return 0;
}

int kl_base_open_memory(struct kl_base **out, const void *data, uint64_t n, const char *name,
                        struct err *e) {
    struct kl_base *b = mem_zalloc(sizeof *b);
    if (!b) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = (uintptr_t)data % 4 ? err_set(e, CHIMERE_EINVAL, "expected aligned memory")
                                 : read_all(b, data, n, e);
    if (rc) {
        err_prefix(e, "%s", name);
        mem_free(b);
        return rc;
    }
    *out = b;
    return 0;
}

int kl_base_open(struct kl_base **out, const char *path, struct err *e) {
    struct file_map map;
    int rc = file_map(&map, path, e);
    if (rc) return rc;
    rc = kl_base_open_memory(out, map.data, map.size, path, e);
    if (rc) file_unmap(&map);
    else (*out)->map = map;
    return rc;
}

void kl_base_close(struct kl_base *b) {
    if (!b) return;
    file_unmap(&b->map);
    mem_free(b);
}

void kl_base_row(const struct kl_base *b, uint64_t window, int32_t row, float *out) {
    uint64_t n_row = (uint64_t)(b->shape.ctx - 1 - b->shape.first);
    const unsigned char *p = b->rows + (window * n_row + (uint64_t)row) * b->row_bytes;
    float top;
    memcpy(&top, p, 4);
    p += ROW_HEAD;
    for (int32_t i = 0; i < b->shape.n_vocab; i++) {
        uint16_t u;
        memcpy(&u, p + 2 * (size_t)i, 2);
        out[i] = top - b->levels[u];
    }
}

/* ---- writing ---- */

struct kl_base_writer {
    struct file_writer file;
    struct kl_base_shape shape;
    uint64_t rows_at, end, next; /* next: current offset of the file position */
    unsigned char *row;          /* owned [row_bytes] */
};

static int cannot_write(const struct kl_base_writer *w, struct err *e) {
    return err_set(e, CHIMERE_EIO, "%s: cannot write", w->file.path);
}

int kl_base_create(struct kl_base_writer **out, const char *path, const struct kl_base_shape *s,
                   const int32_t *tokens, struct err *e) {
    unsigned char header[HEADER];
    struct kl_base_writer *w = mem_zalloc(sizeof *w);
    if (!w) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    w->shape = *s;
    if (!shape_ok(s) || !layout(s, &w->rows_at, &w->end)) {
        mem_free(w);
        return err_set(e, CHIMERE_EINVAL, "%s: sizes out of range", path);
    }
    w->row = mem_zalloc(row_bytes(s->n_vocab));
    int rc =
        w->row ? file_writer_open(&w->file, path, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (rc) {
        mem_free(w->row);
        mem_free(w);
        return rc;
    }
    header_bytes(s, header);
    size_t n_tok = (size_t)(s->n_window * (uint64_t)s->ctx);
    uint64_t pad = 0, n_pad = w->rows_at - HEADER - 4 * (uint64_t)n_tok;
    w->next = w->rows_at;
    if (fwrite(header, 1, HEADER, w->file.f) != HEADER ||
        fwrite(tokens, 4, n_tok, w->file.f) != n_tok ||
        fwrite(&pad, 1, (size_t)n_pad, w->file.f) != n_pad) {
        rc = cannot_write(w, e);
        kl_base_abort(w);
        return rc;
    }
    *out = w;
    return 0;
}

int kl_base_put(struct kl_base_writer *w, uint64_t window, int32_t row, const float *logits,
                double norm, struct err *e) {
    int32_t n = w->shape.n_vocab;
    uint64_t n_row = (uint64_t)(w->shape.ctx - 1 - w->shape.first), bytes = row_bytes(n);
    float top = logits[0];
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > top) top = logits[i];
    float top_lp = (float)((double)top - norm);
    if (top_lp > 0) top_lp = 0; /* rounding can give a value above 0 */
    memcpy(w->row, &top_lp, 4);
    for (int32_t i = 0; i < n; i++) {
        float below = (top - logits[i]) / KL_BASE_RANGE;
        uint16_t u = below >= 1 ? N_LEVEL : (uint16_t)(sqrtf(below) * N_LEVEL + 0.5f);
        memcpy(w->row + ROW_HEAD + 2 * (size_t)i, &u, 2);
    }
    uint64_t at = w->rows_at + (window * n_row + (uint64_t)row) * bytes;
    if (at != w->next && fseeko(w->file.f, (off_t)at, SEEK_SET) != 0) return cannot_write(w, e);
    if (fwrite(w->row, 1, bytes, w->file.f) != bytes) return cannot_write(w, e);
    w->next = at + bytes;
    return 0;
}

int kl_base_commit(struct kl_base_writer *w, struct err *e) {
    int rc = file_writer_commit(&w->file, e);
    mem_free(w->row);
    mem_free(w);
    return rc;
}

void kl_base_abort(struct kl_base_writer *w) {
    if (!w) return;
    file_writer_abort(&w->file);
    mem_free(w->row);
    mem_free(w);
}
