/* resume.h: streamed answers that continue without their connection, so that a reloaded page can resume reading.
 *
 * A request asks for this in a header. Its frames are then also collected here, within a budget, and its generation
 * continues if the client leaves. GET replays the frames and then follows the stream; DELETE stops the generation. Only
 * the owner who made the request finds its answer, until RESUME_S after its end. Any thread may call this; the lock is
 * never held while a generation is being stopped. */
#ifndef CHIMERE_SERVE_RESUME_H
#define CHIMERE_SERVE_RESUME_H

#include "serve/http/http.h"

enum { RESUME_MAX = 32, RESUME_MAX_BYTES = 4 << 20, RESUME_MAX_READERS = 8, RESUME_S = 120 };

struct resume; /* one per server */
struct resume_answer;

struct resume *resume_new(void);    /* NULL: out of memory */
void resume_free(struct resume *t); /* call after the last request */

/* Returns NULL if the request does not ask for it or there is no room; it is then answered normally. */
struct resume_answer *resume_begin(struct http_request *r);
/* Returns false if the answer is no longer kept. */
bool resume_put(struct http_request *r, struct resume_answer *a, const char *data, size_t n);
bool resume_is_kept(struct http_request *r, const struct resume_answer *a);
void resume_end(struct http_request *r, struct resume_answer *a);

void resume_follow(struct http_request *r);
void resume_stop(struct http_request *r);

#endif
