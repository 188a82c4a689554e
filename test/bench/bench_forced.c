/* bench_forced.c: draws tool calls with a model that picks any token that the grammar allows; one request
 * per line of stdin, one result per line of stdout. test/peers/forced_calls.py validates them.
 *
 *   {"form": 0.., "tools": [...], "seed": N, "stream": true, "cut": true}
 *   -> {"form": name, "text": ..., "calls": [{"name", "arguments"}], "malformed": N, "cut_valid": N}
 *   -> {"error": ...}
 *
 * stream: the parser gets the text in random pieces, and calls are those of its events. cut: the text is
 * also cut after every byte; cut_valid counts the arguments that were complete JSON although the
 * arguments of the first call were not. */
#include <stdio.h>
#include <string.h>

#include "backend/request_grammar.h"
#include "base/buf.h"
#include "base/rng.h"
#include "../unit/call_forms.h"
#include "text/chat/chat.h"

enum { MAX_TOKEN = 2000, MAX_CALL = 64 };

static struct tok *toks[N_FORM];

/* ---- drawing ---- */

static bool has(const uint64_t *bits, uint32_t id) { return bits[id / 64] >> id % 64 & 1; }

enum { MAX_NAME = 256, LATE = 300 /* tokens; from there on what ends values comes first */ };

/* What the stand-in knows of the tools: names of properties, so that it finds those that are required. */
struct writer {
    struct rng *rng;
    const char *names[MAX_NAME]; /* views into the tools */
    int n_name;
    const char *word;  /* left of the name that it is writing; NULL: none */
    const char *close; /* of a text in a tag */
    uint32_t closing;  /* of it */
    bool key_may_begin;
};

static void find_names(struct writer *w, const json_t *schema) {
    const char *key;
    json_t *v;
    size_t i;
    json_array_foreach((json_t *)schema, i, v) find_names(w, v);
    json_object_foreach((json_t *)schema, key, v) {
        if (!strcmp(key, "properties") && json_is_object(v)) {
            const char *name;
            json_t *one;
            json_object_foreach(v, name, one) if (w->n_name < MAX_NAME) w->names[w->n_name++] =
                name;
        }
        find_names(w, v);
    }
}

/* A token under the mask. */
static int32_t pick(struct writer *w, const uint64_t *bits, uint32_t n_vocab, uint32_t n_done) {
    static const char ends[] = "}]\":,\n";
    const char *parameter = w->close;
    int32_t ids[FIRST_MARK + MAX_MARK], n = 0, n_text = 0;
    bool late = n_done > LATE;
    for (uint32_t id = 0; id < n_vocab; id++)
        if (has(bits, id)) {
            ids[n++] = (int32_t)id;
            if (id < FIRST_MARK) n_text = n;
        }
    if (!n) return -1;
    if (has(bits, END) && (late || rng_below(w->rng, 2))) return END;
    if (n > n_text) return ids[n_text + (int32_t)rng_below(w->rng, (uint64_t)(n - n_text))];
    if (w->word) { /* a property's name, then the quote */
        uint8_t next = *w->word ? (uint8_t)*w->word : '"';
        if (has(bits, next)) {
            w->word = *w->word ? w->word + 1 : NULL;
            return next;
        }
        w->word = NULL;
    }
    if (n > 60 && (w->closing || late || rng_below(w->rng, 12) == 0)) { /* inside a text */
        uint8_t next = (uint8_t)parameter[w->closing];
        if (w->closing && has(bits, next))
            return w->closing = (w->closing + 1) % (uint32_t)strlen(parameter), next;
        w->closing = 0;
        if (has(bits, '\n') && has(bits, (uint8_t)*parameter)) /* not in JSON strings */
            return w->closing = 1, (uint8_t)*parameter;
        if (has(bits, '"') && (late || rng_below(w->rng, 2))) return '"';
    }
    w->closing = 0;
    for (const char *c = ends; late && rng_below(w->rng, 5) && *c; c++)
        if (has(bits, (uint8_t)*c)) return (uint8_t)*c;
    return ids[rng_below(w->rng, (uint64_t)n)];
}

/* A quote after { or , begins a key, in which a known name is tried. */
static void note(struct writer *w, int32_t id) {
    if (id == '"' && w->key_may_begin && w->n_name && !w->word)
        w->word = w->names[rng_below(w->rng, (uint64_t)w->n_name)];
    if (id != ' ' && id != '\n' && id != '\t') w->key_may_begin = id == '{' || id == ',';
}

static int draw(struct grammar_matcher *m, enum chat_calls calls, const struct tok *tok,
                const json_t *tools, struct rng *r, struct buf *out) {
    static const char *const closes[CHAT_CALLS_COUNT] = {
        [CHAT_CALLS_GLM] = "</arg_value>\n",
        [CHAT_CALLS_HUNYUAN] = "</arg_value:opensource>\n",
        [CHAT_CALLS_LONGCAT] = "</longcat_arg_value>\n",
        [CHAT_CALLS_MINIMAX] = "</parameter>\n",
        [CHAT_CALLS_STEP] = "</steptml:parameter>\n",
        [CHAT_CALLS_ATEM] = "</atem:parameter>\n",
        [CHAT_CALLS_MINICPM] = "</param>\n"};
    struct grammar_state *s;
    uint64_t bits[(FIRST_MARK + MAX_MARK + 63) / 64];
    struct writer w = {.rng = r, .close = closes[calls] ? closes[calls] : "\n</parameter>\n"};
    struct err e = {0};
    find_names(&w, tools);
    if (grammar_state_new(&s, m, &e)) return -1;
    int rc = -1;
    for (uint32_t n = 0; n < MAX_TOKEN; n++) {
        if (grammar_mask(s, bits)) break;
        int32_t id = pick(&w, bits, tok_n_vocab(tok), n);
        if (id < 0 || grammar_accept_token(s, id)) break;
        if (id == END) {
            rc = 0;
            break;
        }
        note(&w, id);
        struct slice piece = tok_piece(tok, id);
        buf_put(out, piece.p, piece.n);
    }
    grammar_state_free(s);
    return rc;
}

/* ---- reading ---- */

struct calls {
    struct buf name[MAX_CALL], args[MAX_CALL];
    bool is_void[MAX_CALL];
    int n;
};

static int on_event(void *arg, const struct chat_event *ev) {
    struct calls *c = arg;
    if (ev->index < 0 || ev->index >= MAX_CALL) return 0;
    if (ev->kind == CHAT_CALL) {
        buf_puts(&c->name[ev->index], ev->name);
        if (ev->index >= c->n) c->n = ev->index + 1;
    }
    if (ev->kind == CHAT_ARGS) buf_put(&c->args[ev->index], ev->text, ev->n);
    if (ev->kind == CHAT_MALFORMED) c->is_void[ev->index] = true;
    return 0;
}

static void parse(enum chat_calls calls, json_t *tools, const char *text, size_t n,
                  struct rng *stream, bool is_cut, struct calls *out, struct chat_result *result,
                  json_t **message) {
    struct chat_parser *p;
    struct err e = {0};
    struct chat_parse_spec spec = {
        .calls = calls, .tools = tools, .on_event = on_event, .arg = out};
    memset(out, 0, sizeof *out);
    for (int i = 0; i < MAX_CALL; i++) {
        buf_init(&out->name[i], 4096);
        buf_init(&out->args[i], 4 << 20);
    }
    *message = NULL;
    if (chat_parser_new(&p, &spec, &e)) return;
    for (size_t at = 0; at < n;) {
        size_t k = stream ? 1 + (size_t)rng_below(stream, 9) : n;
        if (k > n - at) k = n - at;
        chat_parser_push(p, text + at, k);
        at += k;
    }
    chat_parser_finish(p, is_cut);
    chat_parser_result(p, result);
    *message = chat_parser_message(p);
    chat_parser_free(p);
}

static void calls_fini(struct calls *c) {
    for (int i = 0; i < MAX_CALL; i++) buf_fini(&c->name[i]), buf_fini(&c->args[i]);
}

static bool is_object(const struct buf *b) {
    json_t *j = b->n ? json_loadb(b->p, b->n, JSON_ALLOW_NUL, NULL) : NULL;
    bool ok = json_is_object(j);
    json_decref(j);
    return ok;
}

/* Cuts whose first call has complete JSON as its arguments, but not those of the whole text. */
static int count_valid_cuts(enum chat_calls calls, json_t *tools, const struct buf *text,
                            const struct buf *whole) {
    int n_valid = 0;
    for (size_t n = 0; n < text->n; n++) {
        struct calls c;
        struct chat_result result;
        json_t *message;
        parse(calls, tools, text->p, n, NULL, true, &c, &result, &message);
        bool same =
            c.args[0].n == whole->n && (!whole->n || memcmp(c.args[0].p, whole->p, whole->n) == 0);
        n_valid += is_object(&c.args[0]) && !same;
        json_decref(message);
        calls_fini(&c);
    }
    return n_valid;
}

static json_t *as_json(const struct calls *c) {
    json_t *list = json_array();
    for (int i = 0; i < c->n; i++)
        if (!c->is_void[i])
            json_array_append_new(list,
                                  json_pack("{s:s%,s:s%}", "name", c->name[i].p ? c->name[i].p : "",
                                            c->name[i].n, "arguments",
                                            c->args[i].p ? c->args[i].p : "", c->args[i].n));
    return list;
}

static json_t *message_calls(json_t *message) {
    json_t *list = json_array(), *call;
    size_t i;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        json_t *f = json_object_get(call, "function");
        json_array_append_new(list, json_pack("{s:O,s:O}", "name", json_object_get(f, "name"),
                                              "arguments", json_object_get(f, "arguments")));
    }
    return list;
}

static json_t *serve_one(json_t *in) {
    size_t form = (size_t)json_integer_value(json_object_get(in, "form")) % N_FORM;
    enum chat_calls calls = forms[form].calls;
    struct request_grammars *g;
    struct request_grammar *m = NULL;
    struct request a;
    struct err e = {0};
    struct rng r;
    struct buf text;
    json_t *out = NULL;
    if (!toks[form]) toks[form] = toy_tok(forms[form].marks);
    rng_seed(&r, (uint64_t)json_integer_value(json_object_get(in, "seed")));
    request_init(&a);
    a.tools = json_incref(json_object_get(in, "tools"));
    a.tool_choice = REQUEST_TOOLS_REQUIRED;
    buf_init(&text, 4 << 20);
    if (!request_grammars_new(&g, toks[form], &e)) {
        if (request_grammar_take(g, &a, calls, &m, &e)) {
            out = json_pack("{s:s}", "error", e.text);
        } else if (draw(request_grammar_matcher(m), calls, toks[form], a.tools, &r, &text)) {
            out = json_pack("{s:s}", "error", "the text does not end");
            char *s = mem_strndup(text.p ? text.p : "", text.n);
            if (s)
                json_object_set_new(out, "text",
                                    json_string(s)); /* not if it ends within a letter */
            mem_free(s);
        } else {
            struct calls c;
            struct chat_result result;
            json_t *message;
            bool stream = json_is_true(json_object_get(in, "stream"));
            parse(calls, a.tools, text.p, text.n, stream ? &r : NULL, false, &c, &result, &message);
            int cuts = json_is_true(json_object_get(in, "cut"))
                           ? count_valid_cuts(calls, a.tools, &text, &c.args[0])
                           : 0;
            out = json_pack("{s:s,s:s%,s:o,s:i,s:i}", "form", chat_calls_name(calls), "text",
                            text.p, text.n, "calls", stream ? as_json(&c) : message_calls(message),
                            "malformed", result.n_malformed, "cut_valid", cuts);
            json_decref(message);
            calls_fini(&c);
        }
        request_grammar_drop(g, m);
        request_grammars_free(g);
    }
    buf_fini(&text);
    request_fini(&a);
    return out;
}

int main(void) {
    static char line[1 << 20];
    while (fgets(line, sizeof line, stdin)) {
        json_t *in = json_loads(line, 0, NULL), *out = in ? serve_one(in) : NULL;
        char *s = out ? json_dumps(out, JSON_COMPACT) : NULL;
        printf("%s\n", s ? s : "{\"error\":\"not JSON\"}");
        fflush(stdout);
        mem_free(s);
        json_decref(out), json_decref(in);
    }
    for (int i = 0; i < N_FORM; i++) tok_free(toks[i]);
    return 0;
}
