/* sandbox.h: runs a program that a model wrote, or one that parses untrusted bytes, in isolation.
 *
 * The program is process 1 of new user, mount, PID, network, IPC and UTS namespaces. It sees only the system's
 * programs, read-only, and an empty /tmp in memory. It has no network and no privileges, and can only make the
 * system calls of an allow-list (sandbox_filter.c). Landlock adds a second confinement if the kernel has it.
 * Killing process 1 kills all its descendants, so the wall limit and cancellation hold whatever the program
 * closes, forks or ignores.
 * Limits: wall and processor time, resident memory of all its processes, processes, files, output. At most
 * SANDBOX_MAX_EACH programs of one owner run at once; others wait for their turn until the deadline. If the kernel
 * forbids namespaces, the run is refused unless the job accepts less. Blocks the calling thread; any thread. */
#ifndef CHIMERE_TOOLS_SANDBOX_H
#define CHIMERE_TOOLS_SANDBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { SANDBOX_MAX_EACH = 4, SANDBOX_MAX_ALL = 16, SANDBOX_WAIT_MS = 60000 };

struct sandbox_limits {
    int32_t wall_ms, cpu_s;
    /* resident memory of all processes together; also the limit of writable data per process */
    uint64_t memory_bytes;
    uint64_t file_bytes;
    int32_t n_process; /* including threads */
    size_t output_bytes;
};
void sandbox_defaults(struct sandbox_limits *l); /* 10 s, 8 s, 512 MiB, 16 MiB, 32, 32 KiB */

/* The least confinement that a job accepts if the kernel forbids namespaces. */
enum sandbox_least {
    SANDBOX_NAMESPACES, /* all of it, or the run is refused */
    SANDBOX_FILTERED,   /* Landlock, no new processes, no sockets, limits */
    SANDBOX_BARE,       /* the same without Landlock: the program may read files */
};

struct sandbox_job {
    const char *const *argv; /* argv[0] is an absolute path; ends with NULL */
    bool self;               /* run this program's own file, with argv as its arguments */
    const char *input;       /* sent to its standard input; [n_input] */
    size_t n_input;
    struct sandbox_limits limits;
    _Atomic bool *cancelled; /* may be NULL */
    int64_t deadline_ns;     /* covers waiting and running; 0: waits at most SANDBOX_WAIT_MS */
    const char *owner;       /* whose turn it uses; NULL: the machine's own */
    /* called as output arrives; may be NULL */
    void (*output)(void *ud, const char *bytes, size_t n);
    void *ud;
    const char *folder; /* visible read-only as SANDBOX_FOLDER; NULL: none */
    enum sandbox_least least;
};

#define SANDBOX_FOLDER "/skill"

struct sandbox_result {
    int status; /* exit status; -signal if a signal ended it */
    /* cut: the output exceeded the limit, the rest was dropped and the program was ended */
    bool timed_out, cut;
    bool cancelled;
    bool too_large;           /* its processes held more memory than the limit */
    enum sandbox_least level; /* confinement that was used */
};

/* Appends the program's standard output and standard error, interleaved, to out. CHIMERE_EREFUSED: the kernel
 * forbids sandboxes; CHIMERE_ETIMEOUT: no turn before the deadline. */
int sandbox_run(const struct sandbox_job *job, struct buf *out, struct sandbox_result *r,
                struct err *e);
/* Appends the output as text for a model. Bytes that are not UTF-8 become '?'. Unless the program succeeded, a
 * last line reports how it ended. */
void sandbox_text(struct buf *out, const struct buf *raw, const struct sandbox_job *job,
                  const struct sandbox_result *r);
/* true if the program ended by itself with status 0 */
bool sandbox_succeeded(const struct sandbox_result *r);

#endif
