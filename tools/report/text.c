/* Strings and numbers of the report program: whole files, numbers as people write them, escaping. */
#include "report.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("report: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

char *file_read(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) fail("%s: cannot be opened", path);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    char part[65536];
    for (size_t n; out && (n = fread(part, 1, sizeof part, f)) > 0;) fwrite(part, 1, n, out);
    if (!out || ferror(f) || fclose(out)) fail("%s: cannot be read", path);
    fclose(f);
    return text;
}

void file_write(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f)) fail("%s: cannot be written", path);
}

/* The fewest decimals (at most 7) that give the value back. */
int number_decimals(double value) {
    char text[64];
    for (int d = 0; d < 7; d++) {
        snprintf(text, sizeof text, "%.*f", d, value);
        if (fabs(strtod(text, NULL) - value) <= 1e-9 * fabs(value)) return d;
    }
    return 7;
}

/* Thousands are separated from 10,000 on. */
char *number_text(double value, int decimals) {
    if (value != 0 && fabs(value) < 1e-4) {
        char *small = malloc(32);
        if (!small) fail("out of memory");
        snprintf(small, 32, "%g", value);
        return small;
    }
    char plain[64];
    snprintf(plain, sizeof plain, "%.*f", decimals, value);
    char *text = malloc(96), *to = text;
    if (!text) fail("out of memory");
    const char *from = plain;
    if (*from == '-') *to++ = *from++;
    size_t whole = strcspn(from, ".");
    for (size_t k = 0; k < whole; k++) {
        if (whole >= 5 && k > 0 && (whole - k) % 3 == 0) *to++ = ',';
        *to++ = from[k];
    }
    snprintf(to, 64, "%s", from + whole);
    return text;
}

/* What a bar or a point stands for: the value, or the middle of a range. */
double row_middle(const struct row *row) {
    return isnan(row->value) ? (row->low + row->high) / 2 : row->value;
}

/* "12.5", "12.5 (11 to 14)" or "11 to 14"; decimals below 0 for as many as the value needs. */
char *row_text(const struct row *row, int decimals) {
    char *text = malloc(256);
    size_t n = 0;
    if (!text) fail("out of memory");
    text[0] = '\0';
    if (!isnan(row->value)) {
        int own = decimals < 0 ? number_decimals(row->value) : decimals;
        n = (size_t)snprintf(text, 96, "%s", number_text(row->value, own));
    }
    if (!isnan(row->low) && !isnan(row->high)) {
        int d = number_decimals(row->low), e = number_decimals(row->high);
        d = d > e ? d : e;
        snprintf(text + n, 160, n ? " (%s to %s)" : "%s to %s", number_text(row->low, d),
                 number_text(row->high, d));
    }
    return text;
}

/* Whether text is of the pattern, in which * stands for any run of characters. */
bool match(const char *pattern, const char *text) {
    for (; *pattern; pattern++, text++) {
        if (*pattern == '*') {
            while (*pattern == '*') pattern++;
            for (; *text; text++)
                if (match(pattern, text)) return true;
            return !*pattern;
        }
        if (*pattern != *text) return false;
    }
    return !*text;
}

/* A cell of a Markdown table: one line, no bar, no markup of its own. Within a code span, backslashes are text. */
void put_cell(FILE *out, const char *text, bool code) {
    for (; *text; text++) {
        if (*text == '|' || (!code && strchr("<*`\\", *text))) fputc('\\', out);
        fputc(*text == '\n' ? ' ' : code && *text == '`' ? '\'' : *text, out);
    }
}

void put_xml(FILE *out, const char *text) {
    for (; *text; text++)
        if (*text == '&') fputs("&amp;", out);
        else if (*text == '<') fputs("&lt;", out);
        else if (*text == '"') fputs("&quot;", out);
        else fputc(*text, out);
}
