/* ramp_report.c: figures of a finished file: divergence, bits by role, speed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "eval/perplexity.h"
#include "format/quant.h"
#include "model/vocab.h"
#include "ramp/ramp_impl.h"
#include "ramp/ramp_json.h"
#include "ramp/ramp_speed.h"
#include "ramp/ramp_svg.h"
#include "ramp/ramp_text.h"
#include "ramp/ramp_type.h"

enum { REPORT_CTX = 512 };

struct report {
    struct ramp_set *s;  /* owned */
    uint8_t *choice;     /* owned [n_gene]: the types in OUT */
    uint64_t file_bytes; /* of OUT */
    struct perplexity result, floor;
    double tok_s, model_tok_s; /* of OUT and of MODEL on this device; 0: not measured */
};

/* Reads the types of OUT's tensors as a choice; gains are those of the plan. */
static int read_file(struct report *r, const struct ramp_options *o, struct err *e) {
    struct gguf *g;
    int rc = gguf_open(&g, o->out, e);
    if (rc) return rc;
    for (uint32_t i = 0; i < gguf_n_files(g); i++) r->file_bytes += gguf_file_bytes(g, i);
    json_t *plan = ramp_json_load(o->work, "plan.json", r->s->hash);
    const json_t *gains = json_object_get(plan, "gains");
    for (size_t i = 0; i < r->s->n_gene && !rc; i++) {
        struct ramp_gene *x = &r->s->genes[i];
        const struct gguf_tensor *t = gguf_find_tensor(g, x->tensor->name);
        int form = t ? ramp_gene_form(x, t->type) : -1;
        x->gain = ramp_json_number(gains, x->tensor->name, 1);
        if (form < 0)
            rc = err_set(e, CHIMERE_EMISMATCH, "%s: tensor %s: expected one of the plan's types",
                         o->out, x->tensor->name);
        r->choice[i] = (uint8_t)(form < 0 ? 0 : form);
    }
    json_decref(plan);
    gguf_close(g);
    return rc;
}

/* ---- divergence ---- */

static int load_text(struct windows_text *t, const struct model *m, const struct ramp_options *o,
                     struct err *e) {
    struct tok *tok = NULL;
    char *text = NULL;
    size_t n = 0;
    int rc = vocab_load(&tok, m->gguf, e);
    if (!rc) rc = file_read(o->text, WINDOWS_MAX_TEXT, &text, &n, e);
    if (!rc) rc = windows_cut(t, tok, text, n, REPORT_CTX, e);
    size_t most = (size_t)o->judge_tok * 4 / REPORT_CTX;
    if (!rc && t->n_window > most && most) t->n_window = most;
    mem_free(text);
    tok_free(tok);
    return rc;
}

/* Runs the model at path: writes the KL base, or measures against it, and its speed if tok_s is not NULL. */
static int run(const struct ramp_options *o, const char *path, const struct windows_text *t,
               const char *save, const struct kl_base *base, int32_t n_seq, struct perplexity *out,
               double *tok_s, struct err *e) {
    struct model *m;
    struct tok *tok = NULL;
    int rc = model_open(&m, path, o->dev, o->quiet, e);
    if (rc) return rc;
    rc = vocab_load(&tok, m->gguf, e);
    if (!rc) {
        const struct perplexity_params p = {.windows = {.n_seq = n_seq,
                                                        .n_batch = 64 * n_seq,
                                                        .k_type = QUANT_F16,
                                                        .v_type = QUANT_F16,
                                                        .what = o->quiet ? NULL : "divergence"},
                                            .n_thread = o->n_thread,
                                            .save_base = save,
                                            .base = base,
                                            .tok_hash = tok_hash(tok)};
        rc = perplexity_run(m, t, &p, out, e);
    }
    if (!rc && tok_s) rc = ramp_speed(tok_s, m, t, e);
    tok_free(tok);
    model_close(m);
    return rc;
}

static int measure(struct report *r, const struct ramp_options *o, struct err *e) {
    char path[4096];
    struct windows_text t = {.tokens = NULL};
    struct kl_base *base = NULL;
    struct model *m = NULL;
    struct perplexity own;
    int rc = ramp_json_path(path, o->work, "base.kl", e);
    if (!rc) rc = model_open(&m, o->model, o->dev, o->quiet, e);
    if (!rc) rc = load_text(&t, m, o, e);
    if (m) model_close(m);
    if (!rc) rc = run(o, o->model, &t, path, NULL, 8, &own, &r->model_tok_s, e);
    if (!rc) rc = kl_base_open(&base, path, e);
    if (!rc) /* with another batch shape */
        rc = run(o, o->model, &t, NULL, base, 1, &r->floor, NULL, e);
    if (!rc) rc = run(o, o->out, &t, NULL, base, 8, &r->result, &r->tok_s, e);
    kl_base_close(base);
    windows_text_fini(&t);
    return rc;
}

/* ---- figures ---- */

static bool is_first_of_role(const struct ramp_set *s, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (strcmp(s->genes[k].role, s->genes[i].role) == 0) return false;
    return true;
}

static json_t *roles_json(const struct report *r, struct buf *text) {
    json_t *all = json_object();
    buf_printf(text, "%-24s %12s %8s %10s\n", "role", "bytes", "bits", "predicted");
    for (size_t i = 0; i < r->s->n_gene; i++) {
        if (!is_first_of_role(r->s, i)) continue;
        const char *role = r->s->genes[i].role;
        uint64_t bytes = 0, n = 0;
        double predicted = 0;
        for (size_t k = i; k < r->s->n_gene; k++) {
            const struct ramp_gene *g = &r->s->genes[k];
            if (strcmp(g->role, role) != 0) continue;
            bytes += g->forms[r->choice[k]].n_bytes;
            n += g->tensor->n_elements;
            predicted += g->is_draft ? 0 : g->gain * g->forms[r->choice[k]].error;
        }
        double bits = (double)bytes * 8 / (double)n;
        buf_printf(text, "%-24s %12llu %8.3f %10.5f\n", role, (unsigned long long)bytes, bits,
                   predicted);
        json_t *o = json_object();
        json_object_set_new(o, "bytes", json_integer((json_int_t)bytes));
        json_object_set_new(o, "bits_per_weight", json_real(bits));
        json_object_set_new(o, "predicted", json_real(predicted));
        json_object_set_new(all, role, o);
    }
    return all;
}

static void put_kl(json_t *root, const struct report *r, struct buf *text) {
    const struct kl_stats *k = &r->result.kl;
    const struct {
        const char *key, *label;
        double value;
    } rows[] = {
        {"kl_mean", "KL mean", k->mean},
        {"kl_mean_se", "KL mean, standard error", k->mean_se},
        {"kl_floor", "KL of two reference runs", r->floor.kl.mean},
        {"kl_median", "KL median", k->median},
        {"kl_p99", "KL 99 %", k->p99},
        {"kl_p999", "KL 99.9 %", k->p999},
        {"kl_max", "KL max", k->max},
        {"same_top", "same top token", k->same_top},
        {"perplexity", "perplexity", r->result.ppl},
        {"perplexity_ratio", "perplexity ratio", r->result.ppl / k->base_ppl},
        {"perplexity_ratio_se", "perplexity, relative error", r->result.ppl_se / r->result.ppl},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        buf_printf(text, "%-28s %.6f\n", rows[i].label, rows[i].value);
        json_object_set_new(root, rows[i].key, json_real(rows[i].value));
    }
}

static json_t *figures(const struct report *r, const struct ramp_options *o, struct buf *text) {
    json_t *root = json_object();
    const struct ramp_card *card = o->card ? ramp_card_find(o->card) : NULL;
    double bpw = ramp_set_bpw(r->s, r->choice), predicted = ramp_set_predict(r->s, r->choice);
    buf_printf(text, "%s: %llu bytes, %.3f bits per weight\n", o->out,
               (unsigned long long)r->file_bytes, bpw);
    json_object_set_new(root, "bytes", json_integer((json_int_t)r->file_bytes));
    json_object_set_new(root, "bits_per_weight", json_real(bpw));
    json_object_set_new(root, "predicted", json_real(predicted));
    buf_printf(text, "%-28s %.6f\n", "KL predicted", predicted);
    if (r->result.n_scored) put_kl(root, r, text);
    if (r->tok_s > 0) {
        buf_printf(text, "%-28s %.1f (MODEL: %.1f)\n", "tokens per second here", r->tok_s,
                   r->model_tok_s);
        json_object_set_new(root, "measured_tok_s", json_real(r->tok_s));
        json_object_set_new(root, "model_tok_s", json_real(r->model_tok_s));
    }
    if (card) {
        double tok_s = 1 / ramp_seconds(r->s, card, r->choice);
        buf_printf(text, "%-28s %.1f (weights alone)\n", "tokens per second on the card", tok_s);
        json_object_set_new(root, "predicted_tok_s", json_real(tok_s));
    }
    json_object_set_new(root, "roles", roles_json(r, text));
    return root;
}

int ramp_report(const struct ramp_options *o, struct buf *text, struct err *e) {
    struct report r = {.s = NULL};
    int rc = ramp_open_analysed(&r.s, o, false, e);
    if (rc) return rc;
    r.choice = mem_alloc_array(r.s->n_gene, 1);
    rc = r.choice ? read_file(&r, o, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && o->text && o->dev) rc = measure(&r, o, e);
    if (!rc) rc = ramp_json_save(figures(&r, o, text), o->work, "report.json", r.s->hash, e);
    if (!rc) rc = ramp_svg_pareto(r.s, r.choice, r.result.kl.mean, o->work, e);
    if (!rc) rc = ramp_svg_heat(r.s, r.choice, o->work, e);
    mem_free(r.choice);
    ramp_set_close(r.s);
    return rc;
}
