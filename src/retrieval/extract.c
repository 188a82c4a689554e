#include "retrieval/extract_impl.h"

#include <ctype.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

enum { EXIT_REFUSED = 3 }; /* exit status of the child after it wrote an error message */

/* ---- kinds ---- */

static const struct {
    enum extract_kind kind;
    const char *endings;
} kinds[] = {
    {EXTRACT_TEXT, " txt text log csv tsv rst org tex "},
    {EXTRACT_MARKDOWN, " md markdown mdown "},
    {EXTRACT_HTML, " html htm xhtml "},
    {EXTRACT_PDF, " pdf "},
    {EXTRACT_NOTEBOOK, " ipynb "},
    {EXTRACT_XML, " xml rss atom "},
    {EXTRACT_DOCX, " docx docm "},
    {EXTRACT_PPTX, " pptx pptm "},
    {EXTRACT_XLSX, " xlsx xlsm "},
    {EXTRACT_ODT, " odt "},
    {EXTRACT_EPUB, " epub "},
    {EXTRACT_CODE,
     " c h cc cpp hpp cu cuh py rs js mjs ts tsx jsx java kt go rb php swift zig sh sql lua cs "
     "scala toml yaml yml json ini cfg cmake css "},
};

enum extract_kind extract_kind_of(const char *name) {
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    const char *dot = strrchr(base, '.');
    if (!dot && *base) return EXTRACT_TEXT;
    char ending[16];
    size_t n = dot ? strlen(dot + 1) : 0;
    if (!n || n + 3 > sizeof ending) return EXTRACT_NONE;
    ending[0] = ' ';
    for (size_t i = 0; i < n; ++i) ending[i + 1] = (char)tolower((unsigned char)dot[i + 1]);
    ending[n + 1] = ' ';
    ending[n + 2] = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i)
        if (strstr(kinds[i].endings, ending)) return kinds[i].kind;
    return EXTRACT_NONE;
}

enum extract_kind extract_kind_of_type(const char *t) {
#define OPEN_XML "application/vnd.openxmlformats-officedocument."
    static const struct {
        const char *begins;
        enum extract_kind kind;
    } types[] = {
        {"text/html", EXTRACT_HTML},
        {"application/xhtml", EXTRACT_HTML},
        {"text/markdown", EXTRACT_MARKDOWN},
        {"application/pdf", EXTRACT_PDF},
        {"application/json", EXTRACT_CODE},
        {"text/xml", EXTRACT_XML},
        {"application/xml", EXTRACT_XML},
        {"application/rss+xml", EXTRACT_XML},
        {"application/atom+xml", EXTRACT_XML},
        {OPEN_XML "wordprocessingml.document", EXTRACT_DOCX},
        {OPEN_XML "presentationml.presentation", EXTRACT_PPTX},
        {OPEN_XML "spreadsheetml.sheet", EXTRACT_XLSX},
        {"application/vnd.oasis.opendocument.text", EXTRACT_ODT},
        {"application/epub+zip", EXTRACT_EPUB},
        {"text/", EXTRACT_TEXT},
    };
#undef OPEN_XML
    for (size_t i = 0; i < sizeof types / sizeof *types; ++i)
        if (str_starts(t, types[i].begins)) return types[i].kind;
    return EXTRACT_NONE;
}

/* ---- plain text ---- */

/* Removes control bytes except tab and newline; carriage returns too. A byte that is not UTF-8 is read as Latin-1. */
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

bool extract_is_utf16(const char *data, size_t n) {
    return n >= 2 && (!memcmp(data, "\xff\xfe", 2) || !memcmp(data, "\xfe\xff", 2));
}

/* Reads UTF-16. Unpaired surrogates and an odd last byte are dropped. */
static void read_utf16(struct extract *x, const char *data, size_t n) {
    const unsigned char *p = (const unsigned char *)data;
    int high = p[0] == 0xfe ? 0 : 1; /* index of the more significant of two bytes */
    struct buf text;
    uint32_t lead = 0;
    buf_init(&text, (size_t)2 * EXTRACT_MAX_BYTES);
    for (size_t i = 2; i + 1 < n && !text.failed; i += 2) {
        uint32_t c = (uint32_t)p[i + (size_t)high] << 8 | p[i + 1 - (size_t)high];
        bool is_lead = c >= 0xd800 && c < 0xdc00, is_trail = c >= 0xdc00 && c < 0xe000;
        char four[4];
        if (is_trail && lead) c = 0x10000 + ((lead - 0xd800) << 10) + (c - 0xdc00);
        if (!is_lead && !(is_trail && !lead)) buf_put(&text, four, (size_t)utf8_encode(c, four));
        lead = is_lead ? c : 0;
    }
    if (text.failed) x->text.failed = text.failed;
    else read_plain(x, text.n ? text.p : "", text.n);
    buf_fini(&text);
}

void extract_new_line(struct buf *b) {
    while (b->n && b->p[b->n - 1] == ' ') buf_cut(b, b->n - 1);
    if (b->n && b->p[b->n - 1] != '\n') buf_putc(b, '\n');
}

/* ---- the child's part, in the sandbox ---- */

int extract_parse(struct extract *x, enum extract_kind kind, const char *data, size_t n,
                  struct err *e) {
    *x = (struct extract){.kind = kind};
    buf_init(&x->text, EXTRACT_MAX_TEXT);
    int rc = 0;
    switch (kind) {
    case EXTRACT_HTML: rc = extract_html(x, data, n, e); break;
    case EXTRACT_XML: rc = extract_xml(x, data, n, e); break;
    case EXTRACT_DOCX:
    case EXTRACT_PPTX:
    case EXTRACT_XLSX:
    case EXTRACT_ODT: rc = extract_office(x, data, n, e); break;
    case EXTRACT_EPUB: rc = extract_book(x, data, n, e); break;
    case EXTRACT_NOTEBOOK: rc = extract_notebook(x, data, n, e); break;
    case EXTRACT_NONE:
    case EXTRACT_PDF:
    case EXTRACT_N_KIND:
        return err_set(e, CHIMERE_EUNSUPPORTED, "no text can be extracted from this type");
    default:
        if (extract_is_utf16(data, n)) {
            read_utf16(x, data, n);
            break;
        }
        if (memchr(data, 0, n < 8192 ? n : 8192))
            return err_set(e, CHIMERE_EFORMAT, "expected text, got binary data");
        read_plain(x, data, n);
    }
    if (!rc && x->text.failed == CHIMERE_ELIMIT)
        rc = err_set(e, CHIMERE_ELIMIT, "more than %d bytes of text", EXTRACT_MAX_TEXT);
    if (!rc && x->text.failed) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    return rc;
}

static bool write_all(const char *p, size_t n) {
    while (n) {
        ssize_t k = write(STDOUT_FILENO, p, n);
        if (k <= 0 && errno != EINTR) return false;
        if (k > 0) p += k, n -= (size_t)k;
    }
    return true;
}

int extract_child(int argc, char **argv) {
    struct err e = {0};
    struct extract x = {0};
    char *data = NULL;
    size_t n = 0;
    int kind = argc > 2 ? (int)strtol(argv[2], NULL, 10) : EXTRACT_NONE;
    if (kind < 0 || kind >= EXTRACT_N_KIND) kind = EXTRACT_NONE;
    int rc = file_read("-", EXTRACT_MAX_BYTES, &data, &n, &e);
    if (!rc) rc = extract_parse(&x, (enum extract_kind)kind, data, n, &e);
    struct buf out;
    buf_init(&out, EXTRACT_MAX_TEXT + sizeof x.title + 1);
    if (rc) buf_puts(&out, e.text[0] ? e.text : err_name(rc));
    else buf_printf(&out, "%s\n%s", x.title, x.text.n ? x.text.p : "");
    bool written = !out.failed && write_all(out.p, out.n);
    buf_fini(&out);
    extract_fini(&x);
    mem_free(data);
    return rc ? EXIT_REFUSED : !written;
}

/* ---- the parent's part ---- */

static atomic_bool bare_allowed;

void extract_allow_bare(bool allowed) { bare_allowed = allowed; }

int extract_run(struct sandbox_job *job, const struct extract_how *how, struct buf *out,
                struct sandbox_result *r, struct err *e) {
    job->limits.memory_bytes = (uint64_t)1 << 30;
    job->limits.cpu_s = job->limits.wall_ms / 1000 + 1;
    job->cancelled = how->cancelled;
    job->deadline_ns = how->deadline_ns;
    job->owner = "text of documents and pages";
    job->least = bare_allowed ? SANDBOX_BARE : SANDBOX_FILTERED;
    int rc = sandbox_run(job, out, r, e);
    if (rc == CHIMERE_EREFUSED) err_hint(e, "--bare-parsing reads such files without a sandbox");
    if (!rc && r->cancelled) rc = err_set(e, CHIMERE_ECANCELLED, "cancelled");
    if (!rc && r->too_large) rc = err_set(e, CHIMERE_ELIMIT, "reading it takes too much memory");
    if (!rc && r->timed_out && !out->n)
        rc = err_set(e, CHIMERE_ETIMEOUT, "reading it took too long");
    return rc;
}

/* Validates the child's output, which is as untrusted as its input. */
static int take_text(struct extract *x, const struct buf *out, const struct sandbox_result *r,
                     struct err *e) {
    const char *text = out->n ? out->p : "", *end = memchr(text, '\n', out->n);
    if (r->status == EXIT_REFUSED) return err_set(e, CHIMERE_EFORMAT, "%.400s", text);
    if (r->timed_out) return err_set(e, CHIMERE_ETIMEOUT, "reading it took too long");
    if ((r->status && !r->cut) || !end)
        return err_set(e, CHIMERE_EFORMAT, "its parser ended with status %d", r->status);
    struct buf title;
    buf_init(&title, EXTRACT_MAX_TEXT);
    extract_put_clean(&title, text, (size_t)(end - text));
    if (title.n) extract_set_title(x, title.p, title.n);
    buf_fini(&title);
    extract_put_clean(&x->text, end + 1, out->n - (size_t)(end + 1 - text));
    x->cut = r->cut;
    return x->text.failed ? err_set(e, x->text.failed, "%s", err_name(x->text.failed)) : 0;
}

static int run_parser(struct extract *x, const char *data, size_t n, const struct extract_how *how,
                      struct err *e) {
    char kind[8];
    snprintf(kind, sizeof kind, "%d", (int)x->kind);
    const char *argv[] = {"chimere", EXTRACT_COMMAND, kind, NULL};
    struct sandbox_job job = {.argv = argv, .self = true, .input = data, .n_input = n};
    struct sandbox_result r;
    struct buf out;
    sandbox_defaults(&job.limits);
    job.limits.file_bytes = 0;
    job.limits.n_process = 1;
    job.limits.output_bytes = EXTRACT_MAX_TEXT + sizeof x->title + 1;
    buf_init(&out, job.limits.output_bytes);
    int rc = extract_run(&job, how, &out, &r, e);
    if (!rc) rc = take_text(x, &out, &r, e);
    buf_fini(&out);
    return rc;
}

int extract_text(struct extract *x, enum extract_kind kind, const char *data, size_t n,
                 const struct extract_how *how, struct err *e) {
    *x = (struct extract){.kind = kind};
    buf_init(&x->text, EXTRACT_MAX_TEXT);
    if (n > EXTRACT_MAX_BYTES)
        return err_set(e, CHIMERE_ELIMIT, "expected at most %d bytes, got %zu", EXTRACT_MAX_BYTES,
                       n);
    switch (kind) {
    case EXTRACT_NONE:
    case EXTRACT_TEXT:
    case EXTRACT_MARKDOWN:
    case EXTRACT_CODE: return extract_parse(x, kind, data, n, e);
    case EXTRACT_PDF: return extract_pdf(x, data, n, how, e);
    default: return run_parser(x, data, n, how, e);
    }
}

void extract_fini(struct extract *x) {
    buf_fini(&x->text);
    mem_free(x->pages);
    x->pages = NULL;
}
