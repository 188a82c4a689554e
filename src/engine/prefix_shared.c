#include "engine/prefix_shared.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "model/seq/seq.h"

enum {
    BLOCK = SCAN_GRID,
    N_BAD = 64,          /* names of damaged files that are remembered */
    MAX_FILES = 1 << 16, /* that are looked at */
    HEX = 16,
    KEY_AT = 2 * HEX + 2, /* of a name: FORM-OWNER-KEY.seq */
    NAME_BYTES = KEY_AT + 64 + 4,
    ORPHAN_S = 3600 /* the writer of a partial file of this age has ended */
};
_Static_assert((int)NAME_BYTES < (int)PREFIX_SHARED_NAME, "room for a name");

struct prefix_shared {
    struct lm *lm; /* borrowed */
    char *dir;     /* owned */
    uint64_t form, bytes, owner_bytes;
    /* hashes of names; a ring, written by the thread that loads and read by both */
    _Atomic uint64_t bad[N_BAD];
    uint32_t n_bad;
};

static bool path_of(const struct prefix_shared *s, const char *name, char path[4096]) {
    int n = snprintf(path, 4096, "%s/%s", s->dir, name);
    return n > 0 && n < 4096;
}

/* ---- names ---- */

struct key {
    unsigned char bytes[DIGEST_BYTES];
    int64_t pos;
};

/* Extends the key of a prefix by one block. */
static bool next_key(struct key *k, const int32_t *tokens) {
    unsigned char in[DIGEST_BYTES + BLOCK * sizeof *tokens];
    memcpy(in, k->bytes, DIGEST_BYTES);
    memcpy(in + DIGEST_BYTES, tokens, BLOCK * sizeof *tokens);
    k->pos += BLOCK;
    return digest_of(in, sizeof in, k->bytes);
}

static bool first_key(const struct prefix_shared *s, uint64_t scope, struct key *k) {
    struct {
        char what[16];
        uint64_t form, scope;
    } in = {"chimere state 1", s->form, scope};
    k->pos = 0;
    return digest_of(&in, sizeof in, k->bytes);
}

static bool key_of(const struct prefix_shared *s, uint64_t scope, const int32_t *tokens, int32_t n,
                   struct key *k) {
    bool ok = n > 0 && n % BLOCK == 0 && first_key(s, scope, k);
    for (int32_t i = 0; ok && i < n; i += BLOCK) ok = next_key(k, tokens + i);
    return ok;
}

static void name_of(const struct prefix_shared *s, uint64_t owner, const struct key *k,
                    char name[PREFIX_SHARED_NAME]) {
    char hex[DIGEST_HEX_BYTES];
    digest_hex(k->bytes, hex);
    snprintf(name, PREFIX_SHARED_NAME, "%016llx-%016llx-%s.seq", (unsigned long long)s->form,
             (unsigned long long)owner, hex);
}

static bool is_hex(const char *p, size_t n) { return strspn(p, "0123456789abcdef") >= n; }

static bool is_state(const char *name) {
    return strlen(name) == NAME_BYTES && is_hex(name, HEX) && name[HEX] == '-' &&
           is_hex(name + HEX + 1, HEX) && name[KEY_AT - 1] == '-' && is_hex(name + KEY_AT, 64) &&
           str_ends(name, ".seq");
}

/* A state that is being written, or whose writer ended before. */
static bool is_partial(const char *name) {
    return strlen(name) > NAME_BYTES && str_starts(name + NAME_BYTES, ".tmp.");
}

static uint64_t number_of(const char *hex16) {
    char text[HEX + 1];
    memcpy(text, hex16, HEX);
    text[HEX] = 0;
    return strtoull(text, NULL, 16);
}

static bool is_bad(const struct prefix_shared *s, const char *name) {
    uint64_t h = hash_bytes(name, strlen(name), 0);
    for (int i = 0; i < N_BAD; i++)
        if (s->bad[i] == h) return true;
    return false;
}

static void set_bad(struct prefix_shared *s, const char *name, bool bad) {
    uint64_t h = hash_bytes(name, strlen(name), 0);
    for (int i = 0; !bad && i < N_BAD; i++)
        if (s->bad[i] == h) s->bad[i] = 0;
    if (bad) s->bad[s->n_bad++ % N_BAD] = h;
}

/* ---- finding and loading ---- */

static int compare_keys(const void *a, const void *b) {
    return memcmp(((const struct key *)a)->bytes, ((const struct key *)b)->bytes, DIGEST_BYTES);
}

/* Fills keys with those of the positions above `least`, sorted; returns their number. */
static size_t list_keys(const struct prefix_shared *s, const struct prefix_shared_state *x,
                        int64_t least, int32_t grid, struct key *keys) {
    struct key k;
    size_t n = 0;
    bool ok = first_key(s, x->scope, &k);
    while (ok && k.pos + BLOCK < x->n) {
        ok = next_key(&k, x->tokens + k.pos);
        if (ok && k.pos > least && k.pos % grid == 0) keys[n++] = k;
    }
    qsort(keys, n, sizeof *keys, compare_keys);
    return n;
}

static struct key key_from(const char *hex) {
    struct key k = {.pos = 0};
    for (int i = 0; i < DIGEST_BYTES; i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        k.bytes[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    return k;
}

bool prefix_shared_find(struct prefix_shared *s, const struct prefix_shared_state *x, int64_t least,
                        int32_t grid, struct prefix_shared_file *out) {
    char path[4096];
    struct fs_info info;
    *out = (struct prefix_shared_file){.pos = 0};
    struct key *keys = x->n < BLOCK ? NULL : mem_alloc_array((size_t)(x->n / BLOCK), sizeof *keys);
    size_t n = keys ? list_keys(s, x, least, grid, keys) : 0;
    struct fs_folder *d = n ? fs_open(s->dir) : NULL;
    int32_t left = MAX_FILES;
    for (const char *name; d && left-- > 0 && (name = fs_next(d));) {
        if (!is_state(name) || number_of(name) != s->form) continue;
        struct key k = key_from(name + KEY_AT);
        const struct key *found = bsearch(&k, keys, n, sizeof *keys, compare_keys);
        if (!found || found->pos <= out->pos || is_bad(s, name)) continue;
        if (!path_of(s, name, path) || fs_lstat(path, &info) || !info.is_file) continue;
        out->pos = found->pos;
        out->n_bytes = (int64_t)info.bytes;
        memcpy(out->name, name, NAME_BYTES + 1);
    }
    fs_close(d);
    mem_free(keys);
    return out->pos > 0;
}

int prefix_shared_load(struct prefix_shared *s, const char *name, uint64_t scope,
                       struct checkpoint **out, int32_t **tokens, int32_t *n) {
    char path[4096], want[PREFIX_SHARED_NAME];
    struct err e = {0};
    void *extra = NULL;
    size_t n_extra = 0;
    struct key k;
    *out = NULL;
    *tokens = NULL;
    *n = 0;
    if (!path_of(s, name, path)) return CHIMERE_ELIMIT;
    fs_use(path); /* a lease; in a read-only folder it fails, and no file is removed */
    int rc = s->lm->ops->marks->load(s->lm, path, out, &extra, &n_extra, &e);
    if (!rc) {
        *tokens = extra;
        *n = (int32_t)(n_extra / sizeof **tokens);
        bool ok = key_of(s, scope, *tokens, *n, &k);
        if (ok) name_of(s, number_of(name + HEX + 1), &k, want);
        if (ok && !strcmp(name, want)) return 0;
        s->lm->ops->marks->checkpoint_free(s->lm, *out);
        mem_free(extra);
        *out = NULL;
        *tokens = NULL;
        rc = err_set(&e, CHIMERE_EMISMATCH, "%s: expected the text of its name", path);
    }
    if (rc == CHIMERE_ENOMEM || !file_exists(path)) return rc; /* another server removed it */
    log_warn("a shared state is ignored: %s", e.text);
    set_bad(s, name, true);
    return rc;
}

/* ---- room ---- */

struct entry {
    int64_t used_ns;
    uint64_t bytes, owner;
    char name[NAME_BYTES + 1];
};

struct listing {
    struct entry *v; /* owned [n] */
    size_t n, max;
};

static int compare_use(const void *a, const void *b) {
    int64_t x = ((const struct entry *)a)->used_ns, y = ((const struct entry *)b)->used_ns;
    return x < y ? -1 : x > y;
}

static int add_entry(struct listing *l, const char *name, const struct fs_info *info) {
    if (l->n == l->max) {
        size_t max = l->max ? 2 * l->max : 64;
        struct entry *v = max > MAX_FILES ? NULL : mem_realloc(l->v, max * sizeof *v);
        if (!v) return CHIMERE_ENOMEM;
        l->v = v;
        l->max = max;
    }
    struct entry *x = &l->v[l->n++];
    *x = (struct entry){
        .used_ns = info->mtime_ns, .bytes = info->bytes, .owner = number_of(name + HEX + 1)};
    memcpy(x->name, name, NAME_BYTES + 1);
    return 0;
}

/* Lists all states of all programs, and removes partial files of servers that were killed. */
static int list_files(const struct prefix_shared *s, int64_t now_ns, struct listing *l) {
    char path[4096];
    struct fs_info info;
    int rc = 0;
    struct fs_folder *d = fs_open(s->dir);
    for (const char *name; d && !rc && (name = fs_next(d));) {
        bool partial = is_partial(name);
        if ((!partial && !is_state(name)) || !path_of(s, name, path)) continue;
        if (fs_lstat(path, &info) || !info.is_file) continue;
        if (!partial) rc = add_entry(l, name, &info);
        else if (now_ns - info.mtime_ns > ORPHAN_S * INT64_C(1000000000)) fs_remove(path);
    }
    fs_close(d);
    if (l->n) qsort(l->v, l->n, sizeof *l->v, compare_use);
    return rc;
}

/* The time on the clock of the file server; also tells whether the folder can be written. */
static int read_clock(const struct prefix_shared *s, int64_t *now_ns, struct err *e) {
    char path[4096];
    struct fs_info info;
    if (path_of(s, "clock", path) && !fs_touch(path) && !fs_use(path) && !fs_stat(path, &info)) {
        *now_ns = info.mtime_ns;
        return 0;
    }
    return err_set(e, CHIMERE_EIO, "%s: cannot write: %s", s->dir, strerror(errno));
}

/* Removes files, least recently used first, until n more bytes fit into the limit of all, or of one owner. */
static bool make_room(const struct prefix_shared *s, struct listing *l, const uint64_t *owner,
                      uint64_t limit, uint64_t n, int64_t now_ns) {
    char path[4096];
    uint64_t sum = 0;
    for (size_t i = 0; i < l->n; i++)
        if (!owner || l->v[i].owner == *owner) sum += l->v[i].bytes;
    for (size_t i = 0; i < l->n && sum + n > limit; i++) {
        struct entry *x = &l->v[i];
        if (!x->bytes || (owner && x->owner != *owner)) continue;
        if (now_ns - x->used_ns < PREFIX_SHARED_LEASE_S * INT64_C(1000000000)) break;
        if (path_of(s, x->name, path)) fs_remove(path);
        sum -= x->bytes;
        x->bytes = 0;
    }
    return sum + n <= limit;
}

int prefix_shared_save(struct prefix_shared *s, const struct prefix_shared_state *x,
                       const struct checkpoint *m, struct prefix_shared_file *out, struct err *e) {
    char path[4096];
    struct key k;
    struct fs_info info;
    struct listing l = {.v = NULL};
    int64_t now_ns = 0;
    *out = (struct prefix_shared_file){.pos = x->n};
    if (!key_of(s, x->scope, x->tokens, x->n, &k))
        return err_set(e, CHIMERE_EINVAL, "shared state: cannot hash %d tokens", x->n);
    name_of(s, x->owner, &k, out->name);
    if (!path_of(s, out->name, path))
        return err_set(e, CHIMERE_ELIMIT, "%s: the path is too long", s->dir);
    if (!fs_lstat(path, &info) && info.is_file && !is_bad(s, out->name)) {
        fs_use(path);
        out->n_bytes = (int64_t)info.bytes;
        return 0;
    }
    uint64_t n = s->lm->checkpoint_bytes + (uint64_t)(x->n / BLOCK) * s->lm->page_bytes;
    int rc = read_clock(s, &now_ns, e);
    if (!rc && list_files(s, now_ns, &l))
        rc = err_set(e, CHIMERE_ELIMIT, "%s: more than %d states", s->dir, MAX_FILES);
    if (!rc && ((s->owner_bytes && !make_room(s, &l, &x->owner, s->owner_bytes, n, now_ns)) ||
                !make_room(s, &l, NULL, s->bytes, n, now_ns)))
        rc = err_set(e, CHIMERE_ELIMIT, "%s: full of states that were used within %d seconds",
                     s->dir, PREFIX_SHARED_LEASE_S);
    mem_free(l.v);
    size_t n_extra = (size_t)x->n * sizeof *x->tokens;
    if (!rc) rc = s->lm->ops->marks->save(s->lm, m, path, x->tokens, n_extra, e);
    if (rc) return rc;
    set_bad(s, out->name, false);
    out->n_bytes = fs_stat(path, &info) ? (int64_t)n : (int64_t)info.bytes;
    return 0;
}

int prefix_shared_forget(const char *dir, uint64_t owner, uint64_t *n_gone, struct err *e) {
    const struct prefix_shared s = {.dir = (char *)dir};
    char path[4096];
    int rc = 0;
    struct fs_folder *d = fs_open(dir);
    *n_gone = 0;
    if (!d) return err_set(e, CHIMERE_EIO, "%s: cannot be read: %s", dir, strerror(errno));
    for (const char *name; !rc && (name = fs_next(d));) {
        char state[NAME_BYTES + 1];
        snprintf(state, sizeof state, "%s", name); /* of a partial file, the name without its end */
        if ((!is_state(name) && !is_partial(name)) || !is_state(state)) continue;
        if (number_of(state + HEX + 1) != owner || !path_of(&s, name, path)) continue;
        if (fs_remove(path) && errno != ENOENT)
            rc = err_set(e, CHIMERE_EIO, "%s: cannot be removed: %s", path, strerror(errno));
        else ++*n_gone;
    }
    fs_close(d);
    return rc;
}

/* ---- start and end ---- */

int prefix_shared_open(struct prefix_shared **out, struct lm *lm, const struct cache_params *c,
                       uint64_t schedule, struct err *e) {
    struct err why = {0};
    int64_t now_ns;
    *out = NULL;
    int rc = file_mkdirs(c->shared_dir, e);
    if (!rc && !fs_is_folder(c->shared_dir))
        rc = err_set(e, CHIMERE_EIO, "%s: expected a folder", c->shared_dir);
    if (rc) return rc;
    struct prefix_shared *s = mem_zalloc(sizeof *s);
    if (s) s->dir = mem_strdup(c->shared_dir);
    if (!s || !s->dir) {
        mem_free(s);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    const uint64_t form[] = {lm->layout, lm->device, schedule, c->shared_build};
    s->lm = lm;
    s->form = hash_bytes(form, sizeof form, 0);
    s->bytes = c->shared_bytes;
    s->owner_bytes = c->shared_owner_bytes;
    if (read_clock(s, &now_ns, &why))
        log_warn("shared states are read, but none are added: %s", why.text);
    *out = s;
    return 0;
}

void prefix_shared_close(struct prefix_shared *s) {
    if (!s) return;
    mem_free(s->dir);
    mem_free(s);
}
