#include "serve/json_out.h"

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

static int put(const char *s, size_t n, void *arg) { return buf_put(arg, s, n); }

void json_out_value(struct buf *out, const json_t *v) {
    if (!v || json_dump_callback(v, put, out, JSON_COMPACT | JSON_ENCODE_ANY))
        buf_puts(out, "null");
}
