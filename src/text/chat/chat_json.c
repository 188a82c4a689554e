/* chat_json.c: JSON one byte at a time. What comes out is strict JSON without blanks that our own
 * reader takes: raw line breaks in strings are escaped, \u0000 and lone surrogates become U+FFFD;
 * numbers beyond 64 bits or double precision are refused. Also: types of parameters in schemas. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "text/chat/chat_impl.h"

enum {
    S_VALUE,     /* a value */
    S_ARR_FIRST, /* a value or ] */
    S_OBJ_FIRST, /* a key or } */
    S_OBJ_KEY,   /* a key */
    S_COLON,
    S_AFTER, /* , or a closing bracket */
    S_STRING,
    S_ESCAPE,
    S_HEX,
    S_NUMBER,
    S_LITERAL,
    S_END,
};

void chat_json_init(struct chat_json *j, struct buf *out) {
    memset(j, 0, sizeof *j);
    j->out = out;
}

static void put(struct chat_json *j, const char *s, size_t n) {
    if (j->out) buf_put(j->out, s, n);
}
static void put_comma(struct chat_json *j) {
    if (j->comma) put(j, ",", 1);
    j->comma = false;
}

static enum chat_json_status ended(struct chat_json *j) {
    j->state = j->depth ? S_AFTER : S_END;
    return j->depth ? CHAT_JSON_MORE : CHAT_JSON_DONE;
}

static enum chat_json_status open_bracket(struct chat_json *j, char c) {
    if (j->depth == CHAT_JSON_DEPTH) return CHAT_JSON_BAD;
    put_comma(j);
    put(j, &c, 1);
    j->in_object[j->depth++] = c == '{';
    j->state = c == '{' ? S_OBJ_FIRST : S_ARR_FIRST;
    return CHAT_JSON_MORE;
}

static enum chat_json_status close_bracket(struct chat_json *j, char c) {
    if (!j->depth || j->in_object[j->depth - 1] != (c == '}')) return CHAT_JSON_BAD;
    put(j, &c, 1);
    j->depth--;
    return ended(j);
}

static enum chat_json_status begin_string(struct chat_json *j, bool is_key) {
    put_comma(j);
    put(j, "\"", 1);
    j->is_key = is_key;
    j->state = S_STRING;
    return CHAT_JSON_MORE;
}

static enum chat_json_status begin_value(struct chat_json *j, char c) {
    if (!j->first) j->first = c;
    if (c == '{' || c == '[') return open_bracket(j, c);
    if (c == '"') return begin_string(j, false);
    bool number = c == '-' || (c >= '0' && c <= '9');
    if (!number && c != 't' && c != 'f' && c != 'n') return CHAT_JSON_BAD;
    j->state = number ? S_NUMBER : S_LITERAL;
    j->word[0] = c;
    j->n_word = 1;
    return CHAT_JSON_MORE;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?, and within our own ranges */
static bool number_ok(char *w, size_t n) {
    size_t i = w[0] == '-';
    bool is_int = true;
    w[n] = 0;
    if (!is_digit(w[i])) return false;
    if (w[i] == '0') i++;
    else
        while (is_digit(w[i])) i++;
    if (w[i] == '.') {
        is_int = false;
        if (!is_digit(w[++i])) return false;
        while (is_digit(w[i])) i++;
    }
    if (w[i] == 'e' || w[i] == 'E') {
        is_int = false;
        i++;
        if (w[i] == '+' || w[i] == '-') i++;
        if (!is_digit(w[i])) return false;
        while (is_digit(w[i])) i++;
    }
    int64_t whole;
    if (i != n) return false;
    return is_int ? str_to_i64(w, INT64_MIN, INT64_MAX, &whole) : isfinite(strtod(w, NULL));
}

static enum chat_json_status number_byte(struct chat_json *j, char c) {
    if (is_digit(c) || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-') {
        if (j->n_word + 1 >= sizeof j->word) return CHAT_JSON_BAD;
        j->word[j->n_word++] = c;
        return CHAT_JSON_MORE;
    }
    if (!number_ok(j->word, j->n_word)) return CHAT_JSON_BAD;
    put_comma(j);
    put(j, j->word, j->n_word);
    if (ended(j) == CHAT_JSON_DONE) return CHAT_JSON_BEFORE;
    return chat_json_push(j, c);
}

static enum chat_json_status literal_byte(struct chat_json *j, char c) {
    const char *word = j->word[0] == 't' ? "true" : j->word[0] == 'f' ? "false" : "null";
    if (word[j->n_word] != c) return CHAT_JSON_BAD;
    if (word[++j->n_word]) return CHAT_JSON_MORE;
    put_comma(j);
    put(j, word, j->n_word);
    return ended(j);
}

static const char replacement[] = "\\ufffd";

static void flush_high(struct chat_json *j) {
    if (j->high) put(j, replacement, 6);
    j->high = 0;
}

static enum chat_json_status string_byte(struct chat_json *j, char c) {
    unsigned char u = (unsigned char)c;
    if (c == '\\') {
        j->state = S_ESCAPE;
        return CHAT_JSON_MORE;
    }
    flush_high(j);
    if (c == '"') {
        put(j, "\"", 1);
        if (!j->is_key) return ended(j);
        j->state = S_COLON;
        return CHAT_JSON_MORE;
    }
    if (u >= 0x20) put(j, &c, 1);
    else if (j->out) chat_json_escape(j->out, &c, 1);
    return CHAT_JSON_MORE;
}

static enum chat_json_status escape_byte(struct chat_json *j, char c) {
    if (c == 'u') {
        j->state = S_HEX;
        j->n_hex = j->hex = 0;
        return CHAT_JSON_MORE;
    }
    if (!c || !strchr("\"\\/bfnrt", c)) return CHAT_JSON_BAD;
    flush_high(j);
    char e[2] = {'\\', c};
    put(j, e, 2);
    j->state = S_STRING;
    return CHAT_JSON_MORE;
}

static enum chat_json_status hex_byte(struct chat_json *j, char c) {
    int h = is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (h < 0) return CHAT_JSON_BAD;
    j->hex = j->hex << 4 | (uint32_t)h;
    if (++j->n_hex < 4) return CHAT_JSON_MORE;
    j->state = S_STRING;
    char e[24];
    bool low = j->hex >= 0xdc00 && j->hex <= 0xdfff;
    if (low && j->high) {
        snprintf(e, sizeof e, "\\u%04x\\u%04x", j->high, j->hex);
        put(j, e, 12);
        j->high = 0;
        return CHAT_JSON_MORE;
    }
    flush_high(j);
    if (j->hex >= 0xd800 && j->hex <= 0xdbff) {
        j->high = j->hex;
    } else if (low || j->hex == 0) {
        put(j, replacement, 6);
    } else {
        snprintf(e, sizeof e, "\\u%04x", j->hex);
        put(j, e, 6);
    }
    return CHAT_JSON_MORE;
}

static enum chat_json_status after_byte(struct chat_json *j, char c) {
    if (c == '}' || c == ']') return close_bracket(j, c);
    if (c != ',') return CHAT_JSON_BAD;
    j->comma = true;
    j->state = j->in_object[j->depth - 1] ? S_OBJ_KEY : S_VALUE;
    return CHAT_JSON_MORE;
}

enum chat_json_status chat_json_push(struct chat_json *j, char c) {
    bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (blank && j->state < S_STRING) return CHAT_JSON_MORE;
    switch (j->state) {
    case S_VALUE: return begin_value(j, c);
    case S_ARR_FIRST: return c == ']' ? close_bracket(j, c) : begin_value(j, c);
    case S_OBJ_FIRST:
        if (c == '}') return close_bracket(j, c);
        return c == '"' ? begin_string(j, true) : CHAT_JSON_BAD;
    case S_OBJ_KEY: return c == '"' ? begin_string(j, true) : CHAT_JSON_BAD;
    case S_COLON:
        if (c != ':') return CHAT_JSON_BAD;
        put(j, ":", 1);
        j->state = S_VALUE;
        return CHAT_JSON_MORE;
    case S_AFTER: return after_byte(j, c);
    case S_STRING: return string_byte(j, c);
    case S_ESCAPE: return escape_byte(j, c);
    case S_HEX: return hex_byte(j, c);
    case S_NUMBER: return number_byte(j, c);
    case S_LITERAL: return literal_byte(j, c);
    default: return CHAT_JSON_BAD;
    }
}

void chat_json_escape(struct buf *out, const char *s, size_t n) {
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    size_t b = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        const char *e = c ? memchr(from, c, sizeof from - 1) : NULL;
        buf_put(out, s + b, i - b);
        if (e) buf_printf(out, "\\%c", to[e - from]);
        else buf_printf(out, "\\u%04x", c ? c : 0xfffd);
        b = i + 1;
    }
    buf_put(out, s + b, n - b);
}

/* ---- schemas ---- */

static unsigned type_of_text(const struct chat_json *j) {
    switch (j->first) {
    case '{': return CHAT_T_OBJECT;
    case '[': return CHAT_T_ARRAY;
    case '"': return CHAT_T_STRING;
    case 't':
    case 'f': return CHAT_T_BOOLEAN;
    case 'n': return CHAT_T_NULL;
    default: {
        char *end;
        double d = strtod(j->word, &end); /* 2.0 is an integer to JSON Schema */
        return fabs(d) < 1e18 && d == (double)(int64_t)d ? CHAT_T_INTEGER | CHAT_T_NUMBER
                                                         : CHAT_T_NUMBER;
    }
    }
}

static bool put_typed(struct buf *out, const char *s, size_t n, unsigned types) {
    struct chat_json j;
    size_t mark = out->n;
    enum chat_json_status st = CHAT_JSON_MORE;
    chat_json_init(&j, out);
    for (size_t i = 0; i < n && st == CHAT_JSON_MORE; i++) {
        st = chat_json_push(&j, s[i]);
        if (st == CHAT_JSON_DONE && i + 1 < n) st = CHAT_JSON_BAD;
    }
    if (st == CHAT_JSON_MORE && chat_json_push(&j, ' ') == CHAT_JSON_BEFORE) st = CHAT_JSON_DONE;
    if (st == CHAT_JSON_DONE && (type_of_text(&j) & types)) return true;
    buf_cut(out, mark);
    return false;
}

void chat_put_value(struct buf *out, const char *s, size_t n, unsigned types) {
    static const struct {
        const char *python, *json;
    } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *t = s;
    size_t n_t = n;
    while (n_t && strchr(" \t\r\n", t[n_t - 1])) n_t--;
    while (n_t && strchr(" \t\r\n", *t)) t++, n_t--;
    if (put_typed(out, t, n_t, types & ~(unsigned)CHAT_T_STRING)) return;
    for (size_t i = 0; i < 3; i++)
        if (strlen(words[i].python) == n_t && memcmp(words[i].python, t, n_t) == 0 &&
            put_typed(out, words[i].json, strlen(words[i].json), types & ~(unsigned)CHAT_T_STRING))
            return;
    buf_putc(out, '"');
    chat_json_escape(out, s, n);
    buf_putc(out, '"');
}
