/* perplexity.h: how well a model predicts a text, and how far its distributions lie from a base's.
 *
 * The text is cut into windows of ctx tokens, each read from nothing; the tokens behind its middle
 * (positions ctx / 2 + 1 and on) are scored, so that every one has at least half a window of context. This
 * is how the field reports it: figures compare with others' at the same ctx. */
#ifndef CHIMERE_EVAL_PERPLEXITY_H
#define CHIMERE_EVAL_PERPLEXITY_H

#include "eval/kl_base.h"
#include "eval/windows.h"

struct perplexity_params {
    struct windows_params windows;
    int n_thread;               /* of scoring, as pool_new */
    const char *save_base;      /* path or NULL */
    const struct kl_base *base; /* or NULL; its windows are the text */
    uint64_t tok_hash;
};

struct kl_stats {
    double mean, mean_se, median, p99, p999, max;
    double same_top, same_top_se; /* share of positions whose likeliest token agrees */
    double base_ppl;              /* of the base, over the same tokens */
};

struct perplexity {
    uint64_t n_scored, n_window;
    double nll, ppl, ppl_se; /* mean nats a token; exp of it; standard error of that */
    struct kl_stats kl;      /* with a base */
};

/* A logit that is no number is refused: CHIMERE_ENUMERIC. */
int perplexity_run(struct model *m, const struct windows_text *t, const struct perplexity_params *p,
                   struct perplexity *out, struct err *e);

/* Bits per byte of a whole text: windows of ctx tokens overlap by half, so every token but the very
 * first (where the tokenizer sets no BOS) is scored once, most of them with half a window of context. */
struct text_bits {
    uint64_t n_tok, n_bytes; /* scored */
    double bits_per_byte, ppl;
};
int perplexity_bits(struct model *m, const struct tok *tok, const char *text, size_t n_text,
                    int32_t ctx, const struct windows_params *p, struct text_bits *out,
                    struct err *e);

#endif
