/* docs_index_bare.c: reading documents on Windows and macOS: refused, because their parsers need the sandbox. */
#include "retrieval/docs_put.h"
#include "retrieval/docs_refresh.h"

int docs_index(struct docs *d, const char *path, const char *collection, struct docs_report *r,
               struct err *e) {
    (void)d, (void)collection;
    *r = (struct docs_report){0};
    return err_set(e, CHIMERE_EUNSUPPORTED, "%s: documents are only supported on Linux", path);
}

int docs_refresh(struct docs *d, const char *collection, const _Atomic bool *cancelled,
                 struct docs_report *r, struct err *e) {
    (void)d, (void)cancelled;
    *r = (struct docs_report){0};
    return err_set(e, CHIMERE_EUNSUPPORTED, "%s: documents are only supported on Linux",
                   collection);
}

int docs_put(struct docs *d, const char *name, const char *collection, const char *data, size_t n,
             struct docs_report *r, struct err *e) {
    (void)d, (void)collection, (void)data, (void)n;
    *r = (struct docs_report){0};
    return err_set(e, CHIMERE_EUNSUPPORTED, "%s: documents are only supported on Linux", name);
}

int docs_remove(struct docs *d, const char *name, const char *collection, int32_t *n_removed,
                struct err *e) {
    (void)d, (void)collection;
    *n_removed = 0;
    return err_set(e, CHIMERE_EUNSUPPORTED, "%s: documents are only supported on Linux", name);
}
