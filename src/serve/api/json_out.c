#include "serve/api/json_out.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static void escape(struct buf *out, unsigned char c) {
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *e = memchr(from, c, sizeof from - 1);
    char text[8];
    if (c && e) snprintf(text, sizeof text, "\\%c", to[e - from]);
    else snprintf(text, sizeof text, "\\u%04x", c);
    buf_puts(out, text);
}

void json_out_text(struct buf *out, const char *s, size_t n) {
    size_t done = 0, i = 0;
    buf_putc(out, '"');
    while (i < n) {
        unsigned char c = (unsigned char)s[i];
        int len = 1;
        bool plain = c >= 0x20 && c != '"' && c != '\\' && c < 0x7f;
        if (c >= 0x80) {
            len = utf8_valid_len(s + i, n - i);
            plain = len > 0;
        }
        if (plain) {
            i += (size_t)len;
            continue;
        }
        buf_put(out, s + done, i - done);
        if (c >= 0x80) buf_puts(out, "\xef\xbf\xbd");
        else escape(out, c);
        done = ++i;
    }
    if (n > done) buf_put(out, s + done, n - done);
    buf_putc(out, '"');
}

void json_out_string(struct buf *out, const char *s) {
    if (s) json_out_text(out, s, strlen(s));
    else buf_puts(out, "null");
}

void json_out_number(struct buf *out, double x) {
    char text[32];
    if (!isfinite(x)) {
        buf_puts(out, "null");
        return;
    }
    buf_put(out, text, (size_t)str_f64(text, x));
}

/* Writes a real number so that it stays one: 1.0, not 1. */
static void put_real(struct buf *out, double x) {
    char text[40];
    int n = str_f64(text, x);
    bool is_whole = n == (int)strspn(text, "-0123456789");
    buf_put(out, text, (size_t)n);
    if (is_whole) buf_puts(out, ".0");
}

static void put_array(struct buf *out, const json_t *v) {
    size_t i;
    const json_t *x;
    buf_putc(out, '[');
    json_array_foreach(v, i, x) {
        if (i) buf_putc(out, ',');
        json_out_value(out, x);
    }
    buf_putc(out, ']');
}

static void put_object(struct buf *out, const json_t *v) {
    const char *key;
    const json_t *x;
    bool first = true;
    buf_putc(out, '{');
    json_object_foreach((json_t *)v, key, x) {
        if (!first) buf_putc(out, ',');
        first = false;
        json_out_string(out, key);
        buf_putc(out, ':');
        json_out_value(out, x);
    }
    buf_putc(out, '}');
}

void json_out_value(struct buf *out, const json_t *v) {
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_OBJECT: put_object(out, v); break;
    case JSON_ARRAY: put_array(out, v); break;
    /* a number from chat_json_exact */
    case JSON_STRING:
        if (json_string_length(v) > 1 && !json_string_value(v)[0]) {
            buf_puts(out, json_string_value(v) + 1);
            break;
        }
        json_out_text(out, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER: buf_printf(out, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: put_real(out, json_real_value(v)); break;
    case JSON_TRUE: buf_puts(out, "true"); break;
    case JSON_FALSE: buf_puts(out, "false"); break;
    case JSON_NULL: buf_puts(out, "null"); break;
    }
}
