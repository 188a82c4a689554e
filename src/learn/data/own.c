#include "learn/data/own.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "eval/harness.h"
#include "learn/data/collect.h"
#include "learn/nights.h"

enum { MAX_TOKENS = 128, MAX_FILE_BYTES = 64 << 20 };

static void path_of(const char *dir, char out[NIGHTS_MAX_PATH]) {
    snprintf(out, NIGHTS_MAX_PATH, "%s/own.jsonl", dir);
}

int own_load(json_t *items, const char *dir, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    path_of(dir, path);
    return file_exists(path) ? eval_load(items, path, OWN_MAX_ITEMS, eval_check_item, e) : 0;
}

static const char *id_of(const json_t *item) {
    const char *id = json_string_value(json_object_get(item, "id"));
    return id ? id : "";
}

const char *own_question(const json_t *item) {
    const json_t *message = json_array_get(json_object_get(item, "messages"), 0);
    const char *text = json_string_value(json_object_get(message, "content"));
    return text ? text : "";
}

const char *own_answer(const json_t *item) {
    const json_t *list = json_object_get(json_object_get(item, "check"), "answer");
    const char *text = json_string_value(json_array_get(list, 0));
    return text ? text : "";
}

bool own_asks(const json_t *items, const char *question) {
    json_t *item;
    size_t i;
    uint64_t hash = learn_text_hash(question);
    json_array_foreach(items, i, item) {
        const char *skill = json_string_value(json_object_get(item, "skill"));
        if (skill && !strcmp(skill, "own") && learn_text_hash(own_question(item)) == hash)
            return true;
    }
    return false;
}

static int save(const json_t *items, const char *dir, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    struct buf b;
    json_t *item;
    size_t i;
    bool full = false;
    buf_init(&b, MAX_FILE_BYTES);
    json_array_foreach(items, i, item) {
        char *line = json_dumps(item, JSON_COMPACT);
        if (!line || buf_printf(&b, "%s\n", line)) full = true;
        mem_free(line);
    }
    int rc = full ? err_set(e, CHIMERE_ELIMIT, "own items: they are too large together")
                  : file_mkdirs(dir, e);
    path_of(dir, path);
    if (!rc) rc = file_write(path, b.n ? b.p : "", b.n, e);
    buf_fini(&b);
    return rc;
}

/* Returns the index of the item with this id; the size of the array if there is none. */
static size_t find(const json_t *items, const char *id) {
    size_t i = 0;
    while (i < json_array_size(items) && strcmp(id_of(json_array_get(items, i)), id) != 0) i++;
    return i;
}

int own_add(const char *dir, const char *question, const char *answer, struct err *e) {
    char id[32];
    if (!*question || !*answer || strlen(question) > OWN_MAX_TEXT || strlen(answer) > OWN_MAX_TEXT)
        return err_set(e, CHIMERE_EINVAL,
                       "eval add: expected a question and an answer of at most %d bytes",
                       OWN_MAX_TEXT);
    snprintf(id, sizeof id, "own-%016llx", (unsigned long long)learn_text_hash(question));
    json_t *item =
        json_pack("{s:s,s:s,s:[{s:s,s:s}],s:b,s:i,s:{s:s,s:[s]}}", "id", id, "skill", "own",
                  "messages", "role", "user", "content", question, "think", 0, "max_tokens",
                  MAX_TOKENS, "check", "kind", "contains", "answer", answer);
    json_t *items = json_array();
    int rc = item ? items ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory")
                  : err_set(e, CHIMERE_EINVAL, "eval add: expected text in UTF-8");
    if (!rc) rc = eval_check_item(item, e);
    if (!rc) rc = own_load(items, dir, e);
    if (!rc) {
        size_t at = find(items, id);
        if (at < json_array_size(items)) json_array_set(items, at, item);
        else if (at < OWN_MAX_ITEMS) json_array_append(items, item);
        else rc = err_set(e, CHIMERE_ELIMIT, "own items: expected at most %d", OWN_MAX_ITEMS);
    }
    if (!rc) rc = save(items, dir, e);
    json_decref(item);
    json_decref(items);
    return rc;
}

int own_remove(const char *dir, const char *id, struct err *e) {
    json_t *items = json_array();
    int rc = items ? own_load(items, dir, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    size_t at = find(items, id);
    if (!rc && at == json_array_size(items))
        rc = err_set(e, CHIMERE_ENOENT, "eval remove: there is no item %.40s", id);
    if (!rc) json_array_remove(items, at);
    if (!rc) rc = save(items, dir, e);
    json_decref(items);
    return rc;
}
