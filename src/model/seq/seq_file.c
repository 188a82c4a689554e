/* seq_file.c: a sequence in a file.
 *
 *   offset  size  meaning (little-endian)
 *        0     8  magic "CHIMSEQ\0"
 *        8     4  version, 2
 *       12     4  CRC-32C of bytes 16..header end
 *       16     8  model hash
 *       24     4  key type, 4 value type (quant.h ids)
 *        32     8  position, rows that precede all tokens included
 *       40     4  deferred tokens, 4 log capacity
 *       48     8  recurrent bytes
 *       56     8  bytes of one page
 *        64     8  size of the caller's bytes
 *        72     4  CRC-32C of everything after the header, 4 zero
 *       80     -  the caller's bytes, recurrent state (seq_rec_part; channel by channel), pages in order
 */
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "model/seq/checkpoint.h"
#include "model/seq/seq_file.h"
#include "model/seq/seq_impl.h"

enum { HEADER = 80, VERSION = 2, MAX_EXTRA = 1 << 28 };
static const char magic[8] = "CHIMSEQ";

static void put32(unsigned char *p, uint32_t v) { memcpy(p, &v, 4); }
static void put64(unsigned char *p, uint64_t v) { memcpy(p, &v, 8); }
static uint32_t take32(const unsigned char *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static uint64_t take64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static void fill_header(unsigned char h[HEADER], const struct checkpoint *m, size_t n_extra,
                        uint32_t crc) {
    const struct seq_pool *p = m->pool;
    memset(h, 0, HEADER);
    memcpy(h, magic, 8);
    put32(h + 8, VERSION);
    put64(h + 16, p->m->hash);
    put32(h + 24, p->params.k_type);
    put32(h + 28, p->params.v_type);
    put64(h + 32, (uint64_t)m->pos);
    put32(h + 40, (uint32_t)m->n_log);
    put32(h + 44, p->params.log ? STEP_MAX_TOK : 0);
    put64(h + 48, p->rec_bytes);
    put64(h + 56, seq_page_bytes(p));
    put64(h + 64, n_extra);
    put32(h + 72, crc);
    put32(h + 12, hash_crc32c(0, h + 16, HEADER - 16));
}

/* Appends n bytes to the file and updates the checksum. */
static bool put_part(FILE *f, const void *data, size_t n, uint32_t *crc) {
    *crc = hash_crc32c(*crc, data, n);
    return !n || fwrite(data, n, 1, f) == 1;
}

static bool take_part(FILE *f, void *data, size_t n, uint32_t *crc) {
    if (n && fread(data, n, 1, f) != 1) return false;
    *crc = hash_crc32c(*crc, data, n);
    return true;
}

void seq_rec_lanes(const struct rec_part *part, float *own, float *plain, bool to_plain) {
    size_t w = (size_t)part->lanes, d = (size_t)part->d_state;
    if (w <= 1) memcpy(to_plain ? plain : own, to_plain ? own : plain, part->n * sizeof *own);
    for (size_t c = 0; w > 1 && c < w; c++)
        for (size_t k = 0; k < d; k++) {
            if (to_plain) plain[c * d + k] = own[k * w + c];
            else own[k * w + c] = plain[c * d + k];
        }
}

/* Writes the recurrent state channel by channel, independent of how many channels a device interleaves. */
static bool put_rec(FILE *f, const struct checkpoint *m, uint32_t *crc) {
    float block[STATE_BLOCK], *from = (float *)m->rec;
    struct rec_part part;
    for (int32_t i = 0; seq_rec_part(m->pool, i, &part); i++) {
        size_t n = part.block;
        for (float *end = from + part.n; from < end; from += n) {
            if (part.lanes > 1) seq_rec_lanes(&part, from, block, true);
            if (!put_part(f, part.lanes > 1 ? block : from, n * sizeof(float), crc)) return false;
        }
    }
    return true;
}

static bool take_rec(FILE *f, struct checkpoint *m, uint32_t *crc) {
    float block[STATE_BLOCK], *to = (float *)m->rec;
    struct rec_part part;
    for (int32_t i = 0; seq_rec_part(m->pool, i, &part); i++) {
        size_t n = part.block;
        for (float *end = to + part.n; to < end; to += n) {
            if (!take_part(f, part.lanes > 1 ? block : to, n * sizeof(float), crc)) return false;
            if (part.lanes > 1) seq_rec_lanes(&part, to, block, false);
        }
    }
    return true;
}

static int write_state(const struct checkpoint *m, FILE *f, const void *extra, size_t n_extra,
                       struct err *e) {
    struct seq_pool *p = m->pool;
    if (n_extra > MAX_EXTRA)
        return err_set(e, CHIMERE_ELIMIT, "%zu bytes beside the state are too many", n_extra);
    size_t n_page_bytes = seq_page_bytes(p);
    char *tmp = checkpoint_n_pooled(m) ? mem_alloc(n_page_bytes) : NULL;
    if (checkpoint_n_pooled(m) && !tmp) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    unsigned char header[HEADER] = {0};
    uint32_t crc = 0;
    bool ok = fwrite(header, HEADER, 1, f) == 1 && put_part(f, extra, n_extra, &crc) &&
              put_rec(f, m, &crc);
    for (int32_t i = 0; ok && i < m->n_page && n_page_bytes; i++) {
        const struct checkpoint_page *page = &m->pages[i];
        if (page->page >= 0) seq_page_transfer(p, page->page, tmp, true);
        ok = put_part(f, page->page >= 0 ? tmp : page->host->data, n_page_bytes, &crc);
    }
    mem_free(tmp);
    fill_header(header, m, n_extra, crc);
    ok = ok && fseek(f, 0, SEEK_SET) == 0 && fwrite(header, HEADER, 1, f) == 1;
    return ok ? 0 : err_set(e, CHIMERE_EIO, "cannot write: %s", strerror(errno));
}

int checkpoint_save(const struct checkpoint *m, const char *path, const void *extra, size_t n_extra,
                    struct err *e) {
    struct file_writer w;
    int rc = file_writer_open(&w, path, e);
    if (rc) return rc;
    fs_make_private(w.f);
    rc = write_state(m, w.f, extra, n_extra, e);
    if (!rc) return file_writer_commit(&w, e);
    file_writer_abort(&w);
    err_prefix(e, "%s", path);
    return rc;
}

int seq_save(struct seq *s, const char *path, const void *extra, size_t n_extra, struct err *e) {
    struct checkpoint *m;
    int rc = seq_mark(s, &m, e);
    if (!rc) rc = checkpoint_save(m, path, extra, n_extra, e);
    checkpoint_free(m);
    return rc;
}

/* Checks everything that can be checked before the body is read. */
static int check_header(const struct seq_pool *p, const unsigned char h[HEADER],
                        uint64_t file_bytes, struct err *e) {
    if (memcmp(h, magic, 8))
        return err_set(e, CHIMERE_EFORMAT, "expected a saved sequence, got other data");
    if (take32(h + 8) != VERSION)
        return err_set(e, CHIMERE_EUNSUPPORTED, "version: expected %d, got %u", VERSION,
                       take32(h + 8));
    if (take32(h + 12) != hash_crc32c(0, h + 16, HEADER - 16))
        return err_set(e, CHIMERE_ECHECKSUM, "header is damaged (checksum)");
    if (take64(h + 16) != p->m->hash)
        return err_set(e, CHIMERE_EMISMATCH, "saved with another model");
    if (take32(h + 24) != p->params.k_type || take32(h + 28) != p->params.v_type)
        return err_set(e, CHIMERE_EMISMATCH, "saved with other cache types");
    if (take32(h + 44) != (p->params.log ? STEP_MAX_TOK : 0u) || take64(h + 48) != p->rec_bytes ||
        take64(h + 56) != seq_page_bytes(p))
        return err_set(e, CHIMERE_EMISMATCH, "saved with another state layout");
    uint64_t pos = take64(h + 32), n_extra = take64(h + 64);
    if (pos > (uint64_t)p->params.n_ctx + (uint64_t)p->m->hp.n_meta)
        return err_set(e, CHIMERE_ELIMIT, "position: expected at most %lld, got %llu",
                       (long long)p->params.n_ctx, (unsigned long long)pos);
    if (take32(h + 40) > (p->params.log ? STEP_MAX_TOK : 0u) || take32(h + 40) > pos ||
        n_extra > MAX_EXTRA)
        return err_set(e, CHIMERE_EFORMAT, "header: deferred tokens or size out of range");
    uint64_t want =
        HEADER + n_extra + p->rec_bytes + (pos + KV_PAGE - 1) / KV_PAGE * seq_page_bytes(p);
    if (want != file_bytes)
        return err_set(e, CHIMERE_EFORMAT, "expected %llu bytes, got %llu",
                       (unsigned long long)want, (unsigned long long)file_bytes);
    return 0;
}

/* Reads what follows the header into an empty checkpoint. */
static int read_body(struct checkpoint *m, FILE *f, const unsigned char h[HEADER], void *extra,
                     size_t n_extra) {
    size_t n_page_bytes = seq_page_bytes(m->pool);
    uint32_t crc = 0;
    bool ok = take_part(f, extra, n_extra, &crc) && take_rec(f, m, &crc);
    for (int32_t i = 0; ok && i < m->n_page; i++)
        ok = take_part(f, m->pages[i].host->data, n_page_bytes, &crc);
    if (!ok) return CHIMERE_EIO;
    return crc == take32(h + 72) ? 0 : CHIMERE_ECHECKSUM;
}

static int read_state(struct seq_pool *p, FILE *f, uint64_t n_bytes, struct checkpoint **out,
                      void **extra, size_t *n_extra, struct err *e) {
    unsigned char h[HEADER];
    int rc = 0;
    if (fread(h, HEADER, 1, f) != 1)
        rc = err_set(e, CHIMERE_EFORMAT, "expected a saved sequence, got a file too short");
    if (!rc) rc = check_header(p, h, n_bytes, e);
    size_t n = rc ? 0 : (size_t)take64(h + 64);
    char *own = rc ? NULL : mem_zalloc(n + 1);
    struct checkpoint *m =
        own ? checkpoint_alloc_host(p, (int64_t)take64(h + 32), (int32_t)take32(h + 40)) : NULL;
    if (!rc && !m) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) {
        rc = read_body(m, f, h, own, n);
        if (rc)
            err_set(e, rc,
                    rc == CHIMERE_ECHECKSUM ? "content is damaged (checksum)" : "cannot read");
    }
    if (rc) {
        checkpoint_free_host(m);
        mem_free(own);
        return rc;
    }
    *out = m;
    *extra = own;
    *n_extra = n;
    return 0;
}

int checkpoint_load(struct seq_pool *p, const char *path, struct checkpoint **out, void **extra,
                    size_t *n_extra, struct err *e) {
    struct fs_info st;
    *out = NULL;
    *extra = NULL;
    *n_extra = 0;
    FILE *f = fopen(path, "rbe");
    if (!f) return err_set(e, CHIMERE_ENOENT, "%s: cannot open", path);
    int rc = fs_stat_fd(fileno(f), &st) || !st.is_file
                 ? err_set(e, CHIMERE_EFORMAT, "expected a saved sequence, got no file")
                 : read_state(p, f, st.bytes, out, extra, n_extra, e);
    fclose(f);
    if (rc) err_prefix(e, "%s", path);
    return rc;
}

int seq_load(struct seq_pool *p, const char *path, struct seq **out, void **extra, size_t *n_extra,
             struct err *e) {
    *out = NULL;
    struct checkpoint *m;
    int rc = checkpoint_load(p, path, &m, extra, n_extra, e);
    if (rc) return rc;
    rc = seq_from_checkpoint(p, m, out, e);
    checkpoint_free(m);
    if (rc) {
        mem_free(*extra);
        *extra = NULL;
        *n_extra = 0;
        err_prefix(e, "%s", path);
    }
    return rc;
}
