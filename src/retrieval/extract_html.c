/* extract_html.c: extracts the text of a page in reading order with libxml2. Runs in the sandboxed child. */
#include <ctype.h>
#include <libxml/HTMLparser.h>
#include <stdio.h>
#include <string.h>

#include "retrieval/extract_impl.h"

/* ---- checks before libxml2 parses the text ---- */

/* libxml2 compares each attribute of a tag with all earlier ones: 300,000 attributes take minutes. Tags are
 * therefore checked first, with the same rule as in libxml2: a quote opens a value only after '='. */
static size_t skip_blanks(const char *s, size_t i, size_t n) {
    while (i < n && isspace((unsigned char)s[i])) ++i;
    return i;
}

static size_t skip_value(const char *s, size_t i, size_t n) {
    i = skip_blanks(s, i, n);
    if (i < n && (s[i] == '"' || s[i] == '\'')) {
        const char *end = memchr(s + i + 1, s[i], n - i - 1);
        return end ? (size_t)(end - s) + 1 : n;
    }
    while (i < n && !isspace((unsigned char)s[i]) && s[i] != '>') ++i;
    return i;
}

/* Returns the end of the tag that begins at s[i]. Stops early once the tag has too many attributes. */
static size_t skip_tag(const char *s, size_t i, size_t n, int *n_attribute) {
    while (i < n && !isspace((unsigned char)s[i]) && s[i] != '>' && s[i] != '/') ++i;
    for (*n_attribute = 0; i < n && s[i] != '>' && *n_attribute <= EXTRACT_MAX_ATTRIBUTES;) {
        size_t from = i;
        while (i < n && !isspace((unsigned char)s[i]) && s[i] != '=' && s[i] != '>' && s[i] != '/')
            ++i;
        *n_attribute += i > from;
        i = skip_blanks(s, i, n);
        if (i < n && s[i] == '=') i = skip_value(s, i + 1, n);
        else if (i < n && s[i] == '/') ++i;
        i = skip_blanks(s, i, n);
    }
    return i;
}

/* True for the first character of a name in HTML or XML. */
static bool begins_name(unsigned char c) { return isalpha(c) || c == '_' || c == ':' || c >= 0x80; }

bool extract_has_huge_tag(const char *s, size_t n) {
    for (size_t i = 0; i + 1 < n; ++i) {
        int n_attribute;
        if (s[i] != '<' || !begins_name((unsigned char)s[i + 1])) continue;
        i = skip_tag(s, i + 1, n, &n_attribute);
        if (n_attribute > EXTRACT_MAX_ATTRIBUTES) return true;
    }
    return false;
}

/* ---- the document ---- */

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

/* Appends text; runs of blanks become one, except in <pre>. */
void extract_put_words(struct buf *b, const char *s, bool pre) {
    for (; *s && !b->failed; ++s) {
        bool blank = !pre && isspace((unsigned char)*s);
        if (!blank) buf_putc(b, *s);
        else if (b->n && b->p[b->n - 1] != ' ' && b->p[b->n - 1] != '\n') buf_putc(b, ' ');
    }
}

static void begin_element(struct buf *b, const xmlNode *node) {
    const char *name = (const char *)node->name;
    if (!among(blocks, node->name)) {
        if (!strcmp(name, "td") || !strcmp(name, "th")) extract_put_words(b, " ", false);
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

/* Walks in document order without recursion, because the page controls the nesting depth. */
static void walk(struct extract *x, xmlNode *root) {
    struct buf *b = &x->text;
    int pre = 0;
    for (xmlNode *n = root; n && !b->failed;) {
        bool element = n->type == XML_ELEMENT_NODE;
        bool skip = element && (among(skipped, n->name) || is_hidden(n));
        if (n->type == XML_TEXT_NODE && n->content)
            extract_put_words(b, (const char *)n->content, pre > 0);
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

int extract_html(struct extract *x, const char *data, size_t n, struct err *e) {
    if (extract_has_huge_tag(data, n))
        return err_set(e, CHIMERE_ELIMIT, "HTML: a tag with more than %d attributes",
                       EXTRACT_MAX_ATTRIBUTES);
    htmlDocPtr doc = htmlReadMemory(data, (int)n, NULL, NULL,
                                    HTML_PARSE_RECOVER | HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING |
                                        HTML_PARSE_NONET | HTML_PARSE_COMPACT);
    if (!doc) return err_set(e, CHIMERE_EFORMAT, "not HTML");
    xmlNode *root = xmlDocGetRootElement(doc), *title = root ? find(root, "title") : NULL,
            *body = root ? find(root, "body") : NULL, *main_part = body ? find(body, "main") : NULL;
    if (title && title->children && title->children->content) {
        struct buf t;
        buf_init(&t, 4096);
        extract_put_words(&t, (const char *)title->children->content, false);
        if (t.n) extract_set_title(x, t.p, t.n);
        buf_fini(&t);
    }
    if (root) walk(x, main_part ? main_part : body ? body : root);
    xmlFreeDoc(doc);
    return 0;
}
