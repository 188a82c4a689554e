#include "learn/forget.h"

#include <stdio.h>
#include <string.h>

#include "base/os/fs.h"
#include "base/log.h"
#include "learn/data/collect.h"
#include "learn/step/night_step.h"

struct forgetting {
    struct nights *nights;
    struct night_person who;
    struct learn_forgotten *out;
    struct err *e;
};

bool night_is_theirs(const struct night_person *who, const char *source) {
    size_t n = strlen(who->source);
    if (strncmp(source, who->source, n) != 0) return false;
    return !source[n] || (who->below && source[n] == '/');
}

/* Returns true if this person's answers trained the artefact, or may have because its teachers are not recorded. */
static bool has_taught(const struct forgetting *f, const json_t *record, const char *name) {
    const json_t *list = json_object_get(json_object_get(record, "owners"), name);
    json_t *v;
    size_t i;
    if (!json_is_array(list)) return true;
    json_array_foreach(list, i, v) {
        const char *source = json_string_value(v);
        if (!source || night_is_theirs(&f->who, source)) return true;
    }
    return false;
}

/* Makes a copy of an artefact without the person's part. *sha256 is the hash of the copy, or "" if nothing is left or
 * the artefact is damaged. */
static int revise(struct forgetting *f, const struct night_step *step, const char *object,
                  char sha256[65], size_t *n_gone) {
    char from[NIGHTS_MAX_PATH], to[NIGHTS_MAX_PATH + 32];
    bool is_empty = false;
    struct err why = {0};
    snprintf(to, sizeof to, "%s/forget.part", nights_dir(f->nights));
    int rc = nights_object(f->nights, object, from, f->e);
    if (rc) return rc;
    rc = step->forget(from, to, &f->who, n_gone, &is_empty, &why);
    *sha256 = 0;
    /* an artefact that cannot be read is removed completely */
    if (rc == CHIMERE_EFORMAT || rc == CHIMERE_ENOENT) {
        log_warn("forget: %s", why.text);
        *n_gone = 1;
        rc = 0;
    } else if (rc) {
        *f->e = why;
    } else if (*n_gone && !is_empty) {
        rc = nights_keep(f->nights, to, sha256, f->e);
    }
    fs_remove(to);
    return rc;
}

static const struct night_step *step_of(const char *artefact) {
    const struct night_step *const *s = night_steps;
    while (*s && (!(*s)->artefact || strcmp((*s)->artefact, artefact) != 0)) s++;
    return *s;
}

/* Returns true for a log, which counts with its artefact. */
static bool is_log(const char *name) {
    const struct night_step *const *s = night_steps;
    while (*s && (!(*s)->log || strcmp((*s)->log, name) != 0)) s++;
    return *s != NULL;
}

/* Processes one artefact of a record. *changed is set if it was replaced or removed. */
static int forget_artefact(struct forgetting *f, const json_t *record, json_t *kept,
                           const char *name, const char *object, bool *changed) {
    char sha256[65] = "";
    size_t n_gone = 0;
    const struct night_step *step = step_of(name);
    bool has_parts = step && step->forget;
    int rc = has_parts ? revise(f, step, object, sha256, &n_gone) : 0;
    bool gone = has_parts ? n_gone != 0 : has_taught(f, record, name);
    if (rc || !gone) return rc;
    *changed = true;
    if (has_parts) f->out->n_doc += n_gone;
    else f->out->n_adapter += !is_log(name);
    if (*sha256) json_object_set_new(kept, name, json_string(sha256));
    else json_object_del(kept, name);
    return 0;
}

static int forget_night(struct forgetting *f, int64_t night) {
    json_t *record, *v;
    const char *name;
    bool changed = false;
    int rc = nights_read(f->nights, night, &record, f->e);
    if (rc == CHIMERE_ENOENT) return 0;
    if (rc) return rc;
    json_t *old = json_object_get(record, "artefacts"), *kept = json_copy(old);
    if (json_is_object(old) && !kept) rc = err_set(f->e, CHIMERE_ENOMEM, "out of memory");
    json_object_foreach(old, name, v) {
        if (!rc) rc = forget_artefact(f, record, kept, name, json_string_value(v), &changed);
    }
    if (!rc && changed) {
        json_object_set(record, "artefacts", kept);
        json_object_set_new(record, "forgotten", json_true());
        rc = nights_rewrite(f->nights, night, record, f->e);
        f->out->n_night++;
    }
    json_decref(kept);
    json_decref(record);
    return rc;
}

int learn_forget(struct nights *nights, const char *owner, struct learn_forgotten *out,
                 struct err *e) {
    char source[LEARN_SOURCE];
    struct forgetting f = {.nights = nights, .who = {source, *owner != 0}, .out = out, .e = e};
    *out = (struct learn_forgotten){.n_night = 0};
    learn_source(owner, source);
    int rc = 0;
    for (int64_t i = 1; !rc && i <= nights_last(nights); i++) rc = forget_night(&f, i);
    if (!rc) rc = nights_select(nights, nights_current(nights), e);
    return rc ? rc : nights_sweep(nights, e);
}
