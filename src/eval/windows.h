/* windows.h: runs pieces of a text through a model, several sequences per forward pass.
 *
 * Shared by perplexity, importance matrices and bits per byte. A window is a run of tokens that starts without
 * context; the logits of its scored positions are passed to a callback as they are computed. The windows of one
 * group advance together, one chunk each, so that a forward pass has as many rows as one long prompt. */
#ifndef CHIMERE_EVAL_WINDOWS_H
#define CHIMERE_EVAL_WINDOWS_H

#include "model/experts/experts.h"
#include "model/forward.h"
#include "text/tok/tok.h"

struct window {
    const int32_t *tokens; /* borrowed */
    int32_t n_tok;
    int32_t first; /* logits of positions first .. n_tok - 2 are wanted; first = n_tok: none */
    const struct lora_use *loras; /* borrowed [n_lora] */
    int32_t n_lora;
};

/* Called before each forward pass, so that it can wait while others need the device. A nonzero result ends the run
 * with that code. fn NULL: no call. */
struct windows_turn {
    int (*fn)(void *ud, struct err *e);
    void *ud; /* borrowed until windows_close */
};

struct windows_params {
    int32_t n_seq;   /* windows per forward pass */
    int32_t n_batch; /* tokens per forward pass */
    uint32_t k_type, v_type;
    bool whole;       /* evaluate the last token of a window too, although no token follows it */
    const char *what; /* title of the progress bar; NULL: none */
    struct moe_keep keep;      /* which experts of a mixture to keep; with all_at, token by token */
    struct experts_kept *kept; /* filled during a pass; NULL: not wanted */
    struct windows_turn turn;
};

enum {
    WINDOWS_MAX_SEQS = 64,
    WINDOWS_MAX_TEXT = 1 << 30,      /* bytes of a text */
    WINDOWS_LOGIT_BYTES = 128 << 20, /* of one forward pass at most, unless one row takes more */
    WINDOWS_MIN_TOK = 8,             /* tokens of a window */
};

/* rows: [n_row, n_vocab] logits of window i that predict tokens[pos + 1], ...; valid during the call. A nonzero
 * result ends the run with that code. */
typedef int windows_fn(void *ud, size_t i, int32_t pos, int32_t n_row, const float *rows,
                       struct err *e);

int windows_run(struct model *m, const struct window *w, size_t n, const struct windows_params *p,
                windows_fn *fn, void *ud, struct err *e);

/* For repeated runs with the same buffers, of windows of at most `longest` tokens. */
struct windows;
int windows_open(struct windows **out, struct model *m, int32_t longest,
                 const struct windows_params *p, struct err *e);
int windows_pass(struct windows *x, const struct window *w, size_t n, windows_fn *fn, void *ud,
                 struct err *e);
void windows_close(struct windows *x);

/* The ids of a text, cut into full windows of ctx tokens; a remainder is left out. If the tokenizer begins texts
 * with a BOS, the BOS replaces the first token of each window, so that windows have the requested length. */
struct windows_text {
    int32_t *tokens; /* owned [n_window * ctx] */
    size_t n_window;
    int32_t ctx;
};
int windows_cut(struct windows_text *out, const struct tok *tok, const char *text, size_t n_text,
                int32_t ctx, struct err *e);
void windows_text_fini(struct windows_text *t);
/* Returns the BOS that the tokenizer puts before a text, or -1. */
int32_t windows_bos(const struct tok *tok);

#endif
