/* ramp_plan.c: search and build; writes the plan in its file formats. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "convert/quantize.h"
#include "format/quant.h"
#include "ramp/ramp_effort.h"
#include "ramp/ramp_evolve.h"
#include "ramp/ramp_impl.h"
#include "ramp/ramp_json.h"

enum { PLAN_FORMAT = 1, RULES_PER_FLAG = 5 };

/* ---- the plan as files ---- */

/* The type that holds the most bytes. */
static uint32_t base_type(const struct ramp_set *s, const uint8_t *choice) {
    uint64_t most = 0;
    uint32_t base = QUANT_Q8_0;
    for (size_t i = 0; i < s->n_gene; i++) {
        uint32_t type = s->genes[i].forms[choice[i]].to.type;
        uint64_t n = 0;
        for (size_t k = 0; k < s->n_gene; k++)
            if (s->genes[k].forms[choice[k]].to.type == type)
                n += s->genes[k].forms[choice[k]].n_bytes;
        if (n > most) {
            most = n;
            base = type;
        }
    }
    return base;
}

static void put_regex(struct buf *b, const char *name) {
    buf_putc(b, '^');
    for (const char *p = name; *p; p++) {
        if (*p == '.') buf_putc(b, '\\');
        buf_putc(b, *p);
    }
    buf_putc(b, '$');
}

/* types.txt is for llama-quantize --tensor-type-file; custom-q.txt has flags for ik_llama.cpp's llama-quantize. */
static int write_dialects(const struct ramp_set *s, const uint8_t *choice,
                          const struct ramp_options *o, struct err *e) {
    struct buf types, custom;
    buf_init(&types, 64 << 20);
    buf_init(&custom, 64 << 20);
    for (size_t i = 0; i < s->n_gene; i++) {
        const struct ramp_gene *g = &s->genes[i];
        const char *type = quant_traits(g->forms[choice[i]].to.type)->name;
        put_regex(&types, g->tensor->name);
        buf_printf(&types, "=%s\n", type);
        if (i % RULES_PER_FLAG == 0) buf_puts(&custom, i ? "\"\n--custom-q \"" : "--custom-q \"");
        else buf_putc(&custom, ',');
        put_regex(&custom, g->tensor->name);
        buf_putc(&custom, '=');
        for (const char *p = type; *p; p++)
            buf_putc(&custom, *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p);
    }
    buf_puts(&custom, "\"\n");
    int rc = ramp_write_text(&types, o->work, "types.txt", e);
    if (rc) buf_fini(&custom);
    return rc ? rc : ramp_write_text(&custom, o->work, "custom-q.txt", e);
}

static int write_plan(const struct ramp_set *s, const uint8_t *choice, const struct ramp_options *o,
                      const struct ramp_limit *l, const struct ramp_evolved *v, struct err *e) {
    json_t *root = json_object(), *types = json_object(), *gains = json_object();
    for (size_t i = 0; i < s->n_gene; i++) {
        const struct ramp_gene *g = &s->genes[i];
        json_object_set_new(types, g->tensor->name,
                            json_string(quant_traits(g->forms[choice[i]].to.type)->name));
        json_object_set_new(gains, g->tensor->name, json_real(g->gain));
    }
    json_object_set_new(root, "format", json_integer(PLAN_FORMAT));
    json_object_set_new(root, "mode",
                        json_string(o->mode == RAMP_PORTABLE ? "portable" : "chimere"));
    json_object_set_new(root, "seed", json_integer((json_int_t)o->seed));
    json_object_set_new(root, "budget", json_integer((json_int_t)l->bytes));
    json_object_set_new(root, "bytes", json_integer((json_int_t)ramp_set_bytes(s, choice)));
    json_object_set_new(root, "weights", json_integer((json_int_t)s->n_weights));
    json_object_set_new(root, "bits_per_weight", json_real(ramp_set_bpw(s, choice)));
    json_object_set_new(root, "predicted", json_real(ramp_set_predict(s, choice)));
    json_object_set_new(root, "measured_start", json_real(v->start));
    json_object_set_new(root, "measured", json_real(v->best));
    if (v->uniform >= 0) {
        json_object_set_new(root, "measured_uniform", json_real(v->uniform));
        json_object_set_new(root, "uniform_type", json_string(quant_traits(v->uniform_type)->name));
    }
    json_object_set_new(root, "generations", json_integer(v->generations));
    json_object_set_new(root, "data",
                        json_string(o->imatrix        ? "importance matrix"
                                    : o->text         ? "text"
                                    : o->predict_only ? "norm weights"
                                                      : "written by the model"));
    json_object_set_new(root, "base_type", json_string(quant_traits(base_type(s, choice))->name));
    json_object_set_new(root, "gains", gains);
    json_object_set_new(root, "types", types);
    int rc = ramp_json_save(root, o->work, "plan.json", s->hash, e);
    return rc ? rc : write_dialects(s, choice, o, e);
}

/* ---- search ---- */

static int search(struct ramp_set *s, const struct ramp_options *all, const struct ramp_limit *l,
                  uint8_t *choice, struct ramp_evolved *v, struct err *e) {
    struct ramp_options limited = *all, *o = &limited;
    *v = (struct ramp_evolved){-1, -1, -1, 0, 0};
    ramp_gain_guess(s);
    int rc = ramp_solve(s, NULL, l, choice, e); /* reports an impossible budget early */
    if (rc || o->predict_only) return rc;
    struct ramp_measure x;
    bool has_base;
    if (ramp_effort_limit(o, s))
        log_info("the search has %d generations of %d candidates, measured on up to %d tokens: "
                 "more take more --effort",
                 (int)o->generations, (int)o->population, (int)o->judge_tok);
    rc = ramp_measure_open(&x, s, o, e);
    if (rc) return rc;
    ramp_effort_begin(s, x.m, o->effort_s);
    rc = ramp_gain_fit(s, &x, o, l->bytes, &has_base, e);
    if (!rc) rc = ramp_solve(s, NULL, l, choice, e);
    if (!rc && !ramp_effort_take(s, choice, s->effort)) {
        s->only_encoded = has_base;
        if (has_base) rc = ramp_solve(s, NULL, l, choice, e);
        else
            log_warn("the divergence of the result is predicted, not measured: encoding it takes "
                     "%.0f minutes of one core more than --effort allows",
                     (ramp_effort_of(s, choice) - s->effort) / 60 + .5);
    }
    if (!rc && (s->only_encoded || !(ramp_effort_of(s, choice) > 0)))
        rc = ramp_evolve(s, &x, o, l, choice, v, e);
    ramp_measure_close(&x);
    return rc;
}

int ramp_search(const struct ramp_options *o, struct err *e) {
    struct ramp_set *s;
    struct ramp_limit l;
    struct ramp_evolved v;
    int rc = ramp_open_analysed(&s, o, false, e);
    if (rc) return rc;
    uint8_t *choice = mem_alloc_array(s->n_gene, 1);
    rc = choice ? ramp_limit_of(&l, s, o, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = search(s, o, &l, choice, &v, e);
    if (!rc) rc = write_plan(s, choice, o, &l, &v, e);
    mem_free(choice);
    ramp_set_close(s);
    return rc;
}

/* ---- build ---- */

struct build {
    const struct ramp_set *s;
    struct ramp_store *st;
    const json_t *plan;
    uint8_t *choice;
};

static const void *cached(void *ud, const struct gguf_tensor *t,
                          const struct quantize_columns *to) {
    struct build *b = ud;
    for (size_t i = 0; i < b->s->n_gene; i++) {
        const struct ramp_gene *g = &b->s->genes[i];
        const struct ramp_form *f = &g->forms[b->choice[i]];
        if (strcmp(g->tensor->name, t->name) == 0)
            return f->to.type == to->type && f->n_bytes == to->n_bytes + to->tail_bytes
                       ? ramp_store_cached(b->st, i, b->choice[i])
                       : NULL;
    }
    return NULL;
}

static void put_keys(void *ud, struct gguf_writer *w) {
    const struct build *b = ud;
    const char *text = json_string_value(json_object_get(b->plan, "mode"));
    double measured = ramp_json_number(b->plan, "measured", -1);
    gguf_put_str(w, "ramp.method", "hull+evolution", strlen("hull+evolution"));
    if (text) gguf_put_str(w, "ramp.mode", text, strlen(text));
    text = json_string_value(json_object_get(b->plan, "data"));
    if (text) gguf_put_str(w, "ramp.data", text, strlen(text));
    gguf_put_u64(w, "ramp.seed", (uint64_t)ramp_json_number(b->plan, "seed", 0));
    gguf_put_f32(w, "ramp.bits_per_weight", (float)ramp_json_number(b->plan, "bits_per_weight", 0));
    if (measured >= 0) gguf_put_f32(w, "ramp.kl_divergence", (float)measured);
}

static int read_choice(struct build *b, uint32_t *types, struct err *e) {
    const json_t *all = json_object_get(b->plan, "types");
    for (size_t i = 0; i < b->s->n_gene; i++) {
        const struct ramp_gene *g = &b->s->genes[i];
        const char *name = json_string_value(json_object_get(all, g->tensor->name));
        int type = name ? quant_type_from_name(name) : -1;
        int form = type < 0 ? -1 : ramp_gene_form(g, (uint32_t)type);
        if (form < 0)
            return err_set(e, CHIMERE_EFORMAT, "plan: tensor %s: expected a type that fits it",
                           g->tensor->name);
        b->choice[i] = (uint8_t)form;
        types[g->index] = (uint32_t)type;
    }
    return 0;
}

static int write_model(struct build *b, const struct ramp_options *o, const uint32_t *types,
                       struct err *e) {
    char imatrix[4096];
    const struct quantize_choice choice = {types, cached, put_keys, b};
    struct quantize *q;
    int rc = o->imatrix ? 0 : ramp_json_path(imatrix, o->work, "imatrix.gguf", e);
    const struct quantize_options options = {.type = quant_traits(base_type(b->s, b->choice))->name,
                                             .imatrix = o->imatrix ? o->imatrix : imatrix,
                                             .tails = o->mode == RAMP_CHIMERE,
                                             .n_thread = o->n_thread,
                                             .choice = &choice};
    if (!rc) rc = quantize_open(&q, o->model, &options, e);
    if (rc) return rc;
    rc = quantize_run(q, o->out, !o->quiet, e);
    quantize_close(q);
    return rc;
}

int ramp_build(const struct ramp_options *o, struct err *e) {
    struct ramp_set *s;
    int rc = ramp_open_analysed(&s, o, false, e);
    if (rc) return rc;
    struct build b = {.s = s};
    uint32_t *types = mem_alloc_array(gguf_n_tensors(s->gguf), sizeof *types);
    b.choice = mem_alloc_array(s->n_gene, 1);
    json_t *plan = ramp_json_load(o->work, "plan.json", s->hash);
    b.plan = plan;
    if (!types || !b.choice) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    else if (!plan)
        rc = err_set(e, CHIMERE_ENOENT, "%s: there is no plan of this model with these options",
                     o->work);
    for (size_t i = 0; !rc && i < gguf_n_tensors(s->gguf); i++) types[i] = QUANTIZE_BY_MIX;
    if (!rc) rc = read_choice(&b, types, e);
    if (!rc) rc = ramp_store_open(&b.st, s, NULL, o, e);
    if (!rc) rc = write_model(&b, o, types, e);
    ramp_store_close(b.st);
    json_decref(plan);
    mem_free(types);
    mem_free(b.choice);
    ramp_set_close(s);
    return rc;
}

int ramp_summary_read(struct ramp_summary *out, const struct ramp_options *o, struct err *e) {
    struct ramp_set *s;
    int rc = ramp_open_analysed(&s, o, false, e);
    if (rc) return rc;
    json_t *plan = ramp_json_load(o->work, "plan.json", s->hash);
    if (!plan) rc = err_set(e, CHIMERE_ENOENT, "%s: there is no plan", o->work);
    else
        *out =
            (struct ramp_summary){.n_bytes = (uint64_t)ramp_json_number(plan, "bytes", 0),
                                  .n_weights = s->n_weights,
                                  .bpw = ramp_json_number(plan, "bits_per_weight", 0),
                                  .predicted = ramp_json_number(plan, "predicted", 0),
                                  .measured = ramp_json_number(plan, "measured", -1),
                                  .measured_start = ramp_json_number(plan, "measured_start", -1),
                                  .uniform = ramp_json_number(plan, "measured_uniform", -1),
                                  .generations = (int32_t)ramp_json_number(plan, "generations", 0)};
    const char *type = json_string_value(json_object_get(plan, "uniform_type"));
    if (!rc && type) snprintf(out->uniform_type, sizeof out->uniform_type, "%s", type);
    json_decref(plan);
    ramp_set_close(s);
    return rc;
}
