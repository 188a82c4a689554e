/* extract_xml.c: parses XML with libxml2's reader, which keeps only one path of the tree in memory and limits
 * depth and entity expansion. No file or address is loaded. Runs in the sandboxed child. */
#include "retrieval/extract_xml.h"

#include <libxml/xmlreader.h>
#include <string.h>

#include "base/str.h"

bool extract_xml_attribute(struct _xmlTextReader *r, const char *name, char *out, size_t size) {
    bool found = false;
    for (int more = xmlTextReaderMoveToFirstAttribute(r); more == 1 && !found;
         more = xmlTextReaderMoveToNextAttribute(r)) {
        const char *here = (const char *)xmlTextReaderConstLocalName(r);
        const char *value = (const char *)xmlTextReaderConstValue(r);
        if (!here || strcmp(here, name) != 0) continue;
        found = value && strlen(value) < size;
        if (found) memcpy(out, value, strlen(value) + 1);
        break;
    }
    xmlTextReaderMoveToElement(r);
    return found;
}

static void visit(struct _xmlTextReader *r, const struct xml_events *v) {
    const char *name = (const char *)xmlTextReaderConstLocalName(r);
    const char *value = (const char *)xmlTextReaderConstValue(r);
    switch (xmlTextReaderNodeType(r)) {
    case XML_READER_TYPE_ELEMENT: {
        bool is_empty = xmlTextReaderIsEmptyElement(r) == 1;
        v->begin(v->ud, r, name ? name : "");
        if (is_empty) v->end(v->ud, name ? name : "");
        break;
    }
    case XML_READER_TYPE_END_ELEMENT: v->end(v->ud, name ? name : ""); break;
    case XML_READER_TYPE_TEXT:
    case XML_READER_TYPE_CDATA:
    case XML_READER_TYPE_SIGNIFICANT_WHITESPACE:
        if (value) v->text(v->ud, value);
        break;
    default: break;
    }
}

/* Sets the encoding explicitly, so that the check for huge tags reads the bytes in the same way as libxml2. */
int extract_xml_walk(const char *data, size_t n, const struct xml_events *v, struct err *e) {
    if (n >= 3 && !memcmp(data, "\xef\xbb\xbf", 3)) data += 3, n -= 3;
    if (memchr(data, 0, n))
        return err_set(e, CHIMERE_EFORMAT, "XML: expected UTF-8 or Latin-1, got a zero byte");
    if (extract_has_huge_tag(data, n))
        return err_set(e, CHIMERE_ELIMIT, "XML: a tag with more than %d attributes",
                       EXTRACT_MAX_ATTRIBUTES);
    xmlTextReaderPtr r =
        xmlReaderForMemory(data, (int)n, NULL, utf8_is_valid(data, n) ? "UTF-8" : "ISO-8859-1",
                           XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int got;
    while ((got = xmlTextReaderRead(r)) == 1) visit(r, v);
    xmlFreeTextReader(r);
    return got ? err_set(e, CHIMERE_EFORMAT, "XML: not well-formed, or too deep") : 0;
}

/* ---- XML of unknown vocabulary: the text of each element on its own line ---- */

struct plain {
    struct extract *x; /* borrowed */
    struct buf title;
    bool in_title, has_title;
};

static void plain_begin(void *ud, struct _xmlTextReader *r, const char *name) {
    struct plain *p = ud;
    (void)r;
    extract_new_line(&p->x->text);
    p->in_title = !p->has_title && !strcmp(name, "title");
}

static void plain_end(void *ud, const char *name) {
    struct plain *p = ud;
    (void)name;
    extract_new_line(&p->x->text);
    if (p->in_title) p->has_title = true;
    p->in_title = false;
}

static void plain_text(void *ud, const char *s) {
    struct plain *p = ud;
    extract_put_words(&p->x->text, s, false);
    if (p->in_title) extract_put_words(&p->title, s, false);
}

int extract_xml(struct extract *x, const char *data, size_t n, struct err *e) {
    struct plain p = {.x = x};
    buf_init(&p.title, 4096);
    int rc =
        extract_xml_walk(data, n, &(struct xml_events){plain_begin, plain_end, plain_text, &p}, e);
    if (!rc && p.title.n) extract_set_title(x, p.title.p, p.title.n);
    buf_fini(&p.title);
    return rc;
}
