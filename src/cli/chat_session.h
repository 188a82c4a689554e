/* chat_session.h: the conversation of a terminal chat: its messages, and asking for the next answer.
 *
 * Whoever speaks (cmd_chat.c, or a command of chat_command.c) calls these from one thread; answers appear on
 * standard output while they come. */
#ifndef CHIMERE_CLI_CHAT_SESSION_H
#define CHIMERE_CLI_CHAT_SESSION_H

#include "cli/chat_backend.h"

struct chat_session {
    struct chat_backend *backend; /* owned */
    struct cfg *c;                /* borrowed until the end */
    json_t *messages;             /* owned: all but the system message */
    char *system;                 /* owned; NULL: none */
    bool think, terminal, color, quit;
    struct chat_reply last; /* figures of the last answer; its message is NULL */
    int stop[2];            /* owned: a pipe; Ctrl-C writes to it while an answer comes */
};

/* Takes the backend, also on failure. */
int chat_session_init(struct chat_session *s, struct chat_backend *b, struct cfg *c, struct err *e);
void chat_session_fini(struct chat_session *s);
void chat_session_reset(struct chat_session *s);
int chat_session_set_system(struct chat_session *s, const char *text, struct err *e);
/* A message of the user's and the answer to it. When that fails, the message is taken back. */
int chat_session_say(struct chat_session *s, const char *text, struct err *e);
/* Takes back what came after the user's last message (with_message: that too). False: there is none. */
bool chat_session_undo(struct chat_session *s, bool with_message);
/* Another answer to the user's last message. */
int chat_session_again(struct chat_session *s, struct err *e);
/* {"messages": [..]}, the system message first, as the OpenAI API writes it. */
int chat_session_save(const struct chat_session *s, const char *path, struct err *e);
int chat_session_load(struct chat_session *s, const char *path, struct err *e);
void chat_session_show(const struct chat_session *s); /* prints it all */

#endif
