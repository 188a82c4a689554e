#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os/fs.h"
#include "base/os/os.h"
#include "base/rng.h"

static int fail_errno(struct err *e, const char *path, const char *verb) {
    int code = errno == ENOENT ? CHIMERE_ENOENT : errno == ENOMEM ? CHIMERE_ENOMEM : CHIMERE_EIO;
    return err_set(e, code, "%s: cannot %s: %s", path, verb, strerror(errno));
}

int file_map(struct file_map *m, const char *path, struct err *e) {
    *m = (struct file_map){.data = NULL};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return fail_errno(e, path, "open");
    struct fs_info i;
    int rc = 0;
    if (fs_stat_fd(fd, &i)) {
        rc = fail_errno(e, path, "stat");
    } else if (!i.is_file) {
        rc = err_set(e, CHIMERE_EINVAL, "%s: expected a regular file", path);
    } else if (i.bytes > 0) {
        void *p = mmap(NULL, (size_t)i.bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            rc = fail_errno(e, path, "map");
        } else {
            m->data = p;
            m->size = i.bytes;
        }
    }
    close(fd);
    return rc;
}

void file_unmap(struct file_map *m) {
    if (m->data) munmap((void *)m->data, (size_t)m->size);
    *m = (struct file_map){.data = NULL};
}

void file_map_drop(const struct file_map *m, uint64_t from, uint64_t to) {
    uint64_t page = os_page_bytes();
    if (to > m->size) to = m->size;
    if (from > to) return;
    from = (from + page - 1) / page * page;
    to = to / page * page;
    if (from < to) madvise((void *)(m->data + from), (size_t)(to - from), MADV_DONTNEED);
}

int file_read(const char *path, size_t max, char **out, size_t *n, struct err *e) {
    *out = NULL;
    *n = 0;
    int is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno(e, path, "open");
    size_t cap = 1 << 16, have = 0;
    struct fs_info i;
    if (!is_stdin && !fs_stat_fd(fd, &i) && i.is_file && i.bytes > 0)
        cap = i.bytes < max ? (size_t)i.bytes + 2 : max + 2;
    if (max < cap) cap = max + 2;
    char *p = mem_alloc(cap);
    int rc = p ? 0 : err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
    while (!rc) {
        if (have + 1 >= cap) {
            cap = cap > max / 2 ? max + 2 : cap * 2;
            char *grown = mem_realloc(p, cap);
            if (!grown) {
                rc = err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
                break;
            }
            p = grown;
        }
        ssize_t got = read(fd, p + have, cap - have - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) rc = fail_errno(e, path, "read");
        if (got <= 0) break;
        have += (size_t)got;
        if (have > max)
            rc = err_set(e, CHIMERE_ELIMIT, "%s: expected at most %zu bytes, got more", path, max);
    }
    if (!is_stdin) close(fd);
    if (rc) {
        mem_free(p);
        return rc;
    }
    p[have] = 0;
    *out = p;
    *n = have;
    return 0;
}

static void writer_release(struct file_writer *w) {
    mem_free(w->path);
    mem_free(w->temp);
    *w = (struct file_writer){.f = NULL};
}

int file_writer_open(struct file_writer *w, const char *path, struct err *e) {
    *w = (struct file_writer){.f = NULL};
    size_t n = strlen(path) + 48;
    w->path = mem_strdup(path);
    w->temp = mem_alloc(n);
    if (!w->path || !w->temp) {
        writer_release(w);
        return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
    }
    /* the number of a process is not enough: in containers that share a folder, each is number 1 */
    snprintf(w->temp, n, "%s.tmp.%ld.%08x", path, (long)getpid(), (unsigned)rng_entropy());
    w->f = fopen(w->temp, "wbe");
    if (!w->f) {
        int rc = fail_errno(e, w->temp, "create");
        writer_release(w);
        return rc;
    }
    return 0;
}

int file_writer_commit(struct file_writer *w, struct err *e) {
    int rc = 0;
    errno = EIO; /* an earlier write failed; replaced if fflush fails too */
    if (fflush(w->f) || ferror(w->f) || fsync(fileno(w->f))) rc = fail_errno(e, w->temp, "write");
    if (fclose(w->f) && !rc) rc = fail_errno(e, w->temp, "close");
    if (!rc && rename(w->temp, w->path)) rc = fail_errno(e, w->path, "replace");
    if (rc) unlink(w->temp);
    writer_release(w);
    return rc;
}

void file_writer_abort(struct file_writer *w) {
    if (!w->f) return;
    fclose(w->f);
    unlink(w->temp);
    writer_release(w);
}

int file_write(const char *path, const void *data, size_t n, struct err *e) {
    struct file_writer w;
    int rc = file_writer_open(&w, path, e);
    if (rc) return rc;
    if (!n || fwrite(data, 1, n, w.f) == n) return file_writer_commit(&w, e);
    rc = fail_errno(e, path, "write");
    file_writer_abort(&w);
    return rc;
}

bool file_exists(const char *path) { return access(path, F_OK) == 0; }

bool file_can_write(const char *folder) {
    char p[4096];
    size_t n = strlen(folder);
    if (!n || n >= sizeof p) return false;
    memcpy(p, folder, n + 1);
    while (access(p, F_OK) != 0 && errno == ENOENT) { /* find the nearest existing folder */
        char *slash = strrchr(p, '/');
        if (!slash) return access(".", W_OK | X_OK) == 0;
        if (slash == p) return access("/", W_OK | X_OK) == 0;
        *slash = 0;
    }
    return fs_is_folder(p) && access(p, W_OK | X_OK) == 0;
}

int file_mkdirs(const char *path, struct err *e) {
    char p[4096];
    size_t n = strlen(path);
    if (n >= sizeof p) return err_set(e, CHIMERE_ELIMIT, "path of %zu bytes is too long", n);
    memcpy(p, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (p[i] != '/' && p[i] != 0) continue;
        char c = p[i];
        p[i] = 0;
        if (mkdir(p, 0700) && errno != EEXIST) return fail_errno(e, p, "create directory");
        p[i] = c;
    }
    if (!fs_is_folder(path)) return err_set(e, CHIMERE_EIO, "%s: expected a directory", path);
    return 0;
}

static bool join_exists(char *out, size_t size, const char *dir, const char *middle,
                        const char *name) {
    int n = snprintf(out, size, "%s%s%s", dir, middle, name);
    return n > 0 && (size_t)n < size && file_exists(out);
}

int file_program(char *out, size_t out_size, struct err *e) {
    if (os_program(out, out_size)) return 0;
    return err_set(e, CHIMERE_EIO, "the path of the program cannot be read");
}

int file_find_data(const char *name, char *out, size_t out_size) {
    char exe[4096];
    if (!file_program(exe, sizeof exe, NULL)) {
        char *slash = strrchr(exe, '/');
        if (slash) *slash = 0;
        if (join_exists(out, out_size, exe, "/", name)) return 0;
        /* for a program in build/PRESET/chimere */
        if (join_exists(out, out_size, exe, "/../../", name)) return 0;
        if (join_exists(out, out_size, exe, "/../share/chimere/", name)) return 0;
    }
    const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (xdg && join_exists(out, out_size, xdg, "/chimere/", name)) return 0;
    if (home && join_exists(out, out_size, home, "/.local/share/chimere/", name)) return 0;
    return CHIMERE_ENOENT;
}

/* Builds the path of `name` in the folder $variable, or in the home directory if it is not set; creates the folder. */
static int user_path(const char *variable, const char *home_dir, const char *own_dir,
                     const char *name, char *out, size_t out_size, struct err *e) {
    const char *xdg = getenv(variable), *home = getenv("HOME");
    bool own =
        xdg && os_is_absolute(xdg); /* the specification requires relative paths to be ignored */
    if (!own && !(home && *home))
        return err_set(e, CHIMERE_ENOENT, "no folder of the user: neither HOME nor %s is set",
                       variable);
    int dir = snprintf(out, out_size, "%s%s", own ? xdg : home, own ? own_dir : home_dir);
    if (dir < 0 || (size_t)dir + strlen(name) + 2 > out_size)
        return err_set(e, CHIMERE_ELIMIT, "the path of the user's folder is too long");
    int rc = file_mkdirs(out, e);
    if (!rc) snprintf(out + dir, out_size - (size_t)dir, "/%s", name);
    return rc;
}

int file_user_data(const char *name, char *out, size_t out_size, struct err *e) {
    return user_path("XDG_DATA_HOME", "/.local/share/chimere", "/chimere", name, out, out_size, e);
}

int file_user_unit(const char *name, char *out, size_t out_size, struct err *e) {
    return user_path("XDG_CONFIG_HOME", "/.config/systemd/user", "/systemd/user", name, out,
                     out_size, e);
}
