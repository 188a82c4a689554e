#include "tools/tool_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "tools/tool_files_impl.h"

int tool_open_beneath(int root, const char *path, int flags, mode_t mode, struct err *e) {
    struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC | O_NONBLOCK,
                           .mode = mode,
                           .resolve =
                               RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    if (!*path) return err_set(e, CHIMERE_EINVAL, "path: expected a name");
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    if (fd >= 0) return fd;
    switch (errno) {
    case ENOENT: return err_set(e, CHIMERE_ENOENT, "%.200s: not found", path);
    case EXDEV:
    case ELOOP:
        return err_set(e, CHIMERE_EREFUSED, "%.200s: leads out of the folder, or is a link", path);
    case ENOSYS: return err_set(e, CHIMERE_EREFUSED, "this kernel cannot confine paths (openat2)");
    case EISDIR: return err_set(e, CHIMERE_EINVAL, "%.200s: is a folder", path);
    default: return err_set(e, CHIMERE_EIO, "%.200s: cannot be opened", path);
    }
}

static int list_folder(int fd, struct buf *out) {
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return CHIMERE_EIO;
    }
    int n = 0;
    for (const struct dirent *t; (t = readdir(d)) && n < 500;)
        if (t->d_name[0] != '.' && utf8_is_valid(t->d_name, strlen(t->d_name)))
            ++n, buf_printf(out, "%s%s\n", t->d_name, t->d_type == DT_DIR ? "/" : "");
    closedir(d);
    return 0;
}

static int read_file(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                     struct err *e) {
    (void)env;
    const struct tool_root *r = ud;
    const char *path = json_string_value(json_object_get(args, "path"));
    struct stat st;
    int fd = tool_open_beneath(r->fd, path, O_RDONLY, 0, e);
    if (fd < 0) return fd;
    if (fstat(fd, &st) || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
        close(fd);
        return err_set(e, CHIMERE_EREFUSED, "%.200s: is no plain file", path);
    }
    if (S_ISDIR(st.st_mode)) return list_folder(fd, out);
    char part[4096];
    ssize_t n;
    while ((n = read(fd, part, sizeof part)) > 0 && out->n + (size_t)n < TOOL_MAX_OUTPUT - 64)
        buf_put(out, part, (size_t)n);
    close(fd);
    if (n > 0) { /* do not cut a character, and note that there is more */
        for (size_t back = 0; back < 4 && out->n && !utf8_is_valid(out->p, out->n); ++back)
            buf_cut(out, out->n - 1);
        buf_puts(out, "\n[the file goes on]\n");
    }
    return 0;
}

static void free_root(void *ud) {
    struct tool_root *r = ud;
    close(r->fd);
    mem_free(r);
}

static struct tool_root *open_root(const struct tool_files *f, struct err *e) {
    struct tool_root *r = mem_zalloc(sizeof *r);
    if (!r) {
        err_set(e, CHIMERE_ENOMEM, "out of memory");
        return NULL;
    }
    r->fd = open(f->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r->left_bytes = f->quota_bytes;
    r->build_files = f->build_files;
    if (r->fd >= 0) return r;
    mem_free(r);
    err_set(e, CHIMERE_ENOENT, "%s: cannot open the folder for files", f->root);
    return NULL;
}

int tool_files_add(struct tool_set *tools, const struct tool_files *f, struct err *e) {
    struct tool_root *reads = open_root(f, e), *writes = reads ? open_root(f, e) : NULL;
    if (!writes) {
        if (reads) free_root(reads);
        return e ? e->code : CHIMERE_ENOENT;
    }
    struct tool r = {.name = "read_file",
                     .flags = f->trusted ? 0 : TOOL_TAINTS_LOCAL,
                     .deadline_ms = 5000,
                     .spec = tool_spec("read_file", "Read a text file, or list a folder.",
                                       "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":"
                                       "\"string\",\"description\":\"Path of the file\"}},"
                                       "\"required\":[\"path\"]}"),
                     .run = read_file,
                     .free = free_root,
                     .ud = reads};
    struct tool w = {.name = "write_file",
                     .flags = TOOL_EFFECT | TOOL_CONFINED | TOOL_PERSISTS,
                     .deadline_ms = 5000,
                     .spec =
                         tool_spec("write_file", "Write a text file, in place of what it held.",
                                   "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":"
                                   "\"string\",\"description\":\"Path of the file\"},\"content\":"
                                   "{\"type\":\"string\"}},\"required\":[\"path\",\"content\"]}"),
                     .run = tool_write_file,
                     .free = free_root,
                     .ud = writes};
    int rc = tool_add(tools, &r, e), rc_write = tool_add(tools, &w, e);
    return rc ? rc : rc_write;
}
