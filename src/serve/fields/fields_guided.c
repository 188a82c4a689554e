/* fields_guided.c: fields for the answer's format and for the sampler chain, with the names of vLLM and
 * llama-server. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "serve/fields/fields_guided.h"
#include "serve/fields/fields_impl.h"

enum { MAX_CHOICES = 1024, MAX_GRAMMAR = 1 << 20 };

static int set_grammar(struct fields *f, const char *text, size_t n, struct err *e) {
    f->request->grammar = arena_strndup(&f->request->arena, text, n);
    f->request->format = REQUEST_GBNF;
    return f->request->grammar ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

/* Reads a schema, given as an object or as JSON text. */
static int read_json(struct fields *f, json_t *v, const char *where, struct err *e) {
    if (!json_is_string(v)) return fields_schema(f->request, v, where, e);
    json_t *schema = chat_json_object(json_string_value(v), json_string_length(v), where, e);
    int rc = schema ? fields_schema(f->request, schema, where, e) : CHIMERE_EFORMAT;
    json_decref(schema);
    return rc;
}

static int read_grammar(struct fields *f, json_t *v, const char *where, struct err *e) {
    size_t n = json_string_length(v);
    if (!json_is_string(v) || !n || n > MAX_GRAMMAR)
        return fields_expected(e, where, "a GBNF grammar");
    return set_grammar(f, json_string_value(v), n, e);
}

static void put_literal(struct buf *b, const char *s, size_t n) {
    buf_putc(b, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\') buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c == 0x7f) buf_printf(b, "\\x%02x", c);
        else buf_putc(b, (char)c);
    }
    buf_putc(b, '"');
}

static int read_choice(struct fields *f, json_t *v, const char *where, struct err *e) {
    size_t i;
    json_t *one;
    if (!json_is_array(v) || !json_array_size(v) || json_array_size(v) > MAX_CHOICES)
        return fields_expected(e, where, "a list of 1 to 1024 texts");
    struct buf b;
    buf_init(&b, MAX_GRAMMAR);
    buf_puts(&b, "root ::= ");
    json_array_foreach(v, i, one) {
        if (!json_string_length(one)) {
            buf_fini(&b);
            return fields_expected(e, where, "a list of texts");
        }
        if (i) buf_puts(&b, " | ");
        put_literal(&b, json_string_value(one), json_string_length(one));
    }
    int rc = b.failed ? err_set(e, CHIMERE_ELIMIT, "%s: the texts are too long", where)
                      : set_grammar(f, b.p, b.n, e);
    buf_fini(&b);
    return rc;
}

static int read_object(struct fields *f, json_t *v, const char *where, struct err *e) {
    bool on = false;
    int rc = fields_bool(v, where, &on, e);
    if (!rc && on) f->request->format = REQUEST_JSON_OBJECT;
    return rc;
}

static const struct {
    const char *name;
    int (*read)(struct fields *f, json_t *v, const char *where, struct err *e);
} forms[] = {{"json", read_json},
             {"grammar", read_grammar},
             {"choice", read_choice},
             {"json_object", read_object}};

static int read_form(struct fields *f, const char *form, json_t *v, const char *where,
                     struct err *e) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(form, forms[i].name) == 0) return forms[i].read(f, v, where, e);
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "%s: this server cannot do that; expected json, grammar, "
                   "choice or json_object",
                   where);
}

int fields_guided(struct fields *f, json_t *v, const char *name, struct err *e) {
    return read_form(f, name + strlen("guided_"), v, name, e);
}

int fields_structured(struct fields *f, json_t *v, const char *name, struct err *e) {
    static const char *const hints[] = {"disable_any_whitespace", "disable_fallback",
                                        "disable_additional_properties", "whitespace_pattern"};
    const char *key;
    json_t *x;
    if (!json_is_object(v)) return fields_expected(e, name, "an object");
    json_object_foreach(v, key, x) {
        char where[96];
        bool hint = json_is_null(x);
        for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) hint |= !strcmp(key, hints[i]);
        snprintf(where, sizeof where, "%s.%.60s", name, key);
        int rc = hint ? 0 : read_form(f, key, x, where, e);
        if (rc) return rc;
    }
    return 0;
}

/* ---- samplers ---- */

static void no_penalties(struct sampler_params *p) {
    p->repeat_penalty = 1;
    p->frequency_penalty = p->presence_penalty = 0;
}
static void no_dry(struct sampler_params *p) { p->dry_multiplier = 0; }
static void no_sigma(struct sampler_params *p) { p->top_n_sigma = -1; }
static void no_top_k(struct sampler_params *p) { p->top_k = 0; }
static void no_typical(struct sampler_params *p) { p->typical_p = 1; }
static void no_top_p(struct sampler_params *p) { p->top_p = 1; }
static void no_min_p(struct sampler_params *p) { p->min_p = 0; }
static void no_xtc(struct sampler_params *p) { p->xtc_probability = 0; }
static void no_temperature(struct sampler_params *p) {
    p->temperature = 1;
    p->dynatemp_range = 0;
}

static const struct {
    const char *name, *short_name;
    void (*off)(struct sampler_params *p);
} chain[] = {{"penalties", "e", no_penalties},
             {"dry", "d", no_dry},
             {"top_n_sigma", "s", no_sigma},
             {"top_k", "k", no_top_k},
             {"typ_p", "y", no_typical},
             {"typical_p", "y", no_typical},
             {"top_p", "p", no_top_p},
             {"min_p", "m", no_min_p},
             {"xtc", "x", no_xtc},
             {"temperature", "t", no_temperature}};
enum { N_CHAIN = sizeof chain / sizeof *chain };

int fields_samplers(struct fields *f, json_t *v, const char *name, struct err *e) {
    json_t *one;
    size_t i;
    const char *letters = json_string_value(v);
    if (!json_is_array(v) && !letters) return fields_expected(e, name, "a list of names");
    f->samplers = 1u << 31; /* marks that the list was given, even if it is empty */
    for (; letters && *letters; letters++)
        for (size_t k = 0; k < N_CHAIN; k++)
            if (*letters == *chain[k].short_name) f->samplers |= 1u << k;
    json_array_foreach(v, i, one) {
        const char *want = json_string_value(one);
        uint32_t found = 0;
        for (size_t k = 0; want && k < N_CHAIN; k++)
            if (!strcmp(want, chain[k].name)) found |= 1u << k;
        if (!found)
            return err_set(e, CHIMERE_EUNSUPPORTED, "%s[%zu]: there is no sampler '%.60s'", name, i,
                           want ? want : "");
        f->samplers |= found;
    }
    return 0;
}

void fields_apply_samplers(struct fields *f) {
    for (size_t k = 0; f->samplers && k < N_CHAIN; k++) {
        bool other = false; /* the same sampler by its other name */
        for (size_t i = 0; i < N_CHAIN; i++)
            other |= chain[i].off == chain[k].off && f->samplers >> i & 1;
        if (!other) chain[k].off(&f->request->sampling);
    }
}
