#include "cli/args/remote_args.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "net/fetch.h"

static int first_model(struct remote *r, struct err *e) {
    char url[2100];
    snprintf(url, sizeof url, "%s/models", r->base);
    const struct fetch_request q = {.url = url, .bearer = r->key, .total_ms = 30000};
    struct fetch_reply reply;
    int rc = fetch_ok(&q, &reply, e);
    json_t *o = rc ? NULL : json_loadb(reply.body.n ? reply.body.p : "", reply.body.n, 0, NULL);
    const char *id =
        json_string_value(json_object_get(json_array_get(json_object_get(o, "data"), 0), "id"));
    if (!rc && (!id || strlen(id) >= sizeof r->model)) {
        rc = err_set(e, CHIMERE_EFORMAT, "%s: expected a list of models", url);
        err_hint(e, "name one with --url-model");
    }
    if (!rc) snprintf(r->model, sizeof r->model, "%s", id);
    json_decref(o);
    fetch_reply_fini(&reply);
    return rc;
}

int remote_base(const struct cfg *c, const char *option, char out[REMOTE_MAX_BASE], struct err *e) {
    const char *url = cfg_str(c, option);
    if (!str_starts(url, "http://") && !str_starts(url, "https://"))
        return err_set(e, CHIMERE_EINVAL, "--%s: expected http:// or https://, got '%.100s'",
                       option, url);
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') n--;
    bool has_v1 = n > 3 && !strncmp(url + n - 3, "/v1", 3);
    int len = snprintf(out, REMOTE_MAX_BASE, "%.*s%s", (int)n, url, has_v1 ? "" : "/v1");
    if (len < 0 || len >= REMOTE_MAX_BASE)
        return err_set(e, CHIMERE_ELIMIT, "--%s: too long", option);
    return 0;
}

int remote_open(struct remote *r, const struct cfg *c, struct err *e) {
    const char *model = cfg_str(c, "url-model");
    *r = (struct remote){.key = cfg_str(c, "url-key")};
    int rc = remote_base(c, "url", r->base, e);
    if (rc) return rc;
    if (!model) return first_model(r, e);
    snprintf(r->model, sizeof r->model, "%s", model);
    return 0;
}

char *remote_body(const json_t *body, size_t *n) {
    *n = json_dumpb(body, NULL, 0, JSON_COMPACT);
    char *text = *n ? mem_alloc(*n + 1) : NULL;
    if (text) text[json_dumpb(body, text, *n, JSON_COMPACT)] = 0;
    return text;
}
