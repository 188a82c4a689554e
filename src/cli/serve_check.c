#include "cli/serve_check.h"

#include <stdio.h>
#include <string.h>

#include "backend/catalog/recommend.h"
#include "base/file.h"
#include "base/os/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/args/chat_args.h"
#include "cli/args/engram_args.h"
#include "cli/args/hub_args.h"
#include "cli/args/odo_args.h"
#include "cli/args/remote_args.h"
#include "format/gguf.h"
#include "odo/pipeline/pipeline.h"
#include "store/place.h"
#include "text/chat/chat.h"

struct check {
    const struct cfg *c;
    const struct serve_params *p;
    int32_t n_seq;
    struct memory_plan plan; /* memory plan of the first model */
    int status;
};

/* Prints a problem; the first one decides the exit status. */
static void note(struct check *k, int rc, const struct err *e) {
    if (!rc) return;
    int status = cli_fail(e);
    if (!k->status) k->status = status;
}

/* Finds the file that a model's name refers to; for a hub, its copy on this machine. */
static int find_model(const struct cfg *c, const char *name, char *out, size_t size,
                      struct err *e) {
    char hub[512];
    bool is_hub = str_starts(name, "hf:");
    if (!is_hub && !file_exists(name) && recommend_hub(name, hub, sizeof hub))
        name = hub, is_hub = true;
    if (is_hub) {
        int rc = hub_args_local(c, name, out, size, e);
        if (rc == CHIMERE_ENOENT) err_hint(e, "chimere pull %.200s fetches it", name);
        return rc;
    }
    return (size_t)snprintf(out, size, "%s", name) < size
               ? 0
               : err_set(e, CHIMERE_ELIMIT, "the path of a model is too long");
}

static bool is_own_name(const char *name) {
    return !name || ((!strcmp(name, "nano") || !strcmp(name, "smol")) && !file_exists(name));
}

static int check_model(struct check *k, struct err *e) {
    char path[4096] = "", *template = NULL;
    const char *name = cfg_str(k->c, "model");
    struct load_params how;
    int rc = is_own_name(name) ? model_args_own(name ? name : "nano", path, sizeof path, e)
                               : find_model(k->c, name, path, sizeof path, e);
    if (!rc) rc = chat_rig_template(k->c, &template, e);
    chat_rig_how(k->c, k->n_seq, &how);
    how.path = path;
    how.template = template;
    if (!rc) rc = load_check(&how, &k->plan, e);
    mem_free(template);
    return rc;
}

static int check_other(struct check *k, const char *item, struct err *e) {
    char path[4096];
    const char *eq = strchr(item, '=');
    struct load_params how;
    int rc = find_model(k->c, eq ? eq + 1 : item, path, sizeof path, e);
    chat_rig_how(k->c, k->n_seq, &how);
    how.path = path;
    how.loras = NULL;
    how.n_lora = 0;
    how.plan.engine.draft = NULL;
    if (!rc) rc = load_check(&how, NULL, e);
    if (rc) err_prefix(e, "--also");
    return rc;
}

/* Checks an encoder; reads only its header. */
static int check_encoder(struct check *k, const char *option, struct err *e) {
    const char *path = cfg_str(k->c, option);
    struct gguf *file;
    int rc = path ? gguf_open(&file, path, e) : 0;
    if (path && !rc) gguf_close(file);
    if (rc) err_prefix(e, "--%s", option);
    return rc;
}

static int check_kwargs(struct check *k, struct err *e) {
    const char *text = cfg_str(k->c, "chat-template-kwargs");
    json_t *o = text ? chat_json_object(text, strlen(text), "--chat-template-kwargs", e) : NULL;
    json_decref(o);
    return text && !o ? e->code : 0;
}

static int check_pipelines(struct check *k, struct err *e) {
    char beside[4096];
    const char *path = cfg_str(k->c, "pipelines");
    struct pipeline_dir *d;
    if (!cfg_bool(k->c, "odo")) return 0;
    if (!path && file_find_data("pipelines", beside, sizeof beside))
        return odo_args_are_given(k->c)
                   ? err_set(e, CHIMERE_ENOENT,
                             "pipelines: the folder is not installed with the program")
                   : 0; /* in this case the server serves the model alone */
    int rc = pipeline_dir_open(&d, path ? path : beside, false, NULL, e);
    if (rc) return rc;
    struct pipeline_set *set = pipeline_hold(d);
    if (pipeline_problem(set)[0])
        rc = err_set(e, CHIMERE_EINVAL, "pipelines: %s", pipeline_problem(set));
    pipeline_release(set);
    pipeline_dir_close(d);
    return rc;
}

/* Checks that the folder of states and the databases are writable and have a version that this program supports. */
static int check_state_dir(struct check *k, struct err *e) {
    char path[4096];
    const char *dir = cfg_str(k->c, "state-dir");
    if (!dir) return 0;
    if (!file_can_write(dir))
        return err_set(e, CHIMERE_EIO, "--state-dir: %.200s: this user may not write there", dir);
    if ((size_t)snprintf(path, sizeof path, "%s/chimere.db", dir) >= sizeof path)
        return err_set(e, CHIMERE_ELIMIT, "state-dir: the path is too long");
    return store_probe(path, e);
}

/* A folder that exists may be read-only: then states are only read. */
static int check_shared(struct check *k, struct err *e) {
    const char *dir = cfg_str(k->c, "shared-states");
    if (!dir || fs_is_folder(dir) || (!file_exists(dir) && file_can_write(dir))) return 0;
    return err_set(e, CHIMERE_EIO,
                   "--shared-states: %.200s: no such folder, and it cannot be created", dir);
}

static int check_db(struct check *k, struct err *e) {
    const char *path = cfg_bool(k->c, "odo") ? cfg_str(k->c, "db") : NULL;
    return path ? store_probe(path, e) : 0;
}

static int check_store(struct check *k, struct err *e) {
    const char *url = cfg_str(k->c, "store");
    if (!url || store_is_server(url)) return 0;
    if (!*url || strstr(url, "://"))
        return err_set(
            e, CHIMERE_EINVAL,
            "--store: expected postgres://USER:PASSWORD@HOST/NAME or a file, got '%.100s'", url);
    return store_probe(url, e);
}

static int check_traces(struct check *k, struct err *e) {
    if (!cfg_str(k->c, "otlp") || cfg_bool(k->c, "odo")) return 0;
    return err_set(e, CHIMERE_EINVAL,
                   "--otlp: traces are of the orchestrator, which --no-odo turns off");
}

static int check_nights(struct check *k, struct err *e) {
    double seconds;
    if (!cfg_bool(k->c, "night")) return 0;
    return engram_args_duration("night-budget", cfg_str(k->c, "night-budget"), &seconds, e);
}

static int check_folder(struct check *k, struct err *e) {
    const char *path = cfg_str(k->c, "files");
    if (!path || file_exists(path)) return 0;
    return err_set(e, CHIMERE_ENOENT, "--files: %.200s: no such folder", path);
}

static int check_secret(struct check *k, const char *option, struct err *e) {
    char *key;
    int rc = odo_args_key(k->c, option, &key, e);
    if (!rc && key && !*key) rc = err_set(e, CHIMERE_EINVAL, "--%s: the file is empty", option);
    odo_args_forget(key);
    return rc;
}

static int check_mcp(const char *item, struct err *e) {
    const char *eq = strchr(item, '=');
    return eq && eq > item && eq[1]
               ? 0
               : err_set(e, CHIMERE_EINVAL, "--mcp: expected NAME=COMMAND, got '%.80s'", item);
}

/* Each check begins with its own error, so that one problem does not hide another. */
static void check_rest(struct check *k) {
    static int (*const checks[])(struct check * k, struct err * e) = {
        check_model, check_kwargs, check_pipelines, check_state_dir, check_shared,
        check_db,    check_store,  check_traces,    check_nights,    check_folder};
    static const char *const secrets[] = {"embedding-key", "brave-key"};
    static const char *const encoders[] = {"embedding-model", "rerank-model", "prm", "night-judge",
                                           "draft"};
    static const char *const urls[] = {"otlp", "searxng", "embedding-url", "hf-endpoint"};
    char base[REMOTE_MAX_BASE];
    const char *const *items;
    struct err e;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        e = (struct err){0}, note(k, checks[i](k, &e), &e);
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        e = (struct err){0}, note(k, check_secret(k, secrets[i], &e), &e);
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++)
        e = (struct err){0}, note(k, check_encoder(k, encoders[i], &e), &e);
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        e = (struct err){0};
        if (cfg_str(k->c, urls[i])) note(k, remote_base(k->c, urls[i], base, &e), &e);
    }
    size_t n = cfg_list(k->c, "also", &items);
    for (size_t i = 0; i < n; i++) e = (struct err){0}, note(k, check_other(k, items[i], &e), &e);
    n = cfg_list(k->c, "mcp", &items);
    for (size_t i = 0; i < n; i++) e = (struct err){0}, note(k, check_mcp(items[i], &e), &e);
}

int serve_check_all(const struct cfg *c, const struct serve_params *p, int32_t n_seq) {
    struct check k = {.c = c, .p = p, .n_seq = n_seq};
    struct err e = {0};
    bool is_shared = !cfg_str(c, "gpus") || split_of(cfg_str(c, "split")) >= SPLIT_LAYER;
    note(&k, serve_check(p, &e), &e);
    check_rest(&k);
    if (!k.status)
        printf("the configuration is valid: %s, %d answers at once%s, context %lld, %.1f GiB of "
               "%.1f GiB\n",
               k.plan.name, k.plan.engine.n_seq, is_shared ? "" : " on the first card",
               (long long)k.plan.engine.n_ctx_seq, (double)k.plan.total_bytes / (1 << 30),
               (double)k.plan.budget_bytes / (1 << 30));
    return k.status;
}
