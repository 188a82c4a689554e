/* tool_files.h: the tools that touch the machine: read_file and write_file under one root, run_code. */
#ifndef CHIMERE_ODO_TOOL_FILES_H
#define CHIMERE_ODO_TOOL_FILES_H

#include "odo/tool.h"

/* Paths are resolved by the kernel (openat2) beneath the root: neither "..", nor an absolute path, nor a
 * link leads out of it. A kernel without openat2 refuses. */
int tool_files_add(struct tool_set *tools, const char *root, struct err *e);
/* Python, shell and, where a compiler is there, C in a sandbox (sandbox.h). */
int tool_code_add(struct tool_set *tools, struct err *e);

#endif
