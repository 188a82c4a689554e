#include "backend/catalog/models_backend.h"

#include <stdio.h>

#include "base/mem.h"
#include "model/vocab.h"

struct standing {
    struct backend base;
    struct models *r;           /* borrowed until close */
    struct backend_model shown; /* what is known without loading */
    struct tok *tok;            /* owned */
};

struct standing_run {
    struct generation base;
    struct backend *real;     /* held until this is freed */
    struct generation *inner; /* owned */
};

static struct models *models_of(struct backend *b) { return ((struct standing *)b)->r; }
static struct generation *inner_of(struct generation *r) {
    return ((struct standing_run *)r)->inner;
}

static int prepare(struct backend *b, const struct request *a, const struct event_sink *sink,
                   struct generation **out, int32_t *n_prompt, struct err *e) {
    *out = NULL;
    struct standing_run *run = mem_zalloc(sizeof *run);
    if (!run) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    run->base.backend = b;
    int rc = models_acquire(models_of(b), b->name, &run->real, e);
    if (!rc) {
        rc = run->real->ops->prepare(run->real, a, sink, &run->inner, n_prompt, e);
        if (rc) models_release(models_of(b), run->real);
    }
    if (rc) mem_free(run);
    else *out = &run->base;
    return rc;
}

static int start(struct generation *r, struct err *e) {
    struct generation *inner = inner_of(r);
    return inner->backend->ops->start(inner, e);
}

static void cancel(struct generation *r) {
    struct generation *inner = inner_of(r);
    inner->backend->ops->cancel(inner);
}

static void free_run(struct generation *r) {
    struct standing_run *run = (struct standing_run *)r;
    if (!run) return;
    run->inner->backend->ops->free(run->inner);
    models_release(models_of(r->backend), run->real);
    mem_free(run);
}

static int render(struct backend *b, const struct request *a, char **text, int32_t **ids, size_t *n,
                  struct err *e) {
    struct backend *real;
    int rc = models_acquire(models_of(b), b->name, &real, e);
    if (rc) return rc;
    rc = real->ops->render(real, a, text, ids, n, e);
    models_release(models_of(b), real);
    return rc;
}

static void tokens(const struct generation *r, const int32_t **prompt, int32_t *n_prompt,
                   const int32_t **answer, int32_t *n_answer) {
    const struct generation *inner = ((const struct standing_run *)r)->inner;
    inner->backend->ops->tokens(inner, prompt, n_prompt, answer, n_answer);
}

static void headers(struct generation *r, struct buf *out) {
    struct generation *inner = inner_of(r);
    inner->backend->ops->headers(inner, out);
}

static int64_t night(const struct generation *r) {
    const struct generation *inner = ((const struct standing_run *)r)->inner;
    return inner->backend->ops->night ? inner->backend->ops->night(inner) : 0;
}

static void close_backend(struct backend *b) {
    tok_free(((struct standing *)b)->tok);
    mem_free(b);
}

int models_backend_new(struct backend **out, struct models *r, const char *name,
                       const struct load_params *how, struct err *e) {
    static const struct backend_ops ops = {.prepare = prepare,
                                           .start = start,
                                           .cancel = cancel,
                                           .free = free_run,
                                           .render = render,
                                           .tokens = tokens,
                                           .headers = headers,
                                           .night = night,
                                           .close = close_backend};
    struct gguf *g = NULL;
    *out = NULL;
    struct standing *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = gguf_open(&g, how->path, e);
    if (!rc) rc = vocab_load(&s->tok, g, e);
    gguf_close(g);
    if (rc) {
        mem_free(s);
        return rc;
    }
    const struct plan_params *p = &how->plan;
    int32_t n_seq = p->n_seq ? p->n_seq : p->n_seq_want > 0 ? p->n_seq_want : 1;
    s->base = (struct backend){.ops = &ops, .model = &s->shown};
    snprintf(s->base.name, sizeof s->base.name, "%s", name);
    s->r = r;
    s->shown = (struct backend_model){.tok = s->tok, .n_seq = n_seq};
    *out = &s->base;
    return 0;
}
