/* jinja.c: the functions of jinja.h: compiles and renders templates. */
#include "text/jinja/jinja.h"

#include <string.h>

#include "text/jinja/jinja_impl.h"

#define MAX_PROGRAM_BYTES (256u << 20) /* tokens and tree of one template */

const struct jinja_limits jinja_default_limits = {
    .max_steps = 20000000,
    .max_depth = 200,
    .max_output_bytes = 64u << 20,
    .max_memory_bytes = 512u << 20,
};

/* Converts line ends to \n; one at the very end is dropped. */
static char *normalise(struct arena *a, const char *s, size_t n, size_t *n_out) {
    char *out = arena_alloc(a, n + 1);
    size_t k = 0;
    for (size_t i = 0; out && i < n; i++) {
        if (s[i] == '\r') {
            out[k++] = '\n';
            if (i + 1 < n && s[i + 1] == '\n') i++;
        } else {
            out[k++] = s[i];
        }
    }
    if (k && out[k - 1] == '\n') k--;
    *n_out = k;
    return out;
}

int jinja_compile(struct jinja **out, const char *text, size_t n, struct err *e) {
    *out = NULL;
    if (n > JINJA_MAX_TEMPLATE_BYTES)
        return err_set(e, CHIMERE_ELIMIT, "template: %zu bytes, more than %u", n,
                       JINJA_MAX_TEMPLATE_BYTES);
    if (!utf8_is_valid(text, n)) return err_set(e, CHIMERE_EFORMAT, "template: not valid UTF-8");
    if (n && memchr(text, 0, n)) return err_set(e, CHIMERE_EFORMAT, "template: has a NUL byte");
    struct jinja *j = mem_zalloc(sizeof *j);
    if (!j) return err_set(e, CHIMERE_ENOMEM, "template: out of memory");
    arena_init(&j->arena, MAX_PROGRAM_BYTES);
    map_init(&j->ids, 4u << 20);
    struct jtok *toks = NULL;
    size_t n_tok = 0, n_src = 0;
    char *src = normalise(&j->arena, text, n, &n_src);
    int rc = src ? 0 : err_set(e, CHIMERE_ENOMEM, "template: out of memory");
    if (!rc) rc = jinja_lex(&j->arena, src, n_src, &toks, &n_tok, e);
    if (!rc) rc = jinja_parse(j, toks, n_tok, e);
    if (rc) {
        jinja_free(j);
        return rc;
    }
    *out = j;
    return 0;
}

void jinja_free(struct jinja *j) {
    if (!j) return;
    map_fini(&j->ids);
    arena_fini(&j->arena);
    mem_free(j);
}

void jinja_literals(const struct jinja *j, void (*fn)(void *arg, const char *s, size_t n),
                    void *arg) {
    for (uint32_t i = 0; i < j->n_literal; i++) fn(arg, j->literals[i]->p, j->literals[i]->n);
}

bool jinja_mentions(const struct jinja *j, const char *name) {
    uint32_t id;
    size_t n = strlen(name);
    if (map_find(&j->ids, name, n, &id)) return true;
    for (uint32_t i = 0; i < j->n_literal; i++)
        if (jstr_eq(j->literals[i], name, n)) return true;
    return false;
}

static void load_context(struct jr *r, json_t *context) {
    const char *k;
    json_t *v;
    /* zeroed, which is JV_MISSING */
    r->context = jr_alloc(r, (r->j->n_name + 1) * sizeof *r->context);
    if (!r->context) return;
    if (!json_is_object(context)) {
        jr_fail(r, CHIMERE_EFORMAT, "the context is not a JSON object");
        return;
    }
    json_object_foreach(context, k, v) {
        uint32_t id;
        if (map_find(&r->j->ids, k, strlen(k), &id)) r->context[id] = j_from_json(r, v, k, k);
        if (r->rc) return;
    }
}

static int count_runs(const uint8_t *from, size_t n) {
    int runs = n > 0;
    for (size_t i = 1; i < n; i++) runs += from[i] != from[i - 1];
    return runs;
}

static int take_output(struct jr *r, struct jinja_output *out) {
    size_t n_run = (size_t)count_runs(r->out_from, r->n_out), k = 0;
    if (buf_put(&out->text, r->n_out ? r->out : "", r->n_out) || buf_reserve(&out->text, 0))
        return CHIMERE_ENOMEM;
    out->runs = mem_alloc_array(n_run ? n_run : 1, sizeof *out->runs);
    if (!out->runs) return CHIMERE_ENOMEM;
    for (size_t i = 0; i < r->n_out; i++) {
        if (i && r->out_from[i] != r->out_from[i - 1]) k++;
        out->runs[k].is_template = r->out_from[i];
        out->runs[k].n++;
    }
    out->n_run = n_run;
    return 0;
}

int jinja_render(const struct jinja *j, json_t *context, const struct jinja_env *env,
                 struct jinja_output *out, struct err *e) {
    struct jr r = {.j = j, .env = env, .e = e, .line = 1};
    r.limits = env && env->limits ? env->limits : &jinja_default_limits;
    *out = (struct jinja_output){0};
    buf_init(&out->text, r.limits->max_output_bytes);
    arena_init(&r.arena, r.limits->max_memory_bytes);
    if (env && env->now) {
        r.now = *env->now;
    } else {
        time_t t = time(NULL);
        localtime_r(&t, &r.now);
    }
    load_context(&r, context);
    if (!r.rc) j_run(&r);
    if (!r.rc && take_output(&r, out)) r.rc = err_set(e, CHIMERE_ENOMEM, "template: out of memory");
    mem_free(r.out);
    mem_free(r.out_from);
    arena_fini(&r.arena);
    return r.rc;
}

void jinja_output_fini(struct jinja_output *out) {
    buf_fini(&out->text);
    mem_free(out->runs);
    out->runs = NULL;
    out->n_run = 0;
}
