#include "cli/args/odo_args.h"

#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "backend/embed/embed.h"
#include "backend/embed/rerank.h"
#include "strategy/reward.h"
#include "retrieval/extract.h"
#include "odo/memory.h"
#include "backend/embed/remote_embed.h"
#include "tools/tool.h"
#include "tools/tool_files.h"
#include "store/retain.h"

int odo_args_key(const struct cfg *c, const char *option, char **out, struct err *e) {
    const char *file = cfg_str(c, option);
    size_t n = 0;
    *out = NULL;
    int rc = file ? file_read(file, 4096, out, &n, e) : 0;
    char *key = *out;
    while (key && n && (key[n - 1] == '\n' || key[n - 1] == '\r' || key[n - 1] == ' '))
        key[--n] = 0;
    return rc;
}

void odo_args_forget(char *key) {
    if (key) explicit_bzero(key, strlen(key));
    mem_free(key);
}

bool odo_args_are_given(const struct cfg *c) {
    static const char *const names[] = {"pipelines", "files", "run-code",  "searxng",
                                        "brave-key", "mcp",   "intent-ms", "embedding-url",
                                        "prm",       "otlp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        if (cfg_origin(c, names[i]) != CFG_DEFAULT) return true;
    return false;
}

static int open_remote_embed(struct odo_rig *r, const struct cfg *c, struct err *e) {
    const char *url = cfg_str(c, "embedding-url");
    char *key;
    if (!url) return 0;
    if (cfg_str(c, "embedding-model"))
        return err_set(e, CHIMERE_EINVAL,
                       "--embedding-model and --embedding-url: expected one of them");
    int rc = odo_args_key(c, "embedding-key", &key, e);
    if (!rc) rc = remote_embed_open(&r->models.remote, url, key, cfg_str(c, "embedding-name"), e);
    if (rc) err_prefix(e, "--embedding-url");
    odo_args_forget(key);
    return rc;
}

int odo_args_store(const struct cfg *c, struct store **out, struct err *e) {
    char path[4096];
    const char *given = cfg_str(c, "db");
    int rc = given ? 0 : file_user_data("chimere.db", path, sizeof path, e);
    return rc ? rc : store_open(out, given ? given : path, e);
}

/* A command that only answers also works without a home folder. */
static int open_store(struct odo_rig *r, const struct cfg *c, bool only_answers, struct err *e) {
    int rc = odo_args_store(c, &r->store, e);
    if (!rc || !only_answers || cfg_str(c, "db") || rc == CHIMERE_ENOMEM) return rc;
    log_warn("%s; this run keeps nothing, --db FILE names another place", e->text);
    *e = (struct err){0};
    return store_open(&r->store, ":memory:", e);
}

static int open_rig(struct odo_rig *r, const struct cfg *c, bool only_answers, struct err *e) {
    extract_allow_bare(cfg_bool(c, "bare-parsing"));
    int rc = open_store(r, c, only_answers, e);
    int64_t n = rc ? 0
                   : store_retain(r->store, (int32_t)cfg_int(c, "keep-days"),
                                  (int64_t)cfg_bytes(c, "keep-size"), e);
    if (n < 0) rc = (int)n;
    if (!rc) rc = encoder_rig_embed(&r->embedder, c, "embedding-model", &r->models.embed, e);
    if (!rc) rc = open_remote_embed(r, c, e);
    if (!rc) rc = encoder_rig_open(&r->ranker, c, "rerank-model", e);
    if (!rc && r->ranker.m) rc = rerank_open(&r->models.rerank, r->ranker.m, r->ranker.tok, 0, e);
    r->models.n_trusted = cfg_list(c, "docs-trusted", &r->models.trusted);
    return rc ? rc : docs_open(&r->docs, r->store, &r->models, e);
}

int odo_rig_store(struct odo_rig *r, const struct cfg *c, struct err *e) {
    return open_rig(r, c, false, e);
}

static int open_web(struct odo_rig *r, const struct cfg *c, struct err *e) {
    struct web_params p = {.searxng = cfg_str(c, "searxng")};
    char *key;
    if (!p.searxng && !cfg_str(c, "brave-key")) return 0;
    int rc = odo_args_key(c, "brave-key", &key, e);
    p.brave_key = key;
    if (!rc) rc = web_open(&r->web, &p, e);
    odo_args_forget(key);
    return rc;
}

int odo_rig_tools(struct odo_rig *r, const struct cfg *c, struct tool_set **out, struct err *e) {
    struct tool_set *tools = NULL;
    *r = (struct odo_rig){0};
    int rc = open_rig(r, c, true, e);
    if (!rc) rc = tool_set_new(&tools, e);
    if (!rc) rc = docs_add_tool(r->docs, tools, e);
    if (!rc) rc = memory_add_tools(r->store, tools, e);
    if (!rc) rc = open_web(r, c, e);
    if (!rc && r->web) rc = web_add_tool(r->web, tools, e);
    struct tool_files files = {.root = cfg_str(c, "files"),
                               .quota_bytes = (int64_t)cfg_bytes(c, "files-quota"),
                               .build_files = cfg_bool(c, "files-build"),
                               .trusted = cfg_bool(c, "files-trusted")};
    if (!rc && files.root) rc = tool_files_add(tools, &files, e);
    if (!rc && cfg_bool(c, "run-code")) rc = tool_code_add(tools, e);
    const char *const *servers, *const *env;
    size_t n_env = cfg_list(c, "mcp-env", &env);
    size_t n_server = cfg_list(c, "mcp", &servers);
    if (!rc && n_server > ODO_RIG_MAX_MCP)
        rc = err_set(e, CHIMERE_ELIMIT, "--mcp: expected at most %d", ODO_RIG_MAX_MCP);
    for (size_t i = 0; i < n_server && !rc; ++i) {
        rc = mcp_open(&r->mcp[i], servers[i], env, n_env, e);
        r->n_mcp += !rc;
        if (!rc) rc = mcp_add_tools(r->mcp[i], tools, e);
    }
    if (rc) {
        tool_set_free(tools);
        odo_rig_close(r);
        tools = NULL;
    }
    *out = tools;
    return rc;
}

int odo_args_prm(const struct cfg *c, struct encoder_rig *rig, struct reward **out, struct err *e) {
    *out = NULL;
    int rc = encoder_rig_open(rig, c, "prm", e);
    if (rc || !rig->m) return rc;
    rc = reward_open(out, rig->m, rig->tok, e);
    if (rc) err_prefix(e, "--prm");
    if (rc) encoder_rig_close(rig);
    return rc;
}

int odo_rig_open(struct odo_rig *r, const struct cfg *c, struct backend *backend, struct err *e) {
    struct tool_set *tools;
    int rc = odo_rig_tools(r, c, &tools, e);
    if (!rc && backend) rc = odo_args_prm(c, &r->scorer, &r->prm, e);
    if (rc) tool_set_free(tools);
    if (!rc) {
        struct odo_params p = {.backend = backend,
                               .can_see = backend && backend->model && backend->model->vision,
                               .pipelines = cfg_str(c, "pipelines"),
                               .watch = backend != NULL,
                               .tools = tools,
                               .store = r->store,
                               .docs = r->docs,
                               .web = r->web,
                               .prm = r->prm,
                               .otlp = cfg_str(c, "otlp"),
                               .intent_ms = (int32_t)cfg_int(c, "intent-ms")};
        bool known = false;
        if (backend) rc = card_read(NULL, backend->name, &p.card, &known, e);
        else
            p.card =
                /* without a model, show what pipelines would do */
                (struct odo_card){.tools = true, .prompts = true};
        if (backend && !rc && !known)
            log_info("odo: %s was never measured: tools and prompts of pipelines apply only where "
                     "a request names them; "
                     "`chimere odo calibrate` measures it",
                     backend->name);
        if (rc) tool_set_free(tools);
        else rc = odo_open(&r->odo, &p, e);
    }
    if (rc) odo_rig_close(r);
    return rc;
}

void odo_rig_close(struct odo_rig *r) {
    odo_close(r->odo);
    for (int i = 0; i < r->n_mcp; ++i) mcp_close(r->mcp[i]);
    web_close(r->web);
    docs_close(r->docs);
    embed_close(r->models.embed);
    remote_embed_close(r->models.remote);
    rerank_close(r->models.rerank);
    reward_close(r->prm);
    encoder_rig_close(&r->scorer);
    encoder_rig_close(&r->embedder);
    encoder_rig_close(&r->ranker);
    store_close(r->store);
    *r = (struct odo_rig){0};
}
