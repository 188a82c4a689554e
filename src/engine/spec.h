/* spec.h: speculation: who drafts, how many tokens, and whether it pays.
 *
 * One loop serves every drafter: propose up to n tokens, verify them in one forward, keep the longest
 * prefix that the target itself samples (exact for any sampling: the target's draw decides, a draft is a
 * guess of it), drop the rest. Drafters are a table; the first that proposes something is used.
 *
 * Whether it pays: the engine keeps the mean time of steps by number of drafted tokens, and each
 * sequence the mean acceptance by depth; a step drafts the n that maximises
 *     (1 + expected accepted(n)) / time(n)
 * where n = 0 is plain decoding and time(n) holds what the step after it has to do because of the draft: tokens that
 * stay are applied to recurrent state then. Other depths are tried now and then, more and more rarely while drafting
 * loses.
 *
 * The model's prediction block must have seen every token of a sequence that it drafts for, which costs a small model a
 * seventh of its steps. Where drafting loses it is left out of whole sequences, all but one in 16. */
#ifndef CHIMERE_ENGINE_SPEC_H
#define CHIMERE_ENGINE_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"

struct engram_mixer;

/* Rows of the table of drafters (spec.c), in the order they are asked; the model's own prediction blocks
 * come after them all. */
enum spec_drafter { SPEC_PROMPT_LOOKUP, SPEC_ENGRAM, SPEC_N_DRAFTER };

struct spec_seq {     /* of one sequence */
    int32_t *history; /* owned: prompt and generated tokens, for n-gram drafts */
    int32_t n_prompt, n_history, cap_history;
    float accept[STEP_MAX_TOK]; /* mean acceptance at depth i, given depth i - 1 was accepted */
    int32_t n_round;
    struct engram_mixer *engram; /* borrowed from the scheduler; NULL: none */
    enum spec_drafter drafter; /* whose draft is being verified; SPEC_N_DRAFTER: the model's own */
    struct {
        float yield; /* mean share of its drafts' first tokens that were accepted */
        int32_t n_round, n_idle;
    } drafters[SPEC_N_DRAFTER];
    bool off;
    bool follows; /* the prediction block keeps up with it and may draft */
};

struct spec {                      /* of the engine */
    double step_ms[STEP_MAX_TOK];  /* mean step time with n drafted tokens, one sequence decoding */
    double after_ms[STEP_MAX_TOK]; /* what a draft of n leaves to the step after it: its state */
    int32_t n_seen[STEP_MAX_TOK], n_after[STEP_MAX_TOK];
    int32_t owed; /* what the last step drafted */
    int32_t n_step, n_probe;
    int32_t probe_gap, next_probe; /* in steps */
    bool plain_again;              /* the next step is plain, too: it is measured */
    float accept[STEP_MAX_TOK];    /* mean over sequences of theirs */
    int32_t n_ended, n_left_out;   /* sequences that drafted; that began where drafting loses */
};

int spec_seq_init(struct spec_seq *q, const int32_t *prompt, int32_t n, int32_t n_more);
void spec_seq_fini(struct spec_seq *q);
void spec_seq_push(struct spec_seq *q, int32_t token);
/* Before the prompt: shall the prediction block follow? What other sequences learned is where q begins. */
bool spec_follows(struct spec *s, struct spec_seq *q, int32_t n_max);
/* At the sequence's end: what it learned. */
void spec_leave(struct spec *s, const struct spec_seq *q);
/* Draft tokens to ask for now; 0: decode plainly. fixed: no clock, always n_max. */
int32_t spec_choose(struct spec *s, struct spec_seq *q, int32_t n_max, bool fixed);
/* After a step: n drafted, n accepted; and what the step cost, a plain one without what following costs. */
void spec_learn(struct spec_seq *q, int32_t n_drafted, int32_t n_accepted);
void spec_time(struct spec *s, int32_t n_drafted, double ms);
/* A step was of other kinds: the next one is not that of a draft just verified. */
void spec_pause(struct spec *s);
/* The first drafter's proposal that has one: how many tokens. One whose first tokens were accepted less
 * often than one in three sits out, and is tried again now and then. */
int32_t spec_draft(struct spec_seq *q, int32_t n_max, int32_t *out);
/* Prompt lookup: the tokens that followed the latest earlier occurrence of the longest suffix (3 to 8
 * tokens) of the history. Returns how many were found. */
int32_t spec_ngram(const struct spec_seq *q, int32_t n_max, int32_t *out);

#endif
