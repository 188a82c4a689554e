/* chat_backend.h: what answers in the terminal chat: the model in this process, or a remote server.
 *
 * The chat passes the complete conversation and receives the answer in pieces. request blocks until the answer has
 * ended; the pieces may arrive on another thread. A backend ends an answer soon after a byte can be read from
 * stop_fd, and reports what was generated until then. */
#ifndef CHIMERE_CLI_CHAT_BACKEND_H
#define CHIMERE_CLI_CHAT_BACKEND_H

#include <jansson.h>

#include "base/config.h"

struct chat_ask {
    json_t *messages;    /* borrowed during request */
    const struct cfg *c; /* borrowed during request: sampling options, n-predict */
    bool think;          /* the model may think first */
    int stop_fd;         /* borrowed */
    /* A piece of thinking or of the answer, in whole characters. */
    void (*on_text)(void *ud, bool is_thought, const char *text, size_t n);
    void *ud; /* borrowed during request */
};

enum chat_end { CHAT_ENDED, CHAT_END_LENGTH, CHAT_END_STOPPED };

struct chat_reply {
    json_t *message; /* owned by the caller: the assistant's message, possibly incomplete */
    enum chat_end end;
    int32_t n_prompt, n_generated;
    double prefill_ms, decode_ms;
};

struct chat_backend {
    /* Returns 0 and sets *r, or CHIMERE_E*. */
    int (*request)(struct chat_backend *b, const struct chat_ask *q, struct chat_reply *r,
                   struct err *e);
    void (*close)(struct chat_backend *b);
    char name[128]; /* name of the model, for the greeting */
};

/* Opens the model that the options name, in this process. */
int chat_local_open(struct chat_backend **out, const struct cfg *c, struct err *e);
/* Connects to the server that --url names; CHIMERE_EIO or a similar code if it cannot be reached. */
int chat_remote_open(struct chat_backend **out, const struct cfg *c, struct err *e);

#endif
