/* intent.h: what a message is about. If the rules are certain, they decide. Otherwise the file types decide,
 * then the classifier (classify.h). If the rules file sets no threshold for the classifier, the model decides.
 *
 * The rules are a file that users edit; pipelines/intent.yaml describes its format. They are immutable once
 * loaded, so any number of threads may use them. The time of a decision is bounded for any text and any rules:
 * only the first INTENT_MAX_TEXT bytes are read, and each expression has a step limit. */
#ifndef CHIMERE_ODO_INTENT_H
#define CHIMERE_ODO_INTENT_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/limits.h"

enum { INTENT_MAX_ROUTES = 32, INTENT_MAX_TEXT = 6000, INTENT_MAX_NAME = 32 };

enum intent_how {
    INTENT_PINNED,   /* the caller named the route */
    INTENT_GREETING, /* the whole message is a greeting */
    INTENT_RULES,
    INTENT_FILES,
    INTENT_CLASSIFIER,
    INTENT_MODEL,
    INTENT_NONE, /* none of these decided: the default route */
};
const char *intent_how_name(enum intent_how h);

struct intent {
    char route[INTENT_MAX_NAME];
    double confidence; /* 0..1 */
    enum intent_how how;
    double score[INTENT_MAX_ROUTES]; /* score that the rules gave each route */
    double ms;
};

/* Asks the model. choose returns an index into n names, or a negative CHIMERE_E*, within budget_ms. */
struct intent_judge {
    int (*choose)(void *ud, const char *text, const char *const *names, const char *const *about,
                  int n, double budget_ms);
    void *ud; /* borrowed until intent_decide returns */
};

struct intent_rules;

int intent_load(struct intent_rules **out, const char *path, struct err *e);
int intent_parse(struct intent_rules **out, const char *path, const char *text, size_t n,
                 struct err *e);
void intent_free(struct intent_rules *r);
/* The probability from which the classifier decides, by the rules file; 0: it does not decide. */
double intent_classifier(const struct intent_rules *r);
int intent_n_route(const struct intent_rules *r);
const char *intent_route(const struct intent_rules *r, int i); /* NULL beyond the end */
const char *intent_about(const struct intent_rules *r, int i);

struct intent_question {
    const char *text; /* view */
    size_t n;
    const char *const *files; /* view: names of attached files [n_file] */
    size_t n_file;
    bool has_image;
    double budget_ms;            /* time limit of the judge; <= 0: 300 */
    const struct limits *limits; /* NULL: those of the rules file */
};

/* judge may be NULL. The routes "vision" and "doc_qa" follow from file types and need no rules. */
void intent_decide(const struct intent_rules *r, const struct intent_question *q,
                   const struct intent_judge *judge, struct intent *out);

#endif
