#include "learn/trial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "learn/gate.h"
#include "learn/json_file.h"
#include "store/quality.h"

enum { MAX_FILE = 4096 };

static void path_of(const struct nights *n, char path[NIGHTS_MAX_PATH + 8]) {
    snprintf(path, NIGHTS_MAX_PATH + 8, "%s/trial", nights_dir(n));
}

int trial_start(struct nights *n, const struct trial *t, struct err *e) {
    char path[NIGHTS_MAX_PATH + 8];
    path_of(n, path);
    json_t *o = json_pack("{s:I,s:f,s:I,s:I}", "night", (json_int_t)t->night, "share", t->share,
                          "from", (json_int_t)t->from_s, "until", (json_int_t)t->until_s);
    return json_file_write(path, o, e);
}

int trial_load(const struct nights *n, struct trial *out, struct err *e) {
    char path[NIGHTS_MAX_PATH + 8];
    json_t *o = NULL;
    *out = (struct trial){0};
    path_of(n, path);
    if (!file_exists(path)) return 0;
    int rc = json_file_read(&o, path, MAX_FILE, e);
    if (rc == CHIMERE_ENOENT || rc == CHIMERE_EFORMAT) return 0; /* it ended meanwhile; damaged */
    if (rc) return rc;
    const struct trial t = {.night = json_integer_value(json_object_get(o, "night")),
                            .share = json_number_value(json_object_get(o, "share")),
                            .from_s = json_integer_value(json_object_get(o, "from")),
                            .until_s = json_integer_value(json_object_get(o, "until"))};
    json_decref(o);
    bool ok = t.night > 0 && t.night <= nights_last(n) && t.night != nights_current(n) &&
              t.share > 0 && t.share <= 1 && t.from_s >= 0 && t.until_s >= t.from_s;
    if (ok) *out = t;
    return 0;
}

static json_t *votes_json(int64_t n, int64_t bad) {
    return json_pack("{s:I,s:I}", "rated", (json_int_t)n, "bad", (json_int_t)bad);
}

int trial_look(const struct nights *n, const struct trial *t, struct store *s, int64_t now_s,
               enum trial_end *end, json_t **score, struct err *e) {
    int64_t n_trial, bad_trial, n_now, bad_now, from_ms = t->from_s * 1000;
    *score = NULL;
    *end = TRIAL_GOES_ON;
    int rc = store_quality_votes(s, t->night, from_ms, &n_trial, &bad_trial, e);
    if (!rc) rc = store_quality_votes(s, nights_current(n), from_ms, &n_now, &bad_now, e);
    if (rc) return rc;
    double p = n_trial ? gate_fisher(bad_trial, n_trial, bad_now, n_now) : 1;
    double limit = n_trial ? GATE_ROLLBACK / ((double)n_trial * (double)(n_trial + 1)) : 0;
    if (p < limit) *end = TRIAL_FAILED;
    else if (now_s >= t->until_s) *end = TRIAL_PASSED;
    *score =
        json_pack("{s:o*,s:o*,s:f,s:f,s:f}", "trial", votes_json(n_trial, bad_trial), "current",
                  votes_json(n_now, bad_now), "p", p, "limit", limit, "share", t->share);
    return *score ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

/* Sets the key "canary" of the night's record. */
static int note(struct nights *n, int64_t night, json_t *score, const char *result, struct err *e) {
    json_t *record;
    int rc = nights_read(n, night, &record, e);
    if (rc) return rc;
    if (json_object_set_new(score, "result", json_string(result)) ||
        json_object_set(record, "canary", score))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = nights_rewrite(n, night, record, e);
    json_decref(record);
    return rc;
}

static int remove_file(const struct nights *n, struct err *e) {
    char path[NIGHTS_MAX_PATH + 8];
    path_of(n, path);
    if (!fs_remove(path) || errno == ENOENT) return 0;
    return err_set(e, CHIMERE_EIO, "%s: %s", path, strerror(errno));
}

int trial_drop(struct nights *n, const char *why, struct err *e) {
    struct trial t;
    int rc = trial_load(n, &t, e);
    json_t *score = json_pack("{s:f}", "share", t.share);
    if (!rc && !score) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && t.night) rc = note(n, t.night, score, why, e);
    json_decref(score);
    return rc ? rc : remove_file(n, e);
}

int trial_finish(struct nights *n, struct store *s, int64_t now_s, enum trial_end *end,
                 struct err *e) {
    struct trial t;
    json_t *score = NULL;
    *end = TRIAL_GOES_ON;
    int rc = trial_load(n, &t, e);
    if (rc || !t.night) return rc;
    if (now_s < t.from_s) { /* the clock was set back: the time begins again */
        t.until_s = now_s + (t.until_s - t.from_s);
        t.from_s = now_s;
        return trial_start(n, &t, e);
    }
    rc = trial_look(n, &t, s, now_s, end, &score, e);
    if (!rc && *end == TRIAL_PASSED) {
        rc = note(n, t.night, score, "promoted", e);
        if (!rc) rc = nights_select(n, t.night, e);
    } else if (!rc && *end == TRIAL_FAILED) {
        rc = note(n, t.night, score, "rolled back: users reject its answers", e);
        if (!rc) rc = remove_file(n, e);
    }
    json_decref(score);
    return rc;
}
