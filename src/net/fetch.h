/* fetch.h: HTTP and HTTPS client with limits, deadlines, redirects, ranges and cancellation.
 *
 * It hides libcurl. Received data is not trusted: bodies, headers, redirects and time have limits. With `public_only`,
 * the address that is really connected to is checked, so that neither a name that resolves to the local network nor a
 * redirect can reach it. Secrets are sent only to the first host and never appear in messages; messages contain the
 * address without its query. Blocking; any thread; calls share no state. Callbacks run on the calling thread. */
#ifndef CHIMERE_NET_FETCH_H
#define CHIMERE_NET_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    FETCH_MAX_URL_BYTES = 8192,
    FETCH_MAX_HEAD_BYTES = 64 << 10,  /* of all responses to one request */
    FETCH_MAX_ERROR_BYTES = 64 << 10, /* kept part of the body of an error response */
    FETCH_DEFAULT_MAX_BYTES = 16 << 20,
    FETCH_DEFAULT_CONNECT_MS = 15000,
    FETCH_DEFAULT_STALL_MS = 30000,
    FETCH_MAX_REDIRECTS = 5,
    FETCH_MAX_TRANSFERS = 256,
};

struct fetch_reply {
    int32_t status;  /* status of the last response; 0: no response */
    bool has_length; /* length is valid */
    /* position of the first body byte in the whole file, and the whole length */
    uint64_t from, length;
    uint64_t n_bytes;      /* body bytes so far */
    int32_t retry_after_s; /* -1: not given */
    char wanted[256];      /* value of the header `want`; "": missing or too long */
    char type[96];         /* Content-Type, lower case, without parameters */
    /* owned: the body if there is no on_body, or the start of an error's body */
    struct buf body;
};
void fetch_reply_fini(struct fetch_reply *r);

struct fetch_request { /* all pointers: borrowed until the transfer ends */
    const char *url;
    const char *method; /* NULL: POST if there is a body, else GET */
    const void *body;   /* NULL: none */
    size_t n_body;
    const char *const *headers; /* "Name: value", ends with NULL; may be NULL */
    const char *want;           /* name of a response header to keep, lower case; NULL: none */
    const char *bearer;         /* secret; NULL: none */
    /* requests n_range bytes, starting at `from` (n_range 0: to the end); both 0: no range */
    uint64_t from, n_range;
    uint64_t max_bytes; /* limit of the body; 0: FETCH_DEFAULT_MAX_BYTES */
    int32_t connect_ms; /* 0: FETCH_DEFAULT_CONNECT_MS */
    int32_t total_ms;   /* 0: no deadline for the whole transfer */
    /* 0: FETCH_DEFAULT_STALL_MS; at least min_bytes must arrive in each such period */
    int32_t stall_ms;
    uint32_t min_bytes;    /* 0: 1 */
    int32_t max_redirects; /* 0: FETCH_MAX_REDIRECTS; -1: redirects are not followed */
    bool public_only;      /* refuses private, loopback, link-local and reserved addresses */
    /* Refuses all but loopback addresses, uses no proxy, and does not verify the certificate: those of servers name other
     * addresses, and what this machine sends to itself does not leave it. */
    bool local_only;
    /* Both optional. on_head: called once, before the first byte of a body with status 2xx. on_body: receives the body.
     * A negative result ends the transfer and is returned. */
    int (*on_head)(void *ud, const struct fetch_reply *r);
    int (*on_body)(void *ud, const char *p, size_t n);
    bool (*is_cancelled)(void *ud); /* called at least every 50 ms; may be NULL */
    void *ud;
};

/* Returns 0 if a complete response arrived, with any status; the caller checks the status. *out is set in every case;
 * call fetch_reply_fini. Errors: CHIMERE_ETIMEOUT, ECANCELLED, ELIMIT, EREFUSED (address, redirect, scheme), EINVAL
 * (malformed address), EIO (network; may be retried). */
int fetch(const struct fetch_request *r, struct fetch_reply *out, struct err *e);

/* Like fetch, for callers that need success: a status outside 2xx becomes CHIMERE_ENOENT (404), EREFUSED (401, 403),
 * EBUSY (429, 503), EIO (other 5xx) or EINVAL, with the server's message. */
int fetch_ok(const struct fetch_request *r, struct fetch_reply *out, struct err *e);
int fetch_status_error(const struct fetch_request *r, const struct fetch_reply *reply,
                       struct err *e);

/* Several concurrent transfers, each with its own connection. */
enum fetch_next { FETCH_STOP, FETCH_START, FETCH_LATER };
struct fetch_many {
    int32_t n; /* slots, 1..FETCH_MAX_TRANSFERS */
    /* Returns what slot i does next. FETCH_START: run *r, which was filled. FETCH_STOP: nothing more. FETCH_LATER: ask
     * again within a few milliseconds. */
    enum fetch_next (*next)(void *ud, int32_t i, struct fetch_request *r);
    /* Called when slot i ended with rc (as fetch) and error e. A negative result ends all transfers and is returned
     * with e. The body may be taken out of the reply. */
    int (*done)(void *ud, int32_t i, int rc, struct fetch_reply *reply, struct err *e);
    void *ud;
};
/* Returns 0 when every slot has stopped. */
int fetch_many(const struct fetch_many *m, struct err *e);

/* Writes scheme, host and path of an address, which may appear in messages. */
void fetch_show_url(const char *url, char *out, size_t out_size);
const char *fetch_version(void); /* of libcurl; static storage */

#endif
