/* extract_pdf.c: PDF by the program pdftotext (poppler-utils) in the sandbox. It runs as a separate program, so
 * its licence does not apply to this one. */
#include <stdio.h>
#include <string.h>

#include "base/os/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "retrieval/extract_impl.h"

enum { PDF_MS = 60000, PDF_INFO_BYTES = 16 << 10 };

static const char *find(const char *const paths[2]) {
    for (int i = 0; i < 2; ++i)
        if (fs_can_run(paths[i])) return paths[i];
    return NULL;
}

static int run(const char *const *argv, const char *data, size_t n, const struct extract_how *how,
               size_t most, struct buf *out, struct sandbox_result *r, struct err *e) {
    struct sandbox_job job = {.argv = argv, .input = data, .n_input = n};
    sandbox_defaults(&job.limits);
    job.limits.wall_ms = PDF_MS;
    job.limits.file_bytes = EXTRACT_MAX_BYTES; /* pdftotext may keep a copy of its input */
    job.limits.output_bytes = most;
    return extract_run(&job, how, out, r, e);
}

static void read_title(struct extract *x, const char *data, size_t n,
                       const struct extract_how *how) {
    static const char *const paths[2] = {"/usr/bin/pdfinfo", "/usr/local/bin/pdfinfo"};
    const char *argv[] = {find(paths), "-enc", "UTF-8", "-", NULL};
    struct buf out;
    struct sandbox_result r;
    if (!argv[0]) return;
    buf_init(&out, PDF_INFO_BYTES);
    bool good = !run(argv, data, n, how, PDF_INFO_BYTES, &out, &r, NULL) && !r.status;
    for (char *line = good && out.n ? out.p : NULL; line && *line;) {
        size_t len = strcspn(line, "\n");
        if (str_starts(line, "Title:")) {
            const char *title = line + 6 + strspn(line + 6, " ");
            size_t n_title = (size_t)(line + len - title);
            if (title < line + len && utf8_is_valid(title, n_title))
                extract_set_title(x, title, n_title);
            break;
        }
        line += len + (line[len] == '\n');
    }
    buf_fini(&out);
}

/* Splits the text into pages, which end with a form feed. */
static int split(struct extract *x, const char *text, size_t n, struct err *e) {
    size_t n_page = 0;
    for (size_t i = 0; i < n; ++i) n_page += text[i] == '\f';
    if (!(x->pages = mem_alloc_array(n_page + 1, sizeof *x->pages)))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < n && x->n_page < EXTRACT_MAX_PAGES && !x->text.failed;) {
        const char *end = memchr(text + i, '\f', n - i);
        size_t len = end ? (size_t)(end - text) - i : n - i;
        x->pages[x->n_page++] = (int32_t)x->text.n;
        extract_put_clean(&x->text, text + i, len);
        extract_new_line(&x->text);
        i += len + 1;
    }
    return 0;
}

int extract_pdf(struct extract *x, const char *data, size_t n, const struct extract_how *how,
                struct err *e) {
    static const char *const paths[2] = {"/usr/bin/pdftotext", "/usr/local/bin/pdftotext"};
    char last[16];
    snprintf(last, sizeof last, "%d", EXTRACT_MAX_PAGES);
    const char *argv[] = {find(paths), "-q", "-enc", "UTF-8", "-eol", "unix",
                          "-l",        last, "-",    "-",     NULL};
    if (!argv[0]) {
        err_set(e, CHIMERE_EUNSUPPORTED, "PDF is read by pdftotext, which is not installed");
        err_hint(e, "apt-get install poppler-utils");
        return CHIMERE_EUNSUPPORTED;
    }
    struct buf out;
    struct sandbox_result r;
    buf_init(&out, (size_t)EXTRACT_MAX_TEXT + 1);
    int rc = run(argv, data, n, how, EXTRACT_MAX_TEXT, &out, &r, e);
    x->cut = r.cut || r.timed_out;
    if (!rc && r.status && !x->cut)
        rc = err_set(e, CHIMERE_EFORMAT, "not a PDF that can be read (pdftotext: %s)",
                     r.status == 3  ? "it forbids copying, or needs a password"
                     : r.status < 0 ? "it crashed"
                                    : "it is damaged, or needs a password");
    if (!rc) rc = split(x, out.n ? out.p : "", out.n, e);
    buf_fini(&out);
    if (!rc && !x->cut) read_title(x, data, n, how);
    return rc;
}
