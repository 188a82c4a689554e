/* odo_eval.c: see odo_eval.h. */
#include "cli/odo_eval.h"

#include <stdio.h>

#include "backend/remote.h"
#include "base/file.h"
#include "cli/args/odo_args.h"
#include "odo/card.h"
#include "odo/measure/measure.h"

static double real(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static long long whole(const json_t *o, const char *key) {
    return json_integer_value(json_object_get(o, key));
}

static int load(const struct cfg *c, json_t *items, size_t n, struct err *e) {
    int rc = cfg_pos(c, 1)
                 ? 0
                 : err_set(e, CHIMERE_EINVAL, "eval: expected files of items, or folders of them");
    for (int i = 1; !rc && cfg_pos(c, i); ++i) rc = measure_load(items, cfg_pos(c, i), n, e);
    return rc;
}

/* ---- tables ---- */

static void print_share(const json_t *o, const char *key) {
    const json_t *s = json_object_get(o, key);
    if (s) printf(" %6.1f%%", 100 * real(s, "score"));
    else printf(" %7s", "-");
}

static void print_decided(const json_t *o, const char *name) {
    printf("%-18s %6lld", name, whole(o, "n"));
    print_share(o, "route");
    print_share(o, "low");
    print_share(o, "medium");
    print_share(o, "high");
    const json_t *r = json_object_get(o, "rank_correlation");
    if (r) printf(" %7.2f", json_number_value(r));
    else printf(" %7s", "-");
    print_share(o, "hit");
    printf(" %8.3f %8.3f\n", real(o, "ms"), real(o, "ms_most"));
}

static void print_decisions(const json_t *d) {
    json_t *row;
    size_t i;
    printf("%-18s %6s %7s %7s %7s %7s %7s %7s %8s %8s\n", "decisions", "items", "route", "low",
           "medium", "high", "rank r", "hit", "ms", "ms most");
    json_array_foreach(json_object_get(d, "skills"), i, row)
        print_decided(row, json_string_value(json_object_get(row, "skill")));
    print_decided(json_object_get(d, "total"), "all");
}

static void print_arms(const json_t *arms) {
    json_t *arm;
    size_t i;
    printf("\n%-22s %6s %8s   %-22s %8s %8s %8s %6s %8s %8s\n", "arm", "items", "right",
           "- alone, 95% interval", "hit", "cited", "tools", "wrong", "tokens", "ms");
    json_array_foreach(arms, i, arm) {
        const json_t *total = json_object_get(json_object_get(arm, "run"), "total");
        const json_t *gain = json_object_get(json_object_get(arm, "against"), "total");
        char text[40] = "";
        if (gain)
            snprintf(text, sizeof text, "%+.1f (%+.1f .. %+.1f)", 100 * real(gain, "gain"),
                     100 * real(gain, "low"), 100 * real(gain, "high"));
        printf("%-22s %6lld %7.1f%%   %-22s", json_string_value(json_object_get(arm, "name")),
               whole(total, "n"), 100 * real(total, "score"), text);
        print_share(arm, "hit");
        print_share(arm, "citation");
        print_share(arm, "tools");
        printf("   %6lld %8.1f %8.0f\n", whole(arm, "n_wrong_citation"), real(total, "n_tokens"),
               real(total, "ms"));
    }
}

/* Compares, for each suite, the model alone with the orchestrator. */
static void print_suites(const json_t *arms) {
    const json_t *against = json_object_get(json_array_get(arms, 1), "against");
    json_t *row;
    size_t i;
    printf("\n%-18s %6s %8s %8s %7s %7s   %s\n", "suite", "items", "alone", "odo", "lost", "gained",
           "odo - alone, 95% interval");
    json_array_foreach(json_object_get(against, "skills"), i, row) printf(
        "%-18s %6lld %7.1f%% %7.1f%% %7lld %7lld   %+.1f (%+.1f .. %+.1f)\n",
        json_string_value(json_object_get(row, "skill")), whole(row, "n"), 100 * real(row, "a"),
        100 * real(row, "b"), whole(row, "only_a"), whole(row, "only_b"), 100 * real(row, "gain"),
        100 * real(row, "low"), 100 * real(row, "high"));
}

static int open_judge(const struct cfg *c, struct backend **out, struct err *e) {
    char *key = NULL;
    *out = NULL;
    if (!cfg_str(c, "judge")) return 0;
    int rc = odo_args_key(c, "judge-key", &key, e);
    if (!rc) rc = backend_remote_open(out, cfg_str(c, "judge"), key, cfg_str(c, "judge-model"), e);
    odo_args_forget(key);
    return rc;
}

int odo_eval(const struct cfg *c, struct odo *o, struct backend *bare, int32_t n_worker,
             struct err *e) {
    struct measure_params p = {.odo = o,
                               .bare = bare,
                               .route = cfg_str(c, "route"),
                               .collection = cfg_str(c, "collection"),
                               .ablate = cfg_bool(c, "ablate"),
                               .n_worker = n_worker,
                               .quiet = cfg_bool(c, "quiet")};
    json_t *items = json_array(), *out = NULL;
    int rc = load(c, items, (size_t)cfg_int(c, "items"), e);
    if (!rc) rc = open_judge(c, &p.judge, e);
    if (!rc) rc = measure_run(&out, items, &p, e);
    if (!rc && cfg_bool(c, "json")) {
        json_dumpf(out, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
        putchar('\n');
    } else if (!rc) {
        const json_t *arms = json_object_get(out, "arms");
        print_decisions(json_object_get(out, "decisions"));
        if (json_array_size(arms)) print_arms(arms), print_suites(arms);
    }
    if (p.judge) p.judge->ops->close(p.judge);
    json_decref(out);
    json_decref(items);
    return rc;
}

enum { CALIBRATE_ITEMS = 10 /* items per suite */, MAX_PATH = 4096 };

int odo_calibrate(const struct cfg *c, struct odo *o, struct backend *bare, int32_t n_worker,
                  struct err *e) {
    struct measure_params p = {
        .odo = o, .bare = bare, .n_worker = n_worker, .quiet = cfg_bool(c, "quiet")};
    size_t n = (size_t)cfg_int(c, "items");
    json_t *items = json_array(), *out = NULL;
    struct odo_card card;
    char suites[MAX_PATH];
    int rc = 0;
    if (!n) n = CALIBRATE_ITEMS;
    if (cfg_pos(c, 1)) {
        rc = load(c, items, n, e);
    } else if (file_find_data("eval", suites, sizeof suites)) {
        rc = err_set(e, CHIMERE_ENOENT,
                     "the items of the suites are not installed with the program");
        err_hint(e, "name files of items: chimere odo calibrate FILE...");
    } else {
        rc = measure_load(items, suites, n, e);
    }
    if (!rc) rc = measure_card(&card, &out, items, &p, e);
    if (!rc) rc = card_write(NULL, bare->name, &card, (int64_t)json_array_size(items), e);
    if (!rc) {
        print_arms(json_object_get(out, "arms"));
        const json_t *facts = json_object_get(out, "facts"), *judge = json_object_get(out, "judge");
        printf(
            "\nfacts: %lld of %lld messages right, %lld invented, %lld of %lld pairs right: %s\n",
            whole(facts, "read"), whole(facts, "messages"), whole(facts, "invented"),
            whole(facts, "pairs_right"), whole(facts, "pairs"),
            card.facts ? "the model decides what to remember" : "rules decide what to remember");
        printf("grades: a right answer has the higher grade with probability %.2f "
               "(%lld right, %lld wrong): %s\n",
               real(judge, "auc"), whole(judge, "right"), whole(judge, "wrong"),
               card.judge ? "they count" : "they do not count");
        static const char *const only = "only if a request names them";
        printf("\n%s: tools of pipelines %s, prompts of pipelines %s, documents %s\n", bare->name,
               card.tools ? "are offered" : only, card.prompts ? "are used" : only,
               card.no_documents ? only : "if a passage is clearly about the question");
    }
    json_decref(out);
    json_decref(items);
    return rc;
}
