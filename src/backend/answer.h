/* answer.h: one answer of a model as text: engine job -> characters -> content, reasoning, tool calls.
 *
 * It hides detokenization, stop strings and parsing. Events arrive on the engine's thread, in order, and must not
 * block. Text arrives in whole characters and never contains a stop string or the start of one. The answer belongs to
 * the caller of answer_start, who frees it after on_done or answer_wait. */
#ifndef CHIMERE_BACKEND_ANSWER_H
#define CHIMERE_BACKEND_ANSWER_H

#include "engine/engine.h"
#include "text/chat/chat.h"

enum { ANSWER_MAX_STOPS = 64, ANSWER_MAX_STOP_BYTES = 1024 };

struct answer_params {
    struct job_params job;    /* data that its pointers refer to is borrowed until the end */
    const char *const *stops; /* borrowed during answer_start */
    size_t n_stop;
    /* borrowed during answer_start, its tools until the end; its on_event and arg are ignored. NULL: all text is
     * content */
    const struct chat_parse_spec *parse;
    /* A nonzero result cancels the answer. */
    int (*on_event)(void *ud, const struct chat_event *ev);
    /* Called once per token, before the events of that token; may be NULL. */
    void (*on_token)(void *ud, int32_t token, const struct sampler_probs *probs);
    void (*on_prefill)(void *ud, int32_t n_done, int32_t n_prompt);
    /* With job.prompt_probs: called for each token of the prompt; probs is NULL for the first. */
    void (*on_prompt)(void *ud, int32_t pos, const struct sampler_probs *probs);
    void (*on_done)(void *ud); /* may be NULL; the last call */
    void *ud;
};

struct answer;

/* tok is borrowed until the end. */
int answer_start(struct answer **out, struct engine *g, const struct tok *tok,
                 const struct answer_params *p, struct err *e);
void answer_cancel(struct answer *a);
void answer_wait(struct answer *a);
void answer_free(struct answer *a); /* waits until the answer has ended */

/* Valid after the end. */
enum finish answer_finish(const struct answer *a);
const struct err *answer_err(const struct answer *a);
const struct engine_stats *answer_stats(const struct answer *a);
/* the stop string that ended the answer, or NULL; view */
const char *answer_stop(const struct answer *a);
const struct chat_parser *answer_parser(const struct answer *a); /* NULL if params.parse was NULL */
/* Generated token ids so far, including the end token; a view that is valid as long as a. */
const int32_t *answer_tokens(const struct answer *a, int32_t *n);

#endif
