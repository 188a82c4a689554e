/* cmd_perplexity.c: perplexity of a text, and divergence from another model's distributions. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/args/model_args.h"
#include "eval/perplexity.h"
#include "model/vocab.h"

const struct cfg_opt perplexity_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    EXPERT_OPTIONS,
    {"file", 'f', CFG_STR, "TEXT", NULL, 0, 0, NULL, "text to predict; -: standard input"},
    {"ctx", 'c', CFG_INT, "N", "512", WINDOWS_MIN_TOK, KL_BASE_MAX_CTX, NULL,
     "tokens of a window; its second half is scored"},
    {"chunks", 0, CFG_INT, "N", "0", 0, 1 << 30, NULL, "maximum number of windows; 0: all"},
    {"save-base", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "write the distributions, to measure other models against"},
    {"kl-base", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "measure against these distributions, over their text"},
    {"parallel", 0, CFG_INT, "N", "8", 1, WINDOWS_MAX_SEQS, NULL, "windows per forward pass"},
    {"batch", 'b', CFG_INT, "N", "512", 1, 65536, NULL, "tokens per forward pass"},
    {"json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "print one JSON object"},
    {0}};

/* Makes the windows: from the base if one is given (a given text must then be the base's text), otherwise from the
 * text. */
static int load_windows(const struct cfg *c, const struct tok *tok, const struct kl_base *base,
                        struct windows_text *t, struct err *e) {
    const char *path = cfg_str(c, "file");
    char *text = NULL;
    size_t n = 0;
    if (!path && !base) return err_set(e, CHIMERE_EINVAL, "-f TEXT is missing");
    int rc = path ? file_read(path, WINDOWS_MAX_TEXT, &text, &n, e) : 0;
    int32_t ctx = base ? base->shape.ctx : (int32_t)cfg_int(c, "ctx");
    if (!rc && path) rc = windows_cut(t, tok, text, n, ctx, e);
    mem_free(text);
    if (rc) return rc;
    size_t limit = (size_t)cfg_int(c, "chunks");
    if (!base) {
        if (limit && t->n_window > limit) t->n_window = limit;
        return 0;
    }
    size_t n_tok = (size_t)base->shape.n_window * (size_t)ctx;
    if (path && (t->n_window < base->shape.n_window ||
                 memcmp(t->tokens, base->tokens, n_tok * sizeof *t->tokens) != 0))
        return err_set(e, CHIMERE_EMISMATCH, "%s is not the text of the base", path);
    windows_text_fini(t);
    t->tokens = mem_alloc_array(n_tok, sizeof *t->tokens);
    if (!t->tokens) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    memcpy(t->tokens, base->tokens, n_tok * sizeof *t->tokens);
    t->ctx = ctx;
    t->n_window = base->shape.n_window;
    if (limit && t->n_window > limit) t->n_window = limit;
    return 0;
}

static void print_json(const struct perplexity *r, const struct windows_text *t, bool has_kl,
                       double share, double seconds) {
    json_t *o =
        json_pack("{s:I, s:i, s:I, s:f, s:f, s:f, s:f}", "n_window", (json_int_t)r->n_window, "ctx",
                  (int)t->ctx, "n_scored", (json_int_t)r->n_scored, "nll", r->nll, "ppl", r->ppl,
                  "ppl_se", r->ppl_se, "seconds", seconds);
    if (share > 0) json_object_set_new(o, "experts", json_real(share));
    if (has_kl)
        json_object_set_new(o, "kl",
                            json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "mean",
                                      r->kl.mean, "mean_se", r->kl.mean_se, "median", r->kl.median,
                                      "p999", r->kl.p999, "max", r->kl.max, "same_top",
                                      r->kl.same_top, "same_top_se", r->kl.same_top_se, "base_ppl",
                                      r->kl.base_ppl));
    json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(o);
}

static void print_text(const struct perplexity *r, const struct windows_text *t, bool has_kl,
                       double share, double seconds) {
    printf("perplexity        %.4f +/- %.4f\n", r->ppl, r->ppl_se);
    printf("scored            %" PRIu64 " tokens in %" PRIu64 " windows of %d, %.1f s\n",
           r->n_scored, r->n_window, t->ctx, seconds);
    if (share > 0) printf("experts           %.2f%% of the chosen\n", 100 * share);
    if (!has_kl) return;
    printf("base perplexity   %.4f (ratio %.6f)\n", r->kl.base_ppl, r->ppl / r->kl.base_ppl);
    printf("KL mean           %.6f +/- %.6f\n", r->kl.mean, r->kl.mean_se);
    printf("KL median         %.6f\n", r->kl.median);
    printf("KL 99.9%%          %.6f\n", r->kl.p999);
    printf("KL max            %.6f\n", r->kl.max);
    printf("same top token    %.3f%% +/- %.3f%%\n", 100 * r->kl.same_top, 100 * r->kl.same_top_se);
}

static int measure(const struct cfg *c, struct model *m, const struct kl_base *base,
                   struct err *e) {
    struct tok *tok = NULL;
    struct windows_text t = {.tokens = NULL};
    struct perplexity r;
    struct experts_kept kept = {0};
    int rc = vocab_load(&tok, m->gguf, e);
    if (!rc) rc = load_windows(c, tok, base, &t, e);
    int64_t start = clock_ns();
    if (!rc) {
        const struct perplexity_params p = {
            .windows = {.n_seq = (int32_t)cfg_int(c, "parallel"),
                        .n_batch = (int32_t)cfg_int(c, "batch"),
                        .k_type = model_args_type(c, "cache-type-k"),
                        .v_type = model_args_type(c, "cache-type-v"),
                        .what = cfg_bool(c, "quiet") ? NULL : "perplexity",
                        .keep = model_args_keep(c),
                        .kept = &kept},
            .n_thread = (int)cfg_int(c, "threads"),
            .save_base = cfg_str(c, "save-base"),
            .base = base,
            .tok_hash = tok_hash(tok)};
        rc = perplexity_run(m, &t, &p, &r, e);
    }
    if (!rc) {
        double seconds = clock_ms_since(start) * 1e-3;
        double share = kept.n_chosen ? (double)kept.n_stayed / (double)kept.n_chosen : 0;
        (cfg_bool(c, "json") ? print_json : print_text)(&r, &t, base != NULL, share, seconds);
    }
    windows_text_fini(&t);
    tok_free(tok);
    return rc;
}

int cmd_perplexity(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, perplexity_options,
                   "usage: chimere perplexity [-m FILE] -f TEXT [--ctx N] [--save-base FILE]\n"
                   "       chimere perplexity [-m FILE] --kl-base FILE [-f TEXT]",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    struct dev *dev = NULL;
    struct model *m = NULL;
    struct kl_base *base = NULL;
    int rc = cfg_str(c, "kl-base") ? kl_base_open(&base, cfg_str(c, "kl-base"), &e) : 0;
    struct plan_params want =
        model_args_want(c, base ? base->shape.ctx : cfg_int(c, "ctx"),
                        (int32_t)cfg_int(c, "parallel"), (int32_t)cfg_int(c, "batch"));
    if (!rc) rc = model_args_open_planned(c, &want, NULL, &dev, &m, &e);
    if (!rc) {
        rc = measure(c, m, base, &e);
        model_close(m);
        dev->ops->close(dev);
    }
    kl_base_close(base);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
