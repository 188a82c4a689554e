#include "cli/term.h"

#include <stdbool.h>

#include "base/os/os.h"

/* Returns the length of the control character at s[0..n), 0 if there is none: C0, DEL, and C1 as UTF-8. */
static size_t control_len(const char *s, size_t n) {
    unsigned char c = (unsigned char)s[0];
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return 1;
    return c == 0xC2 && n > 1 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] < 0xA0 ? 2 : 0;
}

void term_write(FILE *f, const char *text, size_t n) {
    if (!os_is_terminal(f)) {
        fwrite(text, 1, n, f);
        return;
    }
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        size_t skip = control_len(text + i, n - i);
        if (!skip) {
            i++;
            continue;
        }
        fwrite(text + from, 1, i - from, f);
        from = i += skip;
    }
    fwrite(text + from, 1, n - from, f);
}
