/* recall.h: finds what a table's text says about the names in a question.
 *
 * n-grams continue a text, but a question is not the beginning of its answer. So at the start of a request, the rare
 * words of the question (whole words of two tokens or more that occur in at most three documents) are looked up in
 * the table. The sentences around them are ranked by the words that they share with the question. Every word of these
 * sentences that is not in the question may begin the answer. Where the table itself has a question, the sentence after
 * it stands for it, and its words count for the rank of that sentence.
 * The model chooses among these candidates: the weight of a candidate is the rank of its sentence times the
 * model's probability of its first token. After the first token the sentence continues until the model is sure of
 * something else. If the question asks for a number, a date or a name and the text around its names has none, the
 * table lacks the answer: the only candidate is then a sentence that says so, and the model has no choice. */
#ifndef CHIMERE_ENGRAM_RECALL_H
#define CHIMERE_ENGRAM_RECALL_H

#include "engram/mix.h"
#include "text/tok/tok.h"

enum { ENGRAM_MAX_CANDIDATES = 192, ENGRAM_CANDIDATE_TOKENS = 12 };

struct engram_candidate {
    int32_t tokens[ENGRAM_CANDIDATE_TOKENS], n;
    uint32_t starts; /* bit i: token i does not continue the word of token i - 1 */
    uint32_t common; /* bit i: token i starts a common word, or is not a word */
    float weight;    /* the weights of all candidates sum to 1 */
};

struct engram_recall {
    int32_t n, n_blank, n_end;
    bool is_unknown;   /* the table lacks the answer */
    int32_t blanks[4]; /* tokens of line breaks, which may precede the answer */
    int32_t ends[16];  /* tokens that end a phrase or an answer */
    struct engram_candidate candidates[ENGRAM_MAX_CANDIDATES];
};

/* *out is NULL if the question names nothing rare. The tables are not needed afterwards. */
int engram_recall_new(struct engram_recall **out, const struct engram_table *const *tables,
                      int32_t n_table, const struct tok *tok, const char *question, size_t n,
                      struct err *e);
void engram_recall_free(struct engram_recall *r);

/* How far the answer has followed the candidates; part of a mixer. */
struct engram_recalled {
    int32_t token;
    float odds;
};
struct engram_follow {
    const struct engram_recall *r; /* borrowed; NULL: nothing is recalled */
    int32_t depth;                 /* tokens of the answer so far */
    int32_t n_alive;
    bool is_within; /* at least one candidate continues within a word */
    /* weight of each candidate that agrees with the answer so far; otherwise 0 */
    float share[ENGRAM_MAX_CANDIDATES];
    struct engram_recalled next[ENGRAM_MAX_CANDIDATES];
};
void engram_follow_start(struct engram_follow *f, const struct engram_recall *r);
void engram_follow_push(struct engram_follow *f, int32_t token);
bool engram_follow_wants(const struct engram_follow *f);
/* Lists the tokens whose logits engram_follow_next reads now, or may read n_ahead tokens later. Returns their
 * number; -1: more than cap. */
int32_t engram_follow_list(const struct engram_follow *f, int32_t n_ahead, int32_t *out,
                           int32_t cap);
/* Returns the next tokens of the candidates, and the odds of each against the model. */
const struct engram_recalled *engram_follow_next(struct engram_follow *f, const float *logits,
                                                 const struct engram_row *row, int32_t *n);

#endif
