/* Results: JSON lines read, checked and aged; the rows that a directive selects. */
#include "report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    size_t offset;
    bool required;
} fields[] = {
    {"id", offsetof(struct row, id), true},
    {"date", offsetof(struct row, date), true},
    {"commit", offsetof(struct row, commit), false},
    {"device", offsetof(struct row, device), true},
    {"system", offsetof(struct row, system), false},
    {"test", offsetof(struct row, test), true},
    {"metric", offsetof(struct row, metric), true},
    {"unit", offsetof(struct row, unit), true},
    {"command", offsetof(struct row, command), false},
    {"source", offsetof(struct row, source), false},
    {"provenance", offsetof(struct row, provenance), false},
    {"note", offsetof(struct row, note), false},
};

static const char **text_at(struct row *row, size_t k) {
    return (const char **)((char *)row + fields[k].offset);
}

const char *row_field(const struct row *row, const char *name) {
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
        if (!strcmp(fields[k].name, name)) return *text_at((struct row *)row, k);
    fail("no field '%s' in a result", name);
}

static double number_or_nan(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void row_read(struct row *row, json_t *object, const char *path, int line) {
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
        const char *text = json_string_value(json_object_get(object, fields[k].name));
        if (!text && fields[k].required) fail("%s:%d: no text '%s'", path, line, fields[k].name);
        *text_at(row, k) = text ? text : "";
    }
    row->value = number_or_nan(object, "value");
    row->low = number_or_nan(object, "low");
    row->high = number_or_nan(object, "high");
    if (isnan(row->value) && (isnan(row->low) || isnan(row->high)))
        fail("%s:%d: neither 'value' nor 'low' and 'high'", path, line);
    if (!*row->commit && !*row->source && !*row->provenance)
        fail("%s:%d: %s has neither commit nor source nor provenance", path, line, row->id);
    row->stale = NULL;
}

/* Folders that the row measured, as objects {"src/kernels": "HASH"}, kept beside the rows. */
static json_t *measured[MAX_ROWS];

void results_read(struct results *r, const char *path) {
    char *text = file_read(path), *save = NULL;
    int line = 0;
    for (char *s = strtok_r(text, "\n", &save); s; s = strtok_r(NULL, "\n", &save)) {
        json_error_t error;
        json_t *object = json_loads(s, JSON_REJECT_DUPLICATES, &error);
        line++;
        if (!json_is_object(object)) fail("%s:%d: not a JSON object: %s", path, line, error.text);
        if (r->n == MAX_ROWS) fail("more than %d results", MAX_ROWS);
        measured[r->n] = json_object_get(object, "tree");
        row_read(&r->row[r->n], object, path, line);
        for (size_t k = 0; k < r->n; k++)
            if (!strcmp(r->row[k].id, r->row[r->n].id))
                fail("%s:%d: the id %s occurs twice", path, line, r->row[k].id);
        r->n++;
    }
}

static long day_of(const char *date) {
    int y = 0, m = 0, d = 0;
    if (sscanf(date, "%4d-%2d-%2d", &y, &m, &d) != 3) return 0;
    struct tm tm = {.tm_year = y - 1900, .tm_mon = m - 1, .tm_mday = d, .tm_hour = 12};
    return (long)(timegm(&tm) / 86400);
}

/* Whether `git ls-tree -d -r HEAD` lists the folder with a hash that begins as given. */
static bool tree_is(const char *trees, const char *folder, const char *hash) {
    size_t n = strlen(folder);
    for (const char *s = trees; s && *s; s = strchr(s, '\n'), s += s ? 1 : 0) {
        const char *tab = strchr(s, '\t'), *end = strchr(s, '\n');
        if (!tab || (end && tab > end)) continue;
        size_t name = end ? (size_t)(end - tab - 1) : strlen(tab + 1);
        const char *kind = strstr(s, " tree ");
        if (name == n && !memcmp(tab + 1, folder, n) && kind && kind < tab)
            return !strncmp(kind + 6, hash, strlen(hash));
    }
    return false;
}

static const char *stale_text(const char *format, const char *what) {
    size_t size = strlen(format) + strlen(what) + 1;
    char *text = malloc(size);
    if (!text) fail("out of memory");
    snprintf(text, size, format, what);
    return text;
}

/* Figures of others are never stale: they are quotations with a date. */
void results_age(struct results *r, const char *now, const char *trees) {
    for (size_t k = 0; k < r->n; k++) {
        struct row *row = &r->row[k];
        const char *folder;
        json_t *hash;
        if (*row->source) continue;
        if (*now && day_of(now) - day_of(row->date) > STALE_DAYS)
            row->stale = stale_text("measured on %s, more than 90 days ago", row->date);
        if (trees && !row->stale)
            json_object_foreach(
                measured[k], folder,
                hash) if (!tree_is(trees, folder,
                                   json_string_value(hash) ? json_string_value(hash) : ""))
                row->stale = stale_text("%s has changed since", folder);
    }
}

const char *option(const struct options *o, const char *key, const char *otherwise) {
    for (size_t k = 0; k < o->n; k++)
        if (!strcmp(o->key[k], key)) return o->value[k];
    return otherwise;
}

static bool listed(const char *list, const char *id) {
    char copy[1024], *save = NULL;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save))
        if (match(s, id)) return true;
    return false;
}

void pick_rows(struct pick *p, const struct results *r, const struct options *o) {
    const char *rows = option(o, "rows", ""), *without = option(o, "without", "");
    p->n = 0;
    for (size_t k = 0; k < r->n && p->n < MAX_PICK; k++)
        if (listed(rows, r->row[k].id) && !listed(without, r->row[k].id))
            p->row[p->n++] = &r->row[k];
    if (p->n == 0) fail("'%s': no such result", rows);
}

/* The different values of a field, in the order of their first row. */
size_t distinct(const struct pick *p, const char *field, const char **out, size_t cap) {
    size_t n = 0;
    for (size_t k = 0; k < p->n; k++) {
        const char *value = row_field(p->row[k], field);
        size_t i = 0;
        while (i < n && strcmp(out[i], value) != 0) i++;
        if (i == n && n < cap) out[n++] = value;
    }
    return n;
}
