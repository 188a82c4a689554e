/* tool_code.c: run_code: runs a program that the model wrote in the sandbox. */
#include <string.h>
#include <unistd.h>

#include "tools/sandbox.h"
#include "tools/tool_files.h"

static const struct language {
    const char *name;
    const char *argv[4];
} languages[] = {
    {"python", {"/usr/bin/python3", "-I", "-", NULL}},
    {"shell", {"/bin/sh", "-s", NULL}},
    {"javascript", {"/usr/bin/node", "-", NULL}},
};

int tool_code_run(const char *language, const json_t *code, size_t most, struct tool_env *env,
                  struct buf *out, struct err *e) {
    const struct language *l = NULL;
    for (size_t i = 0; i < sizeof languages / sizeof *languages; ++i)
        if (!language || !strcmp(languages[i].name, language)) {
            l = &languages[i];
            break;
        }
    if (!l) return err_set(e, CHIMERE_EINVAL, "language: expected python, shell or javascript");
    if (access(l->argv[0], X_OK))
        return err_set(e, CHIMERE_ENOENT, "%s is not installed here", l->argv[0]);
    struct sandbox_job job = {.argv = l->argv,
                              .input = json_string_value(code),
                              .n_input = json_string_length(code),
                              .cancelled = env->cancelled,
                              .deadline_ns = env->deadline_ns,
                              .owner = env->owner,
                              .output = tool_progress,
                              .ud = env};
    struct sandbox_result r;
    struct buf raw;
    sandbox_defaults(&job.limits);
    if (most) job.limits.output_bytes = most;
    buf_init(&raw, job.limits.output_bytes + TOOL_MAX_OUTPUT);
    int rc = sandbox_run(&job, &raw, &r, e);
    if (!rc) sandbox_text(out, &raw, &job, &r);
    env->failed = !rc && !sandbox_succeeded(&r);
    env->status = rc ? 0 : r.status;
    buf_fini(&raw);
    return rc;
}

static int run_code(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                    struct err *e) {
    (void)ud;
    return tool_code_run(json_string_value(json_object_get(args, "language")),
                         json_object_get(args, "code"), 0, env, out, e);
}

int tool_code_add(struct tool_set *tools, struct err *e) {
    struct tool t = {
        .name = "run_code",
        .flags = TOOL_EFFECT | TOOL_CONFINED,
        .deadline_ms = 45000, /* the call may have to wait for a sandbox */
        .spec =
            tool_spec("run_code", "Run a program, without network and files, and see its output.",
                      "{\"type\":\"object\",\"properties\":{\"language\":{\"type\":\"string\","
                      "\"enum\":[\"python\",\"shell\",\"javascript\"]},\"code\":{\"type\":"
                      "\"string\"}},\"required\":[\"code\"]}"),
        .run = run_code};
    return tool_add(tools, &t, e);
}
