/* tool_files_bare.c: tool_files.h for Windows and macOS: refused, because their kernels do not confine paths to a folder. */
#include "tools/tool_files.h"

int tool_files_add(struct tool_set *tools, const struct tool_files *f, struct err *e) {
    (void)tools, (void)f;
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "tools that read and write files are only supported on Linux");
}
