/* tok_normal.c: Unicode normalization before splitting. GGUF has no key for it, so the name of the pre-tokenizer
 * decides. */
#include <string.h>

#include <utf8proc.h>

#include "base/mem.h"
#include "text/tok/tok_impl.h"

bool tok_pre_is_nfc(const char *pre) {
    static const char *const names[] = {"qwen2", "qwen35", "command-r", "olmo", "mpt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], pre) == 0) return true;
    return false;
}

/* Under NFC, no character below U+0300 decomposes or composes with another one below U+0300. */
static bool is_plain(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] >= 0xcc) return false;
    return true;
}

int tok_nfc(const char *text, size_t n, char **out, size_t *n_out) {
    *out = NULL;
    if (is_plain(text, n)) return 0;
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_ssize_t cap =
        utf8proc_decompose((const uint8_t *)text, (utf8proc_ssize_t)n, NULL, 0, options);
    if (cap < 0) return 0; /* not UTF-8: do not change it */
    /* reencode writes UTF-8 and a NUL over the code points */
    int32_t *cps = mem_alloc_array((size_t)cap + 1, sizeof *cps);
    if (!cps) return CHIMERE_ENOMEM;
    utf8proc_ssize_t k =
        utf8proc_decompose((const uint8_t *)text, (utf8proc_ssize_t)n, cps, cap, options);
    if (k >= 0) k = utf8proc_reencode(cps, k, options);
    if (k < 0) {
        mem_free(cps);
        return 0;
    }
    *out = (char *)cps;
    *n_out = (size_t)k;
    return 0;
}
