/* cmd_drain.c: takes a server out of service: the server refuses new work, and the command waits until it has no
 * work left. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/str.h"
#include "cli/cli.h"
#include "net/fetch.h"

/* clang-format off */
const struct cfg_opt drain_options[] = {
    {"url", 0, CFG_STR, "URL", "http://127.0.0.1:8081", 0, 0, NULL, "the running server"},
    {"url-key", 0, CFG_STR, "KEY", NULL, 0, 0, NULL, "an administrator's API key; prefer the variable CHIMERE_URL_KEY"},
    {"api-key", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "the server's own file of keys: its first key with the word admin is used"},
    {"wait", 0, CFG_INT, "SECONDS", "600", 0, 86400, NULL, "time to wait for running answers; 0: do not wait"},
    {"undo", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "accept requests again"},
    {0}};
/* clang-format on */

/* Returns the key of the first line "KEY ... admin ..." of the text, which is modified; NULL: none. */
static char *admin_key(char *text) {
    char *lines = NULL;
    for (char *line = strtok_r(text, "\n", &lines); line; line = strtok_r(NULL, "\n", &lines)) {
        char *words = NULL;
        line[strcspn(line, "#")] = 0;
        char *key = strtok_r(line, " \t\r", &words), *word;
        while (key && (word = strtok_r(NULL, " \t\r", &words)))
            if (strcmp(word, "admin") == 0) return key;
    }
    return NULL;
}

/* Returns whether the address names this machine by "localhost" or a number. */
static bool is_local(const char *url) {
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
    const char *host = strstr(url, "://") + 3;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_starts(host, names[i]) && strchr(":/", host[strlen(names[i])])) return true;
    return false;
}

/* Sends one request; *status is the HTTP status. */
static int ask(const char *url, const char *key, bool undo, int32_t *status, struct err *e) {
    static const char *const headers[] = {"Connection: close", NULL};
    const struct fetch_request q = {.url = url,
                                    .method = undo ? "DELETE" : "POST",
                                    .body = "",
                                    .headers = headers,
                                    .bearer = key,
                                    .total_ms = 10000,
                                    .local_only = is_local(url),
                                    .max_redirects = -1};
    struct fetch_reply reply;
    int rc = fetch(&q, &reply, e);
    *status = reply.status;
    fetch_reply_fini(&reply);
    if (rc && !e->hint[0]) err_hint(e, "--url names the server");
    if (rc) return rc;
    if (*status == 200 || *status == 202 || (undo && *status == 503)) return 0;
    err_set(e, CHIMERE_EREFUSED, "%s: expected status 200 or 202, got %d", url, (int)*status);
    if (*status == 401 || *status == 403)
        err_hint(e, "an administrator's key is needed: --url-key, or --api-key FILE");
    return e->code;
}

static int drain(const struct cfg *c, const char *key, struct err *e) {
    char url[2100];
    const char *base = cfg_str(c, "url");
    size_t n = strlen(base);
    while (n && base[n - 1] == '/') n--;
    if (!str_starts(base, "http://") && !str_starts(base, "https://"))
        return err_set(e, CHIMERE_EINVAL, "--url: expected http:// or https://, got '%.100s'",
                       base);
    if ((size_t)snprintf(url, sizeof url, "%.*s/drain", (int)n, base) >= sizeof url)
        return err_set(e, CHIMERE_ELIMIT, "--url: too long");
    bool undo = cfg_bool(c, "undo");
    int64_t start = clock_ns(), wait_ms = cfg_int(c, "wait") * 1000;
    int32_t status = 0;
    for (;;) {
        int rc = ask(url, key, undo, &status, e);
        if (rc || undo || status == 200 || !wait_ms) return rc;
        if (clock_ms_since(start) >= (double)wait_ms)
            return err_set(e, CHIMERE_ETIMEOUT, "the server still has work after %lld s",
                           (long long)wait_ms / 1000);
        os_sleep_ms(200);
    }
}

int cmd_drain(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, drain_options,
                   "usage: chimere drain [--url URL] [--api-key FILE] [--wait SECONDS] [--undo]",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    const char *path = cfg_str(c, "api-key"), *key = cfg_str(c, "url-key");
    char *text = NULL;
    size_t n = 0;
    int rc = path && !key ? file_read(path, 1 << 20, &text, &n, &e) : 0;
    if (text) key = admin_key(text);
    if (!rc && text && !key)
        rc = err_set(&e, CHIMERE_ENOENT, "%s: no key has the word admin", path);
    if (!rc) rc = drain(c, key, &e);
    if (text) memset(text, 0, n);
    mem_free(text);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
