/* cmd_launch_win.c: starting clients: not on Windows. */
#include "base/config.h"
#include "cli/cli.h"

const struct cfg_opt launch_options[] = {{0}};

int cmd_launch(int argc, char **argv) {
    struct err e = {0};
    (void)argc, (void)argv;
    return err_set(&e, CHIMERE_EUNSUPPORTED,
                   "launch: not supported on Windows; start the client yourself"),
           cli_fail(&e);
}
