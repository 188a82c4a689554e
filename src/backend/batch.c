#include "backend/batch.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

struct waiting;
struct seat {
    struct waiting *w;          /* view */
    struct batch_request *item; /* view */
    struct generation *run;     /* owned; NULL: not started */
};

enum { POLL_NS = 20000000 }; /* how often the cancelled flag is read */

struct waiting {
    struct batch *b; /* view */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int32_t n_open; /* guarded by lock */
};

static void on_end(struct batch_request *it, const struct generation_end *end) {
    it->finish = end->finish;
    it->stats = end->stats;
    it->n_reasoning = end->n_reasoning;
    if (end->stop) it->stop = mem_strdup(end->stop);
    if (end->err) it->err = *end->err;
}

static void on_chat(struct batch_request *it, const struct chat_event *ev) {
    if (ev->kind == CHAT_CONTENT) buf_put(&it->content, ev->text, ev->n);
    if (ev->kind == CHAT_REASONING) buf_put(&it->reasoning, ev->text, ev->n);
    if (ev->kind == CHAT_CALL) it->has_calls = true;
}

static int on_event(void *ud, const struct backend_event *ev) {
    struct seat *s = ud;
    struct waiting *w = s->w;
    if (ev->kind == EVENT_DONE) {
        pthread_mutex_lock(&w->lock);
        w->n_open--;
        pthread_cond_signal(&w->cond);
        pthread_mutex_unlock(&w->lock); /* s may be freed from here on */
        return 0;
    }
    if (ev->choice) return 0;
    if (ev->kind == EVENT_END) on_end(s->item, ev->end);
    if (ev->kind == EVENT_CHAT) on_chat(s->item, ev->chat);
    if (ev->kind == EVENT_TOKEN && s->item->on_token) s->item->on_token(s->item->ud, ev);
    return w->b->cancelled && *w->b->cancelled;
}

static void begin(struct waiting *w, struct seat *s, struct batch_request *it) {
    struct backend *backend = w->b->backend;
    struct event_sink sink = {on_event, s};
    *s = (struct seat){.w = w, .item = it};
    buf_init(&it->content, BATCH_MAX_TEXT);
    buf_init(&it->reasoning, BATCH_MAX_TEXT);
    it->finish = FINISH_ERROR;
    it->stop = NULL;
    it->has_calls = false;
    it->err = (struct err){0};
    int rc = backend->ops->prepare(backend, it->request, &sink, &s->run, NULL, &it->err);
    if (rc) return;
    pthread_mutex_lock(&w->lock);
    w->n_open++;
    pthread_mutex_unlock(&w->lock);
    if (!backend->ops->start(s->run, &it->err)) return;
    backend->ops->free(s->run);
    s->run = NULL;
    pthread_mutex_lock(&w->lock);
    w->n_open--;
    pthread_mutex_unlock(&w->lock);
}

static void await(struct waiting *w, struct seat *seats) {
    const struct batch *b = w->b;
    bool told = false;
    pthread_mutex_lock(&w->lock);
    while (w->n_open) {
        int64_t until = clock_ns() + POLL_NS;
        if (b->deadline_ns && !told && b->deadline_ns < until) until = b->deadline_ns;
        thread_wait_until(&w->cond, &w->lock, until);
        bool over = b->deadline_ns && clock_ns() >= b->deadline_ns;
        if (told || !w->n_open || !(over || (b->cancelled && *b->cancelled))) continue;
        told = true;
        pthread_mutex_unlock(&w->lock);
        for (int32_t i = 0; i < b->n; i++)
            if (seats[i].run) b->backend->ops->cancel(seats[i].run);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}

int batch_run(struct batch *b, struct err *e) {
    if (b->n < 1 || b->n > BATCH_MAX)
        return err_set(e, CHIMERE_ELIMIT, "expected 1 to %d questions at once, got %d", BATCH_MAX,
                       b->n);
    struct seat *seats = mem_alloc_array((size_t)b->n, sizeof *seats);
    if (!seats) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct waiting w = {.b = b};
    thread_cond_init(&w.cond);
    pthread_mutex_init(&w.lock, NULL);
    for (int32_t i = 0; i < b->n; i++) begin(&w, &seats[i], &b->items[i]);
    await(&w, seats);
    int rc = 0;
    bool any = false;
    for (int32_t i = 0; i < b->n; i++) {
        struct batch_request *it = &b->items[i];
        if (seats[i].run) b->backend->ops->free(seats[i].run);
        if (it->content.failed || it->reasoning.failed) {
            it->finish = FINISH_ERROR;
            err_set(&it->err, CHIMERE_ELIMIT, "an answer is longer than %d bytes", BATCH_MAX_TEXT);
        }
        any |= it->finish != FINISH_ERROR;
        if (it->finish != FINISH_ERROR || rc) continue;
        rc = it->err.code ? it->err.code : err_set(&it->err, CHIMERE_EINTERNAL, "the model failed");
        if (e) *e = it->err;
    }
    pthread_cond_destroy(&w.cond);
    pthread_mutex_destroy(&w.lock);
    mem_free(seats);
    return any ? 0 : rc;
}

bool batch_is_whole(const struct batch_request *it) {
    return it->finish == FINISH_STOP || it->finish == FINISH_CALLS;
}

void batch_fini(struct batch_request *items, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        buf_fini(&items[i].content);
        buf_fini(&items[i].reasoning);
        mem_free(items[i].stop);
        items[i].stop = NULL;
    }
}
