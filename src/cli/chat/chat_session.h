/* chat_session.h: the conversation of a terminal chat: its messages, and requests for the next answer.
 *
 * The callers (cmd_chat.c, and the commands of chat_command.c) use one thread. Answers are written to standard
 * output while they are generated. */
#ifndef CHIMERE_CLI_CHAT_SESSION_H
#define CHIMERE_CLI_CHAT_SESSION_H

#include "cli/chat/chat_backend.h"

struct chat_session {
    struct chat_backend *backend; /* owned */
    struct cfg *c;                /* borrowed until the end */
    json_t *messages;             /* owned: all messages except the system message */
    char *system;                 /* owned; NULL: none */
    bool think, terminal, color, quit;
    struct chat_reply last; /* statistics of the last answer; its message is NULL */
    int stop[2];            /* owned: a pipe; Ctrl-C writes to it during an answer */
};

/* Takes ownership of the backend, also on failure. */
int chat_session_init(struct chat_session *s, struct chat_backend *b, struct cfg *c, struct err *e);
void chat_session_fini(struct chat_session *s);
void chat_session_reset(struct chat_session *s);
int chat_session_set_system(struct chat_session *s, const char *text, struct err *e);
/* Adds a message of the user and requests the answer. If that fails, the message is removed. */
int chat_session_say(struct chat_session *s, const char *text, struct err *e);
/* Removes everything after the user's last message (with_message: including the message). False: there is none. */
bool chat_session_undo(struct chat_session *s, bool with_message);
/* Requests another answer to the user's last message. */
int chat_session_again(struct chat_session *s, struct err *e);
/* Writes {"messages": [..]}, beginning with the system message, in the format of the OpenAI API. */
int chat_session_save(const struct chat_session *s, const char *path, struct err *e);
int chat_session_load(struct chat_session *s, const char *path, struct err *e);
void chat_session_show(const struct chat_session *s); /* prints all messages */

#endif
