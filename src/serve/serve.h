/* serve.h: the HTTP server, which serves backends with the APIs of OpenAI, Anthropic and others.
 *
 * It hides sockets, routes, request parsing, queueing and frames. Threads: one owns all sockets (libmicrohttpd), a few
 * parse requests (JSON, template, tokens), one handles timeouts and notices clients that have left. Events of answers
 * arrive on the engine's thread, which only appends to a bounded buffer per connection. Everything in params is
 * borrowed until serve_close. */
#ifndef CHIMERE_SERVE_SERVE_H
#define CHIMERE_SERVE_SERVE_H

#include "backend/catalog/catalog.h"

struct embed;
struct odo;
struct rerank;

/* Which requests may share cached states. USER: requests of one user of one key; without keys, of one address. */
enum serve_scope { SCOPE_USER, SCOPE_KEY, SCOPE_ALL };

struct serve_params {
    const char *host;              /* numeric address, "localhost", or unix:PATH (mode 0600) */
    int port;                      /* 0: any free port */
    const char *const *more_hosts; /* [n_more_host] additional hosts, on the same port */
    size_t n_more_host;
    bool ollama;                   /* also listen on 127.0.0.1:11434, Ollama's address */
    const struct catalog *catalog; /* the models that requests may name; at least one */
    struct odo *odo;               /* its tools, memory and feedback have routes; NULL: none */
    /* models that are loaded on demand, for status and /models/load; NULL: none */
    struct models *models;
    struct embed *embed; /* computes embeddings, under a lock; NULL: refused */
    const char *embed_name;
    struct rerank *rerank; /* computes rerank, under the same lock; NULL: cosines from embed */
    const char *rerank_name;
    /* bases of OpenAI's audio routes on other servers, with /v1; NULL: refused */
    const char *stt_url, *tts_url;
    const char *audio_key;          /* bearer key for both; NULL: none */
    const char *keys;               /* content of the key file; NULL: only keys of the store */
    bool no_store_keys;             /* ignore the keys of the store */
    const char *tls_cert, *tls_key; /* PEM text, or NULL */
    /* [n_origin] origins whose pages browsers may let call the server; "*": any */
    const char *const *origins;
    size_t n_origin;
    /* [n_allowed_host] host names besides the machine's own; "*": any */
    const char *const *allowed_hosts;
    size_t n_allowed_host;
    size_t max_body_bytes;   /* 0: 16 MiB */
    size_t max_bodies_bytes; /* limit of all bodies and parsed values together; 0: 256 MiB */
    size_t max_out_bytes;    /* unread output of one connection; 0: 8 MiB */
    int max_connections;     /* 0: 1024 */
    /* connections of one address; 0: a quarter, and any number from this machine */
    int max_per_address;
    int max_half_open; /* those with an incomplete request; 0: a quarter of max_per_address */
    int max_waiting;   /* requests in the queue of one backend; 0: 256 */
    int idle_s;        /* idle connections are closed after this; 0: 300 */
    int receive_s;     /* a request must arrive within this; 0: 60 */
    int ping_s;        /* silence of a stream before a ping; 0: 10 */
    int timeout_s;     /* deadline of an answer; 0: none */
    int grace_s;       /* time for running answers when the server stops */
    /* Appends text to /metrics; NULL: none. */
    void (*metrics)(void *ud, struct buf *out);
    void *metrics_ud;
    enum serve_scope scope;
    bool no_studio;    /* do not serve the page at / */
    bool metrics_open; /* GET /metrics needs no key */
    bool think;        /* models think unless the request says otherwise */
    bool verbose;      /* responses include __verbose: the prompt that the template made */
    enum metrics_compat { COMPAT_NONE, COMPAT_LLAMACPP, COMPAT_VLLM } metrics_compat;
    json_t *defaults;      /* default values of request fields, an object, or NULL */
    const char *slots_dir; /* folder for POST /slots/N; NULL: refused */
    /* Where requests are recorded, without their contents, and keys are read; NULL: neither. */
    struct store *store;
    const char *models_dir; /* downloaded models; NULL: in the user's data directory */
    /* The memory for which these models are planned: that of dev (borrowed; NULL: the processor), with these limits
     * (0: what is free) */
    struct dev *dev;
    uint64_t vram_bytes, ram_bytes;
    bool expert_slots;
    const char *hub_endpoint, *hub_token; /* NULL: the public hub; no token */
    const char *engram_dir;               /* n-gram tables; NULL: in the user's data directory */
    /* [n_learn] names of keys whose answers are kept for nightly training (harvest.h) */
    const char *const *learn;
    size_t n_learn;
    struct store *learn_store; /* their store; set together with n_learn */
    int32_t keep_days;         /* age limit of usage records; 0: none */
    int64_t keep_bytes;        /* size limit of each kind of record; 0: none */
};

struct server;

/* Reports what serve_open would refuse: hosts, keys and certificate. Does not listen. */
int serve_check(const struct serve_params *p, struct err *e);
int serve_open(struct server **out, const struct serve_params *p, struct err *e);
/* The store of answers and conversations: the server's, or the orchestrator's; NULL: none. */
struct store *serve_store(const struct server *s);
int serve_port(const struct server *s);
/* Applies new keys, timeout_s, ping_s, grace_s and think; if it fails, nothing changes. One thread at a time; p is
 * borrowed for the call. Answers that have begun keep their deadline. */
int serve_reload(struct server *s, const struct serve_params *p, struct err *e);
/* Accepts no new requests. Running answers may finish within grace_s; then they are cut, with a proper end of the
 * response. */
void serve_stop(struct server *s);
void serve_close(struct server *s); /* after serve_stop, or stops at once */

#endif
