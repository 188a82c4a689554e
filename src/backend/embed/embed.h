/* embed.h: computes vectors from texts.
 *
 * Encoders (BERT) pool as their file specifies. For causal models, the hidden rows after the last norm are pooled, by
 * their mean unless the file specifies another way. */
#ifndef CHIMERE_BACKEND_EMBED_EMBED_H
#define CHIMERE_BACKEND_EMBED_EMBED_H

#include "format/gguf.h"
#include "model/forward.h"
#include "text/tok/tok.h"

struct embed;

/* Longest text: n_ctx tokens, at most the model's limit; 0: the model's limit, at most 2048. Longer texts are cut. */
int embed_open(struct embed **out, struct model *m, const struct tok *tok, int32_t n_ctx,
               struct err *e);
/* Like embed_open, but libllama runs the model, for architectures that our table lacks. g: the file at path; borrowed
 * for the call. library: as in llama_lib_open. */
struct embed_llama_params {
    const struct gguf *g;
    const char *path, *library;
    const struct tok *tok; /* borrowed until embed_close */
    int32_t n_ctx, n_thread;
    bool is_process; /* libllama runs in a separate process */
};
int embed_open_llama(struct embed **out, const struct embed_llama_params *p, struct err *e);
void embed_close(struct embed *s);
int32_t embed_size(const struct embed *s);          /* floats of a vector */
const struct tok *embed_tok(const struct embed *s); /* its tokenizer; view */
/* identifies the model: only vectors with the same hash are comparable */
uint64_t embed_hash(const struct embed *s);

/* Fills out [embed_size]. *n_tok: tokens read; *cut: the text was too long. With normalise, the vector has length 1; a
 * zero vector stays zero, and a text without tokens gives one. CHIMERE_ENUMERIC: a value is not finite. */
int embed_text(struct embed *s, const char *text, size_t n, bool normalise, float *out,
               int32_t *n_tok, bool *cut, struct err *e);

#endif
