#include "serve/models_backend.h"

#include <stdio.h>

#include "base/mem.h"
#include "model/vocab.h"

struct standing {
    struct ask_backend base;
    struct models *r;       /* borrowed until close */
    struct ask_model shown; /* what may be known without loading */
    struct tok *tok;        /* owned */
};

struct standing_run {
    struct ask_run base;
    struct ask_backend *real; /* held */
    struct ask_run *inner;    /* owned */
};

static struct models *models_of(struct ask_backend *b) { return ((struct standing *)b)->r; }
static struct ask_run *inner_of(struct ask_run *r) { return ((struct standing_run *)r)->inner; }

static int prepare(struct ask_backend *b, const struct ask *a, const struct ask_sink *sink,
                   struct ask_run **out, int32_t *n_prompt, struct err *e) {
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

static int start(struct ask_run *r, struct err *e) {
    struct ask_run *inner = inner_of(r);
    return inner->backend->ops->start(inner, e);
}

static void cancel(struct ask_run *r) {
    struct ask_run *inner = inner_of(r);
    inner->backend->ops->cancel(inner);
}

static void free_run(struct ask_run *r) {
    struct standing_run *run = (struct standing_run *)r;
    if (!run) return;
    run->inner->backend->ops->free(run->inner);
    models_release(models_of(r->backend), run->real);
    mem_free(run);
}

static int render(struct ask_backend *b, const struct ask *a, char **text, int32_t **ids, size_t *n,
                  struct err *e) {
    struct ask_backend *real;
    int rc = models_acquire(models_of(b), b->name, &real, e);
    if (rc) return rc;
    rc = real->ops->render(real, a, text, ids, n, e);
    models_release(models_of(b), real);
    return rc;
}

static void close_backend(struct ask_backend *b) {
    tok_free(((struct standing *)b)->tok);
    mem_free(b);
}

int models_backend_new(struct ask_backend **out, struct models *r, const char *name,
                       const struct load_params *how, struct err *e) {
    static const struct ask_ops ops = {.prepare = prepare,
                                       .start = start,
                                       .cancel = cancel,
                                       .free = free_run,
                                       .render = render,
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
    s->base = (struct ask_backend){.ops = &ops, .model = &s->shown};
    snprintf(s->base.name, sizeof s->base.name, "%s", name);
    s->r = r;
    s->shown = (struct ask_model){.tok = s->tok, .n_seq = n_seq};
    *out = &s->base;
    return 0;
}
