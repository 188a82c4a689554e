/* pull.h: models from a hub into the models directory, DIR/OWNER/REPO/FILE.
 *
 * Every file is checked by the SHA-256 of the hub's listing and appears when it is whole; FILE.sha256
 * beside it (as sha256sum writes it) says what it is, so that a second pull costs one request. Nothing is
 * ever written outside DIR, links within it included. What is there answers without a network. */
#ifndef CHIMERE_NET_PULL_H
#define CHIMERE_NET_PULL_H

#include "net/hub.h"

#define PULL_ENDPOINT "https://huggingface.co"

struct pull {             /* all pointers: borrowed for the call */
    const char *dir;      /* models directory; made if need be */
    const char *endpoint; /* NULL: PULL_ENDPOINT */
    const char *token;    /* secret; NULL: none */
    int32_t n_part;       /* as download.h */
    int32_t wait_ms;
    /* All optional. A file begins (i of n; size of it; bytes 0: it is there already), grows, is checked. */
    void (*on_file)(void *ud, const struct hub_file *f, size_t i, size_t n, bool is_there);
    void (*on_bytes)(void *ud, uint64_t n);
    void (*on_check)(void *ud, uint64_t n);
    bool (*is_cancelled)(void *ud);
    void *ud;
};

/* The path of the model's first file to out. */
int pull_model(const struct pull *p, const struct hub_ref *r, char *out, size_t out_size,
               struct err *e);
/* The same among the files that are there; CHIMERE_ENOENT if the model is not. No network. */
int pull_local(const char *dir, const struct hub_ref *r, char *out, size_t out_size, struct err *e);

/* The same in the cache of the hub's own client, HUB/models--OWNER--REPO: refs/main names the snapshot, whose
 * files are links into blobs. Read only. */
int pull_cached(const char *hub, const struct hub_ref *r, char *out, size_t out_size,
                struct err *e);

#endif
