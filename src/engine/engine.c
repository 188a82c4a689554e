/* engine.c: the engine's thread and its job queue. A request passes from odo or serve to here, and then to sched.c. */
#include "engine/engine.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/carried.h"
#include "engine/draft/suffix.h"
#include "engine/lease.h"
#include "engine/lm.h"
#include "engine/sched.h"
#include "engine/team_impl.h"
#include "format/quant.h"

struct engine {
    struct lm *lm; /* owned */
    struct sched sched;
    struct team *team; /* owned; NULL: this engine leads no team */
    pthread_t thread;
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t wake;
    struct engine_job *head, *tail; /* waiting jobs, linked through engine_job.next */
    int32_t n_waiting;
    bool quit, running;
    bool is_idle, is_lent;       /* the thread sleeps without work; the device is lent (lease.h) */
    struct engine_totals totals; /* copied from the scheduler after each step */
};

void engine_defaults(struct engine_params *p) {
    *p = (struct engine_params){.n_seq = 1,
                                .n_ctx = 4096,
                                .n_batch = 512,
                                .n_chunk = 256,
                                .n_queue = 256,
                                .k_type = QUANT_F16,
                                .v_type = QUANT_F16,
                                .speculate = true,
                                .cache = {.ram_bytes = (uint64_t)1 << 30, .n_every = 4096}};
}

/* Removes the first waiting job from the queue and returns it; NULL: no job is waiting. */
static struct engine_job *pop(struct engine *g) {
    pthread_mutex_lock(&g->lock);
    struct engine_job *j = g->head;
    if (j) {
        g->head = j->next;
        if (!g->head) g->tail = NULL;
        g->n_waiting--;
    }
    pthread_mutex_unlock(&g->lock);
    return j;
}

static void push_front(struct engine *g, struct engine_job *j) {
    pthread_mutex_lock(&g->lock);
    j->next = g->head;
    g->head = j;
    if (!g->tail) g->tail = j;
    g->n_waiting++;
    pthread_mutex_unlock(&g->lock);
}

static void end_cancelled(struct engine_job *j) {
    j->finish = FINISH_CANCELLED;
    carried_drop(j);
    team_ended(j);
    j->on_done(j);
}

/* Moves jobs from the queue to the scheduler while it has room; cancelled jobs end here. */
static void admit(struct engine *g) {
    for (struct engine_job *j; (j = pop(g));) {
        if (j->cancel) {
            end_cancelled(j);
        } else if (!sched_admit(&g->sched, j)) {
            push_front(g, j);
            return;
        }
    }
}

/* Sleeps until a job is posted, at most ms milliseconds: then loading states and files being written are polled
 * again. */
static void nap(struct engine *g, int32_t ms) {
    thread_wait_until(&g->wake, &g->lock, clock_ns() + ms * INT64_C(1000000));
}

static void *engine_thread(void *arg) {
    struct engine *g = arg;
    for (;;) {
        admit(g);
        sched_step(&g->sched);
        bool writing = sched_keep(&g->sched);
        pthread_mutex_lock(&g->lock);
        g->totals = g->sched.totals;
        g->totals.n_active = g->sched.n_active;
        g->totals.n_ctx = g->lm->n_ctx;
        g->totals.n_ctx_free = g->lm->n_ctx - g->sched.n_ctx_held;
        int32_t n_loading = sched_n_in(&g->sched, PHASE_LOAD);
        if (g->sched.n_active > n_loading || g->quit) { /* there is work: do not sleep */
        } else if (n_loading || (writing && !g->head)) {
            nap(g, n_loading ? 1 : 20);
        } else {
            g->is_idle = true;
            while ((!g->head || g->is_lent) && !g->quit) pthread_cond_wait(&g->wake, &g->lock);
            g->is_idle = false;
        }
        bool quit = g->quit;
        pthread_mutex_unlock(&g->lock);
        if (quit) break;
    }
    sched_cancel_all(&g->sched);
    sched_keep(&g->sched);
    return NULL;
}

static int check_params(const struct engine_params *p, struct err *e) {
    if (p->n_seq < 1 || p->n_seq > ENGINE_MAX_SEQS)
        return err_set(e, CHIMERE_EINVAL, "sequences: expected 1 to %d, got %d", ENGINE_MAX_SEQS,
                       p->n_seq);
    if (p->n_batch < 1 || p->n_batch > 1 << 16)
        return err_set(e, CHIMERE_EINVAL, "batch: expected 1 to 65536 tokens, got %d", p->n_batch);
    if (p->n_chunk < 1 || p->n_ctx < 1 || p->n_queue < 1)
        return err_set(e, CHIMERE_EINVAL, "chunk, context and queue: expected at least 1");
    if (p->n_draft_max < 0 || p->n_draft_max >= STEP_MAX_TOK)
        return err_set(e, CHIMERE_EINVAL, "drafts: expected at most %d tokens, got %d",
                       STEP_MAX_TOK - 1, p->n_draft_max);
    if (p->n_draft_head < 0)
        return err_set(e, CHIMERE_EINVAL, "head of drafts: expected 0 or more rows, got %d",
                       p->n_draft_head);
    return 0;
}

int engine_new_over(struct engine **out, struct lm *lm, const struct tok *tok,
                    const struct engine_params *p, struct err *e) {
    *out = NULL;
    struct engine *g = mem_zalloc(sizeof *g);
    int rc = g ? check_params(p, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = sched_init(&g->sched, lm, tok, p, e);
    if (rc) {
        mem_free(g);
        lm->ops->close(lm);
        return rc;
    }
    g->lm = lm;
    pthread_mutex_init(&g->lock, NULL);
    thread_cond_init(&g->wake);
    if (pthread_create(&g->thread, NULL, engine_thread, g)) {
        rc = err_set(e, CHIMERE_ENOMEM, "cannot start the engine's thread");
        engine_free(g);
        return rc;
    }
    g->running = true;
    *out = g;
    return 0;
}

/* A copy of *p whose n_batch is large enough for a row of every sequence and its drafts. */
static struct engine_params roomy(const struct engine_params *p) {
    struct engine_params own = *p;
    int32_t n_spec = own.n_seq < SPEC_MAX_SEQS ? own.n_seq : SPEC_MAX_SEQS;
    int32_t least = own.n_seq + (own.speculate ? n_spec * spec_most_drafted(own.n_draft_max) : 0);
    /* a whole prompt chunk must always fit in addition to the decoding rows */
    if (own.deterministic) least += own.n_chunk;
    if (own.n_batch < least) own.n_batch = least;
    return own;
}

int engine_new(struct engine **out, struct model *m, const struct tok *tok,
               const struct engine_params *p, struct err *e) {
    struct lm *lm;
    struct engine_params own = roomy(p);
    *out = NULL;
    int rc = check_params(p, e);
    if (!rc) rc = lm_open_model(&lm, m, &own, e);
    return rc ? rc : engine_new_over(out, lm, tok, &own, e);
}

int engine_new_parts(struct engine **out, struct model *const *parts, int32_t n,
                     struct lm_turns *turns, const struct tok *tok, const struct engine_params *p,
                     struct err *e) {
    struct lm *lm;
    struct engine_params own = roomy(p);
    *out = NULL;
    int rc = check_params(p, e);
    if (!rc) rc = lm_open_parts(&lm, parts, n, turns, &own, e);
    return rc ? rc : engine_new_over(out, lm, tok, &own, e);
}

void engine_free(struct engine *g) {
    if (!g) return;
    if (g->running) {
        pthread_mutex_lock(&g->lock);
        g->quit = true;
        pthread_cond_signal(&g->wake);
        pthread_mutex_unlock(&g->lock);
        pthread_join(g->thread, NULL);
    }
    for (struct engine_job *j = g->head, *next; j; j = next) {
        next = j->next;
        end_cancelled(j);
    }
    team_free(g->team);
    sched_fini(&g->sched);
    g->lm->ops->close(g->lm);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->wake);
    mem_free(g);
}

int64_t engine_own_ctx(const struct engine *g) {
    int64_t own = g->sched.p.n_ctx_seq;
    return own > 0 && own < g->lm->n_ctx ? own : g->lm->n_ctx;
}

int64_t engine_ctx(const struct engine *g) {
    return g->team ? team_ctx(g->team) : engine_own_ctx(g);
}

int engine_refuse_prompt(int64_t n_prompt, int64_t n_ctx, struct err *e) {
    err_set(e, CHIMERE_ELIMIT,
            "prompt is too long: %lld tokens > %lld maximum (exceeds the available context size)",
            (long long)n_prompt, (long long)(n_ctx - 1)); /* one position is left for the answer */
    err_hint(e, "start with a larger --ctx, or shorten the prompt");
    return CHIMERE_ELIMIT;
}

static int check_job(const struct engine *g, const struct engine_job *j, struct err *e) {
    int64_t limit = engine_own_ctx(g);
    if (!j->p.prompt || j->p.n_prompt < 1)
        return err_set(e, CHIMERE_EINVAL, "prompt: expected at least one token");
    if (j->p.n_prompt >= limit) return engine_refuse_prompt(j->p.n_prompt, limit, e);
    if (j->p.prompt_probs && (!j->p.no_cache || !j->on_prompt))
        return err_set(e, CHIMERE_EINVAL, "prompt: its probabilities need no_cache and a reader");
    for (int32_t i = 0; i < j->p.n_prompt; i++)
        if (j->p.prompt[i] < 0 || j->p.prompt[i] >= g->lm->n_vocab)
            return err_set(e, CHIMERE_EINVAL, "prompt: expected token ids below %d, got %d",
                           g->lm->n_vocab, j->p.prompt[i]);
    return sampler_check(&j->p.sampling, g->lm->n_vocab, e);
}

/* With the lock held. */
static void append(struct engine *g, struct engine_job *j) {
    j->next = NULL;
    if (g->tail) g->tail->next = j;
    else g->head = j;
    g->tail = j;
    g->n_waiting++;
    pthread_cond_signal(&g->wake);
}

static void begin(struct engine_job *j) {
    j->finish = FINISH_NONE;
    j->err = (struct err){0};
    j->stats = (struct engine_stats){0};
    j->cancel = false;
    j->posted_ns = clock_ns();
}

int engine_post(struct engine *g, struct engine_job *j, struct err *e) {
    bool is_new = !j->carried; /* a job that moves has passed the checks and waited in a queue */
    int rc = is_new ? check_job(g, j, e) : 0;
    if (rc) return rc;
    if (is_new) begin(j);
    pthread_mutex_lock(&g->lock);
    if (!is_new && g->quit) rc = err_set(e, CHIMERE_ECANCELLED, "the engine is being closed");
    else if (is_new && g->n_waiting >= g->sched.p.n_queue)
        rc = err_set(e, CHIMERE_EBUSY, "queue: %d requests are waiting already", g->n_waiting);
    else append(g, j);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int engine_submit(struct engine *g, struct engine_job *j, struct err *e) {
    if (g->team) return team_submit(g->team, j, e);
    j->team = NULL;
    j->carried = NULL;
    return engine_post(g, j, e);
}

void engine_cancel(struct engine *g, struct engine_job *j) {
    if (g->team) g = team_engine_of(g->team, j);
    pthread_mutex_lock(&g->lock);
    j->cancel = true;
    pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
}

bool engine_borrow(struct engine *g) {
    pthread_mutex_lock(&g->lock);
    bool free = g->is_idle && !g->head && !g->is_lent && !g->quit;
    g->is_lent |= free;
    pthread_mutex_unlock(&g->lock);
    return free;
}

struct lm *engine_lent(struct engine *g) {
    return g->lm;
}

void engine_draft_from(struct engine *g, struct suffix *x) {
    suffix_free(g->sched.spec.learned);
    g->sched.spec.learned = x;
}

void engine_give_back(struct engine *g) {
    pthread_mutex_lock(&g->lock);
    g->is_lent = false;
    pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
}

bool engine_is_wanted(struct engine *g) {
    pthread_mutex_lock(&g->lock);
    bool wanted = g->head != NULL;
    pthread_mutex_unlock(&g->lock);
    return wanted;
}

/* ---- callers that wait: engine_run ---- */

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
    void (*on_done)(struct engine_job *j);
    void *ud;
};

static void waiter_done(struct engine_job *j) {
    struct waiter *w = j->waiter;
    if (w->on_done) w->on_done(j);
    pthread_mutex_lock(&w->lock);
    w->is_done = true;
    pthread_cond_signal(&w->done);
    pthread_mutex_unlock(&w->lock);
}

int engine_run(struct engine *g, struct engine_job *j, struct err *e) {
    struct waiter w = {.on_done = j->on_done};
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.done, NULL);
    j->waiter = &w;
    j->on_done = waiter_done;
    int rc = engine_submit(g, j, e);
    if (!rc) {
        pthread_mutex_lock(&w.lock);
        while (!w.is_done) pthread_cond_wait(&w.done, &w.lock);
        pthread_mutex_unlock(&w.lock);
        rc = j->err.code;
        if (rc && e) *e = j->err;
    }
    j->on_done = w.on_done;
    j->waiter = NULL;
    pthread_mutex_destroy(&w.lock);
    pthread_cond_destroy(&w.done);
    return rc;
}

int32_t engine_n_seq(const struct engine *g) { return g->sched.p.n_seq; }
void engine_lead(struct engine *g, struct team *t) { g->team = t; }
const struct lm *engine_lm(const struct engine *g) { return g->lm; }
struct team *engine_team(const struct engine *g) {
    return g->team;
}

void engine_totals(struct engine *g, struct engine_totals *t) {
    if (g->team) team_totals(g->team, t);
    else engine_own_totals(g, t);
}

void engine_own_totals(struct engine *g, struct engine_totals *t) {
    pthread_mutex_lock(&g->lock);
    *t = g->totals;
    t->n_waiting = g->n_waiting;
    pthread_mutex_unlock(&g->lock);
    t->is_lost = g->sched.is_lost;
}
