/* native.h: the server's own endpoints: metrics, models, tokens. */
#ifndef CHIMERE_SERVE_NATIVE_H
#define CHIMERE_SERVE_NATIVE_H

#include "serve/http/http.h"

void native_metrics(struct http_request *r);
void native_models(struct http_request *r);
void native_model(struct http_request *r);
/* in api_native.c */
void native_tokenize(struct http_request *r);
void native_detokenize(struct http_request *r);
void native_template(struct http_request *r);
void native_props(struct http_request *r);
void native_slots(struct http_request *r);
void native_status(struct http_request *r);
/* in api_models.c */
void native_load(struct http_request *r);
void native_unload(struct http_request *r);
void native_feedback(struct http_request *r);
struct buf;
/* JSON list of the models that are loaded on demand */
void native_put_models(struct server *s, struct buf *out);

#endif
