/* ingest_files.c: the files of a folder. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/os/fs.h"
#include "engram/ingest.h"

enum { MAX_FILES = 1 << 22, MAX_DEPTH = 64 };

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

static int walk(const char *path, int depth, char ***files, size_t *n, size_t *cap, struct err *e) {
    char at[4096];
    struct fs_info i;
    if (depth ? fs_lstat(path, &i) : fs_stat(path, &i)) /* the user may name a link */
        return err_set(e, errno == ENOENT ? CHIMERE_ENOENT : CHIMERE_EIO, "%s: cannot read: %s",
                       path, strerror(errno));
    if (i.is_file && push(files, n, cap, path))
        return err_set(e, CHIMERE_ENOMEM, "%s: too many files", path);
    if (!i.is_folder) return 0;
    struct fs_folder *d = fs_open(path);
    int rc = d ? 0 : err_set(e, CHIMERE_EIO, "%s: cannot read: %s", path, strerror(errno));
    const char *name;
    while (!rc && (name = fs_next(d))) {
        if (name[0] == '.') continue;
        if (depth == MAX_DEPTH || snprintf(at, sizeof at, "%s/%s", path, name) >= (int)sizeof at)
            rc = err_set(e, CHIMERE_ELIMIT, "%s: the path is too long", path);
        else rc = walk(at, depth + 1, files, n, cap, e);
    }
    fs_close(d);
    return rc;
}

int engram_files(const char *path, char ***files, size_t *n, struct err *e) {
    size_t cap = 0;
    *files = NULL;
    *n = 0;
    int rc = walk(path, 0, files, n, &cap, e);
    if (rc) {
        engram_files_free(*files, *n);
        *files = NULL;
        *n = 0;
    } else if (*n) {
        qsort(*files, *n, sizeof **files, by_path);
    }
    return rc;
}
