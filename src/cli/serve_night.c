/* serve_night.c: see serve_night.h. */
#include "cli/serve_night.h"

#include <stdio.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/night_judge.h"
#include "cli/args/engram_args.h"
#include "cli/args/night_args.h"
#include "cli/args/odo_args.h"
#include "cli/args/price_args.h"
#include "learn/night_clock.h"
#include "learn/serving.h"
#include "learn/step/night_step.h"
#include "learn/trial.h"

enum {
    AT_ONCE = 2,    /* answers of the gate in progress; answers of users join them immediately */
    WATCH_TICKS = 5 /* seconds between two looks at the ratings of a trial */
};

struct serve_night {
    const struct cfg *c;               /* borrowed */
    struct chat_rig *r;                /* borrowed */
    struct docs *docs;                 /* borrowed; NULL: none open */
    struct serve_night_counts *counts; /* borrowed */
    struct night_judge_files judges;
    double budget_s, canary, price;
    char currency[PRICE_CURRENCY];
    uint32_t n_tick;
    char dir[NIGHTS_MAX_PATH];
    struct store *store;       /* owned: opened for the first trial; NULL: not yet */
    struct serving *serving;   /* owned */
    struct night_clock *clock; /* owned */
};

static bool goes_on(void *ud) { return night_clock_goes_on(ud); }

static void say(void *ud, const char *line) {
    (void)ud;
    log_info("night: %s", line);
}

static int run_night(void *ud, const struct night_clock *clock, const char *steps, struct err *e) {
    struct serve_night *s = ud;
    struct store *store = NULL;
    struct nights *nights = NULL;
    char pipelines[NIGHTS_MAX_PATH];
    json_t *items = json_array(), *record = NULL;
    struct night_judge judge = {.name = ""};
    int rc = items ? night_items(items, (size_t)cfg_int(s->c, "night-items"), e)
                   : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = odo_args_store(s->c, &store, e);
    if (!rc) rc = nights_open(&nights, cfg_str(s->c, "night-dir"), NIGHTS_WRITE, e);
    /* opened for each night, so that its memory is free between nights */
    if (!rc && !night_is_upkeep(steps)) night_judge_open(&judge, s->c, &s->judges);
    const struct night_host host = {
        .model = s->r->m,
        .engine = s->r->engine,
        .is_shared = true,
        .tok = s->r->tok,
        .n_seq = AT_ONCE,
        .encode = night_encode,
        .ud = s->r,
        .store = store,
        .drafter = cfg_str(s->c, "draft"),
        .pipelines = night_pipelines(cfg_str(s->c, "pipelines"), pipelines, sizeof pipelines),
        .docs = s->docs};
    const struct night_params p = {.steps = steps,
                                   .prompts = {cfg_str(s->c, "night-prompt-search"),
                                               (int32_t)cfg_int(s->c, "night-prompt-calls"),
                                               (int32_t)cfg_int(s->c, "night-prompt-tokens")},
                                   .lora_rule = cfg_str(s->c, "night-lora-rule"),
                                   .judge = night_judge_used(&judge),
                                   .judge_why = night_judge_why(&judge),
                                   .items = items,
                                   .budget_s = s->budget_s,
                                   .max_joules = cfg_float(s->c, "night-max-energy"),
                                   .canary = s->canary,
                                   .kwh_price = s->price,
                                   .currency = cfg_str(s->c, "night-price") ? s->currency : NULL,
                                   .seed = 1,
                                   .goes_on = goes_on,
                                   .say = say,
                                   .ud = (void *)(uintptr_t)clock};
    if (!rc) rc = night_run(&record, nights, &host, &p, e);
    if (!rc && json_object_get(record, "stopped"))
        log_info("night: its energy budget was spent, and it stopped");
    if (!rc && !json_object_get(record, "read")) log_info("night: %s ended", steps);
    else if (!rc)
        log_info("night %lld ended: %s",
                 (long long)json_integer_value(json_object_get(record, "night")),
                 !json_is_true(json_object_get(record, "promoted")) ? "nothing was promoted"
                 : json_object_get(record, "canary")                ? "something better is on trial"
                                                     : "something better serves now");
    json_decref(record);
    night_judge_close(&judge);
    nights_close(nights);
    store_close(store);
    json_decref(items);
    if (rc != CHIMERE_EBUSY && night_clock_goes_on(clock)) {
        if (rc) s->counts->n_failed++;
        else s->counts->n_ended++;
    }
    return rc;
}

void serve_night_metrics(const struct serve_night_counts *counts, struct buf *out) {
    buf_printf(
        out,
        "# HELP chimere_nights_total Nights of this process, by whether they ended or failed\n"
        "# TYPE chimere_nights_total counter\n"
        "chimere_nights_total{result=\"ended\"} %llu\n"
        "chimere_nights_total{result=\"failed\"} %llu\n",
        (unsigned long long)counts->n_ended, (unsigned long long)counts->n_failed);
}

/* Ends a trial when its time or its ratings say so. Looking takes no lock; only the end does, so a night of another
 * process delays it. */
static int watch_trial(struct serve_night *s, struct err *e) {
    struct nights *n = NULL;
    struct trial t;
    enum trial_end end = TRIAL_GOES_ON;
    json_t *score = NULL;
    int64_t now = (int64_t)time(NULL);
    int rc = nights_open(&n, s->dir, NIGHTS_READ, e);
    if (!rc) rc = trial_load(n, &t, e);
    bool is_on = !rc && t.night, is_ahead = is_on && now < t.from_s;
    if (is_on && !s->store) rc = odo_args_store(s->c, &s->store, e);
    if (is_on && !rc && !is_ahead) rc = trial_look(n, &t, s->store, now, &end, &score, e);
    json_decref(score);
    nights_close(n);
    n = NULL;
    if (rc || (end == TRIAL_GOES_ON && !is_ahead)) return rc;
    rc = nights_open(&n, s->dir, NIGHTS_WRITE, e);
    if (!rc) rc = trial_finish(n, s->store, now, &end, e);
    nights_close(n);
    if (!rc && end != TRIAL_GOES_ON)
        log_info("the trial of night %lld ended: %s", (long long)t.night,
                 end == TRIAL_PASSED ? "it serves all conversations"
                                     : "rolled back, because users reject its answers");
    return rc == CHIMERE_EBUSY ? 0 : rc;
}

static void update(void *ud) {
    struct serve_night *s = ud;
    struct err e = {0};
    if (s->n_tick++ % WATCH_TICKS == 0 && watch_trial(s, &e)) log_warn("nights: %s", e.text);
    e = (struct err){0};
    if (serving_update(s->serving, &e)) log_warn("nights: %s", e.text);
}

static int open_serving(struct serve_night *s, const char *dir, struct learned *learned,
                        struct err *e) {
    const struct loaded *l = &s->r->loaded;
    struct serving_params p = {.dir = dir,
                               .learned = learned,
                               .tok = s->r->tok,
                               .models = {s->r->m},
                               .engines = {s->r->engine},
                               .n_model = 1};
    for (int32_t i = 0; i < l->n_replica && p.n_model < GPUS_MAX; i++) {
        p.models[p.n_model] = l->replicas[i].model;
        p.engines[p.n_model++] = l->replicas[i].engine;
    }
    return serving_new(&s->serving, &p, e);
}

int serve_night_open(struct serve_night **out, const struct cfg *c, struct chat_rig *r,
                     const struct odo_rig *odo, struct learned *learned,
                     struct serve_night_counts *counts, struct err *e) {
    char dir[NIGHTS_MAX_PATH];
    struct nights *n;
    *out = NULL;
    if (!r->m || r->loaded.part.end || r->loaded.is_split)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "--night: expected a model that Chimère runs itself and that is not split "
                       "between GPUs");
    if (night_prompts_search(cfg_str(c, "night-prompt-search"), e) < 0) return CHIMERE_EINVAL;
    int rc = nights_open(&n, cfg_str(c, "night-dir"), NIGHTS_READ, e);
    if (rc) return rc;
    snprintf(dir, sizeof dir, "%s", nights_dir(n));
    nights_close(n);
    struct serve_night *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    s->c = c;
    s->r = r;
    s->docs = odo->docs;
    s->counts = counts;
    s->judges = (struct night_judge_files){
        .judge = "night-judge", .reward = odo->prm, .reward_name = odo->scorer.name};
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    const struct zo_rule *rule;
    rc = zo_rule_of(&rule, cfg_str(c, "night-lora-rule"), e);
    if (!rc) rc = night_can_measure(cfg_float(c, "night-max-energy"), e);
    if (!rc) rc = night_share("night-canary", cfg_str(c, "night-canary"), &s->canary, e);
    if (!rc) rc = engram_args_duration("night-budget", cfg_str(c, "night-budget"), &s->budget_s, e);
    if (!rc && cfg_str(c, "night-price"))
        rc = price_args_read("night-price", cfg_str(c, "night-price"), &s->price, s->currency, e);
    const struct night_clock_params p = {.dir = dir, .run = run_night, .tick = update, .ud = s};
    if (!rc) rc = open_serving(s, dir, learned, e);
    if (!rc) update(s); /* the first request uses the files of the current night */
    if (!rc) rc = night_clock_open(&s->clock, &p, e);
    if (rc) serve_night_close(s);
    else *out = s;
    return rc;
}

void serve_night_close(struct serve_night *s) {
    if (!s) return;
    night_clock_close(s->clock);
    serving_free(s->serving);
    store_close(s->store);
    mem_free(s);
}
