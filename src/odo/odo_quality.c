/* odo_quality.c: several attempts at one answer, and how their scores are used. */
#include "odo/odo_quality.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "odo/odo_steps.h"
#include "strategy/prm.h"
#include "odo/quality.h"
#include "strategy/strategy.h"
#include "store/quality.h"

enum { BAD_GRADE = 2, BAD_TEXT = 4000 };

/* ---- strategies ---- */

int odo_strategy_decide(struct odo_run *r, struct err *e) {
    struct odo_decision *d = &r->d;
    const struct pipeline *p = d->pipeline;
    const struct request *a = r->request;
    d->has_strategy = false;
    const char *spec = r->wish.strategy;
    if (!spec && p->strategy && !r->wish.no_strategy &&
        (p->strategy_when == PIPELINE_ALWAYS ||
         (p->strategy_when == PIPELINE_ULTRA && odo_may_multiply(r))))
        spec = p->strategy;
    if (!spec) return 0;
    int rc = strategy_parse(&d->strategy, spec, e);
    if (rc) {
        err_prefix(e, "odo");
        return rc;
    }
    bool possible = !json_array_size(a->tools) && !a->continue_last && !a->probs &&
                    d->intent.how != INTENT_GREETING;
    if (!possible && r->wish.strategy)
        return err_set(e, CHIMERE_EINVAL,
                       "odo.strategy: expected a question without tools, logprobs or a message to "
                       "continue");
    d->has_strategy = possible;
    if (possible) d->steps = false;
    return 0;
}

static int relay(void *ud, const struct backend_event *ev) {
    struct odo_run *r = ud;
    if (ev->kind == EVENT_NOTE) return 0;
    struct backend_event copy = *ev;
    copy.choice = r->choice;
    if (ev->kind == EVENT_CHAT && ev->chat->kind == CHAT_CONTENT && r->keeps_answer)
        buf_put(&r->answer, ev->chat->text, ev->chat->n);
    return odo_send(r, &copy);
}

int odo_strategy_answer(struct odo_run *r, enum finish *finish, struct err *e) {
    const struct pipeline *p = r->d.pipeline;
    struct request a;
    odo_ask(r, NULL, true, &a);
    a.messages = r->messages;
    a.tools = NULL;
    a.sampling.seed += (uint64_t)r->choice * STRATEGY_MAX_N * STRATEGY_MAX_STEPS;
    const struct strategy_use use = {.strategy = &r->d.strategy,
                                     .backend = r->odo->p.backend,
                                     .verifier = r->odo->p.prm,
                                     .request = &a,
                                     .on_event = relay,
                                     .ud = r,
                                     .cancelled = r->cancelled,
                                     .deadline_ns = clock_ns() + (int64_t)p->strategy_ms * 1000000};
    struct strategy_result out;
    int64_t start = clock_ns();
    int rc = strategy_run(&use, &out, e);
    json_decref(a.extra);
    r->odo->n_model_call += (uint64_t)out.cost.n_call;
    odo_count(r->odo, ODO_MODEL, clock_ms_since(start), rc != 0);
    odo_spend(r, &out.stats, (int32_t)out.cost.n_thinking);
    if (r->trace.spans)
        trace_span(&r->trace, "strategy", start, rc != 0,
                   json_pack("{s:s, s:i, s:i}", "odo.strategy", strategy_name(&r->d.strategy),
                             "gen_ai.usage.output_tokens", (int)out.stats.n_generated, "odo.calls",
                             (int)out.cost.n_call));
    *finish = out.finish;
    json_t *note = strategy_json(&r->d.strategy, &out);
    if (note) json_object_set(r->record, "strategy", note);
    odo_note(r, "strategy", note);
    json_decref(r->candidates);
    r->candidates = json_incref(out.candidates);
    r->winner = out.winner;
    r->score =
        r->d.strategy.n > 1 && (out.cost.n_check || out.cost.n_check_prompt) ? out.score : NAN;
    strategy_fini(&out);
    return rc;
}

/* ---- reflection ---- */

static double judged(struct odo_run *r, const char *answer) {
    struct prm_item it = {.problem = r->question, .solution = answer};
    const struct prm_use use = {.backend = r->odo->p.backend,
                                .cancelled = r->cancelled,
                                .deadline_ns = r->request->deadline_ns,
                                .max_tokens = r->n_left == INT32_MAX ? 0 : r->n_left};
    if (odo_is_spent(r)) return NAN;
    ++r->odo->n_model_call;
    if (prm_score(&use, &it, 1, NULL)) return NAN;
    bool said = !it.failed && (it.verdict.n_said || it.verdict.has_whole);
    double score = said ? it.verdict.score : NAN;
    odo_spend(r, &it.stats, it.stats.n_generated);
    prm_drop(&it);
    return score;
}

static int held(struct odo_run *r, const struct odo_round *round, struct buf *text,
                enum finish *finish, struct err *e) {
    r->quiet = true; /* also suppresses thinking: the answer that is sent later has none */
    int rc = odo_loop(r, round, text, finish, e);
    r->quiet = false;
    return rc ? rc : text->failed ? err_set(e, CHIMERE_ENOMEM, "out of memory") : 0;
}

static json_t *critique(const json_t *messages, const struct buf *draft) {
    json_t *all = json_copy((json_t *)messages);
    size_t n = draft->n < BAD_TEXT ? draft->n : BAD_TEXT;
    while (n && n < draft->n && (draft->p[n] & 0xc0) == 0x80) n--;
    if (!all) return NULL;
    json_array_append_new(all, json_pack("{s:s, s:s#}", "role", "assistant", "content",
                                         draft->n ? draft->p : "", (int)n));
    json_array_append_new(
        all, json_pack("{s:s, s:s}", "role", "user", "content",
                       "A reviewer found mistakes in this answer. Check each step of it, then give "
                       "the whole answer again, corrected."));
    return all;
}

bool odo_wants_reflection(const struct odo_run *r) {
    /* the grade of a model that cannot judge would replace good answers by worse ones */
    return r->d.pipeline->quality_reflect && r->odo->p.card.judge &&
           !json_array_size(r->request->tools) && r->request->format == REQUEST_TEXT &&
           !r->request->probs;
}

int odo_reflect(struct odo_run *r, const struct odo_round *round, enum finish *finish,
                struct err *e) {
    struct buf text, second;
    buf_init(&text, (size_t)4 << 20);
    buf_init(&second, (size_t)4 << 20);
    int rc = held(r, round, &text, finish, e);
    r->score = NAN;
    const struct buf *given = &text;
    if (!rc && !*r->cancelled && text.n >= QUALITY_LEAST) r->score = judged(r, text.p);
    if (!rc && !isnan(r->score) && quality_grade(r->score) <= BAD_GRADE && !*r->cancelled &&
        !odo_is_spent(r)) {
        struct odo_round again = *round;
        struct err why = {0};
        enum finish how = FINISH_ERROR;
        again.messages = critique(round->messages, &text);
        bool whole = again.messages && !held(r, &again, &second, &how, &why) && second.n;
        json_decref(again.messages);
        double score = whole ? judged(r, second.p) : NAN;
        bool better = whole && !isnan(score) && score >= r->score;
        json_object_set_new(r->record, "reflection",
                            json_pack("{s:f, s:f, s:b}", "score", r->score, "again",
                                      isnan(score) ? 0.0 : score, "replaced", better));
        odo_note(r, "reflection", json_incref(json_object_get(r->record, "reflection")));
        if (better) {
            r->draft = mem_strndup(text.p, text.n);
            r->draft_score = r->score;
            r->score = score;
            given = &second;
            *finish = how;
        }
    }
    if (!rc && given->n) odo_answer(r, given->p, given->n);
    buf_fini(&text);
    buf_fini(&second);
    return rc;
}

/* ---- the quality gate ---- */

bool odo_wants_quality(const struct odo_run *r) {
    return r->odo->quality && r->d.pipeline && r->d.pipeline->quality_score;
}

/* Nights learn kept texts for all users, as a question and its answer. Text of pages, documents and files may be an
 * attacker's, what the memory holds belongs to one user, and "And in winter?" asks nothing without the turns before. */
static bool may_teach(const struct odo_run *r) {
    return request_lone_question(r->request->messages) && !r->tainted && !r->tainted_local &&
           !json_array_size(r->sources) && !r->memory.n;
}

void odo_quality_post(struct odo_run *r, enum finish finish) {
    if (!odo_wants_quality(r) || finish != FINISH_STOP || r->n_client_call || !r->answer.n) return;
    const struct quality_answer a = {.name = r->answer_name,
                                     .route = r->d.intent.route,
                                     .owner = r->owner,
                                     .night = r->night,
                                     .question = r->question,
                                     .answer = r->answer.p,
                                     .score = r->score,
                                     .candidates = r->candidates,
                                     .winner = r->winner,
                                     .draft = r->draft,
                                     .draft_score = r->draft_score,
                                     .keep = r->d.pipeline->quality_keep && may_teach(r)};
    quality_post(r->odo->quality, &a);
}

int odo_feedback(struct odo *o, const char *answer, int32_t score, const char *comment,
                 struct err *e) {
    if (!o->p.store) return err_set(e, CHIMERE_EUNSUPPORTED, "answer: nothing is kept here");
    return store_quality_feedback(o->p.store, answer, score, comment, e);
}
