/* routing.h: which experts each token of a stream uses: recorded from a model, read from a file, or generated.
 *
 * A routing replaces the choice of a model's routers (experts.h), so that a model with random weights reads experts
 * like a trained one. Immutable once made; any thread. Files are untrusted: every count is checked against the size.
 * The format is in docs/tiers.md. A writer is used by one thread. */
#ifndef CHIMERE_MODEL_EXPERTS_ROUTING_H
#define CHIMERE_MODEL_EXPERTS_ROUTING_H

#include "base/err.h"
#include "model/arch/arch.h"

enum {
    ROUTING_MAX_USED = 64,
    ROUTING_GENERATED = 4096, /* tokens of a generated stream, which then repeats */
};

struct routing;

struct routing_shape {
    int32_t n_mixture; /* layers with experts */
    int32_t n_expert, n_used;
};
struct routing_shape routing_shape_of(const struct hparams *hp); /* n_mixture 0: no experts */

/* name: "trace-like", or a file that matches the shape. */
int routing_open(struct routing **out, const char *name, const struct routing_shape *s,
                 uint64_t seed, struct err *e);
/* A stream of n_tok tokens with the reuse distances of trained routers: 45 % of the choices are those of the
 * previous token, 20 % were last used 2 to 4 tokens ago, 15 % 5 to 16. The others follow Zipf's law with exponent
 * 0.6 over an order of the experts that drifts. */
int routing_generate(struct routing **out, const struct routing_shape *s, int32_t n_tok,
                     uint64_t seed, struct err *e);
int routing_read(struct routing **out, const char *path, struct err *e);
/* Parses the bytes of a file; name is for error messages. */
int routing_parse(struct routing **out, const char *bytes, size_t n, const char *name,
                  struct err *e);
void routing_free(struct routing *r);

const struct routing_shape *routing_shape(const struct routing *r);
int64_t routing_n_tok(const struct routing *r);
/* [n_used] experts of token t, for any t >= 0 (the stream repeats), in layer `mixture` of the layers with experts. */
const uint16_t *routing_at(const struct routing *r, int32_t mixture, int64_t t);

/* Batches are written layer by layer; routing_put with mixture 0 starts a batch. Errors are sticky and are returned
 * by routing_writer_close, which frees the writer in any case. The file appears only on success. */
struct routing_writer;
int routing_writer_open(struct routing_writer **out, const char *path,
                        const struct routing_shape *s, struct err *e);
void routing_put(struct routing_writer *w, int32_t mixture, const int32_t *ids, int32_t n_tok);
int routing_writer_close(struct routing_writer *w, struct err *e);
void routing_writer_abort(struct routing_writer *w);

#endif
