#include "odo/pipeline/pipeline_steps.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "text/grammar/grammar_mask.h"

#define SAMPLING_ROW(name, type, field, low, high)                                                 \
    { name, type, offsetof(struct pipeline_sampling, field), low, high, NULL }

int pipeline_bind_sampling(struct yamlfile *y, int32_t node, struct pipeline_sampling *s,
                           struct arena *a, struct err *e) {
    static const struct yamlfile_field fields[] = {
        SAMPLING_ROW("temperature", YF_NUM, temperature, 0, 100),
        SAMPLING_ROW("top_p", YF_NUM, top_p, 0, 1),
        SAMPLING_ROW("top_k", YF_INT, top_k, 0, 1 << 20),
        SAMPLING_ROW("min_p", YF_NUM, min_p, 0, 1),
        SAMPLING_ROW("presence_penalty", YF_NUM, presence_penalty, -2, 2),
        SAMPLING_ROW("max_tokens", YF_INT, max_tokens, 1, 1 << 20),
        {0}};
    *s = (struct pipeline_sampling){NAN, NAN, NAN, NAN, INT32_MIN, INT32_MIN};
    return node ? yamlfile_bind(y, node, fields, s, NULL, a, e) : 0;
}

/* ---- conditions ---- */

static bool is_step(const struct pipeline *p, const char *agent) {
    for (int32_t i = 0; i < p->n_step; ++i)
        if (!strcmp(p->steps[i].agent, agent)) return true;
    return false;
}

/* p: has the steps that the condition may name. */
static int bind_cond(const struct pipeline *p, struct yamlfile *y, int32_t node,
                     struct pipeline_cond *c, struct arena *a, struct err *e) {
    static const struct yamlfile_field fields[] = {
        {"step", YF_STR, offsetof(struct pipeline_cond, step), 0, 0, NULL},
        {"field", YF_STR, offsetof(struct pipeline_cond, field), 0, 0, NULL},
        {"contains", YF_STR, offsetof(struct pipeline_cond, contains), 0, 0, NULL},
        {"equals", YF_STR, offsetof(struct pipeline_cond, equals), 0, 0, NULL},
        {"not", YF_BOOL, offsetof(struct pipeline_cond, negated), 0, 0, NULL},
        {0}};
    int rc = yamlfile_bind(y, node, fields, c, NULL, a, e);
    if (rc) return rc;
    if (!c->contains == !c->equals)
        return yamlfile_fail(y, node, e, "expected either contains or equals");
    if (c->field && !c->step)
        return yamlfile_fail(y, node, e, "field: expected with the step whose output has it");
    if (c->step && !is_step(p, c->step))
        return yamlfile_fail(y, node, e, "step: there is no earlier step \"%.40s\"", c->step);
    return 0;
}

/* Returns text without blanks and without a code fence around it. */
static struct slice bare(const char *text, size_t n) {
    struct slice s = {text, n};
    while (s.n && isspace((unsigned char)s.p[0])) ++s.p, --s.n;
    while (s.n && isspace((unsigned char)s.p[s.n - 1])) --s.n;
    if (s.n < 6 || strncmp(s.p, "```", 3) != 0 || strncmp(s.p + s.n - 3, "```", 3) != 0) return s;
    const char *line = memchr(s.p, '\n', s.n - 3);
    if (!line) return s;
    s.n -= (size_t)(line + 1 - s.p) + 3;
    s.p = line + 1;
    while (s.n && isspace((unsigned char)s.p[s.n - 1])) --s.n;
    return s;
}

static bool is_equal(const char *text, const char *want) {
    struct slice s = bare(text, strlen(text));
    return s.n == strlen(want) && !strncasecmp(s.p, want, s.n);
}

bool pipeline_holds(const struct pipeline_cond *c, const char *text) {
    char *own = NULL;
    if (!c->contains && !c->equals) return true;
    if (text && c->field) {
        struct slice s = bare(text, strlen(text));
        json_t *o = json_loadb(s.p, s.n, 0, NULL), *v = json_object_get(o, c->field);
        own = json_is_string(v) ? mem_strdup(json_string_value(v))
              : v               ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT)
                                : NULL;
        json_decref(o);
        text = own;
    }
    bool holds =
        text && (c->contains ? strcasestr(text, c->contains) != NULL : is_equal(text, c->equals));
    mem_free(own);
    return holds != c->negated;
}

/* ---- typed outputs ---- */

static int compile(struct grammar **g, const char *schema, struct err *e) {
    return grammar_from_schema(g, schema, strlen(schema), NULL, e);
}

bool pipeline_fits(const char *schema, const char *text, size_t n, struct err *why) {
    struct grammar *g = NULL;
    struct slice s = bare(text, n);
    size_t n_good = 0;
    int rc = compile(&g, schema, why);
    if (!rc) rc = grammar_check(g, s.p, s.n, &n_good, why);
    if (rc == CHIMERE_EREFUSED)
        err_set(why, CHIMERE_EFORMAT,
                "the output is not JSON of the step's schema: byte %zu of %zu", n_good + 1, s.n);
    grammar_free(g);
    return !rc;
}

static int bind_output(struct yamlfile *y, int32_t node, const char **out, struct arena *a,
                       struct err *e) {
    json_t *o = NULL;
    struct grammar *g = NULL;
    struct err why = {0};
    int rc = yamlfile_json(y, node, &o, e);
    if (rc) return rc;
    char *text = json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!json_is_object(o)) rc = yamlfile_fail(y, node, e, "output: expected a JSON Schema");
    else if (!text || !(*out = arena_strndup(a, text, strlen(text))))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    else if (compile(&g, text, &why)) rc = yamlfile_fail(y, node, e, "output: %s", why.text);
    grammar_free(g);
    mem_free(text);
    json_decref(o);
    return rc;
}

/* ---- steps ---- */

struct step_nodes {
    struct pipeline_step step;
    int32_t sampling, parallel, loop, when, output;
};

static int bind_step(struct pipeline *p, struct yamlfile *y, int32_t node, int32_t *group,
                     bool inner, struct arena *a, struct err *e);

static int bind_parallel(struct pipeline *p, struct yamlfile *y, int32_t node, int32_t *group,
                         struct arena *a, struct err *e) {
    int32_t n, own = *group;
    int rc = yamlfile_items(y, node, "parallel", &n, e);
    if (!rc && !n) rc = yamlfile_fail(y, node, e, "parallel: expected steps");
    for (int32_t i = 0; i < n && !rc; ++i) {
        *group = own;
        rc = bind_step(p, y, yamlfile_item(y, node, i), group, true, a, e);
    }
    return rc;
}

static int bind_loop(struct pipeline *p, struct yamlfile *y, int32_t node, int32_t *group,
                     struct arena *a, struct err *e) {
    struct {
        int32_t most, until, steps;
    } l = {0};
    static const struct yamlfile_field fields[] = {
        {"most", YF_INT, 0, 1, PIPELINE_MAX_REPEAT, NULL},
        {"until", YF_NODE, sizeof(int32_t), 0, 0, NULL},
        {"steps", YF_NODE, 2 * sizeof(int32_t), 0, 0, NULL},
        {0}};
    int32_t n = 0, first = p->n_step;
    int rc = yamlfile_bind(y, node, fields, &l, NULL, a, e);
    if (!rc && (!l.most || !l.until || !l.steps))
        rc = yamlfile_fail(y, node, e, "loop: expected most, until and steps");
    if (!rc && p->n_loop == PIPELINE_MAX_LOOPS)
        rc = yamlfile_fail(y, node, e, "loop: expected at most %d", PIPELINE_MAX_LOOPS);
    if (!rc) rc = yamlfile_items(y, l.steps, "steps", &n, e);
    if (!rc && !n) rc = yamlfile_fail(y, l.steps, e, "steps: expected some");
    for (int32_t i = 0; i < n && !rc; ++i) {
        int32_t item = yamlfile_item(y, l.steps, i), unused;
        const char *key;
        /* a loop in a loop could run 16 times 16 agents */
        if (yamlfile_pair(y, item, 0, &key, &unused) && !strcmp(key, "loop"))
            rc = yamlfile_fail(y, item, e, "loop: expected outside other loops");
        if (!rc) rc = bind_step(p, y, item, group, false, a, e);
    }
    struct pipeline_loop *out = &p->loops[p->n_loop];
    if (rc) return rc;
    *out = (struct pipeline_loop){.first = first, .last = p->n_step - 1, .most = l.most};
    rc = bind_cond(p, y, l.until, &out->until, a, e);
    if (!rc) ++p->n_loop;
    return rc;
}

/* Each call uses up one group number, so that neighbours are not taken for one group. */
static int bind_step(struct pipeline *p, struct yamlfile *y, int32_t node, int32_t *group,
                     bool inner, struct arena *a, struct err *e) {
    static const struct yamlfile_field fields[] = {
        {"agent", YF_STR, offsetof(struct step_nodes, step.agent), 0, 0, NULL},
        {"prompt", YF_STR, offsetof(struct step_nodes, step.prompt), 0, 0, NULL},
        {"sampling", YF_NODE, offsetof(struct step_nodes, sampling), 0, 0, NULL},
        {"tools", YF_LIST, offsetof(struct step_nodes, step.tools), 0, 0, NULL},
        {"rounds", YF_INT, offsetof(struct step_nodes, step.rounds), 1, 64, NULL},
        {"if", YF_NODE, offsetof(struct step_nodes, when), 0, 0, NULL},
        {"retries", YF_INT, offsetof(struct step_nodes, step.retries), 0, PIPELINE_MAX_REPEAT,
         NULL},
        {"approve", YF_BOOL, offsetof(struct step_nodes, step.approve), 0, 0, NULL},
        {"output", YF_NODE, offsetof(struct step_nodes, output), 0, 0, NULL},
        {"parallel", YF_NODE, offsetof(struct step_nodes, parallel), 0, 0, NULL},
        {"loop", YF_NODE, offsetof(struct step_nodes, loop), 0, 0, NULL},
        {0}};
    struct step_nodes s = {0};
    uint64_t seen = 0;
    int rc = yamlfile_bind(y, node, fields, &s, &seen, a, e);
    if (rc) return rc;
    if (s.parallel || s.loop) {
        if (inner || seen & (seen - 1))
            return yamlfile_fail(y, node, e,
                                 "%s: expected alone in its step, not within a parallel group",
                                 s.loop ? "loop" : "parallel");
        return s.loop ? bind_loop(p, y, s.loop, group, a, e)
                      : bind_parallel(p, y, s.parallel, group, a, e);
    }
    if (!s.step.agent || !*s.step.agent) return yamlfile_fail(y, node, e, "agent: expected a name");
    if (p->n_step == PIPELINE_MAX_STEPS)
        return yamlfile_fail(y, node, e, "steps: expected at most %d", PIPELINE_MAX_STEPS);
    if (s.when) rc = bind_cond(p, y, s.when, &s.step.when, a, e);
    if (!rc && s.output) rc = bind_output(y, s.output, &s.step.output, a, e);
    if (!rc) rc = pipeline_bind_sampling(y, s.sampling, &s.step.sampling, a, e);
    s.step.group = (*group)++;
    if (!rc) p->steps[p->n_step++] = s.step;
    return rc;
}

int pipeline_steps_bind(struct pipeline *p, struct yamlfile *y, int32_t node, struct arena *a,
                        struct err *e) {
    int32_t n = 0, group = 0;
    int rc = yamlfile_items(y, node, "steps", &n, e);
    for (int32_t i = 0; i < n && !rc; ++i)
        rc = bind_step(p, y, yamlfile_item(y, node, i), &group, false, a, e);
    const struct pipeline_step *last = p->steps + p->n_step - 1;
    if (rc || !p->n_step) return rc;
    bool in_loop = p->n_loop && p->loops[p->n_loop - 1].last == p->n_step - 1;
    bool shares = p->n_step > 1 && last->group == last[-1].group;
    if (in_loop || shares || last->when.contains || last->when.equals)
        rc = yamlfile_fail(y, node, e,
                           "steps: the last must stand alone, without if and outside loops: it is "
                           "the answer");
    return rc;
}
