/* chat_input.h: the user's messages, from a terminal with line editing or from a pipe.
 *
 * On a terminal: editing and history by libedit; the history is stored in the user's data folder (mode 0600);
 * pasted text is taken unchanged. Everywhere: a line that ends with a backslash continues on the next line, and
 * text between two """ may have any number of lines. One instance at a time; one thread. */
#ifndef CHIMERE_CLI_CHAT_INPUT_H
#define CHIMERE_CLI_CHAT_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct chat_input;

struct chat_input_params {
    bool keep_history;
    const char *const
        *commands; /* borrowed until close: completed with the tab key; ends with NULL */
};

int chat_input_open(struct chat_input **out, const struct chat_input_params *p, struct err *e);
void chat_input_close(struct chat_input *in);
bool chat_input_is_terminal(const struct chat_input *in);
/* Reads the next message, without its final newline; free it with mem_free. Returns 1, 0 at the end, or
 * CHIMERE_E*. CHIMERE_ECANCELLED: the user pressed Ctrl-C. */
int chat_input_read(struct chat_input *in, char **text, struct err *e);
/* Version of the library that edits lines. */
void chat_input_editor(char *out, size_t out_size);

#endif
