#include "backend/request_grammar.h"

#include <pthread.h>
#include <string.h>

#include "base/hash.h"

enum { MAX_KEPT = 16, CACHE_BYTES = 16 << 20 };

struct request_grammar {
    uint64_t key[2];
    struct grammar *grammar;         /* owned */
    struct grammar_matcher *matcher; /* owned */
    int n_user;
    uint64_t used; /* when, in takes */
    struct request_grammar *next;
};

struct request_grammars {
    pthread_mutex_t lock;
    const struct tok *tok; /* borrowed */
    struct grammar_vocab
        *vocab[2];                /* owned; built when first wanted; [1]: marks of calls are text */
    struct request_grammar *list; /* owned */
    uint64_t n_take;
};

int request_grammars_new(struct request_grammars **out, const struct tok *tok, struct err *e) {
    struct request_grammars *g = mem_zalloc(sizeof *g);
    *out = g;
    if (!g) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&g->lock, NULL);
    g->tok = tok;
    return 0;
}

static void free_one(struct request_grammar *m) {
    if (!m) return;
    grammar_matcher_free(m->matcher);
    grammar_free(m->grammar);
    mem_free(m);
}

void request_grammars_free(struct request_grammars *g) {
    if (!g) return;
    for (struct request_grammar *m = g->list, *next; m; m = next) {
        next = m->next;
        free_one(m);
    }
    for (int i = 0; i < 2; i++) grammar_vocab_free(g->vocab[i]);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

/* ---- what is wanted, as a grammar ---- */

enum need { NEED_NOTHING, NEED_OBJECT, NEED_SCHEMA, NEED_GBNF, NEED_CALLS };

static enum need need_of(const struct request *a) {
    if (a->tool_choice == REQUEST_TOOLS_REQUIRED || a->tool_choice == REQUEST_TOOLS_NAMED)
        return NEED_CALLS;
    switch (a->format) {
    case REQUEST_JSON_OBJECT: return NEED_OBJECT;
    case REQUEST_JSON_SCHEMA: return NEED_SCHEMA;
    case REQUEST_GBNF: return NEED_GBNF;
    case REQUEST_TEXT: break;
    }
    return NEED_NOTHING;
}

#define BAR "\xef\xbd\x9c" /* U+FF5C */
#define LOW "\xe2\x96\x81" /* U+2581 */
#define DEEPSEEK(words) "<" BAR "tool" LOW words BAR ">"
#define DS_CALLS DEEPSEEK("calls" LOW "begin")
#define DS_CALLS_END DEEPSEEK("calls" LOW "end")
#define DS_CALL DEEPSEEK("call" LOW "begin")
#define DS_CALL_END DEEPSEEK("call" LOW "end")
#define DS_SEP DEEPSEEK("sep")

/* How models write a call without XML. Of two rows for one form the first counts whose `only` the tokenizer
 * knows as a token of its own. */
static const struct {
    enum chat_calls calls;
    const char *only; /* NULL: any tokenizer */
    const char *open, *middle, *close;
} forms[] = {
    {CHAT_CALLS_HERMES, NULL, "<tool_call>\n{\"name\": \"",
     "\", \"arguments\": ", "}\n</tool_call>"},
    {CHAT_CALLS_NEMOTRON, NULL, "<TOOLCALL>[{\"name\": \"", "\", \"arguments\": ", "}]</TOOLCALL>"},
    {CHAT_CALLS_GRANITE, NULL, "<|tool_call|>[{\"name\": \"", "\", \"arguments\": ", "}]"},
    {CHAT_CALLS_LLAMA, NULL, "{\"name\": \"", "\", \"parameters\": ", "}"},
    {CHAT_CALLS_MISTRAL, "[ARGS]", "[TOOL_CALLS]", "[ARGS]", ""},
    {CHAT_CALLS_MISTRAL, NULL, "[TOOL_CALLS][{\"name\": \"", "\", \"arguments\": ", "}]"},
    {CHAT_CALLS_DEEPSEEK, NULL, DS_CALLS DS_CALL "function" DS_SEP, "\n```json\n",
     "\n```" DS_CALL_END DS_CALLS_END},
};

/* Control tokens of some of these models, which a grammar would not let pass otherwise. */
static const char *const marks[] = {
    "<tool_call>",  "</tool_call>", "<TOOLCALL>", "</TOOLCALL>", "<|tool_call|>",
    "[TOOL_CALLS]", "[ARGS]",       DS_CALLS,     DS_CALLS_END,  DS_CALL,
    DS_CALL_END,    DS_SEP,         NULL};

/* A line end and ten levels of two spaces: a model that has lost its way cannot fill the answer with
 * blanks. */
static const struct grammar_limits limits = {.space = 21, .plain = true};

static bool is_many(const struct request *a) {
    return a->tool_choice == REQUEST_TOOLS_REQUIRED && !a->one_call;
}

static bool is_token(const struct tok *tok, const char *text) {
    return tok_find(tok, text, strlen(text)) >= 0;
}

static int compile_calls(const struct request *a, enum chat_calls calls, const struct tok *tok,
                         struct grammar **out, struct err *e) {
    struct grammar_calls c = {.tools = a->tools,
                              .only = a->tool_choice == REQUEST_TOOLS_NAMED ? a->tool_name : NULL,
                              .many = is_many(a),
                              .xml = calls == CHAT_CALLS_QWEN_XML};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (forms[i].calls == calls && !c.open &&
            (!forms[i].only || is_token(tok, forms[i].only))) {
            c.open = forms[i].open;
            c.middle = forms[i].middle;
            c.close = forms[i].close;
            c.many = c.many && calls == CHAT_CALLS_HERMES;
        }
    if (!c.xml && !c.open)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "tool_choice: calls in this model's form (%s) cannot be forced; use auto",
                       chat_calls_name(calls));
    int rc = grammar_from_calls(out, &c, &limits, e);
    if (rc && e) err_prefix(e, "tools");
    return rc;
}

static int compile(const struct request *a, enum need need, enum chat_calls calls,
                   const struct tok *tok, struct grammar **out, struct err *e) {
    int rc = 0;
    switch (need) {
    case NEED_OBJECT:
        return grammar_from_schema(out, "{\"type\":\"object\"}", strlen("{\"type\":\"object\"}"),
                                   &limits, e);
    case NEED_SCHEMA:
        rc = grammar_from_json(out, a->schema, &limits, e);
        if (rc && e) err_prefix(e, "response_format");
        return rc;
    case NEED_GBNF:
        rc = grammar_from_gbnf(out, a->grammar, strlen(a->grammar), NULL, e);
        if (rc && e && strncmp(e->text, "grammar", 7) != 0) err_prefix(e, "grammar");
        return rc;
    default: return compile_calls(a, calls, tok, out, e);
    }
}

static int hash_text(const char *s, size_t n, void *arg) {
    uint64_t *h = arg;
    h[0] = hash_bytes(s, n, h[0]);
    h[1] = hash_bytes(s, n, h[1] ^ 0x5bd1e995);
    return 0;
}

static void key_of(const struct request *a, enum need need, enum chat_calls calls,
                   uint64_t key[2]) {
    int head[3] = {(int)need, (int)calls, need == NEED_CALLS && is_many(a)};
    key[0] = 1, key[1] = 2;
    hash_text((char *)head, sizeof head, key);
    if (need == NEED_SCHEMA) json_dump_callback(a->schema, hash_text, key, JSON_ENCODE_ANY);
    if (need == NEED_GBNF) hash_text(a->grammar, strlen(a->grammar), key);
    if (need != NEED_CALLS) return;
    json_dump_callback(a->tools, hash_text, key, 0);
    if (a->tool_name) hash_text(a->tool_name, strlen(a->tool_name), key);
}

/* ---- keeping ---- */

static struct request_grammar *find(struct request_grammars *g, const uint64_t key[2]) {
    for (struct request_grammar *m = g->list; m; m = m->next)
        if (m->key[0] == key[0] && m->key[1] == key[1]) {
            m->n_user++;
            m->used = ++g->n_take;
            return m;
        }
    return NULL;
}

/* Under the lock: unlinks what nobody uses and was used longest ago, until few enough are left. */
static struct request_grammar *prune(struct request_grammars *g) {
    struct request_grammar *gone = NULL;
    for (;;) {
        struct request_grammar **oldest = NULL;
        int n = 0;
        for (struct request_grammar **at = &g->list; *at; at = &(*at)->next, n++)
            if (!(*at)->n_user && (!oldest || (*at)->used < (*oldest)->used)) oldest = at;
        if (n <= MAX_KEPT || !oldest) return gone;
        struct request_grammar *m = *oldest;
        *oldest = m->next;
        m->next = gone;
        gone = m;
    }
}

static void free_all(struct request_grammar *list) {
    for (struct request_grammar *next; list; list = next) {
        next = list->next;
        free_one(list);
    }
}

static int need_vocab(struct request_grammars *g, bool calls, struct err *e) {
    pthread_mutex_lock(&g->lock);
    struct grammar_vocab **v = &g->vocab[calls];
    int rc = *v ? 0 : grammar_vocab_from_tok(v, g->tok, calls ? marks : NULL, e);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int request_grammar_take(struct request_grammars *g, const struct request *a, enum chat_calls calls,
                         struct request_grammar **out, struct err *e) {
    enum need need = need_of(a);
    uint64_t key[2];
    *out = NULL;
    if (need == NEED_NOTHING) return 0;
    key_of(a, need, calls, key);
    pthread_mutex_lock(&g->lock);
    *out = find(g, key);
    pthread_mutex_unlock(&g->lock);
    if (*out) return 0;
    struct request_grammar *m = mem_zalloc(sizeof *m);
    if (!m) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = compile(a, need, calls, g->tok, &m->grammar, e);
    if (!rc) rc = need_vocab(g, need == NEED_CALLS, e);
    if (!rc)
        rc = grammar_matcher_new(&m->matcher, m->grammar, g->vocab[need == NEED_CALLS], CACHE_BYTES,
                                 e);
    if (rc) {
        free_one(m);
        return rc;
    }
    memcpy(m->key, key, sizeof key);
    pthread_mutex_lock(&g->lock);
    m->n_user = 1;
    m->used = ++g->n_take;
    m->next = g->list;
    g->list = m; /* two of the same may come in: harmless, one goes */
    struct request_grammar *gone = prune(g);
    pthread_mutex_unlock(&g->lock);
    free_all(gone);
    *out = m;
    return 0;
}

void request_grammar_drop(struct request_grammars *g, struct request_grammar *m) {
    if (!m) return;
    pthread_mutex_lock(&g->lock);
    m->n_user--;
    struct request_grammar *gone = prune(g);
    pthread_mutex_unlock(&g->lock);
    free_all(gone);
}

struct grammar_matcher *request_grammar_matcher(struct request_grammar *m) {
    return m->matcher;
}
