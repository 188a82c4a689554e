/* api_out.h: parts of responses that several APIs share. */
#ifndef CHIMERE_SERVE_API_OUT_H
#define CHIMERE_SERVE_API_OUT_H

#include "serve/api/gen.h"

void api_put_usage(struct gen *g, struct buf *out);   /* OpenAI's usage object */
void api_put_timings(struct gen *g, struct buf *out); /* ,"timings":{...} */
/* "prompt_progress":{...}, from an EVENT_PREFILL */
void api_put_progress(struct gen *g, const struct backend_event *ev, struct buf *out);
void api_put_verbose(struct gen *g, struct buf *out); /* ,"__verbose":{...} with serve --verbose */
const char *api_finish(const struct gen_choice *c);   /* stop, length, tool_calls */
void api_put_probs(struct gen *g, struct gen_choice *c, const struct backend_event *ev);
/* [{"id",...}]: the calls that a stream shows */
void api_put_calls(struct gen *g, struct gen_choice *c, struct buf *out);
/* Returns how the client declared a tool that is not a plain function (request.tool_forms), or NULL. */
const json_t *api_call_form(const struct gen *g, const char *name);
/* Writes a custom tool's text as a JSON string. */
void api_put_input(const struct gen_call *call, struct buf *out);
/* Reads a web search by the orchestrator (EVENT_NOTE "tool"). Returns false for other events. The members are views
 * into note, a reference that the caller must release. */
struct api_search {
    json_t *note;
    const char *query, *arguments; /* arguments: JSON text */
    const json_t *found;           /* [{"url", "title"}], or NULL */
    bool ok;
};
bool api_search_read(struct api_search *s, const struct backend_event *ev);
void api_put_error_frame(struct gen *g, enum http_shape shape, const char *event);

#endif
