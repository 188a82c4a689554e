/* cmd_chat_win.c: a conversation in the terminal: not on Windows. */
#include "base/config.h"
#include "cli/chat/chat_input.h"
#include "cli/cli.h"

const struct cfg_opt chat_options[] = {{0}};

void chat_input_editor(char *out, size_t out_size) {
    snprintf(out, out_size, "none: no chat on Windows");
}

int cmd_chat(int argc, char **argv) {
    struct err e = {0};
    (void)argc, (void)argv;
    err_set(&e, CHIMERE_EUNSUPPORTED, "chat: not supported on Windows");
    err_hint(&e, "chimere serve has a page; chimere run answers one question");
    return cli_fail(&e);
}
