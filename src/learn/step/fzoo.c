#include "learn/step/fzoo.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "eval/logprob.h"
#include "eval/windows.h"

struct member {
    struct lora *lora; /* owned */
    struct lora_use use;
    double nll; /* sum over the current pass */
    int64_t n_tok;
};

struct trainer {
    struct fzoo_params p;
    struct model *m;
    struct lora *centre; /* owned */
    struct member members[FZOO_MAX_MEMBERS];
    struct windows *windows; /* owned */
    struct window *w;        /* owned [n_w] */
    double *nll;             /* owned [n_w]: mean per token of each window of the last pass */
    size_t n_w;
    float *velocity, *best; /* owned [n_b] */
    size_t n_b;
    double best_loss; /* loss on the held-out samples */
};

static void defaults(struct fzoo_params *p) {
    if (p->rank < 1) p->rank = 2;
    if (!p->rule) p->rule = zo_rules[0];
    if (p->members < 2) p->members = p->rule->members;
    if (p->members > FZOO_MAX_MEMBERS) p->members = FZOO_MAX_MEMBERS;
    if (p->rule->is_paired) p->members &= ~1;
    if (p->batch < 1) p->batch = p->rule->batch;
    if (p->steps < 1) p->steps = 400;
    if (p->every < 1) p->every = 20;
    if (p->patience < 1) p->patience = 4;
    if (!(p->lr > 0)) p->lr = p->rule->lr;
    if (!(p->eps > 0)) p->eps = p->rule->eps;
    if (p->n_batch < 1) p->n_batch = 512;
}

static int check(struct fzoo_samples s, size_t least, const char *what, struct err *e) {
    if (s.n < least)
        return err_set(e, CHIMERE_EINVAL, "%s samples: expected at least %zu, got %zu", what, least,
                       s.n);
    for (size_t i = 0; i < s.n; i++)
        if (s.v[i].n_prompt < 1 || s.v[i].n_prompt >= s.v[i].n_tok ||
            s.v[i].n_tok > FZOO_MAX_TOKENS)
            return err_set(e, CHIMERE_EINVAL,
                           "%s sample %zu: expected a prompt and an answer of at most %d tokens",
                           what, i, FZOO_MAX_TOKENS);
    return 0;
}

/* ---- losses ---- */

static int add_rows(void *ud, size_t i, int32_t pos, int32_t n_row, const float *rows,
                    struct err *e) {
    struct trainer *t = ud;
    int32_t n_vocab = t->m->hp.n_vocab;
    double sum = 0;
    for (int32_t k = 0; k < n_row; k++, rows += n_vocab)
        sum += logprob_norm(rows, n_vocab) - (double)rows[t->w[i].tokens[pos + k + 1]];
    if (!isfinite(sum))
        return err_set(e, CHIMERE_ENUMERIC,
                       "training: expected finite logits, got NaN or infinity");
    t->nll[i] += sum;
    return 0;
}

static struct window window_of(const struct fzoo_sample *s, const struct lora_use *use) {
    return (struct window){.tokens = s->tokens,
                           .n_tok = s->n_tok,
                           .first = s->n_prompt - 1,
                           .loras = use,
                           .n_lora = use ? 1 : 0};
}

static int pass(struct trainer *t, size_t n, struct err *e) {
    memset(t->nll, 0, n * sizeof *t->nll);
    return windows_pass(t->windows, t->w, n, add_rows, t, e);
}

/* Measures the mean loss of each sample into losses [held.n] (NULL: not wanted) and the mean over all tokens into
 * *mean. */
static int measure(struct trainer *t, const struct lora_use *use, struct fzoo_samples held,
                   double *losses, double *mean, struct err *e) {
    double sum = 0;
    int64_t n_tok = 0;
    int rc = 0;
    for (size_t at = 0; !rc && at < held.n; at += t->n_w) {
        size_t n = held.n - at < t->n_w ? held.n - at : t->n_w;
        for (size_t i = 0; i < n; i++) t->w[i] = window_of(&held.v[at + i], use);
        rc = pass(t, n, e);
        for (size_t i = 0; !rc && i < n; i++) {
            int32_t n_answer = held.v[at + i].n_tok - held.v[at + i].n_prompt;
            if (losses) losses[at + i] = t->nll[i] / n_answer;
            sum += t->nll[i];
            n_tok += n_answer;
        }
    }
    *mean = n_tok ? sum / (double)n_tok : 0;
    return rc;
}

/* ---- a step ---- */

static struct zo_step step_of(const struct trainer *t, int32_t step) {
    return (struct zo_step){.rule = t->p.rule,
                            .seed = t->p.seed,
                            .step = step,
                            .n_step = t->p.steps,
                            .n_member = t->p.members,
                            .lr = t->p.lr,
                            .eps = t->p.eps};
}

static int perturb(struct trainer *t, int32_t step, int32_t i, struct err *e) {
    size_t n;
    const struct zo_step s = step_of(t, step);
    float *to = lora_b(t->members[i].lora, &n);
    zo_perturb(&s, i, lora_b(t->centre, &n), to, n);
    return lora_commit(t->members[i].lora, e);
}

/* Measures the mean loss per answer token of each member on a random batch. */
static int losses_of(struct trainer *t, int32_t step, struct fzoo_samples train, double *loss,
                     struct err *e) {
    int32_t n_member = t->p.members, n_batch = t->p.batch;
    int64_t n_tok = 0;
    for (int32_t k = 0; k < n_batch; k++) {
        const struct fzoo_sample *s =
            &train.v[rng_at(t->p.seed ^ 0x5eed, (uint64_t)step * (uint64_t)n_batch + (uint64_t)k) %
                     train.n];
        n_tok += s->n_tok - s->n_prompt;
        for (int32_t i = 0; i < n_member; i++)
            t->w[k * n_member + i] = window_of(s, &t->members[i].use);
    }
    int rc = pass(t, (size_t)(n_member * n_batch), e);
    for (int32_t j = 0; !rc && j < n_member * n_batch; j++)
        loss[j % n_member] += t->nll[j] / (double)n_tok;
    return rc;
}

static int one_step(struct trainer *t, int32_t step, struct fzoo_samples train, double *mean,
                    struct err *e) {
    int32_t n_member = t->p.members;
    double loss[FZOO_MAX_MEMBERS] = {0};
    int rc = 0;
    *mean = 0;
    for (int32_t i = 0; !rc && i < n_member; i++) rc = perturb(t, step, i, e);
    for (int32_t i = 0; !rc && t->p.rule->rewards && i < n_member; i++) {
        rc = t->p.reward(t->p.ud, &t->members[i].use, step, &loss[i], e);
        loss[i] = -loss[i];
    }
    if (!rc && !t->p.rule->rewards) rc = losses_of(t, step, train, loss, e);
    if (rc) return rc;
    for (int32_t i = 0; i < n_member; i++) *mean += loss[i] / n_member;
    if (t->p.log) memcpy(t->p.log->loss + step * n_member, loss, (size_t)n_member * sizeof *loss);
    const struct zo_step s = step_of(t, step);
    size_t n;
    float *b = lora_b(t->centre, &n);
    zo_update(&s, loss, b, t->velocity, n);
    return 0;
}

/* ---- the run ---- */

static void close_trainer(struct trainer *t) {
    windows_close(t->windows);
    for (int32_t i = 0; i < FZOO_MAX_MEMBERS; i++)
        if (t->members[i].lora) lora_close(t->members[i].lora);
    if (t->centre) lora_close(t->centre);
    mem_free(t->w);
    mem_free(t->nll);
    mem_free(t->velocity);
    mem_free(t->best);
}

static int open_trainer(struct trainer *t, struct fzoo_samples train, struct fzoo_samples held,
                        struct err *e) {
    int32_t longest = 0;
    for (size_t i = 0; i < train.n; i++)
        longest = train.v[i].n_tok > longest ? train.v[i].n_tok : longest;
    for (size_t i = 0; i < held.n; i++)
        longest = held.v[i].n_tok > longest ? held.v[i].n_tok : longest;
    int rc = lora_new(&t->centre, t->m, t->p.rank, t->p.seed, e);
    for (int32_t i = 0; !rc && i < t->p.members; i++) {
        rc = lora_twin(&t->members[i].lora, t->centre, e);
        t->members[i].use = (struct lora_use){.lora = t->members[i].lora, .scale = 1};
    }
    if (rc) return rc;
    lora_b(t->centre, &t->n_b);
    t->n_w = (size_t)(t->p.members * t->p.batch);
    t->w = mem_alloc_array(t->n_w, sizeof *t->w);
    t->nll = mem_alloc_array(t->n_w, sizeof *t->nll);
    t->velocity = mem_alloc_array(t->n_b, sizeof *t->velocity);
    t->best = mem_alloc_array(t->n_b, sizeof *t->best);
    if (!t->w || !t->nll || !t->velocity || !t->best)
        return err_set(e, CHIMERE_ENOMEM, "out of memory for training");
    const struct windows_params params = {
        .n_seq = (int32_t)(t->n_w < WINDOWS_MAX_SEQS ? t->n_w : WINDOWS_MAX_SEQS),
        .n_batch = t->p.n_batch,
        .turn = t->p.turn};
    return windows_open(&t->windows, t->m, longest, &params, e);
}

/* Measures the central adapter after n_step steps and keeps it if it is the best so far. */
static int keep_best(struct trainer *t, struct fzoo_samples held, int32_t n_step, int32_t *n_worse,
                     struct err *e) {
    double mean;
    size_t n;
    const struct lora_use use = {.lora = t->centre, .scale = 1};
    int rc = lora_commit(t->centre, e);
    if (!rc) rc = measure(t, &use, held, NULL, &mean, e);
    if (rc) return rc;
    if (mean >= t->best_loss) {
        ++*n_worse;
        return 0;
    }
    *n_worse = 0;
    t->best_loss = mean;
    if (t->p.log) t->p.log->n = n_step;
    memcpy(t->best, lora_b(t->centre, &n), t->n_b * sizeof *t->best);
    return 0;
}

static int train_all(struct trainer *t, struct fzoo_samples train, struct fzoo_samples held,
                     struct err *e) {
    int32_t n_worse = 0;
    int rc = measure(t, NULL, held, NULL, &t->best_loss, e);
    for (int32_t step = 0; !rc && step < t->p.steps && n_worse < t->p.patience; step++) {
        double loss;
        if (t->p.goes_on && !t->p.goes_on(t->p.ud))
            return err_set(e, CHIMERE_ECANCELLED, "training was cancelled");
        rc = one_step(t, step, train, &loss, e);
        if (!rc && t->p.progress) t->p.progress(t->p.ud, step + 1, t->p.steps, loss);
        if (!rc && ((step + 1) % t->p.every == 0 || step + 1 == t->p.steps))
            rc = keep_best(t, held, step + 1, &n_worse, e);
    }
    size_t n;
    if (!rc) memcpy(lora_b(t->centre, &n), t->best, t->n_b * sizeof *t->best);
    return rc ? rc : lora_commit(t->centre, e);
}

int fzoo_losses(double *losses, struct model *m, const struct lora_use *use, struct fzoo_samples s,
                const struct windows_turn *turn, struct err *e) {
    struct trainer t = {.m = m, .n_w = 32};
    int32_t longest = 0;
    double mean;
    int rc = check(s, 1, "held-out", e);
    for (size_t i = 0; !rc && i < s.n; i++)
        longest = s.v[i].n_tok > longest ? s.v[i].n_tok : longest;
    if (s.n < t.n_w) t.n_w = s.n;
    t.w = mem_alloc_array(t.n_w, sizeof *t.w);
    t.nll = mem_alloc_array(t.n_w, sizeof *t.nll);
    if (!rc && (!t.w || !t.nll)) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct windows_params params = {.n_seq = (int32_t)t.n_w, .n_batch = 512};
    if (turn) params.turn = *turn;
    if (!rc) rc = windows_open(&t.windows, m, longest, &params, e);
    if (!rc) rc = measure(&t, use, s, losses, &mean, e);
    close_trainer(&t);
    return rc;
}

int fzoo_train(struct lora **out, struct model *m, struct fzoo_samples train,
               struct fzoo_samples held, const struct fzoo_params *p, struct err *e) {
    *out = NULL;
    struct trainer t = {.p = *p, .m = m};
    defaults(&t.p);
    const struct zo_step how = step_of(&t, 0);
    int rc = t.p.log ? replay_init(t.p.log, &how, t.p.rank, e) : 0;
    if (!rc) rc = check(train, 1, "training", e);
    if (!rc) rc = check(held, 2, "held-out", e);
    if (!rc && t.p.rule->rewards && !t.p.reward)
        rc = err_set(e, CHIMERE_EINVAL, "training: %s expects a reward", t.p.rule->name);
    if (!rc) rc = open_trainer(&t, train, held, e);
    if (!rc) rc = train_all(&t, train, held, e);
    if (!rc) {
        *out = t.centre;
        t.centre = NULL;
    }
    close_trainer(&t);
    return rc;
}
