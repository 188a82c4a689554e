#include "engine/team_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "engine/lm.h"
#include "kernels/tensor.h"
#include "model/lora.h"

enum {
    BLOCK = SCAN_GRID,
    N_SET = 1 << 14, /* of N_WAY blocks: 4 M tokens of prompts */
    N_WAY = 4,
    /* What a running answer adds to the cost of giving the next job to the same member, in prompt tokens: the answer
     * makes some steps while a prompt is evaluated, and one step takes about as long as 16 prompt rows. */
    JOB_TOKENS = 256,
    MAX_FAILED_STEPS = 3, /* consecutive; a single failure may be caused by a request */
    /* the same for a job that waits in the queue before the next one */
    WAIT_TOKENS = 8 * JOB_TOKENS,
};

struct seen { /* a block of prompt tokens, including all blocks before it */
    uint64_t hash;
    uint32_t used;    /* clock value of the last prompt that contained it */
    uint32_t members; /* bit i: member i has received it */
};

struct team {
    pthread_mutex_t lock;             /* guards all fields below except engines */
    struct engine *engines[TEAM_MAX]; /* borrowed */
    struct team_member members[TEAM_MAX];
    int32_t n;
    uint32_t clock;
    uint64_t seed;
    struct seen *seen; /* owned [N_SET, N_WAY] */
};

int team_new(struct engine *const *engines, const char *const *names, int32_t n, struct err *e) {
    if (n < 1 || n > TEAM_MAX)
        return err_set(e, CHIMERE_ELIMIT, "cards: expected 1 to %d, got %d", TEAM_MAX, n);
    struct team *t = mem_zalloc(sizeof *t);
    if (t) t->seen = mem_alloc_array((size_t)N_SET * N_WAY, sizeof *t->seen);
    if (!t || !t->seen) {
        mem_free(t);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    pthread_mutex_init(&t->lock, NULL);
    t->n = n;
    t->seed = rng_process_seed();
    for (int32_t i = 0; i < n; i++) {
        t->engines[i] = engines[i];
        snprintf(t->members[i].name, sizeof t->members[i].name, "%s", names[i]);
    }
    engine_lead(engines[0], t);
    return 0;
}

void team_free(struct team *t) {
    if (!t) return;
    pthread_mutex_destroy(&t->lock);
    mem_free(t->seen);
    mem_free(t);
}

/* ---- prompt blocks that members have received ---- */

static struct seen *set_of(const struct team *t, uint64_t hash) {
    return t->seen + hash_mix(hash) % N_SET * N_WAY;
}

static struct seen *find(const struct team *t, uint64_t hash) {
    struct seen *s = set_of(t, hash);
    for (int i = 0; i < N_WAY; i++)
        if (s[i].members && s[i].hash == hash) return &s[i];
    return NULL;
}

/* Returns the entry of the block, or the least recently used entry of its set, reset for the block. */
static struct seen *place(struct team *t, uint64_t hash) {
    struct seen *s = find(t, hash), *oldest = set_of(t, hash);
    for (int i = 1; !s && i < N_WAY; i++)
        if (oldest[0].members &&
            (!set_of(t, hash)[i].members || set_of(t, hash)[i].used < oldest->used))
            oldest = &set_of(t, hash)[i];
    if (!s) *(s = oldest) = (struct seen){.hash = hash};
    return s;
}

/* Members share states only within a scope and a set of adapters. */
static uint64_t salt_of(const struct team *t, const struct job_params *p) {
    uint64_t h = hash_mix(t->seed ^ p->scope);
    for (int32_t i = 0; i < p->n_lora; i++) {
        const struct {
            uint64_t hash;
            double scale;
        } use = {lora_hash(p->loras[i].lora), (double)p->loras[i].scale};
        h = hash_bytes(&use, sizeof use, h + 1);
    }
    return h;
}

/* Length of the prompt's prefix that each member has received before. */
static void match(const struct team *t, const struct job_params *p, int64_t *n_known) {
    uint32_t all = (1U << t->n) - 1, left = all;
    uint64_t h = salt_of(t, p);
    for (int32_t i = 0; i < t->n; i++) n_known[i] = 0;
    if (p->no_cache) return;
    for (int64_t at = 0; left && at + BLOCK < p->n_prompt; at += BLOCK) {
        h = hash_bytes(p->prompt + at, BLOCK * sizeof *p->prompt, h);
        const struct seen *s = find(t, h);
        left &= s ? s->members : 0;
        for (int32_t i = 0; i < t->n; i++)
            if (left >> i & 1) n_known[i] = at + BLOCK;
    }
}

static void remember(struct team *t, const struct job_params *p, int32_t who) {
    uint64_t h = salt_of(t, p);
    if (p->no_cache) return;
    t->clock++;
    for (int64_t at = 0; at + BLOCK < p->n_prompt; at += BLOCK) {
        h = hash_bytes(p->prompt + at, BLOCK * sizeof *p->prompt, h);
        struct seen *s = place(t, h);
        s->members |= 1U << who;
        s->used = t->clock;
    }
}

/* ---- choice of a member ---- */

static int64_t cost(const struct team *t, int32_t i, int64_t n_missing) {
    const struct team_member *m = &t->members[i];
    int32_t n_wait = m->n_open - engine_n_seq(t->engines[i]) + 1;
    return n_missing + m->n_todo + (int64_t)m->n_open * JOB_TOKENS +
           (n_wait > 0 ? (int64_t)n_wait * WAIT_TOKENS : 0);
}

/* Returns the cheapest member that is not in `refused`; if costs are equal, the one with fewer jobs so far. -1:
 * none. */
static int32_t choose(const struct team *t, const int64_t *n_known, int64_t n_prompt,
                      uint32_t refused) {
    int32_t best = -1;
    int64_t least = 0;
    for (int32_t i = 0; i < t->n; i++) {
        if (t->members[i].lost || refused >> i & 1) continue;
        int64_t c = cost(t, i, n_prompt - n_known[i]);
        bool wins =
            best < 0 || c < least || (c == least && t->members[i].n_job < t->members[best].n_job);
        if (!wins) continue;
        best = i;
        least = c;
    }
    return best;
}

/* n_tok: tokens to evaluate, of which the member is expected to have n_known. */
static void give(struct team *t, struct engine_job *j, int32_t who, int32_t n_tok,
                 int64_t n_known) {
    struct team_member *m = &t->members[who];
    j->team = t;
    j->member = who;
    j->n_todo = (int32_t)(n_tok - n_known);
    m->n_open++;
    m->n_job++;
    m->n_todo += j->n_todo;
    m->n_routed_hit += n_known;
    remember(t, &j->p, who);
}

static void take_back(struct engine_job *j) {
    struct team_member *m = &j->team->members[j->member];
    m->n_todo -= j->n_todo;
    j->n_todo = 0;
    m->n_open--;
    j->team = NULL;
}

int team_submit(struct team *t, struct engine_job *j, struct err *e) {
    int64_t n_known[TEAM_MAX];
    uint32_t refused = 0;
    j->team = NULL;
    j->carried = NULL;
    /* engine_post reports the error */
    if (!j->p.prompt || j->p.n_prompt < 1) return engine_post(t->engines[0], j, e);
    for (;;) {
        pthread_mutex_lock(&t->lock);
        if (!refused) match(t, &j->p, n_known);
        int32_t who = choose(t, n_known, j->p.n_prompt, refused);
        if (who >= 0) give(t, j, who, j->p.n_prompt, n_known[who]);
        pthread_mutex_unlock(&t->lock);
        if (who < 0 && refused) return e ? e->code : CHIMERE_EBUSY;
        if (who < 0)
            return err_set(e, CHIMERE_EDEVICE, "every card has failed; start the server again");
        int rc = engine_post(t->engines[who], j, e);
        if (!rc) return 0;
        pthread_mutex_lock(&t->lock);
        take_back(j);
        pthread_mutex_unlock(&t->lock);
        if (rc != CHIMERE_EBUSY) return rc;
        refused |= 1U << who;
    }
}

struct engine *team_engine_of(struct team *t, const struct engine_job *j) {
    pthread_mutex_lock(&t->lock);
    struct engine *g = t->engines[j->member];
    pthread_mutex_unlock(&t->lock);
    return g;
}

void team_evaluated(struct engine_job *j) {
    struct team *t = j->team;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->members[j->member].n_todo -= j->n_todo;
    j->n_todo = 0;
    pthread_mutex_unlock(&t->lock);
}

/* Returns true if the job failed because of its card: the device reports an error, or several consecutive steps have
 * failed. */
static bool has_failed(struct engine *g, const struct engine_job *j) {
    struct engine_totals x;
    if (j->err.code == CHIMERE_EDEVICE) return true;
    engine_own_totals(g, &x);
    return x.n_failed_steps >= MAX_FAILED_STEPS;
}

/* Marks the member of a job that failed with its card. */
static void lose(struct team *t, const struct engine_job *j) {
    struct team_member *m = &t->members[j->member];
    if (!m->lost) log_error("%s gets no more requests: %s", m->name, j->err.text);
    m->lost = true;
}

void team_ended(struct engine_job *j) {
    struct team *t = j->team;
    if (!t) return;
    bool failed = j->finish == FINISH_ERROR && has_failed(t->engines[j->member], j);
    pthread_mutex_lock(&t->lock);
    if (failed) lose(t, j);
    take_back(j);
    pthread_mutex_unlock(&t->lock);
}

bool team_move(struct engine_job *j, int32_t n_tok) {
    struct team *t = j->team;
    int64_t n_known[TEAM_MAX];
    uint32_t refused = 0;
    int32_t from = j->member;
    if (!has_failed(t->engines[from], j)) return false;
    for (int32_t i = 0; i < t->n; i++)
        if (engine_own_ctx(t->engines[i]) <= n_tok) refused |= 1U << i;
    pthread_mutex_lock(&t->lock);
    lose(t, j);
    match(t, &j->p, n_known);
    int32_t who = choose(t, n_known, n_tok, refused);
    if (who >= 0) {
        const struct err why = j->err;
        take_back(j);
        give(t, j, who, n_tok, n_known[who]);
        j->err = (struct err){0};
        /* the other engine may end the job at once, but its thread waits for the lock before that */
        if (!engine_post(t->engines[who], j, NULL)) {
            t->members[who].n_moved++;
        } else { /* the engines are being closed */
            take_back(j);
            give(t, j, from, n_tok, n_tok);
            j->err = why;
            who = -1;
        }
    }
    pthread_mutex_unlock(&t->lock);
    return who >= 0;
}

/* ---- reports ---- */

int32_t team_size(const struct engine *g) {
    const struct team *t = engine_team(g);
    return t ? t->n : 1;
}

void team_at(struct engine *g, int32_t i, struct team_member *m, struct engine_totals *totals) {
    struct team *t = engine_team(g);
    *m = (struct team_member){.n_open = 0};
    if (t) {
        pthread_mutex_lock(&t->lock);
        *m = t->members[i];
        pthread_mutex_unlock(&t->lock);
        g = t->engines[i];
    }
    if (totals) engine_own_totals(g, totals);
}

int32_t team_links(const struct engine *g, struct link_stats *out) {
    const struct lm *lm = engine_lm(g);
    return lm->ops->links ? lm->ops->links(lm, out) : 0;
}

int64_t team_ctx(const struct team *t) {
    int64_t least = engine_own_ctx(t->engines[0]);
    for (int32_t i = 1; i < t->n; i++)
        if (engine_own_ctx(t->engines[i]) < least) least = engine_own_ctx(t->engines[i]);
    return least;
}

static bool are_all_lost(struct team *t) {
    bool all = true;
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < t->n; i++) all &= t->members[i].lost;
    pthread_mutex_unlock(&t->lock);
    return all;
}

/* Sums over all members. n_failed_steps is that of the best member; step_ms_mean is the mean over all steps. */
void team_totals(struct team *t, struct engine_totals *sum) {
    double ms = 0;
    engine_own_totals(t->engines[0], sum);
    ms = sum->step_ms_mean * (double)sum->n_step;
    for (int32_t i = 1; i < t->n; i++) {
        struct engine_totals x;
        engine_own_totals(t->engines[i], &x);
        ms += x.step_ms_mean * (double)x.n_step;
        sum->n_step += x.n_step, sum->n_prompt += x.n_prompt, sum->n_generated += x.n_generated;
        sum->n_drafted += x.n_drafted, sum->n_accepted += x.n_accepted, sum->n_job += x.n_job;
        sum->n_failed += x.n_failed, sum->n_row += x.n_row, sum->n_row_whole += x.n_row_whole;
        sum->n_active += x.n_active, sum->n_waiting += x.n_waiting, sum->n_ctx += x.n_ctx;
        sum->n_ctx_free += x.n_ctx_free, sum->n_cached += x.n_cached, sum->n_state += x.n_state;
        sum->n_state_disk += x.n_state_disk, sum->state_bytes += x.state_bytes;
        if (x.n_failed_steps < sum->n_failed_steps) sum->n_failed_steps = x.n_failed_steps;
        sum->is_lost |=
            x.is_lost; /* a split: members that take turns on the same cards fail together */
    }
    sum->is_lost |= are_all_lost(t); /* replicas are lost one by one */
    sum->step_ms_mean = sum->n_step ? ms / (double)sum->n_step : 0;
}
