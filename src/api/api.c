/* api.c: models and tokens of chimere.h. */
#include <stdio.h>
#include <string.h>

#include "api/api_impl.h"
#include "format/quant.h"
#include "model/model.h"

#define X(name, value, text) _Static_assert(CHIMERE_##name == (value), "chimere.h and err.h agree");
CHIMERE_ERRORS(X)
#undef X

enum { MAX_TEXT_BYTES = 1 << 30 };

const char *chimere_version(void) { return CHIMERE_VERSION; }
const char *chimere_strerror(int code) { return err_name(code); }
void chimere_free(void *p) { mem_free(p); }

bool api_take_options(void *own, size_t own_size, const void *theirs) {
    size_t n;
    memcpy(&n, theirs, sizeof n);
    if (n < sizeof n || n > 65536) return false;
    memcpy((char *)own + sizeof n, (const char *)theirs + sizeof n,
           (n < own_size ? n : own_size) - sizeof n);
    return true;
}

void chimere_model_options_init(struct chimere_model_options *o) {
    *o = (struct chimere_model_options){.size = sizeof *o};
}

static int cache_type(const char *name, uint32_t *out, struct err *e) {
    static const char *const types[] = {"f32", "f16", "q8_0", "q4_0"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(types[i], name)) {
            *out = (uint32_t)quant_type_from_name(name);
            return 0;
        }
    return err_set(e, CHIMERE_EINVAL, "cache_type: expected f32, f16, q8_0 or q4_0, got '%.40s'",
                   name);
}

static int open_model(struct chimere_model *m, const struct chimere_model_options *o,
                      struct err *e) {
    struct load_params p;
    load_defaults(&p);
    if (!o->path) return err_set(e, CHIMERE_EINVAL, "path: expected a file");
    if (o->parallel < 0 || o->parallel > ENGINE_MAX_SEQS)
        return err_set(e, CHIMERE_EINVAL, "parallel: expected 0 to %d, got %d", ENGINE_MAX_SEQS,
                       o->parallel);
    if (o->context < 0 || o->context > 1 << 30)
        return err_set(e, CHIMERE_EINVAL, "context: expected 0 to %d, got %lld", 1 << 30,
                       (long long)o->context);
    if (o->threads < 0 || o->threads > 512)
        return err_set(e, CHIMERE_EINVAL, "threads: expected 0 to 512, got %d", o->threads);
    p.path = o->path;
    p.n_thread = o->threads;
    p.quiet = !o->progress;
    p.loras = o->loras;
    p.n_lora = o->n_lora;
    p.plan.n_ctx = o->context;
    p.plan.n_seq = o->parallel;
    p.plan.n_seq_want = 4;
    p.plan.budget_bytes = o->memory_bytes;
    int rc = o->cache_type ? cache_type(o->cache_type, &p.plan.engine.k_type, e) : 0;
    if (!rc && o->cache_type) p.plan.engine.v_type = p.plan.engine.k_type;
    if (!rc) rc = load_open(&m->loaded, &p, e);
    if (rc) return rc;
    const struct loaded *l = &m->loaded;
    const struct backend_model a = {.m = l->model,
                                    .gguf = l->gguf,
                                    .engine = l->engine,
                                    .tok = l->tok,
                                    .template = l->template,
                                    .loras = l->loras,
                                    .n_lora = l->n_lora,
                                    .n_seq = load_n_seq(l)};
    rc = backend_local_new(&m->backend, &a, l->name, e);
    if (rc) load_close(&m->loaded);
    return rc;
}

int chimere_model_open(struct chimere_model **out, const struct chimere_model_options *o,
                       struct chimere_error *e) {
    struct chimere_model_options own;
    *out = NULL;
    chimere_model_options_init(&own);
    if (!api_take_options(&own, sizeof own, o))
        return err_set(api_err(e), CHIMERE_EINVAL,
                       "options: call chimere_model_options_init first");
    struct chimere_model *m = mem_zalloc(sizeof *m);
    if (!m) return err_set(api_err(e), CHIMERE_ENOMEM, "out of memory");
    int rc = open_model(m, &own, api_err(e));
    if (rc) mem_free(m);
    else *out = m;
    return rc;
}

void chimere_model_close(struct chimere_model *m) {
    if (!m) return;
    m->backend->ops->close(m->backend);
    load_close(&m->loaded);
    mem_free(m);
}

const char *chimere_model_name(const struct chimere_model *m) { return m->backend->name; }
int64_t chimere_model_context(const struct chimere_model *m) {
    return engine_ctx(m->loaded.engine);
}
bool chimere_model_has_chat(const struct chimere_model *m) { return m->loaded.template != NULL; }

int chimere_model_plan(const struct chimere_model *m, char **text) {
    struct buf b;
    buf_init(&b, 4096);
    plan_print(&m->loaded.plan, &b);
    *text = buf_take(&b);
    return *text ? 0 : CHIMERE_ENOMEM;
}

int chimere_tokenize(const struct chimere_model *m, const char *text, size_t n, bool control,
                     int32_t **ids, size_t *n_ids, struct chimere_error *e) {
    return tok_encode(m->loaded.tok, text, n, control, false, ids, n_ids, api_err(e));
}

int chimere_detokenize(const struct chimere_model *m, const int32_t *ids, size_t n_ids, char **text,
                       size_t *n, struct chimere_error *e) {
    const struct tok *tok = m->loaded.tok;
    struct tok_stream s;
    struct buf b;
    size_t most = 3 * tok_max_piece_bytes(tok) + 16;
    *text = NULL;
    *n = 0;
    tok_stream_init(&s, tok, true);
    buf_init(&b, MAX_TEXT_BYTES);
    for (size_t i = 0; i <= n_ids; i++) {
        if (i < n_ids && (ids[i] < 0 || (uint32_t)ids[i] >= tok_n_vocab(tok))) {
            buf_fini(&b);
            return err_set(api_err(e), CHIMERE_EINVAL, "token %zu: expected 0 to %u, got %d", i,
                           tok_n_vocab(tok) - 1, ids[i]);
        }
        if (buf_reserve(&b, most)) break;
        b.n += i < n_ids ? tok_stream_push(&s, ids[i], b.p + b.n) : tok_stream_flush(&s, b.p + b.n);
    }
    if (!b.failed) b.p[b.n] = 0;
    *n = b.n;
    *text = buf_take(&b);
    return *text ? 0 : err_set(api_err(e), CHIMERE_ENOMEM, "out of memory");
}
