#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int utf8_decode(const char *s, size_t n, uint32_t *cp) {
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0) return 0;
    unsigned char c = u[0];
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    int len;
    uint32_t v;
    unsigned char lo = 0x80, hi = 0xBF; /* allowed range of the second byte */
    if (c >= 0xC2 && c <= 0xDF) {
        len = 2, v = c & 0x1Fu;
    } else if (c >= 0xE0 && c <= 0xEF) {
        len = 3, v = c & 0x0Fu;
        if (c == 0xE0) lo = 0xA0;
        if (c == 0xED) hi = 0x9F;
    } else if (c >= 0xF0 && c <= 0xF4) {
        len = 4, v = c & 0x07u;
        if (c == 0xF0) lo = 0x90;
        if (c == 0xF4) hi = 0x8F;
    } else {
        return -1;
    }
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n) return 0;
        if (u[i] < lo || u[i] > hi) return -1;
        lo = 0x80, hi = 0xBF;
        v = v << 6 | (u[i] & 0x3Fu);
    }
    *cp = v;
    return len;
}

int utf8_valid_len(const char *s, size_t n) {
    uint32_t cp;
    return utf8_decode(s, n, &cp);
}

int utf8_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        if (cp >= 0xD800 && cp <= 0xDFFF) return 0;
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    if (cp > 0x10FFFF) return 0;
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_is_valid(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        int len = utf8_valid_len(s + i, n - i);
        if (len <= 0) return false;
        i += (size_t)len;
    }
    return true;
}

bool str_base64(struct slice text, char *out, size_t *n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int n_bit = 0;
    *n = 0;
    for (size_t i = 0; i < text.n && text.p[i] != '='; i++) {
        const char *at = text.p[i] ? strchr(digits, text.p[i]) : NULL;
        if (!at) return false;
        bits = bits << 6 | (uint32_t)(at - digits);
        if ((n_bit += 6) < 8) continue;
        n_bit -= 8;
        out[(*n)++] = (char)(bits >> n_bit);
    }
    return true;
}

bool str_eq_nocase(const char *a, const char *b) { return strcasecmp(a, b) == 0; }
bool str_starts(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0;
}
bool str_ends(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

bool str_to_i64(const char *s, int64_t min, int64_t max, int64_t *out) {
    if (!*s || strspn(s, "+-0123456789") != strlen(s)) return false;
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || *end || end == s || v < min || v > max) return false;
    *out = v;
    return true;
}

bool str_to_f64(const char *s, double min, double max, double *out) {
    if (!*s || strspn(s, "+-.0123456789eE") != strlen(s)) return false;
    char *end;
    double v = strtod(s, &end);
    if (*end || end == s || !isfinite(v) || v < min || v > max) return false;
    *out = v;
    return true;
}

bool str_to_bytes(const char *s, uint64_t *out) {
    static const char *const units[] = {"", "K", "M", "G", "T"};
    size_t digits = strspn(s, ".0123456789");
    char num[32];
    if (!digits || digits >= sizeof num) return false;
    memcpy(num, s, digits);
    num[digits] = 0;
    double v;
    if (!str_to_f64(num, 0, 1e18, &v)) return false;
    char unit[8];
    snprintf(unit, sizeof unit, "%s", s + digits);
    size_t n = strlen(unit);
    if (n > 1 && strcasecmp(unit + 1, "iB") == 0) unit[1] = 0;
    else if (n > 1 && strcasecmp(unit + 1, "B") == 0) unit[1] = 0;
    else if (n == 1 && (unit[0] == 'B' || unit[0] == 'b')) unit[0] = 0;
    for (int i = 0; i < 5; i++) {
        if (strcasecmp(unit, units[i]) == 0) {
            v *= pow(1024, i);
            if (v >= 18446744073709551615.0) return false;
            *out = (uint64_t)v;
            return true;
        }
    }
    return false;
}

void str_bytes(char out[16], uint64_t n_bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)n_bytes;
    int i = 0;
    while (v >= 1024 && i < 6) v /= 1024, i++;
    snprintf(out, 16, i ? "%.1f %s" : "%.0f %s", v, units[i]);
}

int str_f64(char out[32], double x) {
    if (isnan(x)) return snprintf(out, 32, "nan");
    if (isinf(x)) return snprintf(out, 32, x > 0 ? "inf" : "-inf");
    if (x == floor(x) && fabs(x) < 9007199254740992.0) {
        if (x == 0 && signbit(x)) return snprintf(out, 32, "-0.0");
        return snprintf(out, 32, "%.0f", x);
    }
    for (int prec = 1; prec <= 17; prec++) {
        int n = snprintf(out, 32, "%.*g", prec, x);
        if (strtod(out, NULL) == x) return n;
    }
    return (int)strlen(out);
}

size_t str_distance(const char *a, const char *b) {
    enum { MAX = 63 };
    size_t n = strlen(a), m = strlen(b);
    if (n > MAX || m > MAX) return SIZE_MAX;
    uint8_t row[3][MAX + 1]; /* rows of the distance table for prefixes i - 2, i - 1 and i of a */
    for (size_t k = 0; k <= m; k++) row[0][k] = 0, row[1][k] = (uint8_t)k;
    for (size_t i = 1; i <= n; i++) {
        uint8_t *before = row[(i + 2) % 3], *last = row[i % 3], *now = row[(i + 1) % 3];
        now[0] = (uint8_t)i;
        for (size_t k = 1; k <= m; k++) {
            unsigned best = last[k - 1] + (a[i - 1] != b[k - 1]);
            if (last[k] + 1u < best) best = last[k] + 1u;
            if (now[k - 1] + 1u < best) best = now[k - 1] + 1u;
            bool swapped = i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1];
            if (swapped && before[k - 2] + 1u < best) best = before[k - 2] + 1u;
            now[k] = (uint8_t)best;
        }
    }
    return row[(n + 1) % 3][m];
}
