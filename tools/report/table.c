/* Tables in Markdown: one line per result, or a pivot of two fields; commits and commands under or in them. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Decimals of the most precise value of the column, so that points are below points. */
static int column_decimals(const struct pick *p, const char *field, const char *value) {
    int most = 0;
    for (size_t k = 0; k < p->n; k++)
        if (!field || !strcmp(row_field(p->row[k], field), value)) {
            int d = isnan(p->row[k]->value) ? 0 : number_decimals(p->row[k]->value);
            most = d > most ? d : most;
        }
    return most > 4 ? -1 : most;
}

static void value_write(FILE *out, const struct row *row, int decimals, bool html) {
    fputs(row_text(row, decimals), out);
    if (!strcmp(row->provenance, "none")) fputs("†", out);
    if (html && row->stale) {
        fputs("<abbr class=\"stale\" title=\"", out);
        put_xml(out, row->stale);
        fputs("\">‡</abbr>", out);
    }
}

static bool any_stale(const struct pick *p) {
    for (size_t k = 0; k < p->n; k++)
        if (p->row[k]->stale) return true;
    return false;
}

static void notes_write(FILE *out, const struct pick *p, bool html) {
    const char *kinds[8];
    size_t n = distinct(p, "provenance", kinds, 8);
    bool recorded = false;
    for (size_t k = 0; k < n; k++) {
        if (!strcmp(kinds[k], "none")) fputs("\n† Recorded without commit or command.\n", out);
        recorded |= !strcmp(kinds[k], "recorded");
    }
    if (recorded)
        fputs("\nA commit in parentheses is the one that recorded the figure; the measured program "
              "is that one or its parent.\n",
              out);
    if (html && any_stale(p))
        fputs("\n‡ Stale: older than 90 days, or a measured folder has changed since.\n", out);
}

static void commit_write(FILE *out, const struct row *row) {
    if (*row->commit && !strcmp(row->provenance, "recorded")) fprintf(out, "(%s)", row->commit);
    else fputs(row->commit, out);
}

static const struct {
    const char *name, *head;
} heads[] = {{"test", "Test"},     {"metric", "Metric"},   {"value", "Value"},
             {"unit", "Unit"},     {"device", "Device"},   {"date", "Date"},
             {"commit", "Commit"}, {"command", "Command"}, {"source", "Source"},
             {"note", "Note"},     {"system", "System"},   {"id", "Row"}};

static const char *head_of(const char *name) {
    for (size_t k = 0; k < sizeof heads / sizeof *heads; k++)
        if (!strcmp(heads[k].name, name)) return heads[k].head;
    fail("no column '%s'", name);
}

static void cell_write(FILE *out, const struct row *row, const char *column, bool html) {
    if (!strcmp(column, "value")) value_write(out, row, -1, html);
    else if (!strcmp(column, "commit")) commit_write(out, row);
    else if (!strcmp(column, "command") && *row->command) {
        fputc('`', out);
        put_cell(out, row->command, true);
        fputc('`', out);
    } else put_cell(out, row_field(row, column), false);
}

void table_write(FILE *out, const struct pick *p, const struct options *o, bool html) {
    char list[256], *columns[12], *save = NULL;
    size_t n = 0;
    snprintf(list, sizeof list, "%s",
             option(o, "columns", "test metric value unit device commit command"));
    for (char *s = strtok_r(list, " ", &save); s && n < 12; s = strtok_r(NULL, " ", &save))
        columns[n++] = s;
    for (size_t c = 0; c < n; c++) fprintf(out, "| %s ", head_of(columns[c]));
    fputs("|\n", out);
    for (size_t c = 0; c < n; c++) fputs(!strcmp(columns[c], "value") ? "|---:" : "|---", out);
    fputs("|\n", out);
    for (size_t k = 0; k < p->n; k++) {
        for (size_t c = 0; c < n; c++) {
            fputs("| ", out);
            cell_write(out, p->row[k], columns[c], html);
            fputc(' ', out);
        }
        fputs("|\n", out);
    }
    notes_write(out, p, html);
}

static const struct row *pivot_at(const struct pick *p, const char *by, const char *line,
                                  const char *across, const char *column) {
    for (size_t k = 0; k < p->n; k++)
        if (!strcmp(row_field(p->row[k], by), line) &&
            !strcmp(row_field(p->row[k], across), column))
            return p->row[k];
    return NULL;
}

/* Commits of our own figures of a line; those of peers have none. */
static void line_commits(FILE *out, const struct pick *p, const char *by, const char *line) {
    const char *seen[MAX_LINE];
    size_t n = 0;
    for (size_t k = 0; k < p->n; k++) {
        const struct row *row = p->row[k];
        if (strcmp(row_field(row, by), line) != 0 || !*row->commit) continue;
        size_t i = 0;
        while (i < n && strcmp(seen[i], row->commit) != 0) i++;
        if (i < n || n == MAX_LINE) continue;
        fputs(n ? " " : "", out);
        seen[n++] = row->commit;
        commit_write(out, row);
    }
}

/* Each different command once, with its devices. */
static void commands_write(FILE *out, const struct pick *p) {
    const char *commands[MAX_LINE];
    size_t n = distinct(p, "command", commands, MAX_LINE);
    bool first = true;
    for (size_t k = 0; k < n; k++) {
        struct pick same = {.n = 0};
        const char *devices[MAX_LINE], *systems[MAX_LINE];
        if (!*commands[k]) continue;
        for (size_t i = 0; i < p->n; i++)
            if (!strcmp(p->row[i]->command, commands[k])) same.row[same.n++] = p->row[i];
        size_t n_systems = distinct(&same, "system", systems, MAX_LINE);
        size_t n_devices = distinct(&same, "device", devices, MAX_LINE);
        fputs(first ? "\n" : "", out);
        fprintf(out, "- `%s`", commands[k]);
        for (size_t i = 0; i < n_systems; i++)
            fprintf(out, "%s%s", i ? ", " : " · ", *systems[i] ? systems[i] : "Chimère");
        for (size_t i = 0; i < n_devices; i++) fprintf(out, "%s%s", i ? "; " : " on ", devices[i]);
        fputc('\n', out);
        first = false;
    }
}

struct pivot {
    const char *by, *across, *lines[MAX_PICK], *columns[MAX_LINE];
    size_t n_lines, n_columns;
    bool has_commit;          /* some row is ours */
    const char *top, *bottom; /* columns of the ratio, or NULL */
};

static void pivot_head(FILE *out, const struct pivot *v, const struct pick *p,
                       const struct options *o) {
    const char *units[MAX_LINE];
    size_t n_units = distinct(p, "unit", units, MAX_LINE);
    fprintf(out, "| %s ", option(o, "head", head_of(v->by)));
    for (size_t c = 0; c < v->n_columns; c++) {
        fputs("| ", out);
        put_cell(out, *v->columns[c] ? v->columns[c] : "Chimère", false);
        if (n_units == 1 && *units[0] && strcmp(v->across, "unit") != 0)
            fprintf(out, ", %s", units[0]);
        fputc(' ', out);
    }
    fprintf(out, "%s%s|\n|---", v->top ? "| Ratio " : "", v->has_commit ? "| Commit " : "");
    for (size_t c = 0; c < v->n_columns; c++) fputs("|---:", out);
    fprintf(out, "%s%s|\n", v->top ? "|---:" : "", v->has_commit ? "|---" : "");
}

static void pivot_line(FILE *out, const struct pivot *v, const struct pick *p, const char *line,
                       bool html) {
    fputs("| ", out);
    put_cell(out, line, false);
    for (size_t c = 0; c < v->n_columns; c++) {
        const struct row *row = pivot_at(p, v->by, line, v->across, v->columns[c]);
        fputs(" | ", out);
        if (row) value_write(out, row, column_decimals(p, v->across, v->columns[c]), html);
    }
    if (v->top) {
        const struct row *a = pivot_at(p, v->by, line, v->across, v->top);
        const struct row *b = pivot_at(p, v->by, line, v->across, v->bottom);
        fputs(" | ", out);
        if (a && b && row_middle(b) != 0) fprintf(out, "%.2f", row_middle(a) / row_middle(b));
    }
    if (v->has_commit) {
        fputs(" | ", out);
        line_commits(out, p, v->by, line);
    }
    fputs(" |\n", out);
}

void pivot_write(FILE *out, const struct pick *p, const struct options *o, bool html) {
    struct pivot v = {.by = option(o, "by", "test"), .across = option(o, "across", "metric")};
    char ratio[256], *slash;
    v.n_lines = distinct(p, v.by, v.lines, MAX_PICK);
    v.n_columns = distinct(p, v.across, v.columns, MAX_LINE);
    for (size_t k = 0; k < p->n; k++) v.has_commit |= *p->row[k]->commit != '\0';
    snprintf(ratio, sizeof ratio, "%s", option(o, "ratio", ""));
    if (*ratio) {
        slash = strstr(ratio, " / ");
        if (!slash) fail("ratio: '%s' is not of the form A / B", ratio);
        *slash = '\0';
        v.top = ratio;
        v.bottom = slash + 3;
    }
    pivot_head(out, &v, p, o);
    for (size_t k = 0; k < v.n_lines; k++) pivot_line(out, &v, p, v.lines[k], html);
    commands_write(out, p);
    notes_write(out, p, html);
}
