/* intent.h: what a message is about: rules where they are certain, then file types, then the classifier (classify.h) or,
 * where a file of rules names no threshold for it, the model.
 *
 * Rules are a file that people edit (pipelines/intent.yaml says its format). Immutable once loaded: any
 * number of threads may decide with one. Deciding takes bounded time whatever the text and whatever the
 * rules: only INTENT_MAX_TEXT bytes are looked at, and each expression has a limit of steps. */
#ifndef CHIMERE_ODO_INTENT_H
#define CHIMERE_ODO_INTENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { INTENT_MAX_ROUTES = 32, INTENT_MAX_TEXT = 6000, INTENT_MAX_NAME = 32 };

enum intent_how {
    INTENT_PINNED,   /* the caller named it */
    INTENT_GREETING, /* the whole message is one */
    INTENT_RULES,
    INTENT_FILES,
    INTENT_CLASSIFIER,
    INTENT_MODEL,
    INTENT_NONE, /* nobody knew: default */
};
const char *intent_how_name(enum intent_how h);

struct intent {
    char route[INTENT_MAX_NAME];
    double confidence; /* 0..1 */
    enum intent_how how;
    double score[INTENT_MAX_ROUTES]; /* of the rules, by route */
    double ms;
};

/* The model as a judge: index of one of n names, or a negative CHIMERE_E*. It keeps budget_ms. */
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
int intent_n_route(const struct intent_rules *r);
const char *intent_route(const struct intent_rules *r, int i); /* NULL beyond the end */
const char *intent_about(const struct intent_rules *r, int i);

struct intent_question {
    const char *text; /* view */
    size_t n;
    const char *const *files; /* view: names of attached files [n_file] */
    size_t n_file;
    bool has_image;
    double budget_ms; /* of the judge; <= 0: 300 */
};

/* judge may be NULL. Routes "vision" and "doc_qa" come from file types and need no rules. */
void intent_decide(const struct intent_rules *r, const struct intent_question *q,
                   const struct intent_judge *judge, struct intent *out);

#endif
