/* report html [--now DATE] [--trees FILE] PAGE.md OUT.html RESULTS.jsonl...   one HTML page
 * report update PAGE.md RESULTS.jsonl...   fills the page's directives in place, writes its figures beside it
 * report check PAGE.md RESULTS.jsonl...    fails if update would change the page
 * report list [--now DATE] [--trees FILE] RESULTS.jsonl...   one line per result, stale ones with the reason
 * script/report calls it. */
#include "report.h"

#include <string.h>

static struct results results;

static void list(void) {
    for (size_t k = 0; k < results.n; k++) {
        const struct row *row = &results.row[k];
        printf("%s\t%s\t%s\t%s\t%s\n", row->id, row_text(row, -1), row->unit, row->date,
               row->stale ? row->stale : "");
    }
}

static int run(const char *mode, char **arg) {
    if (!strcmp(mode, "html")) {
        FILE *out = fopen(arg[1], "w");
        if (!out) fail("%s: cannot be written", arg[1]);
        page_html(out, page_fill(arg[0], &results, PAGE_HTML));
        return fclose(out) ? 1 : 0;
    }
    if (!strcmp(mode, "list")) {
        list();
        return 0;
    }
    char *filled = page_fill(arg[0], &results, !strcmp(mode, "check") ? PAGE_CHECK : PAGE_UPDATE);
    if (!strcmp(mode, "update")) {
        file_write(arg[0], filled);
        return 0;
    }
    if (strcmp(filled, file_read(arg[0])) != 0) {
        fprintf(stderr, "report: %s does not show the recorded results: script/report --update\n",
                arg[0]);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *now = "", *trees = NULL;
    int k = 2;
    for (; k + 1 < argc && argv[k][0] == '-'; k += 2)
        if (!strcmp(argv[k], "--now")) now = argv[k + 1];
        else if (!strcmp(argv[k], "--trees")) trees = file_read(argv[k + 1]);
        else fail("unknown option %s", argv[k]);
    const char *mode = argc > 1 ? argv[1] : "";
    int files = !strcmp(mode, "html")                               ? 2
                : !strcmp(mode, "update") || !strcmp(mode, "check") ? 1
                                                                    : 0;
    if ((files == 0 && strcmp(mode, "list") != 0) || argc <= k + files)
        fail("usage: report html|update|check|list [--now DATE] [--trees FILE] [PAGE.md "
             "[OUT.html]] RESULTS.jsonl...");
    for (int i = k + files; i < argc; i++) results_read(&results, argv[i]);
    results_age(&results, now, trees);
    return run(mode, argv + k);
}
