/* step_drafts.c: keeps which tokens follow which in accepted answers, for drafts (engine/draft/suffix.h).
 *
 * The server's own store learns every text at once, but each text only for the scope of its user. What a night keeps
 * drafts for all users, so it must be better than the store that the server has anyway. To measure this, the day's
 * answers are replayed through the drafts of the engine, in order of time and each in its owner's scope; then the
 * held-out ones, once with the server's own store alone and once with the proposal beside it. A replay counts the
 * forward passes that the answer would take if every draft was verified in full. The model does not run. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/draft/spec.h"
#include "engine/draft/suffix.h"
#include "learn/step/night_step.h"

enum { LEAST_TRAIN = 16, LEAST_HELD = 6 };

/* Replays one answer. *passes: forward passes per token after the first one, which the prompt's pass yields. */
static int replay(struct spec *s, const struct learn_item *item, const struct fzoo_sample *x,
                  double *passes, struct err *e) {
    struct spec_seq q;
    int32_t n_pass = 0, at = x->n_prompt, n_rest = x->n_tok - x->n_prompt - 1;
    if (spec_seq_init(&q, x->tokens, x->n_prompt, n_rest + 1))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    q.salt = hash_bytes(item->source, strlen(item->source), 1);
    spec_begin(s, &q);
    spec_seq_push(s, &q, x->tokens[at++]);
    for (; at < x->n_tok; n_pass++) {
        struct spec_draft d = {.n = 0};
        int32_t n_same = 0;
        spec_draft_text(s, &q, NULL, SPEC_TEXT_MAX, &d);
        if (d.n > x->n_tok - at) d.n = x->n_tok - at; /* the answer ends within the draft */
        while (n_same < d.n && d.tokens[n_same] == x->tokens[at + n_same]) n_same++;
        spec_learn(s, &q, &d, n_same, NULL);
        for (int32_t i = 0; i <= n_same && at < x->n_tok; i++)
            spec_seq_push(s, &q, x->tokens[at++]);
    }
    spec_seq_fini(&q);
    *passes = n_rest > 0 ? (double)n_pass / n_rest : 1;
    return 0;
}

/* Replays the day. passes [number of held-out answers]; the server's own store learns from these too, as it would.
 * *learned is owned by this function and set to NULL; it may be NULL. */
static int run(struct night *x, struct suffix **learned, double *passes, struct err *e) {
    const struct windows_turn turn = night_turn(x);
    struct spec s;
    int rc = spec_init(&s, x->host->model->hp.n_vocab, false, true, e);
    for (int held = 0; held < 2; held++) {
        for (size_t i = 0; !rc && i < x->day.n; i++) {
            double none;
            if (!x->samples[i].n_tok || x->day.v[i].held_out != (held != 0)) continue;
            rc = turn.fn(turn.ud, e);
            if (!rc) rc = replay(&s, &x->day.v[i], &x->samples[i], held ? passes++ : &none, e);
        }
        if (held) continue;
        s.learned = *learned; /* not before: it contains the answers that were replayed so far */
        *learned = NULL;
    }
    spec_fini(&s);
    return rc;
}

static int learn(struct night *x, struct suffix **out, size_t *n, struct err *e) {
    int rc = suffix_new(out, e);
    *n = 0;
    for (size_t i = 0; !rc && i < x->day.n; i++) {
        const struct fzoo_sample *v = &x->samples[i];
        if (!v->n_tok || x->day.v[i].held_out) continue;
        for (int32_t k = 1; k < v->n_tok; k++) suffix_learn(*out, SUFFIX_ALL, v->tokens, k + 1);
        ++*n;
    }
    return rc;
}

static int propose(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e) {
    struct fzoo_sample *held = NULL;
    struct suffix *learned = NULL, *none = NULL;
    size_t n, n_held = 0;
    int rc = learn(x, &learned, &n, e);
    if (!rc) rc = night_samples(x, true, &held, &n_held, e);
    mem_free(held);
    if (!rc && (n < LEAST_TRAIN || n_held < LEAST_HELD)) {
        snprintf(why, 256,
                 "%zu answers to learn from and %zu held out; at least %d and %d are needed", n,
                 n_held, LEAST_TRAIN, LEAST_HELD);
        rc = CHIMERE_ENOENT;
    }
    double *passes = mem_alloc_array(2 * n_held + 1, sizeof *passes);
    if (!rc && !passes) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = suffix_save(learned, path, x->host->model->hash, e);
    if (!rc) rc = run(x, &none, passes, e);
    if (!rc) rc = run(x, &learned, passes + n_held, e);
    if (!rc) night_gain_of(gain, passes, passes + n_held, n_held);
    suffix_free(learned);
    mem_free(passes);
    return rc;
}

const struct night_step night_step_drafts = {
    .name = "drafts",
    .artefact = "drafts.bin",
    .is_beside = true,
    .unit = "passes per token",
    .about = "which tokens follow which in accepted answers, for drafts",
    .time = "05:30",
    .propose = propose};
