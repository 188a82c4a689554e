#include "cli/hub_args.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "net/pull.h"

/* clang-format off */
const struct cfg_opt hub_options[] = {
    {"models-dir", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "where fetched models lie (default: models in the user's data directory)"},
    {"hf-endpoint", 0, CFG_STR, "URL", PULL_ENDPOINT, 0, 0, NULL, "hub that -m hf:OWNER/REPO[:TYPE] means"},
    {"hf-token", 0, CFG_STR, "TOKEN", NULL, 0, 0, NULL, "for private models; rather set CHIMERE_HF_TOKEN"},
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

static int fetch_model(const struct pull *p, const struct hub_ref *r, char *out, size_t out_size,
                       struct err *e) {
    struct bar b = {0};
    struct pull q = *p;
    q.on_file = on_file;
    q.on_bytes = on_bytes;
    q.on_check = on_check;
    q.is_cancelled = is_cancelled;
    q.ud = &b;
    /* so that an interrupted download notes how far it came */
    struct sigaction act = {.sa_handler = on_interrupt}, old;
    sigset_t set, before; /* a server blocks it, to wait for it later */
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    interrupted = 0;
    sigaction(SIGINT, &act, &old);
    pthread_sigmask(SIG_UNBLOCK, &set, &before);
    int rc = pull_model(&q, r, out, out_size, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGINT, &old, NULL);
    if (b.running && rc) fputc('\n', stderr);
    else if (b.running) progress_end();
    if (rc == CHIMERE_ECANCELLED) err_hint(e, "the same command goes on from here");
    return rc;
}

int hub_args_path(const struct cfg *c, const char *name, bool update, int parts, char *out,
                  size_t out_size, struct err *e) {
    char dir[4096];
    struct hub_ref r;
    const char *own = cfg_str(c, "models-dir");
    int rc = hub_parse(&r, name, e);
    if (!rc && own)
        rc = snprintf(dir, sizeof dir, "%s", own) < (int)sizeof dir ? 0 : CHIMERE_ELIMIT;
    else if (!rc) rc = file_user_data("models", dir, sizeof dir, e);
    if (rc) return rc;
    int found = pull_local(dir, &r, out, out_size, e);
    if (!found && !update) return 0;
    const struct pull p = {.dir = dir,
                           .endpoint = cfg_str(c, "hf-endpoint"),
                           .token = cfg_str(c, "hf-token"),
                           .n_part = parts};
    char fetched[4096];
    rc = fetch_model(&p, &r, fetched, sizeof fetched, e);
    if ((rc == CHIMERE_EIO || rc == CHIMERE_ETIMEOUT) && !found) {
        fprintf(stderr, "chimere: %s; taking the copy that is here\n", e->text);
        return 0;
    }
    if (!rc && (size_t)snprintf(out, out_size, "%s", fetched) >= out_size)
        rc = err_set(e, CHIMERE_ELIMIT, "--models-dir: path is too long");
    return rc;
}
