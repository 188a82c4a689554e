#include "cli/args/hub_args.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "net/pull.h"

/* clang-format off */
const struct cfg_opt hub_options[] = {
    {"models-dir", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "folder of fetched models (default: models in the user's data directory)"},
    {"hf-endpoint", 0, CFG_STR, "URL", PULL_ENDPOINT, 0, 0, NULL, "hub of -m hf:OWNER/REPO[:TYPE]"},
    {"hf-token", 0, CFG_STR, "TOKEN", NULL, 0, 0, NULL, "token for private models; prefer the variable CHIMERE_HF_TOKEN"},
    {0}};
/* clang-format on */

static volatile sig_atomic_t interrupted;
static void on_interrupt(int sig) {
    (void)sig;
    interrupted = 1;
}
static bool is_cancelled(void *ud) {
    (void)ud;
    return interrupted != 0;
}

struct bar {
    const char *name;
    uint64_t size;
    bool running, checking;
};

static void on_file(void *ud, const struct hub_file *f, size_t i, size_t n, bool is_there) {
    struct bar *b = ud;
    char size[16];
    if (b->running) progress_end();
    str_bytes(size, f->size);
    fprintf(stderr, "%s (%zu of %zu): %s%s\n", f->path, i + 1, n, size,
            is_there ? ", there already" : "");
    *b = (struct bar){.name = f->path, .size = f->size, .running = !is_there};
    if (b->running) progress_begin("fetching", f->size, true);
}
static void on_bytes(void *ud, uint64_t n) {
    (void)ud;
    progress_step(n);
}
static void on_check(void *ud, uint64_t n) {
    struct bar *b = ud;
    if (!b->checking) {
        progress_end();
        progress_begin("checking", b->size, true);
        b->checking = true;
    }
    progress_step(n);
}

/* get: pull_model or pull_checkpoint. */
static int fetch(const struct pull *p, const struct hub_ref *r,
                 int (*get)(const struct pull *p, const struct hub_ref *r, char *out, size_t size,
                            struct err *e),
                 char *out, size_t out_size, struct err *e) {
    struct bar b = {0};
    struct pull q = *p;
    q.on_file = on_file;
    q.on_bytes = on_bytes;
    q.on_check = on_check;
    q.is_cancelled = is_cancelled;
    q.ud = &b;
    /* so that an interrupted download records its progress */
    struct sigaction act = {.sa_handler = on_interrupt}, old;
    sigset_t set, before; /* a server blocks the signal later, to wait for it */
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    interrupted = 0;
    sigaction(SIGINT, &act, &old);
    pthread_sigmask(SIG_UNBLOCK, &set, &before);
    int rc = get(&q, r, out, out_size, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGINT, &old, NULL);
    if (b.running && rc) fputc('\n', stderr);
    else if (b.running) progress_end();
    if (rc == CHIMERE_ECANCELLED) err_hint(e, "run the same command again to resume");
    return rc;
}

/* Returns the value of an option. If it was not given, the environment variable that the hub's own client reads takes
 * precedence over the default. */
static const char *option_or(const struct cfg *c, const char *option, const char *variable) {
    const char *v = cfg_origin(c, option) == CFG_DEFAULT ? cfg_env(variable) : NULL;
    return v ? v : cfg_str(c, option);
}

/* Writes the path $VARIABLE, or NAME in $HF_HOME, or NAME in the client's folder of the user's cache. */
static bool client_path(const char *variable, const char *name, char *out, size_t size) {
    const char *own = cfg_env(variable), *hf = cfg_env("HF_HOME"), *xdg = cfg_env("XDG_CACHE_HOME"),
               *home = cfg_env("HOME");
    int n = own    ? snprintf(out, size, "%s", own)
            : hf   ? snprintf(out, size, "%s/%s", hf, name)
            : xdg  ? snprintf(out, size, "%s/huggingface/%s", xdg, name)
            : home ? snprintf(out, size, "%s/.cache/huggingface/%s", home, name)
                   : -1;
    return n > 0 && (size_t)n < size;
}

/* Reads the token that the client stored at login; owned, or NULL. */
static char *kept_token(void) {
    char path[4096], *text;
    size_t n;
    if (!client_path("HF_TOKEN_PATH", "token", path, sizeof path) ||
        file_read(path, 4096, &text, &n, NULL))
        return NULL;
    text[strcspn(text, " \t\r\n")] = 0;
    return text;
}

int hub_args_dir(const struct cfg *c, char dir[4096], struct err *e) {
    const char *own = cfg_str(c, "models-dir");
    if (!own) return file_user_data("models", dir, 4096, e);
    return snprintf(dir, 4096, "%s", own) < 4096
               ? 0
               : err_set(e, CHIMERE_ELIMIT, "--models-dir: path is too long");
}

/* Fetches with the hub and the token of the options. */
static int fetch_from(const struct cfg *c, const struct hub_ref *r, const char *dir, int parts,
                      bool checkpoint, char *out, size_t out_size, struct err *e) {
    const char *endpoint = option_or(c, "hf-endpoint", "HF_ENDPOINT"),
               *token = option_or(c, "hf-token", "HF_TOKEN");
    char *kept = token ? NULL : kept_token();
    const struct pull p = {
        .dir = dir, .endpoint = endpoint, .token = kept ? kept : token, .n_part = parts};
    int rc = fetch(&p, r, checkpoint ? pull_checkpoint : pull_model, out, out_size, e);
    if (kept) memset(kept, 0, strlen(kept));
    mem_free(kept);
    return rc;
}

/* Parses the name and finds the folder of models. *found: whether the file exists; then out is its path. */
static int look_up(const struct cfg *c, const char *name, struct hub_ref *r, char dir[4096],
                   int *found, char *out, size_t out_size, struct err *e) {
    int rc = hub_parse(r, name, e);
    if (!rc) rc = hub_args_dir(c, dir, e);
    if (rc) return rc;
    *found = pull_local(dir, r, out, out_size, e);
    char hub[4096];
    if (*found && client_path("HF_HUB_CACHE", "hub", hub, sizeof hub) &&
        !pull_cached(hub, r, out, out_size, NULL))
        *found = 0;
    return 0;
}

int hub_args_local(const struct cfg *c, const char *name, char *out, size_t out_size,
                   struct err *e) {
    char dir[4096];
    struct hub_ref r;
    int found = 0, rc = look_up(c, name, &r, dir, &found, out, out_size, e);
    return rc ? rc : found;
}

int hub_args_path(const struct cfg *c, const char *name, bool update, int parts, char *out,
                  size_t out_size, struct err *e) {
    char dir[4096];
    struct hub_ref r;
    int found = 0, rc = look_up(c, name, &r, dir, &found, out, out_size, e);
    if (rc) return rc;
    if (!found && !update) return 0;
    const char *offline = cfg_env("HF_HUB_OFFLINE");
    if (offline && strcmp(offline, "0") != 0)
        return found ? err_set(e, CHIMERE_ENOENT,
                               "%s/%s: not on this machine, and HF_HUB_OFFLINE is set", r.owner,
                               r.repo)
                     : 0;
    char fetched[4096];
    rc = fetch_from(c, &r, dir, parts, false, fetched, sizeof fetched, e);
    if ((rc == CHIMERE_EIO || rc == CHIMERE_ETIMEOUT) && !found) {
        fprintf(stderr, "chimere: %s; using the local copy\n", e->text);
        return 0;
    }
    if (!rc && (size_t)snprintf(out, out_size, "%s", fetched) >= out_size)
        rc = err_set(e, CHIMERE_ELIMIT, "--models-dir: path is too long");
    return rc;
}

int hub_args_checkpoint(const struct cfg *c, const char *name, char *out, size_t out_size,
                        struct err *e) {
    char dir[4096];
    struct hub_ref r;
    int rc = hub_parse(&r, name, e);
    if (!rc) rc = hub_args_dir(c, dir, e);
    return rc ? rc : fetch_from(c, &r, dir, 0, true, out, out_size, e);
}
