/* api.h: the handlers of the routes. What their responses share is in api_out.h. */
#ifndef CHIMERE_SERVE_API_H
#define CHIMERE_SERVE_API_H

#include "serve/fields/fields.h"
#include "serve/api/gen.h"

/* Handlers: api_openai.c api_text.c api_responses.c api_anthropic.c api_vectors.c */
void api_chat(struct http_request *r);
void api_text(struct http_request *r);
void api_responses(struct http_request *r);
void api_response_get(struct http_request *r);
void api_response_delete(struct http_request *r);
void api_messages(struct http_request *r);
void api_count_tokens(struct http_request *r);
void api_embeddings(struct http_request *r);
void api_rerank(struct http_request *r);
void api_recommend(struct http_request *r);

/* Reads the body into g->request: model, fields, session header. Returns false if an error was sent. */
bool api_read(struct gen *g, enum fields_api api, json_t **request);
/* Like api_read, for a request that another handler has built. v still belongs to the caller. */
bool api_take(struct gen *g, enum fields_api api, json_t *v);
/* Appends OpenAI's embeddings response. */
int api_embed(struct http_request *r, const json_t *q, struct buf *out, struct err *e);
/* Reads the body as a JSON object. Returns NULL if an error was sent. */
json_t *api_json(struct http_request *r);
/* Answers with o, whose reference it takes, or with the error of rc; out of memory if o is NULL and rc 0. */
void api_answer(struct http_request *r, int rc, json_t *o, const struct err *e);

#endif
