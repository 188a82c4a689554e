/* draft_head.h: a copy of the first rows of a model's output head in 4 bits, from which drafts are chosen.
 *
 * A vocabulary of 248,320 tokens makes the head the largest part of a drafted token. Tokenizers number their tokens by
 * the order of their merges, frequent ones first, so the first rows hold nearly all tokens of a text. Verification
 * reads the whole head in its own type, so this copy changes the speed, and never the text. The model owns it; engines
 * over the same model share it. */
#ifndef CHIMERE_MODEL_DRAFT_HEAD_H
#define CHIMERE_MODEL_DRAFT_HEAD_H

#include "model/model.h"

enum {
    DRAFT_HEAD_ROWS = 98304, /* holds 99.9 % of English text and code of Qwen's vocabulary */
    DRAFT_HEAD_LEAST_VOCAB =
        131072, /* smaller vocabularies get no copy unless the user wants one */
};

/* Rows of the copy; 0: no copy, because the model does not need it or its head is in slices. wanted 0: choose; as many
 * as tokens: no copy. */
int32_t draft_head_rows(const struct hparams *hp, int32_t wanted);
/* Only ids below this are drafted by prediction blocks: m->n_draft_id, else all of the head. */
int32_t draft_head_n_id(const struct model *m);
/* Memory of the copy on d (NULL: in the file's form). */
uint64_t draft_head_bytes(const struct hparams *hp, struct dev *d, int32_t wanted);
/* Fills m->draft_head, once. is_block: rows of the prediction block's own head, if it has one. All threads of the
 * machine encode; one second per 70 M weights and core. */
int draft_head_add(struct model *m, int32_t wanted, bool is_block, struct err *e);

#endif
