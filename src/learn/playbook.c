#include "learn/playbook.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "learn/collect.h"

enum { MAX_FILE = 64 << 10 };

static const char *text_of(const json_t *bullets, size_t i) {
    const char *text = json_string_value(json_object_get(json_array_get(bullets, i), "text"));
    return text ? text : "";
}

static bool has(const json_t *bullets, const char *text) {
    for (size_t i = 0; i < json_array_size(bullets); i++)
        if (learn_text_hash(text_of(bullets, i)) == learn_text_hash(text)) return true;
    return false;
}

/* Appends a bullet whose id is named by its text, so that the same rule has the same id in every night. */
static bool append(json_t *bullets, const char *text) {
    size_t n = strlen(text);
    char id[24];
    if (!n || n > PLAYBOOK_MAX_BULLET || json_array_size(bullets) >= PLAYBOOK_MAX_BULLETS ||
        has(bullets, text))
        return false;
    snprintf(id, sizeof id, "b%08llx", (unsigned long long)(learn_text_hash(text) >> 32));
    return !json_array_append_new(bullets, json_pack("{s:s,s:s}", "id", id, "text", text));
}

json_t *playbook_with(const json_t *bullets, const char *text) {
    json_t *out = json_array();
    json_array_extend(out, (json_t *)(uintptr_t)bullets);
    if (out && append(out, text)) return out;
    json_decref(out);
    return NULL;
}

json_t *playbook_without(const json_t *bullets, size_t i) {
    if (i >= json_array_size(bullets)) return NULL;
    json_t *out = json_array();
    json_array_extend(out, (json_t *)(uintptr_t)bullets);
    if (out && !json_array_remove(out, i)) return out;
    json_decref(out);
    return NULL;
}

json_t *playbook_merge(const json_t *a, const json_t *b) {
    json_t *out = json_array();
    json_array_extend(out, (json_t *)(uintptr_t)a);
    for (size_t i = 0; out && i < json_array_size(b); i++) append(out, text_of(b, i));
    return out;
}

char *playbook_text(const json_t *bullets) {
    struct buf b;
    buf_init(&b, MAX_FILE);
    for (size_t i = 0; i < json_array_size(bullets); i++)
        buf_printf(&b, "%s- %s", i ? "\n" : "", text_of(bullets, i));
    char *out = b.failed ? NULL : mem_strdup(b.n ? b.p : "");
    buf_fini(&b);
    return out;
}

int playbook_load(json_t **out, const char *path, struct err *e) {
    char *text;
    size_t size;
    *out = NULL;
    int rc = file_read(path, MAX_FILE, &text, &size, e);
    if (rc) return rc;
    json_t *o = json_loadb(text, size, 0, NULL), *list = json_object_get(o, "bullets");
    mem_free(text);
    *out = json_array();
    bool ok = *out && json_is_array(list) && json_integer_value(json_object_get(o, "version")) == 1;
    for (size_t i = 0; ok && i < json_array_size(list); i++) ok = append(*out, text_of(list, i));
    json_decref(o);
    if (ok) return 0;
    json_decref(*out);
    *out = NULL;
    return err_set(e, CHIMERE_EFORMAT, "%s: expected a playbook of version 1", path);
}

int playbook_save(const json_t *bullets, const char *path, struct err *e) {
    json_t *o = json_pack("{s:i,s:O}", "version", 1, "bullets", bullets);
    char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
    int rc = text ? file_write(path, text, strlen(text), e)
                  : err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(text);
    json_decref(o);
    return rc;
}

int playbook_read(char **text, const char *path, struct err *e) {
    json_t *bullets;
    *text = NULL;
    int rc = playbook_load(&bullets, path, e);
    if (rc) return rc;
    *text = playbook_text(bullets);
    json_decref(bullets);
    return *text ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}
