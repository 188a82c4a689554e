/* sandbox_child.c: the child's work between clone and exec. It may only make system calls: locks that other
 * threads of the parent held are never released in the child. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/sandbox_impl.h"

const char sandbox_no_program[] = "starting the program";

_Noreturn static void give_up(const struct sandbox_plan *p, const char *what) {
    ssize_t n = write(p->control, what, strlen(what));
    (void)n;
    _exit(120);
}

/* Folders visible inside. /usr/bin/awk and other programs with alternatives are links into /etc/alternatives. */
static const char *const shown[] = {
    "usr", "bin", "sbin", "lib", "lib64", "lib32", "etc/alternatives"};
static const char *const devices[] = {"dev/null", "dev/zero", "dev/urandom"};

static void put_number(char *to, unsigned n) {
    size_t digits = 1;
    for (unsigned k = n; k >= 10; k /= 10) ++digits;
    for (to[digits] = 0; digits; n /= 10) to[--digits] = (char)('0' + n % 10);
}

/* ---- the root folder ---- */

static void bind_folder(const struct sandbox_plan *p) {
    char from[40] = "/proc/self/fd/";
    put_number(from + strlen(from), (unsigned)p->folder);
    if (mkdir(&SANDBOX_FOLDER[1], 0755) || mount(from, &SANDBOX_FOLDER[1], NULL, MS_BIND, NULL) ||
        mount(NULL, &SANDBOX_FOLDER[1], NULL,
              MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL))
        give_up(p, "binding its folder");
}

static void bind_system(const struct sandbox_plan *p) {
    for (size_t i = 0; i < sizeof shown / sizeof *shown; ++i) {
        char from[32] = "/", link[64];
        memcpy(from + 1, shown[i], strlen(shown[i]));
        ssize_t n = readlink(from, link, sizeof link - 1);
        if (n > 0) { /* a link, as in a merged /usr: bin -> usr/bin */
            link[n] = 0;
            if (symlink(link, shown[i])) give_up(p, "linking a folder");
            continue;
        }
        if (access(from, F_OK)) continue;
        if (mkdir(shown[i], 0755) || mount(from, shown[i], NULL, MS_BIND | MS_REC, NULL) ||
            mount(NULL, shown[i], NULL,
                  MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_REC, NULL))
            give_up(p, "binding the system's programs");
    }
    for (size_t i = 0; i < sizeof devices / sizeof *devices; ++i) {
        char from[32] = "/";
        memcpy(from + 1, devices[i], strlen(devices[i]));
        int fd = open(devices[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        if (fd < 0 || close(fd) || mount(from, devices[i], NULL, MS_BIND, NULL))
            give_up(p, "binding a device");
    }
}

/* Mounts a tmpfs at /tmp of the new namespace and makes it the root "/". */
static void build_root(const struct sandbox_plan *p) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) give_up(p, "making mounts private");
    /* each empty file uses a kilobyte of kernel memory, so the number of files is limited too */
    if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,nr_inodes=16384,mode=755"))
        give_up(p, "mounting a root");
    if (chdir("/tmp") || mkdir("old", 0700) || mkdir("tmp", 0777) || mkdir("proc", 0755) ||
        mkdir("dev", 0755) || mkdir("etc", 0755))
        give_up(p, "making folders");
    bind_system(p);
    if (p->folder >= 0) bind_folder(p);
    /* a container may refuse this; then there is no /proc inside */
    mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL);
    if (syscall(SYS_pivot_root, ".", "old") || chdir("/") || umount2("/old", MNT_DETACH) ||
        rmdir("/old") || chdir("/tmp"))
        give_up(p, "entering the root");
    if (p->folder >= 0 && access(SANDBOX_FOLDER, R_OK | X_OK))
        give_up(p, "reading its folder: a server that runs as root needs it readable by all");
}

/* ---- Landlock ---- */

struct rules { /* layout of Landlock version 6; older kernels read only the first members */
    uint64_t files, net, scoped;
};
enum {
    LANDLOCK_RX =
        LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR
};

static long landlock_version(void) {
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

bool sandbox_has_landlock(void) { return landlock_version() > 0; }

static void permit(int rules, int fd, uint64_t access) {
    struct landlock_path_beneath_attr a = {.allowed_access = access, .parent_fd = fd};
    if (fd >= 0) syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &a, 0);
}

static void permit_path(int rules, const char *path, uint64_t access) {
    int fd = open(path, O_PATH | O_CLOEXEC);
    permit(rules, fd, access);
    if (fd >= 0) close(fd);
}

/* Handles every right that the kernel's version knows: what no rule permits is refused. */
static void restrict_files(const struct sandbox_plan *p) {
    static const unsigned char n_right[] = {13, 14, 15, 15, 16}; /* versions 1 to 5 */
    long version = landlock_version();
    if (version <= 0) {
        if (p->level == SANDBOX_FILTERED) give_up(p, "Landlock");
        return;
    }
    uint64_t all = ((uint64_t)1 << n_right[version < 5 ? version - 1 : 4]) - 1;
    struct rules r = {all, version >= 4 ? 3 : 0 /* TCP: bind, connect */,
                      version >= 6 ? 3 : 0 /* abstract sockets, signals */};
    size_t size = version < 4 ? 8 : version < 6 ? 16 : sizeof r;
    int fd = (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
    if (fd < 0) give_up(p, "Landlock");
    if (p->level == SANDBOX_NAMESPACES) {
        permit_path(fd, "/", LANDLOCK_RX);
        permit_path(fd, "/tmp", all);
        permit_path(fd, "/dev", LANDLOCK_RX | LANDLOCK_ACCESS_FS_WRITE_FILE);
    } else {
        for (size_t i = 0; i < sizeof shown / sizeof *shown; ++i) {
            char path[32] = "/";
            memcpy(path + 1, shown[i], strlen(shown[i]));
            permit_path(fd, path, LANDLOCK_RX);
        }
        permit_path(fd, "/etc/ld.so.cache", LANDLOCK_ACCESS_FS_READ_FILE);
        permit_path(fd, "/dev/null", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
        permit_path(fd, "/dev/urandom", LANDLOCK_ACCESS_FS_READ_FILE);
#ifdef __SANITIZE_ADDRESS__ /* the sanitizer reads its memory map and its options there */
        permit_path(fd, "/proc/self/maps", LANDLOCK_ACCESS_FS_READ_FILE);
        permit_path(fd, "/proc/self/environ", LANDLOCK_ACCESS_FS_READ_FILE);
#endif
    }
    permit(fd, p->program, LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE);
    if (syscall(SYS_landlock_restrict_self, fd, 0)) give_up(p, "Landlock");
    close(fd);
}

/* ---- limits and exec ---- */

static bool limit(int what, uint64_t value) {
    struct rlimit l;
    if (getrlimit((__rlimit_resource_t)what, &l)) return false;
    if (l.rlim_max > value) l.rlim_max = value;
    l.rlim_cur = l.rlim_max;
    return !setrlimit((__rlimit_resource_t)what, &l);
}

/* A sanitizer maps terabytes of shadow memory as data. If this program's own file was built with one, only the
 * limit of resident memory applies. */
static bool limit_memory(const struct sandbox_job *j) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    if (j->self) return true;
#endif
    return limit(RLIMIT_DATA, j->limits.memory_bytes);
}

static void set_limits(const struct sandbox_plan *p) {
    const struct sandbox_limits *l = &p->job->limits;
    bool own = p->level == SANDBOX_NAMESPACES;
    /* without namespaces, the user's other processes would count; the filter then refuses new processes anyway */
    if (!limit(RLIMIT_CPU, (uint64_t)l->cpu_s) || !limit_memory(p->job) ||
        !limit(RLIMIT_FSIZE, own ? l->file_bytes : 0) || !limit(RLIMIT_NOFILE, 64) ||
        !limit(RLIMIT_CORE, 0) || !limit(RLIMIT_MSGQUEUE, 0) ||
        (own && !limit(RLIMIT_NPROC, (uint64_t)l->n_process)))
        give_up(p, "setting limits");
}

/* Closes all other descriptors. A pipe of the parent or of another run that stayed open here would keep its reader
 * waiting. */
static void close_others(const struct sandbox_plan *p) {
    int keep[] = {p->in, p->out, p->control, p->folder, p->program};
    enum { N = sizeof keep / sizeof *keep };
    for (int i = 1; i < N; ++i)
        for (int k = i; k && keep[k - 1] > keep[k]; --k) {
            int t = keep[k];
            keep[k] = keep[k - 1];
            keep[k - 1] = t;
        }
    unsigned from = 3;
    for (int i = 0; i < N; ++i) {
        if (keep[i] < (int)from) continue;
        if (keep[i] > (int)from) syscall(SYS_close_range, from, keep[i] - 1, 0);
        from = (unsigned)keep[i] + 1;
    }
    syscall(SYS_close_range, from, ~0U, 0);
}

/* Uses raw system calls: the C library would signal threads that do not exist in the child. The process limit does
 * not apply to a user who is root outside, so the parent maps root's program to nobody. */
static void become_user(const struct sandbox_plan *p) {
    unsigned id = p->level == SANDBOX_NAMESPACES ? SANDBOX_UID : SANDBOX_NOBODY;
    if (p->level != SANDBOX_NAMESPACES && !p->shed_root) return;
    syscall(SYS_setgroups, 0, NULL); /* fails if the parent is not root, and is not needed then */
    if (syscall(SYS_setresgid, id, id, id) || syscall(SYS_setresuid, id, id, id))
        give_up(p, "changing the user");
}

static void wait_for_parent(const struct sandbox_plan *p) {
    char go;
    ssize_t n;
    while ((n = read(p->control, &go, 1)) < 0 && errno == EINTR) {}
    if (n != 1) _exit(120);
}

static void die_with_parent(const struct sandbox_plan *p) {
    char none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* the parent is already dead */
    if (!recv(p->control, &none, 1, MSG_DONTWAIT | MSG_PEEK)) _exit(120);
}

static void reset_signals(void) {
    sigset_t none;
    for (int i = 1; i < 32; ++i) signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

_Noreturn void sandbox_child(const struct sandbox_plan *p) {
    static char *const environment[] = {"PATH=/usr/bin:/bin",
                                        "HOME=/tmp",
                                        "LANG=C.UTF-8",
                                        "PYTHONDONTWRITEBYTECODE=1",
                                        "OPENBLAS_NUM_THREADS=1",
                                        "OMP_NUM_THREADS=1",
#ifdef __SANITIZE_ADDRESS__ /* the leak checker uses ptrace, which the filter refuses */
                                        "ASAN_OPTIONS=detect_leaks=0",
#endif
                                        NULL};
    close_others(p);
    wait_for_parent(p);
    int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    /* if memory is short, the kernel kills this process first */
    if (score >= 0 && write(score, "1000", 4) == 4) {}
    if (score >= 0) close(score);
    become_user(p);
    die_with_parent(p);
    if (p->level == SANDBOX_NAMESPACES) build_root(p);
    else if (chdir("/")) give_up(p, "entering the root");
    set_limits(p);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) give_up(p, "giving up privileges");
    if (p->level != SANDBOX_BARE) restrict_files(p);
    if (dup2(p->in, 0) < 0 || dup2(p->out, 1) < 0 || dup2(p->out, 2) < 0) give_up(p, "its pipes");
    if (p->in > 2) close(p->in); /* exec closes control */
    if (p->out > 2) close(p->out);
    umask(077);
    reset_signals();
    struct sock_fprog filter = {p->n_filter, (struct sock_filter *)p->filter};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) give_up(p, "filtering system calls");
    char *const *argv = (char *const *)p->job->argv;
    if (p->program >= 0) syscall(SYS_execveat, p->program, "", argv, environment, AT_EMPTY_PATH);
    else execve(argv[0], argv, environment);
    give_up(p, sandbox_no_program);
}
