/* chat_calls.c: the forms of tool calls, one byte at a time.
 *
 *   XML      <tool_call> <function=NAME> <parameter=KEY>\nVALUE\n</parameter> ... </function> </tool_call>
 *   JSON     MARK {"name": NAME, "arguments": {...}}, or a list of these, and an end mark
 *   Mistral  [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}, or MARK and JSON
 *   DeepSeek MARK TYPE SEP NAME\n```json\n{...}\n``` END, or MARK NAME SEP {...} END
 *   Llama    {"name": NAME, "parameters": {...}} alone, or behind <|python_tag|>; there also code
 *
 * Behind <tool_call> both XML and JSON are taken, as models mix them up. A call ends where its last
 * bracket or </function> stands; end marks behind it are swallowed. Tolerated: a second </parameter>,
 * a missing </function> or </parameter>, raw line breaks in JSON strings. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "text/chat/chat_impl.h"

#define MAX_NAME 128
#define BAR "\xef\xbd\x9c" /* U+FF5C */
#define LOW "\xe2\x96\x81" /* U+2581 */
#define DS_CALLS_BEGIN "<" BAR "tool" LOW "calls" LOW "begin" BAR ">"
#define DS_CALLS_END "<" BAR "tool" LOW "calls" LOW "end" BAR ">"
#define DS_CALL_BEGIN "<" BAR "tool" LOW "call" LOW "begin" BAR ">"
#define DS_CALL_END "<" BAR "tool" LOW "call" LOW "end" BAR ">"
#define DS_SEP "<" BAR "tool" LOW "sep" BAR ">"

enum state {
    C_OPEN,      /* blanks, then what tells the form */
    C_FUNCTION,  /* <function= */
    C_NAME,      /* up to > */
    C_BODY,      /* <parameter= or the end */
    C_KEY,       /* up to > */
    C_VALUE,     /* up to what may end it */
    C_VALUE_END, /* something that may have ended it was read: does what follows agree? */
    C_OBJ_FIRST, /* " or } */
    C_OBJ_KEY,   /* inside the key */
    C_COLON,
    C_OBJ_VALUE,  /* inside the value */
    C_OBJ_START,  /* blanks before the value */
    C_OBJ_NEXT,   /* , or } */
    C_OBJ_COMMA,  /* " */
    C_ARRAY,      /* a call or ] */
    C_ARRAY_NEXT, /* , or ] */
    C_ARGS_START, /* blanks before an argument object that stands alone */
    C_ARGS,       /* inside it */
    C_MISTRAL_NAME,
    C_MISTRAL_MARK, /* [ARGS] or [CALL_ID] */
    C_MISTRAL_ID,
    C_DS_BEGIN, /* the first call of the list */
    C_DS_HEAD,  /* up to the separator */
    C_DS_SEP,   /* { or a name */
    C_DS_NAME,  /* up to the line's end */
    C_DS_FENCE, /* ``` and json, or { */
    C_CODE,     /* code up to the end of the text */
    C_TAIL,     /* no call open: end marks are swallowed */
};

static const char *const marks_xml[] = {"<tool_call>", "<function="};
static const char *const marks_hermes[] = {"<tool_call>"};
static const char *const marks_nemotron[] = {"<TOOLCALL>"};
static const char *const marks_granite[] = {"<|tool_call|>", "<tool_call>"};
static const char *const marks_llama[] = {"<|python_tag|>"};
static const char *const marks_mistral[] = {"[TOOL_CALLS]"};
static const char *const marks_deepseek[] = {DS_CALLS_BEGIN, DS_CALL_BEGIN};
static const char *const end_marks[] = {"</tool_call>", "</TOOLCALL>", "<|/tool_call|>"};
static const char *const end_marks_deepseek[] = {DS_CALL_END, DS_CALLS_END, "```"};
static const char *const end_marks_llama[] = {";"};

size_t chat_call_marks(enum chat_calls calls, const char *const **marks) {
#define ROW(list) (*marks = (list), sizeof(list) / sizeof *(list))
    switch (calls) {
    case CHAT_CALLS_QWEN_XML: return ROW(marks_xml);
    case CHAT_CALLS_HERMES: return ROW(marks_hermes);
    case CHAT_CALLS_NEMOTRON: return ROW(marks_nemotron);
    case CHAT_CALLS_GRANITE: return ROW(marks_granite);
    case CHAT_CALLS_LLAMA: return ROW(marks_llama);
    case CHAT_CALLS_MISTRAL: return ROW(marks_mistral);
    case CHAT_CALLS_DEEPSEEK: return ROW(marks_deepseek);
    case CHAT_CALLS_NONE: break;
    }
#undef ROW
    *marks = NULL;
    return 0;
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* The byte does not belong to a call: what was read becomes text, the byte is looked at afresh. */
static void reject(struct chat_parser *p, char c, const char *reason) {
    buf_cut(&p->raw, p->raw.n ? p->raw.n - 1 : 0);
    chat_call_fail(p, reason);
    chat_feed(p, c);
}

/* Adds c to the mark that is being read: its number, -1 not yet clear, -2 none of them. */
static int choose(struct chat_parser *p, char c, const char *const *marks, size_t n) {
    buf_putc(&p->look, c);
    const char *s = p->look.p ? p->look.p + p->n_look : "";
    size_t k = p->look.n - p->n_look;
    int found = -2;
    for (size_t i = 0; i < n && found != -1 && p->look.p; i++)
        if (strncmp(marks[i], s, k) == 0) found = marks[i][k] ? -1 : (int)i;
    if (found >= 0) {
        buf_clear(&p->look);
        p->n_look = 0;
    }
    return found;
}

static void look_clear(struct chat_parser *p) {
    buf_clear(&p->look);
    p->n_look = 0;
}

void chat_call_open(struct chat_parser *p, const char *mark) {
    look_clear(p);
    p->in_array = p->is_bare = p->is_wrapped = false;
    p->state = C_OPEN;
    if (strcmp(mark, "<function=") == 0) p->state = C_NAME;
    if (strcmp(mark, DS_CALLS_BEGIN) == 0) p->state = C_DS_BEGIN;
    if (strcmp(mark, DS_CALL_BEGIN) == 0) p->state = C_DS_HEAD;
    if (strcmp(mark, "{") == 0) {
        p->is_bare = true;
        p->state = C_OBJ_FIRST;
    }
}

static void open_byte(struct chat_parser *p, char c) {
    bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (is_blank(c)) return;
    if (c == '{') {
        p->state = C_OBJ_FIRST;
    } else if (c == '[' && !p->in_array) {
        p->in_array = true;
        p->state = C_ARRAY;
    } else if (c == '<' &&
               (p->spec.calls == CHAT_CALLS_QWEN_XML || p->spec.calls == CHAT_CALLS_HERMES)) {
        p->state = C_FUNCTION;
        buf_putc(&p->look, c);
    } else if (word && p->spec.calls == CHAT_CALLS_MISTRAL) {
        p->state = C_MISTRAL_NAME;
        buf_putc(&p->name, c);
    } else if (p->spec.calls == CHAT_CALLS_LLAMA) {
        p->state = C_CODE;
    } else {
        reject(p, c, "no call behind the mark");
    }
}

/* ---- XML ---- */

static bool name_ok(const struct buf *b) {
    if (!b->n || b->n > MAX_NAME) return false;
    for (size_t i = 0; i < b->n; i++)
        if ((unsigned char)b->p[i] <= ' ' || strchr("<>\"'{}[]()\\", b->p[i])) return false;
    return true;
}

static void trim_name(struct buf *b) {
    size_t from = 0, to = b->n;
    while (to > from && (is_blank(b->p[to - 1]) || b->p[to - 1] == '"' || b->p[to - 1] == '\''))
        to--;
    while (from < to && (is_blank(b->p[from]) || b->p[from] == '"' || b->p[from] == '\'')) from++;
    if (from) memmove(b->p, b->p + from, to - from);
    buf_cut(b, to - from);
}

static void name_byte(struct chat_parser *p, char c) {
    if (c != '>') {
        buf_putc(&p->name, c);
        if (p->name.n > MAX_NAME + 16 || c == '<') reject(p, c, "a function's name does not end");
        return;
    }
    trim_name(&p->name);
    if (!name_ok(&p->name)) {
        reject(p, c, "a function without a valid name");
        return;
    }
    chat_call_begin(p);
    buf_putc(&p->args, '{');
    p->state = C_BODY;
}

/* Complete unless the message cannot take it; end marks may follow. */
static void end_call(struct chat_parser *p) {
    if (!chat_call_end(p)) return;
    look_clear(p);
    p->state = p->in_array ? C_ARRAY_NEXT : C_TAIL;
}

static void end_xml(struct chat_parser *p) {
    buf_putc(&p->args, '}');
    end_call(p);
}

static void body_byte(struct chat_parser *p, char c) {
    static const char *const marks[] = {"<parameter=", "</function>", "</parameter>",
                                        "</tool_call>"};
    if (is_blank(c) && !p->look.n) return;
    int k = choose(p, c, marks, 4);
    if (k == 0) {
        buf_clear(&p->key);
        p->state = C_KEY;
    } else if (k == 1 || k == 3) {
        end_xml(p);
    } else if (k == -2) {
        reject(p, c, "text between the parameters of a call");
    }
}

static void key_byte(struct chat_parser *p, char c) {
    if (c != '>') {
        buf_putc(&p->key, c);
        if (p->key.n > 2 * MAX_NAME || c == '\n') reject(p, c, "a parameter's name does not end");
        return;
    }
    trim_name(&p->key);
    if (!p->key.n) {
        reject(p, c, "a parameter without a name");
        return;
    }
    p->types = chat_param_types(p->spec.tools, p->name.p, p->key.p);
    p->as_text = chat_is_text(p->types);
    p->first_byte = true;
    buf_clear(&p->value);
    if (p->args.n > 1) buf_putc(&p->args, ',');
    buf_putc(&p->args, '"');
    chat_json_escape(&p->args, p->key.p, p->key.n);
    buf_puts(&p->args, p->as_text ? "\":\"" : "\":");
    p->has_args = true;
    p->state = C_VALUE;
    look_clear(p);
}

static void value_put(struct chat_parser *p, const char *s, size_t n) {
    if (n && p->first_byte) {
        p->first_byte = false;
        if (*s == '\n') s++, n--;
    }
    if (p->as_text) chat_json_escape(&p->args, s, n);
    else buf_put(&p->value, s, n);
}

static void value_end(struct chat_parser *p) {
    if (p->as_text) buf_putc(&p->args, '"');
    else chat_put_value(&p->args, p->value.p ? p->value.p : "", p->value.n, p->types);
}

static void value_byte(struct chat_parser *p, char c) {
    static const char *const marks[] = {"\n</parameter>", "</parameter>", "\n</function>",
                                        "</function>", "\n<parameter="};
    if (p->first_byte && c == '\n' && !p->look.n) { /* the line break behind the opening tag */
        p->first_byte = false;
        return;
    }
    buf_putc(&p->look, c);
    while (p->look.n) {
        int found = -2;
        for (int i = 0; i < 5 && found == -2; i++)
            if (strncmp(marks[i], p->look.p, p->look.n) == 0) found = marks[i][p->look.n] ? -1 : i;
        if (found == -1) return;
        if (found == 4) {
            value_end(p);
            look_clear(p);
            buf_clear(&p->key);
            p->state = C_KEY;
            return;
        }
        if (found >= 0) {
            p->n_look = p->look.n;
            p->state = C_VALUE_END;
            return;
        }
        value_put(p, p->look.p, 1);
        memmove(p->look.p, p->look.p + 1, p->look.n - 1);
        buf_cut(&p->look, p->look.n - 1);
    }
}

/* look[0..n_look) may have ended the value: it did if a tag follows that fits; else it is text. */
static void value_end_byte(struct chat_parser *p, char c) {
    static const char *const behind_parameter[] = {"<parameter=", "</function>", "</parameter>",
                                                   "</tool_call>"};
    static const char *const behind_function[] = {"</tool_call>"};
    if (is_blank(c) && p->look.n == p->n_look) {
        buf_putc(&p->look, c);
        p->n_look = p->look.n;
        return;
    }
    size_t n_break = p->look.n && p->look.p[0] == '\n';
    bool function =
        p->look.n >= n_break + 11 && memcmp(p->look.p + n_break, "</function>", 11) == 0;
    size_t n_mark = n_break + strlen(function ? "</function>" : "</parameter>");
    int k = choose(p, c, function ? behind_function : behind_parameter, function ? 1 : 4);
    if (k == -2) { /* text: the end mark, then everything behind it once more */
        struct buf again = p->look;
        buf_init(&p->look, again.max);
        p->n_look = 0;
        p->state = C_VALUE;
        if (again.n >= n_mark) value_put(p, again.p, n_mark);
        for (size_t i = n_mark; i < again.n; i++) value_byte(p, again.p[i]);
        buf_fini(&again);
    } else if (k >= 0) {
        value_end(p);
        p->state = C_BODY;
        if (!function && k == 0) {
            buf_clear(&p->key);
            p->state = C_KEY;
        } else if (function || k != 2) {
            end_xml(p);
        }
    }
}

/* ---- JSON ---- */

static bool is_key(const struct buf *key, const char *name) {
    size_t n = strlen(name);
    return key->n == n + 2 && memcmp(key->p + 1, name, n) == 0;
}
static bool is_args_key(const struct buf *key) {
    return is_key(key, "arguments") || is_key(key, "parameters");
}

/* A JSON string's text; NULL if value is none. */
static json_t *value_text(const struct buf *value) {
    json_t *s = value->n ? json_loadb(value->p, value->n, JSON_DECODE_ANY, NULL) : NULL;
    if (s && !json_is_string(s)) {
        json_decref(s);
        s = NULL;
    }
    return s;
}

static void obj_key_start(struct chat_parser *p) {
    buf_clear(&p->key);
    chat_json_init(&p->json, &p->key);
    chat_json_push(&p->json, '"');
    p->state = C_OBJ_KEY;
}

/* What the model gave as arguments, other than an object: text that holds one, or null. */
static const char *take_args(struct chat_parser *p) {
    json_t *text = value_text(&p->value);
    json_t *object =
        text ? json_loadb(json_string_value(text), json_string_length(text), 0, NULL) : NULL;
    const char *reason = NULL;
    if (p->json.first == 'n' || (text && !json_string_length(text))) {
        buf_puts(&p->args, "{}");
    } else if (json_is_object(object)) {
        chat_put_value(&p->args, json_string_value(text), json_string_length(text), CHAT_T_OBJECT);
    } else {
        reason = "arguments that are no JSON object";
    }
    json_decref(object);
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
    if (!reason && !name_ok(&p->name)) reason = "a function without a valid name";
    if (!reason && p->is_bare && p->spec.tools && !chat_has_tool(p->spec.tools, p->name.p))
        reason = "a function that is not among the tools";
    if (!reason && !p->is_bare) chat_call_begin(p);
    return reason;
}

/* The value of p->key has ended; NULL or why this is no call. */
static const char *take_value(struct chat_parser *p) {
    p->state = C_OBJ_NEXT;
    if (is_key(&p->key, "name") || (is_key(&p->key, "function") && !p->name.n)) return take_name(p);
    if (is_args_key(&p->key)) return p->json.out == &p->args ? NULL : take_args(p);
    if (is_key(&p->key, "id") && !p->is_begun) {
        json_t *text = value_text(&p->value);
        buf_clear(&p->id);
        if (text) buf_put(&p->id, json_string_value(text), json_string_length(text));
        json_decref(text);
    }
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
    end_call(p);
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

static void obj_byte(struct chat_parser *p, char c) {
    bool blank = is_blank(c);
    switch (p->state) {
    case C_OBJ_FIRST:
    case C_OBJ_COMMA:
        if (c == '"') obj_key_start(p);
        else if (c == '}' && p->state == C_OBJ_FIRST) obj_end(p, c);
        else if (!blank) reject(p, c, "JSON that is not valid");
        break;
    case C_OBJ_KEY: {
        enum chat_json_status st = chat_json_push(&p->json, c);
        if (st == CHAT_JSON_DONE) p->state = C_COLON;
        else if (st == CHAT_JSON_BAD || p->key.n > 4 * MAX_NAME)
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
        else if (!blank) reject(p, c, "JSON that is not valid");
        break;
    default: break;
    }
}

static void array_byte(struct chat_parser *p, char c) {
    if (is_blank(c)) return;
    if (c == '{') p->state = C_OBJ_FIRST;
    else if (c == ',' && p->state == C_ARRAY_NEXT) p->state = C_ARRAY;
    else if (c == ']') p->state = C_TAIL;
    else reject(p, c, "JSON that is not valid");
}

/* An argument object alone, behind a name. */
static void args_byte(struct chat_parser *p, char c) {
    if (p->state == C_ARGS_START) {
        if (is_blank(c)) return;
        if (c != '{') {
            reject(p, c, "arguments that are no JSON object");
            return;
        }
        trim_name(&p->name);
        if (!name_ok(&p->name)) {
            reject(p, c, "a function without a valid name");
            return;
        }
        chat_call_begin(p);
        chat_json_init(&p->json, &p->args);
        p->has_args = true;
        p->state = C_ARGS;
    }
    enum chat_json_status st = chat_json_push(&p->json, c);
    if (st == CHAT_JSON_BAD) reject(p, c, "JSON that is not valid");
    else if (st == CHAT_JSON_DONE) end_call(p);
}

/* ---- Mistral ---- */

static void mistral_byte(struct chat_parser *p, char c) {
    static const char *const marks[] = {"[ARGS]", "[CALL_ID]"};
    if (p->state == C_MISTRAL_MARK) {
        int k = choose(p, c, marks, 2);
        if (k == 0) p->state = C_ARGS_START;
        else if (k == 1) p->state = C_MISTRAL_ID;
        else if (k == -2) reject(p, c, "no call behind the mark");
    } else if (c == '[') {
        p->state = C_MISTRAL_MARK;
        buf_putc(&p->look, c);
    } else if (c == '{' && p->state == C_MISTRAL_NAME) {
        p->state = C_ARGS_START;
        args_byte(p, c);
    } else {
        struct buf *to = p->state == C_MISTRAL_ID ? &p->id : &p->name;
        buf_putc(to, c);
        if (to->n > MAX_NAME || c == '\n') reject(p, c, "a function's name does not end");
    }
}

/* ---- DeepSeek ---- */

static void deepseek_byte(struct chat_parser *p, char c) {
    static const char *const begin[] = {DS_CALL_BEGIN};
    static const char *const fence[] = {"```json", "```JSON"};
    switch (p->state) {
    case C_DS_BEGIN:
        if (is_blank(c) && !p->look.n) return;
        switch (choose(p, c, begin, 1)) {
        case 0: p->state = C_DS_HEAD; break;
        case -2: reject(p, c, "no call behind the mark"); break;
        default: break;
        }
        break;
    case C_DS_HEAD:
        buf_putc(&p->name, c);
        if (c == '>' && p->name.n >= strlen(DS_SEP) &&
            memcmp(p->name.p + p->name.n - strlen(DS_SEP), DS_SEP, strlen(DS_SEP)) == 0) {
            buf_cut(&p->name, p->name.n - strlen(DS_SEP));
            p->state = C_DS_SEP;
        } else if (p->name.n > 2 * MAX_NAME) {
            reject(p, c, "a function's name does not end");
        }
        break;
    case C_DS_SEP:
        if (is_blank(c)) return;
        if (c == '{') {
            p->state = C_ARGS_START;
            args_byte(p, c);
        } else { /* what stood before the separator was the type */
            buf_clear(&p->name);
            buf_putc(&p->name, c);
            p->state = C_DS_NAME;
        }
        break;
    case C_DS_NAME:
        if (c == '\n') p->state = C_DS_FENCE;
        else if (p->name.n > MAX_NAME) reject(p, c, "a function's name does not end");
        else buf_putc(&p->name, c);
        break;
    default: /* C_DS_FENCE */
        if (is_blank(c) && !p->look.n) return;
        if (c == '{' && !p->look.n) {
            p->state = C_ARGS_START;
            args_byte(p, c);
        } else {
            int k = choose(p, c, fence, 2);
            if (k >= 0) p->state = C_ARGS_START;
            else if (k == -2) reject(p, c, "no JSON behind a function's name");
        }
    }
}

/* ---- behind calls ---- */

static void tail_byte(struct chat_parser *p, char c) {
    bool llama = p->spec.calls == CHAT_CALLS_LLAMA, deepseek = p->spec.calls == CHAT_CALLS_DEEPSEEK;
    buf_clear(&p->raw); /* nothing to give back but look */
    if (is_blank(c) && p->look.n == p->n_look) {
        buf_putc(&p->look, c);
        p->n_look = p->look.n;
        return;
    }
    if (llama && c == '{' && p->look.n == p->n_look && p->has_args) { /* behind ; */
        look_clear(p);
        p->has_args = false;
        buf_putc(&p->raw, c);
        chat_call_open(p, "{");
        return;
    }
    int k = choose(p, c,
                   llama      ? end_marks_llama
                   : deepseek ? end_marks_deepseek
                              : end_marks,
                   llama ? 1 : 3);
    if (k >= 0) p->has_args = true; /* an end mark was seen */
    if (k != -2) return;
    struct buf again = p->look;
    buf_init(&p->look, again.max);
    p->n_look = 0;
    chat_call_leave(p);
    for (size_t i = 0; i < again.n; i++) chat_feed(p, again.p[i]);
    buf_fini(&again);
}

static void function_byte(struct chat_parser *p, char c) {
    static const char *const marks[] = {"<function="};
    int k = choose(p, c, marks, 1);
    if (k == 0) p->state = C_NAME;
    else if (k == -2) reject(p, c, "no call behind the mark");
}

void chat_call_byte(struct chat_parser *p, char c) {
    switch ((enum state)p->state) {
    case C_OPEN: open_byte(p, c); break;
    case C_FUNCTION: function_byte(p, c); break;
    case C_NAME: name_byte(p, c); break;
    case C_BODY: body_byte(p, c); break;
    case C_KEY: key_byte(p, c); break;
    case C_VALUE: value_byte(p, c); break;
    case C_VALUE_END: value_end_byte(p, c); break;
    case C_OBJ_START: obj_start_byte(p, c); break;
    case C_OBJ_VALUE: obj_value_byte(p, c); break;
    case C_ARRAY:
    case C_ARRAY_NEXT: array_byte(p, c); break;
    case C_ARGS_START:
    case C_ARGS: args_byte(p, c); break;
    case C_MISTRAL_NAME:
    case C_MISTRAL_MARK:
    case C_MISTRAL_ID: mistral_byte(p, c); break;
    case C_DS_BEGIN:
    case C_DS_HEAD:
    case C_DS_SEP:
    case C_DS_NAME:
    case C_DS_FENCE: deepseek_byte(p, c); break;
    case C_CODE: break; /* raw has it */
    case C_TAIL: tail_byte(p, c); break;
    default: obj_byte(p, c);
    }
}

/* ---- end of the text ---- */

/* name.call(key="value", ...): Llama's built-in tools. */
static bool builtin_call(struct chat_parser *p, const char *s, size_t n) {
    const char *dot = memmem(s, n, ".call(", 6);
    if (!dot || !n || s[n - 1] != ')') return false;
    buf_clear(&p->name);
    buf_put(&p->name, s, (size_t)(dot - s));
    if (!name_ok(&p->name)) return false;
    const char *at = dot + 6, *end = s + n - 1;
    buf_clear(&p->args);
    buf_putc(&p->args, '{');
    while (at < end) {
        while (at < end && (is_blank(*at) || *at == ',')) at++;
        const char *eq = memchr(at, '=', (size_t)(end - at));
        if (at == end) break;
        if (!eq || eq == at) return false;
        if (p->args.n > 1) buf_putc(&p->args, ',');
        buf_putc(&p->args, '"');
        chat_json_escape(&p->args, at, (size_t)(eq - at));
        buf_puts(&p->args, "\":");
        chat_json_init(&p->json, &p->args);
        enum chat_json_status st = CHAT_JSON_MORE;
        for (at = eq + 1; at < end; at++) {
            st = chat_json_push(&p->json, *at);
            if (st != CHAT_JSON_MORE) break;
        }
        if (st == CHAT_JSON_MORE) st = chat_json_push(&p->json, ' '); /* a number at the end */
        if (st == CHAT_JSON_DONE) at++;
        else if (st != CHAT_JSON_BEFORE) return false;
    }
    buf_putc(&p->args, '}');
    return true;
}

static bool code_call(struct chat_parser *p, const char *s, size_t n) {
    static const char *const names[] = {"python", "code_interpreter", "ipython"};
    for (size_t i = 0; i < 3; i++) {
        if (!chat_has_tool(p->spec.tools, names[i])) continue;
        buf_clear(&p->name);
        buf_clear(&p->args);
        buf_puts(&p->name, names[i]);
        buf_puts(&p->args, "{\"code\":\"");
        chat_json_escape(&p->args, s, n);
        buf_puts(&p->args, "\"}");
        return true;
    }
    return false;
}

/* No call is open: what may have been the beginning of an end mark is text, unless the text was cut. */
static void eof_in_tail(struct chat_parser *p, bool is_cut) {
    if (is_cut) look_clear(p);
    struct buf again = p->look;
    buf_init(&p->look, again.max);
    p->n_look = 0;
    chat_call_leave(p);
    for (size_t i = 0; i < again.n; i++) chat_feed(p, again.p[i]);
    buf_fini(&again);
}

/* Code, which only the end of the text ends. False: it is not a call. */
static bool eof_in_code(struct chat_parser *p) {
    const char *mark = "<|python_tag|>", *s = memmem(p->raw.p, p->raw.n, mark, strlen(mark));
    size_t n = s ? p->raw.n - (size_t)(s - p->raw.p) - strlen(mark) : 0;
    s = s ? s + strlen(mark) : p->raw.p;
    while (n && is_blank(*s)) s++, n--;
    while (n && is_blank(s[n - 1])) n--;
    if (!builtin_call(p, s, n) && !code_call(p, s, n)) return false;
    chat_call_begin(p);
    return true;
}

void chat_call_eof(struct chat_parser *p, bool is_cut) {
    if (p->state == C_TAIL) {
        eof_in_tail(p, is_cut);
        return;
    }
    if (p->state == C_CODE && p->raw.p && eof_in_code(p)) {
        if (is_cut) chat_call_cut(p);
        else if (chat_call_end(p)) chat_call_leave(p);
        return;
    }
    bool in_text = p->outer == CHAT_IN_TEXT;
    if (in_text && p->is_bare && p->name.n) chat_call_begin(p);
    if (in_text && (p->is_begun || (is_cut && !p->is_bare))) chat_call_cut(p);
    else chat_call_fail(p, "the text ends inside a call");
}
