/* api_vectors.c: /v1/embeddings with the model of --embedding-model, and /v1/rerank with that of --rerank-model. The
 * relevance is the cross-encoder's output as a probability; without a cross-encoder it is the cosine of two vectors.
 * Texts are evaluated one after another, under a lock, in a forward pass that is separate from the engine's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "backend/embed/embed.h"
#include "backend/embed/rerank.h"
#include "serve/api/api.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"

enum { MAX_TEXTS = 2048, MAX_OUT = 256 << 20 };

struct vectors {
    struct server *s;
    const char *name;      /* view: the model that computes the response */
    struct rerank *rerank; /* borrowed: the cross-encoder; NULL: use vectors */
    float *v;              /* owned [n_embd] */
    int32_t size;
    int64_t n_tok;
};

static int check_names(const json_t *q, const char *const *names, struct err *e) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)q, key, v) {
        const char *const *n = names;
        while (*n && strcmp(*n, key) != 0) n++;
        if (!*n) return err_set(e, CHIMERE_EUNSUPPORTED, "%.80s: unknown field", key);
    }
    return 0;
}

static bool is_named(const struct serve_params *p, const char *want, const char *name) {
    return !want || strcmp(want, name) == 0 || catalog_is_alias(p->catalog, want);
}

/* Chooses the model: for pairs the cross-encoder, unless the request names the embedding model. */
static int begin(struct http_request *r, const json_t *q, bool pairs, struct vectors *x,
                 struct err *e) {
    *x = (struct vectors){.s = http_server(r)};
    const struct serve_params *p = &x->s->p;
    const char *want = json_string_value(json_object_get(q, "model"));
    if (pairs && p->rerank && is_named(p, want, p->rerank_name)) {
        x->rerank = p->rerank;
        x->name = p->rerank_name;
        return 0;
    }
    const char *other = p->embed ? p->embed_name : pairs && p->rerank ? p->rerank_name : NULL;
    if (!other) {
        err_set(e, CHIMERE_EUNSUPPORTED, "model: this server has no embedding model");
        err_hint(e, "start it with --embedding-model FILE");
        return CHIMERE_EUNSUPPORTED;
    }
    if (!p->embed || !is_named(p, want, p->embed_name)) {
        err_set(e, CHIMERE_ENOENT, "model: there is no embedding model '%.80s'", want);
        err_hint(e, "this server has '%.80s'", other);
        return CHIMERE_ENOENT;
    }
    x->name = p->embed_name;
    x->size = embed_size(p->embed);
    x->v = mem_alloc_array((size_t)x->size, sizeof *x->v);
    return x->v ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

/* Converts a list of token ids and texts to one text; *out is new. */
static int detokenize(const struct tok *tok, const json_t *ids, const char *where, json_t **out,
                      struct err *e) {
    struct tok_stream stream;
    struct buf text;
    size_t i;
    json_t *v;
    int rc = 0;
    char *piece = mem_alloc(3 * tok_max_piece_bytes(tok) + 64);
    *out = NULL;
    if (!piece) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    tok_stream_init(&stream, tok, false);
    buf_init(&text, MAX_OUT);
    json_array_foreach(ids, i, v) {
        json_int_t id = json_integer_value(v);
        if (json_is_string(v)) {
            buf_put(&text, piece, tok_stream_flush(&stream, piece));
            buf_put(&text, json_string_value(v), json_string_length(v));
            continue;
        }
        if (!json_is_integer(v) || id < 0 || id >= tok_n_vocab(tok)) {
            rc = err_set(e, CHIMERE_EINVAL, "%s: expected token ids below %u", where,
                         tok_n_vocab(tok));
            break;
        }
        buf_put(&text, piece, tok_stream_push(&stream, (int32_t)id, piece));
    }
    buf_put(&text, piece, tok_stream_flush(&stream, piece));
    if (!rc && !(*out = json_stringn(text.n ? text.p : "", text.n)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    buf_fini(&text);
    mem_free(piece);
    return rc;
}

static int one_text(struct vectors *x, const json_t *text, const char *where, struct err *e) {
    int32_t n_tok = 0;
    bool cut = false;
    if (!json_is_string(text)) return err_set(e, CHIMERE_EINVAL, "%s: expected a text", where);
    pthread_mutex_lock(&x->s->embed_lock);
    int rc = embed_text(x->s->p.embed, json_string_value(text), json_string_length(text), true,
                        x->v, &n_tok, &cut, e);
    pthread_mutex_unlock(&x->s->embed_lock);
    x->n_tok += n_tok;
    if (!rc && cut)
        rc = err_set(e, CHIMERE_ELIMIT, "%s: too large, this model's context has %d tokens", where,
                     n_tok);
    return rc;
}

/* Embeds a text, or a list of token ids and texts. */
static int one(struct vectors *x, const json_t *text, const char *where, struct err *e) {
    json_t *own;
    if (!json_is_array(text)) return one_text(x, text, where, e);
    int rc = detokenize(embed_tok(x->s->p.embed), text, where, &own, e);
    if (!rc) rc = one_text(x, own, where, e);
    json_decref(own);
    return rc;
}

/* Keeps the first n numbers and scales the vector to length 1. Models that are trained for it (Matryoshka) keep most of
 * their accuracy. */
static void shorten(struct vectors *x, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x->v[i] * (double)x->v[i];
    for (int32_t i = 0; i < n && sum > 0; i++) x->v[i] /= (float)sqrt(sum);
    x->size = n;
}

static void put_base64(struct buf *out, const unsigned char *p, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t v = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                     (left > 2 ? p[i + 2] : 0);
        for (unsigned k = 0; k < 4; k++)
            buf_putc(out, k <= left ? digits[v >> (18 - 6 * k) & 63] : '=');
    }
}

static void put_vector(const struct vectors *x, bool base64, struct buf *out) {
    if (!base64) {
        for (int32_t i = 0; i < x->size; i++)
            buf_printf(out, "%s%.9g", i ? "," : "[", (double)x->v[i]);
        buf_putc(out, ']');
        return;
    }
    buf_putc(out, '"');
    /* floats in the machine's byte order, which is little-endian */
    put_base64(out, (const unsigned char *)x->v, (size_t)x->size * sizeof *x->v);
    buf_putc(out, '"');
}

int api_embed(struct http_request *r, const json_t *q, struct buf *out, struct err *e) {
    static const char *const names[] = {"model",    "input",      "encoding_format", "dimensions",
                                        "user",     "input_type", "client_metadata", "keep_alive",
                                        "truncate", NULL};
    struct vectors x = {.v = NULL};
    const json_t *input = json_object_get(q, "input"), *dim = json_object_get(q, "dimensions");
    const json_t *format = json_object_get(q, "encoding_format");
    bool is_list = json_is_array(input) && !json_is_integer(json_array_get(input, 0));
    size_t n = is_list ? json_array_size(input) : 1;
    int rc = check_names(q, names, e);
    if (!rc) rc = begin(r, q, false, &x, e);
    int32_t size = x.size;
    bool base64 = json_is_string(format) && strcmp(json_string_value(format), "base64") == 0;
    if (!rc && format && !json_is_null(format) && !base64 &&
        (!json_is_string(format) || strcmp(json_string_value(format), "float") != 0))
        rc = err_set(e, CHIMERE_EINVAL, "encoding_format: expected float or base64");
    if (!rc && dim && !json_is_null(dim) &&
        (!json_is_integer(dim) || json_integer_value(dim) < 1 || json_integer_value(dim) > x.size))
        rc = err_set(e, CHIMERE_EUNSUPPORTED, "dimensions: expected 1 to %d", x.size);
    if (!rc && (!n || n > MAX_TEXTS))
        rc = err_set(e, CHIMERE_ELIMIT, "input: expected 1 to %d texts", MAX_TEXTS);
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; !rc && i < n; i++) {
        x.size = size;
        rc = one(&x, is_list ? json_array_get(input, i) : input, "input", e);
        if (rc) break;
        if (dim && !json_is_null(dim)) shorten(&x, (int32_t)json_integer_value(dim));
        buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "",
                   i);
        put_vector(&x, base64, out);
        buf_putc(out, '}');
    }
    buf_puts(out, "],\"model\":");
    json_out_string(out, x.name);
    buf_printf(out, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}",
               (long long)x.n_tok, (long long)x.n_tok);
    mem_free(x.v);
    return rc;
}

/* ---- rerank ---- */

struct rank {
    size_t index;
    double score;
};

static int by_score(const void *a, const void *b) {
    const struct rank *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->index > y->index ? 1 : -1;
}

static const json_t *text_of(const json_t *document) {
    return json_is_object(document) ? json_object_get(document, "text") : document;
}

static int score_pairs(struct vectors *x, const json_t *query, const json_t *documents,
                       struct rank *ranks, struct err *e) {
    size_t i;
    json_t *d;
    int rc = json_is_string(query) ? 0 : err_set(e, CHIMERE_EINVAL, "query: expected a text");
    json_array_foreach(documents, i, d) {
        const json_t *text = text_of(d);
        float score = 0;
        if (!rc && !json_is_string(text))
            rc = err_set(e, CHIMERE_EINVAL, "documents: expected texts");
        if (rc) break;
        pthread_mutex_lock(&x->s->embed_lock);
        rc = rerank_score(x->rerank, json_string_value(query), json_string_length(query),
                          json_string_value(text), json_string_length(text), &score, e);
        if (!rc) x->n_tok += rerank_n_tok(x->rerank);
        pthread_mutex_unlock(&x->s->embed_lock);
        ranks[i] = (struct rank){i, 1 / (1 + exp(-(double)score))};
    }
    return rc;
}

static int score_all(struct vectors *x, const json_t *query, const json_t *documents,
                     struct rank *ranks, struct err *e) {
    size_t i;
    json_t *d;
    if (x->rerank) return score_pairs(x, query, documents, ranks, e);
    float *asked = mem_alloc_array((size_t)x->size, sizeof *asked);
    int rc = asked ? one(x, query, "query", e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) memcpy(asked, x->v, (size_t)x->size * sizeof *asked);
    json_array_foreach(documents, i, d) {
        if (!rc) rc = one(x, text_of(d), "documents", e);
        if (rc) break;
        ranks[i] = (struct rank){i, 0};
        for (int32_t k = 0; k < x->size; k++) ranks[i].score += (double)asked[k] * (double)x->v[k];
    }
    mem_free(asked);
    return rc;
}

static int rerank(struct http_request *r, const json_t *q, struct buf *out, struct err *e) {
    static const char *const names[] = {
        "model",      "query",       "documents", "top_n", "return_documents", "user", "texts",
        "raw_scores", "return_text", "truncate",  NULL};
    struct vectors x = {.v = NULL};
    const json_t *texts = json_object_get(q, "texts"), *top = json_object_get(q, "top_n");
    const json_t *documents = texts ? texts : json_object_get(q, "documents");
    /* the form of TEI (text-embeddings-inference) */
    const char *score = texts ? "score" : "relevance_score";
    bool shown = json_is_true(json_object_get(q, texts ? "return_text" : "return_documents"));
    size_t n = json_array_size(documents), n_top = n;
    struct rank *ranks = NULL;
    int rc = check_names(q, names, e);
    if (!rc) rc = begin(r, q, true, &x, e);
    if (!rc && (!n || n > MAX_TEXTS))
        rc = err_set(e, CHIMERE_EINVAL, "documents: expected a list of 1 to %d texts", MAX_TEXTS);
    if (!rc && top && !json_is_null(top)) {
        if (!json_is_integer(top) || json_integer_value(top) < 1)
            rc = err_set(e, CHIMERE_EINVAL, "top_n: expected 1 or more");
        else if ((size_t)json_integer_value(top) < n) n_top = (size_t)json_integer_value(top);
    }
    if (!rc && !(ranks = mem_alloc_array(n, sizeof *ranks)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = score_all(&x, json_object_get(q, "query"), documents, ranks, e);
    if (!rc) qsort(ranks, n, sizeof *ranks, by_score);
    buf_puts(out, texts ? "[" : "{\"object\":\"list\",\"results\":[");
    for (size_t i = 0; !rc && i < n_top; i++) {
        buf_printf(out, "%s{\"index\":%zu,\"%s\":%.6f", i ? "," : "", ranks[i].index, score,
                   ranks[i].score);
        if (shown) {
            buf_puts(out, texts ? ",\"text\":" : ",\"document\":{\"text\":");
            json_out_value(out, text_of(json_array_get(documents, ranks[i].index)));
            if (!texts) buf_putc(out, '}');
        }
        buf_putc(out, '}');
    }
    buf_puts(out, texts ? "]" : "],\"model\":");
    if (!texts) json_out_string(out, x.name);
    if (!texts)
        buf_printf(out, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}",
                   (long long)x.n_tok, (long long)x.n_tok);
    mem_free(ranks);
    mem_free(x.v);
    return rc;
}

static void answer(struct http_request *r,
                   int (*fn)(struct http_request *, const json_t *, struct buf *, struct err *)) {
    struct err e = {0};
    struct buf out;
    json_t *q = api_json(r);
    if (!q) return;
    buf_init(&out, MAX_OUT);
    if (fn(r, q, &out, &e)) http_fail(r, &e);
    else http_reply(r, 200, NULL, &out);
    buf_fini(&out);
    json_decref(q);
}

void api_embeddings(struct http_request *r) { answer(r, api_embed); }
void api_rerank(struct http_request *r) { answer(r, rerank); }
