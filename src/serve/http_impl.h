/* http_impl.h: the server's parts and a request's state. Shared by the files of this folder. */
#ifndef CHIMERE_SERVE_HTTP_IMPL_H
#define CHIMERE_SERVE_HTTP_IMPL_H

#include <stdatomic.h>
#include <stdint.h>

#include <microhttpd.h>

#include "base/thread.h"
#include "engine/engine.h"
#include "serve/auth.h"
#include "backend/queue.h"
#include "serve/http.h"
#include "serve/kept.h"
#include "serve/keeper.h"
#include "serve/metrics.h"
#include "serve/record.h"
#include "serve/serve.h"

enum http_state { HTTP_READING, HTTP_WORKING, HTTP_READY, HTTP_STREAM, HTTP_CLOSED };

struct http_conn {    /* of one socket */
    struct server *s; /* view */
    int fd;
    char peer[46];      /* the client's address */
    int64_t since_ns;   /* the first line of its request came */
    int64_t partial_ns; /* less than a line was seen; 0: not */
    uint64_t n_byte;    /* received when its last request was done */
    bool reading;       /* a request line came, its body has not */
    bool busy;          /* a request is being answered */
    struct http_conn *prev, *next;
};

struct http_request {
    struct server *s;            /* view */
    struct MHD_Connection *conn; /* borrowed until HTTP_CLOSED */
    struct http_conn *sock;      /* borrowed until HTTP_CLOSED; may be NULL */
    const struct route *route;
    char *path; /* owned */
    char method[12];
    struct auth_key *key; /* borrowed from the server; NULL: none needed */
    char id[32];
    char owner[80]; /* the key's identity, or the address */
    bool is_admin;
    struct buf sent; /* its headers: "NAME\0VALUE\0" each; libmicrohttpd's go with the connection */
    struct buf query; /* the same of the fields after '?' */
    int64_t begin_ns, deadline_ns;
    struct buf body;
    bool seen, counted, is_large;
    bool closes;       /* the connection ends with the response */
    size_t n_reserved; /* of the server's budget for bodies */
    struct err early;  /* why it is refused before it is read */
    int early_status;

    pthread_mutex_t lock; /* what follows */
    enum http_state state;
    int n_ref;
    bool suspended, gone, told, job_open;
    struct engine_later waking;
    struct http_job job;
    void *job_ud;
    int status;
    const char *type; /* static */
    int retry_s;
    char *headers; /* owned: lines for the head, or NULL */
    struct buf out;
    size_t out_at;          /* sent so far */
    bool out_done, out_cut; /* complete; ended in the middle */
    int64_t last_ns;        /* of output */

    void (*work)(struct http_request *r);
    struct http_request *work_next;
    struct http_request *prev, *next; /* of the server's live ones */
};

/* One may be loading a model for minutes; as many may be reading large bodies. */
enum { SERVE_N_WORKER = 6, SERVE_N_LARGE = 2, SERVE_MAX_LISTENER = 16 };

struct listener {        /* beside libmicrohttpd's own socket (listen.h) */
    int fd;              /* owned */
    const char *path;    /* view: of a Unix socket, or NULL */
    uint64_t inode;      /* of that */
    _Atomic bool paused; /* no descriptor was left */
};

struct server {
    struct serve_params p;
    struct MHD_Daemon *mhd; /* owned */
    int quiesced;           /* its listening socket since serve_stop; -1: it still has it */
    struct listener listeners[SERVE_MAX_LISTENER];
    _Atomic int n_listener;
    int64_t start_ns, created; /* created: seconds since 1970 */
    _Atomic bool stopping;
    _Atomic bool draining; /* new work is refused; health and status are still answered */
    struct queue **gates;  /* owned [n_gate]: of each entry of the catalogue */
    size_t n_gate;
    struct auth *auth;      /* owned; open to all while there are no keys in it */
    _Atomic bool asks_keys; /* there is a key */
    /* Of p, and later of serve_reload. */
    _Atomic int timeout_s, ping_s, grace_s;
    _Atomic bool think;
    _Atomic int n_waking; /* threads that are resuming a connection */
    struct metrics metrics;
    struct slots *slots;      /* owned */
    struct kept *kept;        /* owned: answers of the responses API */
    struct mcp_sessions *mcp; /* owned; NULL without an orchestrator */
    _Atomic int n_mcp_call;
    _Atomic int n_program;   /* programs.c */
    struct resume *resume;   /* owned: streamed answers that outlive their connection */
    struct keeper *keeper;   /* owned; NULL: nothing is deleted */
    struct harvest *harvest; /* owned; NULL: nothing is kept for nights */
    struct record *record;   /* owned; NULL: requests are not recorded */
    pthread_mutex_t embed_lock;
    pthread_mutex_t recommend_lock;
    json_t *recommend; /* owned; the last answer of api_recommend.c, made at recommend_ns */
    int64_t recommend_ns;

    pthread_mutex_t live_lock;
    struct http_request *live; /* requests between their first line and their release */
    struct http_conn *conns;
    int32_t n_live;
    pthread_cond_t none_live;

    pthread_mutex_t work_lock;
    pthread_cond_t has_work;
    struct http_request *work_head, *work_tail;
    int n_large; /* large requests at work */
    bool quit;
    pthread_t workers[SERVE_N_WORKER], watcher;
    int n_worker;
    bool has_watcher;
    int epoll_fd, wake_fd;
    _Atomic uint64_t n_request;
    _Atomic size_t n_reserved; /* bodies and their values */
    _Atomic bool wants_trim;
    _Atomic bool is_pulling; /* a model is being fetched (models_disk.c) */
    char machine[256];       /* its name */
};

/* ---- http.c ---- */
int http_listen(struct server *s, struct err *e);
void http_ref(struct http_request *r);
void http_unref(struct http_request *r);
void http_tell_gone(struct http_request *r); /* once; not under r->lock */
void http_unlock_and_wake(struct http_request *r);
int http_status_of(int code);
bool http_reserve(struct http_request *r, size_t n);

/* ---- watch.c: time, and clients that left ---- */
int watch_start(struct server *s, struct err *e);
void watch_stop(struct server *s);
void watch_add(struct http_request *r);
void watch_remove(struct http_request *r);

/* ---- reply.c ---- */
size_t reply_field(const struct err *e);                   /* bytes of the field's name in front */
enum http_shape reply_shape(const struct http_request *r); /* of its errors */
bool reply_is_overflow(const struct err *e);               /* a prompt that leaves no room */
void reply_error_object(struct buf *out, enum http_shape shape, int status, const struct err *e);
void reply_error(struct http_request *r, int status, const struct err *e);

#endif
