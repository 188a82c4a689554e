/* chat_calls.c: reads a call byte by byte: the marks that open and close it, and the JSON forms.
 *
 *   JSON   MARK {"name": NAME, "arguments": {...}}, or a list of these, and an end mark
 *
 * The text after the mark decides the form, because models mix them up. A call ends with its last bracket or tag;
 * end marks after it are dropped. The reader repairs and reports: a code fence inside the mark, a missing or
 * surplus last brace, calls as JSON strings, and what chat_json.c repairs. A call that is cut by the end of the
 * text is never completed. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "text/chat/chat_calls_impl.h"

bool chat_is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
#define is_blank chat_is_blank
#define reject chat_call_reject

void chat_call_reject(struct chat_parser *p, char c, const char *reason) {
    if (p->is_replayed) { /* the byte comes from a string inside the call */
        chat_call_fail(p, reason);
        return;
    }
    buf_cut(&p->raw, p->raw.n ? p->raw.n - 1 : 0);
    chat_call_fail(p, reason);
    chat_feed(p, c);
}

int chat_choose(struct chat_parser *p, char c, const char *const *marks, size_t n) {
    buf_putc(&p->look, c);
    const char *s = p->look.p ? p->look.p + p->n_look : "";
    size_t k = p->look.n - p->n_look;
    int found = -2;
    for (size_t i = 0; i < n && found != -1 && p->look.p; i++)
        if (strncmp(marks[i], s, k) == 0) found = marks[i][k] ? -1 : (int)i;
    if (found >= 0) chat_look_clear(p);
    return found;
}

size_t chat_list(const char **to, size_t n, const char *const *from) {
    for (; *from; from++) to[n++] = *from;
    return n;
}

void chat_look_clear(struct chat_parser *p) {
    buf_clear(&p->look);
    p->n_look = 0;
}

void chat_call_open(struct chat_parser *p, const char *mark) {
    const struct chat_tags *tags = p->form->tags;
    static const unsigned char first[] = {
        [CHAT_READ_ANY] = C_OPEN,     [CHAT_READ_BARE] = C_OPEN,
        [CHAT_READ_MISTRAL] = C_OPEN, [CHAT_READ_HEAD] = C_HEAD,
        [CHAT_READ_GEMMA] = C_GEMMA,  [CHAT_READ_DEEPSEEK] = C_DS_BEGIN,
        [CHAT_READ_HARMONY] = C_FRAME};
    chat_look_clear(p);
    p->in_array = p->is_bare = p->is_wrapped = p->has_end = false;
    p->state = first[p->form->reader];
    for (size_t i = 0; tags && tags->open[i]; i++)
        if (strcmp(mark, tags->open[i]) == 0) p->state = C_NAME;
    if (p->form->reader == CHAT_READ_DEEPSEEK && strcmp(mark, p->form->marks[1]) == 0)
        p->state = C_DS_HEAD;
    if (p->state == C_FRAME) {
        buf_puts(&p->name, mark);
        p->outer = CHAT_IN_TEXT; /* whatever the mode before the message was */
    }
    if (strcmp(mark, "{") == 0 || strcmp(mark, "[") == 0) {
        p->is_bare = true;
        p->state = *mark == '{' ? C_OBJ_FIRST : C_BARE;
    }
}

static bool starts_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void open_byte(struct chat_parser *p, char c) {
    const struct chat_tags *tags = p->form->tags;
    if (is_blank(c)) return;
    if (c == '{') {
        p->state = C_OBJ_FIRST;
    } else if (c == '[' && !p->in_array) {
        p->in_array = true;
        p->state = C_ARRAY;
    } else if (c == '<' && tags && tags->open[0]) {
        p->state = C_FUNCTION;
        buf_putc(&p->look, c);
    } else if (c == '`') {
        p->state = C_OPEN_FENCE;
        buf_putc(&p->look, c);
    } else if (starts_name(c) && tags && !tags->open[0]) {
        p->state = C_NAME;
        buf_putc(&p->name, c);
    } else if (starts_name(c) && p->form->reader == CHAT_READ_MISTRAL) {
        p->state = C_MISTRAL_NAME;
        buf_putc(&p->name, c);
    } else if (starts_name(c) && !tags && p->form->reader == CHAT_READ_ANY) {
        p->in_array = true; /* one call per line */
        p->state = C_PY_NAME;
        buf_putc(&p->name, c);
    } else if (p->spec.calls == CHAT_CALLS_LLAMA) {
        p->state = C_CODE;
    } else {
        reject(p, c, "no call behind the mark");
    }
}

/* Reads ```json or ```python, or ``` alone. */
static void open_fence_byte(struct chat_parser *p, char c) {
    bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (p->look.n < 3 ? c == '`' : is_word && p->look.n < 16) {
        buf_putc(&p->look, c);
    } else if (p->look.n >= 3 && (is_blank(c) || c == '{' || c == '[')) {
        chat_look_clear(p);
        p->state = C_OPEN;
        p->is_repaired = true;
        open_byte(p, c);
    } else {
        reject(p, c, "no call behind the mark");
    }
}

/* Reads a [ without a mark: it is a list of calls or of Python calls if it names a tool. */
static void bare_byte(struct chat_parser *p, char c) {
    if (is_blank(c)) return;
    p->in_array = true;
    if (c == '{') p->state = C_OBJ_FIRST;
    else if (starts_name(c)) {
        p->state = C_PY_NAME;
        buf_putc(&p->name, c);
    } else reject(p, c, "JSON that is no call");
}

bool chat_name_ok(const struct buf *b) {
    if (!b->n || b->n > CHAT_MAX_NAME) return false;
    for (size_t i = 0; i < b->n; i++)
        if ((unsigned char)b->p[i] <= ' ' || strchr("<>\"'{}[]()\\", b->p[i])) return false;
    return true;
}

void chat_trim_name(struct buf *b) {
    size_t from = 0, to = b->n;
    while (to > from && (is_blank(b->p[to - 1]) || b->p[to - 1] == '"' || b->p[to - 1] == '\''))
        to--;
    while (from < to && (is_blank(b->p[from]) || b->p[from] == '"' || b->p[from] == '\'')) from++;
    if (from) memmove(b->p, b->p + from, to - from);
    buf_cut(b, to - from);
}

void chat_call_done(struct chat_parser *p) {
    if (!chat_call_end(p)) return;
    chat_look_clear(p);
    p->state = p->in_array ? C_ARRAY_NEXT : C_TAIL;
}

/* ---- JSON ---- */

static bool is_key(const struct buf *key, const char *name) {
    size_t n = strlen(name);
    return key->n == n + 2 && memcmp(key->p + 1, name, n) == 0;
}
static bool is_args_key(const struct buf *key) {
    return is_key(key, "arguments") || is_key(key, "parameters") || is_key(key, "args");
}

/* Returns the text of a JSON string; NULL if the value is not a string. */
static json_t *value_text(const struct buf *value) {
    json_t *s = value->n ? json_loadb(value->p, value->n, JSON_DECODE_ANY, NULL) : NULL;
    if (s && !json_is_string(s)) {
        json_decref(s);
        s = NULL;
    }
    return s;
}

static void obj_key_start(struct chat_parser *p, char quote) {
    buf_clear(&p->key);
    chat_json_init(&p->json, &p->key);
    chat_json_push(&p->json, quote);
    p->is_repaired |= quote != '"';
    p->state = C_OBJ_KEY;
}

/* Takes arguments that are not an object: a string that contains one, or null. */
static const char *take_args(struct chat_parser *p) {
    json_t *text = value_text(&p->value);
    const char *reason = NULL;
    if (p->json.first == 'n' || p->json.first == 'N' || (text && !json_string_length(text)))
        buf_puts(&p->args, "{}");
    else if (!text || !chat_put_typed(&p->args, json_string_value(text), json_string_length(text),
                                      CHAT_T_OBJECT, &p->is_repaired))
        reason = "arguments that are no JSON object";
    json_decref(text);
    return reason;
}

static const char *take_name(struct chat_parser *p) {
    json_t *text = value_text(&p->value);
    const char *reason = NULL;
    if (p->is_begun) reason = "a call with two names";
    buf_clear(&p->name);
    if (text) buf_put(&p->name, json_string_value(text), json_string_length(text));
    json_decref(text);
    if (!reason && !chat_name_ok(&p->name)) reason = "a function without a valid name";
    if (!reason && p->is_bare && p->spec.tools && !chat_has_tool(p->spec.tools, p->name.p))
        reason = "a function that is not among the tools";
    if (!reason && !p->is_bare) chat_call_begin(p);
    return reason;
}

/* Called when the value of p->key has ended. Returns NULL, or the reason why this is not a call. */
static const char *take_value(struct chat_parser *p) {
    p->state = C_OBJ_NEXT;
    p->is_repaired |= p->json.is_repaired;
    if (is_key(&p->key, "name") || is_key(&p->key, "tool_name") ||
        (is_key(&p->key, "function") && !p->name.n))
        return take_name(p);
    if (is_args_key(&p->key)) return p->json.out == &p->args ? NULL : take_args(p);
    if ((is_key(&p->key, "id") || is_key(&p->key, "tool_call_id")) && !p->is_begun) {
        json_t *text = value_text(&p->value);
        buf_clear(&p->id);
        if (text) buf_put(&p->id, json_string_value(text), json_string_length(text));
        json_decref(text);
    }
    bool is_type = is_key(&p->key, "type") && is_key(&p->value, "function");
    if (!is_type && !is_key(&p->key, "id")) p->has_other = true;
    return NULL;
}

static void obj_end(struct chat_parser *p, char c) {
    if (p->is_wrapped) {
        p->is_wrapped = false;
        p->state = C_OBJ_NEXT;
        return;
    }
    if (p->is_bare && (!p->name.n || !p->has_args)) {
        reject(p, c, "JSON that is no call");
        return;
    }
    if (!p->name.n) {
        reject(p, c, "a call without a name");
        return;
    }
    if (!p->has_args) buf_puts(&p->args, "{}");
    if (!p->is_begun) chat_call_begin(p);
    chat_call_done(p);
}

static void obj_value_byte(struct chat_parser *p, char c) {
    enum chat_json_status st = chat_json_push(&p->json, c);
    if (st == CHAT_JSON_MORE) return;
    const char *reason = st == CHAT_JSON_BAD ? "JSON that is not valid" : take_value(p);
    if (reason) reject(p, c, reason);
    else if (st == CHAT_JSON_BEFORE) chat_call_byte(p, c);
}

static void obj_start_byte(struct chat_parser *p, char c) {
    bool args = is_args_key(&p->key);
    if (is_blank(c)) return;
    if (p->form->is_keyed && c == '{' && !p->name.n) { /* {"NAME": {..}} */
        buf_put(&p->name, p->key.p + 1, p->key.n - 2);
        if (!chat_name_ok(&p->name)) {
            reject(p, c, "a function without a valid name");
            return;
        }
        chat_call_begin(p);
        args = true;
    }
    if (args && p->has_args) {
        reject(p, c, "a call with two argument objects");
        return;
    }
    if (is_key(&p->key, "function") && c == '{' &&
        !p->is_wrapped) { /* {"function": {"name": ..}} */
        p->is_wrapped = true;
        p->state = C_OBJ_FIRST;
        return;
    }
    buf_clear(&p->value);
    bool stream = args && c == '{';
    chat_json_init(&p->json, stream ? &p->args : &p->value);
    p->has_args |= args;
    if (p->is_bare && stream && p->name.n && !p->is_begun) chat_call_begin(p);
    p->state = C_OBJ_VALUE;
    obj_value_byte(p, c);
}

/* Handles an end mark in the place where the last brace of the call should be. */
static void obj_missing_byte(struct chat_parser *p, char c) {
    p->state = C_OBJ_MISSING;
    if (chat_choose(p, c, p->form->ends, 1) == -2) {
        reject(p, c, "JSON that is not valid");
    } else if (!p->look.n) {
        p->is_repaired = true;
        p->in_array = false;
        obj_end(p, c);
        if (p->state == C_TAIL) p->has_end = true;
    }
}

static void obj_byte(struct chat_parser *p, char c) {
    bool blank = is_blank(c);
    switch (p->state) {
    case C_OBJ_FIRST:
    case C_OBJ_COMMA:
        if (c == '"' || c == '\'') obj_key_start(p, c);
        else if (c == '}') obj_end(p, c);
        else if (!blank) reject(p, c, "JSON that is not valid");
        break;
    case C_OBJ_KEY: {
        enum chat_json_status st = chat_json_push(&p->json, c);
        if (st == CHAT_JSON_DONE) p->state = C_COLON;
        else if (st == CHAT_JSON_BAD || p->key.n > 4 * CHAT_MAX_NAME)
            reject(p, c, "JSON that is not valid");
        break;
    }
    case C_COLON:
        if (c == ':') p->state = C_OBJ_START;
        else if (!blank) reject(p, c, "JSON that is not valid");
        break;
    case C_OBJ_NEXT:
        if (c == ',') p->state = C_OBJ_COMMA;
        else if (c == '}') obj_end(p, c);
        else if (p->form->ends[0] && c == p->form->ends[0][0] && !p->is_bare && !p->is_wrapped &&
                 p->name.n && p->has_args)
            obj_missing_byte(p, c);
        else if (!blank) reject(p, c, "JSON that is not valid");
        break;
    default: break;
    }
}

static void tail_byte(struct chat_parser *p, char c);

/* A call in the form of a JSON string in the list: the text of the string is parsed in its place. */
static void array_text_byte(struct chat_parser *p, char c) {
    enum chat_json_status st = chat_json_push(&p->json, c);
    if (st == CHAT_JSON_MORE) return;
    json_t *text = st == CHAT_JSON_DONE ? value_text(&p->value) : NULL;
    struct buf object;
    buf_init(&object, p->value.max);
    bool ok = text && chat_put_typed(&object, json_string_value(text), json_string_length(text),
                                     CHAT_T_OBJECT, NULL);
    json_decref(text);
    if (!ok) {
        reject(p, c, "JSON that is not valid");
    } else {
        p->state = C_OBJ_FIRST;
        p->is_repaired = p->is_replayed = true;
        for (size_t i = 1; i < object.n && p->mode == CHAT_IN_CALL && !p->rc; i++)
            chat_call_byte(p, object.p[i]);
        p->is_replayed = false;
    }
    buf_fini(&object);
}

static void array_byte(struct chat_parser *p, char c) {
    if (is_blank(c)) return;
    if (c == '{') {
        p->state = C_OBJ_FIRST;
    } else if (c == '"' && !p->is_bare) {
        buf_clear(&p->value);
        chat_json_init(&p->json, &p->value);
        chat_json_push(&p->json, c);
        p->state = C_ARRAY_TEXT;
    } else if (starts_name(c) && p->form->reader != CHAT_READ_MISTRAL) {
        p->state = C_PY_NAME;
        buf_putc(&p->name, c);
    } else if (c == ',' && p->state == C_ARRAY_NEXT) {
        p->state = C_ARRAY;
    } else if (c == ']') {
        p->in_array = false;
        p->state = C_TAIL;
    } else if (p->state == C_ARRAY_NEXT &&
               (c == '`' || (p->form->ends[0] && c == p->form->ends[0][0]))) {
        /* calls without brackets around them, or with the last bracket missing */
        p->in_array = false;
        p->state = C_TAIL;
        tail_byte(p, c);
    } else {
        reject(p, c, "JSON that is not valid");
    }
}

/* Reads an argument object that follows a name. */
static void args_byte(struct chat_parser *p, char c) {
    if (p->state == C_ARGS_START) {
        if (is_blank(c)) return;
        if (c != '{') {
            reject(p, c, "arguments that are no JSON object");
            return;
        }
        chat_trim_name(&p->name);
        if (!chat_name_ok(&p->name)) {
            reject(p, c, "a function without a valid name");
            return;
        }
        chat_call_begin(p);
        chat_json_init(&p->json, &p->args);
        p->has_args = true;
        p->state = C_ARGS;
    }
    enum chat_json_status st = chat_json_push(&p->json, c);
    if (st == CHAT_JSON_BAD) {
        reject(p, c, "JSON that is not valid");
    } else if (st == CHAT_JSON_DONE) {
        p->is_repaired |= p->json.is_repaired;
        chat_call_done(p);
    }
}

void chat_args_start(struct chat_parser *p, char c) {
    p->state = C_ARGS_START;
    args_byte(p, c);
}

/* ---- after calls ---- */

/* Checks for another call without its own mark: returns true if c begins one. */
static bool next_call(struct chat_parser *p, char c) {
    if (p->look.n != p->n_look || c != '{') return false;
    if (p->form->reader != CHAT_READ_BARE && (p->form->reader != CHAT_READ_ANY || p->has_end))
        return false;
    bool is_bare = p->is_bare;
    buf_clear(&p->raw);
    buf_put(&p->raw, p->look.p ? p->look.p : "", p->look.n);
    buf_putc(&p->raw, c);
    chat_call_open(p, "{");
    p->is_bare = is_bare;
    return true;
}

/* No more calls follow: the bytes in look are text. */
static void leave_with_look(struct chat_parser *p) {
    struct buf again = p->look;
    buf_init(&p->look, again.max);
    p->n_look = 0;
    chat_call_leave(p);
    for (size_t i = 0; i < again.n; i++) chat_feed(p, again.p[i]);
    buf_fini(&again);
}

static void tail_byte(struct chat_parser *p, char c) {
    const char *ends[8];
    size_t n = chat_list(ends, 0, p->form->ends);
    ends[n++] = "```";
    if (p->form->tags) n = chat_list(ends, n, p->form->tags->call_end);
    /* A surplus brace is dropped if an end mark follows; otherwise look keeps it. */
    bool is_skipped = is_blank(c) || (c == '}' && !p->has_end && !p->is_bare);
    if (is_skipped && p->look.n == p->n_look) {
        buf_clear(&p->raw);
        buf_putc(&p->look, c);
        p->n_look = p->look.n;
        return;
    }
    if (next_call(p, c)) return;
    buf_clear(&p->raw); /* only look remains to be returned as text */
    bool has_brace = p->look.n && memchr(p->look.p, '}', p->n_look);
    int k = chat_choose(p, c, ends, n);
    if (k >= 0) {
        p->has_end = true;
        if (has_brace) p->result.n_repaired++;
    }
    if (k == -2) leave_with_look(p);
}

void chat_call_byte(struct chat_parser *p, char c) {
    switch ((enum chat_call_state)p->state) {
    case C_OPEN: open_byte(p, c); break;
    case C_OPEN_FENCE: open_fence_byte(p, c); break;
    case C_BARE: bare_byte(p, c); break;
    case C_FUNCTION:
    case C_NAME:
    case C_BODY:
    case C_KEY:
    case C_VALUE_OPEN:
    case C_VALUE:
    case C_VALUE_END: chat_tags_byte(p, c); break;
    case C_OBJ_START: obj_start_byte(p, c); break;
    case C_OBJ_VALUE: obj_value_byte(p, c); break;
    case C_OBJ_MISSING: obj_missing_byte(p, c); break;
    case C_ARRAY:
    case C_ARRAY_NEXT: array_byte(p, c); break;
    case C_ARRAY_TEXT: array_text_byte(p, c); break;
    case C_ARGS_START:
    case C_ARGS: args_byte(p, c); break;
    case C_OBJ_FIRST:
    case C_OBJ_KEY:
    case C_COLON:
    case C_OBJ_NEXT:
    case C_OBJ_COMMA: obj_byte(p, c); break;
    case C_CODE: break; /* the code is in raw */
    case C_TAIL: tail_byte(p, c); break;
    default: chat_named_byte(p, c);
    }
}

/* ---- end of the text ---- */

/* No call is open: the possible beginning of an end mark is text, unless the text was cut. */
static void eof_in_tail(struct chat_parser *p, bool is_cut) {
    if (is_cut) chat_look_clear(p);
    leave_with_look(p);
}

/* Returns true if the string is one of the words, or, if it has not ended, the beginning of one. */
static bool is_word(const struct buf *text, bool is_ended, const char *const *words) {
    for (; *words; words++)
        if (is_ended ? is_key(text, *words) : strncmp(*words, text->p + 1, text->n - 1) == 0)
            return true;
    return false;
}

/* For JSON without a mark that was cut before it was clear whether it is a call: returns true if it may become
 * one. */
static bool may_be_call(const struct chat_parser *p) {
    static const char *const all[] = {"id",        "name",       "type", "function", "tool_name",
                                      "arguments", "parameters", "args", NULL};
    static const char *const types[] = {"function", NULL};
    /* an id may occur in any object, so it is not enough */
    const char *const *keys = all + !p->name.n;
    if (p->has_other) return false;
    switch ((enum chat_call_state)p->state) {
    case C_OBJ_KEY: return is_word(&p->key, false, keys);
    case C_COLON:
    case C_OBJ_START: return is_word(&p->key, true, keys);
    case C_OBJ_VALUE:
        if (is_args_key(&p->key) || is_key(&p->key, "id") || p->value.n < 2)
            return is_word(&p->key, true, keys);
        if (is_key(&p->key, "type")) return is_word(&p->value, false, types);
        return chat_has_tool_prefix(p->spec.tools, p->value.p + 1, p->value.n - 1);
    case C_PY_NAME: return chat_has_tool_prefix(p->spec.tools, p->name.p, p->name.n);
    case C_HEAD: /* functionary: the text after the mark that the prompt ends with */
        return strncmp("all", p->name.p ? p->name.p : "", p->name.n) == 0 ||
               chat_has_tool_prefix(p->spec.tools, p->name.p, p->name.n);
    case C_ARGS_START: return chat_has_tool(p->spec.tools, p->name.p);
    default: return true; /* a bracket, or members that calls have */
    }
}

/* Returns false if no call has begun and the text so far is content. */
static bool cut_bare(struct chat_parser *p) {
    if (!p->name.n || (!p->has_args && !may_be_call(p))) return may_be_call(p);
    if (p->state != C_PY_NAME && p->state != C_HEAD) chat_call_begin(p);
    return true;
}

void chat_call_eof(struct chat_parser *p, bool is_cut) {
    while (!is_cut && p->mode == CHAT_IN_CALL && chat_tags_eof(p)) {}
    if (p->mode != CHAT_IN_CALL || (p->state == C_FRAME && chat_frame_eof(p))) return;
    if (p->state == C_TAIL) {
        eof_in_tail(p, is_cut);
        return;
    }
    if (p->state == C_ARRAY_NEXT) { /* the closing bracket of the list is missing */
        chat_call_leave(p);
        return;
    }
    if (p->state == C_CODE && p->raw.p && chat_code_eof(p)) {
        if (is_cut) chat_call_cut(p);
        else if (chat_call_end(p)) chat_call_leave(p);
        return;
    }
    bool in_text = p->outer == CHAT_IN_TEXT;
    if (in_text && p->is_bare && p->name.n && p->has_args) chat_call_begin(p);
    bool is_lost = is_cut && in_text && (!p->is_bare || cut_bare(p));
    if ((in_text && p->is_begun) || is_lost) chat_call_cut(p);
    else chat_call_fail(p, "the text ends inside a call");
}
