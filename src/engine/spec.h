/* spec.h: speculation: who drafts, how many tokens, and whether it pays.
 *
 * One loop serves every drafter: propose up to n tokens, verify them in one forward, keep the longest
 * prefix that the target itself samples (exact for any sampling: the target's draw decides, a draft is a
 * guess of it), drop the rest. Drafters are a table (drafter.h); the first that proposes something is used.
 *
 * Whether it pays: depths are asked for in blocks of steps, and a block tells tokens and milliseconds of the
 * depth that was asked for, whatever came of it: drafts cut short, lookups that found nothing, the state that
 * a draft leaves to the next step. The depth that gives most tokens a second is used; others are looked at in
 * single blocks between two of the best. What a look loses against those is paid from an allowance, a small share of the
 * time: so asking for drafts costs little even where none ever pays. Each number of sequences that decode together, with and
 * without a prediction block that drafts, has depths of its own.
 *
 * The model's prediction block must have seen every token of a sequence that it drafts for, which costs a small model a
 * hundredth of its plain steps and a twentieth of its prompts. Where drafting loses it is left out of whole sequences, three
 * in four. */
#ifndef CHIMERE_ENGINE_SPEC_H
#define CHIMERE_ENGINE_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/drafter.h"

struct spec_yield { /* of a drafter */
    float share;    /* mean share of drafts whose first token was accepted */
    int32_t n_round, n_idle;
};

struct spec_seq {     /* of one sequence */
    int32_t *history; /* owned: prompt and generated tokens, for n-gram drafts */
    int32_t n_prompt, n_history, cap_history;
    struct engram_mixer *engram; /* borrowed from the scheduler; NULL: none */
    int drafter; /* index of the one whose draft is being verified; N_TEXT_DRAFTER: the model drafter */
    struct spec_yield drafters[N_TEXT_DRAFTER];
    bool off;
    bool follows; /* the model drafter observes it and may draft */
};

enum { SPEC_MAX_SEQS = 4 }; /* decoding together beyond this, batching is cheaper than verifying */

struct spec_block { /* what its steps gave and took */
    int32_t n_step;
    double tokens, ms;
};

struct spec_choice { /* of a depth */
    struct {
        double tokens; /* of a block, mean of which the last weigh most */
        double
            cost; /* time of its blocks beside that of others around them: machines change their speed */
        int32_t n_block;
    } depth[STEP_MAX_TOK];
    int32_t best, now;                       /* now: asked for in this block */
    int32_t look;                            /* asked for in the block before; best: no other */
    struct spec_block block, before, looked; /* before: the last of the best */
    int32_t n_look, n_turn, n_since_plain;   /* turn: which depth is next of those that are known */
    double allowance;                        /* ms that looks may lose */
};

struct spec {                                     /* of the engine */
    struct spec_choice choices[SPEC_MAX_SEQS][2]; /* [sequences - 1][a prediction block drafts] */
    struct spec_choice *at;                       /* view: of this step; NULL: no measure of any */
    bool is_second;                               /* the step before asked for the same */
    struct spec_yield drafters[N_TEXT_DRAFTER];   /* over all sequences */
    int32_t n_left_out;                           /* sequences that began where drafting loses */
};

int spec_seq_init(struct spec_seq *q, const int32_t *prompt, int32_t n, int32_t n_more);
void spec_seq_fini(struct spec_seq *q);
void spec_seq_push(struct spec_seq *q, int32_t token);
/* Before the prompt: shall the prediction block follow? n_seq: how many will decode. What other sequences learned is
 * where q begins. */
bool spec_follows(struct spec *s, struct spec_seq *q, int32_t n_seq);
/* Draft tokens to ask for in this step of n_seq sequences, 0: none. follows: one of them at least has a prediction block
 * that drafts. */
int32_t spec_choose(struct spec *s, int32_t n_seq, bool follows, int32_t n_max);
/* After that step: what it gave and took, a plain one without what following costs. */
void spec_time(struct spec *s, int32_t n_tok, double ms);
/* Instead: it held other work too. */
void spec_pause(struct spec *s);
/* After a draft was verified. */
void spec_learn(struct spec *s, struct spec_seq *q, int32_t n_accepted);
/* The proposal of the first text drafter that has one; returns its length, at most n_max < STEP_MAX_TOK. A drafter
 * whose first tokens are accepted too rarely (less than one in three, or less than four in five if the model
 * drafter would draft instead) sits out and is retried now and then. */
int32_t spec_draft(struct spec_seq *q, int32_t n_max, int32_t *out);

#endif
