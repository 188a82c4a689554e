/* odo_shots.c: validated answers to similar questions, added as earlier turns of the conversation. */
#include <string.h>

#include "base/mem.h"
#include "engram/examples.h"
#include "retrieval/docs.h"
#include "odo/odo_enrich_impl.h"

enum { N_SHOT = 3, N_LOOKED_AT = 8 };

int odo_find_shots(struct odo_run *r, json_t *said, struct err *e) {
    const struct docs *d = r->odo->p.docs;
    int32_t n = docs_n_vec(d);
    float *query = mem_alloc_array((size_t)n, sizeof *query);
    struct examples_hits h = {.n = 0};
    int rc = query ? docs_embed(r->odo->p.docs, r->question, query, e)
                   : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc)
        rc = examples_search(r->odo->examples, r->d.intent.route, query, N_LOOKED_AT,
                             docs_near_from(d), &h, e);
    mem_free(query);
    json_t *all = json_array();
    for (int32_t i = 0; i < h.n && !rc; ++i)
        json_array_append_new(all, json_pack("{s:I, s:s, s:s, s:f}", "id", (json_int_t)h.v[i].id,
                                             "question", h.v[i].question, "answer", h.v[i].answer,
                                             "nearness", (double)h.v[i].nearness));
    json_object_set_new(said, "near", json_integer(h.n));
    examples_hits_fini(&h);
    r->shots = all;
    return rc;
}

/* No examples are added if sources were found, because the model must read the sources: examples reduced recall
 * from 63 % to 11 % in the first orchestrator. Examples use at most half of the budget; one that is too long is
 * skipped. */
void odo_choose_shots(struct odo_run *r) {
    json_t *all = r->shots, *chosen = json_array(), *ids = json_array(), *x;
    int32_t left = r->d.pipeline->enrich_tokens / 2;
    size_t i;
    json_array_foreach(all, i, x) {
        const char *q = json_string_value(json_object_get(x, "question")),
                   *a = json_string_value(json_object_get(x, "answer"));
        if (!q || !a || r->source_text.n || json_array_size(chosen) == N_SHOT) continue;
        int32_t cost = odo_count_tokens(r, q, strlen(q)) + odo_count_tokens(r, a, strlen(a)) + 16;
        if (cost > left || !strcmp(q, r->question)) continue;
        left -= cost;
        json_array_append(chosen, x);
        json_array_append(ids, json_object_get(x, "id"));
    }
    json_decref(all);
    r->shots = chosen;
    if (json_array_size(ids)) json_object_set(r->record, "examples", ids);
    json_decref(ids);
}

/* The nearest example is last, next to the question. */
int odo_place_shots(struct odo_run *r) {
    size_t at = json_array_size(r->messages), n = json_array_size(r->shots);
    while (at-- > 0) {
        const char *role =
            json_string_value(json_object_get(json_array_get(r->messages, at), "role"));
        if (role && !strcmp(role, "user")) break;
    }
    if (at == (size_t)-1) return 0;
    for (size_t i = 0; i < n; ++i) {
        const json_t *x = json_array_get(r->shots, i);
        json_t *q = json_pack("{s:s, s:O}", "role", "user", "content",
                              json_object_get(x, "question")),
               *a = json_pack("{s:s, s:O}", "role", "assistant", "content",
                              json_object_get(x, "answer"));
        if (!q || !a) {
            json_decref(q);
            json_decref(a);
            return CHIMERE_ENOMEM;
        }
        if (json_array_insert_new(r->messages, at, a) || json_array_insert_new(r->messages, at, q))
            return CHIMERE_ENOMEM;
    }
    return 0;
}
