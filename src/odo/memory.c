#include "odo/memory.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"
#include "odo/facts/fact.h"
#include "tools/tool.h"
#include "retrieval/words.h"

enum { POOL = 24, MAX_FACTS = 16, MAX_REPLACED = 16 };

void memory_owner(const char *owner, const char *user, char out[MEMORY_MAX_OWNER]) {
    bool local = !owner || !*owner || str_starts(owner, "127.") || !strcmp(owner, "::1");
    bool named = user && *user;
    snprintf(out, MEMORY_MAX_OWNER, "%.100s%s%.512s", local ? MEMORY_LOCAL : owner,
             named ? "\t" : "", named ? user : ""); /* names of keys contain no tab */
}

/* ---- storing ---- */

static const char *const beginnings[] = {
    "remember that ",
    "remember: ",
    "please remember that ",
    "please remember: ",
    "keep in mind that ",
    "don't forget that ",
    "don\u2019t forget that ",
    "for future reference: ",
    "for future reference, ",
    "souviens-toi que ",
    "souviens-toi qu'",
    "souviens toi que ",
    "retiens que ",
    "retiens qu'",
    "rappelle-toi que ",
    "n'oublie pas que ",
    "n\u2019oublie pas que ",
    "garde en m\u00e9moire que ",
    "note bien que ",
};

bool memory_told(const char *question, const char **fact, size_t *n) {
    question += strspn(question, " \t\r\n");
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; ++i) {
        size_t len = strlen(beginnings[i]);
        if (strncasecmp(question, beginnings[i], len) != 0) continue;
        *fact = question + len;
        *n = strcspn(*fact, "\n");
        return *n > 2 && *n <= MEMORY_MAX_FACT;
    }
    return false;
}

/* Returns the length of the longest prefix of s with at most `most` bytes that does not cut a character. */
static size_t head(const char *s, size_t n, size_t most) {
    if (n <= most) return n;
    n = most;
    while (n && ((unsigned char)s[n] & 0xc0) == 0x80) --n;
    return n;
}

static int keep(struct store *s, struct store_memory *m, int64_t *id, struct err *e) {
    int64_t unused;
    return store_memory_add(s, m, id ? id : &unused, e);
}

/* *own: the trimmed text; free it with mem_free. */
static int take_fact(const char *text, size_t n, char **own, struct err *e) {
    *own = NULL;
    while (n && strchr(" \t\r\n", text[n - 1])) --n;
    while (n && strchr(" \t\r\n", *text)) ++text, --n;
    if (!n || n > MEMORY_MAX_FACT || !utf8_is_valid(text, n) || memchr(text, 0, n))
        return err_set(e, CHIMERE_EINVAL, "text: expected 1 to %d bytes of UTF-8, got %zu",
                       MEMORY_MAX_FACT, n);
    *own = mem_strndup(text, n);
    return *own ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

struct older {        /* the facts that a new one contradicts */
    const char *text; /* view: the new fact */
    int64_t id, v[MAX_REPLACED];
    int n;
};

static int find_older(void *ud, const struct store_memory *m) {
    struct older *o = ud;
    if (m->kind != STORE_FACT || m->id == o->id || !fact_contradicts(m->text, o->text)) return 0;
    o->v[o->n++] = m->id;
    return o->n == MAX_REPLACED;
}

/* The older facts are read before they are changed, because the store is locked while it lists. */
static int replace_older(struct store *s, const char *owner, int64_t id, const char *text,
                         struct err *e) {
    struct older o = {.text = text, .id = id};
    int rc = store_memory_list(s, owner, STORE_HOLDING, STORE_MAX_MEMORIES, find_older, &o, e);
    if (rc > 0) rc = 0;
    for (int i = 0; i < o.n && !rc; ++i) rc = store_memory_replace(s, owner, o.v[i], id, e);
    return rc;
}

int memory_keep_fact(struct store *s, const char *owner, const char *text, size_t n, bool pinned,
                     int64_t *id, struct err *e) {
    char *own;
    int64_t number = 0;
    int rc = take_fact(text, n, &own, e);
    struct store_memory m = {.owner = owner, .kind = STORE_FACT, .text = own, .pinned = pinned};
    if (!rc) rc = keep(s, &m, &number, e);
    if (!rc) rc = replace_older(s, owner, number, own, e);
    if (id) *id = number;
    mem_free(own);
    return rc;
}

int memory_edit_fact(struct store *s, const char *owner, int64_t id, const char *text, size_t n,
                     struct err *e) {
    char *own;
    int rc = take_fact(text, n, &own, e);
    if (!rc) rc = store_memory_edit(s, owner, id, own, e);
    mem_free(own);
    return rc;
}

int memory_keep_talk(struct store *s, const char *owner, const char *question, const char *answer,
                     size_t n_answer, bool tainted, int64_t *id, struct err *e) {
    struct buf b;
    buf_init(&b, STORE_MAX_MEMORY_BYTES);
    buf_puts(&b, "User: ");
    buf_put(&b, question, head(question, strlen(question), MEMORY_MAX_TALK / 2));
    buf_puts(&b, "\nAssistant: ");
    buf_put(&b, answer, head(answer, n_answer, MEMORY_MAX_TALK / 2));
    struct store_memory m = {.owner = owner, .kind = STORE_TALK, .text = b.p, .tainted = tainted};
    int rc = b.failed ? err_set(e, b.failed, "out of memory") : keep(s, &m, id, e);
    buf_fini(&b);
    return rc;
}

/* ---- recalling ---- */

struct pick {
    struct memory_recall *r;
    struct buf *out;
    struct words words;
    int64_t seen[POOL + MAX_FACTS];
    int n_seen, n_fact;
    bool by_words;
};

static int32_t cost_of(const struct memory_recall *r, const char *text, size_t n) {
    return r->count ? r->count(r->ud, text, n) : (int32_t)(n / 4 + 1);
}

/* Returns true if the text has enough of the question's words. In a question of three words or more, one shared
 * word may be chance. */
static bool is_near(const struct pick *p, const char *text) {
    struct buf all;
    size_t found = 0;
    bool any = false;
    buf_init(&all, (size_t)4 * STORE_MAX_MEMORY_BYTES);
    words_fold(&all, text, strlen(text));
    for (size_t i = 0; i < p->words.n && all.n && !all.failed; ++i)
        if (words_count(all.p, p->words.v[i])) {
            ++found;
            any |= !words_is_number(p->words.v[i]);
        }
    buf_fini(&all);
    return any && (found >= 2 || p->words.n <= 2) && found * 4 >= p->words.n;
}

static int take(void *ud, const struct store_memory *m) {
    struct pick *p = ud;
    struct memory_recall *r = p->r;
    for (int i = 0; i < p->n_seen; ++i)
        if (p->seen[i] == m->id) return 0;
    if (p->by_words ? !is_near(p, m->text) : !m->pinned && m->kind != STORE_FACT) return 0;
    if (!p->by_words && !m->pinned && ++p->n_fact > MAX_FACTS) return 1;
    size_t before = p->out->n;
    buf_puts(p->out, before ? "\n- " : "- ");
    for (const char *t = m->text; *t; ++t) buf_putc(p->out, *t == '\n' ? ' ' : *t);
    int32_t cost = cost_of(r, p->out->p + before, p->out->n - before);
    if (p->out->failed || r->n_token + cost > r->max_tokens) {
        buf_cut(p->out, before);
        ++r->n_left_out;
        return 0;
    }
    r->n_token += cost;
    r->tainted |= m->tainted;
    if (m->pinned) ++r->n_pin;
    else ++r->n_found;
    if (p->n_seen < POOL + MAX_FACTS) p->seen[p->n_seen++] = m->id;
    return 0;
}

int memory_recall(struct store *s, struct memory_recall *r, struct buf *out, struct err *e) {
    struct pick p = {.r = r, .out = out};
    int rc = store_memory_list(s, r->owner, STORE_PINS, POOL, take, &p, e);
    if (rc) return rc;
    bool all = !r->question || fact_asks_all(r->question);
    if (r->question) words_of(&p.words, r->question, strnlen(r->question, 4096));
    struct buf b;
    buf_init(&b, 8192);
    for (size_t i = 0; i < p.words.n; ++i)
        buf_printf(&b, "%s\"%s\"", i ? " OR " : "", p.words.v[i]);
    p.by_words = true;
    if (p.words.n && !b.failed) rc = store_memory_match(s, r->owner, b.p, POOL, take, &p, e);
    buf_fini(&b);
    p.by_words = false;
    if (!rc && all) rc = store_memory_list(s, r->owner, STORE_HOLDING, 4 * POOL, take, &p, e);
    return rc > 0 ? 0 : rc;
}

static int put_row(void *ud, const struct store_memory *m) {
    json_t *o = json_pack("{s:I, s:s, s:s, s:b, s:I}", "id", (json_int_t)m->id, "kind",
                          m->kind == STORE_FACT ? "fact" : "talk", "text", m->text, "pinned",
                          m->pinned, "created", (json_int_t)(m->at_ms / 1000));
    if (o && m->replaced_by)
        json_object_set_new(o, "replaced_by", json_integer((json_int_t)m->replaced_by));
    return json_array_append_new(ud, o);
}

int memory_list(struct store *s, const char *owner, bool history, int32_t most, json_t **out,
                struct err *e) {
    enum store_memory_which which = history ? STORE_WITH_HISTORY : STORE_HOLDING;
    *out = json_array();
    int rc = *out ? store_memory_list(s, owner, which, most, put_row, *out, e)
                  : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) return 0;
    json_decref(*out);
    *out = NULL;
    return rc;
}

/* ---- tools ---- */

static int run_remember(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                        struct err *e) {
    const json_t *text = json_object_get(args, "text");
    int64_t id;
    int rc = memory_keep_fact(ud, env->owner ? env->owner : MEMORY_LOCAL, json_string_value(text),
                              json_string_length(text), false, &id, e);
    if (!rc) buf_printf(out, "remembered as number %lld", (long long)id);
    return rc;
}

static int run_recall(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                      struct err *e) {
    struct memory_recall r = {.owner = env->owner ? env->owner : MEMORY_LOCAL,
                              .question = json_string_value(json_object_get(args, "query")),
                              .max_tokens = 2000};
    int rc = memory_recall(ud, &r, out, e);
    if (!rc && !out->n) buf_puts(out, "nothing is remembered about that");
    env->tainted |= r.tainted;
    return rc;
}

int memory_add_tools(struct store *s, struct tool_set *tools, struct err *e) {
    struct tool remember = {
        .name = "remember",
        /* a web page must not write text that later conversations will begin with */
        .flags = TOOL_EFFECT,
        .deadline_ms = 2000,
        .spec = tool_spec("remember", "Remember a fact about the user for later conversations.",
                          "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\","
                          "\"description\":\"The fact, as one sentence\"}},"
                          "\"required\":[\"text\"]}"),
        .run = run_remember,
        .ud = s};
    struct tool recall = {
        .name = "recall",
        .deadline_ms = 2000,
        .spec = tool_spec("recall", "Look up what is remembered about the user.",
                          "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\","
                          "\"description\":\"What to look for\"}},\"required\":[\"query\"]}"),
        .run = run_recall,
        .ud = s};
    int rc = tool_add(tools, &remember, e), rc_recall = tool_add(tools, &recall, e);
    return rc ? rc : rc_recall;
}
