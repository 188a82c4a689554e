/* hostile.h: decides whether the ratings since a night are an attack, by how many verdicts they reverse (votes.h).
 *
 * Honest users err: with a tenth of the ratings wrong, before and since, 18 % of the verdicts are reversed. The exact
 * binomial test asks whether more are than a share of HOSTILE_HONEST explains. If it cannot decide yet, the ratings are
 * held back for one night, and tested again with those that came in since. Pure functions. */
#ifndef CHIMERE_LEARN_DATA_HOSTILE_H
#define CHIMERE_LEARN_DATA_HOSTILE_H

#include <stddef.h>

#define HOSTILE_HONEST 0.20 /* share of verdicts that honest users reverse */
#define HOSTILE_ALARM 0.01  /* probability that the looks at an honest day call it hostile */
#define HOSTILE_UNSURE 0.05 /* below this p, and at the first look, the day is held back */

enum { HOSTILE_LOOKS = 2 };
#define HOSTILE_LIMIT (HOSTILE_ALARM / HOSTILE_LOOKS) /* for the p of one look */

enum hostile_verdict { HOSTILE_NO, HOSTILE_HELD, HOSTILE_YES };

/* look: 1 .. HOSTILE_LOOKS. *p: probability of so many reversals on an honest day. */
enum hostile_verdict hostile_verdict(size_t n, size_t n_reversed, int look, double *p);

#endif
