/* tok_pre.c: the table of pre-tokenizers by the names used in GGUF files, and the code that runs their steps.
 *
 * The expressions are those of the models' own tokenizers, with three changes. \s is written out as White_Space,
 * because PCRE2's \s differs (U+180E). Repetitions that never need to backtrack are possessive, so that no input
 * makes the matcher keep a stack. Contractions in any case are ASCII only. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "text/tok/tok_pre_impl.h"

/* clang-format off */
#define S "\\p{Z}\\t-\\r\\x{85}" /* inside [] */
#define WS "[" S "]"
#define NL "\\r\\n"
#define ABBR "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])"
#define TAIL "|" WS "*[" NL "]++|" WS "+(?![^" S "])|" WS "++"
/* Letters that may be in the upper-case part of a word in mixed case, and in the lower-case part. */
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CASED_IN(upper, lower, abbr)                                                               \
    "[^" NL "\\p{L}\\p{N}]?" upper "*" lower "++" abbr "|[^" NL "\\p{L}\\p{N}]?" upper "++" lower      \
    "*+" abbr
#define CASED(abbr) CASED_IN("[" UPPER "]", "[" LOWER "]", abbr)
/* The same letters without Han, written as the complement of everything else. */
#define NOT_HAN(half) "[^" half "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"

#define GPT2                                                                                       \
    "'(?:[stmd]|re|ve|ll)| ?\\p{L}++| ?\\p{N}++| ?[^" S "\\p{L}\\p{N}]++|" WS "+(?![^" S "])"
#define WORDS(letters, digits)                                                                     \
    ABBR "|[^" NL "\\p{L}\\p{N}]?[" letters "]++|\\p{N}" digits "| ?[^" S letters "\\p{N}]++[" NL  \
         "]*+" TAIL
#define O200K                                                                                      \
    CASED("(?:" ABBR ")?") "|\\p{N}{1,3}+| ?[^" S "\\p{L}\\p{N}]++[" NL "/]*+" TAIL
#define ASCII_PUNCT "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK3                                                                                  \
    ASCII_PUNCT "[A-Za-z]++|[^" NL "\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]++| ?[\\p{P}\\p{S}]++"
#define KANA_HAN "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]++"
#define HANGUL_HAN "[\\x{800}-\\x{9FA5}\\x{AC00}-\\x{D7FF}]++"
#define FINNISH " ?[^(" S "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]++"
#define RE(text) {STEP_REGEX, text}

/* Letters with case in the deepseek-llm expression. */
#define CASED_LETTERS \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}" \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}" \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}" \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}" \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}" \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}" \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}" \
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}" \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}" \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}" \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}" \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}" \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}" \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}" \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}" \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}" \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}" \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

static const struct pre_def defs[] = {
    {.names = "default",
     .steps = {RE("[\\p{P}$+<=>^~|]++"), RE(GPT2), RE("\\p{N}++"), RE("[0-9][0-9][0-9]")}},
    {.names = "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert "
              "jina-v1-en jina-v2-code roberta-bpe mpt olmo jais trillion granite-docling exaone4",
     .scan = SCAN_GPT2,
     .steps = {RE(GPT2)}},
    {.names = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .flags = PRE_IGNORE_MERGES | PRE_ADD_BOS,
     .scan = SCAN_WORDS,
     .opt = {CLASS_L, 3},
     .steps = {RE(WORDS("\\p{L}", "{1,3}+"))}},
    {.names = "dbrx smaug-bpe chatglm-bpe glm4",
     .scan = SCAN_WORDS,
     .opt = {CLASS_L, 3},
     .steps = {RE(WORDS("\\p{L}", "{1,3}+"))}},
    {.names = "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
     .scan = SCAN_WORDS,
     .opt = {CLASS_L, 1},
     .steps = {RE(WORDS("\\p{L}", ""))}},
    {.names = "qwen35",
     .scan = SCAN_WORDS,
     .opt = {CLASS_L | CLASS_M, 1},
     .steps = {RE(WORDS("\\p{L}\\p{M}", ""))}},
    /* \s*[\r\n]+ is tried only once per run of spaces: after a plain space no line end follows. */
    {.names = "jais-2",
     .steps = {RE(ABBR "|[^" NL "\\p{L}\\p{N}]?\\p{L}++|\\p{N}{1,3}+| ?[^" S "\\p{L}\\p{N}]++[" NL
                       "]*+|(?<![\\p{Z}\\t\\x0B\\f\\x{85}])" WS "*[" NL "]++|" WS "{512}(?![^" S "])|" WS "{256}(?![^" S "])|" WS
                       "{128}(?![^" S "])|" WS "{64}(?![^" S "])|" WS "{32}(?![^" S "])|" WS
                       "{16}(?![^" S "])|" WS "{8}(?![^" S "])|" WS "{4}(?![^" S "])|" WS
                       "{1,2}(?![^" S "])|" WS)}},
    {.names = "minicpm5",
     .flags = PRE_IGNORE_MERGES,
     .steps = {RE("\\p{N}{1,3}+"), RE(WORDS("\\p{L}", "++"))}},
    {.names = "deepseek-llm",
     .steps = {RE("[\\r\\n]"), RE(WS "?[" CASED_LETTERS "]++"),
               RE(WS "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"
                     "\\x{3000}-\\x{3002}]++"),
               RE("(?<!" WS ")" WS "++\\z"), RE(HANGUL_HAN), RE("\\p{N}++")}},
    {.names = "deepseek-coder",
     .steps = {RE("[\\r\\n]"), RE(WS "?\\p{L}++"), RE(WS "?\\p{P}++"), RE(HANGUL_HAN), RE("\\p{N}")}},
    {.names = "deepseek-v3 hunyuan-dense hy_v4 joyai-llm",
     .steps = {RE("\\p{N}{1,3}+"), RE(KANA_HAN), RE(DEEPSEEK3 "[" NL "]*+" TAIL)}},
    {.names = "spark2_5",
     .steps = {RE("\\p{N}{1,3}+"), RE(KANA_HAN),
               RE(DEEPSEEK3 "|[" NL "]|" WS "+(?![^" S "])|" WS "++"), RE("\\p{N}")}},
    {.names = "youtu",
     .flags = PRE_IGNORE_MERGES,
     .steps = {RE("[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]++|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}"
                  "\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}"
                  "\\x{FE30}-\\x{FE4F}]++|[\\x{3105}-\\x{312F}]++|" KANA_HAN),
               RE(CASED("(?:" ABBR ")?") "|\\p{N}| ?[^" S "\\p{L}\\p{N}]++[" NL "/]*+" TAIL)}},
    {.names = "falcon",
     .steps = {RE("[\\p{P}$+<=>^~|`]++"), RE(GPT2), RE("[0-9][0-9][0-9]")}},
    {.names = "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
     .steps = {RE("\\p{N}"), RE(GPT2)}},
    {.names = "exaone-moe",
     .steps = {RE(ABBR "|[^" NL "\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| ?[^" S
                       "\\p{L}\\p{N}]++[" NL "/]?|" WS "*[" NL "]|" WS "+(?![^" S "])|" WS "++")}},
    {.names = "poro-chat bloom gpt3-finnish", .steps = {RE(FINNISH)}},
    {.names = "viking", .steps = {RE(FINNISH), RE("\\p{N}")}},
    {.names = "tekken",
     .flags = PRE_IGNORE_MERGES | PRE_ADD_BOS,
     .steps = {RE(CASED("") "|\\p{N}| ?[^" S "\\p{L}\\p{N}]++[" NL "/]*+" TAIL)}},
    {.names = "chameleon",
     .flags = PRE_ADD_BOS,
     .steps = {RE("<sentinel:[0-9]++>"), RE("IMGIMG[A-I]{1,4}Z"), RE("[\\t\\n]|    |  "),
               RE("\\p{N}"), RE("[\\p{P}!-/:-@\\[-`{-~]"), RE(GPT2)}},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2", .steps = {RE(O200K)}},
    {.names = "granite-embed-multi-97m", .flags = PRE_IGNORE_MERGES, .steps = {RE(O200K)}},
    {.names = "tiny_aya cohere2moe", .steps = {{STEP_THREES_B, NULL}, RE(O200K)}},
    {.names = "kimi-k2",
     .steps = {RE("\\p{sc:Han}++|" CASED_IN(NOT_HAN("\\p{Ll}"), NOT_HAN("\\p{Lu}\\p{Lt}"),
                                     "(?:" ABBR ")?") "|\\p{N}{1,3}+| ?[^" S
                  "\\p{L}\\p{N}]++[" NL "]*+" TAIL)}},
    {.names = "superbpe", .steps = {RE("\\p{N}++"), {STEP_CUT3, NULL}}},
    {.names = "bailingmoe bailingmoe2 llada-moe",
     .steps = {RE(ABBR "|[^" NL "\\p{L}\\p{N}]?\\p{L}++|\\p{N}| ?[^" S "\\p{L}\\p{N}]++[" NL "]*+|" WS
                       "*[" NL "]|" WS "+(?![^" S "])|" WS "++")}},
    {.names = "seed-coder",
     .steps = {RE(ABBR "|[^" NL "\\p{L}\\p{N}]?\\p{L}++|\\p{N}| ?[^" S "\\p{L}\\p{N}]++" TAIL)}},
    {.names = "ufakzeka",
     .steps = {RE("[^" NL "\\p{L}\\p{N}]?\\p{L}++|\\p{N}| ?[^" S "\\p{L}\\p{N}]++[" NL "]*+" TAIL)}},
    {.names = "afmoe",
     .steps = {{STEP_THREES, NULL},
               RE("[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{8C48}-\\x{FAFF}\\x{3040}-\\x{309F}"
                  "\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}"
                  "\\x{E80}-\\x{EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}"
                  "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]++"),
               RE(DEEPSEEK3 "[" NL "]*+" TAIL)}},
    {.names = "laguna", .steps = {{STEP_LINES, NULL}, RE(WORDS("\\p{L}", ""))}},
    {.names = "gemma4 granite-embed-multi-311m",
     .flags = PRE_RAW | PRE_NEWLINE_TOKENS | PRE_FORCE_BOS,
     .steps = {{STEP_LINES, NULL}}},
    {.names = "sarvam-moe", .flags = PRE_RAW, .steps = {{STEP_LINES, NULL}}},
    {.names = "whitespace", .flags = PRE_RAW | PRE_DROP_SPACES, .steps = {RE("[^" S "]++")}},
};
/* clang-format on */

const struct pre_def *tok_pre_at(size_t i) {
    return i < sizeof defs / sizeof *defs ? &defs[i] : NULL;
}

const struct pre_def *tok_pre_find(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; n && i < sizeof defs / sizeof *defs; i++)
        for (const char *p = defs[i].names; *p;) {
            size_t word = strcspn(p, " ");
            if (word == n && memcmp(p, name, n) == 0) return &defs[i];
            p += word + (p[word] == ' ');
        }
    return NULL;
}

/* ---- compiled form ---- */

struct tok_pre {
    const struct pre_def *def;       /* static */
    bool scans;                      /* uses a hand-written scanner */
    pcre2_code *code[PRE_MAX_STEPS]; /* owned; NULL: not a regex */
    pcre2_general_context *memory;   /* owned */
    pcre2_match_context *limits;     /* owned */
};

static void *pcre_alloc(size_t n, void *unused) {
    (void)unused;
    return mem_alloc(n);
}
static void pcre_free(void *p, void *unused) {
    (void)unused;
    mem_free(p);
}

int tok_pre_new(struct tok_pre **out, const struct pre_def *def, bool force_regex, struct err *e) {
    *out = NULL;
    struct tok_pre *p = mem_zalloc(sizeof *p);
    if (!p) return err_set(e, CHIMERE_ENOMEM, "out of memory for a pre-tokenizer");
    p->def = def;
    p->scans = def->scan != SCAN_NONE && !force_regex;
    p->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    p->limits = p->memory ? pcre2_match_context_create(p->memory) : NULL;
    /* The expressions are trusted and linear, but a long run of spaces may need that many backtracking steps. */
    if (p->limits) pcre2_set_match_limit(p->limits, UINT32_MAX);
    pcre2_compile_context *cc = p->limits ? pcre2_compile_context_create(p->memory) : NULL;
    int rc = cc ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory for a pre-tokenizer");
    for (int i = 0; rc == 0 && !p->scans && i < PRE_MAX_STEPS; i++) {
        if (def->steps[i].kind != STEP_REGEX) continue;
        int code;
        size_t at;
        p->code[i] = pcre2_compile((PCRE2_SPTR)def->steps[i].regex, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &code, &at, cc);
        if (!p->code[i]) {
            bool memory = code == PCRE2_ERROR_NOMEMORY || code == 121 /* 121 has no public name */;
            rc = memory ? err_set(e, CHIMERE_ENOMEM, "out of memory for a pre-tokenizer")
                        : err_set(e, CHIMERE_EINTERNAL,
                                  "pre-tokenizer %.20s, step %d: error %d at %zu", def->names, i,
                                  code, at);
        } else {
            /* if the JIT fails, the result is the same but slower */
            pcre2_jit_compile(p->code[i], PCRE2_JIT_COMPLETE);
        }
    }
    pcre2_compile_context_free(cc);
    if (rc) {
        tok_pre_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void tok_pre_free(struct tok_pre *p) {
    if (!p) return;
    for (int i = 0; i < PRE_MAX_STEPS; i++) pcre2_code_free(p->code[i]);
    pcre2_match_context_free(p->limits);
    pcre2_general_context_free(p->memory);
    mem_free(p);
}

/* ---- steps: each one appends the ends of the words of text[from..to) ---- */

/* seen: the text from `from` on, as passed to PCRE2. */
static int split_regex(const struct tok_pre *p, int step, pcre2_match_data *md, const char *seen,
                       uint32_t from, uint32_t to, struct tok_ids *ends, struct err *e) {
    const PCRE2_SPTR s = (PCRE2_SPTR)seen;
    const size_t n = to - from, *span = pcre2_get_ovector_pointer(md);
    size_t at = 0, done = 0;
    while (at < n) {
        int rc = pcre2_match(p->code[step], s, n, at, PCRE2_NO_UTF_CHECK, md, p->limits);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) {
            if (rc == PCRE2_ERROR_NOMEMORY) return CHIMERE_ENOMEM;
            return err_set(e, CHIMERE_ELIMIT,
                           "the pre-tokenizer gave up on the text: PCRE2 error %d", rc);
        }
        if (span[0] > done && tok_ids_put(ends, from + (uint32_t)span[0])) return CHIMERE_ENOMEM;
        if (tok_ids_put(ends, from + (uint32_t)span[1])) return CHIMERE_ENOMEM;
        at = done = span[1]; /* no expression of the table matches an empty string */
    }
    return done < n ? tok_ids_put(ends, to) : 0;
}

static bool is_number(uint32_t cp) { return tok_classes()[cp] & CLASS_N; }

/* Cuts runs of digits at every third digit from the right. isolate: a short run is also a separate word; bounded:
 * only if a word ends after the run. */
static int split_threes(enum pre_step_kind kind, const char *text, uint32_t from, uint32_t to,
                        struct tok_ids *ends) {
    bool (*in_run)(uint32_t) = kind == STEP_THREES ? is_number : tok_is_digit;
    uint32_t done = from;
    for (size_t i = from, next; i < to; i = next) {
        next = i;
        if (!in_run(tok_next_cp(text, &next))) continue;
        size_t run = i, n = 0, after = i;
        uint32_t behind = 0;
        while (after < to) {
            size_t k = after;
            behind = tok_next_cp(text, &k);
            if (!in_run(behind)) break;
            after = k, n++;
        }
        next = after;
        if (kind == STEP_THREES_B && after < to && tok_is_word(behind)) continue;
        for (size_t k = run, left = n; k < after; left--) {
            bool cut = left % 3 == 0 || (k == run && kind != STEP_CUT3);
            if (cut && k > done) {
                if (tok_ids_put(ends, (uint32_t)k)) return CHIMERE_ENOMEM;
                done = (uint32_t)k;
            }
            tok_next_cp(text, &k);
        }
        if (kind != STEP_CUT3) {
            if (tok_ids_put(ends, (uint32_t)after)) return CHIMERE_ENOMEM;
            done = (uint32_t)after;
        }
    }
    return done < to ? tok_ids_put(ends, to) : 0;
}

static int split_lines(const char *text, uint32_t from, uint32_t to, struct tok_ids *ends) {
    for (uint32_t i = from; i < to;) {
        if (text[i] == '\n') {
            while (i < to && text[i] == '\n') i++;
        } else {
            const char *end = memchr(text + i, '\n', to - i);
            i = end ? (uint32_t)(end - text) : to;
        }
        if (tok_ids_put(ends, i)) return CHIMERE_ENOMEM;
    }
    return 0;
}

static int run_step(const struct tok_pre *p, int step, pcre2_match_data *md, const char *text,
                    const char *seen, uint32_t from, uint32_t to, struct tok_ids *ends,
                    struct err *e) {
    switch (p->def->steps[step].kind) {
    case STEP_REGEX: return split_regex(p, step, md, seen, from, to, ends, e);
    case STEP_LINES: return split_lines(text, from, to, ends);
    default: return split_threes(p->def->steps[step].kind, text, from, to, ends);
    }
}

int tok_pre_split(const struct tok_pre *p, const char *text, uint32_t from, uint32_t to,
                  struct tok_ids *ends, struct tok_ids *scratch, struct err *e) {
    ends->n = 0;
    if (from == to) return 0;
    if (p->scans && p->def->scan == SCAN_GPT2) return tok_scan_gpt2(text, from, to, ends);
    if (p->scans) return tok_scan_words(&p->def->opt, text, from, to, ends);
    pcre2_match_data *md = pcre2_match_data_create(1, p->memory);
    char *older = NULL;
    int rc = md ? tok_ids_put(ends, to) : CHIMERE_ENOMEM;
    if (rc == 0) rc = tok_older_text(text, from, to, &older);
    for (int step = 0; rc == 0 && step < PRE_MAX_STEPS && p->def->steps[step].kind != STEP_END;
         step++) {
        scratch->n = 0;
        for (size_t i = 0; rc == 0 && i < ends->n; i++) {
            uint32_t at = i ? ends->p[i - 1] : from;
            const char *seen = older ? older + (at - from) : text + at;
            rc = run_step(p, step, md, text, seen, at, ends->p[i], scratch, e);
        }
        struct tok_ids swap = *ends;
        *ends = *scratch, *scratch = swap;
    }
    pcre2_match_data_free(md);
    mem_free(older);
    return rc;
}
