#include "cli/night_simulate.h"

#include <stdio.h>
#include <string.h>

#include "cli/args/chat_args.h"
#include "cli/args/engram_args.h"
#include "cli/args/night_args.h"
#include "learn/step/night_step.h"

static double real(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static void print_compare(const char *name, const json_t *row) {
    printf("  %-14s %5.0f items: %5.1f %% to %5.1f %%, p %.4f\n", name, real(row, "n"),
           100 * real(row, "a"), 100 * real(row, "b"), real(row, "p"));
}

static void print_skills(const json_t *compare) {
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(compare, "skills"), i, row)
        print_compare(json_string_value(json_object_get(row, "skill")), row);
}

static void print_report(const json_t *r) {
    const char *step;
    json_t *compare;
    puts("exam, before and after the week (no user asked in these words)");
    print_skills(json_object_get(r, "exam"));
    print_compare("all", json_object_get(json_object_get(r, "exam"), "total"));
    puts("exam, without the files of a step and with them");
    json_object_foreach(json_object_get(r, "ablation"), step, compare)
        print_compare(step, json_object_get(compare, "total"));
    puts("suites, before and after the week");
    print_skills(json_object_get(r, "suites"));
    print_compare("all", json_object_get(json_object_get(r, "suites"), "total"));
    printf("%.0f skills are significantly worse (one-sided p < 0.05, Holm)\n", real(r, "n_down"));
}

/* chimere-nano speaks English only; a French user of it would measure nothing. */
static int languages_of(const struct cfg *c, const char *model, int32_t *n, struct err *e) {
    const char *list = cfg_str(c, "languages");
    *n = list ? strcmp(list, "en,fr") == 0 ? 2 : 1 : strstr(model, "chimere-mini") ? 2 : 1;
    if (!list || *n == 2 || !strcmp(list, "en")) return 0;
    return err_set(e, CHIMERE_EINVAL, "languages: expected en or en,fr, got %.40s", list);
}

static int simulate(const struct cfg *c, const struct night_params *ask, struct chat_rig *rig,
                    const json_t *gate, const json_t *suites, struct err *e) {
    json_t *report;
    struct simulate_params p = {.seed = (uint64_t)cfg_int(c, "seed"),
                                .days = cfg_bool(c, "week") ? 7 : (int32_t)cfg_int(c, "days"),
                                .questions = (int32_t)cfg_int(c, "questions"),
                                .users = (int32_t)cfg_int(c, "users"),
                                .facts = (int32_t)cfg_int(c, "facts"),
                                .feedback = cfg_float(c, "feedback"),
                                .wrong = cfg_float(c, "wrong"),
                                .poison_from = (int32_t)cfg_int(c, "poison-from"),
                                .hostile = cfg_float(c, "hostile"),
                                .documents = (int32_t)cfg_int(c, "documents"),
                                .flattery = (int32_t)cfg_int(c, "flattery"),
                                .steps = cfg_str(c, "steps"),
                                .prompts = {cfg_str(c, "prompt-search"),
                                            (int32_t)cfg_int(c, "prompt-calls"),
                                            (int32_t)cfg_int(c, "prompt-tokens")},
                                .gate = gate,
                                .suites = suites,
                                .goes_on = ask->goes_on,
                                .say = ask->say,
                                .ud = ask->ud};
    const struct night_host host = {.model = rig->m,
                                    .engine = rig->engine,
                                    .tok = rig->tok,
                                    .n_seq = (int32_t)cfg_int(c, "parallel"),
                                    .encode = night_encode,
                                    .ud = rig};
    int rc = languages_of(c, rig->m->name, &p.languages, e);
    if (!rc) rc = engram_args_duration("budget", cfg_str(c, "budget"), &p.budget_s, e);
    if (!rc) rc = simulate_week(&report, cfg_str(c, "night-dir"), &host, &p, e);
    if (rc) return rc;
    if (!cfg_bool(c, "json")) print_report(report);
    else if (json_dumpf(report, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) ||
             putchar('\n') < 0)
        rc = err_set(e, CHIMERE_EIO, "standard output: cannot write");
    json_decref(report);
    return rc;
}

int night_simulate(const struct cfg *c, const struct night_params *ask, struct err *e) {
    struct chat_rig rig = {.dev = NULL};
    if (!cfg_str(c, "night-dir"))
        return err_set(e, CHIMERE_EINVAL, "simulate: expected --night-dir DIR, a new folder");
    if (night_prompts_search(cfg_str(c, "prompt-search"), e) < 0) return CHIMERE_EINVAL;
    json_t *gate = json_array(), *suites = json_array();
    int rc = gate && suites ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = night_items(gate, (size_t)cfg_int(c, "suite-items"), e);
    if (!rc) rc = night_items(suites, (size_t)cfg_int(c, "all-items"), e);
    if (!rc) rc = chat_rig_open(&rig, c, (int32_t)cfg_int(c, "parallel"), e);
    if (!rc) {
        rc = simulate(c, ask, &rig, gate, suites, e);
        chat_rig_close(&rig);
    }
    json_decref(gate);
    json_decref(suites);
    return rc;
}
