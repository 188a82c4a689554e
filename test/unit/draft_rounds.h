/* draft_rounds.h: drafts by a model's prediction block, round after round, for two sequences at once. */
#ifndef CHIMERE_TEST_DRAFT_ROUNDS_H
#define CHIMERE_TEST_DRAFT_ROUNDS_H

#include <string.h>

#include "engine/draft/drafter.h"
#include "engine/lm.h"

enum { DRAFT_SEQS = 2, DRAFT_ROUNDS = 3, DRAFT_N = 3, DRAFT_KEPT = 2, DRAFT_MOST = 64 };

struct drafted {
    int32_t tokens[DRAFT_ROUNDS][DRAFT_SEQS][DRAFT_N];
};

/* What the model's prediction block proposes after a prompt, and after steps that keep a part of the draft. */
static void draft_rounds(struct lm *lm, int32_t n_prompt, int32_t n_round, struct drafted *out) {
    struct seq *q[DRAFT_SEQS];
    struct batch_item runs[DRAFT_SEQS];
    struct drafter_request asked[DRAFT_SEQS];
    struct err e = {0};
    int32_t tokens[DRAFT_SEQS][DRAFT_MOST], n_kept[DRAFT_SEQS];
    const bool follow[DRAFT_SEQS] = {true, true};
    struct drafter *d = lm->drafter;
    assert_non_null(d);
    *out = (struct drafted){0};
    for (int32_t i = 0; i < DRAFT_SEQS; i++) {
        if (lm->ops->seq_new(lm, &q[i], &e)) fail_msg("%s", e.text);
        for (int32_t t = 0; t < DRAFT_MOST; t++) tokens[i][t] = (t * 31 + i * 17) % 500;
        n_kept[i] = n_prompt + i;
        runs[i] = (struct batch_item){.seq = q[i], .tokens = tokens[i], .n_tok = n_kept[i]};
    }
    for (int32_t round = 0; round < n_round; round++) {
        if (lm->ops->run(lm, runs, DRAFT_SEQS, NULL, &e)) fail_msg("%s", e.text);
        for (int32_t i = 0; round && i < DRAFT_SEQS; i++)
            lm->ops->seq_drop(lm, q[i], 1 + DRAFT_N - DRAFT_KEPT);
        if (d->ops->observe(d, runs, n_kept, follow, DRAFT_SEQS, &e)) fail_msg("%s", e.text);
        for (int32_t i = 0; i < DRAFT_SEQS; i++)
            asked[i] =
                (struct drafter_request){.seq = q[i], .next = 7 + round + i, .n_draft = DRAFT_N};
        if (d->ops->draft(d, asked, DRAFT_SEQS, &e)) fail_msg("%s", e.text);
        for (int32_t i = 0; i < DRAFT_SEQS; i++) {
            assert_int_equal(asked[i].n_draft, DRAFT_N);
            assert_ptr_equal(asked[i].seq, q[i]);
            memcpy(out->tokens[round][i], asked[i].tokens, sizeof out->tokens[round][i]);
            tokens[i][0] = asked[i].next;
            memcpy(tokens[i] + 1, out->tokens[round][i], sizeof out->tokens[round][i]);
            n_kept[i] = DRAFT_KEPT;
            runs[i] = (struct batch_item){
                .seq = q[i], .tokens = tokens[i], .n_tok = 1 + DRAFT_N, .defer = true};
        }
    }
    for (int32_t i = 0; i < DRAFT_SEQS; i++) lm->ops->seq_free(lm, q[i]);
}

#endif
