#include "learn/serving.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/draft/suffix.h"
#include "engine/lease.h"
#include "learn/nights.h"
#include "learn/step/arm.h"
#include "learn/step/example_file.h"
#include "learn/step/limits_file.h"
#include "learn/step/night_step.h"
#include "learn/step/playbook.h"
#include "learn/trial.h"
#include "model/model.h"

struct serving {
    struct serving_params p;
    char dir[NIGHTS_MAX_PATH];
    json_t *used; /* owned: what was opened last, as in wish_of; NULL: nothing yet */
    bool has_old; /* replaced versions are still open */
};

int serving_new(struct serving **out, const struct serving_params *p, struct err *e) {
    *out = NULL;
    if (strlen(p->dir) >= NIGHTS_MAX_PATH - 64)
        return err_set(e, CHIMERE_ELIMIT, "night folder: the path is too long");
    struct serving *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    s->p = *p;
    snprintf(s->dir, sizeof s->dir, "%s", p->dir);
    *out = s;
    return 0;
}

void serving_free(struct serving *s) {
    if (!s) return;
    json_decref(s->used);
    mem_free(s);
}

/* Sets *wish to a new reference to {"night", "artefacts"} of a night. The artefacts are empty if they belong to another
 * model. */
static int files_of(const struct serving *s, const struct nights *n, int64_t night, json_t **wish,
                    struct err *e) {
    json_t *record = NULL;
    int rc = night ? nights_read(n, night, &record, e) : 0;
    json_int_t model = (json_int_t)(s->p.models[0]->hash >> 1);
    bool is_ours = record && json_integer_value(json_object_get(record, "model_hash")) == model;
    json_t *artefacts = is_ours ? json_incref(json_object_get(record, "artefacts")) : json_object();
    *wish = rc ? NULL : json_pack("{s:I,s:o*}", "night", (json_int_t)night, "artefacts", artefacts);
    if (rc) json_decref(artefacts);
    if (!rc && !*wish) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    json_decref(record);
    return rc;
}

/* The same of the current night, with the night on trial as "trial" and its "share". */
static int wish_of(const struct serving *s, const struct nights *n, json_t **wish, struct err *e) {
    struct trial t;
    json_t *trial = NULL;
    int rc = files_of(s, n, nights_current(n), wish, e);
    if (!rc) rc = trial_load(n, &t, e);
    if (!rc && t.night) rc = files_of(s, n, t.night, &trial, e);
    if (trial && (json_object_set_new(*wish, "share", json_real(t.share)) ||
                  json_object_set(*wish, "trial", trial)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    json_decref(trial);
    if (!rc) return 0;
    json_decref(*wish);
    *wish = NULL;
    return rc;
}

/* Writes the path of an artefact; false: the night has none of this name. */
static bool path_of(const struct nights *n, const json_t *artefacts, const char *name, char *out) {
    const char *sha256 = json_string_value(json_object_get(artefacts, name));
    return sha256 && !nights_object(n, sha256, out, NULL);
}

static int open_adapter(const struct serving *s, struct learned_version *v, const char *path,
                        struct err *e) {
    int rc = lora_open(&v->lora, s->p.models[0], path, e);
    for (int32_t i = 1; !rc && i < s->p.n_model; i++) {
        rc = lora_open(&v->copies[v->n_copy], s->p.models[i], path, e);
        if (!rc) lora_join(v->lora, v->copies[v->n_copy++]);
    }
    return rc;
}

/* *out is NULL if the night has no files. */
static int open_version(const struct serving *s, const struct nights *n, const json_t *wish,
                        struct learned_version **out, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    const json_t *artefacts = json_object_get(wish, "artefacts");
    *out = NULL;
    int rc = nights_check(n, artefacts, e);
    if (rc || !json_object_size(artefacts)) return rc;
    struct learned_version *v = mem_zalloc(sizeof *v);
    if (!v) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    v->limits = limits_default();
    v->night = json_integer_value(json_object_get(wish, "night"));
    if (path_of(n, artefacts, arm_artefacts[ARM_TABLE], path))
        rc = engram_table_open(&v->table, path, tok_hash(s->p.tok), (uint32_t)tok_n_vocab(s->p.tok),
                               e);
    if (!rc && path_of(n, artefacts, arm_artefacts[ARM_ADAPTER], path))
        rc = open_adapter(s, v, path, e);
    if (!rc && path_of(n, artefacts, arm_artefacts[ARM_PLAYBOOK], path))
        rc = playbook_read(&v->rules, path, e);
    if (!rc && path_of(n, artefacts, arm_artefacts[ARM_EXAMPLES], path))
        rc = example_load(&v->shots, path, e);
    if (!rc && path_of(n, artefacts, LIMITS_FILE, path)) rc = limits_load(&v->limits, path, e);
    if (rc) learned_version_free(v);
    else *out = v;
    return rc;
}

/* Opens the contexts for drafts, once for each engine; out [n_model], NULL: the night has none. */
static int open_drafts(const struct serving *s, const struct nights *n, const json_t *wish,
                       struct suffix **out, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    int rc = 0;
    if (!path_of(n, json_object_get(wish, "artefacts"), night_step_drafts.artefact, path)) return 0;
    for (int32_t i = 0; !rc && i < s->p.n_model; i++) {
        rc = suffix_new(&out[i], e);
        if (!rc) rc = suffix_load(out[i], path, s->p.models[0]->hash, e);
    }
    return rc;
}

/* Borrows the devices of all copies of the model; false: answers are being generated. */
static bool borrow(const struct serving *s) {
    int32_t n = 0;
    while (n < s->p.n_model && engine_borrow(s->p.engines[n])) n++;
    if (n == s->p.n_model) return true;
    while (n--) engine_give_back(s->p.engines[n]);
    return false;
}

static int change(struct serving *s, const struct nights *n, json_t *wish, struct err *e) {
    struct learned_version *v = NULL, *trial = NULL;
    struct suffix *drafts[GPUS_MAX] = {NULL};
    const json_t *tried = json_object_get(wish, "trial");
    double share = json_number_value(json_object_get(wish, "share"));
    if (!borrow(s)) return 0;
    bool is_first = !s->used;
    json_decref(s->used); /* a version that cannot be opened is not tried again */
    s->used = json_incref(wish);
    int rc = open_version(s, n, wish, &v, e);
    if (!rc) rc = open_drafts(s, n, wish, drafts, e);
    if (!rc && tried) rc = open_version(s, n, tried, &trial, e);
    if (rc) learned_version_free(v);
    else learned_switch(s->p.learned, v, trial, trial ? share : 0);
    s->has_old = !learned_sweep(s->p.learned);
    for (int32_t i = 0; i < s->p.n_model; i++) {
        if (rc) suffix_free(drafts[i]);
        else engine_draft_from(s->p.engines[i], drafts[i]);
        engine_give_back(s->p.engines[i]);
    }
    if (!rc && v) log_info("requests use the files of night %lld now", (long long)v->night);
    else if (!rc && !is_first && !trial)
        log_info("requests use the model without files of a night now");
    if (trial)
        log_info("%.3g %% of the conversations try night %lld", 100 * share,
                 (long long)trial->night);
    return rc;
}

int serving_update(struct serving *s, struct err *e) {
    struct nights *n;
    json_t *wish;
    int rc = nights_open(&n, s->dir, NIGHTS_READ, e);
    if (rc) return rc;
    rc = wish_of(s, n, &wish, e);
    if (!rc && (s->has_old || !json_equal(wish, s->used))) rc = change(s, n, wish, e);
    json_decref(wish);
    nights_close(n);
    return rc;
}
