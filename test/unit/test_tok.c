/* test_tok.c: tokenizers over small vocabularies made here, against oracles written the slow way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/tok/tok_merge_impl.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 10 /* under a sanitizer: that much less work */
#else
#define SLOW 1
#endif

enum { MAX_PIECES = 2048, MAX_MERGES = 1024 };

/* A specification and the bytes that its slices point to. */
struct set {
    struct tok_spec spec;
    struct slice pieces[MAX_PIECES], merges[MAX_MERGES];
    float scores[MAX_PIECES];
    uint8_t kinds[MAX_PIECES];
    char text[1 << 18];
    size_t n_text;
};

static struct set set; /* one at a time */

static struct slice keep(const char *s, size_t n) {
    assert_true(n <= sizeof set.text - set.n_text);
    char *p = set.text + set.n_text;
    memcpy(p, s, n);
    set.n_text += n;
    return (struct slice){p, n};
}

static uint32_t add_n(const char *s, size_t n, enum tok_kind kind, float score) {
    uint32_t i = set.spec.n_vocab++;
    assert_true(i < MAX_PIECES);
    set.pieces[i] = keep(s, n);
    set.kinds[i] = (uint8_t)kind;
    set.scores[i] = score;
    return i;
}
static uint32_t add(const char *s, enum tok_kind kind, float score) {
    return add_n(s, strlen(s), kind, score);
}

static void add_merge(const char *left, const char *right) {
    char line[512];
    int n = snprintf(line, sizeof line, "%s %s", left, right);
    assert_true(set.spec.n_merges < MAX_MERGES);
    set.merges[set.spec.n_merges++] = keep(line, (size_t)n);
}

static void begin(enum tok_model model, const char *pre) {
    memset(&set.spec, 0, sizeof set.spec);
    set.n_text = 0;
    set.spec = (struct tok_spec){.model = model,
                                 .pre = pre,
                                 .pieces = set.pieces,
                                 .scores = set.scores,
                                 .kinds = set.kinds,
                                 .merges = set.merges,
                                 .bos = -1,
                                 .eos = -1,
                                 .unk = -1,
                                 .sep = -1,
                                 .pad = -1,
                                 .cls = -1,
                                 .mask = -1,
                                 .eot = -1,
                                 .add_bos = 0,
                                 .add_eos = 0,
                                 .add_space_prefix = -1};
}

/* The byte-level alphabet, as its inventors define it: listed, not computed. */
static void alphabet(char out[256][3]) {
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; b++) {
        bool itself =
            (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
        out[b][utf8_encode(itself ? b : next++, out[b])] = 0;
    }
}

static void begin_bytes(const char *pre) {
    static char letters[256][3];
    alphabet(letters);
    begin(TOK_BPE, pre);
    for (int b = 0; b < 256; b++) add(letters[b], TOK_NORMAL, 0);
    set.spec.bos = (int32_t)add("<|bos|>", TOK_CONTROL, 0);
}

static struct tok *build(void) {
    struct tok *t;
    struct err e = {0};
    if (tok_new(&t, &set.spec, &e)) fail_msg("%s", e.text);
    return t;
}

static size_t encode(const struct tok *t, const char *s, size_t n, bool special, int32_t **ids) {
    size_t n_ids;
    struct err e = {0};
    if (tok_encode(t, s, n, special, false, ids, &n_ids, &e)) fail_msg("%s", e.text);
    return n_ids;
}

static void expect_ids(const struct tok *t, const char *text, bool special, const int32_t *want,
                       size_t n) {
    int32_t *ids;
    size_t got = encode(t, text, strlen(text), special, &ids);
    bool same = got == n && (n == 0 || memcmp(ids, want, n * sizeof *want) == 0);
    for (size_t i = 0; !same && i < got; i++) print_error("%d ", ids[i]);
    if (!same) fail_msg("'%s': other ids than expected", text);
    mem_free(ids);
}
#define EXPECT(t, text, special, ...)                                                              \
    expect_ids(t, text, special, (const int32_t[]){__VA_ARGS__},                                   \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* ---- merging against the plain loop over strings ---- */

struct part {
    char s[128];
};

/* Rank of a pair by comparing strings, the first of equal merges; -1: none. */
static int rank_of(const char *left, const char *right) {
    char line[256];
    snprintf(line, sizeof line, "%s %s", left, right);
    for (uint32_t i = 0; i < set.spec.n_merges; i++)
        if (set.merges[i].n == strlen(line) && memcmp(set.merges[i].p, line, set.merges[i].n) == 0)
            return (int)i;
    return -1;
}

static int piece_of(const char *s) {
    for (uint32_t i = 0; i < set.spec.n_vocab; i++)
        if (set.pieces[i].n == strlen(s) && memcmp(set.pieces[i].p, s, set.pieces[i].n) == 0)
            return (int)i;
    return -1;
}

static size_t slow_merge(const char *word, struct part *parts, bool by_score) {
    size_t n = 0;
    for (; word[n]; n++) snprintf(parts[n].s, sizeof parts[n].s, "%c", word[n]);
    for (;;) {
        size_t best = n;
        double best_rank = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char both[256];
            snprintf(both, sizeof both, "%s%s", parts[i].s, parts[i + 1].s);
            int id = by_score ? piece_of(both) : rank_of(parts[i].s, parts[i + 1].s);
            if (id < 0) continue;
            double rank = by_score ? -set.scores[id] : id;
            if (best == n || rank < best_rank) best = i, best_rank = rank;
        }
        if (best == n) return n;
        size_t at = strlen(parts[best].s);
        memmove(parts[best].s + at, parts[best + 1].s, strlen(parts[best + 1].s) + 1);
        memmove(parts + best + 1, parts + best + 2, (n - best - 2) * sizeof *parts);
        n--;
    }
}

static void random_word(struct rng *r, char *out, size_t max, int letters) {
    size_t n = 1 + rng_below(r, max);
    for (size_t i = 0; i < n; i++) out[i] = (char)('a' + rng_below(r, (uint64_t)letters));
    out[n] = 0;
}

static void compare_merges(struct rng *r, const struct tok *t, bool by_score, int letters,
                           size_t max) {
    static struct part parts[128];
    char word[128];
    random_word(r, word, max, letters);
    size_t n = slow_merge(word, parts, by_score);
    for (int linear = 0; linear < 2; linear++) {
        struct enc c = {.t = t};
        assert_int_equal(tok_merge_word(&c, word, (uint32_t)strlen(word), linear), 0);
        bool same = c.out.n == n;
        for (size_t i = 0; same && i < n; i++) {
            struct slice s = tok_piece(t, (int32_t)c.out.p[i]);
            same = s.n == strlen(parts[i].s) && memcmp(s.p, parts[i].s, s.n) == 0;
        }
        if (!same) fail_msg("'%s' merged otherwise (%s)", word, linear ? "loop" : "heap");
        struct tok_ids *all[] = {&c.out, &c.sym, &c.len, &c.prev, &c.to};
        for (size_t i = 0; i < 5; i++) mem_free(all[i]->p);
        mem_free(c.heap);
    }
}

static void bpe_merges_as_the_plain_loop(void **state) {
    (void)state;
    struct rng r;
    rng_seed(&r, 1);
    for (int round = 0; round < 60 / SLOW + 2; round++) {
        int letters = 1 + (int)rng_below(&r, 4);
        begin_bytes("gpt-2");
        for (int m = 0; m < 40; m++) { /* ranks in any order: a product may come before its parts */
            char a[64], b[64], both[130];
            random_word(&r, a, 3, letters);
            random_word(&r, b, 3, letters);
            add_merge(a, b);
            snprintf(both, sizeof both, "%s%s", a, b);
            if (piece_of(both) < 0) add(both, TOK_NORMAL, 0);
        }
        struct tok *t = build();
        for (int i = 0; i < 200; i++) compare_merges(&r, t, false, letters, 100);
        tok_free(t);
    }
}

static void spm_merges_as_the_plain_loop(void **state) {
    (void)state;
    struct rng r;
    rng_seed(&r, 2);
    for (int round = 0; round < 60 / SLOW + 2; round++) {
        int letters = 1 + (int)rng_below(&r, 4);
        begin(TOK_SPM, NULL);
        set.spec.unk = (int32_t)add("<unk>", TOK_UNKNOWN, 0);
        for (int i = 0; i < letters; i++) add((char[]){(char)('a' + i), 0}, TOK_NORMAL, -50);
        for (int m = 0; m < 40; m++) { /* scores repeat, so that ties count */
            char word[64];
            random_word(&r, word, 6, letters);
            if (piece_of(word) < 0) add(word, TOK_NORMAL, -(float)rng_below(&r, 12));
        }
        struct tok *t = build();
        for (int i = 0; i < 200; i++) compare_merges(&r, t, true, letters, 100);
        tok_free(t);
    }
}

/* ---- splits ---- */

static uint32_t random_char(struct rng *r) {
    static const uint32_t common[] = {
        ' ',  ' ',    ' ',  '\n', '\r',   '\t',    '\'',  's',  'S',   'l',    'L',    'r',
        'e',  'V',    'a',  'B',  '1',    '2',     '7',   '.',  '!',   '/',    '-',    0x301,
        0xE9, 0x3000, 0x85, 0xA0, 0x4E16, 0x1F999, 0x17F, 0xB2, 0x660, 0x2028, 0x180E, 0x200B};
    for (;;) {
        uint64_t k = rng_below(r, 100);
        uint32_t c = k < 70   ? common[rng_below(r, sizeof common / sizeof *common)]
                     : k < 80 ? (uint32_t)rng_below(r, 0x80)
                     : k < 95 ? (uint32_t)rng_below(r, 0x3000)
                              : (uint32_t)rng_below(r, 0x110000);
        if (c < 0xD800 || c > 0xDFFF) return c;
    }
}

static uint32_t random_text(struct rng *r, char *out, size_t n_char) {
    uint32_t n = 0;
    for (size_t i = 0; i < n_char; i++) n += (uint32_t)utf8_encode(random_char(r), out + n);
    return n;
}

static void scanners_split_as_their_expressions(void **state) {
    (void)state;
    struct rng r;
    rng_seed(&r, 3);
    static char text[1024];
    size_t n_compared = 0;
    assert_int_equal(tok_classes()[0x1c89], CLASS_L); /* Unicode 16 */
    for (size_t k = 0; tok_pre_at(k); k++) {
        if (tok_pre_at(k)->scan == SCAN_NONE) continue;
        struct tok_pre *fast, *regex;
        assert_int_equal(tok_pre_new(&fast, tok_pre_at(k), false, NULL), 0);
        assert_int_equal(tok_pre_new(&regex, tok_pre_at(k), true, NULL), 0);
        struct tok_ids a = {0}, b = {0}, scratch = {0};
        for (int i = 0; i < 40000 / SLOW; i++) {
            uint32_t n = random_text(&r, text, 1 + rng_below(&r, 24));
            assert_int_equal(tok_pre_split(fast, text, 0, n, &a, &scratch, NULL), 0);
            assert_int_equal(tok_pre_split(regex, text, 0, n, &b, &scratch, NULL), 0);
            if (a.n != b.n || memcmp(a.p, b.p, a.n * sizeof *a.p) != 0)
                fail_msg("%.20s: splits of '%.*s' differ", tok_pre_at(k)->names, (int)n, text);
            n_compared++;
        }
        mem_free(a.p), mem_free(b.p), mem_free(scratch.p);
        tok_pre_free(fast), tok_pre_free(regex);
    }
    assert_true(n_compared > 50000 / SLOW);
}

static void every_split_keeps_every_byte(void **state) {
    (void)state;
    struct rng r;
    rng_seed(&r, 4);
    static char text[4096];
    size_t n_def = 0;
    for (; tok_pre_at(n_def); n_def++) {
        struct tok_pre *p;
        struct err e = {0};
        if (tok_pre_new(&p, tok_pre_at(n_def), false, &e)) fail_msg("%s", e.text);
        struct tok_ids ends = {0}, scratch = {0};
        for (int i = 0; i < 1000 / SLOW; i++) {
            uint32_t n = random_text(&r, text, rng_below(&r, 200)), from = 0;
            assert_int_equal(tok_pre_split(p, text, 0, n, &ends, &scratch, NULL), 0);
            for (size_t k = 0; k < ends.n; k++) {
                assert_true(ends.p[k] > from && ends.p[k] <= n);
                assert_true(ends.p[k] == n || ((unsigned char)text[ends.p[k]] & 0xC0) != 0x80);
                from = ends.p[k];
            }
            assert_int_equal(from, n);
        }
        mem_free(ends.p), mem_free(scratch.p);
        tok_pre_free(p);
    }
    assert_true(n_def > 25);
}

/* Words of a text, separated by bars, as one string. */
static void expect_split(const char *pre, const char *text, const char *want) {
    const struct pre_def *def = tok_pre_find(pre);
    if (!def) fail_msg("no pre-tokenizer %s", pre);
    struct tok_pre *p;
    assert_int_equal(tok_pre_new(&p, def, false, NULL), 0);
    struct tok_ids ends = {0}, scratch = {0};
    assert_int_equal(tok_pre_split(p, text, 0, (uint32_t)strlen(text), &ends, &scratch, NULL), 0);
    char got[512];
    size_t n = 0;
    for (size_t k = 0; k < ends.n; k++) {
        uint32_t from = k ? ends.p[k - 1] : 0;
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", k ? "|" : "",
                              (int)(ends.p[k] - from), text + from);
    }
    if (strcmp(got, want) != 0) fail_msg("%s: got %s, expected %s", pre, got, want);
    mem_free(ends.p), mem_free(scratch.p);
    tok_pre_free(p);
}

/* Expected words worked out by hand from the models' expressions. */
static void known_splits(void **state) {
    (void)state;
    expect_split("gpt-2", "I'm 12345  ok!?\n\nYou'LL", "I|'m| 12345| | ok|!?|\n|\n|You|'|LL");
    expect_split("llama-bpe", "I'm 12345  ok!?\n\nYou'LL", "I|'m| |123|45| | ok|!?\n\n|You|'LL");
    expect_split("qwen2", "a\t1234 \n x", "a|\t|1|2|3|4| \n| x");
    expect_split("qwen2", "re\xCC\x81sume", "re|\xCC\x81sume");
    expect_split("qwen35", "re\xCC\x81sume", "re\xCC\x81sume");
    expect_split("starcoder", "x12 34", "x|1|2| |3|4");
    expect_split("falcon", "a-b 1234!", "a|-|b| |123|4|!");
    expect_split("deepseek-coder", "if x1==22:\n", "if| x|1|==|2|2|:|\n");
    expect_split("deepseek-llm", "if x1==22  ", "if| x|1|==|22|  ");
    expect_split("deepseek-v3", "x=12345 \xE4\xB8\x96", "x|=|123|45| |\xE4\xB8\x96");
    expect_split("gpt-4o",
                 "HelloWorld's \xC3\x89"
                 "COLE 1234",
                 "Hello|World's| \xC3\x89"
                 "COLE| |123|4");
    expect_split("tekken", "HelloWorld's 12", "Hello|World|'s| |1|2");
    expect_split("kimi-k2", "\xE4\xB8\x96\xE7\x95\x8CHelloWorld",
                 "\xE4\xB8\x96\xE7\x95\x8C|Hello|World");
    expect_split("tiny_aya", "1234567 12ab 1234", "1|234|567| |12|ab| |1|234");
    expect_split("superbpe", "a b 12345", "a b |12|345");
    expect_split("afmoe", "x 12345", "x| |12|345");
    expect_split("bloom", "a, b c.", "a|,| b| c|.");
    expect_split("viking", "a 12", "a| |1|2");
    expect_split("exaone-moe", "ab cd\n\n1", "ab cd|\n\n|1");
    expect_split("chameleon", "x  y<sentinel:12>", "x|  |y|<|sentinel|:|1|2|>");
    expect_split("gemma4", "a b\n\nc d", "a b|\n\n|c d");
    expect_split("jais-2", "a     b", "a|    | b");
    assert_null(tok_pre_find("llama"));
    assert_null(tok_pre_find(""));
    assert_null(tok_pre_find("gpt-2 phi-2"));
}

/* ---- special tokens ---- */

/* Longest first, each from left to right in what is left: on a copy where found text is marked. */
static size_t slow_cut(const char *text, bool parse, int32_t *out) {
    size_t n = strlen(text), n_out = 0;
    int owner[256];
    for (size_t i = 0; i < n; i++) owner[i] = -1;
    for (size_t len = n; len > 0; len--)
        for (size_t i = 0; i + len <= n; i++) {
            bool is_free = true;
            for (size_t k = 0; k < len; k++) is_free &= owner[i + k] == -1;
            for (uint32_t id = 0; is_free && id < set.spec.n_vocab; id++) {
                bool special =
                    set.kinds[id] == TOK_USER_DEFINED || (parse && set.kinds[id] == TOK_CONTROL);
                if (!special || set.pieces[id].n != len || memcmp(set.pieces[id].p, text + i, len))
                    continue;
                for (size_t k = 0; k < len; k++) owner[i + k] = k ? -2 : (int)id;
                break;
            }
        }
    for (size_t i = 0; i < n; i++)
        if (owner[i] != -2) out[n_out++] = owner[i] >= 0 ? owner[i] : (unsigned char)text[i];
    return n_out;
}

static void special_tokens_are_cut_longest_first(void **state) {
    (void)state;
    struct rng r;
    rng_seed(&r, 5);
    for (int round = 0; round < 100 / SLOW + 2; round++) {
        begin_bytes("gpt-2");
        for (int i = 0; i < 8; i++) {
            char word[16];
            random_word(&r, word, 5, 3);
            if (piece_of(word) < 0) add(word, rng_below(&r, 2) ? TOK_CONTROL : TOK_USER_DEFINED, 0);
        }
        struct tok *t = build();
        for (int i = 0; i < 200; i++) {
            char text[64];
            int32_t want[64];
            random_word(&r, text, 40, 3);
            bool parse = rng_below(&r, 2);
            expect_ids(t, text, parse, want, slow_cut(text, parse, want));
        }
        tok_free(t);
    }
}

static void control_tokens_need_leave_and_strips_swallow_spaces(void **state) {
    (void)state;
    begin_bytes("gpt-2");
    uint32_t end = add("<|x|>", TOK_CONTROL, 0), user = add("<u>", TOK_USER_DEFINED, 0);
    static uint8_t strips[MAX_PIECES];
    memset(strips, 0, sizeof strips);
    strips[end] = TOK_STRIP_RIGHT;
    strips[user] = TOK_STRIP_LEFT;
    set.spec.strips = strips;
    struct tok *t = build();
    EXPECT(t, "a<|x|>\n\n b", true, 'a', (int32_t)end, 'b');
    EXPECT(t, "a \t<u> b", false, 'a', (int32_t)user, ' ', 'b');
    EXPECT(t, "<|x|>", false, '<', '|', 'x', '|', '>');
    assert_int_equal(tok_find(t, "<|x|>", 5), end);
    assert_int_equal(tok_find(t, "<|y|>", 5), -1);
    assert_int_equal(tok_kind(t, (int32_t)user), TOK_USER_DEFINED);
    assert_int_equal(tok_piece(t, -1).n, 0);
    assert_int_equal(tok_piece(t, 1 << 30).n, 0);
    tok_free(t);
}

static void bos_eos_and_ends_of_generation(void **state) {
    (void)state;
    begin_bytes("gpt-2");
    set.spec.eos = (int32_t)add("<|endoftext|>", TOK_CONTROL, 0);
    uint32_t im_end = add("<|im_end|>", TOK_NORMAL, 0), other = add("<|stop|>", TOK_CONTROL, 0);
    set.spec.add_bos = set.spec.add_eos = 1;
    set.spec.eog = (const int32_t[]){(int32_t)other};
    set.spec.n_eog = 1;
    struct tok *t = build();
    int32_t *ids;
    size_t n;
    assert_int_equal(tok_encode(t, "a", 1, false, true, &ids, &n, NULL), 0);
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], set.spec.bos);
    assert_int_equal(ids[2], set.spec.eos);
    mem_free(ids);
    assert_true(tok_is_eog(t, set.spec.eos) && tok_is_eog(t, (int32_t)im_end) &&
                tok_is_eog(t, (int32_t)other));
    assert_false(tok_is_eog(t, 'a') || tok_is_eog(t, -1) || tok_is_eog(t, set.spec.bos));
    assert_int_equal(tok_kind(t, (int32_t)im_end), TOK_CONTROL); /* whatever the file says */
    uint64_t hash = tok_hash(t);
    tok_free(t);
    set.kinds['a'] = TOK_UNUSED;
    t = build();
    assert_true(tok_hash(t) != hash);
    tok_free(t);
}

/* ---- kinds ---- */

static void spm_spells_the_unknown_in_bytes(void **state) {
    (void)state;
    begin(TOK_SPM, NULL);
    set.spec.unk = (int32_t)add("<unk>", TOK_UNKNOWN, 0);
    set.spec.bos = (int32_t)add("<s>", TOK_CONTROL, 0);
    for (int b = 0; b < 256; b++) {
        char s[8];
        snprintf(s, sizeof s, "<0x%02X>", (unsigned)b);
        add(s, TOK_BYTE, 0);
    }
    int32_t space = (int32_t)add("\xE2\x96\x81", TOK_NORMAL, -5),
            a = (int32_t)add("a", TOK_NORMAL, -6);
    int32_t space_a = (int32_t)add("\xE2\x96\x81"
                                   "a",
                                   TOK_NORMAL, -1),
            two = (int32_t)add("  ", TOK_USER_DEFINED, 0);
    struct tok *t = build();
    EXPECT(t, "a", false, space_a);
    EXPECT(t, "aa a", false, space_a, a, space_a);
    EXPECT(t, "\n\xC3\xA9", false, space, 2 + '\n', 2 + 0xC3, 2 + 0xA9);
    EXPECT(t,
           "a\xFF\xE2\x96"
           "a",
           false, space_a, 2 + 0xFF, 2 + 0xE2, 2 + 0x96, a);
    EXPECT(t, "a  a", false, space_a, two,
           space_a); /* text behind a special token gets its space */
    EXPECT(t, "<s>a", false, space, 2 + '<', 2 + 's', 2 + '>', a);
    EXPECT(t, "<s>a", true, 1, space_a);
    int32_t *ids;
    assert_int_equal(encode(t, "", 0, false, &ids), 0);
    mem_free(ids);
    tok_free(t);
    set.spec.add_space_prefix = 0;
    t = build();
    EXPECT(t, "a", false, a);
    tok_free(t);
}

static void words_reach_across_a_space_where_tokens_do(void **state) {
    (void)state;
    begin(TOK_SPM, NULL);
    set.spec.unk = (int32_t)add("<unk>", TOK_UNKNOWN, 0);
    set.spec.add_space_prefix = 0;
    int32_t a = (int32_t)add("a", TOK_NORMAL, -9),
            space = (int32_t)add("\xE2\x96\x81", TOK_NORMAL, -9);
    int32_t b = (int32_t)add("b", TOK_NORMAL, -9),
            a_space = (int32_t)add("a\xE2\x96\x81", TOK_NORMAL, -1);
    struct tok *t = build();
    EXPECT(t, "a b a", false, a_space, b, space, a);
    tok_free(t);
}

static void wordpiece_normalises_and_falls_back(void **state) {
    (void)state;
    begin(TOK_WORDPIECE, NULL);
    set.spec.unk = (int32_t)add("[UNK]", TOK_UNKNOWN, 0);
    set.spec.bos = (int32_t)add("[CLS]", TOK_CONTROL, 0);
    set.spec.sep = (int32_t)add("[SEP]", TOK_CONTROL, 0);
    set.spec.add_bos = -1;
    int32_t un = (int32_t)add("\xE2\x96\x81un", TOK_NORMAL, 0),
            able = (int32_t)add("able", TOK_NORMAL, 0);
    int32_t cafe = (int32_t)add("\xE2\x96\x81"
                                "cafe",
                                TOK_NORMAL, 0),
            dot = (int32_t)add("\xE2\x96\x81.", TOK_NORMAL, 0);
    int32_t han = (int32_t)add("\xE2\x96\x81\xE4\xB8\x96", TOK_NORMAL, 0);
    struct tok *t = build();
    EXPECT(t, "UNable", false, un, able);
    EXPECT(t, "Caf\xC3\x89. unx", false, cafe, dot, set.spec.unk);
    EXPECT(t, "cafe\xCC\x81\xE4\xB8\x96\xE4\xB8\x96un", false, cafe, han, han, un);
    EXPECT(t,
           "un\x01"
           "able\xEF\xBF\xBD",
           false, un, able); /* controls vanish */
    int32_t *ids;
    size_t n;
    assert_int_equal(tok_encode(t, "un", 2, false, true, &ids, &n, NULL), 0);
    assert_true(n == 3 && ids[0] == set.spec.bos && ids[1] == un && ids[2] == set.spec.sep);
    mem_free(ids);
    tok_free(t);
    set.spec.lowercase = set.spec.strip_accents = -1;
    t = build();
    EXPECT(t, "CAFE un", false, set.spec.unk, un);
    tok_free(t);
}

static void unigram_takes_the_best_sum(void **state) {
    (void)state;
    begin(TOK_UNIGRAM, NULL);
    set.spec.unk = (int32_t)add("<unk>", TOK_UNKNOWN, 0);
    int32_t space = (int32_t)add("\xE2\x96\x81", TOK_NORMAL, -3),
            a = (int32_t)add("a", TOK_NORMAL, -1);
    int32_t ab = (int32_t)add("ab", TOK_NORMAL, -3), b = (int32_t)add("b", TOK_NORMAL, -2.5f);
    int32_t bb = (int32_t)add("bb", TOK_NORMAL, -2), space_a = (int32_t)add("\xE2\x96\x81"
                                                                            "a",
                                                                            TOK_NORMAL, -2);
    set.spec.add_space_prefix = 1;
    set.spec.remove_extra_whitespace = true;
    struct tok *t = build();
    EXPECT(t, "ab", false, space_a, b);   /* -4.5, the others: -6 and -6.5 */
    EXPECT(t, "abb", false, space_a, bb); /* -4 */
    EXPECT(t, "  b   a ", false, space, b, space_a);
    EXPECT(t, "bxyb", false, space, b, 0, b); /* one unknown for both */
    EXPECT(t, "xx xx", false, space, 0, space, 0);
    (void)a, (void)ab;
    tok_free(t);
}

/* A charsmap of one rule, built by hand: "A" becomes "bb". Units: root, then the node of 'A' = 0x41. */
static void unigram_normalises_by_its_table(void **state) {
    (void)state;
    static unsigned char map[4 + 4 * 256 + 4];
    memset(map, 0, sizeof map);
    map[1] = 4; /* 1,024 bytes of units */
    uint32_t root = 0u << 10, node = 1u << 8 | 0x41u | (0x80u << 10), leaf = 1u << 31;
    memcpy(map + 4, &root, 4);
    memcpy(map + 4 + 4 * 0x41, &node, 4);
    memcpy(map + 4 + 4 * (0x41 ^ 0x80), &leaf, 4);
    memcpy(map + 4 + 1024, "bb", 3);
    begin(TOK_UNIGRAM, NULL);
    set.spec.unk = (int32_t)add("<unk>", TOK_UNKNOWN, 0);
    int32_t b = (int32_t)add("b", TOK_NORMAL, -1);
    set.spec.charsmap = (struct slice){(char *)map, sizeof map};
    struct tok *t = build();
    EXPECT(t, "bA", false, b, b, b);
    tok_free(t);
    struct err e = {0};
    for (size_t n = 1; n < sizeof map; n++) { /* every truncation is refused or harmless */
        char *copy = mem_strndup((char *)map, n);
        set.spec.charsmap = (struct slice){copy, n};
        if (tok_new(&t, &set.spec, &e) == 0) {
            int32_t *ids;
            encode(t, "bAb", 3, false, &ids);
            mem_free(ids);
            tok_free(t);
        }
        mem_free(copy);
    }
}

static void raw_bpe_takes_lines_and_newline_tokens(void **state) {
    (void)state;
    begin(TOK_BPE, "gemma4");
    for (int b = 0; b < 256; b++) {
        char s[8];
        snprintf(s, sizeof s, "<0x%02X>", (unsigned)b);
        add(s, TOK_BYTE, 0);
    }
    set.spec.bos = (int32_t)add("<bos>", TOK_CONTROL, 0);
    int32_t lines = (int32_t)add("\n\n\n", TOK_NORMAL, 0), a = (int32_t)add("a", TOK_NORMAL, 0);
    int32_t space = (int32_t)add("\xE2\x96\x81", TOK_NORMAL, 0),
            space_a = (int32_t)add("\xE2\x96\x81"
                                   "a",
                                   TOK_NORMAL, 0);
    add_merge("\xE2\x96\x81", "a");
    struct tok *t = build();
    EXPECT(t, "a a\n\n\na", false, a, space_a, lines, a);
    EXPECT(t, " \xC3\xA9\n", false, space, 0xC3, 0xA9, '\n');
    EXPECT(t,
           "\xE2\x96\x81"
           "a",
           false, space_a);
    tok_free(t);
}

static void lone_words_drop_their_spaces(void **state) {
    (void)state;
    begin(TOK_BPE, "whitespace");
    int32_t a = (int32_t)add("a", TOK_NORMAL, 0), b = (int32_t)add("b", TOK_NORMAL, 0),
            ab = (int32_t)add("ab", TOK_NORMAL, 0);
    add_merge("a", "b");
    struct tok *t = build();
    EXPECT(t,
           " ab a\xC2\xA0"
           "b\n",
           false, ab, a, b);
    tok_free(t);
}

/* ---- bytes and streams ---- */

static void bytes_come_back(void **state) {
    (void)state;
    static const char *const pres[] = {"gpt-2",  "qwen35", "deepseek-llm",
                                       "gpt-4o", "bloom",  "default"};
    struct rng r;
    rng_seed(&r, 6);
    for (size_t k = 0; k < sizeof pres / sizeof *pres; k++) {
        begin_bytes(pres[k]);
        add_merge("a", "b");
        add("ab", TOK_NORMAL, 0);
        add("<|im_end|>", TOK_CONTROL, 0);
        struct tok *t = build();
        for (int i = 0; i < 2000 / SLOW; i++) {
            char in[200], out[400];
            size_t n = rng_below(&r, sizeof in), n_out = 0;
            for (size_t b = 0; b < n; b++)
                in[b] =
                    rng_below(&r, 2) ? (char)rng_next(&r) : "ab \n'\xE2\x96\x81"[rng_below(&r, 8)];
            int32_t *ids;
            size_t n_ids = encode(t, in, n, false, &ids);
            struct tok_stream s;
            tok_stream_init(&s, t, true);
            for (size_t b = 0; b < n_ids; b++) {
                struct slice p = tok_stream_bytes(&s, ids[b]);
                memcpy(out + n_out, p.p, p.n);
                n_out += p.n;
            }
            assert_int_equal(n_out, n);
            assert_memory_equal(in, out, n);
            mem_free(ids);
        }
        tok_free(t);
    }
}

/* What U+FFFD for each maximal broken part makes of bytes, one state at a time. */
static size_t repair(const unsigned char *s, size_t n, char *out) {
    size_t n_out = 0;
    for (size_t i = 0; i < n;) {
        unsigned char c = s[i];
        int more = c < 0x80                 ? 0
                   : c >= 0xC2 && c <= 0xDF ? 1
                   : c >= 0xE0 && c <= 0xEF ? 2
                   : c >= 0xF0 && c <= 0xF4 ? 3
                                            : -1;
        size_t k = 1;
        for (; more > 0 && (int)k <= more && i + k < n; k++) {
            unsigned char low = 0x80, high = 0xBF;
            if (k == 1 && c == 0xE0) low = 0xA0;
            if (k == 1 && c == 0xED) high = 0x9F;
            if (k == 1 && c == 0xF0) low = 0x90;
            if (k == 1 && c == 0xF4) high = 0x8F;
            if (s[i + k] < low || s[i + k] > high) break;
        }
        bool good = more >= 0 && (int)k == more + 1;
        memcpy(out + n_out, good ? (const char *)s + i : "\xEF\xBF\xBD", good ? k : 3);
        n_out += good ? k : 3;
        i += k;
    }
    return n_out;
}

static void streams_emit_whole_characters_and_lose_nothing(void **state) {
    (void)state;
    begin(TOK_BPE, "gpt-2");
    static char letters[256][3];
    alphabet(letters);
    for (int b = 0; b < 256; b++) add(letters[b], TOK_NORMAL, 0);
    static const unsigned char bytes[] = {'a',  0x80, 0xBF, 0xC3, 0xE2, 0x82, 0xAC, 0xF0, 0x9F,
                                          0xA6, 0x99, 0xED, 0xA0, 0xC0, 0xFF, 0xF4, 0x90, 0xE0};
    struct rng r;
    rng_seed(&r, 7);
    for (int i = 0; i < 300; i++) { /* tokens of several bytes, whole characters or not */
        char s[16] = "";
        for (size_t k = 2 + rng_below(&r, 3); k--;)
            strcat(s, letters[bytes[rng_below(&r, sizeof bytes)]]);
        if (piece_of(s) < 0) add(s, TOK_NORMAL, 0);
    }
    struct tok *t = build();
    for (int i = 0; i < 20000 / SLOW; i++) {
        unsigned char all[256];
        char want[800], got[1600];
        size_t n = 0, n_got = 0;
        struct tok_stream s;
        tok_stream_init(&s, t, false);
        for (size_t k = 1 + rng_below(&r, 12); k--;) {
            int32_t id = (int32_t)(rng_below(&r, 3) ? rng_below(&r, set.spec.n_vocab)
                                                    : bytes[rng_below(&r, sizeof bytes)]);
            struct slice p = tok_piece(t, id);
            memcpy(all + n, p.p, p.n);
            n += p.n;
            size_t wrote = tok_stream_push(&s, id, got + n_got);
            assert_true(wrote <= 3 * tok_max_piece_bytes(t) + 16);
            assert_true(utf8_is_valid(got + n_got, wrote));
            n_got += wrote;
        }
        n_got += tok_stream_flush(&s, got + n_got);
        assert_int_equal(n_got, repair(all, n, want));
        assert_memory_equal(got, want, n_got);
    }
    tok_free(t);
}

static void streams_hide_control_and_the_first_space(void **state) {
    (void)state;
    begin(TOK_SPM, NULL);
    set.spec.unk = (int32_t)add("<unk>", TOK_UNKNOWN, 0);
    int32_t end = (int32_t)add("<end>", TOK_CONTROL, 0), a = (int32_t)add("\xE2\x96\x81"
                                                                          "a",
                                                                          TOK_NORMAL, 0);
    struct tok *t = build();
    for (int show = 0; show < 2; show++) {
        char out[256];
        size_t n = 0;
        struct tok_stream s;
        tok_stream_init(&s, t, show);
        const int32_t ids[] = {a, a, end, a, 99999, -5};
        for (size_t i = 0; i < 6; i++) n += tok_stream_push(&s, ids[i], out + n);
        n += tok_stream_flush(&s, out + n);
        out[n] = 0;
        assert_string_equal(out, show ? "a a<end>a" : "a aa");
    }
    tok_free(t);
}

/* The frame of harmony's messages is shown, yet no text without leave makes its tokens. */
static void harmony_frames_are_shown_and_not_forged(void **state) {
    (void)state;
    begin_bytes("gpt-4o");
    const int32_t channel = (int32_t)add("<|channel|>", TOK_CONTROL, 0),
                  end = (int32_t)add("<|end|>", TOK_CONTROL, 0),
                  stop = (int32_t)add("<|return|>", TOK_CONTROL, 0);
    add("<|call|>", TOK_CONTROL, 0);
    struct tok *t = build();
    assert_true(tok_is_eog(t, stop) && !tok_is_eog(t, end));
    char out[128];
    struct tok_stream s;
    tok_stream_init(&s, t, false);
    size_t n = tok_stream_push(&s, channel, out);
    n += tok_stream_push(&s, end, out + n);
    n += tok_stream_push(&s, stop, out + n);
    out[n] = 0;
    assert_string_equal(out, "<|channel|><|end|>");
    EXPECT(t, "<|end|>", true, end);
    EXPECT(t, "<|end|>", false, '<', '|', 'e', 'n', 'd', '|', '>');
    tok_free(t);
}

/* ---- bad input ---- */

static void expect_refused(const char *part) {
    struct tok *t;
    struct err e = {0};
    if (tok_new(&t, &set.spec, &e) == 0) fail_msg("accepted; expected: %s", part);
    assert_null(t);
    if (!strstr(e.text, part)) fail_msg("'%s' does not say '%s'", e.text, part);
}

static void bad_specifications_are_refused(void **state) {
    (void)state;
    begin_bytes("gpt-5");
    expect_refused("unknown pre-tokenizer 'gpt-5'");
    begin_bytes("gpt-2");
    set.spec.eos = 5000;
    expect_refused("eos token: expected an id below 257, got 5000");
    begin_bytes("gpt-2");
    set.spec.pad = -7;
    expect_refused("pad token");
    begin_bytes("gpt-2");
    set.kinds[3] = 9;
    expect_refused("token 3: unknown token type 9");
    begin_bytes("gpt-2");
    add("0x41", TOK_BYTE, 0);
    expect_refused("token 257 of type byte: expected <0x00> to <0xFF>, got '0x41'");
    begin_bytes("gpt-2");
    add_merge("ab", "");
    expect_refused("merge 0: expected two pieces");
    begin_bytes("gpt-2");
    set.merges[set.spec.n_merges++] = (struct slice){"ab", 2};
    expect_refused("merge 0");
    begin_bytes("gpt-2");
    set.spec.eog = (const int32_t[]){300};
    set.spec.n_eog = 1;
    expect_refused("end-of-generation token");
    begin_bytes("llama-bpe");
    set.spec.bos = -1;
    set.spec.add_bos = -1;
    expect_refused("asks for a BOS token");
    begin(TOK_SPM, NULL);
    add("a", TOK_NORMAL, NAN);
    expect_refused("score of token 0: expected a number, got nan");
    begin(TOK_SPM, NULL);
    expect_refused("expected 1 to");
    begin(TOK_WORDPIECE, NULL);
    add("a", TOK_NORMAL, 0);
    expect_refused("without unknown token");
}

/* Each allocation fails once; nothing leaks (the sanitizer's business) and the next try works. */
static void every_failing_allocation_is_reported(void **state) {
    (void)state;
    const enum tok_model models[] = {TOK_BPE, TOK_BPE,       TOK_BPE,
                                     TOK_SPM, TOK_WORDPIECE, TOK_UNIGRAM};
    const char *const pres[] = {"qwen2", "deepseek-llm", "gemma4", NULL, NULL, NULL};
    static char text[6000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "ab \xFF"
                  "ab<u>\n"[i % 10];
    for (size_t m = 0; m < 6; m++) {
        begin_bytes(pres[m] ? pres[m] : "gpt-2");
        set.spec.model = models[m];
        set.spec.unk = (int32_t)add("<unk>", TOK_UNKNOWN, 0);
        add("ab", TOK_NORMAL, 0);
        add("<u>", TOK_USER_DEFINED, 0);
        add_merge("a", "b");
        set.spec.bos = set.spec.sep = 256;
        int n_failed = 0;
        for (int64_t nth = 1;; nth++) {
            struct tok *t;
            int32_t *ids = NULL;
            size_t n;
            struct err e = {0};
            mem_fail_nth(nth);
            int64_t before = mem_alloc_count();
            int rc = tok_new(&t, &set.spec, &e);
            if (rc == 0) rc = tok_encode(t, text, sizeof text, false, true, &ids, &n, &e);
            mem_fail_nth(0);
            mem_free(ids);
            tok_free(t);
            if (rc == 0 && mem_alloc_count() - before < nth) break;
            if (rc == 0) continue; /* without its just-in-time compiler PCRE2 works too */
            assert_int_equal(rc, CHIMERE_ENOMEM);
            assert_true(e.text[0] != 0);
            n_failed++;
        }
        assert_true(n_failed > 10);
    }
}

/* ---- long runs ---- */

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A quadratic step anywhere would take hours on these; the bound is some fifty times what they need. */
static void long_runs_take_linear_time(void **state) {
    (void)state;
    static const char *const units[] = {"a",
                                        "A",
                                        " ",
                                        "7",
                                        "\n",
                                        "<",
                                        "a ",
                                        " \n",
                                        "'",
                                        "\xF0\x9F\xA6\x99",
                                        "\xE4\xB8\x96",
                                        "\xCC\x81",
                                        "\xFF",
                                        "\xE2\x96\x81",
                                        "aA",
                                        ", ",
                                        "\t",
                                        "<u",
                                        "\xC2\xA0"};
    const size_t n = 500000 / SLOW;
    char *text = mem_alloc(n + 8);
    assert_non_null(text);
    for (size_t k = 0; tok_pre_at(k); k++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(tok_pre_at(k)->names, " "),
                 tok_pre_at(k)->names);
        begin_bytes(name);
        add_merge("a", "a");
        add_merge("aa", "aa");
        add("aa", TOK_NORMAL, 0);
        add("aaaa", TOK_NORMAL, 0);
        add("<u>", TOK_USER_DEFINED, 0);
        for (int i = 2; i < 26; i++)
            add_n("                         ", (size_t)i, TOK_USER_DEFINED, 0);
        struct tok *t = build();
        double start = cpu_seconds();
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t n_unit = strlen(units[u]), n_text = 0;
            for (; n_text + n_unit < n; n_text += n_unit) memcpy(text + n_text, units[u], n_unit);
            text[n_text - 1] = 'x'; /* the run ends in something else */
            int32_t *ids;
            encode(t, text, n_text, false, &ids);
            mem_free(ids);
        }
        double seconds = cpu_seconds() - start;
        if (seconds > 300) fail_msg("%s: %.0f s", name, seconds);
        tok_free(t);
    }
    mem_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_merges_as_the_plain_loop),
        cmocka_unit_test(spm_merges_as_the_plain_loop),
        cmocka_unit_test(scanners_split_as_their_expressions),
        cmocka_unit_test(every_split_keeps_every_byte),
        cmocka_unit_test(known_splits),
        cmocka_unit_test(special_tokens_are_cut_longest_first),
        cmocka_unit_test(control_tokens_need_leave_and_strips_swallow_spaces),
        cmocka_unit_test(bos_eos_and_ends_of_generation),
        cmocka_unit_test(spm_spells_the_unknown_in_bytes),
        cmocka_unit_test(words_reach_across_a_space_where_tokens_do),
        cmocka_unit_test(wordpiece_normalises_and_falls_back),
        cmocka_unit_test(unigram_takes_the_best_sum),
        cmocka_unit_test(unigram_normalises_by_its_table),
        cmocka_unit_test(raw_bpe_takes_lines_and_newline_tokens),
        cmocka_unit_test(lone_words_drop_their_spaces),
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(streams_emit_whole_characters_and_lose_nothing),
        cmocka_unit_test(streams_hide_control_and_the_first_space),
        cmocka_unit_test(harmony_frames_are_shown_and_not_forged),
        cmocka_unit_test(bad_specifications_are_refused),
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(long_runs_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
