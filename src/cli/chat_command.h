/* chat_command.h: the chat's commands, lines that begin with a slash: one table. */
#ifndef CHIMERE_CLI_CHAT_COMMAND_H
#define CHIMERE_CLI_CHAT_COMMAND_H

#include "cli/chat_session.h"

/* True if the line is a command, and not a message. */
bool chat_command_is(const char *line);
/* Runs it. What a command says is printed; an error leaves the conversation as it was. */
int chat_command_run(struct chat_session *s, const char *line, struct err *e);
extern const char *const chat_command_names[]; /* for completion; ends with NULL */

#endif
