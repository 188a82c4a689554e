/* prefix_impl.h: checkpoints and the file thread's tasks, shared by prefix.c and prefix_file.c. */
#ifndef CHIMERE_ENGINE_PREFIX_IMPL_H
#define CHIMERE_ENGINE_PREFIX_IMPL_H

#include "base/thread.h"
#include "engine/prefix.h"
#include "engine/prefix_shared.h"
#include "store/state.h"

enum { PREFIX_FILE_NAME = PREFIX_SHARED_NAME };

enum prefix_task_kind { TASK_SAVE, TASK_LOAD, TASK_USED, TASK_REMOVE, TASK_EVICTED, TASK_LOOK };

struct prefix_task {
    enum prefix_task_kind kind;
    bool is_shared; /* in the folder that servers share */
    /* SAVE and LOAD: borrowed: its `busy` flag pins it; otherwise NULL */
    struct prefix_entry *entry;
    struct checkpoint *mark; /* SAVE: borrowed; LOAD: owned result, or NULL */
    int32_t *tokens;         /* owned; SAVE and LOOK: in, LOAD: out */
    int32_t n_tok;
    uint64_t scope, owner, session;
    int64_t id; /* row in the store */
    int64_t n_bytes;
    int64_t pos; /* LOOK: in: the best known position; out: the position found, 0 if none */
    double ms;   /* LOAD: time it took */
    char file[PREFIX_FILE_NAME];
    int rc;
    struct prefix_task *next; /* owned by its list */
};

/* Threads: one for this machine's files and their rows in the store, and two for the shared folder, so that a prompt that
 * looks there does not wait for a state that is being written. */
enum prefix_lane_kind { LANE_OWN, LANE_READ, LANE_WRITE, LANE_N };
struct prefix_lane {
    struct prefix_files *files; /* borrowed */
    pthread_t thread;
    pthread_cond_t wake;
    struct prefix_task *todo, *todo_last; /* owned */
    bool running;
};

struct prefix_files {
    struct lm *lm;                /* borrowed */
    struct store *store;          /* borrowed */
    char *dir;                    /* owned; NULL: no files of this machine */
    struct prefix_shared *shared; /* owned; NULL: no shared folder */
    uint64_t layout;
    int32_t grid;
    uint64_t disk_bytes, owner_disk_bytes;
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t done_wake;
    struct prefix_lane lanes[LANE_N];
    struct prefix_task *done, *done_last; /* owned */
    /* posted and not yet taken by the engine's thread */
    int32_t n_open;
    bool quit, is_open;
};

/* schedule, grid: as in prefix_new. layout: of the files of this machine. */
int prefix_files_open(struct prefix_files *f, struct lm *lm, const struct cache_params *c,
                      uint64_t schedule, uint64_t layout, int32_t grid, struct err *e);
void prefix_files_close(struct prefix_files *f); /* finishes all posted tasks first */
struct prefix_task *prefix_task_new(enum prefix_task_kind kind);
void prefix_task_free(struct prefix_files *f, struct prefix_task *t);
void prefix_files_post(struct prefix_files *f, struct prefix_task *t);
/* returns a finished task, or NULL */
struct prefix_task *prefix_files_take(struct prefix_files *f);
bool prefix_files_busy(struct prefix_files *f);
/* Waits until a task is finished, at most ms milliseconds. */
void prefix_files_wait(struct prefix_files *f, int32_t ms);

#endif
