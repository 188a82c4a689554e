/* child_win.c: child.h for Windows: refused. */
#include "base/os/child.h"

#include <stdio.h>

int child_start(struct child *c, const char *command, struct err *e) {
    (void)command;
    *c = (struct child){.fd = -1, .shared = -1};
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "models in a process of their own are not supported on Windows");
}

void child_self(struct child *c) { *c = (struct child){.fd = -1, .shared = -1}; }

bool child_write(struct child *c, const void *data, size_t n) {
    (void)c, (void)data, (void)n;
    return false;
}

bool child_read(struct child *c, void *data, size_t n) {
    (void)c, (void)data, (void)n;
    return false;
}

int child_share(struct child *c, size_t n, struct err *e) {
    (void)c, (void)n;
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "memory shared by processes is not supported on Windows");
}

void child_end(struct child *c, char *how, size_t n) {
    (void)c;
    if (how) snprintf(how, n, "was never started");
}
