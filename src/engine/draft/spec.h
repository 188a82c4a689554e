/* spec.h: speculative decoding: which source drafts, how many tokens, and whether it pays.
 *
 * One loop serves every source. It proposes up to n tokens, verifies them in one forward pass, and keeps the longest
 * prefix that the target samples itself. The result is exact for any sampling, because the target's draw decides and a
 * draft is only a guess of that draw.
 *
 * Sources are rows of a table (spec.c). The text sources add one token after another. Each time they add the token that
 * is most probably accepted, while the product of these probabilities justifies a row. The text sources are: text that
 * the grammar forces, cut into tokens as the tokenizer would; tokens that followed the same context earlier in this
 * text, in other texts (suffix.h), or in n-gram tables. A token that the grammar excludes is never drafted. The model
 * drafter (drafter.h) is used instead if it is better.
 *
 * Each round uses the choice that gives most tokens per millisecond. It divides the expected number of tokens by the
 * measured costs of drafting and verification (spec_cost.h). The expectation uses the acceptance of each source, per
 * region of the text and per confidence grade. A plain step is always among the choices. If the last 64 rounds with
 * drafts, or the last 128 that looked for some, were slower than plain steps would have been, drafting stops for 256
 * tokens, and then for twice as many each time, up to 4,096: a minute in which other programs used the processor must
 * not end drafting for long. Choices that are not used are tried from time to time, within a time allowance.
 *
 * The model drafter must observe the tokens of a sequence for which it drafts. On a GPU, this takes up to a tenth of a
 * small model's step, and most of it delays the next step. So the drafter observes only while its drafts pay, or are
 * tried; what it missed is no part of its context. The plain steps that others are compared with come after a step
 * that was not observed: they cost what they cost without speculation. Prompts are observed at once, which costs a
 * twentieth of their time. If drafting with it does not pay, the drafter ignores three in four new sequences
 * entirely. */
#ifndef CHIMERE_ENGINE_SPEC_H
#define CHIMERE_ENGINE_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "engine/draft/drafter.h"
#include "engine/engine.h"
#include "engine/draft/spec_cost.h"

struct sampler;
struct suffix;

enum { SPEC_TEXT_MAX = 7 }; /* longest draft of text sources, if the user gives no number */

/* Longest draft per sequence from any source, for the user's n_draft_max (0: not given). */
static inline int32_t spec_most_drafted(int32_t n_draft_max) {
    return n_draft_max > 0 ? n_draft_max : SPEC_TEXT_MAX;
}

enum spec_region { SPEC_THINKING, SPEC_ANSWER, SPEC_CODE, SPEC_RULED, SPEC_N_REGION };
enum { SPEC_N_GRADE = 12 };

struct spec_rate { /* counts with exponential decay */
    float n, n_hit;
};
struct spec_rates {
    struct spec_rate of[DRAFT_N_SOURCE][SPEC_N_REGION][SPEC_N_GRADE];
};

struct spec_draft {
    int32_t n;
    int32_t n_asked; /* tokens asked of the model drafter, which may propose fewer */
    int32_t tokens[STEP_MAX_TOK];
    uint8_t source[STEP_MAX_TOK], grade[STEP_MAX_TOK];
    /* acceptance probability, given that the tokens before are accepted */
    float accept[STEP_MAX_TOK];
};

struct spec_seq { /* state of one sequence */
    /* owned: tokens of prompt and answer, followed by the draft under construction */
    int32_t *history;
    int32_t n_prompt, n_history, cap_history;
    uint64_t salt;               /* scope of its texts in the suffix store */
    struct engram_mixer *engram; /* borrowed from the scheduler; NULL: none */
    /* tokenization of the text that the grammar forces next */
    int32_t forced[STEP_MAX_TOK];
    int32_t n_forced;
    struct spec_rates rates;
    enum spec_region region; /* of the next token */
    int32_t n_tick;          /* backticks at the end of the text */
    bool in_code;            /* three of them have opened a block of code */
    bool off;
    bool follows;  /* the model drafter may draft for this sequence */
    bool observed; /* it observed the last evaluated token, so that it can draft the next ones */
};

/* A sequence that decodes in this step, and what is chosen for it. */
struct spec_offer {
    struct spec_seq *q;
    struct spec_draft text; /* draft of the text sources */
    int32_t n_model_max;    /* largest number of tokens that the model drafter may propose */
    int32_t n_text;         /* chosen: number of tokens of `text` to verify */
    bool model;             /* chosen: use the model drafter instead */
};

struct spec {               /* state of the engine */
    struct suffix *store;   /* owned; NULL: none */
    struct suffix *learned; /* owned: contexts that a night learned for all scopes; NULL: none */
    int32_t n_vocab;
    struct spec_rates rates; /* rates over all sequences */
    /* deterministic: drafts depend neither on a clock nor on other sequences; every offered draft is verified */
    bool is_fixed;
    struct spec_costs costs[SPEC_MAX_SEQS];
    int64_t n_round, n_spec_round; /* steps that could draft; steps that did */

    /* the current step */
    int32_t n_seq;    /* decoding sequences; 0: the step is not measured */
    bool after_draft; /* the previous step verified a draft, or was observed */
    bool is_look;     /* the step tries a choice that was not best */
    bool observes;    /* the model drafter observes the tokens of this step */
    int32_t n_tried;  /* tokens that it drafts in the next step, as a trial; 0: none */
    /* set by the scheduler, parts of the step's time: text sources; the model drafter observing */
    double text_ms, observe_ms;

    /* trying other choices, and the guard against losses */
    int32_t n_since_plain, n_turn;
    double allowance; /* ms that such trials may still lose */
    struct {
        /* time of the rounds with drafts in the window: as plain steps, and measured; the latter also includes what
         * looking for drafts took in the rounds without; of these, time of the plain steps */
        double plain_ms, ms, idle_ms;
        int32_t n_round, n_search; /* rounds with drafts; rounds that looked for some */
        int32_t n_left, n_stop; /* tokens to decode without drafts: remaining; in the next stop */
        bool was_told;          /* the log has reported that drafts stopped */
    } guard;
    int32_t n_model_max; /* longest draft of the model drafter */
    int32_t n_left_out;  /* sequences that started while the model drafter did not pay */
};

/* is_fixed: as in the struct. store: create a suffix store, unless is_fixed. */
int spec_init(struct spec *s, int32_t n_vocab, bool is_fixed, bool store, struct err *e);
void spec_fini(struct spec *s);

int spec_seq_init(struct spec_seq *q, const int32_t *prompt, int32_t n, int32_t n_more);
void spec_seq_fini(struct spec_seq *q);
void spec_seq_push(struct spec *s, struct spec_seq *q, int32_t token);
void spec_seq_read(struct spec_seq *q, struct slice piece); /* the text of that token */
/* Nothing is drafted, so nothing needs to be prepared for drafts. */
static inline bool spec_rests(const struct spec *s) { return s->guard.n_left > 0; }
/* Called before the prompt is evaluated: the suffix store learns the prompt. Returns whether the model drafter should
 * observe this sequence. */
bool spec_begin(struct spec *s, struct spec_seq *q);

/* Called between steps, before q's next token: tokenizes the text that the grammar forces. Allocates. */
void spec_cut_forced(struct spec_seq *q, struct sampler *sampler, const struct tok *tok);
/* Drafts from the text sources, at most n_max < STEP_MAX_TOK tokens; sampler NULL: no grammar. */
void spec_draft_text(struct spec *s, struct spec_seq *q, struct sampler *sampler, int32_t n_max,
                     struct spec_draft *out);
/* Chooses how much of each draft to verify, for the n sequences that decode. Returns how many tokens to ask of the
 * model drafter; 0: none. */
int32_t spec_choose(struct spec *s, struct spec_offer *offers, int32_t n);
/* Called after a draft of q was verified, or was asked for and is empty. The first n_accepted tokens stay. stats:
 * statistics of the job, or NULL. */
void spec_learn(struct spec *s, struct spec_seq *q, const struct spec_draft *d, int32_t n_accepted,
                struct draft_stats *stats);
/* Called after a step with n_row rows that produced n_tok tokens. ms: from the end of the previous step. draft_ms: time
 * of the model drafter, which was asked for n_model tokens. */
void spec_time(struct spec *s, int32_t n_row, int32_t n_tok, double ms, int32_t n_model,
               double draft_ms);
/* Called instead of spec_time if the step also did other work. */
void spec_pause(struct spec *s);

#endif
