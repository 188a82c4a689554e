/* resume.h: streamed answers that outlive their connection: a page that is loaded again reads on where it was.
 *
 * A request whose header says so is kept: its frames are also collected here, within a budget, and its generation
 * continues if the client leaves. GET replays the frames and follows; DELETE stops the generation. An answer is found
 * by the owner who asked, until RESUME_S after its end. Any thread; the lock is never held while a generation is
 * stopped. */
#ifndef CHIMERE_SERVE_RESUME_H
#define CHIMERE_SERVE_RESUME_H

#include "serve/http.h"

enum { RESUME_MAX = 32, RESUME_MAX_BYTES = 4 << 20, RESUME_MAX_READERS = 8, RESUME_S = 120 };

struct resume; /* of the server */
struct resume_answer;

struct resume *resume_new(void);    /* NULL: out of memory */
void resume_free(struct resume *t); /* after the last request */

/* NULL: the request does not ask for it, or there is no room: it is answered as any other. */
struct resume_answer *resume_begin(struct http_request *r);
/* False: it is no longer kept. */
bool resume_put(struct http_request *r, struct resume_answer *a, const char *data, size_t n);
bool resume_is_kept(struct http_request *r, const struct resume_answer *a);
void resume_end(struct http_request *r, struct resume_answer *a);

void resume_follow(struct http_request *r);
void resume_stop(struct http_request *r);

#endif
