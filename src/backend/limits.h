/* limits.h: the limits of the orchestrator's decisions that a night can fit to scored answers.
 *
 * A struct of numbers and its table, which gives each its name, default and range. learned.h passes the limits of the
 * current night to the orchestrator; without a night the defaults apply. Pure functions. */
#ifndef CHIMERE_BACKEND_LIMITS_H
#define CHIMERE_BACKEND_LIMITS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

enum limit {
    LIMIT_ROUTE, /* least probability with which the classifier chooses a route; 0: the rules file sets it */
    LIMIT_EASY, /* a text is easy below this difficulty, and hard from the next on */
    LIMIT_HARD,
    LIMIT_SURE,   /* the model is sure up to this mean entropy of its first tokens, in nats, */
    LIMIT_UNSURE, /* and unsure from this one on */
    LIMIT_WEB, /* the web is searched if the mean entropy of a short answer is at least this, in nats */
    LIMIT_N
};

struct limits {
    double v[LIMIT_N];
    double route_of; /* the limit of the rules file that LIMIT_ROUTE replaces; others are obeyed */
};

struct limits_row {
    const char *name;
    double usual, low, high;
};
extern const struct limits_row limits_table[LIMIT_N];

struct limits limits_default(void);
/* Returns a new reference to {"version", "limits": {NAME: VALUE}, "route_of"}; NULL: out of memory. */
json_t *limits_to_json(const struct limits *l);
/* CHIMERE_EFORMAT: not such an object, or a value is outside of its range. */
int limits_from_json(struct limits *out, const json_t *o, struct err *e);
/* Returns the limit of the classifier for a rules file that sets `of` (0: it sets none). */
double limits_route(const struct limits *l, double of);

#endif
