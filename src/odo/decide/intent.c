#include "odo/decide/intent.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "retrieval/fold.h"
#include "odo/decide/classify.h"
#include "odo/pipeline/yamlfile.h"

enum { STRONG, PLAIN, WEAK, N_LEVEL, MAX_COUNTED = 3, MATCH_STEPS = 20000 };
static const double weight[N_LEVEL] = {4, 2, 1};

struct route {
    const char *name, *about;
    struct yamlfile_list files, words[N_LEVEL];
    pcre2_code *code[N_LEVEL]; /* owned; NULL: no words at this level */
};

struct intent_rules {
    struct arena arena;
    /* smallest accepted confidence of rules and of the classifier; classifier 0: not used */
    double accept, classifier;
    struct yamlfile_list greetings;
    pcre2_code *greeting; /* owned */
    struct route route[INTENT_MAX_ROUTES];
    int n_route;
    pcre2_match_context *limits; /* owned */
};

const char *intent_how_name(enum intent_how h) {
    static const char *const names[] = {"pinned",     "greeting", "rules", "files",
                                        "classifier", "model",    "none"};
    return names[h];
}

/* Compiles all entries into one expression. Each entry is compiled alone first, so that the error can name it. */
static int compile(struct yamlfile *f, int32_t node, const char *what,
                   const struct yamlfile_list *list, bool whole, pcre2_code **out, struct err *e) {
    *out = NULL;
    if (!list->n) return 0;
    struct buf all;
    buf_init(&all, (size_t)1 << 20);
    buf_puts(&all, whole ? "\\A(?:" : "(?<![\\p{L}\\p{N}_])(?:");
    for (size_t i = 0; i < list->n; ++i) {
        struct buf one;
        buf_init(&one, (size_t)1 << 16);
        fold_text(&one, list->v[i], strlen(list->v[i]), false);
        int code;
        PCRE2_SIZE where;
        pcre2_code *test =
            one.failed || !one.n
                ? NULL
                : pcre2_compile((PCRE2_SPTR)one.p, one.n, PCRE2_UTF | PCRE2_UCP | PCRE2_CASELESS,
                                &code, &where, NULL);
        if (!test) {
            char text[120] = "empty or too long";
            if (one.n) pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
            buf_fini(&one);
            buf_fini(&all);
            return yamlfile_fail(f, node, e, "%s: entry %zu \"%.60s\": %s", what, i + 1, list->v[i],
                                 text);
        }
        pcre2_code_free(test);
        buf_printf(&all, "%s(?:%s)", i ? "|" : "", one.p);
        buf_fini(&one);
    }
    buf_puts(&all, whole ? ")[\\s.!?,;:]*\\z" : ")(?![\\p{L}\\p{N}_])");
    int code;
    PCRE2_SIZE where;
    if (!all.failed)
        *out = pcre2_compile((PCRE2_SPTR)all.p, all.n, PCRE2_UTF | PCRE2_UCP | PCRE2_CASELESS,
                             &code, &where, NULL);
    buf_fini(&all);
    if (!*out) return yamlfile_fail(f, node, e, "%s: the entries together are too long", what);
    /* if the JIT fails, the interpreter gives the same result */
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return 0;
}

static int load_route(struct intent_rules *r, struct yamlfile *f, int32_t node, struct err *e) {
    static const struct yamlfile_field fields[] = {
        {"name", YF_STR, offsetof(struct route, name), 0, 0, NULL},
        {"about", YF_STR, offsetof(struct route, about), 0, 0, NULL},
        {"files", YF_LIST, offsetof(struct route, files), 0, 0, NULL},
        {"strong", YF_LIST, offsetof(struct route, words[STRONG]), 0, 0, NULL},
        {"plain", YF_LIST, offsetof(struct route, words[PLAIN]), 0, 0, NULL},
        {"weak", YF_LIST, offsetof(struct route, words[WEAK]), 0, 0, NULL},
        {0}};
    if (r->n_route == INTENT_MAX_ROUTES)
        return yamlfile_fail(f, node, e, "routes: expected at most %d", INTENT_MAX_ROUTES);
    struct route *t = &r->route[r->n_route];
    int rc = yamlfile_bind(f, node, fields, t, NULL, &r->arena, e);
    if (rc) return rc;
    if (!t->name || !*t->name || strlen(t->name) >= INTENT_MAX_NAME)
        return yamlfile_fail(f, node, e, "name: expected 1 to %d bytes", INTENT_MAX_NAME - 1);
    for (const char *c = t->name; *c; ++c)
        if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_' && *c != '-')
            return yamlfile_fail(f, node, e, "name: expected a-z 0-9 _ -, got \"%s\"", t->name);
    for (int i = 0; i < r->n_route; ++i)
        if (!strcmp(r->route[i].name, t->name))
            return yamlfile_fail(f, node, e, "route \"%s\" occurs twice", t->name);
    if (!t->about) t->about = t->name;
    ++r->n_route;
    static const char *const levels[] = {"strong", "plain", "weak"};
    for (int i = 0; i < N_LEVEL && !rc; ++i)
        rc = compile(f, node, levels[i], &t->words[i], false, &t->code[i], e);
    return rc;
}

static int load(struct intent_rules *r, struct yamlfile *f, struct err *e) {
    struct top {
        double accept, classifier;
        struct yamlfile_list greetings;
        int32_t routes;
    } top = {.accept = 0.6};
    static const struct yamlfile_field fields[] = {
        {"accept", YF_NUM, offsetof(struct top, accept), 0, 1, NULL},
        {"classifier", YF_NUM, offsetof(struct top, classifier), 0, 1, NULL},
        {"greetings", YF_LIST, offsetof(struct top, greetings), 0, 0, NULL},
        {"routes", YF_NODE, offsetof(struct top, routes), 0, 0, NULL},
        {0}};
    int32_t root = yamlfile_root(f), n = 0;
    int rc = yamlfile_bind(f, root, fields, &top, NULL, &r->arena, e);
    if (!rc && !top.routes) rc = yamlfile_fail(f, root, e, "expected \"routes:\"");
    if (!rc) rc = yamlfile_items(f, top.routes, "routes", &n, e);
    for (int32_t i = 0; i < n && !rc; ++i)
        rc = load_route(r, f, yamlfile_item(f, top.routes, i), e);
    r->accept = top.accept;
    r->classifier = top.classifier;
    if (!rc) rc = compile(f, root, "greetings", &top.greetings, true, &r->greeting, e);
    return rc;
}

int intent_parse(struct intent_rules **out, const char *path, const char *text, size_t n,
                 struct err *e) {
    *out = NULL;
    struct intent_rules *r = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    arena_init(&r->arena, (size_t)8 << 20);
    struct yamlfile *f = NULL;
    int rc = yamlfile_open(&f, path, text, n, e);
    if (!rc) rc = load(r, f, e);
    if (!rc && !(r->limits = pcre2_match_context_create(NULL)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) {
        pcre2_set_match_limit(r->limits, MATCH_STEPS);
        pcre2_set_depth_limit(r->limits, 1000);
    }
    yamlfile_close(f);
    if (rc) intent_free(r);
    else *out = r;
    return rc;
}

int intent_load(struct intent_rules **out, const char *path, struct err *e) {
    return intent_parse(out, path, NULL, 0, e);
}

void intent_free(struct intent_rules *r) {
    if (!r) return;
    for (int i = 0; i < r->n_route; ++i)
        for (int k = 0; k < N_LEVEL; ++k) pcre2_code_free(r->route[i].code[k]);
    pcre2_code_free(r->greeting);
    pcre2_match_context_free(r->limits);
    arena_fini(&r->arena);
    mem_free(r);
}

double intent_classifier(const struct intent_rules *r) { return r->classifier; }

int intent_n_route(const struct intent_rules *r) { return r->n_route; }

const char *intent_route(const struct intent_rules *r, int i) {
    return i >= 0 && i < r->n_route ? r->route[i].name : NULL;
}

const char *intent_about(const struct intent_rules *r, int i) {
    return i >= 0 && i < r->n_route ? r->route[i].about : NULL;
}

/* Counts the different matches of one expression, up to MAX_COUNTED. */
static int count(const struct intent_rules *r, const pcre2_code *code, pcre2_match_data *m,
                 const char *text, size_t n) {
    if (!code) return 0;
    size_t at = 0, from[MAX_COUNTED], len[MAX_COUNTED];
    int found = 0;
    while (at <= n && found < MAX_COUNTED &&
           pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, m, r->limits) >= 0) {
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m);
        if (v[1] <= v[0]) break;
        bool again = false;
        for (int i = 0; i < found; ++i)
            again |= len[i] == v[1] - v[0] && !memcmp(text + from[i], text + v[0], len[i]);
        if (!again) from[found] = v[0], len[found++] = v[1] - v[0];
        at = v[1];
    }
    return found;
}

static bool by_rules(const struct intent_rules *r, const char *text, size_t n, struct intent *out) {
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    if (!m) return false;
    int best = -1;
    double second = 0;
    bool greeting = r->greeting && pcre2_match(r->greeting, (PCRE2_SPTR)text, n, 0,
                                               PCRE2_NO_UTF_CHECK, m, r->limits) >= 0;
    for (int i = 0; i < r->n_route && !greeting; ++i) {
        double s = 0;
        for (int k = 0; k < N_LEVEL; ++k)
            s += weight[k] * count(r, r->route[i].code[k], m, text, n);
        out->score[i] = s;
        if (best < 0 || s > out->score[best]) {
            if (best >= 0 && out->score[best] > second) second = out->score[best];
            best = i;
        } else if (s > second) {
            second = s;
        }
    }
    pcre2_match_data_free(m);
    if (greeting) {
        snprintf(out->route, sizeof out->route, "default");
        out->confidence = 0.95;
        out->how = INTENT_GREETING;
        return true;
    }
    if (best < 0 || out->score[best] <= 0) return false;
    double top = out->score[best];
    snprintf(out->route, sizeof out->route, "%s", r->route[best].name);
    out->confidence = (top - second / 2) / (top + 1);
    out->how = INTENT_RULES;
    return out->confidence >= r->accept;
}

static bool listed(const char *ext, const char *list) {
    size_t n = strlen(ext);
    for (const char *p = list; p; p = strchr(p, ' ') ? strchr(p, ' ') + 1 : NULL)
        if (!strncmp(p, ext, n) && (p[n] == ' ' || !p[n])) return true;
    return false;
}

static int file_route(const struct intent_rules *r, const char *name, bool *image, bool *doc) {
    const char *dot = strrchr(name, '.');
    char ext[12] = "";
    if (!dot || strlen(dot) > sizeof ext) return -1;
    for (size_t i = 0; dot[i + 1]; ++i) ext[i] = (char)tolower((unsigned char)dot[i + 1]);
    *image |= listed(ext, "png jpg jpeg gif webp bmp svg tif tiff heic avif");
    *doc |= listed(ext, "pdf doc docx odt txt md epub html htm rtf");
    for (int i = 0; i < r->n_route; ++i)
        for (size_t k = 0; k < r->route[i].files.n; ++k)
            if (!strcmp(r->route[i].files.v[k], ext)) return i;
    return -1;
}

static bool by_files(const struct intent_rules *r, const struct intent_question *q,
                     bool images_only, struct intent *out) {
    int votes[INTENT_MAX_ROUTES] = {0}, best = -1;
    bool image = q->has_image, doc = false;
    for (size_t i = 0; i < q->n_file; ++i) {
        int k = file_route(r, q->files[i], &image, &doc);
        if (k >= 0 && (++votes[k], best < 0 || votes[k] > votes[best])) best = k;
    }
    if (images_only ? !image : best < 0 && !doc) return false;
    snprintf(out->route, sizeof out->route, "%s",
             images_only ? "vision"
             : best >= 0 ? r->route[best].name
                         : "doc_qa");
    out->confidence = image ? 0.9 : 0.85;
    out->how = INTENT_FILES;
    return true;
}

static bool by_judge(const struct intent_rules *r, const struct intent_question *q,
                     const struct intent_judge *judge, struct intent *out) {
    if (!judge || !judge->choose) return false;
    const char *names[INTENT_MAX_ROUTES], *about[INTENT_MAX_ROUTES];
    for (int i = 0; i < r->n_route; ++i) names[i] = r->route[i].name, about[i] = r->route[i].about;
    char text[512];
    size_t n = q->n < sizeof text - 1 ? q->n : sizeof text - 1;
    memcpy(text, q->text, n);
    /* do not cut a character in the middle */
    while (n && n < q->n && ((unsigned char)q->text[n] & 0xc0) == 0x80) --n;
    text[n] = 0;
    int k = judge->choose(judge->ud, text, names, about, r->n_route,
                          q->budget_ms > 0 ? q->budget_ms : 300);
    if (k < 0 || k >= r->n_route) return false;
    snprintf(out->route, sizeof out->route, "%s", r->route[k].name);
    out->confidence = 0.7;
    out->how = INTENT_MODEL;
    return true;
}

static int route_named(const struct intent_rules *r, const char *name) {
    for (int i = 0; i < r->n_route; ++i)
        if (!strcmp(r->route[i].name, name)) return i;
    return -1;
}

/* Chooses the likeliest of the configured routes. Rules that matched too weakly are not used to break a tie,
 * because the classifier has read the same words. */
static bool by_classifier(const struct intent_rules *r, const struct intent_question *q,
                          struct intent *out) {
    struct classified c;
    double sum = 0;
    int best = -1;
    if (r->classifier <= 0) return false;
    classify_text(q->text, q->n, &c);
    for (int i = 0; i < CLASSIFY_N_ROUTE; ++i) {
        if (route_named(r, classify_routes[i]) < 0) continue;
        sum += c.route[i];
        if (best < 0 || c.route[i] > c.route[best]) best = i;
    }
    if (best < 0 || sum <= 0) return false;
    out->confidence = c.route[best] / sum;
    double least = q->limits ? limits_route(q->limits, r->classifier) : r->classifier;
    bool sure = out->confidence >= least;
    snprintf(out->route, sizeof out->route, "%s", sure ? classify_routes[best] : "default");
    out->how = INTENT_CLASSIFIER;
    return true;
}

void intent_decide(const struct intent_rules *r, const struct intent_question *q,
                   const struct intent_judge *judge, struct intent *out) {
    int64_t start = clock_ns();
    memset(out, 0, sizeof *out);
    struct buf text;
    buf_init(&text, 4 * INTENT_MAX_TEXT);
    size_t n = q->n < INTENT_MAX_TEXT ? q->n : INTENT_MAX_TEXT;
    fold_text(&text, q->text, n, true);
    bool done = by_files(r, q, true, out);
    if (!done && text.n) done = by_rules(r, text.p, text.n, out);
    struct intent guess = *out;
    if (!done) done = by_files(r, q, false, out);
    if (!done) done = by_classifier(r, q, out);
    if (!done) done = by_judge(r, q, judge, out);
    if (!done) {
        /* the rules' guess was not sure enough, but it is better than "default" */
        *out = guess;
        bool any = guess.how == INTENT_RULES && guess.confidence >= 0.3;
        out->how = INTENT_NONE;
        if (!any) snprintf(out->route, sizeof out->route, "default");
        out->confidence = any ? guess.confidence : 0.3;
    }
    buf_fini(&text);
    out->ms = clock_ms_since(start);
}
