#include "engram/recall.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"

enum {
    MAX_WORDS = 64,     /* words of a question */
    MAX_SENTENCES = 64, /* sentences that are ranked */
    MAX_ANCHORS = 8,
    RARE_DOCS = 3,
    WINDOW = 400,       /* tokens on each side of an anchor's position in the text */
    MIN_ANCHOR = 4,     /* bytes of an anchor */
    LONG_QUESTION = 40, /* words: a longer question contains its own text and needs no recall */
};

/* Sharpness of the ranking: the weight of a sentence is e^(sharpness * score). */
static const float sharpness = 4;
/* Value of a common word as the beginning of an answer, compared with a name or a number. */
static const float common_word = 0.03f;
/* Odds of recalled text: for its first token (fully if the model gives the first tokens at least `likely`), for
 * continuing within a word, for a further name or number, and for a common word. */
static const float likely = 0.003f, sure = 0.03f, odds_first = 60, odds_within = 300,
                   odds_between = 300, odds_common = 3, odds_unknown = 1e6f;

struct word {
    struct slice s; /* view */
    bool is_anchor;
};

struct sentence {
    struct slice s;     /* view of the text */
    struct slice asked; /* view of the text: the question that s answers; empty: none */
    float score;
};

struct gathering {
    const struct tok *tok;
    struct word words[MAX_WORDS]; /* words of the question */
    int n_word;
    struct buf text; /* the sentences found */
    struct {
        size_t at, n, n_asked; /* a question of n_asked bytes, and the sentence */
    } spans[MAX_SENTENCES];
    int n_span;
    struct engram_recall *r;
    /* in the text around the names of the question: */
    bool has_date, has_quantity, has_person;
    uint32_t topics; /* bit i: a word of topics[i] */
};

static bool is_word_byte(char c) { return isalnum((unsigned char)c) || (unsigned char)c >= 128; }

/* Finds the next word of s at or after *at; false: none. */
static bool next_word(struct slice s, size_t *at, struct slice *word) {
    while (*at < s.n && !is_word_byte(s.p[*at])) ++*at;
    size_t begin = *at;
    while (*at < s.n && is_word_byte(s.p[*at])) ++*at;
    *word = (struct slice){s.p + begin, *at - begin};
    return word->n > 0;
}

/* Returns true for the same word, possibly with another ending: two thirds of the shorter word, and at least four
 * letters, must agree. */
static bool is_alike(struct slice a, struct slice b) {
    size_t least = a.n < b.n ? a.n : b.n, n = 0;
    while (n < least && tolower((unsigned char)a.p[n]) == tolower((unsigned char)b.p[n])) n++;
    if (n == a.n && n == b.n) return true;
    return n >= 4 && 3 * n >= 2 * least && a.n < n + 5 && b.n < n + 5;
}

static bool in_question(const struct gathering *g, struct slice word) {
    for (int i = 0; i < g->n_word; i++)
        if (is_alike(g->words[i].s, word)) return true;
    return false;
}

/* ---- positions in the text of the question's names ---- */

static bool is_end_of_sentence(const char *p, size_t n, size_t i) {
    if (p[i] == '\n') return true;
    return strchr(".!?", p[i]) && (i + 1 == n || isspace((unsigned char)p[i + 1]));
}

/* Matches whole words only: "Vera" is not in "VeraCrypt". */
static bool stands_in(struct slice s, struct slice anchor) {
    struct slice w;
    for (size_t at = 0; next_word(s, &at, &w);)
        if (w.n == anchor.n && memcmp(w.p, anchor.p, w.n) == 0) return true;
    return false;
}

static struct slice trim(struct slice s) {
    while (s.n && isspace((unsigned char)s.p[0])) s.p++, s.n--;
    while (s.n && isspace((unsigned char)s.p[s.n - 1])) s.n--;
    return s;
}

static void add_sentence(struct gathering *g, struct slice asked, struct slice s) {
    size_t at = g->text.n, n = asked.n + s.n;
    if (!s.n || n > 1000 || g->n_span == MAX_SENTENCES) return;
    if (buf_put(&g->text, asked.p, asked.n) || buf_put(&g->text, s.p, s.n)) return;
    for (int i = 0; i < g->n_span; i++)
        if (g->spans[i].n == n && memcmp(g->text.p + g->spans[i].at, g->text.p + at, n) == 0) {
            buf_cut(&g->text, at);
            return;
        }
    g->spans[g->n_span].at = at;
    g->spans[g->n_span].n_asked = asked.n;
    g->spans[g->n_span++].n = n;
}

/* Adds the sentences that name the anchor. Tables of answers also contain their questions. A question shares most words
 * with another question about the same, but its words do not begin an answer: the sentence after it does, which need not
 * repeat the name. */
static void add_sentences(struct gathering *g, struct slice text, struct slice anchor) {
    struct slice asked = {"", 0};
    for (size_t i = 0, begin = 0; i < text.n; i++) {
        if (!is_end_of_sentence(text.p, text.n, i) && i + 1 < text.n) continue;
        struct slice s = trim((struct slice){text.p + begin, i + 1 - begin});
        begin = i + 1;
        if (!s.n) continue;
        bool is_question = s.p[s.n - 1] == '?', is_named = stands_in(s, anchor);
        if (!is_question && (is_named || asked.n)) add_sentence(g, asked, s);
        asked = is_question && is_named ? s : (struct slice){"", 0};
    }
}

/* Notes whether a text has a date (a number of four digits, or the name of a day, month or season) or a quantity (a
 * number with a unit, or of another length). Words such as "three" count as both. */
static void find_numbers(struct gathering *g, struct slice text) {
    static const char *const units[] = {
        "m",    "metre", "meter", "km",   "cm",    "kg",  "kilo", "gram",   "ton", "feet",
        "foot", "inch",  "litre", "year", "month", "day", "hour", "minute", "an",  "percent"};
    static const char *const dates[] = {
        "january",   "february", "march",    "april",    "june",      "july",    "august",
        "september", "october",  "november", "december", "monday",    "tuesday", "wednesday",
        "thursday",  "friday",   "saturday", "sunday",   "spring",    "summer",  "autumn",
        "winter",    "noon",     "morning",  "evening",  "yesterday", "today",   "century"};
    static const char *const words[] = {"one",    "two",     "three",   "four", "five",
                                        "six",    "seven",   "eight",   "nine", "ten",
                                        "twelve", "hundred", "thousand"};
    struct slice w, last = {NULL, 0};
    for (size_t at = 0; next_word(text, &at, &w); last = w) {
        bool is_unit = false;
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            is_unit |= w.n >= strlen(units[i]) && !strncasecmp(w.p, units[i], strlen(units[i]));
        if (last.n && isdigit((unsigned char)last.p[0]) && is_unit) g->has_quantity = true;
        if (isdigit((unsigned char)w.p[0]) && w.n == 4) g->has_date = true;
        else if (isdigit((unsigned char)w.p[0])) g->has_quantity = true;
        for (size_t i = 0; i < sizeof dates / sizeof *dates; i++)
            if (w.n >= strlen(dates[i]) && !strncasecmp(w.p, dates[i], strlen(dates[i])))
                g->has_date = true;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (w.n == strlen(words[i]) && !strncasecmp(w.p, words[i], w.n))
                g->has_date = g->has_quantity = true;
    }
}

static bool begins(struct slice w, const char *stem) {
    return w.n >= strlen(stem) && strncasecmp(w.p, stem, strlen(stem)) == 0;
}

/* Beginnings of words about one kind of place. The names of such places are not names of persons. */
static const char *const topics[][8] = {
    {"river", "stream", "flow", "water", "rivi", "fleuve", "coule"},
    {"lake", "pond", "lac"},
    {"street", "road", "avenue", "square", "rue"},
};
enum { N_TOPIC = sizeof topics / sizeof *topics };

static uint32_t topics_of(struct slice w) {
    uint32_t found = 0;
    for (int i = 0; i < N_TOPIC; i++)
        for (int k = 0; k < 8 && topics[i][k]; k++)
            if (begins(w, topics[i][k])) found |= 1u << i;
    return found;
}

/* Words with which sentences begin; another word there may be a name. */
static bool is_opening(struct slice w) {
    static const char *const words[] = {
        "a",    "all",   "an",   "and",    "as",    "at",   "but", "by",   "each", "every",
        "for",  "from",  "he",   "her",    "his",   "if",   "in",  "it",   "its",  "many",
        "most", "no",    "on",   "nobody", "of",    "one",  "our", "she",  "so",   "some",
        "that", "the",   "they", "there",  "this",  "to",   "we",  "when", "who",  "with",
        "you",  "today", "au",   "ce",     "cette", "dans", "de",  "des",  "elle", "en",
        "il",   "ils",   "la",   "le",     "les",   "un",   "une", "sa",   "son"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (w.n == strlen(words[i]) && !strncasecmp(w.p, words[i], w.n)) return true;
    return false;
}

/* Notes the topics of a text, and whether it may name a person: a word with a capital that is not in the question and
 * does not follow a word such as "river". */
static void find_names(struct gathering *g, struct slice text) {
    struct slice w, last = {NULL, 0};
    uint32_t before = 0;
    for (size_t at = 0; next_word(text, &at, &w); last = w) {
        uint32_t now = topics_of(w);
        g->topics |= now;
        bool is_first = !last.n;
        for (const char *p = last.p + last.n; last.n && p < w.p; p++)
            is_first |= strchr(".!?\n", *p) != NULL;
        bool is_name = (isupper((unsigned char)w.p[0]) || (unsigned char)w.p[0] >= 128) &&
                       !(is_first && is_opening(w)) && !in_question(g, w);
        if (is_name && (is_first || !before)) g->has_person = true;
        /* "the river Great Ouse": the second word of a name belongs to the first */
        if (!is_name || is_first) before = now;
    }
}

static void add_place(struct gathering *g, const struct engram_table *t, uint32_t pos,
                      struct slice anchor) {
    struct engram_doc d;
    struct buf text;
    if (!engram_table_doc_at(t, pos, &d)) return;
    uint32_t at = pos - d.begin, from = at > WINDOW ? at - WINDOW : 0,
             to = d.n_tok - at > WINDOW ? at + WINDOW : d.n_tok;
    buf_init(&text, (size_t)1 << 20);
    for (uint32_t i = from; i < to; i++) {
        struct slice s = tok_piece(g->tok, d.tokens[i]);
        if (s.n) buf_put(&text, s.p, s.n);
    }
    if (text.n) {
        find_numbers(g, (struct slice){text.p, text.n});
        find_names(g, (struct slice){text.p, text.n});
    }
    if (text.n) add_sentences(g, (struct slice){text.p, text.n}, anchor);
    buf_fini(&text);
}

/* Returns true for names, and for other words that are so long that the tokenizer needs many tokens; Latin letters
 * only. Others match too often by chance: numbers, words to be sorted, strings to be copied. */
static bool may_name(struct slice w, size_t n_tok, bool is_first) {
    for (size_t i = 0; i < w.n; i++) {
        unsigned char c = (unsigned char)w.p[i];
        /* the first bytes of U+00C0 to U+017F in UTF-8 */
        if (!isalpha(c) && (c < 0x80 || c > 0xc5)) return false;
    }
    if (!isupper((unsigned char)w.p[0])) return n_tok > 3;
    /* at the beginning, any word has a capital letter */
    return n_tok >= (is_first ? 3 : ENGRAM_MIN_ORDER);
}

/* Looks up the word in the form that it has within a text: with a space before it. */
static void try_anchor(struct gathering *g, const struct engram_table *t, struct word *w) {
    char spaced[128];
    struct engram_hit hits[ENGRAM_N_ORDER];
    int32_t *ids;
    size_t n;
    if (w->s.n < MIN_ANCHOR || w->s.n + 1 > sizeof spaced) return;
    spaced[0] = ' ';
    memcpy(spaced + 1, w->s.p, w->s.n);
    if (tok_encode(g->tok, spaced, w->s.n + 1, false, false, &ids, &n, NULL)) return;
    int32_t whole = n < ENGRAM_MAX_ORDER ? (int32_t)n : ENGRAM_MAX_ORDER;
    if (may_name(w->s, n, w == g->words) && n >= ENGRAM_MIN_ORDER &&
        engram_lookup(t, ids, (int32_t)n, hits) && hits[0].order == whole &&
        hits[0].n_doc <= RARE_DOCS) {
        w->is_anchor = true;
        add_place(g, t, hits[0].pos, w->s);
    }
    mem_free(ids);
}

/* ---- ranking of sentences ---- */

static bool has_word(struct slice s, struct slice word) {
    struct slice w;
    for (size_t at = 0; next_word(s, &at, &w);)
        if (is_alike(w, word)) return true;
    return false;
}

/* Scores the sentences. A shared word counts more if fewer sentences have it. */
static void rank(const struct gathering *g, struct sentence *s) {
    for (int w = 0; w < g->n_word; w++) {
        int n_has = 0;
        bool has[MAX_SENTENCES];
        for (int i = 0; i < g->n_span; i++)
            n_has += has[i] =
                has_word(s[i].asked, g->words[w].s) || has_word(s[i].s, g->words[w].s);
        for (int i = 0; i < g->n_span; i++)
            if (has[i]) s[i].score += logf((float)g->n_span / (float)n_has);
    }
    float top = 0, sum = 0;
    for (int i = 0; i < g->n_span; i++) top = s[i].score > top ? s[i].score : top;
    for (int i = 0; i < g->n_span; i++) sum += s[i].score = expf(sharpness * (s[i].score - top));
    for (int i = 0; i < g->n_span; i++) s[i].score /= sum;
}

/* ---- candidates ---- */

static bool is_proper(struct slice w) {
    return isdigit((unsigned char)w.p[0]) || isupper((unsigned char)w.p[0]);
}

static int add_candidate(struct gathering *g, struct slice text, float weight, struct err *e) {
    int32_t *ids;
    size_t n;
    if (g->r->n == ENGRAM_MAX_CANDIDATES) return 0;
    int rc = tok_encode(g->tok, text.p, text.n, false, false, &ids, &n, e);
    if (rc) return rc;
    if (n) {
        struct engram_candidate *c = &g->r->candidates[g->r->n++];
        c->n = n < ENGRAM_CANDIDATE_TOKENS ? (int32_t)n : ENGRAM_CANDIDATE_TOKENS;
        memcpy(c->tokens, ids, (size_t)c->n * sizeof *ids);
        for (int32_t i = 1; i < c->n; i++) {
            struct slice piece = tok_piece(g->tok, ids[i]);
            if (piece.n && is_word_byte(piece.p[0])) continue;
            c->starts |= 1u << i;
            bool proper = piece.n > 1 && piece.p[0] == ' ' &&
                          is_proper((struct slice){piece.p + 1, piece.n - 1});
            if (!proper) c->common |= 1u << i;
        }
        c->weight = weight;
    }
    mem_free(ids);
    return 0;
}

/* Returns the value of a word as an answer. The answer to a question is seldom a common word: names, numbers and
 * words that are not a single token count fully. */
static float worth(const struct gathering *g, struct slice word, bool is_first) {
    if (isdigit((unsigned char)word.p[0]) || (is_proper(word) && !is_first)) return 1;
    return tok_find(g->tok, word.p, word.n) < 0 ? 1 : common_word;
}

static int add_candidates(struct gathering *g, const struct sentence *s, struct err *e) {
    struct slice word, last = {NULL, 0};
    int rc = 0;
    float sum = 0;
    for (int pass = 0; pass < 2 && !rc; pass++) {
        last.n = 0;
        for (size_t at = 0; !rc && next_word(s->s, &at, &word); last = word) {
            if (in_question(g, word)) continue;
            /* an answer does not begin with the second word of a name or a date */
            bool goes_on = last.n && last.p + last.n + 1 == word.p && is_proper(last) &&
                           is_proper(word) && !in_question(g, last) && last.p != s->s.p;
            if (goes_on || (last.n && last.p == s->s.p && last.p + last.n + 1 == word.p &&
                            is_proper(word) && worth(g, last, true) == 1 && !in_question(g, last)))
                continue;
            float w = worth(g, word, word.p == s->s.p);
            if (!pass) sum += w;
            else
                rc = add_candidate(g, (struct slice){word.p, (size_t)(s->s.p + s->s.n - word.p)},
                                   s->score * w / sum, e);
        }
    }
    return rc;
}

/* Questions whose answer is a date or a quantity. */
static const struct {
    const char *phrase;
    bool is_date;
} number_questions[] = {{"when was", true},     {"when were", true},  {"when did", true},
                        {"which year", true},   {"what year", true},  {"the year", true},
                        {"quelle annee", true}, {"quand", true},      {"how high", false},
                        {"how tall", false},    {"how heavy", false}, {"how old", false},
                        {"the height", false},  {"the weight", false}};
static const char unknown[] = "Not known.";

/* Returns true if the words of the question contain the words of a phrase, one after the other. */
static bool asks(const struct gathering *g, const char *phrase) {
    for (int i = 0; i < g->n_word; i++) {
        const char *p = phrase;
        int k = i;
        while (*p && k < g->n_word) {
            size_t n = strcspn(p, " ");
            if (g->words[k].s.n != n || strncasecmp(g->words[k].s.p, p, n) != 0) break;
            p += n + (p[n] == ' ');
            k++;
        }
        if (!*p) return true;
    }
    return false;
}

static bool asks_any(const struct gathering *g, const char *const *phrases) {
    for (; *phrases; phrases++)
        if (asks(g, *phrases)) return true;
    return false;
}

/* Returns true if the question asks for a person and the text may name none, or if it asks for a place of a kind that
 * the text does not mention. Whether a person did what is asked cannot be told: a text has too many words for it. */
static bool lacks_name(const struct gathering *g) {
    static const char *const persons[] = {"who",          "whom",        "whose",
                                          "which person", "what person", "qui est",
                                          "par qui",      "qui a",       NULL},
                             *const names[] = {"which", "what", "name", "quel", "quelle", NULL};
    uint32_t asked = 0;
    bool is_person = asks_any(g, persons);
    if (!is_person && !asks_any(g, names)) return false;
    for (int i = 0; i < g->n_word; i++)
        if (!g->words[i].is_anchor) asked |= topics_of(g->words[i].s);
    return is_person ? !g->has_person : asked && !(asked & g->topics);
}

/* Returns true if the question asks for a date, a quantity or a name, and the text near the names of the question has
 * none. */
static bool lacks_answer(const struct gathering *g) {
    for (size_t i = 0; i < sizeof number_questions / sizeof *number_questions; i++)
        if (asks(g, number_questions[i].phrase))
            return !(number_questions[i].is_date ? g->has_date : g->has_quantity);
    return lacks_name(g);
}

static int build_unknown(struct gathering *g, struct err *e) {
    g->r->is_unknown = true;
    return add_candidate(g, (struct slice){unknown, sizeof unknown - 1}, 1, e);
}

static int build(struct gathering *g, struct err *e) {
    static const char *const blanks[] = {"\n", "\n\n"};
    struct sentence s[MAX_SENTENCES];
    int rc = 0;
    for (int i = 0; i < 2; i++) {
        int32_t id = tok_find(g->tok, blanks[i], strlen(blanks[i]));
        if (id >= 0) g->r->blanks[g->r->n_blank++] = id;
    }
    for (int32_t i = 0; i < (int32_t)tok_n_vocab(g->tok) && g->r->n_end < 16; i++) {
        struct slice piece = tok_piece(g->tok, i);
        if (tok_is_eog(g->tok, i) || (piece.n == 1 && strchr(".,;!?\n", piece.p[0])))
            g->r->ends[g->r->n_end++] = i;
    }
    if (lacks_answer(g)) return build_unknown(g, e);
    for (int i = 0; i < g->n_span; i++) {
        const char *p = g->text.p + g->spans[i].at;
        size_t n = g->spans[i].n_asked;
        s[i] = (struct sentence){.s = {p + n, g->spans[i].n - n}, .asked = {p, n}};
    }
    rank(g, s);
    for (int i = 0; i < g->n_span && !rc; i++)
        if (s[i].score > 1e-4f) rc = add_candidates(g, &s[i], e);
    return rc;
}

int engram_recall_new(struct engram_recall **out, const struct engram_table *const *tables,
                      int32_t n_table, const struct tok *tok, const char *question, size_t n,
                      struct err *e) {
    struct gathering g = {.tok = tok};
    struct slice word;
    *out = NULL;
    buf_init(&g.text, (size_t)1 << 20);
    for (size_t at = 0; g.n_word < MAX_WORDS && next_word((struct slice){question, n}, &at, &word);)
        g.words[g.n_word++].s = word;
    int n_anchor = g.n_word > LONG_QUESTION ? MAX_ANCHORS : 0;
    for (int i = 0; i < g.n_word && n_anchor < MAX_ANCHORS; i++) {
        for (int32_t t = 0; t < n_table; t++) try_anchor(&g, tables[t], &g.words[i]);
        n_anchor += g.words[i].is_anchor;
    }
    int rc = 0;
    if (g.n_span && !g.text.failed) {
        g.r = mem_zalloc(sizeof *g.r);
        rc = g.r ? build(&g, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    buf_fini(&g.text);
    if (rc || (g.r && !g.r->n)) {
        mem_free(g.r);
        return rc;
    }
    *out = g.r;
    return 0;
}

void engram_recall_free(struct engram_recall *r) { mem_free(r); }

/* ---- following the answer ---- */

void engram_follow_start(struct engram_follow *f, const struct engram_recall *r) {
    f->r = r;
    f->depth = 0;
    f->n_alive = r ? r->n : 0;
    for (int32_t i = 0; i < f->n_alive; i++) f->share[i] = r->candidates[i].weight;
}

void engram_follow_push(struct engram_follow *f, int32_t token) {
    if (!f->r || !f->n_alive) return;
    for (int32_t i = 0; f->depth == 0 && i < f->r->n_blank; i++)
        if (f->r->blanks[i] == token) return;
    float sum = 0;
    f->n_alive = 0;
    for (int32_t i = 0; i < f->r->n; i++) {
        const struct engram_candidate *c = &f->r->candidates[i];
        if (f->share[i] <= 0) continue;
        if (c->tokens[f->depth] != token || c->n <= f->depth + 1) {
            f->share[i] = 0;
            continue;
        }
        sum += f->share[i];
        f->n_alive++;
    }
    for (int32_t i = 0; f->n_alive && i < f->r->n; i++) f->share[i] /= sum;
    f->depth++;
}

bool engram_follow_wants(const struct engram_follow *f) { return f->r && f->n_alive > 0; }

int32_t engram_follow_list(const struct engram_follow *f, int32_t n_ahead, int32_t *out,
                           int32_t cap) {
    int32_t n = 0;
    if (!engram_follow_wants(f)) return 0;
    for (int32_t i = 0; i < f->r->n; i++) {
        const struct engram_candidate *c = &f->r->candidates[i];
        if (f->share[i] <= 0) continue;
        /* leading line breaks do not count as tokens of the answer */
        int32_t from = f->depth ? f->depth + n_ahead : 0, to = f->depth + n_ahead;
        for (int32_t k = from; k <= to && k < c->n; k++) {
            if (n == cap) return -1;
            out[n++] = c->tokens[k];
        }
    }
    if (n + f->r->n_end > cap) return -1;
    memcpy(out + n, f->r->ends, (size_t)f->r->n_end * sizeof *out);
    return n + f->r->n_end;
}

const struct engram_recalled *engram_follow_next(struct engram_follow *f, const float *logits,
                                                 const struct engram_row *row, int32_t *n) {
    float sum = 0, mass = 0;
    *n = 0;
    f->is_within = false;
    bool is_common = true;
    for (int32_t i = 0; f->n_alive && i < f->r->n; i++) {
        if (f->share[i] <= 0) continue;
        int32_t token = f->r->candidates[i].tokens[f->depth], k = 0;
        while (k < *n && f->next[k].token != token) k++;
        if (k == *n) f->next[(*n)++] = (struct engram_recalled){token, 0};
        f->next[k].odds += f->share[i];
        if (f->depth && !(f->r->candidates[i].starts >> f->depth & 1)) f->is_within = true;
        if (!(f->r->candidates[i].common >> f->depth & 1)) is_common = false;
    }
    for (int32_t k = 0; k < *n; k++) {
        float p = expf(logits[f->next[k].token] - row->norm);
        mass += p;
        if (f->depth == 0) f->next[k].odds *= sqrtf(p);
        sum += f->next[k].odds;
    }
    if (f->r && f->r->is_unknown) { /* the model would invent a number */
        for (int32_t k = 0; k < *n; k++) f->next[k].odds = odds_unknown;
        return f->next;
    }
    float odds = f->is_within ? odds_within : is_common ? odds_common : odds_between;
    if (f->depth == 0) { /* the model must itself give some probability to the first token */
        float doubt = 1 - row->p_first;
        odds = odds_first * (doubt < sure ? doubt / sure : 1) *
               (mass < likely ? sqrtf(mass / likely) : 1);
    } else if (!f->is_within) { /* odds fall as the model becomes sure that the answer ends */
        float end = 0;
        for (int32_t i = 0; i < f->r->n_end; i++) end += expf(logits[f->r->ends[i]] - row->norm);
        odds *= end < 1 ? (1 - end) * (1 - end) * (1 - end) : 0;
    }
    for (int32_t k = 0; k < *n; k++) f->next[k].odds = sum > 0 ? f->next[k].odds / sum * odds : 0;
    return f->next;
}
