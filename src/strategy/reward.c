/* reward.c: see reward.h. */
#include "strategy/reward.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "format/quant.h"
#include "model/forward.h"

enum { REWARD_CTX = 4096, LEAST_CTX = 64, PIECE = 128 };

struct reward {
    struct model *m;       /* borrowed */
    const struct tok *tok; /* borrowed */
    struct seq_pool *pool; /* owned */
    struct seq *seq;       /* owned */
    struct forward *f;     /* owned */
    struct slice mark;     /* view of the file or of a row */
    int32_t ids[3];        /* tokens of mark, good and bad */
    int32_t n_ctx;
    pthread_mutex_t lock; /* protects seq and f */
};

/* ---- opening ---- */

/* Texts of published models whose files do not name them. */
static const struct {
    const char *name; /* in general.name, without regard to case */
    const char *texts[3];
} known[] = {
    {"shepherd", {"\xd0\xba\xd0\xb8", "+", "-"}},
};

static const char *const keys[3] = {"chimere.prm.mark", "chimere.prm.good", "chimere.prm.bad"};

static struct slice text_of(const struct gguf *g, const char *key) {
    const struct gguf_kv *kv = gguf_find(g, key);
    struct slice s = {NULL, 0};
    uint64_t cursor = 0;
    if (kv && kv->type == GGUF_STR) gguf_next_str(kv, &cursor, &s);
    return s;
}

static bool has_word(struct slice s, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= s.n; i++)
        if (!strncasecmp(s.p + i, word, n)) return true;
    return false;
}

static void find_texts(const struct gguf *g, struct slice out[3]) {
    struct slice name = text_of(g, "general.name");
    for (int i = 0; i < 3; i++) out[i] = text_of(g, keys[i]);
    for (size_t k = 0; k < sizeof known / sizeof *known && !out[0].n; k++)
        for (int i = 0; i < 3 && has_word(name, known[k].name); i++)
            out[i] = (struct slice){known[k].texts[i], strlen(known[k].texts[i])};
}

bool reward_is_named(const struct gguf *g) {
    struct slice texts[3];
    find_texts(g, texts);
    return texts[0].n > 0;
}

/* Returns the token of a text, with a blank before it if the vocabulary has such a token; -1: none. */
static int32_t token_of(const struct tok *tok, struct slice s) {
    char spaced[32] = " ";
    if (!s.n || s.n + 1 >= sizeof spaced) return -1;
    memcpy(spaced + 1, s.p, s.n);
    int32_t id = tok_find(tok, spaced, s.n + 1);
    return id < 0 ? tok_find(tok, s.p, s.n) : id;
}

static int find_tokens(struct reward *r, struct err *e) {
    struct slice texts[3];
    find_texts(r->m->gguf, texts);
    if (!texts[0].n || !r->m->hp.is_causal || r->m->hp.pooling == POOL_RANK) {
        err_set(e, CHIMERE_EUNSUPPORTED, "%s is no process reward model", r->m->name);
        err_hint(e,
                 "a decoder is expected whose file names the texts after a step in the keys %s, "
                 "%s and %s, or a file of Math-Shepherd",
                 keys[0], keys[1], keys[2]);
        return CHIMERE_EUNSUPPORTED;
    }
    for (int i = 0; i < 3; i++) {
        r->ids[i] = token_of(r->tok, texts[i]);
        if (r->ids[i] < 0)
            return err_set(e, CHIMERE_EFORMAT,
                           "key %s: expected the text of one token, got \"%.*s\"", keys[i],
                           (int)(texts[i].n < 32 ? texts[i].n : 32), texts[i].n ? texts[i].p : "");
    }
    r->mark = texts[0];
    return 0;
}

int reward_open(struct reward **out, struct model *m, const struct tok *tok, struct err *e) {
    *out = NULL;
    struct reward *r = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    r->m = m;
    r->tok = tok;
    r->n_ctx = m->hp.n_ctx_train < REWARD_CTX ? m->hp.n_ctx_train : REWARD_CTX;
    pthread_mutex_init(&r->lock, NULL);
    int rc = find_tokens(r, e);
    if (!rc && r->n_ctx < LEAST_CTX)
        rc = err_set(e, CHIMERE_EINVAL, "context: expected at least %d tokens, got %d", LEAST_CTX,
                     r->n_ctx);
    const struct seq_pool_params p = {
        .n_slot = 1, .n_ctx = r->n_ctx, .k_type = QUANT_F16, .v_type = QUANT_F16};
    if (!rc) rc = seq_pool_new(&r->pool, m, &p, e);
    if (!rc) rc = seq_new(&r->seq, r->pool, e);
    if (!rc) rc = forward_new(&r->f, m, r->pool, PIECE, 1, e);
    if (rc) reward_close(r);
    else *out = r;
    return rc;
}

void reward_close(struct reward *r) {
    if (!r) return;
    if (r->f) forward_free(r->f);
    if (r->seq) seq_free(r->seq);
    if (r->pool) seq_pool_free(r->pool);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

/* ---- scoring ---- */

/* Appends text with a blank for each mark in it, so that a solution cannot end a step itself. */
static void put_clean(struct buf *b, struct slice text, struct slice mark) {
    for (size_t i = 0; i < text.n;) {
        bool is_mark = text.n - i >= mark.n && !memcmp(text.p + i, mark.p, mark.n);
        buf_put(b, is_mark ? " " : text.p + i, 1);
        i += is_mark ? mark.n : 1;
    }
}

static int encode(const struct reward *r, const struct reward_call *c, int32_t **ids, size_t *n,
                  struct err *e) {
    struct buf b;
    buf_init(&b, (size_t)1 << 28);
    put_clean(&b, c->problem, r->mark);
    for (int32_t i = 0; i < c->n_step; i++) {
        buf_printf(&b, "%sStep %d: ", i ? "\n" : " ", i + 1);
        put_clean(&b, c->steps[i], r->mark);
        buf_puts(&b, " ");
        buf_put(&b, r->mark.p, r->mark.n);
    }
    int rc = b.failed ? err_set(e, CHIMERE_ENOMEM, "out of memory for a solution") : 0;
    if (!rc) rc = tok_encode(r->tok, b.p, b.n, false, true, ids, n, e);
    buf_fini(&b);
    return rc;
}

static bool is_over(const struct reward_call *c) {
    return (c->cancelled && *c->cancelled) || (c->deadline_ns && clock_ns() >= c->deadline_ns);
}

/* Evaluates the next n tokens and reads the probability of "good" after them. */
static int run(struct reward *r, const int32_t *ids, size_t n, struct reward_call *c,
               struct err *e) {
    const float *logits = NULL;
    for (size_t at = 0; at < n; at += PIECE) {
        size_t m = n - at < PIECE ? n - at : PIECE;
        const struct batch_item piece = {.seq = r->seq,
                                         .tokens = ids + at,
                                         .n_tok = (int32_t)m,
                                         .want = at + m == n ? WANT_LAST : WANT_NONE};
        c->was_late = is_over(c);
        if (c->was_late) return 0;
        int rc = forward_run(r->f, &piece, 1, &logits, e);
        if (rc) return rc;
        c->n_tok += (int32_t)m;
    }
    double good = logits ? (double)logits[r->ids[1]] : NAN,
           bad = logits ? (double)logits[r->ids[2]] : NAN, score = 1 / (1 + exp(bad - good));
    if (isnan(score)) return err_set(e, CHIMERE_ENUMERIC, "%s: a score is not finite", r->m->name);
    c->scores[c->n_scored++] = score;
    return 0;
}

int reward_score(struct reward *r, struct reward_call *c, struct err *e) {
    int32_t *ids = NULL;
    size_t n = 0, from = 0;
    c->n_scored = c->n_tok = 0;
    c->was_late = false;
    int rc = encode(r, c, &ids, &n, e);
    if (n > (size_t)r->n_ctx) n = (size_t)r->n_ctx;
    pthread_mutex_lock(&r->lock);
    seq_reset(r->seq);
    for (size_t i = 0; i < n && c->n_scored < c->n_step && !rc && !c->was_late; i++) {
        if (ids[i] != r->ids[0]) continue;
        rc = run(r, ids + from, i + 1 - from, c, e);
        from = i + 1;
    }
    pthread_mutex_unlock(&r->lock);
    mem_free(ids);
    return rc;
}
