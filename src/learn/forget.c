#include "learn/forget.h"

#include <stdio.h>
#include <string.h>

#include "base/os/fs.h"
#include "base/log.h"
#include "engram/revise.h"
#include "learn/collect.h"
#include "learn/night_step.h"

struct forgetting {
    struct nights *nights;
    char source[LEARN_SOURCE];
    bool below; /* include the users of a key */
    struct learn_forgotten *out;
    struct err *e;
};

static bool is_theirs(const struct forgetting *f, const char *source) {
    size_t n = strlen(f->source);
    if (strncmp(source, f->source, n) != 0) return false;
    return !source[n] || (f->below && source[n] == '/');
}

/* Returns true if this person's answers trained the artefact, or may have because its teachers are not recorded. */
static bool has_taught(const struct forgetting *f, const json_t *record, const char *name) {
    const json_t *list = json_object_get(json_object_get(record, "owners"), name);
    json_t *v;
    size_t i;
    if (!json_is_array(list)) return true;
    json_array_foreach(list, i, v) {
        const char *source = json_string_value(v);
        if (!source || is_theirs(f, source)) return true;
    }
    return false;
}

/* Makes a copy of a table without the person's documents. *sha256 is the hash of the copy, or "" if no document is
 * left or the table is damaged. */
static int revise(struct forgetting *f, const char *object, char sha256[65], uint64_t *n_gone) {
    char from[NIGHTS_MAX_PATH], to[NIGHTS_MAX_PATH + 32];
    struct engram_revised revised = {0};
    const struct engram_revision r = {.forget = f->source, .forget_below = f->below};
    struct err why = {0};
    snprintf(to, sizeof to, "%s/forget.engram", nights_dir(f->nights));
    int rc = nights_object(f->nights, object, from, f->e);
    if (rc) return rc;
    const char *tables[] = {from};
    rc = engram_revise(to, tables, 1, &r, &revised, &why);
    *n_gone = revised.n_dropped;
    *sha256 = 0;
    /* a table that cannot be read is removed completely */
    if (rc == CHIMERE_EFORMAT || rc == CHIMERE_ENOENT) {
        log_warn("forget: %s", why.text);
        *n_gone = 1;
        rc = 0;
    } else if (rc) {
        *f->e = why;
    } else if (revised.n_dropped && revised.n_doc) {
        rc = nights_keep(f->nights, to, sha256, f->e);
    }
    fs_remove(to);
    return rc;
}

/* Processes one artefact of a record. *changed is set if it was replaced or removed. */
static int forget_artefact(struct forgetting *f, const json_t *record, json_t *kept,
                           const char *name, const char *object, bool *changed) {
    char sha256[65] = "";
    uint64_t n_gone = 0;
    bool is_table = !strcmp(name, night_step_engram.artefact);
    int rc = 0;
    if (is_table) rc = revise(f, object, sha256, &n_gone);
    bool gone = is_table ? n_gone != 0 : has_taught(f, record, name);
    if (rc || !gone) return rc;
    *changed = true;
    if (is_table) f->out->n_doc += n_gone;
    else f->out->n_adapter++;
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
    struct forgetting f = {.nights = nights, .below = *owner != 0, .out = out, .e = e};
    *out = (struct learn_forgotten){.n_night = 0};
    learn_source(owner, f.source);
    int rc = 0;
    for (int64_t i = 1; !rc && i <= nights_last(nights); i++) rc = forget_night(&f, i);
    if (!rc) rc = nights_select(nights, nights_current(nights), e);
    return rc ? rc : nights_sweep(nights, e);
}
