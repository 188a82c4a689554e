#include "odo/tool_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "odo/sandbox.h"

enum { MAX_WRITE = 1 << 20, MAX_DIRS = 32 };

struct root {
    int fd;
};

static int open_beneath(int root, const char *path, int flags, mode_t mode, struct err *e) {
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
    const struct root *r = ud;
    const char *path = json_string_value(json_object_get(args, "path"));
    struct stat st;
    int fd = open_beneath(r->fd, path, O_RDONLY, 0, e);
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
    if (n > 0) { /* whole characters, and a word that it goes on */
        for (size_t back = 0; back < 4 && out->n && !utf8_is_valid(out->p, out->n); ++back)
            buf_cut(out, out->n - 1);
        buf_puts(out, "\n[the file goes on]\n");
    }
    return 0;
}

static int make_folders(int root, const char *path, struct err *e) {
    char part[4096];
    int n = 0;
    for (const char *slash = path; (slash = strchr(slash, '/')); ++slash) {
        size_t len = (size_t)(slash - path);
        if (!len || len >= sizeof part || ++n > MAX_DIRS)
            return err_set(e, CHIMERE_EINVAL,
                           "path: expected a relative path of at most %d folders", MAX_DIRS);
        memcpy(part, path, len);
        part[len] = 0;
        int fd = open_beneath(root, part, O_RDONLY | O_DIRECTORY, 0, NULL);
        if (fd < 0) { /* its parent, confined; then its last name alone */
            char *last = strrchr(part, '/');
            const char *name = last ? last + 1 : part;
            if (last) *last = 0;
            int parent = last ? open_beneath(root, part, O_RDONLY | O_DIRECTORY, 0, e) : dup(root);
            if (parent < 0) return parent;
            int bad = !strcmp(name, "..") || !strcmp(name, ".") || mkdirat(parent, name, 0700);
            close(parent);
            if (bad) return err_set(e, CHIMERE_EREFUSED, "%.200s: cannot make its folder", path);
        } else {
            close(fd);
        }
    }
    return 0;
}

static int write_file(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                      struct err *e) {
    (void)env;
    const struct root *r = ud;
    const char *path = json_string_value(json_object_get(args, "path"));
    const json_t *content = json_object_get(args, "content");
    size_t n = json_string_length(content), done = 0;
    if (n > MAX_WRITE)
        return err_set(e, CHIMERE_ELIMIT, "content: expected at most %d bytes", MAX_WRITE);
    int rc = make_folders(r->fd, path, e);
    if (rc) return rc;
    int fd = open_beneath(r->fd, path, O_WRONLY | O_CREAT, 0600, e);
    if (fd < 0) return fd;
    struct stat st;
    /* a hard link's other name may lie anywhere */
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink != 1) {
        close(fd);
        return err_set(e, CHIMERE_EREFUSED, "%.200s: is no plain file of one name", path);
    }
    bool good = !ftruncate(fd, 0);
    while (good && done < n) {
        ssize_t k = write(fd, json_string_value(content) + done, n - done);
        if (k > 0) done += (size_t)k;
        else if (errno != EINTR) good = false;
    }
    good &= !close(fd);
    if (!good) return err_set(e, CHIMERE_EIO, "%.200s: cannot be written", path);
    buf_printf(out, "%zu bytes written to %s", n, path);
    return 0;
}

static void free_root(void *ud) {
    struct root *r = ud;
    close(r->fd);
    mem_free(r);
}

static struct root *open_root(const char *path, struct err *e) {
    struct root *r = mem_zalloc(sizeof *r);
    if (!r) {
        err_set(e, CHIMERE_ENOMEM, "out of memory");
        return NULL;
    }
    r->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->fd >= 0) return r;
    mem_free(r);
    err_set(e, CHIMERE_ENOENT, "%s: cannot open the folder for files", path);
    return NULL;
}

int tool_files_add(struct tool_set *tools, const char *path, struct err *e) {
    struct root *reads = open_root(path, e), *writes = reads ? open_root(path, e) : NULL;
    if (!writes) {
        if (reads) free_root(reads);
        return e ? e->code : CHIMERE_ENOENT;
    }
    struct tool r = {.name = "read_file",
                     .flags = TOOL_TAINTS_LOCAL,
                     .deadline_ms = 5000,
                     .spec = tool_spec("read_file", "Read a text file, or list a folder.",
                                       "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":"
                                       "\"string\",\"description\":\"Path of the file\"}},"
                                       "\"required\":[\"path\"]}"),
                     .run = read_file,
                     .free = free_root,
                     .ud = reads};
    struct tool w = {.name = "write_file",
                     .flags = TOOL_EFFECT | TOOL_CONFINED,
                     .deadline_ms = 5000,
                     .spec =
                         tool_spec("write_file", "Write a text file, in place of what it held.",
                                   "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":"
                                   "\"string\",\"description\":\"Path of the file\"},\"content\":"
                                   "{\"type\":\"string\"}},\"required\":[\"path\",\"content\"]}"),
                     .run = write_file,
                     .free = free_root,
                     .ud = writes};
    int rc = tool_add(tools, &r, e), rc_write = tool_add(tools, &w, e);
    return rc ? rc : rc_write;
}

/* ---- code ---- */

static const struct language {
    const char *name;
    const char *argv[4];
} languages[] = {
    {"python", {"/usr/bin/python3", "-I", "-", NULL}},
    {"shell", {"/bin/sh", "-s", NULL}},
    {"javascript", {"/usr/bin/node", "-", NULL}},
};

static int run_code(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                    struct err *e) {
    (void)ud;
    const char *name = json_string_value(json_object_get(args, "language"));
    const json_t *code = json_object_get(args, "code");
    const struct language *l = NULL;
    for (size_t i = 0; i < sizeof languages / sizeof *languages; ++i)
        if (!name || !strcmp(languages[i].name, name)) {
            l = &languages[i];
            break;
        }
    if (!l) return err_set(e, CHIMERE_EINVAL, "language: expected python, shell or javascript");
    if (access(l->argv[0], X_OK))
        return err_set(e, CHIMERE_ENOENT, "%s is not installed here", l->argv[0]);
    struct sandbox_job job = {.argv = l->argv,
                              .input = json_string_value(code),
                              .n_input = json_string_length(code),
                              .cancelled = env->cancelled,
                              .deadline_ns = env->deadline_ns,
                              .owner = env->owner};
    struct sandbox_result r;
    struct buf raw;
    buf_init(&raw, TOOL_MAX_OUTPUT);
    sandbox_defaults(&job.limits);
    int rc = sandbox_run(&job, &raw, &r, e);
    if (!rc) sandbox_text(out, &raw, &job, &r);
    buf_fini(&raw);
    return rc;
}

int tool_code_add(struct tool_set *tools, struct err *e) {
    struct tool t = {
        .name = "run_code",
        .flags = TOOL_EFFECT | TOOL_CONFINED,
        .deadline_ms = 45000, /* it may have to wait for its turn */
        .spec =
            tool_spec("run_code", "Run a program, without network and files, and see its output.",
                      "{\"type\":\"object\",\"properties\":{\"language\":{\"type\":\"string\","
                      "\"enum\":[\"python\",\"shell\",\"javascript\"]},\"code\":{\"type\":"
                      "\"string\"}},\"required\":[\"code\"]}"),
        .run = run_code};
    return tool_add(tools, &t, e);
}
