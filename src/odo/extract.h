/* extract.h: a file or a page -> its text, in the order of reading.
 *
 * Plain text, markdown and code as they are (bytes that are no UTF-8 are read as Latin-1), HTML by libxml2
 * without scripts, styles, forms and what is hidden, PDF page by page by the program pdftotext in a sandbox.
 * Headings become lines that begin with '#'. Input and output have ceilings; nothing is fetched. Any
 * thread. */
#ifndef CHIMERE_ODO_EXTRACT_H
#define CHIMERE_ODO_EXTRACT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    EXTRACT_MAX_BYTES = 32 << 20, /* of a file */
    EXTRACT_MAX_TEXT = 8 << 20,
    EXTRACT_MAX_PAGES = 2000,
};

enum extract_kind {
    EXTRACT_NONE,
    EXTRACT_TEXT,
    EXTRACT_MARKDOWN,
    EXTRACT_CODE,
    EXTRACT_HTML,
    EXTRACT_PDF
};

struct extract {
    enum extract_kind kind;
    struct buf text;
    char title[200]; /* "": none found */
    int32_t *pages;  /* owned: where each page begins in text; [n_page] */
    int32_t n_page;
    bool cut; /* a ceiling was reached */
};

/* By the name's ending; EXTRACT_NONE: nothing that can be read. */
enum extract_kind extract_kind_of(const char *name);
enum extract_kind extract_kind_of_type(const char *content_type);
int extract_text(struct extract *out, enum extract_kind kind, const char *data, size_t n,
                 int64_t deadline_ns, struct err *e);
void extract_fini(struct extract *x); /* after extract_text, also when it failed */

#endif
