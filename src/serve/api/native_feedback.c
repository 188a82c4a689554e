/* native_feedback.c: POST /v1/feedback: a user's rating of an answer. */
#include <string.h>

#include "odo/odo.h"
#include "serve/api/api.h"
#include "serve/harvest.h"
#include "serve/http/http_impl.h"
#include "serve/api/native.h"

enum { MAX_COMMENT = 4096 };

/* {"answer": the header X-Odo-Answer or the answer's id, "score": 1..5 or "rating": "up" | "down", "comment"?} */
static int read_feedback(const json_t *q, const char **answer, int32_t *score, const char **comment,
                         struct err *e) {
    const char *key;
    json_t *v;
    *answer = *comment = NULL;
    *score = 0;
    json_object_foreach((json_t *)q, key, v) {
        const char *text = json_string_value(v);
        if (!strcmp(key, "answer")) {
            *answer = text;
        } else if (!strcmp(key, "comment")) {
            if (!(*comment = text) || json_string_length(v) > MAX_COMMENT)
                return err_set(e, CHIMERE_EINVAL, "comment: expected a text of at most %d bytes",
                               MAX_COMMENT);
        } else if (!strcmp(key, "score")) {
            json_int_t n = json_integer_value(v);
            if (!json_is_integer(v) || n < 1 || n > 5)
                return err_set(e, CHIMERE_EINVAL, "score: expected a whole number of 1 to 5");
            *score = (int32_t)n;
        } else if (!strcmp(key, "rating")) {
            if (!text || (strcmp(text, "up") != 0 && strcmp(text, "down") != 0))
                return err_set(e, CHIMERE_EINVAL, "rating: expected \"up\" or \"down\"");
            *score = strcmp(text, "up") ? 1 : 5;
        } else {
            return err_set(e, CHIMERE_EUNSUPPORTED, "%.80s: unknown field", key);
        }
    }
    if (!*answer)
        return err_set(e, CHIMERE_EINVAL,
                       "answer: expected the header X-Odo-Answer, or the answer's id");
    if (!*score) return err_set(e, CHIMERE_EINVAL, "score: expected 1 to 5, or rating up or down");
    return 0;
}

/* The answer is from the orchestrator, or was kept for nightly training. */
static int put_feedback(struct server *s, const char *answer, int32_t score, const char *comment,
                        struct err *e) {
    int rc = CHIMERE_ENOENT;
    if (!s->p.odo && !s->harvest)
        return err_set(
            e, CHIMERE_EUNSUPPORTED,
            "answer: this server has no orchestrator (--odo) and keeps no answers (--learn)");
    if (s->p.odo) rc = odo_feedback(s->p.odo, answer, score, comment, e);
    if (rc == CHIMERE_ENOENT && s->harvest)
        rc = harvest_feedback(s->harvest, answer, score, comment, e);
    return rc;
}

void native_feedback(struct http_request *r) {
    struct err e = {0};
    json_t *q = api_json(r);
    if (!q) return;
    const char *answer, *comment;
    int32_t score;
    int rc = read_feedback(q, &answer, &score, &comment, &e);
    if (!rc) rc = put_feedback(http_server(r), answer, score, comment, &e);
    if (rc == CHIMERE_ENOENT)
        err_hint(&e, "answers are kept where the pipeline says quality.score, or the server "
                     "--learn, a moment after their end");
    json_decref(q);
    if (rc) {
        http_fail(r, &e);
        return;
    }
    struct buf out;
    buf_init(&out, 256);
    buf_printf(&out, "{\"object\":\"feedback\",\"score\":%d}", score);
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}
