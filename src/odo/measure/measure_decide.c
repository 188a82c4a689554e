/* measure_decide.c: routes and difficulty against labels, by skill. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "eval/stats.h"
#include "odo/memory.h"
#include "store/doc_scope.h"
#include "odo/decide/difficulty.h"
#include "odo/measure/measure_impl.h"
#include "odo/odo_enrich_impl.h"
#include "retrieval/docs.h"

enum { MAX_SKILLS = 64, N_CLASS = 3 };

struct decided { /* counts of one skill, or of all skills */
    const char *skill;
    int64_t n, n_route, route, n_class[N_CLASS], class[N_CLASS], n_hit, hit;
    double ms, ms_most;
    size_t n_level;
    double *want, *score; /* owned */
};

static int class_of(const char *name) {
    for (int i = 0; name && i < N_CLASS; ++i)
        if (!strcmp(difficulty_class_name((enum difficulty_class)i), name)) return i;
    return -1;
}

/* Writes the rank 1..n of each value; equal values get their mean rank. */
static void ranks(const double *v, double *rank, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        size_t less = 0, same = 0;
        for (size_t k = 0; k < n; ++k) less += v[k] < v[i], same += v[k] == v[i];
        rank[i] = (double)less + ((double)same + 1) / 2;
    }
}

/* Returns Spearman's rank correlation, or 0 if one of the lists is constant. */
static double spearman(const double *a, const double *b, size_t n) {
    double *r = mem_alloc_array(2 * n + 1, sizeof *r);
    double mean = ((double)n + 1) / 2, xy = 0, xx = 0, yy = 0;
    if (!r) return 0;
    ranks(a, r, n);
    ranks(b, r + n, n);
    for (size_t i = 0; i < n; ++i) {
        xy += (r[i] - mean) * (r[n + i] - mean);
        xx += (r[i] - mean) * (r[i] - mean);
        yy += (r[n + i] - mean) * (r[n + i] - mean);
    }
    mem_free(r);
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

static json_t *to_json(const struct decided *d) {
    json_t *o = json_pack("{s:s*, s:I, s:f, s:f}", "skill", d->skill, "n", (json_int_t)d->n, "ms",
                          d->n ? d->ms / (double)d->n : 0, "ms_most", d->ms_most);
    if (d->n_route) json_object_set_new(o, "route", measure_share(d->route, d->n_route));
    if (d->n_hit) json_object_set_new(o, "hit", measure_share(d->hit, d->n_hit));
    for (int i = 0; i < N_CLASS; ++i)
        if (d->n_class[i])
            json_object_set_new(o, difficulty_class_name((enum difficulty_class)i),
                                measure_share(d->class[i], d -> n_class[i]));
    if (d->n_level > 1)
        json_object_set_new(o, "rank_correlation",
                            json_real(spearman(d->want, d->score, d->n_level)));
    return o;
}

static void add(struct decided *d, const json_t *item, const json_t *decision) {
    const char *route = measure_expected(item, "route");
    int want = class_of(measure_expected(item, "difficulty"));
    const char *got = json_string_value(json_object_get(decision, "route"));
    double ms = json_number_value(json_object_get(decision, "ms"));
    ++d->n;
    d->ms += ms;
    if (ms > d->ms_most) d->ms_most = ms;
    d->n_route += route != NULL;
    d->route += route && got && !strcmp(route, got);
    const json_t *hit = json_object_get(decision, "hit");
    d->n_hit += hit != NULL;
    d->hit += json_is_true(hit);
    if (want < 0) return;
    ++d->n_class[want];
    d->class[want] += class_of(json_string_value(json_object_get(decision, "difficulty"))) == want;
    d->want[d->n_level] = want;
    d->score[d->n_level++] = json_number_value(json_object_get(decision, "score"));
}

static struct decided *of_skill(struct decided *v, int *n, const char *skill, size_t n_item) {
    for (int i = 1; i < *n; ++i)
        if (!strcmp(v[i].skill, skill)) return &v[i];
    if (*n == MAX_SKILLS) return NULL;
    struct decided *d = &v[*n];
    d->skill = skill;
    d->want = mem_alloc_array(n_item + 1, sizeof *d->want);
    d->score = mem_alloc_array(n_item + 1, sizeof *d->score);
    ++*n;
    return d->want && d->score ? d : NULL;
}

/* Sets whether the expected passage is among the passages that would be shown. */
static int find_hit(json_t *decision, const struct request *a, const json_t *item,
                    const struct measure_params *p, struct err *e) {
    const json_t *expect = json_object_get(item, "expect"),
                 *passage = json_object_get(expect, "passage");
    struct docs_hits h;
    if (!json_object_get(expect, "source") || !p->odo->p.docs) return 0;
    char *question = request_question(a->messages, &(bool){false});
    if (!question) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    char owner[MEMORY_MAX_OWNER], scope[STORE_DOC_SCOPE_BYTES];
    memory_owner(a->owner, a->user, owner);
    int rc = store_doc_scope(owner, p->collection, scope, e);
    if (!rc) rc = docs_search(p->odo->p.docs, question, scope, ODO_N_HIT, 0, NULL, &h, e);
    mem_free(question);
    if (rc) return rc;
    bool hit = false;
    bool shown = h.strong || json_is_true(json_object_get(decision, "asked_documents"));
    for (int32_t i = 0; i < h.n && shown; ++i)
        hit |= measure_has_any(h.v[i].path, json_object_get(expect, "source")) &&
               (!passage || measure_has_any(h.v[i].text, passage));
    json_object_set_new(decision, "hit", json_boolean(hit));
    json_object_set_new(decision, "strong", json_boolean(h.strong));
    json_object_set_new(decision, "coverage", json_real(h.coverage));
    if (h.n) json_object_set_new(decision, "first", json_string(h.v[0].path));
    docs_hits_fini(&h);
    return 0;
}

/* *decision is a new reference. */
static int decide_one(json_t **decision, const json_t *item, const struct measure_params *p,
                      const json_t *wish, struct err *e) {
    struct request a;
    measure_request(item, p, wish, &a);
    int rc = odo_explain(p->odo, &a, NULL, decision, e);
    if (!rc) rc = find_hit(*decision, &a, item, p, e);
    request_fini(&a);
    if (rc) err_prefix(e, "item %s", json_string_value(json_object_get(item, "id")));
    else json_object_set(*decision, "id", json_object_get(item, "id"));
    return rc;
}

int measure_decide(json_t **out, const json_t *items, const struct measure_params *p,
                   struct err *e) {
    struct decided v[MAX_SKILLS + 1] = {{0}};
    json_t *list = json_array(), *skills = json_array(), *wish = json_object(), *item;
    size_t i, n_item = json_array_size(items);
    int n = 0, rc = of_skill(v, &n, "", n_item) ? 0 : CHIMERE_ENOMEM;
    v[0].skill = NULL;
    json_array_foreach(items, i, item) {
        const char *skill = json_string_value(json_object_get(item, "skill"));
        json_t *d = NULL;
        if (!rc) rc = decide_one(&d, item, p, wish, e);
        if (rc) break;
        struct decided *own = of_skill(v, &n, skill, n_item);
        add(&v[0], item, d);
        if (own) add(own, item, d);
        json_array_append_new(list, d);
    }
    for (int k = 1; k < n; ++k) json_array_append_new(skills, to_json(&v[k]));
    if (!rc)
        *out =
            json_pack("{s:o, s:O, s:O}", "total", to_json(&v[0]), "skills", skills, "items", list);
    else if (rc == CHIMERE_ENOMEM) err_set(e, rc, "out of memory");
    for (int k = 0; k < n; ++k) {
        mem_free(v[k].want);
        mem_free(v[k].score);
    }
    json_decref(list);
    json_decref(skills);
    json_decref(wish);
    return rc;
}
