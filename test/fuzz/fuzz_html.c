/* fuzz_html.c: byte 0 chooses the kind (HTML, text, markdown, XML, office files, books, notebooks), the rest is a page or a
 * file, read as the sandboxed child reads it. What comes out is clean text within its limits. */
#include <stdint.h>
#include <string.h>

#include "base/str.h"
#include "retrieval/extract_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_clean(const char *s, size_t n) {
    struct buf b;
    buf_init(&b, EXTRACT_MAX_TEXT);
    extract_put_clean(&b, s, n);
    if (b.failed || !utf8_is_valid(b.n ? b.p : "", b.n)) __builtin_trap();
    for (size_t i = 0; i < b.n; ++i)
        if ((unsigned char)b.p[i] < 0x20 && b.p[i] != '\n' && b.p[i] != '\t') __builtin_trap();
    buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum extract_kind kinds[] = {
        EXTRACT_HTML, EXTRACT_TEXT, EXTRACT_MARKDOWN, EXTRACT_XML,  EXTRACT_DOCX,
        EXTRACT_PPTX, EXTRACT_XLSX, EXTRACT_ODT,      EXTRACT_EPUB, EXTRACT_NOTEBOOK};
    enum { N_KIND = sizeof kinds / sizeof *kinds };
    struct err e = {0};
    struct extract x;
    if (size < 1 || size > (1 << 20)) return 0;
    int rc = extract_parse(&x, kinds[data[0] % N_KIND], (const char *)data + 1, size - 1, &e);
    if (rc && !e.text[0]) __builtin_trap();
    if (!rc) check_clean(x.text.n ? x.text.p : "", x.text.n);
    if (strlen(x.title) >= sizeof x.title || strchr(x.title, '\n')) __builtin_trap();
    extract_fini(&x);
    return 0;
}
