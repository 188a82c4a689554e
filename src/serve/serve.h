/* serve.h: the HTTP server: backends behind the OpenAI and Anthropic APIs.
 *
 * Hides sockets, routes, request parsing, queueing and frames. Threads: one owns all sockets
 * (libmicrohttpd), a few read requests (JSON, template, tokens), one keeps time and notices clients that
 * left. Events of answers arrive on the engine's thread, which only appends to a connection's bounded
 * buffer. Everything given in params is borrowed until serve_close. */
#ifndef CHIMERE_SERVE_SERVE_H
#define CHIMERE_SERVE_SERVE_H

#include "backend/catalog.h"

struct embed;
struct odo;
struct rerank;

/* Whose requests may begin from the same cached states. USER: those of one user of one key; without keys,
 * those of one address. */
enum serve_scope { SCOPE_USER, SCOPE_KEY, SCOPE_ALL };

struct serve_params {
    const char *host;              /* numeric address, "localhost", or unix:PATH (mode 0600) */
    int port;                      /* 0: any free one */
    const char *const *more_hosts; /* [n_more_host] further ones, on the same port */
    size_t n_more_host;
    bool ollama;                   /* also 127.0.0.1:11434, where Ollama's clients look */
    const struct catalog *catalog; /* the models that requests may name; at least one */
    struct odo *odo; /* its tools, memory and feedback have routes of their own; NULL: none */
    struct models
        *models; /* those that are loaded on demand, for status and /models/load; NULL: none */
    struct embed *embed; /* answers embeddings, under a lock; NULL: refused */
    const char *embed_name;
    struct rerank *rerank; /* answers rerank, under the same lock; NULL: embed does, by cosines */
    const char *rerank_name;
    const char *keys;               /* text of the key file, or NULL: none beside the store's */
    bool no_store_keys;             /* the keys of the store do not count */
    const char *tls_cert, *tls_key; /* PEM text, or NULL */
    const char *const *origins;     /* [n_origin] that browsers may call from; "*": any */
    size_t n_origin;
    const char *const
        *allowed_hosts; /* [n_allowed_host] names beside the machine's own; "*": any */
    size_t n_allowed_host;
    size_t max_body_bytes;   /* 0: 16 MiB */
    size_t max_bodies_bytes; /* of all requests together, and what is read from them; 0: 256 MiB */
    size_t max_out_bytes;    /* unread output of one connection, 0: 8 MiB */
    int max_connections;     /* 0: 1024 */
    int max_per_address;     /* of those; 0: a quarter, and any number from this machine */
    int max_half_open;       /* of one address, whose request is incomplete; 0: a quarter of that */
    int max_waiting;         /* requests in the queue of one backend, 0: 256 */
    int idle_s;              /* idle connections close after this, 0: 300 */
    int receive_s;           /* a request must arrive within this, 0: 60 */
    int ping_s;              /* silence of a stream before a ping, 0: 10 */
    int timeout_s;           /* longest answer, 0: no limit */
    int grace_s;             /* time for running answers when stopping */
    /* Further text for /metrics; NULL: none. */
    void (*metrics)(void *ud, struct buf *out);
    void *metrics_ud;
    enum serve_scope scope;
    bool no_studio;    /* no page at / */
    bool metrics_open; /* GET /metrics needs no key */
    bool think;        /* models think unless told not to */
    bool verbose;      /* answers carry __verbose: the prompt that was made of the request */
    enum metrics_compat { COMPAT_NONE, COMPAT_LLAMACPP, COMPAT_VLLM } metrics_compat;
    json_t *defaults;      /* fields that requests have unless they name them, an object, or NULL */
    const char *slots_dir; /* where POST /slots/N saves; NULL: refused */
    /* Where requests are recorded, without their contents, and keys are found; NULL: nowhere. */
    struct store *store;
    const char *models_dir; /* of fetched models; NULL: in the user's data directory */
    const char *hub_endpoint, *hub_token; /* NULL: the public hub; no token */
    const char *engram_dir;               /* of n-gram tables; NULL: in the user's data directory */
    const char *const
        *learn; /* [n_learn] names of keys whose answers are kept for nights (harvest.h) */
    size_t n_learn;
    struct store *learn_store; /* where they are kept; with n_learn */
    int32_t keep_days;         /* records of use in the stores, 0: for ever */
    int64_t keep_bytes;        /* of one kind of them, 0: no limit */
};

struct server;

/* What serve_open would refuse of host, keys and certificate. It does not listen. */
int serve_check(const struct serve_params *p, struct err *e);
int serve_open(struct server **out, const struct serve_params *p, struct err *e);
/* Where answers and conversations lie: its own store, or the orchestrator's; NULL: nowhere. */
struct store *serve_store(const struct server *s);
int serve_port(const struct server *s);
/* Takes over keys, timeout_s, ping_s, grace_s and think; nothing, if it fails. One thread at a time; p is
 * borrowed for the call. Answers that have begun keep their deadline. */
int serve_reload(struct server *s, const struct serve_params *p, struct err *e);
/* No new requests; running answers may end within grace_s, then they are cut with a proper end. */
void serve_stop(struct server *s);
void serve_close(struct server *s); /* after serve_stop, or stops at once */

#endif
