#include "backend/shots.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "base/hash.h"

enum { MAX_WORDS = 96 };

struct word_set {
    uint64_t v[MAX_WORDS];
    size_t n;
};

static bool is_in(const struct word_set *s, uint64_t word) {
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i] == word) return true;
    return false;
}

static bool is_letter(unsigned char c) { return c >= 0x80 || isalnum(c); }

/* Collects the hashes of the first words of a text, each once. Case is ignored for ASCII letters. */
static void words_of(struct word_set *s, const char *text) {
    s->n = 0;
    while (*text && s->n < MAX_WORDS) {
        char word[32];
        size_t n = 0;
        while (*text && !is_letter((unsigned char)*text)) text++;
        for (; *text && is_letter((unsigned char)*text); text++)
            if (n < sizeof word) word[n++] = (char)tolower((unsigned char)*text);
        uint64_t h = hash_bytes(word, n, 0);
        if (n && !is_in(s, h)) s->v[s->n++] = h;
    }
}

static const char *text_of(const json_t *store, size_t i, const char *key) {
    const char *text = json_string_value(json_object_get(json_array_get(store, i), key));
    return text ? text : "";
}

static size_t n_used(const json_t *store) {
    size_t n = json_array_size(store);
    return n < SHOTS_MAX ? n : SHOTS_MAX;
}

/* Returns how many words two sets share, each divided by the number of examples that have it; 0: less than half of the
 * words of q. Examples that only shared "what" and "the" made a small model worse at general questions. */
static double nearness(const struct word_set *q, const struct word_set *x, const int *n_with) {
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < q->n; i++) {
        if (!is_in(x, q->v[i])) continue;
        sum += 1.0 / n_with[i];
        n++;
    }
    return 2 * n < q->n ? 0 : sum;
}

size_t shots_near(const json_t *store, const char *question, size_t k, size_t *out) {
    struct word_set q, x;
    int n_with[MAX_WORDS] = {0};
    double score[SHOTS_MAX];
    size_t n = n_used(store), n_out = 0;
    words_of(&q, question);
    for (size_t i = 0; i < n; i++) {
        words_of(&x, text_of(store, i, "question"));
        for (size_t w = 0; w < q.n; w++) n_with[w] += is_in(&x, q.v[w]);
    }
    for (size_t i = 0; i < n; i++) {
        words_of(&x, text_of(store, i, "question"));
        bool same = !strcmp(question, text_of(store, i, "question"));
        score[i] = same ? 0 : nearness(&q, &x, n_with);
    }
    for (; n_out < k; n_out++) {
        size_t best = n;
        for (size_t i = 0; i < n; i++)
            if (score[i] > 0 && (best == n || score[i] > score[best])) best = i;
        if (best == n) break;
        out[n_out] = best;
        score[best] = 0;
    }
    return n_out;
}

static size_t first_user(const json_t *messages) {
    size_t i = 0;
    for (; i < json_array_size(messages); i++) {
        const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
        if (role && !strcmp(role, "user")) break;
    }
    return i;
}

/* Appends an example as two messages; returns nonzero if memory is exhausted. */
static int append(json_t *messages, const json_t *store, size_t i) {
    static const char *const roles[2] = {"user", "assistant"};
    static const char *const keys[2] = {"question", "answer"};
    int failed = 0;
    for (int k = 0; k < 2; k++)
        failed |= json_array_append_new(messages, json_pack("{s:s,s:s}", "role", roles[k],
                                                            "content", text_of(store, i, keys[k])));
    return failed;
}

json_t *shots_place(const json_t *store, json_t *messages) {
    size_t near[SHOTS_N_NEAR], n = 0, at = first_user(messages);
    const char *question =
        json_string_value(json_object_get(json_array_get(messages, at), "content"));
    if (store && question) n = shots_near(store, question, SHOTS_N_NEAR, near);
    if (!n) return json_incref(messages);
    json_t *out = json_array();
    int failed = !out;
    for (size_t i = 0; !failed && i < json_array_size(messages); i++) {
        /* the nearest example is last, next to the question */
        for (size_t k = n; i == at && k-- > 0;) failed |= append(out, store, near[k]);
        failed |= json_array_append(out, json_array_get(messages, i));
    }
    if (!failed) return out;
    json_decref(out);
    return NULL;
}
