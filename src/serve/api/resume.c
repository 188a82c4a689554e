#include "serve/api/resume.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "odo/memory.h"
#include "serve/http/http_impl.h"
#include "serve/http/http_target.h"

struct resume_answer {
    char id[40], owner[MEMORY_MAX_OWNER];
    struct http_request *asked; /* borrowed until its end, then NULL */
    struct buf frames;
    bool is_used, is_over, is_stopped;
    int64_t over_ns;
    struct http_request *readers[RESUME_MAX_READERS]; /* referenced [n_reader] */
    int n_reader;
};

struct resume {
    pthread_mutex_t lock;
    struct resume_answer v[RESUME_MAX];
};

struct resume *resume_new(void) {
    struct resume *t = mem_zalloc(sizeof *t);
    if (t) pthread_mutex_init(&t->lock, NULL);
    return t;
}

void resume_free(struct resume *t) {
    if (!t) return;
    for (int i = 0; i < RESUME_MAX; i++) buf_fini(&t->v[i].frames);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

/* Call with the lock held. Returns a place that is free or whose answer ended long ago, else the one whose answer ended
 * first; NULL: none. */
static struct resume_answer *place(struct resume *t) {
    struct resume_answer *best = NULL;
    int64_t now = clock_ns();
    for (int i = 0; i < RESUME_MAX; i++) {
        struct resume_answer *a = &t->v[i];
        if (a->is_used && a->is_over && now - a->over_ns > (int64_t)RESUME_S * 1000000000) {
            buf_fini(&a->frames);
            a->is_used = false;
        }
        if (!a->is_used) return a;
        if (a->is_over && (!best || a->over_ns < best->over_ns)) best = a;
    }
    if (best) buf_fini(&best->frames);
    return best;
}

struct resume_answer *resume_begin(struct http_request *r) {
    struct resume *t = r->s->resume;
    const char *wish = http_header(r, "X-Chimere-Keep");
    if (!wish || strcmp(wish, "true") != 0) return NULL;
    pthread_mutex_lock(&t->lock);
    struct resume_answer *a = place(t);
    if (a) {
        *a = (struct resume_answer){.asked = r, .is_used = true};
        snprintf(a->id, sizeof a->id, "req_%s", r->id);
        memory_owner(http_owner(r), http_header(r, "X-User"), a->owner);
        buf_init(&a->frames, RESUME_MAX_BYTES);
    }
    pthread_mutex_unlock(&t->lock);
    return a;
}

bool resume_is_kept(struct http_request *r, const struct resume_answer *a) {
    struct resume *t = r->s->resume;
    pthread_mutex_lock(&t->lock);
    bool kept = a->asked == r && !a->is_stopped && !a->frames.failed;
    pthread_mutex_unlock(&t->lock);
    return kept;
}

bool resume_put(struct http_request *r, struct resume_answer *a, const char *data, size_t n) {
    struct resume *t = r->s->resume;
    pthread_mutex_lock(&t->lock);
    bool ok = !a->is_stopped && !a->frames.failed && buf_put(&a->frames, data, n) == 0;
    for (int i = 0; i < a->n_reader;) {
        if (http_put(a->readers[i], data, n)) {
            i++;
            continue;
        }
        http_unref(a->readers[i]);
        a->readers[i] = a->readers[--a->n_reader];
    }
    pthread_mutex_unlock(&t->lock);
    return ok;
}

void resume_end(struct http_request *r, struct resume_answer *a) {
    struct resume *t = r->s->resume;
    pthread_mutex_lock(&t->lock);
    a->asked = NULL;
    a->is_over = true;
    a->over_ns = clock_ns();
    for (int i = 0; i < a->n_reader; i++) {
        http_stream_end(a->readers[i]);
        http_unref(a->readers[i]);
    }
    a->n_reader = 0;
    pthread_mutex_unlock(&t->lock);
}

/* Call with the lock held. */
static struct resume_answer *find(struct http_request *r, struct err *e) {
    char owner[MEMORY_MAX_OWNER];
    memory_owner(http_owner(r), http_header(r, "X-User"), owner);
    for (int i = 0; i < RESUME_MAX; i++) {
        struct resume_answer *a = &r->s->resume->v[i];
        if (a->is_used && !a->frames.failed && strcmp(a->id, http_rest(r)) == 0 &&
            strcmp(a->owner, owner) == 0)
            return a;
    }
    err_set(e, CHIMERE_ENOENT, "answer: there is no '%.40s'", http_rest(r));
    return NULL;
}

void resume_follow(struct http_request *r) {
    struct resume *t = r->s->resume;
    struct err e = {0};
    pthread_mutex_lock(&t->lock);
    struct resume_answer *a = find(r, &e);
    if (a && !a->is_over && a->n_reader == RESUME_MAX_READERS) {
        err_set(&e, CHIMERE_EBUSY, "answer: %d others read it", RESUME_MAX_READERS);
        a = NULL;
    }
    if (a) {
        http_stream_begin(r, NULL);
        if (a->frames.n) http_put(r, a->frames.p, a->frames.n);
        if (a->is_over) {
            http_stream_end(r);
        } else {
            http_ref(r);
            a->readers[a->n_reader++] = r;
        }
    }
    pthread_mutex_unlock(&t->lock);
    if (!a) http_fail(r, &e);
}

void resume_stop(struct http_request *r) {
    struct resume *t = r->s->resume;
    struct err e = {0};
    struct http_request *asked = NULL;
    pthread_mutex_lock(&t->lock);
    struct resume_answer *a = find(r, &e);
    if (a) {
        a->is_stopped = true;
        asked = a->asked;
        if (asked) http_ref(asked);
    }
    pthread_mutex_unlock(&t->lock);
    if (!a) {
        http_fail(r, &e);
        return;
    }
    if (asked) {
        asked->job.gone(asked->job_ud);
        http_unref(asked);
    }
    struct buf out;
    buf_init(&out, 256);
    buf_puts(&out, "{\"object\":\"answer.stopped\",\"stopped\":true}");
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}
