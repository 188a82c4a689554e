#include "learn/step/playbook.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "learn/data/collect.h"
#include "learn/json_file.h"

enum { MAX_FILE = 512 << 10 };

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

/* Adds a list to a playbook; false: it is none. */
static bool put_list(json_t *playbook, const char *pipeline, const json_t *list) {
    json_t *bullets = json_is_array(list) ? json_array() : NULL;
    bool ok = bullets && !json_object_set_new(playbook, pipeline, bullets);
    for (size_t i = 0; ok && i < json_array_size(list); i++) ok = append(bullets, text_of(list, i));
    return ok;
}

int playbook_load(json_t **out, const char *path, struct err *e) {
    json_t *o, *list;
    const char *name;
    *out = NULL;
    int rc = json_file_read(&o, path, MAX_FILE, e);
    if (rc) return rc;
    json_t *lists = json_object_get(o, "pipelines");
    json_t *p = json_object();
    bool ok = p && json_integer_value(json_object_get(o, "version")) == 1 &&
              put_list(p, "", json_object_get(o, "bullets")) && (!lists || json_is_object(lists)) &&
              json_object_size(lists) <= PLAYBOOK_MAX_PIPELINES;
    json_object_foreach(lists, name, list) ok = ok && *name && put_list(p, name, list);
    json_decref(o);
    if (!ok) {
        json_decref(p);
        return err_set(e, CHIMERE_EFORMAT, "%s: expected a playbook of version 1", path);
    }
    *out = p;
    return 0;
}

int playbook_save(const json_t *playbook, const char *path, struct err *e) {
    json_t *lists = json_object(), *bullets = json_object_get(playbook, ""), *list, *o = NULL;
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)playbook, name,
                        list) if (*name && json_array_size(list))
        json_object_set(lists, name, list);
    if (lists && bullets)
        o = json_pack("{s:i,s:O,s:O}", "version", 1, "bullets", bullets, "pipelines", lists);
    json_decref(lists);
    return json_file_write(path, o, e);
}

int playbook_read(json_t **texts, const char *path, struct err *e) {
    json_t *playbook, *list;
    const char *name;
    *texts = NULL;
    int rc = playbook_load(&playbook, path, e);
    if (rc) return rc;
    json_t *out = json_object();
    bool ok = out != NULL;
    json_object_foreach(playbook, name, list) {
        char *text = playbook_text(list);
        ok = ok && text && (!*text || !json_object_set_new(out, name, json_string(text)));
        mem_free(text);
    }
    json_decref(playbook);
    if (!ok) {
        json_decref(out);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    *texts = out;
    return 0;
}

/* ---- DSPy's JSON ---- */

#define QUESTION "Question: "
#define ANSWER " Answer: "

/* Returns a demonstration as {"question", "answer"}; NULL: the bullet is a rule. */
static json_t *demo_of(const char *text) {
    const char *answer = strstr(text, ANSWER);
    size_t n = strlen(QUESTION);
    if (strncmp(text, QUESTION, n) != 0 || !answer || answer < text + n) return NULL;
    return json_pack("{s:b,s:s%,s:s}", "augmented", 0, "question", text + n,
                     (size_t)(answer - text) - n, "answer", answer + strlen(ANSWER));
}

/* Returns a list as a predictor; NULL: out of memory. */
static json_t *predictor_of(const json_t *bullets) {
    struct buf b;
    json_t *demos = json_array(), *out = NULL;
    buf_init(&b, MAX_FILE);
    for (size_t i = 0; i < json_array_size(bullets); i++) {
        json_t *demo = demo_of(text_of(bullets, i));
        if (demo) json_array_append_new(demos, demo);
        else buf_printf(&b, "%s%s", b.n ? "\n" : "", text_of(bullets, i));
    }
    if (!b.failed)
        out = json_pack("{s:[],s:[],s:O,s:{s:s,s:[{s:s,s:s},{s:s,s:s}]},s:n}", "traces", "train",
                        "demos", demos, "signature", "instructions", b.n ? b.p : "", "fields",
                        "prefix", "Question:", "description", "${question}", "prefix",
                        "Answer:", "description", "${answer}", "lm");
    json_decref(demos);
    buf_fini(&b);
    return out;
}

json_t *playbook_to_dspy(const json_t *playbook) {
    json_t *out = json_object(), *list;
    const char *name;
    bool ok = out != NULL;
    json_object_foreach((json_t *)(uintptr_t)playbook, name, list) {
        if (*name && !json_array_size(list)) continue;
        const char *as = *name ? name : PLAYBOOK_PREDICTOR;
        ok = ok && !json_object_set_new(out, as, predictor_of(list));
    }
    if (ok && !json_object_set_new(out, "metadata", json_pack("{s:{}}", "dependency_versions")))
        return out;
    json_decref(out);
    return NULL;
}

static void take_lines(json_t *out, const char *text) {
    while (text && *text) {
        size_t n = strcspn(text, "\n");
        if (n && n <= PLAYBOOK_MAX_BULLET) json_array_append_new(out, json_stringn(text, n));
        text += n + (text[n] == '\n');
    }
}

/* Appends the demonstrations that are short enough. */
static void take_demos(json_t *out, json_t *demos) {
    json_t *demo;
    size_t i;
    json_array_foreach(demos, i, demo) {
        const char *q = json_string_value(json_object_get(demo, "question"));
        const char *a = json_string_value(json_object_get(demo, "answer"));
        char text[PLAYBOOK_MAX_BULLET + 1];
        int n = q && a ? snprintf(text, sizeof text, QUESTION "%s" ANSWER "%s", q, a) : 0;
        if (n > 0 && n <= PLAYBOOK_MAX_BULLET) json_array_append_new(out, json_string(text));
    }
}

json_t *playbook_from_dspy(const json_t *program) {
    json_t *out = json_object(), *predictor;
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)program, name, predictor) {
        json_t *texts = json_array();
        const json_t *signature = json_object_get(predictor, "signature");
        take_lines(texts, json_string_value(json_object_get(signature, "instructions")));
        take_demos(texts, json_object_get(predictor, "demos"));
        if (json_array_size(texts)) json_object_set(out, name, texts);
        json_decref(texts);
    }
    return out;
}

int playbook_imported(json_t **texts, size_t *n_text, const char *path, struct err *e) {
    json_t *program, *list;
    const char *name;
    *texts = NULL;
    *n_text = 0;
    int rc = json_file_read(&program, path, MAX_FILE, e);
    if (rc && rc != CHIMERE_EFORMAT) return rc;
    *texts = playbook_from_dspy(program);
    json_decref(program);
    json_object_foreach(*texts, name, list) *n_text += json_array_size(list);
    if (*n_text) return 0;
    json_decref(*texts);
    *texts = NULL;
    return err_set(e, CHIMERE_EFORMAT, "%s: expected a program of DSPy with instructions or demos",
                   path);
}
