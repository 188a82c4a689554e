#include "odo/extract_impl.h"

#ifndef CHIMERE_NO_PDF
#include <poppler.h>
#endif
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#ifdef CHIMERE_NO_PDF /* fuzzing builds have a C library and little else */
int extract_pdf(struct extract *x, const char *data, size_t n, int64_t deadline_ns, struct err *e) {
    (void)x, (void)data, (void)n, (void)deadline_ns;
    return err_set(e, CHIMERE_EUNSUPPORTED, "this build reads no PDF");
}
#else
int extract_pdf(struct extract *x, const char *data, size_t n, int64_t deadline_ns, struct err *e) {
    GBytes *bytes = g_bytes_new_static(data, n);
    GError *why = NULL;
    PopplerDocument *doc = poppler_document_new_from_bytes(bytes, NULL, &why);
    g_bytes_unref(bytes);
    if (!doc) {
        int rc = err_set(e, CHIMERE_EFORMAT, "not a PDF that can be read: %s",
                         why ? why->message : "no reason given");
        g_clear_error(&why);
        return rc;
    }
    char *title = poppler_document_get_title(doc);
    if (title && utf8_is_valid(title, strlen(title))) extract_set_title(x, title, strlen(title));
    g_free(title);
    int n_page = poppler_document_get_n_pages(doc);
    if (n_page > EXTRACT_MAX_PAGES) n_page = EXTRACT_MAX_PAGES, x->cut = true;
    if (n_page < 0) n_page = 0;
    int rc = 0;
    if (!(x->pages = mem_alloc_array((size_t)n_page + 1, sizeof *x->pages)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int i = 0; i < n_page && !rc; ++i) {
        if (deadline_ns && clock_ns() > deadline_ns) {
            x->cut = true;
            break;
        }
        x->pages[x->n_page++] = (int32_t)x->text.n;
        PopplerPage *page = poppler_document_get_page(doc, i);
        char *text = page ? poppler_page_get_text(page) : NULL;
        if (text) extract_put_clean(&x->text, text, strlen(text));
        extract_new_line(&x->text);
        g_free(text);
        if (page) g_object_unref(page);
        if (x->text.failed) break;
    }
    g_object_unref(doc);
    return rc;
}
#endif
