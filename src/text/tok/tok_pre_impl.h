/* tok_pre_impl.h: classes of characters, and the splits that byte-pair tokenizers make before merging; only for
 * tok*.c and their tests. Texts here are well-formed UTF-8 and shorter than 2^31. */
#ifndef CHIMERE_TEXT_TOK_TOK_PRE_IMPL_H
#define CHIMERE_TEXT_TOK_TOK_PRE_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum tok_class { /* bits; letters that are neither upper nor lower are Lm and Lo */
                 CLASS_L = 1,
                 CLASS_N = 2,
                 CLASS_M = 4,
                 CLASS_P = 8,
                 CLASS_S = 16,
                 CLASS_SPACE = 32, /* the property White_Space */
                 CLASS_MN = 64,
                 CLASS_OTHER = 128, /* Cc, Cf, Co */
};
/* Returns the table of 0x110000 classes; the first call in a process builds it. */
const uint8_t *tok_classes(void);
/* Converts text[from..to) for a library that knows Unicode 14: a newer character becomes an older one with the
 * same category and length. Free *out with mem_free; NULL with result 0: there is no newer character. */
int tok_older_text(const char *text, uint32_t from, uint32_t to, char **out);
bool tok_is_digit(uint32_t cp); /* Nd */
bool tok_is_word(uint32_t cp);  /* \w under Unicode rules: L, M, Nd, Nl, Pc */

/* Reads the character at *i of well-formed UTF-8 and advances; no checks. */
static inline uint32_t tok_next_cp(const char *s, size_t *i) {
    const unsigned char *p = (const unsigned char *)s + *i;
    if (p[0] < 0x80) return *i += 1, p[0];
    uint32_t a = p[1] & 63;
    if (p[0] < 0xe0) return *i += 2, (uint32_t)(p[0] & 31) << 6 | a;
    uint32_t b = p[2] & 63;
    if (p[0] < 0xf0) return *i += 3, (uint32_t)(p[0] & 15) << 12 | a << 6 | b;
    return *i += 4, (uint32_t)(p[0] & 7) << 18 | a << 12 | b << 6 | (p[3] & 63);
}

/* Growing array of 32-bit numbers. */
struct tok_ids {
    uint32_t *p; /* owned */
    size_t n, cap;
};
int tok_ids_reserve(struct tok_ids *a, size_t more);
static inline int tok_ids_put(struct tok_ids *a, uint32_t v) {
    if (a->n == a->cap && tok_ids_reserve(a, 1)) return CHIMERE_ENOMEM;
    a->p[a->n++] = v;
    return 0;
}

enum pre_flag {
    PRE_IGNORE_MERGES = 1,  /* a word that is a token is not split */
    PRE_ADD_BOS = 2,        /* default if the file has no setting */
    PRE_RAW = 4,            /* pieces are UTF-8 with U+2581 for a space, not byte-level */
    PRE_NEWLINE_TOKENS = 8, /* a run of newlines that is a token is not split */
    PRE_FORCE_BOS = 16,     /* add BOS even if the file says no */
    PRE_DROP_SPACES = 32,   /* white space separates words and is not encoded */
};

enum pre_step_kind {
    STEP_END,
    STEP_REGEX,    /* matches are words, and so is the text between them */
    STEP_THREES,   /* runs of \p{N} are cut into groups of three from the right */
    STEP_THREES_B, /* the same for \d, only if a word ends after the run */
    STEP_CUT3,     /* cuts inside runs of \d at every third digit from the right; joins nothing */
    STEP_LINES,    /* runs of newlines, runs of anything else */
};
struct pre_step {
    enum pre_step_kind kind;
    const char *regex; /* of STEP_REGEX; PCRE2 with UTF and Unicode properties */
};

enum pre_scan { SCAN_NONE, SCAN_GPT2, SCAN_WORDS };
struct pre_scan_opt {   /* for SCAN_WORDS: the family of llama 3 and Qwen */
    uint8_t letters;    /* classes that form words: CLASS_L or CLASS_L | CLASS_M */
    uint8_t max_digits; /* 1 or 3 */
};

enum { PRE_MAX_STEPS = 6 };
struct pre_def {
    const char *names; /* separated by spaces */
    unsigned flags;
    enum pre_scan scan; /* hand-written equivalent of the steps; SCAN_NONE: the steps run */
    struct pre_scan_opt opt;
    /* in order; each step splits the words of the step before */
    struct pre_step steps[PRE_MAX_STEPS];
};
const struct pre_def *tok_pre_find(const char *name); /* NULL: unknown */
const struct pre_def *tok_pre_at(size_t i);           /* NULL past the end; for tests */

struct tok_pre; /* a compiled pre_def; immutable */
int tok_pre_new(struct tok_pre **out, const struct pre_def *def, bool force_regex, struct err *e);
void tok_pre_free(struct tok_pre *p);
/* Replaces *ends by the end offsets of the words of text[from..to); scratch is work space. No byte is lost,
 * because text that no pattern matches is a word too. */
int tok_pre_split(const struct tok_pre *p, const char *text, uint32_t from, uint32_t to,
                  struct tok_ids *ends, struct tok_ids *scratch, struct err *e);
/* The hand-written scanners; they append. */
int tok_scan_gpt2(const char *text, uint32_t from, uint32_t to, struct tok_ids *ends);
int tok_scan_words(const struct pre_scan_opt *o, const char *text, uint32_t from, uint32_t to,
                   struct tok_ids *ends);

#endif
