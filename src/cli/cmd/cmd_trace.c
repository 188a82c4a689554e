/* cmd_trace.c: records which experts a text and its continuation use, or generates such a record. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/args/model_args.h"
#include "format/quant.h"
#include "model/experts/routing.h"
#include "model/forward.h"
#include "model/vocab.h"

const struct cfg_opt trace_options[] = {
    MODEL_OPTIONS,
    {"file", 'f', CFG_STR, "FILE", NULL, 0, 0, NULL, "text to read; -: standard input"},
    {"out", 'o', CFG_STR, "FILE", NULL, 0, 0, NULL, "file to write"},
    {"gen", 'n', CFG_INT, "N", "0", 0, 1 << 20, NULL,
     "number of tokens to generate greedily after the text"},
    {"batch", 'b', CFG_INT, "N", "512", 1, 65536, NULL, "tokens per forward pass"},
    {"generate", 0, CFG_INT, "N", NULL, 1, 1 << 20, NULL,
     "instead of a text: N tokens with the expert reuse of trained models, for the shape of the "
     "model"},
    {"seed", 's', CFG_INT, "N", "1", 0, 1 << 30, NULL, "seed of --generate"},
    {"routing", 0, CFG_STR, "trace-like|FILE", NULL, 0, 0, NULL,
     "experts instead of the routers' choice, as in bench"},
    {0}};

enum { MAX_TEXT_BYTES = 64 << 20 };

struct trace {
    struct model *m;
    struct seq_pool *pool;
    struct seq *seq;
    struct forward *f;
    struct routing *routing; /* owned; NULL: the routers choose */
    struct routing_writer *w;
};

static void on_choice(void *ud, int32_t mixture, const int32_t *ids, int32_t n_tok) {
    routing_put(ud, mixture, ids, n_tok);
}

static int32_t likeliest(const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static int forward_all(struct trace *t, const int32_t *ids, int32_t n, int32_t batch, int32_t n_gen,
                       struct err *e) {
    const float *logits = NULL;
    int rc = 0;
    for (int32_t at = 0; !rc && at < n; at += batch) {
        struct batch_item run = {.seq = t->seq, .tokens = ids + at, .want = WANT_LAST};
        run.n_tok = n - at < batch ? n - at : batch;
        rc = forward_run(t->f, &run, 1, &logits, e);
    }
    for (int32_t i = 0; !rc && i < n_gen; i++) {
        int32_t next = likeliest(logits, t->m->hp.n_vocab);
        struct batch_item run = {.seq = t->seq, .tokens = &next, .n_tok = 1, .want = WANT_LAST};
        rc = forward_run(t->f, &run, 1, &logits, e);
    }
    return rc;
}

static int set_up(struct trace *t, const struct cfg *c, int32_t n_tok, struct err *e) {
    const struct seq_pool_params params = {
        .n_slot = 1, .n_ctx = n_tok, .k_type = QUANT_F16, .v_type = QUANT_F16};
    struct routing_shape shape = routing_shape_of(&t->m->hp);
    int rc = seq_pool_new(&t->pool, t->m, &params, e);
    if (!rc) rc = seq_new(&t->seq, t->pool, e);
    if (!rc) rc = forward_new(&t->f, t->m, t->pool, (int32_t)cfg_int(c, "batch"), 1, e);
    if (!rc && cfg_str(c, "routing"))
        rc = routing_open(&t->routing, cfg_str(c, "routing"), &shape, (uint64_t)cfg_int(c, "seed"),
                          e);
    if (!rc && t->routing) rc = experts_replay(forward_experts(t->f), t->routing, 1, e);
    if (!rc) rc = routing_writer_open(&t->w, cfg_str(c, "out"), &shape, e);
    if (!rc) rc = experts_observe(forward_experts(t->f), on_choice, t->w, e);
    return rc;
}

/* The text's tokens, before the model is opened: the plan of its memory depends on their number. */
static int read_tokens(const struct cfg *c, int32_t **ids, size_t *n, struct err *e) {
    char path[4096], *text = NULL;
    struct gguf *g = NULL;
    struct tok *tok = NULL;
    size_t n_text;
    int rc = model_args_path(c, path, sizeof path, e);
    if (!rc) rc = gguf_open(&g, path, e);
    if (!rc) rc = file_read(cfg_str(c, "file"), MAX_TEXT_BYTES, &text, &n_text, e);
    if (!rc) rc = vocab_load(&tok, g, e);
    if (!rc) rc = tok_encode(tok, text, n_text, true, false, ids, n, e);
    if (!rc && *n < 1) rc = err_set(e, CHIMERE_EINVAL, "--file: expected a text, got none");
    tok_free(tok);
    mem_free(text);
    if (g) gguf_close(g);
    return rc;
}

static int record(const struct cfg *c, struct err *e) {
    struct trace t = {0};
    struct dev *dev = NULL;
    int32_t *ids = NULL, n_gen = (int32_t)cfg_int(c, "gen"), batch = (int32_t)cfg_int(c, "batch");
    size_t n = 0;
    int rc = read_tokens(c, &ids, &n, e);
    int32_t n_ctx = (int32_t)n + n_gen + KV_PAGE;
    struct plan_params want = model_args_want(c, n_ctx, 1, batch);
    if (!rc) rc = model_args_open_planned(c, &want, NULL, &dev, &t.m, e);
    if (rc) {
        mem_free(ids);
        return rc;
    }
    rc = set_up(&t, c, n_ctx, e);
    if (!rc) rc = forward_all(&t, ids, (int32_t)n, batch, n_gen, e);
    if (rc) routing_writer_abort(t.w);
    else rc = routing_writer_close(t.w, e);
    if (!rc) printf("%s: %zu tokens\n", cfg_str(c, "out"), n + (size_t)n_gen);
    forward_free(t.f);
    seq_free(t.seq);
    seq_pool_free(t.pool);
    routing_free(t.routing);
    mem_free(ids);
    model_close(t.m);
    dev->ops->close(dev);
    return rc;
}

/* One token per batch, as in decoding. */
static int generate(const struct cfg *c, struct err *e) {
    char path[4096];
    struct gguf *g = NULL;
    struct routing *r = NULL;
    struct routing_writer *w = NULL;
    struct hparams *hp = mem_zalloc(sizeof *hp);
    int32_t n = (int32_t)cfg_int(c, "generate");
    int rc =
        hp ? model_args_path(c, path, sizeof path, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = gguf_open(&g, path, e);
    if (!rc) rc = hparams_read(hp, g, e);
    struct routing_shape s = {0};
    if (!rc) s = routing_shape_of(hp);
    if (!rc) rc = routing_generate(&r, &s, n, (uint64_t)cfg_int(c, "seed"), e);
    if (!rc) rc = routing_writer_open(&w, cfg_str(c, "out"), &s, e);
    for (int32_t t = 0; !rc && t < n; t++)
        for (int32_t m = 0; m < s.n_mixture; m++) {
            int32_t ids[ROUTING_MAX_USED];
            for (int32_t k = 0; k < s.n_used; k++) ids[k] = routing_at(r, m, t)[k];
            routing_put(w, m, ids, 1);
        }
    if (!rc) rc = routing_writer_close(w, e);
    if (!rc) printf("%s: %d tokens\n", cfg_str(c, "out"), n);
    routing_free(r);
    if (g) gguf_close(g);
    mem_free(hp);
    return rc;
}

int cmd_trace(int argc, char **argv) {
    struct cfg *c;
    int status, rc;
    if (!cli_parse(&c, trace_options,
                   "usage: chimere trace -m FILE -f TEXT -o OUT [-n N]\n"
                   "       chimere trace -m FILE --generate N -o OUT\n"
                   "Records which experts each token uses; bench --routing OUT replays the record.",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    if (!strcmp(cfg_str(c, "device"), "auto"))
        cfg_set(c, "device", "cpu", NULL); /* the choice is seen there */
    bool generates = cfg_is_set(c, "generate");
    if (!cfg_str(c, "out")) rc = err_set(&e, CHIMERE_EINVAL, "--out is missing");
    else if (generates == !!cfg_str(c, "file"))
        rc = err_set(&e, CHIMERE_EINVAL, "expected one of --file and --generate");
    else rc = generates ? generate(c, &e) : record(c, &e);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
