#include "learn/data/votes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "learn/data/collect.h"

enum { MAX_VOTES = 1 << 19, MAX_GROUP = 256 /* votes on a question by which users are judged */ };
enum { ROUNDS = 4, LEAST_VOTES = 4 /* of a user before trust is judged */ };
#define VERIFIER_WEIGHT 0.25 /* of the verifier's score, where a user's rating weighs 1 */
#define SAME_SUPPORT 1e-6

struct vote {
    uint64_t question, answer, owner; /* owner 0: the verifier */
    double value, first;              /* -1 .. 1; first: of an older vote by the same user */
    int64_t at_ms, last_ms, wrote_ms; /* wrote_ms: of the user's last correction; 0: none */
    size_t order, who;                /* who: index in users */
};

struct user {
    uint64_t owner;
    double trust, agree, n;
};

struct votes {
    struct vote *v; /* owned; sorted by votes_count */
    size_t n, room;
    struct user *users; /* owned; sorted by owner */
    size_t n_user;
};

int votes_new(struct votes **out, struct err *e) {
    *out = mem_zalloc(sizeof **out);
    return *out ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

void votes_free(struct votes *v) {
    if (!v) return;
    mem_free(v->v);
    mem_free(v->users);
    mem_free(v);
}

int votes_add(struct votes *v, const struct store_quality *q, struct err *e) {
    if (v->n == MAX_VOTES) return 0;
    if (v->n == v->room) {
        size_t room = v->room ? 2 * v->room : 256;
        struct vote *more = mem_realloc(v->v, room * sizeof *more);
        struct user *users = more ? mem_realloc(v->users, room * sizeof *users) : NULL;
        if (more) v->v = more;
        if (users) v->users = users;
        if (!more || !users) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        v->room = room;
    }
    double worth = store_quality_worth(q), value = isnan(worth) ? 0 : 2 * worth - 1;
    bool rated = q->feedback > 0, wrote = rated && q->origin && !strcmp(q->origin, "correction");
    const char *owner = q->owner ? q->owner : "";
    v->v[v->n] = (struct vote){.question = learn_text_hash(q->question),
                               .answer = learn_text_hash(q->answer),
                               .owner = rated ? hash_bytes(owner, strlen(owner), 5) | 1 : 0,
                               .value = rated ? value : VERIFIER_WEIGHT * value,
                               .at_ms = q->at_ms,
                               .last_ms = q->at_ms,
                               .wrote_ms = wrote ? q->at_ms : 0,
                               .order = v->n};
    v->v[v->n].first = v->v[v->n].value;
    v->n++;
    return 0;
}

static int compare_u64(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static int compare_votes(const void *a, const void *b) {
    const struct vote *x = a, *y = b;
    int d = compare_u64(x->question, y->question);
    if (!d) d = compare_u64(x->answer, y->answer);
    if (!d) d = compare_u64(x->owner, y->owner);
    return d ? d : compare_u64(x->order, y->order);
}

static int compare_users(const void *a, const void *b) {
    return compare_u64(((const struct user *)a)->owner, ((const struct user *)b)->owner);
}

/* Keeps the last vote of each user on an answer, and the best score of the verifier, with the time of the first. */
static void drop_repeats(struct votes *v) {
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) {
        struct vote *a = n ? &v->v[n - 1] : NULL;
        const struct vote b = v->v[i];
        if (!a || a->question != b.question || a->answer != b.answer || a->owner != b.owner) {
            v->v[n++] = b;
            continue;
        }
        if (b.owner || b.value > a->value) a->value = b.value;
        if (b.at_ms < a->at_ms) a->at_ms = b.at_ms;
        if (b.at_ms > a->last_ms) a->last_ms = b.at_ms;
        if (b.wrote_ms > a->wrote_ms) a->wrote_ms = b.wrote_ms;
    }
    v->n = n;
}

static void list_users(struct votes *v) {
    for (size_t i = 0; i < v->n; i++)
        v->users[i] = (struct user){.owner = v->v[i].owner, .trust = 1};
    qsort(v->users, v->n, sizeof *v->users, compare_users);
    v->n_user = 0;
    for (size_t i = 0; i < v->n; i++)
        if (!v->n_user || v->users[v->n_user - 1].owner != v->users[i].owner)
            v->users[v->n_user++] = v->users[i];
    for (size_t i = 0; i < v->n; i++) {
        const struct user key = {.owner = v->v[i].owner};
        const struct user *u = bsearch(&key, v->users, v->n_user, sizeof key, compare_users);
        v->v[i].who = u ? (size_t)(u - v->users) : 0;
    }
}

/* Returns the end of the votes on the same question, or, with is_answer, on the same answer to it. */
static size_t end_of(const struct votes *v, size_t from, bool is_answer) {
    size_t i = from;
    while (i < v->n && v->v[i].question == v->v[from].question &&
           (!is_answer || v->v[i].answer == v->v[from].answer))
        i++;
    return i;
}

/* Gives each user one voice per question: who rejects one answer and praises another counts half for each. */
static void share_voices(struct votes *v) {
    for (size_t begin = 0, end; begin < v->n; begin = end) {
        end = end_of(v, begin, false);
        for (size_t i = begin; i < end; i++) v->users[v->v[i].who].n++;
        for (size_t i = begin; i < end; i++)
            if (v->v[i].owner) {
                v->v[i].value /= v->users[v->v[i].who].n;
                v->v[i].first /= v->users[v->v[i].who].n;
            }
        for (size_t i = begin; i < end; i++) v->users[v->v[i].who].n = 0;
    }
}

/* Returns the sum of the votes [from, end), excluding those of user `but`; v->n_user excludes no user. */
static double support(const struct votes *v, size_t from, size_t end, size_t but) {
    double sum = 0;
    for (size_t i = from; i < end; i++)
        if (v->v[i].who != but) sum += v->v[i].value * v->users[v->v[i].who].trust;
    return sum;
}

/* Returns the support of the answer at `from` less that of the best other answer to its question; of all users except
 * `but`. *own: its own support. */
static double lead(const struct votes *v, size_t from, size_t begin, size_t end, size_t but,
                   double *own) {
    double best = 0;
    *own = 0;
    for (size_t i = begin, next; i < end; i = next) {
        next = end_of(v, i, true);
        double s = support(v, i, next, but);
        if (from >= i && from < next) *own = s;
        else if (s > best) best = s;
    }
    return *own - best;
}

/* Compares each rating with what the other users say about the same question. */
static void judge_users(struct votes *v) {
    for (size_t begin = 0, end; begin < v->n; begin = end) {
        end = end_of(v, begin, false);
        for (size_t i = begin; end - begin <= MAX_GROUP && i < end; i++) {
            double own, d = lead(v, i, begin, end, v->v[i].who, &own);
            if (!v->v[i].owner || !(fabs(v->v[i].value) > 0) || fabs(d) <= 0.5) continue;
            v->users[v->v[i].who].n++;
            v->users[v->v[i].who].agree += (d > 0) == (v->v[i].value > 0);
        }
    }
    for (size_t i = 0; i < v->n_user; i++) {
        struct user *u = &v->users[i];
        double rate = (u->agree + 1) / (u->n + 2), trust = 2 * rate - 0.6;
        if (u->owner && u->n >= LEAST_VOTES) u->trust = trust < 0 ? 0 : trust > 1 ? 1 : trust;
        u->agree = u->n = 0;
    }
}

void votes_count(struct votes *v) {
    if (!v->n) return;
    qsort(v->v, v->n, sizeof *v->v, compare_votes);
    drop_repeats(v);
    list_users(v);
    share_voices(v);
    for (int i = 0; i < ROUNDS; i++) judge_users(v);
}

/* Returns the index of the first vote on the question; v->n: none. */
static size_t find(const struct votes *v, uint64_t question) {
    size_t low = 0, high = v->n;
    while (low < high) {
        size_t at = low + (high - low) / 2;
        if (v->v[at].question < question) low = at + 1;
        else high = at;
    }
    return low < v->n && v->v[low].question == question ? low : v->n;
}

enum votes_result votes_result(const struct votes *v, uint64_t question, uint64_t answer) {
    size_t begin = find(v, question), end = begin < v->n ? end_of(v, begin, false) : begin;
    size_t at = begin;
    while (at < end && v->v[at].answer != answer) at++;
    if (at == end) return VOTES_LOST;
    double own, d = lead(v, at, begin, end, v->n_user, &own);
    if (own <= SAME_SUPPORT || d < -SAME_SUPPORT) return VOTES_LOST;
    return d <= SAME_SUPPORT ? VOTES_CONTESTED : VOTES_WON;
}

bool votes_outvoted(const struct votes *v, const char *text) {
    char *copy = mem_strdup(text);
    bool is = false;
    for (char *end = copy; !is && end && (end = strchr(end, '\n')); *end++ = '\n') {
        *end = 0; /* the question ends at the newline after which a vote knows it */
        uint64_t question = learn_text_hash(copy);
        is = find(v, question) < v->n &&
             votes_result(v, question, learn_text_hash(end + 1)) == VOTES_LOST;
    }
    mem_free(copy);
    return is;
}

/* What users said about one answer, before a time and since; corrected: the part of `since` that wrote it. */
struct change {
    double before, since, corrected;
};

/* Sums the ratings of users among the votes [from, to), which are on the same answer. */
static struct change change_of(const struct votes *v, size_t from, size_t to, int64_t since_ms) {
    struct change c = {0};
    for (size_t i = from; i < to; i++) {
        const struct vote *a = &v->v[i];
        if (!a->owner) continue;
        if (a->last_ms >= since_ms) c.since += a->value;
        if (a->wrote_ms >= since_ms && a->wrote_ms) c.corrected += a->value;
        if (a->at_ms < since_ms) c.before += a->last_ms < since_ms ? a->value : a->first;
    }
    return c;
}

/* Returns how much the users' ratings of one question since a time agree with those before. 0: no answer was rated
 * before and since. An accepted answer in other words is not compared: most questions have many right answers. A
 * correction to something else than the answer that users accepted disagrees. */
static double agreement(const struct votes *v, size_t begin, size_t end, int64_t since_ms) {
    double same = 0, accepted = 0, written = 0 /* of the accepted answer */, others = 0;
    for (size_t i = begin, next; i < end; i = next) {
        next = end_of(v, i, true);
        struct change c = change_of(v, i, next, since_ms);
        if (fabs(c.before) > 0) same += c.before > 0 ? c.since : -c.since;
        bool is_best = c.before > accepted;
        double other = is_best ? written : c.corrected;
        if (other > others) others = other;
        if (!is_best) continue;
        accepted = c.before;
        written = c.corrected;
    }
    return accepted > 0 ? same - others : same;
}

void votes_reversals(const struct votes *v, int64_t since_ms, size_t *n, size_t *n_reversed) {
    *n = *n_reversed = 0;
    for (size_t begin = 0, end; begin < v->n; begin = end) {
        end = end_of(v, begin, false);
        double d = agreement(v, begin, end, since_ms);
        *n += fabs(d) > SAME_SUPPORT;
        *n_reversed += d < -SAME_SUPPORT;
    }
}

int64_t votes_first_ms(const struct votes *v, uint64_t question) {
    int64_t first = 0;
    size_t begin = find(v, question);
    if (begin == v->n) return 0;
    for (size_t i = begin, end = end_of(v, begin, false); i < end; i++)
        if (!first || v->v[i].at_ms < first) first = v->v[i].at_ms;
    return first;
}
