/* pull.h: downloads models from a hub into the models directory, as DIR/OWNER/REPO/FILE.
 *
 * Every file is checked with the SHA-256 of the hub's listing, and appears only once it is complete. FILE.sha256 (in
 * the format of sha256sum) records its hash, so that a second pull needs one request. Nothing is ever written outside
 * DIR, even through links inside it. Models that are already present need no network. */
#ifndef CHIMERE_NET_PULL_H
#define CHIMERE_NET_PULL_H

#include "net/hub.h"

#define PULL_ENDPOINT "https://huggingface.co"

struct pull {             /* all pointers: borrowed for the call */
    const char *dir;      /* models directory; created if missing */
    const char *endpoint; /* NULL: PULL_ENDPOINT */
    const char *token;    /* secret; NULL: none */
    int32_t n_part;       /* as in download.h */
    int32_t wait_ms;
    /* All optional. on_file: file i of n begins; is_there: it is already present. on_bytes: bytes received; on_check:
     * bytes checked. */
    void (*on_file)(void *ud, const struct hub_file *f, size_t i, size_t n, bool is_there);
    void (*on_bytes)(void *ud, uint64_t n);
    void (*on_check)(void *ud, uint64_t n);
    bool (*is_cancelled)(void *ud);
    void *ud;
};

/* Downloads the model if necessary; writes the path of its first file to out. */
int pull_model(const struct pull *p, const struct hub_ref *r, char *out, size_t out_size,
               struct err *e);
/* Downloads the files of a checkpoint that conversion reads, if necessary; writes the path of their folder to out. */
int pull_checkpoint(const struct pull *p, const struct hub_ref *r, char *out, size_t out_size,
                    struct err *e);
/* Like pull_model, for local files only; CHIMERE_ENOENT if the model is missing. No network. */
int pull_local(const char *dir, const struct hub_ref *r, char *out, size_t out_size, struct err *e);

/* Like pull_local, in the cache of the hub's own client, HUB/models--OWNER--REPO. There, refs/main names the snapshot,
 * and its files are links to blobs. Read-only. */
int pull_cached(const char *hub, const struct hub_ref *r, char *out, size_t out_size,
                struct err *e);

#endif
