/* fuzz_odo_json.c: byte 0 chooses what comes as JSON (an MCP message to us, arguments of a tool, an MCP server's
 * answer, what a request says to the orchestrator), the rest is the text. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "tools/mcp_impl.h"
#include "tools/mcp_serve.h"
#include "odo/odo_impl.h"
#include "tools/tool.h"
#include "text/chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An answer has the question's id, and a result or an error. */
static void serve(struct tool_set *tools, const json_t *m) {
    _Atomic bool cancelled = true; /* no tool may wait */
    struct tool_env env = {.cancelled = &cancelled};
    json_t *r = mcp_answer(tools, m, &env);
    if (!r) return;
    char *text = json_dumps(r, JSON_COMPACT);
    if (!text || !json_equal(json_object_get(r, "id"), json_object_get(m, "id")) ||
        !json_object_get(r, "result") == !json_object_get(r, "error"))
        __builtin_trap();
    mem_free(text);
    json_decref(r);
}

static void run(struct tool_set *tools, const char *text) {
    struct tool_env env = {0};
    struct buf out;
    buf_init(&out, (size_t)4 * TOOL_MAX_OUTPUT);
    int rc = tool_run(tool_find(tools, "calculator"), text, &env, &out);
    if (!out.n || out.failed || (rc != 0) != !strncmp(out.p, "error: ", 7)) __builtin_trap();
    buf_fini(&out);
}

static void read_answer(const json_t *m) {
    struct buf out;
    buf_init(&out, TOOL_MAX_OUTPUT);
    if (mcp_is_reply(m, 1)) mcp_put_content(&out, json_object_get(m, "result"));
    buf_fini(&out);
}

static void wish(json_t *m) {
    struct odo_wish w;
    struct err e = {0};
    json_t *extra = json_pack("{s:O}", "odo", m);
    int rc = odo_wish_read(&w, extra, &e);
    if (rc ? strncmp(e.text, "odo", 3) != 0 : w.n_file > 16) __builtin_trap();
    json_decref(extra);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tool_set *tools;
    if (size < 1 || (!tools && tool_set_new(&tools, NULL))) return 0;
    char *text = mem_strndup((const char *)data + 1, size - 1);
    json_t *m = text ? chat_json_object(text, size - 1, "message", NULL) : NULL;
    if (text && data[0] % 4 == 1) run(tools, text);
    if (m && data[0] % 4 == 0) serve(tools, m);
    if (m && data[0] % 4 == 2) read_answer(m);
    if (m && data[0] % 4 == 3) wish(m);
    json_decref(m);
    mem_free(text);
    return 0;
}
