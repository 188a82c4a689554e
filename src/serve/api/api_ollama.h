/* api_ollama.h: handlers of Ollama's API. */
#ifndef CHIMERE_SERVE_API_OLLAMA_H
#define CHIMERE_SERVE_API_OLLAMA_H

#include "serve/http/http.h"

void api_ollama_chat(struct http_request *r);
void api_ollama_generate(struct http_request *r);
void api_ollama_embed(struct http_request *r);
void api_ollama_tags(struct http_request *r);
void api_ollama_ps(struct http_request *r);
void api_ollama_version(struct http_request *r);
void api_ollama_show(struct http_request *r);
void api_ollama_pull(struct http_request *r);
void api_ollama_delete(struct http_request *r);

#endif
