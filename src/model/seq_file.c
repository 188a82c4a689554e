/* seq_file.c: a sequence in a file.
 *
 *   offset  size  meaning (little-endian)
 *        0     8  magic "CHIMSEQ\0"
 *        8     4  version, 1
 *       12     4  CRC-32C of bytes 16..header end
 *       16     8  model hash
 *       24     4  key type, 4 value type (quant.h ids)
 *       32     8  position
 *       40     4  deferred tokens, 4 log capacity
 *       48     8  recurrent bytes
 *       56     8  bytes of one page
 *       64     8  bytes of the caller
 *       72     4  CRC-32C of all that follows the header, 4 zero
 *       80     -  the caller's bytes, recurrent state, pages in order
 */
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "model/seq_file.h"
#include "model/seq_impl.h"

enum { HEADER = 80, MAX_EXTRA = 1 << 28 };
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

static void fill_header(unsigned char h[HEADER], const struct seq *s, size_t n_extra,
                        uint32_t crc) {
    const struct seq_pool *p = s->pool;
    memset(h, 0, HEADER);
    memcpy(h, magic, 8);
    put32(h + 8, 1);
    put64(h + 16, p->m->hash);
    put32(h + 24, p->params.k_type);
    put32(h + 28, p->params.v_type);
    put64(h + 32, (uint64_t)s->pos);
    put32(h + 40, (uint32_t)s->n_log);
    put32(h + 44, p->params.log ? STEP_MAX_TOK : 0);
    put64(h + 48, p->rec_bytes);
    put64(h + 56, seq_page_bytes(p));
    put64(h + 64, n_extra);
    put32(h + 72, crc);
    put32(h + 12, hash_crc32c(0, h + 16, HEADER - 16));
}

static int32_t n_used_pages(const struct seq *s) {
    return (int32_t)((s->pos + KV_PAGE - 1) / KV_PAGE);
}

int seq_save(struct seq *s, const char *path, const void *extra, size_t n_extra, struct err *e) {
    struct seq_pool *p = s->pool;
    if (n_extra > MAX_EXTRA)
        return err_set(e, CHIMERE_ELIMIT, "%s: %zu bytes beside the state are too many", path,
                       n_extra);
    size_t n_page_bytes = seq_page_bytes(p);
    size_t n_tmp = p->rec_bytes > n_page_bytes ? p->rec_bytes : n_page_bytes;
    char *tmp = mem_alloc(n_tmp);
    if (!tmp) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
    struct file_writer w;
    int rc = file_writer_open(&w, path, e);
    if (rc) {
        mem_free(tmp);
        return rc;
    }
    unsigned char header[HEADER] = {0};
    bool ok = fwrite(header, HEADER, 1, w.f) == 1;
    uint32_t crc = hash_crc32c(0, extra, n_extra);
    ok = ok && (!n_extra || fwrite(extra, n_extra, 1, w.f) == 1);
    seq_rec_transfer(p, s->slot, tmp, true);
    crc = hash_crc32c(crc, tmp, p->rec_bytes);
    ok = ok && (!p->rec_bytes || fwrite(tmp, p->rec_bytes, 1, w.f) == 1);
    for (int32_t i = 0; ok && i < n_used_pages(s) && n_page_bytes; i++) {
        seq_page_transfer(p, s->pages[i], tmp, true);
        crc = hash_crc32c(crc, tmp, n_page_bytes);
        ok = fwrite(tmp, n_page_bytes, 1, w.f) == 1;
    }
    mem_free(tmp);
    fill_header(header, s, n_extra, crc);
    ok = ok && fseek(w.f, 0, SEEK_SET) == 0 && fwrite(header, HEADER, 1, w.f) == 1;
    if (!ok) {
        file_writer_abort(&w);
        return err_set(e, CHIMERE_EIO, "%s: cannot write", path);
    }
    return file_writer_commit(&w, e);
}

/* Everything that can be said before the body is read. */
static int check_header(const struct seq_pool *p, const unsigned char h[HEADER],
                        uint64_t file_bytes, struct err *e) {
    if (memcmp(h, magic, 8))
        return err_set(e, CHIMERE_EFORMAT, "expected a saved sequence, got other data");
    if (take32(h + 8) != 1)
        return err_set(e, CHIMERE_EUNSUPPORTED, "version: expected 1, got %u", take32(h + 8));
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
    if (pos > (uint64_t)p->params.n_ctx)
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

/* Body behind the header into a fresh sequence. */
static int read_body(struct seq *s, FILE *f, const unsigned char h[HEADER], void *extra,
                     size_t n_extra, char *tmp) {
    struct seq_pool *p = s->pool;
    size_t n_page_bytes = seq_page_bytes(p);
    if (n_extra && fread(extra, n_extra, 1, f) != 1) return CHIMERE_EIO;
    uint32_t crc = hash_crc32c(0, extra, n_extra);
    if (p->rec_bytes && fread(tmp, p->rec_bytes, 1, f) != 1) return CHIMERE_EIO;
    crc = hash_crc32c(crc, tmp, p->rec_bytes);
    seq_rec_transfer(p, s->slot, tmp, false);
    for (int32_t i = 0; i < s->n_page && n_page_bytes; i++) {
        if (fread(tmp, n_page_bytes, 1, f) != 1) return CHIMERE_EIO;
        crc = hash_crc32c(crc, tmp, n_page_bytes);
        seq_page_transfer(p, s->pages[i], tmp, false);
    }
    return crc == take32(h + 72) ? 0 : CHIMERE_ECHECKSUM;
}

int seq_load(struct seq_pool *p, const char *path, struct seq **out, void **extra, size_t *n_extra,
             struct err *e) {
    *out = NULL;
    *extra = NULL;
    *n_extra = 0;
    FILE *f = fopen(path, "rbe");
    if (!f) return err_set(e, CHIMERE_ENOENT, "%s: cannot open", path);
    unsigned char h[HEADER];
    struct stat st;
    int rc = 0;
    if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode) || fread(h, HEADER, 1, f) != 1)
        rc = err_set(e, CHIMERE_EFORMAT, "expected a saved sequence, got a file too short");
    if (!rc) rc = check_header(p, h, (uint64_t)st.st_size, e);
    size_t n = rc ? 0 : (size_t)take64(h + 64), n_page_bytes = seq_page_bytes(p);
    char *tmp = rc ? NULL : mem_alloc(p->rec_bytes > n_page_bytes ? p->rec_bytes : n_page_bytes);
    char *own = rc ? NULL : mem_zalloc(n + 1);
    if (!rc && (!tmp || !own)) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct seq *s = NULL;
    if (!rc) rc = seq_new(&s, p, e);
    if (!rc) rc = seq_reserve(s, (int64_t)take64(h + 32), e);
    if (!rc) {
        s->pos = (int64_t)take64(h + 32);
        s->n_log = (int32_t)take32(h + 40);
        rc = read_body(s, f, h, own, n, tmp);
        if (rc)
            err_set(e, rc,
                    rc == CHIMERE_ECHECKSUM ? "content is damaged (checksum)" : "cannot read");
    }
    fclose(f);
    mem_free(tmp);
    if (rc) {
        seq_free(s);
        mem_free(own);
        err_prefix(e, "%s", path);
        return rc;
    }
    *out = s;
    *extra = own;
    *n_extra = n;
    return 0;
}
