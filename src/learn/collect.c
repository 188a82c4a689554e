#include "learn/collect.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "learn/mask.h"

enum { N_HASH = 16, SAME = 13 /* of N_HASH */, SHINGLE = 3, HELD_OUT_OF = 10 };

struct sketch {
    uint64_t least[N_HASH];
    uint64_t question, answer; /* hashes of the texts, ignoring case and punctuation */
};

struct collector {
    struct learn_day *day;
    struct sketch *sketches; /* owned; one per element of day->v */
    int64_t after;
    double least;
    struct err *e;
};

/* Hashes words; texts that differ only in case, punctuation and spaces have the same hash. */
static uint64_t hash_words(const char *text, size_t n) {
    uint64_t h = 0;
    bool gap = false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (!isalnum(c) && c < 0x80) {
            gap = h != 0;
            continue;
        }
        if (gap) h = hash_mix(h + 7);
        gap = false;
        h = hash_mix(h * 31 + (uint64_t)tolower(c));
    }
    return h;
}

/* Computes the smallest hashes of the text's sequences of three words (shingles). Texts that share most of these
 * hashes are near-duplicates. */
static struct sketch sketch_of(const char *text) {
    struct sketch s;
    const char *words[SHINGLE] = {0};
    int n_word = 0;
    memset(&s, 0xff, sizeof s);
    for (const char *at = text; *at;) {
        at += strspn(at, " \t\r\n");
        if (!*at) break;
        const char *end = at + strcspn(at, " \t\r\n");
        memmove(words, words + 1, sizeof words - sizeof *words);
        words[SHINGLE - 1] = at;
        n_word++;
        const char *from = n_word >= SHINGLE ? words[0] : at;
        uint64_t h = hash_words(from, (size_t)(end - from));
        for (int i = 0; i < N_HASH; i++) {
            uint64_t x = hash_mix(h + (uint64_t)i * 0x9e3779b97f4a7c15ULL);
            if (x < s.least[i]) s.least[i] = x;
        }
        at = end;
    }
    return s;
}

/* Returns true for near-duplicates. Questions that differ only in a name are different, unless their answers are
 * the same. */
static bool is_near(const struct sketch *a, const struct sketch *b) {
    int same = 0;
    if (a->question == b->question) return true;
    if (a->answer != b->answer) return false;
    for (int i = 0; i < N_HASH; i++) same += a->least[i] == b->least[i];
    return same >= SAME;
}

void learn_source(const char *owner, char out[LEARN_SOURCE]) {
    size_t n = strcspn(owner, "\t"), k = 0;
    k += (size_t)snprintf(out, LEARN_SOURCE, "night");
    if (n)
        k += (size_t)snprintf(out + k, LEARN_SOURCE - k, "/%016llx",
                              (unsigned long long)hash_bytes(owner, n, 3));
    if (n && owner[n])
        snprintf(out + k, LEARN_SOURCE - k, "/%016llx",
                 (unsigned long long)hash_bytes(owner + n + 1, strlen(owner + n + 1), 4));
}

uint64_t learn_text_hash(const char *text) { return hash_words(text, strlen(text)); }

bool learn_holds_out(const char *question) { return learn_text_hash(question) % HELD_OUT_OF == 0; }

char *learn_masked(const char *text, size_t *n_secret) {
    struct buf b;
    buf_init(&b, 2 * COLLECT_MAX_TEXT);
    *n_secret += mask_secrets(&b, text, strlen(text));
    return buf_take(&b);
}

/* Adds a question and its answer. If the question is already there, the better answer is kept. */
static int put(struct collector *c, const struct store_quality *q, double worth) {
    struct learn_day *d = c->day;
    struct sketch s = sketch_of(q->question);
    s.question = learn_text_hash(q->question);
    s.answer = learn_text_hash(q->answer);
    size_t at = 0;
    while (at < d->n && !is_near(&s, &c->sketches[at])) at++;
    if (at < d->n) {
        d->n_same++;
        if (worth <= d->v[at].worth) return 0;
        mem_free(d->v[at].question);
        mem_free(d->v[at].answer);
    } else if (d->n == COLLECT_MAX_ITEMS) {
        d->n_same++;
        return 0;
    }
    struct learn_item x = {.question = learn_masked(q->question, &d->n_secret),
                           .answer = learn_masked(q->answer, &d->n_secret),
                           .worth = worth,
                           .id = q->id,
                           .at_ms = q->at_ms};
    learn_source(q->owner ? q->owner : "", x.source);
    d->v[at] = x;
    c->sketches[at] = s;
    if (at == d->n) d->n++;
    if (!x.question || !x.answer) return err_set(c->e, CHIMERE_ENOMEM, "out of memory");
    d->v[at].held_out = learn_holds_out(x.question);
    return 0;
}

static int each(void *ud, const struct store_quality *q) {
    struct collector *c = ud;
    struct learn_day *d = c->day;
    if (q->id <= c->after || !q->question || !q->answer) return 0;
    if (q->id > d->last_id) d->last_id = q->id;
    d->n_read++;
    double worth = store_quality_worth(q);
    if (!(worth >= c->least)) {
        d->n_worse++;
        return 0;
    }
    if (!*q->answer || strlen(q->question) > COLLECT_MAX_TEXT ||
        strlen(q->answer) > COLLECT_MAX_TEXT) {
        d->n_long++;
        return 0;
    }
    return put(c, q, worth);
}

int learn_collect(struct learn_day *out, struct store *store, int64_t after, double least,
                  struct err *e) {
    *out = (struct learn_day){.last_id = 0};
    out->v = mem_alloc_array(COLLECT_MAX_ITEMS, sizeof *out->v);
    struct collector c = {.day = out, .after = after, .least = least, .e = e};
    c.sketches = mem_alloc_array(COLLECT_MAX_ITEMS, sizeof *c.sketches);
    int rc = out->v && c.sketches ? store_quality_list(store, 0, each, &c, e)
                                  : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < out->n; i++) out->n_held += out->v[i].held_out;
    mem_free(c.sketches);
    if (rc) learn_day_fini(out);
    return rc;
}

void learn_day_fini(struct learn_day *d) {
    for (size_t i = 0; d->v && i < d->n; i++) {
        mem_free(d->v[i].question);
        mem_free(d->v[i].answer);
    }
    mem_free(d->v);
    *d = (struct learn_day){.v = NULL};
}
