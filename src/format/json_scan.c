#include "format/json_scan.h"

#include <string.h>

void json_scan_init(struct json_scan *s, const char *text, size_t n) {
    *s = (struct json_scan){.start = text, .p = text, .end = text + n};
}

static bool fail(struct json_scan *s, const char *expected) {
    if (!s->expected) s->expected = expected;
    return false;
}

char json_peek(struct json_scan *s) {
    if (s->expected) return 0;
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
    return s->p < s->end ? *s->p : 0;
}

bool json_open(struct json_scan *s, char open) {
    if (json_peek(s) != open) return fail(s, open == '{' ? "'{'" : "'['");
    s->p++;
    return true;
}

bool json_more(struct json_scan *s, char close, bool *first) {
    char c = json_peek(s);
    if (s->expected) return false;
    if (c == close) {
        s->p++;
        return false;
    }
    if (!*first) {
        if (c != ',') return fail(s, close == '}' ? "',' or '}'" : "',' or ']'");
        s->p++;
    }
    *first = false;
    return true;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Called after a backslash. */
static bool skip_escape(struct json_scan *s) {
    char c = s->p < s->end ? *s->p : 0;
    if (c && strchr("\"\\/bfnrt", c)) {
        s->p++;
        return true;
    }
    if (c != 'u' || s->end - s->p < 5) return fail(s, "an escape");
    for (int i = 1; i <= 4; i++)
        if (!is_hex(s->p[i])) return fail(s, "four hexadecimal digits");
    s->p += 5;
    return true;
}

bool json_raw_string(struct json_scan *s, struct slice *raw) {
    if (json_peek(s) != '"') return fail(s, "a string");
    const char *begin = ++s->p;
    while (s->p < s->end && *s->p != '"') {
        unsigned char c = (unsigned char)*s->p;
        if (c < 0x20) return fail(s, "no control character in a string");
        if (c == '\\') {
            s->p++;
            if (!skip_escape(s)) return false;
        } else if (c < 0x80) {
            s->p++;
        } else {
            int n = utf8_valid_len(s->p, (size_t)(s->end - s->p));
            if (n <= 0) return fail(s, "UTF-8");
            s->p += n;
        }
    }
    if (s->p == s->end) return fail(s, "the end of a string");
    *raw = (struct slice){begin, (size_t)(s->p - begin)};
    s->p++;
    return true;
}

bool json_key(struct json_scan *s, struct slice *raw) {
    if (!json_raw_string(s, raw)) return false;
    if (json_peek(s) != ':') return fail(s, "':'");
    s->p++;
    return true;
}

bool json_u64(struct json_scan *s, uint64_t *v) {
    char c = json_peek(s);
    if (c < '0' || c > '9') return fail(s, "a whole number");
    const char *begin = s->p;
    uint64_t x = 0;
    for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
        if (__builtin_mul_overflow(x, 10u, &x) ||
            __builtin_add_overflow(x, (uint64_t)(*s->p - '0'), &x))
            return fail(s, "a number below 2^64");
    if (c == '0' && s->p - begin > 1) return fail(s, "a number without leading zeros");
    if (s->p < s->end && (*s->p == '.' || *s->p == 'e' || *s->p == 'E'))
        return fail(s, "a whole number");
    *v = x;
    return true;
}

static size_t digits(struct json_scan *s) {
    const char *begin = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') s->p++;
    return (size_t)(s->p - begin);
}

static bool skip_number(struct json_scan *s) {
    if (s->p < s->end && *s->p == '-') s->p++;
    bool zero = s->p < s->end && *s->p == '0';
    size_t n = digits(s);
    if (n == 0 || (zero && n > 1)) return fail(s, "a value");
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!digits(s)) return fail(s, "digits");
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-')) s->p++;
        if (!digits(s)) return fail(s, "digits");
    }
    return true;
}

static bool skip_word(struct json_scan *s, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0) return fail(s, "a value");
    s->p += n;
    return true;
}

static bool skip_scalar(struct json_scan *s, char c) {
    struct slice raw;
    switch (c) {
    case '"': return json_raw_string(s, &raw);
    case 't': return skip_word(s, "true");
    case 'f': return skip_word(s, "false");
    case 'n': return skip_word(s, "null");
    default: return skip_number(s);
    }
}

bool json_skip(struct json_scan *s) {
    char close[JSON_SCAN_DEPTH];
    bool first[JSON_SCAN_DEPTH];
    int depth = 0;
    do {
        if (depth > 0) {
            if (!json_more(s, close[depth - 1], &first[depth - 1])) {
                if (s->expected) return false;
                depth--;
                continue;
            }
            struct slice raw;
            if (close[depth - 1] == '}' && !json_key(s, &raw)) return false;
        }
        char c = json_peek(s);
        if (c == '{' || c == '[') {
            if (depth == JSON_SCAN_DEPTH) return fail(s, "at most 64 levels");
            s->p++;
            close[depth] = c == '{' ? '}' : ']';
            first[depth++] = true;
        } else if (!skip_scalar(s, c)) {
            return false;
        }
    } while (depth > 0);
    return !s->expected;
}

bool json_end(struct json_scan *s) {
    json_peek(s);
    if (s->expected) return false;
    return s->p == s->end || fail(s, "the end");
}

static uint32_t hex4(const char *p) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v = v << 4 | (uint32_t)(p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
    return v;
}

bool json_unescape(struct slice raw, char *out, size_t *n) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t o = 0;
    for (size_t i = 0; i < raw.n;) {
        if (raw.p[i] != '\\') {
            out[o++] = raw.p[i++];
            continue;
        }
        if (raw.p[i + 1] != 'u') {
            out[o++] = to[strchr(from, raw.p[i + 1]) - from];
            i += 2;
            continue;
        }
        uint32_t cp = hex4(raw.p + i + 2);
        i += 6;
        if (cp >= 0xD800 && cp <= 0xDBFF && raw.n - i >= 6 && raw.p[i] == '\\' &&
            raw.p[i + 1] == 'u') {
            uint32_t low = hex4(raw.p + i + 2);
            if (low < 0xDC00 || low > 0xDFFF) return false;
            cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
            i += 6;
        }
        int len = utf8_encode(cp, out + o); /* an escape is longer than its character */
        if (len == 0) return false;
        o += (size_t)len;
    }
    *n = o;
    return true;
}
