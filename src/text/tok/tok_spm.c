/* tok_spm.c: SentencePiece BPE: adjacent symbols merge if their joined text is a token, the best score first.
 * Remaining symbols that are not tokens are encoded as byte tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tok/tok_merge_impl.h"

struct scored {
    float score;
    uint32_t id;
};

static int best_first(const void *a, const void *b) {
    const struct scored *x = a, *y = b;
    return x->score < y->score ? 1 : x->score > y->score ? -1 : (x->id > y->id) - (x->id < y->id);
}

/* order[id]: rank of its score among the distinct scores, so that merging compares integers. */
int tok_spm_build(struct tok *t, const struct tok_spec *spec, struct err *e) {
    t->order = mem_alloc_array(t->n_vocab, sizeof *t->order);
    struct scored *s = mem_alloc_array(t->n_vocab, sizeof *s);
    int rc = t->order && s ? 0 : CHIMERE_ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < t->n_vocab; i++)
        s[i] = (struct scored){spec->scores ? spec->scores[i] : 0, i};
    if (rc == 0) qsort(s, t->n_vocab, sizeof *s, best_first);
    uint32_t rank = 0;
    for (uint32_t i = 0; rc == 0 && i < t->n_vocab; i++) {
        rank += i > 0 && s[i].score != s[i - 1].score;
        t->order[s[i].id] = rank;
    }
    mem_free(s);
    for (uint32_t b = 0; b < 256; b++) {
        if (t->byte_symbol[b] != TOK_NO_SYMBOL) continue;
        uint32_t id = tok_match(t, &(char){(char)b}, 1);
        t->byte_symbol[b] = id;
    }
    if (rc == 0) rc = tok_cross_build(t);
    return rc ? err_set(e, rc, "out of memory for %u scores", t->n_vocab) : 0;
}

int tok_spm_encode(struct enc *c, const char *text, uint32_t n, bool space_prefix) {
    char *copy = mem_alloc((size_t)n + 1);
    if (!copy) return CHIMERE_ENOMEM;
    copy[0] = ' ';
    uint32_t to = (uint32_t)tok_unmark((struct slice){text, n}, copy + space_prefix) + space_prefix;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < to;) {
        uint32_t run = (uint32_t)tok_valid_run(copy + i, to - i);
        c->ends.n = 0;
        if (!run) rc = tok_put_bytes(c, copy + i, 1);
        else if ((rc = tok_cross_split(c->t, copy, i, i + run, &c->ends)) == 0)
            rc = tok_merge_words(c, copy, i, &c->ends);
        i += run ? run : 1;
    }
    mem_free(copy);
    return rc;
}
