#include "serve/resource/pipelines.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "odo/odo.h"
#include "odo/pipeline/pipeline_edit.h"
#include "serve/api/api.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"

enum { MAX_OUT = 80 << 20, MAX_QUESTION = 64 << 10 };

static int dir_of(struct http_request *r, struct pipeline_dir **d, struct err *e) {
    *d = r->s->p.odo ? odo_pipelines(r->s->p.odo) : NULL;
    return *d ? 0
              : err_set(e, CHIMERE_ENOENT,
                        "this server runs without its orchestrator, which has pipelines");
}

static void answer(struct http_request *r, int rc, struct buf *out, const struct err *e) {
    if (rc) http_fail(r, e);
    else http_reply(r, 200, NULL, out);
    buf_fini(out);
}

static int put_list(struct pipeline_dir *d, struct buf *out, struct err *e) {
    struct pipeline_set *set = pipeline_hold(d);
    const struct pipeline *p;
    int rc = 0;
    buf_puts(out, "{\"object\":\"list\",\"folder\":");
    json_out_string(out, pipeline_dir_path(d));
    buf_printf(out, ",\"can_write\":%s,\"problem\":",
               file_can_write(pipeline_dir_path(d)) ? "true" : "false");
    json_out_string(out, pipeline_problem(set));
    buf_puts(out, ",\"data\":[");
    for (int i = 0; (p = pipeline_at(set, i)) && !rc; i++) {
        struct buf text;
        struct err gone = {0};
        buf_init(&text, YAMLFILE_MAX_BYTES + 1);
        bool there = pipeline_text(d, p->name, &text, &gone) == 0;
        buf_puts(out, i ? ",{\"name\":" : "{\"name\":");
        json_out_string(out, p->name);
        buf_puts(out, ",\"about\":");
        json_out_string(out, p->about ? p->about : "");
        buf_puts(out, ",\"text\":");
        if (there) json_out_text(out, text.p, text.n);
        else buf_puts(out, "null"); /* deleted in the meantime */
        buf_putc(out, '}');
        buf_fini(&text);
        if (out->failed) rc = err_set(e, CHIMERE_ELIMIT, "the pipelines are too large to list");
    }
    buf_puts(out, "]}");
    pipeline_release(set);
    return rc;
}

void pipelines_list(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct pipeline_dir *d;
    buf_init(&out, MAX_OUT);
    int rc = dir_of(r, &d, &e);
    if (!rc) rc = put_list(d, &out, &e);
    answer(r, rc, &out, &e);
}

static int text_of(const json_t *q, size_t n_field, const json_t **text, struct err *e) {
    *text = json_object_get(q, "text");
    if (!json_is_string(*text) || json_string_length(*text) > YAMLFILE_MAX_BYTES)
        return err_set(e, CHIMERE_EINVAL, "text: expected YAML of at most %d bytes",
                       YAMLFILE_MAX_BYTES);
    return json_object_size(q) == n_field ? 0 : err_set(e, CHIMERE_EINVAL, "unknown field");
}

/* {"name", "text"} -> {"ok"}, or the line with the error (0: not in a line) and what was expected. */
void pipelines_check(struct http_request *r) {
    struct err e = {0}, wrong = {0};
    struct buf out;
    const json_t *text;
    json_t *q = api_json(r);
    if (!q) return;
    const char *name = json_string_value(json_object_get(q, "name"));
    buf_init(&out, 1 << 16);
    int rc = text_of(q, 2, &text, &e);
    if (!rc && (!name || !*name || strlen(name) > PIPELINE_MAX_NAME || strchr(name, '/')))
        rc = err_set(&e, CHIMERE_EINVAL, "name: expected a pipeline's");
    if (!rc && pipeline_check(name, json_string_value(text), json_string_length(text), &wrong)) {
        /* the error has the form NAME.yaml:LINE: sentence */
        const char *colon = strchr(wrong.text, ':');
        long line = colon ? strtol(colon + 1, NULL, 10) : 0;
        const char *rest =
            line > 0 && strchr(colon + 1, ':') ? strchr(colon + 1, ':') + 1 : wrong.text;
        buf_printf(&out, "{\"object\":\"pipeline.check\",\"ok\":false,\"line\":%ld,\"message\":",
                   line > 0 ? line : 0);
        json_out_string(&out, rest + strspn(rest, " "));
        buf_putc(&out, '}');
    } else if (!rc) {
        buf_puts(&out, "{\"object\":\"pipeline.check\",\"ok\":true}");
    }
    answer(r, rc, &out, &e);
    json_decref(q);
}

void pipelines_put(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct pipeline_dir *d;
    const json_t *text;
    json_t *q = api_json(r);
    if (!q) return;
    buf_init(&out, MAX_OUT);
    int rc = dir_of(r, &d, &e);
    if (!rc) rc = text_of(q, 1, &text, &e);
    if (!rc)
        rc = pipeline_put(d, http_rest(r), json_string_value(text), json_string_length(text), &e);
    if (!rc) rc = put_list(d, &out, &e);
    answer(r, rc, &out, &e);
    json_decref(q);
}

void pipelines_remove(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct pipeline_dir *d;
    buf_init(&out, MAX_OUT);
    int rc = dir_of(r, &d, &e);
    if (!rc) rc = pipeline_remove(d, http_rest(r), &e);
    if (!rc) rc = put_list(d, &out, &e);
    answer(r, rc, &out, &e);
}

/* ---- explain: decide on a question without answering it ---- */

static int explain(struct odo *odo, const json_t *q, json_t **out, struct err *e) {
    const json_t *question = json_object_get(q, "question");
    json_t *wish = json_object_get(q, "odo");
    size_t n_field = 1 + (wish != NULL);
    if (!json_is_string(question) || !json_string_length(question) ||
        json_string_length(question) > MAX_QUESTION)
        return err_set(e, CHIMERE_EINVAL, "question: expected a text of at most %d bytes",
                       MAX_QUESTION);
    if (wish && !json_is_object(wish))
        return err_set(e, CHIMERE_EINVAL, "odo: expected an object, as in a request");
    if (json_object_size(q) != n_field)
        return err_set(e, CHIMERE_EINVAL, "expected question and odo, and no other field");
    struct request a;
    request_init(&a);
    a.extra = wish ? json_pack("{s:O}", "odo", wish) : json_object();
    a.messages = json_pack("[{s:s, s:O}]", "role", "user", "content", question);
    int rc = a.extra && a.messages ? odo_explain(odo, &a, NULL, out, e)
                                   : err_set(e, CHIMERE_ENOMEM, "out of memory");
    request_fini(&a);
    return rc;
}

void pipelines_explain(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct pipeline_dir *d;
    json_t *found = NULL, *q = api_json(r);
    if (!q) return;
    buf_init(&out, 1 << 20);
    int rc = dir_of(r, &d, &e);
    if (!rc) rc = explain(r->s->p.odo, q, &found, &e);
    if (!rc) json_out_value(&out, found);
    json_decref(found);
    answer(r, rc, &out, &e);
    json_decref(q);
}
