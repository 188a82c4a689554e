#include "backend/replay_shared.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "base/thread.h"

enum {
    MAX_WAITING = 256,
    ROOM_EVERY = 256, /* files that are written between two looks for old ones */
    HEAD_BYTES = 16,
    MAX_BYTES = HEAD_BYTES + REPLAY_SHARED_MAX_TOKENS * 4 + DIGEST_BYTES,
    NAME_BYTES = DIGEST_HEX_BYTES - 1 + 4, /* KEY.ids */
    ORPHAN_S = 3600                        /* the writer of a partial file of this age has ended */
};
static const char magic[8] = "CHIMANS1";

struct task {
    struct task *next;
    struct replay_answer a;
    bool is_find, is_done, is_given_up; /* given up: its reader no longer waits */
    int rc;
};

struct replay_shared {
    struct replay_shared_params p; /* dir is owned */
    pthread_mutex_t lock;          /* guards the following fields */
    pthread_cond_t wake, done;
    struct task *first, *last; /* owned; those that are looked for first */
    int n_waiting;
    bool quit;
    int64_t rest_ns; /* the folder is not asked until then */
    pthread_t thread;
    uint32_t n_written; /* by the thread alone */
    bool has_warned;    /* same */
};

/* ---- files ---- */

static bool key_of(const struct replay_shared *s, const struct replay_answer *a,
                   unsigned char key[DIGEST_BYTES]) {
    const struct {
        char what[16];
        uint64_t form, scope, key[2];
    } in = {"chimere answer 1", s->p.form, a->scope, {a->key[0], a->key[1]}};
    return digest_of(&in, sizeof in, key);
}

static int folder_of(const char *dir, char path[4096], struct err *e) {
    int n = snprintf(path, 4096, "%s/answers", dir);
    return n > 0 && n < 4096 ? 0 : err_set(e, CHIMERE_ELIMIT, "%s: the path is too long", dir);
}

static bool path_of(const struct replay_shared *s, const char *name, char path[4096]) {
    int n = snprintf(path, 4096, "%s/%s", s->p.dir, name);
    return n > 0 && n < 4096;
}

static bool place_of(const struct replay_shared *s, const unsigned char key[DIGEST_BYTES],
                     char path[4096]) {
    char name[NAME_BYTES + 1];
    digest_hex(key, name);
    memcpy(name + NAME_BYTES - 4, ".ids", 5);
    return path_of(s, name, path);
}

/* The digest at the end also covers the key, so that a file is of no use under another name. */
static bool seal(const unsigned char *file, size_t n, const unsigned char key[DIGEST_BYTES],
                 unsigned char out[DIGEST_BYTES]) {
    struct digest *d = digest_new();
    bool ok = d && digest_add(d, key, DIGEST_BYTES) && digest_add(d, file, n) && digest_end(d, out);
    digest_free(d);
    return ok;
}

static int read_answer(const struct replay_shared *s, struct replay_answer *a) {
    unsigned char key[DIGEST_BYTES], want[DIGEST_BYTES];
    char path[4096], *file = NULL;
    size_t n_file = 0;
    uint32_t head[2];
    struct err e = {0};
    if (!key_of(s, a, key) || !place_of(s, key, path)) return CHIMERE_ELIMIT;
    if (!file_exists(path)) return 0;
    int rc = file_read(path, MAX_BYTES, &file, &n_file, &e);
    if (rc) return rc;
    size_t n_data = n_file < HEAD_BYTES + DIGEST_BYTES ? 0 : n_file - DIGEST_BYTES;
    bool ok = n_data && !memcmp(file, magic, sizeof magic) &&
              seal((unsigned char *)file, n_data, key, want) &&
              digest_equal(want, file + n_data, DIGEST_BYTES);
    if (ok) memcpy(head, file + sizeof magic, sizeof head);
    ok = ok && head[0] && n_data == HEAD_BYTES + (size_t)head[0] * sizeof *a->ids;
    if (ok) a->ids = mem_alloc_array(head[0], sizeof *a->ids);
    if (ok && a->ids) {
        memcpy(a->ids, file + HEAD_BYTES, (size_t)head[0] * sizeof *a->ids);
        a->n = (int32_t)head[0];
        a->think = head[1];
        fs_use(path);
    }
    mem_free(file);
    if (!ok) log_warn("%s: a damaged answer is ignored", path);
    return !ok ? 0 : a->ids ? 1 : CHIMERE_ENOMEM;
}

struct old {
    int64_t used_ns;
    char name[NAME_BYTES + 1];
};
static int compare_use(const void *a, const void *b) {
    int64_t x = ((const struct old *)a)->used_ns, y = ((const struct old *)b)->used_ns;
    return x < y ? -1 : x > y;
}

/* An answer, or what file_writer has written of one. */
static bool is_ours(const char *name) {
    size_t n = strlen(name);
    return n >= NAME_BYTES && !strncmp(name + NAME_BYTES - 4, ".ids", 4) &&
           (n == NAME_BYTES || str_starts(name + NAME_BYTES, ".tmp."));
}

/* Removes a quarter of the files, the least recently used ones, if there are too many, and partial files of servers that
 * were killed. */
static void make_room(const struct replay_shared *s) {
    char path[4096];
    struct fs_info info;
    time_t now = time(NULL);
    size_t n = 0, most = 2 * REPLAY_SHARED_MAX_FILES;
    struct old *v = mem_alloc_array(most, sizeof *v);
    struct fs_folder *d = v ? fs_open(s->p.dir) : NULL;
    for (const char *name; d && n < most && (name = fs_next(d));) {
        if (!is_ours(name) || !path_of(s, name, path)) continue;
        if (fs_lstat(path, &info) || !info.is_file) continue;
        if (name[NAME_BYTES]) {
            if (now - info.mtime_ns / 1000000000 > ORPHAN_S) fs_remove(path);
            continue;
        }
        v[n].used_ns = info.mtime_ns;
        memcpy(v[n++].name, name, NAME_BYTES + 1);
    }
    fs_close(d);
    if (n > REPLAY_SHARED_MAX_FILES) {
        qsort(v, n, sizeof *v, compare_use);
        for (size_t i = 0; i < n - REPLAY_SHARED_MAX_FILES / 4 * 3; i++)
            if (path_of(s, v[i].name, path)) fs_remove(path);
    }
    mem_free(v);
}

static int write_file(const char *path, const struct replay_answer *a,
                      const unsigned char key[DIGEST_BYTES], struct err *e) {
    size_t n = HEAD_BYTES + (size_t)a->n * sizeof *a->ids;
    unsigned char *file = mem_alloc(n + DIGEST_BYTES);
    const uint32_t head[2] = {(uint32_t)a->n, a->think};
    if (!file) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    memcpy(file, magic, sizeof magic);
    memcpy(file + sizeof magic, head, sizeof head);
    memcpy(file + HEAD_BYTES, a->ids, (size_t)a->n * sizeof *a->ids);
    struct file_writer w;
    int rc = seal(file, n, key, file + n) ? file_writer_open(&w, path, e)
                                          : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc &&
        (fs_make_private(w.f) || fwrite(file, 1, n + DIGEST_BYTES, w.f) != n + DIGEST_BYTES)) {
        file_writer_abort(&w);
        rc = err_set(e, CHIMERE_EIO, "%s: cannot write", path);
    } else if (!rc) {
        rc = file_writer_commit(&w, e);
    }
    mem_free(file);
    return rc;
}

static void write_answer(struct replay_shared *s, const struct replay_answer *a) {
    unsigned char key[DIGEST_BYTES];
    char path[4096];
    struct err e = {0};
    if (a->n > REPLAY_SHARED_MAX_TOKENS || !s->p.needs(s->p.ud, a)) return;
    if (!key_of(s, a, key) || !place_of(s, key, path)) return;
    if (s->n_written++ % ROOM_EVERY == 0) make_room(s);
    int rc = write_file(path, a, key, &e);
    if (rc && !s->has_warned) log_warn("the tokens of an answer are not shared: %s", e.text);
    s->has_warned = rc != 0;
}

/* ---- the thread ---- */

static void answer_fini(struct replay_answer *a) {
    json_decref(a->message);
    mem_free(a->ids);
}

static void *work(void *ud) {
    struct replay_shared *s = ud;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->quit) pthread_cond_wait(&s->wake, &s->lock);
        struct task *t = s->first;
        if (!t) break;
        s->first = t->next;
        if (!s->first) s->last = NULL;
        s->n_waiting--;
        pthread_mutex_unlock(&s->lock);
        if (t->is_find) t->rc = read_answer(s, &t->a);
        else write_answer(s, &t->a);
        pthread_mutex_lock(&s->lock);
        t->is_done = true;
        pthread_cond_broadcast(&s->done);
        if (t->is_find && !t->is_given_up) continue; /* its reader frees it */
        answer_fini(&t->a);
        mem_free(t);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Call with the lock held. */
static void post(struct replay_shared *s, struct task *t) {
    if (t->is_find) {
        t->next = s->first;
        s->first = t;
        if (!s->last) s->last = t;
    } else {
        if (s->last) s->last->next = t;
        else s->first = t;
        s->last = t;
    }
    s->n_waiting++;
    pthread_cond_signal(&s->wake);
}

void replay_shared_put(struct replay_shared *s, const struct replay_answer *a) {
    struct task *t = mem_zalloc(sizeof *t);
    pthread_mutex_lock(&s->lock);
    bool ok = t && s->n_waiting < MAX_WAITING;
    if (ok) {
        t->a = *a;
        post(s, t);
    }
    pthread_mutex_unlock(&s->lock);
    if (ok) return;
    struct replay_answer dropped = *a;
    answer_fini(&dropped);
    mem_free(t);
}

int replay_shared_find(struct replay_shared *s, struct replay_answer *a) {
    struct task *t = mem_zalloc(sizeof *t);
    if (!t) return CHIMERE_ENOMEM;
    *t = (struct task){.a = *a, .is_find = true};
    int64_t now = clock_ns(), until = now + REPLAY_SHARED_WAIT_MS * INT64_C(1000000);
    pthread_mutex_lock(&s->lock);
    bool asks = now >= s->rest_ns;
    if (asks) post(s, t);
    while (asks && !t->is_done && thread_wait_until(&s->done, &s->lock, until)) continue;
    bool is_done = t->is_done;
    int rc = is_done ? t->rc : CHIMERE_EBUSY;
    t->is_given_up = asks && !is_done;
    if (t->is_given_up) {
        s->rest_ns = clock_ns() + REPLAY_SHARED_REST_MS * INT64_C(1000000);
        log_warn("the folder of shared answers is slow: it is not asked for %d s",
                 REPLAY_SHARED_REST_MS / 1000);
    }
    pthread_mutex_unlock(&s->lock);
    if (asks && !is_done) return rc; /* the thread frees it */
    *a = t->a;
    mem_free(t);
    return rc;
}

int replay_shared_forget(const char *dir, struct err *e) {
    char path[4096];
    int rc = folder_of(dir, path, e);
    const struct replay_shared s = {.p = {.dir = path}};
    struct fs_folder *d = rc ? NULL : fs_open(path);
    for (const char *name; d && !rc && (name = fs_next(d));) {
        char file[4096];
        if (!is_ours(name) || !path_of(&s, name, file)) continue;
        if (fs_remove(file) && errno != ENOENT)
            rc = err_set(e, CHIMERE_EIO, "%s: cannot be removed: %s", file, strerror(errno));
    }
    fs_close(d);
    return rc;
}

/* ---- start and end ---- */

int replay_shared_new(struct replay_shared **out, const struct replay_shared_params *p,
                      struct err *e) {
    char dir[4096];
    *out = NULL;
    int rc = folder_of(p->dir, dir, e);
    if (rc) return rc;
    struct err why = {0};
    if (file_mkdirs(dir, &why)) log_warn("the tokens of answers are not shared: %s", why.text);
    struct replay_shared *s = mem_zalloc(sizeof *s);
    if (s) s->p = *p;
    if (s) s->p.dir = mem_strdup(dir);
    if (!s || !s->p.dir) {
        mem_free(s);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    thread_cond_init(&s->done);
    if (pthread_create(&s->thread, NULL, work, s)) {
        mem_free((char *)s->p.dir);
        mem_free(s);
        return err_set(e, CHIMERE_EBUSY, "shared answers: cannot start a thread");
    }
    *out = s;
    return 0;
}

void replay_shared_free(struct replay_shared *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->done);
    pthread_mutex_destroy(&s->lock);
    mem_free((char *)s->p.dir);
    mem_free(s);
}
