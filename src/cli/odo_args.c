#include "cli/odo_args.h"

#include "base/file.h"
#include "odo/tool.h"

int odo_rig_store(struct odo_rig *r, const struct cfg *c, struct err *e) {
    char path[4096];
    const char *given = cfg_str(c, "db");
    int rc = given ? 0 : file_user_data("chimere.db", path, sizeof path, e);
    if (!rc) rc = store_open(&r->store, given ? given : path, e);
    return rc ? rc : docs_open(&r->docs, r->store, NULL, e);
}

int odo_rig_open(struct odo_rig *r, const struct cfg *c, struct ask_backend *backend,
                 struct err *e) {
    *r = (struct odo_rig){0};
    struct tool_set *tools = NULL;
    int rc = odo_rig_store(r, c, e);
    if (!rc) rc = tool_set_new(&tools, e);
    if (!rc) rc = docs_add_tool(r->docs, tools, e);
    if (rc) {
        tool_set_free(tools);
    } else {
        struct odo_params p = {.backend = backend,
                               .pipelines = cfg_str(c, "pipelines"),
                               .watch = backend != NULL,
                               .tools = tools,
                               .store = r->store,
                               .docs = r->docs,
                               .intent_ms = (int32_t)cfg_int(c, "intent-ms")};
        rc = odo_open(&r->odo, &p, e);
    }
    if (rc) odo_rig_close(r);
    return rc;
}

void odo_rig_close(struct odo_rig *r) {
    odo_close(r->odo);
    docs_close(r->docs);
    store_close(r->store);
    *r = (struct odo_rig){0};
}
