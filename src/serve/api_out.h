/* api_out.h: what the APIs share in their answers. */
#ifndef CHIMERE_SERVE_API_OUT_H
#define CHIMERE_SERVE_API_OUT_H

#include "serve/gen.h"

void api_put_usage(struct gen *g, struct buf *out);   /* OpenAI's object */
void api_put_timings(struct gen *g, struct buf *out); /* ,"timings":{...} */
/* "prompt_progress":{...} of an EVENT_PREFILL */
void api_put_progress(struct gen *g, const struct backend_event *ev, struct buf *out);
void api_put_verbose(struct gen *g, struct buf *out); /* ,"__verbose":{...} with serve --verbose */
const char *api_finish(const struct gen_choice *c);   /* stop, length, tool_calls */
void api_put_probs(struct gen *g, struct gen_choice *c, const struct backend_event *ev);
/* [{"id",...}] of those that a stream shows */
void api_put_calls(struct gen *g, struct gen_choice *c, struct buf *out);
/* How the client named a tool that it did not declare as a plain function (request.tool_forms), or NULL. */
const json_t *api_call_form(const struct gen *g, const char *name);
void api_put_input(const struct gen_call *call,
                   struct buf *out); /* a custom tool's text, as JSON */
void api_put_error_frame(struct gen *g, enum http_shape shape, const char *event);

#endif
