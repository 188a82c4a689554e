/* recommend.h: the curated list of models: which of them fit this machine, and how fast they will run.
 *
 * The list is curated.def. Whether a model fits is computed from the numbers in its row, for the memory that
 * engine/plan.h would use. The speed is from engine/speed.h. recommend_json times the device for about a second. Any
 * thread may call this. */
#ifndef CHIMERE_BACKEND_CATALOG_RECOMMEND_H
#define CHIMERE_BACKEND_CATALOG_RECOMMEND_H

#include <jansson.h>

#include "engine/speed.h"

struct curated {
    const char *name;
    const char *hub; /* "OWNER/REPO"; NULL: script/model downloads it */
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

/* Finds a model by short name; NULL: none. */
const struct curated *recommend_find(const char *name);
/* Writes "hf:OWNER/REPO:TYPE" for a short name. Returns false if there is no such name, the model is not on a hub, or
 * out is too small. */
bool recommend_hub(const char *name, char *out, size_t out_size);

struct fit {
    bool fits;
    int64_t n_ctx;        /* longest context of one sequence, at most the model's */
    bool experts_on_host; /* some of the experts: device memory is too small for all */
    uint64_t need_bytes;  /* memory for a context of PLAN_MIN_CTX */
};
/* device_bytes 0: all weights are in host memory. */
struct fit recommend_fit(const struct curated *m, uint64_t host_bytes, uint64_t device_bytes);
/* Returns the first chat model of the list that fits host_bytes and is fast enough without a GPU (at most 4.5 billion
 * weights per token); NULL: none. */
const struct curated *recommend_best(uint64_t host_bytes);

/* Writes the JSON of docs/recommend.md. dev is borrowed. For files[0..n_file) the speed is both predicted and measured,
 * which shows the error of the prediction on this machine. *out is a new reference. */
int recommend_json(json_t **out, struct dev *dev, const char *const *files, size_t n_file,
                   struct err *e);

#endif
