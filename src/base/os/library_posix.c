#include "base/os/library.h"

#include <dlfcn.h>
#include <string.h>

#include "base/file.h"

static int load(struct library **out, const char *path, struct err *e) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        size_t n = strlen(path);
        if (!why) why = "the loader gives no reason";
        /* the loader's message repeats the file name */
        if (strncmp(why, path, n) == 0 && why[n] == ':') why += n + 2;
        return err_set(e, CHIMERE_EUNSUPPORTED, "%s: cannot be loaded: %s", path, why);
    }
    *out = handle;
    return 0;
}

int library_open(struct library **out, const char *path, struct err *e) {
    *out = NULL;
    if (!file_exists(path)) return err_set(e, CHIMERE_ENOENT, "%s: no such library", path);
    return load(out, path, e);
}

int library_open_system(struct library **out, const char *name, struct err *e) {
    *out = NULL;
    return load(out, name, e);
}

void *library_symbol(struct library *l, const char *name) { return dlsym(l, name); }
