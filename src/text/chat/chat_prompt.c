/* chat_prompt.c: a model's template: finds its capabilities and renders conversations with it.
 *
 * Capabilities are found by rendering small conversations and looking for marker words in the result. The template
 * then receives what it understands: arguments as object or as JSON text, content as string or as parts, null or
 * empty content next to tool calls. */
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/str.h"
#include "text/chat/chat_impl.h"
#include "text/chat_fold.h"

struct chat_template {
    struct jinja *jinja; /* owned */
    struct chat_caps caps;
    bool takes_parts;     /* renders content parts */
    bool calls_need_null; /* renders tool calls only if content is null */
    bool calls_need_text; /* renders tool calls only if content is a string */
    bool has_developer;   /* knows this role; otherwise it becomes a system message */
    /* firefunction's template: expects tools as text, and the date, under its own names */
    bool wants_functions;
};

/* ---- probes ---- */

static bool is_trusted(const char *top, const char *key, const char *s, size_t n) {
    static const char *const roles[] = {"system",    "user",     "assistant", "tool",
                                        "developer", "function", "ipython"};
    if (top == key || strcmp(top, key) == 0) return str_ends(top, "_token");
    if (strcmp(top, "messages") != 0 || strcmp(key, "role") != 0) return false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strlen(roles[i]) == n && memcmp(roles[i], s, n) == 0) return true;
    return false;
}

static int put_dump(const char *p, size_t n, void *arg) { return buf_put(arg, p, n); }

/* Adds what a template like firefunction's reads instead of `tools` and strftime_now. */
static void add_functions(const struct chat_template *t, json_t *context, const struct tm *now) {
    char date[64];
    struct tm clock;
    if (!t->wants_functions) return;
    time_t seconds = time(NULL);
    if (!now) now = localtime_r(&seconds, &clock);
    json_t *tools = json_object_get(context, "tools");
    struct buf text;
    buf_init(&text, 64u << 20);
    if (json_array_size(tools)) json_dump_callback(tools, put_dump, &text, JSON_INDENT(2));
    if (!json_object_get(context, "functions"))
        json_object_set_new(context, "functions", json_stringn(text.n ? text.p : "", text.n));
    buf_fini(&text);
    if (!json_object_get(context, "datetime") && now &&
        strftime(date, sizeof date, "%b %d %Y %H:%M:%S %Z", now))
        json_object_set_new(context, "datetime", json_string(date));
}

/* Renders messages (takes ownership) and returns true if a word appears and `without` does not. */
static bool shows(const struct chat_template *t, json_t *messages, const char *word,
                  const char *without) {
    static const struct jinja_limits limits = {2000000, 200, 1u << 20, 64u << 20};
    static const struct tm epoch = {.tm_year = 126, .tm_mday = 1, .tm_wday = 4};
    struct jinja_env env = {.limits = &limits, .now = &epoch};
    json_t *tools = json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s}}}}}]", "type", "function",
                              "function", "name", "PROBETOOL", "description", "d", "parameters",
                              "type", "object", "properties", "PROBEKEY", "type", "string");
    json_t *context =
        json_pack("{s:o,s:o,s:n,s:b,s:s,s:s}", "messages", messages, "tools", tools, "documents",
                  "add_generation_prompt", 0, "bos_token", "", "eos_token", "");
    struct jinja_output out = {0};
    if (context) add_functions(t, context, &epoch);
    bool ok = context && jinja_render(t->jinja, context, &env, &out, NULL) == 0;
    if (ok) ok = memmem(out.text.p, out.text.n, word, strlen(word)) != NULL;
    if (ok && without) ok = memmem(out.text.p, out.text.n, without, strlen(without)) == NULL;
    jinja_output_fini(&out);
    json_decref(context);
    return ok;
}

static json_t *user(void) { return json_pack("{s:s,s:s}", "role", "user", "content", "PROBEUSER"); }

static json_t *call_messages(json_t *args, json_t *content) {
    return json_pack("[o,{s:s,s:o,s:[{s:s,s:s,s:{s:s,s:o}}]},{s:s,s:s,s:s,s:s}]", user(), "role",
                     "assistant", "content", content, "tool_calls", "type", "function", "id",
                     "call00001", "function", "name", "PROBENAME", "arguments", args, "role",
                     "tool", "tool_call_id", "call00001", "name", "PROBENAME", "content", "r");
}
static json_t *object_args(void) { return json_pack("{s:s}", "PROBEARG", "PROBEVALUE"); }
static json_t *text_args(void) { return json_string("{\"PROBEARG\": \"PROBEVALUE\"}"); }

static void probe(struct chat_template *t) {
    struct chat_caps *c = &t->caps;
    static const char quoted[] = "\\\"PROBEARG\\\""; /* text that was dumped as a JSON string */
    t->takes_parts = shows(t,
                           json_pack("[{s:s,s:[{s:s,s:s}]}]", "role", "user", "content", "type",
                                     "text", "text", "PROBEPART"),
                           "PROBEPART", "'type'") &&
                     !shows(t,
                            json_pack("[{s:s,s:[{s:s,s:s}]}]", "role", "user", "content", "type",
                                      "text", "text", "PROBEPART"),
                            "\"type\": \"text\"", NULL);
    bool takes_text = shows(t, json_pack("[o]", user()), "PROBEUSER", NULL);
    c->wants_parts = !takes_text && t->takes_parts;
    c->has_system =
        shows(t, json_pack("[{s:s,s:s},o]", "role", "system", "content", "PROBESYS", user()),
              "PROBESYS", NULL) ||
        (c->wants_parts && shows(t,
                                 json_pack("[{s:s,s:[{s:s,s:s}]}]", "role", "system", "content",
                                           "type", "text", "text", "PROBESYS"),
                                 "PROBESYS", NULL));
    c->has_tools =
        shows(t, json_pack("[o]", user()), "PROBETOOL", NULL) ||
        shows(t, json_pack("[{s:s,s:s},o]", "role", "system", "content", "PROBESYS", user()),
              "PROBETOOL", NULL);
    bool null_object = shows(t, call_messages(object_args(), json_null()), "PROBEVALUE", NULL);
    bool null_text = shows(t, call_messages(text_args(), json_null()), "PROBEVALUE", quoted);
    bool text_object = shows(t, call_messages(object_args(), json_string("")), "PROBEVALUE", NULL);
    bool text_text = shows(t, call_messages(text_args(), json_string("")), "PROBEVALUE", quoted);
    /* if an object is printed in Python's notation, which is not JSON, the template expects text */
    bool python = (null_object && !shows(t, call_messages(object_args(), json_null()), "PROBEVALUE",
                                         "{'PROBEARG'")) ||
                  (text_object && !shows(t, call_messages(object_args(), json_string("")),
                                         "PROBEVALUE", "{'PROBEARG'"));
    c->wants_json_args = (null_text || text_text) && ((!null_object && !text_object) || python);
    bool null_ok = c->wants_json_args ? null_text : null_object,
         text_ok = c->wants_json_args ? text_text : text_object;
    bool none =
        null_ok &&
        !shows(t, call_messages(c->wants_json_args ? text_args() : object_args(), json_null()),
               "PROBEVALUE", "None");
    /* if calls are rendered without a mark, they are JSON or Python */
    if (c->calls == CHAT_CALLS_NONE && c->has_tools && (null_ok || text_ok))
        c->calls = CHAT_CALLS_LLAMA;
    t->calls_need_null = null_ok && !text_ok;
    t->calls_need_text = text_ok && (!null_ok || none);
}

int chat_template_new(struct chat_template **out, const char *text, size_t n, struct err *e) {
    *out = NULL;
    struct chat_template *t = mem_zalloc(sizeof *t);
    if (!t) return err_set(e, CHIMERE_ENOMEM, "template: out of memory");
    int rc = jinja_compile(&t->jinja, text, n, e);
    if (rc) {
        mem_free(t);
        return rc;
    }
    t->caps.calls = chat_form_find(t->jinja);
    t->caps.think = chat_think_find(t->jinja);
    t->caps.has_reasoning = t->caps.think != NULL;
    t->caps.takes_enable_thinking = jinja_mentions(t->jinja, "enable_thinking");
    t->has_developer = jinja_mentions(t->jinja, "developer");
    t->wants_functions =
        jinja_mentions(t->jinja, "functions") && jinja_mentions(t->jinja, "datetime");
    probe(t);
    *out = t;
    return 0;
}

void chat_template_free(struct chat_template *t) {
    if (!t) return;
    jinja_free(t->jinja);
    mem_free(t);
}

const struct chat_caps *chat_template_caps(const struct chat_template *t) { return &t->caps; }

enum chat_calls chat_template_frames(const struct chat_template *t) {
    return t && t->caps.calls == CHAT_CALLS_HARMONY ? t->caps.calls : CHAT_CALLS_NONE;
}

/* ---- adapting a conversation to the template ---- */

static json_t *first_field(json_t *m, const char *const *names) {
    for (; *names; names++) {
        json_t *v = json_object_get(m, *names);
        if (v && !json_is_null(v)) return v;
    }
    return NULL;
}

static void fit_reasoning(json_t *m) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning", NULL};
    json_t *v = first_field(m, names);
    if (!v) return;
    if (!json_object_get(m, "thinking")) json_object_set(m, "thinking", v);
    json_object_set(m, "reasoning_content", v);
}

/* Joins the texts of all parts into one string; NULL if a part is not text. */
static json_t *join_parts(json_t *parts) {
    struct buf b;
    size_t i;
    json_t *part;
    bool ok = true;
    buf_init(&b, 64u << 20);
    json_array_foreach(parts, i, part) {
        const char *text = json_string_value(json_object_get(part, "text"));
        if (!text && json_is_string(part)) text = json_string_value(part);
        if (!text) ok = false;
        else buf_puts(&b, text);
    }
    json_t *out = ok && !b.failed ? json_stringn(b.p ? b.p : "", b.n) : NULL;
    buf_fini(&b);
    return out;
}

static int fit_content(const struct chat_template *t, json_t *m, struct err *e) {
    json_t *c = json_object_get(m, "content"), *calls = json_object_get(m, "tool_calls");
    bool has_calls = json_array_size(calls) > 0,
         is_empty = json_is_string(c) && !json_string_length(c);
    if (json_is_array(c) && !t->takes_parts) {
        json_t *text = join_parts(c);
        if (!text)
            return err_set(
                e, CHIMERE_EUNSUPPORTED,
                "messages: this model's template takes text only, no other content parts");
        json_object_set_new(m, "content", text);
    } else if (json_is_string(c) && t->caps.wants_parts) {
        json_object_set_new(m, "content", json_pack("[{s:s,s:O}]", "type", "text", "text", c));
    } else if (has_calls && t->calls_need_null && is_empty) {
        json_object_set_new(m, "content", json_null());
    } else if ((!c || json_is_null(c)) && !(has_calls && !t->calls_need_text)) {
        json_object_set_new(m, "content", json_string(""));
    } else if (!c) {
        json_object_set_new(m, "content", json_null());
    }
    return 0;
}

/* Parses arguments that a model wrote; every number keeps its text. */
static json_t *read_arguments(const char *text, size_t n) {
    struct buf strict;
    buf_init(&strict, 256u << 20);
    json_t *o = NULL;
    if (chat_json_strict(&strict, text, n, CHAT_JSON_MARKED))
        o = json_loadb(strict.p, strict.n, JSON_ALLOW_NUL, NULL);
    buf_fini(&strict);
    return o;
}

static void fit_arguments(const struct chat_template *t, json_t *fn) {
    json_t *args = json_object_get(fn, "arguments");
    if (json_is_string(args) && !t->caps.wants_json_args) {
        json_t *parsed = read_arguments(json_string_value(args), json_string_length(args));
        /* invalid arguments in the history must not make the chat fail */
        if (!json_is_object(parsed)) {
            json_decref(parsed);
            parsed = json_string_length(args) ? json_pack("{s:O}", "raw_arguments", args)
                                              : json_object();
        }
        json_object_set_new(fn, "arguments", parsed);
    } else if (json_is_object(args) && t->caps.wants_json_args) {
        struct buf text;
        buf_init(&text, 64u << 20);
        if (json_dump_callback(args, put_dump, &text, 0) == 0)
            json_object_set_new(fn, "arguments", json_stringn(text.p, text.n));
        buf_fini(&text);
    }
}

static bool has_role(json_t *m, const char *role) {
    const char *r = json_string_value(json_object_get(m, "role"));
    return r && strcmp(r, role) == 0;
}

/* fold: system messages are first moved to the front. */
static json_t *fit(const struct chat_template *t, json_t *context, bool fold, struct err *e) {
    json_t *given = json_object_get(context, "messages"),
           *folded = fold ? chat_fold(given, t->caps.has_system) : NULL, *out = json_copy(context),
           *messages = json_deep_copy(folded ? folded : given);
    size_t i, k;
    json_t *m, *call;
    int rc = out && (folded || !fold) ? 0 : err_set(e, CHIMERE_ENOMEM, "template: out of memory");
    json_decref(folded);
    if (!rc && !json_is_array(messages))
        rc = err_set(e, CHIMERE_EFORMAT, "messages: expected a list");
    json_array_foreach(messages, i, m) {
        if (!rc && !json_is_object(m))
            rc = err_set(e, CHIMERE_EFORMAT, "messages[%zu]: expected an object", i);
        if (rc) break;
        fit_reasoning(m);
        if (!t->has_developer && has_role(m, "developer"))
            json_object_set_new(m, "role", json_string("system"));
        rc = fit_content(t, m, e);
        json_array_foreach(json_object_get(m, "tool_calls"), k, call) {
            json_t *fn = json_object_get(call, "function");
            fit_arguments(t, fn ? fn : call);
        }
    }
    if (!rc) {
        json_object_set(out, "messages", messages);
        /* the transformers library always passes these, and templates compare them with none */
        if (!json_object_get(out, "tools")) json_object_set_new(out, "tools", json_null());
        if (!json_object_get(out, "documents")) json_object_set_new(out, "documents", json_null());
    } else {
        json_decref(out);
        out = NULL;
    }
    json_decref(messages);
    return out;
}

static bool opens_think(const struct chat_think *t, const char *s, size_t n) {
    if (!t) t = chat_think_default();
    size_t n_open = strlen(t->open);
    while (n && (s[n - 1] == '\n' || s[n - 1] == ' ')) n--;
    return n >= n_open && memcmp(s + n - n_open, t->open, n_open) == 0;
}

/* Renders the adapted context. CHIMERE_EFORMAT: the template refuses or skips a later system message. */
static int render_fitted(const struct chat_template *t, json_t *context, bool fold,
                         const struct jinja_env *env, struct chat_prompt *prompt, struct err *e) {
    json_t *fitted = fit(t, context, fold, e), *messages = json_object_get(fitted, "messages");
    if (!fitted) return e ? e->code : CHIMERE_EFORMAT;
    add_functions(t, fitted, env ? env->now : NULL);
    int rc = jinja_render(t->jinja, fitted, env, &prompt->out, e);
    if (!rc && !fold && chat_drops_system(messages, prompt->out.text.p, prompt->out.text.n))
        rc = err_set(e, CHIMERE_EFORMAT, "messages: the template skips a system message");
    json_decref(fitted);
    return rc;
}

/* Removes the NUL marks of numbers that a template printed directly; a context contains no other NUL. */
static void drop_number_marks(struct jinja_output *out) {
    size_t to = 0, from = 0;
    if (!out->text.n || !memchr(out->text.p, 0, out->text.n)) return;
    for (size_t r = 0; r < out->n_run; r++) {
        size_t n = out->runs[r].n;
        for (size_t i = 0; i < n; i++, from++)
            if (out->text.p[from]) out->text.p[to++] = out->text.p[from];
            else out->runs[r].n--;
    }
    buf_cut(&out->text, to);
}

int chat_render(const struct chat_template *t, json_t *context, bool as_is, const struct tm *now,
                struct chat_prompt *prompt, struct err *e) {
    *prompt = (struct chat_prompt){0};
    struct jinja_env env = {.now = now, .is_trusted = is_trusted};
    json_t *messages = json_object_get(context, "messages");
    struct err first = {0};
    int rc;
    if (as_is) {
        rc = jinja_render(t->jinja, context, &env, &prompt->out, e);
    } else {
        bool has_later = chat_has_later_system(messages),
             fold = !t->caps.has_system && json_is_array(messages);
        rc = render_fitted(t, context, fold, &env, prompt, &first);
        /* the template does not accept a system message there: fold and try again */
        if (rc && has_later && !fold) {
            chat_prompt_fini(prompt);
            *prompt = (struct chat_prompt){0};
            rc = render_fitted(t, context, true, &env, prompt, e);
        } else if (rc && e) {
            *e = first;
        }
    }
    if (!rc) drop_number_marks(&prompt->out);
    if (!rc) prompt->in_think = opens_think(t->caps.think, prompt->out.text.p, prompt->out.text.n);
    return rc;
}

void chat_prompt_fini(struct chat_prompt *p) { jinja_output_fini(&p->out); }

/* ---- parsing JSON ---- */

/* Every value except the first follows an opening bracket, a comma or a colon, and each of these may also be in a
 * string. So counting them in one pass gives an upper bound. Sizes are those of jansson with malloc's overhead: an
 * empty container has a table. */
size_t chat_json_cost(const char *text, size_t n) {
    enum { CONTAINER_BYTES = 256, VALUE_BYTES = 64 };
    size_t n_open = 0, n_value = 1;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            else in_string = c != '"';
        } else {
            in_string = c == '"';
            n_open += c == '{' || c == '[';
            n_value += c == ',' || c == ':';
        }
    }
    return n + n_open * CONTAINER_BYTES + n_value * VALUE_BYTES;
}

/* Parses JSON that jansson refuses: numbers become the nearest double, and characters that a prompt cannot contain
 * become U+FFFD. */
static json_t *read_refused(const char *text, size_t n, const json_error_t *why) {
    enum json_error_code code = json_error_code(why);
    if (code != json_error_numeric_overflow && code != json_error_null_character &&
        code != json_error_null_byte_in_key && !strstr(why->text, "invalid Unicode"))
        return NULL;
    struct buf strict;
    buf_init(&strict, (size_t)1 << 30);
    json_t *j = NULL;
    if (chat_json_strict(&strict, text, n, CHAT_JSON_NEAREST))
        j = json_loadb(strict.p, strict.n, 0, NULL);
    buf_fini(&strict);
    return j;
}

json_t *chat_json_object(const char *text, size_t n, const char *what, struct err *e) {
    json_error_t je;
    if (chat_json_cost(text, n) > CHAT_JSON_MAX_COST) {
        err_set(e, CHIMERE_ELIMIT,
                "%s: too many values: they would take more than %d MiB of memory", what,
                CHAT_JSON_MAX_COST >> 20);
        return NULL;
    }
    json_t *j = json_loadb(text, n, 0, &je);
    if (!j) j = read_refused(text, n, &je);
    if (j && json_is_object(j)) return j;
    if (j) {
        json_decref(j);
        err_set(e, CHIMERE_EFORMAT, "%s: expected a JSON object", what);
        return NULL;
    }
    const char *why = je.text;
    switch (json_error_code(&je)) {
    case json_error_invalid_utf8: why = "text that is not valid UTF-8"; break;
    case json_error_stack_overflow: why = "nested more than 2048 deep"; break;
    default: break;
    }
    err_set(e, CHIMERE_EFORMAT, "%s: line %d column %d: %s", what, je.line, je.column, why);
    return NULL;
}

json_t *chat_json_exact(const char *text, size_t n) {
    enum { MAX_DIGITS = 18 }; /* this many digits always fit */
    size_t run = 0, longest = 0;
    for (size_t i = 0; i < n; i++) {
        run = text[i] >= '0' && text[i] <= '9' ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    return longest > MAX_DIGITS ? read_arguments(text, n) : NULL;
}
