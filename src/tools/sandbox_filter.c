/* sandbox_filter.c: the system calls that a sandboxed program may make. Other calls fail with ENOSYS, as on an
 * older kernel, so that libraries use a fallback. Not allowed are, among others: unshare, setns, clone3 (its flags
 * are in memory that a filter cannot read), bpf, io_uring, userfaultfd, perf_event_open, ptrace, keyctl, mount,
 * System V shared memory, semaphores and queues, and memfd_create (memory that no process maps would not be
 * counted). */
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "tools/sandbox_impl.h"

#if defined __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined __riscv && __riscv_xlen == 64
#define ARCHITECTURE AUDIT_ARCH_RISCV64
#else
/* unknown architecture: refuses every call, so the sandbox is not available */
#define ARCHITECTURE 0
#endif

/* clang-format off */
static const short always[] = {
    /* files */
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_preadv2,
    SYS_pwritev2, SYS_openat, SYS_close, SYS_lseek, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_faccessat,
    SYS_readlinkat, SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_dup, SYS_dup3, SYS_fcntl, SYS_flock,
    SYS_fsync, SYS_fdatasync, SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_fadvise64, SYS_readahead, SYS_mkdirat,
    SYS_mknodat, SYS_unlinkat, SYS_linkat, SYS_symlinkat, SYS_renameat2, SYS_fchmod, SYS_fchmodat, SYS_fchown,
    SYS_fchownat, SYS_utimensat, SYS_umask, SYS_statfs, SYS_fstatfs, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr,
    SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_sendfile, SYS_copy_file_range, SYS_ioctl, SYS_pipe2,
    SYS_sync_file_range,
    /* waiting */
    SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_eventfd2, SYS_signalfd4,
    SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime, SYS_inotify_init1, SYS_inotify_add_watch,
    SYS_inotify_rm_watch, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday,
    SYS_getitimer, SYS_setitimer, SYS_timer_create, SYS_timer_settime, SYS_timer_gettime, SYS_timer_getoverrun,
    SYS_timer_delete, SYS_restart_syscall,
    /* memory */
    SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_msync, SYS_mincore, SYS_mlock,
    SYS_munlock, SYS_get_mempolicy,
    /* processes and threads */
    SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_futex, SYS_set_tid_address,
    SYS_set_robust_list, SYS_get_robust_list, SYS_membarrier, SYS_sched_yield, SYS_sched_getaffinity,
    SYS_sched_setaffinity, SYS_sched_getparam, SYS_sched_getscheduler, SYS_sched_get_priority_max,
    SYS_sched_get_priority_min, SYS_getpriority, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getpgid, SYS_getsid,
    SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_capget,
    SYS_getrusage, SYS_times, SYS_sysinfo, SYS_uname, SYS_getcpu, SYS_getrandom, SYS_prlimit64,
    /* signals */
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait, SYS_sigaltstack,
#ifdef SYS_getrlimit /* not on all architectures */
    SYS_getrlimit, SYS_setrlimit,
#endif
#ifdef SYS_rseq
    SYS_rseq,
#endif
#ifdef SYS_faccessat2
    SYS_faccessat2,
#endif
#ifdef SYS_close_range
    SYS_close_range,
#endif
#ifdef SYS_epoll_pwait2
    SYS_epoll_pwait2,
#endif
#ifdef SYS_renameat
    SYS_renameat,
#endif
#ifdef SYS_riscv_flush_icache
    SYS_riscv_flush_icache,
#endif
#ifdef __x86_64__
    SYS_open, SYS_creat, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_getdents, SYS_dup2, SYS_mkdir, SYS_rmdir,
    SYS_mknod, SYS_unlink, SYS_link, SYS_symlink, SYS_rename, SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes,
    SYS_futimesat, SYS_pipe, SYS_poll, SYS_select, SYS_epoll_create, SYS_epoll_wait, SYS_eventfd, SYS_signalfd,
    SYS_inotify_init, SYS_alarm, SYS_pause, SYS_time, SYS_getpgrp, SYS_arch_prctl,
#endif
};
/* Allowed only with a PID namespace: these calls can reach other processes. */
static const short among_others[] = {
    SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_setpgid, SYS_setsid,
    SYS_setpriority,
    SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect, SYS_getsockname, SYS_getpeername, SYS_sendto,
    SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg, SYS_setsockopt, SYS_getsockopt, SYS_shutdown,
#ifdef SYS_pidfd_open
    SYS_pidfd_open,
#endif
    SYS_pidfd_send_signal,
#ifdef __x86_64__
    SYS_fork, SYS_vfork,
#endif
};
static const int options[] = { /* allowed options of prctl */
    PR_SET_NAME, PR_GET_NAME, PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_NO_NEW_PRIVS,
    PR_GET_NO_NEW_PRIVS, PR_CAPBSET_READ, PR_GET_SECCOMP, PR_SET_TIMERSLACK, PR_GET_TIMERSLACK, PR_SET_THP_DISABLE,
    PR_GET_THP_DISABLE, 0x53564d41 /* PR_SET_VMA: names of mappings */,
};
/* clang-format on */

struct program {
    struct sock_filter *v;
    size_t n, max;
};

static void put(struct program *p, struct sock_filter row) {
    if (p->n < p->max) p->v[p->n] = row;
    ++p->n;
}

static void load(struct program *p, size_t offset) {
    put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset));
}

static void give(struct program *p, unsigned action) {
    put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* Allows one call number. A jump reaches at most 255 rows, so each number has its own return. */
static void allow_if_equal(struct program *p, unsigned value) {
    put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    give(p, SECCOMP_RET_ALLOW);
}

/* Allows a call if its first argument is one of values; otherwise the call fails with error. */
static void allow_values(struct program *p, int number, const int *values, size_t n, int error) {
    put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0,
                                        (unsigned char)(2 * n + 2)));
    load(p, offsetof(struct seccomp_data, args[0]));
    for (size_t i = 0; i < n; ++i) allow_if_equal(p, (unsigned)values[i]);
    give(p, SECCOMP_RET_ERRNO | (unsigned)error);
}

/* Allows new threads, and new processes that share the sandbox's namespaces. */
static void allow_clone(struct program *p, bool alone) {
    unsigned bad = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                   CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_PTRACE;
    put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 5));
    load(p, offsetof(struct seccomp_data, args[0]));
    put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bad, 1, 0));
    put(p, alone ? (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0)
                 : (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0));
    give(p, SECCOMP_RET_ERRNO | 1 /* EPERM */);
    give(p, SECCOMP_RET_ALLOW);
}

unsigned short sandbox_filter(struct sock_filter *out, size_t max, bool alone) {
    static const int families[] = {AF_UNIX};
    struct program p = {.v = out, .max = max};
    load(&p, offsetof(struct seccomp_data, arch));
    put(&p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    give(&p, SECCOMP_RET_KILL_PROCESS);
    load(&p, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof always / sizeof *always; ++i)
        allow_if_equal(&p, (unsigned)always[i]);
    for (size_t i = 0; !alone && i < sizeof among_others / sizeof *among_others; ++i)
        allow_if_equal(&p, (unsigned)among_others[i]);
    /* Each of these replaces the call number by an argument. If the number matches, it therefore always returns. */
    if (!alone) {
        allow_values(&p, SYS_socket, families, 1, 97 /* EAFNOSUPPORT */);
        allow_values(&p, SYS_socketpair, families, 1, 97);
    }
    allow_values(&p, SYS_prctl, options, sizeof options / sizeof *options, 1 /* EPERM */);
    allow_clone(&p, alone);
    give(&p, SECCOMP_RET_ERRNO | 38 /* ENOSYS */);
    return p.n <= p.max ? (unsigned short)p.n : 0;
}
