/* cmd_pull.c: downloads a model from a hub to the models folder and prints its path. */
#include <stdio.h>

#include "backend/catalog/recommend.h"
#include "cli/args/hub_args.h"

/* clang-format off */
const struct cfg_opt pull_options[] = {
    {"parts", 0, CFG_INT, "N", "4", 1, 16, NULL, "concurrent connections"},
    {0}};
/* clang-format on */

int cmd_pull(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(
            &c, pull_options,
            "usage: chimere pull hf:OWNER/REPO[:FILE or TYPE]\n"
            "       chimere pull NAME\n\n"
            "Fetches a GGUF model, all parts of a split one, and checks it. TYPE is a quantized\n"
            "type such as Q4_K_M. An interrupted download resumes where it stopped. Afterwards\n"
            "every command finds the model offline: chimere serve -m hf:OWNER/REPO:TYPE\n"
            "NAME is a short name of the list that chimere recommend prints.",
            argc, argv, &status))
        return status;
    struct err e = {0};
    char path[4096];
    int rc = cfg_n_pos(c) == 1
                 ? 0
                 : err_set(&e, CHIMERE_EINVAL, "expected one model, hf:OWNER/REPO[:TYPE]");
    char hub[512];
    const char *name = rc ? NULL : cfg_pos(c, 0);
    if (name && recommend_hub(name, hub, sizeof hub)) name = hub;
    if (!rc) rc = hub_args_path(c, name, true, (int)cfg_int(c, "parts"), path, sizeof path, &e);
    if (!rc) puts(path);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
