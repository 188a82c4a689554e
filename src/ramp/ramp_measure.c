/* ramp_measure.c: see ramp_measure.h; also defines the gains. */
#include "ramp/ramp_measure.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/seq/swap.h"
#include "ramp/ramp_effort.h"
#include "ramp/ramp_hull.h"
#include "ramp/ramp_json.h"
#include "ramp/ramp_text.h"

enum {
    THIRDS = 3,
    PROBES_PART =
        4, /* of the effort that encoding for probes may take before groups have one tensor */
};

int ramp_measure_open(struct ramp_measure *x, const struct ramp_set *s,
                      const struct ramp_options *o, struct err *e) {
    char path[4096];
    *x = (struct ramp_measure){.set = s};
    int rc = model_open(&x->m, o->model, o->dev, o->quiet, e);
    if (!rc) rc = ramp_json_path(path, o->work, "tokens", e);
    uint64_t key = o->seed;
    if (!rc && o->text) rc = ramp_text_hash(o->text, &key, e);
    if (!rc) {
        key = hash_mix(key ^ (uint64_t)o->judge_tok) ^ x->m->hash;
        if (ramp_text_load(&x->t, path, key, x->m->hp.n_vocab)) {
            rc = o->text ? ramp_text_read(&x->t, x->m, o->text, (size_t)o->judge_tok, e)
                         : ramp_text_generate(&x->t, x->m, (size_t)o->judge_tok, o->seed,
                                              o->n_thread, o->quiet, e);
            if (!rc) rc = ramp_text_save(&x->t, path, key, e);
        }
    }
    if (!rc) {
        x->text_hash = hash_bytes(x->t.tokens, x->t.n_window * RAMP_CTX * sizeof *x->t.tokens, 7);
        rc = ramp_judge_open(&x->j, x->m, &x->t, o->n_thread, e);
    }
    if (!rc) rc = ramp_store_open(&x->st, s, x->m, o, e);
    if (rc) ramp_measure_close(x);
    return rc;
}

void ramp_measure_close(struct ramp_measure *x) {
    ramp_store_close(x->st);
    ramp_judge_close(x->j);
    windows_text_fini(&x->t);
    if (x->m) model_close(x->m);
    *x = (struct ramp_measure){.m = NULL};
}

int ramp_measure_kl(struct ramp_measure *x, const uint8_t *choice, size_t n_tok, double *kl,
                    struct err *e) {
    int rc = ramp_store_apply(x->st, choice, e);
    return rc ? rc : ramp_judge_run(x->j, (n_tok + RAMP_CTX - 1) / RAMP_CTX, kl, e);
}

/* ---- without an engine ---- */

/* Gains on which published measurements of single roles agree (docs/ramp.md). */
static const struct {
    const char *part;
    double gain;
} guesses[] = {
    {"output", 2},           {"token_embd", 1},     {"ssm_out", 1.6},   {"attn_v", 1.8},
    {"attn_output", 1.5},    {"attn_qkv", 1.5},     {"attn_gate", 1.2}, {"attn_k", 1.2},
    {"attn_q", 1},           {"ssm_alpha", 1.5},    {"ssm_beta", 1.5},  {"ffn_down_shexp", 1.4},
    {"ffn_gate_shexp", 1.1}, {"ffn_up_shexp", 1.1}, {"ffn_down", 1.5},  {"ffn_up", 1},
    {"ffn_gate", .9},
};

void ramp_gain_guess(struct ramp_set *s) {
    for (size_t i = 0; i < s->n_gene; i++) {
        struct ramp_gene *g = &s->genes[i];
        g->gain = 1;
        for (size_t k = 0; k < sizeof guesses / sizeof *guesses; k++)
            if (strncmp(g->role, guesses[k].part, strlen(guesses[k].part)) == 0) {
                g->gain = guesses[k].gain;
                break;
            }
        /* it is the head, too; of chimere-mini, the engine measured 30 times the gain of other tensors */
        if (strcmp(g->role, "token_embd") == 0 && g->share > 0) g->gain = 30;
        int32_t edge = s->n_layer / 8;
        if (g->layer >= 0 && (g->layer < edge || g->layer >= s->n_layer - edge)) g->gain *= 1.5;
        if (g->is_draft) g->gain *= .25;
    }
}

/* ---- on the engine ---- */

struct fit {
    struct ramp_set *s;
    struct ramp_measure *x;
    const struct ramp_options *o;
    uint32_t *group;  /* owned [n_gene]: UINT32_MAX: not measured */
    uint32_t *middle; /* owned [n_group]: a group's middle tensor, which stands for it if `thin` */
    uint32_t n_group;
    bool thin;              /* encoding every tensor for the probes takes too much of the effort */
    uint8_t *choice, *base; /* owned [n_gene] */
    double *at_source, *at_base; /* owned [n_group]: gains around the two points */
    uint64_t key;
};

static bool is_measured(const struct fit *f, size_t i) {
    const struct ramp_gene *g = &f->s->genes[i];
    return !g->is_draft && g->n_form > 1 && swap_is_possible(f->x->m, g->tensor->name);
}

static int32_t third_of(const struct ramp_set *s, const struct ramp_gene *g) {
    return g->layer < 0 ? 0 : g->layer * THIRDS / (s->n_layer ? s->n_layer : 1);
}

/* Groups of tensors that are measured together: single tensors, or those of one role in one third of the depth. */
static void make_groups(struct fit *f) {
    size_t n = 0;
    for (size_t i = 0; i < f->s->n_gene; i++) n += is_measured(f, i);
    for (size_t i = 0; i < f->s->n_gene; i++) {
        const struct ramp_gene *g = &f->s->genes[i];
        f->group[i] = UINT32_MAX;
        if (!is_measured(f, i)) continue;
        for (size_t k = 0; (f->thin || n > RAMP_MAX_GROUPS) && k < i; k++)
            if (f->group[k] != UINT32_MAX && strcmp(f->s->genes[k].role, g->role) == 0 &&
                third_of(f->s, &f->s->genes[k]) == third_of(f->s, g))
                f->group[i] = f->group[k];
        if (f->group[i] == UINT32_MAX) f->group[i] = f->n_group++;
    }
    for (uint32_t g = 0; g < f->n_group; g++) {
        size_t members = 0;
        for (size_t i = 0; i < f->s->n_gene; i++) members += f->group[i] == g;
        for (size_t i = 0, k = 0; i < f->s->n_gene; i++)
            if (f->group[i] == g && k++ == members / 2) f->middle[g] = (uint32_t)i;
    }
}

/* Whether the probe of a group exchanges gene i. */
static bool is_probed(const struct fit *f, uint32_t group, size_t i) {
    return f->group[i] == group && (!f->thin || f->middle[group] == i);
}

/* The form that a probe uses: the one on the hull nearest to the target's bits. */
static int probe_form(const struct ramp_gene *g, double bits) {
    int best = 0;
    double least = 1e30;
    for (int k = 0; k < g->n_form; k++) {
        double d = (double)g->forms[k].n_bytes * 8 / (double)g->tensor->n_elements - bits;
        if (d < 0) d = -d;
        if (!g->forms[k].on_hull || d >= least || !(g->forms[k].error > 0)) continue;
        least = d;
        best = k;
    }
    return best;
}

static double group_error(const struct fit *f, uint32_t group, const uint8_t *choice) {
    double sum = 0;
    for (size_t i = 0; i < f->s->n_gene; i++)
        if (is_probed(f, group, i) && choice[i] != RAMP_SOURCE)
            sum += f->s->genes[i].forms[choice[i]].error;
    return sum;
}

static void set_group(const struct fit *f, uint32_t group, uint8_t *choice, double bits) {
    for (size_t i = 0; i < f->s->n_gene; i++)
        if (is_probed(f, group, i))
            choice[i] = bits > 0 ? (uint8_t)probe_form(&f->s->genes[i], bits) : RAMP_SOURCE;
}

static json_t *numbers(const double *x, uint32_t n) {
    json_t *a = json_array();
    for (uint32_t i = 0; i < n; i++) json_array_append_new(a, json_real(x[i]));
    return a;
}

static uint32_t read_numbers(const json_t *root, const char *name, double *x, uint32_t n) {
    const json_t *a = json_object_get(root, name);
    uint32_t have = (uint32_t)json_array_size(a);
    if (have > n) have = 0;
    for (uint32_t i = 0; i < have; i++) x[i] = json_number_value(json_array_get(a, i));
    return have;
}

static int save(const struct fit *f, uint32_t n_source, uint32_t n_base, struct err *e) {
    json_t *root = json_object();
    if (root) {
        json_object_set_new(root, "at_source", numbers(f->at_source, n_source));
        json_object_set_new(root, "at_base", numbers(f->at_base, n_base));
    }
    return ramp_json_save(root, f->o->work, "gains.json", f->key, e);
}

/* Sets gains: around the reference, measured genes take their group's gain; with the base, the average of both gains.
 * Unmeasured genes take the mean of the measured ones. */
static void set_gains(struct fit *f, bool has_base) {
    double sum = 0, n = 0;
    for (size_t i = 0; i < f->s->n_gene; i++) {
        if (f->group[i] == UINT32_MAX) continue;
        double a = f->at_source[f->group[i]], b = has_base ? f->at_base[f->group[i]] : a;
        double gain = (a + b) / 2;
        if (gain < a / 8) gain = a / 8;
        f->s->genes[i].gain = gain > 1e-9 ? gain : 1e-9;
        sum += f->s->genes[i].gain;
        n++;
    }
    for (size_t i = 0; i < f->s->n_gene; i++)
        if (f->group[i] == UINT32_MAX)
            f->s->genes[i].gain = (n > 0 ? sum / n : 1) * (f->s->genes[i].is_draft ? .25 : 1);
}

/* Divergence of the reference with one group in the probe's form, per unit of error. */
static int probe_source(struct fit *f, double bits, uint32_t from, uint32_t n_base, struct err *e) {
    int rc = 0;
    memset(f->choice, RAMP_SOURCE, f->s->n_gene);
    for (uint32_t g = from; g < f->n_group && !rc; g++) {
        double kl = 0;
        set_group(f, g, f->choice, bits);
        double error = group_error(f, g, f->choice);
        rc = ramp_measure_kl(f->x, f->choice, (size_t)f->o->probe_tok, &kl, e);
        f->at_source[g] = error > 0 ? kl / error : 0;
        set_group(f, g, f->choice, 0);
        if (!f->o->quiet) progress_step(g + 1);
        if (!rc && (g % 8 == 7 || g + 1 == f->n_group)) rc = save(f, g + 1, n_base, e);
    }
    return rc;
}

/* Decrease of the base's divergence when one group is restored, per unit of error. */
static int probe_base(struct fit *f, uint32_t from, struct err *e) {
    double whole = 0;
    int rc = ramp_measure_kl(f->x, f->base, (size_t)f->o->probe_tok, &whole, e);
    for (uint32_t g = from; g < f->n_group && !rc; g++) {
        double kl = 0, error = group_error(f, g, f->base);
        memcpy(f->choice, f->base, f->s->n_gene);
        set_group(f, g, f->choice, 0);
        rc = ramp_measure_kl(f->x, f->choice, (size_t)f->o->probe_tok, &kl, e);
        f->at_base[g] = error > 0 ? (whole - kl) / error : 0;
        if (!f->o->quiet) progress_step(f->n_group + g + 1);
        if (!rc && (g % 8 == 7 || g + 1 == f->n_group)) rc = save(f, f->n_group, g + 1, e);
    }
    return rc;
}

/* Makes the groups, for as many tensors as the effort allows. Returns false if it allows no probe. */
static bool plan_probes(struct fit *f, double bits) {
    for (size_t i = 0; i < f->s->n_gene; i++)
        f->choice[i] = is_measured(f, i) ? (uint8_t)probe_form(&f->s->genes[i], bits) : RAMP_SOURCE;
    f->thin = ramp_effort_of(f->s, f->choice) > f->s->effort / PROBES_PART;
    make_groups(f);
    memset(f->choice, RAMP_SOURCE, f->s->n_gene);
    for (uint32_t g = 0; g < f->n_group; g++) set_group(f, g, f->choice, bits);
    return ramp_effort_take(f->s, f->choice, f->s->effort);
}

/* Makes the best uniform choice the base, whose forms most probes have encoded already. */
static bool take_uniform(struct fit *f, const struct ramp_limit *l) {
    uint32_t type;
    if (!ramp_uniform_best(f->s, NULL, l, f->base, 1, &type)) return false;
    ramp_uniform(f->s, type, f->base);
    return ramp_effort_take(f->s, f->base, f->s->effort);
}

static int fit_all(struct fit *f, uint64_t bytes, bool *has_base, struct err *e) {
    struct ramp_set *s = f->s;
    double bits =
        (double)(bytes > s->header_bytes ? bytes - s->header_bytes : 0) * 8 / (double)s->n_weights;
    *has_base = false;
    if (!plan_probes(f, bits)) return 0;
    json_t *old = ramp_json_load(f->o->work, "gains.json", f->key);
    uint32_t n_source = read_numbers(old, "at_source", f->at_source, f->n_group),
             n_base = read_numbers(old, "at_base", f->at_base, f->n_group);
    json_decref(old);
    if (!f->o->quiet) progress_begin("gains of tensors", 2 * (uint64_t)f->n_group, false);
    int rc = probe_source(f, bits, n_source, n_base, e);
    set_gains(f, false);
    const struct ramp_limit l = {.bytes = bytes};
    if (!rc) rc = ramp_solve(s, NULL, &l, f->base, e);
    *has_base = !rc && (ramp_effort_take(s, f->base, s->effort) || take_uniform(f, &l));
    if (*has_base) rc = probe_base(f, n_base, e);
    if (!f->o->quiet) progress_end();
    if (!rc && *has_base) set_gains(f, true);
    return rc;
}

int ramp_gain_fit(struct ramp_set *s, struct ramp_measure *x, const struct ramp_options *o,
                  uint64_t bytes, bool *has_base, struct err *e) {
    struct fit f = {.s = s, .x = x, .o = o};
    uint64_t parts[5] = {s->hash, x->text_hash, bytes, (uint64_t)o->probe_tok,
                         (uint64_t)o->effort_s};
    f.key = hash_bytes(parts, sizeof parts, o->sample_weights);
    f.group = mem_alloc_array(s->n_gene, sizeof *f.group);
    f.middle = mem_alloc_array(s->n_gene, sizeof *f.middle);
    f.choice = mem_alloc_array(s->n_gene, 1);
    f.base = mem_alloc_array(s->n_gene, 1);
    f.at_source = mem_alloc_array(s->n_gene, sizeof *f.at_source);
    f.at_base = mem_alloc_array(s->n_gene, sizeof *f.at_base);
    int rc = f.group && f.middle && f.choice && f.base && f.at_source && f.at_base
                 ? 0
                 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = fit_all(&f, bytes, has_base, e);
    mem_free(f.group);
    mem_free(f.middle);
    mem_free(f.choice);
    mem_free(f.base);
    mem_free(f.at_source);
    mem_free(f.at_base);
    return rc;
}
