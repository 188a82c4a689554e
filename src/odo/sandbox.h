/* sandbox.h: runs a program that a model wrote, where it can harm nothing.
 *
 * Own user, mount, process, network and IPC namespaces: the program sees the system's programs read-only,
 * an empty /tmp in memory and nothing else; no network, not even loopback; no privileges. Limits on
 * processor time, memory, processes, files, time and output. Where the kernel does not allow this the run
 * is refused; only a job that says so (a program of the system's, never a model's) then runs under the
 * limits alone. Blocks the calling thread; any thread. */
#ifndef CHIMERE_ODO_SANDBOX_H
#define CHIMERE_ODO_SANDBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct sandbox_limits {
    int32_t wall_ms, cpu_s;
    uint64_t memory_bytes, file_bytes;
    int32_t n_process;
    size_t output_bytes;
};
void sandbox_defaults(struct sandbox_limits *l); /* 10 s, 8 s, 512 MiB, 16 MiB, 32, 32 KiB */

struct sandbox_job {
    const char *const *argv; /* absolute program; NULL at the end */
    const char *input;       /* on its standard input; [n_input] */
    size_t n_input;
    struct sandbox_limits limits;
    _Atomic bool *cancelled; /* may be NULL */
    const char *folder;      /* shown read-only as SANDBOX_FOLDER; NULL: none */
    bool may_be_bare;        /* limits alone will do where the kernel forbids the rest */
};

#define SANDBOX_FOLDER "/skill"

struct sandbox_result {
    int status;          /* exit status; -signal where a signal ended it */
    bool timed_out, cut; /* cut: output beyond the limit was dropped and the program ended */
    bool bare;           /* it ran under limits alone */
};

/* Output and errors of the program, interleaved, to out. CHIMERE_EREFUSED: the kernel forbids sandboxes. */
int sandbox_run(const struct sandbox_job *job, struct buf *out, struct sandbox_result *r,
                struct err *e);
/* What a program gave, as text that a model reads: bytes that are no UTF-8 become '?', and a line tells how it
 * ended where that was not well. */
void sandbox_text(struct buf *out, const struct buf *raw, const struct sandbox_job *job,
                  const struct sandbox_result *r);

#endif
