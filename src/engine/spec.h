/* spec.h: speculation: who drafts, how many tokens, and whether it pays.
 *
 * One loop serves every source: propose up to n tokens, verify them in one forward, keep the longest prefix that the
 * target itself samples (exact for any sampling: the target's draw decides, a draft is a guess of it), drop the rest.
 *
 * Sources are rows of a table (spec.c). Those that read text add one token after another, each the one that is most
 * probably accepted, while the product of these probabilities is worth a row: where a grammar rules, the text that it
 * leaves no choice about, cut as the tokenizer cuts it, and no token that it excludes; tokens after the same words earlier in the text, in other texts
 * (suffix.h), and in n-gram tables. The model drafter (drafter.h) is asked instead where that is better.
 *
 * Each round takes what gives most tokens per millisecond: tokens expected by the acceptance of each source, in each region
 * of text and by its own confidence, over measured costs of drafting and verifying (spec_cost.h). A plain step is always
 * among the choices. If the last 64 rounds were slower than plain steps would have been, drafting stops for 256 tokens, then
 * for twice as many. What is never chosen is tried now and then, within an allowance of time.
 *
 * The model drafter must have seen every token of a sequence that it drafts for, which costs a small model a hundredth of its
 * plain steps and a twentieth of its prompts. Where it loses it is left out of whole sequences, three in four. */
#ifndef CHIMERE_ENGINE_SPEC_H
#define CHIMERE_ENGINE_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/spec_cost.h"

struct sampler;
struct suffix;

enum { SPEC_TEXT_MAX = 7 }; /* tokens of text sources, if the user names no number */

/* Tokens that one sequence drafts at most, of any source, if the user asks for n_draft_max (0: no number). */
static inline int32_t spec_most_drafted(int32_t n_draft_max) {
    return n_draft_max > 0 ? n_draft_max : SPEC_TEXT_MAX;
}

enum spec_region { SPEC_THINKING, SPEC_ANSWER, SPEC_RULED, SPEC_N_REGION };
enum { SPEC_N_GRADE = 12 };

struct spec_rate { /* discounted */
    float n, n_hit;
};
struct spec_rates {
    struct spec_rate of[DRAFT_N_SOURCE][SPEC_N_REGION][SPEC_N_GRADE];
};

struct spec_draft {
    int32_t n;
    int32_t n_asked; /* of the model drafter, which may propose fewer */
    int32_t tokens[STEP_MAX_TOK];
    uint8_t source[STEP_MAX_TOK], grade[STEP_MAX_TOK];
    float accept[STEP_MAX_TOK]; /* each, given those before it */
};

struct spec_seq {     /* of one sequence */
    int32_t *history; /* owned: prompt and generated tokens, then drafts under way */
    int32_t n_prompt, n_history, cap_history;
    uint64_t salt;               /* of its texts in the store of suffixes */
    struct engram_mixer *engram; /* borrowed from the scheduler; NULL: none */
    int32_t
        forced[STEP_MAX_TOK]; /* the next tokens, as the tokenizer cuts what the grammar forces */
    int32_t n_forced;
    struct spec_rates rates;
    enum spec_region region; /* of the next token */
    bool off;
    bool follows; /* the model drafter observes it and may draft */
};

/* A sequence that decodes in this step. */
struct spec_offer {
    struct spec_seq *q;
    struct spec_draft text; /* of the text sources */
    int32_t n_model_max;    /* room for the model drafter's tokens */
    int32_t n_text;         /* chosen: so many of text */
    bool model;             /* chosen: the model drafter instead */
};

struct spec {             /* of the engine */
    struct suffix *store; /* owned; NULL: none */
    int32_t n_vocab;
    struct spec_rates rates; /* over all sequences */
    bool
        is_fixed; /* drafts depend on no clock and no other sequence: all that are offered are verified */
    struct spec_costs costs[SPEC_MAX_SEQS];
    int64_t n_round, n_spec_round; /* steps that could draft; those that did */

    /* the present step */
    int32_t n_seq;    /* decoding; 0: not to be measured */
    bool after_draft; /* the step before had drafts */
    bool is_look;     /* tries what was not chosen */

    /* looking at what is not chosen, and the guarantee */
    int32_t n_since_plain, n_turn;
    double allowance; /* ms that looks may lose */
    struct {
        double plain_ms, ms; /* of the rounds in the window: as plain steps, as they were */
        int32_t n_round;
        int32_t n_left, n_stop; /* tokens without drafts: still; of the next stop */
    } guard;
    int32_t n_model_max; /* tokens of the model drafter */
    int32_t n_left_out;  /* sequences that began where it loses */
};

/* is_fixed: as above; else there is a store of suffixes if wanted. */
int spec_init(struct spec *s, int32_t n_vocab, bool is_fixed, bool store, struct err *e);
void spec_fini(struct spec *s);

int spec_seq_init(struct spec_seq *q, const int32_t *prompt, int32_t n, int32_t n_more);
void spec_seq_fini(struct spec_seq *q);
void spec_seq_push(struct spec *s, struct spec_seq *q, int32_t token);
/* Called before the prompt. Returns whether the model drafter follows. q starts from what
 * other sequences learned. */
bool spec_begin(struct spec *s, struct spec_seq *q);

/* Between steps, before q's next token: cuts the text that its grammar forces into tokens. Allocates. */
void spec_cut_forced(struct spec_seq *q, struct sampler *sampler, const struct tok *tok);
/* The draft of the text sources, of at most n_max < STEP_MAX_TOK tokens; sampler NULL: no grammar. */
void spec_draft_text(struct spec *s, struct spec_seq *q, struct sampler *sampler, int32_t n_max,
                     struct spec_draft *out);
/* Chooses for the n sequences that decode: how much of each draft is verified; returns the tokens that the model drafter
 * is asked for, 0: none. */
int32_t spec_choose(struct spec *s, struct spec_offer *offers, int32_t n);
/* After a draft of q was verified, also an empty one that was asked for: the first n_accepted tokens stay.
 * stats: of its job, or NULL. */
void spec_learn(struct spec *s, struct spec_seq *q, const struct spec_draft *d, int32_t n_accepted,
                struct draft_stats *stats);
/* After the step of n_row rows: tokens that it gave; draft_ms: of the model drafter, asked for n_model tokens. */
void spec_time(struct spec *s, int32_t n_row, int32_t n_tok, double ms, int32_t n_model,
               double draft_ms);
/* Instead: it held other work too. */
void spec_pause(struct spec *s);

#endif
