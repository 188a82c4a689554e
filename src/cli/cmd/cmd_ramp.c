/* cmd_ramp.c: makes the best file of a given size by choosing the type of every tensor. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "cli/args/model_args.h"
#include "kernels/device.h"
#include "ramp/ramp.h"

/* clang-format off */
const struct cfg_opt ramp_options[] = {
    {"size", 0, CFG_BYTES, "SIZE", NULL, 1e4, 1e15, NULL, "bytes of the file, e.g. 14.2G"},
    {"bpw", 0, CFG_FLOAT, "BITS", NULL, 0.5, 32, NULL, "bits per weight of the file"},
    {"card", 0, CFG_STR, "NAME", NULL, 0, 0, NULL, "fit the memory of a card, e.g. rtx-5060-ti-16g, with --ctx"},
    {"ctx", 'c', CFG_INT, "N", "32768", 256, 1 << 24, NULL, "tokens of context that must also fit, with --card"},
    {"min-speed", 0, CFG_FLOAT, "N", NULL, 0.01, 1e6, NULL, "tokens per second that reading the weights on --card must allow"},
    {"file", 'f', CFG_STR, "TEXT", NULL, 0, 0, NULL, "calibration text (default: the model writes its own)"},
    {"imatrix", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "importance matrix (default: collected from the text)"},
    {"mode", 0, CFG_ENUM, "MODE", "portable", 0, 0, "portable|chimere", "types of llama.cpp, or all that chimere runs"},
    {"predict", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "do not run the model: predicted errors alone"},
    {"work", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "folder of intermediate results (default: OUT.ramp)"},
    {"cache-size", 0, CFG_BYTES, "SIZE", "32G", 0, 1e15, NULL, "maximum size of encoded tensors kept in the work folder"},
    {"effort", 0, CFG_FLOAT, "MINUTES", "20", 0, 1e6, NULL, "minutes of one core, estimated from a table, that the search may spend on encoding tensors"},
    {"generations", 0, CFG_INT, "N", "12", 0, 10000, NULL, "maximum number of generations of the evolution; 0: none"},
    {"population", 0, CFG_INT, "N", "128", 2, 4096, NULL, "candidates per generation"},
    {"tokens", 0, CFG_INT, "N", "16384", 512, 1 << 24, NULL, "tokens that the last candidates are measured on"},
    {"probe-tokens", 0, CFG_INT, "N", "2048", 256, 1 << 24, NULL, "tokens that gains of tensors are measured on"},
    {"sample", 0, CFG_INT, "N", "0", 0, 1 << 30, NULL, "weights sampled per tensor and type in the analysis; 0: as many as one minute allows"},
    {"seed", 0, CFG_INT, "N", "1", 0, 1e15, NULL, "seed of texts and mutations"},
    {"threads", 't', CFG_INT, "N", "0", 0, 512, NULL, "threads; 0: one per core"},
    {"device", 0, CFG_STR, "NAME", "auto", 0, 0, NULL, "where candidates run: cpu, cuda or cuda:N; auto: the first GPU if the build supports it and it works, else cpu"},
    {"isa", 0, CFG_ENUM, "SET", "best", 0, 0, CPU_ISA_CHOICES, "instruction set of the processor's kernels"},
    {"quiet", 'q', CFG_BOOL, NULL, "false", 0, 0, NULL, "no progress bars"},
    {0},
};
/* clang-format on */

static const char usage[] =
    "usage: chimere ramp MODEL OUT --size 14.2G | --bpw 3.5 | --card NAME --ctx N [-f TEXT]\n"
    "       chimere ramp analyse|search|build|report MODEL OUT [options]\n\n"
    "Chooses the type of every tensor so that a file of the given size diverges least from MODEL,\n"
    "and writes it. Without a step's name, analyse, search and build run in turn; interrupted "
    "runs\n"
    "continue. report measures OUT on -f TEXT and plots the result.";

static void fill(struct ramp_options *o, const struct cfg *c) {
    o->mode = strcmp(cfg_str(c, "mode"), "chimere") == 0 ? RAMP_CHIMERE : RAMP_PORTABLE;
    if (cfg_is_set(c, "size")) o->size_bytes = cfg_bytes(c, "size");
    if (cfg_is_set(c, "bpw")) o->bpw = cfg_float(c, "bpw");
    o->card = cfg_str(c, "card");
    o->ctx = cfg_int(c, "ctx");
    if (cfg_is_set(c, "min-speed")) o->min_tok_s = cfg_float(c, "min-speed");
    o->text = cfg_str(c, "file");
    o->imatrix = cfg_str(c, "imatrix");
    o->predict_only = cfg_bool(c, "predict");
    o->n_thread = (int)cfg_int(c, "threads");
    o->seed = (uint64_t)cfg_int(c, "seed");
    o->generations = (int32_t)cfg_int(c, "generations");
    o->population = (int32_t)cfg_int(c, "population");
    o->judge_tok = (int32_t)cfg_int(c, "tokens");
    o->probe_tok = (int32_t)cfg_int(c, "probe-tokens");
    o->sample_weights = (uint64_t)cfg_int(c, "sample");
    o->cache_bytes = cfg_bytes(c, "cache-size");
    o->effort_s = 60 * cfg_float(c, "effort");
    o->quiet = cfg_bool(c, "quiet");
}

static int show_plan(const struct ramp_options *o, struct err *e) {
    struct ramp_summary s;
    char size[16];
    int rc = ramp_summary_read(&s, o, e);
    if (rc) return rc;
    str_bytes(size, s.n_bytes);
    printf("plan: %s, %.3f bits per weight, predicted divergence %.5f", size, s.bpw, s.predicted);
    if (s.measured >= 0)
        printf(", measured %.5f (%.5f before %d generations)", s.measured, s.measured_start,
               s.generations);
    if (s.uniform >= 0) printf(", uniform %s %.5f", s.uniform_type, s.uniform);
    putchar('\n');
    return 0;
}

static int report(const struct ramp_options *o, struct err *e) {
    struct buf text;
    buf_init(&text, 1 << 24);
    int rc = ramp_report(o, &text, e);
    if (!rc && text.p) fputs(text.p, stdout);
    if (!rc) printf("%s/report.json, pareto.svg, heat.svg\n", o->work);
    buf_fini(&text);
    return rc;
}

static const struct step {
    const char *name;
    int (*run)(const struct ramp_options *o, struct err *e);
} steps[] = {
    {"analyse", ramp_analyse}, {"search", ramp_search}, {"build", ramp_build}, {"report", report}};

/* Runs one step, or all; the plan is printed after it was made. */
static int run_steps(const struct ramp_options *o, const char *only, struct err *e) {
    int rc = only ? 0 : ramp_check(o, e);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !rc; i++) {
        if (only ? strcmp(steps[i].name, only) != 0 : steps[i].run == report) continue;
        rc = steps[i].run(o, e);
        if (!rc && steps[i].run == ramp_search) rc = show_plan(o, e);
        if (!rc && steps[i].run == ramp_build) printf("%s\n", o->out);
    }
    return rc;
}

static const char *step_name(const struct cfg *c) {
    const char *first = cfg_pos(c, 0);
    for (size_t i = 0; first && i < sizeof steps / sizeof *steps; i++)
        if (strcmp(first, steps[i].name) == 0) return steps[i].name;
    return NULL;
}

static int run(const struct cfg *c, struct err *e) {
    char work[4096];
    struct ramp_options o;
    const char *only = step_name(c);
    if (cfg_n_pos(c) != 2 + (only != NULL))
        return err_set(e, CHIMERE_EINVAL, "ramp: expected MODEL and OUT, got %d argument%s",
                       cfg_n_pos(c), cfg_n_pos(c) == 1 ? "" : "s");
    ramp_defaults(&o);
    fill(&o, c);
    o.model = cfg_pos(c, only != NULL);
    o.out = cfg_pos(c, 1 + (only != NULL));
    o.work = cfg_str(c, "work");
    if (!o.work) {
        if ((size_t)snprintf(work, sizeof work, "%s.ramp", o.out) >= sizeof work)
            return err_set(e, CHIMERE_ELIMIT, "%s: path is too long", o.out);
        o.work = work;
    }
    if (o.predict_only || (only && strcmp(only, "build") == 0)) return run_steps(&o, only, e);
    const struct device_params device = {
        .name = cfg_str(c, "device"), .n_thread = o.n_thread, .isa = model_args_isa(c)};
    int rc = device_open(&o.dev, &device, e);
    if (rc) return rc;
    rc = run_steps(&o, only, e);
    o.dev->ops->close(o.dev);
    return rc;
}

int cmd_ramp(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, ramp_options, usage, argc, argv, &status)) return status;
    struct err e = {0};
    int rc = run(c, &e);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
