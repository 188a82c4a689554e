#include "model/taps.h"

#include <string.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "format/quant.h"
#include "model/forward_impl.h"

/* ---- keeping rows ---- */

uint64_t taps_bytes(const struct model *m, int32_t n, int32_t n_tok_max) {
    return sizeof(float) * (uint64_t)n * (uint64_t)n_tok_max * (uint64_t)m->hp.n_embd;
}

int taps_keep(struct forward *f, const int32_t *layers, int32_t n, struct err *e) {
    if (n < 1 || n > TAPS_MAX || f->n_tap)
        return err_set(e, CHIMERE_ELIMIT, "taps: expected 1 to %d layers, got %d", TAPS_MAX, n);
    for (int32_t i = 0; i < n; i++) {
        if (layers[i] < 0 || layers[i] >= f->m->hp.n_layer)
            return err_set(e, CHIMERE_EINVAL, "taps: expected layers 0 to %d of %s, got %d",
                           f->m->hp.n_layer - 1, f->m->name, layers[i]);
        if (i && layers[i] <= layers[i - 1])
            return err_set(e, CHIMERE_EINVAL, "taps: expected ascending layers, got %d after %d",
                           layers[i], layers[i - 1]);
    }
    f->taps = f->d->ops->alloc(f->d, (size_t)taps_bytes(f->m, n, f->n_tok_max));
    if (!f->taps) return err_set(e, CHIMERE_ENOMEM, "taps of %d layers: out of memory", n);
    memcpy(f->tap_layer, layers, (size_t)n * sizeof *layers);
    f->n_tap = n;
    return 0;
}

const float *taps_kept(const struct forward *f, int32_t i) {
    return f->taps + (int64_t)i * f->n_tok_max * f->m->hp.n_embd;
}

/* ---- files ---- */

static const char magic[8] = {'c', 'h', 't', 'a', 'p', 's', '0', '1'};

struct recorder {
    struct model *m;
    const struct taps_params *p;
    struct seq_pool *pool; /* owned */
    struct seq *seq;       /* owned */
    struct forward *f;     /* owned */
    float *row;            /* owned, host [n_embd] */
    unsigned char *coded;  /* owned: a row in the file's type */
    uint64_t row_bytes;
};

static unsigned char *put(unsigned char *at, uint64_t v, int n) {
    for (int i = 0; i < n; i++) *at++ = (unsigned char)(v >> 8 * i);
    return at;
}

static uint64_t content_of(const struct taps_params *p, const struct taps_text *t, size_t n) {
    uint64_t h = hash_bytes(p->layers, (size_t)p->n_layer * sizeof *p->layers, p->type);
    for (size_t i = 0; i < n; i++) {
        const int32_t sizes[2] = {t[i].n_tok, t[i].n_prompt};
        h = hash_bytes(sizes, sizeof sizes, h);
        h = hash_bytes(t[i].tokens, (size_t)t[i].n_tok * sizeof *t[i].tokens, h);
    }
    return h;
}

static void header(const struct recorder *r, const struct taps_text *t, size_t n, int64_t n_tok,
                   unsigned char out[TAPS_HEADER_BYTES]) {
    memcpy(out, magic, sizeof magic);
    unsigned char *at = put(out + sizeof magic, (uint64_t)r->m->hp.n_embd, 4);
    at = put(at, (uint64_t)r->m->hp.n_vocab, 4);
    at = put(at, (uint64_t)r->p->n_layer, 4);
    at = put(at, n, 4);
    at = put(at, (uint64_t)n_tok, 8);
    at = put(at, r->m->hash, 8);
    at = put(at, content_of(r->p, t, n), 8);
    at = put(at, r->p->type, 4);
    at = put(at, (uint64_t)r->p->n_batch,
             4); /* batch size changes the last bits of long recurrences */
    put(at, 0, 8);
}

/* ---- existing shards ---- */

static uint64_t shard_bytes(const struct recorder *r, size_t n_text, int64_t n_tok) {
    return TAPS_HEADER_BYTES + 4 * (uint64_t)r->p->n_layer + 8 * (uint64_t)n_text +
           (uint64_t)n_tok * (4 + (uint64_t)r->p->n_layer * r->row_bytes);
}

static int check_old(const char *path, const unsigned char *head, uint64_t bytes, struct err *e) {
    unsigned char old[TAPS_HEADER_BYTES];
    struct fs_info st;
    FILE *f = fopen(path, "rb");
    if (!f) return err_set(e, CHIMERE_EIO, "%s: cannot read", path);
    bool same = fread(old, sizeof old, 1, f) == 1 && !memcmp(old, head, sizeof old) &&
                !fs_stat_fd(fileno(f), &st) && st.bytes == bytes;
    fclose(f);
    if (same) return 0;
    err_set(e, CHIMERE_EMISMATCH, "%s: of another model, of other texts, layers or options", path);
    err_hint(e, "name an empty folder");
    return CHIMERE_EMISMATCH;
}

/* ---- writing ---- */

static bool write_u32(FILE *f, uint32_t v) {
    unsigned char b[4];
    put(b, v, 4);
    return fwrite(b, sizeof b, 1, f) == 1;
}

static bool write_lists(const struct recorder *r, FILE *f, const struct taps_text *t, size_t n) {
    bool ok = true;
    for (int32_t i = 0; ok && i < r->p->n_layer; i++) ok = write_u32(f, (uint32_t)r->p->layers[i]);
    for (size_t i = 0; ok && i < n; i++)
        ok = write_u32(f, (uint32_t)t[i].n_tok) && write_u32(f, (uint32_t)t[i].n_prompt);
    for (size_t i = 0; ok && i < n; i++)
        for (int32_t k = 0; ok && k < t[i].n_tok; k++) ok = write_u32(f, (uint32_t)t[i].tokens[k]);
    return ok;
}

static int write_rows(struct recorder *r, FILE *f, int32_t n_tok, struct err *e) {
    size_t n = (size_t)r->m->hp.n_embd;
    struct dev *d = r->m->dev;
    for (int32_t t = 0; t < n_tok; t++)
        for (int32_t i = 0; i < r->p->n_layer; i++) {
            const float *row = taps_kept(r->f, i) + (size_t)t * n;
            if (!d->ops->is_host) {
                d->ops->download(d, r->row, row, n * sizeof *row);
                row = r->row;
            }
            for (size_t k = 0; k < n; k++)
                if (!(row[k] - row[k] == 0))
                    return err_set(e, CHIMERE_ENUMERIC, "layer %d gives a value that is not finite",
                                   r->p->layers[i]);
            if (r->p->type == QUANT_F32) memcpy(r->coded, row, n * sizeof *row);
            else if (!quant_traits(r->p->type)->encode(row, r->coded, n, NULL))
                return err_set(e, CHIMERE_ENOMEM, "out of memory");
            if (fwrite(r->coded, (size_t)r->row_bytes, 1, f) != 1)
                return err_set(e, CHIMERE_EIO, "%s: cannot write", r->p->dir);
        }
    return d->ops->status(d, e);
}

static int write_text(struct recorder *r, FILE *f, const struct taps_text *t, struct err *e) {
    int rc = 0;
    seq_reset(r->seq);
    for (int32_t at = 0; !rc && at < t->n_tok; at += r->p->n_batch) {
        struct batch_item run = {.seq = r->seq, .tokens = t->tokens + at, .want = WANT_NONE};
        run.n_tok = t->n_tok - at < r->p->n_batch ? t->n_tok - at : r->p->n_batch;
        const float *logits;
        rc = forward_run(r->f, &run, 1, &logits, e);
        if (!rc) rc = write_rows(r, f, run.n_tok, e);
    }
    return rc;
}

static int write_shard(struct recorder *r, int32_t number, const struct taps_text *t, size_t n,
                       struct taps_result *result, struct err *e) {
    char path[4096];
    unsigned char head[TAPS_HEADER_BYTES];
    int64_t n_tok = 0;
    for (size_t i = 0; i < n; i++) n_tok += t[i].n_tok;
    result->n_shard++;
    result->n_tok += n_tok;
    if ((size_t)snprintf(path, sizeof path, "%s/taps-%06d.bin", r->p->dir, number) >= sizeof path)
        return err_set(e, CHIMERE_ELIMIT, "%s: the path is too long", r->p->dir);
    header(r, t, n, n_tok, head);
    if (file_exists(path)) {
        result->n_old++;
        return check_old(path, head, shard_bytes(r, n, n_tok), e);
    }
    struct file_writer w;
    int rc = file_writer_open(&w, path, e);
    if (rc) return rc;
    if (fwrite(head, sizeof head, 1, w.f) != 1 || !write_lists(r, w.f, t, n))
        rc = err_set(e, CHIMERE_EIO, "%s: cannot write", path);
    for (size_t i = 0; !rc && i < n; i++) rc = write_text(r, w.f, &t[i], e);
    if (!rc) return file_writer_commit(&w, e);
    file_writer_abort(&w);
    return rc;
}

/* ---- recording ---- */

static int check_texts(const struct model *m, const struct taps_text *t, size_t n, int32_t *longest,
                       struct err *e) {
    *longest = 0;
    for (size_t i = 0; i < n; i++) {
        if (t[i].n_tok < 1 || t[i].n_prompt < 0 || t[i].n_prompt > t[i].n_tok)
            return err_set(e, CHIMERE_EINVAL,
                           "text %zu: expected 0 to %d tokens of a prompt, got %d", i, t[i].n_tok,
                           t[i].n_prompt);
        for (int32_t k = 0; k < t[i].n_tok; k++)
            if (t[i].tokens[k] < 0 || t[i].tokens[k] >= m->hp.n_vocab)
                return err_set(e, CHIMERE_EINVAL, "text %zu: expected token ids below %d, got %d",
                               i, m->hp.n_vocab, t[i].tokens[k]);
        if (t[i].n_tok > *longest) *longest = t[i].n_tok;
    }
    return n ? 0 : err_set(e, CHIMERE_EINVAL, "expected a text, got none");
}

static int set_up(struct recorder *r, int32_t n_ctx, struct err *e) {
    const struct taps_params *p = r->p;
    const struct seq_pool_params pool = {
        .n_slot = 1, .n_ctx = n_ctx, .k_type = p->k_type, .v_type = p->v_type};
    size_t n = (size_t)r->m->hp.n_embd;
    if (!quant_traits(p->type) || !quant_row_bytes(p->type, n, &r->row_bytes))
        return err_set(e, CHIMERE_EUNSUPPORTED, "taps: expected f32, f16 or bf16");
    r->row = mem_alloc_array(n, sizeof *r->row);
    r->coded = mem_alloc((size_t)r->row_bytes);
    int rc = r->row && r->coded ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = seq_pool_new(&r->pool, r->m, &pool, e);
    if (!rc) rc = seq_new(&r->seq, r->pool, e);
    if (!rc) rc = forward_new(&r->f, r->m, r->pool, p->n_batch, 1, e);
    if (!rc) rc = taps_keep(r->f, p->layers, p->n_layer, e);
    if (!rc) rc = file_mkdirs(p->dir, e);
    return rc;
}

int taps_record(struct model *m, const struct taps_params *p, const struct taps_text *texts,
                size_t n_text, struct taps_result *result, struct err *e) {
    struct recorder r = {.m = m, .p = p};
    int32_t longest;
    *result = (struct taps_result){.n_tok = 0};
    int rc = check_texts(m, texts, n_text, &longest, e);
    if (!rc) rc = set_up(&r, longest + KV_PAGE, e);
    int32_t number = 0;
    for (size_t at = 0, n; !rc && at < n_text; at += n) {
        int64_t n_tok = 0;
        for (n = 0; at + n < n_text && n_tok < p->shard_tok; n++) n_tok += texts[at + n].n_tok;
        rc = write_shard(&r, number++, texts + at, n, result, e);
    }
    char path[4096];
    if (!rc &&
        (size_t)snprintf(path, sizeof path, "%s/taps-%06d.bin", p->dir, number) < sizeof path &&
        file_exists(path))
        rc = err_set(e, CHIMERE_EMISMATCH, "%s: there is no text left for it", path);
    forward_free(r.f);
    seq_free(r.seq);
    seq_pool_free(r.pool);
    mem_free(r.row);
    mem_free(r.coded);
    return rc;
}

int32_t taps_default_layers(const struct hparams *hp, int32_t layers[TAPS_MAX]) {
    const int32_t want[] = {(hp->n_layer - 1) / 3, 2 * (hp->n_layer - 1) / 3, hp->n_layer - 1};
    int32_t n = 0;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!n || want[i] > layers[n - 1]) layers[n++] = want[i];
    return n;
}
