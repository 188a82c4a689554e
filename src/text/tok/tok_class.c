/* tok_class.c: the table of character classes, from utf8proc. */
#include <pthread.h>
#include <utf8proc.h>

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

static void fill(void) {
    for (uint32_t c = 0; c < 0x110000; c++) classes[c] = class_of(utf8proc_category((int32_t)c));
    /* White_Space is the separators and these controls */
    for (uint32_t c = '\t'; c <= '\r'; c++) classes[c] |= CLASS_SPACE;
    classes[0x85] |= CLASS_SPACE;
}

const uint8_t *tok_classes(void) {
    pthread_once(&once, fill);
    return classes;
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
