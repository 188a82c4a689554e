/* ramp_evolve.c: see ramp_evolve.h. */
#include "ramp/ramp_evolve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ramp/ramp_effort.h"
#include "ramp/ramp_json.h"
#include "ramp/ramp_text.h"

enum {
    MAX_SWAPS = 10, /* form changes per child */
    STALE = 5,      /* the search ends after so many generations without progress */
    FIRST_DIV = 8,  /* survivors of the stages: population / 8, then / 32 */
    SECOND_DIV = 32,
    FIRST_TOK = 32, /* parts of the tokens of the last stage that the two before it use */
    SECOND_TOK = 6,
    UNIFORM = 2, /* uniform choices that are measured: those with the least predicted divergence */
};

struct child {
    uint8_t *choice; /* owned */
    double kl;
};

struct evolution {
    struct ramp_set *s;
    struct ramp_measure *x;
    const struct ramp_options *o;
    const struct ramp_limit *l;
    struct child *children; /* owned [population] */
    double *gains;          /* owned [n_gene] */
    uint8_t *parent;        /* owned [n_gene] */
    double parent_kl, start, uniform;
    uint32_t uniform_type;
    int32_t generation, stale;
    uint64_t key;
};

/* ---- state ---- */

static int save(const struct evolution *v, struct err *e) {
    json_t *root = json_object(), *types = json_array(), *encoded = json_array();
    for (size_t i = 0; i < v->s->n_gene; i++) {
        json_array_append_new(types, json_integer(v->s->genes[i].forms[v->parent[i]].to.type));
        json_array_append_new(encoded, json_integer(v->s->genes[i].encoded));
    }
    if (root) {
        json_object_set_new(root, "effort", json_real(v->s->effort));
        json_object_set_new(root, "encoded", encoded);
        json_object_set_new(root, "generation", json_integer(v->generation));
        json_object_set_new(root, "stale", json_integer(v->stale));
        json_object_set_new(root, "start", json_real(v->start));
        json_object_set_new(root, "uniform", json_real(v->uniform));
        json_object_set_new(root, "uniform_type", json_integer(v->uniform_type));
        json_object_set_new(root, "divergence", json_real(v->parent_kl));
        json_object_set_new(root, "types", types);
    }
    return ramp_json_save(root, v->o->work, "search.json", v->key, e);
}

static bool resume(struct evolution *v) {
    json_t *root = ramp_json_load(v->o->work, "search.json", v->key);
    const json_t *types = json_object_get(root, "types"),
                 *encoded = json_object_get(root, "encoded");
    bool ok =
        root && json_array_size(types) == v->s->n_gene && json_array_size(encoded) == v->s->n_gene;
    for (size_t i = 0; ok && i < v->s->n_gene; i++) {
        int k =
            ramp_gene_form(&v->s->genes[i], (uint32_t)json_integer_value(json_array_get(types, i)));
        ok = k >= 0;
        v->parent[i] = (uint8_t)(k < 0 ? 0 : k);
    }
    if (ok) {
        v->generation = (int32_t)ramp_json_number(root, "generation", 0);
        v->stale = (int32_t)ramp_json_number(root, "stale", 0);
        v->start = ramp_json_number(root, "start", 0);
        v->uniform = ramp_json_number(root, "uniform", -1);
        v->uniform_type = (uint32_t)ramp_json_number(root, "uniform_type", 0);
        v->parent_kl = ramp_json_number(root, "divergence", 0);
        v->s->effort = ramp_json_number(root, "effort", 0);
        for (size_t i = 0; i < v->s->n_gene; i++)
            v->s->genes[i].encoded = (uint32_t)json_integer_value(json_array_get(encoded, i));
    }
    json_decref(root);
    return ok && ramp_fits(v->s, v->l, v->parent);
}

/* ---- children ---- */

/* The next larger or smaller form with a lower or higher error, respectively; -1: none. */
static int step(const struct ramp_set *s, const struct ramp_gene *g, int at, int direction) {
    for (int k = at + direction; k >= 0 && k < g->n_form; k += direction)
        if (g->forms[k].n_bytes != g->forms[at].n_bytes && ramp_form_is_open(s, g, k) &&
            (g->forms[k].on_hull || (direction < 0) == (g->forms[k].error > g->forms[at].error)))
            return k;
    return -1;
}

static void exchange(struct evolution *v, struct rng *r, uint8_t *c) {
    const struct ramp_set *s = v->s;
    int n = 1 + (int)rng_below(r, MAX_SWAPS);
    for (int i = 0; i < n; i++) {
        size_t a = rng_below(r, s->n_gene);
        int up = step(s, &s->genes[a], c[a], i % 2 ? -1 : 1);
        if (up >= 0 && !s->genes[a].is_draft) c[a] = (uint8_t)up;
    }
    for (int tries = 0; tries < 4096 && !ramp_fits(s, v->l, c); tries++) {
        size_t a = rng_below(r, s->n_gene);
        int down = step(s, &s->genes[a], c[a], -1);
        if (down >= 0) c[a] = (uint8_t)down;
    }
}

/* Depends only on seed, generation and index: a resumed search makes the same children. */
static int make_child(struct evolution *v, int32_t index, uint8_t *c) {
    struct rng r;
    rng_seed(&r, hash_mix(v->o->seed ^ (uint64_t)v->generation << 32) ^ (uint64_t)index);
    memcpy(c, v->parent, v->s->n_gene);
    if (index % 2) {
        exchange(v, &r, c);
        if (ramp_fits(v->s, v->l, c)) {
            ramp_fill(v->s, NULL, v->l, c);
            return 0;
        }
        memcpy(c, v->parent, v->s->n_gene);
    }
    double spread = .1 + .5 * rng_uniform(&r);
    for (size_t i = 0; i < v->s->n_gene; i++)
        v->gains[i] = v->s->genes[i].gain * exp(spread * rng_normal(&r));
    return ramp_solve(v->s, v->gains, v->l, c, NULL);
}

/* The children of a generation; they may encode forms for `most` seconds. */
static int make_children(struct evolution *v, double most, struct err *e) {
    double least = v->s->effort - most;
    for (int32_t i = 0; i < v->o->population; i++) {
        uint8_t *c = v->children[i].choice;
        v->s->only_encoded = false;
        if (make_child(v, i, c)) return err_set(e, CHIMERE_ELIMIT, "a candidate fits no budget");
        if (ramp_effort_take(v->s, c, v->s->effort - least)) continue;
        v->s->only_encoded = true;
        if (make_child(v, i, c)) memcpy(c, v->parent, v->s->n_gene);
    }
    return 0;
}

static int by_kl(const void *a, const void *b) {
    double x = ((const struct child *)a)->kl, y = ((const struct child *)b)->kl;
    return (x > y) - (x < y);
}

static int stage(struct evolution *v, int32_t n, size_t n_tok, struct err *e) {
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++)
        rc = ramp_measure_kl(v->x, v->children[i].choice, n_tok, &v->children[i].kl, e);
    qsort(v->children, (size_t)n, sizeof *v->children, by_kl);
    return rc;
}

static int32_t part(int32_t n, int32_t by) { return n / by > 1 ? n / by : 1; }

double ramp_evolve_tokens(const struct ramp_options *o) {
    return (double)o->generations * (double)o->population * (double)o->judge_tok *
           (1. / FIRST_TOK + 1. / (SECOND_TOK * FIRST_DIV) + 1. / SECOND_DIV);
}

static int generation(struct evolution *v, struct err *e) {
    int32_t n = v->o->population;
    size_t all = (size_t)v->o->judge_tok;
    int rc = make_children(v, v->s->effort / (v->o->generations - v->generation), e);
    if (!rc) rc = stage(v, n, all / FIRST_TOK > RAMP_CTX ? all / FIRST_TOK : RAMP_CTX, e);
    if (!rc)
        rc = stage(v, part(n, FIRST_DIV), all / SECOND_TOK > RAMP_CTX ? all / SECOND_TOK : RAMP_CTX,
                   e);
    if (!rc) rc = stage(v, part(n, SECOND_DIV), 0, e);
    if (rc) return rc;
    v->generation++;
    v->stale++;
    if (v->children[0].kl < v->parent_kl) {
        if (v->children[0].kl < v->parent_kl * .998) v->stale = 0;
        v->parent_kl = v->children[0].kl;
        memcpy(v->parent, v->children[0].choice, v->s->n_gene);
    }
    return save(v, e);
}

/* Predictions can be wrong about all tensors at once, so that a uniform choice is better than the first. */
static int try_uniform(struct evolution *v, struct err *e) {
    uint32_t types[UNIFORM];
    uint8_t *room = v->children[0].choice;
    int rc = 0, n = ramp_uniform_best(v->s, NULL, v->l, room, UNIFORM, types);
    for (int i = 0; i < n && !rc; i++) {
        double kl = 0;
        ramp_uniform(v->s, types[i], room);
        if (!ramp_effort_take(v->s, room, v->s->effort)) continue;
        rc = ramp_measure_kl(v->x, room, 0, &kl, e);
        if (v->uniform >= 0 && kl >= v->uniform) continue;
        v->uniform = kl;
        v->uniform_type = types[i];
        if (kl >= v->parent_kl) continue;
        v->parent_kl = kl;
        memcpy(v->parent, room, v->s->n_gene);
    }
    return rc;
}

static int prepare(struct evolution *v, const uint8_t *choice, struct err *e) {
    size_t n = v->s->n_gene;
    v->children = mem_alloc_array((size_t)v->o->population, sizeof *v->children);
    v->gains = mem_alloc_array(n, sizeof *v->gains);
    v->parent = mem_alloc_array(n, 1);
    bool ok = v->children && v->gains && v->parent;
    for (int32_t i = 0; ok && i < v->o->population; i++)
        ok = (v->children[i].choice = mem_alloc(n)) != NULL;
    if (!ok) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (resume(v)) return 0;
    memcpy(v->parent, choice, n);
    v->generation = v->stale = 0;
    v->uniform = -1;
    int rc = ramp_measure_kl(v->x, v->parent, 0, &v->start, e);
    v->parent_kl = v->start;
    if (!rc) rc = try_uniform(v, e);
    return rc ? rc : save(v, e);
}

int ramp_evolve(struct ramp_set *s, struct ramp_measure *x, const struct ramp_options *o,
                const struct ramp_limit *l, uint8_t *choice, struct ramp_evolved *out,
                struct err *e) {
    struct evolution v = {.s = s, .x = x, .o = o, .l = l};
    double parts[] = {(double)l->bytes,         l->tok_s,    (double)o->population,
                      (double)o->generations,   o->effort_s, (double)o->probe_tok,
                      (double)o->sample_weights};
    v.key = hash_bytes(parts, sizeof parts, s->hash ^ x->text_hash ^ o->seed);
    v.key = hash_bytes(choice, s->n_gene, v.key);
    int rc = prepare(&v, choice, e);
    if (!o->quiet) progress_begin("evolution", (uint64_t)o->generations, false);
    while (!rc && v.generation < o->generations && v.stale < STALE) {
        rc = generation(&v, e);
        if (!o->quiet) progress_step((uint64_t)v.generation);
    }
    if (!o->quiet) progress_end();
    if (!rc) {
        memcpy(choice, v.parent, s->n_gene);
        *out = (struct ramp_evolved){v.start, v.parent_kl, v.uniform, v.uniform_type, v.generation};
    }
    for (int32_t i = 0; v.children && i < o->population; i++) mem_free(v.children[i].choice);
    mem_free(v.children);
    mem_free(v.gains);
    mem_free(v.parent);
    return rc;
}
