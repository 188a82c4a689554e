#include "serve/http/http_target.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "serve/http/http_impl.h"

static bool path_matches(const char *pattern, const char *path) {
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*path++ != *pattern) return false;
            continue;
        }
        if (!pattern[1]) return *path;
        if (!*path || *path == '/') return false;
        path += strcspn(path, "/");
    }
    return !*path;
}

/* Routes are found with and without /v1. */
static const char *bare(const char *path) { return str_starts(path, "/v1/") ? path + 3 : path; }

const struct route *http_find_route(const char *method, const char *path, bool *path_known) {
    *path_known = false;
    for (const struct route *t = routes; t->path; t++) {
        if (!path_matches(bare(t->path), bare(path))) continue;
        *path_known = true;
        if (strcmp(t->method, method) == 0) return t;
    }
    return NULL;
}

const char *http_find_pair(const struct buf *pairs, const char *name) {
    const char *at = pairs->p, *end = at ? at + pairs->n : NULL;
    while (at < end) {
        const char *value = at + strlen(at) + 1;
        if (strcasecmp(at, name) == 0) return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

const char *http_query(const struct http_request *r, const char *name) {
    return http_find_pair(&r->query, name);
}

int http_limit(struct http_request *r, int32_t usual, int32_t most, int32_t *limit, struct err *e) {
    const char *text = http_query(r, "limit");
    int64_t n = usual;
    if (text && !str_to_i64(text, 1, most, &n))
        return err_set(e, CHIMERE_EINVAL, "limit: expected a whole number of 1 to %d", most);
    *limit = (int32_t)n;
    return 0;
}

const char *http_rest(const struct http_request *r) {
    return bare(r->path) + strcspn(bare(r->route->path), "*");
}

bool http_part(const struct http_request *r, int n, char *out, size_t size) {
    const char *pattern = bare(r->route->path), *path = bare(r->path);
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            path++;
            continue;
        }
        size_t len = pattern[1] ? strcspn(path, "/") : strlen(path);
        if (n-- > 0) {
            path += len;
            continue;
        }
        if (len >= size) return false;
        memcpy(out, path, len);
        out[len] = 0;
        return true;
    }
    return false;
}
