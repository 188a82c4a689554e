#include "odo/pipeline/pipeline_edit.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/mem.h"

static int path_of(const struct pipeline_dir *d, const char *name, char out[PATH_MAX],
                   struct err *e) {
    size_t n = strlen(name);
    bool good = n && n <= PIPELINE_MAX_NAME && strcmp(name, "intent");
    for (size_t i = 0; i < n && good; i++)
        good = isalnum((unsigned char)name[i]) || (i && (name[i] == '-' || name[i] == '_'));
    if (!good)
        return err_set(e, CHIMERE_EINVAL,
                       "name: expected 1 to %d letters, digits, '-' and '_', not intent",
                       PIPELINE_MAX_NAME);
    int len = snprintf(out, PATH_MAX, "%s/%s.yaml", pipeline_dir_path(d), name);
    return len < PATH_MAX ? 0 : err_set(e, CHIMERE_ELIMIT, "%s: the path is too long", name);
}

int pipeline_text(const struct pipeline_dir *d, const char *name, struct buf *out, struct err *e) {
    char path[PATH_MAX], *text = NULL;
    size_t n = 0;
    int rc = path_of(d, name, path, e);
    if (!rc) rc = file_read(path, YAMLFILE_MAX_BYTES, &text, &n, e);
    if (!rc) rc = buf_put(out, text, n);
    mem_free(text);
    return rc;
}

int pipeline_put(struct pipeline_dir *d, const char *name, const char *text, size_t n,
                 struct err *e) {
    char path[PATH_MAX], *old = NULL;
    size_t n_old = 0;
    struct err none = {0};
    int rc = path_of(d, name, path, e);
    if (!rc) rc = pipeline_check(name, text, n, e);
    if (rc) return rc;
    bool was = file_read(path, YAMLFILE_MAX_BYTES, &old, &n_old, &none) == 0;
    rc = file_write(path, text, n, e);
    /* fails if its persona is missing or there are too many files */
    if (!rc && (rc = pipeline_dir_reload(d, e)) != 0) {
        if (was) file_write(path, old, n_old, &none);
        else fs_remove(path);
        pipeline_dir_reload(d, &none);
    }
    mem_free(old);
    return rc;
}

int pipeline_remove(struct pipeline_dir *d, const char *name, struct err *e) {
    char path[PATH_MAX];
    int rc = path_of(d, name, path, e);
    if (!rc && !strcmp(name, "default"))
        rc = err_set(e, CHIMERE_EINVAL, "name: the pipeline default stays; it can be changed");
    if (!rc && fs_remove(path))
        rc = err_set(e, errno == ENOENT ? CHIMERE_ENOENT : CHIMERE_EIO, "%s: %s", path,
                     strerror(errno));
    return rc ? rc : pipeline_dir_reload(d, e);
}
