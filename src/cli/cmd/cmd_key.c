/* cmd_key.c: API keys in the folder in which serve stores its states. The secret is shown once and not stored. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "cli/cli.h"
#include "serve/http/auth.h"
#include "store/store.h"

/* clang-format off */
const struct cfg_opt key_options[] = {
    {"state-dir", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "the server's folder, as given to serve"},
    {"store", 0, CFG_STR, "URL", NULL, 0, 0, NULL, "or the database that servers share, as given to serve"},
    {"active", 0, CFG_INT, "N", "0", 0, 1 << 20, NULL, "concurrent requests; 0: no limit"},
    {"per-minute", 0, CFG_INT, "N", "0", 0, 1 << 30, NULL, "requests per minute; 0: no limit"},
    {"tokens-per-day", 0, CFG_INT, "N", "0", 0, 1e15, NULL, "tokens of prompts and answers per day (UTC); 0: no limit"},
    {"role", 0, CFG_ENUM, "ROLE", "user", 0, 0, "user|admin", "admin: may also manage models, keys, pipelines and nights, and read the metrics"},
    {"days", 0, CFG_INT, "N", "0", 0, 36500, NULL, "days until the key expires; 0: never"},
    {0}};
/* clang-format on */

enum { DAY_MS = 86400000 };

static void put_date(int64_t ms, char out[32]) {
    time_t t = (time_t)(ms / 1000);
    struct tm tm;
    snprintf(out, 32, "-");
    if (ms && gmtime_r(&t, &tm)) strftime(out, 32, "%Y-%m-%d", &tm);
}

struct listing {
    struct store_key *rows; /* [most] */
    size_t n, most;
};

static int collect(void *ud, const struct store_key *k) {
    struct listing *l = ud;
    if (l->n < l->most) l->rows[l->n++] = *k;
    return 0;
}

static int list(struct store *s, struct err *e) {
    static struct store_key rows[4096];
    struct listing l = {.rows = rows, .most = sizeof rows / sizeof *rows};
    int rc = store_key_list(s, collect, &l, e);
    int64_t now = store_now_ms();
    if (!rc)
        printf("%-24s %-9s %-6s %-20s %-10s %-10s %8s %10s %14s %14s\n", "NAME", "STATE", "ROLE",
               "IDENTITY", "SINCE", "EXPIRES", "ACTIVE", "PER-MINUTE", "TOKENS-PER-DAY",
               "USED-TODAY");
    for (size_t i = 0; i < l.n && !rc; i++) {
        const struct store_key *k = &l.rows[i];
        struct store_usage u;
        char since[32], until[32], identity[AUTH_IDENTITY_BYTES];
        auth_identity(k->hash, identity);
        put_date(k->created_ms, since);
        put_date(k->expires_ms, until);
        rc = store_usage_since(s, k->id, now / DAY_MS * DAY_MS, &u, e);
        const char *state = k->revoked                              ? "removed"
                            : k->expires_ms && k->expires_ms <= now ? "expired"
                                                                    : "valid";
        if (!rc)
            printf("%-24s %-9s %-6s %-20s %-10s %-10s %8d %10d %14lld %14lld\n", k->name, state,
                   k->is_admin ? "admin" : "user", identity, since, until, k->max_active,
                   k->per_minute, (long long)k->tokens_per_day,
                   (long long)(u.n_prompt + u.n_generated));
    }
    return rc;
}

static int find_name(void *ud, const struct store_key *k) {
    struct store_key *want = ud;
    if (k->revoked || strcmp(k->name, want->name) != 0) return 0;
    *want = *k;
    return 1;
}

/* Sets the limits that the command line names; others are not changed. */
static void take_limits(const struct cfg *c, struct store_key *k) {
    if (cfg_origin(c, "active") != CFG_DEFAULT) k->max_active = (int32_t)cfg_int(c, "active");
    if (cfg_origin(c, "per-minute") != CFG_DEFAULT)
        k->per_minute = (int32_t)cfg_int(c, "per-minute");
    if (cfg_origin(c, "tokens-per-day") != CFG_DEFAULT)
        k->tokens_per_day = cfg_int(c, "tokens-per-day");
    if (cfg_origin(c, "role") != CFG_DEFAULT) k->is_admin = !strcmp(cfg_str(c, "role"), "admin");
    int64_t days = cfg_int(c, "days");
    if (cfg_origin(c, "days") != CFG_DEFAULT)
        k->expires_ms = days ? store_now_ms() + days * DAY_MS : 0;
}

static int add(struct store *s, struct store_key *k, struct err *e) {
    char secret[AUTH_SECRET_BYTES];
    auth_secret(secret);
    auth_hash(secret, k->hash);
    int rc = store_key_add(s, k, e);
    if (!rc) {
        puts(secret);
        fprintf(stderr, "This is the key of '%s': it is shown once, only its hash is kept.\n",
                k->name);
    }
    memset(secret, 0, sizeof secret);
    return rc;
}

static int limit(struct store *s, const struct cfg *c, struct store_key *k, struct err *e) {
    int rc = store_key_list(s, find_name, k, e);
    if (rc < 0) return rc;
    if (!rc) return err_set(e, CHIMERE_ENOENT, "key %s: not found", k->name);
    take_limits(c, k);
    return store_key_limit(s, k, e);
}

static int on_key(const struct cfg *c, struct store *s, const char *verb, struct err *e) {
    struct store_key k = {.id = 0};
    const char *name = cfg_pos(c, 1);
    if (!name || cfg_pos(c, 2) || strlen(name) > STORE_MAX_NAME || name[strcspn(name, " \t\r\n")])
        return err_set(e, CHIMERE_EINVAL, "%s: expected one name of 1 to %d bytes without blanks",
                       verb, STORE_MAX_NAME);
    snprintf(k.name, sizeof k.name, "%s", name);
    if (strcmp(verb, "remove") == 0) return store_key_revoke(s, k.name, e);
    if (strcmp(verb, "limit") == 0) return limit(s, c, &k, e);
    take_limits(c, &k);
    return add(s, &k, e);
}

static int run(const struct cfg *c, struct err *e) {
    const char *verb = cfg_pos(c, 0), *dir = cfg_str(c, "state-dir");
    char path[4096];
    struct store *s;
    bool is_list = verb && strcmp(verb, "list") == 0;
    if (!verb || (!is_list && strcmp(verb, "add") != 0 && strcmp(verb, "limit") != 0 &&
                  strcmp(verb, "remove") != 0))
        return err_set(e, CHIMERE_EINVAL, "expected add, list, limit or remove");
    const char *shared = cfg_str(c, "store");
    if (!shared &&
        (!dir || (size_t)snprintf(path, sizeof path, "%s/chimere.db", dir) >= sizeof path))
        return err_set(e, CHIMERE_EINVAL, "state-dir: expected the server's folder");
    if (shared && (size_t)snprintf(path, sizeof path, "%s", shared) >= sizeof path)
        return err_set(e, CHIMERE_ELIMIT, "store: the address is too long");
    int rc = shared ? 0 : file_mkdirs(dir, e);
    if (!rc) rc = store_open(&s, path, e);
    if (rc) return rc;
    rc = is_list ? list(s, e) : on_key(c, s, verb, e);
    store_close(s);
    return rc;
}

int cmd_key(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(
            &c, key_options,
            "usage: chimere key add NAME --state-dir DIR [LIMITS]\n"
            "       chimere key limit NAME --state-dir DIR [LIMITS]\n"
            "       chimere key remove NAME --state-dir DIR\n"
            "       chimere key list --state-dir DIR\n\n"
            "The keys of the server that runs with that --state-dir. add prints the new "
            "key, once;\n"
            "only its SHA-256 is stored. As soon as there is a key, the server requires one.\n"
            "Changes take effect within a second, also on a running server.",
            argc, argv, &status))
        return status;
    struct err e = {0};
    int rc = run(c, &e);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
