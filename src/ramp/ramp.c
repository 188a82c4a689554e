/* ramp.c: see ramp.h; prepares the moments and errors from which a search starts. */
#include "ramp/ramp_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "convert/quantize.h"
#include "engine/plan.h"
#include "eval/importance.h"
#include "format/quant.h"
#include "format/quant_refine.h"
#include "kernels/cpu/cpu.h"
#include "ramp/ramp_effort.h"
#include "ramp/ramp_error.h"
#include "ramp/ramp_json.h"
#include "ramp/ramp_moments.h"
#include "ramp/ramp_text.h"
#include "ramp/ramp_type.h"

enum {
    MOMENT_FACTOR = 4,        /* tokens of the importance matrix per token of the final stage */
    CARD_RESERVE = 640 << 20, /* context and libraries on a GPU */
};
/* Tokens times active weights that moments are collected over at most, on the processor: a model with 3.3 billion
 * active weights gets 3,000 tokens, one with less than 0.15 billion as many as MOMENT_FACTOR gives. */
#define MOMENT_WORK 1e13

void ramp_defaults(struct ramp_options *o) {
    *o = (struct ramp_options){.seed = 1,
                               .generations = 12,
                               .population = 128,
                               .probe_tok = 2048,
                               .judge_tok = 16384,
                               .cache_bytes = (uint64_t)32 << 30,
                               .effort_s = 1200};
}

static int imatrix_path(const struct ramp_options *o, char out[4096], struct err *e) {
    if (!o->imatrix) return ramp_json_path(out, o->work, "imatrix.gguf", e);
    if ((size_t)snprintf(out, 4096, "%s", o->imatrix) >= 4096)
        return err_set(e, CHIMERE_ELIMIT, "%s: path is too long", o->imatrix);
    return 0;
}

/* ---- second moments ---- */

static size_t moment_tokens(const struct ramp_options *o, const struct ramp_set *s) {
    double active = ramp_effort_active(s), n = (double)o->judge_tok * MOMENT_FACTOR;
    return (size_t)(n * active > MOMENT_WORK ? MOMENT_WORK / active : n);
}

static int collect(const struct ramp_options *o, struct model *m, const struct windows_text *t,
                   const char *path, struct err *e) {
    struct importance *s = NULL;
    const struct importance_params p = {.windows = {.n_seq = 8,
                                                    .n_batch = 512,
                                                    .k_type = QUANT_F16,
                                                    .v_type = QUANT_F16,
                                                    .whole = true,
                                                    .what = o->quiet ? NULL : "second moments"},
                                        .output = true,
                                        .correlations = true,
                                        .least_rows = QUANT_REFINE_BLOCK,
                                        .n_thread = o->n_thread};
    int rc = importance_run(&s, m, t, &p, e);
    if (!rc) rc = importance_write(s, path, o->text ? "text" : "written by the model", e);
    importance_free(s);
    return rc;
}

static int moment_text(struct windows_text *t, struct model *m, const struct ramp_options *o,
                       size_t n, struct err *e) {
    return o->text ? ramp_text_read(t, m, o->text, n, e)
                   : ramp_text_generate(t, m, n, o->seed + 1, o->n_thread, o->quiet, e);
}

/* Products are observed on the processor, regardless of where candidates run; a text is written there. */
static int collect_on_cpu(const struct ramp_options *o, size_t n_tok, const char *path,
                          struct err *e) {
    struct windows_text t = {.tokens = NULL};
    struct dev *dev = o->dev;
    struct model *m = NULL;
    int rc = 0;
    bool own = !dev->ops->is_host;
    if (own && !o->text) {
        rc = model_open(&m, o->model, dev, o->quiet, e);
        if (!rc) rc = moment_text(&t, m, o, n_tok, e);
        if (m) model_close(m);
        m = NULL;
    }
    if (!rc && own) rc = cpu_open(&dev, o->n_thread, CPU_ISA_BEST, e);
    if (rc) own = false;
    if (!rc) rc = model_open(&m, o->model, dev, o->quiet, e);
    if (!rc && !t.tokens) rc = moment_text(&t, m, o, n_tok, e);
    if (!rc) rc = collect(o, m, &t, path, e);
    if (m) model_close(m);
    if (own) dev->ops->close(dev);
    windows_text_fini(&t);
    return rc;
}

static int make_moments(const struct ramp_options *o, struct err *e) {
    char path[4096];
    struct ramp_set *s;
    if (o->imatrix) return 0;
    int rc = imatrix_path(o, path, e);
    if (!rc) rc = ramp_set_open(&s, o->model, o->mode, NULL, e);
    if (rc) return rc;
    uint64_t parts[4] = {o->predict_only, o->seed, (uint64_t)o->judge_tok, 0};
    if (o->text) rc = ramp_text_hash(o->text, &parts[3], e);
    uint64_t key = hash_bytes(parts, sizeof parts, s->hash);
    json_t *old = rc ? NULL : ramp_json_load(o->work, "moments.json", key);
    if (!rc && (!old || !file_exists(path))) {
        rc = o->predict_only ? ramp_moments_write(s->gguf, path, e)
                             : collect_on_cpu(o, moment_tokens(o, s), path, e);
        if (!rc) rc = ramp_json_save(json_object(), o->work, "moments.json", key, e);
    }
    json_decref(old);
    ramp_set_close(s);
    return rc;
}

/* ---- errors ---- */

static bool read_errors(struct ramp_set *s, const json_t *root) {
    const json_t *all = json_object_get(root, "errors");
    for (size_t i = 0; i < s->n_gene; i++) {
        struct ramp_gene *g = &s->genes[i];
        const json_t *o = json_object_get(all, g->tensor->name);
        for (int k = 0; k < g->n_form; k++) {
            const char *type = quant_traits(g->forms[k].to.type)->name;
            if (!json_is_number(json_object_get(o, type))) return false;
            g->forms[k].error = ramp_json_number(o, type, 0);
        }
    }
    return true;
}

static json_t *errors_json(const struct ramp_set *s) {
    json_t *root = json_object(), *all = json_object();
    for (size_t i = 0; i < s->n_gene; i++) {
        const struct ramp_gene *g = &s->genes[i];
        json_t *o = json_object();
        for (int k = 0; k < g->n_form; k++)
            json_object_set_new(o, quant_traits(g->forms[k].to.type)->name,
                                json_real(g->forms[k].error));
        json_object_set_new(all, g->tensor->name, o);
    }
    json_object_set_new(root, "errors", all);
    return root;
}

static void warn_of_losses(const struct ramp_set *s, const struct ramp_options *o) {
    if (s->was_quantized)
        log_warn("%s is quantized already: a second rounding adds to the loss of the first",
                 o->model);
    if (s->n_unseen)
        log_warn("the importance matrix counts no row for %" PRIu64
                 " matrices of experts: each is rounded by the mean of the other experts",
                 s->n_unseen);
    for (size_t i = 0; i < s->n_gene; i++) {
        const struct ramp_gene *g = &s->genes[i];
        bool is_quantized = false;
        for (int k = 0; k < g->n_form; k++)
            is_quantized |= quant_traits(g->forms[k].to.type)->block_elements > 1;
        if (!is_quantized)
            log_warn("tensor %s: no quantized type holds rows of %" PRIu64 ": it is stored as %s",
                     g->tensor->name, g->tensor->ne[0],
                     quant_traits(g->forms[g->n_form - 1].to.type)->name);
    }
}

int ramp_open_analysed(struct ramp_set **out, const struct ramp_options *o, bool measure,
                       struct err *e) {
    char path[4096];
    int rc = imatrix_path(o, path, e);
    if (!rc && !measure && !file_exists(path)) {
        err_set(e, CHIMERE_ENOENT, "%s: there is no analysis", o->work);
        err_hint(e, "run `chimere ramp analyse` first, with the same options");
        return CHIMERE_ENOENT;
    }
    if (!rc) rc = ramp_set_open(out, o->model, o->mode, path, e);
    if (rc) return rc;
    struct ramp_set *s = *out;
    uint64_t key = hash_bytes(&o->sample_weights, sizeof o->sample_weights, s->hash);
    json_t *old = ramp_json_load(o->work, "analysis.json", key);
    if (!old || !read_errors(s, old)) {
        rc = measure ? ramp_error_measure(s, o->sample_weights, o->n_thread, o->quiet, e)
                     : err_set(e, CHIMERE_EMISMATCH,
                               "%s: its analysis is of another model or other options", o->work);
        if (!rc) rc = ramp_json_save(errors_json(s), o->work, "analysis.json", key, e);
    }
    json_decref(old);
    if (rc) {
        ramp_set_close(s);
        *out = NULL;
        return rc;
    }
    if (measure) warn_of_losses(s, o);
    ramp_hull_mark(s);
    return 0;
}

int ramp_analyse(const struct ramp_options *o, struct err *e) {
    struct ramp_set *s;
    int rc = file_mkdirs(o->work, e);
    if (!rc) rc = make_moments(o, e);
    if (!rc) rc = ramp_open_analysed(&s, o, true, e);
    if (!rc) ramp_set_close(s);
    return rc;
}

/* ---- budgets ---- */

/* Memory of a card for weights, after the KV cache of the context, recurrent states and scratch. */
static int card_bytes(const struct ramp_options *o, const struct ramp_card *card, uint64_t *bytes,
                      struct err *e) {
    struct memory_plan plan;
    const struct plan_params p = {
        .engine = {.k_type = QUANT_F16, .v_type = QUANT_F16},
        .n_ctx = o->ctx,
        .n_seq = 1,
        .n_seq_want = 1,
        .budget_bytes = (uint64_t)1 << 50,
    };
    int rc = plan_make(&plan, o->model, &p, e);
    if (rc) return rc;
    double memory = card->memory_gib * (double)(1 << 30);
    uint64_t taken = plan.cache_bytes + plan.state_bytes + plan.scratch_bytes + CARD_RESERVE;
    if ((double)taken >= memory)
        return err_set(e, CHIMERE_ELIMIT,
                       "%s: a context of %lld takes %.1f GiB beside the weights, more than it has",
                       card->name, (long long)o->ctx, (double)taken / (double)(1 << 30));
    *bytes = (uint64_t)memory - taken;
    return 0;
}

static int unknown_card(const char *name, struct err *e) {
    char known[384] = "";
    size_t n = 0;
    for (int i = 0; ramp_card_name(i) && n < sizeof known; i++)
        n +=
            (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", ramp_card_name(i));
    return err_set(e, CHIMERE_EINVAL, "--card: no card named '%s' is known, but %s", name, known);
}

int ramp_limit_of(struct ramp_limit *l, const struct ramp_set *s, const struct ramp_options *o,
                  struct err *e) {
    const struct ramp_card *card = o->card ? ramp_card_find(o->card) : NULL;
    *l = (struct ramp_limit){.bytes = o->size_bytes, .tok_s = o->min_tok_s};
    if (o->card && !card) return unknown_card(o->card, e);
    if ((o->size_bytes > 0) + (o->bpw > 0) + (card != NULL && !o->min_tok_s) != 1 &&
        !(o->min_tok_s > 0 && card && (o->size_bytes > 0) + (o->bpw > 0) <= 1))
        return err_set(e, CHIMERE_EINVAL, "expected one of --size, --bpw and --card");
    if (o->min_tok_s > 0 && !card)
        return err_set(e, CHIMERE_EINVAL, "--min-speed: expected a --card too");
    if (o->bpw > 0) l->bytes = ramp_set_bytes_of_bpw(s, o->bpw);
    if (!card) return 0;
    l->card = card;
    return l->bytes ? 0 : card_bytes(o, card, &l->bytes, e);
}

static int check_imatrix(const struct ramp_set *s, const char *path, struct err *e) {
    for (size_t i = 0; i < s->n_gene; i++)
        if (s->genes[i].has_weight) return 0;
    return err_set(e, CHIMERE_EMISMATCH, "%s: none of its %zu entries names a tensor of this model",
                   path, imatrix_n_entries(s->imatrix));
}

int ramp_check(const struct ramp_options *o, struct err *e) {
    struct ramp_set *s;
    struct ramp_limit l;
    int rc = ramp_set_open(&s, o->model, o->mode, o->imatrix, e);
    if (rc) return rc;
    rc = quantize_check_target(s->gguf, o->out, e);
    if (!rc && o->imatrix) rc = check_imatrix(s, o->imatrix, e);
    if (!rc) rc = ramp_limit_of(&l, s, o, e);
    if (!rc) rc = ramp_least_fits(s, &l, e);
    ramp_set_close(s);
    return rc;
}
