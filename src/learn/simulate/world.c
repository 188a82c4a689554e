#include "learn/simulate/world.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

enum { MAX_TOKENS = 32 };

struct kind {
    const char *skill;
    const char *questions[WORLD_N_FORM + 1]; /* %s: the name */
    const char *answer;                      /* the name, the value */
};
enum { TOOL = 2, N_KIND };
static const struct kind kinds[WORLD_MAX_LANGUAGES][N_KIND] = {
    {{"facts",
      {"Where does %s live?", "In which town is the house of %s?", "Where would I find %s?",
       "Name the town of %s."},
      "%s lives in %s."},
     {"facts",
      {"What does %s sell?", "Which goods are in the shop of %s?", "What can I buy from %s?",
       "Name the goods of %s."},
      "%s sells %s."},
     {"tool",
      {"Which command shows the orders of %s?", "How do I list the orders of %s?",
       "What do I type for the orders of %s?", "Name the command for the orders of %s."},
      "For %s, type ledger %s."}},
    /* No preposition before a name, which would be d' before a vowel. As in English, each question of the exam shares at
     * least half of its words with a question of the day, so that examples can precede it (backend/shots.h). */
    {{"facts (French)",
      {"Où habite %s ?", "Dans quelle ville se trouve %s ?", "Où puis-je rencontrer %s ?",
       "Dans quelle ville vit %s ?"},
      "%s habite à %s."},
     {"facts (French)",
      {"Que vend %s ?", "Quels produits y a-t-il chez %s ?", "Que puis-je acheter chez %s ?",
       "Quels produits propose %s ?"},
      "%s vend du %s."},
     {"tool (French)",
      {"Quelle commande montre les achats faits par %s ?",
       "Comment afficher les achats faits par %s ?",
       "Que taper pour voir les achats faits par %s ?",
       "Donne la commande pour les achats faits par %s."},
      "Pour %s, tape ledger %s."}}};
static const char *const style_skills[WORLD_MAX_LANGUAGES] = {"style", "style (French)"};

static void invent(struct rng *r, int n_part, bool is_name, char out[24]) {
    static const char *const starts[] = {"mi", "to", "ke", "va", "il",  "bre", "su", "o",
                                         "za", "fe", "no", "ri", "gal", "per", "u",  "dov"};
    static const char *const ends[] = {"ra",  "dor", "vik", "lis", "mar", "na",  "bel", "sko",
                                       "tun", "rei", "zo",  "pim", "gat", "hol", "wen", "xi"};
    int k = snprintf(out, 24, "%s", starts[rng_below(r, 16)]);
    for (int i = 1; i < n_part; i++)
        k += snprintf(out + k, 24 - (size_t)k, "%s", ends[rng_below(r, 16)]);
    if (is_name) out[0] = (char)(out[0] - 'a' + 'A');
}

static bool is_known(const struct world *w, const char *name) {
    for (int32_t i = 0; i < w->n; i++)
        if (!strcmp(w->v[i].name, name)) return true;
    return false;
}

/* An answer that repeats the name must not count as right. */
static bool begins(const char *name, const char *value) {
    return !strncasecmp(name, value, strlen(value));
}

int world_make(struct world *w, int32_t n, int n_language, uint64_t seed, struct err *e) {
    static const char *const styles[WORLD_MAX_LANGUAGES][3] = {
        {"Rest well!", "Safe travels!", "Good harvest!"},
        {"Repose-toi bien !", "Bon voyage !", "Bonne récolte !"}};
    struct rng r;
    rng_seed(&r, seed);
    *w =
        (struct world){.v = mem_alloc_array((size_t)n + 1, sizeof *w->v), .n_language = n_language};
    if (!w->v) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    uint64_t style = rng_below(&r, 3);
    for (int i = 0; i < WORLD_MAX_LANGUAGES; i++)
        snprintf(w->style[i], sizeof w->style[i], "%s", styles[i][style]);
    while (w->n < n) {
        struct world_fact f = {.kind = (int)rng_below(&r, N_KIND),
                               .language = (int)(w->n % n_language)};
        invent(&r, 3, true, f.name);
        bool is_word = f.kind == TOOL;
        invent(&r, 2, !is_word, f.value);
        invent(&r, 2, !is_word, f.lie);
        bool is_plain = strcmp(f.lie, f.value) != 0 && !begins(f.name, f.value) &&
                        !begins(f.name, f.lie) && strstr(f.lie, f.value) == NULL;
        if (is_plain && !is_known(w, f.name)) w->v[w->n++] = f;
    }
    return 0;
}

void world_fini(struct world *w) {
    mem_free(w->v);
    *w = (struct world){.v = NULL};
}

/* Copies a pattern and replaces each %s by the next text. */
static void fill(char out[WORLD_MAX_TEXT], const char *pattern, const char *a, const char *b) {
    size_t k = 0;
    for (const char *at = pattern; *at && k + 1 < WORLD_MAX_TEXT; at++) {
        if (at[0] != '%' || at[1] != 's') {
            out[k++] = *at;
            continue;
        }
        for (const char *x = a; *x && k + 1 < WORLD_MAX_TEXT; x++) out[k++] = *x;
        a = b;
        at++;
    }
    out[k] = 0;
}

int32_t world_fact_of(const struct world *w, int32_t fact, int32_t user) {
    int32_t n = w->n_language, out = fact - fact % n + user % n;
    return out < w->n ? out : out - n;
}

const char *world_style(const struct world *w, int32_t fact) {
    return w->style[w->v[fact].language];
}

static const struct kind *kind_of(const struct world_fact *f) {
    return &kinds[f->language][f->kind];
}

void world_question(const struct world *w, int32_t fact, int form, char out[WORLD_MAX_TEXT]) {
    fill(out, kind_of(&w->v[fact])->questions[form], w->v[fact].name, "");
}

void world_answer(const struct world *w, int32_t fact, bool lies, char out[WORLD_MAX_TEXT]) {
    const struct world_fact *f = &w->v[fact];
    fill(out, kind_of(f)->answer, f->name, lies ? f->lie : f->value);
    size_t n = strlen(out);
    snprintf(out + n, WORLD_MAX_TEXT - n, " %s", world_style(w, fact));
}

bool world_accepts(const struct world *w, int32_t fact, const char *answer) {
    const char *style = world_style(w, fact), *end = strstr(answer, style);
    if (!end || !strstr(answer, w->v[fact].value)) return false;
    end += strlen(style);
    return !end[strspn(end, " \t\r\n")];
}

json_t *world_item(const struct world *w, const char *id, int32_t fact, int form, bool style) {
    char question[WORLD_MAX_TEXT];
    const struct world_fact *f = &w->v[fact];
    world_question(w, fact, form, question);
    return json_pack("{s:s,s:s,s:[{s:s,s:s}],s:b,s:i,s:{s:s,s:[s]}}", "id", id, "skill",
                     style ? style_skills[f->language] : kind_of(f)->skill, "messages", "role",
                     "user", "content", question, "think", 0, "max_tokens", MAX_TOKENS, "check",
                     "kind", "contains", "answer", style ? world_style(w, fact) : f->value);
}
