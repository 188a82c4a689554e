/* votes.h: which answer to a question is right, by the ratings of users and the scores of the verifier.
 *
 * A user's rating or correction counts more than the verifier's score, and one user has one voice per question. A user
 * who mostly disagrees with the others about the same questions loses weight. Questions and answers are hashes
 * (learn_text_hash). One thread. */
#ifndef CHIMERE_LEARN_DATA_VOTES_H
#define CHIMERE_LEARN_DATA_VOTES_H

#include <stddef.h>

#include "store/quality.h"

struct votes;
enum votes_result {
    VOTES_WON,
    VOTES_LOST,     /* another answer to the question has more support, or this one has none */
    VOTES_CONTESTED /* users support two answers equally */
};

int votes_new(struct votes **out, struct err *e);
void votes_free(struct votes *v); /* v may be NULL */
/* Adds the vote that an answer with its rating is. Rows must come in order of time. */
int votes_add(struct votes *v, const struct store_quality *q, struct err *e);
/* Call it after the last vote and before the functions below. */
void votes_count(struct votes *v);
enum votes_result votes_result(const struct votes *v, uint64_t question, uint64_t answer);
/* Returns true if a text, "QUESTION\nANSWER", tells an answer that lost. Both may have several lines. */
bool votes_outvoted(const struct votes *v, const char *text);
/* Compares the ratings of users since a time with those before, question by question. *n: questions of which users
 * rated one answer before and since, or whose accepted answer they corrected. *n_reversed: those of them where they now
 * say the opposite. An answer in new words that users accept counts for neither. */
void votes_reversals(const struct votes *v, int64_t since_ms, size_t *n, size_t *n_reversed);
/* Returns when a question was first asked; 0: never. */
int64_t votes_first_ms(const struct votes *v, uint64_t question);

#endif
