#include "llama/llama_lib.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/os/library.h"
#include "base/log.h"
#include "base/thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards loaded */
static const struct llama_shim *loaded;

int llama_lib_find(char *out, size_t out_size, struct err *e) {
    static const char *const places[] = {LLAMA_LIB_FILE, "../lib/chimere/" LLAMA_LIB_FILE};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!file_find_data(places[i], out, out_size)) return 0;
    err_set(e, CHIMERE_ENOENT, "libllama: %s is not installed", LLAMA_LIB_FILE);
    err_hint(e, "build with cmake -DCHIMERE_LLAMA_DIR=DIR, the folder of your llama.cpp's include "
                "and lib");
    return CHIMERE_ENOENT;
}

static void take_line(int level, const char *line) {
    if (level == 2) log_error("libllama aborts: %s", line);
    else if (level == 0)
        log_info("libllama: %s", line); /* the caller's error contains the last line */
    else log_debug("libllama: %s", line);
}

static int check(const struct llama_shim *s, const char *path, llama_lib_log *log, struct err *e) {
    char text[LLAMA_SHIM_TEXT] = "";
    if (s->version != LLAMA_SHIM_VERSION || s->n_byte != sizeof *s) {
        err_set(e, CHIMERE_EUNSUPPORTED, "%s: expected version %d, got %u", path,
                LLAMA_SHIM_VERSION, s->version);
        err_hint(e, "it belongs to another build of chimere: build both together");
        return CHIMERE_EUNSUPPORTED;
    }
    int rc = s->start(log ? log : take_line, text);
    return rc ? err_set(e, rc, "%s: %s", path, text) : 0;
}

static int load(const char *path, llama_lib_log *log, struct err *e) {
    char found[4096];
    struct library *l;
    int rc = 0;
    if (!path) {
        rc = llama_lib_find(found, sizeof found, e);
        path = found;
    }
    if (!rc) rc = library_open(&l, path, e);
    if (rc) return rc;
    const struct llama_shim *(*entry)(void);
    void *symbol = library_symbol(l, LLAMA_SHIM_SYMBOL);
    if (!symbol)
        return err_set(e, CHIMERE_EUNSUPPORTED, "%s: expected the symbol %s, got a library without",
                       path, LLAMA_SHIM_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from object to function pointer */
    const struct llama_shim *s = entry();
    rc = check(s, path, log, e);
    if (!rc) loaded = s;
    return rc;
}

int llama_lib_open(const struct llama_shim **out, const char *path, llama_lib_log *log,
                   struct err *e) {
    pthread_mutex_lock(&lock);
    int rc = loaded ? 0 : load(path, log, e);
    *out = rc ? NULL : loaded;
    pthread_mutex_unlock(&lock);
    return rc;
}
