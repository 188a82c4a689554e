/* lm_fake.c: a deterministic model without weights, for tests. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "engine/lm.h"
#include "kernels/cpu/cpu.h"

struct fake_seq {
    int64_t pos, n_prompt;
    int32_t last[2];              /* the two newest tokens */
    int32_t log[STEP_MAX_TOK][2]; /* value of `last` before each token that can still be dropped */
    int32_t n_log;
    bool decoding;
    int32_t n_restored; /* pages restored so far, while a state is being restored */
};

struct fake {
    struct lm lm;
    struct lm_fake_params p;
    float *logits; /* owned [FORWARD rows, n_vocab] */
    struct lm_ops ops;
    struct dev *ref; /* owned; its ops select from rows; NULL: rows are read in place */
    int32_t n_out, n_alive, n_run;
    _Atomic uint64_t host_bytes; /* simulated size of all checkpoints */
};

enum { MAX_ROWS = 1024 };

static int fake_seq_new(struct lm *l, struct seq **out, struct err *e) {
    struct fake *f = (struct fake *)l;
    if (f->n_alive >= f->p.n_seq)
        return err_set(e, CHIMERE_EBUSY, "all %d sequence slots are taken", f->p.n_seq);
    struct fake_seq *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    f->n_alive++;
    *out = (struct seq *)(void *)s;
    return 0;
}

static void fake_seq_free(struct lm *l, struct seq *s) {
    if (s) ((struct fake *)l)->n_alive--;
    mem_free(s);
}

static int64_t fake_seq_pos(struct lm *l, const struct seq *s) {
    (void)l;
    return ((const struct fake_seq *)(const void *)s)->pos;
}

static void fake_seq_drop(struct lm *l, struct seq *seq, int32_t n) {
    (void)l;
    struct fake_seq *s = (struct fake_seq *)(void *)seq;
    if (n > s->n_log) n = s->n_log;
    if (!n) return;
    s->n_log -= n;
    s->pos -= n;
    memcpy(s->last, s->log[s->n_log], sizeof s->last);
}

/* One likely token and smooth values for all others, computed from a hash of the context. */
static void fill(const struct fake *f, const struct fake_seq *s, float *row) {
    uint64_t key[2] = {(uint64_t)(uint32_t)s->last[0] << 32 | (uint32_t)s->last[1], 7};
    uint64_t h = hash_bytes(key, sizeof key, 0);
    int32_t best = (int32_t)(h % (uint64_t)f->p.n_vocab);
    int64_t n = s->pos - s->n_prompt;
    if (best == f->p.eos) best = (best + 1) % f->p.n_vocab;
    if (f->p.script) best = n < f->p.n_script ? f->p.script[n] : f->p.eos;
    else if (f->p.n_eos > 0 && n >= f->p.n_eos) best = f->p.eos;
    for (int32_t i = 0; i < f->p.n_vocab; i++)
        row[i] = (float)(hash_mix(h + (uint64_t)i) >> 40) * 0x1p-24f;
    row[best] = 8;
}

static void spend_us(int32_t us) {
    struct timespec ts = {us / 1000000, (long)(us % 1000000) * 1000};
    if (us > 0) nanosleep(&ts, NULL);
}

static int fake_run(struct lm *l, const struct batch_item *runs, int32_t n_run,
                    const float **logits, struct err *e) {
    struct fake *f = (struct fake *)l;
    int32_t n_out = 0;
    if (logits) *logits = f->logits;
    for (int32_t i = 0; i < n_run; i++) {
        const struct batch_item *r = &runs[i];
        struct fake_seq *s = (struct fake_seq *)(void *)r->seq;
        if (s->pos + r->n_tok > f->p.n_ctx)
            return err_set(e, CHIMERE_ELIMIT, "context: expected at most %lld positions",
                           (long long)f->p.n_ctx);
        if (!s->decoding) {
            s->n_prompt += r->n_tok; /* tokens before the first wanted logits are the prompt */
            s->decoding = r->want != WANT_NONE;
        }
        s->n_log = 0;
        for (int32_t t = 0; t < r->n_tok; t++) {
            if (r->tokens[t] < 0 || r->tokens[t] >= f->p.n_vocab)
                return err_set(e, CHIMERE_EINVAL, "token: expected an id below %d, got %d",
                               f->p.n_vocab, r->tokens[t]);
            if (r->defer && t < STEP_MAX_TOK) memcpy(s->log[s->n_log++], s->last, sizeof s->last);
            s->last[0] = s->last[1];
            s->last[1] = r->tokens[t];
            s->pos++;
            if (r->want != WANT_ALL && !(r->want == WANT_LAST && t == r->n_tok - 1)) continue;
            if (n_out == MAX_ROWS) return err_set(e, CHIMERE_ELIMIT, "too many rows of logits");
            fill(f, s, f->logits + (int64_t)n_out++ * f->p.n_vocab);
        }
    }
    f->n_out = n_out;
    spend_us(f->p.delay_us);
    f->n_run += f->n_run < INT32_MAX;
    return f->p.n_run_ok && f->n_run > f->p.n_run_ok
               ? err_set(e, CHIMERE_EDEVICE, "the device failed")
               : 0;
}

static int fake_select(struct lm *l, struct select_args *a, struct err *e) {
    struct fake *f = (struct fake *)l;
    a->logits = f->logits;
    a->n_row = f->n_out;
    a->n_vocab = f->p.n_vocab;
    f->ref->ops->select(f->ref, a);
    return f->ref->ops->status(f->ref, e);
}
static const float *fake_row(struct lm *l, int32_t i, struct err *e) {
    struct fake *f = (struct fake *)l;
    (void)e;
    return f->logits + (int64_t)i * f->p.n_vocab;
}

/* ---- checkpoints: a copy of struct fake_seq ---- */

struct fake_mark {
    struct fake_seq seq;
    int32_t n_pooled; /* simulated pages that are still in the pool */
};

static struct fake_mark *checkpoint_of(const struct checkpoint *m) {
    return (struct fake_mark *)(void *)(uintptr_t)m;
}

static void weigh(struct fake *f, const struct fake_mark *m, int sign) {
    uint64_t n_page = (uint64_t)(m->seq.pos / KV_PAGE - m->n_pooled);
    uint64_t n = f->p.checkpoint_bytes + f->p.page_bytes * n_page;
    if (sign > 0) f->host_bytes += n;
    else f->host_bytes -= n;
}

static int fake_mark_new(struct lm *l, struct seq *s, int32_t n_drop, struct checkpoint **out,
                         struct err *e) {
    *out = NULL;
    if (n_drop > ((const struct fake_seq *)(void *)s)->n_log)
        return err_set(e, CHIMERE_EINVAL, "checkpoint: no way back by %d tokens", n_drop);
    struct fake_mark *m = mem_zalloc(sizeof *m);
    *out = (struct checkpoint *)(void *)m;
    if (!m) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    m->seq = *(const struct fake_seq *)(void *)s;
    fake_seq_drop(l, (struct seq *)(void *)&m->seq, n_drop);
    m->n_pooled = (int32_t)(m->seq.pos / KV_PAGE);
    weigh((struct fake *)l, m, 1);
    return 0;
}

static void fake_mark_free(struct lm *l, struct checkpoint *m) {
    if (m) weigh((struct fake *)l, checkpoint_of(m), -1);
    mem_free(m);
}

static int fake_restore(struct lm *l, struct seq *seq, const struct checkpoint *m, bool first,
                        int32_t n_max, struct err *e) {
    (void)e;
    struct fake_seq *s = (struct fake_seq *)(void *)seq;
    int32_t n_page = (int32_t)(checkpoint_of(m)->seq.pos / KV_PAGE);
    s->n_restored = first ? 0 : s->n_restored;
    int32_t left = n_page - s->n_restored, n = n_max < left ? n_max : left;
    spend_us(n * ((struct fake *)l)->p.page_us);
    s->n_restored += n;
    if (n < left) return 0;
    *s = checkpoint_of(m)->seq;
    s->n_prompt = s->pos; /* the next tokens are prompt again */
    s->decoding = false;
    return 1;
}

static int64_t fake_ctx_to_load(struct lm *l, const struct checkpoint *m) {
    (void)l;
    (void)m;
    return 0;
}

static int32_t fake_page_out(struct lm *l, struct checkpoint *mark, int32_t n_max, struct err *e) {
    (void)e;
    struct fake_mark *m = checkpoint_of(mark);
    int32_t n = m->n_pooled < n_max ? m->n_pooled : n_max;
    weigh((struct fake *)l, m, -1);
    m->n_pooled -= n;
    weigh((struct fake *)l, m, 1);
    return n;
}

static int64_t fake_ctx_free(struct lm *l) { return l->n_ctx; }
static uint64_t fake_host_bytes(struct lm *l) { return ((struct fake *)l)->host_bytes; }

static int fake_save(struct lm *l, const struct checkpoint *m, const char *path, const void *extra,
                     size_t n_extra, struct err *e) {
    (void)l;
    struct file_writer w;
    int rc = file_writer_open(&w, path, e);
    if (rc) return rc;
    uint32_t crc =
        hash_crc32c(hash_crc32c(0, checkpoint_of(m), sizeof(struct fake_mark)), extra, n_extra);
    if (fwrite(&crc, sizeof crc, 1, w.f) == 1 &&
        fwrite(checkpoint_of(m), sizeof(struct fake_mark), 1, w.f) == 1 &&
        (!n_extra || fwrite(extra, n_extra, 1, w.f) == 1))
        return file_writer_commit(&w, e);
    file_writer_abort(&w);
    return err_set(e, CHIMERE_EIO, "%s: cannot write", path);
}

static int fake_load(struct lm *l, const char *path, struct checkpoint **out, void **extra,
                     size_t *n_extra, struct err *e) {
    char *text = NULL;
    size_t n = 0, head = sizeof(uint32_t) + sizeof(struct fake_mark);
    *out = NULL;
    *extra = NULL;
    *n_extra = 0;
    int rc = file_read(path, (size_t)1 << 28, &text, &n, e);
    if (rc) return rc;
    struct fake_mark *m = mem_zalloc(sizeof *m);
    uint32_t crc = 0;
    memcpy(&crc, text, n < sizeof crc ? n : sizeof crc);
    if (n < head || !m || hash_crc32c(0, text + sizeof crc, n - sizeof crc) != crc) {
        mem_free(m);
        mem_free(text);
        return err_set(e, CHIMERE_ECHECKSUM, "%s: damaged", path);
    }
    memcpy(m, text + sizeof crc, sizeof *m);
    m->n_pooled = 0;
    weigh((struct fake *)l, m, 1);
    memmove(text, text + head, n - head);
    *out = (struct checkpoint *)(void *)m;
    *extra = text;
    *n_extra = n - head;
    return 0;
}

static const struct lm_mark_ops checkpoint_ops = {.mark = fake_mark_new,
                                                  .checkpoint_free = fake_mark_free,
                                                  .restore = fake_restore,
                                                  .ctx_to_load = fake_ctx_to_load,
                                                  .page_out = fake_page_out,
                                                  .ctx_free = fake_ctx_free,
                                                  .host_bytes = fake_host_bytes,
                                                  .save = fake_save,
                                                  .load = fake_load};

static void fake_close(struct lm *l) {
    struct fake *f = (struct fake *)l;
    if (f->ref) f->ref->ops->close(f->ref);
    mem_free(f->logits);
    mem_free(f);
}

static const struct lm_ops ops = {.seq_new = fake_seq_new,
                                  .seq_free = fake_seq_free,
                                  .seq_pos = fake_seq_pos,
                                  .seq_drop = fake_seq_drop,
                                  .run = fake_run,
                                  .close = fake_close,
                                  .marks = &checkpoint_ops};

int lm_open_fake(struct lm **out, const struct lm_fake_params *p, struct err *e) {
    *out = NULL;
    struct fake *f = mem_zalloc(sizeof *f);
    if (f) f->logits = mem_alloc_array((size_t)MAX_ROWS * (size_t)p->n_vocab, sizeof(float));
    if (!f || !f->logits || (p->select && cpu_open_ref(&f->ref, e))) {
        if (f) mem_free(f->logits);
        mem_free(f);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    f->ops = ops;
    if (p->select) {
        f->ops.select = fake_select;
        f->ops.row = fake_row;
    }
    f->lm = (struct lm){.ops = &f->ops,
                        .n_vocab = p->n_vocab,
                        .n_row_max = 64,
                        .n_ctx = p->n_ctx,
                        .layout = 1,
                        .checkpoint_bytes = p->checkpoint_bytes,
                        .page_bytes = p->page_bytes};
    f->p = *p;
    *out = &f->lm;
    return 0;
}
