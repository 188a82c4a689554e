/* cmd_night.c: chimere night: runs one night of learning, shows what nights did, and reverts to an earlier night. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/replay_shared.h"
#include "backend/request.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "cli/args/chat_args.h"
#include "cli/args/engram_args.h"
#include "cli/args/night_args.h"
#include "cli/night_judge.h"
#include "cli/night_schedule.h"
#include "cli/night_simulate.h"
#include "cli/args/odo_args.h"
#include "cli/args/price_args.h"
#include "engine/prefix_shared.h"
#include "eval/harness.h"
#include "learn/data/export.h"
#include "learn/forget.h"
#include "learn/night_page.h"
#include "learn/step/night_step.h"
#include "learn/data/own.h"
#include "learn/step/playbook.h"
#include "learn/trial.h"
#include "odo/memory.h"
#include "serve/http/auth.h"
#include "store/job.h"
#include "store/person.h"
#include "store/store.h"

const struct cfg_opt night_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    ENGINE_OPTIONS,
    {"night-dir", 0, CFG_STR, "DIR", NULL, 0, 0, NULL,
     "folder of nights (default: night in the user's data directory)"},
    {"db", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "store with the answers (default: chimere.db in the user's data directory)"},
    {"steps", 0, CFG_STR, "LIST", NULL, 0, 0, NULL,
     "names of steps, such as engram,lora (default: all)"},
    {"prompt-search", 0, CFG_STR, "NAME", "gepa", 0, 0, NULL,
     "how the step prompts searches: gepa (changes of good playbooks) or mipro (combinations of an "
     "instruction and demonstrations)"},
    {"prompt-calls", 0, CFG_INT, "N", "2000", NIGHT_LEAST_CALLS, NIGHT_MAX_CALLS, NULL,
     "maximum number of answers and rules for which the step prompts runs the model"},
    {"prompt-tokens", 0, CFG_INT, "N", "600", 1, NIGHT_MAX_TOKENS, NULL,
     "maximum number of tokens of the rules of one pipeline"},
    {"lora-rule", 0, CFG_STR, "NAME", "fzoo", 0, 0, NULL,
     "run: how the step lora trains: fzoo, mezo, or es, which rewards whole answers"},
    {"budget", 0, CFG_STR, "TIME", "30m", 0, 0, NULL, "time limit of a night, such as 30m or 2h"},
    {"prm", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "run: process reward model that first scores the steps of the day's answers, except in a dry "
     "run"},
    {"judge", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "run: larger model that first grades the day's answers from 1 to 5, on the processor"},
    {"max-energy", 0, CFG_FLOAT, "JOULES", "0", 0, 1e12, NULL,
     "run: energy of the whole machine after which a night stops; 0: no limit"},
    {"least-worth", 0, CFG_FLOAT, "W", "0.75", 0, 1, NULL,
     "minimum worth of answers that are learned, 0 to 1"},
    {"suite-items", 'n', CFG_INT, "N", "20", 1, EVAL_MAX_ITEMS, NULL,
     "number of items per skill on which a promotion must not lose"},
    {"dry-run", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "measure, change nothing"},
    {"canary", 0, CFG_STR, "SHARE", "0", 0, 0, NULL,
     "share of the conversations of serve --night that try for a day what is promoted, such as "
     "10%; 0: no trial"},
    {"price", 0, CFG_STR, "P", NULL, 0, 0, NULL,
     "run: price of a kilowatt-hour, such as 0.25EUR/kWh; the report shows what the night cost"},
    {"seed", 0, CFG_INT, "N", "1", 0, 1 << 30, NULL, "seed of a night's random choices"},
    {"parallel", 0, CFG_INT, "N", "8", 1, ENGINE_MAX_SEQS, NULL, "concurrent answers"},
    {"json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "print records as JSON"},
    {"systemd", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "schedule: print a systemd timer per step, for machines without serve --night"},
    {"install", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "schedule: write these timers to the user's systemd folder"},
    {"html", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "report: as a page with pictures"},
    {"user", 0, CFG_STR, "KEY[/NAME]", NULL, 0, 0, NULL,
     "forget: the name of an API key, or one user of it; local: requests without a key; unknown: "
     "answers that were stored before users were recorded"},
    {"states", 0, CFG_STR, "DIR", NULL, 0, 0, NULL,
     "forget: also the states of the key's conversations in this folder of serve --shared-states"},
    {"form", 0, CFG_STR, "FORM", "sft", 0, 0, NULL,
     "export: sft (question and best answer), dpo (a better and a worse answer) or spin (an answer "
     "that a user accepted and one of the model's own)"},
    {"gap", 0, CFG_FLOAT, "G", "0.25", 0, 1, NULL,
     "export: minimum difference of worth in a dpo pair"},
    SIMULATE_OPTIONS,
    {0}};

enum { MAX_PAGE = 4 << 20, MAX_PROGRAM = 512 << 10, MAX_JOBS = 64 /* of the history */ };

static volatile sig_atomic_t stopped;
static void on_signal(int number) {
    (void)number;
    stopped = 1;
}
static bool goes_on(void *ud) {
    (void)ud;
    return !stopped;
}
static void say(void *ud, const char *line) {
    (void)ud;
    fprintf(stderr, "%s\n", line);
}

/* ---- printing ---- */

static double real(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}
static const char *text(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void print_time(double at) {
    char day[32];
    time_t t = (time_t)at;
    struct tm tm;
    localtime_r(&t, &tm);
    strftime(day, sizeof day, "%Y-%m-%d %H:%M", &tm);
    fputs(day, stdout);
}

static const char *unit(const json_t *target) {
    const char *u = text(target, "unit");
    return *u ? u : "nats per token";
}

static void print_line(const char *name, void (*write)(const json_t *, char *, size_t),
                       const json_t *r) {
    char line[1024];
    write(r, line, sizeof line);
    if (*line) printf("  %-9s %s\n", name, line);
}

static void print_record(const json_t *r) {
    const json_t *read = json_object_get(r, "read");
    json_t *step;
    size_t i;
    if (json_object_get(r, "night")) printf("night %.0f, ", real(r, "night"));
    print_time(real(r, "at"));
    printf(", %s\n", text(r, "model"));
    if (read)
        printf("  read      %.0f answers: %.0f learned, %.0f held out, %.0f below worth, %.0f "
               "duplicates,"
               " %.0f disputed, %.0f not trusted, %.0f secrets masked\n",
               real(read, "answers"), real(read, "learned"), real(read, "held_out"),
               real(read, "below_worth"), real(read, "duplicates"), real(read, "contested"),
               real(read, "suspect"), real(read, "secrets_masked"));
    if (real(read, "older") > 0)
        printf("            %.0f older answers were left out: a night reads the newest %d\n",
               real(read, "older"), COLLECT_MAX_ITEMS);
    print_line("hostile", night_hostile_text, r);
    print_line("judge", night_judge_text, r);
    json_array_foreach(json_object_get(r, "steps"), i, step) {
        const json_t *t = json_object_get(step, "target");
        bool promoted = json_is_true(json_object_get(step, "promoted"));
        if (json_object_get(step, "did")) {
            printf("  %-9s %s\n", text(step, "name"), text(step, "did"));
            continue;
        }
        printf("  %-9s %s", text(step, "name"), promoted ? "promoted" : "refused");
        if (*text(step, "pipeline")) printf(", for the pipeline %s", text(step, "pipeline"));
        if (t)
            printf(": %.4f to %.4f %s on %.0f held-out answers (%+.4f, %+.4f .. %+.4f)",
                   real(t, "before"), real(t, "after"), unit(t), real(t, "n"), real(t, "gain"),
                   real(t, "low"), real(t, "high"));
        putchar('\n');
        if (json_object_get(t, "detectable"))
            printf("            p %.4f, less than %.4f is needed; a gain of %.4f would be seen in "
                   "four "
                   "of five nights\n",
                   real(t, "p"), real(t, "p_limit"), real(t, "detectable"));
        if (json_object_get(step, "calls"))
            printf("            rules of %.0f tokens, found in %.0f calls\n", real(step, "tokens"),
                   real(step, "calls"));
        if (!promoted && *text(step, "why")) printf("            %s\n", text(step, "why"));
    }
    print_line("drafter", night_drafter_text, r);
    const json_t *total = json_object_get(json_object_get(r, "gate"), "total");
    if (total)
        printf("  gate      %.0f items: %.1f %% to %.1f %% right, p %.3f\n", real(total, "n"),
               100 * real(total, "a"), 100 * real(total, "b"), real(total, "p"));
    if (json_object_get(total, "detectable"))
        printf("            a fall of %.1f points would be seen in four of five nights\n",
               100 * real(total, "detectable"));
    print_line("energy", night_energy_text, r);
    const json_t *spent = json_object_get(r, "stopped");
    if (spent)
        printf("  stopped   the energy budget of %.6g J was spent after %.6g J\n",
               real(spent, "limit"), real(spent, "joules"));
    const json_t *canary = json_object_get(r, "canary");
    if (canary)
        printf("  canary    %.3g %% of the conversations: %s\n", 100 * real(canary, "share"),
               text(canary, "result"));
    if (json_object_get(canary, "p"))
        printf("            rejected: %.0f of %.0f rated answers, of the version before %.0f of "
               "%.0f; p %.4f\n",
               real(json_object_get(canary, "trial"), "bad"),
               real(json_object_get(canary, "trial"), "rated"),
               real(json_object_get(canary, "current"), "bad"),
               real(json_object_get(canary, "current"), "rated"), real(canary, "p"));
}

static int print_json(const json_t *o, struct err *e) {
    if (json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) || putchar('\n') < 0)
        return err_set(e, CHIMERE_EIO, "standard output: cannot write");
    return 0;
}

/* ---- run ---- */

static int run(const struct cfg *c, struct err *e) {
    struct chat_rig rig = {.dev = NULL};
    struct night_judge judge = {.name = ""};
    struct store *store = NULL;
    struct nights *nights = NULL;
    json_t *items = json_array(), *record = NULL;
    double budget = 0, canary = 0, price = 0;
    char pipelines[NIGHTS_MAX_PATH], currency[PRICE_CURRENCY];
    int32_t n_seq = (int32_t)cfg_int(c, "parallel");
    int rc = items ? engram_args_duration("budget", cfg_str(c, "budget"), &budget, e)
                   : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = night_share("canary", cfg_str(c, "canary"), &canary, e);
    if (!rc && cfg_str(c, "price"))
        rc = price_args_read("price", cfg_str(c, "price"), &price, currency, e);
    if (!rc) rc = night_can_measure(cfg_float(c, "max-energy"), e);
    if (!rc) rc = night_items(items, (size_t)cfg_int(c, "suite-items"), e);
    if (!rc) rc = odo_args_store(c, &store, e);
    if (!rc) rc = nights_open(&nights, cfg_str(c, "night-dir"), NIGHTS_WRITE, e);
    bool opened = !rc && !(rc = chat_rig_open(&rig, c, n_seq, e));
    const struct night_judge_files files = {.prm = "prm", .judge = "judge"};
    if (!rc && !cfg_bool(c, "dry-run")) night_judge_open(&judge, c, &files);
    if (!rc) {
        const struct night_host host = {.model = rig.m,
                                        .engine = rig.engine,
                                        .tok = rig.tok,
                                        .n_seq = n_seq,
                                        .encode = night_encode,
                                        .ud = &rig,
                                        .store = store,
                                        .drafter = cfg_str(c, "draft"),
                                        .pipelines =
                                            night_pipelines(NULL, pipelines, sizeof pipelines)};
        const struct night_params p = {.steps = cfg_str(c, "steps"),
                                       .prompts = {cfg_str(c, "prompt-search"),
                                                   (int32_t)cfg_int(c, "prompt-calls"),
                                                   (int32_t)cfg_int(c, "prompt-tokens")},
                                       .lora_rule = cfg_str(c, "lora-rule"),
                                       .judge = night_judge_used(&judge),
                                       .judge_why = night_judge_why(&judge),
                                       .items = items,
                                       .budget_s = budget,
                                       .max_joules = cfg_float(c, "max-energy"),
                                       .least_worth = cfg_float(c, "least-worth"),
                                       .dry_run = cfg_bool(c, "dry-run"),
                                       .canary = canary,
                                       .kwh_price = price,
                                       .currency = cfg_str(c, "price") ? currency : NULL,
                                       .seed = (uint64_t)cfg_int(c, "seed"),
                                       .goes_on = goes_on,
                                       .say = cfg_bool(c, "quiet") ? NULL : say};
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
        rc = night_run(&record, nights, &host, &p, e);
    }
    if (!rc && cfg_bool(c, "json")) rc = print_json(record, e);
    else if (!rc) print_record(record);
    json_decref(record);
    if (opened) chat_rig_close(&rig);
    night_judge_close(&judge);
    nights_close(nights);
    store_close(store);
    json_decref(items);
    return rc;
}

/* ---- show and revert ---- */

static int show(const struct cfg *c, const struct nights *n, int64_t night, struct err *e) {
    json_t *record;
    int rc = nights_read(n, night, &record, e);
    if (rc) return rc;
    if (cfg_bool(c, "json")) rc = print_json(record, e);
    else print_record(record);
    json_decref(record);
    return rc;
}

static int report(const struct cfg *c, const struct nights *n, struct err *e) {
    int64_t night = nights_last(n);
    if (cfg_n_pos(c) > 1 && !str_to_i64(cfg_pos(c, 1), 1, NIGHTS_MAX, &night))
        return err_set(e, CHIMERE_EINVAL, "report: expected the number of a night, got %s",
                       cfg_pos(c, 1));
    if (!night) return err_set(e, CHIMERE_ENOENT, "there was no night yet");
    if (!cfg_str(c, "html")) return show(c, n, night, e);
    struct buf b;
    buf_init(&b, MAX_PAGE);
    int rc = night_page(&b, n, night, e);
    if (!rc) rc = file_write(cfg_str(c, "html"), b.p, b.n, e);
    buf_fini(&b);
    return rc;
}

static int history(const struct nights *n, struct err *e) {
    int rc = 0;
    for (int64_t i = 1; !rc && i <= nights_last(n); i++) {
        json_t *r, *step;
        size_t k;
        if (nights_read(n, i, &r, NULL)) continue;
        printf("%c %4lld  ", i == nights_current(n) ? '*' : ' ', (long long)i);
        print_time(real(r, "at"));
        json_array_foreach(json_object_get(r, "steps"), k, step)
            printf("  %s %s", text(step, "name"),
                   json_object_get(step, "did")                      ? "done"
                   : json_is_true(json_object_get(step, "promoted")) ? "promoted"
                                                                     : "refused");
        putchar('\n');
        json_decref(r);
    }
    (void)e;
    return rc;
}

/* Prints a job, unless a newer one of the same step was printed. */
static int print_job(void *ud, const struct store_job *j) {
    json_t *seen = ud;
    if (json_object_get(seen, j->name)) return 0;
    json_object_set_new(seen, j->name, json_true());
    printf("step      %s %s, begun ", j->name, j->state);
    print_time((double)j->started_ms / 1000);
    printf("%s%s\n", *j->error || *j->progress ? ": " : "", *j->error ? j->error : j->progress);
    return 0;
}

/*
 * Prints the newest job of each step. A store that does not exist yet is not made. The default store may be one of a newer
 * program, or locked: what nights are there does not depend on it.
 */
static int print_jobs(const struct cfg *c, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    struct store *store;
    bool is_given = cfg_str(c, "db") != NULL;
    if (!is_given && (file_user_data("chimere.db", path, sizeof path, NULL) || !file_exists(path)))
        return 0;
    int rc = odo_args_store(c, &store, e);
    if (rc && !is_given) {
        printf("steps     not shown: %s\n", e->text);
        return 0;
    }
    if (rc) return rc;
    json_t *seen = json_object();
    rc = seen ? store_job_interrupt(store, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = store_job_list(store, "night", MAX_JOBS, print_job, seen, e);
    json_decref(seen);
    store_close(store);
    return rc;
}

static int status(const struct cfg *c, const struct nights *n, struct err *e) {
    printf("folder    %s\n", nights_dir(n));
    if (nights_current(n)) printf("serving   night %lld\n", (long long)nights_current(n));
    else puts("serving   the model as it is; nothing was promoted");
    struct trial t;
    if (!trial_load(n, &t, NULL) && t.night) {
        printf("on trial  night %lld, %.3g %% of the conversations, until ", (long long)t.night,
               100 * t.share);
        print_time((double)t.until_s);
        putchar('\n');
    }
    printf("nights    %lld\n", (long long)nights_last(n));
    for (const struct night_step *const *s = night_steps; *s; s++) {
        char path[NIGHTS_MAX_PATH];
        if ((*s)->is_upkeep) continue;
        if (nights_live(n, (*s)->artefact, path, sizeof path)) printf("live      %s\n", path);
    }
    return print_jobs(c, e);
}

/* Without a number, ends a trial, or else returns to the parent of the current night. */
static int rollback(const struct cfg *c, struct nights *n, struct err *e) {
    int64_t to = 0;
    json_t *r = NULL;
    struct trial t;
    int rc = trial_load(n, &t, e);
    if (!rc && t.night) rc = trial_drop(n, "rolled back by hand", e);
    if (!rc && t.night) printf("the trial of night %lld ended\n", (long long)t.night);
    if (rc || (t.night && cfg_n_pos(c) == 1)) return rc;
    if (cfg_n_pos(c) > 1) {
        if (!str_to_i64(cfg_pos(c, 1), 0, NIGHTS_MAX, &to))
            return err_set(e, CHIMERE_EINVAL, "rollback: expected the number of a night, got %s",
                           cfg_pos(c, 1));
    } else if (!nights_current(n)) {
        return err_set(e, CHIMERE_ENOENT, "rollback: nothing was promoted");
    } else {
        rc = nights_read(n, nights_current(n), &r, e);
        to = (int64_t)json_integer_value(json_object_get(r, "parent"));
        json_decref(r);
    }
    if (!rc) rc = nights_select(n, to, e);
    if (!rc && to) printf("night %lld serves\n", (long long)to);
    else if (!rc) puts("the model serves as it is");
    return rc;
}

/* ---- replay ---- */

static const char *hash_of(const json_t *record, const char *name) {
    return json_string_value(json_object_get(json_object_get(record, "artefacts"), name));
}

/* Reads the record of the night and checks that its log is whole and that its adapter belongs to the model. */
static int open_replay(const struct nights *n, int64_t night, const struct model *m,
                       json_t **record, struct replay *log, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    *record = NULL;
    int rc = nights_read(n, night, record, e);
    const char *name = night_step_lora.log, *hash = rc ? NULL : hash_of(*record, name);
    if (rc) return rc;
    if (!hash || !hash_of(*record, night_step_lora.artefact))
        return err_set(e, CHIMERE_ENOENT, "night %lld has no log of training", (long long)night);
    const json_t *trained_on = json_object_get(*record, "model_hash");
    if (json_integer_value(trained_on) != (json_int_t)(m->hash >> 1))
        return err_set(e, CHIMERE_EINVAL, "night %lld trained on another model than %s",
                       (long long)night, m->name);
    json_t *files = json_pack("{s:s}", name, hash);
    rc = files ? nights_check(n, files, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    json_decref(files);
    if (!rc) rc = nights_object(n, hash, path, e);
    return rc ? rc : replay_load(log, path, e);
}

/* Makes the adapter of a night again from its log and compares the bytes. If the file is damaged or gone, it is
 * replaced. */
static int replay(const struct cfg *c, struct nights *n, struct err *e) {
    char path[NIGHTS_MAX_PATH + 16], again[65] = "";
    int64_t night = nights_current(n);
    struct dev *dev = NULL;
    struct model *m = NULL;
    struct lora *adapter = NULL;
    struct replay log = {.n = 0};
    json_t *record = NULL, *files = NULL;
    if (cfg_n_pos(c) > 1 && !str_to_i64(cfg_pos(c, 1), 1, NIGHTS_MAX, &night))
        return err_set(e, CHIMERE_EINVAL, "replay: expected the number of a night, got %s",
                       cfg_pos(c, 1));
    if (!night) return err_set(e, CHIMERE_ENOENT, "replay: nothing was promoted");
    int rc = model_args_open(c, &dev, &m, e);
    if (!rc) rc = open_replay(n, night, m, &record, &log, e);
    if (!rc) rc = replay_adapter(&adapter, m, &log, e);
    snprintf(path, sizeof path, "%s/replay.part", nights_dir(n));
    if (!rc) rc = lora_save(adapter, path, e);
    const char *hash = hash_of(record, night_step_lora.artefact);
    if (!rc) files = json_pack("{s:s}", night_step_lora.artefact, hash);
    bool is_whole = files && !nights_check(n, files, NULL);
    if (!rc) rc = nights_keep(n, path, again, e);
    fs_remove(path);
    if (!rc && strcmp(again, hash) != 0) {
        rc = err_set(e, CHIMERE_EFORMAT, "night %lld: the replayed adapter has other bytes",
                     (long long)night);
        nights_sweep(n, NULL);
    }
    if (!rc)
        printf("night %lld: %d steps replayed, the same bytes%s\n", (long long)night, log.n,
               is_whole ? "" : "; the damaged adapter was replaced");
    lora_close(adapter);
    replay_fini(&log);
    json_decref(files);
    json_decref(record);
    if (m) model_close(m);
    if (dev) dev->ops->close(dev);
    return rc;
}

/* Writes JSONL to standard output and counts to standard error. */
static int export_lines(const struct cfg *c, struct err *e) {
    const char *form = cfg_str(c, "form");
    bool sft = !strcmp(form, "sft"), dpo = !strcmp(form, "dpo");
    struct learn_exported x;
    struct store *store;
    if (!sft && !dpo && strcmp(form, "spin") != 0)
        return err_set(e, CHIMERE_EINVAL, "form: expected sft, dpo or spin, got %s", form);
    int rc = odo_args_store(c, &store, e);
    if (rc) return rc;
    rc = sft   ? learn_export_sft(stdout, store, cfg_float(c, "least-worth"), &x, e)
         : dpo ? learn_export_dpo(stdout, store, cfg_float(c, "gap"), &x, e)
               : learn_export_spin(stdout, store, &x, e);
    if (!rc && fflush(stdout))
        rc = err_set(e, CHIMERE_EIO, "the lines cannot be written; is the disk full?");
    if (!rc && !cfg_bool(c, "quiet"))
        fprintf(stderr,
                "%zu lines; %zu questions held out, %zu pairs left out, %zu secrets masked\n",
                x.n_line, x.n_held, x.n_left, x.n_secret);
    store_close(store);
    return rc;
}

/* ---- the owner's own items ---- */

static int own_items(const struct cfg *c, const struct nights *n, struct err *e) {
    const char *what = cfg_n_pos(c) > 1 ? cfg_pos(c, 1) : "list";
    json_t *items = json_array(), *item;
    size_t i;
    int rc = items ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && !strcmp(what, "add") && cfg_n_pos(c) == 4)
        rc = own_add(nights_dir(n), cfg_pos(c, 2), cfg_pos(c, 3), e);
    else if (!rc && !strcmp(what, "remove") && cfg_n_pos(c) == 3)
        rc = own_remove(nights_dir(n), cfg_pos(c, 2), e);
    else if (!rc && (strcmp(what, "list") != 0 || cfg_n_pos(c) > 2))
        rc = err_set(e, CHIMERE_EINVAL,
                     "eval: expected add QUESTION ANSWER, remove ID, or list, got %.40s", what);
    if (!rc) rc = own_load(items, nights_dir(n), e);
    if (!rc && strcmp(what, "list") != 0)
        printf("%zu items of your own are measured in each night\n", json_array_size(items));
    else if (!rc)
        json_array_foreach(items, i, item)
            printf("%s  %s -> %s\n", text(item, "id"), own_question(item), own_answer(item));
    json_decref(items);
    return rc;
}

/* ---- playbooks as programs of DSPy ---- */

/* Checks a program and keeps it for the next night, which measures its rules like its own. */
static int import_program(const struct nights *n, const char *from, struct err *e) {
    char path[NIGHTS_MAX_PATH + 16], *bytes = NULL;
    json_t *texts;
    size_t size, n_text;
    int rc = playbook_imported(&texts, &n_text, from, e);
    if (rc) return rc;
    snprintf(path, sizeof path, "%s/import.json", nights_dir(n));
    rc = file_mkdirs(nights_dir(n), e);
    if (!rc) rc = file_read(from, MAX_PROGRAM, &bytes, &size, e);
    if (!rc) rc = file_write(path, bytes, size, e);
    if (!rc) printf("%zu rules; the next night measures them\n", n_text);
    mem_free(bytes);
    json_decref(texts);
    return rc;
}

static int playbook(const struct cfg *c, const struct nights *n, struct err *e) {
    const char *what = cfg_n_pos(c) > 1 ? cfg_pos(c, 1) : "export";
    char path[NIGHTS_MAX_PATH];
    json_t *lists;
    if (!strcmp(what, "import") && cfg_n_pos(c) == 3) return import_program(n, cfg_pos(c, 2), e);
    if (strcmp(what, "export") != 0 || cfg_n_pos(c) > 2)
        return err_set(e, CHIMERE_EINVAL, "playbook: expected export, or import FILE, got %.40s",
                       what);
    if (!nights_live(n, night_step_prompts.artefact, path, sizeof path))
        return err_set(e, CHIMERE_ENOENT, "the night in use has no playbook");
    int rc = playbook_load(&lists, path, e);
    if (rc) return rc;
    json_t *program = playbook_to_dspy(lists);
    rc = program ? print_json(program, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    json_decref(program);
    json_decref(lists);
    return rc;
}

/* ---- forgetting ---- */

/* Owners of the states of who asks on this machine without a key. */
static const char *const local_owners[] = {"127.0.0.1", "::1", ""};
enum { N_LOCAL = sizeof local_owners / sizeof *local_owners };

struct key_wish {
    const char *name; /* view */
    char identity[AUTH_IDENTITY_BYTES];
    int64_t id;
    uint64_t states[N_LOCAL]; /* of struct store_person */
};

static uint64_t owner_hash(const char *owner) {
    const struct request a = {.owner = (char *)owner};
    return request_owner_hash(&a);
}

static int find_key(void *ud, const struct store_key *k) {
    struct key_wish *w = ud;
    char identity[AUTH_IDENTITY_BYTES];
    auth_identity(k->hash, identity);
    if (strcmp(k->name, w->name) != 0 && strcmp(identity, w->name) != 0) return 0;
    memcpy(w->identity, identity, sizeof identity);
    w->id = k->id;
    return 1;
}

/* Keys from a key file are in no store, so they are named by their identity. */
static int person_of(struct store *s, const char *key, const char *user, struct key_wish *w,
                     struct store_person *p, struct err *e) {
    *w = (struct key_wish){.name = key};
    *p = (struct store_person){.owner = w->identity, .user = user};
    bool local = !strcmp(key, MEMORY_LOCAL), unknown = !strcmp(key, "unknown");
    p->states = w->states;
    if (local || unknown) {
        p->owner = local ? MEMORY_LOCAL : "";
        p->n_state = local ? N_LOCAL : 0;
        for (int i = 0; i < p->n_state; i++) w->states[i] = owner_hash(local_owners[i]);
        return 0;
    }
    int rc = store_key_list(s, find_key, w, e);
    if (rc < 0) return rc;
    bool is_identity = strlen(key) == strlen("key-") + 16 && str_starts(key, "key-") &&
                       strspn(key + 4, "0123456789abcdef") == 16;
    if (!rc && is_identity) snprintf(w->identity, sizeof w->identity, "%s", key);
    if (!*w->identity) {
        err_set(e, CHIMERE_ENOENT, "user: there is no key of the name %.64s", key);
        err_hint(e, "chimere key list names them; local means requests without a key");
        return CHIMERE_ENOENT;
    }
    p->key_id = w->id;
    p->n_state = 1;
    p->states_are_scopes = user != NULL;
    w->states[0] = user ? request_scope(w->identity, user) : owner_hash(w->identity);
    return 0;
}

static int forget_person(struct store *s, struct nights *n, const struct store_person *p,
                         struct err *e) {
    struct store_forgotten rows;
    struct learn_forgotten learned;
    char owner[MEMORY_MAX_OWNER];
    if (*p->owner) memory_owner(p->owner, p->user, owner);
    else *owner = 0;
    int rc = store_person_forget(s, p, &rows, e);
    if (!rc) rc = learn_forget(n, owner, &learned, e);
    if (rc) return rc;
    printf("%lld rows, %zu documents of tables and %zu adapters forgotten; %zu nights changed\n",
           (long long)rows.n_row, learned.n_doc, learned.n_adapter, learned.n_night);
    if (!rows.is_overwritten)
        puts("the store's files may hold the bytes until their space is used again: stop who reads "
             "the store and run this once more (a PostgreSQL server: VACUUM FULL)");
    return 0;
}

/* States name the key but not its users, so those of the whole key are removed. */
static int forget_shared(const char *dir, const struct store_person *p, struct err *e) {
    uint64_t key = owner_hash(p->owner), n = 0, all = 0;
    int rc = 0;
    for (int i = 0; !rc && i < p->n_state; i++, all += n)
        rc = prefix_shared_forget(dir, p->states_are_scopes ? key : p->states[i], &n, e);
    if (!rc) rc = replay_shared_forget(dir, e);
    if (!rc) printf("%llu shared states removed\n", (unsigned long long)all);
    return rc;
}

static int forget(const struct cfg *c, struct err *e) {
    char key[MEMORY_MAX_OWNER];
    const char *who = cfg_str(c, "user");
    struct store *store = NULL;
    struct nights *nights = NULL;
    struct key_wish wish;
    struct store_person person;
    if (!who || !*who || strlen(who) >= sizeof key)
        return err_set(e, CHIMERE_EINVAL, "forget: expected --user KEY, or KEY/NAME");
    snprintf(key, sizeof key, "%s", who);
    char *user = strchr(key, '/');
    if (user) *user++ = 0;
    int rc = odo_args_store(c, &store, e);
    if (!rc) rc = person_of(store, key, user && *user ? user : NULL, &wish, &person, e);
    if (!rc) rc = nights_open(&nights, cfg_str(c, "night-dir"), NIGHTS_RETURN, e);
    if (!rc) rc = forget_person(store, nights, &person, e);
    const char *shared = cfg_str(c, "states");
    if (!rc && shared && person.n_state) rc = forget_shared(shared, &person, e);
    nights_close(nights);
    store_close(store);
    return rc;
}

int cmd_night(int argc, char **argv) {
    struct cfg *c;
    int code;
    if (!cli_parse(&c, night_options,
                   "usage: chimere night run [-m FILE] [--steps LIST] [--budget TIME] [--dry-run]\n"
                   "       chimere night status | history | report [N] [--html FILE] | rollback "
                   "[N] | replay [N]\n"
                   "       chimere night schedule [STEP=TIME ...] [--systemd | --install]\n"
                   "       chimere night playbook [export | import FILE]\n"
                   "       chimere night eval add QUESTION ANSWER | remove ID | list\n"
                   "       chimere night simulate --week --night-dir DIR [--questions N] [--json]\n"
                   "       chimere night export [--form sft | dpo | spin] > FILE.jsonl\n"
                   "       chimere night forget --user KEY[/NAME]",
                   argc, argv, &code))
        return code;
    struct err e = {0};
    const char *what = cfg_n_pos(c) ? cfg_pos(c, 0) : "status";
    struct nights *n = NULL;
    int rc;
    if (!strcmp(what, "run")) {
        rc = run(c, &e);
    } else if (!strcmp(what, "simulate")) {
        const struct night_params ask = {.goes_on = goes_on,
                                         .say = cfg_bool(c, "quiet") ? NULL : say};
        rc = night_simulate(c, &ask, &e);
    } else if (!strcmp(what, "schedule")) {
        rc = night_schedule(c, &e);
    } else if (!strcmp(what, "export")) {
        rc = export_lines(c, &e);
    } else if (!strcmp(what, "forget")) {
        rc = forget(c, &e);
    } else {
        rc = nights_open(
            &n, cfg_str(c, "night-dir"),
            strcmp(what, "rollback") && strcmp(what, "replay") ? NIGHTS_READ : NIGHTS_RETURN, &e);
        if (!rc && !strcmp(what, "status")) rc = status(c, n, &e);
        else if (!rc && !strcmp(what, "report")) rc = report(c, n, &e);
        else if (!rc && !strcmp(what, "history")) rc = history(n, &e);
        else if (!rc && !strcmp(what, "rollback")) rc = rollback(c, n, &e);
        else if (!rc && !strcmp(what, "replay")) rc = replay(c, n, &e);
        else if (!rc && !strcmp(what, "eval")) rc = own_items(c, n, &e);
        else if (!rc && !strcmp(what, "playbook")) rc = playbook(c, n, &e);
        else if (!rc)
            rc =
                err_set(&e, CHIMERE_EINVAL,
                        "night: expected run, status, history, report, rollback, replay, schedule, "
                        "eval, playbook, export, simulate or forget, got %s",
                        what);
    }
    nights_close(n);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
