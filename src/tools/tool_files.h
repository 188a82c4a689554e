/* tool_files.h: tools that access the machine: read_file and write_file under one root folder, and run_code. */
#ifndef CHIMERE_TOOLS_TOOL_FILES_H
#define CHIMERE_TOOLS_TOOL_FILES_H

#include "tools/tool.h"

enum { TOOL_FILES_QUOTA = 64 << 20, TOOL_FILES_BACKUPS = 5 };
#define TOOL_FILES_BACKUP_DIR ".chimere-backup"

struct tool_files {
    const char *root;
    int64_t quota_bytes; /* bytes that write_file may write during the life of the process */
    /* write_file may write files that build tools execute: Makefile, package.json, ... */
    bool build_files;
    bool trusted; /* set by the owner: what read_file returns does not taint */
};
/* The kernel resolves paths beneath the root (openat2): neither "..", an absolute path nor a link leads out of it.
 * Without openat2 the tools refuse. write_file replaces a file in one step, keeps TOOL_FILES_BACKUPS earlier
 * versions in TOOL_FILES_BACKUP_DIR and returns a diff. It refuses files that other programs execute or load:
 * names that begin with a dot, executables, and build files unless they are allowed. */
int tool_files_add(struct tool_set *tools, const struct tool_files *f, struct err *e);
/* Adds run_code: Python, shell and JavaScript in a sandbox (sandbox.h). */
int tool_code_add(struct tool_set *tools, struct err *e);
/* Runs code for a user instead of a model. most: limit of the output in bytes (0: the tool's limit). language
 * NULL: Python; code: a string. */
int tool_code_run(const char *language, const json_t *code, size_t most, struct tool_env *env,
                  struct buf *out, struct err *e);

#endif
