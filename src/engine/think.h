/* think.h: how long a model thinks: certainty, and what tokens mean inside a thinking block.
 *
 * Certainty of one position is 0.625 p(best) + 0.375 (1 - H / ln V) of the model's own distribution over
 * all V tokens, before temperature and penalties; the control looks at its mean over the last `window`
 * thinking tokens that the model chose itself. Three things follow from it, each off by default:
 *
 *   stop      at a step's end, where certainty >= stop, the block is closed
 *   extend    where the model itself would close it with certainty < unsure, a word that makes it look
 *             again is put in the place of the end, at most `extend` times
 *   suppress  at a step's beginning, where certainty > suppress, words that open a reflection ("Wait",
 *             "Mais") cannot be chosen
 *
 * The sampler (sampler_think.c) does this token by token: it sees accepted tokens alone, so drafts that
 * are refused leave no trace. A vocabulary's classes are built once a model, immutable, any thread. */
#ifndef CHIMERE_ENGINE_THINK_H
#define CHIMERE_ENGINE_THINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/tok/tok.h"

enum { THINK_MAX_WINDOW = 256, THINK_MAX_SEQ = 8, THINK_MAX_EXTEND = 16 };

enum think_lang { THINK_EN = 1, THINK_FR = 2 };

/* Bits of one token. */
enum think_class {
    THINK_OPENS_EN = THINK_EN, /* begins a reflection, spelt in one token or known by its first */
    THINK_OPENS_FR = THINK_FR,
    THINK_ENDS_STEP = 4, /* its text ends with . ! ? ; or holds a newline */
    THINK_ENDS_LINE = 8, /* ends with a newline */
    THINK_BLANK = 16,    /* begins with white space */
};

struct think_seq {
    int32_t ids[THINK_MAX_SEQ];
    size_t n;
};

enum { THINK_MAX_PAIRS = 64 };

struct think_vocab {
    uint8_t *classes; /* owned [n_vocab], enum think_class bits */
    int32_t n_vocab;
    /* Tokens that end a step, and the ones that also end the line: ".", ".\n". */
    struct {
        int32_t stop, line;
    } pairs[THINK_MAX_PAIRS];
    int n_pair;
    struct think_seq newline;
    struct think_seq wait[2]; /* behind a newline; English, French */
};

int think_vocab_new(struct think_vocab **out, const struct tok *tok, struct err *e);
void think_vocab_free(struct think_vocab *v);
int think_n_openers(const struct think_vocab *v, enum think_lang lang);

struct think_control {
    int32_t window;                  /* 1..THINK_MAX_WINDOW */
    int32_t min_tokens;              /* of thinking before it may be stopped */
    float stop;                      /* above 1: never */
    float unsure;                    /* 0: never */
    int32_t extend;                  /* 0..THINK_MAX_EXTEND */
    float suppress;                  /* 1 or more: never */
    unsigned langs;                  /* enum think_lang bits; the lowest one says "wait" */
    const struct think_vocab *vocab; /* borrowed until sampler_free; NULL: no control */
};
void think_defaults(struct think_control *c);
bool think_is_on(const struct think_control *c); /* something of it may happen */

/* Named settings: "fast" does not think, "think" thinks without control, "budget", "cgrs", "extend" one
 * part each, "quality" the first two together, "ultra" all three. false: no such name. */
bool think_preset(const char *name, bool *think, struct think_control *c);

struct think_look {
    float best;      /* probability of the likeliest token */
    float entropy;   /* nats */
    float certainty; /* 0..1 */
};
/* row [n] of logits whose largest value is max. */
void think_look(const float *row, int32_t n, float max, struct think_look *out);

/* What became of an answer's thinking. */
enum think_end { THINK_NATURAL, THINK_SURE, THINK_BUDGET };
struct think_stats {
    enum think_end end; /* of the last block */
    int32_t n_extended,
        n_suppressed; /* n_suppressed: positions where the likeliest token was one */
};

#endif
