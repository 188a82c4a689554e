/* sandbox_bare.c: sandbox.h for Windows and macOS: refused, because confinement is made of Linux' namespaces. */
#include "tools/sandbox.h"

void sandbox_defaults(struct sandbox_limits *l) { *l = (struct sandbox_limits){0}; }

int sandbox_run(const struct sandbox_job *job, struct buf *out, struct sandbox_result *r,
                struct err *e) {
    (void)job, (void)out;
    *r = (struct sandbox_result){.status = -1};
    return err_set(e, CHIMERE_EREFUSED,
                   "programs and document parsers run in a sandbox, which only Linux has");
}

void sandbox_text(struct buf *out, const struct buf *raw, const struct sandbox_job *job,
                  const struct sandbox_result *r) {
    (void)out, (void)raw, (void)job, (void)r;
}

bool sandbox_succeeded(const struct sandbox_result *r) { return r->status == 0; }
