#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static void clean(char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n;) {
        int len = utf8_valid_len(s + i, n - i);
        if (len <= 0) {
            s[i++] = '?';
        } else {
            if (len == 1 && ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)) s[i] = '?';
            i += (size_t)len;
        }
    }
}

int(err_set)(struct err *e, int code, const char *fmt, ...) {
    if (!e) return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    clean(e->text);
    e->code = code;
    e->hint[0] = 0;
    return code;
}

void err_prefix(struct err *e, const char *fmt, ...) {
    if (!e) return;
    char old[sizeof e->text];
    memcpy(old, e->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    if (n < 0) n = 0;
    size_t left = (size_t)n < sizeof e->text ? sizeof e->text - (size_t)n : 0;
    if (left > 3) snprintf(e->text + n, left, ": %.*s", (int)left - 3, old);
    clean(e->text);
}

void err_hint(struct err *e, const char *fmt, ...) {
    if (!e) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->hint, sizeof e->hint, fmt, ap);
    va_end(ap);
    clean(e->hint);
}

const char *err_name(int code) {
    switch (code) {
    case CHIMERE_OK: return "success";
#define X(name, value, text)                                                                       \
    case value: return text;
        CHIMERE_ERRORS(X)
#undef X
    default: return "unknown error";
    }
}
