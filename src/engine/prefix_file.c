/* prefix_file.c: the thread that moves states between memory and files.
 *
 * The order of operations makes a kill harmless. A file is complete (written under a temporary name, synced, renamed)
 * before its row exists, and a row is deleted before its file. A kill can therefore only leave a file without a row.
 * The next start removes such a file once it is too old to belong to a process that is still writing. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/os/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "engine/prefix_impl.h"

enum { ORPHAN_AGE_S = 600 };

struct prefix_task *prefix_task_new(enum prefix_task_kind kind) {
    struct prefix_task *t = mem_zalloc(sizeof *t);
    if (t) t->kind = kind;
    return t;
}

void prefix_task_free(struct prefix_files *f, struct prefix_task *t) {
    if (t->kind == TASK_LOAD && t->mark) f->lm->ops->marks->checkpoint_free(f->lm, t->mark);
    mem_free(t->tokens);
    mem_free(t);
}

static bool path_of(const struct prefix_files *f, const char *file, char path[4096]) {
    int n = snprintf(path, 4096, "%s/%s", f->dir, file);
    return n > 0 && n < 4096;
}

static void remove_state(struct prefix_files *f, int64_t id, const char *file) {
    char path[4096];
    struct err e;
    if (store_state_remove(f->store, id, &e)) log_warn("saved states: %s", e.text);
    else if (path_of(f, file, path)) fs_remove(path);
}

/* ---- on the file thread ---- */

static void done(struct prefix_files *f, struct prefix_task *t) {
    pthread_mutex_lock(&f->lock);
    t->next = NULL;
    if (f->done_last) f->done_last->next = t;
    else f->done = t;
    f->done_last = t;
    pthread_cond_signal(&f->done_wake);
    pthread_mutex_unlock(&f->lock);
}

/* Removes the least recently used files of one owner, or of all owners (0), until they fit the budget. */
static void evict(struct prefix_files *f, uint64_t owner, uint64_t budget) {
    int64_t n_bytes = 0;
    struct err e;
    while (!store_state_bytes(f->store, owner, &n_bytes, &e) && (uint64_t)n_bytes > budget) {
        struct prefix_task *t = prefix_task_new(TASK_EVICTED);
        if (!t || store_state_oldest(f->store, owner, &t->id, t->file, sizeof t->file, &e)) {
            mem_free(t);
            return;
        }
        remove_state(f, t->id, t->file);
        pthread_mutex_lock(&f->lock);
        f->n_open++;
        pthread_mutex_unlock(&f->lock);
        done(f, t);
    }
}

/* The files of all models share one budget; within it, each owner has a budget. */
static void keep_budget(struct prefix_files *f, uint64_t owner) {
    if (owner && f->owner_disk_bytes) evict(f, owner, f->owner_disk_bytes);
    evict(f, 0, f->disk_bytes);
}

static void save(struct prefix_files *f, struct prefix_task *t) {
    char path[4096];
    struct err e = {0};
    struct fs_info st;
    snprintf(t->file, sizeof t->file, "%016llx.seq", (unsigned long long)rng_entropy());
    t->rc = path_of(f, t->file, path) ? 0 : CHIMERE_ELIMIT;
    size_t n = (size_t)t->n_tok * sizeof *t->tokens;
    if (!t->rc) t->rc = f->lm->ops->marks->save(f->lm, t->mark, path, t->tokens, n, &e);
    if (!t->rc && fs_stat(path, &st)) t->rc = err_set(&e, CHIMERE_EIO, "%s: cannot stat", path);
    if (!t->rc) {
        t->n_bytes = (int64_t)st.bytes;
        struct store_state row = {.layout = f->layout,
                                  .scope = t->scope,
                                  .owner = t->owner,
                                  .session = t->session,
                                  .tokens = t->tokens,
                                  .n_tok = t->n_tok,
                                  .n_bytes = t->n_bytes,
                                  .file = t->file};
        t->rc = store_state_add(f->store, &row, &e);
        t->id = row.id;
        if (t->rc) fs_remove(path);
    }
    if (t->rc) log_warn("a state could not be saved: %s", e.text);
}

static void load(struct prefix_files *f, struct prefix_task *t) {
    char path[4096];
    struct err e = {0};
    void *extra = NULL;
    size_t n = 0;
    t->rc = path_of(f, t->file, path) ? 0 : CHIMERE_ELIMIT;
    if (!t->rc) t->rc = f->lm->ops->marks->load(f->lm, path, &t->mark, &extra, &n, &e);
    t->tokens = extra;
    t->n_tok = (int32_t)(n / sizeof *t->tokens);
    if (!t->rc || t->rc == CHIMERE_ENOMEM) return;
    log_warn("a saved state is of no use and removed: %s", e.text);
    remove_state(f, t->id, t->file);
}

static void *files_thread(void *arg) {
    struct prefix_files *f = arg;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->todo && !f->quit) pthread_cond_wait(&f->wake, &f->lock);
        struct prefix_task *t = f->todo;
        if (!t) break;
        f->todo = t->next;
        if (!f->todo) f->todo_last = NULL;
        pthread_mutex_unlock(&f->lock);
        if (t->kind == TASK_SAVE) save(f, t);
        if (t->kind == TASK_LOAD) load(f, t);
        if (t->kind == TASK_USED) store_state_used(f->store, t->id, 0, NULL);
        if (t->kind == TASK_REMOVE) remove_state(f, t->id, t->file);
        bool saved = t->kind == TASK_SAVE && !t->rc;
        uint64_t owner = t->owner;
        done(f, t);
        if (saved) keep_budget(f, owner);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- called by the engine's thread ---- */

void prefix_files_post(struct prefix_files *f, struct prefix_task *t) {
    pthread_mutex_lock(&f->lock);
    t->next = NULL;
    if (f->todo_last) f->todo_last->next = t;
    else f->todo = t;
    f->todo_last = t;
    f->n_open++;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
}

struct prefix_task *prefix_files_take(struct prefix_files *f) {
    pthread_mutex_lock(&f->lock);
    struct prefix_task *t = f->done;
    if (t) {
        f->done = t->next;
        if (!f->done) f->done_last = NULL;
        f->n_open--;
    }
    pthread_mutex_unlock(&f->lock);
    return t;
}

bool prefix_files_busy(struct prefix_files *f) {
    pthread_mutex_lock(&f->lock);
    bool busy = f->n_open > 0;
    pthread_mutex_unlock(&f->lock);
    return busy;
}

void prefix_files_wait(struct prefix_files *f, int32_t ms) {
    int64_t until = clock_ns() + ms * INT64_C(1000000);
    pthread_mutex_lock(&f->lock);
    if (!f->done && f->n_open) thread_wait_until(&f->done_wake, &f->lock, until);
    pthread_mutex_unlock(&f->lock);
}

static void remove_orphans(struct prefix_files *f) {
    struct fs_folder *d = fs_open(f->dir);
    if (!d) return;
    for (const char *name; (name = fs_next(d));) {
        char path[4096];
        struct fs_info st;
        bool ours = str_ends(name, ".seq") || strstr(name, ".seq.tmp.");
        if (!ours || !path_of(f, name, path) || fs_lstat(path, &st)) continue;
        if (!st.is_file || time(NULL) - st.mtime_ns / 1000000000 < ORPHAN_AGE_S) continue;
        if (!store_state_has_file(f->store, name)) fs_remove(path);
    }
    fs_close(d);
}

int prefix_files_open(struct prefix_files *f, struct lm *lm, const struct cache_params *c,
                      uint64_t layout, struct err *e) {
    *f = (struct prefix_files){.lm = lm,
                               .store = c->store,
                               .layout = layout,
                               .disk_bytes = c->disk_bytes,
                               .owner_disk_bytes = c->owner_disk_bytes};
    int rc = file_mkdirs(c->dir, e);
    if (rc) return rc;
    f->dir = mem_strdup(c->dir);
    if (!f->dir) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    remove_orphans(f);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->wake, NULL);
    thread_cond_init(&f->done_wake);
    f->running = pthread_create(&f->thread, NULL, files_thread, f) == 0;
    if (f->running) return 0;
    prefix_files_close(f);
    return err_set(e, CHIMERE_ENOMEM, "cannot start the thread of saved states");
}

void prefix_files_close(struct prefix_files *f) {
    if (!f->dir) return;
    pthread_mutex_lock(&f->lock);
    f->quit = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
    if (f->running) pthread_join(f->thread, NULL);
    for (struct prefix_task *t; (t = prefix_files_take(f));) prefix_task_free(f, t);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->wake);
    pthread_cond_destroy(&f->done_wake);
    mem_free(f->dir);
    f->dir = NULL;
}
