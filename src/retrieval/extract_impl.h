/* extract_impl.h: shared by the readers of the different kinds. */
#ifndef CHIMERE_RETRIEVAL_EXTRACT_IMPL_H
#define CHIMERE_RETRIEVAL_EXTRACT_IMPL_H

#include "retrieval/extract.h"
#include "tools/sandbox.h"

/* Removes control bytes except tab and newline; a byte that is not UTF-8 is read as Latin-1. */
void extract_put_clean(struct buf *b, const char *s, size_t n);
void extract_set_title(struct extract *x, const char *s, size_t n);
bool extract_is_utf16(const char *data, size_t n); /* true if data begins with a byte order mark */
/* appends a newline, unless the text ends with one */
void extract_new_line(struct buf *b);

enum { EXTRACT_MAX_ATTRIBUTES = 4096 }; /* attributes per tag */

/* Appends text; runs of blanks become one, unless it is preformatted. */
void extract_put_words(struct buf *b, const char *s, bool pre);
/* Returns true if a tag of HTML or XML has more than EXTRACT_MAX_ATTRIBUTES. */
bool extract_has_huge_tag(const char *s, size_t n);

/* Parses in this process: for the sandboxed child and for tests. */
int extract_parse(struct extract *x, enum extract_kind kind, const char *data, size_t n,
                  struct err *e);
int extract_notebook(struct extract *x, const char *data, size_t n, struct err *e);
int extract_html(struct extract *x, const char *data, size_t n, struct err *e);
int extract_xml(struct extract *x, const char *data, size_t n, struct err *e);
/* the format follows from x->kind */
int extract_office(struct extract *x, const char *data, size_t n, struct err *e);
int extract_book(struct extract *x, const char *data, size_t n, struct err *e);
/* Runs a parser with the common limits. The job has its program, input and wall limit. */
int extract_run(struct sandbox_job *job, const struct extract_how *how, struct buf *out,
                struct sandbox_result *r, struct err *e);
int extract_pdf(struct extract *x, const char *data, size_t n, const struct extract_how *how,
                struct err *e);

#endif
