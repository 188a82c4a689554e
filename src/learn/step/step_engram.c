/* step_engram.c: adds accepted answers to an n-gram table, in which old documents lose weight. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engram/revise.h"
#include "eval/mixture.h"
#include "learn/data/votes.h"
#include "learn/step/night_step.h"

enum { LEAST_TRAIN = 4, LEAST_HELD = 4 };
#define HALF_LIFE_S (30.0 * 86400)
#define DROP_S (90.0 * 86400)

/* Adds "QUESTION
 * ANSWER" without the control tokens of the template, in the format in which engram/ingest.h reads pairs: a table
 * must never propose control tokens. */
static int add_doc(struct night *x, struct engram_builder *b, const struct learn_item *item,
                   uint32_t source, struct err *e) {
    uint32_t weight = (uint32_t)lround(item->worth * ENGRAM_UNIT);
    struct buf text;
    int32_t *ids = NULL;
    size_t n = 0;
    buf_init(&text, 4 * COLLECT_MAX_TEXT);
    int rc = buf_printf(&text, "%s\n%s", item->question, item->answer)
                 ? err_set(e, CHIMERE_ENOMEM, "out of memory")
                 : 0;
    if (!rc) rc = tok_encode(x->host->tok, text.p, text.n, false, false, &ids, &n, e);
    if (!rc) rc = engram_builder_doc(b, ids, n, source, item->at_ms / 1000, weight ? weight : 1, e);
    mem_free(ids);
    buf_fini(&text);
    return rc;
}

static int build(struct night *x, const char *path, size_t *n_doc, struct err *e) {
    const struct engram_build_params p = {.tok_hash = tok_hash(x->host->tok),
                                          .n_vocab = (uint32_t)tok_n_vocab(x->host->tok)};
    struct engram_builder *b;
    uint32_t id;
    int rc = engram_builder_new(&b, path, &p, e);
    if (rc) return rc;
    for (size_t i = 0; !rc && i < x->day.n; i++) {
        const struct learn_item *item = &x->day.v[i];
        if (item->held_out) continue;
        rc =
            engram_builder_source(b, (struct slice){item->source, strlen(item->source)}, 0, &id, e);
        if (!rc) rc = add_doc(x, b, item, id, e);
        ++*n_doc;
    }
    if (!rc) return engram_builder_finish(b, e);
    engram_builder_abort(b);
    return rc;
}

/* Measures the loss of each held-out sample without and with the table. */
static int measure(struct night *x, const struct engram_table *t, const struct fzoo_sample *held,
                   size_t n, double *before, double *after, struct err *e) {
    const struct windows_params p = {.n_seq = 1, .n_batch = 512, .turn = night_turn(x)};
    float weights[ENGRAM_N_FEATURE];
    engram_default_weights(weights);
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        struct mixture_points points = {0};
        const struct mixture_doc doc = {held[i].tokens, held[i].n_tok};
        rc = mixture_measure(x->host->model, t, &doc, 1, FZOO_MAX_TOKENS, &p, &points, e);
        before[i] = rc ? 0 : mixture_nll(&points, weights, 0);
        after[i] = rc ? 0 : mixture_nll(&points, weights, 1);
        mixture_points_fini(&points);
        if (!rc && !night_goes_on(x))
            rc = err_set(e, CHIMERE_ECANCELLED, "the night was cancelled");
    }
    return rc;
}

/* Returns false for a document of an earlier night that the day's votes decide against, or that a hostile day left. Merging
 * would keep it beside the answer that won until it is too old. */
static bool keeps(void *ud, const struct engram_doc *d) {
    struct night *x = ud;
    struct tok_stream s;
    struct buf text;
    if (learn_spans_have((struct learn_spans){x->hidden, x->n_hidden}, 1000 * d->time))
        return false;
    buf_init(&text, 4 * COLLECT_MAX_TEXT);
    tok_stream_init(&s, x->host->tok, false);
    for (uint32_t i = 0; i < d->n_tok; i++) {
        struct slice bytes = tok_stream_bytes(&s, d->tokens[i]);
        buf_put(&text, bytes.p, bytes.n);
    }
    buf_putc(&text, 0);
    bool is = text.failed || !votes_outvoted(x->day.votes, text.p);
    buf_fini(&text);
    return is;
}

static int propose(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e) {
    char fresh[NIGHTS_MAX_PATH + 8], old[NIGHTS_MAX_PATH];
    struct fzoo_sample *held = NULL;
    struct engram_table *t = NULL;
    double *losses = NULL;
    size_t n_doc = 0, n_held = 0;
    snprintf(fresh, sizeof fresh, "%s.new", path);
    int rc = build(x, fresh, &n_doc, e);
    if (!rc) rc = night_samples(x, true, &held, &n_held, e);
    if (!rc && (n_doc < LEAST_TRAIN || n_held < LEAST_HELD)) {
        snprintf(why, 256, "%zu answers to keep and %zu held out; at least %d and %d are needed",
                 n_doc, n_held, LEAST_TRAIN, LEAST_HELD);
        rc = CHIMERE_ENOENT;
    }
    const struct engram_revision r = {.keeps = keeps,
                                      .ud = x,
                                      .decay = true,
                                      .now = x->params->now_s,
                                      .half_life = HALF_LIFE_S,
                                      .drop = DROP_S};
    struct engram_revised revised;
    const char *tables[] = {fresh, old};
    bool has_old = night_live(x, night_step_engram.artefact, old, sizeof old);
    if (!rc) rc = engram_revise(path, tables, has_old ? 2 : 1, &r, &revised, e);
    if (!rc)
        rc = engram_table_open(&t, path, tok_hash(x->host->tok),
                               (uint32_t)tok_n_vocab(x->host->tok), e);
    if (!rc && !(losses = mem_alloc_array(2 * n_held, sizeof *losses)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = measure(x, t, held, n_held, losses, losses + n_held, e);
    if (!rc) night_gain_of(gain, losses, losses + n_held, n_held);
    if (t) engram_table_close(t);
    remove(fresh);
    mem_free(losses);
    mem_free(held);
    return rc;
}

static int forget(const char *from, const char *to, const struct night_person *who, size_t *n_gone,
                  bool *is_empty, struct err *e) {
    struct engram_revised revised = {0};
    const struct engram_revision r = {.forget = who->source, .forget_below = who->below};
    int rc = engram_revise(to, &from, 1, &r, &revised, e);
    *n_gone = revised.n_dropped;
    *is_empty = !revised.n_doc;
    return rc;
}

const struct night_step night_step_engram = {.name = "engram",
                                             .artefact = "night.engram",
                                             .about = "accepted answers, as an n-gram table",
                                             .time = "04:00",
                                             .propose = propose,
                                             .forget = forget};
