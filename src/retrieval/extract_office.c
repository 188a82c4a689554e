/* extract_office.c: extracts the text of office files, which are archives of XML. Each format has a table of
 * elements; sheets have cells. Runs in the sandboxed child. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "retrieval/extract_xml.h"
#include "retrieval/zip.h"

enum { MAX_PARTS = 4096, MAX_SPACES = 100, MAX_LEVEL = 6 };

/* ---- text in paragraphs ---- */

enum act {
    ACT_NONE,
    ACT_TEXT,
    ACT_LINE,
    ACT_PROSE,
    ACT_STYLE,
    ACT_TAB,
    ACT_BREAK,
    ACT_SPACES,
    ACT_SKIP
};

/* TEXT: the element's text is kept unchanged. PROSE: a paragraph; the text directly in it is kept, runs of blanks
 * become one. */
struct rule {
    const char *name;
    enum act act;
};
static const struct rule word_rules[] = {{"t", ACT_TEXT},       {"p", ACT_LINE},
                                         {"pStyle", ACT_STYLE}, {"tab", ACT_TAB},
                                         {"br", ACT_BREAK},     {"cr", ACT_BREAK},
                                         {"tabs", ACT_SKIP},    {"Fallback", ACT_SKIP},
                                         {"del", ACT_SKIP},     {0}};
static const struct rule slide_rules[] = {
    {"t", ACT_TEXT}, {"p", ACT_LINE}, {"br", ACT_BREAK}, {"Fallback", ACT_SKIP}, {0}};
static const struct rule odf_rules[] = {{"p", ACT_PROSE},
                                        {"h", ACT_PROSE},
                                        {"tab", ACT_TAB},
                                        {"line-break", ACT_BREAK},
                                        {"s", ACT_SPACES},
                                        {"annotation", ACT_SKIP},
                                        {"tracked-changes", ACT_SKIP},
                                        {0}};
static const struct rule title_rules[] = {{"title", ACT_TEXT}, {0}};

struct flow {
    struct buf *out; /* borrowed */
    const struct rule *rules;
    int n_text, n_prose, n_skip; /* number of open elements of each kind */
};

static enum act act_of(const struct rule *rules, const char *name) {
    for (; rules->name; ++rules)
        if (!strcmp(rules->name, name)) return rules->act;
    return ACT_NONE;
}

static void put_heading(struct buf *b, int level) {
    if (level < 1) return;
    for (int i = 0; i < level && i < MAX_LEVEL; ++i) buf_putc(b, '#');
    buf_putc(b, ' ');
}

/* Returns the level of "Heading2" or "heading 2". Word uses these style names in files of every language. */
static int level_of_style(const char *style) {
    if (!strcmp(style, "Title")) return 1;
    if (strncasecmp(style, "heading", 7) != 0) return 0;
    const char *digit = style + 7 + strspn(style + 7, " ");
    return isdigit((unsigned char)*digit) && !digit[1] ? *digit - '0' : 0;
}

static void flow_begin(void *ud, struct _xmlTextReader *r, const char *name) {
    struct flow *f = ud;
    char value[64];
    enum act act = act_of(f->rules, name);
    f->n_skip += act == ACT_SKIP;
    if (f->n_skip) return;
    switch (act) {
    case ACT_TEXT: f->n_text++; break;
    case ACT_PROSE:
        f->n_prose++;
        extract_new_line(f->out);
        if (*name == 'h' && extract_xml_attribute(r, "outline-level", value, sizeof value))
            put_heading(f->out, (int)strtol(value, NULL, 10));
        break;
    case ACT_LINE:
    case ACT_BREAK: extract_new_line(f->out); break;
    case ACT_STYLE:
        if (extract_xml_attribute(r, "val", value, sizeof value))
            put_heading(f->out, level_of_style(value));
        break;
    case ACT_TAB: buf_putc(f->out, '\t'); break;
    case ACT_SPACES: {
        int n =
            extract_xml_attribute(r, "c", value, sizeof value) ? (int)strtol(value, NULL, 10) : 1;
        for (int i = 0; i < n && i < MAX_SPACES; ++i) buf_putc(f->out, ' ');
        break;
    }
    default: break;
    }
}

static void flow_end(void *ud, const char *name) {
    struct flow *f = ud;
    enum act act = act_of(f->rules, name);
    if (act == ACT_SKIP) f->n_skip--;
    else if (f->n_skip) return;
    if (act == ACT_TEXT) f->n_text--;
    if (act == ACT_PROSE) f->n_prose--;
    if (act == ACT_LINE || act == ACT_PROSE) extract_new_line(f->out);
}

static void flow_text(void *ud, const char *s) {
    struct flow *f = ud;
    if (f->n_skip) return;
    if (f->n_text) buf_puts(f->out, s);
    else if (f->n_prose) extract_put_words(f->out, s, false);
}

/* Reads the text of one archive member. CHIMERE_ENOENT: no such member. */
static int read_part(struct zip *z, const char *part, const struct rule *rules, struct buf *out,
                     struct err *e) {
    char *data;
    size_t n;
    struct flow f = {.out = out, .rules = rules};
    int rc = zip_read(z, part, &data, &n, e);
    if (rc) return rc;
    rc = extract_xml_walk(data, n, &(struct xml_events){flow_begin, flow_end, flow_text, &f}, e);
    if (rc) err_prefix(e, "%.80s", part);
    mem_free(data);
    return rc;
}

static void read_title(struct extract *x, struct zip *z, const char *part) {
    struct buf title;
    buf_init(&title, 4096);
    if (!read_part(z, part, title_rules, &title, NULL) && title.n)
        extract_set_title(x, title.p, title.n);
    buf_fini(&title);
}

/* ---- sheets ---- */

struct strings {
    struct buf text;  /* all strings, each ends with a NUL */
    uint32_t *starts; /* owned: offset of each string in text */
    uint32_t n, cap;
    bool in_text, failed;
    int n_skip;
};

static void strings_begin(void *ud, struct _xmlTextReader *r, const char *name) {
    struct strings *s = ud;
    (void)r;
    s->n_skip += !strcmp(name, "rPh"); /* a phonetic reading of the text, which is skipped */
    s->in_text = !strcmp(name, "t");
    if (strcmp(name, "si") != 0 || s->failed) return;
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 256;
        uint32_t *grown = mem_realloc(s->starts, cap * sizeof *grown);
        if (!grown) {
            s->failed = true;
            return;
        }
        s->starts = grown;
        s->cap = cap;
    }
    s->starts[s->n++] = (uint32_t)s->text.n;
}

static void strings_end(void *ud, const char *name) {
    struct strings *s = ud;
    s->n_skip -= !strcmp(name, "rPh");
    s->in_text = false;
    if (!strcmp(name, "si")) buf_putc(&s->text, 0);
}

static void strings_text(void *ud, const char *text) {
    struct strings *s = ud;
    if (s->in_text && !s->n_skip) buf_puts(&s->text, text);
}

static int read_strings(struct strings *s, struct zip *z, struct err *e) {
    char *data;
    size_t n;
    int rc = zip_read(z, "xl/sharedStrings.xml", &data, &n, e);
    if (rc) return rc == CHIMERE_ENOENT ? 0 : rc;
    rc = extract_xml_walk(data, n,
                          &(struct xml_events){strings_begin, strings_end, strings_text, s}, e);
    mem_free(data);
    if (!rc && (s->failed || s->text.failed)) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    return rc;
}

struct sheet {
    struct buf *out; /* borrowed */
    const struct strings *strings;
    struct buf number; /* index of a shared string, as text */
    bool is_shared, in_value, has_cell;
};

static void sheet_begin(void *ud, struct _xmlTextReader *r, const char *name) {
    struct sheet *s = ud;
    char type[16];
    s->in_value = !strcmp(name, "v") || !strcmp(name, "t");
    buf_clear(&s->number);
    if (!strcmp(name, "row")) s->has_cell = false;
    if (strcmp(name, "c") != 0) return;
    if (s->has_cell) buf_putc(s->out, '\t');
    s->has_cell = true;
    s->is_shared = extract_xml_attribute(r, "t", type, sizeof type) && !strcmp(type, "s");
}

static void sheet_end(void *ud, const char *name) {
    struct sheet *s = ud;
    if (!strcmp(name, "row")) extract_new_line(s->out);
    if (!strcmp(name, "v") && s->is_shared && s->number.n && isdigit((unsigned char)*s->number.p)) {
        unsigned long at = strtoul(s->number.p, NULL, 10);
        if (at < s->strings->n) buf_puts(s->out, s->strings->text.p + s->strings->starts[at]);
    }
    s->in_value = false;
}

static void sheet_text(void *ud, const char *text) {
    struct sheet *s = ud;
    if (s->in_value) buf_puts(s->is_shared ? &s->number : s->out, text);
}

/* ---- numbered members ---- */

static int read_sheet(struct zip *z, const char *part, const struct strings *strings,
                      struct buf *out, struct err *e) {
    char *data;
    size_t n;
    struct sheet s = {.out = out, .strings = strings};
    int rc = zip_read(z, part, &data, &n, e);
    if (rc) return rc;
    buf_init(&s.number, 64);
    rc = extract_xml_walk(data, n, &(struct xml_events){sheet_begin, sheet_end, sheet_text, &s}, e);
    if (rc) err_prefix(e, "%.80s", part);
    buf_fini(&s.number);
    mem_free(data);
    return rc;
}

/* Reads the members "PREFIX1.xml", "PREFIX2.xml", ... Numbers may have gaps, so numbers up to the number of
 * members are tried. */
static int read_numbered(struct extract *x, struct zip *z, const char *format_before,
                         const struct strings *strings, struct err *e) {
    int rc = 0, n_found = 0;
    for (uint32_t i = 1; !rc && i <= z->n_member && i <= MAX_PARTS && !x->text.failed; ++i) {
        char part[64];
        snprintf(part, sizeof part, "%s%u.xml", format_before, (unsigned)i);
        rc = strings ? read_sheet(z, part, strings, &x->text, e)
                     : read_part(z, part, slide_rules, &x->text, e);
        if (!rc) ++n_found, extract_new_line(&x->text);
        if (!rc && x->text.n) buf_putc(&x->text, '\n');
        if (rc == CHIMERE_ENOENT) rc = 0;
    }
    return rc || n_found ? rc : err_set(e, CHIMERE_EFORMAT, "no %s1.xml in it", format_before);
}

static int read_sheets(struct extract *x, struct zip *z, struct err *e) {
    struct strings s = {0};
    buf_init(&s.text, ZIP_MAX_BYTES);
    buf_putc(&s.text, 0);
    int rc = read_strings(&s, z, e);
    if (!rc) rc = read_numbered(x, z, "xl/worksheets/sheet", &s, e);
    buf_fini(&s.text);
    mem_free(s.starts);
    return rc;
}

int extract_office(struct extract *x, const char *data, size_t n, struct err *e) {
    struct zip z;
    int rc = zip_open(&z, data, n, e);
    if (rc) return rc;
    switch (x->kind) {
    case EXTRACT_DOCX: rc = read_part(&z, "word/document.xml", word_rules, &x->text, e); break;
    case EXTRACT_PPTX: rc = read_numbered(x, &z, "ppt/slides/slide", NULL, e); break;
    case EXTRACT_XLSX: rc = read_sheets(x, &z, e); break;
    default: rc = read_part(&z, "content.xml", odf_rules, &x->text, e);
    }
    if (!rc) read_title(x, &z, x->kind == EXTRACT_ODT ? "meta.xml" : "docProps/core.xml");
    return rc;
}
