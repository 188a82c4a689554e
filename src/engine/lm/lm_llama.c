/* lm_llama.c: batches, sequences and LoRA adapters of a model that libllama runs. */
#include "engine/lm/lm_llama_impl.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/os/topology.h"
#include "engine/plan.h"
#include "engine/draft/spec.h"
#include "llama/llama_lib.h"
#include "llama/llama_process.h"
#include "model/model.h"

static struct llama_lm *lm_of(struct lm *l) { return (struct llama_lm *)l; }
static struct llama_seq *seq_of(struct seq *s) { return (struct llama_seq *)(void *)s; }

/* ---- pages ---- */

static int32_t pages_of(int64_t pos) { return (int32_t)((pos + KV_PAGE - 1) / KV_PAGE); }

static void release(struct llama_lm *x, int32_t page) {
    if (--x->refs[page] == 0) x->unused[x->n_unused++] = page;
}

static int32_t take_page(struct llama_lm *x) {
    if (!x->n_unused) return -1;
    int32_t page = x->unused[--x->n_unused];
    x->refs[page] = 1;
    return page;
}

void lm_llama_cut(struct llama_lm *x, struct llama_pages *p, int64_t pos) {
    while (p->n > pages_of(pos)) release(x, p->ids[--p->n]);
}

int lm_llama_grow(struct llama_lm *x, struct llama_pages *p, int64_t from, int64_t pos,
                  struct err *e) {
    int32_t last = p->n - 1;
    if (pages_of(pos) > p->cap)
        return err_set(e, CHIMERE_ELIMIT, "context: expected at most %lld positions",
                       (long long)p->cap * KV_PAGE);
    /* the last page is shared and will be written: replace it */
    if (from % KV_PAGE && last >= 0 && x->refs[p->ids[last]] > 1) {
        int32_t own = take_page(x);
        if (own < 0) return err_set(e, CHIMERE_ELIMIT, "context: no room is left");
        release(x, p->ids[last]);
        p->ids[last] = own;
    }
    while (p->n < pages_of(pos)) {
        int32_t page = take_page(x);
        if (page < 0) return err_set(e, CHIMERE_ELIMIT, "context: no room is left");
        p->ids[p->n++] = page;
    }
    return 0;
}

int lm_llama_share(struct llama_lm *x, const struct llama_pages *p, struct llama_pages *to,
                   int64_t pos, struct err *e) {
    int32_t n = pages_of(pos);
    if (to->cap < n) {
        int32_t *ids = mem_realloc(to->ids, (size_t)n * sizeof *ids);
        if (!ids) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        to->ids = ids;
        to->cap = n;
    }
    lm_llama_cut(x, to, 0);
    for (; to->n < n; to->n++) {
        to->ids[to->n] = p->ids[to->n];
        x->refs[to->ids[to->n]]++;
    }
    return 0;
}

/* ---- sequences ---- */

int32_t lm_llama_take_id(struct llama_lm *x, int32_t from, int32_t to) {
    for (int32_t i = from; i < to; i++)
        if (!x->taken[i]) {
            x->taken[i] = true;
            return i;
        }
    return -1;
}

static int llama_seq_new(struct lm *l, struct seq **out, struct err *e) {
    struct llama_lm *x = lm_of(l);
    int32_t id = lm_llama_take_id(x, 0, x->n_seq);
    if (id < 0) return err_set(e, CHIMERE_EBUSY, "all %d sequence slots are taken", x->n_seq);
    struct llama_seq *s = mem_zalloc(sizeof *s);
    int32_t cap = pages_of(l->n_ctx) + 1;
    if (s) s->pages.ids = mem_alloc_array((size_t)cap, sizeof *s->pages.ids);
    if (!s || !s->pages.ids) {
        x->taken[id] = false;
        mem_free(s);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    s->id = id;
    s->epoch = x->shim->epoch(x->m);
    s->pages.cap = cap;
    x->shim->seq_remove(x->m, id, 0);
    *out = (struct seq *)(void *)s;
    return 0;
}

static void llama_seq_free(struct lm *l, struct seq *seq) {
    struct llama_lm *x = lm_of(l);
    struct llama_seq *s = seq_of(seq);
    if (!s) return;
    x->shim->seq_remove(x->m, s->id, 0);
    x->taken[s->id] = false;
    lm_llama_cut(x, &s->pages, 0);
    mem_free(s->pages.ids);
    mem_free(s);
}

static int64_t llama_seq_pos(struct lm *l, const struct seq *s) {
    (void)l;
    return ((const struct llama_seq *)(const void *)s)->pos;
}

static void llama_seq_drop(struct lm *l, struct seq *seq, int32_t n) {
    struct llama_lm *x = lm_of(l);
    struct llama_seq *s = seq_of(seq);
    if (n > s->n_defer) n = s->n_defer;
    if (n < 1) return;
    s->n_defer -= n;
    s->pos -= n;
    x->shim->seq_remove(x->m, s->id, s->pos);
    lm_llama_cut(x, &s->pages, s->pos);
}

/* ---- batches ---- */

static int32_t n_rows(const struct batch_item *r) {
    return r->want == WANT_ALL ? r->n_tok : r->want == WANT_LAST;
}

static bool same_loras(const struct batch_item *a, const struct batch_item *b) {
    if (a->n_lora != b->n_lora) return false;
    for (int32_t i = 0; i < a->n_lora; i++)
        if (a->loras[i].lora != b->loras[i].lora || a->loras[i].scale != b->loras[i].scale)
            return false;
    return true;
}

static int advance(struct llama_lm *x, const struct batch_item *runs, int32_t n_run,
                   struct err *e) {
    for (int32_t i = 0; i < n_run; i++) {
        struct llama_seq *s = seq_of(runs[i].seq);
        int64_t end = s->pos + runs[i].n_tok;
        if (end > x->lm.n_ctx)
            return err_set(e, CHIMERE_ELIMIT, "context: expected at most %lld positions",
                           (long long)x->lm.n_ctx);
        for (int32_t t = 0; t < runs[i].n_tok; t++)
            if (runs[i].tokens[t] < 0 || runs[i].tokens[t] >= x->lm.n_vocab)
                return err_set(e, CHIMERE_EINVAL, "token: expected an id below %d, got %d",
                               x->lm.n_vocab, runs[i].tokens[t]);
        int rc = lm_llama_grow(x, &s->pages, s->pos, end, e);
        if (rc) return rc;
    }
    return 0;
}

/* Runs the batch items of group g; all items of a group use the same adapters. */
static int run_group(struct llama_lm *x, const struct batch_item *runs, int32_t n_run, int32_t g,
                     const float **logits, struct err *e) {
    struct llama_shim_lora loras[LLAMA_SHIM_MAX_LORAS];
    char text[LLAMA_SHIM_TEXT] = "";
    int32_t n = 0, n_lora = 0;
    for (int32_t i = 0; i < n_run; i++) {
        const struct batch_item *r = &runs[i];
        const struct llama_seq *s = seq_of(r->seq);
        if (x->group[i] != g) continue;
        for (n_lora = 0; n_lora < r->n_lora && n_lora < LLAMA_SHIM_MAX_LORAS; n_lora++)
            loras[n_lora] = (struct llama_shim_lora){lora_handle(r->loras[n_lora].lora),
                                                     r->loras[n_lora].scale};
        x->items[n++] = (struct llama_shim_item){.seq = s->id,
                                                 .n_tok = r->n_tok,
                                                 .pos = s->pos,
                                                 .tokens = r->tokens,
                                                 .rows = r->rows,
                                                 .is_whole = r->is_whole,
                                                 .all = r->want == WANT_ALL,
                                                 .last = r->want == WANT_LAST,
                                                 .epoch = s->epoch};
    }
    int rc = x->shim->run(x->m, x->items, n, loras, n_lora, logits, text);
    return rc ? err_set(e, rc, "%s", text) : 0;
}

/* Copies the rows of group g from logits to their positions in the order of runs. */
static void scatter(struct llama_lm *x, const struct batch_item *runs, int32_t n_run, int32_t g,
                    const float *logits) {
    size_t width = (size_t)x->lm.n_vocab, row = 0, from = 0;
    for (int32_t i = 0; i < n_run; i++) {
        size_t n = (size_t)n_rows(&runs[i]);
        if (x->group[i] == g && n) {
            memcpy(x->rows + row * width, logits + from * width, n * width * sizeof *logits);
            from += n;
        }
        row += n;
    }
}

/* Assigns each run to a group by its adapters; runs with image rows form their own group. Returns the number of
 * groups. */
static int32_t divide(struct llama_lm *x, const struct batch_item *runs, int32_t n_run) {
    int32_t n_group = 0;
    for (int32_t i = 0; i < n_run; i++) {
        x->group[i] = -1;
        for (int32_t k = 0; k < i && x->group[i] < 0; k++)
            if (!runs[i].rows && !runs[k].rows && same_loras(&runs[i], &runs[k]))
                x->group[i] = x->group[k];
        if (x->group[i] < 0) x->group[i] = n_group++;
    }
    return n_group;
}

static int llama_run(struct lm *l, const struct batch_item *runs, int32_t n_run,
                     const float **logits, struct err *e) {
    struct llama_lm *x = lm_of(l);
    const float *got = NULL;
    int32_t n_group = divide(x, runs, n_run), n_row = 0;
    for (int32_t i = 0; i < n_run; i++) n_row += n_rows(&runs[i]);
    if (n_group > 1 && (!x->rows || n_row > x->n_row_max))
        return err_set(e, CHIMERE_ELIMIT, "too many rows of logits");
    int rc = advance(x, runs, n_run, e);
    for (int32_t g = 0; !rc && g < n_group; g++) {
        rc = run_group(x, runs, n_run, g, &got, e);
        if (!rc && n_group > 1) scatter(x, runs, n_run, g, got);
    }
    if (rc) return rc;
    for (int32_t i = 0; i < n_run; i++) {
        struct llama_seq *s = seq_of(runs[i].seq);
        s->pos += runs[i].n_tok;
        s->n_defer = runs[i].defer ? runs[i].n_tok : 0;
    }
    if (logits) *logits = n_group > 1 ? x->rows : got;
    return 0;
}

/* ---- adapters ---- */

/* Allocates memory for the logits of several groups. */
static int need_rows(struct llama_lm *x, struct err *e) {
    if (!x->rows)
        x->rows = mem_alloc_array((size_t)x->n_row_max * (size_t)x->lm.n_vocab, sizeof *x->rows);
    return x->rows ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

int lm_llama_vision(struct lm *l, uint64_t salt, struct vision **out, struct err *e) {
    struct llama_lm *x = lm_of(l);
    *out = NULL;
    return x->info.n_row_embd > 0 ? vision_new(out, x->shim, x->m, &x->info, salt, e) : 0;
}

int lm_llama_lora(struct lm *l, const char *path, struct lora **out, struct err *e) {
    struct llama_lm *x = lm_of(l);
    char text[LLAMA_SHIM_TEXT] = "";
    struct shim_lora *handle;
    struct gguf *g;
    *out = NULL;
    int rc = gguf_open(&g, path, e); /* check the file before libllama reads it */
    if (rc) return rc;
    uint64_t hash = model_hash_file(g);
    gguf_close(g);
    rc = need_rows(x, e);
    if (rc) return rc;
    rc = x->shim->lora_open(x->m, path, &handle, text);
    if (rc) return err_set(e, rc, "%s", text);
    return lora_foreign(out, handle, hash, e);
}

const char *lm_llama_about(const struct lm *l) { return ((const struct llama_lm *)l)->info.about; }

/* ---- opening ---- */

static void llama_close(struct lm *l) {
    struct llama_lm *x = lm_of(l);
    if (x->m) x->shim->close(x->m);
    mem_free(x->taken);
    mem_free(x->refs);
    mem_free(x->unused);
    mem_free(x->items);
    mem_free(x->group);
    mem_free(x->rows);
    mem_free(x);
}

static const struct lm_ops ops = {.seq_new = llama_seq_new,
                                  .seq_free = llama_seq_free,
                                  .seq_pos = llama_seq_pos,
                                  .seq_drop = llama_seq_drop,
                                  .run = llama_run,
                                  .close = llama_close,
                                  .marks = &lm_llama_marks};

static int32_t n_out_max(const struct engine_params *p) {
    int32_t n_spec = p->n_seq < SPEC_MAX_SEQS ? p->n_seq : SPEC_MAX_SEQS;
    return p->n_seq + STEP_MAX_TOK + /* rows of a prompt whose probabilities are reported */
           (p->speculate ? n_spec * (p->n_draft_max > 0 ? p->n_draft_max : LM_N_DRAFT) : 0);
}

static int allocate(struct llama_lm *x, const struct engine_params *p, struct err *e) {
    size_t n = (size_t)p->n_seq;
    /* beyond the context, each running sequence may have one partly filled page, and so may each checkpoint */
    x->n_page = pages_of(x->lm.n_ctx) + 2 * x->info.n_seq;
    x->taken = mem_alloc_array((size_t)x->info.n_seq, sizeof *x->taken);
    x->refs = mem_alloc_array((size_t)x->n_page, sizeof *x->refs);
    x->unused = mem_alloc_array((size_t)x->n_page, sizeof *x->unused);
    x->items = mem_alloc_array(n, sizeof *x->items);
    x->group = mem_alloc_array(n, sizeof *x->group);
    if (!x->taken || !x->refs || !x->unused || !x->items || !x->group)
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; i < x->n_page; i++) x->unused[x->n_unused++] = x->n_page - 1 - i;
    return 0;
}

static int open_shim(struct llama_lm *x, const struct lm_llama_params *p,
                     const struct engine_params *g, struct err *e) {
    char text[LLAMA_SHIM_TEXT] = "";
    struct topology t;
    topology_read(NULL, NULL, -1, &t);
    const struct llama_shim_params params = {.path = p->path,
                                             .mmproj = p->mmproj,
                                             .n_gpu_layers = p->n_gpu_layers,
                                             .n_thread = p->n_thread ? p->n_thread : t.n_thread,
                                             .n_ctx = g->n_ctx,
                                             .n_seq = g->n_seq,
                                             .n_batch = g->n_batch,
                                             .n_out = n_out_max(g),
                                             .k_type = g->k_type,
                                             .v_type = g->v_type};
    int rc = x->shim->open(&x->m, &params, &x->info, text);
    return rc ? err_set(e, rc, "%s: %s", p->path, text) : 0;
}

int lm_open_llama(struct lm **out, struct lm_llama_params *p, struct err *e) {
    struct engine_params *engine = &p->engine;
    *out = NULL;
    struct llama_lm *x = mem_zalloc(sizeof *x);
    if (!x) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int32_t n_out = n_out_max(engine), least = n_out;
    if (engine->deterministic) least += engine->n_chunk; /* as in engine_new */
    if (p->mmproj) least += PLAN_BATCH; /* an image runs in one step, added to all decodes */
    if (engine->n_batch < least) engine->n_batch = least;
    int rc = p->is_process ? llama_process_open(&x->shim, p->library, e)
                           : llama_lib_open(&x->shim, p->library, NULL, e);
    if (!rc) rc = open_shim(x, p, engine, e);
    if (!rc) {
        if (!x->info.is_attention) engine->speculate = false;
        const char *version = x->shim->library();
        const uint64_t form[] = {model_hash_file(p->gguf), engine->k_type, engine->v_type,
                                 hash_bytes(version, strlen(version), 7)};
        x->ops = ops;
        x->n_seq = engine->n_seq;
        x->n_row_max = n_out;
        x->lm = (struct lm){.ops = &x->ops,
                            .n_vocab = x->info.n_vocab,
                            .n_row_max = n_out,
                            .n_ctx = engine->n_ctx,
                            .layout = hash_bytes(form, sizeof form, 0),
                            .page_bytes = p->page_bytes};
        rc = allocate(x, engine, e);
        if (!rc && p->mmproj) rc = need_rows(x, e);
    }
    if (rc) llama_close(&x->lm);
    else *out = &x->lm;
    return rc;
}
