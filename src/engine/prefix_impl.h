/* prefix_impl.h: checkpoints and the file thread's tasks, shared by prefix.c and prefix_file.c. */
#ifndef CHIMERE_ENGINE_PREFIX_IMPL_H
#define CHIMERE_ENGINE_PREFIX_IMPL_H

#include "base/thread.h"
#include "engine/prefix.h"
#include "store/state.h"

enum { PREFIX_FILE_NAME = 32 };

enum prefix_task_kind { TASK_SAVE, TASK_LOAD, TASK_USED, TASK_REMOVE, TASK_EVICTED };

struct prefix_task {
    enum prefix_task_kind kind;
    /* borrowed: its `busy` flag pins it; NULL for the last three kinds */
    struct prefix_entry *entry;
    struct checkpoint *mark; /* SAVE: borrowed; LOAD: owned result, or NULL */
    int32_t *tokens;         /* owned; SAVE: in, LOAD: out */
    int32_t n_tok;
    uint64_t scope, owner, session;
    int64_t id; /* row in the store */
    int64_t n_bytes;
    char file[PREFIX_FILE_NAME];
    int rc;
    struct prefix_task *next; /* owned by its list */
};

/* The thread that writes, reads and removes the files of states and their rows in the store. */
struct prefix_files {
    struct lm *lm;       /* borrowed */
    struct store *store; /* borrowed */
    char *dir;           /* owned */
    uint64_t layout;
    uint64_t disk_bytes, owner_disk_bytes;
    pthread_t thread;
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t wake, done_wake;
    struct prefix_task *todo, *todo_last, *done, *done_last; /* owned */
    /* posted and not yet taken by the engine's thread */
    int32_t n_open;
    bool quit, running;
};

int prefix_files_open(struct prefix_files *f, struct lm *lm, const struct cache_params *c,
                      uint64_t layout, struct err *e);
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
