/* local.c: the backend for one engine. A request passes from serve to here, to answer.c and to engine_submit. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/rng.h"
#include "backend/backend.h"
#include "backend/images.h"
#include "backend/request_grammar.h"
#include "backend/replay.h"
#include "backend/learned.h"
#include "backend/ngram_field.h"
#include "base/hash.h"
#include "model/lora.h"
#include "model/model.h"

enum { MAX_MARK_TOKENS = 8, MAX_HINTS = 64, REPLAY_BYTES = 32 << 20 };

struct local {
    struct backend base;
    struct backend_model model;
    struct {
        int32_t start[MAX_MARK_TOKENS], end[MAX_MARK_TOKENS];
        size_t n_start, n_end;
        struct think_vocab *vocab; /* owned; NULL: the model does not think */
    } think;
    struct request_grammars *grammars; /* owned */
    struct replay *replay;             /* owned; NULL: no template */
    /* the token that starts a tool call; -1: the model has no such token */
    int32_t call_open;
    struct engram_store *engram; /* owned; NULL: there is no folder of tables */
};

struct local_run;
struct choice {
    struct local_run *run; /* view */
    struct answer *answer; /* owned */
    int32_t n_reasoning;
    bool in_think, enough, has_progress;
    bool stopped, late; /* stopped: by a stop token; late: by max_ms */
    int64_t first_ns;   /* time of its first event */
    struct err err;     /* why it could not be started */
};

struct local_run {
    struct generation base;
    const struct request *request; /* borrowed until free */
    struct event_sink sink;
    struct answer_params params;
    struct chat_parse_spec parse;
    int32_t *ids;                    /* owned */
    struct images images;            /* the request's images, with their positions in ids */
    struct lora_use *loras;          /* owned */
    struct request_grammar *grammar; /* taken from the cache; NULL: none */
    struct logit_bias *bias;         /* owned: the request's biases, plus one that bans calls */
    int32_t marks[MAX_HINTS];        /* positions where turns begin */
    /* choices that have not ended, plus one for start() while it runs */
    _Atomic int32_t n_open;
    struct ngram_memory *memory;     /* owned; NULL: not requested */
    struct learned_version *version; /* lease; NULL: no learned files */
    json_t *messages;                /* owned: the request's, with learned rules; NULL: no rules */
    _Atomic bool cancelled;
    int32_t n_choice;
    struct choice choices[REQUEST_MAX_CHOICES];
};

const struct gguf *backend_model_file(const struct backend_model *m) {
    return m->m ? m->m->gguf : m->gguf;
}

static struct local *local_of(struct backend *b) { return (struct local *)b; }

/* ---- prompt ---- */

static void add_token(json_t *context, const struct tok *tok, const char *name, int32_t id) {
    struct slice s = id >= 0 ? tok_piece(tok, id) : (struct slice){"", 0};
    json_object_set_new(context, name, json_stringn(s.p ? s.p : "", s.n));
}

static bool has_calls(const struct local *l, const struct request *a) {
    return json_array_size(a->tools) > 0 &&
           (a->tool_choice != REQUEST_TOOLS_NONE || l->call_open >= 0) &&
           chat_template_caps(l->model.template)->has_tools;
}

/* Adds the date for templates that use it, with llama-server's names. The time is omitted, so that prompts of one day
 * begin with the same text. */
static void add_dates(json_t *context) {
    time_t now = time(NULL);
    struct tm tm;
    char text[32];
    localtime_r(&now, &tm);
    if (strftime(text, sizeof text, "%d %b %Y", &tm))
        json_object_set_new(context, "date_string", json_string(text));
    if (strftime(text, sizeof text, "%b %d %Y", &tm))
        json_object_set_new(context, "datetime", json_string(text));
}

static json_t *template_context(const struct local *l, const struct request *a, json_t *messages) {
    json_t *c = json_object();
    if (!c) return NULL;
    add_dates(c);
    if (l->model.template_context) json_object_update(c, (json_t *)l->model.template_context);
    if (a->template_context) json_object_update(c, a->template_context);
    if (a->continue_last) {
        messages = json_copy(messages);
        json_array_remove(messages, json_array_size(messages) - 1);
        json_object_set_new(c, "messages", messages);
    } else {
        json_object_set(c, "messages", messages);
    }
    if (has_calls(l, a)) json_object_set(c, "tools", a->tools);
    json_object_set_new(c, "add_generation_prompt", json_boolean(!a->no_generation_prompt));
    json_object_set_new(c, "enable_thinking", json_boolean(a->think && !a->continue_last));
    add_token(c, l->model.tok, "bos_token", tok_bos(l->model.tok));
    add_token(c, l->model.tok, "eos_token", tok_eos(l->model.tok));
    return c;
}

/* Appends the text of the message that is to be continued. */
static int append_last(const struct local *l, const struct request *a, char **text, int32_t **ids,
                       size_t *n, struct err *e) {
    const json_t *last = json_array_get(a->messages, json_array_size(a->messages) - 1);
    const json_t *content = json_object_get(last, "content");
    size_t len = json_string_length(content), n_more = 0;
    if (!len) return 0;
    int32_t *more = NULL;
    int rc =
        tok_encode(l->model.tok, json_string_value(content), len, false, false, &more, &n_more, e);
    int32_t *joined = rc ? NULL : mem_realloc(*ids, (*n + n_more + 1) * sizeof **ids);
    if (joined) {
        if (n_more) memcpy(joined + *n, more, n_more * sizeof *more);
        *ids = joined;
        *n += n_more;
    } else if (!rc) {
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    mem_free(more);
    if (!rc && text) {
        size_t have = strlen(*text);
        char *longer = mem_realloc(*text, have + len + 1);
        if (!longer) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        memcpy(longer + have, json_string_value(content), len + 1);
        *text = longer;
    }
    return rc;
}

static int encode_chat(const struct local *l, const struct request *a, struct images *im,
                       char **text, int32_t **ids, size_t *n, bool *in_think, struct err *e) {
    if (!l->model.template) {
        err_set(e, CHIMERE_EUNSUPPORTED, "messages: %s has no chat template", l->base.name);
        err_hint(e, "use /v1/completions for a plain prompt");
        return CHIMERE_EUNSUPPORTED;
    }
    json_t *marked, *context = NULL;
    int rc = images_open(im, l->model.vision, a->messages, &marked, e);
    if (rc) return rc;
    context = template_context(l, a, marked);
    json_decref(marked);
    if (!context) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    struct chat_prompt prompt;
    rc = chat_render(l->model.template, context, false, &tm, &prompt, e);
    if (rc && e) err_prefix(e, "messages");
    if (!rc) rc = replay_encode(l->replay, a->scope, a->messages, &prompt, im, ids, n, e);
    if (!rc && text) {
        *text = mem_strndup(prompt.out.text.p ? prompt.out.text.p : "", prompt.out.text.n);
        if (!*text) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    *in_think = prompt.in_think;
    chat_prompt_fini(&prompt);
    json_decref(context);
    if (!rc && a->continue_last) rc = append_last(l, a, text, ids, n, e);
    return rc;
}

/* Encodes a list of token ids and texts in order. */
static int encode_list(const struct local *l, const json_t *list, int32_t **ids, size_t *n,
                       struct err *e) {
    struct buf all;
    size_t i;
    json_t *x;
    int rc = 0;
    buf_init(&all, (size_t)1 << 30);
    json_array_foreach(list, i, x) {
        int32_t *some = NULL, id = (int32_t)json_integer_value(x);
        size_t n_some = 1;
        if (json_is_string(x))
            rc = tok_encode(l->model.tok, json_string_value(x), json_string_length(x), true, !i,
                            &some, &n_some, e);
        else if (json_integer_value(x) < 0 || json_integer_value(x) >= tok_n_vocab(l->model.tok))
            rc = err_set(e, CHIMERE_EINVAL, "prompt: expected token ids below %u, got %lld",
                         tok_n_vocab(l->model.tok), (long long)json_integer_value(x));
        if (!rc && n_some) buf_put(&all, (const char *)(some ? some : &id), n_some * sizeof id);
        mem_free(some);
        if (rc) break;
    }
    if (!rc && all.failed) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    *n = all.n / sizeof **ids;
    *ids = rc ? NULL : mem_alloc_array(*n + 1, sizeof **ids);
    if (!rc && !*ids) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && *n) memcpy(*ids, all.p, all.n);
    buf_fini(&all);
    return rc;
}

static int encode_raw(const struct local *l, const struct request *a, char **text, int32_t **ids,
                      size_t *n, struct err *e) {
    if (json_is_string(a->prompt)) {
        const char *s = json_string_value(a->prompt);
        size_t len = json_string_length(a->prompt);
        if (text && !(*text = mem_strndup(s, len)))
            return err_set(e, CHIMERE_ENOMEM, "out of memory");
        return tok_encode(l->model.tok, s, len, true, true, ids, n, e);
    }
    int rc = encode_list(l, a->prompt, ids, n, e);
    if (rc) return rc;
    if (text && !(*text = mem_strdup(""))) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    return 0;
}

/* Call images_close for im, also after an error. */
static int encode(const struct local *l, const struct request *a, struct images *im, char **text,
                  int32_t **ids, size_t *n, bool *in_think, struct err *e) {
    *in_think = false;
    *im = (struct images){.n = 0};
    return a->messages ? encode_chat(l, a, im, text, ids, n, in_think, e)
                       : encode_raw(l, a, text, ids, n, e);
}

static int local_render(struct backend *b, const struct request *a, char **text, int32_t **ids,
                        size_t *n, struct err *e) {
    bool in_think;
    int32_t *own = NULL;
    size_t n_own = 0;
    struct images im;
    if (text) *text = NULL;
    int rc = encode(local_of(b), a, &im, text, &own, &n_own, &in_think, e);
    images_close(&im);
    if (rc && text) {
        mem_free(*text);
        *text = NULL;
    }
    if (!rc && n) *n = n_own;
    if (!rc && ids) *ids = own;
    else mem_free(own);
    return rc;
}

/* Writes the positions where messages begin to marks, in ascending order, the last MAX_HINTS of them; returns their
 * number. Messages begin with the token that begins the answer's turn: the prompt's last control token that does not
 * end a generation. */
static int32_t find_marks(const struct local *l, const int32_t *ids, size_t n, int32_t *marks) {
    int32_t turn = -1, n_mark = 0;
    for (size_t i = n; i-- > 0 && turn < 0;)
        if (tok_kind(l->model.tok, ids[i]) == TOK_CONTROL && !tok_is_eog(l->model.tok, ids[i]))
            turn = ids[i];
    if (turn < 0) return 0;
    for (size_t i = n; i-- > 1 && n_mark < MAX_HINTS;)
        if (ids[i] == turn) marks[n_mark++] = (int32_t)i;
    for (int32_t i = 0; i < n_mark / 2; i++) {
        int32_t t = marks[i];
        marks[i] = marks[n_mark - 1 - i];
        marks[n_mark - 1 - i] = t;
    }
    return n_mark;
}

/* ---- events, on the engine's thread ---- */

static int send(struct choice *c, struct backend_event *ev) {
    struct local_run *r = c->run;
    ev->choice = (int32_t)(c - r->choices);
    int rc = r->sink.event(r->sink.ud, ev);
    return rc ? rc : r->cancelled;
}

static int on_event(void *ud, const struct chat_event *ev) {
    struct choice *c = ud;
    const struct request *a = c->run->request;
    if (a->max_ms > 0) {
        int64_t now = clock_ns();
        if (!c->first_ns) c->first_ns = now;
        c->late |= (now - c->first_ns) / 1000000 >= a->max_ms;
    }
    if (a->no_answer || c->stopped) return 1;
    int rc = send(c, &(struct backend_event){
                         .kind = EVENT_CHAT, .chat = ev, .stats = answer_stats(c->answer)});
    if (ev->kind == CHAT_CALL_END && c->run->request->one_call) c->enough = true;
    return c->enough || c->late ? 1 : rc;
}

static void count_reasoning(struct choice *c, int32_t token) {
    const struct local *l = local_of(c->run->base.backend);
    if (!l->think.n_end) return;
    if (c->in_think) c->n_reasoning++;
    if (token == l->think.end[l->think.n_end - 1]) c->in_think = false;
    else if (l->think.n_start == 1 && token == l->think.start[0]) c->in_think = true;
}

static void on_token(void *ud, int32_t token, const struct sampler_probs *probs) {
    struct choice *c = ud;
    for (size_t i = 0; i < c->run->request->n_stop_token; i++)
        c->stopped |= c->run->request->stop_tokens[i] == token;
    if (c->run->parse.reasoning) count_reasoning(c, token);
    if (!probs || !c->run->request->probs) return;
    const struct tok *tok = local_of(c->run->base.backend)->model.tok;
    /* Clients join the tokens to the text, so an end token is omitted; clients that score a prompt need it. */
    if (tok_is_eog(tok, token) && !c->run->request->prompt_probs) return;
    if (c->run->request->no_answer) return;
    struct slice s = tok_piece(tok, token);
    send(c, &(struct backend_event){
                .kind = EVENT_TOKEN, .token = token, .text = s.p, .n = s.n, .probs = probs});
}

static void on_prompt(void *ud, int32_t pos, const struct sampler_probs *probs) {
    struct choice *c = ud;
    const struct local *l = local_of(c->run->base.backend);
    int32_t token = c->run->ids[pos];
    /* a BOS token that was added before a text is not part of the text */
    if (!pos && token == tok_bos(l->model.tok) && json_is_string(c->run->request->prompt)) return;
    struct slice s = tok_piece(l->model.tok, token);
    send(c, &(struct backend_event){
                .kind = EVENT_PROMPT, .token = token, .text = s.p, .n = s.n, .probs = probs});
}

static void put_progress(struct choice *c, int32_t n_done, int32_t n_prompt) {
    send(c, &(struct backend_event){.kind = EVENT_PREFILL,
                                    .n_done = n_done,
                                    .n_prompt = n_prompt,
                                    .n_cached = answer_stats(c->answer)->n_cached});
}

/* Reports progress. The first report has the number of prompt tokens that need not be evaluated. */
static void on_prefill(void *ud, int32_t n_done, int32_t n_prompt) {
    struct choice *c = ud;
    if (!c->run->request->progress) return;
    int32_t n_cached = answer_stats(c->answer)->n_cached;
    if (!c->has_progress && n_done > n_cached) put_progress(c, n_cached, n_prompt);
    c->has_progress = true;
    put_progress(c, n_done, n_prompt);
}

static void choice_end(struct choice *c, const struct generation_end *end) {
    send(c, &(struct backend_event){.kind = EVENT_END, .end = end});
}

/* Releases one reference. The last call reports the choices that could not be started, and the end. */
static void leave(struct local_run *r) {
    if (atomic_fetch_sub(&r->n_open, 1) != 1) return;
    for (int32_t i = 0; i < r->n_choice; i++)
        if (r->choices[i].err.code)
            choice_end(&r->choices[i],
                       &(struct generation_end){.finish = FINISH_ERROR, .err = &r->choices[i].err});
    send(&r->choices[0],
         &(struct backend_event){.kind = EVENT_DONE}); /* r may be freed from here on */
}

static enum finish finish_of(const struct choice *c) {
    const struct chat_parser *p = answer_parser(c->answer);
    struct chat_result calls = {0};
    if (p) chat_parser_result(p, &calls);
    enum finish f = answer_finish(c->answer);
    if (f == FINISH_ERROR) return FINISH_ERROR;
    if (c->enough) return FINISH_CALLS;
    if (c->late || c->run->request->no_answer) return FINISH_LENGTH;
    if (f == FINISH_CANCELLED) return FINISH_CANCELLED;
    if (f == FINISH_LENGTH) return FINISH_LENGTH;
    if (calls.n_cut) return answer_stop(c->answer) ? FINISH_STOP : FINISH_LENGTH;
    return calls.n_call ? FINISH_CALLS : FINISH_STOP;
}

/* Stores a complete answer's tokens, for prompts that contain the answer again. */
static void remember(struct choice *c, enum finish finish) {
    const struct local *l = local_of(c->run->base.backend);
    const struct request *a = c->run->request;
    const struct chat_parser *p = answer_parser(c->answer);
    int32_t n;
    const int32_t *ids = answer_tokens(c->answer, &n);
    if (!p || !l->replay || a->continue_last || a->no_cache || answer_stop(c->answer) || n < 1 ||
        !tok_is_eog(l->model.tok, ids[n - 1]) || (finish != FINISH_STOP && finish != FINISH_CALLS))
        return;
    int64_t shortages = mem_shortages();
    json_t *message = chat_parser_message(p);
    if (message && mem_shortages() == shortages)
        replay_put(l->replay, a->scope, a->think, message, ids, n);
    json_decref(message);
}

static void on_done(void *ud) {
    struct choice *c = ud;
    const struct chat_parser *p = answer_parser(c->answer);
    struct chat_result calls = {0};
    if (p) chat_parser_result(p, &calls);
    struct generation_end end = {.finish = finish_of(c),
                                 .stop = answer_stop(c->answer),
                                 .stats = *answer_stats(c->answer),
                                 .n_reasoning = c->n_reasoning,
                                 .n_repaired = calls.n_repaired,
                                 .night = c->run->version ? c->run->version->night : 0,
                                 .err = answer_err(c->answer)};
    if (c->run->request->no_answer) end.stats.n_generated = 0;
    remember(c, end.finish);
    choice_end(c, &end);
    leave(c->run);
}

/* ---- preparation ---- */

/* Uses the adapters given at the start, and the learned one, unless the request lists adapters. */
static int set_loras(struct local *l, struct local_run *r, struct err *e) {
    const struct request *a = r->request;
    r->params.job.loras = l->model.loras;
    r->params.job.n_lora = l->model.n_lora;
    if (a->n_lora < 0 && (!r->version || !r->version->lora)) return 0;
    if (a->n_lora < 0) {
        r->loras = mem_alloc_array((size_t)l->model.n_lora + 1, sizeof *r->loras);
        if (!r->loras) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        for (int32_t i = 0; i < l->model.n_lora; i++) r->loras[i] = l->model.loras[i];
        r->loras[r->params.job.n_lora++] = (struct lora_use){r->version->lora, 1};
        r->params.job.loras = r->loras;
        return 0;
    }
    r->loras = mem_alloc_array((size_t)a->n_lora + 1, sizeof *r->loras);
    if (!r->loras) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    r->params.job.loras = r->loras;
    r->params.job.n_lora = 0;
    for (int32_t i = 0; i < a->n_lora; i++) {
        if (a->loras[i].id < 0 || a->loras[i].id >= l->model.n_lora)
            return err_set(e, CHIMERE_EINVAL, "lora: expected ids below %d, got %d",
                           l->model.n_lora, a->loras[i].id);
        if (a->loras[i].scale == 0) continue;
        r->loras[r->params.job.n_lora++] =
            (struct lora_use){l->model.loras[a->loras[i].id].lora, a->loras[i].scale};
    }
    return 0;
}

static int set_experts(struct local *l, struct local_run *r, struct err *e) {
    r->params.job.keep = r->request->keep;
    if (r->request->keep.mass == 0 || (l->model.m && l->model.m->hp.moe.n_expert)) return 0;
    return err_set(e, CHIMERE_EINVAL,
                   "experts: expected a mixture of experts that chimere runs itself");
}

/* If tool calls are not allowed, bans the token that starts a call. The prompt, and so its cached state, does not
 * change. */
static int ban_calls(struct local *l, struct local_run *r, struct err *e) {
    const struct sampler_params *s = &r->request->sampling;
    if (r->request->tool_choice != REQUEST_TOOLS_NONE || l->call_open < 0) return 0;
    r->bias = mem_alloc_array(s->n_bias + 1, sizeof *r->bias);
    if (!r->bias) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (s->n_bias) memcpy(r->bias, s->bias, s->n_bias * sizeof *r->bias);
    r->bias[s->n_bias] = (struct logit_bias){l->call_open, -__builtin_inff()};
    r->params.job.sampling.bias = r->bias;
    r->params.job.sampling.n_bias = s->n_bias + 1;
    return 0;
}

static int set_grammar(struct local *l, struct local_run *r, struct err *e) {
    enum chat_calls calls =
        l->model.template ? chat_template_caps(l->model.template)->calls : CHAT_CALLS_NONE;
    int rc = request_grammar_take(l->grammars, r->request, calls, &r->grammar, e);
    if (rc || !r->grammar) return rc;
    r->params.job.sampling.grammar = request_grammar_matcher(r->grammar);
    r->params.job.sampling.grammar_after_think = r->params.job.sampling.in_think;
    r->params.job.sampling.n_trigger =
        request_grammar_triggers(r->grammar, &r->params.job.sampling.triggers);
    return 0;
}

/* Encodes the prompt; a user's request without a system message gets the rules and examples that a night learned. */
static int encode_ruled(struct local *l, struct local_run *r, size_t *n, bool *in_think,
                        struct err *e) {
    struct request a = *r->request;
    const struct learned_version *v = r->version;
    if (v && a.rules && a.messages)
        r->messages = learned_messages(json_string_value(json_object_get(v->rules, "")), v->shots,
                                       a.messages);
    if (r->messages) a.messages = r->messages;
    return encode(l, &a, &r->images, NULL, &r->ids, n, in_think, e);
}

static int set_up(struct local *l, struct local_run *r, struct err *e) {
    const struct request *a = r->request;
    size_t n = 0;
    bool in_think;
    if (a->n < 1 || a->n > REQUEST_MAX_CHOICES)
        return err_set(e, CHIMERE_EINVAL, "n: expected 1 to %d, got %d", REQUEST_MAX_CHOICES, a->n);
    r->version = learned_take(l->model.learned, learned_conversation(a));
    int rc = encode_ruled(l, r, &n, &in_think, e);
    if (rc) return rc;
    if (!n || n > INT32_MAX)
        return err_set(e, CHIMERE_EINVAL, "prompt: expected at least one token");
    int64_t room = engine_ctx(l->model.engine);
    if ((int64_t)n >= room) return engine_refuse_prompt((int64_t)n, room, e);
    r->params = (struct answer_params){.job.prompt = r->ids,
                                       .job.n_prompt = (int32_t)n,
                                       .job.images = r->images.runs,
                                       .job.n_image = r->images.n_run,
                                       .job.max_tokens = a->max_tokens,
                                       .job.sampling = a->sampling,
                                       .job.session = a->session,
                                       .job.scope = a->scope,
                                       .job.owner = request_owner_hash(a),
                                       .job.marks = r->marks,
                                       .job.n_mark = find_marks(l, r->ids, n, r->marks),
                                       .job.no_cache = a->no_cache || a->prompt_probs,
                                       .job.prompt_probs = a->prompt_probs,
                                       .job.keep_end = a->keep_end,
                                       .stops = (const char *const *)a->stops,
                                       .n_stop = a->n_stop,
                                       .on_event = on_event,
                                       .on_token = on_token,
                                       .on_prefill = on_prefill,
                                       .on_prompt = on_prompt,
                                       .on_done = on_done};
    struct sampler_params *s = &r->params.job.sampling;
    s->in_think = in_think;
    s->think_start = l->think.start;
    s->n_think_start = l->think.n_start;
    s->think_end = l->think.end;
    s->n_think_end = l->think.n_end;
    if (!l->think.n_end) s->think_budget = -1;
    s->think.vocab = l->think.vocab;
    if (a->messages) {
        const struct chat_caps *caps = chat_template_caps(l->model.template);
        bool may_call = has_calls(l, a) && a->tool_choice != REQUEST_TOOLS_NONE;
        r->parse = (struct chat_parse_spec){
            .calls = may_call ? caps->calls : chat_template_frames(l->model.template),
            .no_calls = !may_call,
            .think = caps->think,
            .reasoning = caps->has_reasoning,
            .in_think = in_think,
            .tools = a->tools,
            .id_seed = rng_entropy(),
        };
        r->params.parse = &r->parse;
    }
    rc = set_grammar(l, r, e);
    if (!rc) rc = set_loras(l, r, e);
    if (!rc) rc = set_experts(l, r, e);
    if (!rc) rc = ban_calls(l, r, e);
    if (!rc)
        rc = ngram_field_open(&r->memory, l->engram, a, r->version ? r->version->table : NULL,
                              l->model.tok, e);
    r->params.job.engram = ngram_memory_use(r->memory);
    return rc ? rc : sampler_check(s, (int32_t)tok_n_vocab(l->model.tok), e);
}

static void local_free(struct generation *base) {
    struct local_run *r = (struct local_run *)base;
    if (!r) return;
    for (int32_t i = 0; i < r->n_choice; i++) answer_free(r->choices[i].answer);
    request_grammar_drop(local_of(base->backend)->grammars, r->grammar);
    images_close(&r->images);
    mem_free(r->ids);
    mem_free(r->loras);
    ngram_memory_close(r->memory);
    learned_return(local_of(base->backend)->model.learned, r->version);
    mem_free(r->bias);
    json_decref(r->messages);
    mem_free(r);
}

static int local_prepare(struct backend *b, const struct request *a, const struct event_sink *sink,
                         struct generation **out, int32_t *n_prompt, struct err *e) {
    *out = NULL;
    struct local_run *r = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    r->base.backend = b;
    r->request = a;
    r->sink = *sink;
    int rc = set_up(local_of(b), r, e);
    if (rc) {
        local_free(&r->base);
        return rc;
    }
    if (n_prompt) *n_prompt = r->params.job.n_prompt;
    *out = &r->base;
    return 0;
}

static int local_start(struct generation *base, struct err *e) {
    struct local_run *r = (struct local_run *)base;
    struct local *l = local_of(base->backend);
    r->n_choice = r->request->n;
    r->n_open = r->n_choice + 1;
    for (int32_t i = 0; i < r->n_choice; i++) {
        struct choice *c = &r->choices[i];
        *c = (struct choice){.run = r, .in_think = r->parse.in_think};
        struct answer_params p = r->params;
        p.ud = c;
        p.job.sampling.seed += (uint64_t)i;
        int rc = answer_start(&c->answer, l->model.engine, l->model.tok, &p, &c->err);
        if (rc && i == 0) {
            if (e) *e = c->err;
            r->n_choice = 0;
            return rc;
        }
        if (rc) atomic_fetch_sub(&r->n_open, 1); /* its error is reported after the other choices */
    }
    leave(r);
    return 0;
}

static void local_cancel(struct generation *base) {
    struct local_run *r = (struct local_run *)base;
    r->cancelled = true;
    for (int32_t i = 0; i < r->n_choice; i++)
        if (r->choices[i].answer) answer_cancel(r->choices[i].answer);
}

static void local_close(struct backend *b) {
    request_grammars_free(local_of(b)->grammars);
    replay_free(local_of(b)->replay);
    engram_store_free(local_of(b)->engram);
    think_vocab_free(local_of(b)->think.vocab);
    mem_free(b);
}

static size_t checkpoint_tokens(const struct tok *tok, const char *text,
                                int32_t out[MAX_MARK_TOKENS]) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (tok_encode(tok, text, strlen(text), true, false, &ids, &n, NULL) || n > MAX_MARK_TOKENS)
        n = 0;
    if (n) memcpy(out, ids, n * sizeof *out);
    mem_free(ids);
    return n;
}

/* Names the night whose files the answer uses, and the tools whose schemas are not enforced, so that the client checks
 * their calls itself. */
static void local_headers(struct generation *base, struct buf *out) {
    struct local_run *r = (struct local_run *)base;
    const char *note = r->grammar ? request_grammar_note(r->grammar) : NULL;
    if (r->version) buf_printf(out, "X-Night: %lld\n", (long long)r->version->night);
    if (!note) return;
    buf_puts(out, "X-Unenforced-Tools: ");
    for (; *note; note++) buf_putc(out, *note >= ' ' && *note < 127 ? *note : '?');
    buf_puts(out, "\n");
}

static int64_t local_night(const struct generation *base) {
    const struct local_run *r = (const struct local_run *)base;
    return r->version ? r->version->night : 0;
}

static void local_tokens(const struct generation *base, const int32_t **prompt, int32_t *n_prompt,
                         const int32_t **answer, int32_t *n_answer) {
    const struct local_run *r = (const struct local_run *)base;
    *prompt = r->ids;
    *n_prompt = r->params.job.n_prompt;
    *n_answer = 0;
    *answer = r->n_choice ? answer_tokens(r->choices[0].answer, n_answer) : NULL;
}

static const struct backend_ops local_ops = {.tokens = local_tokens,
                                             .prepare = local_prepare,
                                             .start = local_start,
                                             .cancel = local_cancel,
                                             .free = local_free,
                                             .render = local_render,
                                             .close = local_close,
                                             .headers = local_headers,
                                             .night = local_night};

int backend_local_new(struct backend **out, const struct backend_model *m, const char *name,
                      struct err *e) {
    *out = NULL;
    struct local *l = mem_zalloc(sizeof *l);
    if (!l) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = request_grammars_new(&l->grammars, m->tok, e);
    if (!rc && m->template) rc = replay_new(&l->replay, m->template, m->tok, REPLAY_BYTES, e);
    if (!rc && l->replay && m->shared_dir) rc = replay_share(l->replay, m->shared_dir, e);
    if (rc) {
        replay_free(l->replay);
        request_grammars_free(l->grammars);
        mem_free(l);
        return rc;
    }
    l->model = *m;
    l->base = (struct backend){.ops = &local_ops, .model = &l->model};
    size_t n = strlen(name) < sizeof l->base.name ? strlen(name) : sizeof l->base.name - 1;
    memcpy(l->base.name, name, n);
    l->call_open = -1;
    /* without a home directory there is no folder of tables; requests that name a table get an error */
    if (m->tok)
        engram_store_new(&l->engram, m->engram_dir, tok_hash(m->tok), tok_n_vocab(m->tok), NULL);
    if (m->template) {
        const struct chat_caps *caps = chat_template_caps(m->template);
        if (caps->has_reasoning) {
            l->think.n_start = checkpoint_tokens(m->tok, caps->think->open, l->think.start);
            l->think.n_end = checkpoint_tokens(m->tok, caps->think->close, l->think.end);
            rc = think_vocab_new(&l->think.vocab, m->tok, e);
        }
        if (caps->calls == CHAT_CALLS_QWEN_XML || caps->calls == CHAT_CALLS_HERMES ||
            caps->calls == CHAT_CALLS_GLM)
            l->call_open = tok_find(m->tok, "<tool_call>", strlen("<tool_call>"));
    }
    if (rc) local_close(&l->base);
    else *out = &l->base;
    return rc;
}
