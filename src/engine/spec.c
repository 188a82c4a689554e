#include "engine/spec.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

enum { MIN_MATCH = 3, MAX_MATCH = 8, PROBE_EVERY = 64 };

int spec_seq_init(struct spec_seq *q, const int32_t *prompt, int32_t n, int32_t n_more) {
    *q = (struct spec_seq){.cap_history = n + n_more + 1};
    q->history = mem_alloc((size_t)q->cap_history * sizeof *q->history);
    if (!q->history) return CHIMERE_ENOMEM;
    memcpy(q->history, prompt, (size_t)n * sizeof *prompt);
    q->n_history = n;
    for (int i = 0; i < STEP_MAX_TOK; i++) q->accept[i] = 0.7f; /* a hopeful start, soon replaced */
    return 0;
}

void spec_seq_fini(struct spec_seq *q) {
    mem_free(q->history);
    q->history = NULL;
}

void spec_seq_push(struct spec_seq *q, int32_t token) {
    if (q->history && q->n_history < q->cap_history) q->history[q->n_history++] = token;
}

int32_t spec_choose(struct spec *s, struct spec_seq *q, int32_t n_max, bool fixed) {
    if (n_max > STEP_MAX_TOK - 1) n_max = STEP_MAX_TOK - 1;
    if (n_max < 1 || q->off) return 0;
    if (fixed) return n_max;
    s->n_step++;
    /* measure what is unknown: each depth twice, then a probe of a random-looking depth now and then */
    for (int32_t n = n_max; n >= 0; n--)
        if (s->n_seen[n] < 2) return n;
    if (s->n_step % PROBE_EVERY == 0) return (s->n_step / PROBE_EVERY) % (n_max + 1);
    int32_t best = 0;
    double best_rate = 1 / s->step_ms[0], expected = 1, reach = 1;
    for (int32_t n = 1; n <= n_max; n++) {
        reach *= q->accept[n - 1];
        expected += reach;
        double rate = expected / s->step_ms[n];
        if (rate > best_rate * (best ? 1 : 1.02)) best = n, best_rate = rate;
    }
    return best;
}

void spec_learn(struct spec_seq *q, int32_t n_drafted, int32_t n_accepted) {
    q->n_round++;
    float step = q->n_round < 16 ? 1.0f / (float)(q->n_round + 1) : 1.0f / 16;
    for (int32_t i = 0; i < n_drafted && i <= n_accepted; i++)
        q->accept[i] += step * ((i < n_accepted ? 1.0f : 0.0f) - q->accept[i]);
}

void spec_time(struct spec *s, int32_t n_drafted, double ms) {
    int32_t n = n_drafted;
    if (n >= STEP_MAX_TOK) return;
    /* the first measurement of a depth pays for cold caches: it is replaced by the second */
    if (s->n_seen[n] < 2) s->step_ms[n] = ms;
    else s->step_ms[n] += 0.1 * ((ms < 4 * s->step_ms[n] ? ms : 4 * s->step_ms[n]) - s->step_ms[n]);
    s->n_seen[n]++;
}

int32_t spec_ngram(const struct spec_seq *q, int32_t n_max, int32_t *out) {
    const int32_t *h = q->history;
    int32_t n = q->n_history, best_len = 0, best_at = -1;
    if (!h || n < MIN_MATCH + 1) return 0;
    int32_t from = n > 8192 ? n - 8192 : 0;
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
