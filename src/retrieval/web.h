/* web.h: a question -> passages of web pages, in stages: expand, search, fuse, fetch, cut, rank, filter; the
 * eighth, the answer, is the model's.
 *
 * Only where a source is configured: a SearXNG address or a Brave key. Pages are fetched from public
 * addresses alone, robots.txt is respected, sizes and times have ceilings; results and pages are kept in
 * memory for a while. What fails costs its part and is said in the report. What comes back is strangers'
 * text. Blocking; any thread. */
#ifndef CHIMERE_RETRIEVAL_WEB_H
#define CHIMERE_RETRIEVAL_WEB_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct tool_set;
struct web;

enum { WEB_MAX_QUERIES = 5, WEB_MAX_HITS = 24, WEB_MAX_PAGE_BYTES = 2 << 20, WEB_MAX_TEXT = 2048 };

struct web_params {           /* copied */
    const char *searxng;      /* base address, or NULL */
    const char *brave_key;    /* secret, or NULL */
    const char *brave_url;    /* NULL: the service's own */
    int32_t n_page;           /* fetched a question, 0: 4 */
    int32_t search_s, page_s; /* how long results and pages are kept; 0: 3600, 86400 */
    bool private_pages;       /* pages may lie on private addresses: tests, intranets */
};
int web_open(struct web **out, const struct web_params *p, struct err *e);
void web_close(struct web *w);

struct web_hit {
    char *url, *title, *text; /* owned by the hits */
    int32_t from, to;         /* bytes of the page's text */
    double score;
};
struct web_hits {
    struct web_hit v[WEB_MAX_HITS];
    int32_t n;
    json_t *
        report; /* owned; {"queries", "results", "pages", "failed", "refused", "cut", "kept", "ms": {stage}} */
};

struct web_question {
    const char *text;
    const char *const *more; /* further queries from the expansion [n_more] */
    int32_t n_more, k;       /* k: passages wanted */
    int64_t deadline_ns;
    _Atomic bool *cancelled; /* may be NULL */
};
/* 0 also where nothing was found; CHIMERE_E* where no search could be made at all. */
int web_search(struct web *w, const struct web_question *q, struct web_hits *out, struct err *e);
void web_hits_fini(struct web_hits *h);
int web_add_tool(struct web *w, struct tool_set *tools, struct err *e);

#endif
