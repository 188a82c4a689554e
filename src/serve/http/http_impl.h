/* http_impl.h: the server's state and a request's state; shared by the files of this folder. */
#ifndef CHIMERE_SERVE_HTTP_IMPL_H
#define CHIMERE_SERVE_HTTP_IMPL_H

#include <stdatomic.h>
#include <stdint.h>

#include <microhttpd.h>

#include "base/thread.h"
#include "engine/engine.h"
#include "serve/http/auth.h"
#include "backend/queue.h"
#include "serve/http/http.h"
#include "serve/api/kept.h"
#include "serve/keeper.h"
#include "serve/metrics.h"
#include "serve/record.h"
#include "serve/serve.h"

enum http_state { HTTP_READING, HTTP_WORKING, HTTP_READY, HTTP_STREAM, HTTP_CLOSED };

struct http_conn {    /* one socket */
    struct server *s; /* view */
    int fd;
    char peer[46];      /* the client's address */
    int64_t since_ns;   /* time of the request's first line */
    int64_t partial_ns; /* when a partial request line was first seen; 0: none */
    uint64_t n_byte;    /* bytes received when the last request was complete */
    bool reading;       /* the request line has arrived, the body has not */
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
    struct auth_key *key; /* borrowed from the server; NULL: no key is required */
    char id[32];
    char owner[80]; /* the key's identity, or the address */
    bool is_admin;
    /* request headers as "NAME\0VALUE\0" each: a copy, as libmicrohttpd's end with the connection */
    struct buf sent;
    struct buf query; /* likewise, the fields after '?' */
    int64_t begin_ns, deadline_ns;
    struct buf body;
    bool seen, counted, is_large;
    bool closes;       /* close the connection after the response */
    size_t n_reserved; /* reserved in the server's budget for bodies */
    struct err early;  /* why the request is refused before it is read */
    int early_status;

    pthread_mutex_t lock; /* guards the following fields */
    enum http_state state;
    int n_ref;
    bool suspended, gone, told, job_open;
    struct engine_later waking;
    struct http_job job;
    void *job_ud;
    int status;
    const char *type; /* static */
    int retry_s;
    char *headers; /* owned: additional header lines, or NULL */
    struct buf out;
    size_t out_at;          /* bytes sent so far */
    bool out_done, out_cut; /* out_done: complete; out_cut: ended early */
    int64_t last_ns;        /* time of the last output */

    void (*work)(struct http_request *r);
    struct http_request *work_next;
    struct http_request *prev, *next; /* list of the server's live requests */
};

/* A worker may spend minutes loading a model; SERVE_N_LARGE workers may be parsing large bodies. */
enum { SERVE_N_WORKER = 6, SERVE_N_LARGE = 2, SERVE_MAX_LISTENER = 16 };

struct listener {        /* in addition to libmicrohttpd's own socket (listen.h) */
    int fd;              /* owned */
    const char *path;    /* view: of a Unix socket, or NULL */
    uint64_t inode;      /* inode of that path */
    _Atomic bool paused; /* no file descriptor was left */
};

struct server {
    struct serve_params p;
    struct MHD_Daemon *mhd; /* owned */
    int quiesced;           /* its listening socket, taken from it by serve_stop; -1: not taken */
    struct listener listeners[SERVE_MAX_LISTENER];
    _Atomic int n_listener;
    int64_t start_ns, created; /* created: seconds since 1970 */
    _Atomic bool stopping;
    _Atomic bool draining; /* new work is refused; health and status are still served */
    struct queue **gates;  /* owned [n_gate]: the queue of each catalogue entry */
    size_t n_gate;
    struct auth *auth;      /* owned; if it has no keys, everyone is admitted */
    _Atomic bool asks_keys; /* there is at least one key */
    /* From p, and later from serve_reload. */
    _Atomic int timeout_s, ping_s, grace_s;
    _Atomic bool think;
    _Atomic int n_waking; /* threads that are just resuming a connection */
    struct metrics metrics;
    struct slots *slots;      /* owned */
    struct kept *kept;        /* owned: stored responses of the responses API */
    struct mcp_sessions *mcp; /* owned; NULL: there is no orchestrator */
    _Atomic int n_mcp_call;
    _Atomic int n_program;   /* running programs (programs.c) */
    _Atomic int n_audio;     /* running audio requests (api_audio.c) */
    struct resume *resume;   /* owned: streamed answers that continue without their connection */
    struct keeper *keeper;   /* owned; NULL: records are not deleted */
    struct harvest *harvest; /* owned; NULL: answers are not kept for nightly training */
    struct record *record;   /* owned; NULL: requests are not recorded */
    pthread_mutex_t embed_lock;
    pthread_mutex_t recommend_lock;
    json_t *recommend; /* owned; cached response of api_recommend.c, made at recommend_ns */
    int64_t recommend_ns;

    pthread_mutex_t live_lock;
    struct http_request *live; /* requests between their first line and their release */
    struct http_conn *conns;
    int32_t n_live;
    pthread_cond_t none_live;

    pthread_mutex_t work_lock;
    pthread_cond_t has_work;
    struct http_request *work_head, *work_tail;
    int n_large; /* large requests that workers are processing */
    bool quit;
    pthread_t workers[SERVE_N_WORKER], watcher;
    int n_worker;
    bool has_watcher;
    int epoll_fd, wake_fd;
    _Atomic uint64_t n_request;
    _Atomic size_t n_reserved; /* bytes of bodies and of the values parsed from them */
    _Atomic bool wants_trim;
    _Atomic bool is_pulling;   /* a model is being downloaded (models_disk.c) */
    _Atomic bool is_searching; /* a model is being made smaller (models_ramp.c) */
    char machine[256];         /* the machine's name */
};

/* ---- http.c ---- */
int http_listen(struct server *s, struct err *e);
void http_ref(struct http_request *r);
void http_unref(struct http_request *r);
/* calls job.gone once; do not call with r->lock held */
void http_tell_gone(struct http_request *r);
void http_unlock_and_wake(struct http_request *r);
int http_status_of(int code);
bool http_reserve(struct http_request *r, size_t n);

/* ---- watch.c: timeouts, and clients that have left ---- */
int watch_start(struct server *s, struct err *e);
void watch_stop(struct server *s);
void watch_add(struct http_request *r);
void watch_remove(struct http_request *r);

/* ---- reply.c ---- */
/* length of the field's name at the start */
size_t reply_field(const struct err *e);
enum http_shape reply_shape(const struct http_request *r); /* format of its errors */
/* the prompt leaves no room for an answer */
bool reply_is_overflow(const struct err *e);
void reply_error_object(struct buf *out, enum http_shape shape, int status, const struct err *e);
void reply_error(struct http_request *r, int status, const struct err *e);

#endif
