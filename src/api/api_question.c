/* api_question.c: converts a caller's options to the JSON that a client of the server would send, and reads that as a
 * request. So both interfaces share one reader and one set of checks. */
#include <string.h>

#include "api/api_question.h"
#include "base/rng.h"
#include "serve/fields/fields.h"

static int add_json(json_t *q, const char *field, const char *text, struct err *e) {
    if (!text) return 0;
    json_error_t je;
    json_t *v = json_loads(text, JSON_REJECT_DUPLICATES, &je);
    if (!v) return err_set(e, CHIMERE_EINVAL, "%s: expected JSON: %s", field, je.text);
    json_object_set_new(q, field, v);
    return 0;
}

static void add_sampling(json_t *q, const struct chimere_options *o) {
    if (o->max_tokens > 0) json_object_set_new(q, "max_tokens", json_integer(o->max_tokens));
    if (o->seed) json_object_set_new(q, "seed", json_integer((json_int_t)(o->seed & INT64_MAX)));
    json_object_set_new(q, "temperature", json_real((double)o->temperature));
    json_object_set_new(q, "top_k", json_integer(o->top_k));
    json_object_set_new(q, "top_p", json_real((double)o->top_p));
    json_object_set_new(q, "min_p", json_real((double)o->min_p));
    json_object_set_new(q, "repeat_penalty", json_real((double)o->repeat_penalty));
    json_object_set_new(q, "presence_penalty", json_real((double)o->presence_penalty));
    json_object_set_new(q, "frequency_penalty", json_real((double)o->frequency_penalty));
    if (!o->n_stop) return;
    json_t *stops = json_array();
    for (size_t i = 0; i < o->n_stop; i++) json_array_append_new(stops, json_string(o->stops[i]));
    json_object_set_new(q, "stop", stops);
}

static int add_form(json_t *q, const struct chimere_options *o, struct err *e) {
    if (o->json_schema && o->grammar)
        return err_set(e, CHIMERE_EINVAL, "json_schema, grammar: expected one of them");
    if (o->grammar) json_object_set_new(q, "grammar", json_string(o->grammar));
    if (!o->json_schema) return 0;
    json_t *form, *schema = json_loads(o->json_schema, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(schema)) {
        json_decref(schema);
        return err_set(e, CHIMERE_EINVAL, "json_schema: expected a JSON object");
    }
    if (json_object_size(schema))
        form = json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name",
                         "answer", "schema", schema);
    else form = json_pack("{s:s}", "type", "json_object");
    json_decref(schema);
    json_object_set_new(q, "response_format", form);
    return 0;
}

static int add_chat(json_t *q, const struct chimere_options *o, struct err *e) {
    static const char *const choices[] = {"auto", "none", "required"};
    if (o->tool_choice < CHIMERE_TOOLS_AUTO || o->tool_choice > CHIMERE_TOOLS_REQUIRED)
        return err_set(e, CHIMERE_EINVAL, "tool_choice: expected one of CHIMERE_TOOLS_*");
    if (o->tools) json_object_set_new(q, "tool_choice", json_string(choices[o->tool_choice]));
    json_object_set_new(q, "chat_template_kwargs",
                        json_pack("{s:b}", "enable_thinking", (int)o->think));
    if (o->think && o->think_budget >= 0)
        json_object_set_new(q, "thinking_budget", json_integer(o->think_budget));
    return add_json(q, "tools", o->tools, e);
}

static int add_more(json_t *q, const struct chimere_options *o, struct err *e) {
    if (!o->more) return 0;
    json_t *more = json_loads(o->more, JSON_REJECT_DUPLICATES, NULL);
    int rc = json_is_object(more) ? 0 : err_set(e, CHIMERE_EINVAL, "more: expected a JSON object");
    if (!rc) json_object_update(q, more);
    json_decref(more);
    return rc;
}

int api_question(struct request *request, const char *messages, const char *text,
                 const struct chimere_options *o, struct err *e) {
    json_t *q = json_object();
    int rc = q ? add_json(q, "messages", messages, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && text && json_object_set_new(q, "prompt", json_string(text)))
        rc = err_set(e, CHIMERE_EINVAL, "text: expected UTF-8");
    if (!rc) add_sampling(q, o);
    if (!rc) rc = add_form(q, o, e);
    if (!rc && messages) rc = add_chat(q, o, e);
    if (!rc) rc = add_more(q, o, e);
    struct fields f = {.request = request, .n_probs = -1};
    if (!rc) rc = fields_read(&f, q, messages ? FIELDS_CHAT : FIELDS_TEXT, e);
    if (!rc && request->n != 1)
        rc = err_set(e, CHIMERE_EINVAL, "n: expected 1, got %d", request->n);
    json_decref(q);
    if (!o->seed && !rc) request->sampling.seed = rng_entropy();
    request->progress = o->on_event != NULL;
    return rc;
}
