#include "learn/json_file.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"

int json_file_read(json_t **out, const char *path, size_t max_bytes, struct err *e) {
    char *text;
    size_t n;
    *out = NULL;
    int rc = file_read(path, max_bytes, &text, &n, e);
    if (rc) return rc;
    *out = json_loadb(text, n, 0, NULL);
    mem_free(text);
    if (json_is_object(*out)) return 0;
    json_decref(*out);
    *out = NULL;
    return err_set(e, CHIMERE_EFORMAT, "%s: expected a JSON object", path);
}

int json_file_write(const char *path, json_t *o, struct err *e) {
    char *text = o ? json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    int rc = text ? file_write(path, text, strlen(text), e)
                  : err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(text);
    return rc;
}
