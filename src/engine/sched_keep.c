/* sched_keep.c: makes checkpoints of running jobs, and finds the states from which new jobs can continue.
 *
 * Checkpoints of a prompt are made after its first message, before its last turns, where the answer begins, and every
 * n_every tokens; prompt chunks end at these positions. During an answer, a checkpoint is made at each multiple of the
 * grid, and only the newest is kept, so that the next turn can continue from the end of this one.
 *
 * Jobs with the same prompt branch. The first job evaluates the prompt and makes a checkpoint before its last token.
 * The other jobs wait for that state and continue from it: each evaluates the last token itself and so gets its own
 * logits. A job with keep_end also makes a checkpoint before the last token of its answer, so that jobs that continue
 * the answer can branch there. */
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "engine/sched.h"
#include "model/seq/seq.h"

enum { N_LAST_MARKS = 3, MOVE_LEAST_MS = 2, MOVE_MOST_MS = 20 };

int sched_open_cache(struct sched *s, struct err *e) {
    s->grid = SCAN_GRID;
    if (s->p.deterministic) s->grid = s->p.n_chunk % SCAN_GRID ? 0 : s->p.n_chunk;
    if (!s->lm->ops->marks || !s->p.cache.ram_bytes || !s->grid) return 0;
    struct cache_params c = s->p.cache;
    c.dir = s->state_dir;
    s->p.cache.shared_dir = NULL; /* borrowed for this call */
    return prefix_new(&s->prefix, s->lm, &c, s->p.deterministic ? (uint64_t)s->p.n_chunk : 0,
                      s->grid, e);
}

/* ---- positions of checkpoints ---- */

static void add_stop(struct sched *s, struct active *a, int64_t pos) {
    int32_t stop = (int32_t)(pos / s->grid * s->grid), last = a->n_stop - 1;
    if (stop <= a->n_prefilled || (last >= 0 && a->stops[last] >= stop)) return;
    if (a->n_stop < SCHED_MAX_STOPS) a->stops[a->n_stop++] = stop;
}

static void plan_stops(struct sched *s, struct active *a) {
    const struct engine_job *j = a->job;
    int32_t n = j->p.n_mark, first = n > N_LAST_MARKS ? n - N_LAST_MARKS : 0;
    a->n_stop = 0;
    if (first > 0) add_stop(s, a, j->p.marks[0]);
    for (int32_t i = first; i < n; i++)
        if (j->p.marks[i] > 0 && j->p.marks[i] < j->p.n_prompt) add_stop(s, a, j->p.marks[i]);
    add_stop(s, a, a->n_prompt - 1);
}

int32_t sched_next_stop(const struct sched *s, const struct active *a) {
    int32_t stop = a->n_prompt, every = s->p.cache.n_every;
    if (!a->is_kept) return stop;
    if (a->has_twins && a->n_prefilled < stop - 1) stop--;
    for (int32_t i = a->n_stop - 1; i >= 0 && a->stops[i] > a->n_prefilled; i--) stop = a->stops[i];
    every = every > s->grid ? every / s->grid * s->grid : s->grid;
    int64_t next = ((int64_t)a->n_prefilled / every + 1) * every;
    return next < stop ? (int32_t)next : stop;
}

static bool is_stop(const struct sched *s, const struct active *a) {
    int32_t every = s->p.cache.n_every;
    every = every > s->grid ? every / s->grid * s->grid : s->grid;
    for (int32_t i = 0; i < a->n_stop; i++)
        if (a->stops[i] == a->n_prefilled) return true;
    return a->n_prefilled % every == 0 || (a->has_twins && a->n_prefilled == a->n_prompt - 1);
}

/* Hash of adapters, kept experts and scope; without adapters and with all experts, the scope itself. */
static uint64_t salt_of(const struct active *a) {
    const struct engine_job *j = a->job;
    uint64_t h = j->p.scope;
    if (a->keep.mass > 0 && a->keep.mass < 1) h = hash_bytes(&a->keep, sizeof a->keep, h + 1);
    for (int32_t i = 0; i < j->p.n_lora; i++) {
        const struct {
            uint64_t hash;
            double scale;
        } use = {lora_hash(j->p.loras[i].lora), (double)j->p.loras[i].scale};
        h = hash_bytes(&use, sizeof use, h + 1);
    }
    return h;
}

/* ---- start of a job ---- */

static void begin_prefill(struct sched *s, struct active *a) {
    a->phase = PHASE_PREFILL;
    if (!a->is_kept) return;
    a->prefill_ns = clock_ns();
    a->n_reused = a->n_prefilled;
    plan_stops(s, a);
    a->kept_pos = a->n_prefilled;
}

/* Time for restoring states between two steps. While sequences decode, it is at most the time of a step, so that their
 * speed drops to one half at worst. */
static double move_limit(const struct sched *s) {
    double ms = s->totals.step_ms_mean;
    if (!sched_n_in(s, PHASE_DECODE)) return 1e9;
    return ms < MOVE_LEAST_MS ? MOVE_LEAST_MS : ms > MOVE_MOST_MS ? MOVE_MOST_MS : ms;
}

/* Replaces the sequence, which may contain part of a state, by an empty one. */
static int begin_again(struct sched *s, struct active *a, struct err *e) {
    a->is_partial = false;
    s->lm->ops->seq_free(s->lm, a->seq);
    a->seq = NULL;
    return s->lm->ops->seq_new(s->lm, &a->seq, e);
}

/* Restores a->hit, which is in memory. Returns false if this will continue after the next step. */
static bool take_hit(struct sched *s, struct active *a) {
    struct prefix_entry *x = a->hit;
    struct err e = {0};
    int64_t pos = prefix_pos(x), start = clock_ns();
    double ms = sched_n_in(s, PHASE_DECODE) ? s->move_ms : 1e9;
    if (ms <= 0) return false;
    int rc = prefix_restore(s->prefix, x, a->seq, !a->is_partial, ms, &e);
    s->move_ms -= clock_ms_since(start);
    if (!rc) {
        a->is_partial = true;
        return false;
    }
    a->hit = NULL;
    if (rc < 0) { /* no room: evaluate the prompt from its start */
        prefix_unpin(s->prefix, x);
        if (begin_again(s, a, &e)) sched_fail(s, a, &e);
        return true;
    }
    a->is_partial = false;
    a->n_prefilled = (int32_t)pos;
    if (!a->decode_ns)
        a->job->stats.n_cached = (int32_t)pos; /* of the prompt, not of a moved answer */
    s->totals.n_cached += pos;
    if (pos == (a->n_prompt - 1) / s->grid * s->grid) a->began = x;
    else prefix_unpin(s->prefix, x);
    return true;
}

static bool may_branch(const struct sched *s) {
    return !s->p.deterministic && s->lm->checkpoint_bytes <= s->p.cache.ram_bytes / 2;
}

/* Returns true if a started before b and is loading or evaluating the same prompt. */
static bool leads(const struct active *a, const struct active *b) {
    if (a == b || !a->is_kept || (a->phase != PHASE_PREFILL && a->phase != PHASE_LOAD))
        return false;
    if (a->start_ns > b->start_ns || (a->start_ns == b->start_ns && a > b)) return false;
    return a->salt == b->salt && a->n_prompt == b->n_prompt &&
           memcmp(a->prompt, b->prompt, (size_t)a->n_prompt * sizeof *a->prompt) == 0;
}

/* Returns true if a, which could start at pos, should wait for another job with the same prompt. */
static bool waits(struct sched *s, const struct active *a, int64_t pos) {
    bool any = false;
    if (!may_branch(s) || pos + 1 >= a->n_prompt) return false;
    for (int32_t i = 0; i < s->p.n_seq; i++)
        if (leads(&s->active[i], a)) any = s->active[i].has_twins = true;
    return any;
}

/* Looks for a state of the job's prefix until one is restored, one is being read or evaluated, or none is left. */
static void seek(struct sched *s, struct active *a) {
    if (!prefix_look(s->prefix, &a->look, a->prompt, a->n_prompt, a->salt, a->job_scope)) {
        a->phase = PHASE_LOAD;
        return;
    }
    for (;;) {
        bool is_new = !a->hit;
        if (is_new) a->hit = prefix_find(s->prefix, a->prompt, a->n_prompt, a->salt);
        if (is_new && waits(s, a, a->hit ? prefix_pos(a->hit) : 0)) {
            if (a->hit) prefix_unpin(s->prefix, a->hit);
            a->hit = NULL;
            a->phase = PHASE_LOAD;
            return;
        }
        if (!a->hit) break;
        int got = prefix_fetch(s->prefix, a->hit);
        if (!got || (got > 0 && !take_hit(s, a))) {
            a->phase = PHASE_LOAD;
            return;
        }
        if (got > 0) break;
        prefix_unpin(s->prefix, a->hit);
        a->hit = NULL;
    }
    if (a->phase != PHASE_CLOSING) begin_prefill(s, a);
}

void sched_begin_cached(struct sched *s, struct active *a) {
    const struct engine_job *j = a->job;
    a->is_kept = s->prefix && !j->p.no_cache;
    a->phase = PHASE_PREFILL;
    if (!a->is_kept) return;
    a->salt = salt_of(a);
    a->job_scope = j->p.scope;
    a->job_owner = j->p.owner;
    a->session = j->p.session ? hash_bytes(j->p.session, strlen(j->p.session), 1) : 0;
    seek(s, a);
}

/* ---- after a step ---- */

static struct prefix_entry *keep_at(struct sched *s, struct active *a, int64_t pos) {
    const struct prefix_at at = {.tokens = a->spec.history,
                                 .pos = pos,
                                 .n_drop = (int32_t)(s->lm->ops->seq_pos(s->lm, a->seq) - pos),
                                 .salt = a->salt,
                                 .scope = a->job_scope,
                                 .owner = a->job_owner,
                                 .session = a->session};
    a->kept_pos = pos;
    return prefix_keep(s->prefix, a->seq, &at);
}

static void keep_prompt(struct sched *s, struct active *a) {
    if (a->n_prefilled <= a->kept_pos || !is_stop(s, a)) return;
    struct prefix_entry *x = keep_at(s, a, a->n_prefilled);
    if (!x) return;
    if (a->n_prefilled == (a->spec.n_prompt - 1) / s->grid * s->grid) a->began = x;
    else prefix_unpin(s->prefix, x);
}

/* Makes a checkpoint at the last multiple of the grid, not counting rejected draft tokens. */
static void keep_answer(struct sched *s, struct active *a) {
    int64_t pos = s->lm->ops->seq_pos(s->lm, a->seq), sure = a->spec.n_history - 1;
    if (pos < sure) sure = pos;
    int64_t at = sure / s->grid * s->grid;
    if (at <= a->kept_pos) return;
    /* a state from decode steps differs from one of prefill in its last bits */
    if (s->p.deterministic) return;
    if ((uint64_t)s->n_active * s->lm->checkpoint_bytes > s->p.cache.ram_bytes / 2) return;
    struct prefix_entry *x = keep_at(s, a, at);
    if (!x) return;
    if (a->ended) prefix_replace(s->prefix, a->ended);
    a->ended = x;
}

/* Makes a checkpoint before the last token of the sequence: a job that continues the answer evaluates that token
 * again. */
static void keep_end(struct sched *s, struct active *a) {
    int64_t pos = s->lm->ops->seq_pos(s->lm, a->seq), sure = a->spec.n_history - 1;
    if (pos < sure) sure = pos;
    if (!may_branch(s) || sure - 1 == a->kept_pos || sure <= a->spec.n_prompt) return;
    struct prefix_entry *x = keep_at(s, a, sure - 1);
    if (x) prefix_unpin(s->prefix, x);
}

static void close_active(struct sched *s, struct active *a) {
    if (a->is_kept) keep_answer(s, a);
    if (a->is_kept && a->keep_end) keep_end(s, a);
    if (a->hit) prefix_unpin(s->prefix, a->hit);
    if (s->prefix) prefix_finish(s->prefix, a->began, a->ended);
    if (a->seq) s->lm->ops->seq_free(s->lm, a->seq);
    spec_seq_fini(&a->spec);
    s->n_ctx_held -= a->n_ctx_held;
    *a = (struct active){.phase = PHASE_FREE};
    s->n_active--;
}

/* Free positions while no job runs, at least `room`: states of ended conversations leave half of the pages to experts,
 * if host memory can hold them. */
static int64_t idle_room(const struct sched *s, int64_t room) {
    uint64_t all = (uint64_t)(s->lm->n_ctx / KV_PAGE) * s->lm->page_bytes;
    if (!s->lm->lends || s->p.cache.ram_bytes < all) return room;
    return room > s->lm->n_ctx / 2 ? room : s->lm->n_ctx / 2;
}

bool sched_keep(struct sched *s) {
    s->move_ms = move_limit(s);
    for (int32_t i = 0; i < s->p.n_seq; i++) {
        struct active *a = &s->active[i];
        if (a->phase == PHASE_CLOSING) close_active(s, a);
        else if (a->phase == PHASE_PREFILL && a->is_kept) keep_prompt(s, a);
        else if (a->phase == PHASE_DECODE && a->is_kept) keep_answer(s, a);
    }
    int64_t start = clock_ns();
    for (int32_t i = 0; !spec_rests(&s->spec) && i < s->p.n_seq; i++)
        if (s->active[i].phase == PHASE_DECODE)
            spec_cut_forced(&s->active[i].spec, s->active[i].sampler, s->tok);
    s->cut_ms = clock_ms_since(start);
    for (int32_t i = 0; i < s->p.n_seq; i++)
        if (s->active[i].phase == PHASE_LOAD) seek(s, &s->active[i]);
    if (!s->prefix) return false;
    int64_t room = s->p.n_batch + (int64_t)s->p.n_seq * 2 * KV_PAGE;
    prefix_make_room(s->prefix, s->n_active ? room : idle_room(s, room));
    bool busy = prefix_settle(s->prefix);
    prefix_totals(s->prefix, &s->totals);
    return busy;
}
