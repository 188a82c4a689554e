/* ramp_json.c: see ramp_json.h. */
#include "ramp/ramp_json.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { MAX_JSON = 256 << 20 };

int ramp_json_path(char *out, const char *work, const char *name, struct err *e) {
    if ((size_t)snprintf(out, 4096, "%s/%s", work, name) >= 4096)
        return err_set(e, CHIMERE_ELIMIT, "%s: path is too long", work);
    return 0;
}

int ramp_write_text(struct buf *b, const char *work, const char *name, struct err *e) {
    char path[4096];
    int rc = b->failed ? err_set(e, b->failed, "%s: out of memory", name)
                       : ramp_json_path(path, work, name, e);
    if (!rc) rc = file_write(path, b->p, b->n, e);
    buf_fini(b);
    return rc;
}

json_t *ramp_json_load(const char *work, const char *name, uint64_t key) {
    char path[4096], want[24], *text;
    size_t n;
    if (ramp_json_path(path, work, name, NULL) || !file_exists(path) ||
        file_read(path, MAX_JSON, &text, &n, NULL))
        return NULL;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    mem_free(text);
    const char *has = json_string_value(json_object_get(root, "key"));
    snprintf(want, sizeof want, "%016llx", (unsigned long long)key);
    if (has && strcmp(has, want) == 0) return root;
    json_decref(root);
    return NULL;
}

int ramp_json_save(json_t *root, const char *work, const char *name, uint64_t key, struct err *e) {
    char path[4096], text[24];
    struct file_writer w;
    int rc = root ? ramp_json_path(path, work, name, e)
                  : err_set(e, CHIMERE_ENOMEM, "%s: out of memory", name);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)key);
    if (!rc && json_object_set_new(root, "key", json_string(text)))
        rc = err_set(e, CHIMERE_ENOMEM, "%s: out of memory", name);
    if (!rc) rc = file_writer_open(&w, path, e);
    if (!rc) {
        if (json_dumpf(root, w.f, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) == 0) {
            rc = file_writer_commit(&w, e);
        } else {
            file_writer_abort(&w);
            rc = err_set(e, CHIMERE_EIO, "%s: cannot write", path);
        }
    }
    json_decref(root);
    return rc;
}

double ramp_json_number(const json_t *o, const char *key, double otherwise) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}
