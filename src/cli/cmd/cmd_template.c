/* cmd_template.c: renders a chat template with a JSON context; writes only the result to standard output. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cli.h"
#include "text/chat/chat.h"

#define MAX_CONTEXT_BYTES (256u << 20)

const struct cfg_opt template_options[] = {
    {"template", 't', CFG_STR, "FILE", NULL, 0, 0, NULL,
     "chat template (Jinja); - reads standard input"},
    {"json", 'j', CFG_STR, "FILE", NULL, 0, 0, NULL,
     "context: an object with messages, tools, add_generation_prompt, bos_token, ..."},
    {"now", 0, CFG_STR, "TIME", NULL, 0, 0, NULL,
     "fixed clock for strftime_now, as 2026-03-14T09:26:53"},
    {0},
};

static int parse_now(const char *s, struct tm *now, struct err *e) {
    memset(now, 0, sizeof *now);
    const char *end = strptime(s, "%Y-%m-%dT%H:%M:%S", now);
    if (!end || *end)
        return err_set(e, CHIMERE_EINVAL, "--now: expected YYYY-MM-DDTHH:MM:SS, got '%s'", s);
    struct tm copy = *now;
    time_t t = timegm(&copy); /* sets the day of the week and of the year */
    gmtime_r(&t, now);
    return 0;
}

static int render(struct cfg *c, struct err *e) {
    const char *path = cfg_str(c, "template"), *json_path = cfg_str(c, "json"),
               *now_text = cfg_str(c, "now");
    char *text = NULL, *json_text = NULL;
    size_t n = 0, n_json = 0;
    struct tm now;
    struct jinja *j = NULL;
    struct jinja_output out = {0};
    json_t *context = NULL;
    if (!path || !json_path)
        return err_set(e, CHIMERE_EINVAL, "template: --template and --json are needed");
    int rc = now_text ? parse_now(now_text, &now, e) : 0;
    if (!rc) rc = file_read(path, JINJA_MAX_TEMPLATE_BYTES, &text, &n, e);
    if (!rc) rc = file_read(json_path, MAX_CONTEXT_BYTES, &json_text, &n_json, e);
    if (!rc) rc = jinja_compile(&j, text, n, e);
    if (!rc && !(context = chat_json_object(json_text, n_json, json_path, e))) rc = e->code;
    struct jinja_env env = {.now = now_text ? &now : NULL};
    if (!rc) rc = jinja_render(j, context, &env, &out, e);
    if (!rc && fwrite(out.text.p, 1, out.text.n, stdout) != out.text.n)
        rc = err_set(e, CHIMERE_EIO, "standard output: write failed");
    jinja_output_fini(&out);
    json_decref(context);
    jinja_free(j);
    mem_free(text);
    mem_free(json_text);
    return rc;
}

int cmd_template(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, template_options,
                   "usage: chimere template --template FILE --json FILE [--now TIME]", argc, argv,
                   &status))
        return status;
    struct err e = {0};
    status = render(c, &e) ? cli_fail(&e) : 0;
    cfg_free(c);
    return status;
}
