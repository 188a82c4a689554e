/* api_llama.h: the routes that llama-server has in addition to OpenAI's. */
#ifndef CHIMERE_SERVE_API_LLAMA_H
#define CHIMERE_SERVE_API_LLAMA_H

#include <jansson.h>

#include "backend/request.h"
#include "base/buf.h"
#include "base/err.h"
#include "serve/http/http.h"
#include "text/tok/tok.h"

void api_completion(struct http_request *r);
void api_infill(struct http_request *r);
void api_count_input(struct http_request *r);
void api_count_chat(struct http_request *r);
void api_adapters(struct http_request *r);

/* Writes the sampling settings of a as a JSON object with llama-server's names; n_top: log-probabilities per token. */
void api_llama_settings(const struct request *a, int32_t n_top, bool stream, struct buf *out);

/* Builds the fill-in-the-middle prompt: the model writes the text between before + more and after. files come first;
 * NULL: none. *out: token ids, new. */
int api_llama_fill(const struct tok *tok, const json_t *files, const json_t *before,
                   const json_t *more, const json_t *after, json_t **out, struct err *e);

#endif
