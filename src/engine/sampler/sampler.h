/* sampler.h: picks one token from logits, by a chain of logit processors.
 *
 * The chain is a table (sampler.c). Each row has a name, a test whether the parameters enable it, and a function over
 * the candidates. Its order: logit bias, thinking, reflection, grammar mask, mixture, repetition/frequency/presence
 * penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature (fixed or dynamic) or mirostat, draw.
 * Temperature 0 takes the largest logit after masks and penalties (ties: the lower id). A row with NaN or without
 * finite values is CHIMERE_ENUMERIC.
 *
 * A sampler belongs to one request. It has its own random stream, so that it makes the same choices from the same
 * logits on any machine. sampler_new allocates all memory; picking does not allocate. Use from any one thread. */
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

enum { SAMPLER_MAX_PROBS = 20, SAMPLER_MAX_TRIGGER = 128 /* bytes of one trigger text */ };

/* A text that starts the grammar. The grammar covers the trigger and the text after it. */
struct sampler_trigger {
    const char *text;
    /* only at the start of the answer or directly after a text of the grammar; spaces may precede it */
    bool at_start;
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
    int32_t mirostat; /* 0, 1 or 2; replaces the steps from top-k to the draw, as in the papers */
    float mirostat_tau, mirostat_eta;
    float repeat_penalty, frequency_penalty, presence_penalty; /* 1, 0, 0: off */
    /* number of past tokens that count; -1: all */
    int32_t penalty_last_n;
    float dry_multiplier, dry_base;         /* 0: off */
    int32_t dry_allowed_length, dry_last_n; /* dry_last_n -1: all */
    const char *const
        *dry_breakers; /* strings that end a repeated sequence; NULL: "\n" ":" "\"" "*" */
    size_t n_dry_breaker;
    const struct logit_bias *bias;
    size_t n_bias;
    bool ignore_eos;    /* end-of-generation tokens are banned */
    int32_t min_tokens; /* end-of-generation tokens are banned until this many tokens were taken */
    /* number of tokens whose log-probabilities are reported, at most SAMPLER_MAX_PROBS */
    int32_t n_probs;
    int32_t min_keep; /* least number of candidates that every filter keeps; >= 1 */
    /* Thinking begins at think_start, or at the first token if in_think is set. After at most think_budget tokens,
     * think_end is forced token by token. think_budget < 0: no limit */
    int32_t think_budget;
    bool in_think;
    const int32_t *think_start, *think_end; /* token sequences */
    size_t n_think_start, n_think_end;
    struct think_control think;      /* controls the length of thinking by the model's certainty */
    struct grammar_matcher *grammar; /* borrowed until sampler_free; NULL: none */
    bool grammar_after_think;        /* the grammar begins after the thinking block */
    /* n_trigger > 0: the grammar begins at each trigger outside thinking and ends once it is complete. At other
     * positions all tokens are allowed and nothing is masked. */
    const struct sampler_trigger *triggers;
    size_t n_trigger;
};

/* Sets every field to a value without effect, except temperature 0.7, top_k 20 and top_p 0.8 (the published defaults of
 * the Qwen family for answers without thinking), and seed 0. */
void sampler_defaults(struct sampler_params *p);
/* Reports values out of range by name. */
int sampler_check(const struct sampler_params *p, int32_t n_vocab, struct err *e);

struct sampler_probs {
    /* log-probability of the picked token in the model's own distribution */
    float chosen;
    int32_t n;
    int32_t ids[SAMPLER_MAX_PROBS]; /* the n most likely, best first */
    float logprobs[SAMPLER_MAX_PROBS];
    float entropy; /* entropy of the model's own distribution, in nats */
};
/* Computes the probabilities from a row of logits, independent of any sampler: for `token` and for the n most
 * likely. */
void sampler_probs_of(const float *logits, int32_t n_vocab, int32_t token, int32_t n,
                      struct sampler_probs *out);

struct sampler;

/* Copies what it needs from p. tok is borrowed; it may be NULL (no DRY breakers, no end-of-generation ids). */
int sampler_new(struct sampler **out, const struct sampler_params *p, int32_t n_vocab,
                const struct tok *tok, struct err *e);
void sampler_free(struct sampler *s);
/* Adds tokens of the prompt to the history of the penalties. */
int sampler_prime(struct sampler *s, const int32_t *tokens, size_t n, struct err *e);
/* Picks the next token from logits [n_vocab] (read only). Returns its id, or CHIMERE_E*. probs may be NULL. Uses the
 * random stream once per call. Call sampler_accept afterwards with the token that was taken. */
int32_t sampler_pick(struct sampler *s, const float *logits, struct sampler_probs *probs);
void sampler_accept(struct sampler *s, int32_t token);
/* Statistics of the thinking so far. */
void sampler_think_stats(const struct sampler *s, struct think_stats *out);
/* True if the grammar is complete and allows only the end. False for grammars with triggers. */
bool sampler_is_done(struct sampler *s);

/* Sums over a row, for callers that do not read the row. */
struct sampler_sums {
    /* log-sum-exp; entropy in nats; probabilities of the two most likely tokens */
    float norm, entropy, p_first, p_second;
    int32_t first;
};

/* An additional processor before the draw, such as the mixture with an n-gram memory. apply changes logits [n_vocab] in
 * a private copy. wants returns whether apply would change anything now, so that the row is copied only if necessary;
 * NULL: always. accept may be NULL. Without in_thinking, apply and accept are not called inside a thinking block. At
 * most 4 hooks.
 *
 * list and apply_few serve rows that are not in host memory; NULL: the hook needs the whole row. list writes the tokens
 * whose logits apply_few will read or change after n_ahead more tokens. It returns their number, or -1 if there are
 * more than cap. In the logits passed to apply_few, only these are valid. */
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

/* ---- picking without the whole row (sampler_candidates.c) ----
 *
 * Most picks need only the candidates that ops->select returns and the logits that processors touch. The result is the
 * same token from the same random numbers. If these logits are not enough, sampler_pick_few returns SAMPLER_WHOLE
 * before it draws, and the caller uses sampler_pick. */
enum { SAMPLER_WHOLE = -1000 };

struct sampler_need {
    bool whole; /* the pick needs the whole row */
    /* ops->select must apply this mask; NULL: all tokens. Valid until the next call with s */
    const uint64_t *mask;
    int32_t n_id; /* number of tokens written to ids */
};
/* Determines which logits the pick after n_ahead more tokens (a draft) will read. ids: space for SELECT_MAX_IDS. */
void sampler_needs(struct sampler *s, const int32_t *ahead, int32_t n_ahead, int32_t *ids,
                   struct sampler_need *out);

struct sampler_few {
    const struct select_row *row;
    bool is_masked;         /* the mask of sampler_needs was applied */
    const int32_t *ids;     /* [n_id] */
    const float *id_logits; /* [n_id] */
    int32_t n_id;
};
int32_t sampler_pick_few(struct sampler *s, const struct sampler_few *few,
                         struct sampler_probs *probs);

#endif
