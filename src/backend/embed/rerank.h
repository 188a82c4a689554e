/* rerank.h: scores how relevant a text is to a question, with a cross-encoder, a model that reads both together.
 *
 * Supported are BERT files with a relevance head (bge-reranker, ms-marco-MiniLM), and decoders that answer "yes" or
 * "no" (Qwen3-Reranker). The score of a pair is a logit, for decoders the difference of the two answers' logits: larger
 * is better, and scores of one question are comparable. One thread at a time. */
#ifndef CHIMERE_BACKEND_EMBED_RERANK_H
#define CHIMERE_BACKEND_EMBED_RERANK_H

#include "model/forward.h"
#include "text/tok/tok.h"

struct rerank;

/* m and tok are borrowed until close. Longest pair: n_ctx tokens, at most the model's limit; 0: the model's limit, at
 * most 512, for decoders 2048 tokens with their instructions. CHIMERE_EUNSUPPORTED: the model is no reranker. */
int rerank_open(struct rerank **out, struct model *m, const struct tok *tok, int32_t n_ctx,
                struct err *e);
void rerank_close(struct rerank *r);
/* If a pair is too long, the text is cut, and the question is cut to half of the space. CHIMERE_ENUMERIC: the score is
 * not finite. */
int rerank_score(struct rerank *r, const char *question, size_t n_question, const char *text,
                 size_t n_text, float *score, struct err *e);
int32_t rerank_n_tok(const struct rerank *r); /* tokens of the last pair */

#endif
