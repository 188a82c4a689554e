/* facts_measure.c: messages and pairs whose right reading is known, for the card of a model. */
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "odo/facts/facts.h"

enum { CALL_MS = 60000 };

/* clang-format off */
/* word: a sentence with it must be read; NULL: nothing may be read */
static const struct { const char *message, *word; } messages[] = {
    {"My name is Ines and I teach chemistry. How do I explain moles to beginners?", "Ines"},
    {"We moved to Ghent last month. What should I do about my old tax office?", "Ghent"},
    {"I am allergic to peanuts. Suggest a snack for the train.", "peanut"},
    {"My daughter Lotte starts school in September.", "Lotte"},
    {"Please write shorter answers, I read them on my phone. I work as a nurse.", "nurse"},
    {"My bike was stolen yesterday, so I take the bus now.", "bus"},
    {"I prefer tea to coffee. Which tea has the least caffeine?", "tea"},
    {"Our server runs Debian 12. Why does apt say that a key is missing?", "Debian"},
    {"J'habite \303\240 Lille et je cherche un m\303\251decin.", "Lille"},
    {"Mon chien s'appelle Filou. Que peut-il manger ?", "Filou"},
    {"Je suis v\303\251g\303\251tarien. Une id\303\251e de repas ?", "tarien"},
    {"Je passe mon permis en juin.", "permis"},
    {"What is the capital of Norway?", NULL},
    {"Can you explain how a hash map works?", NULL},
    {"Translate this into French: the window is open.", NULL},
    {"I think water boils at 100 degrees, doesn't it?", NULL},
    {"Write me a poem about the sea.", NULL},
    {"Thank you, I understand it now.", NULL},
    {"Can you show me that again? I did not get it.", NULL},
    {"Quelle est la hauteur de la tour Eiffel ?", NULL},
    {"Je ne comprends pas cette erreur : segmentation fault.", NULL},
    {"Merci, c'est parfait.", NULL},
};
static const struct { const char *older, *newer; bool replaces; } pairs[] = {
    {"I live in Oslo.", "I have moved to Bergen.", true},
    {"My doctor is Dr. Lund.", "I have a new doctor, Dr. Berg.", true},
    {"I eat meat.", "I became a vegetarian.", true},
    {"The meeting is on Monday.", "The meeting was moved to Friday.", true},
    {"I have one cat.", "We got a second cat, so now we have two.", true},
    {"Je travaille \303\240 la poste.", "J'ai chang\303\251 d'emploi, je suis libraire.", true},
    {"I live in Oslo.", "My sister lives in Bergen.", false},
    {"My dog is brown.", "My dog is seven years old.", false},
    {"I speak French.", "I also speak German.", false},
    {"I am allergic to nuts.", "I work as a pilot.", false},
    {"Our printer is on the second floor.", "Our printer needs new toner.", false},
    {"J'aime le jazz.", "J'aime aussi le rock.", false},
};
/* clang-format on */

static bool mentions(const json_t *list, const char *word) {
    json_t *s;
    size_t i;
    json_array_foreach((json_t *)list, i,
                       s) if (strcasestr(json_string_value(s), word)) return true;
    return false;
}

int facts_measure(struct backend *b, struct facts_score *out, struct err *e) {
    int rc = 0;
    *out = (struct facts_score){0};
    for (size_t i = 0; i < sizeof messages / sizeof *messages && !rc; ++i) {
        json_t *list = NULL;
        int64_t deadline = clock_ns() + (int64_t)CALL_MS * 1000000;
        rc = facts_read(b, messages[i].message, NULL, deadline, &list, e);
        bool some = json_array_size(list) > 0;
        ++out->n_read;
        out->read += messages[i].word ? mentions(list, messages[i].word) : !some;
        out->n_invented += !messages[i].word && some;
        json_decref(list);
    }
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !rc; ++i) {
        bool exclude = false;
        int64_t deadline = clock_ns() + (int64_t)CALL_MS * 1000000;
        rc = facts_exclude(b, pairs[i].older, pairs[i].newer, NULL, deadline, &exclude, e);
        ++out->n_pair;
        out->pair += exclude == pairs[i].replaces;
    }
    return rc;
}

bool facts_is_good(const struct facts_score *s) {
    return 100 * s->read >= 85 * s->n_read && 100 * s->pair >= 85 * s->n_pair && s->n_invented <= 1;
}
