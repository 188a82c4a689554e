#include "backend/embed/remote_embed.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "net/fetch.h"
#include "backend/remote.h"
#include "text/chat/chat.h"

enum { MAX_ANSWER = 4 << 20, HALVES = 2 };

struct remote_embed {
    char *url, *key, *name; /* owned; key may be NULL */
    int32_t n;
};

/* Reads the first vector of a response into v [most]. Returns its length, or CHIMERE_E*. */
static int32_t read_vector(const struct buf *body, float *v, int32_t most, struct err *e) {
    json_t *o = chat_json_object(body->n ? body->p : "", body->n, "embeddings", e), *x;
    if (!o) return e->code ? e->code : CHIMERE_EFORMAT;
    json_t *list = json_object_get(json_array_get(json_object_get(o, "data"), 0), "embedding");
    size_t i, n = json_array_size(list);
    double sum = 0;
    int32_t rc = n && n <= (size_t)most
                     ? (int32_t)n
                     : err_set(e, CHIMERE_EFORMAT,
                               "embeddings: expected data[0].embedding of 1 to %d numbers, got %zu",
                               most, n);
    json_array_foreach(list, i, x) {
        double value = json_number_value(x);
        if (rc <= 0) break;
        if (!json_is_number(x) || !isfinite((float)value))
            rc = err_set(e, CHIMERE_EFORMAT, "embeddings: expected finite numbers");
        else v[i] = (float)value, sum += value * value;
    }
    for (int32_t k = 0; k < rc && sum > 0; ++k) v[k] = (float)((double)v[k] / sqrt(sum));
    json_decref(o);
    return rc;
}

static int32_t request(struct remote_embed *r, const char *text, size_t n, float *v, int32_t most,
                       struct err *e) {
    json_t *o = json_pack("{s:s, s:s#}", "model", r->name, "input", text, (int)n);
    char *body = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!body) return err_set(e, CHIMERE_EINVAL, "embeddings: expected valid UTF-8");
    const char *headers[] = {"Content-Type: application/json", NULL};
    struct fetch_request q = {.url = r->url,
                              .body = body,
                              .n_body = strlen(body),
                              .headers = headers,
                              .bearer = r->key,
                              .max_bytes = MAX_ANSWER,
                              .total_ms = REMOTE_EMBED_MS,
                              .max_redirects = -1};
    struct fetch_reply reply;
    int32_t rc = fetch_ok(&q, &reply, e);
    if (!rc) rc = read_vector(&reply.body, v, most, e);
    fetch_reply_fini(&reply);
    mem_free(body);
    return rc;
}

int remote_embed_text(struct remote_embed *r, const char *text, size_t n, float *out,
                      struct err *e) {
    int32_t rc = CHIMERE_EINVAL;
    for (int i = 0; i <= HALVES && rc == CHIMERE_EINVAL; ++i) {
        rc = request(r, text, n, out, r->n, e);
        n /= 2;
        while (n && ((unsigned char)text[n] & 0xC0) == 0x80) --n;
    }
    if (rc < 0) return rc;
    return rc == r->n ? 0
                      : err_set(e, CHIMERE_EFORMAT,
                                "embeddings: expected %d values as before, got %d", r->n, rc);
}

int remote_embed_open(struct remote_embed **out, const char *url, const char *key, const char *name,
                      struct err *e) {
    *out = NULL;
    struct remote_embed *r = mem_zalloc(sizeof *r);
    float *v = mem_alloc_array(REMOTE_EMBED_MAX, sizeof *v);
    char *full = NULL;
    int32_t rc = backend_remote_url(&full, url, "/embeddings", e);
    if (r) r->url = full, r->name = mem_strdup(name), r->key = key ? mem_strdup(key) : NULL;
    else mem_free(full);
    if (!rc && (!r || !v || !r->name || (key && !r->key)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = request(r, "length", 6, v, REMOTE_EMBED_MAX, e);
    mem_free(v);
    if (rc < 0) {
        remote_embed_close(r);
        return rc;
    }
    r->n = rc;
    *out = r;
    return 0;
}

void remote_embed_close(struct remote_embed *r) {
    if (!r) return;
    if (r->key) memset(r->key, 0, strlen(r->key));
    mem_free(r->key);
    mem_free(r->name);
    mem_free(r->url);
    mem_free(r);
}

int32_t remote_embed_size(const struct remote_embed *r) { return r->n; }

uint64_t remote_embed_hash(const struct remote_embed *r) {
    return hash_mix(hash_fnv1a(r->name, strlen(r->name)) + (uint64_t)r->n);
}
