/* odo_decide.c: reads what a request asks for, decides what it is about, and sets the options of the run. */
#include <math.h>
#include <string.h>

#include "backend/learned.h"
#include "base/clock.h"
#include "base/mem.h"
#include "odo/mode.h"
#include "odo/odo_impl.h"
#include "odo/odo_quality.h"
#include "odo/decide/query.h"
#include "store/score.h"
#include "tools/calc.h"

static int wish_bool(const json_t *v, const char *key, int *out, struct err *e) {
    if (!json_is_boolean(v))
        return err_set(e, CHIMERE_EINVAL, "odo.%s: expected true or false", key);
    *out = json_is_true(v);
    return 0;
}

/* Parses one of several words. false means the first word, true the last. */
static int wish_level(const json_t *v, const char *key, const char *words, int *out,
                      struct err *e) {
    const char *text = json_string_value(v);
    int n = 0;
    for (const char *w = words; w; ++n) {
        const char *end = strchr(w, '|');
        size_t len = end ? (size_t)(end - w) : strlen(w);
        if (text && strlen(text) == len && !memcmp(text, w, len)) {
            *out = n;
            return 0;
        }
        w = end ? end + 1 : NULL;
    }
    if (!json_is_boolean(v))
        return err_set(e, CHIMERE_EINVAL, "odo.%s: expected true, false or one of %s", key, words);
    *out = json_is_true(v) ? n - 1 : 0;
    return 0;
}

enum { MAX_NAMES = sizeof((struct odo_wish *)0)->files / sizeof(char *) };

static int wish_names(const char *names[MAX_NAMES], size_t *n_name, const json_t *v,
                      const char *key, struct err *e) {
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n > MAX_NAMES)
        return err_set(e, CHIMERE_EINVAL, "odo.%s: expected a list of at most %d names%s", key,
                       MAX_NAMES, strcmp(key, "confirm") ? "" : ", or \"ask\"");
    for (size_t i = 0; i < n; ++i) {
        names[i] = json_string_value(json_array_get(v, i));
        if (!names[i]) return err_set(e, CHIMERE_EINVAL, "odo.%s: expected names", key);
    }
    *n_name = n;
    return 0;
}

int odo_wish_read(struct odo_wish *w, const json_t *extra, struct err *e) {
    *w = (struct odo_wish){.mode = -1,
                           .documents = -1,
                           .web = -1,
                           .tools = -1,
                           .memory = -1,
                           .few_shot = -1,
                           .dynamic_engram = -1};
    const json_t *o = json_object_get(extra, "odo");
    if (!o) return 0;
    if (!json_is_object(o)) return err_set(e, CHIMERE_EINVAL, "odo: expected an object");
    const char *key;
    json_t *v;
    int rc = 0;
    json_object_foreach((json_t *)o, key, v) {
        const char *text = json_string_value(v);
        if (!strcmp(key, "route")) {
            if (!(w->route = text)) rc = err_set(e, CHIMERE_EINVAL, "odo.route: expected a name");
        } else if (!strcmp(key, "collection")) {
            if (!(w->collection = text))
                rc = err_set(e, CHIMERE_EINVAL, "odo.collection: expected a name");
        } else if (!strcmp(key, "mode")) {
            w->auto_mode = text && !strcmp(text, "auto");
            if (!w->auto_mode && (!text || (w->mode = difficulty_mode_from(text)) < 0))
                rc = err_set(e, CHIMERE_EINVAL, "odo.mode: expected auto, fast, quality or ultra");
        } else if (!strcmp(key, "documents")) {
            rc = wish_bool(v, key, &w->documents, e);
        } else if (!strcmp(key, "web")) {
            rc = wish_bool(v, key, &w->web, e);
        } else if (!strcmp(key, "tools")) {
            rc = wish_bool(v, key, &w->tools, e);
        } else if (!strcmp(key, "few_shot")) {
            rc = wish_bool(v, key, &w->few_shot, e);
        } else if (!strcmp(key, "dynamic_engram")) {
            rc = wish_bool(v, key, &w->dynamic_engram, e);
        } else if (!strcmp(key, "cache")) {
            rc = wish_level(v, key, "no|exact|semantic", &w->cache, e);
            if (json_is_true(v)) w->cache = ODO_CACHE_EXACT;
        } else if (!strcmp(key, "memory")) {
            rc = wish_level(v, key, "never|facts|all", &w->memory, e);
        } else if (!strcmp(key, "persona")) {
            if (!(w->persona = text))
                rc = err_set(e, CHIMERE_EINVAL, "odo.persona: expected a name");
        } else if (!strcmp(key, "skill")) {
            w->skill = json_is_false(v) ? "" : text;
            if (!w->skill) rc = err_set(e, CHIMERE_EINVAL, "odo.skill: expected a name or false");
        } else if (!strcmp(key, "strategy")) {
            w->no_strategy = json_is_false(v);
            if (!(w->strategy = text) && !w->no_strategy)
                rc = err_set(e, CHIMERE_EINVAL, "odo.strategy: expected a name, or false");
        } else if (!strcmp(key, "files")) {
            rc = wish_names(w->files, &w->n_file, v, key, e);
        } else if (!strcmp(key, "confirm")) {
            w->ask = text && !strcmp(text, "ask");
            if (!w->ask) rc = wish_names(w->confirm, &w->n_confirm, v, key, e);
        } else {
            rc = err_set(e, CHIMERE_EUNSUPPORTED, "odo.%.40s: unknown field", key);
        }
        if (rc) return rc;
    }
    return 0;
}

/* Sets the expression for the calculator. An expression that the calculator refuses (5 / 0) is answered like any
 * other question. So is a chain of operators, unless the model was measured: the shipped model writes out the
 * steps of a chain, and gets them wrong once it has seen the final result. */
static void find_sum(struct odo_run *r) {
    struct odo_decision *d = &r->d;
    struct calc_value v;
    struct err e = {0};
    d->bare = bare_calculation(r->question, d->sum);
    bool good = d->bare && (bare_is_single(d->sum) || r->odo->p.card.tools) &&
                !calc_eval(&v, d->sum, strlen(d->sum), &e);
    if (!good) d->sum[0] = 0;
}

static int choose(void *ud, const char *text, const char *const *names, const char *const *about,
                  int n, double budget_ms) {
    (void)about; /* a small model chooses better from names alone, and reads them faster */
    return odo_judge(ud, text, names, n, budget_ms);
}

static const struct pipeline *pipeline_for(struct odo_run *r) {
    const struct pipeline *p = pipeline_find(r->set, r->d.intent.route);
    return p ? p : pipeline_find(r->set, "default");
}

static int find_intent(struct odo *o, struct odo_run *r, const char *pinned, bool has_image,
                       struct err *e) {
    struct odo_decision *d = &r->d;
    if (pinned && *pinned) {
        if (!pipeline_find(r->set, pinned)) {
            err_set(e, CHIMERE_EINVAL, "odo.route: no pipeline \"%.40s\"", pinned);
            err_hint(e, "GET /v1/models lists them as odo:NAME");
            return CHIMERE_EINVAL;
        }
        memset(&d->intent, 0, sizeof d->intent);
        strncpy(d->intent.route, pinned, sizeof d->intent.route - 1);
        d->intent.confidence = 1;
        d->intent.how = INTENT_PINNED;
        d->named = strcmp(pinned, "default") != 0;
        return 0;
    }
    struct intent_judge judge = {choose, o};
    struct intent_question q = {.text = r->question,
                                .n = strlen(r->question),
                                .files = r->wish.files,
                                .n_file = r->wish.n_file,
                                .has_image = has_image,
                                .budget_ms = o->p.intent_ms,
                                .limits = &d->limits};
    bool rules_alone = o->p.intent_ms < 0 || !o->p.backend;
    intent_decide(pipeline_rules(r->set), &q, rules_alone ? NULL : &judge, &d->intent);
    if (!strcmp(d->intent.route, "vision") && !o->p.can_see && !pipeline_find(r->set, "vision")) {
        err_set(e, CHIMERE_EUNSUPPORTED, "messages: %s cannot see images",
                o->p.backend ? o->p.backend->name : "the model");
        err_hint(e, "describe the image in words, or use a model that reads images");
        return CHIMERE_EUNSUPPORTED;
    }
    return 0;
}

/* Chooses a mode if none was named, from how sure the model is when it begins to answer at once. */
static void probe_mode(struct odo *o, struct odo_run *r) {
    struct odo_decision *d = &r->d;
    struct mode_probe p;
    double budget_ms = o->p.intent_ms > 0 ? 3.0 * o->p.intent_ms : 900;
    if (!o->p.backend || o->p.intent_ms < 0) return;
    ++o->n_model_call;
    if (mode_probe(o->p.backend, r->request, r->cancelled, clock_ns() + (int64_t)(budget_ms * 1e6),
                   &p, NULL) == 0)
        d->probe_nats = p.mean;
    r->stats.n_generated += p.stats.n_generated;
    d->mode = mode_choose(&d->difficulty, d->probe_nats >= 0 ? &p : NULL, &d->limits);
}

bool odo_may(const struct odo_run *r, enum odo_part part) {
    const struct odo_card *card = &r->odo->p.card;
    return r->d.named || (part == ODO_TOOLS ? card->tools || r->wish.tools == 1 : card->prompts);
}

bool odo_may_multiply(const struct odo_run *r) {
    return r->d.mode == DIFFICULTY_ULTRA && r->wish.mode == DIFFICULTY_ULTRA;
}

/* Configures a run for the model alone: no decision, no retrieval, no added text. */
static int decide_plain(struct odo_run *r, struct err *e) {
    static const struct pipeline alone = {
        .name = "plain",
        .sampling = {NAN, NAN, NAN, NAN, INT32_MIN, INT32_MIN},
        .think = -1,
        .think_budget = INT32_MIN,
        .rounds = 6,
        .any_mcp = true,
    };
    bool has_image;
    struct odo_decision *d = &r->d;
    if (!(r->question = request_question(r->request->messages, &has_image)))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    *d = (struct odo_decision){
        .pipeline = &alone, .probe_nats = -1, .named = true, .limits = limits_default()};
    d->intent = (struct intent){.route = "plain", .confidence = 1, .how = INTENT_PINNED};
    return 0;
}

static struct limits limits_of(const struct odo *o, const struct request *a) {
    const struct backend *b = o->p.backend;
    return learned_limits(b && b->model ? b->model->learned : NULL, learned_conversation(a));
}

int odo_decide(struct odo *o, struct odo_run *r, const char *pinned, struct err *e) {
    if (((const struct odo_front *)r->base.backend)->plain) return decide_plain(r, e);
    int64_t start = clock_ns();
    bool has_image;
    struct odo_decision *d = &r->d;
    if (!(r->question = request_question(r->request->messages, &has_image)))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    d->limits = limits_of(o, r->request);
    int rc = find_intent(o, r, r->wish.route ? r->wish.route : pinned, has_image, e);
    if (rc) return rc;
    const struct pipeline *p = d->pipeline = pipeline_for(r);
    double scores[STORE_MAX_SCORES];
    size_t n_score = history_scores(o->history, d->intent.route, o->p.card.judge, scores);
    difficulty_of(r->question, strlen(r->question), scores, n_score, &d->limits, &d->difficulty);
    d->mode = r->wish.mode >= 0 ? (enum difficulty_mode)r->wish.mode : d->difficulty.mode;
    d->probe_nats = -1;
    if (r->wish.auto_mode && !r->request->continue_last) probe_mode(o, r);
    bool free_text = r->request->format == REQUEST_TEXT && !r->request->continue_last;
    find_sum(r);
    d->steps = p->n_step > 0 && free_text && r->request->n == 1 &&
               !json_array_size(r->request->tools) &&
               (p->run_steps == PIPELINE_ALWAYS ||
                (p->run_steps == PIPELINE_ULTRA && odo_may_multiply(r)));
    bool greeting = d->intent.how == INTENT_GREETING || r->request->continue_last;
    /* A calculation needs no documents, although its numbers occur in many. No documents are read either if the
     * client has tools of its own, parses the answer with a program, or sends data within the question: the client
     * has then said what the answer is to be made from. */
    bool may_read =
        r->wish.documents > 0 || (!d->bare && free_text && !json_array_size(r->request->tools) &&
                                  !query_has_object(r->question));
    d->asked_documents = r->wish.documents > 0 || r->wish.collection || d->named ||
                         !strcmp(d->intent.route, "doc_qa");
    d->documents = o->p.docs && !greeting && may_read &&
                   (d->asked_documents || !o->p.card.no_documents) &&
                   (r->wish.documents >= 0 ? r->wish.documents
                                           : p->documents || !strcmp(d->intent.route, "doc_qa"));
    d->few_shot = o->examples && !greeting && free_text &&
                  (r->wish.few_shot >= 0 ? r->wish.few_shot : p->few_shot);
    d->dynamic_engram = r->wish.dynamic_engram >= 0 ? r->wish.dynamic_engram : p->dynamic_engram;
    d->web = !o->p.web || greeting                                        ? PIPELINE_WEB_NEVER
             : r->wish.web == 1                                           ? PIPELINE_WEB_ALWAYS
             : r->wish.web == 0                                           ? PIPELINE_WEB_NEVER
             : d->mode == DIFFICULTY_FAST && p->web == PIPELINE_WEB_PROBE ? PIPELINE_WEB_NEVER
                                                                          : p->web;
    rc = odo_strategy_decide(r, e);
    if (rc) return rc;
    d->ms = clock_ms_since(start);
    odo_count(o, ODO_DECIDE, clock_ms_since(start), false);
    return 0;
}

json_t *odo_decision_json(const struct odo_run *r) {
    static const char *const web[] = {"never", "probe", "always"};
    const struct odo_decision *d = &r->d;
    json_t *scores = json_object();
    const struct intent_rules *rules = pipeline_rules(r->set);
    for (int i = 0; i < intent_n_route(rules); ++i)
        if (d->intent.score[i] > 0)
            json_object_set_new(scores, intent_route(rules, i), json_real(d->intent.score[i]));
    const char *skill = r->skill ? r->skill->name : NULL;
    json_t *o = json_pack(
        "{s:s, s:f, s:s, s:o, s:s, s:s, s:f, s:f, s:s, s:b, s:b, s:b, s:s, s:s*, s:s, s:f}",
        "route", d->intent.route, "confidence", d->intent.confidence, "how",
        intent_how_name(d->intent.how), "scores", scores, "pipeline", d->pipeline->name,
        "difficulty", difficulty_class_name(d->difficulty.class), "score", d->difficulty.score,
        "history", d->difficulty.history, "mode", difficulty_mode_name(d->mode), "steps", d->steps,
        "documents", d->documents, "asked_documents", d->asked_documents, "web", web[d->web],
        "skill", skill, "strategy", d->has_strategy ? strategy_name(&d->strategy) : "none", "ms",
        d->ms);
    if (o && d->probe_nats >= 0) json_object_set_new(o, "probe", json_real(d->probe_nats));
    return o;
}
