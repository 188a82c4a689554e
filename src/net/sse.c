#include "net/sse.h"

#include <string.h>

#include "base/err.h"
#include "base/str.h"

void sse_init(struct sse *s, size_t max_event_bytes,
              int (*on_event)(void *ud, const struct sse_event *ev), void *ud) {
    *s = (struct sse){.retry_ms = -1, .on_event = on_event, .ud = ud};
    buf_init(&s->line, max_event_bytes);
    buf_init(&s->data, max_event_bytes);
    buf_init(&s->name, 256);
    buf_init(&s->id, 1024);
}

void sse_fini(struct sse *s) {
    buf_fini(&s->line);
    buf_fini(&s->data);
    buf_fini(&s->name);
    buf_fini(&s->id);
}

static int dispatch(struct sse *s) {
    int rc = 0;
    if (s->has_data) {
        buf_cut(&s->data, s->data.n - 1); /* the newline after the last line */
        const struct sse_event ev = {.name = s->name.n ? s->name.p : "message",
                                     .data = s->data.p,
                                     .n_data = s->data.n,
                                     .id = s->id.n ? s->id.p : ""};
        rc = s->on_event(s->ud, &ev);
    }
    buf_clear(&s->data);
    buf_clear(&s->name);
    s->has_data = false;
    return rc < 0 ? rc : 0;
}

static bool is_field(const struct sse *s, size_t n, const char *name) {
    return n == strlen(name) && !memcmp(s->line.p, name, n);
}

/* Handles one line without its end. Unknown fields are ignored, as the standard requires. */
static int take_line(struct sse *s) {
    if (!s->line.n) return dispatch(s);
    const char *p = s->line.p, *colon = memchr(p, ':', s->line.n);
    size_t n = colon ? (size_t)(colon - p) : s->line.n;
    const char *value = colon ? colon + 1 : p + s->line.n;
    if (colon && *value == ' ') value++;
    size_t n_value = (size_t)(p + s->line.n - value);
    if (is_field(s, n, "data")) {
        buf_put(&s->data, value, n_value);
        s->has_data = true;
        return buf_putc(&s->data, '\n');
    }
    if (is_field(s, n, "event")) {
        buf_clear(&s->name);
        return memchr(value, 0, n_value) ? 0 : buf_put(&s->name, value, n_value);
    }
    if (is_field(s, n, "id") && !memchr(value, 0, n_value)) {
        buf_clear(&s->id);
        return buf_put(&s->id, value, n_value);
    }
    int64_t ms;
    if (is_field(s, n, "retry") && strspn(value, "0123456789") == n_value &&
        str_to_i64(value, 0, INT32_MAX, &ms))
        s->retry_ms = (int32_t)ms;
    return 0;
}

/* Skips a byte order mark before the first line. */
static void drop_mark(struct sse *s) {
    if (!s->begun && s->line.n >= 3 && !memcmp(s->line.p, "\xEF\xBB\xBF", 3)) {
        memmove(s->line.p, s->line.p + 3, s->line.n - 3);
        buf_cut(&s->line, s->line.n - 3);
    }
    s->begun = true;
}

int sse_feed(struct sse *s, const char *p, size_t n) {
    const char *end = p + n;
    while (!s->failed && p < end) {
        if (s->after_cr && *p == '\n') p++; /* CR LF is a single end of line */
        s->after_cr = false;
        const char *stop = p;
        while (stop < end && *stop != '\n' && *stop != '\r') stop++;
        s->failed = buf_put(&s->line, p, (size_t)(stop - p));
        if (s->failed || stop == end) break;
        s->after_cr = *stop == '\r';
        drop_mark(s);
        s->failed = take_line(s);
        buf_clear(&s->line);
        p = stop + 1;
    }
    return s->failed;
}
