#include "learn/step/example_file.h"

#include <string.h>

#include "backend/shots.h"
#include "learn/data/collect.h"
#include "learn/json_file.h"

enum { MAX_FILE = 256 << 10 };

static const char *text_of(const json_t *example, const char *key) {
    const char *text = json_string_value(json_object_get(example, key));
    return text ? text : "";
}

static bool fits(const char *text) { return *text && strlen(text) <= SHOTS_MAX_TEXT; }

bool example_put(json_t *store, const char *question, const char *answer, const char *source) {
    json_t *row;
    size_t i;
    if (!fits(question) || !fits(answer) || json_array_size(store) >= SHOTS_MAX) return false;
    json_array_foreach(store, i, row) if (learn_text_hash(text_of(row, "question")) ==
                                          learn_text_hash(question)) return false;
    json_t *o =
        json_pack("{s:s,s:s,s:s}", "question", question, "answer", answer, "source", source);
    return o && !json_array_append_new(store, o);
}

int example_load(json_t **out, const char *path, struct err *e) {
    json_t *o, *row;
    size_t i;
    *out = NULL;
    int rc = json_file_read(&o, path, MAX_FILE, e);
    if (rc) return rc;
    const json_t *list = json_object_get(o, "examples");
    bool ok = json_is_array(list) && json_integer_value(json_object_get(o, "version")) == 1;
    json_t *store = json_array();
    json_array_foreach(list, i, row) ok =
        ok && example_put(store, text_of(row, "question"), text_of(row, "answer"),
                          text_of(row, "source"));
    json_decref(o);
    if (ok && store) *out = store;
    else json_decref(store);
    return *out ? 0 : err_set(e, CHIMERE_EFORMAT, "%s: expected examples of version 1", path);
}

int example_save(const json_t *store, const char *path, struct err *e) {
    return json_file_write(path, json_pack("{s:i,s:O}", "version", 1, "examples", store), e);
}
