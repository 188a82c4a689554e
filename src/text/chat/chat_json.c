/* chat_json.c: parses JSON one byte at a time. The output is strict JSON without blanks: raw line breaks in
 * strings are escaped, \u0000 and lone surrogates become U+FFFD, numbers keep their text. It accepts three
 * dialects:
 *
 *   plain   JSON, and frequent mistakes of models: escapes that JSON does not have (the backslash is kept),
 *           Python's True, False and None, single quotes, a comma before a closing bracket. Each sets is_repaired.
 *   python  the arguments of a Python call, from ( to ): name=literal pairs
 *   gemma   {key:value}, keys without quotes, strings between two equal marks
 *
 * Also converts values of parameters according to their types. */
#include <float.h>
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
    S_BARE_KEY, /* a key without quotes */
    S_MARK,     /* inside the mark that opens a string */
    S_EMPTY,    /* after '' in Python: an empty string, or the start of ''' */
    S_END,
};

/* Parts of a number. */
enum { N_SIGN, N_ZERO, N_INT, N_POINT, N_FRACTION, N_E, N_E_SIGN, N_EXPONENT };

static const char *const string_marks[] = {"<|\"|>", "<escape>"};

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
static void put_escaped(struct chat_json *j, const char *s, size_t n) {
    if (j->out) chat_json_escape(j->out, s, n);
}

static enum chat_json_status ended(struct chat_json *j) {
    j->state = j->depth ? S_AFTER : S_END;
    return j->depth ? CHAT_JSON_MORE : CHAT_JSON_DONE;
}

static bool in_object(const struct chat_json *j) {
    return j->depth && (j->close[j->depth - 1] == '}' || j->close[j->depth - 1] == '=');
}

/* '=' represents the ) that closes the arguments of a call. */
static enum chat_json_status open_bracket(struct chat_json *j, char c) {
    if (j->depth == CHAT_JSON_DEPTH) return CHAT_JSON_BAD;
    char close = c == '{' ? '}' : c == '[' ? ']' : j->depth ? ')' : '=';
    put_comma(j);
    j->close[j->depth++] = close;
    put(j, in_object(j) ? "{" : "[", 1);
    j->state = in_object(j) ? S_OBJ_FIRST : S_ARR_FIRST;
    return CHAT_JSON_MORE;
}

static enum chat_json_status close_bracket(struct chat_json *j, char c) {
    char close = j->depth ? j->close[j->depth - 1] : 0;
    if (!close || (close == '=' ? ')' : close) != c) return CHAT_JSON_BAD;
    if (j->comma && j->dialect == CHAT_JSON_PLAIN) j->is_repaired = true;
    j->comma = false;
    put(j, in_object(j) ? "}" : "]", 1);
    j->depth--;
    return ended(j);
}

static enum chat_json_status begin_string(struct chat_json *j, char quote, bool is_key) {
    put_comma(j);
    put(j, "\"", 1);
    j->is_key = is_key;
    j->quote = quote;
    j->n_quote = j->n_text = 0;
    j->is_triple = false;
    j->state = S_STRING;
    if (quote == '<') { /* the next bytes decide which mark it is */
        j->state = S_MARK;
        j->n_mark = 1;
    }
    if (quote == '\'' && j->dialect == CHAT_JSON_PLAIN) j->is_repaired = true;
    return CHAT_JSON_MORE;
}

static bool is_quote(const struct chat_json *j, char c) {
    return c == '"' || (c == '\'' && j->dialect != CHAT_JSON_GEMMA) ||
           (c == '<' && j->dialect == CHAT_JSON_GEMMA);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) {
    return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c == '-' ||
           c == '$' || c == '.' || (unsigned char)c >= 0x80;
}

static enum chat_json_status begin_key(struct chat_json *j, char c) {
    bool is_bare = j->dialect == CHAT_JSON_GEMMA || j->close[j->depth - 1] == '=';
    if (is_quote(j, c) && j->close[j->depth - 1] != '=') return begin_string(j, c, true);
    if (!is_bare || !is_word(c)) return CHAT_JSON_BAD;
    put_comma(j);
    put(j, "\"", 1);
    put(j, &c, 1);
    j->state = S_BARE_KEY;
    return CHAT_JSON_MORE;
}

static enum chat_json_status bare_key_byte(struct chat_json *j, char c) {
    char end = j->close[j->depth - 1] == '=' ? '=' : ':';
    if (c == end) {
        put(j, "\":", 2);
        j->state = S_VALUE;
    } else if (is_word(c)) {
        put(j, &c, 1);
    } else if (c != ' ') {
        return CHAT_JSON_BAD;
    }
    return CHAT_JSON_MORE;
}

static enum chat_json_status begin_value(struct chat_json *j, char c) {
    if (!j->first) j->first = c == '\'' || c == '<' ? '"' : c;
    if (c == '{' || c == '[' || (c == '(' && j->dialect == CHAT_JSON_PYTHON))
        return open_bracket(j, c);
    if (is_quote(j, c)) return begin_string(j, c, false);
    if (c == '-' || is_digit(c)) {
        put_comma(j);
        j->n_before = j->out ? j->out->n : 0;
        put(j, &c, 1);
        j->number = c == '-' ? N_SIGN : c == '0' ? N_ZERO : N_INT;
        j->state = S_NUMBER;
    } else if (c && strchr("tfnTFN", c)) {
        j->state = S_LITERAL;
    } else {
        return CHAT_JSON_BAD;
    }
    j->word[0] = c;
    j->n_word = 1;
    return CHAT_JSON_MORE;
}

/* Grammar of a number: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)? Returns the part after c; -1 if c
 * does not continue the number. */
static int number_next(int part, char c) {
    if (is_digit(c)) {
        static const signed char next[] = {N_INT,      -1,         N_INT,      N_FRACTION,
                                           N_FRACTION, N_EXPONENT, N_EXPONENT, N_EXPONENT};
        return part == N_SIGN && c == '0' ? N_ZERO : next[part];
    }
    if (c == '.' && (part == N_ZERO || part == N_INT)) return N_POINT;
    if ((c == 'e' || c == 'E') && (part == N_ZERO || part == N_INT || part == N_FRACTION))
        return N_E;
    return (c == '+' || c == '-') && part == N_E ? N_E_SIGN : -1;
}

/* If jansson refuses the number at the end of out, replaces it by the form that the caller requested. */
static void replace_number(struct chat_json *j) {
    if (!j->out || j->numbers == CHAT_JSON_AS_WRITTEN || j->out->failed) return;
    const char *text = j->out->p + j->n_before;
    bool is_int = !text[strspn(text, "-0123456789")];
    int64_t whole;
    double d = strtod(text, NULL);
    if (is_int ? str_to_i64(text, INT64_MIN, INT64_MAX, &whole) : isfinite(d)) return;
    if (j->numbers == CHAT_JSON_NEAREST) {
        buf_cut(j->out, j->n_before);
        buf_printf(j->out, "%.17e", isfinite(d) ? d : copysign(DBL_MAX, d));
        return;
    }
    struct buf number;
    buf_init(&number, j->out->max);
    buf_puts(&number, text);
    buf_cut(j->out, j->n_before);
    buf_printf(j->out, "\"\\u0000%s\"", number.p ? number.p : "");
    buf_fini(&number);
}

static enum chat_json_status number_byte(struct chat_json *j, char c) {
    if (is_digit(c) || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-') {
        int next = number_next(j->number, c);
        if (next < 0) return CHAT_JSON_BAD;
        j->number = (uint8_t)next;
        put(j, &c, 1);
        if (j->n_word + 1 < sizeof j->word) j->word[j->n_word++] = c;
        return CHAT_JSON_MORE;
    }
    if (j->number != N_ZERO && j->number != N_INT && j->number != N_FRACTION &&
        j->number != N_EXPONENT)
        return CHAT_JSON_BAD;
    j->word[j->n_word] = 0;
    replace_number(j);
    if (ended(j) == CHAT_JSON_DONE) return CHAT_JSON_BEFORE;
    return chat_json_push(j, c);
}

static enum chat_json_status literal_byte(struct chat_json *j, char c) {
    static const struct {
        const char *word, *json;
    } rows[] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                {"True", "true"}, {"False", "false"}, {"None", "null"}};
    size_t i = 0;
    while (i < 6 && rows[i].word[0] != j->word[0]) i++;
    if (i == 6 || rows[i].word[j->n_word] != c) return CHAT_JSON_BAD;
    if (rows[i].word[++j->n_word]) return CHAT_JSON_MORE;
    if (i > 2) {
        if (j->dialect == CHAT_JSON_PLAIN) j->is_repaired = true;
        if (j->depth == 0) j->first = rows[i].json[0];
    }
    put_comma(j);
    put(j, rows[i].json, strlen(rows[i].json));
    return ended(j);
}

static const char replacement[] = "\\ufffd";

static void flush_high(struct chat_json *j) {
    if (j->high) put(j, replacement, 6);
    j->high = 0;
}

static enum chat_json_status string_end(struct chat_json *j) {
    put(j, "\"", 1);
    if (!j->is_key) return ended(j);
    j->state = S_COLON;
    return CHAT_JSON_MORE;
}

/* Reads a string between two equal marks, which has no escapes. */
static enum chat_json_status marked_byte(struct chat_json *j, char c) {
    const char *mark = j->mark;
    if (mark[j->n_mark] != c && j->n_mark) {
        put_escaped(j, mark, j->n_mark);
        j->n_mark = 0;
    }
    if (mark[j->n_mark] != c) put_escaped(j, &c, 1);
    else if (!mark[++j->n_mark]) return string_end(j);
    return CHAT_JSON_MORE;
}

static enum chat_json_status mark_byte(struct chat_json *j, char c) {
    for (size_t i = 0; i < 2; i++) {
        const char *mark = string_marks[i];
        if ((j->n_mark > 1 && j->mark != mark) || mark[j->n_mark] != c) continue;
        j->mark = mark;
        if (mark[++j->n_mark]) return CHAT_JSON_MORE;
        j->n_mark = 0;
        j->state = S_STRING;
        return CHAT_JSON_MORE;
    }
    return CHAT_JSON_BAD;
}

static enum chat_json_status quote_byte(struct chat_json *j) {
    if (j->is_triple && ++j->n_quote < 3) return CHAT_JSON_MORE;
    if (j->is_triple || j->n_text || j->dialect != CHAT_JSON_PYTHON || j->is_key)
        return string_end(j);
    j->state = S_EMPTY;
    return CHAT_JSON_MORE;
}

static enum chat_json_status empty_byte(struct chat_json *j, char c) {
    if (c != j->quote) {
        enum chat_json_status st = string_end(j);
        return st == CHAT_JSON_MORE ? chat_json_push(j, c) : st;
    }
    j->is_triple = true;
    j->n_quote = 0;
    j->state = S_STRING;
    return CHAT_JSON_MORE;
}

static enum chat_json_status string_byte(struct chat_json *j, char c) {
    if (j->quote == '<') return marked_byte(j, c);
    if (c == '\\') {
        j->state = S_ESCAPE;
        return CHAT_JSON_MORE;
    }
    flush_high(j);
    if (c == j->quote) return quote_byte(j);
    while (j->n_quote) { /* quotes inside a triple-quoted string */
        put_escaped(j, &j->quote, 1);
        j->n_quote--;
    }
    j->n_text = 1;
    if ((unsigned char)c >= 0x20 && c != '"') put(j, &c, 1);
    else put_escaped(j, &c, 1);
    if ((unsigned char)c < 0x20 && j->dialect == CHAT_JSON_PLAIN) j->is_repaired = true;
    return CHAT_JSON_MORE;
}

/* Handles escapes that only Python has; true if c is one. */
static bool python_escape(struct chat_json *j, char c) {
    if (c == 'x' || c == 'U') {
        j->state = S_HEX;
        j->n_hex = c == 'x' ? 2 : 8;
        j->hex = 0;
        return true;
    }
    if (c == '\n') return true;
    const char *at = c ? strchr("'a0v", c) : NULL;
    if (!at) return false;
    put_escaped(j, &"'\a\0\v"[at - strchr("'a0v", '\'')], 1);
    return true;
}

static enum chat_json_status escape_byte(struct chat_json *j, char c) {
    j->n_text = 1;
    j->state = S_STRING;
    if (c == 'u') {
        j->state = S_HEX;
        j->n_hex = 4;
        j->hex = 0;
        return CHAT_JSON_MORE;
    }
    flush_high(j);
    if (c && strchr("\"\\/bfnrt", c)) {
        char e[2] = {'\\', c};
        put(j, e, 2);
    } else if (c == '\'' && j->quote == '\'') {
        put(j, "'", 1);
    } else if (j->dialect != CHAT_JSON_PYTHON ||
               !python_escape(j, c)) { /* not an escape: keep its text */
        put(j, "\\\\", 2);
        put_escaped(j, &c, 1);
        if (j->dialect == CHAT_JSON_PLAIN) j->is_repaired = true;
    }
    return CHAT_JSON_MORE;
}

static enum chat_json_status hex_byte(struct chat_json *j, char c) {
    int h = is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (h < 0) return CHAT_JSON_BAD;
    j->hex = j->hex << 4 | (uint32_t)h;
    if (--j->n_hex) return CHAT_JSON_MORE;
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
    } else if (low || j->hex == 0 || j->hex > 0x10ffff) {
        put(j, replacement, 6);
    } else if (j->hex > 0xffff) {
        snprintf(e, sizeof e, "\\u%04x\\u%04x", 0xd7c0 + (j->hex >> 10), 0xdc00 + (j->hex & 0x3ff));
        put(j, e, 12);
    } else {
        snprintf(e, sizeof e, "\\u%04x", j->hex);
        put(j, e, 6);
    }
    return CHAT_JSON_MORE;
}

static enum chat_json_status after_byte(struct chat_json *j, char c) {
    if (c == '}' || c == ']' || c == ')') return close_bracket(j, c);
    if (c != ',') return CHAT_JSON_BAD;
    j->comma = true;
    j->state = in_object(j) ? S_OBJ_KEY : S_VALUE;
    return CHAT_JSON_MORE;
}

static bool closes(const struct chat_json *j, char c) {
    return (c == '}' || c == ']' || c == ')') && (j->state != S_VALUE || j->comma);
}

enum chat_json_status chat_json_push(struct chat_json *j, char c) {
    bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (blank && j->state < S_STRING) return CHAT_JSON_MORE;
    switch (j->state) {
    case S_VALUE:
    case S_ARR_FIRST: return closes(j, c) ? close_bracket(j, c) : begin_value(j, c);
    case S_OBJ_FIRST:
    case S_OBJ_KEY: return closes(j, c) ? close_bracket(j, c) : begin_key(j, c);
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
    case S_BARE_KEY: return bare_key_byte(j, c);
    case S_MARK: return mark_byte(j, c);
    case S_EMPTY: return empty_byte(j, c);
    default: return CHAT_JSON_BAD;
    }
}

/* Parses the complete text, which must contain one value. */
static bool read_all(struct chat_json *j, const char *s, size_t n) {
    size_t i = 0;
    enum chat_json_status st = CHAT_JSON_MORE;
    while (n && s[n - 1] && strchr(" \t\r\n", s[n - 1])) n--;
    while (i < n && st == CHAT_JSON_MORE) st = chat_json_push(j, s[i++]);
    if (st == CHAT_JSON_MORE && chat_json_push(j, ' ') == CHAT_JSON_BEFORE) st = CHAT_JSON_DONE;
    return st == CHAT_JSON_DONE && i == n;
}

bool chat_json_strict(struct buf *out, const char *s, size_t n, enum chat_json_numbers numbers) {
    struct chat_json j;
    size_t mark = out->n;
    chat_json_init(&j, out);
    j.numbers = (uint8_t)numbers;
    if (read_all(&j, s, n) && !j.is_repaired) return true;
    buf_cut(out, mark);
    return false;
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

/* ---- values of parameters ---- */

static unsigned type_of_text(const struct chat_json *j) {
    switch (j->first) {
    case '{': return CHAT_T_OBJECT;
    case '[': return CHAT_T_ARRAY;
    case '"': return CHAT_T_STRING;
    case 't':
    case 'f': return CHAT_T_BOOLEAN;
    case 'n': return CHAT_T_NULL;
    default: {
        double d = strtod(j->word, NULL); /* 2.0 is an integer to JSON Schema */
        bool is_whole = !j->word[strspn(j->word, "-0123456789")] || (isfinite(d) && d == floor(d));
        return is_whole ? CHAT_T_INTEGER | CHAT_T_NUMBER : CHAT_T_NUMBER;
    }
    }
}

bool chat_put_typed(struct buf *out, const char *s, size_t n, unsigned types, bool *is_repaired) {
    struct chat_json j;
    size_t mark = out->n;
    chat_json_init(&j, out);
    if (read_all(&j, s, n) && (type_of_text(&j) & types)) {
        if (is_repaired) *is_repaired |= j.is_repaired;
        return true;
    }
    buf_cut(out, mark);
    return false;
}

void chat_put_value(struct buf *out, const char *s, size_t n, unsigned types, bool *is_repaired) {
    /* a text that is not quite JSON remains a text if the parameter may be a string */
    bool repaired = false, may_be_text = types & CHAT_T_STRING;
    size_t mark = out->n;
    if (chat_put_typed(out, s, n, types & ~(unsigned)CHAT_T_STRING, &repaired)) {
        bool is_bracket = out->p && (out->p[mark] == '{' || out->p[mark] == '[');
        if (is_repaired) *is_repaired |= repaired;
        if (!repaired || !may_be_text || !is_bracket) return;
        buf_cut(out, mark);
    }
    buf_putc(out, '"');
    chat_json_escape(out, s, n);
    buf_putc(out, '"');
}
