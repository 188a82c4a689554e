#include "odo/extract_impl.h"

#include <ctype.h>
#include <libxml/HTMLparser.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

/* ---- kinds ---- */

static const struct {
    enum extract_kind kind;
    const char *endings;
} kinds[] = {
    {EXTRACT_TEXT, " txt text log csv tsv rst org tex "},
    {EXTRACT_MARKDOWN, " md markdown mdown "},
    {EXTRACT_HTML, " html htm xhtml "},
    {EXTRACT_PDF, " pdf "},
    {EXTRACT_CODE,
     " c h cc cpp hpp cu cuh py rs js mjs ts tsx jsx java kt go rb php swift zig sh sql lua cs "
     "scala toml yaml yml json ini cfg cmake css "},
};

enum extract_kind extract_kind_of(const char *name) {
    const char *dot = strrchr(name, '.');
    char ending[16];
    size_t n = dot ? strlen(dot + 1) : 0;
    if (!n || n + 3 > sizeof ending || strchr(dot, '/')) return EXTRACT_NONE;
    ending[0] = ' ';
    for (size_t i = 0; i < n; ++i) ending[i + 1] = (char)tolower((unsigned char)dot[i + 1]);
    ending[n + 1] = ' ';
    ending[n + 2] = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i)
        if (strstr(kinds[i].endings, ending)) return kinds[i].kind;
    return EXTRACT_NONE;
}

enum extract_kind extract_kind_of_type(const char *t) {
    if (str_starts(t, "text/html") || str_starts(t, "application/xhtml")) return EXTRACT_HTML;
    if (str_starts(t, "text/markdown")) return EXTRACT_MARKDOWN;
    if (str_starts(t, "application/pdf")) return EXTRACT_PDF;
    if (str_starts(t, "application/json")) return EXTRACT_CODE;
    return str_starts(t, "text/") ? EXTRACT_TEXT : EXTRACT_NONE;
}

/* ---- plain text ---- */

/* Control bytes but tab and line end go, and so do carriage returns; single foreign bytes are Latin-1. */
void extract_put_clean(struct buf *b, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        int len = utf8_valid_len(s + i, n - i);
        unsigned char c = (unsigned char)s[i];
        if (len <= 0) {
            char two[4];
            if (c >= 0xa0) buf_put(b, two, (size_t)utf8_encode(c, two));
            ++i;
            continue;
        }
        if (len > 1 || c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f))
            buf_put(b, s + i, (size_t)len);
        i += (size_t)len;
    }
}

void extract_set_title(struct extract *x, const char *s, size_t n) {
    while (n && isspace((unsigned char)*s)) ++s, --n;
    size_t to = 0;
    while (to < n && to < sizeof x->title - 1 && s[to] != '\n') ++to;
    while (to && ((unsigned char)s[to] & 0xc0) == 0x80) --to;
    while (to && isspace((unsigned char)s[to - 1])) --to;
    memcpy(x->title, s, to);
    x->title[to] = 0;
}

static void read_plain(struct extract *x, const char *data, size_t n) {
    if (n >= 3 && !memcmp(data, "\xef\xbb\xbf", 3)) data += 3, n -= 3;
    extract_put_clean(&x->text, data, n);
    if (x->kind != EXTRACT_MARKDOWN || !x->text.n) return;
    const char *p = x->text.p;
    while (p && *p && !(p[0] == '#' && p[1] == ' '))
        if ((p = strchr(p, '\n'))) ++p;
    if (p && *p) extract_set_title(x, p + 2, x->text.n - (size_t)(p + 2 - x->text.p));
}

/* ---- HTML ---- */

static const char skipped[] =
    " script style noscript template svg math form button select iframe object nav "
    "footer aside head input textarea video audio canvas ";
static const char blocks[] =
    " p div section article main header li ul ol table tr br hr pre blockquote dl dt "
    "dd figure figcaption h1 h2 h3 h4 h5 h6 ";

static bool among(const char *list, const xmlChar *name) {
    char key[24];
    int n = snprintf(key, sizeof key, " %s ", (const char *)name);
    return n > 0 && n < (int)sizeof key && strstr(list, key);
}

static bool is_hidden(xmlNode *node) {
    for (const xmlAttr *a = node->properties; a; a = a->next) {
        const char *name = (const char *)a->name;
        const char *value =
            a->children && a->children->content ? (const char *)a->children->content : "";
        if (!strcmp(name, "hidden")) return true;
        if (!strcmp(name, "aria-hidden") && !strcmp(value, "true")) return true;
        if (!strcmp(name, "style") &&
            (strstr(value, "display:none") || strstr(value, "display: none") ||
             strstr(value, "visibility:hidden")))
            return true;
    }
    return false;
}

void extract_new_line(struct buf *b) {
    while (b->n && b->p[b->n - 1] == ' ') buf_cut(b, b->n - 1);
    if (b->n && b->p[b->n - 1] != '\n') buf_putc(b, '\n');
}

/* Runs of blanks become one, except in <pre>. */
static void put_words(struct buf *b, const char *s, bool pre) {
    for (; *s && !b->failed; ++s) {
        bool blank = !pre && isspace((unsigned char)*s);
        if (!blank) buf_putc(b, *s);
        else if (b->n && b->p[b->n - 1] != ' ' && b->p[b->n - 1] != '\n') buf_putc(b, ' ');
    }
}

static void begin_element(struct buf *b, const xmlNode *node) {
    const char *name = (const char *)node->name;
    if (!among(blocks, node->name)) {
        if (!strcmp(name, "td") || !strcmp(name, "th")) put_words(b, " ", false);
        return;
    }
    extract_new_line(b);
    if (name[0] == 'h' && name[1] >= '1' && name[1] <= '6' && !name[2]) {
        for (int i = 0; i < name[1] - '0'; ++i) buf_putc(b, '#');
        buf_putc(b, ' ');
    }
    if (!strcmp(name, "li")) buf_puts(b, "- ");
}

static void end_element(struct buf *b, const xmlNode *node) {
    if (!among(blocks, node->name)) return;
    extract_new_line(b);
    if (!strcmp((const char *)node->name, "p") && b->n) buf_putc(b, '\n');
}

/* In document order without recursion: nesting is the page's choice. */
static void walk(struct extract *x, xmlNode *root) {
    struct buf *b = &x->text;
    int pre = 0;
    for (xmlNode *n = root; n && !b->failed;) {
        bool element = n->type == XML_ELEMENT_NODE;
        bool skip = element && (among(skipped, n->name) || is_hidden(n));
        if (n->type == XML_TEXT_NODE && n->content) put_words(b, (const char *)n->content, pre > 0);
        if (element && !skip) {
            pre += !strcmp((const char *)n->name, "pre");
            begin_element(b, n);
        }
        if (!skip && n->children && element) {
            n = n->children;
            continue;
        }
        for (;;) {
            if (n->type == XML_ELEMENT_NODE && !(among(skipped, n->name) || is_hidden(n))) {
                pre -= !strcmp((const char *)n->name, "pre");
                end_element(b, n);
            }
            if (n == root) return;
            if (n->next) {
                n = n->next;
                break;
            }
            n = n->parent;
            if (!n || n == root) return;
        }
    }
}

static xmlNode *find(xmlNode *root, const char *name) {
    for (xmlNode *n = root; n;) {
        if (n->type == XML_ELEMENT_NODE && !xmlStrcasecmp(n->name, (const xmlChar *)name)) return n;
        if (n->type == XML_ELEMENT_NODE && n->children) {
            n = n->children;
            continue;
        }
        while (n && !n->next) n = n == root ? NULL : n->parent;
        if (n) n = n->next;
    }
    return NULL;
}

static int read_html(struct extract *x, const char *data, size_t n, struct err *e) {
    htmlDocPtr doc = htmlReadMemory(data, (int)n, NULL, NULL,
                                    HTML_PARSE_RECOVER | HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING |
                                        HTML_PARSE_NONET | HTML_PARSE_COMPACT);
    if (!doc) return err_set(e, CHIMERE_EFORMAT, "not HTML");
    xmlNode *root = xmlDocGetRootElement(doc), *title = root ? find(root, "title") : NULL,
            *body = root ? find(root, "body") : NULL, *main_part = body ? find(body, "main") : NULL;
    if (title && title->children && title->children->content) {
        struct buf t;
        buf_init(&t, 4096);
        put_words(&t, (const char *)title->children->content, false);
        if (t.n) extract_set_title(x, t.p, t.n);
        buf_fini(&t);
    }
    if (root) walk(x, main_part ? main_part : body ? body : root);
    xmlFreeDoc(doc);
    return 0;
}

int extract_text(struct extract *x, enum extract_kind kind, const char *data, size_t n,
                 int64_t deadline_ns, struct err *e) {
    *x = (struct extract){.kind = kind};
    buf_init(&x->text, EXTRACT_MAX_TEXT);
    if (n > EXTRACT_MAX_BYTES)
        return err_set(e, CHIMERE_ELIMIT, "expected at most %d bytes, got %zu", EXTRACT_MAX_BYTES,
                       n);
    int rc = 0;
    switch (kind) {
    case EXTRACT_NONE:
        return err_set(e, CHIMERE_EUNSUPPORTED, "no text can be taken from this type");
    case EXTRACT_HTML: rc = read_html(x, data, n, e); break;
    case EXTRACT_PDF: rc = extract_pdf(x, data, n, deadline_ns, e); break;
    default:
        if (memchr(data, 0, n < 8192 ? n : 8192))
            return err_set(e, CHIMERE_EFORMAT, "expected text, got binary data");
        read_plain(x, data, n);
    }
    if (!rc && x->text.failed == CHIMERE_ELIMIT)
        rc = err_set(e, CHIMERE_ELIMIT, "more than %d bytes of text", EXTRACT_MAX_TEXT);
    if (!rc && x->text.failed) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    return rc;
}

void extract_fini(struct extract *x) {
    buf_fini(&x->text);
    mem_free(x->pages);
    x->pages = NULL;
}
