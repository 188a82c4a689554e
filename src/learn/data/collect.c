#include "learn/data/collect.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "learn/data/mask.h"
#include "learn/data/votes.h"

enum { N_HASH = 16, SAME = 13 /* of N_HASH */, SHINGLE = 3, HELD_OUT_OF = 10 };
/* An unrated answer is not trusted if its question has more bytes than MAX_UNRATED_QUESTION, or if it is longer than
 * LENGTH_RATIO times the usual length plus LENGTH_MORE bytes. */
enum { MAX_UNRATED_QUESTION = 400, LENGTH_RATIO = 4, LENGTH_MORE = 200, LEAST_RATED = 8 };
#define PERIOD_MS (90LL * 86400 * 1000)

struct sketch {
    uint64_t least[N_HASH];
    uint64_t question, answer; /* hashes of the texts, ignoring case and punctuation */
};

struct collector {
    struct learn_day *day;
    struct sketch *sketches; /* owned; one per element of day->v */
    size_t oldest; /* where the oldest element is, once day->v is full and written in a ring */
    struct learn_spans hidden;
    double least;
    json_t *seen; /* owned: the members of day->sources, as keys */
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
    if (a->answer != b->answer) return false;
    if (a->question == b->question) return true;
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

bool learn_holds_out(const char *question, int64_t first_ms) {
    uint64_t period = (uint64_t)(first_ms / PERIOD_MS);
    return hash_mix(learn_text_hash(question) + period) % HELD_OUT_OF == 0;
}

char *learn_masked(const char *text, size_t *n_secret) {
    struct buf b;
    buf_init(&b, 2 * COLLECT_MAX_TEXT);
    *n_secret += mask_secrets(&b, text, strlen(text));
    return buf_take(&b);
}

/* Returns the place of a new element. If there is none, the oldest element gives way. */
static size_t make_room(struct collector *c) {
    struct learn_day *d = c->day;
    if (d->n < COLLECT_MAX_ITEMS) return d->n++;
    size_t at = c->oldest;
    c->oldest = (at + 1) % COLLECT_MAX_ITEMS;
    d->n_old++;
    mem_free(d->v[at].question);
    mem_free(d->v[at].answer);
    return at;
}

/* Adds a question and an answer to it, unless there is a near-duplicate. */
static int put(struct collector *c, const struct store_quality *q, double worth) {
    struct learn_day *d = c->day;
    struct sketch s = sketch_of(q->question);
    s.question = learn_text_hash(q->question);
    s.answer = learn_text_hash(q->answer);
    size_t at = 0;
    while (at < d->n && !is_near(&s, &c->sketches[at])) at++;
    if (at < d->n) {
        d->n_same++;
        d->v[at].is_rated |= q->feedback > 0;
        if (worth > d->v[at].worth) d->v[at].worth = worth;
        return 0;
    }
    struct learn_item x = {.question = learn_masked(q->question, &d->n_secret),
                           .answer = learn_masked(q->answer, &d->n_secret),
                           .worth = worth,
                           .id = q->id,
                           .at_ms = q->at_ms,
                           .is_rated = q->feedback > 0};
    learn_source(q->owner ? q->owner : "", x.source);
    if (q->route && strcmp(q->route, "default") != 0)
        snprintf(x.pipeline, sizeof x.pipeline, "%s", q->route);
    at = make_room(c);
    d->v[at] = x;
    c->sketches[at] = s;
    return x.question && x.answer ? 0 : err_set(c->e, CHIMERE_ENOMEM, "out of memory");
}

bool learn_spans_have(struct learn_spans s, int64_t at_ms) {
    for (size_t i = 0; i < s.n; i++)
        if (at_ms >= s.v[i].from_ms && at_ms < s.v[i].to_ms) return true;
    return false;
}

/* Lists the owner of a row in day->sources. */
static int put_source(struct collector *c, const struct store_quality *q) {
    char source[LEARN_SOURCE];
    learn_source(q->owner ? q->owner : "", source);
    if (json_object_get(c->seen, source)) return 0;
    bool ok = !json_object_set_new(c->seen, source, json_true()) &&
              !json_array_append_new(c->day->sources, json_string(source));
    return ok ? 0 : err_set(c->e, CHIMERE_ENOMEM, "out of memory");
}

static int each(void *ud, const struct store_quality *q) {
    struct collector *c = ud;
    struct learn_day *d = c->day;
    if (!q->question || !q->answer) return 0;
    if (learn_spans_have(c->hidden, q->at_ms)) {
        d->n_hidden++;
        return 0;
    }
    double worth = store_quality_worth(q);
    int rc = votes_add(d->votes, q, c->e);
    if (!rc) rc = put_source(c, q);
    if (rc) return rc;
    if (q->id > d->last_id) d->last_id = q->id;
    d->n_read++;
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

static int compare_size(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Returns the longest answer that is usual: a multiple of the median of what users accept; if they rated too few, of
 * all answers. */
static int usual_length(const struct learn_day *d, size_t *out, struct err *e) {
    size_t *v = mem_alloc_array(d->n + 1, sizeof *v), n = 0;
    if (!v) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < d->n; i++)
        if (d->v[i].is_rated) v[n++] = strlen(d->v[i].answer);
    if (n < LEAST_RATED)
        for (n = 0; n < d->n; n++) v[n] = strlen(d->v[n].answer);
    qsort(v, n, sizeof *v, compare_size);
    *out = LENGTH_RATIO * (n ? v[n / 2] : 0) + LENGTH_MORE;
    mem_free(v);
    return 0;
}

static bool is_suspect(const struct learn_item *x, size_t usual) {
    return !x->is_rated &&
           (strlen(x->question) > MAX_UNRATED_QUESTION || strlen(x->answer) > usual);
}

/* Leaves one answer per question, in the order of time, and marks what is held out. */
static int settle(struct collector *c, struct err *e) {
    struct learn_day *d = c->day;
    size_t kept = 0, usual = 0;
    struct learn_item *v = mem_alloc_array(d->n + 1, sizeof *v);
    if (!v) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    votes_count(d->votes);
    int rc = usual_length(d, &usual, e);
    for (size_t i = 0; !rc && i < d->n; i++) {
        size_t at = (c->oldest + i) % d->n;
        struct learn_item x = d->v[at];
        const struct sketch *s = &c->sketches[at];
        enum votes_result won = votes_result(d->votes, s->question, s->answer);
        bool suspect = won == VOTES_WON && is_suspect(&x, usual);
        d->n_same += won == VOTES_LOST;
        d->n_contested += won == VOTES_CONTESTED;
        d->n_suspect += suspect;
        if (won == VOTES_WON && !suspect) {
            x.held_out = learn_holds_out(x.question, votes_first_ms(d->votes, s->question));
            d->n_held += x.held_out;
            v[kept++] = x;
        } else {
            mem_free(x.question);
            mem_free(x.answer);
        }
    }
    if (rc) {
        mem_free(v);
        return rc;
    }
    mem_free(d->v);
    d->v = v;
    d->n = kept;
    return 0;
}

int learn_collect(struct learn_day *out, struct store *store, struct learn_spans hidden,
                  double least, struct err *e) {
    *out = (struct learn_day){.last_id = 0};
    out->v = mem_alloc_array(COLLECT_MAX_ITEMS, sizeof *out->v);
    struct collector c = {.day = out, .hidden = hidden, .least = least, .e = e};
    c.sketches = mem_alloc_array(COLLECT_MAX_ITEMS, sizeof *c.sketches);
    c.seen = json_object();
    out->sources = json_array();
    int rc = out->v && c.sketches && c.seen && out->sources
                 ? 0
                 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = votes_new(&out->votes, e);
    if (!rc) rc = store_quality_list(store, 0, each, &c, e);
    if (!rc) rc = settle(&c, e);
    mem_free(c.sketches);
    json_decref(c.seen);
    if (rc) learn_day_fini(out);
    return rc;
}

void learn_day_fini(struct learn_day *d) {
    for (size_t i = 0; d->v && i < d->n; i++) {
        mem_free(d->v[i].question);
        mem_free(d->v[i].answer);
    }
    mem_free(d->v);
    votes_free(d->votes);
    json_decref(d->sources);
    *d = (struct learn_day){.v = NULL};
}
