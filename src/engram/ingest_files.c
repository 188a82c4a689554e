/* ingest_files.c: the files of a folder. */
#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engram/ingest.h"

enum { MAX_FILES = 1 << 22 };

static int by_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int by_path(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void engram_files_free(char **files, size_t n) {
    for (size_t i = 0; i < n; i++) mem_free(files[i]);
    mem_free(files);
}

static int push(char ***files, size_t *n, size_t *cap, const char *path) {
    if (*n == *cap) {
        size_t more = *cap ? 2 * *cap : 64;
        char **p = more <= MAX_FILES ? mem_realloc(*files, more * sizeof *p) : NULL;
        if (!p) return CHIMERE_ENOMEM;
        *files = p;
        *cap = more;
    }
    (*files)[*n] = mem_strdup(path);
    return (*files)[*n] ? ((*n)++, 0) : CHIMERE_ENOMEM;
}

int engram_files(const char *path, char ***files, size_t *n, struct err *e) {
    size_t cap = 0;
    int rc = 0;
    *files = NULL;
    *n = 0;
    char *roots[2] = {mem_strdup(path), NULL};
    FTS *walk =
        roots[0] ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_COMFOLLOW, by_name) : NULL;
    if (!walk) rc = err_set(e, CHIMERE_ENOMEM, "%s: cannot read: %s", path, strerror(errno));
    for (FTSENT *f; !rc && (f = fts_read(walk));) {
        if (f->fts_info == FTS_NS || f->fts_info == FTS_DNR || f->fts_info == FTS_ERR)
            rc = err_set(e, f->fts_errno == ENOENT ? CHIMERE_ENOENT : CHIMERE_EIO,
                         "%s: cannot read: %s", f->fts_path, strerror(f->fts_errno));
        else if (f->fts_level > 0 && f->fts_name[0] == '.') fts_set(walk, f, FTS_SKIP);
        else if (f->fts_info == FTS_F && push(files, n, &cap, f->fts_path))
            rc = err_set(e, CHIMERE_ENOMEM, "%s: too many files", path);
    }
    if (walk) fts_close(walk);
    mem_free(roots[0]);
    if (rc) {
        engram_files_free(*files, *n);
        *files = NULL;
        *n = 0;
    } else if (*n) {
        qsort(*files, *n, sizeof **files, by_path);
    }
    return rc;
}
