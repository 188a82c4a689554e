#include "learn/step/limits_file.h"

#include "learn/json_file.h"

enum { MAX_FILE = 4096 };

int limits_load(struct limits *out, const char *path, struct err *e) {
    json_t *o;
    int rc = json_file_read(&o, path, MAX_FILE, e);
    if (rc) return rc;
    rc = limits_from_json(out, o, e);
    if (rc) err_prefix(e, "%s", path);
    json_decref(o);
    return rc;
}

int limits_save(const struct limits *l, const char *path, struct err *e) {
    return json_file_write(path, limits_to_json(l), e);
}
