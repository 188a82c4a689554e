#include "learn/step/replay.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "learn/json_file.h"

enum { MAX_BYTES = 64 << 20 };

int replay_init(struct replay *r, const struct zo_step *how, int32_t rank, struct err *e) {
    *r = (struct replay){.how = *how, .rank = rank};
    r->loss = mem_alloc_array((size_t)how->n_step * (size_t)how->n_member, sizeof *r->loss);
    return r->loss ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

void replay_fini(struct replay *r) {
    mem_free(r->loss);
    *r = (struct replay){.n = 0};
}

/* ---- the file ---- */

int replay_save(const struct replay *r, const char *path, struct err *e) {
    json_t *steps = json_array();
    for (int32_t i = 0; i < r->n; i++) {
        json_t *row = json_array();
        for (int32_t k = 0; k < r->how.n_member; k++)
            json_array_append_new(row, json_real(r->loss[i * r->how.n_member + k]));
        json_array_append_new(steps, row);
    }
    json_t *o =
        json_pack("{s:s,s:I,s:i,s:i,s:f,s:f,s:i,s:o}", "rule", r->how.rule->name, "seed",
                  (json_int_t)r->how.seed, "steps", r->how.n_step, "members", r->how.n_member, "lr",
                  (double)r->how.lr, "eps", (double)r->how.eps, "rank", r->rank, "losses", steps);
    /* 17 digits identify a double */
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(o);
    int rc = text ? file_write(path, text, strlen(text), e)
                  : err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(text);
    return rc;
}

static int32_t whole(const json_t *o, const char *key, int32_t least, int32_t most) {
    const json_t *v = json_object_get(o, key);
    json_int_t n = json_integer_value(v);
    return json_is_integer(v) && n >= least && n <= most ? (int32_t)n : -1;
}

/* Reads everything except the losses; false: a value is missing or out of range. */
static bool read_how(const json_t *o, struct zo_step *how, int32_t *rank) {
    const char *name = json_string_value(json_object_get(o, "rule"));
    *how = (struct zo_step){.seed = (uint64_t)json_integer_value(json_object_get(o, "seed")),
                            .n_step = whole(o, "steps", 1, REPLAY_MAX_STEPS),
                            .n_member = whole(o, "members", 2, ZO_MAX_MEMBERS),
                            .lr = (float)json_number_value(json_object_get(o, "lr")),
                            .eps = (float)json_number_value(json_object_get(o, "eps"))};
    *rank = whole(o, "rank", 1, INT16_MAX);
    return name && !zo_rule_of(&how->rule, name, NULL) && how->n_step > 0 && how->n_member > 0 &&
           *rank > 0 && isfinite(how->lr) && isfinite(how->eps) && how->eps > 0;
}

/* Reads the losses of one step; false: they are not those of all members. */
static bool read_losses(const json_t *row, double *out, int32_t n) {
    if (json_array_size(row) != (size_t)n) return false;
    for (int32_t k = 0; k < n; k++) {
        out[k] = json_number_value(json_array_get(row, (size_t)k));
        if (!json_is_number(json_array_get(row, (size_t)k)) || !isfinite(out[k])) return false;
    }
    return true;
}

int replay_load(struct replay *r, const char *path, struct err *e) {
    struct zo_step how;
    int32_t rank;
    json_t *o;
    *r = (struct replay){.n = 0};
    int rc = json_file_read(&o, path, MAX_BYTES, e);
    if (rc) return rc;
    const json_t *steps = json_object_get(o, "losses");
    bool is_log = read_how(o, &how, &rank) && json_is_array(steps) &&
                  json_array_size(steps) <= (size_t)how.n_step;
    if (is_log) rc = replay_init(r, &how, rank, e);
    for (size_t i = 0; is_log && !rc && i < json_array_size(steps); i++) {
        is_log = read_losses(json_array_get(steps, i), r->loss + r->n * how.n_member, how.n_member);
        r->n++;
    }
    json_decref(o);
    if (!rc && !is_log) rc = err_set(e, CHIMERE_EFORMAT, "%s: expected a log of training", path);
    if (rc) replay_fini(r);
    return rc;
}

/* ---- the adapter ---- */

int replay_adapter(struct lora **out, struct model *m, const struct replay *r, struct err *e) {
    struct zo_step s = r->how;
    size_t n;
    int rc = lora_new(out, m, r->rank, r->how.seed, e);
    if (rc) return rc;
    float *b = lora_b(*out, &n), *velocity = mem_alloc_array(n, sizeof *velocity);
    if (!velocity) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (s.step = 0; !rc && s.step < r->n; s.step++)
        zo_update(&s, r->loss + s.step * s.n_member, b, velocity, n);
    mem_free(velocity);
    if (!rc) rc = lora_commit(*out, e);
    if (rc) {
        lora_close(*out);
        *out = NULL;
    }
    return rc;
}
