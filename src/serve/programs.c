#include "serve/programs.h"

#include <string.h>

#include "base/clock.h"
#include "odo/odo.h"
#include "serve/api/api.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"
#include "tools/tool_files.h"

/* Two at a time: a program occupies a worker while it runs. */
enum { MOST_AT_ONCE = 2, MAX_CODE = 256 << 10, MAX_OUTPUT = 2 << 20, WAIT_S = 30 };

static int run(struct http_request *r, const json_t *q, struct buf *text, struct err *e) {
    struct odo *odo = r->s->p.odo;
    const json_t *code = json_object_get(q, "code"), *language = json_object_get(q, "language");
    if (!json_is_string(code) || json_string_length(code) > MAX_CODE)
        return err_set(e, CHIMERE_EINVAL, "code: expected a program of at most %d bytes", MAX_CODE);
    if (!json_is_string(language))
        return err_set(e, CHIMERE_EINVAL, "language: expected python, shell or javascript");
    if (json_object_size(q) != 2)
        return err_set(e, CHIMERE_EINVAL, "expected language and code, and no other field");
    if (!odo || !tool_find(odo_tools(odo), "run_code"))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "this server runs no programs; start it with the orchestrator and "
                       "without --no-run-code");
    if (++r->s->n_program > MOST_AT_ONCE) {
        r->s->n_program--;
        return err_set(e, CHIMERE_EBUSY, "%d programs are running; try again in a moment",
                       MOST_AT_ONCE);
    }
    struct tool_env env = {.deadline_ns = clock_ns() + WAIT_S * INT64_C(1000000000),
                           .owner = http_owner(r)};
    int rc = tool_code_run(json_string_value(language), code, MAX_OUTPUT, &env, text, e);
    r->s->n_program--;
    return rc;
}

void programs_run(struct http_request *r) {
    struct err e = {0};
    struct buf text, out;
    json_t *q = api_json(r);
    if (!q) return;
    buf_init(&text, MAX_OUTPUT + (64 << 10));
    buf_init(&out, (size_t)8 * MAX_OUTPUT);
    int rc = run(r, q, &text, &e);
    buf_puts(&out, "{\"object\":\"program.output\",\"output\":");
    if (!rc) json_out_text(&out, text.p, text.n);
    buf_putc(&out, '}');
    if (rc) http_fail(r, &e);
    else http_reply(r, 200, NULL, &out);
    buf_fini(&out);
    buf_fini(&text);
    json_decref(q);
}
