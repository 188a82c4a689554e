/* docs_index.c: updates the index of a folder: new, changed and deleted files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "retrieval/chunk.h"
#include "retrieval/docs_impl.h"
#include "retrieval/docs_put.h"
#include "retrieval/docs_refresh.h"
#include "retrieval/extract_impl.h"
#include "store/doc.h"
#include "store/doc_scope.h"
#include "store/doc_root.h"

struct known { /* a file in the index */
    int64_t n_bytes, mtime_ns, embedder;
    bool seen;
    char *path; /* owned */
};

struct job {
    struct docs *d;
    const char *collection;
    struct docs_report *r;
    bool only_new;                 /* known and excluded files are passed over */
    const _Atomic bool *cancelled; /* NULL: never */
    struct map by_path;
    struct known *known; /* owned */
    size_t n_known, cap_known;
    struct err *e;
};

static int add_known(void *ud, const struct store_doc *doc) {
    struct job *j = ud;
    if (j->n_known == j->cap_known) {
        size_t cap = j->cap_known ? 2 * j->cap_known : 256;
        struct known *more = mem_realloc(j->known, cap * sizeof *more);
        if (!more) return CHIMERE_ENOMEM;
        j->known = more;
        j->cap_known = cap;
    }
    struct known *k = &j->known[j->n_known];
    *k = (struct known){doc->n_bytes, doc->mtime_ns, doc->embedder, false, mem_strdup(doc->path)};
    if (!k->path || map_put(&j->by_path, doc->path, strlen(doc->path), (uint32_t)j->n_known) < 0)
        return CHIMERE_ENOMEM;
    ++j->n_known;
    return 0;
}

static void failed(struct job *j, const char *path, const struct err *why) {
    if (!j->r->n_failed++)
        snprintf(j->r->first_failure, sizeof j->r->first_failure, "%.200s: %.240s", path,
                 why->text);
}

static void skipped(struct job *j, const char *path) {
    char *list = j->r->skipped;
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t n = strlen(list);
    ++j->r->n_skipped;
    if (n + strlen(name) + 3 < sizeof j->r->skipped && utf8_is_valid(name, strlen(name)))
        snprintf(list + n, sizeof j->r->skipped - n, "%s%s", n ? ", " : "", name);
}

/* Decides by the first bytes whether a file without an extension is binary. */
static bool is_binary(int fd) {
    char head[4096];
    ssize_t n = pread(fd, head, sizeof head, 0);
    return n > 0 && !extract_is_utf16(head, (size_t)n) && memchr(head, 0, (size_t)n);
}

static int put(struct job *j, const char *path, const struct stat *st, const struct extract *x) {
    struct arena a;
    arena_init(&a, (size_t)256 << 20);
    struct store_chunk *chunks = mem_alloc_array(STORE_MAX_CHUNKS, sizeof *chunks);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    struct chunk_cursor c;
    struct chunk piece;
    int32_t n = 0, page = 0, n_vec = docs_n_vec(j->d);
    int rc = chunks ? 0 : CHIMERE_ENOMEM;
    chunk_begin(&c, x->text.n ? x->text.p : "", x->text.n);
    while (!rc && n < STORE_MAX_CHUNKS && chunk_next(&c, &piece)) {
        while (page < x->n_page && x->pages[page] <= piece.from) ++page;
        struct store_chunk *s = &chunks[n++];
        *s = (struct store_chunk){
            .from = piece.from, .to = piece.to, .line = piece.line, .page = page};
        s->heading = arena_strndup(&a, x->text.p + piece.heading, (size_t)piece.n_heading);
        s->text = arena_strndup(&a, x->text.p + piece.from, (size_t)(piece.to - piece.from));
        float *vec = n_vec ? arena_alloc(&a, (size_t)n_vec * sizeof *vec) : NULL;
        if (!s->heading || !s->text || (n_vec && !vec)) rc = CHIMERE_ENOMEM;
        if (!rc && vec) rc = docs_vector(j->d, s->heading, s->text, vec, j->e);
        s->vec = vec;
        s->n_vec = n_vec;
    }
    struct store_doc doc = {.collection = j->collection,
                            .path = path,
                            .title = x->title[0] ? x->title : name,
                            .n_bytes = st->st_size,
                            .embedder = docs_embedder(j->d),
                            .mtime_ns =
                                (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec};
    if (!rc) rc = store_doc_put(j->d->store, &doc, chunks, n, j->e);
    else if (rc == CHIMERE_ENOMEM) err_set(j->e, rc, "out of memory");
    j->r->n_chunk += rc ? 0 : n;
    mem_free(chunks);
    arena_fini(&a);
    return rc;
}

/* Reads the open file fd, even if its name now refers to another file. */
static int read_fd(int fd, size_t size, char **out, struct err *e) {
    if (size > EXTRACT_MAX_BYTES)
        return err_set(e, CHIMERE_ELIMIT, "expected at most %d bytes, got %zu", EXTRACT_MAX_BYTES,
                       size);
    char *data = mem_alloc(size + 1);
    if (!data) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    size_t n = 0;
    while (n < size) {
        ssize_t got = read(fd, data + n, size - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        n += (size_t)got;
    }
    data[n] = 0;
    *out = data;
    if (n == size) return 0;
    mem_free(data);
    *out = NULL;
    return err_set(e, CHIMERE_EIO, "cannot read it whole");
}

/* Reads one file. Its failure is only counted; a failure of the store ends the job. */
static int read_file(struct job *j, int dir, const char *name, const char *path) {
    struct stat st;
    struct err why = {0};
    enum extract_kind kind = extract_kind_of(name);
    if (kind == EXTRACT_NONE) {
        skipped(j, path);
        return 0;
    }
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || (!strchr(name, '.') && is_binary(fd))) {
        if (fd >= 0) close(fd);
        skipped(j, path);
        return 0;
    }
    uint32_t at;
    int64_t mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    bool known = map_find(&j->by_path, path, strlen(path), &at);
    if (known && j->only_new) {
        close(fd);
        return 0;
    }
    ++j->r->n_seen;
    if (known) j->known[at].seen = true;
    /* a file with vectors of another model is read again; without an embedding model, existing vectors stay */
    bool embedded = known && (!j->d->models.embed || j->known[at].embedder == docs_embedder(j->d));
    if (embedded && j->known[at].n_bytes == st.st_size && j->known[at].mtime_ns == mtime_ns) {
        close(fd);
        ++j->r->n_kept;
        return 0;
    }
    char *data = NULL;
    int rc = read_fd(fd, (size_t)st.st_size, &data, &why);
    close(fd);
    if (!rc) {
        struct extract x;
        struct extract_how how = {0};
        rc = extract_text(&x, kind, data, (size_t)st.st_size, &how, &why);
        int stored = rc ? 0 : put(j, path, &st, &x);
        extract_fini(&x);
        mem_free(data);
        if (stored) return stored;
    }
    if (rc) {
        failed(j, path, &why);
        if (known) return store_doc_remove(j->d->store, j->collection, path, j->e);
    } else {
        ++j->r->n_read;
        j->r->n_new += !known;
    }
    return 0;
}

static int walk(struct job *j, int parent, const char *name, const char *path, int depth) {
    if (depth > DOCS_MAX_DEPTH)
        return err_set(j->e, CHIMERE_ELIMIT, "%s: folders are nested more than %d deep", path,
                       DOCS_MAX_DEPTH);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) close(fd);
        struct err why = {0};
        err_set(&why, CHIMERE_EIO, "cannot open the folder");
        failed(j, path, &why);
        return 0;
    }
    int rc = 0;
    for (const struct dirent *d; !rc && (d = readdir(dir));) {
        if (d->d_name[0] == '.' || !strcmp(d->d_name, "node_modules")) continue;
        char below[4096];
        struct stat st;
        if (snprintf(below, sizeof below, "%s/%s", path, d->d_name) >= (int)sizeof below ||
            fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW)) {
            skipped(j, d->d_name);
            continue;
        }
        if (j->cancelled && *j->cancelled) rc = err_set(j->e, CHIMERE_ECANCELLED, "cancelled");
        else if (j->r->n_seen >= DOCS_MAX_FILES)
            rc = err_set(j->e, CHIMERE_ELIMIT, "%s: more than %d files", path, DOCS_MAX_FILES);
        else if (S_ISDIR(st.st_mode)) rc = walk(j, fd, d->d_name, below, depth + 1);
        else rc = read_file(j, fd, d->d_name, below);
    }
    closedir(dir);
    return rc;
}

static bool below(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return !strncmp(path, folder, n) && (path[n] == '/' || !path[n]);
}

/* Writes the absolute path of a deleted file or folder: the parent's path with links resolved, as it was indexed. */
static bool gone_path(const char *path, char real[PATH_MAX]) {
    char parent[PATH_MAX];
    size_t n = strlen(path);
    if (errno != ENOENT || n >= sizeof parent) return false;
    memcpy(parent, path, n + 1);
    while (n > 1 && parent[n - 1] == '/') parent[--n] = 0;
    char *slash = strrchr(parent, '/');
    const char *name = slash ? slash + 1 : parent;
    if (!*name || !strcmp(name, ".") || !strcmp(name, "..")) return false;
    if (slash) *slash = 0;
    if (!realpath(!slash ? "." : *parent ? parent : "/", real)) return false;
    n = strlen(real);
    if (n == 1) n = 0; /* the parent is the root folder */
    return snprintf(real + n, PATH_MAX - n, "/%s", name) < (int)(PATH_MAX - n);
}

struct roots { /* the folders of a collection */
    struct job *j;
    const char *path; /* the path that is looked for */
    bool is_covered;  /* one of the folders is above it */
    char **v;         /* owned [n] */
    size_t n;
};

static int find_root(void *ud, const struct store_doc_root *r) {
    struct roots *x = ud;
    x->is_covered |= !r->is_excluded && below(x->path, r->path);
    return 0;
}

/* Remembers what was indexed: a folder, unless one above it is. What was excluded at or below the path is indexed now,
 * and what is gone is no folder any more. */
static int keep_root(struct job *j, const char *real, bool is_folder) {
    struct roots x = {.j = j, .path = real};
    const struct store_doc_root root = {.collection = j->collection, .path = real};
    int rc = store_doc_root_drop(j->d->store, j->collection, real, j->e);
    if (!rc && is_folder) rc = store_doc_root_list(j->d->store, j->collection, find_root, &x, j->e);
    if (!rc && is_folder && !x.is_covered) rc = store_doc_root_put(j->d->store, &root, j->e);
    return rc;
}

/* Collects the documents of the collection; free_known frees them, also after a failure. */
static int list_known(struct job *j) {
    map_init(&j->by_path, (size_t)256 << 20);
    int rc = store_doc_list(j->d->store, j->collection, add_known, j, j->e);
    return rc == CHIMERE_ENOMEM ? err_set(j->e, rc, "out of memory") : rc;
}

static void free_known(struct job *j) {
    for (size_t i = 0; i < j->n_known; ++i) mem_free(j->known[i].path);
    mem_free(j->known);
    map_fini(&j->by_path);
}

int docs_index(struct docs *d, const char *path, const char *collection, struct docs_report *r,
               struct err *e) {
    *r = (struct docs_report){0};
    struct job j = {.d = d, .collection = collection, .r = r, .e = e};
    char real[PATH_MAX];
    struct stat st;
    bool gone = !realpath(path, real) || stat(real, &st);
    if (gone && !gone_path(path, real)) return err_set(e, CHIMERE_ENOENT, "%s: not found", path);
    int rc = list_known(&j);
    if (!rc && gone) {
        bool any = false;
        for (size_t i = 0; i < j.n_known; ++i) any |= below(j.known[i].path, real);
        if (!any) rc = err_set(e, CHIMERE_ENOENT, "%s: not found", path);
    } else if (!rc && S_ISDIR(st.st_mode)) {
        rc = walk(&j, AT_FDCWD, real, real, 0);
    } else if (!rc) {
        int dir = -1;
        char *slash = strrchr(real, '/');
        *slash = 0;
        dir = open(slash == real ? "/" : real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        *slash = '/';
        if (dir >= 0) rc = read_file(&j, dir, slash + 1, real);
        if (dir >= 0) close(dir);
    }
    for (size_t i = 0; i < j.n_known && !rc; ++i) {
        if (j.known[i].seen || !below(j.known[i].path, real)) continue;
        rc = store_doc_remove(d->store, collection, j.known[i].path, e);
        ++r->n_removed;
    }
    if (!rc) rc = keep_root(&j, real, !gone && S_ISDIR(st.st_mode));
    free_known(&j);
    return rc;
}

static bool has_entries(const char *folder) {
    DIR *d = opendir(folder);
    bool any = false;
    for (const struct dirent *x; d && !any && (x = readdir(d));)
        any = strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0;
    if (d) closedir(d);
    return any;
}

/* Returns true if a file was deleted: it is not there, and the nearest folder above it that exists is not empty. An
 * empty folder may be the place of a disk that is not mounted now. */
static bool is_deleted(const char *path) {
    char folder[PATH_MAX];
    struct stat st;
    if (!lstat(path, &st) || (errno != ENOENT && errno != ENOTDIR)) return false;
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder) return false;
    for (char *slash; (slash = strrchr(folder, '/')) && slash > folder;) {
        *slash = 0;
        if (!stat(folder, &st)) return S_ISDIR(st.st_mode) ? has_entries(folder) : true;
        if (errno != ENOENT && errno != ENOTDIR) return false;
    }
    return false;
}

static int refresh_one(struct job *j, struct known *k) {
    if (*k->path != '/') return 0; /* a document in memory (docs_put) */
    if (is_deleted(k->path)) {
        ++j->r->n_removed;
        return store_doc_remove(j->d->store, j->collection, k->path, j->e);
    }
    struct stat st;
    bool is_old = !lstat(k->path, &st) &&
                  (st.st_size != k->n_bytes ||
                   (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec != k->mtime_ns);
    if (is_old && k->embedder && !docs_has_vectors(j->d)) {
        skipped(j, k->path);
        return 0;
    }
    char *slash = strrchr(k->path, '/');
    *slash = 0;
    int dir = open(slash == k->path ? "/" : k->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *slash = '/';
    if (dir < 0) {
        skipped(j, k->path);
        return 0;
    }
    int rc = read_file(j, dir, slash + 1, k->path);
    close(dir);
    return rc;
}

/* Collects the folders; an excluded file counts as known, so that it is passed over. */
static int add_root(void *ud, const struct store_doc_root *r) {
    struct roots *x = ud;
    if (r->is_excluded)
        return map_put(&x->j->by_path, r->path, strlen(r->path), 0) < 0 ? CHIMERE_ENOMEM : 0;
    char **more = mem_realloc(x->v, (x->n + 1) * sizeof *more);
    if (!more) return CHIMERE_ENOMEM;
    x->v = more;
    if (!(x->v[x->n] = mem_strdup(r->path))) return CHIMERE_ENOMEM;
    x->n++;
    return 0;
}

/* Reads the new files of the collection's folders. A folder that is not there is passed over: its disk may not be
 * mounted, and its files were looked at one by one. */
static int read_new(struct job *j) {
    struct roots x = {.j = j};
    struct stat st;
    j->only_new = true;
    int rc = store_doc_root_list(j->d->store, j->collection, add_root, &x, j->e);
    if (rc == CHIMERE_ENOMEM) err_set(j->e, rc, "out of memory");
    for (size_t i = 0; i < x.n; i++) {
        bool is_there = !lstat(x.v[i], &st) && S_ISDIR(st.st_mode);
        if (!rc && is_there) rc = walk(j, AT_FDCWD, x.v[i], x.v[i], 0);
        mem_free(x.v[i]);
    }
    mem_free(x.v);
    return rc;
}

int docs_refresh(struct docs *d, const char *collection, const _Atomic bool *cancelled,
                 struct docs_report *r, struct err *e) {
    *r = (struct docs_report){0};
    struct job j = {.d = d, .collection = collection, .r = r, .cancelled = cancelled, .e = e};
    int rc = list_known(&j);
    for (size_t i = 0; !rc && i < j.n_known; ++i) {
        if (cancelled && *cancelled) rc = err_set(e, CHIMERE_ECANCELLED, "cancelled");
        else rc = refresh_one(&j, &j.known[i]);
    }
    if (!rc) rc = read_new(&j);
    free_known(&j);
    return rc;
}

int docs_put(struct docs *d, const char *name, const char *collection, const char *data, size_t n,
             struct docs_report *r, struct err *e) {
    *r = (struct docs_report){0};
    struct job j = {.d = d, .collection = collection, .r = r, .e = e};
    enum extract_kind kind = extract_kind_of(name);
    struct stat st = {.st_size = (off_t)n};
    struct extract_how how = {0};
    struct extract x;
    if (*name == '/') /* absolute paths are reserved for files in folders, which may be trusted */
        return err_set(e, CHIMERE_EINVAL, "name: expected no absolute path, got '%.80s'", name);
    if (kind == EXTRACT_NONE)
        return err_set(e, CHIMERE_EUNSUPPORTED, "name: files such as '%.80s' cannot be read", name);
    if (n > EXTRACT_MAX_BYTES)
        return err_set(e, CHIMERE_ELIMIT, "expected at most %d bytes, got %zu", EXTRACT_MAX_BYTES,
                       n);
    clock_gettime(CLOCK_REALTIME, &st.st_mtim);
    int rc = extract_text(&x, kind, data, n, &how, e);
    if (!rc) rc = put(&j, name, &st, &x);
    extract_fini(&x);
    return rc;
}

/* Removes the known documents at or below a name, and excludes files on the disk. */
static int remove_below(struct job *j, const char *name) {
    bool is_disk = *name == '/';
    int rc = 0;
    for (size_t i = 0; i < j->n_known && !rc; ++i) {
        const char *path = j->known[i].path;
        const struct store_doc_root gone = {j->collection, path, .is_excluded = true};
        if (!below(path, name)) continue;
        if (is_disk && !j->r->n_removed)
            rc = store_doc_root_drop(j->d->store, j->collection, name, j->e);
        if (!rc) rc = store_doc_remove(j->d->store, j->collection, path, j->e);
        if (!rc && is_disk) rc = store_doc_root_put(j->d->store, &gone, j->e);
        ++j->r->n_removed;
    }
    return rc;
}

int docs_remove(struct docs *d, const char *name, const char *collection, int32_t *n_removed,
                struct err *e) {
    struct docs_report r = {0};
    struct job j = {.d = d, .collection = collection, .r = &r, .e = e};
    char real[PATH_MAX];
    *n_removed = 0;
    if (!*name) return err_set(e, CHIMERE_EINVAL, "name: expected the name of a document");
    int rc = list_known(&j);
    if (!rc) rc = remove_below(&j, name);
    if (!rc && !r.n_removed && realpath(name, real)) rc = remove_below(&j, real);
    if (!rc && !r.n_removed)
        rc = err_set(e, CHIMERE_ENOENT, "name: there is no '%.80s' in '%.64s'", name,
                     store_doc_shown(collection));
    *n_removed = r.n_removed;
    free_known(&j);
    return rc;
}
