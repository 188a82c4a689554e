/* recommend.h: the curated list of models: which fit this machine, and how fast they will run.
 *
 * The list is curated.def. Fit is arithmetic on a row's numbers against the memory that engine/plan.h would plan
 * with; speed is engine/speed.h. recommend_json times the device for about a second. Any thread. */
#ifndef CHIMERE_BACKEND_RECOMMEND_H
#define CHIMERE_BACKEND_RECOMMEND_H

#include <jansson.h>

#include "engine/speed.h"

struct curated {
    const char *name;
    const char *hub; /* "OWNER/REPO"; NULL: script/model fetches it */
    const char *type;
    uint64_t n_mb;
    const char *licence, *kind, *arch;
    int64_t n_ctx_train;
    const char *good;
    struct curated_shape {
        uint32_t n_used_m, n_routed_m; /* weights per token, in millions */
        int32_t n_expert, n_used, n_layer;
        uint64_t cache_bytes_per_tok, state_kb;
    } shape;
};

/* By short name; NULL: none. */
const struct curated *recommend_find(const char *name);
/* "hf:OWNER/REPO:TYPE" of a short name; false: no such name, or not on a hub, or out is too small. */
bool recommend_hub(const char *name, char *out, size_t out_size);

struct fit {
    bool fits;
    int64_t n_ctx;        /* longest context of one sequence, at most the model's */
    bool experts_on_host; /* some: the device's memory is too small for all */
    uint64_t need_bytes;  /* with a context of PLAN_MIN_CTX */
};
/* device_bytes 0: everything is in the host's memory. */
struct fit recommend_fit(const struct curated *m, uint64_t host_bytes, uint64_t device_bytes);
/* The first model of the list for chat that fits host_bytes and answers at a usable speed without a GPU (at most
 * 4.5 billion weights per token); NULL: none. */
const struct curated *recommend_best(uint64_t host_bytes);

/* Everything, documented in docs/recommend.md. dev is borrowed. The speed of files[0..n_file) is predicted and
 * measured: the error of the prediction on this machine. *out is a new reference. */
int recommend_json(json_t **out, struct dev *dev, const char *const *files, size_t n_file,
                   struct err *e);

#endif
