/* mix.h: mixes the model's prediction with what tables remember.
 *
 *     p(t) = (1 - w) p_model(t) + w p_engram(t)
 *
 * p_engram is computed from the contexts of one table, longest first. Each order k takes the share c / (c + u) of
 * the mass that the longer ones left (c occurrences, u different continuations: Witten and Bell's escape). The
 * mass that all of them leave goes to the model.
 * w is a logistic function of the evidence (order, count, documents, agreement, and how much of the text so far
 * the table knew, which shows whether the text is in its domain) and of the model's doubt (entropy, margin, its
 * probability of the table's favourite). The weights of this function are in the table's header, fitted by
 * `chimere engram eval`, or built in.
 * There may be several tables, and recalled words of a question (recall.h), each with its own w. The model has weight
 * 1, and each of the others has its odds w / (1 - w) times alpha as weight: alpha 0 is the model alone, 1 is the
 * fitted mixture. Tokens whose logit is -infinity (banned) stay banned.
 *
 * A mixer belongs to one sequence: tokens are pushed as they are accepted. After engram_mixer_new no function
 * allocates. */
#ifndef CHIMERE_ENGRAM_MIX_H
#define CHIMERE_ENGRAM_MIX_H

#include "engram/table.h"

enum { ENGRAM_MAX_TABLES = 8, ENGRAM_N_FEATURE = 22 };

struct engram_recall;

/* What one request uses of the memory. Immutable; shared by the mixers of its answers. */
struct engram_use {
    const struct engram_table *tables[ENGRAM_MAX_TABLES]; /* borrowed until the mixers are freed */
    int32_t n_table;
    float alpha;                        /* >= 0; 1: as fitted */
    const struct engram_recall *recall; /* borrowed in the same way; NULL: none */
};

struct engram_mixer;

int engram_mixer_new(struct engram_mixer **out, const struct engram_use *use, int32_t n_vocab,
                     const int32_t *prompt, int32_t n_prompt, struct err *e);
void engram_mixer_free(struct engram_mixer *m);
void engram_mixer_push(struct engram_mixer *m, int32_t token);
/* Returns true if a table knows the context: otherwise engram_mixer_apply changes nothing. */
bool engram_mixer_wants(struct engram_mixer *m);
/* Changes logits [n_vocab] so that their softmax is the mixture. */
void engram_mixer_apply(struct engram_mixer *m, float *logits);
/* The same for a row that is on the device. engram_mixer_list returns the tokens whose logits are read or changed
 * after n_ahead more tokens; -1: more than cap. engram_mixer_apply_few computes the mixture over these tokens from
 * the sums of the whole row. */
int32_t engram_mixer_list(struct engram_mixer *m, const int32_t *ahead, int32_t n_ahead,
                          int32_t *out, int32_t cap);
struct engram_row;
void engram_mixer_apply_few(struct engram_mixer *m, float *logits, const struct engram_row *row);
/* Drafts tokens that may follow: repeatedly takes the favourite of the longest known context, as long as that has
 * at least half of the occurrences. Returns the number of tokens, at most n_max. */
int32_t engram_mixer_draft(struct engram_mixer *m, int32_t n_max, int32_t *out);

/* ---- parts, for fitting and tests ---- */

/* Statistics of a row of logits: log of the sum of exponentials, entropy in nats, the two likeliest. */
struct engram_row {
    float norm, entropy, p_first, p_second;
    int32_t first;
};
void engram_row_scan(const float *logits, int32_t n, struct engram_row *out);

/* p_engram of one table, computed from its hits. */
struct engram_blend {
    int32_t n, cap; /* number of tokens */
    /* owned, in order of first occurrence; [0] is the longest context's favourite */
    int32_t *tokens;
    float *p;       /* owned; sums to 1 - left */
    int32_t *place; /* owned [n_vocab]: index + 1; zero if the token is not in tokens */
    float left;     /* mass that goes to the model */
};
int engram_blend_init(struct engram_blend *b, int32_t n_vocab);
void engram_blend_fini(struct engram_blend *b);
void engram_blend_fill(struct engram_blend *b, const struct engram_hit *hits, int n_hit,
                       int32_t n_vocab);
/* Updates how much of a text the table knew: a running mean over its contexts, 0 to 1. Call it once per context. */
float engram_cover(float cover, const struct engram_hit *hits, int n_hit);
void engram_features(const struct engram_hit *hits, int n_hit, const struct engram_blend *b,
                     const struct engram_row *row, const float *logits, float cover,
                     float f[ENGRAM_N_FEATURE]);
void engram_default_weights(float weights[ENGRAM_N_FEATURE]); /* the built-in ones */
/* Returns w for the features; weights [ENGRAM_N_FEATURE], NULL: the built-in ones. */
float engram_weight(const float *weights, const float f[ENGRAM_N_FEATURE]);

#endif
