#include "retrieval/fold.h"

#include <stdint.h>
#include <string.h>

#include "base/str.h"

/* U+00C0..U+017F; '.': not changed. Ligatures become two letters, see below. */
static const char latin[] = "AAAAAA.CEEEEIIII.NOOOOO.OUUUUY..aaaaaa.ceeeeiiii.nooooo.ouuuuy.y"
                            "AaAaAaCcCcCcCcDdDdEeEeEeEeEeGgGgGgGgHhHhIiIiIiIiIi..JjKk.LlLlLl."
                            ".LlNnNnNn...OoOoOo..RrRrRrSsSsSsSsTtTtTtUuUuUuUuUuUuWwYyYZzZzZzs";

static const char *replacement(uint32_t cp, char one[2]) {
    switch (cp) {
    case 0x2018:
    case 0x2019:
    case 0x02bc: return "'";
    case 0x201c:
    case 0x201d:
    case 0xab:
    case 0xbb: return "\"";
    case 0x2010:
    case 0x2011:
    case 0x2012:
    case 0x2013:
    case 0x2014: return "-";
    case 0xa0:
    case 0x202f:
    case 0x2009: return " ";
    case 0xe6: return "ae";
    case 0xc6: return "AE";
    case 0x153: return "oe";
    case 0x152: return "OE";
    case 0xdf: return "ss";
    }
    if (cp >= 0x300 && cp < 0x370) return ""; /* combining marks */
    if (cp < 0xc0 || cp >= 0xc0 + sizeof latin - 1 || latin[cp - 0xc0] == '.') return NULL;
    one[0] = latin[cp - 0xc0];
    one[1] = 0;
    return one;
}

void fold_text(struct buf *out, const char *s, size_t n, bool squeeze) {
    bool blank = squeeze;
    size_t start = out->n;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        char one[2];
        int len = utf8_decode(s + i, n - i, &cp);
        if (len <= 0) {
            ++i;
            continue;
        }
        const char *r = replacement(cp, one);
        bool is_blank = cp == ' ' || cp == '\t' || cp == '\n' || cp == '\r' || (r && *r == ' ');
        if (squeeze && is_blank) {
            if (!blank) buf_putc(out, ' ');
        } else if (r) {
            buf_puts(out, r);
        } else if (cp) {
            buf_put(out, s + i, (size_t)len);
        }
        blank = squeeze && (is_blank || (blank && r && !*r));
        i += (size_t)len;
    }
    while (squeeze && out->n > start && out->p[out->n - 1] == ' ') buf_cut(out, out->n - 1);
}
