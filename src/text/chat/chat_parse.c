/* chat_parse.c: splits generated text into content, reasoning and calls; events; the assistant's message.
 *
 *            <think>              </think>
 *   text ------------> reasoning ----------> text        (<think> only before any content)
 *   text, reasoning --call mark--> call --complete--> end marks --> where it came from
 *                                  call --not a call--> its text, where it came from
 *
 * Held back until their meaning is clear: the beginning of a mark; blanks (dropped before a call, around
 * reasoning, and at the end after a call); a call inside reasoning, because models write about calls there. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "text/chat/chat_impl.h"

#define MAX_TEXT_BYTES (64u << 20) /* limit of one answer */

static void fail(struct chat_parser *p, int rc) {
    if (!p->rc) p->rc = rc;
}

/* ---- events ---- */

static void send(struct chat_parser *p, struct chat_event *ev) {
    if (p->rc || !p->spec.on_event) return;
    int rc = p->spec.on_event(p->spec.arg, ev);
    if (rc) fail(p, rc);
}

static void flush_text(struct chat_parser *p) {
    if (p->pending.failed) fail(p, p->pending.failed);
    if (!p->pending.n) return;
    struct chat_event ev = {
        .kind = p->pending_kind, .text = p->pending.p, .n = p->pending.n, .index = -1};
    send(p, &ev);
    buf_clear(&p->pending);
}

static bool is_held(const struct chat_parser *p) {
    return p->spec.hold || p->outer == CHAT_IN_THINK;
}

static void send_args(struct chat_parser *p, size_t to) {
    if (to <= p->n_sent) return;
    struct chat_event ev = {.kind = CHAT_ARGS, .n = to - p->n_sent, .index = p->index};
    char after = p->args.p[to];
    p->args.p[to] = 0;
    ev.text = p->args.p + p->n_sent;
    p->n_sent = to;
    send(p, &ev);
    p->args.p[to] = after;
}

/* Reports the arguments so far. A final brace may complete them, so it is held until the end of the call. */
static void flush_args(struct chat_parser *p) {
    if (p->args.failed) fail(p, p->args.failed);
    if (p->rc || !p->is_begun || is_held(p)) return;
    send_args(p, p->args.n && p->args.p[p->args.n - 1] == '}' ? p->args.n - 1 : p->args.n);
}

static void put_text(struct chat_parser *p, const char *s, size_t n) {
    enum chat_event_kind kind = p->mode == CHAT_IN_THINK ? CHAT_REASONING : CHAT_CONTENT;
    if (p->pending.n && p->pending_kind != kind) flush_text(p);
    p->pending_kind = kind;
    buf_put(&p->pending, s, n);
    struct buf *all = kind == CHAT_REASONING ? &p->reasoning : &p->content;
    buf_put(all, s, n);
    if (all->failed) fail(p, all->failed);
}

static void text_byte(struct chat_parser *p, char c) {
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
        if (!p->skip_space) buf_putc(&p->space, c);
        return;
    }
    p->skip_space = p->after_call = false;
    if (p->space.n) put_text(p, p->space.p, p->space.n);
    buf_clear(&p->space);
    put_text(p, &c, 1);
    if (p->mode == CHAT_IN_THINK) p->any_reasoning = true;
    else p->any_content = true;
}

/* ---- marks ---- */

enum mark_kind { MARK_NONE, MARK_PART, MARK_CALL, MARK_THINK, MARK_THINK_END, MARK_SWALLOW };

static enum mark_kind match(const char *mark, enum mark_kind kind, const struct buf *held) {
    size_t n = strlen(mark);
    if (held->n > n || memcmp(mark, held->p, held->n) != 0) return MARK_NONE;
    return held->n == n ? kind : MARK_PART;
}

/* Decides whether the held text is a mark or the beginning of one. */
static enum mark_kind find_mark(struct chat_parser *p, const char **mark) {
    bool think = p->mode == CHAT_IN_THINK, part = false,
         mistral = p->spec.calls == CHAT_CALLS_MISTRAL;
    const struct chat_think *t = p->spec.think;
    /* a second opening mark at the very start of reasoning has no effect */
    bool may_open = p->spec.reasoning && p->form->reader != CHAT_READ_HARMONY &&
                    (think ? !p->any_reasoning : !p->any_content && !p->any_reasoning);
    struct {
        const char *text;
        enum mark_kind kind;
        bool on;
    } rows[] = {
        {"<think>", think ? MARK_SWALLOW : MARK_THINK, may_open},
        {"[THINK]", think ? MARK_SWALLOW : MARK_THINK, may_open && mistral},
        {"</think>", MARK_THINK_END, think},
        {"[/THINK]", MARK_THINK_END, think && mistral},
        {t ? t->open : "", think ? MARK_SWALLOW : MARK_THINK, may_open && t},
        {t ? t->close : "", MARK_THINK_END, think && t},
    };
    for (size_t i = 0; p->form->marks[i]; i++) {
        enum mark_kind k = match(p->form->marks[i], MARK_CALL, &p->held);
        *mark = p->form->marks[i];
        if (k == MARK_CALL) return k;
        part |= k == MARK_PART;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum mark_kind k = rows[i].on ? match(rows[i].text, rows[i].kind, &p->held) : MARK_NONE;
        if (k > MARK_PART) return k;
        part |= k == MARK_PART;
    }
    for (size_t i = 0; i < 6 && p->form->skip[i]; i++) {
        enum mark_kind k = match(p->form->skip[i], MARK_SWALLOW, &p->held);
        if (k > MARK_PART) return k;
        part |= k == MARK_PART;
    }
    return part ? MARK_PART : MARK_NONE;
}

static void open_call(struct chat_parser *p, const char *mark) {
    p->outer = p->mode;
    p->mode = CHAT_IN_CALL;
    buf_clear(&p->raw);
    if (p->space.n) buf_put(&p->raw, p->space.p, p->space.n);
    buf_puts(&p->raw, mark);
    buf_clear(&p->space);
    chat_call_open(p, mark);
}

static void switch_mode(struct chat_parser *p, enum chat_mode mode) {
    buf_clear(&p->space);
    p->mode = mode;
    p->skip_space = true;
}

static void mark_byte(struct chat_parser *p, char c) {
    bool bare = p->form->reader == CHAT_READ_BARE && p->spec.tools && p->mode == CHAT_IN_TEXT &&
                !p->any_content;
    if (bare && (c == '{' || c == '[') && !p->held.n) {
        open_call(p, c == '{' ? "{" : "[");
        return;
    }
    buf_putc(&p->held, c);
    while (p->held.n && !p->rc) {
        const char *mark = NULL;
        enum mark_kind k = find_mark(p, &mark);
        if (k == MARK_PART) return;
        if (k != MARK_NONE) {
            buf_clear(&p->held);
            if (k == MARK_CALL) open_call(p, mark);
            else if (k == MARK_THINK) switch_mode(p, CHAT_IN_THINK);
            else if (k == MARK_THINK_END) switch_mode(p, CHAT_IN_TEXT);
            return;
        }
        text_byte(p, p->held.p[0]);
        memmove(p->held.p, p->held.p + 1, p->held.n - 1);
        buf_cut(&p->held, p->held.n - 1);
    }
    if (p->held.failed) fail(p, p->held.failed);
}

void chat_feed(struct chat_parser *p, char c) {
    const char *end = (p->spec.think ? p->spec.think : chat_think_default())->close;
    const size_t n_end = strlen(end);
    if (p->rc) return;
    if (p->mode != CHAT_IN_CALL) {
        mark_byte(p, c);
        return;
    }
    buf_putc(&p->raw, c);
    if (p->raw.failed) {
        fail(p, p->raw.failed);
        return;
    }
    if (c == end[n_end - 1] && p->outer == CHAT_IN_THINK && p->raw.n >= n_end &&
        memcmp(p->raw.p + p->raw.n - n_end, end, n_end) == 0) {
        /* reasoning ends: the text in it only mentioned a call */
        buf_cut(&p->raw, p->raw.n - n_end);
        chat_call_fail(p, NULL);
        switch_mode(p, CHAT_IN_TEXT);
        return;
    }
    chat_call_byte(p, c);
}

/* ---- calls ---- */

static void make_id(struct chat_parser *p) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    bool own = p->id.n > 0 && p->id.n <= 64;
    for (size_t i = 0; i < p->id.n && own; i++) {
        char c = p->id.p[i];
        own = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' ||
              c == '-' || c == '.' || c == ':';
    }
    if (own) return;
    uint64_t x = rng_at(p->spec.id_seed, (uint64_t)p->n_begun);
    buf_clear(&p->id);
    for (int i = 0; i < 9; i++, x /= 62) buf_putc(&p->id, digits[x % 62]);
}

static void send_begin(struct chat_parser *p) {
    flush_text(p);
    p->index = p->n_begun++;
    make_id(p);
    struct chat_event ev = {.kind = CHAT_CALL, .index = p->index, .name = p->name.p, .id = p->id.p};
    if (p->name.failed || p->id.failed) fail(p, CHIMERE_ENOMEM);
    send(p, &ev);
}

void chat_call_begin(struct chat_parser *p) {
    if (p->is_begun || p->rc) return;
    p->is_begun = true;
    p->n_sent = 0;
    if (!is_held(p)) send_begin(p);
}

static void reset_call(struct chat_parser *p) {
    struct buf *all[] = {&p->raw, &p->name, &p->id, &p->key, &p->value, &p->args};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_clear(all[i]);
    p->is_begun = p->has_args = p->is_wrapped = p->is_repaired = p->is_flat = false;
    p->has_other = false;
    p->n_sent = 0;
    p->n_nested = 0;
    buf_clear(&p->nested);
}

bool chat_call_end(struct chat_parser *p) {
    /* the parts were checked as they were read */
    bool ok = p->args.n > 1 && p->args.p[0] == '{' && p->args.p[p->args.n - 1] == '}';
    if (!ok) {
        chat_call_fail(p, "arguments that are no JSON object");
        return false;
    }
    if (is_held(p)) send_begin(p);
    json_t *call = json_pack("{s:s,s:s,s:{s:s,s:s}}", "id", p->id.p, "type", "function", "function",
                             "name", p->name.p, "arguments", p->args.p);
    if (!call || json_array_append_new(p->calls, call)) fail(p, CHIMERE_ENOMEM);
    send_args(p, p->args.n);
    struct chat_event ev = {.kind = CHAT_CALL_END, .index = p->index};
    send(p, &ev);
    p->result.n_call++;
    p->result.n_repaired += p->is_repaired;
    reset_call(p);
    return p->rc == 0;
}

/* Reports the arguments so far, at least the opening brace: a client may treat missing arguments as an empty object. */
static void send_incomplete(struct chat_parser *p) {
    if (!p->args.n) buf_putc(&p->args, '{');
    flush_args(p);
}

static void keep_reason(struct chat_parser *p, const char *reason) {
    size_t n = strlen(reason);
    if (p->result.reason[0]) return;
    if (n >= sizeof p->result.reason) n = sizeof p->result.reason - 1;
    memcpy(p->result.reason, reason, n);
}

/* Ends the call and frees its buffers for the next one. Returns its text, owned by the caller. */
static struct buf abandon(struct chat_parser *p) {
    struct buf raw = p->raw;
    buf_init(&p->raw, raw.max);
    p->mode = p->outer;
    reset_call(p);
    p->is_bare = p->in_array = false;
    buf_clear(&p->look);
    p->n_look = 0;
    return raw;
}

static void report_cut(struct chat_parser *p) {
    static const char reason[] = "the text ends inside the arguments of a call";
    if (is_held(p)) send_begin(p);
    p->spec.hold = false;
    p->outer = CHAT_IN_TEXT;
    send_incomplete(p);
    flush_text(p);
    struct chat_event ev = {.kind = CHAT_CALL_CUT, .index = p->index, .reason = reason};
    send(p, &ev);
    p->result.n_cut++;
    keep_reason(p, reason);
}

void chat_call_cut(struct chat_parser *p) {
    if (p->is_begun) report_cut(p);
    struct buf raw = abandon(p);
    buf_fini(&raw);
}

void chat_call_fail(struct chat_parser *p, const char *reason) {
    bool silent = !reason || (!p->is_begun && (p->is_bare || p->outer == CHAT_IN_THINK));
    bool begun = p->is_begun && !is_held(p);
    if (begun) send_incomplete(p);
    if (!silent || begun) {
        flush_text(p);
        if (!reason) reason = "reasoning ends inside a call";
        struct chat_event ev = {
            .kind = CHAT_MALFORMED, .index = begun ? p->index : -1, .reason = reason};
        send(p, &ev);
        p->result.n_malformed++;
        keep_reason(p, reason);
    }
    struct buf raw = abandon(p);
    for (size_t i = 0; i < raw.n && !p->rc; i++) text_byte(p, raw.p[i]);
    buf_fini(&raw);
}

void chat_call_leave(struct chat_parser *p) {
    p->mode = p->outer;
    p->after_call = true;
    reset_call(p);
    p->in_array = false;
}

/* ---- the parser ---- */

int chat_parser_new(struct chat_parser **out, const struct chat_parse_spec *spec, struct err *e) {
    struct chat_parser *p = *out = mem_zalloc(sizeof *p);
    if (!p) return err_set(e, CHIMERE_ENOMEM, "chat parser: out of memory");
    struct buf *all[] = {&p->space, &p->held, &p->pending, &p->content, &p->reasoning,
                         &p->raw,   &p->name, &p->id,      &p->key,     &p->value,
                         &p->args,  &p->look, &p->nested};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_init(all[i], MAX_TEXT_BYTES);
    p->spec = *spec;
    p->form = chat_form_of(spec->calls);
    p->calls = json_array();
    p->mode = spec->reasoning && spec->in_think ? CHAT_IN_THINK : CHAT_IN_TEXT;
    p->skip_space = p->mode == CHAT_IN_THINK;
    bool is_framed = p->form->reader == CHAT_READ_HARMONY && p->mode == CHAT_IN_TEXT;
    if (p->calls && (spec->calls == CHAT_CALLS_FUNCTIONARY || is_framed)) {
        open_call(p, ">>>"); /* the end of the prompt is the mark */
        buf_clear(&p->raw);
        if (is_framed) buf_clear(&p->name);
        p->is_bare = true;
    }
    if (p->calls) return 0;
    chat_parser_free(p);
    *out = NULL;
    return err_set(e, CHIMERE_ENOMEM, "chat parser: out of memory");
}

void chat_parser_free(struct chat_parser *p) {
    if (!p) return;
    struct buf *all[] = {&p->space, &p->held, &p->pending, &p->content, &p->reasoning,
                         &p->raw,   &p->name, &p->id,      &p->key,     &p->value,
                         &p->args,  &p->look, &p->nested};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_fini(all[i]);
    json_decref(p->calls);
    mem_free(p);
}

static void feed_char(struct chat_parser *p, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) chat_feed(p, s[i]);
}

/* Passes on valid UTF-8 without NUL; other bytes become U+FFFD. */
static void utf8_byte(struct chat_parser *p, unsigned char c) {
    p->utf8[p->n_utf8++] = c;
    while (p->n_utf8) {
        int k = utf8_valid_len((const char *)p->utf8, p->n_utf8);
        if (k == 0) return;
        if (k > 0 && p->utf8[0]) feed_char(p, (const char *)p->utf8, (size_t)k);
        else feed_char(p, "\xef\xbf\xbd", 3);
        if (k < 0) k = 1;
        p->n_utf8 -= (uint32_t)k;
        memmove(p->utf8, p->utf8 + k, p->n_utf8);
    }
}

int chat_parser_push(struct chat_parser *p, const char *text, size_t n) {
    for (size_t i = 0; i < n && !p->rc; i++) utf8_byte(p, (unsigned char)text[i]);
    flush_text(p);
    flush_args(p);
    return p->rc;
}

/* For an answer that was cut: returns true if the held text is most of a call's mark. A shorter beginning may be
 * any text: "a <". */
static bool ends_in_mark(struct chat_parser *p) {
    const char *const *marks = p->form->marks;
    for (size_t i = 0; marks[i]; i++)
        if (p->held.n > strlen(marks[i]) / 2 && p->held.n < strlen(marks[i]) &&
            memcmp(marks[i], p->held.p, p->held.n) == 0)
            return true;
    return false;
}

int chat_parser_finish(struct chat_parser *p, bool is_cut) {
    for (uint32_t i = 0, n = is_cut ? 0 : p->n_utf8; i < n; i++) feed_char(p, "\xef\xbf\xbd", 3);
    p->n_utf8 = 0;
    if (p->mode == CHAT_IN_CALL && !p->rc) chat_call_eof(p, is_cut);
    if (is_cut && ends_in_mark(p)) buf_clear(&p->held);
    for (size_t i = 0; i < p->held.n && !p->rc; i++) text_byte(p, p->held.p[i]);
    buf_clear(&p->held);
    if (p->mode == CHAT_IN_TEXT && p->space.n && !p->after_call && !p->rc)
        put_text(p, p->space.p, p->space.n);
    buf_clear(&p->space);
    flush_text(p);
    return p->rc;
}

void chat_parser_result(const struct chat_parser *p, struct chat_result *r) { *r = p->result; }

json_t *chat_parser_message(const struct chat_parser *p) {
    bool has_calls = json_array_size(p->calls) > 0;
    json_t *m = json_pack("{s:s}", "role", "assistant");
    json_t *content = p->content.n || !has_calls
                          ? json_stringn(p->content.n ? p->content.p : "", p->content.n)
                          : json_null();
    int bad = json_object_set_new(m, "content", content); /* takes content, even if m is NULL */
    if (!bad && p->reasoning.n)
        bad = json_object_set_new(m, "reasoning_content",
                                  json_stringn(p->reasoning.p, p->reasoning.n));
    if (!bad && has_calls) bad = json_object_set_new(m, "tool_calls", json_deep_copy(p->calls));
    if (!bad) return m;
    json_decref(m);
    return NULL;
}
