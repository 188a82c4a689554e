/* fields.c: the table of request fields. */
#include "serve/fields/fields_guided.h"
#include "serve/fields/fields_impl.h"
#include "serve/api/json_out.h"
#include "serve/fields/fields_tools.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

typedef int read_fn(struct fields *f, json_t *v, const char *name, struct err *e);

enum kind {
    K_FLOAT, /* stored at `at` in sampling, low..high */
    K_INT,   /* likewise */
    K_FN,    /* read by `read` */
    K_SAFE,  /* a hint: any value is accepted and ignored */
    K_SKIP,  /* read by other code */
    K_NONE,  /* null or a text in `only`; other values would change the answer and are refused */
};

struct row {
    const char *name;
    unsigned apis;
    enum kind kind;
    size_t at;
    double low, high;
    read_fn *read;
    const char *only; /* K_NONE: '|'-separated texts that mean the default */
};

/* ---- readers ---- */

int fields_context(struct request *a, const char *name, json_t *v, struct err *e) {
    if (!a->template_context) a->template_context = json_object();
    if (json_object_set(a->template_context, name, v))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    return 0;
}

#define BOOL_READER(fn, target)                                                                    \
    static int fn(struct fields *f, json_t *v, const char *name, struct err *e) {                  \
        return fields_bool(v, name, &target, e);                                                   \
    }
BOOL_READER(f_stream, f->stream)
BOOL_READER(f_progress, f->progress)
BOOL_READER(f_timings, f->timings)
BOOL_READER(f_verbose, f->verbose)
BOOL_READER(f_echo, f->request->echo)
BOOL_READER(f_ignore_eos, f->request->sampling.ignore_eos)
BOOL_READER(f_continue, f->request->continue_last)
BOOL_READER(f_keep_stop, f->request->keep_stop)
BOOL_READER(f_probs_flag, f->request->probs)

static int f_generation(struct fields *f, json_t *v, const char *name, struct err *e) {
    bool opens = true;
    int rc = fields_bool(v, name, &opens, e);
    f->opens_answer = opens ? 1 : -1;
    return rc;
}

static int f_stream_options(struct fields *f, json_t *v, const char *name, struct err *e) {
    const char *key;
    json_t *x;
    if (!json_is_object(v)) return fields_expected(e, name, "an object");
    json_object_foreach(v, key, x) {
        bool flag = false;
        char where[96];
        snprintf(where, sizeof where, "%s.%.60s", name, key);
        if (json_is_null(x)) continue;
        int rc = fields_bool(x, where, &flag, e);
        if (rc) return rc;
        if (strcmp(key, "include_usage") == 0) f->usage = flag;
        else if (strcmp(key, "include_obfuscation") == 0) f->obfuscate_off = !flag;
        else return err_set(e, CHIMERE_EUNSUPPORTED, "%s: unknown field", where);
    }
    return 0;
}

static int f_max_tokens(struct fields *f, json_t *v, const char *name, struct err *e) {
    int64_t n = 0;
    /* -1: some clients send it for "as many as fit" */
    if (json_is_integer(v) && json_integer_value(v) == -1) return 0;
    int rc = fields_int(v, name, 0, INT32_MAX, &n, e);
    f->request->no_answer = !rc && !n;
    if (!rc) f->request->max_tokens = (int32_t)(n ? n : 1);
    return rc;
}

static int f_top_k(struct fields *f, json_t *v, const char *name, struct err *e) {
    int64_t n = 0; /* -1: some clients send it for "off" */
    int rc = fields_int(v, name, -1, 1 << 30, &n, e);
    if (!rc) f->request->sampling.top_k = (int32_t)(n < 0 ? 0 : n);
    return rc;
}

static int f_stop_tokens(struct fields *f, json_t *v, const char *name, struct err *e) {
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n > ANSWER_MAX_STOPS)
        return fields_expected(e, name, "a list of at most 64 token ids");
    int32_t *ids = arena_alloc(&f->request->arena, (n + 1) * sizeof *ids);
    if (!ids) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        int64_t id = 0;
        int rc = fields_int(json_array_get(v, i), name, 0, INT32_MAX, &id, e);
        if (rc) return rc;
        ids[i] = (int32_t)id;
    }
    f->request->stop_tokens = ids;
    f->request->n_stop_token = n;
    return 0;
}

static int f_max_ms(struct fields *f, json_t *v, const char *name, struct err *e) {
    int64_t n = 0;
    int rc = fields_int(v, name, -1, INT32_MAX, &n, e);
    if (!rc) f->request->max_ms = (int32_t)(n < 0 ? 0 : n);
    return rc;
}

static int f_n(struct fields *f, json_t *v, const char *name, struct err *e) {
    int64_t n = 0;
    int rc = fields_int(v, name, 1, REQUEST_MAX_CHOICES, &n, e);
    if (rc) return rc;
    if (strcmp(name, "n") == 0) f->request->n = (int32_t)n;
    else f->best_of = (int32_t)n;
    return 0;
}

static int f_seed(struct fields *f, json_t *v, const char *name, struct err *e) {
    double x = json_number_value(v);
    if (!json_is_integer(v) && !(json_is_real(v) && x == floor(x) && fabs(x) <= 0x1p53))
        return fields_expected(e, name, "a whole number");
    int64_t n = json_is_integer(v) ? json_integer_value(v) : (int64_t)x;
    if (n != -1) f->request->sampling.seed = (uint64_t)n;
    return 0;
}

static int f_stop(struct fields *f, json_t *v, const char *name, struct err *e) {
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (!json_is_array(v) && !json_is_string(v))
        return fields_expected(e, name, "a text or a list of texts");
    if (n > ANSWER_MAX_STOPS)
        return err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d texts, got %zu", name,
                       ANSWER_MAX_STOPS, n);
    const char **stops = arena_alloc(&f->request->arena, (n + 1) * sizeof *stops);
    if (!stops) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    size_t n_stop = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_is_array(v) ? json_array_get(v, i) : v;
        char where[48];
        if (json_is_string(text) && !json_string_length(text))
            continue; /* clients send it for "none" */
        snprintf(where, sizeof where, json_is_array(v) ? "%s[%zu]" : "%s", name, i);
        int rc = fields_str(f, text, where, ANSWER_MAX_STOP_BYTES, &stops[n_stop++], e);
        if (rc) return rc;
    }
    f->request->stops = stops;
    f->request->n_stop = n_stop;
    return 0;
}

static int bias_of(const char *name, const json_t *bias, float *out, struct err *e) {
    double x = json_is_false(bias) ? -INFINITY : json_number_value(bias);
    if ((!json_is_number(bias) && !json_is_false(bias)) || x > 100 || (x < -100 && !isinf(x)))
        return fields_expected(e, name, "numbers from -100 to 100");
    *out = (float)(x <= -100 ? -INFINITY : x);
    return 0;
}

struct biases {
    struct logit_bias *list; /* in the arena, FIELDS_MAX_BIAS */
    size_t n;
};

static int add_bias(struct biases *b, int64_t token, float bias, struct err *e) {
    if (b->n == FIELDS_MAX_BIAS)
        return err_set(e, CHIMERE_ELIMIT, "logit_bias: expected at most %d tokens",
                       FIELDS_MAX_BIAS);
    b->list[b->n++] = (struct logit_bias){(int32_t)token, bias};
    return 0;
}

/* Adds a bias for a token id, or for each token of a text. A key of digits is an id. */
static int add_biased(struct fields *f, struct biases *b, const char *name, const char *key,
                      size_t n_key, const json_t *value, struct err *e) {
    int32_t *ids = NULL;
    size_t n = 0;
    int64_t id;
    float bias = 0;
    int rc = bias_of(name, value, &bias, e);
    if (rc) return rc;
    size_t n_sign = key[0] == '-', n_digit = strspn(key + n_sign, "0123456789");
    bool is_id = n_digit && n_sign + n_digit == n_key;
    if (is_id && str_to_i64(key, 0, INT32_MAX, &id)) return add_bias(b, id, bias, e);
    if (is_id || !f->tok) return fields_expected(e, name, "token ids as keys");
    rc = tok_encode(f->tok, key, n_key, false, false, &ids, &n, e);
    for (size_t i = 0; !rc && i < n; i++) rc = add_bias(b, ids[i], bias, e);
    mem_free(ids);
    return rc;
}

/* {"TOKEN": bias} as in OpenAI's API, or [[token, bias], ...]; TOKEN is an id, or a text as in llama-server. */
static int f_bias(struct fields *f, json_t *v, const char *name, struct err *e) {
    size_t n = json_is_array(v) ? json_array_size(v) : json_object_size(v), i = 0;
    const char *key;
    json_t *x;
    int rc = 0;
    if (!json_is_array(v) && !json_is_object(v)) return fields_expected(e, name, "an object");
    if (n > FIELDS_MAX_BIAS)
        return err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d tokens", name, FIELDS_MAX_BIAS);
    struct biases b = {arena_alloc(&f->request->arena, (FIELDS_MAX_BIAS + 1) * sizeof *b.list), 0};
    if (!b.list) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    json_array_foreach(v, i, x) {
        json_t *id = json_array_get(x, 0), *value = json_array_get(x, 1);
        bool is_id = json_is_integer(id) && json_integer_value(id) >= 0 &&
                     json_integer_value(id) <= INT32_MAX;
        if (!is_id && !json_is_string(id))
            return fields_expected(e, name, "pairs of a token id and a number");
        float bias = 0;
        rc = bias_of(name, value, &bias, e);
        if (!rc && is_id) rc = add_bias(&b, json_integer_value(id), bias, e);
        else if (!rc)
            rc = add_biased(f, &b, name, json_string_value(id), json_string_length(id), value, e);
        if (rc) return rc;
    }
    json_object_foreach(v, key, x) {
        rc = add_biased(f, &b, name, key, strlen(key), x, e);
        if (rc) return rc;
    }
    f->request->sampling.bias = b.list;
    f->request->sampling.n_bias = b.n;
    return 0;
}

static int f_top_logprobs(struct fields *f, json_t *v, const char *name, struct err *e) {
    int64_t n = 0;
    int rc = fields_int(v, name, 0, SAMPLER_MAX_PROBS, &n, e);
    if (!rc) f->n_probs = (int32_t)n;
    return rc;
}

/* llama-server's name of the field: 0 means none. */
static int f_n_probs(struct fields *f, json_t *v, const char *name, struct err *e) {
    int rc = f_top_logprobs(f, v, name, e);
    if (!rc && f->n_probs > 0) f->request->probs = true;
    if (!rc && !f->n_probs) f->n_probs = -1;
    return rc;
}

/* In completions, logprobs is a number. */
static int f_text_logprobs(struct fields *f, json_t *v, const char *name, struct err *e) {
    if (json_is_false(v)) return 0;
    int rc = f_top_logprobs(f, v, name, e);
    if (!rc) f->request->probs = true;
    return rc;
}

static int f_breakers(struct fields *f, json_t *v, const char *name, struct err *e) {
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n > 64) return fields_expected(e, name, "a list of at most 64 texts");
    const char **list = arena_alloc(&f->request->arena, (n + 1) * sizeof *list);
    if (!list) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        int rc = fields_str(f, json_array_get(v, i), name, 256, &list[i], e);
        if (rc) return rc;
    }
    f->request->sampling.dry_breakers = list;
    f->request->sampling.n_dry_breaker = n;
    return 0;
}

/* ---- format of the answer ---- */

int fields_schema(struct request *a, json_t *schema, const char *where, struct err *e) {
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return fields_expected(e, where, "a JSON schema");
    json_decref(a->schema);
    a->schema = json_incref(schema);
    a->format = REQUEST_JSON_SCHEMA;
    return 0;
}

static int f_format(struct fields *f, json_t *v, const char *name, struct err *e) {
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type) return fields_expected(e, name, "an object with a type");
    if (strcmp(type, "text") == 0) return 0;
    if (strcmp(type, "json_object") == 0) {
        json_t *schema = json_object_get(v, "schema");
        f->request->format = REQUEST_JSON_OBJECT;
        return schema && !json_is_null(schema) ? fields_schema(f->request, schema, name, e) : 0;
    }
    if (strcmp(type, "json_schema") == 0) {
        /* the chat API has an inner object, the responses API does not */
        json_t *inner = json_object_get(v, "json_schema");
        if (!inner) inner = v;
        json_t *schema = json_object_get(inner, "schema");
        char where[80];
        snprintf(where, sizeof where, "%s%s.schema", name, inner == v ? "" : ".json_schema");
        f->format_name = json_object_get(inner, "name");
        return schema ? fields_schema(f->request, schema, where, e)
                      : fields_expected(e, where, "a JSON schema");
    }
    return err_set(e, CHIMERE_EINVAL,
                   "%s.type: expected text, json_object or json_schema, got %.60s", name, type);
}

static int f_schema(struct fields *f, json_t *v, const char *name, struct err *e) {
    return fields_schema(f->request, v, name, e);
}

static int f_grammar(struct fields *f, json_t *v, const char *name, struct err *e) {
    if (json_is_string(v) && !json_string_length(v)) return 0;
    int rc = fields_str(f, v, name, 1 << 20, &f->request->grammar, e);
    if (!rc) f->request->format = REQUEST_GBNF;
    return rc;
}

/* Responses: {"format": {...}, "verbosity": "medium"}. Messages: output_config {"format", "effort"}. */
static int f_text_config(struct fields *f, json_t *v, const char *name, struct err *e) {
    const char *key;
    json_t *x;
    if (!json_is_object(v)) return fields_expected(e, name, "an object");
    json_object_foreach(v, key, x) {
        char where[80];
        snprintf(where, sizeof where, "%s.%.40s", name, key);
        int rc = 0;
        if (json_is_null(x)) continue;
        if (strcmp(key, "format") == 0) rc = f_format(f, x, where, e);
        else if (strcmp(key, "effort") == 0) rc = fields_effort(f, x, where, e);
        else if (strcmp(key, "verbosity") == 0) rc = fields_context(f->request, key, x, e);
        else rc = err_set(e, CHIMERE_EUNSUPPORTED, "%s: unknown field", where);
        if (rc) return rc;
    }
    return 0;
}

/* ---- thinking ---- */

static int f_effort(struct fields *f, json_t *v, const char *name, struct err *e) {
    return fields_effort(f, v, name, e);
}

static int f_reasoning(struct fields *f, json_t *v, const char *name, struct err *e) {
    const char *key;
    json_t *x;
    if (!json_is_object(v)) return fields_expected(e, name, "an object");
    json_object_foreach(v, key, x) {
        char where[80];
        snprintf(where, sizeof where, "%s.%.40s", name, key);
        int rc = 0;
        if (json_is_null(x)) continue;
        if (strcmp(key, "effort") == 0) rc = fields_effort(f, x, where, e);
        else if (strcmp(key, "summary") != 0 && strcmp(key, "generate_summary") != 0)
            rc = err_set(e, CHIMERE_EUNSUPPORTED, "%s: unknown field", where);
        if (rc) return rc;
    }
    return 0;
}

static int set_budget(struct fields *f, const json_t *v, const char *name, struct err *e) {
    int64_t n = 0;
    int rc = fields_int(v, name, -1, INT32_MAX, &n, e);
    if (!rc) f->request->sampling.think_budget = (int32_t)n;
    return rc;
}

static int f_budget(struct fields *f, json_t *v, const char *name, struct err *e) {
    int rc = set_budget(f, v, name, e);
    if (!rc && !f->think_named) f->request->think = f->request->sampling.think_budget != 0;
    return rc;
}

/* Messages: {"type": "enabled" | "disabled" | "adaptive", "budget_tokens": n} */
static int f_thinking(struct fields *f, json_t *v, const char *name, struct err *e) {
    const char *type = json_string_value(json_object_get(v, "type"));
    json_t *budget = json_object_get(v, "budget_tokens");
    f->think_named = true;
    if (type && strcmp(type, "disabled") == 0) {
        f->request->think = false;
        return 0;
    }
    if (!type || (strcmp(type, "enabled") != 0 && strcmp(type, "adaptive") != 0))
        return fields_expected(e, "thinking.type", "enabled, disabled or adaptive");
    (void)name;
    f->request->think = true;
    return budget ? set_budget(f, budget, "thinking.budget_tokens", e) : 0;
}

static int f_enable_thinking(struct fields *f, json_t *v, const char *name, struct err *e) {
    f->think_named = true;
    return fields_bool(v, name, &f->request->think, e);
}

static int f_template_kwargs(struct fields *f, json_t *v, const char *name, struct err *e) {
    static const char *const ours[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                       "eos_token"};
    const char *key;
    json_t *x;
    if (!json_is_object(v)) return fields_expected(e, name, "an object");
    json_object_foreach(v, key, x) {
        int rc = 0;
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            if (strcmp(key, ours[i]) == 0)
                return err_set(e, CHIMERE_EINVAL, "%s.%s: this is set by the server", name, key);
        if (strcmp(key, "enable_thinking") == 0)
            rc = f_enable_thinking(f, x, "chat_template_kwargs.enable_thinking", e);
        else rc = fields_context(f->request, key, x, e);
        if (rc) return rc;
    }
    return 0;
}

/* ---- execution of the request ---- */

static int f_session(struct fields *f, json_t *v, const char *name, struct err *e) {
    if (json_is_string(v) && !json_string_length(v)) return 0;
    return fields_str(f, v, name, 512, &f->request->session, e);
}

/* Names the user. If the request has no session, this is also the session's name. */
static int f_user(struct fields *f, json_t *v, const char *name, struct err *e) {
    int rc = json_is_string(v) && !json_string_length(v)
                 ? 0
                 : fields_str(f, v, name, 512, &f->request->user, e);
    return rc ? rc : f_session(f, v, name, e);
}

static int f_metadata(struct fields *f, json_t *v, const char *name, struct err *e) {
    if (!json_is_object(v)) return fields_expected(e, name, "an object");
    json_t *user = json_object_get(v, "user_id");
    return user && !json_is_null(user) ? f_user(f, user, "metadata.user_id", e) : 0;
}

/* Edits of the conversation, for this request only. Unknown edits are refused. Clearing that depends on a token count
 * is left to the client. */
static int f_context(struct fields *f, json_t *v, const char *name, struct err *e) {
    static const char *const skipped[] = {"clear_tool_uses_20250919", "compact_20260112"};
    json_t *edits = json_object_get(v, "edits"), *edit;
    size_t i;
    if (!json_is_object(v) || (edits && !json_is_array(edits)))
        return fields_expected(e, name, "an object with a list of edits");
    json_array_foreach(edits, i, edit) {
        const char *type = json_string_value(json_object_get(edit, "type"));
        bool known = false;
        for (size_t k = 0; type && k < sizeof skipped / sizeof *skipped; k++)
            known |= strcmp(type, skipped[k]) == 0;
        if (type && strcmp(type, "clear_thinking_20251015") == 0) {
            json_t *keep = json_object_get(edit, "keep"), *turns = json_object_get(keep, "value");
            const char *all = json_string_value(keep);
            int64_t n = 1;
            int rc = 0;
            if (turns)
                rc = fields_int(turns, "context_management.edits.keep.value", 1, INT32_MAX, &n, e);
            else if (all && strcmp(all, "all") == 0) n = INT32_MAX;
            else if (keep && !json_is_null(keep))
                rc =
                    fields_expected(e, "context_management.edits.keep", "all or a number of turns");
            if (rc) return rc;
            f->keep_thinking = (int32_t)n;
        } else if (!known) {
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "context_management.edits[%zu].type: expected clear_thinking_20251015, "
                           "clear_tool_uses_20250919 or compact_20260112, got %.60s",
                           i, type ? type : "none");
        }
    }
    return 0;
}

/* Removes the thinking of all assistant turns except the last n. */
static void clear_thinking(struct request *a, int32_t n) {
    for (size_t i = json_array_size(a->messages); i-- > 0;) {
        json_t *m = json_array_get(a->messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!role || strcmp(role, "assistant") != 0) continue;
        if (n > 0) n--;
        else json_object_del(m, "reasoning_content");
    }
}

static int f_slot(struct fields *f, json_t *v, const char *name, struct err *e) {
    int64_t n = 0;
    int rc = fields_int(v, name, -1, ENGINE_MAX_SEQS - 1, &n, e);
    if (!rc) f->request->slot = (int32_t)n;
    return rc;
}

static int f_cache(struct fields *f, json_t *v, const char *name, struct err *e) {
    bool cache = true;
    int rc = fields_bool(v, name, &cache, e);
    if (!rc) f->request->no_cache = !cache;
    return rc;
}

static int f_lora(struct fields *f, json_t *v, const char *name, struct err *e) {
    size_t i;
    json_t *x;
    if (!json_is_array(v) || json_array_size(v) > REQUEST_MAX_LORAS)
        return fields_expected(e, name, "a list of {id, scale}");
    struct request_lora *l = arena_alloc(&f->request->arena, (json_array_size(v) + 1) * sizeof *l);
    if (!l) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    json_array_foreach(v, i, x) {
        int64_t id = 0;
        json_t *scale = json_object_get(x, "scale");
        int rc = fields_int(json_object_get(x, "id"), "lora.id", 0, REQUEST_MAX_LORAS, &id, e);
        if (rc) return rc;
        if (!json_is_number(scale) || fabs(json_number_value(scale)) > 1000)
            return fields_expected(e, "lora.scale", "a number from -1000 to 1000");
        l[i] = (struct request_lora){(int32_t)id, (float)json_number_value(scale)};
    }
    f->request->loras = l;
    f->request->n_lora = (int32_t)json_array_size(v);
    return 0;
}

/* Reads a mass, or {mass, min, entropy}. */
static int f_experts(struct fields *f, json_t *v, const char *name, struct err *e) {
    json_t *mass = json_is_object(v) ? json_object_get(v, "mass") : v;
    json_t *min = json_is_object(v) ? json_object_get(v, "min") : NULL;
    json_t *entropy = json_is_object(v) ? json_object_get(v, "entropy") : NULL;
    int64_t n = 1;
    if (!json_is_number(mass) || !(json_number_value(mass) > 0) || json_number_value(mass) > 1)
        return fields_expected(e, name, "a mass above 0 and at most 1, or {mass, min, entropy}");
    double all_at = entropy ? json_number_value(entropy) : 0;
    if (entropy && (!json_is_number(entropy) || !(all_at >= 0 && all_at <= 20)))
        return fields_expected(e, "experts.entropy", "a number of nats from 0 to 20");
    int rc = min ? fields_int(min, "experts.min", 1, 1024, &n, e) : 0;
    if (!rc)
        f->request->keep =
            (struct moe_keep){(float)json_number_value(mass), (int32_t)n, (float)all_at};
    return rc;
}

static int f_extra(struct fields *f, json_t *v, const char *name, struct err *e) {
    if (!f->request->extra) f->request->extra = json_object();
    if (json_object_set(f->request->extra, name, v))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    return 0;
}

/* ---- tools and messages ---- */

static int f_parallel(struct fields *f, json_t *v, const char *name, struct err *e) {
    bool parallel = true;
    int rc = fields_bool(v, name, &parallel, e);
    if (!rc) f->request->one_call = !parallel;
    return rc;
}

static int f_messages(struct fields *f, json_t *v, const char *name, struct err *e) {
    (void)name;
    return fields_messages(f->request, v, e);
}

/* Checks a text, {"prompt_string": text} as in llama-server, or a list of token ids and texts. Replaces the object by
 * its text. */
static int check_prompt(json_t *list, size_t at, json_t **v, const char *name, struct err *e) {
    size_t i;
    json_t *x, *text = json_object_get(*v, "prompt_string");
    if (json_is_object(*v)) {
        const json_t *media = json_object_get(*v, "multimodal_data");
        bool has_media =
            media && !json_is_null(media) && !(json_is_array(media) && !json_array_size(media));
        if (!json_is_string(text) || has_media)
            return fields_expected(e, name, "a prompt_string without multimodal_data");
        json_incref(text);
        if (list) json_array_set_new(list, at, text); /* this frees the object */
        *v = text;
        return 0;
    }
    if (json_is_string(*v)) return 0;
    if (!json_is_array(*v)) return fields_expected(e, name, "a text or a list of token ids");
    json_array_foreach(*v, i, x) if (!json_is_integer(x) &&
                                     !json_is_string(x)) return fields_expected(e, name,
                                                                                "token ids");
    return 0;
}

/* Reads a text, token ids, or a list of either. A list that contains an id is a single prompt. */
static int f_prompt(struct fields *f, json_t *v, const char *name, struct err *e) {
    bool is_list = json_is_array(v) && json_array_size(v);
    size_t i;
    json_t *x;
    json_array_foreach(v, i, x) is_list = is_list && !json_is_integer(x);
    size_t n = is_list ? json_array_size(v) : 1;
    if (n > FIELDS_MAX_PROMPTS)
        return err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d, got %zu", name,
                       FIELDS_MAX_PROMPTS, n);
    json_t *first = NULL;
    for (i = 0; i < n; i++) {
        char where[40];
        snprintf(where, sizeof where, n > 1 ? "%s[%zu]" : "%s", name, i);
        json_t *one = is_list ? json_array_get(v, i) : v;
        bool is_object = !is_list && json_is_object(one);
        int rc = check_prompt(is_list ? v : NULL, i, &one, where, e);
        if (rc) {
            json_decref(first);
            return rc;
        }
        if (!i) first = is_object ? one : json_incref(one);
    }
    f->prompts = n > 1 ? v : NULL;
    f->request->prompt = first;
    return 0;
}

#define OTHER_READER(fn, reader)                                                                   \
    static int fn(struct fields *f, json_t *v, const char *name, struct err *e) {                  \
        (void)name;                                                                                \
        return reader(f, v, e);                                                                    \
    }
OTHER_READER(f_tools, fields_tools)
OTHER_READER(f_functions, fields_functions)
OTHER_READER(f_choice, fields_choice)
OTHER_READER(f_input, fields_input)
OTHER_READER(f_instructions, fields_instructions)
OTHER_READER(f_amessages, fields_anthropic_messages)
OTHER_READER(f_system, fields_anthropic_system)

/* ---- the table ---- */

enum {
    C = FIELDS_CHAT,
    T = FIELDS_TEXT,
    R = FIELDS_RESPONSES,
    M = FIELDS_MESSAGES,
    CT = C | T,
    ALL = C | T | R | M,
};
#define FLOAT(name, apis, field, low, high)                                                        \
    { name, apis, K_FLOAT, offsetof(struct sampler_params, field), low, high, NULL, NULL }
#define INT(name, apis, field, low, high)                                                          \
    { name, apis, K_INT, offsetof(struct sampler_params, field), low, high, NULL, NULL }
#define FN(name, apis, read)                                                                       \
    { name, apis, K_FN, 0, 0, 0, read, NULL }
#define SAFE(name, apis)                                                                           \
    { name, apis, K_SAFE, 0, 0, 0, NULL, NULL }
#define NONE(name, apis, only)                                                                     \
    { name, apis, K_NONE, 0, 0, 0, NULL, only }
/* clang-format off */
static const struct row rows[] = {
    {"model", ALL, K_SKIP, 0, 0, 0, NULL, NULL}, /* the server reads it */
    FN("messages", C, f_messages),
    FN("messages", M, f_amessages),
    FN("system", M, f_system),
    FN("input", R, f_input),
    FN("instructions", R, f_instructions),
    FN("prompt", T, f_prompt),
    FN("stream", ALL, f_stream),
    FN("stream_options", C | T | R, f_stream_options),
    FN("return_progress", C | T | R, f_progress),
    FN("timings_per_token", C | T | R, f_timings),
    FN("verbose", CT, f_verbose),

    FLOAT("temperature", ALL, temperature, 0, 100),
    FLOAT("top_p", ALL, top_p, 0, 1),
    FLOAT("min_p", ALL, min_p, 0, 1),
    FLOAT("typical_p", ALL, typical_p, 0, 1),
    FLOAT("top_n_sigma", ALL, top_n_sigma, -1, 1000),
    FN("top_k", ALL, f_top_k),
    FN("samplers", ALL, fields_samplers),
    INT("min_keep", ALL, min_keep, 1, 1 << 30),
    FLOAT("xtc_probability", ALL, xtc_probability, 0, 1),
    FLOAT("xtc_threshold", ALL, xtc_threshold, 0, 1),
    FLOAT("dynatemp_range", ALL, dynatemp_range, 0, 100),
    FLOAT("dynatemp_exponent", ALL, dynatemp_exponent, 0, 100),
    INT("mirostat", ALL, mirostat, 0, 2),
    FLOAT("mirostat_tau", ALL, mirostat_tau, 0, 100),
    FLOAT("mirostat_eta", ALL, mirostat_eta, 0, 1),
    FLOAT("repeat_penalty", ALL, repeat_penalty, 0.01, 100),
    FLOAT("repetition_penalty", ALL, repeat_penalty, 0.01, 100),
    FLOAT("frequency_penalty", ALL, frequency_penalty, -100, 100),
    FLOAT("presence_penalty", ALL, presence_penalty, -100, 100),
    INT("repeat_last_n", ALL, penalty_last_n, -1, 1 << 30),
    INT("penalty_last_n", ALL, penalty_last_n, -1, 1 << 30),
    FLOAT("dry_multiplier", ALL, dry_multiplier, 0, 100),
    FLOAT("dry_base", ALL, dry_base, 0, 100),
    INT("dry_allowed_length", ALL, dry_allowed_length, 0, 1 << 30),
    INT("dry_penalty_last_n", ALL, dry_last_n, -1, 1 << 30),
    INT("dry_last_n", ALL, dry_last_n, -1, 1 << 30),
    FN("dry_sequence_breakers", ALL, f_breakers),
    INT("min_tokens", ALL, min_tokens, 0, 1 << 30),
    FN("ignore_eos", ALL, f_ignore_eos),
    FN("seed", ALL, f_seed),
    FN("random_seed", ALL, f_seed),
    FN("logit_bias", C | T | R, f_bias),

    FN("n", CT, f_n),
    FN("best_of", T, f_n),
    FN("echo", T, f_echo),
    {"suffix", T, K_SKIP, 0, 0, 0, NULL, NULL}, /* api_text.c builds a prompt from it */
    {"return_tokens", T, K_SKIP, 0, 0, 0, NULL, NULL},
    {"response_fields", T, K_SKIP, 0, 0, 0, NULL, NULL},
    FN("stop", C | T, f_stop),
    FN("stop_sequences", M, f_stop),
    FN("stop_token_ids", CT, f_stop_tokens),
    FN("include_stop_str_in_output", CT, f_keep_stop),
    FN("t_max_predict_ms", CT, f_max_ms),
    FN("max_tokens", C | T | M, f_max_tokens),
    FN("n_predict", CT, f_max_tokens),
    FN("max_new_tokens", CT, f_max_tokens),
    FN("max_completion_tokens", C, f_max_tokens),
    FN("max_output_tokens", R, f_max_tokens),
    FN("logprobs", C, f_probs_flag),
    FN("logprobs", T, f_text_logprobs),
    FN("top_logprobs", C | R, f_top_logprobs),
    FN("n_probs", CT, f_n_probs),

    FN("response_format", CT, f_format),
    FN("text", R, f_text_config),
    FN("output_config", M, f_text_config),
    FN("output_format", M, f_format),
    FN("json_schema", CT, f_schema),
    FN("grammar", ALL, f_grammar),
    FN("guided_json", CT, fields_guided),
    FN("guided_choice", CT, fields_guided),
    FN("guided_grammar", CT, fields_guided),
    FN("guided_regex", CT, fields_guided),
    FN("structured_outputs", CT, fields_structured),

    FN("tools", C | R | M, f_tools),
    FN("tool_choice", C | R | M, f_choice),
    FN("parallel_tool_calls", C | R, f_parallel),
    FN("functions", C, f_functions),
    FN("function_call", C, f_choice),

    FN("reasoning_effort", C, f_effort),
    FN("reasoning", R | C, f_reasoning),
    FN("thinking", M | C, f_thinking),
    FN("thinking_budget", C | R, f_budget),
    FN("reasoning_budget", C | R, f_budget),
    FN("thinking_budget_tokens", C | R, f_budget),
    FN("enable_thinking", C | R, f_enable_thinking),
    FN("think", C | R | M, fields_think),
    FN("chat_template_kwargs", C | R | M, f_template_kwargs),
    FN("continue_final_message", C, f_continue),
    FN("add_generation_prompt", C, f_generation),

    FN("user", C | T | R, f_user),
    FN("session_id", ALL, f_session),
    FN("prompt_cache_key", C | R, f_session),
    FN("metadata", M, f_metadata),
    FN("id_slot", CT, f_slot),
    FN("cache_prompt", ALL, f_cache),
    FN("lora", ALL, f_lora),
    FN("experts", ALL, f_experts),
    FN("engram", ALL, f_extra),
    FN("odo", ALL, f_extra),

    FN("context_management", M, f_context),
    NONE("context_management", R, ""),
    NONE("thread", M, NULL),

    SAFE("client_metadata", ALL),
    SAFE("keep_alive", ALL),
    SAFE("ttl", ALL),
    SAFE("options", ALL),
    SAFE("usage", ALL),
    SAFE("include_reasoning", ALL),
    SAFE("provider", ALL),
    SAFE("transforms", ALL),
    SAFE("skip_special_tokens", ALL),
    SAFE("priority", ALL),
    SAFE("inference_geo", ALL),
    SAFE("speed", ALL),
    SAFE("max_tool_calls", ALL),
    SAFE("parse_tool_calls", ALL),
    SAFE("n_keep", ALL),
    SAFE("backend_sampling", ALL),
    SAFE("input_type", ALL),
    SAFE("guided_decoding_backend", CT),
    SAFE("guided_whitespace_pattern", CT),
    SAFE("verbosity", C),
    SAFE("metadata", C | R),
    SAFE("store", C),
    {"store", R, K_SKIP, 0, 0, 0, NULL, NULL}, /* read by api_responses.c */
    SAFE("service_tier", C | R | M),
    SAFE("safety_identifier", C | R),
    SAFE("prompt_cache_retention", C | R),
    SAFE("cache_control", M),
    SAFE("include", R),
    SAFE("prediction", C),
    NONE("modalities", C, "text"),
    NONE("audio", C, NULL),
    FN("web_search_options", C, fields_search),
    NONE("truncation", R, "disabled|auto"),
    NONE("background", R, "false"),
    {"previous_response_id", R, K_SKIP, 0, 0, 0, NULL, NULL}, /* api_responses.c prepends its items */
    {"conversation", R, K_SKIP, 0, 0, 0, NULL, NULL}, /* likewise */
    NONE("container", M, NULL),
    NONE("mcp_servers", M, ""),
};
/* clang-format on */

static bool is_only(const json_t *v, const char *only) {
    char word[64];
    if (json_is_array(v) && json_array_size(v) <= 1)
        v = json_array_size(v) ? json_array_get(v, 0) : json_null();
    if (json_is_null(v)) return true;
    const char *s =
        json_is_boolean(v) ? (json_is_true(v) ? "true" : "false") : json_string_value(v);
    for (const char *p = only; p && s; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, "|"), p);
        if (strcmp(word, s) == 0) return true;
    }
    return false;
}

static int read_row(struct fields *f, const struct row *r, json_t *v, struct err *e) {
    char *base = (char *)&f->request->sampling;
    int64_t n = 0;
    int rc;
    switch (r->kind) {
    case K_FLOAT: {
        double x = json_number_value(v);
        if (!json_is_number(v) || !(x >= r->low && x <= r->high))
            return err_set(e, CHIMERE_EINVAL, "%s: expected a number from %g to %g", r->name,
                           r->low, r->high);
        request_choose(f->request, r->at, (float)x);
        return 0;
    }
    case K_INT:
        rc = fields_int(v, r->name, r->low, r->high, &n, e);
        if (!rc) *(int32_t *)(void *)(base + r->at) = (int32_t)n;
        return rc;
    case K_FN: return r->read(f, v, r->name, e);
    case K_SAFE:
    case K_SKIP: return 0;
    case K_NONE:
        if (is_only(v, r->only)) return 0;
        return err_set(e, CHIMERE_EUNSUPPORTED, "%s: this server cannot do that%s%s", r->name,
                       r->only && r->only[0] ? "; expected " : "", r->only ? r->only : "");
    }
    return 0;
}

/* Checks that need all fields. */
static int check(struct fields *f, enum fields_api api, struct err *e) {
    struct request *a = f->request;
    if (f->n_probs > 0 && api == FIELDS_CHAT && !a->probs)
        return err_set(e, CHIMERE_EINVAL, "top_logprobs: expected logprobs to be true as well");
    if (api == FIELDS_RESPONSES && f->n_probs > 0) a->probs = true;
    if (a->probs) a->sampling.n_probs = f->n_probs > 0 ? f->n_probs : 1;
    if (a->continue_last && f->opens_answer > 0)
        return err_set(e, CHIMERE_EINVAL,
                       "add_generation_prompt: not together with continue_final_message");
    a->no_generation_prompt = f->opens_answer < 0 && !a->continue_last;
    if (f->best_of > a->n) return err_set(e, CHIMERE_EUNSUPPORTED, "best_of: expected at most n");
    if (a->format != REQUEST_TEXT && a->format != REQUEST_GBNF && a->sampling.ignore_eos)
        return err_set(e, CHIMERE_EINVAL, "ignore_eos: a response format has an end");
    int rc = fields_check_choice(f, e);
    if (rc) return rc;
    if (f->prompts && json_array_size(f->prompts) * (size_t)a->n > FIELDS_MAX_PROMPTS)
        return err_set(e, CHIMERE_ELIMIT, "prompt: expected at most %d answers, got %zu times n",
                       FIELDS_MAX_PROMPTS, json_array_size(f->prompts));
    a->prompt_probs = a->echo && a->probs;
    if (api == FIELDS_TEXT && !a->prompt)
        return fields_expected(e, "prompt", "a text or a list of token ids");
    fields_apply_samplers(f);
    if (f->keep_thinking) clear_thinking(a, f->keep_thinking);
    if (api != FIELDS_TEXT && !a->messages)
        return fields_expected(e, api == FIELDS_RESPONSES ? "input" : "messages",
                               "at least one message");
    return 0;
}

int fields_defaults(struct fields *f, json_t *defaults, struct err *e) {
    const char *name;
    json_t *v;
    json_object_foreach(defaults, name, v) {
        size_t i = 0;
        while (i < sizeof rows / sizeof *rows && strcmp(rows[i].name, name) != 0) i++;
        if (i == sizeof rows / sizeof *rows)
            return err_set(e, CHIMERE_EUNSUPPORTED, "%.80s: unknown field", name);
        int rc = read_row(f, &rows[i], v, e);
        if (rc) return rc;
    }
    return 0;
}

int fields_read(struct fields *f, json_t *request, enum fields_api api, struct err *e) {
    const char *name;
    json_t *v;
    f->n_probs = -1;
    json_object_foreach(request, name, v) {
        const struct row *row = NULL;
        bool elsewhere = false;
        if (json_is_null(v)) continue; /* null counts as missing, also for unknown fields */
        for (size_t i = 0; i < sizeof rows / sizeof *rows && !row; i++) {
            if (strcmp(rows[i].name, name) != 0) continue;
            if (rows[i].apis & (unsigned)api) row = &rows[i];
            elsewhere = true;
        }
        if (!row)
            return err_set(e, CHIMERE_EUNSUPPORTED, "%.80s: unknown field%s", name,
                           elsewhere ? " of this endpoint" : "");
        int rc = read_row(f, row, v, e);
        if (rc) return rc;
        if (row->kind == K_SAFE) f->ignored[(row - rows) / 64] |= 1ull << ((row - rows) % 64);
    }
    return check(f, api, e);
}

static void put_row(const struct row *r, struct buf *out) {
    switch (r->kind) {
    case K_FLOAT:
    case K_INT:
        buf_printf(out, "{\"type\":[\"%s\",\"null\"],\"minimum\":",
                   r->kind == K_INT ? "integer" : "number");
        json_out_number(out, r->low);
        buf_puts(out, ",\"maximum\":");
        json_out_number(out, r->high);
        buf_putc(out, '}');
        return;
    case K_SAFE: buf_puts(out, "{\"description\":\"Has no effect.\"}"); return;
    case K_NONE:
        buf_puts(out, "{\"description\":\"Not supported");
        if (r->only && r->only[0]) buf_printf(out, ", other than %s", r->only);
        buf_puts(out, ".\"}");
        return;
    case K_FN:
    case K_SKIP: buf_puts(out, "{}"); return;
    }
}

void fields_put_schema(enum fields_api api, struct buf *out) {
    bool first = true;
    buf_puts(out, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!(rows[i].apis & (unsigned)api)) continue;
        buf_printf(out, "%s\"%s\":", first ? "" : ",", rows[i].name);
        put_row(&rows[i], out);
        first = false;
    }
    buf_puts(out, "}}");
}

void fields_put_ignored(const _Atomic uint64_t *counts, struct buf *out) {
    static const char name[] = "chimere_ignored_fields_total";
    buf_printf(out, "# HELP %s requests with a field that has no effect here\n# TYPE %s counter\n",
               name, name);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (counts[i])
            buf_printf(out, "%s{field=\"%s\"} %llu\n", name, rows[i].name,
                       (unsigned long long)counts[i]);
}

/* For the HTTP reference. What a reader accepts beyond its type is explained on other pages. */
static void put_values(const struct row *r, struct buf *out) {
    switch (r->kind) {
    case K_FLOAT: buf_printf(out, "number, %g to %g", r->low, r->high); break;
    case K_INT: buf_printf(out, "integer, %.0f to %.0f", r->low, r->high); break;
    case K_SAFE: buf_puts(out, "no effect here"); break;
    case K_NONE:
        if (r->only && r->only[0]) buf_puts(out, "refused, except ");
        else buf_puts(out, r->only ? "refused, except empty" : "refused");
        for (const char *p = r->only; p && *p; p++)
            if (*p == '|') buf_puts(out, " or ");
            else buf_putc(out, *p);
        break;
    case K_FN:
    case K_SKIP: break;
    }
}

void fields_put_reference(struct buf *out) {
    static const struct {
        unsigned bit;
        const char *name;
    } apis[] = {{C, "chat"}, {T, "completions"}, {R, "responses"}, {M, "messages"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *between = "";
        buf_printf(out, "| `%s` | ", rows[i].name);
        for (size_t k = 0; k < 4; k++) {
            if (!(rows[i].apis & apis[k].bit)) continue;
            buf_printf(out, "%s%s", between, apis[k].name);
            between = ", ";
        }
        buf_puts(out, " | ");
        put_values(&rows[i], out);
        buf_puts(out, " |\n");
    }
}

_Static_assert(sizeof rows / sizeof *rows <= FIELDS_MAX_ROWS, "a bit and a count per row");
