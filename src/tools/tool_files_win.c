/* tool_files_win.c: tool_files.h for Windows: refused, because the kernel does not confine paths to a folder there. */
#include "tools/tool_files.h"

int tool_files_add(struct tool_set *tools, const struct tool_files *f, struct err *e) {
    (void)tools, (void)f;
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "tools that read and write files are not supported on Windows");
}
