#include "retrieval/robots.h"

#include <ctype.h>
#include <string.h>

#include "base/str.h"

/* '*' matches any run of characters; '$' at the end matches the end. Greedy with one backtracking point: no
 * recursion, O(n * m). */
static bool matches(struct slice pattern, const char *path) {
    size_t p = 0, s = 0, star = (size_t)-1, mark = 0, n = strlen(path);
    bool anchored = pattern.n && pattern.p[pattern.n - 1] == '$';
    size_t m = anchored ? pattern.n - 1 : pattern.n;
    while (s < n) {
        if (p == m && !anchored) return true;
        if (p < m && pattern.p[p] == '*') {
            star = p++;
            mark = s;
        } else if (p < m && pattern.p[p] == path[s]) {
            ++p, ++s;
        } else if (star != (size_t)-1) {
            p = star + 1;
            s = ++mark;
        } else {
            return false;
        }
    }
    while (p < m && pattern.p[p] == '*') ++p;
    return p == m;
}

static struct slice trim(struct slice s) {
    while (s.n && isspace((unsigned char)*s.p)) ++s.p, --s.n;
    while (s.n && isspace((unsigned char)s.p[s.n - 1])) --s.n;
    return s;
}

static bool is(struct slice s, const char *word) {
    if (s.n != strlen(word)) return false;
    for (size_t i = 0; i < s.n; ++i)
        if (tolower((unsigned char)s.p[i]) != tolower((unsigned char)word[i])) return false;
    return true;
}

struct verdict {
    bool found;    /* the file has a group for this agent */
    size_t length; /* length of the pattern that decides so far */
    bool forbidden;
};

static void rule(struct verdict *v, bool allow, struct slice pattern, const char *path) {
    if (!pattern.n || pattern.n < v->length || !matches(pattern, path)) return;
    if (pattern.n == v->length && !allow) return;
    v->length = pattern.n;
    v->forbidden = !allow;
}

bool robots_allow(const char *text, size_t n, const char *agent, const char *path) {
    struct verdict own = {0}, any = {0};
    bool in_own = false, in_any = false, naming = false;
    for (size_t i = 0; i < n;) {
        const char *end = memchr(text + i, '\n', n - i);
        struct slice line = {text + i, end ? (size_t)(end - text) - i : n - i};
        i += line.n + 1;
        const char *hash = memchr(line.p, '#', line.n), *colon = memchr(line.p, ':', line.n);
        if (hash) line.n = (size_t)(hash - line.p);
        if (!colon || (size_t)(colon - line.p) >= line.n) continue;
        struct slice key = trim((struct slice){line.p, (size_t)(colon - line.p)});
        struct slice value = trim((struct slice){colon + 1, line.n - (size_t)(colon - line.p) - 1});
        if (is(key, "user-agent")) {
            if (!naming) in_own = in_any = false;
            naming = true;
            if (is(value, agent)) in_own = own.found = true;
            if (is(value, "*")) in_any = true;
            continue;
        }
        bool allow = is(key, "allow");
        if (!allow && !is(key, "disallow")) continue;
        naming = false;
        if (in_own) rule(&own, allow, value, path);
        if (in_any) rule(&any, allow, value, path);
    }
    return own.found ? !own.forbidden : !any.forbidden;
}
