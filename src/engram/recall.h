/* recall.h: words that a table's text says about what a question names.
 *
 * n-grams continue a text; a question is no beginning of its answer. So at a request's start the question's
 * rare words (whole words of two tokens or more that stand in at most three documents) lead through the
 * table to the places that name them, the sentences there are ranked by the words they share with the
 * question, and every word of theirs that the question lacks may begin the answer. Which of them does is
 * the model's choice: a candidate counts by its sentence's rank times what the model gives its first
 * token. Behind the first token the sentence goes on until the model is sure of something else. */
#ifndef CHIMERE_ENGRAM_RECALL_H
#define CHIMERE_ENGRAM_RECALL_H

#include "engram/mix.h"
#include "text/tok/tok.h"

enum { ENGRAM_MAX_CANDIDATES = 192, ENGRAM_CANDIDATE_TOKENS = 12 };

struct engram_candidate {
    int32_t tokens[ENGRAM_CANDIDATE_TOKENS], n;
    uint32_t starts; /* bit i: token i does not go on with the word of token i - 1 */
    uint32_t common; /* bit i: it starts a word that every text has, or is none */
    float weight;    /* all sum to 1 */
};

struct engram_recall {
    int32_t n, n_blank, n_end;
    int32_t blanks[4]; /* tokens of line breaks, which may precede the answer */
    int32_t ends[16];  /* tokens that end a phrase or an answer */
    struct engram_candidate candidates[ENGRAM_MAX_CANDIDATES];
};

/* *out is NULL where the question names nothing rare. The tables are not needed afterwards. */
int engram_recall_new(struct engram_recall **out, const struct engram_table *const *tables,
                      int32_t n_table, const struct tok *tok, const char *question, size_t n,
                      struct err *e);
void engram_recall_free(struct engram_recall *r);

/* How far an answer has followed the candidates; part of a mixer. */
struct engram_recalled {
    int32_t token;
    float odds;
};
struct engram_follow {
    const struct engram_recall *r; /* borrowed; NULL: nothing is recalled */
    int32_t depth;                 /* tokens of the answer so far */
    int32_t n_alive;
    bool is_within; /* some of them go on within a word */
    float
        share[ENGRAM_MAX_CANDIDATES]; /* of candidates that agree with the answer so far; else 0 */
    struct engram_recalled next[ENGRAM_MAX_CANDIDATES];
};
void engram_follow_start(struct engram_follow *f, const struct engram_recall *r);
void engram_follow_push(struct engram_follow *f, int32_t token);
bool engram_follow_wants(const struct engram_follow *f);
/* Tokens whose logits engram_follow_next reads now, or may read n_ahead tokens later: how many; -1: more
 * than cap. */
int32_t engram_follow_list(const struct engram_follow *f, int32_t n_ahead, int32_t *out,
                           int32_t cap);
/* Tokens that the candidates go on with, and the odds of each against the model. */
const struct engram_recalled *engram_follow_next(struct engram_follow *f, const float *logits,
                                                 const struct engram_row *row, int32_t *n);

#endif
