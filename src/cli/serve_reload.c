#include "cli/serve_reload.h"

#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/manual.h"
#include "cli/serve_keys.h"

extern const struct cfg_opt serve_options[];

/* Options that take effect without a restart. */
static const char *const live[] = {"api-key", "timeout",   "ping",    "grace",
                                   "think",   "log-level", "verbose", "log-json"};

static bool is_live(const char *name) {
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        if (strcmp(name, live[i]) == 0) return true;
    return false;
}

/* Options that the user did not give were chosen at the start: the model that answers, the orchestrator's
 * database. */
static int keep_chosen(const struct serve_reload *r, struct cfg *now, struct err *e) {
    static const char *const names[] = {"model", "db"};
    int rc = 0;
    for (size_t i = 0; i < 2 && !rc; i++)
        if (!cfg_str(now, names[i]) && cfg_str(r->c, names[i]))
            rc = cfg_set(now, names[i], cfg_str(r->c, names[i]), e);
    return rc;
}

static bool is_same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_same(const struct cfg *a, const struct cfg *b, const struct cfg_opt *o) {
    const char *const *x, *const *y;
    /* compared by value, because cfg_text hides secrets */
    if (o->type == CFG_STR || o->type == CFG_ENUM)
        return is_same_text(cfg_str(a, o->name), cfg_str(b, o->name));
    if (o->type != CFG_LIST) return is_same_text(cfg_text(a, o->name), cfg_text(b, o->name));
    size_t n = cfg_list(a, o->name, &x);
    bool same = n == cfg_list(b, o->name, &y);
    for (size_t i = 0; same && i < n; i++) same = is_same_text(x[i], y[i]);
    return same;
}

static void name_others(const struct serve_reload *r, const struct cfg *now) {
    const struct cfg_opt *tables[CLI_MAX_TABLES];
    struct buf names;
    buf_init(&names, 1 << 16);
    cli_tables(serve_options, tables);
    for (int t = 0; tables[t]; t++)
        for (const struct cfg_opt *o = tables[t]; o->name; o++)
            if (!is_live(o->name) && !is_same(r->c, now, o))
                buf_printf(&names, "%s%s", names.n ? ", " : "", o->name);
    if (names.n) log_warn("SIGHUP: changed, but needs a restart: %s", names.p);
    buf_fini(&names);
}

void serve_reload_options(const struct serve_reload *r, struct server *s,
                          const struct serve_params *started) {
    struct cfg *now;
    struct err e = {0};
    char *keys = NULL;
    int status;
    if (!cli_parse(&now, serve_options, r->usage, r->argc, r->argv, &status)) {
        log_error("SIGHUP: the options are refused; those from before stay in force");
        return;
    }
    int rc = keep_chosen(r, now, &e);
    if (!rc) rc = serve_keys_read(now, &keys, &e);
    struct serve_params p = *started;
    p.keys = keys;
    p.timeout_s = (int)cfg_int(now, "timeout");
    p.ping_s = (int)cfg_int(now, "ping");
    p.grace_s = (int)cfg_int(now, "grace");
    p.think = r->always_thinks || cfg_bool(now, "think");
    if (!rc) rc = serve_reload(s, &p, &e);
    if (rc) {
        log_error("SIGHUP: %s; keys and options from before stay in force", e.text);
    } else {
        log_info("SIGHUP: keys and options are read again");
        name_others(r, now);
    }
    serve_keys_forget(keys);
    cfg_free(now);
}
