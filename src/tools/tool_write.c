/* tool_write.c: write_file. A file that the model writes is data: it must never become a file that another program
 * executes or loads. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "tools/tool_files_impl.h"

enum { MAX_WRITE = 1 << 20, MAX_DIRS = 32, MAX_DIFF = 8 << 10, CONTEXT = 3, WRITE_COST = 4096 };

/* ---- refused names ---- */

/* Files that build tools, package managers, interpreters and desktops execute or load as soon as somebody works in
 * the folder. */
static const char *const build_names[] = {
    "makefile",
    "makefile.*",
    "gnumakefile",
    "*.mk",
    "cmakelists.txt",
    "*.cmake",
    "package.json",
    "*.gradle",
    "*.gradle.kts",
    "gradlew*",
    "mvnw*",
    "pom.xml",
    "setup.py",
    "setup.cfg",
    "pyproject.toml",
    "conftest.py",
    "noxfile.py",
    "tox.ini",
    "pytest.ini",
    "sitecustomize.py",
    "usercustomize.py",
    "*.pth",
    "dockerfile*",
    "*compose.y*ml",
    "vagrantfile",
    "rakefile",
    "gemfile",
    "*.gemspec",
    "jenkinsfile",
    "justfile",
    "taskfile.y*ml",
    "cargo.toml",
    "build.rs",
    "configure",
    "configure.ac",
    "meson.build",
    "build.ninja",
    "build",
    "build.bazel",
    "workspace",
    "*.bzl",
    "*.config.js",
    "*.config.ts",
    "*.config.mjs",
    "*.config.cjs",
    "gulpfile.*",
    "gruntfile.*",
    "composer.json",
    "tsconfig.json",
    "go.mod",
    "flake.nix",
    "default.nix",
    "shell.nix",
    "*.desktop",
    "*.service",
    "*.timer",
    "*.so",
    "*.so.*",
    "*.dll",
    "*.pyc",
    "*.sln",
    "*.csproj",
    "*.vcxproj",
    "autorun.inf",
    "crontab",
    "procfile",
    "head", /* part of a bare repository, which git opens in any folder */
};

/* Returns true if the first n bytes of a path component match the list, ignoring case. */
static bool is_build_name(const char *s, size_t n) {
    char name[256];
    if (n >= sizeof name) return false;
    for (size_t i = 0; i < n; ++i)
        name[i] = (char)(s[i] >= 'A' && s[i] <= 'Z' ? s[i] - 'A' + 'a' : s[i]);
    name[n] = 0;
    for (size_t i = 0; i < sizeof build_names / sizeof *build_names; ++i)
        if (!fnmatch(build_names[i], name, 0)) return true;
    return false;
}

static int check_name(const struct tool_root *r, const char *path, struct err *e) {
    for (const char *s = path; *s;) {
        size_t n = strcspn(s, "/");
        bool last = !s[n], here = n == 1 && *s == '.', up = n == 2 && s[0] == '.' && s[1] == '.';
        if (n && *s == '.' && !here && !up)
            return err_set(e, CHIMERE_EREFUSED,
                           "%.200s: names that begin with a dot are settings of other programs",
                           path);
        if (last && !r->build_files && is_build_name(s, n))
            return err_set(
                e, CHIMERE_EREFUSED,
                "%.200s: other programs execute or load it; the server's owner can allow "
                "such files (--files-build)",
                path);
        s += n + !last;
    }
    return 0;
}

/* ---- folders ---- */

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
        int fd = tool_open_beneath(root, part, O_RDONLY | O_DIRECTORY, 0, NULL);
        if (fd < 0) { /* open the parent beneath the root, then create only the last component */
            char *last = strrchr(part, '/');
            const char *name = last ? last + 1 : part;
            if (last) *last = 0;
            int parent =
                last ? tool_open_beneath(root, part, O_RDONLY | O_DIRECTORY, 0, e) : dup(root);
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

/* Opens the folder of a path and creates it if necessary. *name: the last component of the path. */
static int open_parent(const struct tool_root *r, const char *path, const char **name,
                       struct err *e) {
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!**name || !strcmp(*name, ".") || !strcmp(*name, ".."))
        return err_set(e, CHIMERE_EINVAL, "path: expected the name of a file");
    int rc = make_folders(r->fd, path, e);
    if (rc) return rc;
    if (!slash) return tool_open_beneath(r->fd, ".", O_RDONLY | O_DIRECTORY, 0, e);
    char *folder = mem_strndup(path, (size_t)(slash - path));
    if (!folder) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int fd = tool_open_beneath(r->fd, folder, O_RDONLY | O_DIRECTORY, 0, e);
    mem_free(folder);
    return fd;
}

/* ---- earlier content ---- */

struct earlier {
    bool exists;
    mode_t mode;
    char *text; /* owned; NULL: too large for a diff, or not text */
    size_t n;
};

static int read_earlier(const struct tool_root *r, const char *path, struct earlier *old,
                        struct err *e) {
    struct stat st;
    struct err why = {0};
    int fd = tool_open_beneath(r->fd, path, O_RDONLY, 0, &why);
    if (fd == CHIMERE_ENOENT) return 0;
    if (fd < 0) return err_set(e, fd, "%s", why.text);
    int rc = 0;
    /* another name of a hard link may be anywhere on the file system */
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink != 1)
        rc = err_set(e, CHIMERE_EREFUSED, "%.200s: is not a plain file with one name", path);
    else if (st.st_mode & 0111) rc = err_set(e, CHIMERE_EREFUSED, "%.200s: is executable", path);
    old->exists = true;
    old->mode = st.st_mode & 0666;
    if (!rc && st.st_size <= MAX_WRITE && (old->text = mem_alloc((size_t)st.st_size + 1))) {
        ssize_t k;
        while (old->n < (size_t)st.st_size &&
               (k = read(fd, old->text + old->n, (size_t)st.st_size - old->n)) > 0)
            old->n += (size_t)k;
        if (!utf8_is_valid(old->text, old->n)) {
            mem_free(old->text);
            old->text = NULL;
        }
    }
    close(fd);
    return rc;
}

/* Adds a hard link to the file in the backup folder. The content is not copied, and the original name is replaced
 * later in one step. */
static int keep_backup(const struct tool_root *r, const char *path, int parent, const char *name,
                       struct err *e) {
    char to[200], from[200], stem[160];
    snprintf(stem, sizeof stem, "%016llx-%.100s",
             (unsigned long long)hash_bytes(path, strlen(path), 0), name);
    mkdirat(r->fd, TOOL_FILES_BACKUP_DIR, 0700);
    int dir = openat(r->fd, TOOL_FILES_BACKUP_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (int k = TOOL_FILES_BACKUPS; dir >= 0 && k > 1; --k) {
        snprintf(from, sizeof from, "%s.%d", stem, k - 1);
        snprintf(to, sizeof to, "%s.%d", stem, k);
        renameat(dir, from, dir, to); /* this backup may not exist yet */
    }
    snprintf(to, sizeof to, "%s.1", stem);
    int rc =
        dir < 0 || linkat(parent, name, dir, to, 0)
            ? err_set(e, CHIMERE_EIO, "%.200s: no backup can be kept, so it was not written", path)
            : 0;
    if (dir >= 0) close(dir);
    return rc;
}

/* ---- writing ---- */

static int write_temp(int parent, const char *temp, mode_t mode, const char *text, size_t n) {
    int fd = openat(parent, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t done = 0;
    if (fd < 0) return CHIMERE_EIO;
    bool good = true;
    while (good && done < n) {
        ssize_t k = write(fd, text + done, n - done);
        if (k > 0) done += (size_t)k;
        else if (errno != EINTR) good = false;
    }
    good &= !fchmod(fd, mode) && !fsync(fd);
    good &= !close(fd);
    return good ? 0 : CHIMERE_EIO;
}

/* Replaces a file in one step: readers see the old content or the new. On failure the old file remains. */
static int replace(const struct tool_root *r, const char *path, const struct earlier *old,
                   const char *text, size_t n, struct err *e) {
    const char *name;
    char temp[48];
    int parent = open_parent(r, path, &name, e);
    if (parent < 0) return parent;
    snprintf(temp, sizeof temp, ".chimere-%016llx.tmp", (unsigned long long)rng_entropy());
    int rc = write_temp(parent, temp, old->exists ? old->mode : 0600, text, n);
    if (rc) err_set(e, rc, "%.200s: cannot be written", path);
    if (!rc && old->exists) rc = keep_backup(r, path, parent, name, e);
    if (!rc && renameat(parent, temp, parent, name))
        rc = err_set(e, CHIMERE_EIO, "%.200s: cannot be written", path);
    if (rc) unlinkat(parent, temp, 0);
    else fsync(parent);
    close(parent);
    return rc;
}

static int spend(struct tool_root *r, size_t n, struct err *e) {
    int64_t cost = (int64_t)n + WRITE_COST;
    if (atomic_fetch_sub(&r->left_bytes, cost) >= cost) return 0;
    atomic_fetch_add(&r->left_bytes, cost);
    return err_set(e, CHIMERE_ELIMIT, "the quota of write_file is used up (--files-quota)");
}

int tool_write_file(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                    struct err *e) {
    (void)env;
    struct tool_root *r = ud;
    const char *path = json_string_value(json_object_get(args, "path"));
    const json_t *content = json_object_get(args, "content");
    const char *text = json_string_value(content);
    size_t n = json_string_length(content);
    struct earlier old = {0};
    if (n > MAX_WRITE)
        return err_set(e, CHIMERE_ELIMIT, "content: expected at most %d bytes", MAX_WRITE);
    int rc = check_name(r, path, e);
    if (!rc) rc = read_earlier(r, path, &old, e);
    if (!rc) rc = spend(r, n, e);
    if (!rc) rc = replace(r, path, &old, text, n, e);
    if (!rc) {
        buf_printf(out, "%zu bytes written to %s%s\n", n, path, old.exists ? "" : " (new)");
        if (old.text) tool_put_diff(out, path, old.text, old.n, text, n);
    }
    mem_free(old.text);
    return rc;
}

/* ---- the diff ---- */

static size_t line_end(const char *s, size_t i, size_t n) {
    const char *end = i < n ? memchr(s + i, '\n', n - i) : NULL;
    return end ? (size_t)(end - s) + 1 : n;
}

static size_t line_start(const char *s, size_t i) { /* start of the line that ends before i */
    if (i) --i;
    while (i && s[i - 1] != '\n') --i;
    return i;
}

static int count_lines(const char *s, size_t from, size_t to) {
    int n = 0;
    for (; from < to; ++n) from = line_end(s, from, to);
    return n;
}

static void put_lines(struct buf *out, size_t most, char sign, const char *s, size_t from,
                      size_t to) {
    while (from < to && out->n < most) {
        size_t end = line_end(s, from, to);
        bool closed = s[end - 1] == '\n';
        buf_putc(out, sign);
        buf_put(out, s + from, end - from);
        if (!closed) buf_puts(out, "\n\\ No newline at end of file\n");
        from = end;
    }
}

void tool_put_diff(struct buf *out, const char *path, const char *old, size_t n_old,
                   const char *text, size_t n) {
    size_t head = 0, tail_old = n_old, tail = n;
    for (size_t a, b; head < n_old && head < n; head = a) {
        a = line_end(old, head, n_old), b = line_end(text, head, n);
        if (a != b || memcmp(old + head, text + head, a - head) != 0) break;
    }
    while (tail_old > head && tail > head) {
        size_t a = line_start(old, tail_old), b = line_start(text, tail);
        if (a < head || b < head || tail_old - a != tail - b ||
            memcmp(old + a, text + b, tail - b) != 0)
            break;
        tail_old = a, tail = b;
    }
    if (head == tail_old && head == tail) {
        buf_puts(out, "(unchanged)\n");
        return;
    }
    size_t from = head, to_old = tail_old, to = tail, most = out->n + MAX_DIFF;
    for (int i = 0; i < CONTEXT; ++i) {
        from = from ? line_start(old, from) : 0;
        to_old = line_end(old, to_old, n_old);
        to = line_end(text, to, n);
    }
    int line = count_lines(old, 0, from);
    int n_before = count_lines(old, from, to_old), n_after = count_lines(text, from, to);
    buf_printf(out, "--- %s\n+++ %s\n@@ -%d,%d +%d,%d @@\n", path, path, line + (n_before > 0),
               n_before, line + (n_after > 0), n_after);
    put_lines(out, most, ' ', old, from, head);
    put_lines(out, most, '-', old, head, tail_old);
    put_lines(out, most, '+', text, head, tail);
    put_lines(out, most, ' ', old, tail_old, to_old);
    if (out->n >= most) buf_puts(out, "[the diff is longer]\n");
}
