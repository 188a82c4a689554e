/* native_feedback.c: POST /v1/feedback: a user's rating of an answer. */
#include <string.h>

#include "learn/data/collect.h"
#include "odo/odo.h"
#include "serve/api/api.h"
#include "serve/harvest.h"
#include "serve/http/http_impl.h"
#include "serve/api/native.h"

enum { MAX_COMMENT = 4096 };

struct feedback { /* views of the request */
    const char *answer, *comment, *correction;
    int32_t score;
};

/* {"answer": the header X-Odo-Answer or the answer's id, "score": 1..5 or "rating": "up" | "down", "comment"?,
 * "correction"?: what the answer should have been} */
static int read_feedback(const json_t *q, struct feedback *f, struct err *e) {
    const char *key;
    json_t *v;
    *f = (struct feedback){.score = 0};
    json_object_foreach((json_t *)q, key, v) {
        const char *text = json_string_value(v);
        if (!strcmp(key, "answer")) {
            f->answer = text;
        } else if (!strcmp(key, "comment")) {
            if (!(f->comment = text) || json_string_length(v) > MAX_COMMENT)
                return err_set(e, CHIMERE_EINVAL, "comment: expected a text of at most %d bytes",
                               MAX_COMMENT);
        } else if (!strcmp(key, "correction")) {
            if (!(f->correction = text) || !*text || json_string_length(v) > COLLECT_MAX_TEXT)
                return err_set(e, CHIMERE_EINVAL, "correction: expected a text of at most %d bytes",
                               COLLECT_MAX_TEXT);
        } else if (!strcmp(key, "score")) {
            json_int_t n = json_integer_value(v);
            if (!json_is_integer(v) || n < 1 || n > 5)
                return err_set(e, CHIMERE_EINVAL, "score: expected a whole number of 1 to 5");
            f->score = (int32_t)n;
        } else if (!strcmp(key, "rating")) {
            if (!text || (strcmp(text, "up") != 0 && strcmp(text, "down") != 0))
                return err_set(e, CHIMERE_EINVAL, "rating: expected \"up\" or \"down\"");
            f->score = strcmp(text, "up") ? 1 : 5;
        } else {
            return err_set(e, CHIMERE_EUNSUPPORTED, "%.80s: unknown field", key);
        }
    }
    if (!f->answer)
        return err_set(e, CHIMERE_EINVAL,
                       "answer: expected the header X-Odo-Answer, or the answer's id");
    if (!f->score && f->correction) f->score = 1; /* the answer was not right */
    if (!f->score)
        return err_set(e, CHIMERE_EINVAL, "score: expected 1 to 5, or rating up or down");
    return 0;
}

/* The answer is from the orchestrator, or was kept for nightly training. */
static int put_feedback(struct server *s, const struct feedback *f, struct err *e) {
    int rc = CHIMERE_ENOENT;
    if (!s->p.odo && !s->harvest)
        return err_set(
            e, CHIMERE_EUNSUPPORTED,
            "answer: this server has no orchestrator (--odo) and keeps no answers (--learn)");
    if (f->correction && !s->harvest)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "correction: this server keeps no answers (--learn)");
    if (s->p.odo) rc = odo_feedback(s->p.odo, f->answer, f->score, f->comment, e);
    if (rc == CHIMERE_ENOENT && s->harvest)
        rc = harvest_feedback(s->harvest, f->answer, f->score, f->comment, e);
    if (!rc && f->correction) rc = harvest_correct(s->harvest, f->answer, f->correction, e);
    return rc;
}

void native_feedback(struct http_request *r) {
    struct err e = {0};
    json_t *q = api_json(r);
    if (!q) return;
    struct feedback f;
    int rc = read_feedback(q, &f, &e);
    if (!rc) rc = put_feedback(http_server(r), &f, &e);
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
    buf_printf(&out, "{\"object\":\"feedback\",\"score\":%d}", f.score);
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}
