/* chat_calls_named.c: forms with the name of the function before the arguments.
 *
 *   Mistral  [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}
 *   DeepSeek MARK TYPE SEP NAME\n```json\n{...}\n``` END, or MARK NAME SEP {...} END
 *   heads    MARK functions.NAME:0 SEP {...}, MARK ID SEP NAME SEP {...}, MARK NAME\n{...}
 *   Gemma    MARK call:NAME{key:value} END
 *   harmony  <|channel|>CHANNEL to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
 *   Python   NAME(key=value, ...), alone or in a list
 *   code     after <|python_tag|>, up to the end of the text */
#include <string.h>

#include "base/str.h"
#include "text/chat/chat_calls_impl.h"

#define BAR "\xef\xbd\x9c" /* U+FF5C */
#define LOW "\xe2\x96\x81" /* U+2581 */
#define DS_CALL_BEGIN "<" BAR "tool" LOW "call" LOW "begin" BAR ">"
#define DS_SEP "<" BAR "tool" LOW "sep" BAR ">"

/* ---- Mistral ---- */

static void mistral_byte(struct chat_parser *p, char c) {
    static const char *const marks[] = {"[ARGS]", "[CALL_ID]"};
    if (p->state == C_MISTRAL_MARK) {
        int k = chat_choose(p, c, marks, 2);
        if (k == 0) p->state = C_ARGS_START;
        else if (k == 1) p->state = C_MISTRAL_ID;
        else if (k == -2) chat_call_reject(p, c, "no call behind the mark");
    } else if (c == '[') {
        p->state = C_MISTRAL_MARK;
        buf_putc(&p->look, c);
    } else if (c == '{' && p->state == C_MISTRAL_NAME) {
        chat_args_start(p, c);
    } else {
        struct buf *to = p->state == C_MISTRAL_ID ? &p->id : &p->name;
        buf_putc(to, c);
        if (to->n > CHAT_MAX_NAME || c == '\n')
            chat_call_reject(p, c, "a function's name does not end");
    }
}

/* ---- DeepSeek ---- */

static void deepseek_byte(struct chat_parser *p, char c) {
    static const char *const begin[] = {DS_CALL_BEGIN};
    static const char *const fence[] = {"```json", "```JSON"};
    switch (p->state) {
    case C_DS_BEGIN:
        if (chat_is_blank(c) && !p->look.n) return;
        switch (chat_choose(p, c, begin, 1)) {
        case 0: p->state = C_DS_HEAD; break;
        case -2: chat_call_reject(p, c, "no call behind the mark"); break;
        default: break;
        }
        break;
    case C_DS_HEAD:
        buf_putc(&p->name, c);
        if (c == '>' && p->name.n >= strlen(DS_SEP) &&
            memcmp(p->name.p + p->name.n - strlen(DS_SEP), DS_SEP, strlen(DS_SEP)) == 0) {
            buf_cut(&p->name, p->name.n - strlen(DS_SEP));
            p->state = C_DS_SEP;
        } else if (p->name.n > 2 * CHAT_MAX_NAME) {
            chat_call_reject(p, c, "a function's name does not end");
        }
        break;
    case C_DS_SEP:
        if (chat_is_blank(c)) return;
        if (c == '{') {
            chat_args_start(p, c);
        } else { /* the text before the separator was the type */
            buf_clear(&p->name);
            buf_putc(&p->name, c);
            p->state = C_DS_NAME;
        }
        break;
    case C_DS_NAME:
        if (c == '\n') p->state = C_DS_FENCE;
        else if (p->name.n > CHAT_MAX_NAME)
            chat_call_reject(p, c, "a function's name does not end");
        else buf_putc(&p->name, c);
        break;
    default: /* C_DS_FENCE */
        if (chat_is_blank(c) && !p->look.n) return;
        if (c == '{' && !p->look.n) {
            chat_args_start(p, c);
        } else {
            int k = chat_choose(p, c, fence, 2);
            if (k >= 0) p->state = C_ARGS_START;
            else if (k == -2) chat_call_reject(p, c, "no JSON behind a function's name");
        }
    }
}

/* ---- heads ---- */

static void cut_front(struct buf *b, size_t n) {
    memmove(b->p, b->p + n, b->n - n);
    buf_cut(b, b->n - n);
}

/* functions.NAME:INDEX is also the id of the call. */
static void head_name(struct chat_parser *p) {
    static const char prefix[] = "functions.";
    struct buf *b = &p->name;
    size_t n = sizeof prefix - 1;
    if (p->spec.calls != CHAT_CALLS_KIMI || !b->n) return;
    chat_trim_name(b);
    buf_clear(&p->id);
    buf_put(&p->id, b->p, b->n);
    if (b->n > n && memcmp(b->p, prefix, n) == 0) cut_front(b, n);
    const char *colon = memrchr(b->p, ':', b->n);
    if (colon && colon[1] && !colon[1 + strspn(colon + 1, "0123456789")])
        buf_cut(b, (size_t)(colon - b->p));
}

static void head_byte(struct chat_parser *p, char c) {
    const char *sep = p->form->head[0], *other = p->form->head[1];
    size_t n_sep = strlen(sep), n_other = other ? strlen(other) : 0;
    struct buf *b = &p->name;
    buf_putc(b, c);
    if (b->failed) return;
    if (other && b->n >= n_other && memcmp(b->p + b->n - n_other, other, n_other) == 0) {
        buf_clear(&p->id); /* drop the id, or the word that means "function" */
        buf_put(&p->id, b->p, b->n - n_other);
        buf_clear(b);
    } else if (b->n > n_sep && memcmp(b->p + b->n - n_sep, sep, n_sep) == 0) {
        buf_cut(b, b->n - n_sep);
        if (p->spec.calls == CHAT_CALLS_FUNCTIONARY && strcmp(b->p, "all") == 0) {
            chat_call_leave(p);
            return;
        }
        head_name(p);
        p->state = C_ARGS_START;
    } else if (b->n > 2 * CHAT_MAX_NAME || (c == '{' && n_sep == 1)) {
        chat_call_reject(p, c, "a function's name does not end");
    }
}

/* ---- harmony ---- */

/* Returns the word after `before` in the head, up to a blank or a tag; n 0: none. */
static struct slice frame_word(const struct buf *head, const char *before) {
    size_t n_before = strlen(before);
    const char *at = head->n ? memmem(head->p, head->n, before, n_before) : NULL;
    struct slice s = {at ? at + n_before : "", 0};
    const char *end = head->p + head->n;
    while (at && s.p + s.n < end && !chat_is_blank(s.p[s.n]) && s.p[s.n] != '<') s.n++;
    return s;
}

static bool slice_is(struct slice s, const char *word) {
    return s.n == strlen(word) && memcmp(s.p, word, s.n) == 0;
}

/* The head is complete: the message is reasoning, an answer, or a call, whose recipient must be a function. */
static void frame_begin(struct chat_parser *p, char c) {
    static const char prefix[] = "functions.";
    const size_t n = sizeof prefix - 1;
    struct slice channel = frame_word(&p->name, "<|channel|>"), to = frame_word(&p->name, " to=");
    if (!to.n) {
        p->outer =
            slice_is(channel, "analysis") && p->spec.reasoning ? CHAT_IN_THINK : CHAT_IN_TEXT;
        chat_call_leave(p);
        p->skip_space = true;
        p->after_call = p->is_bare = false;
        return;
    }
    p->is_bare = false; /* from here on it can only be a frame */
    bool is_function = to.n > n && memcmp(to.p, prefix, n) == 0;
    struct buf name;
    buf_init(&name, p->name.max);
    if (is_function) buf_put(&name, to.p + n, to.n - n);
    else buf_put(&name, to.p, to.n);
    buf_clear(&p->name);
    if (name.p) buf_put(&p->name, name.p, name.n);
    buf_fini(&name);
    if (p->spec.no_calls) chat_call_reject(p, c, "a call where no tools are");
    else if (!is_function && !(p->name.n && chat_has_tool(p->spec.tools, p->name.p)))
        chat_call_reject(p, c, "a function that is not among the tools");
    else if (!chat_name_ok(&p->name)) chat_call_reject(p, c, "a function without a valid name");
    else p->state = C_ARGS_START;
}

/* Reads the head of a frame. Heads are short. If the prompt has begun the head, the text must look like a head
 * from its first byte on; text without frames is content. */
static void frame_byte(struct chat_parser *p, char c) {
    static const char end[] = "<|message|>";
    static const char *const begins[] = {"<|channel|>", "<|message|>", "<|start|>", " to="};
    struct buf *b = &p->name;
    bool fits = !p->is_bare;
    buf_putc(b, c);
    if (b->failed) return;
    for (size_t i = 0; !fits && i < sizeof begins / sizeof *begins; i++) {
        size_t n = strlen(begins[i]);
        fits = memcmp(begins[i], b->p, b->n < n ? b->n : n) == 0;
    }
    if (!fits || b->n > 4 * CHAT_MAX_NAME) {
        chat_call_reject(p, c, "a message's head does not end");
    } else if (b->n >= sizeof end - 1 &&
               memcmp(b->p + b->n - (sizeof end - 1), end, sizeof end - 1) == 0) {
        buf_cut(b, b->n - (sizeof end - 1));
        frame_begin(p, c);
    }
}

bool chat_frame_eof(struct chat_parser *p) {
    if (p->is_bare || frame_word(&p->name, " to=").n) return false;
    chat_call_cut(p);
    return true;
}

/* ---- Gemma and Python ---- */

static void begin_dialect(struct chat_parser *p, char c, enum chat_json_dialect dialect) {
    chat_trim_name(&p->name);
    const char *reason = chat_name_ok(&p->name) ? NULL : "a function without a valid name";
    if (!reason && p->is_bare && p->spec.tools && !chat_has_tool(p->spec.tools, p->name.p))
        reason = "a function that is not among the tools";
    if (reason) {
        chat_call_reject(p, c, reason);
        return;
    }
    chat_call_begin(p);
    p->has_args = true;
    chat_json_init(&p->json, &p->args);
    p->json.dialect = (uint8_t)dialect;
    chat_json_push(&p->json, c);
    p->state = C_ARGS;
}

static void gemma_byte(struct chat_parser *p, char c) {
    static const char *const marks[] = {"call:"};
    if (p->state == C_GEMMA_NAME) {
        if (c == '{') begin_dialect(p, c, CHAT_JSON_GEMMA);
        else if (p->name.n > CHAT_MAX_NAME)
            chat_call_reject(p, c, "a function's name does not end");
        else buf_putc(&p->name, c);
        return;
    }
    if (chat_is_blank(c) && !p->look.n) return;
    int k = chat_choose(p, c, marks, 1);
    if (k == 0) p->state = C_GEMMA_NAME;
    else if (k == -2) chat_call_reject(p, c, "no call behind the mark");
}

static void python_byte(struct chat_parser *p, char c) {
    bool is_word = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' ||
                   c == '.' || c == '-';
    if (c == '(') begin_dialect(p, c, CHAT_JSON_PYTHON);
    else if (!is_word || p->name.n > CHAT_MAX_NAME)
        chat_call_reject(p, c, "no call behind the mark");
    else buf_putc(&p->name, c);
}

void chat_named_byte(struct chat_parser *p, char c) {
    switch (p->state) {
    case C_MISTRAL_NAME:
    case C_MISTRAL_MARK:
    case C_MISTRAL_ID: mistral_byte(p, c); break;
    case C_HEAD: head_byte(p, c); break;
    case C_FRAME: frame_byte(p, c); break;
    case C_GEMMA:
    case C_GEMMA_NAME: gemma_byte(p, c); break;
    case C_PY_NAME: python_byte(p, c); break;
    default: deepseek_byte(p, c);
    }
}

/* ---- code ---- */

/* Reads name.call(key="value", ...): Llama's built-in tools. */
static bool builtin_call(struct chat_parser *p, const char *s, size_t n) {
    const char *dot = memmem(s, n, ".call(", 6);
    if (!dot || !n || s[n - 1] != ')') return false;
    buf_clear(&p->name);
    buf_put(&p->name, s, (size_t)(dot - s));
    if (!chat_name_ok(&p->name)) return false;
    const char *at = dot + 6, *end = s + n - 1;
    buf_clear(&p->args);
    buf_putc(&p->args, '{');
    while (at < end) {
        while (at < end && (chat_is_blank(*at) || *at == ',')) at++;
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

bool chat_code_eof(struct chat_parser *p) {
    const char *mark = "<|python_tag|>", *s = memmem(p->raw.p, p->raw.n, mark, strlen(mark));
    size_t n = s ? p->raw.n - (size_t)(s - p->raw.p) - strlen(mark) : 0;
    s = s ? s + strlen(mark) : p->raw.p;
    while (n && chat_is_blank(*s)) s++, n--;
    while (n && chat_is_blank(s[n - 1])) n--;
    if (!builtin_call(p, s, n) && !code_call(p, s, n)) return false;
    chat_call_begin(p);
    return true;
}
