#include "cli/eval_strategy.h"

#include <string.h>

#include "odo/mode.h"
#include "serve/fields/fields.h"

static bool is_mode(const char *name) {
    struct think_control c;
    bool think;
    return strcmp(name, "auto") == 0 || think_preset(name, &think, &c);
}

int eval_strategy_init(struct eval_strategy *s, const char *text, const char *think, uint64_t seed,
                       struct err *e) {
    *s = (struct eval_strategy){.seed = seed};
    if (!text) text = "greedy";
    if (strlen(text) >= sizeof s->name)
        return err_set(e, CHIMERE_ELIMIT, "--strategy: expected at most %zu bytes",
                       sizeof s->name - 1);
    memcpy(s->name, text, strlen(text) + 1);
    size_t n = strcspn(text, "+");
    const char *rest = text[n] ? text + n + 1 : text + n;
    if (n < sizeof s->mode_text) {
        memcpy(s->mode_text, text, n);
        if (is_mode(s->mode_text)) s->mode = s->mode_text;
    }
    if (!s->mode) rest = text;
    int rc = strategy_parse(&s->strategy, rest, e);
    if (rc || !think) return rc;
    json_error_t at;
    s->think = *think == '{' ? json_loads(think, 0, &at) : json_string(think);
    if (!s->think)
        return err_set(e, CHIMERE_EINVAL, "--think: expected a mode or a JSON object: %s", at.text);
    struct request a; /* to refuse invalid options now, not at the first item */
    request_init(&a);
    struct fields f = {.request = &a};
    rc = fields_think(&f, s->think, "think", e);
    request_fini(&a);
    return rc;
}

int eval_strategy_open(struct eval_strategy *s, const struct chat_rig *rig, int32_t n_seq,
                       struct err *e) {
    const struct backend_model model = {.m = rig->m,
                                        .engine = rig->engine,
                                        .tok = rig->tok,
                                        .template = rig->template,
                                        .loras = rig->loras,
                                        .n_lora = rig->n_lora,
                                        .n_seq = n_seq};
    return backend_local_new(&s->request, &model, "local", e);
}

void eval_strategy_fini(struct eval_strategy *s) {
    if (s->request) s->request->ops->close(s->request);
    json_decref(s->think);
    *s = (struct eval_strategy){.seed = 0};
}

/* Returns the user's last message, from which the difficulty is computed. */
static const char *question_of(const json_t *item) {
    const json_t *messages = json_object_get(item, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *text = json_string_value(json_object_get(last, "content"));
    return text ? text : "";
}

/* Chooses the mode from a probe and the text; tokens of the probe count as thinking. */
static void set_auto(struct eval_strategy *s, const json_t *item, struct request *a,
                     struct eval_answer *out) {
    struct difficulty d;
    struct mode_probe p;
    const char *text = question_of(item);
    difficulty_of(text, strlen(text), NULL, 0, NULL, &d);
    bool known = mode_probe(s->request, a, NULL, 0, &p, NULL) == 0;
    out->n_thinking += p.stats.n_generated;
    mode_apply(mode_choose(&d, known ? &p : NULL, NULL), a);
}

static int set_thinking(struct eval_strategy *s, const json_t *item, struct request *a,
                        struct eval_answer *out, struct err *e) {
    a->think = json_is_true(json_object_get(item, "think"));
    if (s->mode && strcmp(s->mode, "auto") != 0)
        think_preset(s->mode, &a->think, &a->sampling.think);
    if (s->mode && strcmp(s->mode, "auto") == 0) set_auto(s, item, a, out);
    if (!s->think) return 0;
    struct fields f = {.request = a};
    return fields_think(&f, s->think, "think", e);
}

int eval_strategy_answer(void *ud, const json_t *item, size_t index, struct eval_answer *out,
                         struct err *e) {
    struct eval_strategy *s = ud;
    struct strategy_result r = {.winner = -1};
    struct request a;
    request_init(&a);
    a.messages = json_incref(json_object_get(item, "messages"));
    const json_t *tools = json_object_get(item, "tools");
    if (json_array_size(tools)) a.tools = json_incref((json_t *)(uintptr_t)tools);
    a.max_tokens = (int32_t)json_integer_value(json_object_get(item, "max_tokens"));
    /* the seeds of the candidates continue from there */
    a.sampling.seed = s->seed + 1000 * (uint64_t)index;
    int rc = set_thinking(s, item, &a, out, e);
    if (!rc) {
        const struct strategy_use u = {.strategy = &s->strategy,
                                       .backend = s->request,
                                       .verifier = s->verifier,
                                       .request = &a};
        rc = strategy_run(&u, &r, e);
        if (!rc && buf_put(&out->text, r.content.n ? r.content.p : "", r.content.n))
            rc = err_set(e, CHIMERE_ELIMIT, "the answer is too long");
        out->n_thinking += r.cost.n_thinking;
        out->n_answer = r.cost.n_answer;
        out->n_check = r.cost.n_check;
        out->ms = r.ms;
        strategy_fini(&r);
    }
    request_fini(&a);
    return rc;
}
