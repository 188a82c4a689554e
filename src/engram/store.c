#include "engram/store.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/mem.h"
#include "base/thread.h"

enum { MAX_NAME = 64, LOAD_MOST = 1 << 30 };

/* an open table and its number of leases; all leases of a table share this struct */
struct engram_lease {
    struct engram_lease *next;
    struct engram_store *store; /* borrowed */
    struct engram_table *table; /* owned */
    char *path;                 /* owned */
    struct fs_info file;        /* state of the file when it was loaded */
    int32_t n_lease;
    bool is_current;
};

struct engram_store {
    pthread_mutex_t lock; /* protects the list and its counts */
    struct engram_lease *tables;
    char *dir; /* owned */
    /* dir is the user's data folder; tables shipped with the program are searched after it */
    bool is_own;
    uint64_t tok_hash;
    uint32_t n_vocab;
};

int engram_store_new(struct engram_store **out, const char *dir, uint64_t tok_hash,
                     uint32_t n_vocab, struct err *e) {
    char own[4096];
    *out = NULL;
    int rc = dir ? 0 : file_user_data("engram", own, sizeof own, e);
    if (rc) return rc;
    struct engram_store *s = mem_zalloc(sizeof *s);
    if (s) s->dir = mem_strdup(dir ? dir : own);
    if (!s || !s->dir) {
        mem_free(s);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    s->is_own = !dir;
    s->tok_hash = tok_hash;
    s->n_vocab = n_vocab;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

static void drop(struct engram_lease *l) {
    engram_table_close(l->table);
    mem_free(l->path);
    mem_free(l);
}

void engram_store_free(struct engram_store *s) {
    if (!s) return;
    for (struct engram_lease *l = s->tables, *next; l; l = next) {
        next = l->next;
        drop(l);
    }
    pthread_mutex_destroy(&s->lock);
    mem_free(s->dir);
    mem_free(s);
}

static bool is_same_file(const struct fs_info *a, const struct fs_info *b) {
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->mtime_ns == b->mtime_ns;
}

/* Call it with the lock held. Removes tables from the list that have no lease and are not current, and returns
 * them. */
static struct engram_lease *sweep(struct engram_store *s) {
    struct engram_lease *gone = NULL;
    for (struct engram_lease **at = &s->tables, *l; (l = *at);) {
        if (l->is_current || l->n_lease) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        l->next = gone;
        gone = l;
    }
    return gone;
}

static void drop_all(struct engram_lease *gone) {
    for (struct engram_lease *next; gone; gone = next) {
        next = gone->next;
        drop(gone);
    }
}

/* Call it with the lock held. Returns the current table of the path, with one more lease, if st still describes
 * its file. Otherwise the path has no current table afterwards. */
static struct engram_lease *take_known(struct engram_store *s, const char *path,
                                       const struct fs_info *st) {
    for (struct engram_lease *l = s->tables; l; l = l->next) {
        if (!l->is_current || strcmp(l->path, path) != 0) continue;
        if (st && is_same_file(&l->file, st)) {
            l->n_lease++;
            return l;
        }
        l->is_current = false;
    }
    return NULL;
}

int engram_store_take_path(struct engram_store *s, const char *path, struct engram_lease **out,
                           struct err *e) {
    struct fs_info st;
    *out = NULL;
    bool is_there = fs_stat(path, &st) == 0;
    pthread_mutex_lock(&s->lock);
    struct engram_lease *l = take_known(s, path, is_there ? &st : NULL), *gone = sweep(s);
    pthread_mutex_unlock(&s->lock);
    drop_all(gone);
    if (l) {
        *out = l;
        return 0;
    }
    if (!is_there) {
        err_set(e, CHIMERE_ENOENT, "engram: no table at %s", path);
        err_hint(e, "chimere engram sync or build makes one");
        return CHIMERE_ENOENT;
    }
    l = mem_zalloc(sizeof *l);
    if (l) l->path = mem_strdup(path);
    int rc = l && l->path
                 ? engram_table_load(&l->table, path, LOAD_MOST, s->tok_hash, s->n_vocab, e)
                 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (rc) {
        if (l) drop(l);
        return rc;
    }
    l->store = s;
    l->file = st;
    l->n_lease = 1;
    l->is_current = true;
    pthread_mutex_lock(&s->lock);
    /* if another thread opened the table meanwhile, its copy only serves its own leases */
    take_known(s, path, NULL);
    l->next = s->tables;
    s->tables = l;
    pthread_mutex_unlock(&s->lock);
    *out = l;
    return 0;
}

static bool is_name(const char *name) {
    size_t n = strlen(name);
    bool good = n >= 1 && n <= MAX_NAME && name[0] != '.';
    for (size_t i = 0; i < n && good; i++)
        good = isalnum((unsigned char)name[i]) || strchr("-_.", name[i]);
    return good;
}

int engram_store_take(struct engram_store *s, const char *owner, const char *name,
                      struct engram_lease **out, struct err *e) {
    char path[4096];
    *out = NULL;
    if (!is_name(name))
        return err_set(e, CHIMERE_EINVAL,
                       "engram: expected the name of a table (letters, digits, '-', '_'), got "
                       "'%.80s'",
                       name);
    if (owner && is_name(owner) &&
        (size_t)snprintf(path, sizeof path, "%s/%s/%s.engram", s->dir, owner, name) < sizeof path &&
        file_exists(path))
        return engram_store_take_path(s, path, out, e);
    if ((size_t)snprintf(path, sizeof path, "%s/%s.engram", s->dir, name) >= sizeof path)
        return err_set(e, CHIMERE_ELIMIT, "engram: the path of the tables is too long");
    /* tables shipped with the program, unless the user has one with that name */
    char shipped[96];
    snprintf(shipped, sizeof shipped, "engram/%s.engram", name);
    if (s->is_own && !file_exists(path)) file_find_data(shipped, path, sizeof path);
    int rc = engram_store_take_path(s, path, out, e);
    if (rc == CHIMERE_ENOENT) {
        err_set(e, rc, "engram: no table named '%s'", name);
        err_hint(e, "chimere engram sync --domain NAME DIR makes one");
    }
    return rc;
}

const struct engram_table *engram_lease_table(const struct engram_lease *l) { return l->table; }

void engram_lease_return(struct engram_lease *l) {
    if (!l) return;
    struct engram_store *s = l->store;
    pthread_mutex_lock(&s->lock);
    l->n_lease--;
    struct engram_lease *gone = sweep(s);
    pthread_mutex_unlock(&s->lock);
    drop_all(gone);
}
