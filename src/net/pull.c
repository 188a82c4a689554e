#include "net/pull.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/str.h"
#include "base/os/fs.h"
#include "net/download.h"
#include "net/fetch.h"

enum { PATH_BYTES = 4096, SPARE_BYTES = 64 << 20 };

static int join(char *out, size_t size, struct err *e, const char *dir, const struct hub_ref *r,
                const char *path) {
    int n = snprintf(out, size, "%s/%s/%s%s%s", dir, r->owner, r->repo, *path ? "/" : "", path);
    if (n > 0 && (size_t)n < size) return 0;
    return err_set(e, CHIMERE_ELIMIT, "%.100s...: the path is too long", dir);
}

/* ---- local files ---- */

/* links: follow links to files outside the folder, too. */
static int walk(struct hub_list *l, const char *root, const char *under, int depth, bool links) {
    char at[PATH_BYTES], name[HUB_MAX_PATH_BYTES + 300];
    snprintf(at, sizeof at, "%s/%s", root, under);
    struct fs_folder *d = fs_open(at);
    int rc = 0;
    for (const char *entry; d && !rc && (entry = fs_next(d));) {
        struct fs_info i;
        snprintf(name, sizeof name, "%s%s%s", under, *under ? "/" : "", entry);
        if (!hub_path_is_safe(name) ||
            (size_t)snprintf(at, sizeof at, "%s/%s", root, name) >= sizeof at ||
            (links ? fs_stat(at, &i) : fs_lstat(at, &i)))
            continue;
        if (i.is_folder && depth < HUB_MAX_DEPTH) rc = walk(l, root, name, depth + 1, links);
        else if (i.is_file) rc = hub_list_add(l, name, i.bytes, NULL);
        if (rc == CHIMERE_EINVAL) rc = 0;
    }
    fs_close(d);
    return rc;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct hub_file *)a)->path, ((const struct hub_file *)b)->path);
}

/* Selects a model among the files under root; writes its path to out. */
static int choose_under(const char *root, bool links, const struct hub_ref *r, char *out,
                        size_t out_size, struct err *e) {
    struct hub_list l;
    size_t first = 0, n;
    hub_list_init(&l);
    int rc = walk(&l, root, "", 1, links);
    if (rc) rc = err_set(e, CHIMERE_ELIMIT, "%s: too many files", root);
    if (!rc && l.n) qsort(l.files, l.n, sizeof *l.files, by_path);
    if (!rc && !l.n) rc = err_set(e, CHIMERE_ENOENT, "%s/%s: not in %s", r->owner, r->repo, root);
    if (!rc) rc = hub_choose(&l, r, &first, &n, e);
    if (!rc && (size_t)snprintf(out, out_size, "%s/%s", root, l.files[first].path) >= out_size)
        rc = err_set(e, CHIMERE_ELIMIT, "%.100s...: the path is too long", root);
    hub_list_fini(&l);
    return rc;
}

int pull_local(const char *dir, const struct hub_ref *r, char *out, size_t out_size,
               struct err *e) {
    char root[PATH_BYTES];
    int rc = join(root, sizeof root, e, dir, r, "");
    return rc ? rc : choose_under(root, false, r, out, out_size, e);
}

int pull_cached(const char *hub, const struct hub_ref *r, char *out, size_t out_size,
                struct err *e) {
    char root[PATH_BYTES], *ref;
    size_t n;
    snprintf(root, sizeof root, "%.3000s/models--%s--%s/refs/main", hub, r->owner, r->repo);
    if (file_read(root, 128, &ref, &n, NULL))
        return err_set(e, CHIMERE_ENOENT, "%s/%s: not in %s", r->owner, r->repo, hub);
    ref[strcspn(ref, " \t\r\n")] = 0;
    bool good = *ref && !strchr(ref, '/') && ref[0] != '.';
    if (good)
        snprintf(root, sizeof root, "%.3000s/models--%s--%s/snapshots/%s", hub, r->owner, r->repo,
                 ref);
    mem_free(ref);
    if (!good) return err_set(e, CHIMERE_ENOENT, "%s: expected the name of a snapshot", root);
    return choose_under(root, true, r, out, out_size, e);
}

/* ---- the hub ---- */

static int list(const struct pull *p, const char *endpoint, const struct hub_ref *r,
                struct hub_list *l, struct err *e) {
    char url[FETCH_MAX_URL_BYTES];
    snprintf(url, sizeof url, "%.4000s/api/models/%s/%s/revision/main?blobs=true", endpoint,
             r->owner, r->repo);
    const struct fetch_request q = {.url = url,
                                    .bearer = p->token,
                                    .total_ms = 120000,
                                    .is_cancelled = p->is_cancelled,
                                    .ud = p->ud};
    struct fetch_reply reply;
    int rc = fetch_ok(&q, &reply, e);
    if (rc == CHIMERE_EREFUSED) err_hint(e, "private and gated models need --hf-token");
    if (!rc) rc = hub_list_read(l, reply.body.n ? reply.body.p : "", reply.body.n, e);
    fetch_reply_fini(&reply);
    return rc;
}

/* Appends a path, encoded for a URL. */
static void encode(struct buf *b, const char *path) {
    for (const char *p = path; *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~/", c);
        if (plain) buf_putc(b, *p);
        else buf_printf(b, "%%%02X", c);
    }
}

/* Creates the file's directory and checks that it is within the models directory. */
static int prepare_dir(const struct pull *p, const char *path, struct err *e) {
    char parent[PATH_BYTES], root[PATH_BYTES], real[PATH_BYTES];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    int rc = file_mkdirs(parent, e);
    if (rc) return rc;
    if (!realpath(p->dir, root) || !realpath(parent, real))
        return err_set(e, CHIMERE_EIO, "%s: %s", parent, strerror(errno));
    size_t n = strlen(root);
    if (strncmp(real, root, n) || real[n] != '/')
        return err_set(e, CHIMERE_EREFUSED, "%s: leads outside %s, to %s", parent, root, real);
    return 0;
}

static bool is_there(const char *path, const struct hub_file *f) {
    char note[PATH_BYTES + 8], *text;
    struct fs_info i;
    size_t n;
    if (fs_stat(path, &i) || !i.is_file || i.bytes != f->size) return false;
    if (!f->sha256[0]) return false;
    snprintf(note, sizeof note, "%s.sha256", path);
    if (file_read(note, 1024, &text, &n, NULL)) return false;
    bool same = n > 64 && text[64] == ' ' && (text[64] = 0, str_eq_nocase(text, f->sha256));
    mem_free(text);
    return same;
}

static int write_note(const char *path, const struct hub_file *f, struct err *e) {
    char note[PATH_BYTES + 8];
    struct file_writer w;
    snprintf(note, sizeof note, "%s.sha256", path);
    if (!f->sha256[0]) return 0;
    int rc = file_writer_open(&w, note, e);
    if (rc) return rc;
    fprintf(w.f, "%s  %s\n", f->sha256, strrchr(path, '/') + 1);
    return file_writer_commit(&w, e);
}

static int pull_file(const struct pull *p, const char *endpoint, const struct hub_ref *r,
                     const struct hub_list *l, const struct hub_file *f, const char *path,
                     struct err *e) {
    struct buf url;
    buf_init(&url, FETCH_MAX_URL_BYTES);
    buf_printf(&url, "%s/%s/%s/resolve/%s/", endpoint, r->owner, r->repo, l->revision);
    encode(&url, f->path);
    int rc = url.failed ? err_set(e, url.failed, "%s: the address is too long", f->path) : 0;
    const struct download d = {.url = url.p,
                               .path = path,
                               .bearer = p->token,
                               .sha256 = f->sha256[0] ? f->sha256 : NULL,
                               .length = f->size,
                               .n_part = p->n_part,
                               .wait_ms = p->wait_ms,
                               .on_bytes = p->on_bytes,
                               .on_check = p->on_check,
                               .is_cancelled = p->is_cancelled,
                               .ud = p->ud};
    if (!rc) rc = download_file(&d, e);
    if (!rc) rc = write_note(path, f, e);
    buf_fini(&url);
    return rc;
}

/* Bytes of a complete or partial file that already occupy the disk. */
static uint64_t bytes_on_disk(const char *path) {
    char part[PATH_BYTES + 8];
    struct fs_info i;
    snprintf(part, sizeof part, "%s.part", path);
    return fs_stat(part, &i) ? 0 : i.bytes_on_disk;
}

static int check_room(const struct pull *p, uint64_t need, struct err *e) {
    struct statvfs v;
    if (statvfs(p->dir, &v)) return 0;
    uint64_t have = (uint64_t)v.f_bavail * v.f_frsize;
    if (need == 0 || (have >= need && have - need >= SPARE_BYTES)) return 0;
    char a[16], b[16];
    str_bytes(a, need);
    str_bytes(b, have);
    err_set(e, CHIMERE_ELIMIT, "%s: expected room for %s, there is %s", p->dir, a, b);
    err_hint(e, "choose a smaller type, or another place with --models-dir");
    return CHIMERE_ELIMIT;
}

static int pull_chosen(const struct pull *p, const char *endpoint, const struct hub_ref *r,
                       const struct hub_list *l, size_t first, size_t n, struct err *e) {
    char path[PATH_BYTES];
    uint64_t need = 0;
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        const struct hub_file *f = &l->files[first + i];
        rc = join(path, sizeof path - 16, e, p->dir, r, f->path);
        if (!rc) rc = prepare_dir(p, path, e);
        uint64_t have = rc ? 0 : is_there(path, f) ? f->size : bytes_on_disk(path);
        if (have < f->size) need += f->size - have;
    }
    if (!rc) rc = check_room(p, need, e);
    for (size_t i = 0; !rc && i < n; i++) {
        const struct hub_file *f = &l->files[first + i];
        rc = join(path, sizeof path - 16, e, p->dir, r, f->path);
        bool there = !rc && is_there(path, f);
        if (!rc && p->on_file) p->on_file(p->ud, f, i, n, there);
        if (!rc && !there) rc = pull_file(p, endpoint, r, l, f, path, e);
    }
    return rc;
}

/* Lists the repository and downloads a model of it, or its checkpoint. */
static int pull_some(const struct pull *p, const struct hub_ref *r, bool checkpoint, char *out,
                     size_t out_size, struct err *e) {
    char endpoint[2048];
    snprintf(endpoint, sizeof endpoint, "%s", p->endpoint ? p->endpoint : PULL_ENDPOINT);
    for (size_t n = strlen(endpoint); n && endpoint[n - 1] == '/';) endpoint[--n] = 0;
    struct hub_list l;
    size_t first = 0, n = 0;
    hub_list_init(&l);
    int rc = file_mkdirs(p->dir, e);
    if (!rc) rc = list(p, endpoint, r, &l, e);
    if (!rc) rc = checkpoint ? hub_keep_checkpoint(&l, r, e) : hub_choose(&l, r, &first, &n, e);
    if (checkpoint) n = l.n;
    if (!rc) rc = pull_chosen(p, endpoint, r, &l, first, n, e);
    if (!rc) rc = join(out, out_size, e, p->dir, r, checkpoint ? "" : l.files[first].path);
    hub_list_fini(&l);
    return rc;
}

int pull_model(const struct pull *p, const struct hub_ref *r, char *out, size_t out_size,
               struct err *e) {
    return pull_some(p, r, false, out, out_size, e);
}

int pull_checkpoint(const struct pull *p, const struct hub_ref *r, char *out, size_t out_size,
                    struct err *e) {
    return pull_some(p, r, true, out, out_size, e);
}
