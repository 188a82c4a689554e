/* zip.c: the central directory is authoritative; local headers only give the position of the data. */
#include "retrieval/zip.h"

#include <string.h>

#define ZLIB_CONST /* zlib does not write its input */
#include <zlib.h>

#include "base/mem.h"

enum { N_END = 22, N_CENTRAL = 46, N_LOCAL = 30, MAX_COMMENT = 65535 };

static uint32_t u16(const unsigned char *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t u32(const unsigned char *p) { return u16(p) | u16(p + 2) << 16; }

int zip_open(struct zip *z, const char *data, size_t n, struct err *e) {
    *z = (struct zip){.data = (const unsigned char *)data, .n = n, .n_left = ZIP_MAX_BYTES};
    const unsigned char *end = NULL;
    for (size_t back = N_END; back <= n && back <= N_END + MAX_COMMENT && !end; ++back)
        if (!memcmp(z->data + n - back, "PK\5\6", 4)) end = z->data + n - back;
    if (!end) return err_set(e, CHIMERE_EFORMAT, "not a ZIP archive, or cut short");
    z->n_member = u16(end + 10);
    z->directory = u32(end + 16);
    if (u16(end + 4) || u16(end + 8) != z->n_member || z->directory == UINT32_MAX)
        return err_set(e, CHIMERE_EUNSUPPORTED, "ZIP: several disks or ZIP64");
    if (z->n_member > ZIP_MAX_MEMBERS)
        return err_set(e, CHIMERE_ELIMIT, "ZIP: expected at most %d members, got %u",
                       ZIP_MAX_MEMBERS, (unsigned)z->n_member);
    if (z->directory > (size_t)(end - z->data))
        return err_set(e, CHIMERE_EFORMAT, "ZIP: the directory is not within the file");
    return 0;
}

/* Returns the directory record of a member, or NULL. */
static const unsigned char *find(const struct zip *z, const char *name) {
    size_t at = z->directory, n_name = strlen(name);
    for (uint32_t i = 0; i < z->n_member; ++i) {
        if (at > z->n || z->n - at < N_CENTRAL) return NULL;
        const unsigned char *p = z->data + at;
        size_t size = N_CENTRAL + (size_t)u16(p + 28) + u16(p + 30) + u16(p + 32);
        if (memcmp(p, "PK\1\2", 4) != 0 || size > z->n - at) return NULL;
        if (u16(p + 28) == n_name && !memcmp(p + N_CENTRAL, name, n_name)) return p;
        at += size;
    }
    return NULL;
}

/* Decompresses raw DEFLATE to exactly n bytes. Sizes are 32 bits in an archive, so they fit zlib's types. */
static int inflate_all(const unsigned char *in, size_t n_in, unsigned char *out, size_t n) {
    z_stream s = {.next_in = in, .avail_in = (uInt)n_in, .next_out = out, .avail_out = (uInt)n};
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK) return CHIMERE_ENOMEM;
    int got = inflate(&s, Z_FINISH);
    inflateEnd(&s);
    if (got == Z_MEM_ERROR) return CHIMERE_ENOMEM;
    return got == Z_STREAM_END && !s.avail_out ? 0 : CHIMERE_EFORMAT;
}

static int unpack(const struct zip *z, const unsigned char *entry, unsigned char *out, size_t n) {
    size_t n_in = u32(entry + 20), local = u32(entry + 42);
    if (local > z->n || z->n - local < N_LOCAL || memcmp(z->data + local, "PK\3\4", 4) != 0)
        return CHIMERE_EFORMAT;
    const unsigned char *head = z->data + local;
    size_t data = local + N_LOCAL + u16(head + 26) + u16(head + 28);
    if (data > z->n || n_in > z->n - data) return CHIMERE_EFORMAT;
    if (u16(entry + 10) == 8) return inflate_all(z->data + data, n_in, out, n);
    if (n_in != n) return CHIMERE_EFORMAT;
    if (n) memcpy(out, z->data + data, n);
    return 0;
}

int zip_read(struct zip *z, const char *name, char **out, size_t *n, struct err *e) {
    const unsigned char *p = find(z, name);
    *out = NULL;
    if (!p) return err_set(e, CHIMERE_ENOENT, "ZIP: no member '%.80s'", name);
    uint32_t method = u16(p + 10);
    if (u16(p + 8) & 1) return err_set(e, CHIMERE_EUNSUPPORTED, "it is encrypted");
    if (method != 0 && method != 8)
        return err_set(e, CHIMERE_EUNSUPPORTED, "ZIP: '%.80s' is compressed by method %u", name,
                       (unsigned)method);
    *n = u32(p + 24);
    if (*n > z->n_left)
        return err_set(e, CHIMERE_ELIMIT, "ZIP: members of more than %d bytes together",
                       ZIP_MAX_BYTES);
    z->n_left -= *n;
    char *data = mem_alloc(*n + 1);
    if (!data) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = unpack(z, p, (unsigned char *)data, *n);
    data[*n] = 0;
    if (!rc) *out = data;
    else mem_free(data);
    return rc ? err_set(e, rc, "ZIP: '%.80s' is damaged", name) : 0;
}
