/* think.h: controls how long a model thinks, from its certainty and the classes of its tokens.
 *
 * The certainty of one position is 0.625 p(best) + 0.375 (1 - H / ln V). It is computed from the model's own
 * distribution over all V tokens, before temperature and penalties. The control uses its mean over the last `window`
 * thinking tokens that the model chose itself. It has three parts, each off by default:
 *
 *    stop      closes the block at the end of a step, if certainty >= stop
 *    extend    if the model itself would close the block with certainty < unsure, a word that makes it
 *              reconsider replaces the end, at most `extend` times
 *    suppress  at the beginning of a step, if certainty > suppress, words that begin a reflection ("Wait",
 *              "Mais") are excluded
 *
 * The sampler (sampler_think.c) applies it token by token. It sees only accepted tokens, so rejected drafts have no
 * effect. The token classes are computed once per model; they are immutable and can be used by any thread. */
#ifndef CHIMERE_ENGINE_THINK_H
#define CHIMERE_ENGINE_THINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/tok/tok.h"

enum { THINK_MAX_WINDOW = 256, THINK_MAX_SEQ = 8, THINK_MAX_EXTEND = 16 };

enum think_lang { THINK_EN = 1, THINK_FR = 2 };

/* Bits of a token's class. */
enum think_class {
    /* begins a reflection word: the whole word, or a first token that identifies it */
    THINK_OPENS_EN = THINK_EN,
    THINK_OPENS_FR = THINK_FR,
    THINK_ENDS_STEP = 4, /* its text ends with . ! ? ; or holds a newline */
    THINK_ENDS_LINE = 8, /* its text ends with a newline */
    THINK_BLANK = 16,    /* its text begins with white space */
};

struct think_seq {
    int32_t ids[THINK_MAX_SEQ];
    size_t n;
};

enum { THINK_MAX_PAIRS = 64 };

struct think_vocab {
    uint8_t *classes; /* owned [n_vocab], enum think_class bits */
    int32_t n_vocab;
    /* Tokens that end a step, and their variants that also end the line: "." and ".\n". */
    struct {
        int32_t stop, line;
    } pairs[THINK_MAX_PAIRS];
    int n_pair;
    struct think_seq newline;
    /* the word after a newline that makes the model reconsider; English, French */
    struct think_seq wait[2];
};

int think_vocab_new(struct think_vocab **out, const struct tok *tok, struct err *e);
void think_vocab_free(struct think_vocab *v);
int think_n_openers(const struct think_vocab *v, enum think_lang lang);

struct think_control {
    int32_t window;     /* 1..THINK_MAX_WINDOW */
    int32_t min_tokens; /* tokens of thinking before it may be stopped */
    float stop;         /* above 1: never */
    float unsure;       /* 0: never */
    int32_t extend;     /* 0..THINK_MAX_EXTEND */
    float suppress;     /* 1 or more: never */
    /* enum think_lang bits; the lowest one selects the language of `wait` */
    unsigned langs;
    const struct think_vocab *vocab; /* borrowed until sampler_free; NULL: no control */
};
void think_defaults(struct think_control *c);
bool think_is_on(const struct think_control *c); /* at least one part is enabled */

/* Named settings. "fast" does not think; "think" thinks without control; "budget", "cgrs" and "extend" have one part
 * each; "quality" has the first two of these, "ultra" all three. Returns false if there is no such name. */
bool think_preset(const char *name, bool *think, struct think_control *c);

struct think_look {
    float best;      /* probability of the most likely token */
    float entropy;   /* nats */
    float certainty; /* 0..1 */
};
/* Computes the certainty from row [n] of logits, whose largest value is max. */
void think_look(const float *row, int32_t n, float max, struct think_look *out);

/* How an answer's thinking ended. */
enum think_end { THINK_NATURAL, THINK_SURE, THINK_BUDGET };
struct think_stats {
    enum think_end end; /* of the last block */
    /* positions at which the most likely token was a suppressed one */
    int32_t n_extended, n_suppressed;
};

#endif
