/* chat_calls_tags.c: calls as tags, with one tag per parameter (struct chat_tags).
 *
 * A value ends at its end tag if a tag follows that fits; otherwise the tag is text. A value may quote complete
 * calls with their markup. After it has opened a quoted call, an end tag may close only the quoted call. The
 * value's text from there on is held until a later end tag shows that it was a quote. If the text ends first, the
 * value ended at the first of these end tags.
 *
 * Accepted: a second or missing end tag of a parameter, a missing end tag of the call, attributes in place of =,
 * CRLF. */
#include <string.h>

#include "base/str.h"
#include "text/chat/chat_calls_impl.h"

enum { MAX_TAGS = 16 };

static bool ends_with(const struct buf *b, const char *end) {
    size_t n = strlen(end);
    return b->n >= n && memcmp(b->p + b->n - n, end, n) == 0;
}

static void end_tags(struct chat_parser *p) {
    buf_putc(&p->args, '}');
    chat_call_done(p);
}

static void start_key(struct chat_parser *p) {
    buf_clear(&p->key);
    p->state = C_KEY;
}

static void function_byte(struct chat_parser *p, char c) {
    const char *marks[MAX_TAGS + 1];
    size_t n = chat_list(marks, 0, p->form->tags->open);
    marks[n] = p->form->marks[0]; /* small models write it twice */
    int k = chat_choose(p, c, marks, n + 1);
    if (k == (int)n) {
        p->state = C_OPEN;
        p->is_repaired = true;
    } else if (k >= 0) {
        p->state = C_NAME;
    } else if (k == -2) {
        chat_call_reject(p, c, "no call behind the mark");
    }
}

static void name_byte(struct chat_parser *p, char c) {
    const struct chat_tags *t = p->form->tags;
    const char *end = NULL;
    buf_putc(&p->name, c);
    for (size_t i = 0; t->name_end[i] && !end && !p->name.failed; i++)
        if (ends_with(&p->name, t->name_end[i])) end = t->name_end[i];
    if (!end) {
        if (p->name.n > CHAT_MAX_NAME + 32 || (c == '<' && t->open[0]))
            chat_call_reject(p, c, "a function's name does not end");
        return;
    }
    buf_cut(&p->name, p->name.n - strlen(end));
    chat_trim_name(&p->name);
    if (!chat_name_ok(&p->name)) {
        chat_call_reject(p, c, "a function without a valid name");
        return;
    }
    chat_call_begin(p);
    buf_putc(&p->args, '{');
    p->state = C_BODY;
    if (strcmp(end, t->key_open[0]) == 0) start_key(p);
    else if (strcmp(end, t->call_end[0]) == 0) end_tags(p);
}

static void body_byte(struct chat_parser *p, char c) {
    const struct chat_tags *t = p->form->tags;
    const char *marks[MAX_TAGS];
    size_t n_key = chat_list(marks, 0, t->key_open), n_end = chat_list(marks, n_key, t->call_end);
    n_end = chat_list(marks, n_end, t->outer_end);
    size_t n = chat_list(marks, n_end, t->value_end);
    if (!t->open[0]) marks[n++] = "<tool_sep>";
    if (chat_is_blank(c) && !p->look.n) return;
    if (c == '{' && !p->look.n && p->args.n == 1) { /* <function=NAME>{...}</function> */
        buf_clear(&p->args);
        chat_args_start(p, c);
        return;
    }
    int k = chat_choose(p, c, marks, n);
    if (k == -2) chat_call_reject(p, c, "text between the parameters of a call");
    else if (k >= 0 && (size_t)k < n_key) start_key(p);
    else if (k >= 0 && (size_t)k < n_end) end_tags(p);
}

/* Reads KEY, or KEY" string="true", which gives the type. */
static unsigned key_type(struct buf *key) {
    unsigned types = 0;
    const char *s = key->p;
    bool is_quoted = s && (*s == '"' || *s == '\'');
    /* in a name without quotes, a quote is part of the name */
    const char *quote = is_quoted ? strpbrk(s + 1, "\"'") : NULL;
    if (quote && strstr(quote, "string=\"true\"")) types = CHAT_T_STRING;
    if (quote && strstr(quote, "string=\"false\"")) types = ~0u;
    if (quote) buf_cut(key, (size_t)(quote - s));
    chat_trim_name(key);
    return types;
}

static void start_value(struct chat_parser *p) {
    unsigned said = key_type(&p->key);
    if (!p->key.n) {
        chat_call_fail(p, "a parameter without a name");
        return;
    }
    p->types = chat_param_types(p->spec.tools, p->name.p, p->key.p);
    if (said && !p->types) p->types = said;
    p->as_text = chat_is_text(p->types);
    p->first_byte = p->form->tags->lines;
    buf_clear(&p->value);
    if (p->args.n > 1) buf_putc(&p->args, ',');
    buf_putc(&p->args, '"');
    chat_json_escape(&p->args, p->key.p, p->key.n);
    buf_puts(&p->args, p->as_text ? "\":\"" : "\":");
    p->has_args = true;
    p->n_nested = 0;
    chat_look_clear(p);
    p->state = p->form->tags->value_open ? C_VALUE_OPEN : C_VALUE;
}

static void key_byte(struct chat_parser *p, char c) {
    buf_putc(&p->key, c);
    if (p->key.failed) return;
    if (ends_with(&p->key, p->form->tags->key_end)) {
        buf_cut(&p->key, p->key.n - strlen(p->form->tags->key_end));
        start_value(p);
    } else if (p->key.n > 2 * CHAT_MAX_NAME || c == '\n') {
        chat_call_reject(p, c, "a parameter's name does not end");
    }
}

static void value_open_byte(struct chat_parser *p, char c) {
    const char *const marks[] = {p->form->tags->value_open};
    if (chat_is_blank(c) && !p->look.n) return;
    int k = chat_choose(p, c, marks, 1);
    if (k == 0) p->state = C_VALUE;
    else if (k == -2) chat_call_reject(p, c, "a parameter without a value");
}

/* ---- values ---- */

static void put_now(struct chat_parser *p, const char *s, size_t n) {
    if (p->as_text) chat_json_escape(&p->args, s, n);
    else buf_put(&p->value, s, n);
}

static void value_put(struct chat_parser *p, const char *s, size_t n) {
    if (n) p->first_byte = false;
    if (p->nested.n) buf_put(&p->nested, s, n);
    else put_now(p, s, n);
}

static void value_end(struct chat_parser *p) {
    if (p->nested.n) put_now(p, p->nested.p, p->nested.n);
    buf_clear(&p->nested);
    if (p->as_text) buf_putc(&p->args, '"');
    else
        chat_put_value(&p->args, p->value.p ? p->value.p : "", p->value.n, p->types,
                       &p->is_repaired);
}

/* The marks that may end a value: end tags; then, for a missing end tag of the parameter, the end of the call and
 * the next key; then tags that open a quoted call. */
struct value_marks {
    const char *text[MAX_TAGS];
    size_t n_value, n_call, n_key, n;
};
static void value_marks(const struct chat_tags *t, struct value_marks *m) {
    m->n_value = chat_list(m->text, 0, t->value_end);
    m->n_call = m->n_value;
    if (t->outer_end[0]) m->n_call = chat_list(m->text, m->n_value, t->call_end);
    m->n_key = m->n_call;
    if (t->lines) m->n_key = chat_list(m->text, m->n_call, t->key_open);
    m->n = chat_list(m->text, m->n_key, t->open);
}

/* Compares look, from `at` on, with the marks. Returns the index of the mark, -1 if it is the beginning of one, -2
 * if no mark matches. */
static int match_mark(const struct value_marks *m, const struct buf *look, size_t at) {
    int found = -2;
    for (size_t i = 0; i < m->n; i++) {
        size_t n = strlen(m->text[i]), k = look->n - at;
        if (strncmp(m->text[i], look->p + at, k < n ? k : n) != 0) continue;
        if (k >= n) return (int)i;
        found = -1;
    }
    return found;
}

static size_t n_break(const struct chat_parser *p) {
    const char *s = p->look.p;
    if (!p->form->tags->lines || !p->look.n) return 0;
    if (*s == '\r') return p->look.n > 1 && s[1] == '\n' ? 2 : 0;
    return *s == '\n';
}

static void drop_front(struct buf *b, size_t n) {
    memmove(b->p, b->p + n, b->n - n);
    buf_cut(b, b->n - n);
}

/* look begins with mark k. Returns true if the mark was processed. */
static bool take_mark(struct chat_parser *p, const struct value_marks *m, int k, size_t at) {
    if ((size_t)k >= m->n_key) { /* the value quotes a call */
        if (!p->is_flat) p->n_nested++;
        value_put(p, p->look.p, p->look.n);
        chat_look_clear(p);
        return true;
    }
    if ((size_t)k >= m->n_call) { /* the next key on its own line, after a missing end tag */
        if (!at || p->n_nested) return false;
        value_end(p);
        p->is_repaired = true;
        chat_look_clear(p);
        start_key(p);
        return true;
    }
    p->n_look = p->look.n;
    p->state = C_VALUE_END;
    return true;
}

static void value_byte(struct chat_parser *p, char c) {
    struct value_marks m;
    if (p->first_byte && !p->look.n &&
        (c == '\n' || c == '\r')) { /* drop the line break of the opening tag */
        if (c == '\n') p->first_byte = false;
        return;
    }
    value_marks(p->form->tags, &m);
    buf_putc(&p->look, c);
    while (p->look.n && !p->look.failed) {
        bool lone_return = p->form->tags->lines && p->look.n == 1 && *p->look.p == '\r';
        size_t at = n_break(p);
        int k = lone_return || (at && at == p->look.n) ? -1 : match_mark(&m, &p->look, at);
        if (k == -1) return;
        if (k >= 0 && take_mark(p, &m, k, at)) return;
        value_put(p, p->look.p, 1);
        drop_front(&p->look, 1);
    }
}

/* The end tag in look is text: processes it as text, then everything after it again. */
static void not_the_end(struct chat_parser *p, size_t n_mark) {
    struct buf again = p->look;
    buf_init(&p->look, again.max);
    p->n_look = 0;
    p->state = C_VALUE;
    value_put(p, again.p, n_mark);
    for (size_t i = n_mark; i < again.n && !p->rc; i++) chat_tags_byte(p, again.p[i]);
    buf_fini(&again);
}

/* look[0..n_look) may have ended the value. It did if a tag follows that fits. */
static void value_end_byte(struct chat_parser *p, char c) {
    const struct chat_tags *t = p->form->tags;
    struct value_marks m;
    if (chat_is_blank(c) && p->look.n == p->n_look) {
        buf_putc(&p->look, c);
        p->n_look = p->look.n;
        return;
    }
    value_marks(t, &m);
    size_t at = n_break(p);
    int was = match_mark(&m, &p->look, at);
    bool of_call = was >= 0 && (size_t)was >= m.n_value;
    const char *after[MAX_TAGS];
    size_t n_key = of_call ? 0 : chat_list(after, 0, t->key_open),
           n_end = of_call ? 0 : chat_list(after, n_key, t->call_end);
    n_end = chat_list(after, n_end, t->outer_end);
    size_t n = of_call ? n_end : chat_list(after, n_end, t->value_end);
    struct buf *look = &p->look;
    buf_putc(look, c);
    if (look->failed) return;
    int k = -2;
    for (size_t i = 0; i < n && k != -1; i++)
        if (strncmp(after[i], look->p + p->n_look, look->n - p->n_look) == 0)
            k = after[i][look->n - p->n_look] ? -1 : (int)i;
    if (k == -1) return;
    if (k == -2) {
        not_the_end(p, at + (was >= 0 ? strlen(m.text[was]) : 1));
    } else if (p->n_nested) { /* as far as is known, this end tag belongs to the quoted call */
        buf_put(&p->nested, look->p, look->n);
        if ((size_t)k >= n_key && (size_t)k < n_end) p->n_nested--;
        chat_look_clear(p);
        p->state = C_VALUE;
    } else {
        value_end(p);
        chat_look_clear(p);
        p->state = C_BODY;
        if ((size_t)k < n_key) start_key(p);
        else if ((size_t)k < n_end) end_tags(p);
        if ((size_t)k >= n_key && (size_t)k < n_end && p->mode == CHAT_IN_CALL &&
            p->state == C_TAIL)
            p->has_end = true;
    }
}

bool chat_tags_eof(struct chat_parser *p) {
    if ((p->state != C_VALUE && p->state != C_VALUE_END) || !p->nested.n) return false;
    struct buf again = p->nested;
    buf_init(&p->nested, again.max);
    if (p->look.n) buf_put(&again, p->look.p, p->look.n);
    chat_look_clear(p);
    p->n_nested = 0;
    p->is_flat = true;
    p->state = C_VALUE;
    buf_cut(&p->raw, p->raw.n > again.n ? p->raw.n - again.n : 0);
    for (size_t i = 0; i < again.n && !p->rc; i++) chat_feed(p, again.p[i]);
    buf_fini(&again);
    return true;
}

void chat_tags_byte(struct chat_parser *p, char c) {
    switch (p->state) {
    case C_FUNCTION: function_byte(p, c); break;
    case C_NAME: name_byte(p, c); break;
    case C_BODY: body_byte(p, c); break;
    case C_KEY: key_byte(p, c); break;
    case C_VALUE_OPEN: value_open_byte(p, c); break;
    case C_VALUE_END: value_end_byte(p, c); break;
    default: value_byte(p, c);
    }
}
