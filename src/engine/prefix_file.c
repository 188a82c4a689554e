/* prefix_file.c: the threads that move states between memory and files.
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

/* ---- on the file threads ---- */

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

/* ---- the folder that servers share ---- */

static void look(struct prefix_files *f, struct prefix_task *t) {
    const struct prefix_shared_state x = {.tokens = t->tokens, .n = t->n_tok, .scope = t->scope};
    struct prefix_shared_file found;
    prefix_shared_find(f->shared, &x, t->pos, f->grid, &found);
    t->pos = found.pos;
    t->n_bytes = found.n_bytes;
    memcpy(t->file, found.name, sizeof t->file);
}

static void load_shared(struct prefix_files *f, struct prefix_task *t) {
    int64_t start = clock_ns();
    t->rc = prefix_shared_load(f->shared, t->file, t->scope, &t->mark, &t->tokens, &t->n_tok);
    t->ms = clock_ms_since(start);
}

static void save_shared(struct prefix_files *f, struct prefix_task *t) {
    const struct prefix_shared_state x = {
        .tokens = t->tokens, .n = t->n_tok, .scope = t->scope, .owner = t->owner};
    struct prefix_shared_file file;
    struct err e = {0};
    t->rc = prefix_shared_save(f->shared, &x, t->mark, &file, &e);
    t->n_bytes = file.n_bytes;
    memcpy(t->file, file.name, sizeof t->file);
    if (t->rc) log_warn("a state is not shared: %s", e.text);
}

static void run_task(struct prefix_files *f, struct prefix_task *t) {
    if (t->kind == TASK_SAVE) t->is_shared ? save_shared(f, t) : save(f, t);
    if (t->kind == TASK_LOAD) t->is_shared ? load_shared(f, t) : load(f, t);
    if (t->kind == TASK_LOOK) look(f, t);
    if (t->kind == TASK_USED) store_state_used(f->store, t->id, 0, NULL);
    if (t->kind == TASK_REMOVE) remove_state(f, t->id, t->file);
}

static void *files_thread(void *arg) {
    struct prefix_lane *l = arg;
    struct prefix_files *f = l->files;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!l->todo && !f->quit) pthread_cond_wait(&l->wake, &f->lock);
        struct prefix_task *t = l->todo;
        if (!t) break;
        l->todo = t->next;
        if (!l->todo) l->todo_last = NULL;
        pthread_mutex_unlock(&f->lock);
        run_task(f, t);
        bool saved = t->kind == TASK_SAVE && !t->rc && !t->is_shared;
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
    struct prefix_lane *l = &f->lanes[!t->is_shared          ? LANE_OWN
                                      : t->kind == TASK_SAVE ? LANE_WRITE
                                                             : LANE_READ];
    pthread_mutex_lock(&f->lock);
    t->next = NULL;
    if (l->todo_last) l->todo_last->next = t;
    else l->todo = t;
    l->todo_last = t;
    f->n_open++;
    pthread_cond_signal(&l->wake);
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

static int open_own(struct prefix_files *f, const struct cache_params *c, struct err *e) {
    int rc = file_mkdirs(c->dir, e);
    if (rc) return rc;
    f->dir = mem_strdup(c->dir);
    if (!f->dir) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    remove_orphans(f);
    return 0;
}

int prefix_files_open(struct prefix_files *f, struct lm *lm, const struct cache_params *c,
                      uint64_t schedule, uint64_t layout, int32_t grid, struct err *e) {
    *f = (struct prefix_files){.lm = lm,
                               .store = c->store,
                               .layout = layout,
                               .grid = grid,
                               .disk_bytes = c->disk_bytes,
                               .owner_disk_bytes = c->owner_disk_bytes};
    pthread_mutex_init(&f->lock, NULL);
    thread_cond_init(&f->done_wake);
    for (int i = 0; i < LANE_N; i++) {
        f->lanes[i].files = f;
        pthread_cond_init(&f->lanes[i].wake, NULL);
    }
    f->is_open = true;
    int rc = c->dir && c->store && c->disk_bytes ? open_own(f, c, e) : 0;
    if (!rc && c->shared_dir) rc = prefix_shared_open(&f->shared, lm, c, schedule, e);
    for (int i = 0; !rc && i < LANE_N; i++) {
        struct prefix_lane *l = &f->lanes[i];
        if (i == LANE_OWN ? !f->dir : !f->shared) continue;
        l->running = pthread_create(&l->thread, NULL, files_thread, l) == 0;
        if (!l->running) rc = err_set(e, CHIMERE_ENOMEM, "cannot start the thread of saved states");
    }
    if (rc) prefix_files_close(f);
    return rc;
}

void prefix_files_close(struct prefix_files *f) {
    if (!f->is_open) return;
    pthread_mutex_lock(&f->lock);
    f->quit = true;
    for (int i = 0; i < LANE_N; i++) pthread_cond_signal(&f->lanes[i].wake);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < LANE_N; i++)
        if (f->lanes[i].running) pthread_join(f->lanes[i].thread, NULL);
    for (struct prefix_task *t; (t = prefix_files_take(f));) prefix_task_free(f, t);
    for (int i = 0; i < LANE_N; i++) pthread_cond_destroy(&f->lanes[i].wake);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->done_wake);
    prefix_shared_close(f->shared);
    mem_free(f->dir);
    *f = (struct prefix_files){.dir = NULL};
}
