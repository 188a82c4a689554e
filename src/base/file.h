/* file.h: read-only memory maps, bounded reads of whole files, atomic writes, paths.
 *
 * Errors name the path. A map stays valid until file_unmap. If another process truncates a mapped file, access can
 * still raise SIGBUS; so our own writers always replace files by rename. */
#ifndef CHIMERE_BASE_FILE_H
#define CHIMERE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct file_map {
    const unsigned char *data; /* owned by the map; NULL if size is 0 */
    uint64_t size;
};

int file_map(struct file_map *m, const char *path, struct err *e); /* regular files only */
void file_unmap(struct file_map *m);
/* Releases the memory of the pages entirely inside [from, to); they are read again on access. */
void file_map_drop(const struct file_map *m, uint64_t from, uint64_t to);

/* Reads a whole file of at most max bytes; *out is NUL-terminated and freed with mem_free. The path
 * "-" reads standard input. */
int file_read(const char *path, size_t max, char **out, size_t *n, struct err *e);

/* Writes to "PATH.tmp.PID.RANDOM"; commit calls fsync and renames, so that readers see either the old file or the new one. End
 * it with exactly one of commit or abort. */
struct file_writer {
    FILE *f;    /* owned */
    char *path; /* owned */
    char *temp; /* owned */
};
int file_writer_open(struct file_writer *w, const char *path, struct err *e);
int file_writer_commit(struct file_writer *w, struct err *e);
void file_writer_abort(struct file_writer *w);
/* Writes n bytes in one call, likewise. */
int file_write(const char *path, const void *data, size_t n, struct err *e);

bool file_exists(const char *path);
/* Returns whether this process may create files in the folder, or could create the folder. */
bool file_can_write(const char *folder);
int file_mkdirs(const char *path, struct err *e); /* like mkdir -p; new folders have mode 0700 */
/* Path of the running program. */
int file_program(char *out, size_t out_size, struct err *e);
/* Finds name in the first of these folders that has it: next to the program, the source tree, the user's data directory
 * (XDG_DATA_HOME or ~/.local/share, then /chimere). out has out_size bytes. */
int file_find_data(const char *name, char *out, size_t out_size);
/* Returns the path of a file in the user's data directory, which is created if missing. */
int file_user_data(const char *name, char *out, size_t out_size, struct err *e);
/* Like file_user_data, for systemd units. */
int file_user_unit(const char *name, char *out, size_t out_size, struct err *e);

#endif
