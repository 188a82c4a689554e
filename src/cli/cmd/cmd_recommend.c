/* cmd_recommend.c: lists which models of the curated list fit this machine, and their expected speed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/catalog/recommend.h"
#include "base/str.h"
#include "cli/args/model_args.h"
#include "kernels/device.h"

const struct cfg_opt recommend_options[] = {
    {"device", 0, CFG_STR, "NAME", "auto", 0, 0, NULL,
     "cpu, cuda or cuda:N; auto: the first GPU if the build supports it and it works, else cpu"},
    {"threads", 't', CFG_INT, "N", "0", 0, 512, NULL, "threads; 0: one per core"},
    {"check", 0, CFG_LIST, "FILE", NULL, 0, 0, NULL,
     "also predict and measure this model; may be repeated"},
    {"all", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "also list the models that do not fit"},
    {"json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "print one JSON object (docs/recommend.md)"},
    {0}};

enum { MAX_CHECKS = 64 };

static int open_device(struct dev **dev, const struct cfg *c, struct err *e) {
    const struct device_params p = {.name = cfg_str(c, "device"),
                                    .n_thread = (int)cfg_int(c, "threads")};
    return device_open(dev, &p, e);
}

static double real_of(const json_t *o, const char *name) {
    return json_number_value(json_object_get(o, name));
}
static const char *text_of(const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}
static uint64_t bytes_of(const json_t *o, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(o, name));
}

static void print_checks(const json_t *checks) {
    size_t i;
    json_t *o;
    json_array_foreach(checks, i, o)
        printf("check: %s: decode %.0f tok/s predicted, %.0f measured (%+.0f %%); prefill %.0f, "
               "%.0f (%+.0f %%)\n",
               text_of(o, "file"), real_of(o, "decode_predicted"), real_of(o, "decode_measured"),
               100 * real_of(o, "decode_error"), real_of(o, "prefill_predicted"),
               real_of(o, "prefill_measured"), 100 * real_of(o, "prefill_error"));
}

static void print_speed(double v) {
    if (v > 0) printf(" %8.*f", v < 10 ? 1 : 0, v);
    else printf(" %8s", "-");
}

static void print_model(const json_t *o) {
    char bytes[16], context[32] = "does not fit";
    str_bytes(bytes, bytes_of(o, "bytes"));
    if (json_is_true(json_object_get(o, "fits")))
        snprintf(context, sizeof context, "%lld%s", (long long)bytes_of(o, "n_ctx"),
                 json_is_true(json_object_get(o, "experts_on_host")) ? "*" : "");
    printf("%-18s %9s %12s", text_of(o, "name"), bytes, context);
    print_speed(real_of(o, "decode_tok_s"));
    print_speed(real_of(o, "prefill_tok_s"));
    printf("  %s: %s (%s)\n", text_of(o, "kind"), text_of(o, "good_at"), text_of(o, "licence"));
}

static void print_table(const json_t *all, bool also_unfit) {
    const json_t *machine = json_object_get(all, "machine"),
                 *models = json_object_get(all, "models");
    char memory[16], device[16];
    str_bytes(memory, bytes_of(machine, "memory_bytes"));
    str_bytes(device, bytes_of(machine, "device_bytes"));
    printf("this machine: %lld cores, %s of memory free", (long long)bytes_of(machine, "cores"),
           memory);
    if (bytes_of(machine, "device_bytes"))
        printf(", %s with %s free", text_of(machine, "device"), device);
    printf(", reads %.0f GB/s\n\n", real_of(machine, "bandwidth_gb_s"));
    printf("%-18s %9s %12s %8s %8s  %s\n", "name", "size", "context", "tok/s", "prompt/s",
           "good at");
    size_t i, n_unfit = 0;
    json_t *o;
    const char *command = "";
    json_array_foreach(models, i, o) {
        bool fits = json_is_true(json_object_get(o, "fits"));
        n_unfit += !fits;
        if (fits || also_unfit) print_model(o);
        if (strcmp(text_of(o, "name"), text_of(all, "best")) == 0) command = text_of(o, "command");
    }
    if (n_unfit && !also_unfit) printf("%zu more do not fit; --all lists them\n", n_unfit);
    puts("\ntok/s: predicted for one answer at the start of a context; prompt/s: for a prompt of "
         "256 "
         "tokens.\n*: some experts stay in the host's memory; not predicted.");
    print_checks(json_object_get(all, "checks"));
    if (*command) printf("\nbest here: %s\n", command);
}

int cmd_recommend(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(
            &c, recommend_options,
            "usage: chimere recommend [--all] [--json] [--device NAME] [--check FILE]\n\n"
            "Measures this machine for about a second and lists known models: which fit, with\n"
            "how much context, and how fast they will be. `chimere pull NAME` fetches one.",
            argc, argv, &status))
        return status;
    struct err e = {0};
    struct dev *dev = NULL;
    json_t *all = NULL;
    const char *const *given, *files[MAX_CHECKS];
    char own[2][4096];
    size_t n_given = cfg_list(c, "check", &given), n = 0;
    int rc = n_given <= MAX_CHECKS - 2
                 ? 0
                 : err_set(&e, CHIMERE_ELIMIT, "--check: expected at most %d", MAX_CHECKS - 2);
    /* without --check: the models that are already on this machine */
    static const char *const names[] = {"nano", "smol"};
    for (size_t i = 0; !n_given && i < 2; i++)
        if (!model_args_own(names[i], own[i], sizeof own[i], NULL)) files[n++] = own[i];
    for (size_t i = 0; !rc && i < n_given; i++) files[n++] = given[i];
    if (!rc) rc = open_device(&dev, c, &e);
    if (!rc) {
        rc = recommend_json(&all, dev, files, n, &e);
        dev->ops->close(dev);
    }
    if (!rc && cfg_bool(c, "json")) {
        json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        putchar('\n');
    } else if (!rc) print_table(all, cfg_bool(c, "all"));
    json_decref(all);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
