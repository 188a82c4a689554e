/* sampler.h: logits -> one token, by a chain of logit processors.
 *
 * The chain is a table (sampler.c): each row has a name, a test whether the parameters switch it on,
 * and a function over the candidates. Its order: logit bias, thinking, reflection, grammar mask, mixture,
 * repetition/frequency/presence penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC,
 * temperature (fixed or dynamic) or mirostat, draw. Temperature 0 takes the largest after the masks and
 * penalties (ties: the lower id). A row of NaN or without finite values is CHIMERE_ENUMERIC.
 *
 * One sampler belongs to one request; its own random stream makes the same choices from the same logits
 * on any machine. Everything is allocated by sampler_new: picking allocates nothing. Any one thread. */
#ifndef CHIMERE_ENGINE_SAMPLER_H
#define CHIMERE_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/think.h"
#include "text/tok/tok.h"

struct grammar_matcher;
struct select_row;

struct logit_bias {
    int32_t token;
    float bias; /* -INFINITY bans */
};

enum { SAMPLER_MAX_PROBS = 20, SAMPLER_MAX_TRIGGER = 128 /* bytes of one */ };

/* A text that starts the grammar, which covers it and what follows. */
struct sampler_trigger {
    const char *text;
    bool
        at_start; /* only as the first of the answer, or after a text of the grammar; blanks may precede */
};

struct sampler_params {
    uint64_t seed;
    float temperature;    /* 0: greedy */
    float dynatemp_range; /* 0: off; temperature +- range by entropy */
    float dynatemp_exponent;
    int32_t top_k;                        /* 0: off */
    float top_p, min_p, typical_p;        /* 1, 0, 1: off */
    float top_n_sigma;                    /* <= 0: off */
    float xtc_probability, xtc_threshold; /* 0: off */
    int32_t mirostat; /* 0, 1 or 2; replaces top-k .. temperature's draw as in the papers */
    float mirostat_tau, mirostat_eta;
    float repeat_penalty, frequency_penalty, presence_penalty; /* 1, 0, 0: off */
    int32_t penalty_last_n;                                    /* tokens looked back on; -1: all */
    float dry_multiplier, dry_base;                            /* 0: off */
    int32_t dry_allowed_length, dry_last_n;                    /* last_n -1: all */
    const char *const
        *dry_breakers; /* strings that end a repeated sequence; NULL: "\n" ":" "\"" "*" */
    size_t n_dry_breaker;
    const struct logit_bias *bias;
    size_t n_bias;
    bool ignore_eos;    /* end-of-generation tokens are banned */
    int32_t min_tokens; /* and until that many were taken */
    int32_t n_probs;    /* log-probabilities of that many tokens, at most SAMPLER_MAX_PROBS */
    int32_t min_keep;   /* candidates that every filter leaves; >= 1 */
    /* thinking: from start (or from the first token, if in_think) at most `budget` tokens, then `end` is
     * forced token by token. budget < 0: no limit */
    int32_t think_budget;
    bool in_think;
    const int32_t *think_start, *think_end; /* token sequences */
    size_t n_think_start, n_think_end;
    struct think_control think;      /* of the length of thinking, by certainty */
    struct grammar_matcher *grammar; /* borrowed until sampler_free; NULL: none */
    bool grammar_after_think;        /* the grammar begins after the thinking block */
    /* n_trigger > 0: the grammar begins at each trigger outside thinking and ends once it is complete;
     * between, all tokens are allowed and nothing is masked. */
    const struct sampler_trigger *triggers;
    size_t n_trigger;
};

/* Every field at the value that changes nothing, temperature 0.7, top_k 20, top_p 0.8 (the family's
 * published defaults for answers without thinking), seed 0. */
void sampler_defaults(struct sampler_params *p);
/* Refuses values out of range by name. */
int sampler_check(const struct sampler_params *p, int32_t n_vocab, struct err *e);

struct sampler_probs {
    float
        chosen; /* log-probability of the token that was picked, under the model's own distribution */
    int32_t n;
    int32_t ids[SAMPLER_MAX_PROBS]; /* the n most likely, best first */
    float logprobs[SAMPLER_MAX_PROBS];
    float entropy; /* nats, of the model's own distribution */
};
/* Of a row of logits, whatever a sampler would pick: token's own, and the n most likely. */
void sampler_probs_of(const float *logits, int32_t n_vocab, int32_t token, int32_t n,
                      struct sampler_probs *out);

struct sampler;

/* Copies what it needs of p. tok: borrowed; may be NULL (no DRY breakers, no end-of-generation ids). */
int sampler_new(struct sampler **out, const struct sampler_params *p, int32_t n_vocab,
                const struct tok *tok, struct err *e);
void sampler_free(struct sampler *s);
/* Tokens of the prompt, for the penalties. */
int sampler_prime(struct sampler *s, const int32_t *tokens, size_t n, struct err *e);
/* The next token from logits [n_vocab] (read only), >= 0, or CHIMERE_E*. probs may be NULL. Draws from
 * the random stream once per call; must be followed by sampler_accept of the token that was taken. */
int32_t sampler_pick(struct sampler *s, const float *logits, struct sampler_probs *probs);
void sampler_accept(struct sampler *s, int32_t token);
/* What became of the thinking so far. */
void sampler_think_stats(const struct sampler *s, struct think_stats *out);
/* True if the grammar, unless it has triggers, has been matched completely and allows only the end. */
bool sampler_is_done(struct sampler *s);

/* A row's sums, for those who do not read it. */
struct sampler_sums {
    float norm, entropy, p_first, p_second; /* log-sum-exp; nats; of the two likeliest */
    int32_t first;
};

/* A further processor in front of the draw: changes logits [n_vocab] of a private copy, e.g. a mixture
 * with an n-gram memory. accept may be NULL. wants says whether apply would change anything now, so that
 * the row is copied for a reason; NULL: always. Without in_thinking it sees the answer alone: inside a
 * thinking block neither is called. At most 4.
 * For rows that are not at hand (NULL: it needs them): list writes the tokens whose logits apply_few reads
 * or changes, behind n_ahead tokens more; how many, or -1: more than cap. Of logits only those hold. */
struct sampler_hook {
    bool (*wants)(void *ud);
    void (*apply)(void *ud, float *logits, int32_t n_vocab);
    void (*accept)(void *ud, int32_t token);
    int32_t (*list)(void *ud, const int32_t *ahead, int32_t n_ahead, int32_t *out, int32_t cap);
    void (*apply_few)(void *ud, float *logits, const struct sampler_sums *sums);
    void *ud; /* borrowed */
    bool in_thinking;
};
int sampler_add_hook(struct sampler *s, const struct sampler_hook *h);

/* ---- picking without the whole row (sampler_few.c) ----
 *
 * The candidates that ops->select leaves and the logits that processors touch are enough for most picks:
 * the same token comes out, and the same random numbers are drawn. Where they are not, SAMPLER_WHOLE says
 * so before anything was drawn; sampler_pick then does it. */
enum { SAMPLER_WHOLE = -1000 };

struct sampler_need {
    bool whole;           /* nothing less than the row will do */
    const uint64_t *mask; /* select under it; NULL: all tokens. Valid until the next call of s */
    int32_t n_id;         /* listed in ids */
};
/* What the pick behind n_ahead tokens more (a draft) will read. ids: room for SELECT_MAX_IDS. */
void sampler_needs(struct sampler *s, const int32_t *ahead, int32_t n_ahead, int32_t *ids,
                   struct sampler_need *out);

struct sampler_few {
    const struct select_row *row;
    bool is_masked;         /* by the mask of sampler_needs */
    const int32_t *ids;     /* [n_id] */
    const float *id_logits; /* [n_id] */
    int32_t n_id;
};
int32_t sampler_pick_few(struct sampler *s, const struct sampler_few *few,
                         struct sampler_probs *probs);

#endif
