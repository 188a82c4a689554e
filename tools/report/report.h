/* Reports: pages of Markdown whose tables and figures are filled from recorded results.
 *
 * The source of every figure is bench/results/(NAME).jsonl, one JSON object per line. A page contains directives:
 *
 *     <!-- table            one line per result: rows, columns, head
 *     rows: gpu.* cpu.nano.*
 *     columns: test value commit
 *     -->
 *     (generated)
 *     <!-- end -->
 *
 * `pivot` has one line per value of a field and one column per value of another; `bars` and `points` are figures.
 * The same directives fill the Markdown files in place (for readers of the repository) and the HTML pages.
 * All memory lives until the program ends: a page is rendered once. */
#ifndef CHIMERE_TOOLS_REPORT_H
#define CHIMERE_TOOLS_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { MAX_ROWS = 4096, MAX_PICK = 512, MAX_OPTIONS = 16, MAX_LINE = 64, STALE_DAYS = 90 };

/* One recorded figure. Texts are "" if absent, numbers NAN. A range of runs has low and high alone. */
struct row {
    const char *id, *date, *commit, *device, *system, *test, *metric, *unit, *command, *source,
        *provenance, *note;
    double value, low, high;
    const char *stale; /* why it is stale now, or NULL */
};

struct results {
    struct row row[MAX_ROWS];
    size_t n;
};

/* Rows that a directive selects, in the order of the files. */
struct pick {
    const struct row *row[MAX_PICK];
    size_t n;
};

/* Options of one directive, "key: value" per line. */
struct options {
    const char *kind, *key[MAX_OPTIONS], *value[MAX_OPTIONS];
    size_t n;
};

/* rows.c. `now` is a date as "YYYY-MM-DD" ("" for none), `trees` the output of `git ls-tree -d -r HEAD` or NULL. */
void results_read(struct results *r, const char *path);
void results_age(struct results *r, const char *now, const char *trees);
const char *row_field(const struct row *row, const char *name);
const char *option(const struct options *o, const char *key, const char *otherwise);
void pick_rows(struct pick *p, const struct results *r, const struct options *o);
size_t distinct(const struct pick *p, const char *field, const char **out, size_t cap);

/* text.c */
_Noreturn void fail(const char *format, ...);
char *file_read(const char *path);
void file_write(const char *path, const char *text);
char *number_text(double value, int decimals);
double row_middle(const struct row *row);
char *row_text(const struct row *row, int decimals);
int number_decimals(double value);
bool match(const char *pattern, const char *text);
void put_cell(FILE *out, const char *text, bool code);
void put_xml(FILE *out, const char *text);

/* table.c, figure.c: `html` marks stale rows; the Markdown form does not depend on the day. */
void table_write(FILE *out, const struct pick *p, const struct options *o, bool html);
void pivot_write(FILE *out, const struct pick *p, const struct options *o, bool html);
void bars_write(FILE *out, const struct pick *p, const struct options *o);
void points_write(FILE *out, const struct pick *p, const struct options *o);

/* page.c: the file with its directives filled. PAGE_UPDATE writes its figures beside it, PAGE_CHECK compares them. */
enum page_mode { PAGE_HTML, PAGE_UPDATE, PAGE_CHECK };
char *page_fill(const char *path, const struct results *r, enum page_mode mode);
void page_html(FILE *out, const char *markdown);

#endif
