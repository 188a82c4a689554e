/* llama_fake.h: what test_llama.c and the object that it loads in place of libllama agree on. */
#ifndef TEST_LLAMA_FAKE_H
#define TEST_LLAMA_FAKE_H

#include <stdint.h>

enum {
    FAKE_ABORT = 77,    /* a token at which it aborts */
    FAKE_FAIL = 78,     /* and one at which a run fails */
    FAKE_RECURRENT = 7, /* n_gpu_layers: its memory cannot forget a part */
    FAKE_MAX_POS = 4096,
    FAKE_ROW_EMBD = 4, /* of an image's row: the token that it counts as, rows that run at once */
    FAKE_ROW_MAX = 100,
    FAKE_PICTURE_AT = 33, /* in its file: 'c', 'w' (whole) or 'A' (aborts), rows, seed */
    FAKE_LORA_SHIFT = 13  /* that an adapter of scale 1 adds to the likeliest token */
};

/* The likeliest token depends on all tokens before it, so that a state that was mixed up shows. Mostly it also repeats
 * a short cycle, so that drafts are made: some are accepted, others refused. */
static inline int32_t fake_next(const int32_t *tokens, int32_t n, int32_t n_vocab) {
    uint64_t h = 14695981039346656037u;
    for (int32_t i = 0; i < n; i++) h = (h ^ (uint64_t)(uint32_t)tokens[i]) * 1099511628211u;
    if (h >> 40 & 7) return 100 + (tokens[n - 1] * 31 + 7) % 5;
    return 100 + (int32_t)((h >> 33) % (uint64_t)(n_vocab - 200));
}

/* What row r of a picture counts as. */
static inline int32_t fake_row(int seed, int32_t r) { return 400 + (seed * 7 + r * 13) % 1000; }

#endif
