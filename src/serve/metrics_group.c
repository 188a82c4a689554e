/* metrics_group.c: groups the lines of a metric. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "serve/metrics.h"

struct line {
    const char *p, *name; /* view: the text */
    size_t n, n_name;
    char kind; /* 'H': # HELP, 'T': # TYPE, 0: a value */
    bool done;
};

/* Returns whether the text declares the first n bytes of the name as a histogram or a summary. */
static bool has_parts(const char *text, const char *name, size_t n) {
    static const char type[] = "# TYPE ";
    for (const char *p = text; (p = strstr(p, type)); p++) {
        const char *is = p + strlen(type);
        if (strncmp(is, name, n) == 0 && is[n] == ' ')
            return strncmp(is + n, " histogram", 10) == 0 || strncmp(is + n, " summary", 8) == 0;
    }
    return false;
}

static struct line read_line(const char *text, const char *p, size_t n) {
    static const char *const parts[] = {"_bucket", "_sum", "_count"};
    struct line l = {.p = p, .name = p, .n = n};
    if (strncmp(p, "# HELP ", 7) == 0 || strncmp(p, "# TYPE ", 7) == 0) l.kind = p[2], l.name += 7;
    l.n_name = strcspn(l.name, " {\n");
    for (size_t i = 0; !l.kind && i < sizeof parts / sizeof *parts; i++) {
        size_t len = strlen(parts[i]);
        if (l.n_name > len && memcmp(l.name + l.n_name - len, parts[i], len) == 0 &&
            has_parts(text, l.name, l.n_name - len))
            l.n_name -= len;
    }
    return l;
}

/* Writes what is left of the metric that the first line belongs to: comments first, each kind once, then values. */
static void put_metric(struct line *first, size_t n, struct buf *out) {
    static const char kinds[] = {'H', 'T', 0};
    for (size_t k = 0; k < sizeof kinds; k++) {
        bool has = false;
        for (struct line *l = first; l < first + n; l++) {
            if (l->done || l->kind != kinds[k] || l->n_name != first->n_name ||
                memcmp(l->name, first->name, l->n_name) != 0)
                continue;
            l->done = true;
            if (!has || !kinds[k]) buf_put(out, l->p, l->n);
            has = true;
        }
    }
}

int metrics_group(const char *text, struct buf *out) {
    size_t n = 0, at = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++) n++;
    struct line *lines = mem_alloc_array(n + 1, sizeof *lines);
    if (!lines) return CHIMERE_ENOMEM;
    for (const char *p = text, *end; at < n; p = end + 1) {
        end = strchr(p, '\n');
        lines[at++] = read_line(text, p, (size_t)(end + 1 - p));
    }
    for (size_t i = 0; i < n; i++)
        if (!lines[i].done) put_metric(lines + i, n - i, out);
    mem_free(lines);
    return 0;
}
