/* scratch.h: a folder of a test program's own, made before its tests and removed after them, and files in it.
 * Pass scratch_make and scratch_drop to cmocka_run_group_tests. */
#ifndef CHIMERE_TEST_SCRATCH_H
#define CHIMERE_TEST_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static char scratch[32];

static inline int scratch_make(void **state) {
    (void)state;
    snprintf(scratch, sizeof scratch, "scratch.XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_drop(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return system(command);
}

/* A file of n bytes, and the folders above it. Ends the program where that fails: cmocka is not known here. */
static inline void scratch_put_bytes(const char *name, const void *bytes, size_t n) {
    char path[256];
    struct file_writer w;
    int len = snprintf(path, sizeof path, "%s/%s", scratch, name);
    char *slash = strrchr(path, '/');
    *slash = 0;
    if (len >= (int)sizeof path || file_mkdirs(path, NULL)) abort();
    *slash = '/';
    if (file_writer_open(&w, path, NULL) || fwrite(bytes, 1, n, w.f) != n ||
        file_writer_commit(&w, NULL))
        abort();
}

static inline void scratch_put(const char *name, const char *text) {
    scratch_put_bytes(name, text, strlen(text));
}

#endif
