#include "odo/decide/query.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "retrieval/fold.h"
#include "retrieval/words.h"

enum { MAX_TURNS = 3, MAX_QUERY = 2048, FEW_WORDS = 2 };

/* Words that refer to something said before. "it" and "il" also begin impersonal sentences; the query is then
 * longer than necessary. */
static const char refers[] =
    " it its that this those these them they their he him his she her one ones same there then "
    "il elle ils elles ca cela celui celle ceux celles lui leur leurs y en ceci meme ";
static const char *const begins[] = {"and ", "what about", "how about", "but ",       "why",
                                     "et ",  "mais ",      "pourquoi",  "dans ce cas"};

static bool is_word(char c) { return strchr(" \t\n\r.,;:!?\"'()-", c) == NULL; }

static bool refers_back(const char *question) {
    struct words w;
    words_of(&w, question, strlen(question));
    struct buf text;
    buf_init(&text, (size_t)64 << 10);
    fold_text(&text, question, strlen(question), true);
    bool found = w.n <= FEW_WORDS && w.n > 0;
    const char *p = text.n ? text.p : "";
    while (*p && !is_word(*p)) ++p;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; ++i)
        found |= !strncasecmp(p, begins[i], strlen(begins[i]));
    while (*p && !found) {
        char key[16] = " ";
        size_t n = 0;
        for (; *p && is_word(*p); ++p)
            if (n < sizeof key - 3) key[1 + n++] = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
        key[n + 1] = ' ';
        key[n + 2] = 0;
        found = n && n < sizeof key - 3 && strstr(refers, key);
        while (*p && !is_word(*p)) ++p;
    }
    buf_fini(&text);
    return found;
}

/* Returns the text of a user message; NULL: another role, or content in parts. */
static const char *user_text(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && !strcmp(role, "user") ? json_string_value(json_object_get(message, "content"))
                                         : NULL;
}

void query_write(struct buf *out, const json_t *messages, const char *question) {
    const char *turns[MAX_TURNS] = {question};
    int n = 1;
    size_t i = json_array_size(messages);
    bool current = true;
    while (i-- > 0 && n < MAX_TURNS && refers_back(turns[n - 1])) {
        const char *text = user_text(json_array_get(messages, i));
        if (!text) continue;
        if (!current) turns[n++] = text;
        current = false;
    }
    buf_init(out, (size_t)1 << 20);
    while (n-- > 0) {
        size_t len = strnlen(turns[n], MAX_QUERY);
        buf_put(out, turns[n], len);
        if (n) buf_putc(out, '\n');
    }
}

bool query_has_object(const char *text) {
    enum { TRIES = 16 }; /* each attempt may parse to the end of the text */
    const char *p = text;
    for (int i = 0; i < TRIES && (p = strchr(p, '{')); ++i, ++p) {
        json_t *o = json_loads(p, JSON_DISABLE_EOF_CHECK, NULL);
        bool found = json_is_object(o) && json_object_size(o);
        json_decref(o);
        if (found) return true;
    }
    return false;
}
