/* chat_input.h: the user's messages, from a terminal with line editing or from a pipe.
 *
 * On a terminal: editing and history by libedit, history kept in the user's data directory (mode 0600),
 * pasted text taken as it is. Everywhere: a line that ends in a backslash goes on in the next one, and
 * text between two """ may have any number of lines. One at a time; one thread. */
#ifndef CHIMERE_CLI_CHAT_INPUT_H
#define CHIMERE_CLI_CHAT_INPUT_H

#include <stdbool.h>

#include "base/err.h"

struct chat_input;

struct chat_input_params {
    bool keep_history;
    const char *const
        *commands; /* borrowed until close: completed by the tab key; ends with NULL */
};

int chat_input_open(struct chat_input **out, const struct chat_input_params *p, struct err *e);
void chat_input_close(struct chat_input *in);
bool chat_input_is_terminal(const struct chat_input *in);
/* The next message, without its final newline; released by mem_free. 1, or 0 at the end, or CHIMERE_E*;
 * CHIMERE_ECANCELLED: the user pressed Ctrl-C. */
int chat_input_read(struct chat_input *in, char **text, struct err *e);

#endif
