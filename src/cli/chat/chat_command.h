/* chat_command.h: the commands of the chat, which are lines that begin with a slash: one table. */
#ifndef CHIMERE_CLI_CHAT_COMMAND_H
#define CHIMERE_CLI_CHAT_COMMAND_H

#include "cli/chat/chat_session.h"

/* Returns true if the line is a command, false if it is a message. */
bool chat_command_is(const char *line);
/* Runs a command and prints its output. An error leaves the conversation unchanged. */
int chat_command_run(struct chat_session *s, const char *line, struct err *e);
extern const char *const chat_command_names[]; /* for completion; ends with NULL */

#endif
