#include "backend/answer.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/thread.h"

struct answer {
    struct engine *g; /* borrowed */
    struct engine_job job;
    struct answer_params p;
    struct tok_stream stream;
    struct chat_parser *parser;    /* owned; NULL: raw */
    char *stops[ANSWER_MAX_STOPS]; /* owned */
    size_t n_stop, longest_stop;
    struct buf held; /* text that may be the start of a stop string */
    char *piece;     /* owned: text of one token */
    int32_t *tokens; /* owned [cap_token] */
    int32_t n_token, cap_token;
    int stop_hit; /* index of the stop string that ended the answer, plus 1; 0: none */
    bool refused; /* a callback asked to stop */
    bool starved; /* memory was short: the text that was passed on may have gaps */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool is_done;
};

static int emit(struct answer *a, const char *text, size_t n) {
    if (!n || a->refused) return 0;
    int rc;
    if (a->parser) {
        rc = chat_parser_push(a->parser, text, n);
    } else {
        struct chat_event ev = {.kind = CHAT_CONTENT, .text = text, .n = n, .index = -1};
        rc = a->p.on_event(a->p.ud, &ev);
    }
    if (rc) a->refused = true;
    return rc;
}

static int on_parsed(void *arg, const struct chat_event *ev) {
    struct answer *a = arg;
    return a->p.on_event(a->p.ud, ev);
}

/* Returns the first position of any stop string in the held text; its index in *which. */
static const char *find_stop(const struct answer *a, int *which) {
    const char *first = NULL;
    for (size_t i = 0; i < a->n_stop; i++) {
        const char *at =
            a->held.n ? memmem(a->held.p, a->held.n, a->stops[i], strlen(a->stops[i])) : NULL;
        if (at && (!first || at < first)) {
            first = at;
            *which = (int)i;
        }
    }
    return first;
}

/* Number of bytes at the end of the held text that may be the start of a stop string. */
static size_t n_suspicious(const struct answer *a) {
    size_t most = a->longest_stop > 0 ? a->longest_stop - 1 : 0;
    if (most > a->held.n) most = a->held.n;
    for (size_t n = most; n > 0; n--)
        for (size_t i = 0; i < a->n_stop; i++)
            if (n < strlen(a->stops[i]) && memcmp(a->held.p + a->held.n - n, a->stops[i], n) == 0)
                return n;
    return 0;
}

/* Passes new text on, except for stop strings. Returns true if the answer continues. */
static bool take_text(struct answer *a, const char *text, size_t n) {
    if (!a->n_stop) return emit(a, text, n) == 0;
    if (buf_put(&a->held, text, n)) return false;
    int which = 0;
    const char *stop = find_stop(a, &which);
    if (stop) {
        a->stop_hit = which + 1;
        emit(a, a->held.p, (size_t)(stop - a->held.p));
        buf_clear(&a->held);
        return false;
    }
    size_t keep = n_suspicious(a), out = a->held.n - keep;
    if (!out) return true;
    int rc = emit(a, a->held.p, out);
    memmove(a->held.p, a->held.p + out, keep);
    buf_cut(&a->held, keep);
    return rc == 0;
}

static bool remember(struct answer *a, int32_t token) {
    if (a->n_token == a->cap_token) return false;
    a->tokens[a->n_token++] = token;
    return true;
}

static bool on_token(struct engine_job *j, int32_t token, bool is_end,
                     const struct sampler_probs *probs) {
    struct answer *a = j->ud;
    int64_t shortages = mem_shortages();
    remember(a, token);
    if (a->p.on_token) a->p.on_token(a->p.ud, token, probs);
    bool goes_on = true;
    if (!is_end) {
        size_t n = tok_stream_push(&a->stream, token, a->piece);
        goes_on = take_text(a, a->piece, n) && !a->refused;
    }
    if (mem_shortages() != shortages) a->starved = true;
    return goes_on && !a->starved;
}

static void on_prefill(struct engine_job *j, int32_t n_done, int32_t n_prompt) {
    struct answer *a = j->ud;
    if (a->p.on_prefill) a->p.on_prefill(a->p.ud, n_done, n_prompt);
}

static void on_prompt(struct engine_job *j, int32_t pos, const struct sampler_probs *probs) {
    struct answer *a = j->ud;
    if (a->p.on_prompt) a->p.on_prompt(a->p.ud, pos, probs);
}

static void on_done(struct engine_job *j) {
    struct answer *a = j->ud;
    int64_t shortages = mem_shortages();
    if (!a->stop_hit && !a->refused) {
        size_t n = tok_stream_flush(&a->stream, a->piece);
        take_text(a, a->piece, n);
        if (!a->stop_hit && a->held.n) emit(a, a->held.p, a->held.n);
    }
    bool is_cut = a->stop_hit || j->finish != FINISH_STOP;
    if (a->parser && !a->refused) chat_parser_finish(a->parser, is_cut);
    if (mem_shortages() != shortages) a->starved = true;
    if (a->starved && !j->err.code) err_set(&j->err, CHIMERE_ENOMEM, "out of memory");
    if (a->p.on_done) a->p.on_done(a->p.ud);
    pthread_mutex_lock(&a->lock);
    a->is_done = true;
    pthread_cond_broadcast(&a->ended);
    pthread_mutex_unlock(&a->lock);
}

static int copy_stops(struct answer *a, struct err *e) {
    if (a->p.n_stop > ANSWER_MAX_STOPS)
        return err_set(e, CHIMERE_ELIMIT, "stop: expected at most %d strings, got %zu",
                       ANSWER_MAX_STOPS, a->p.n_stop);
    for (size_t i = 0; i < a->p.n_stop; i++) {
        size_t n = strlen(a->p.stops[i]);
        if (!n || n > ANSWER_MAX_STOP_BYTES)
            return err_set(e, CHIMERE_EINVAL, "stop: expected 1 to %d bytes, got %zu",
                           ANSWER_MAX_STOP_BYTES, n);
        a->stops[a->n_stop] = mem_strdup(a->p.stops[i]);
        if (!a->stops[a->n_stop]) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        a->n_stop++;
        if (n > a->longest_stop) a->longest_stop = n;
    }
    return 0;
}

static void release(struct answer *a) {
    for (size_t i = 0; i < a->n_stop; i++) mem_free(a->stops[i]);
    chat_parser_free(a->parser);
    buf_fini(&a->held);
    mem_free(a->piece);
    mem_free(a->tokens);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->ended);
    mem_free(a);
}

static int set_up(struct answer *a, const struct tok *tok, int32_t limit, struct err *e) {
    int rc = copy_stops(a, e);
    if (rc) return rc;
    buf_init(&a->held, (size_t)1 << 20);
    const struct chat_parse_spec *parse = a->p.parse;
    /* the marks of calls and of reasoning may be control tokens, which must then reach the parser */
    bool control = parse && (parse->calls != CHAT_CALLS_NONE ||
                             (parse->think && strcmp(parse->think->open, "<think>") != 0));
    tok_stream_init(&a->stream, tok, control);
    a->piece = mem_alloc(3 * tok_max_piece_bytes(tok) + 64);
    a->cap_token = limit;
    a->tokens = mem_alloc_array((size_t)limit + 1, sizeof *a->tokens);
    if (!a->piece || !a->tokens) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!a->p.parse) return 0;
    struct chat_parse_spec spec = *a->p.parse;
    spec.on_event = on_parsed;
    spec.arg = a;
    return chat_parser_new(&a->parser, &spec, e);
}

int answer_start(struct answer **out, struct engine *g, const struct tok *tok,
                 const struct answer_params *p, struct err *e) {
    *out = NULL;
    struct answer *a = mem_zalloc(sizeof *a);
    if (!a) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->ended, NULL);
    a->g = g;
    a->p = *p;
    int64_t room = engine_ctx(g) - p->job.n_prompt;
    int32_t limit = p->job.max_tokens > 0 && p->job.max_tokens < room
                        ? p->job.max_tokens
                        : (int32_t)(room > 0 ? room : 0);
    int rc = set_up(a, tok, limit + 1, e);
    a->job = (struct engine_job){.p = p->job,
                                 .on_token = on_token,
                                 .on_prefill = on_prefill,
                                 .on_prompt = on_prompt,
                                 .on_done = on_done,
                                 .ud = a};
    *out = a;
    if (!rc) rc = engine_submit(g, &a->job, e);
    if (rc) {
        *out = NULL;
        release(a);
    }
    return rc;
}

void answer_cancel(struct answer *a) { engine_cancel(a->g, &a->job); }

void answer_wait(struct answer *a) {
    pthread_mutex_lock(&a->lock);
    while (!a->is_done) pthread_cond_wait(&a->ended, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

void answer_free(struct answer *a) {
    if (!a) return;
    answer_wait(a);
    release(a);
}

enum finish answer_finish(const struct answer *a) {
    /* for a stop string or a callback's request, the engine reports the same finish as for an end token */
    if (a->starved) return FINISH_ERROR;
    return a->refused ? FINISH_CANCELLED : a->job.finish;
}
const struct err *answer_err(const struct answer *a) { return &a->job.err; }
const struct engine_stats *answer_stats(const struct answer *a) { return &a->job.stats; }
const char *answer_stop(const struct answer *a) {
    return a->stop_hit ? a->stops[a->stop_hit - 1] : NULL;
}
const struct chat_parser *answer_parser(const struct answer *a) { return a->parser; }
const int32_t *answer_tokens(const struct answer *a, int32_t *n) {
    *n = a->n_token;
    return a->tokens;
}
