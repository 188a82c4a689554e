/* extract.h: extracts the text of a file or a web page, in reading order.
 *
 * Plain text, markdown and code are returned unchanged (bytes that are not UTF-8 are read as Latin-1). From HTML,
 * scripts, styles, forms and hidden parts are removed. HTML, XML, office files, books and PDF (page by page) are
 * parsed in a sandbox (sandbox.h) with limits on time, memory and output. For all but PDF, the sandbox runs this
 * program's own file again: a program that calls extract_text must pass its arguments to extract_child if the
 * first one is EXTRACT_COMMAND. Headings become lines that begin with '#'. Nothing is fetched. Any thread. */
#ifndef CHIMERE_RETRIEVAL_EXTRACT_H
#define CHIMERE_RETRIEVAL_EXTRACT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define EXTRACT_COMMAND "extract-untrusted"

enum {
    EXTRACT_MAX_BYTES = 32 << 20, /* largest input file */
    EXTRACT_MAX_TEXT = 8 << 20,
    EXTRACT_MAX_PAGES = 2000,
};

enum extract_kind {
    EXTRACT_NONE,
    EXTRACT_TEXT,
    EXTRACT_MARKDOWN,
    EXTRACT_CODE,
    EXTRACT_HTML,
    EXTRACT_PDF,
    EXTRACT_XML,
    EXTRACT_DOCX,
    EXTRACT_PPTX,
    EXTRACT_XLSX,
    EXTRACT_ODT,
    EXTRACT_EPUB,
    EXTRACT_NOTEBOOK,
    EXTRACT_N_KIND
};

struct extract {
    enum extract_kind kind;
    struct buf text;
    char title[200]; /* "": no title found */
    int32_t *pages;  /* owned [n_page]: offset in text at which each page begins */
    int32_t n_page;
    bool cut; /* a size limit was reached */
};

struct extract_how {
    int64_t deadline_ns;     /* 0: only the parser's own limit */
    _Atomic bool *cancelled; /* may be NULL */
};

/* Returns the kind by the extension of the name; EXTRACT_NONE: cannot be read. A name without extension is taken
 * as text; the caller checks that it is not binary. */
enum extract_kind extract_kind_of(const char *name);
enum extract_kind extract_kind_of_type(const char *content_type);
/* CHIMERE_EREFUSED: this kind needs a sandbox and the kernel allows none. */
int extract_text(struct extract *out, enum extract_kind kind, const char *data, size_t n,
                 const struct extract_how *how, struct err *e);
void extract_fini(struct extract *x); /* call it also if extract_text failed */

/* Allows parsers to run without a sandbox if the kernel allows none. Set once at start, for all threads. */
void extract_allow_bare(bool allowed);
/* The sandboxed child: reads standard input, writes the text, returns the exit status. */
int extract_child(int argc, char **argv);

#endif
