#include "retrieval/words.h"

#include <ctype.h>
#include <string.h>

#include "retrieval/fold.h"

static const char stop_words[] = " a about after all am an and any are as at be because been "
                                 "before being between but by can could did do does "
                                 "doing for from give had has have he her him his how i if in into "
                                 "is it its just like make many me more most "
                                 "much my name no not of on one only or other our out over please "
                                 "say she should so some such tell than that "
                                 "the their them then there these they this those to too under up "
                                 "us use very was we were what when where which "
                                 "while who whom whose why will with would year you your "
                                 "au aux avec ce ces cet cette comme comment dans de des donne "
                                 "donner du elle elles en est et etait etre eu fait "
                                 "faire il ils je la le les leur leurs lui ma mais me mes moi mon "
                                 "ne nom nos notre nous on ou par pas plus pour "
                                 "pourquoi quand que quel quelle quelles quels qui sa sans se ses "
                                 "si son sont sur ta te tes toi ton tous tout "
                                 "toute tu un une vers vos votre vous y combien dis dit quoi ";

static int is_word(unsigned char c) { return isalnum(c) || c >= 0x80; }

void words_of(struct words *w, const char *text, size_t n) {
    w->n = 0;
    struct buf folded;
    buf_init(&folded, (size_t)64 << 10);
    fold_text(&folded, text, n < 8192 ? n : 8192, true);
    bool first = true; /* the next word begins a sentence */
    for (size_t i = 0; i < folded.n && w->n < WORDS_MAX;) {
        if (!is_word((unsigned char)folded.p[i])) {
            first |= strchr(".!?:", folded.p[i]) != NULL;
            ++i;
            continue;
        }
        bool is_name = isupper((unsigned char)folded.p[i]), begins = first;
        first = false;
        char key[WORDS_MAX_BYTES + 2] = " ";
        size_t len = 0;
        for (; i < folded.n && is_word((unsigned char)folded.p[i]); ++i)
            if (len < WORDS_MAX_BYTES - 2)
                key[1 + len++] = (char)tolower((unsigned char)folded.p[i]);
        is_name &= !begins || (i < folded.n && folded.p[i] == ':'); /* "Oslo: who is the mayor?" */
        while (len && ((unsigned char)key[len] & 0xc0) == 0x80)
            --len; /* the limit may have cut a character: drop the rest of it */
        if (len && (unsigned char)key[len] >= 0xc0) --len;
        if (len < 2 && !isdigit((unsigned char)key[1])) continue;
        key[len + 1] = ' ';
        key[len + 2] = 0;
        if (strstr(stop_words, key)) continue;
        key[len + 1] = 0;
        size_t k = 0;
        while (k < w->n && strcmp(w->v[k], key + 1)) ++k;
        if (k == w->n) {
            w->is_name[k] = false;
            memcpy(w->v[w->n++], key + 1, len + 1);
        }
        w->is_name[k] |= is_name;
    }
    buf_fini(&folded);
}

void words_fold(struct buf *out, const char *text, size_t n) {
    /* the text is read in pieces, because words_of keeps each word once and at most WORDS_MAX */
    struct words part;
    if (!out->n) buf_putc(out, ' ');
    for (size_t at = 0; at < n && !out->failed;) {
        size_t len = n - at < 60 ? n - at : 60;
        while (at + len < n && len < 160 && text[at + len] != ' ' && text[at + len] != '\n') ++len;
        words_of(&part, text + at, len);
        for (size_t k = 0; k < part.n; ++k) buf_printf(out, "%s ", part.v[k]);
        at += len;
    }
}

bool words_is_number(const char *word) { return strspn(word, "0123456789") == strlen(word); }

int words_n_name(const struct words *w) {
    int n = 0;
    for (size_t k = 0; k < w->n; ++k) n += w->is_name[k];
    return n;
}

bool words_has_name(const struct words *w, const char *folded) {
    for (size_t k = 0; k < w->n; ++k)
        if (w->is_name[k] && words_count(folded, w->v[k])) return true;
    return !words_n_name(w);
}

int words_count(const char *folded, const char *word) {
    size_t n = strlen(word), stem = n > 5 ? n - 2 : n;
    bool number = words_is_number(word);
    int found = 0;
    if (number) stem = n;
    for (const char *p = folded; (p = strchr(p, ' ')) && *++p;) {
        if (strncmp(p, word, stem)) continue;
        size_t rest = strcspn(p, " ") - stem;
        found += !rest || (!number && n > 2 && rest <= 3 + (n - stem));
    }
    return found;
}
