/* extract.h: a file or a page -> its text, in the order of reading.
 *
 * Plain text, markdown and code as they are (bytes that are not UTF-8 are read as Latin-1). HTML without scripts,
 * styles, forms and hidden parts, XML, office files, books, PDF page by page: their parsers run in a sandbox (sandbox.h),
 * with limits on time, memory and output. All but PDF are parsed by this program's own file, started again: a program that calls extract_text
 * passes its arguments on to extract_child if the first is EXTRACT_COMMAND. Headings become lines that begin with
 * '#'. Nothing is fetched. Any thread. */
#ifndef CHIMERE_RETRIEVAL_EXTRACT_H
#define CHIMERE_RETRIEVAL_EXTRACT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define EXTRACT_COMMAND "extract-untrusted"

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
    char title[200]; /* "": none found */
    int32_t *pages;  /* owned: where each page begins in text; [n_page] */
    int32_t n_page;
    bool cut; /* a ceiling was reached */
};

struct extract_how {
    int64_t deadline_ns;     /* 0: the parser's own limit */
    _Atomic bool *cancelled; /* may be NULL */
};

/* By the name's ending; EXTRACT_NONE: nothing that can be read. Without an ending it is text, or its bytes say no. */
enum extract_kind extract_kind_of(const char *name);
enum extract_kind extract_kind_of_type(const char *content_type);
/* CHIMERE_EREFUSED: the kernel allows no sandbox for this kind. */
int extract_text(struct extract *out, enum extract_kind kind, const char *data, size_t n,
                 const struct extract_how *how, struct err *e);
void extract_fini(struct extract *x); /* after extract_text, also when it failed */

/* Parsers may run without a sandbox if the kernel allows none: for all threads, set once at start. */
void extract_allow_bare(bool allowed);
/* The sandboxed side: reads standard input, writes the text; returns the exit status. */
int extract_child(int argc, char **argv);

#endif
