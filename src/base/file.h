/* file.h: read-only maps, bounded whole-file reads, atomic writes, paths.
 *
 * Errors name the path. A map stays valid until file_unmap; a file that is truncated by somebody else
 * under a live map can still raise SIGBUS, so our own writers always replace by rename. */
#ifndef CHIMERE_BASE_FILE_H
#define CHIMERE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct file_map {
    const unsigned char *data; /* owned by the map; NULL when size is 0 */
    uint64_t size;
};

int file_map(struct file_map *m, const char *path, struct err *e); /* regular files only */
void file_unmap(struct file_map *m);
/* Gives back the memory of the pages wholly inside [from, to); they are read again when touched. */
void file_map_drop(const struct file_map *m, uint64_t from, uint64_t to);

/* Reads a whole file of at most max bytes; *out is NUL-terminated and freed with mem_free. The path
 * "-" reads standard input. */
int file_read(const char *path, size_t max, char **out, size_t *n, struct err *e);

/* Writes to "PATH.tmp.PID", then fsync and rename on commit, so readers see the old file or the new
 * one. Exactly one of commit or abort ends it. */
struct file_writer {
    FILE *f;    /* owned */
    char *path; /* owned */
    char *temp; /* owned */
};
int file_writer_open(struct file_writer *w, const char *path, struct err *e);
int file_writer_commit(struct file_writer *w, struct err *e);
void file_writer_abort(struct file_writer *w);
/* The same for n bytes at once. */
int file_write(const char *path, const void *data, size_t n, struct err *e);

bool file_exists(const char *path);
/* Whether this process may make files in the folder, or could make the folder itself. */
bool file_can_write(const char *folder);
int file_mkdirs(const char *path, struct err *e); /* as mkdir -p, mode 0700 for what it makes */
/* Path of the running program. */
int file_program(char *out, size_t out_size, struct err *e);
/* First existing directory entry of: beside the binary, the source tree, the user's data directory
 * (XDG_DATA_HOME or ~/.local/share, then /chimere), joined with name. out_size bytes at out. */
int file_find_data(const char *name, char *out, size_t out_size);
/* Path of a file of this name in the user's data directory, which is made if need be. */
int file_user_data(const char *name, char *out, size_t out_size, struct err *e);
/* The same for units of systemd. */
int file_user_unit(const char *name, char *out, size_t out_size, struct err *e);

#endif
