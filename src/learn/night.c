#include "learn/night.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/learned.h"
#include "base/clock.h"
#include "base/os/energy.h"
#include "base/file.h"
#include "base/os/fs.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/rng.h"
#include "engine/lease.h"
#include "eval/harness.h"
#include "learn/step/arm.h"
#include "learn/gate.h"
#include "learn/step/night_step.h"
#include "learn/data/hostile.h"
#include "learn/data/judge.h"
#include "learn/data/own.h"
#include "learn/trial.h"
#include "learn/data/votes.h"
#include "store/server/lead.h"

enum { MAX_HIDDEN = 366 /* times of hostile days */ };
enum { MAX_STEPS = 16, MAX_PROMPT = FZOO_MAX_TOKENS / 2 };
enum {
    POLL_MS = 10,         /* time between two looks at a step that runs */
    METER_NS = 100000000, /* time between two readings of the energy counters */
    LEAD_NS = 1000000000  /* time between two looks at who leads */
};
#define P_DOWN 0.10 /* if a skill gets worse with a p below this, the promotion is refused */

const struct night_step *const night_steps[] = {
    &night_step_engram,     &night_step_lora,   &night_step_prompts, &night_step_examples,
    &night_step_thresholds, &night_step_drafts, &night_step_reindex, NULL};

void night_step_names(char out[NIGHT_MAX_NAMES], const char *separator) {
    size_t n = 0;
    for (const struct night_step *const *s = night_steps; *s && n < NIGHT_MAX_NAMES; s++)
        n += (size_t)snprintf(out + n, NIGHT_MAX_NAMES - n, "%s%s", n ? separator : "", (*s)->name);
}

void night_gain_of(struct night_gain *g, const double *before, const double *after, size_t n) {
    *g = (struct night_gain){.n = n};
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        double d = before[i] - after[i];
        g->before += before[i] / (double)n;
        g->after += after[i] / (double)n;
        g->mean += d / (double)n;
        square += d * d;
    }
    double var = n > 1 ? (square - (double)n * g->mean * g->mean) / (double)(n - 1) : INFINITY;
    g->error = sqrt((var > 0 ? var : 0) / (double)(n ? n : 1));
    double half = 1.96 * g->error;
    g->low = g->mean - half;
    g->high = g->mean + half;
}

/* ---- budgets ---- */

static bool read_joules(double *out) {
    struct energy_joules j;
    if (!energy_now(&j)) return false;
    *out = energy_total(&j);
    return true;
}

int night_can_measure(double max_joules, struct err *e) {
    char about[160];
    double now;
    if (!(max_joules > 0) || read_joules(&now)) return 0;
    energy_about(about, sizeof about);
    return err_set(e, CHIMERE_EUNSUPPORTED, "max-energy: the energy cannot be measured: %s", about);
}

static void start_meter(struct night_meter *m) { m->has_counter = read_joules(&m->from); }

static void read_meter(struct night_meter *m) {
    double now;
    m->read_ns = clock_ns();
    if (m->has_counter && read_joules(&now)) m->used = now - m->from;
}

/* Each forward pass asks, and a reading of many counters takes longer than a small pass. */
static bool has_energy(struct night *x) {
    struct night_meter *m = &x->meter;
    if (!(x->params->max_joules > 0)) return true;
    if (!m->read_ns || clock_ns() - m->read_ns >= METER_NS) read_meter(m);
    m->is_spent |= m->used >= x->params->max_joules;
    return !m->is_spent;
}

static bool owner_goes_on(const struct night *x) {
    return !x->params->goes_on || x->params->goes_on(x->params->ud);
}

/* A step hears of the owner through its job. */
static bool user_goes_on(const struct night *x) {
    return x->job ? !*jobs_cancel_flag(x->job) : owner_goes_on(x);
}

/* A leader whose connection was lost for long may have been replaced. */
static bool still_leads(struct night *x) {
    if (!x->is_replaced && clock_ns() - x->led_ns >= LEAD_NS) {
        x->is_replaced = !store_leads(x->host->store);
        x->led_ns = clock_ns();
    }
    return !x->is_replaced;
}

static bool is_within_budgets(struct night *x) {
    return (double)clock_ns() * 1e-9 < x->deadline && has_energy(x) && still_leads(x);
}

bool night_goes_on(struct night *x) { return user_goes_on(x) && is_within_budgets(x); }

/* Returns true for an error that only means that the energy is spent: the night ends with a record. */
static bool is_out_of_energy(const struct night *x, int rc) {
    return rc == CHIMERE_ECANCELLED && x->meter.is_spent && user_goes_on(x);
}

int night_samples(const struct night *x, bool held_out, struct fzoo_sample **v, size_t *n,
                  struct err *e) {
    *n = 0;
    *v = mem_alloc_array(x->day.n + 1, sizeof **v);
    if (!*v) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < x->day.n; i++)
        if (x->samples[i].n_tok && x->day.v[i].held_out == held_out) (*v)[(*n)++] = x->samples[i];
    return 0;
}

int night_indexes(const struct night *x, bool held_out, uint64_t seed, size_t **v, size_t *n,
                  struct err *e) {
    struct rng rng;
    *n = 0;
    *v = mem_alloc_array(x->day.n + 1, sizeof **v);
    if (!*v) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < x->day.n; i++)
        if (x->samples[i].n_tok && x->day.v[i].held_out == held_out) (*v)[(*n)++] = i;
    rng_seed(&rng, seed);
    for (size_t i = *n; i > 1; i--) {
        size_t k = rng_below(&rng, i), t = (*v)[k];
        (*v)[k] = (*v)[i - 1];
        (*v)[i - 1] = t;
    }
    return 0;
}

bool night_live(const struct night *x, const char *name, char *out, size_t out_size) {
    char path[NIGHTS_MAX_PATH];
    const char *sha256 =
        json_string_value(json_object_get(json_object_get(x->base, "artefacts"), name));
    if (x->is_foreign || !sha256 || nights_object(x->nights, sha256, path, NULL)) return false;
    int k = snprintf(out, out_size, "%s", path);
    return k > 0 && (size_t)k < out_size && file_exists(out);
}

static void say(const struct night *x, const char *line) {
    if (x->params->say) x->params->say(x->params->ud, line);
}

/* ---- the device ---- */

static void give_back(struct night *x) {
    if (x->has_device) engine_give_back(x->host->engine);
    x->has_device = false;
}

/* Waits until no other user needs the engine. The time and the energy of waiting do not count against the budgets. */
static int take_device(struct night *x, struct err *e) {
    int64_t start = clock_ns();
    read_meter(&x->meter);
    double used = x->meter.used;
    while (!engine_borrow(x->host->engine)) {
        if (!user_goes_on(x)) return err_set(e, CHIMERE_ECANCELLED, "the night was stopped");
        os_sleep_ms(10);
    }
    x->has_device = true;
    x->deadline += (double)(clock_ns() - start) * 1e-9;
    read_meter(&x->meter);
    x->meter.from += x->meter.used - used;
    x->meter.used = used;
    return 0;
}

static int end_night(struct err *e) {
    return err_set(e, CHIMERE_ECANCELLED, "the night was stopped, or its budget is spent");
}

static int take_turn(void *ud, struct err *e) {
    struct night *x = ud;
    if (!night_goes_on(x)) return end_night(e);
    if (!x->host->is_shared || (x->has_device && !engine_is_wanted(x->host->engine))) return 0;
    if (x->has_device) say(x, "paused: somebody asks");
    give_back(x);
    return take_device(x, e);
}

struct windows_turn night_turn(struct night *x) {
    return (struct windows_turn){.fn = take_turn, .ud = x};
}

/* ---- tokenizing the day's texts ---- */

int night_encode_text(struct night *x, const char *question, const char *answer, const char *rules,
                      const json_t *shots, struct fzoo_sample *out, struct err *e) {
    const struct night_host *h = x->host;
    int32_t *prompt = NULL, *reply = NULL, *all = NULL;
    size_t n_prompt = 0, n_answer = 0;
    *out = (struct fzoo_sample){.n_tok = 0};
    json_t *asked = json_pack("[{s:s,s:s}]", "role", "user", "content", question);
    if (!asked) return 0; /* the text is not UTF-8 */
    json_t *messages = learned_messages(rules, shots, asked);
    json_decref(asked);
    if (!messages) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = h->encode(h->ud, messages, NULL, false, &prompt, &n_prompt, e);
    json_decref(messages);
    if (!rc) rc = tok_encode(h->tok, answer, strlen(answer), false, false, &reply, &n_answer, e);
    bool fits = n_prompt && n_prompt <= MAX_PROMPT && n_answer;
    size_t room = fits ? FZOO_MAX_TOKENS - n_prompt - 1 : 0;
    if (n_answer > room) n_answer = room;
    if (!rc && fits && !(all = mem_alloc_array(n_prompt + n_answer + 1, sizeof *all)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && fits) {
        memcpy(all, prompt, n_prompt * sizeof *all);
        memcpy(all + n_prompt, reply, n_answer * sizeof *all);
        int32_t n = (int32_t)(n_prompt + n_answer);
        if (tok_eos(h->tok) >= 0) all[n++] = tok_eos(h->tok);
        *out = (struct fzoo_sample){all, n, (int32_t)n_prompt};
    }
    mem_free(prompt);
    mem_free(reply);
    return rc;
}

int night_encode_item(struct night *x, size_t i, const char *rules, const json_t *shots,
                      struct fzoo_sample *out, struct err *e) {
    const struct learn_item *item = &x->day.v[i];
    return night_encode_text(x, item->question, item->answer, rules, shots, out, e);
}

static int encode_day(struct night *x, struct err *e) {
    x->samples = mem_alloc_array(x->day.n + 1, sizeof *x->samples);
    if (!x->samples) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = 0;
    for (size_t i = 0; !rc && i < x->day.n; i++)
        rc = night_encode_item(x, i, NULL, NULL, &x->samples[i], e);
    return rc;
}

static json_t *day_json(const struct learn_day *d) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "older", (json_int_t)d->n_old,
                     "contested", (json_int_t)d->n_contested, "suspect", (json_int_t)d->n_suspect,
                     "answers", (json_int_t)d->n_read, "learned", (json_int_t)(d->n - d->n_held),
                     "held_out", (json_int_t)d->n_held, "below_worth", (json_int_t)d->n_worse,
                     "duplicates", (json_int_t)d->n_same, "too_long", (json_int_t)d->n_long,
                     "secrets_masked", (json_int_t)d->n_secret);
}

/* ---- general suites ---- */

/* Called between groups of items: waits while other users need the device. */
static int suite_turn(void *ud, struct err *e) {
    struct night *x = ud;
    int rc = take_turn(x, e);
    give_back(x);
    return rc;
}

static int run_suites(struct night *x, const struct night_arm *arm, json_t **run, struct err *e) {
    const struct windows_turn turn = {.fn = suite_turn, .ud = x};
    bool polls = x->host->is_shared || x->params->max_joules > 0;
    return arm_run(run, x->host, x->items, arm, polls ? &turn : NULL, e);
}

int night_answers(struct night *x, const json_t *items, const char *adapter, json_t **run,
                  struct err *e) {
    const struct night_arm arm = {.path = {[ARM_ADAPTER] = adapter}, .pipeline = ""};
    const struct windows_turn turn = {.fn = suite_turn, .ud = x};
    bool is_shared = x->host->is_shared, polls = is_shared || x->params->max_joules > 0;
    give_back(x);
    int rc = arm_run(run, x->host, items, &arm, polls ? &turn : NULL, e);
    if (!rc && is_shared) rc = take_device(x, e);
    return rc;
}

/* Returns the name of a skill that got worse; NULL: none. */
static const char *fallen(const json_t *compare) {
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(compare, "skills"), i, row) {
        double a = json_number_value(json_object_get(row, "a"));
        double b = json_number_value(json_object_get(row, "b"));
        if (b < a && json_number_value(json_object_get(row, "p")) < P_DOWN)
            return json_string_value(json_object_get(row, "skill"));
    }
    const json_t *total = json_object_get(compare, "total");
    bool falls = json_number_value(json_object_get(total, "gain")) < 0 &&
                 json_number_value(json_object_get(total, "p")) < P_DOWN;
    return falls ? "all skills together" : NULL;
}

/* ---- proposals ---- */

struct proposal {
    const struct night_step *step;
    char path[NIGHTS_MAX_PATH + 64], why[256];
    struct night_gain gain;
    double p,
        /* probability of this gain by chance; the limit for p, corrected for the number of candidates */
        limit;
    bool exists, gains, promoted;
    double seconds;
};

static bool is_wanted(const char *steps, const char *name) {
    if (!steps) return true;
    size_t n = strlen(name);
    for (const char *at = steps; (at = strstr(at, name)); at += n)
        if ((at == steps || at[-1] == ',') && (!at[n] || at[n] == ',')) return true;
    return false;
}

/* Checks that every name of the list is the name of a step. */
static int check_steps(const char *steps, struct err *e) {
    char names[NIGHT_MAX_NAMES];
    for (const char *at = steps; at && *at;) {
        size_t n = strcspn(at, ",");
        const struct night_step *const *s = night_steps;
        while (*s && (strlen((*s)->name) != n || memcmp((*s)->name, at, n) != 0)) s++;
        if (!*s) {
            night_step_names(names, ", ");
            return err_set(e, CHIMERE_EINVAL, "steps: expected names of %s; got \"%.*s\"", names,
                           (int)(n < 40 ? n : 40), at);
        }
        at += n + (at[n] == ',');
    }
    return 0;
}

static const char *unit_of(const struct night_step *s) {
    return s->unit ? s->unit : "nats per token";
}

/* A step that runs as a job. */
struct attempt {
    struct night *x;
    struct proposal *p;
    struct err why;
    int rc;
};

/* Runs the step on the job's thread. Its history says what came out. */
static int work(struct jobs_run *job, void *arg, struct err *e) {
    struct attempt *a = arg;
    struct night *x = a->x;
    struct proposal *p = a->p;
    bool is_upkeep = p->step->is_upkeep;
    char line[JOBS_MAX_TEXT];
    x->job = job;
    a->rc = is_upkeep ? 0 : take_turn(x, e);
    if (!a->rc) a->rc = p->step->propose(x, p->path, &p->gain, p->why, e);
    give_back(x);
    x->job = NULL;
    if (a->rc == CHIMERE_ECANCELLED) end_night(e); /* not in the words of the step */
    p->exists = !a->rc && !is_upkeep;
    snprintf(line, sizeof line, "%s", p->why);
    if (p->exists)
        snprintf(line, sizeof line, "%+.4f %s on %zu held-out answers", p->gain.mean,
                 unit_of(p->step), p->gain.n);
    jobs_progress(job, 1, 1, line);
    a->why = *e;
    return a->rc == CHIMERE_ENOENT && p->why[0] ? 0 : a->rc;
}

/* Waits until the step has ended, and cancels its job if the owner stops the night. Upkeep does not know the budgets. */
static int run_step(struct night *x, struct proposal *p, struct err *e) {
    struct attempt a = {.x = x, .p = p, .rc = CHIMERE_ECANCELLED};
    const struct jobs_spec spec = {.kind = "night", .name = p->step->name, .work = work, .arg = &a};
    struct jobs_status s;
    int64_t id;
    end_night(&a.why); /* if the job is cancelled before it begins */
    int rc = jobs_post(x->jobs, &spec, &id, e);
    if (rc) return rc;
    while (jobs_status(x->jobs, id, &s) && s.state <= JOBS_RUNNING) {
        if (!owner_goes_on(x) || (p->step->is_upkeep && !is_within_budgets(x)))
            jobs_cancel(x->jobs, id, NULL);
        os_sleep_ms(POLL_MS);
    }
    if (a.rc && e) *e = a.why;
    return a.rc;
}

static int propose(struct night *x, struct proposal *p, struct err *e) {
    char line[512];
    int64_t start = clock_ns();
    int rc = 0;
    if (x->meter.is_spent) {
        snprintf(p->why, sizeof p->why, "not begun: the energy budget was spent");
        return 0;
    }
    if (!p->step->is_upkeep)
        snprintf(p->path, sizeof p->path, "%s/%s", x->scratch, p->step->artefact);
    snprintf(line, sizeof line, "%s: %s", p->step->name, p->step->about);
    say(x, line);
    if (p->step->is_upkeep && x->params->dry_run)
        snprintf(p->why, sizeof p->why, "not done: a dry run");
    else rc = run_step(x, p, e);
    p->seconds = (double)(clock_ns() - start) * 1e-9;
    if (p->exists) p->p = gate_p(p->gain.mean, p->gain.error);
    return rc == CHIMERE_ENOENT && p->why[0] ? 0 : rc;
}

/* Decides which proposals gain. The limits are corrected for the number of proposals, because of many candidates
 * one would seem to gain by chance. */
static void judge_gains(struct proposal *v, size_t n) {
    double p[MAX_STEPS], limits[MAX_STEPS];
    bool passes[MAX_STEPS];
    size_t at[MAX_STEPS], k = 0;
    for (size_t i = 0; i < n; i++)
        if (v[i].exists) {
            p[k] = v[i].p;
            at[k++] = i;
        }
    gate_holm(p, k, GATE_ALPHA, limits, passes);
    for (size_t j = 0; j < k; j++) {
        struct proposal *x = &v[at[j]];
        x->limit = limits[j];
        x->gains = passes[j];
        if (x->gains) continue;
        snprintf(x->why, sizeof x->why,
                 "no gain that %zu held-out answers show: %+.4f %s, 95 %% interval "
                 "%+.4f to %+.4f, p %.3f where less than %.4f is needed",
                 x->gain.n, x->gain.mean, unit_of(x->step), x->gain.low, x->gain.high, x->p,
                 x->limit);
    }
}

/* Returns the current artefacts, with those of the proposals in `mask` in place of the old ones. If the rules of a
 * pipeline are proposed, every arm of the night answers with the rules of that pipeline. */
static struct night_arm arm_of(const struct night *x, const struct proposal *v, size_t n,
                               unsigned mask, char paths[ARM_N_FILE][NIGHTS_MAX_PATH]) {
    struct night_arm arm = {.pipeline = ""};
    for (size_t i = 0; i < n; i++)
        if (v[i].exists && v[i].gain.pipeline[0]) arm.pipeline = v[i].gain.pipeline;
    for (int k = 0; k < ARM_N_FILE; k++) {
        const char *name = arm_artefacts[k];
        if (night_live(x, name, paths[k], NIGHTS_MAX_PATH)) arm.path[k] = paths[k];
        for (size_t i = 0; i < n; i++)
            if (mask >> i & 1 && !v[i].step->is_upkeep && !strcmp(v[i].step->artefact, name))
                arm.path[k] = v[i].path;
    }
    return arm;
}

/* Runs the suites with the proposals of `mask`. *passes: nothing got worse. */
static int try_arm(struct night *x, struct proposal *v, size_t n, unsigned mask,
                   const json_t *before, json_t *record, bool *passes, struct err *e) {
    char paths[ARM_N_FILE][NIGHTS_MAX_PATH];
    struct night_arm arm = arm_of(x, v, n, mask, paths);
    json_t *after = NULL, *compare = NULL;
    say(x, "gate: the general suites with what was proposed");
    int rc = run_suites(x, &arm, &after, e);
    if (!rc) rc = eval_compare(&compare, before, after, e);
    const char *down = rc ? NULL : fallen(compare);
    *passes = !rc && !down;
    for (size_t i = 0; down && i < n; i++)
        if (mask >> i & 1)
            snprintf(v[i].why, sizeof v[i].why, "%s falls on the general suites (p < %.2f)", down,
                     P_DOWN);
    json_t *total = json_object_get(compare, "total");
    json_int_t differ = json_integer_value(json_object_get(total, "only_a")) +
                        json_integer_value(json_object_get(total, "only_b"));
    if (!rc) { /* the refusal uses the two-sided p, so the one-sided level is half of it */
        json_int_t n_item = json_integer_value(json_object_get(total, "n"));
        double fall = gate_detectable_share(n_item, differ, P_DOWN / 2);
        json_object_set_new(total, "detectable", json_real(fall));
        json_object_set(record, "gate", compare);
    }
    json_decref(after);
    json_decref(compare);
    return rc;
}

/* Sets *chosen to the mask of the proposals that pass: all together, or else the first one that passes alone; and
 * those that the suites cannot measure. */
static int choose(struct night *x, struct proposal *v, size_t n, json_t *record, unsigned *chosen,
                  struct err *e) {
    char paths[ARM_N_FILE][NIGHTS_MAX_PATH];
    unsigned all = 0, beside = 0;
    json_t *before = NULL;
    bool passes = false;
    for (size_t i = 0; i < n; i++) {
        unsigned bit = (unsigned)v[i].gains << i;
        if (v[i].step->is_beside) beside |= bit;
        else all |= bit;
    }
    *chosen = beside;
    if (!all) return 0;
    struct night_arm now = arm_of(x, v, n, 0, paths);
    say(x, "gate: the general suites as they are now");
    int rc = run_suites(x, &now, &before, e);
    if (!rc) rc = try_arm(x, v, n, all, before, record, &passes, e);
    if (!rc && passes) *chosen = beside | all;
    for (size_t i = 0; !rc && !passes && all & (all - 1) && i < n; i++) {
        if (!(all >> i & 1)) continue;
        rc = try_arm(x, v, n, 1u << i, before, record, &passes, e);
        if (!rc && passes) *chosen = beside | 1u << i;
    }
    json_decref(before);
    if (!is_out_of_energy(x, rc)) return rc;
    for (size_t i = 0; i < n; i++)
        if (all >> i & 1)
            snprintf(v[i].why, sizeof v[i].why,
                     "the energy budget was spent before the general suites were answered");
    *chosen = beside;
    return 0;
}

/* ---- the record ---- */

static json_t *proposal_json(const struct proposal *p) {
    json_t *o = json_pack("{s:s,s:s,s:b,s:f}", "name", p->step->name, "about", p->step->about,
                          "promoted", p->promoted, "seconds", p->seconds);
    const char *key = p->step->is_upkeep ? "did" : "why";
    if (p->why[0] && !p->promoted) json_object_set_new(o, key, json_string(p->why));
    if (p->exists && p->gain.pipeline[0])
        json_object_set_new(o, "pipeline", json_string(p->gain.pipeline));
    if (p->exists && p->gain.n_call) {
        json_object_set_new(o, "calls", json_integer((json_int_t)p->gain.n_call));
        json_object_set_new(o, "tokens", json_integer((json_int_t)p->gain.n_token));
    }
    if (p->exists)
        json_object_set_new(
            o, "target",
            json_pack("{s:s,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "unit", unit_of(p->step), "n",
                      (json_int_t)p->gain.n, "before", p->gain.before, "after", p->gain.after,
                      "gain", p->gain.mean, "low", p->gain.low, "high", p->gain.high, "p", p->p,
                      "p_limit", p->limit, "detectable", gate_detectable(p->gain.error, p->limit)));
    return o;
}

/* Lists whose answers the day contains. They are used for training or to decide when to stop. */
static json_t *sources_of(const struct learn_day *d) {
    json_t *seen = json_object(), *list = json_array();
    for (size_t i = 0; i < d->n; i++) {
        if (json_object_get(seen, d->v[i].source)) continue;
        json_object_set_new(seen, d->v[i].source, json_true());
        json_array_append_new(list, json_string(d->v[i].source));
    }
    json_decref(seen);
    return list;
}

/* Keeps a file under its name in artefacts; owners: whose answers made it, borrowed. */
static int keep_file(const struct night *x, const char *path, const char *name, json_t *from,
                     json_t *artefacts, json_t *owners, struct err *e) {
    char sha256[65];
    int rc = nights_keep(x->nights, path, sha256, e);
    if (!rc) json_object_set_new(artefacts, name, json_string(sha256));
    if (!rc) json_object_set(owners, name, from);
    return rc;
}

static int keep_proposal(const struct night *x, const struct proposal *p, json_t *artefacts,
                         json_t *owners, struct err *e) {
    const struct night_step *s = p->step;
    char log[NIGHTS_MAX_PATH + 64];
    json_t *from = s->reads_all ? json_incref(x->day.sources) : sources_of(&x->day);
    int rc = keep_file(x, p->path, s->artefact, from, artefacts, owners, e);
    if (s->log) snprintf(log, sizeof log, "%s/%s", x->scratch, s->log);
    if (!rc && s->log) rc = keep_file(x, log, s->log, from, artefacts, owners, e);
    json_decref(from);
    return rc;
}

/* Fills artefacts, {NAME: SHA256}: the current ones, replaced by what is promoted; and owners: {NAME: whose
 * answers trained it}. */
static int artefacts_of(const struct night *x, struct proposal *v, size_t n, json_t *artefacts,
                        json_t *owners, struct err *e) {
    const json_t *old = x->is_foreign ? NULL : x->base;
    int rc = 0;
    if (old) json_object_update(artefacts, json_object_get(old, "artefacts"));
    if (old) json_object_update(owners, json_object_get(old, "owners"));
    for (size_t i = 0; !rc && i < n; i++)
        if (v[i].promoted) rc = keep_proposal(x, &v[i], artefacts, owners, e);
    return rc;
}

/* Writes the record. What is promoted becomes current, or is tried by a share of the conversations first. */
static int publish(const struct night *x, json_t *record, bool promotes, struct err *e) {
    struct trial t = {.share = x->params->canary,
                      .from_s = x->params->now_s,
                      .until_s = x->params->now_s + TRIAL_S};
    bool is_tried = promotes && t.share > 0;
    if (is_tried)
        json_object_set_new(record, "canary",
                            json_pack("{s:f,s:s}", "share", t.share, "result", "on trial"));
    int rc = is_tried ? trial_drop(x->nights, "a later night builds on it", e) : 0;
    if (!rc) rc = nights_add(x->nights, record, promotes && !is_tried, &t.night, e);
    return rc || !is_tried ? rc : trial_start(x->nights, &t, e);
}

static int propose_all(struct night *x, struct proposal *v, size_t *n, struct err *e) {
    int rc = 0;
    *n = 0;
    for (const struct night_step *const *s = night_steps; !rc && *s; s++) {
        if (!is_wanted(x->params->steps, (*s)->name)) continue;
        v[*n] = (struct proposal){.step = *s};
        rc = propose(x, &v[*n], e);
        if (is_out_of_energy(x, rc))
            snprintf(v[*n].why, sizeof v[*n].why, "stopped: the energy budget was spent");
        ++*n;
        if (!rc && !night_goes_on(x)) rc = end_night(e);
        if (is_out_of_energy(x, rc)) rc = 0;
    }
    return rc;
}

/* Records the energy of the night, and that its budget ended it. Others' answers are not part of it. */
static void add_energy(struct night *x, json_t *record) {
    read_meter(&x->meter);
    if (x->meter.has_counter) json_object_set_new(record, "joules", json_real(x->meter.used));
    if (x->meter.is_spent)
        json_object_set_new(record, "stopped",
                            json_pack("{s:s,s:f,s:f}", "reason", "energy", "joules", x->meter.used,
                                      "limit", x->params->max_joules));
}

bool night_is_upkeep(const char *steps) {
    for (const struct night_step *const *s = night_steps; *s; s++)
        if (is_wanted(steps, (*s)->name) && !(*s)->is_upkeep) return false;
    return true;
}

/* Runs steps that need neither answers nor a record; the history of their jobs is enough. */
static int upkeep(struct night *x, json_t *record, struct err *e) {
    struct proposal v[MAX_STEPS];
    size_t n;
    json_t *steps = json_array();
    int rc = propose_all(x, v, &n, e);
    for (size_t i = 0; i < n; i++) json_array_append_new(steps, proposal_json(&v[i]));
    json_object_set_new(record, "steps", steps);
    if (!rc) add_energy(x, record);
    return rc;
}

static int finish(const struct night *x, struct proposal *v, size_t n, json_t *record,
                  struct err *e) {
    json_t *steps = json_array(), *artefacts = json_object(), *owners = json_object();
    bool promotes = false;
    if (!steps || !artefacts || !owners) {
        json_decref(steps);
        json_decref(artefacts);
        json_decref(owners);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    int rc = x->params->dry_run ? 0 : artefacts_of(x, v, n, artefacts, owners, e);
    for (size_t i = 0; i < n; i++) {
        promotes |= v[i].promoted;
        json_array_append_new(steps, proposal_json(&v[i]));
    }
    json_object_set_new(record, "steps", steps);
    json_object_set_new(record, "artefacts", artefacts);
    json_object_set_new(record, "owners", owners);
    json_object_set_new(record, "promoted", json_boolean(promotes));
    if (rc || x->params->dry_run) return rc;
    return publish(x, record, promotes, e);
}

static void clear_scratch(const struct night *x) {
    char path[NIGHTS_MAX_PATH + 300];
    struct fs_folder *d = fs_open(x->scratch);
    for (const char *name; d && (name = fs_next(d));) {
        snprintf(path, sizeof path, "%s/%s", x->scratch, name);
        fs_remove(path);
    }
    fs_close(d);
    fs_remove_folder(x->scratch);
}

/* Makes an empty scratch folder. The lock ensures that only one night uses it; a killed night may have left files. */
static int make_scratch(struct night *x, struct err *e) {
    snprintf(x->scratch, sizeof x->scratch, "%s/try", nights_dir(x->nights));
    clear_scratch(x);
    return file_mkdirs(x->scratch, e);
}

/* Loads what the night builds on, and checks that its artefacts belong to this model: an adapter fits only the weights that it was trained on,
 * and is refused or harmful on others. */
static int check_model(struct night *x, json_t *record, struct err *e) {
    struct trial t;
    int rc = trial_load(x->nights, &t, e);
    int64_t now = t.night ? t.night : nights_current(x->nights);
    if (!rc && now) rc = nights_read(x->nights, now, &x->base, e);
    if (rc || !now) return rc;
    const json_t *hash = json_object_get(x->base, "model_hash");
    x->is_foreign = !json_equal(hash, json_object_get(record, "model_hash"));
    if (!x->is_foreign) return 0;
    json_object_set_new(record, "model_replaced", json_true());
    say(x, "what serves was learned for another model: this night begins from the model as it is");
    return 0;
}

/* Adds the owner's own items. They are measured like a skill, and never trained on. */
static int add_own(struct night *x, json_t *record, struct err *e) {
    size_t n_shipped = json_array_size(x->params->items), n_kept = 0;
    x->items = x->params->items ? json_copy((json_t *)(uintptr_t)x->params->items) : json_array();
    if (!x->items) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = own_load(x->items, nights_dir(x->nights), e);
    size_t n_own = rc ? 0 : json_array_size(x->items) - n_shipped;
    for (size_t i = 0; n_own && i < x->day.n; i++) {
        struct learn_item *item = &x->day.v[i];
        if (item->held_out || !own_asks(x->items, item->question)) continue;
        item->held_out = true;
        n_kept++;
    }
    x->day.n_held += n_kept;
    json_object_set_new(record, "own_items", json_integer((json_int_t)n_own));
    return rc;
}

/* Ends a trial whose time is over, or whose answers users reject. */
static int end_trial(struct night *x, struct err *e) {
    enum trial_end end;
    if (x->params->dry_run) return 0;
    int rc = trial_finish(x->nights, x->host->store, x->params->now_s, &end, e);
    if (!rc && end == TRIAL_PASSED) say(x, "the trial of the last promotion ended: promoted");
    if (!rc && end == TRIAL_FAILED) say(x, "the trial of the last promotion ended: rolled back");
    return rc;
}

/* Times whose answers a night does not read. */
struct hiding {
    struct learn_span *v; /* owned [MAX_HIDDEN + 1] */
    size_t n;
    int64_t
        since_ms; /* ratings since then are tested: of the last night, or of the one that held them back */
    int look; /* the number of this test of these ratings */
};

/* Loads what the newest record hides, and what it held back. */
static int hidden_times(const struct night *x, struct hiding *h, struct err *e) {
    json_t *last = NULL, *row;
    size_t i;
    *h = (struct hiding){.v = mem_alloc_array(MAX_HIDDEN + 1, sizeof *h->v), .look = 1};
    int rc = h->v ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && nights_last(x->nights))
        rc = nights_read(x->nights, nights_last(x->nights), &last, e);
    json_array_foreach(json_object_get(last, "hidden"), i, row) {
        if (h->n == MAX_HIDDEN) break;
        h->v[h->n++] = (struct learn_span){json_integer_value(json_array_get(row, 0)),
                                           json_integer_value(json_array_get(row, 1))};
    }
    const json_t *held = json_object_get(last, "held_back");
    h->since_ms = 1000 * json_integer_value(json_object_get(last, "at"));
    if (held) h->since_ms = json_integer_value(json_object_get(held, "since_ms"));
    h->look += held != NULL;
    json_decref(last);
    return rc;
}

/* Tests whether users reverse more of their earlier verdicts than honest users do, and records the figures. */
static enum hostile_verdict test_day(const struct night *x, const struct hiding *h,
                                     json_t *record) {
    static const char *const keys[] = {"reversals", "held_back", "hostile"};
    size_t n = 0, n_reversed = 0;
    double p = 1;
    if (h->since_ms > 0) votes_reversals(x->day.votes, h->since_ms, &n, &n_reversed);
    enum hostile_verdict is = hostile_verdict(n, n_reversed, h->look, &p);
    if (h->n == MAX_HIDDEN) is = HOSTILE_NO;
    json_object_set_new(record, keys[is],
                        json_pack("{s:I,s:I,s:f,s:f,s:I}", "questions", (json_int_t)n, "reversed",
                                  (json_int_t)n_reversed, "p", p, "limit", HOSTILE_LIMIT,
                                  "since_ms", (json_int_t)h->since_ms));
    return is;
}

/* Collects the day's answers. A hostile day is hidden, from this night and all later ones; one that is held back, from
 * this night only. */
static int collect_day(struct night *x, json_t *record, struct err *e) {
    struct hiding h;
    double least = x->params->least_worth;
    enum hostile_verdict is = HOSTILE_NO;
    int rc = hidden_times(x, &h, e);
    if (!rc) rc = learn_collect(&x->day, x->host->store, (struct learn_spans){h.v, h.n}, least, e);
    if (!rc) is = test_day(x, &h, record);
    if (is != HOSTILE_NO) {
        say(x, is == HOSTILE_YES
                   ? "since the last night, users reject what they accepted before: not learned"
                   : "users may be rejecting what they accepted before: held back for a night");
        h.v[h.n++] = (struct learn_span){h.since_ms, 1000 * x->params->now_s};
        learn_day_fini(&x->day);
        rc = learn_collect(&x->day, x->host->store, (struct learn_spans){h.v, h.n}, least, e);
    }
    json_t *list = json_array();
    for (size_t i = 0; i < h.n - (is == HOSTILE_HELD); i++)
        json_array_append_new(
            list, json_pack("[I,I]", (json_int_t)h.v[i].from_ms, (json_int_t)h.v[i].to_ms));
    json_object_set_new(record, "hidden", list);
    x->hidden = h.v;
    x->n_hidden = h.n;
    return rc;
}

/* The steps are jobs of the store, except in a dry run, which leaves no trace. */
static int open_jobs(struct night *x, struct err *e) {
    const struct jobs_params p = {.store = x->params->dry_run ? NULL : x->host->store};
    return jobs_open(&x->jobs, &p, e);
}

static void close_night(struct night *x) {
    jobs_close(x->jobs);
    json_decref(x->items);
    json_decref(x->base);
    if (x->scratch[0]) clear_scratch(x);
    for (size_t i = 0; x->samples && i < x->day.n; i++)
        mem_free((void *)(uintptr_t)x->samples[i].tokens);
    mem_free(x->samples);
    mem_free(x->hidden);
    learn_day_fini(&x->day);
}

static bool judging_goes_on(void *ud) {
    struct night *x = ud;
    if (x->host->is_shared && suite_turn(x, NULL)) return false;
    return (double)clock_ns() * 1e-9 < x->deadline - x->params->budget_s / 2 && night_goes_on(x);
}

/* Lets the judge score the answers that it has not seen yet. */
static int judge_answers(struct night *x, json_t *record, struct err *e) {
    struct judge_report r = {.auc = NAN};
    const char *why = x->params->judge_why;
    if ((!x->params->judge && !why) || x->params->dry_run) return 0;
    struct judge j = x->params->judge ? *x->params->judge : (struct judge){.name = ""};
    j.goes_on = judging_goes_on;
    j.ud = x;
    if (why) say(x, why);
    if (x->params->judge) say(x, "the judge scores the day's answers");
    int rc = x->params->judge ? judge_day(&r, x->host->store, &j, e) : 0;
    if (rc) return rc;
    if (!why && r.why[0]) why = r.why;
    json_t *o = json_pack("{s:s,s:I,s:I,s:I,s:b,s:s*}", "name", j.name, "judged",
                          (json_int_t)r.n_judged, "accepted", (json_int_t)r.n_good, "rejected",
                          (json_int_t)r.n_bad, "refused", r.is_refused, "why", why);
    if (!isnan(r.auc)) json_object_set_new(o, "auc", json_real(r.auc));
    json_object_set_new(record, "judge", o);
    return 0;
}

/* The step drafts refreshes the store of contexts only; the owner must see that the other drafter is as it was. */
static void add_drafter(const struct night *x, json_t *record) {
    const char *file = x->host->drafter, *slash = file ? strrchr(file, '/') : NULL;
    if (file && is_wanted(x->params->steps, night_step_drafts.name))
        json_object_set_new(record, "drafter",
                            json_pack("{s:s,s:b}", "file", slash ? slash + 1 : file, "changed", 0));
}

/* Reads the day, lets the steps propose, and promotes what passes. */
static int learn(struct night *x, json_t *record, struct err *e) {
    struct proposal v[MAX_STEPS];
    size_t n = 0;
    unsigned chosen = 0;
    int rc = end_trial(x, e);
    if (!rc) rc = check_model(x, record, e);
    if (!rc) rc = judge_answers(x, record, e);
    if (!rc) rc = collect_day(x, record, e);
    if (!rc) rc = add_own(x, record, e);
    if (!rc) json_object_set_new(record, "read", day_json(&x->day));
    if (!rc) rc = make_scratch(x, e);
    if (!rc) rc = encode_day(x, e);
    if (!rc) rc = propose_all(x, v, &n, e);
    if (!rc) judge_gains(v, n);
    if (!rc) rc = choose(x, v, n, record, &chosen, e);
    for (size_t i = 0; i < n; i++) v[i].promoted = chosen >> i & 1;
    if (!rc) add_drafter(x, record);
    if (!rc) add_energy(x, record);
    if (!rc && x->params->currency)
        json_object_set_new(record, "price",
                            json_pack("{s:f,s:s}", "per_kwh", x->params->kwh_price, "currency",
                                      x->params->currency));
    if (!rc && !still_leads(x))
        rc = err_set(e, CHIMERE_EBUSY, "another process leads the nights of this store now");
    if (!rc) rc = finish(x, v, n, record, e);
    return rc;
}

int night_run(json_t **record, struct nights *nights, const struct night_host *h,
              const struct night_params *params, struct err *e) {
    struct night_params p = *params;
    if (!p.now_s) p.now_s = (int64_t)time(NULL);
    if (!(p.budget_s > 0)) p.budget_s = 1800;
    if (!(p.least_worth > 0)) p.least_worth = 0.75;
    struct night x = {.host = h,
                      .params = &p,
                      .nights = nights,
                      .deadline = (double)clock_ns() * 1e-9 + p.budget_s};
    *record =
        json_pack("{s:I,s:s,s:I,s:I}", "at", (json_int_t)p.now_s, "model", h->model->name,
                  "model_hash", (json_int_t)(h->model->hash >> 1), "seed", (json_int_t)p.seed);
    int rc = *record ? check_steps(p.steps, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && night_prompts_search(p.prompts.search, e) < 0) rc = CHIMERE_EINVAL;
    const struct zo_rule *rule;
    if (!rc) rc = zo_rule_of(&rule, p.lora_rule, e);
    if (!rc) rc = night_can_measure(p.max_joules, e);
    start_meter(&x.meter);
    bool is_upkeep = !rc && night_is_upkeep(p.steps);
    if (!rc) rc = store_lead(h->store, e);
    if (!rc) rc = open_jobs(&x, e);
    if (!rc) rc = is_upkeep ? upkeep(&x, *record, e) : learn(&x, *record, e);
    close_night(&x);
    store_unlead(h->store);
    if (rc) {
        json_decref(*record);
        *record = NULL;
    }
    return rc;
}
