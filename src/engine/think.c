#include "engine/think.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

/* ---- settings ---- */

void think_defaults(struct think_control *c) {
    *c = (struct think_control){
        .window = 32, .min_tokens = 64, .stop = 2, .suppress = 2, .langs = THINK_EN | THINK_FR};
}

bool think_is_on(const struct think_control *c) {
    return c->vocab && (c->stop <= 1 || c->suppress < 1 || (c->extend > 0 && c->unsure > 0));
}

enum part { STOP = 1, SUPPRESS = 2, EXTEND = 4 };

bool think_preset(const char *name, bool *think, struct think_control *c) {
    static const struct {
        const char *name;
        bool think;
        unsigned parts;
    } presets[] = {
        {"fast", false, 0},
        {"think", true, 0},
        {"budget", true, STOP},
        {"cgrs", true, SUPPRESS},
        {"extend", true, EXTEND},
        {"quality", true, STOP | SUPPRESS},
        {"ultra", true, STOP | SUPPRESS | EXTEND},
    };
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(presets[i].name, name) != 0) continue;
        unsigned parts = presets[i].parts;
        *think = presets[i].think;
        c->stop = parts & STOP ? 0.99f : 2;
        c->suppress = parts & SUPPRESS ? 0.9f : 2;
        c->unsure = parts & EXTEND ? 0.7f : 0;
        c->extend = parts & EXTEND ? 2 : 0;
        return true;
    }
    return false;
}

/* ---- certainty ---- */

enum { LANES = 8 };

/* e^x for x <= 0, relative error 2e-7, in a form that compilers vectorise: 2^k from its bits, the rest by a
 * polynomial. */
static inline float exp_below(float x) {
    x = x < -87 ? -87 : x;
    float k = x * 1.44269504f + 12582912.0f; /* rounds to an integer */
    int32_t bits;
    memcpy(&bits, &k, 4);
    k -= 12582912.0f;
    float r = x - k * 0.693359375f + k * 2.12194440e-4f;
    float p =
        1 + r * (1 + r * (0.5f + r * (0.16666667f +
                                      r * (0.041666668f + r * (8.3333e-3f + r * 1.3889e-3f)))));
    int32_t scale = (int32_t)((uint32_t)(bits - 0x4B400000 + 127) << 23);
    float s;
    memcpy(&s, &scale, 4);
    return p * s;
}

void think_look(const float *row, int32_t n, float max, struct think_look *out) {
    double sum = 0, weighted = 0;
    /* short sums in float, so that rounding errors do not accumulate */
    for (int32_t at = 0; at < n; at += 4096) {
        int32_t end = at + 4096 < n ? at + 4096 : n, i = at;
        float s[LANES] = {0}, w[LANES] = {0};
        for (; i + LANES <= end; i += LANES)
            for (int k = 0; k < LANES; k++) {
                float x = row[i + k] - max;
                x = x < -87 ? -87 : x;
                float p = exp_below(x);
                s[k] += p;
                w[k] += p * x;
            }
        for (int k = 0; k < LANES; k++) {
            sum += (double)s[k];
            weighted += (double)w[k];
        }
        for (; i < end; i++) {
            float x = row[i] - max < -87 ? -87 : row[i] - max;
            float p = exp_below(x);
            sum += (double)p;
            weighted += (double)(p * x);
        }
    }
    double h = log(sum) - weighted / sum, most = n > 1 ? log(n) : 1;
    out->best = (float)(1 / sum);
    out->entropy = (float)(h > 0 ? h : 0);
    out->certainty = (float)(0.625 / sum + 0.375 * (1 - (h > 0 ? h : 0) / most));
}

/* ---- classes of tokens ---- */

/* Words that begin a reflection, in lower case. A word of several tokens is recognized by its first token. */
static const struct {
    const char *word;
    enum think_lang lang;
} openers[] = {
    {"wait", THINK_EN},          {"but", THINK_EN},
    {"alternatively", THINK_EN}, {"alternative", THINK_EN},
    {"hmm", THINK_EN},           {"hold", THINK_EN},
    {"actually", THINK_EN},      {"however", THINK_EN},
    {"maybe", THINK_EN},         {"perhaps", THINK_EN},
    {"recheck", THINK_EN},       {"attends", THINK_FR},
    {"attendez", THINK_FR},      {"mais", THINK_FR},
    {"sinon", THINK_FR},         {"alternativement", THINK_FR},
    {"hum", THINK_FR},           {"euh", THINK_FR},
    {"cependant", THINK_FR},     {"toutefois", THINK_FR},
    {"pourtant", THINK_FR},
};

static bool is_blank(unsigned char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Removes characters around a word: spaces, quotes and stars before it, punctuation after it. SPM writes the space
 * before a word as U+2581. */
static struct slice bare(struct slice s) {
    for (;;) {
        if (s.n >= 3 && memcmp(s.p, "\xE2\x96\x81", 3) == 0) s.p += 3, s.n -= 3;
        else if (s.n && (is_blank((unsigned char)*s.p) || strchr("*\"'(-", *s.p))) s.p++, s.n--;
        else break;
    }
    while (s.n && (is_blank((unsigned char)s.p[s.n - 1]) || strchr(",.!?:;*\"')", s.p[s.n - 1])))
        s.n--;
    return s;
}

static bool is_word(struct slice s, const char *word) {
    if (strlen(word) != s.n) return false;
    for (size_t i = 0; i < s.n; i++)
        if (tolower((unsigned char)s.p[i]) != word[i]) return false;
    return true;
}

static uint8_t class_of(struct slice raw) {
    uint8_t c = 0;
    struct slice s = raw;
    if (!s.n) return 0;
    bool spm = s.n >= 3 && memcmp(s.p, "\xE2\x96\x81", 3) == 0;
    if (is_blank((unsigned char)*s.p) || spm) c |= THINK_BLANK;
    if (s.p[s.n - 1] == '\n') c |= THINK_ENDS_LINE;
    if (memchr(s.p, '\n', s.n)) c |= THINK_ENDS_STEP;
    while (s.n && (s.p[s.n - 1] == ' ' || strchr("*\"')", s.p[s.n - 1]))) s.n--;
    if (s.n && strchr(".!?;", s.p[s.n - 1])) c |= THINK_ENDS_STEP;
    s = bare(raw);
    for (size_t i = 0; i < sizeof openers / sizeof *openers; i++)
        if (is_word(s, openers[i].word)) c |= (uint8_t)openers[i].lang;
    return c;
}

static int encode(const struct tok *tok, const char *text, struct think_seq *out, struct err *e) {
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = tok_encode(tok, text, strlen(text), false, false, &ids, &n, e);
    *out = (struct think_seq){.n = 0};
    if (!rc && n <= THINK_MAX_SEQ) {
        memcpy(out->ids, ids, n * sizeof *ids);
        out->n = n;
    }
    mem_free(ids);
    return rc;
}

/* A word that is not a single token is recognized by its first token, if that token is most of the word: "Altern"
 * identifies the word, "H" of "Hmm" does not. */
static int add_first_pieces(struct think_vocab *v, const struct tok *tok, struct err *e) {
    for (size_t i = 0; i < sizeof openers / sizeof *openers; i++) {
        char word[40] = " ";
        size_t n = strlen(openers[i].word);
        memcpy(word + 1, openers[i].word, n + 1);
        word[1] = (char)toupper((unsigned char)word[1]);
        for (int space = 0; space < 2; space++) {
            struct think_seq s;
            int rc = encode(tok, word + !space, &s, e);
            if (rc) return rc;
            if (s.n < 2) continue;
            struct slice first = bare(tok_piece(tok, s.ids[0]));
            if (first.n >= 4 && 2 * first.n >= n) v->classes[s.ids[0]] |= (uint8_t)openers[i].lang;
        }
    }
    return 0;
}

static void add_pairs(struct think_vocab *v, const struct tok *tok) {
    for (int32_t i = 0; i < v->n_vocab && v->n_pair < THINK_MAX_PAIRS; i++) {
        char text[16];
        struct slice s = tok_piece(tok, i);
        if (!(v->classes[i] & THINK_ENDS_STEP) || v->classes[i] & THINK_BLANK || s.n > 4 ||
            memchr(s.p, '\n', s.n))
            continue;
        memcpy(text, s.p, s.n);
        text[s.n] = '\n';
        int32_t line = tok_find(tok, text, s.n + 1);
        if (line < 0) continue;
        v->pairs[v->n_pair].stop = i;
        v->pairs[v->n_pair++].line = line;
    }
}

int think_vocab_new(struct think_vocab **out, const struct tok *tok, struct err *e) {
    *out = NULL;
    struct think_vocab *v = mem_zalloc(sizeof *v);
    if (!v) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    v->n_vocab = (int32_t)tok_n_vocab(tok);
    v->classes = mem_alloc((size_t)v->n_vocab + 1);
    int rc = v->classes ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; !rc && i < v->n_vocab; i++) {
        enum tok_kind kind = tok_kind(tok, i);
        v->classes[i] = kind == TOK_NORMAL || kind == TOK_BYTE ? class_of(tok_piece(tok, i)) : 0;
    }
    if (!rc) rc = add_first_pieces(v, tok, e);
    if (!rc) add_pairs(v, tok);
    if (!rc) rc = encode(tok, "\n", &v->newline, e);
    if (!rc) rc = encode(tok, "Wait,", &v->wait[0], e);
    if (!rc) rc = encode(tok, "Attends,", &v->wait[1], e);
    if (rc) think_vocab_free(v);
    else *out = v;
    return rc;
}

void think_vocab_free(struct think_vocab *v) {
    if (!v) return;
    mem_free(v->classes);
    mem_free(v);
}

int think_n_openers(const struct think_vocab *v, enum think_lang lang) {
    int n = 0;
    for (int32_t i = 0; i < v->n_vocab; i++) n += (v->classes[i] & (unsigned)lang) != 0;
    return n;
}
