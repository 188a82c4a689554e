/* perplexity.h: measures how well a model predicts a text, and how far its distributions are from those of a base.
 *
 * The text is cut into windows of ctx tokens that start without context. The tokens after the middle of a window
 * (from position ctx / 2 + 1 on) are scored, so that each has at least half a window of context. This is the usual
 * method: results can be compared with others at the same ctx. */
#ifndef CHIMERE_EVAL_PERPLEXITY_H
#define CHIMERE_EVAL_PERPLEXITY_H

#include "eval/kl_base.h"
#include "eval/windows.h"

struct perplexity_params {
    struct windows_params windows;
    int n_thread;               /* threads for scoring, as in pool_new */
    const char *save_base;      /* path or NULL */
    const struct kl_base *base; /* or NULL; its windows are used as the text */
    uint64_t tok_hash;
};

struct kl_stats {
    double mean, mean_se, median, p99, p999, max;
    /* share of positions at which both agree on the likeliest token */
    double same_top, same_top_se;
    double base_ppl; /* perplexity of the base over the same tokens */
};

struct perplexity {
    uint64_t n_scored, n_window;
    double nll, ppl, ppl_se; /* mean nats per token; its exponential; the standard error of ppl */
    struct kl_stats kl;      /* set if there is a base */
};

/* CHIMERE_ENUMERIC: a logit is not a number. */
int perplexity_run(struct model *m, const struct windows_text *t, const struct perplexity_params *p,
                   struct perplexity *out, struct err *e);

/* Computes bits per byte of a whole text. Windows of ctx tokens overlap by half. Every token is scored once, most
 * of them with half a window of context; only the first token is not, if the tokenizer adds no BOS. */
struct text_bits {
    uint64_t n_tok, n_bytes; /* numbers of scored tokens and bytes */
    double bits_per_byte, ppl;
};
int perplexity_bits(struct model *m, const struct tok *tok, const char *text, size_t n_text,
                    int32_t ctx, const struct windows_params *p, struct text_bits *out,
                    struct err *e);

#endif
