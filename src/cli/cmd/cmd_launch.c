/* cmd_launch.c: starts a coding agent that uses a running server. Only its environment and options differ from a
 * normal start; its files are not changed. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/os/env.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/args/remote_args.h"

/* clang-format off */
const struct cfg_opt launch_options[] = {
    {"url", 0, CFG_STR, "URL", "http://127.0.0.1:8081", 0, 0, NULL, "the running server"},
    {"url-model", 0, CFG_STR, "NAME", NULL, 0, 0, NULL, "its model (default: its first)"},
    {"url-key", 0, CFG_STR, "KEY", NULL, 0, 0, NULL, "its API key; prefer the variable CHIMERE_URL_KEY"},
    {0}};
/* clang-format on */

enum { MAX_ARGS = 16 };

struct launch {
    struct remote server;
    char root[2048];           /* the server's address without /v1 */
    char text[MAX_ARGS][2400]; /* what args point to */
    char *args[MAX_ARGS];      /* options that are put before the user's */
    int n_arg;
    char *config; /* owned, or NULL */
};

static void add_arg(struct launch *l, const char *text) {
    snprintf(l->text[l->n_arg], sizeof l->text[0], "%s", text);
    l->args[l->n_arg] = l->text[l->n_arg];
    l->n_arg++;
}

/* With /v1 in the base address, the agent would request /v1/v1. Its attribution header differs in each session and
 * would make the prompt cache useless. */
static int set_claude(struct launch *l, struct err *e) {
    static const char *const models[] = {
        "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL"};
    (void)e;
    env_set("ANTHROPIC_BASE_URL", l->root);
    env_set("ANTHROPIC_AUTH_TOKEN", l->server.key ? l->server.key : "none");
    env_set("ANTHROPIC_API_KEY", NULL);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) env_set(models[i], l->server.model);
    env_set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    env_set("CLAUDE_CODE_ATTRIBUTION_HEADER", "0");
    return 0;
}

static int set_codex(struct launch *l, struct err *e) {
    char text[2400];
    (void)e;
    const char *const settings[] = {
        "model_provider=\"chimere\"", "model_providers.chimere.name=\"chimere\"",
        "model_providers.chimere.wire_api=\"responses\"", "check_for_update_on_startup=false"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        add_arg(l, "-c");
        add_arg(l, settings[i]);
    }
    add_arg(l, "-c");
    snprintf(text, sizeof text, "model_providers.chimere.base_url=\"%s\"", l->server.base);
    add_arg(l, text);
    if (l->server.key) {
        env_set("CHIMERE_URL_KEY", l->server.key);
        add_arg(l, "-c");
        add_arg(l, "model_providers.chimere.env_key=\"CHIMERE_URL_KEY\"");
    }
    add_arg(l, "-m");
    add_arg(l, l->server.model);
    return 0;
}

static int set_opencode(struct launch *l, struct err *e) {
    const char *key = l->server.key ? l->server.key : "none";
    char model[300];
    snprintf(model, sizeof model, "chimere/%s", l->server.model);
    json_t *config = json_pack("{s:s,s:b,s:s,s:{s:{s:s,s:s,s:{s:s,s:s},s:{s:{s:s}}}}}", "model",
                               model, "autoupdate", 0, "share", "disabled", "provider", "chimere",
                               "npm", "@ai-sdk/openai-compatible", "name", "chimere", "options",
                               "baseURL", l->server.base, "apiKey", key, "models", l->server.model,
                               "name", l->server.model);
    size_t n;
    l->config = config ? remote_body(config, &n) : NULL;
    json_decref(config);
    if (!l->config) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    env_set("OPENCODE_CONFIG_CONTENT", l->config);
    return 0;
}

static const struct {
    const char *name, *package;
    int (*set)(struct launch *l, struct err *e);
} agents[] = {{"claude", "@anthropic-ai/claude-code", set_claude},
              {"codex", "@openai/codex", set_codex},
              {"opencode", "opencode-ai", set_opencode}};
enum { N_AGENT = sizeof agents / sizeof *agents };

/* Returns only if the program cannot be started. */
static int launch(const struct cfg *c, size_t agent, int n_rest, char **rest, struct err *e) {
    static struct launch l; /* 40 KB; static, because the process is replaced by the agent */
    int rc = remote_open(&l.server, c, e);
    if (rc) {
        err_hint(e, "start one with: chimere serve -m FILE --ctx 65536");
        return rc;
    }
    snprintf(l.root, sizeof l.root, "%.*s", (int)strlen(l.server.base) - 3, l.server.base);
    rc = agents[agent].set(&l, e);
    char **argv = rc ? NULL : mem_alloc_array((size_t)(l.n_arg + n_rest + 2), sizeof *argv);
    if (!rc && !argv) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (rc) return rc;
    argv[0] = (char *)agents[agent].name;
    memcpy(argv + 1, l.args, (size_t)l.n_arg * sizeof *argv);
    memcpy(argv + 1 + l.n_arg, rest, (size_t)n_rest * sizeof *argv);
    argv[1 + l.n_arg + n_rest] = NULL;
    execvp(argv[0], argv);
    rc = err_set(e, CHIMERE_ENOENT, "%s: %s", argv[0], strerror(errno));
    err_hint(e, "npm install -g %s", agents[agent].package);
    mem_free(argv);
    mem_free(l.config);
    return rc;
}

int cmd_launch(int argc, char **argv) {
    static const char usage[] = "usage: chimere launch [--url URL] [--url-model NAME] "
                                "claude|codex|opencode [ARGS]";
    size_t agent = N_AGENT;
    int at = 1, status;
    for (; at < argc && agent == N_AGENT; at++)
        for (size_t i = 0; i < N_AGENT; i++)
            if (strcmp(argv[at], agents[i].name) == 0) agent = i;
    struct cfg *c;
    if (!cli_parse(&c, launch_options, usage, agent < N_AGENT ? at - 1 : argc, argv, &status))
        return status;
    struct err e = {0};
    int rc = 0;
    if (agent == N_AGENT) rc = err_set(&e, CHIMERE_EINVAL, "expected claude, codex or opencode");
    else rc = launch(c, agent, argc - at, argv + at, &e);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
