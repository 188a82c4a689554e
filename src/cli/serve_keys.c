/* serve_keys.c: see serve_keys.h. */
#include "cli/serve_keys.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/os/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

void serve_keys_warn(const char *path) {
    struct fs_info st;
    if (path && !fs_stat(path, &st) && st.is_file && st.mode & 044)
        log_warn("%s: others on this machine may read it (mode %03o): chmod 600", path,
                 st.mode & 0777);
}

void serve_keys_forget(char *text) {
    if (text) memset(text, 0, strlen(text));
    mem_free(text);
}

/* Returns true if the value looks like a path. If the file is missing, the path must not become a key that anybody
 * could guess. */
static bool is_path(const char *value) {
    static const char *const ends[] = {".keys", ".key", ".txt", ".conf"};
    size_t n = strlen(value);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && !strcmp(value + n - strlen(ends[i]), ends[i])) return true;
    return value[0] == '/' || str_starts(value, "./") || str_starts(value, "../");
}

/* Adds one value of --api-key, a file or keys separated by commas, as lines of a key file. */
static int add_keys(const char *value, struct buf *out, struct err *e) {
    if (is_path(value) || file_exists(value)) {
        char *text = NULL;
        size_t n;
        int rc = file_read(value, 1 << 20, &text, &n, e);
        serve_keys_warn(value);
        if (!rc) buf_put(out, text, n), buf_putc(out, '\n');
        serve_keys_forget(text);
        return rc;
    }
    while (*value) {
        size_t n = strcspn(value, ",");
        if (memchr(value, '#', n) || memchr(value, ' ', n))
            return err_set(e, CHIMERE_EINVAL, "--api-key: a key must not contain blanks or '#'");
        if (n) buf_put(out, value, n), buf_puts(out, " admin\n");
        value += n + (value[n] == ',');
    }
    return 0;
}

int serve_keys_read(const struct cfg *c, char **out, struct err *e) {
    const char *const *items;
    size_t n = cfg_list(c, "api-key", &items);
    struct buf text;
    int rc = 0;
    *out = NULL;
    buf_init(&text, 8 << 20);
    for (size_t i = 0; i < n && !rc; i++) rc = add_keys(items[i], &text, e);
    if (!rc && text.failed) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && n) *out = buf_take(&text);
    if (rc && text.n) memset(text.p, 0, text.n);
    buf_fini(&text);
    return rc;
}
