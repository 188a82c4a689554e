#include "cli/args/night_args.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "eval/harness.h"

int night_items(json_t *items, size_t n, struct err *e) {
    static const char *const skills[] = {
        "add_sub",  "compare",  "context_answer", "context_none", "copy",        "count",
        "dates",    "division", "fact",           "json_schema",  "product",     "rewrite",
        "sequence", "sort",     "sum_chain",      "units",        "word_problem"};
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof skills / sizeof *skills; i++) {
        char name[64], path[4096];
        snprintf(name, sizeof name, "eval/%s.jsonl", skills[i]);
        if (file_find_data(name, path, sizeof path))
            return err_set(e, CHIMERE_ENOENT, "the folder eval with the items was not found");
        rc = eval_load(items, path, n, eval_check_item, e);
    }
    return rc;
}

int night_share(const char *name, const char *text, double *share, struct err *e) {
    char *end;
    *share = strtod(text, &end);
    bool is_percent = end != text && *end == '%';
    if (is_percent) *share /= 100;
    if (end != text && !end[is_percent] && *share >= 0 && *share <= 1) return 0;
    return err_set(e, CHIMERE_EINVAL, "%s: expected a share such as 10%% or 0.1, got %.40s", name,
                   text);
}

int night_encode(void *ud, json_t *messages, json_t *tools, bool think, int32_t **ids, size_t *n,
                 struct err *e) {
    bool in_think;
    return chat_rig_encode(ud, messages, tools, think, ids, n, &in_think, e);
}

const char *night_pipelines(const char *given, char *out, size_t out_size) {
    if (given) return given;
    return file_find_data("pipelines", out, out_size) ? NULL : out;
}
