#include "odo/cache.h"

#include <ctype.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "retrieval/fold.h"

struct entry {
    struct cache_place place; /* owned */
    char *text;               /* owned */
    int64_t until_ns, used_ns;
};

struct cache {
    const struct cache_vectors *vectors; /* borrowed; may be NULL */
    int64_t keep_ns;
    pthread_mutex_t lock;
    struct entry v[CACHE_N];
};

int cache_new(struct cache **out, int64_t keep_ms, const struct cache_vectors *v, struct err *e) {
    *out = mem_zalloc(sizeof **out);
    if (!*out) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    (*out)->vectors = v;
    (*out)->keep_ns = keep_ms * 1000000;
    pthread_mutex_init(&(*out)->lock, NULL);
    return 0;
}

static void entry_fini(struct entry *e) {
    cache_place_fini(&e->place);
    mem_free(e->text);
    *e = (struct entry){0};
}

void cache_free(struct cache *c) {
    if (!c) return;
    for (int i = 0; i < CACHE_N; ++i) entry_fini(&c->v[i]);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* ---- the key of a request ---- */

/* Returns a copy of the messages in which the last question is empty. */
static json_t *without_question(const json_t *messages) {
    json_t *all = json_copy((json_t *)messages);
    for (size_t i = json_array_size(all); i-- > 0;) {
        const json_t *m = json_array_get(all, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!role || strcmp(role, "user") != 0) continue;
        /* content in parts: only an identical request matches */
        if (!json_is_string(json_object_get(m, "content"))) break;
        json_t *bare = json_copy((json_t *)m);
        json_object_set_new(bare, "content", json_string(""));
        json_array_set_new(all, i, bare);
        return all;
    }
    json_decref(all);
    return NULL;
}

static char *as_text(const struct request *a, const char *route, const char *mode,
                     const char *context, json_t *messages) {
    const struct sampler_params *s = &a->sampling;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:O, s:i, s:i, s:b, s:[f,f,f,f,f,i]}", "owner",
                          a->owner ? a->owner : "", "user", a->user ? a->user : "", "route", route,
                          "mode", mode, "context", context, "messages", messages, "format",
                          (int)a->format, "max", (int)a->max_tokens, "think", a->think, "sampling",
                          (double)s->temperature, (double)s->top_p, (double)s->min_p,
                          (double)s->presence_penalty, (double)s->repeat_penalty, (int)s->top_k);
    if (o && a->tools) json_object_set(o, "tools", a->tools);
    if (o && a->schema) json_object_set(o, "schema", a->schema);
    if (o && a->extra) json_object_set(o, "extra", a->extra);
    if (o && a->grammar) json_object_set_new(o, "grammar", json_string(a->grammar));
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(o);
    if (text && strlen(text) > CACHE_MAX_BYTES) {
        mem_free(text);
        text = NULL;
    }
    return text;
}

int cache_place(struct cache *c, const struct request *a, const char *route, const char *mode,
                const char *context, const char *question, bool near, struct cache_place *out) {
    *out = (struct cache_place){0};
    if (a->n != 1 || a->probs || a->n_stop || !a->messages || !cache_is_timeless(question))
        return 0;
    if (!(out->key = as_text(a, route, mode, context, a->messages)) || !near || !c->vectors)
        return 0;
    json_t *rest = without_question(a->messages);
    out->scope = rest ? as_text(a, route, mode, context, rest) : NULL;
    json_decref(rest);
    out->question = mem_strdup(question);
    out->vec = mem_alloc_array((size_t)c->vectors->n, sizeof *out->vec);
    int rc = out->vec && out->scope && out->question
                 ? c->vectors->of(c->vectors->ud, question, out->vec, NULL)
                 : CHIMERE_ENOMEM;
    if (!rc) return 0;
    mem_free(out->scope);
    mem_free(out->vec);
    out->scope = NULL;
    out->vec = NULL;
    return rc;
}

void cache_place_fini(struct cache_place *p) {
    mem_free(p->key);
    mem_free(p->scope);
    mem_free(p->question);
    mem_free(p->vec);
    *p = (struct cache_place){0};
}

/* ---- lookup ---- */

static double dot(const float *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; ++i) sum += (double)a[i] * (double)b[i];
    return sum;
}

char *cache_find(struct cache *c, const struct cache_place *p, double *cosine) {
    char *copy = NULL;
    struct entry *best = NULL;
    int64_t now = clock_ns();
    *cosine = 0;
    if (!p->key) return NULL;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < CACHE_N && *cosine < 1; ++i) {
        struct entry *e = &c->v[i];
        if (!e->place.key || e->until_ns < now) continue;
        if (!strcmp(e->place.key, p->key)) {
            best = e;
            *cosine = 1;
        } else if (p->scope && e->place.scope && !strcmp(e->place.scope, p->scope)) {
            double d = dot(p->vec, e->place.vec, c->vectors->n);
            if (d < CACHE_NEAR || d <= *cosine || !cache_is_alike(p->question, e->place.question))
                continue;
            best = e;
            *cosine = d < 0.999999 ? d : 0.999999; /* 1 is reserved for an identical request */
        }
    }
    if (best) {
        best->used_ns = now;
        copy = mem_strdup(best->text);
    }
    pthread_mutex_unlock(&c->lock);
    return copy;
}

static int place_copy(const struct cache *c, const struct cache_place *p, struct cache_place *out) {
    *out = (struct cache_place){.key = mem_strdup(p->key)};
    if (!out->key) return CHIMERE_ENOMEM;
    if (!p->scope) return 0;
    size_t n = (size_t)c->vectors->n;
    out->scope = mem_strdup(p->scope);
    out->question = mem_strdup(p->question);
    out->vec = mem_alloc_array(n, sizeof *out->vec);
    if (!out->scope || !out->question || !out->vec) return CHIMERE_ENOMEM;
    memcpy(out->vec, p->vec, n * sizeof *out->vec);
    return 0;
}

void cache_put(struct cache *c, const struct cache_place *p, const char *text, size_t n) {
    struct entry own = {0};
    if (n > CACHE_MAX_BYTES || !p->key) return;
    int64_t now = clock_ns();
    if (place_copy(c, p, &own.place) || !(own.text = mem_strndup(text, n))) {
        entry_fini(&own);
        return;
    }
    own.until_ns = now + c->keep_ns;
    own.used_ns = now;
    pthread_mutex_lock(&c->lock);
    struct entry *oldest = &c->v[0];
    for (int i = 0; i < CACHE_N; ++i) {
        if (c->v[i].place.key && !strcmp(c->v[i].place.key, p->key)) {
            oldest = &c->v[i];
            break;
        }
        if (c->v[i].used_ns < oldest->used_ns) oldest = &c->v[i];
    }
    struct entry old = *oldest;
    *oldest = own;
    pthread_mutex_unlock(&c->lock);
    entry_fini(&old);
}

/* ---- which questions may share an answer ---- */

static bool is_word_byte(char c) { return isalnum((unsigned char)c) || (c & 0x80); }

/* Returns true if the folded text contains the word or words. `spaced` has a space on both sides of each word. */
static bool has(const char *spaced, const char *words) { return strstr(spaced, words) != NULL; }

/* Writes the text as " word word ", in lower case and without accents. */
static void spaced(struct buf *out, const char *text) {
    struct buf folded;
    buf_init(&folded, (size_t)64 << 10);
    fold_text(&folded, text, strnlen(text, 8192), true);
    buf_putc(out, ' ');
    for (size_t i = 0; i < folded.n; ++i) {
        bool word = is_word_byte(folded.p[i]);
        if (word) buf_putc(out, (char)tolower((unsigned char)folded.p[i]));
        else if (out->p && out->p[out->n - 1] != ' ') buf_putc(out, ' ');
    }
    buf_putc(out, ' ');
    buf_fini(&folded);
}

bool cache_is_timeless(const char *question) {
    static const char *const timely[] = {
        " today ",      " tonight ",      " now ",           " yesterday ",    " tomorrow ",
        " current ",    " currently ",    " latest ",        " recent ",       " recently ",
        " news ",       " weather ",      " price ",         " prices ",       " this week ",
        " this month ", " this year ",    " last week ",     " what time ",    " what day ",
        " date ",       " upcoming ",     " nowadays ",      " so far ",       " aujourd ",
        " hui ",        " maintenant ",   " hier ",          " demain ",       " actuel ",
        " actuelle ",   " actuellement ", " dernier ",       " derniere ",     " dernieres ",
        " derniers ",   " recemment ",    " meteo ",         " quelle heure ", " quel jour ",
        " prix ",       " cours de ",     " cette semaine ", " ce mois ",      " cette annee ",
        " ce soir ",    " actualite ",    " actualites "};
    struct buf b;
    bool timeless = true;
    buf_init(&b, (size_t)64 << 10);
    spaced(&b, question);
    for (size_t i = 0; i < sizeof timely / sizeof *timely && b.n && !b.failed; ++i)
        timeless &= !has(b.p, timely[i]);
    timeless &= !b.failed;
    buf_fini(&b);
    return timeless;
}

/* Writes the words that vectors do not distinguish: words with digits, and names. A word counts as a name if it
 * has a capital letter and does not begin a sentence. The words keep their order, each followed
 * by a space. */
static void marks(struct buf *out, const char *text) {
    bool begins = true; /* the next word begins a sentence */
    for (const char *p = text; *p;) {
        if (!is_word_byte(*p)) {
            begins |= *p == '.' || *p == '?' || *p == '!' || *p == '\n' || *p == ':';
            ++p;
            continue;
        }
        size_t n = 0;
        bool digit = false, capital = isupper((unsigned char)*p), inner = false;
        for (; is_word_byte(p[n]); ++n) {
            digit |= isdigit((unsigned char)p[n]);
            inner |= n && isupper((unsigned char)p[n]);
        }
        if (digit || inner || (capital && !begins && n > 1)) buf_printf(out, " %.*s ", (int)n, p);
        begins = false;
        p += n;
    }
}

/* Returns true if b contains every word that marks() found in a, at any place and in any case. */
static bool covers(const struct buf *a, const char *b_spaced) {
    struct buf small;
    bool all = true;
    buf_init(&small, (size_t)64 << 10);
    if (a->n) spaced(&small, a->p);
    for (size_t i = 1; i < small.n && all;) {
        size_t n = strcspn(small.p + i, " ");
        char word[80] = " ";
        if (n && n < sizeof word - 3) {
            memcpy(word + 1, small.p + i, n);
            memcpy(word + 1 + n, " ", 2);
            all = has(b_spaced, word);
        }
        i += n + 1;
    }
    all &= !small.failed;
    buf_fini(&small);
    return all;
}

bool cache_is_alike(const char *a, const char *b) {
    /* If only one of two questions has such a word, they ask for opposite things. */
    static const char *const turns[] = {" not ",    " no ",    " never ",   " without ", " t ",
                                        " except ", " least ", " most ",    " before ",  " after ",
                                        " ne ",     " n ",     " pas ",     " jamais ",  " sans ",
                                        " sauf ",   " moins ", " plus ",    " avant ",   " apres ",
                                        " min ",    " max ",   " minimum ", " maximum "};
    struct buf sa, sb, ma, mb;
    buf_init(&sa, (size_t)64 << 10);
    buf_init(&sb, (size_t)64 << 10);
    buf_init(&ma, (size_t)64 << 10);
    buf_init(&mb, (size_t)64 << 10);
    spaced(&sa, a), spaced(&sb, b);
    marks(&ma, a), marks(&mb, b);
    bool alike = !sa.failed && !sb.failed && !ma.failed && !mb.failed;
    for (size_t i = 0; i < sizeof turns / sizeof *turns && alike; ++i)
        alike = has(sa.p, turns[i]) == has(sb.p, turns[i]);
    alike = alike && covers(&ma, sb.p) && covers(&mb, sa.p);
    buf_fini(&sa), buf_fini(&sb), buf_fini(&ma), buf_fini(&mb);
    return alike;
}
