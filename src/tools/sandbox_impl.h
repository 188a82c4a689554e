/* sandbox_impl.h: what the parent prepares for the child, and the queue; shared by the sandbox's source files. */
#ifndef CHIMERE_TOOLS_SANDBOX_IMPL_H
#define CHIMERE_TOOLS_SANDBOX_IMPL_H

#include <linux/filter.h>

#include "tools/sandbox.h"

enum { SANDBOX_MAX_FILTER = 1024, SANDBOX_UID = 1000, SANDBOX_NOBODY = 65534 };

/* Everything that the child needs, prepared before the clone. Afterwards the child may only make system calls,
 * because locks that other threads held are never released in it. Descriptors are -1 if absent. */
struct sandbox_plan {
    const struct sandbox_job *job;
    enum sandbox_least level;
    int in, out; /* pipe ends that become its standard streams */
    /* socket: one byte from the parent starts the child, and the child reports what failed; closed at exec */
    int control;
    int folder, program; /* O_PATH */
    bool shed_root;      /* the parent is root: become SANDBOX_NOBODY if there are no namespaces */
    struct sock_filter filter[SANDBOX_MAX_FILTER];
    unsigned short n_filter;
};

/* Never returns. */
_Noreturn void sandbox_child(const struct sandbox_plan *p);
extern const char sandbox_no_program[]; /* reported if exec failed */

/* Writes the allow-list as a seccomp program and returns its length. alone: no new processes, signals to others or
 * sockets. 0: too long. */
unsigned short sandbox_filter(struct sock_filter *out, size_t max, bool alone);

bool sandbox_has_landlock(void);

/* Returns true if the processes of the sandbox hold more than `most` bytes of anonymous, shared and swapped
 * memory. Call it after exec. */
bool sandbox_exceeds(int pid, bool has_namespaces, uint64_t most);

struct sandbox_turn {
    const char *owner; /* borrowed until the turn is given back */
    bool running;
    struct sandbox_turn *next;
};
/* Waits until a program of this owner may run. Order of arrival. */
int sandbox_turn_take(struct sandbox_turn *t, const struct sandbox_job *job, struct err *e);
void sandbox_turn_give(struct sandbox_turn *t);

#endif
