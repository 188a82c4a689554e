/* fetch.h: HTTP and HTTPS as a client: ceilings, deadlines, redirects, ranges, cancelling.
 *
 * Hides libcurl. Every byte that comes back is hostile: bodies, headers, redirects and time have
 * ceilings, and where the caller says `public_only` the address that is really connected to is checked,
 * so that neither a name that resolves to the local network nor a redirect reaches it. Secrets go to the
 * first host only and appear in no message; messages name the address without its query. Blocking; any
 * thread; nothing is shared between calls. Callbacks run on the calling thread. */
#ifndef CHIMERE_NET_FETCH_H
#define CHIMERE_NET_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    FETCH_MAX_URL_BYTES = 8192,
    FETCH_MAX_HEAD_BYTES = 64 << 10,  /* of all responses of one request */
    FETCH_MAX_ERROR_BYTES = 64 << 10, /* kept of the body of an error status */
    FETCH_DEFAULT_MAX_BYTES = 16 << 20,
    FETCH_DEFAULT_CONNECT_MS = 15000,
    FETCH_DEFAULT_STALL_MS = 30000,
    FETCH_MAX_REDIRECTS = 5,
    FETCH_MAX_TRANSFERS = 256,
};

struct fetch_reply {
    int32_t status;        /* of the last response; 0: there was none */
    bool has_length;       /* length is known */
    uint64_t from, length; /* first byte of the body within the whole, and bytes of the whole */
    uint64_t n_bytes;      /* of the body so far */
    int32_t retry_after_s; /* -1: not said */
    char wanted[256];      /* the header that was asked for; "": not there, or longer */
    char type[96];         /* Content-Type, lower case, without parameters */
    struct buf body;       /* owned: what no on_body took, or the beginning of an error's body */
};
void fetch_reply_fini(struct fetch_reply *r);

struct fetch_request { /* all pointers: borrowed until the transfer ends */
    const char *url;
    const char *method; /* NULL: POST where there is a body, else GET */
    const void *body;   /* NULL: none */
    size_t n_body;
    const char *const *headers; /* "Name: value", ends with NULL; may be NULL */
    const char *want;           /* name of a response's header to keep, lower case; NULL: none */
    const char *bearer;         /* secret; NULL: none */
    uint64_t from,
        n_range;           /* asks for n_range bytes from there (0: to the end); both 0: no range */
    uint64_t max_bytes;    /* of the body; 0: FETCH_DEFAULT_MAX_BYTES */
    int32_t connect_ms;    /* 0: FETCH_DEFAULT_CONNECT_MS */
    int32_t total_ms;      /* 0: no deadline for the whole */
    int32_t stall_ms;      /* 0: FETCH_DEFAULT_STALL_MS; in each span of it min_bytes must come */
    uint32_t min_bytes;    /* 0: 1 */
    int32_t max_redirects; /* 0: FETCH_MAX_REDIRECTS; -1: none is followed */
    bool public_only;      /* refuses private, loopback, link-local and reserved addresses */
    /* Both optional. on_head: once, before the first byte of a body with status 2xx; on_body: its bytes.
     * A negative result ends the transfer with that code. */
    int (*on_head)(void *ud, const struct fetch_reply *r);
    int (*on_body)(void *ud, const char *p, size_t n);
    bool (*is_cancelled)(void *ud); /* asked at least every 50 ms; may be NULL */
    void *ud;
};

/* 0 when a whole response came, whatever its status; the caller judges that. The reply is set in any
 * case and wants fetch_reply_fini. CHIMERE_ETIMEOUT, ECANCELLED, ELIMIT, EREFUSED (address, redirect,
 * scheme), EINVAL (address malformed), EIO (network; worth trying again). */
int fetch(const struct fetch_request *r, struct fetch_reply *out, struct err *e);

/* fetch for callers that want success alone: a status outside 2xx becomes CHIMERE_ENOENT (404),
 * EREFUSED (401, 403), EBUSY (429, 503), EIO (other 5xx) or EINVAL, with the server's own message. */
int fetch_ok(const struct fetch_request *r, struct fetch_reply *out, struct err *e);
int fetch_status_error(const struct fetch_request *r, const struct fetch_reply *reply,
                       struct err *e);

/* Several transfers side by side, each on its own connection. */
enum fetch_next { FETCH_STOP, FETCH_START, FETCH_LATER };
struct fetch_many {
    int32_t n; /* slots, 1..FETCH_MAX_TRANSFERS */
    /* What slot i does next: fill *r and start; nothing more; or ask again within a few milliseconds. */
    enum fetch_next (*next)(void *ud, int32_t i, struct fetch_request *r);
    /* Slot i ended with rc (as fetch) and text e. A negative result ends everything with it and e. The
     * body may be taken out of the reply. */
    int (*done)(void *ud, int32_t i, int rc, struct fetch_reply *reply, struct err *e);
    void *ud;
};
/* 0 when every slot has stopped. */
int fetch_many(const struct fetch_many *m, struct err *e);

/* Scheme, host and path of an address: what may stand in messages. */
void fetch_show_url(const char *url, char *out, size_t out_size);
const char *fetch_version(void); /* of the library; static storage */

#endif
