#include "tools/mcp_serve.h"

#include <string.h>

#include "base/mem.h"
#include "tools/mcp.h"
#include "tools/tool.h"
#include "text/chat/chat.h"

static const char *const protocols[] = {"2025-06-18", "2025-03-26", "2024-11-05"};

static json_t *initialize(const json_t *params) {
    const char *asked = json_string_value(json_object_get(params, "protocolVersion"));
    const char *used = protocols[0];
    for (size_t i = 0; asked && i < sizeof protocols / sizeof *protocols; ++i)
        if (!strcmp(protocols[i], asked)) used = protocols[i];
    return json_pack("{s:s, s:{s:{}}, s:{s:s, s:s}}", "protocolVersion", used, "capabilities",
                     "tools", "serverInfo", "name", "chimere", "version", "0.1.0");
}

static json_t *list(const struct tool_set *tools) {
    json_t *all = json_array();
    const struct tool *t;
    for (size_t i = 0; (t = tool_at(tools, i)); ++i) {
        json_t *f = json_object_get(t->spec, "function");
        json_array_append_new(all,
                              json_pack("{s:s, s:O, s:O, s:{s:b, s:b}}", "name", t->name,
                                        "description", json_object_get(f, "description"),
                                        "inputSchema", json_object_get(f, "parameters"),
                                        "annotations", "readOnlyHint", !(t->flags & TOOL_EFFECT),
                                        "openWorldHint", (t->flags & TOOL_SENDS) != 0));
    }
    return json_pack("{s:o}", "tools", all);
}

static json_t *call(struct tool_set *tools, const json_t *params, const struct tool_env *caller,
                    struct err *e) {
    const char *name = json_string_value(json_object_get(params, "name"));
    const struct tool *t = name ? tool_find(tools, name) : NULL;
    if (!t) {
        err_set(e, CHIMERE_EINVAL, "unknown tool: %.64s", name ? name : "");
        return NULL;
    }
    const json_t *given = json_object_get(params, "arguments");
    char *args = given ? json_dumps(given, JSON_COMPACT) : mem_strdup("{}");
    struct tool_env env = *caller;
    struct buf text;
    buf_init(&text, (size_t)2 * TOOL_MAX_OUTPUT);
    int rc = args ? tool_run(t, args, &env, &text) : CHIMERE_ENOMEM;
    mem_free(args);
    json_t *result = json_pack("{s:[{s:s, s:s#}], s:b}", "content", "type", "text", "text",
                               text.n ? text.p : "", (int)text.n, "isError", rc || env.failed);
    buf_fini(&text);
    return result;
}

bool mcp_is_protocol(const char *version) {
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; ++i)
        if (!strcmp(protocols[i], version)) return true;
    return false;
}

json_t *mcp_unreadable(void) {
    return json_pack("{s:s, s:n, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", "error", "code", -32700,
                     "message", "not a JSON object");
}

json_t *mcp_answer(struct tool_set *tools, const json_t *m, const struct tool_env *env) {
    const char *method = json_string_value(json_object_get(m, "method"));
    json_t *id = json_object_get(m, "id"), *result = NULL;
    const json_t *params = json_object_get(m, "params");
    struct err e = {0};
    int code = -32601;
    if (!id || !method) return NULL;
    if (!strcmp(method, "initialize")) result = initialize(params);
    else if (!strcmp(method, "ping")) result = json_object();
    else if (!strcmp(method, "tools/list")) result = list(tools);
    else if (!strcmp(method, "tools/call")) {
        result = call(tools, params, env, &e);
        code = -32602;
    } else {
        err_set(&e, CHIMERE_EUNSUPPORTED, "unknown method: %.64s", method);
    }
    if (result) return json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result);
    return json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id, "error", "code", code,
                     "message", e.text[0] ? e.text : "out of memory");
}

static void put(FILE *out, json_t *o) {
    if (!o) return;
    json_dumpf(o, out, JSON_COMPACT);
    fputc('\n', out);
    fflush(out);
    json_decref(o);
}

int mcp_serve(struct tool_set *tools, FILE *in, FILE *out, struct err *e) {
    struct buf line;
    const struct tool_env env = {0};
    buf_init(&line, MCP_MAX_MESSAGE);
    for (int c; (c = fgetc(in)) != EOF;) {
        if (c != '\n') {
            if (buf_putc(&line, (char)c)) break;
            continue;
        }
        json_t *m = line.n ? chat_json_object(line.p, line.n, "message", NULL) : NULL;
        if (m) put(out, mcp_answer(tools, m, &env));
        else if (line.n) put(out, mcp_unreadable());
        json_decref(m);
        buf_clear(&line);
    }
    int rc = line.failed ? err_set(e, CHIMERE_ELIMIT, "mcp: a message has more than %d bytes",
                                   MCP_MAX_MESSAGE)
                         : 0;
    buf_fini(&line);
    return rc;
}
