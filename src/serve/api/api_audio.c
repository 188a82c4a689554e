#include "serve/api/api_audio.h"

#include <string.h>

#include "base/mem.h"
#include "net/fetch.h"
#include "serve/api/api.h"
#include "serve/http/http_impl.h"

/* A request occupies a worker until the other server has answered. */
enum { MOST_AT_ONCE = 2, TOTAL_MS = 120000, MAX_AUDIO = 32 << 20 };

struct call {
    _Atomic bool is_gone;
};

static void gone(void *ud) { ((struct call *)ud)->is_gone = true; }
static bool is_gone(void *ud) { return ((struct call *)ud)->is_gone; }

static int pass_on(struct http_request *r, const char *base, const char *option, const char *path,
                   struct call *call, struct fetch_reply *reply, struct err *e) {
    char url[2200], type[300];
    struct server *s = r->s;
    if (!base)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "this server has no audio; start it with %s URL of a server that has "
                       "OpenAI's audio routes",
                       option);
    const char *content = http_header(r, "Content-Type");
    if (!content || strlen(content) > sizeof type - 20 || strpbrk(content, "\r\n"))
        return err_set(e, CHIMERE_EINVAL, "Content-Type: expected the type of the body");
    snprintf(type, sizeof type, "Content-Type: %s", content);
    if (snprintf(url, sizeof url, "%s%s", base, path) >= (int)sizeof url)
        return err_set(e, CHIMERE_ELIMIT, "%s: the address is too long", option);
    if (++s->n_audio > MOST_AT_ONCE) {
        s->n_audio--;
        return err_set(e, CHIMERE_EBUSY, "%d audio requests are running; try again in a moment",
                       MOST_AT_ONCE);
    }
    const char *headers[] = {type, NULL};
    struct fetch_request q = {.url = url,
                              .method = "POST",
                              .headers = headers,
                              .bearer = s->p.audio_key,
                              .max_bytes = MAX_AUDIO,
                              .total_ms = TOTAL_MS,
                              .max_redirects = -1,
                              .is_cancelled = is_gone,
                              .ud = call};
    q.body = http_body(r, &q.n_body);
    int rc = fetch(&q, reply, e);
    s->n_audio--;
    return rc;
}

static void handle(struct http_request *r, const char *base, const char *option, const char *path) {
    struct err e = {0};
    struct fetch_reply reply = {0};
    struct call *call = mem_zalloc(sizeof *call);
    if (!call) {
        err_set(&e, CHIMERE_ENOMEM, "out of memory");
        http_fail(r, &e);
        return;
    }
    http_job_begin(r, &(struct http_job){.gone = gone, .free = mem_free}, call);
    int rc = pass_on(r, base, option, path, call, &reply, &e);
    if (rc == CHIMERE_EIO) reply_error(r, 502, &e);
    else if (rc) http_fail(r, &e);
    else if (reply.status >= 200 && reply.status < 600)
        http_reply(r, reply.status, reply.type[0] ? reply.type : "application/octet-stream",
                   &reply.body);
    else {
        err_set(&e, CHIMERE_EIO, "%s: the audio server answered with status %d", option,
                (int)reply.status);
        reply_error(r, 502, &e);
    }
    fetch_reply_fini(&reply);
    http_job_done(r);
}

void api_audio_speech(struct http_request *r) {
    handle(r, r->s->p.tts_url, "--tts-url", "/audio/speech");
}

void api_audio_transcriptions(struct http_request *r) {
    handle(r, r->s->p.stt_url, "--stt-url", "/audio/transcriptions");
}

/* The host and port of an address, as text, or null. */
static json_t *host_of(const char *url) {
    const char *at = url ? strstr(url, "://") : NULL;
    if (!at) return json_null();
    at += 3;
    const char *user = memchr(at, '@', strcspn(at, "/?#"));
    if (user) at = user + 1;
    return json_stringn(at, strcspn(at, "/?#"));
}

void api_audio(struct http_request *r) {
    struct err e = {0};
    api_answer(r, 0,
               json_pack("{s:s, s:o, s:o}", "object", "audio", "transcriptions",
                         host_of(r->s->p.stt_url), "speech", host_of(r->s->p.tts_url)),
               &e);
}
