/* hub.h: names and listings of a model hub: selects files of a repository.
 *
 * A listing is not trusted: unsafe paths are skipped, sizes and hashes are checked, numbers of files are limited. No
 * I/O; any thread. */
#ifndef CHIMERE_NET_HUB_H
#define CHIMERE_NET_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

enum {
    HUB_MAX_FILES = 20000,
    HUB_MAX_PARTS = 1024, /* of one split model; equal to GGUF_MAX_SPLITS */
    HUB_MAX_PATH_BYTES = 1024,
    HUB_MAX_DEPTH = 8,
};
#define HUB_MAX_FILE_BYTES ((uint64_t)4 << 40)

struct hub_ref {
    char owner[97], repo[97]; /* letters, digits, '.', '_', '-'; no leading dot */
    char pick[256];           /* a file's path, a quantised type such as Q4_K_M, or "" */
};

/* "hf:OWNER/REPO[:FILE or TYPE]", with or without "hf:". */
int hub_parse(struct hub_ref *r, const char *text, struct err *e);

struct hub_file {
    const char *path; /* view: path within the repository, safe as a relative path */
    uint64_t size;
    char sha256[65]; /* "": not given by the hub */
};

struct hub_list {
    struct arena arena;
    struct hub_file *files; /* owned by the arena [n], sorted by path */
    size_t n, cap;
    char revision[65]; /* revision of the listing; "" for a local one */
};

void hub_list_init(struct hub_list *l);
void hub_list_fini(struct hub_list *l);
/* Returns 0; CHIMERE_EINVAL: the path is unsafe and was skipped; CHIMERE_ELIMIT, CHIMERE_ENOMEM. */
int hub_list_add(struct hub_list *l, const char *path, uint64_t size, const char *sha256);
/* Adds the files in the hub's JSON response. */
int hub_list_read(struct hub_list *l, const char *json, size_t n, struct err *e);
bool hub_path_is_safe(const char *path);

/* Selects the files that `pick` names: one file, or all parts of a split model in order. *first is the index in
 * l->files; the other parts follow it. Without a pick: the only model, else Q4_K_M, else Q8_0. An error lists the
 * available files. */
int hub_choose(const struct hub_list *l, const struct hub_ref *r, size_t *first, size_t *n,
               struct err *e);
/* Keeps the files of a checkpoint that conversion reads: weights as safetensors, configuration, vocabulary, README. */
int hub_keep_checkpoint(struct hub_list *l, const struct hub_ref *r, struct err *e);

#endif
