/* tool_files.h: the tools that touch the machine: read_file and write_file under one root, run_code. */
#ifndef CHIMERE_TOOLS_TOOL_FILES_H
#define CHIMERE_TOOLS_TOOL_FILES_H

#include "tools/tool.h"

enum { TOOL_FILES_QUOTA = 64 << 20, TOOL_FILES_BACKUPS = 5 };
#define TOOL_FILES_BACKUP_DIR ".chimere-backup"

struct tool_files {
    const char *root;
    int64_t quota_bytes; /* that write_file may write until the program ends */
    bool build_files; /* it may write files that build tools execute: Makefile, package.json, ... */
    bool trusted;     /* by the owner: what read_file returns does not taint */
};
/* Paths are resolved by the kernel (openat2) beneath the root: neither "..", nor an absolute path, nor a link leads
 * out of it. A kernel without openat2 refuses. write_file replaces a file at once, keeps TOOL_FILES_BACKUPS earlier
 * contents in TOOL_FILES_BACKUP_DIR and returns a diff. It refuses what other programs execute or load: names that
 * begin with a dot, executables, and build files unless they are allowed. */
int tool_files_add(struct tool_set *tools, const struct tool_files *f, struct err *e);
/* Python, shell and JavaScript in a sandbox (sandbox.h). */
int tool_code_add(struct tool_set *tools, struct err *e);
/* The same for a person: most bytes of output (0: the tool's limit). language NULL: Python; code: a string. */
int tool_code_run(const char *language, const json_t *code, size_t most, struct tool_env *env,
                  struct buf *out, struct err *e);

#endif
