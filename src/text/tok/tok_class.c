/* tok_class.c: the table of character classes: utf8proc's classes and the additions of Unicode 15 and 16. */
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/thread.h"
#include "text/tok/tok_pre_impl.h"

static uint8_t classes[0x110000];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint8_t class_of(utf8proc_category_t c) {
    switch (c) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CLASS_L;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CLASS_N;
    case UTF8PROC_CATEGORY_MN: return CLASS_M | CLASS_MN;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return CLASS_M;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return CLASS_P;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return CLASS_S;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return CLASS_SPACE;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO: return CLASS_OTHER;
    default: return 0;
    }
}

/* Characters whose class differs between Unicode 14 (utf8proc 2.8) and Unicode 16, which current tokenizers use. */
/* clang-format off */
static const struct {
    uint32_t from, to;
    uint8_t class;
} newer[] = {
    {0x897, 0x897, CLASS_M | CLASS_MN}, {0xcf3, 0xcf3, CLASS_M},
    {0xece, 0xece, CLASS_M | CLASS_MN}, {0x1b4e, 0x1b4f, CLASS_P}, {0x1b7f, 0x1b7f, CLASS_P},
    {0x1c89, 0x1c8a, CLASS_L}, {0x2427, 0x2429, CLASS_S}, {0x2ffc, 0x2fff, CLASS_S},
    {0x31e4, 0x31e5, CLASS_S}, {0x31ef, 0x31ef, CLASS_S}, {0xa7cb, 0xa7cd, CLASS_L},
    {0xa7da, 0xa7dc, CLASS_L}, {0x105c0, 0x105f3, CLASS_L}, {0x10d40, 0x10d49, CLASS_N},
    {0x10d4a, 0x10d65, CLASS_L}, {0x10d69, 0x10d6d, CLASS_M | CLASS_MN},
    {0x10d6e, 0x10d6e, CLASS_P}, {0x10d6f, 0x10d85, CLASS_L}, {0x10d8e, 0x10d8f, CLASS_S},
    {0x10ec2, 0x10ec4, CLASS_L}, {0x10efc, 0x10eff, CLASS_M | CLASS_MN},
    {0x1123f, 0x11240, CLASS_L}, {0x11241, 0x11241, CLASS_M | CLASS_MN},
    {0x11380, 0x11389, CLASS_L}, {0x1138b, 0x1138b, CLASS_L}, {0x1138e, 0x1138e, CLASS_L},
    {0x11390, 0x113b5, CLASS_L}, {0x113b7, 0x113b7, CLASS_L}, {0x113b8, 0x113ba, CLASS_M},
    {0x113bb, 0x113c0, CLASS_M | CLASS_MN}, {0x113c2, 0x113c2, CLASS_M},
    {0x113c5, 0x113c5, CLASS_M}, {0x113c7, 0x113ca, CLASS_M}, {0x113cc, 0x113cd, CLASS_M},
    {0x113ce, 0x113ce, CLASS_M | CLASS_MN}, {0x113cf, 0x113cf, CLASS_M},
    {0x113d0, 0x113d0, CLASS_M | CLASS_MN}, {0x113d1, 0x113d1, CLASS_L},
    {0x113d2, 0x113d2, CLASS_M | CLASS_MN}, {0x113d3, 0x113d3, CLASS_L},
    {0x113d4, 0x113d5, CLASS_P}, {0x113d7, 0x113d8, CLASS_P},
    {0x113e1, 0x113e2, CLASS_M | CLASS_MN}, {0x116d0, 0x116e3, CLASS_N},
    {0x1171e, 0x1171e, CLASS_M}, {0x11b00, 0x11b09, CLASS_P}, {0x11bc0, 0x11be0, CLASS_L},
    {0x11be1, 0x11be1, CLASS_P}, {0x11bf0, 0x11bf9, CLASS_N},
    {0x11f00, 0x11f01, CLASS_M | CLASS_MN}, {0x11f02, 0x11f02, CLASS_L},
    {0x11f03, 0x11f03, CLASS_M}, {0x11f04, 0x11f10, CLASS_L}, {0x11f12, 0x11f33, CLASS_L},
    {0x11f34, 0x11f35, CLASS_M}, {0x11f36, 0x11f3a, CLASS_M | CLASS_MN},
    {0x11f3e, 0x11f3f, CLASS_M}, {0x11f40, 0x11f40, CLASS_M | CLASS_MN},
    {0x11f41, 0x11f41, CLASS_M}, {0x11f42, 0x11f42, CLASS_M | CLASS_MN},
    {0x11f43, 0x11f4f, CLASS_P}, {0x11f50, 0x11f59, CLASS_N},
    {0x11f5a, 0x11f5a, CLASS_M | CLASS_MN}, {0x1342f, 0x1342f, CLASS_L},
    {0x13439, 0x1343f, CLASS_OTHER}, {0x13440, 0x13440, CLASS_M | CLASS_MN},
    {0x13441, 0x13446, CLASS_L}, {0x13447, 0x13455, CLASS_M | CLASS_MN},
    {0x13460, 0x143fa, CLASS_L}, {0x16100, 0x1611d, CLASS_L},
    {0x1611e, 0x16129, CLASS_M | CLASS_MN}, {0x1612a, 0x1612c, CLASS_M},
    {0x1612d, 0x1612f, CLASS_M | CLASS_MN}, {0x16130, 0x16139, CLASS_N},
    {0x16d40, 0x16d6c, CLASS_L}, {0x16d6d, 0x16d6f, CLASS_P}, {0x16d70, 0x16d79, CLASS_N},
    {0x18cff, 0x18cff, CLASS_L}, {0x1b132, 0x1b132, CLASS_L}, {0x1b155, 0x1b155, CLASS_L},
    {0x1cc00, 0x1ccef, CLASS_S}, {0x1ccf0, 0x1ccf9, CLASS_N}, {0x1cd00, 0x1ceb3, CLASS_S},
    {0x1d2c0, 0x1d2d3, CLASS_N}, {0x1df25, 0x1df2a, CLASS_L}, {0x1e030, 0x1e06d, CLASS_L},
    {0x1e08f, 0x1e08f, CLASS_M | CLASS_MN}, {0x1e4d0, 0x1e4eb, CLASS_L},
    {0x1e4ec, 0x1e4ef, CLASS_M | CLASS_MN}, {0x1e4f0, 0x1e4f9, CLASS_N},
    {0x1e5d0, 0x1e5ed, CLASS_L}, {0x1e5ee, 0x1e5ef, CLASS_M | CLASS_MN},
    {0x1e5f0, 0x1e5f0, CLASS_L}, {0x1e5f1, 0x1e5fa, CLASS_N}, {0x1e5ff, 0x1e5ff, CLASS_P},
    {0x1f6dc, 0x1f6dc, CLASS_S}, {0x1f774, 0x1f776, CLASS_S}, {0x1f77b, 0x1f77f, CLASS_S},
    {0x1f7d9, 0x1f7d9, CLASS_S}, {0x1f8b2, 0x1f8bb, CLASS_S}, {0x1f8c0, 0x1f8c1, CLASS_S},
    {0x1fa75, 0x1fa77, CLASS_S}, {0x1fa87, 0x1fa89, CLASS_S}, {0x1fa8f, 0x1fa8f, CLASS_S},
    {0x1faad, 0x1faaf, CLASS_S}, {0x1fabb, 0x1fabf, CLASS_S}, {0x1fac6, 0x1fac6, CLASS_S},
    {0x1face, 0x1facf, CLASS_S}, {0x1fada, 0x1fadc, CLASS_S}, {0x1fadf, 0x1fadf, CLASS_S},
    {0x1fae8, 0x1fae9, CLASS_S}, {0x1faf7, 0x1faf8, CLASS_S}, {0x1fbcb, 0x1fbef, CLASS_S},
    {0x2b739, 0x2b739, CLASS_L}, {0x2ebf0, 0x2ee5d, CLASS_L}, {0x31350, 0x323af, CLASS_L},
};
/* clang-format on */

static void fill(void) {
    for (uint32_t c = 0; c < 0x110000; c++) classes[c] = class_of(utf8proc_category((int32_t)c));
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        for (uint32_t c = newer[i].from; c <= newer[i].to; c++) classes[c] = newer[i].class;
    /* White_Space consists of the separators and these controls */
    for (uint32_t c = '\t'; c <= '\r'; c++) classes[c] |= CLASS_SPACE;
    classes[0x85] |= CLASS_SPACE;
}

const uint8_t *tok_classes(void) {
    pthread_once(&once, fill);
    return classes;
}

/* ---- newer characters for libraries that know Unicode 14 ---- */

/* Newer letters with case; other newer letters are Lo. */
static const struct {
    uint32_t from, to;
    bool is_upper;
} cased[] = {{0x1c89, 0x1c89, true},  {0x1c8a, 0x1c8a, false},  {0xa7cb, 0xa7cc, true},
             {0xa7cd, 0xa7cd, false}, {0xa7da, 0xa7da, true},   {0xa7db, 0xa7db, false},
             {0xa7dc, 0xa7dc, true},  {0x10d50, 0x10d65, true}, {0x10d70, 0x10d85, false}};

/* Returns the class of cp in `newer`; NULL: cp is not a newer character. */
static const uint8_t *newer_class(uint32_t cp) {
    size_t lo = 0, hi = sizeof newer / sizeof *newer;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (newer[mid].to < cp) lo = mid + 1;
        else hi = mid;
    }
    return lo < sizeof newer / sizeof *newer && newer[lo].from <= cp ? &newer[lo].class : NULL;
}

/* Returns an older character of the same category, of three or four bytes of UTF-8. */
static const char *older(uint32_t cp, uint8_t class, bool is_long) {
    if (cp >= 0x2b739) return "\xf0\xa0\x80\x80"; /* Han: U+20000 */
    for (size_t i = 0; i < sizeof cased / sizeof *cased; i++)
        if (cp >= cased[i].from && cp <= cased[i].to)
            return cased[i].is_upper ? (is_long ? "\xf0\x90\x90\x80" : "\xe1\xb8\x80")
                                     : (is_long ? "\xf0\x90\x90\xa8" : "\xe1\xb8\x81");
    switch (class) {
    case CLASS_L: return is_long ? "\xf0\x90\x80\x80" : "\xe0\xa4\x85";
    case CLASS_N: return is_long ? "\xf0\x90\x92\xa0" : "\xe0\xa5\xa6";
    case CLASS_M | CLASS_MN: return is_long ? "\xf0\x90\xa8\x81" : "\xe0\xa4\x81";
    case CLASS_M: return is_long ? "\xf0\x91\x80\x80" : "\xe0\xa4\x83";
    case CLASS_P: return is_long ? "\xf0\x90\x84\x80" : "\xe2\x80\xa0";
    case CLASS_S: return is_long ? "\xf0\x9f\x8c\x80" : "\xe2\x8c\x80";
    default: return is_long ? "\xf0\x93\x90\xb0" : "\xe2\x80\x8b"; /* Cf */
    }
}

int tok_older_text(const char *text, uint32_t from, uint32_t to, char **out) {
    *out = NULL;
    for (size_t i = from, next = from; i < to; i = next) {
        uint32_t cp = tok_next_cp(text, &next);
        const uint8_t *class = cp < newer[0].from ? NULL : newer_class(cp);
        if (!class) continue;
        if (!*out) {
            if (!(*out = mem_alloc(to - from))) return CHIMERE_ENOMEM;
            memcpy(*out, text + from, to - from);
        }
        memcpy(*out + (i - from), older(cp, *class, next - i == 4), next - i);
    }
    return 0;
}

bool tok_is_digit(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    return utf8proc_category((int32_t)cp) == UTF8PROC_CATEGORY_ND;
}

bool tok_is_word(uint32_t cp) {
    utf8proc_category_t c = utf8proc_category((int32_t)cp);
    return (class_of(c) & (CLASS_L | CLASS_M)) || c == UTF8PROC_CATEGORY_ND ||
           c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_PC;
}
