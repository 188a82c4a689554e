/* extract_book.c: EPUB: an archive with a package file that lists chapters of HTML in reading order. Runs in the
 * sandboxed child. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "retrieval/extract_xml.h"
#include "retrieval/zip.h"

enum { MAX_ITEMS = 4096, MAX_CHAPTERS = 4096, MAX_HREF = 400, MAX_ID = 100 };

struct item {
    char id[MAX_ID], href[MAX_HREF];
};

struct package {
    char path[MAX_HREF]; /* path of the package file */
    struct item *items;  /* owned, [MAX_ITEMS] */
    uint16_t *chapters;  /* owned, [MAX_CHAPTERS]: indices into items */
    int n_item, n_chapter;
    struct buf title;
    bool in_title;
};

static void ignore_end(void *ud, const char *name) { (void)ud, (void)name; }
static void ignore_text(void *ud, const char *s) { (void)ud, (void)s; }

static void container_begin(void *ud, struct _xmlTextReader *r, const char *name) {
    struct package *p = ud;
    if (!p->path[0] && !strcmp(name, "rootfile"))
        extract_xml_attribute(r, "full-path", p->path, sizeof p->path);
}

static void package_begin(void *ud, struct _xmlTextReader *r, const char *name) {
    struct package *p = ud;
    char id[MAX_ID];
    p->in_title = !strcmp(name, "title") && !p->title.n;
    if (!strcmp(name, "item") && p->n_item < MAX_ITEMS) {
        struct item *it = &p->items[p->n_item];
        p->n_item += extract_xml_attribute(r, "id", it->id, sizeof it->id) &&
                     extract_xml_attribute(r, "href", it->href, sizeof it->href);
    }
    if (strcmp(name, "itemref") != 0 || p->n_chapter == MAX_CHAPTERS ||
        !extract_xml_attribute(r, "idref", id, sizeof id))
        return;
    for (int i = 0; i < p->n_item; ++i) {
        if (strcmp(p->items[i].id, id) != 0) continue;
        p->chapters[p->n_chapter++] = (uint16_t)i;
        break;
    }
}

static void package_end(void *ud, const char *name) {
    (void)name;
    ((struct package *)ud)->in_title = false;
}

static void package_text(void *ud, const char *s) {
    struct package *p = ud;
    if (p->in_title) extract_put_words(&p->title, s, false);
}

static int read_xml(struct zip *z, const char *part, const struct xml_events *v, struct err *e) {
    char *data;
    size_t n;
    int rc = zip_read(z, part, &data, &n, e);
    if (rc) return rc;
    rc = extract_xml_walk(data, n, v, e);
    if (rc) err_prefix(e, "%.80s", part);
    mem_free(data);
    return rc;
}

static int hex(char c) {
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                        : -1;
}

/* Converts a reference of the package file to the name of an archive member: decodes "%20", resolves "../". */
static bool resolve(const char *package, const char *href, char out[2 * MAX_HREF]) {
    const char *slash = strrchr(package, '/');
    size_t n = slash ? (size_t)(slash - package) + 1 : 0;
    memcpy(out, package, n);
    for (const char *s = href; *s && *s != '#';) {
        if ((!n || out[n - 1] == '/') && str_starts(s, "../")) {
            if (!n) return false;
            for (--n; n && out[n - 1] != '/';) --n;
            s += 3;
            continue;
        }
        int high = *s == '%' ? hex(s[1]) : -1, low = high >= 0 ? hex(s[2]) : -1;
        out[n++] = low >= 0 ? (char)(high * 16 + low) : *s;
        s += low >= 0 ? 3 : 1;
    }
    out[n] = 0;
    return n > 0;
}

static int read_chapter(struct extract *x, struct zip *z, const char *part, struct err *e) {
    char *data;
    size_t n;
    int rc = zip_read(z, part, &data, &n, e);
    if (rc == CHIMERE_ENOENT) return 0; /* a missing chapter does not prevent reading the others */
    if (rc) return rc;
    if (n) rc = extract_html(x, data, n, e);
    mem_free(data);
    extract_new_line(&x->text);
    return rc;
}

static int read_book(struct extract *x, struct zip *z, struct package *p, struct err *e) {
    int rc = read_xml(z, "META-INF/container.xml",
                      &(struct xml_events){container_begin, ignore_end, ignore_text, p}, e);
    if (!rc && !p->path[0])
        rc = err_set(e, CHIMERE_EFORMAT, "EPUB: its container names no package");
    if (!rc)
        rc = read_xml(z, p->path, &(struct xml_events){package_begin, package_end, package_text, p},
                      e);
    for (int i = 0; !rc && i < p->n_chapter && !x->text.failed; ++i) {
        char part[2 * MAX_HREF];
        if (resolve(p->path, p->items[p->chapters[i]].href, part)) rc = read_chapter(x, z, part, e);
    }
    if (!rc && p->title.n) extract_set_title(x, p->title.p, p->title.n);
    return rc;
}

int extract_book(struct extract *x, const char *data, size_t n, struct err *e) {
    struct zip z;
    struct package p = {.n_item = 0};
    int rc = zip_open(&z, data, n, e);
    if (rc) return rc;
    buf_init(&p.title, 4096);
    p.items = mem_alloc_array(MAX_ITEMS, sizeof *p.items);
    p.chapters = mem_alloc_array(MAX_CHAPTERS, sizeof *p.chapters);
    rc = p.items && p.chapters ? read_book(x, &z, &p, e)
                               : err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(p.items);
    mem_free(p.chapters);
    buf_fini(&p.title);
    return rc;
}
