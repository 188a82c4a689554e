/* windows.h: pieces of a text through a model, several sequences in one forward.
 *
 * What perplexity, importance matrices and bits per byte share. A window is a run of tokens that starts
 * from nothing; the logits of its scored positions are handed out as they are computed. Windows of one
 * group advance together, a chunk each, so that a forward has as many rows as one long prompt. */
#ifndef CHIMERE_EVAL_WINDOWS_H
#define CHIMERE_EVAL_WINDOWS_H

#include "model/experts.h"
#include "model/forward.h"
#include "text/tok/tok.h"

struct window {
    const int32_t *tokens; /* borrowed */
    int32_t n_tok;
    int32_t first; /* logits of positions first .. n_tok - 2 are wanted; n_tok: of none */
    const struct lora_use *loras; /* borrowed [n_lora] */
    int32_t n_lora;
};

/* Called before each forward pass: a place to wait while others need the device. Nonzero ends the run with that code.
 * fn NULL: nobody waits. */
struct windows_turn {
    int (*fn)(void *ud, struct err *e);
    void *ud; /* borrowed until windows_close */
};

struct windows_params {
    int32_t n_seq;   /* windows of one forward */
    int32_t n_batch; /* tokens of one forward */
    uint32_t k_type, v_type;
    bool whole;       /* the last token of a window runs too, although its row predicts nothing */
    const char *what; /* title of the progress bar; NULL: none */
    struct moe_keep keep;      /* of a mixture's experts */
    struct experts_kept *kept; /* filled by a pass; NULL: not wanted */
    struct windows_turn turn;
};

enum {
    WINDOWS_MAX_SEQS = 64,
    WINDOWS_MAX_TEXT = 1 << 30, /* bytes of a text */
    WINDOWS_MIN_TOK = 8,        /* of a window */
};

/* rows: [n_row, n_vocab] logits that predict tokens[pos + 1], ... of window i; valid during the call.
 * Nonzero ends the run with that code. */
typedef int windows_fn(void *ud, size_t i, int32_t pos, int32_t n_row, const float *rows,
                       struct err *e);

int windows_run(struct model *m, const struct window *w, size_t n, const struct windows_params *p,
                windows_fn *fn, void *ud, struct err *e);

/* The same several times over with one set of buffers, for windows of at most `longest` tokens. */
struct windows;
int windows_open(struct windows **out, struct model *m, int32_t longest,
                 const struct windows_params *p, struct err *e);
int windows_pass(struct windows *x, const struct window *w, size_t n, windows_fn *fn, void *ud,
                 struct err *e);
void windows_close(struct windows *x);

/* A text's ids, cut into full windows of ctx tokens; a rest is left out. Where the tokenizer starts texts
 * with a BOS, it takes the place of each window's first token, so that windows are as long as asked. */
struct windows_text {
    int32_t *tokens; /* owned [n_window * ctx] */
    size_t n_window;
    int32_t ctx;
};
int windows_cut(struct windows_text *out, const struct tok *tok, const char *text, size_t n_text,
                int32_t ctx, struct err *e);
void windows_text_fini(struct windows_text *t);
/* The BOS that the tokenizer puts before a text, or -1. */
int32_t windows_bos(const struct tok *tok);

#endif
