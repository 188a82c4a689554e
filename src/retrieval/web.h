/* web.h: finds passages of web pages for a question, in stages: expand, search, fuse, fetch, cut, rank, filter.
 * The eighth stage, the answer, is the model's.
 *
 * Needs a configured source: a SearXNG address or a Brave key. Pages are fetched only from public addresses,
 * robots.txt is respected, and sizes and times are limited. Results and pages are cached in memory for a while. If
 * a part fails, the others continue and the report names the failure. Results are untrusted text. Blocking; any
 * thread. */
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
    const char *brave_url;    /* NULL: the service's address */
    int32_t n_page;           /* pages fetched per question, 0: 4 */
    int32_t search_s, page_s; /* cache lifetime of results and pages; 0: 3600, 86400 */
    bool private_pages;       /* pages may have private addresses: for tests and intranets */
};
int web_open(struct web **out, const struct web_params *p, struct err *e);
void web_close(struct web *w);

struct web_hit {
    char *url, *title, *text; /* owned by the hits */
    int32_t from, to;         /* byte range in the page's text */
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
/* Returns 0 also if no passage was found; CHIMERE_E* if no search was possible. */
int web_search(struct web *w, const struct web_question *q, struct web_hits *out, struct err *e);
void web_hits_fini(struct web_hits *h);
int web_add_tool(struct web *w, struct tool_set *tools, struct err *e);

#endif
