/* tool_files_impl.h: the root that read_file and write_file share. */
#ifndef CHIMERE_TOOLS_TOOL_FILES_IMPL_H
#define CHIMERE_TOOLS_TOOL_FILES_IMPL_H

#include <stdatomic.h>
#include <sys/types.h>

#include "tools/tool_files.h"

struct tool_root {
    int fd;
    _Atomic int64_t left_bytes; /* bytes left of the quota */
    bool build_files;
};

/* Opens a path that the kernel resolves beneath the root. Returns a descriptor or CHIMERE_E*. */
int tool_open_beneath(int root, const char *path, int flags, mode_t mode, struct err *e);
int tool_write_file(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                    struct err *e);
/* Appends a unified diff with one hunk: the lines between the common first and last lines. */
void tool_put_diff(struct buf *out, const char *path, const char *old, size_t n_old,
                   const char *text, size_t n);

#endif
