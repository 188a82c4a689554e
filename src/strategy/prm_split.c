/* prm_split.c: splits an answer into steps. */
#include <string.h>

#include "strategy/prm.h"

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static struct slice trim(const char *p, size_t n) {
    while (n && is_blank(*p)) p++, n--;
    while (n && is_blank(p[n - 1])) n--;
    return (struct slice){p, n};
}

static void add(struct prm_steps *out, const char *p, size_t n) {
    struct slice s = trim(p, n);
    if (!s.n) return;
    if (out->n == PRM_MAX_STEPS) { /* no room: the rest belongs to the last step */
        struct slice *last = &out->step[out->n - 1];
        last->n = (size_t)(s.p + s.n - last->p);
        return;
    }
    out->step[out->n++] = s;
}

/* ---- list marks: return the length of the mark at the start of a line, or 0 ---- */

/* Matches "1." "2)" "Step 3:" "**Step 4.**". */
static size_t numbered(const char *p, size_t n) {
    size_t i = 0;
    bool step = false;
    while (i < n && (p[i] == '*' || p[i] == ' ')) i++;
    static const char *const words[] = {"Step ", "step ", "STEP ", "Etape ", "\xc3\x89tape "};
    for (size_t w = 0; w < sizeof words / sizeof *words && !step; w++) {
        size_t m = strlen(words[w]);
        if (n - i >= m && !memcmp(p + i, words[w], m)) {
            i += m;
            step = true;
        }
    }
    size_t first = i;
    while (i < n && i - first < 3 && is_digit(p[i])) i++;
    if (i == first) return 0;
    if (i < n && (p[i] == '.' || p[i] == ')' || (step && (p[i] == ':' || p[i] == '*')))) i++;
    else return 0;
    while (i < n && (p[i] == '*' || p[i] == ':')) i++;
    if (i < n && p[i] != ' ') return 0; /* not a mark: 3.14 */
    return i;
}

static size_t heading(const char *p, size_t n) {
    size_t i = 0;
    while (i < n && p[i] == '#') i++;
    return i && i < 7 && i < n && p[i] == ' ' ? i : 0;
}

static size_t bullet(const char *p, size_t n) {
    if (n > 1 && (p[0] == '-' || p[0] == '*' || p[0] == '+') && p[1] == ' ') return 2;
    return n > 3 && !memcmp(p, "\xe2\x80\xa2", 3) ? 3 : 0;
}

/* A step extends from each marked line to the next one. Text before the first mark is no step. Text after a blank
 * line that follows the last item is one more step: the conclusion. */
static bool by_marks(const char *text, size_t n, size_t (*mark)(const char *, size_t),
                     int32_t least, size_t least_bytes, struct prm_steps *out) {
    const char *begin = NULL, *end = text + n;
    int32_t n_mark = 0;
    out->n = 0;
    for (const char *line = text; line < end;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t len = next ? (size_t)(next - line) : (size_t)(end - line), lead = 0;
        while (lead < len && (line[lead] == ' ' || line[lead] == '\t')) lead++;
        size_t m = mark(line + lead, len - lead);
        if (m && len - lead - m >= least_bytes) {
            if (begin) add(out, begin, (size_t)(line - begin));
            begin = line + lead + m;
            n_mark++;
        }
        line = next ? next + 1 : end;
    }
    if (begin) {
        const char *gap = memmem(begin, (size_t)(end - begin), "\n\n", 2);
        add(out, begin, (size_t)((gap ? gap : end) - begin));
        if (gap) add(out, gap, (size_t)(end - gap));
    }
    return n_mark >= least;
}

/* Splits at "Step 1: ... Step 2: ...". A line after the last step is the final answer and becomes one more step. */
static bool by_numbers(const char *text, size_t n, struct prm_steps *out) {
    if (!by_marks(text, n, numbered, 2, 0, out)) return false;
    struct slice *last = &out->step[out->n - 1];
    const char *line = last->n ? memchr(last->p, '\n', last->n) : NULL;
    if (!line || out->n == PRM_MAX_STEPS) return true;
    struct slice rest = trim(line, (size_t)(last->p + last->n - line));
    if (bullet(rest.p, rest.n)) return true;
    *last = trim(last->p, (size_t)(line - last->p));
    add(out, rest.p, rest.n);
    return true;
}

static bool by_code(const char *text, size_t n, struct prm_steps *out) {
    const char *end = text + n, *p = text;
    out->n = 0;
    while (p < end) {
        const char *open = memmem(p, (size_t)(end - p), "```", 3);
        const char *line = open ? memchr(open, '\n', (size_t)(end - open)) : NULL;
        const char *close = line ? memmem(line, (size_t)(end - line), "```", 3) : NULL;
        if (!close) break;
        if (close - line > 30) add(out, line, (size_t)(close - line));
        p = close + 3;
    }
    return out->n >= 2;
}

/* Splits at `gap`; parts of fewer than least_bytes are dropped. */
static bool by_gaps(const char *text, size_t n, const char *gap, size_t least_bytes,
                    struct prm_steps *out) {
    const char *p = text, *end = text + n;
    out->n = 0;
    while (p < end) {
        const char *next = memmem(p, (size_t)(end - p), gap, strlen(gap));
        const char *stop = next ? next : end;
        if (trim(p, (size_t)(stop - p)).n >= least_bytes) add(out, p, (size_t)(stop - p));
        p = next ? next + strlen(gap) : end;
    }
    return out->n >= 2;
}

/* Splits at . ! ? before a blank; "; " separates calculations. */
static void by_sentences(const char *text, size_t n, struct prm_steps *out) {
    size_t begin = 0;
    out->n = 0;
    for (size_t i = 0; i < n; i++) {
        bool last = i + 1 == n, end = text[i] == '.' || text[i] == '!' || text[i] == '?';
        bool sum = text[i] == ';' && memchr(text + begin, '=', i - begin);
        if (end && i && is_digit(text[i - 1]) && i - begin < 4) end = false; /* "1. " */
        if (!last && !((end || sum) && is_blank(text[i + 1])) && text[i] != '\n') continue;
        add(out, text + begin, i + 1 - begin);
        begin = i + 1;
    }
}

void prm_split(const char *text, size_t n, struct prm_steps *out) {
    struct slice all = trim(text, n);
    if (by_numbers(all.p, all.n, out)) return;
    if (by_marks(all.p, all.n, heading, 2, 0, out)) return;
    if (by_marks(all.p, all.n, bullet, 3, 20, out)) return;
    if (by_code(all.p, all.n, out)) return;
    if (by_gaps(all.p, all.n, "\n\n", 30, out)) return;
    if (by_gaps(all.p, all.n, "\n", 1, out)) return;
    by_sentences(all.p, all.n, out);
}

/* Finds the last number of a text. Returns false if there is none. */
static bool last_digits(const struct slice *s, struct slice *out) {
    size_t end = s->n;
    while (end && !is_digit(s->p[end - 1])) end--;
    size_t begin = end;
    while (begin && is_digit(s->p[begin - 1])) begin--;
    *out = (struct slice){s->p + begin, end - begin};
    return end > begin;
}

void prm_conclusion(struct prm_steps *s) {
    if (s->n < 2) return;
    const struct slice *last = &s->step[s->n - 1], *before = last - 1;
    struct slice answer, result;
    if (memchr(last->p, '=', last->n) || last->n > 80) return;
    if (!memmem(last->p, last->n, "answer", 6) && !memmem(last->p, last->n, "ponse", 5)) return;
    if (!last_digits(last, &answer)) return;
    const char *sum = memrchr(before->p, '=', before->n);
    struct slice behind = {sum ? sum + 1 : before->p, 0};
    behind.n = (size_t)(before->p + before->n - behind.p);
    while (sum && behind.n && is_blank(*behind.p)) behind.p++, behind.n--;
    if (sum) { /* "3 + 4 = 7 apples in 2 boxes": compare the number after the sign */
        size_t n = 0;
        while (n < behind.n && is_digit(behind.p[n])) n++;
        result = (struct slice){behind.p, n};
    } else if (!last_digits(before, &result)) {
        return;
    }
    if (result.n == answer.n && !memcmp(result.p, answer.p, answer.n)) s->n--;
}
