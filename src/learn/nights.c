#include "learn/nights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/os/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "learn/json_file.h"

enum { MAX_RECORD = 64 << 20, MAX_NAME = 128 };

struct nights {
    char dir[NIGHTS_MAX_PATH];
    int lock; /* file descriptor; -1: open for reading only */
    int64_t current, last;
};

static int path_of(const struct nights *n, const char *folder, const char *name, char *out,
                   struct err *e) {
    int k = snprintf(out, NIGHTS_MAX_PATH, "%s/%s%s%s", n->dir, folder, *name ? "/" : "", name);
    return k < NIGHTS_MAX_PATH ? 0 : err_set(e, CHIMERE_ELIMIT, "%s: the path is too long", n->dir);
}

static int record_path(const struct nights *n, int64_t night, char *out, struct err *e) {
    char name[32];
    snprintf(name, sizeof name, "%06lld.json", (long long)night);
    return path_of(n, "nights", name, out, e);
}

/* ---- files ---- */

static int hash_file(const char *path, char sha256[65], struct err *e) {
    struct file_map map;
    unsigned char digest[DIGEST_BYTES];
    int rc = file_map(&map, path, e);
    if (rc) return rc;
    bool ok = digest_of(map.size ? map.data : (const unsigned char *)"", map.size, digest);
    file_unmap(&map);
    if (!ok) return err_set(e, CHIMERE_EIO, "%s: cannot be hashed", path);
    digest_hex(digest, sha256);
    return 0;
}

static int copy_file(const char *from, const char *to, struct err *e) {
    struct file_map map;
    int rc = file_map(&map, from, e);
    if (rc) return rc;
    rc = file_write(to, map.data, map.size, e);
    file_unmap(&map);
    return rc;
}

/* ---- the current night ---- */

static bool is_plain(const char *name) {
    return *name && *name != '.' && strlen(name) < MAX_NAME && !strchr(name, '/');
}

static bool is_sha256(const char *s) {
    return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

int nights_check(const struct nights *n, const json_t *artefacts, struct err *e) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)artefacts, name, v) {
        const char *want = json_string_value(v);
        char path[NIGHTS_MAX_PATH], got[65];
        if (!want || !is_sha256(want) || !is_plain(name))
            return err_set(e, CHIMERE_EFORMAT, "artefact %.64s: expected a SHA-256", name);
        int rc = path_of(n, "objects", want, path, e);
        if (!rc) rc = hash_file(path, got, e);
        if (!rc && strcmp(got, want) != 0)
            rc = err_set(e, CHIMERE_EFORMAT, "%s: damaged; expected its bytes to have that hash",
                         path);
        if (rc) return rc;
    }
    return 0;
}

/* Makes live/ contain exactly the artefacts of a record. */
static int make_live(const struct nights *n, const json_t *artefacts, struct err *e) {
    char dir[NIGHTS_MAX_PATH], path[NIGHTS_MAX_PATH], object[NIGHTS_MAX_PATH];
    const char *name;
    json_t *v;
    int rc = path_of(n, "live", "", dir, e);
    if (!rc) rc = file_mkdirs(dir, e);
    json_object_foreach((json_t *)(uintptr_t)artefacts, name, v) {
        if (!rc) rc = path_of(n, "live", name, path, e);
        if (!rc) rc = path_of(n, "objects", json_string_value(v), object, e);
        if (!rc) rc = copy_file(object, path, e);
    }
    struct fs_folder *d = rc ? NULL : fs_open(dir);
    for (const char *x; d && (x = fs_next(d));)
        if (x[0] != '.' && !json_object_get(artefacts, x) && !path_of(n, "live", x, path, NULL))
            fs_remove(path);
    fs_close(d);
    return rc;
}

static int read_number(const struct nights *n, int64_t *out, struct err *e) {
    char path[NIGHTS_MAX_PATH], *text;
    size_t size;
    *out = 0;
    int rc = path_of(n, "current", "", path, e);
    if (rc || !file_exists(path)) return rc;
    rc = file_read(path, 64, &text, &size, e);
    if (rc) return rc;
    text[strcspn(text, "\n")] = 0;
    bool ok = str_to_i64(text, 0, NIGHTS_MAX, out);
    mem_free(text);
    return ok ? 0 : err_set(e, CHIMERE_EFORMAT, "%s: expected the number of a night", path);
}

static int64_t newest(const struct nights *n) {
    char path[NIGHTS_MAX_PATH];
    int64_t last = 0, k;
    struct fs_folder *d = path_of(n, "nights", "", path, NULL) ? NULL : fs_open(path);
    for (const char *x; d && (x = fs_next(d));) {
        char name[16];
        size_t len = strlen(x);
        if (len != 11 || !str_ends(x, ".json")) continue;
        snprintf(name, sizeof name, "%.6s", x);
        if (str_to_i64(name, 1, NIGHTS_MAX, &k) && k > last) last = k;
    }
    fs_close(d);
    return last;
}

static int set_current(struct nights *n, int64_t night, struct err *e) {
    char path[NIGHTS_MAX_PATH], text[32];
    json_t *record = NULL, *none = json_object();
    int rc = none ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && night) rc = nights_read(n, night, &record, e);
    const json_t *artefacts = record ? json_object_get(record, "artefacts") : none;
    if (!rc && !json_is_object(artefacts))
        rc = err_set(e, CHIMERE_EFORMAT, "night %lld: expected artefacts", (long long)night);
    if (!rc) rc = nights_check(n, artefacts, e);
    if (!rc) rc = path_of(n, "current", "", path, e);
    int k = snprintf(text, sizeof text, "%lld\n", (long long)night);
    if (!rc) rc = file_write(path, text, (size_t)k, e); /* the night is current from here on */
    if (!rc) n->current = night;
    if (!rc) rc = make_live(n, artefacts, e);
    json_decref(record);
    json_decref(none);
    return rc;
}

int nights_select(struct nights *n, int64_t night, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    int rc = set_current(n, night, e);
    if (!rc) rc = path_of(n, "trial", "", path, e);
    if (!rc) fs_remove(path);
    return rc;
}

/* ---- opening ---- */

static int take_lock(struct nights *n, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    int rc = path_of(n, "lock", "", path, e);
    if (rc) return rc;
    n->lock = fs_lock(path);
    if (n->lock >= 0) return 0;
    if (errno != EWOULDBLOCK) return err_set(e, CHIMERE_EIO, "%s: %s", path, strerror(errno));
    return err_set(e, CHIMERE_EBUSY, "another night runs on %s", n->dir);
}

/* Reads the current night and restores live/. */
static int repair(struct nights *n, enum nights_mode mode, struct err *e) {
    struct err why = {0};
    int rc = read_number(n, &n->current, &why);
    if (!rc && mode && n->current) rc = set_current(n, n->current, &why);
    if (rc && mode == NIGHTS_RETURN) {
        log_warn("what serves: %s", why.text);
        return 0;
    }
    if (rc && e) *e = why;
    return rc;
}

int nights_open(struct nights **out, const char *dir, enum nights_mode mode, struct err *e) {
    static const char *const folders[] = {"objects", "nights", "live"};
    char path[NIGHTS_MAX_PATH];
    *out = NULL;
    struct nights *n = mem_zalloc(sizeof *n);
    if (!n) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    n->lock = -1;
    int rc = 0;
    if (dir && strlen(dir) < sizeof n->dir - 64) snprintf(n->dir, sizeof n->dir, "%s", dir);
    else
        rc = dir ? err_set(e, CHIMERE_ELIMIT, "night folder: the path is too long")
                 : file_user_data("night", n->dir, sizeof n->dir - 64, e);
    for (size_t i = 0; mode && !rc && i < sizeof folders / sizeof *folders; i++) {
        rc = path_of(n, folders[i], "", path, e);
        if (!rc) rc = file_mkdirs(path, e);
    }
    if (!rc && mode) rc = take_lock(n, e);
    if (!rc) rc = repair(n, mode, e);
    n->last = newest(n);
    if (rc) nights_close(n);
    else *out = n;
    return rc;
}

void nights_close(struct nights *n) {
    if (!n) return;
    fs_unlock(n->lock);
    mem_free(n);
}

const char *nights_dir(const struct nights *n) { return n->dir; }
int64_t nights_current(const struct nights *n) { return n->current; }
int64_t nights_last(const struct nights *n) { return n->last; }

int nights_read(const struct nights *n, int64_t night, json_t **out, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    *out = NULL;
    int rc = record_path(n, night, path, e);
    if (!rc && !file_exists(path))
        return err_set(e, CHIMERE_ENOENT, "there is no night %lld", (long long)night);
    return rc ? rc : json_file_read(out, path, MAX_RECORD, e);
}

int nights_keep(struct nights *n, const char *path, char sha256[65], struct err *e) {
    char object[NIGHTS_MAX_PATH], kept[65];
    int rc = hash_file(path, sha256, e);
    if (!rc) rc = path_of(n, "objects", sha256, object, e);
    bool is_kept =
        !rc && file_exists(object) && !hash_file(object, kept, NULL) && !strcmp(kept, sha256);
    return rc || is_kept ? rc : copy_file(path, object, e);
}

int nights_object(const struct nights *n, const char *sha256, char out[NIGHTS_MAX_PATH],
                  struct err *e) {
    if (!sha256 || !is_sha256(sha256))
        return err_set(e, CHIMERE_EFORMAT, "artefact: expected a SHA-256");
    return path_of(n, "objects", sha256, out, e);
}

/* Fills out with {SHA256: true} for every artefact that a record names. */
static int named(const struct nights *n, json_t *out, struct err *e) {
    int rc = 0;
    for (int64_t i = 1; !rc && i <= n->last; i++) {
        json_t *record, *v;
        const char *name;
        rc = nights_read(n, i, &record, e);
        if (rc == CHIMERE_ENOENT) rc = 0;
        json_object_foreach(json_object_get(record, "artefacts"), name, v) if (json_is_string(v))
            json_object_set_new(out, json_string_value(v), json_true());
        json_decref(record);
    }
    return rc;
}

int nights_sweep(struct nights *n, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    json_t *kept = json_object();
    int rc = kept ? named(n, kept, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = path_of(n, "objects", "", path, e);
    struct fs_folder *d = rc ? NULL : fs_open(path);
    for (const char *x; d && (x = fs_next(d));)
        if (x[0] != '.' && !json_object_get(kept, x) && !path_of(n, "objects", x, path, NULL) &&
            fs_remove(path) && !rc)
            rc = err_set(e, CHIMERE_EIO, "%s: %s", path, strerror(errno));
    fs_close(d);
    json_decref(kept);
    return rc;
}

bool nights_live(const struct nights *n, const char *name, char *out, size_t out_size) {
    int k = snprintf(out, out_size, "%s/live/%s", n->dir, name);
    return n->current && k > 0 && (size_t)k < out_size && file_exists(out);
}

int nights_rewrite(struct nights *n, int64_t night, const json_t *record, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    int rc = record_path(n, night, path, e);
    return rc ? rc : json_file_write(path, json_incref((json_t *)(uintptr_t)record), e);
}

int nights_add(struct nights *n, json_t *record, bool promote, int64_t *night, struct err *e) {
    *night = n->last + 1;
    json_object_set_new(record, "night", json_integer(*night));
    json_object_set_new(record, "parent", json_integer(n->current));
    int rc = nights_rewrite(n, *night, record, e);
    if (!rc) n->last = *night;
    return rc || !promote ? rc : nights_select(n, *night, e);
}
