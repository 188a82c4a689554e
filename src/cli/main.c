/* main.c: finds the subcommand and runs it. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/guard.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/args/hub_args.h"
#include "cli/manual.h"
#include "llama/llama_process.h"
#include "ramp/ramp_process.h"
#include "retrieval/extract.h"

#define COMMAND(name, summary)                                                                     \
    int cmd_##name(int argc, char **argv);                                                         \
    extern const struct cfg_opt name##_options[];
#include "cli/commands.def"
#undef COMMAND

const struct cli_command cli_commands[] = {
#define COMMAND(name, summary) {#name, cmd_##name, summary, name##_options},
#include "cli/commands.def"
#undef COMMAND
    {0},
};

int cli_fail(const struct err *e) {
    fprintf(stderr, "chimere: %s\n", e->text[0] ? e->text : err_name(e->code));
    if (e->hint[0]) fprintf(stderr, "  %s\n", e->hint);
    return e->code == CHIMERE_EINVAL ? 2 : 1;
}

/* Commands that take a model also accept its name on a hub; -hf NAME is short for -m hf:NAME. */
static bool takes_hub(const struct cfg_opt *table, int argc, char **argv) {
    static char names[8][400];
    bool has_model = table == pull_options || table == convert_options;
    for (const struct cfg_opt *o = table; o->name; o++) has_model |= !strcmp(o->name, "model");
    for (int i = 1, n = 0; has_model && i + 1 < argc && n < 8; i++) {
        static char flag[] = "-m";
        if (strcmp(argv[i], "-hf") || strlen(argv[i + 1]) >= sizeof names[0] - 3) continue;
        snprintf(names[n], sizeof names[0], "hf:%s", argv[i + 1]);
        argv[i] = flag;
        argv[i + 1] = names[n++];
    }
    return has_model;
}

/* clang-format off */
static const struct cfg_opt log_options[] = {
    {"log-level", 0, CFG_ENUM, "LEVEL", "warn", 0, 0, "error|warn|info|debug", "minimum level of messages on standard error"},
    {"verbose", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "same as --log-level info; a server then logs one line per request"},
    {"log-json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "messages as JSON, one object per line"},
    {0}};
/* clang-format on */

/* clang-format off */
/* Spellings of options in other programs; a row applies to commands that have the option. */
static const struct cfg_opt spellings[] = {
#define ALIAS(name, ours) {name, 0, CFG_ALIAS, ours, NULL, 0, 0, NULL, NULL}
    ALIAS("temperature", "temp"), ALIAS("max-tokens", "n-predict"), ALIAS("predict", "n-predict"),
    ALIAS("max-new-tokens", "n-predict"), ALIAS("num-predict", "n-predict"), ALIAS("context", "ctx"),
    ALIAS("ctx-size", "ctx"), ALIAS("context-length", "ctx"), ALIAS("max-model-len", "ctx"),
    ALIAS("num-ctx", "ctx"), ALIAS("n-ctx", "ctx"), ALIAS("batch-size", "batch"),
    ALIAS("ubatch-size", "batch"), ALIAS("ub", "batch"), ALIAS("typical", "typical-p"), ALIAS("repetition-penalty", "repeat-penalty"),
    ALIAS("repeat-last-n", "penalty-last-n"), ALIAS("reasoning-budget", "think-budget"),
    ALIAS("thinking-budget", "think-budget"), ALIAS("np", "parallel"), ALIAS("max-num-seqs", "parallel"),
    ALIAS("ctk", "cache-type-k"), ALIAS("ctv", "cache-type-v"), ALIAS("kv-cache-dtype", "cache-type-k"),
    ALIAS("ncmoe", "n-cpu-moe"), ALIAS("model-draft", "draft"), ALIAS("md", "draft"), ALIAS("draft-n", "draft-max"),
    ALIAS("system-prompt", "system"), ALIAS("sys", "system"), ALIAS("reverse-prompt", "stop"),
    ALIAS("slot-save-path", "state-dir"), ALIAS("cache-ram", "prompt-cache"), ALIAS("served-model-name", "alias"),
    ALIAS("api-key-file", "api-key"), ALIAS("ssl-key-file", "tls-key"), ALIAS("ssl-cert-file", "tls-cert"), ALIAS("lora-scaled", "lora"),
    ALIAS("threads-batch", "threads"), ALIAS("tb", "threads"),
#undef ALIAS
#define ELSEWHERE(name, hint) {name, 0, CFG_ELSEWHERE, NULL, NULL, 0, 0, NULL, hint}
    ELSEWHERE("ngl", "all layers that fit are on the GPU, --vram SIZE limits them; of libllama: --gpu-layers N"),
    ELSEWHERE("n-gpu-layers", "all layers that fit are on the GPU, --vram SIZE limits them; of libllama: --gpu-layers N"),
    ELSEWHERE("gpu-layers", "all layers that fit are on the GPU; --vram SIZE limits them"),
    ELSEWHERE("gpu-memory-utilization", "--vram SIZE"),
    ELSEWHERE("fa", "attention is always fused; leave it out"),
    ELSEWHERE("flash-attn", "attention is always fused; leave it out"),
    ELSEWHERE("jinja", "the model's Jinja template is always used; leave it out"),
    ELSEWHERE("cb", "batching is always continuous; leave it out"),
    ELSEWHERE("cont-batching", "batching is always continuous; leave it out"),
    ELSEWHERE("mlock", "model files are mapped; leave it out"),
    ELSEWHERE("no-mmap", "model files are mapped; leave it out"),
    ELSEWHERE("ot", "--n-cpu-moe N"), ELSEWHERE("override-tensor", "--n-cpu-moe N"),
    ELSEWHERE("metrics", "GET /metrics is always served; leave it out"),
    ELSEWHERE("slots", "GET /slots is always served; leave it out"),
    ELSEWHERE("embedding", "--embedding-model FILE"), ELSEWHERE("embeddings", "--embedding-model FILE"),
    ELSEWHERE("reranking", "--rerank-model FILE"), ELSEWHERE("rerank", "--rerank-model FILE"),
    ELSEWHERE("hf-repo", "-hf OWNER/REPO[:TYPE]"), ELSEWHERE("hfr", "-hf OWNER/REPO[:TYPE]"),
    ELSEWHERE("hf-file", "-hf OWNER/REPO:TYPE"), ELSEWHERE("tensor-parallel-size", "one GPU per server today"),
#undef ELSEWHERE
    {0}};
/* clang-format on */

static void set_log(const struct cfg *c) {
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    int level = 0;
    while (level < LOG_DEBUG && strcmp(levels[level], cfg_str(c, "log-level")) != 0) level++;
    if (cfg_bool(c, "verbose") && level < LOG_INFO) level = LOG_INFO;
    log_set_level((enum log_level)level);
    log_set_json(cfg_bool(c, "log-json"));
}

void cli_tables(const struct cfg_opt *own, const struct cfg_opt *out[CLI_MAX_TABLES]) {
    int n = 0;
    out[n++] = own;
    out[n++] = log_options;
    if (takes_hub(own, 0, NULL)) out[n++] = hub_options;
    out[n] = NULL;
}

/* `chimere help --man COMMAND`: cli_parse prints the manual page instead of parsing */
static bool as_manual;

bool cli_parse(struct cfg **c, const struct cfg_opt *table, const char *usage, int argc,
               char **argv, int *status) {
    if (as_manual) {
        *status = manual_page(argv[0], table, usage);
        return false;
    }
    const struct cfg_opt *const tables[] = {
        table, log_options, spellings, takes_hub(table, argc, argv) ? hub_options : NULL, NULL};
    struct err e = {0};
    int rc = cfg_parse(c, tables, usage, argc, argv, &e);
    if (!rc) set_log(*c);
    *status = rc == CHIMERE_ECANCELLED ? 0 : rc ? cli_fail(&e) : 0;
    return rc == 0;
}

static void usage(FILE *f) {
    fputs("usage: chimere COMMAND [OPTIONS]\n\ncommands:\n", f);
    for (const struct cli_command *c = cli_commands; c->name; c++)
        fprintf(f, "  %-12s %s\n", c->name, c->summary);
    fputs(
        "\nchimere COMMAND --help lists a command's options.\n"
        "chimere help --man [COMMAND] prints a man page; chimere completion bash|zsh|fish prints\n"
        "shell completions.\n",
        f);
}

/* If output could not be written (a full disk, a closed pipe), the exit status must not be success. */
static int end(int status) {
    errno = 0;
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (!failed || status) return status;
    fprintf(stderr, "chimere: standard output: %s\n", errno ? strerror(errno) : "write error");
    return 1;
}

static int unknown(const char *name) {
    const char *nearest = NULL;
    size_t least = 3;
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        size_t d = str_distance(name, c->name);
        if (d < least && d < strlen(c->name)) least = d, nearest = c->name;
    }
    fprintf(stderr, "chimere: unknown command '%s'\n", name);
    if (nearest) fprintf(stderr, "  did you mean '%s'?\n", nearest);
    else usage(stderr);
    return 2;
}

static const struct cli_command *find_command(const char *name) {
    for (const struct cli_command *c = cli_commands; c->name; c++)
        if (strcmp(c->name, name) == 0) return c;
    return NULL;
}

/* Runs help, help COMMAND, help --man [COMMAND] or help --http. */
static int help(int argc, char **argv) {
    static char flag[] = "--help";
    as_manual = argc > 1 && strcmp(argv[1], "--man") == 0;
    if (argc > 1 && strcmp(argv[1], "--http") == 0) return manual_http();
    const char *name = as_manual ? argv[2] : argv[1]; /* argv ends with NULL */
    if (argc < 2) usage(stdout);
    else if (!name) return manual_overview();
    if (!name) return 0;
    const struct cli_command *c = find_command(name);
    char *args[] = {(char *)name, flag, NULL};
    return c ? c->run(2, args) : unknown(name);
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, LLAMA_WORKER_COMMAND) == 0) return llama_worker();
    if (strcmp(name, RAMP_PROCESS_COMMAND) == 0) return ramp_process_child();
    /* the sandboxed child */
    if (strcmp(name, EXTRACT_COMMAND) == 0) return extract_child(argc, argv);
    if (strcmp(name, "help") == 0) return help(argc - 1, argv + 1);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        usage(stdout);
        return 0;
    }
    if (strcmp(name, "completion") == 0) return manual_completion(argc > 2 ? argv[2] : "");
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        puts("chimere " CLI_VERSION);
        return 0;
    }
    const struct cli_command *c = find_command(name);
    return c ? c->run(argc - 1, argv + 1) : unknown(name);
}

int main(int argc, char **argv) {
    if (!os_hold_streams()) return 1;
    signal(SIGPIPE, SIG_IGN);
    guard_begin();
    json_set_alloc_funcs(mem_library_alloc, mem_free);
    return end(run(argc, argv));
}
