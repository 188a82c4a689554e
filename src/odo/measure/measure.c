/* measure.c: see measure.h. */
#include "odo/measure/measure_impl.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backend/call.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/mem.h"
#include "eval/harness.h"
#include "eval/stats.h"
#include "odo/odo_impl.h"
#include "retrieval/docs.h"

/* ---- items ---- */

static int check_expect(const json_t *expect, struct err *e) {
    const char *key;
    json_t *v;
    if (!json_is_object(expect))
        return err_set(e, CHIMERE_EFORMAT, "field expect: expected an object");
    json_object_foreach((json_t *)expect, key, v) {
        bool list = !strcmp(key, "tools") || !strcmp(key, "source") || !strcmp(key, "passage");
        if (!list && strcmp(key, "route") != 0 && strcmp(key, "difficulty") != 0)
            return err_set(e, CHIMERE_EFORMAT, "expect.%.40s: unknown field", key);
        if (list ? !json_is_array(v) : !json_is_string(v))
            return err_set(e, CHIMERE_EFORMAT, "expect.%s: expected %s", key,
                           list ? "a list of texts" : "a string");
    }
    return 0;
}

static bool is_judged(const json_t *item) {
    const char *kind = json_string_value(json_object_get(json_object_get(item, "check"), "kind"));
    return kind && !strcmp(kind, "judge");
}

static int check_item(const json_t *item, struct err *e) {
    const json_t *expect = json_object_get(item, "expect");
    int rc = expect ? check_expect(expect, e) : 0;
    if (rc) return rc;
    if (json_object_get(item, "check") && !is_judged(item)) return eval_check_item(item, e);
    if (!expect && !is_judged(item))
        return err_set(e, CHIMERE_EFORMAT, "expected check, expect or both");
    if (!json_is_string(json_object_get(item, "id")) ||
        !json_is_string(json_object_get(item, "skill")) ||
        !json_is_array(json_object_get(item, "messages")))
        return err_set(e, CHIMERE_EFORMAT, "fields id, skill, messages: expected all of them");
    return 0;
}

int measure_load(json_t *items, const char *path, size_t n_max, struct err *e) {
    bool folder = fs_is_folder(path);
    return folder ? eval_load_folder(items, path, n_max, check_item, e)
                  : eval_load(items, path, n_max, check_item, e);
}

const char *measure_expected(const json_t *item, const char *key) {
    return json_string_value(json_object_get(json_object_get(item, "expect"), key));
}

json_t *measure_share(int64_t right, int64_t n) {
    struct share s = stats_share(right, n);
    return json_pack("{s:I, s:I, s:f, s:f, s:f}", "n", (json_int_t)n, "right", (json_int_t)right,
                     "score", s.value, "low", s.low, "high", s.high);
}

/* Builds the request of an item for one arm. wish: the object to send as extra.odo; NULL: none. */
void measure_request(const json_t *item, const struct measure_params *p, const json_t *wish,
                     struct request *a) {
    request_init(a);
    a->messages = json_incref(json_object_get(item, "messages"));
    json_t *tools = json_object_get(item, "tools");
    if (json_array_size(tools)) a->tools = json_incref(tools);
    a->max_tokens = (int32_t)json_integer_value(json_object_get(item, "max_tokens"));
    if (a->max_tokens <= 0) a->max_tokens = 512;
    a->think = json_is_true(json_object_get(item, "think"));
    a->sampling.temperature = 0;
    if (!wish) return;
    json_t *odo = json_deep_copy(wish);
    json_object_set_new(odo, "memory", json_string("never"));
    if (p->route && !json_object_get(odo, "route"))
        json_object_set_new(odo, "route", json_string(p->route));
    if (p->collection) json_object_set_new(odo, "collection", json_string(p->collection));
    a->extra = json_pack("{s:o}", "odo", odo);
}

/* ---- one answer ---- */

struct side {                /* what a run did besides its answer */
    json_t *sources, *tools; /* owned; [{where, ...}], [{name, ok}] */
    int64_t n_cited, n_wrong;
    bool cited_right;
};

struct arm {
    const struct measure_params *p;
    const json_t *wish; /* extra.odo of this arm; NULL: the model alone */
    struct side *side;  /* owned [n] */
    size_t n;
};

static void side_fini(struct side *s) {
    json_decref(s->sources);
    json_decref(s->tools);
}

static int on_event(void *ud, const struct backend_event *ev) {
    struct side *s = ud;
    if (ev->kind != EVENT_NOTE) return 0;
    json_t *data = json_loadb(ev->text, ev->n, JSON_DECODE_ANY, NULL);
    if (!strcmp(ev->name, "sources")) {
        json_decref(s->sources);
        s->sources = json_incref(data);
    } else if (!strcmp(ev->name, "tool")) {
        json_array_append(s->tools, data);
    }
    json_decref(data);
    return 0;
}

bool measure_has_any(const char *text, const json_t *list) {
    size_t i;
    json_t *t;
    json_array_foreach(list, i, t) if (text && json_is_string(t) &&
                                       strcasestr(text, json_string_value(t))) return true;
    return false;
}

static bool is_source(const json_t *source, const json_t *want) {
    return measure_has_any(json_string_value(json_object_get(source, "where")), want);
}

/* Checks each citation [n] of an answer: whether the source exists, and whether it is an expected one. */
static void read_citations(struct side *s, const char *text, const json_t *want) {
    for (const char *p = text; (p = strchr(p, '[')); ++p) {
        size_t k = strspn(p + 1, "0123456789");
        if (!k || k > 4 || p[1 + k] != ']') continue;
        int number = 0;
        for (size_t i = 1; i <= k; ++i) number = 10 * number + (p[i] - '0');
        const json_t *source = NULL;
        json_t *one;
        size_t i;
        json_array_foreach(s->sources, i, one) if (json_integer_value(json_object_get(one, "n")) ==
                                                   number) source = one;
        ++s->n_cited;
        s->n_wrong += source == NULL;
        s->cited_right |= source && is_source(source, want);
    }
}

/* Writes tool calls in the form that score_calls parses. */
static void put_calls(struct buf *out, const json_t *calls) {
    size_t i;
    json_t *call, *value;
    const char *key;
    json_array_foreach(calls, i, call) {
        json_t *args = json_loads(json_string_value(json_object_get(call, "arguments")), 0, NULL);
        buf_printf(out, "%s<tool_call>\n<function=%s>\n", out->n ? "\n" : "",
                   json_string_value(json_object_get(call, "name")));
        json_object_foreach(args, key, value) {
            char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
            buf_printf(out, "<parameter=%s>\n%s\n</parameter>\n", key,
                       text ? text : json_string_value(value));
            mem_free(text);
        }
        buf_puts(out, "</function>\n</tool_call>");
        json_decref(args);
    }
}

static int ask_judge(struct arm *x, const json_t *item, struct eval_answer *out, struct err *e) {
    const json_t *check = json_object_get(item, "check");
    const char *reference = json_string_value(json_object_get(check, "answer"));
    char *question = request_question(json_object_get(item, "messages"), &(bool){false});
    struct buf b;
    struct call_result r = {0};
    if (!x->p->judge) return err_set(e, CHIMERE_EINVAL, "check.kind judge: expected --judge URL");
    buf_init(&b, (size_t)1 << 20);
    buf_printf(&b, "Question:\n%s\n\nReference answer:\n%s\n\nAnswer to grade:\n%.*s\n\n",
               question ? question : "", reference ? reference : "", (int)out->text.n,
               out->text.n ? out->text.p : "");
    buf_puts(&b, "Does the answer agree with the reference? Reply yes or no.");
    int rc = b.failed || !question ? err_set(e, CHIMERE_ENOMEM, "out of memory")
                                   : call_text(x->p->judge, 0, "You grade answers.", b.p,
                                               "root ::= \"yes\" | \"no\"", 8, NULL, 0, &r, e);
    out->is_judged = true;
    out->right = !rc && r.content.n >= 3 && !strncasecmp(r.content.p, "yes", 3);
    call_fini(&r);
    buf_fini(&b);
    mem_free(question);
    return rc;
}

static int answer(void *ud, const json_t *item, size_t index, struct eval_answer *out,
                  struct err *e) {
    struct arm *x = ud;
    struct side *s = &x->side[index];
    struct request a;
    struct call_result r;
    int64_t start = clock_ns();
    s->tools = json_array();
    measure_request(item, x->p, x->wish, &a);
    struct call c = {.backend = x->wish ? odo_find(x->p->odo, "odo") : x->p->bare,
                     .request = &a,
                     .on_event = on_event,
                     .ud = s};
    int rc = call_run(&c, &r, e);
    if (!rc) {
        buf_put(&out->text, r.content.n ? r.content.p : "", r.content.n);
        if (!out->text.failed)
            read_citations(s, out->text.n ? out->text.p : "",
                           json_object_get(json_object_get(item, "expect"), "source"));
        put_calls(&out->text, r.calls);
        if (out->text.failed) rc = err_set(e, CHIMERE_ELIMIT, "the answer is too long");
        out->n_thinking = r.n_reasoning;
        out->n_answer = r.stats.n_generated - r.n_reasoning;
        out->ms = clock_ms_since(start);
    }
    call_fini(&r);
    request_fini(&a);
    if (!rc && is_judged(item)) rc = ask_judge(x, item, out, e);
    return rc;
}

/* ---- one arm ---- */

static bool same_names(const json_t *want, const json_t *calls) {
    size_t i, k, found = 0;
    json_t *w, *c;
    json_array_foreach(want, i, w) {
        bool any = false;
        json_array_foreach(calls, k, c) any |=
            json_is_true(json_object_get(c, "ok")) && json_equal(w, json_object_get(c, "name"));
        found += any;
    }
    return found == json_array_size(want) && (found || !json_array_size(calls));
}

/* Counts, over the items of an arm, whether the expected sources, citations and tools occurred. */
static void summarise(json_t *arm, const json_t *items, const struct arm *x) {
    int64_t n_hit = 0, hit = 0, cited = 0, n_tools = 0, tools = 0, n_wrong = 0, n_cited = 0;
    size_t i, k;
    json_t *item, *s;
    json_array_foreach(items, i, item) {
        const struct side *side = &x->side[i];
        const json_t *source = json_object_get(json_object_get(item, "expect"), "source");
        const json_t *want = json_object_get(json_object_get(item, "expect"), "tools");
        bool found = false;
        json_array_foreach(side->sources, k, s) found |= is_source(s, source);
        n_hit += source != NULL;
        hit += found;
        cited += side->cited_right;
        n_cited += side->n_cited;
        n_wrong += side->n_wrong;
        n_tools += want != NULL;
        tools += want && same_names(want, side->tools);
    }
    if (n_hit) json_object_set_new(arm, "hit", measure_share(hit, n_hit));
    if (n_hit) json_object_set_new(arm, "citation", measure_share(cited, n_hit));
    if (n_tools) json_object_set_new(arm, "tools", measure_share(tools, n_tools));
    json_object_set_new(arm, "n_cited", json_integer(n_cited));
    json_object_set_new(arm, "n_wrong_citation", json_integer(n_wrong));
}

/* parts: set of the parts that were used in any answer; this run adds to it. May be NULL. */
static int run_arm(json_t **out, const char *name, const json_t *wish, const json_t *items,
                   const struct measure_params *p, json_t *parts, struct err *e) {
    struct arm x = {.p = p, .wish = wish, .n = json_array_size(items)};
    json_t *run = NULL;
    x.side = mem_alloc_array(x.n + 1, sizeof *x.side);
    if (!x.side) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    memset(x.side, 0, (x.n + 1) * sizeof *x.side);
    const struct eval_host h = {.answer = answer,
                                .ud = &x,
                                .n_worker = p->n_worker,
                                .strategy = name,
                                .what = p->quiet ? NULL : name};
    int rc = eval_run(&run, items, &h, p->bare->name, e);
    if (!rc) {
        *out = json_pack("{s:s, s:o}", "name", name, "run", run);
        summarise(*out, items, &x);
    }
    for (size_t i = 0; i < x.n; ++i) {
        if (parts && json_array_size(x.side[i].sources))
            json_object_set_new(parts, "documents", json_true());
        if (parts && json_array_size(x.side[i].tools))
            json_object_set_new(parts, "tools", json_true());
        side_fini(&x.side[i]);
    }
    mem_free(x.side);
    return rc;
}

static const struct {
    /* part: the arm runs only if this part was used; NULL: always runs */
    const char *name, *part, *wish;
} ablations[] = {
    {"documents and web off", "documents", "{\"documents\": false, \"web\": false}"},
    {"tools off", "tools", "{\"tools\": false}"},
    {"routes off", NULL, "{\"route\": \"default\"}"},
    {"strategy off", "strategy", "{\"strategy\": false}"},
    {"n-gram table off", "documents", "{\"dynamic_engram\": false}"},
};

static int add_arm(json_t *arms, const char *name, const json_t *wish, const json_t *items,
                   const struct measure_params *p, json_t *parts, struct err *e) {
    json_t *arm = NULL, *against = NULL;
    int rc = run_arm(&arm, name, wish, items, p, parts, e);
    const json_t *first = json_array_get(arms, 0);
    if (!rc && first)
        rc = eval_compare(&against, json_object_get(first, "run"), json_object_get(arm, "run"), e);
    if (rc) {
        json_decref(arm);
        return rc;
    }
    if (against) json_object_set_new(arm, "against", against);
    json_array_append_new(arms, arm);
    return 0;
}

static int run_arms(json_t *arms, const json_t *items, const struct measure_params *p,
                    const json_t *decisions, struct err *e) {
    json_t *none = json_object(), *parts = json_object(), *d;
    size_t i;
    json_array_foreach(decisions, i, d) {
        const char *s = json_string_value(json_object_get(d, "strategy"));
        if (s && strcmp(s, "none") != 0) json_object_set_new(parts, "strategy", json_true());
    }
    int rc = add_arm(arms, "model alone", NULL, items, p, NULL, e);
    if (!rc) rc = add_arm(arms, "odo", none, items, p, parts, e);
    for (i = 0; p->ablate && !rc && i < sizeof ablations / sizeof *ablations; ++i) {
        if (ablations[i].part && !json_object_get(parts, ablations[i].part)) continue;
        json_t *wish = json_loads(ablations[i].wish, 0, NULL);
        rc = wish ? add_arm(arms, ablations[i].name, wish, items, p, NULL, e)
                  : err_set(e, CHIMERE_ENOMEM, "out of memory");
        json_decref(wish);
    }
    json_decref(none);
    json_decref(parts);
    return rc;
}

int measure_run(json_t **out, const json_t *items, const struct measure_params *p, struct err *e) {
    json_t *decisions = NULL, *arms = json_array(), *answered = json_array(), *item;
    size_t i;
    *out = NULL;
    json_array_foreach(items, i, item) if (json_object_get(item, "check"))
        json_array_append(answered, item);
    int rc = arms && answered ? measure_decide(&decisions, items, p, e)
                              : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && json_array_size(answered))
        rc = run_arms(arms, answered, p, json_object_get(decisions, "items"), e);
    if (!rc) *out = json_pack("{s:O, s:O}", "decisions", decisions, "arms", arms);
    if (!rc && !*out) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    json_decref(decisions);
    json_decref(arms);
    json_decref(answered);
    return rc;
}

/* ---- the card ---- */

#define MOST_LOST 0.005
#define P_DOWN 0.10

static bool harms(const json_t *against) {
    json_t *row;
    size_t i;
    if (json_number_value(json_object_get(json_object_get(against, "total"), "gain")) < -MOST_LOST)
        return true;
    json_array_foreach(json_object_get(against, "skills"), i,
                       row) if (json_number_value(json_object_get(row, "gain")) < 0 &&
                                json_number_value(json_object_get(row, "p")) < P_DOWN) return true;
    return false;
}

int measure_card(struct odo_card *card, json_t **out, const json_t *items,
                 const struct measure_params *p, struct err *e) {
    static const struct {
        const char *name;
        struct odo_card card;
    } parts[] = {{"tools", {.tools = true, .no_documents = true}},
                 {"prompts", {.prompts = true, .no_documents = true}},
                 {"documents", {.tools = false}}};
    size_t n = docs_is_empty(p->odo->p.docs) ? 2 : 3;
    const struct odo_card before = *odo_card_of(p->odo);
    json_t *arms = json_array(), *none = json_object();
    bool harm[3] = {true, true, false};
    *out = NULL;
    int rc = arms && none ? add_arm(arms, "model alone", NULL, items, p, NULL, e)
                          : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < n; ++i) {
        odo_set_card(p->odo, &parts[i].card);
        rc = add_arm(arms, parts[i].name, none, items, p, NULL, e);
        if (!rc) harm[i] = harms(json_object_get(json_array_get(arms, i + 1), "against"));
    }
    odo_set_card(p->odo, &before);
    *card = (struct odo_card){.tools = !harm[0], .prompts = !harm[1], .no_documents = harm[2]};
    struct facts_score facts = {0};
    json_t *judge = NULL;
    if (!rc) rc = facts_measure(p->bare, &facts, e);
    if (!rc)
        rc = measure_judge(&judge, items, json_object_get(json_array_get(arms, 0), "run"), p, e);
    card->facts = !rc && facts_is_good(&facts);
    card->judge = json_is_true(json_object_get(judge, "good"));
    if (!rc &&
        !(*out = json_pack("{s:O, s:O, s:{s:i, s:i, s:i, s:i, s:i}}", "arms", arms, "judge", judge,
                           "facts", "messages", facts.n_read, "read", facts.read, "invented",
                           facts.n_invented, "pairs", facts.n_pair, "pairs_right", facts.pair)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    json_decref(judge);
    json_decref(arms);
    json_decref(none);
    return rc;
}
