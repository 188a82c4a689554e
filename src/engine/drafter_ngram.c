/* drafter_ngram.c: prompt lookup: proposes the tokens after the latest earlier occurrence of the longest
 * suffix (3 to 8 tokens) of the history. */
#include "engine/drafter.h"

enum { MIN_MATCH = 3, MAX_MATCH = 8, WINDOW = 8192 };

static int32_t look_up(const int32_t *h, int32_t n, int32_t n_max, int32_t *out) {
    int32_t best_len = 0, best_at = -1;
    if (!h || n < MIN_MATCH + 1) return 0;
    int32_t from = n > WINDOW ? n - WINDOW : 0;
    for (int32_t end = n - 1; end > from && best_len < MAX_MATCH;
         end--) { /* h[end - 1] would be the last matched */
        if (h[end - 1] != h[n - 1]) continue;
        int32_t len = 1;
        while (len < MAX_MATCH && end - 1 - len >= 0 && h[end - 1 - len] == h[n - 1 - len]) len++;
        if (len > best_len) best_len = len, best_at = end;
    }
    if (best_len < MIN_MATCH) return 0;
    int32_t got = 0;
    while (got < n_max && best_at + got < n) {
        out[got] = h[best_at + got];
        got++;
    }
    return got;
}

static int draft(struct drafter *d, struct drafter_request *r, int32_t n, struct err *e) {
    (void)d, (void)e;
    for (int32_t i = 0; i < n; i++)
        r[i].n_draft = look_up(r[i].history, r[i].n_history, r[i].n_draft, r[i].tokens);
    return 0;
}

const struct drafter_ops drafter_ngram = {.name = "prompt lookup", .draft = draft};
