/* rerank.h: how well a text answers a question, by a cross-encoder: a model that reads both together.
 *
 * A BERT file with a relevance head (bge-reranker of the BERT kind, ms-marco-MiniLM). One score a pair: a logit,
 * larger is better, comparable within one question. One thread at a time. */
#ifndef CHIMERE_BACKEND_RERANK_H
#define CHIMERE_BACKEND_RERANK_H

#include "model/forward.h"
#include "text/tok/tok.h"

struct rerank;

/* m, tok: borrowed until close. Longest pair: n_ctx tokens, at most the model's own; 0: that, at most 512.
 * CHIMERE_EUNSUPPORTED where the model has no relevance head. */
int rerank_open(struct rerank **out, struct model *m, const struct tok *tok, int32_t n_ctx,
                struct err *e);
void rerank_close(struct rerank *r);
/* Of a pair that is too long the text is cut, the question at half of the room. CHIMERE_ENUMERIC where the
 * score is no finite number. */
int rerank_score(struct rerank *r, const char *question, size_t n_question, const char *text,
                 size_t n_text, float *score, struct err *e);
int32_t rerank_n_tok(const struct rerank *r); /* that the last pair took */

#endif
