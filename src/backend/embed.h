/* embed.h: texts -> vectors.
 *
 * Encoders (bert) pool as their file says; of a causal model the hidden rows behind the last norm are
 * pooled, by their mean unless the file names another way. */
#ifndef CHIMERE_BACKEND_EMBED_H
#define CHIMERE_BACKEND_EMBED_H

#include "format/gguf.h"
#include "model/forward.h"
#include "text/tok/tok.h"

struct embed;

/* Longest text: n_ctx tokens, at most the model's own; 0: that, at most 2048. Longer ones are cut. */
int embed_open(struct embed **out, struct model *m, const struct tok *tok, int32_t n_ctx,
               struct err *e);
/* The same by libllama, for files of families that our table lacks. g: the file at path; borrowed for the call. library:
 * as llama_lib_open. */
struct embed_llama_params {
    const struct gguf *g;
    const char *path, *library;
    const struct tok *tok; /* borrowed until embed_close */
    int32_t n_ctx, n_thread;
    bool is_process; /* libllama in a process of its own */
};
int embed_open_llama(struct embed **out, const struct embed_llama_params *p, struct err *e);
void embed_close(struct embed *s);
int32_t embed_size(const struct embed *s);          /* floats of a vector */
const struct tok *embed_tok(const struct embed *s); /* its tokens; view */
uint64_t embed_hash(const struct embed *s);         /* names the model: its vectors fit together */

/* Fills out [embed_size]; n_tok: tokens read, cut: some were left off. With normalise its length is 1 (a
 * zero vector stays zero, and a text without
 * tokens gives one). CHIMERE_ENUMERIC where a value is no finite number. */
int embed_text(struct embed *s, const char *text, size_t n, bool normalise, float *out,
               int32_t *n_tok, bool *cut, struct err *e);

#endif
