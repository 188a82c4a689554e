#include "format/images.h"

#include <string.h>

static uint32_t be16(const unsigned char *p) { return (uint32_t)p[0] << 8 | p[1]; }
static uint32_t be32(const unsigned char *p) { return be16(p) << 16 | be16(p + 2); }
static uint32_t le16(const unsigned char *p) { return (uint32_t)p[1] << 8 | p[0]; }
static uint32_t le32(const unsigned char *p) { return le16(p + 2) << 16 | le16(p); }

struct extent {
    uint32_t w, h;
};
typedef struct extent size_fn(const unsigned char *p, size_t n);

static struct extent png(const unsigned char *p, size_t n) {
    if (n < 33 || be32(p + 8) != 13 || memcmp(p + 12, "IHDR", 4) != 0) return (struct extent){0, 0};
    return (struct extent){be32(p + 16), be32(p + 20)};
}

static struct extent gif(const unsigned char *p, size_t n) {
    if (n < 13 || (p[4] != '7' && p[4] != '9') || p[5] != 'a') return (struct extent){0, 0};
    return (struct extent){le16(p + 6), le16(p + 8)};
}

/* A negative height means that the top row comes first. */
static struct extent bmp(const unsigned char *p, size_t n) {
    if (n < 26) return (struct extent){0, 0};
    if (le32(p + 14) == 12) return (struct extent){le16(p + 18), le16(p + 20)};
    uint32_t h = le32(p + 22);
    return (struct extent){le32(p + 18), h >> 31 ? 0 - h : h};
}

/* Reads segments up to the first frame header. Fill bytes may precede each marker. */
static struct extent jpeg(const unsigned char *p, size_t n) {
    size_t at = 2;
    while (n - at >= 4) {
        if (p[at] != 0xff) break;
        unsigned mark = p[at + 1];
        if (mark == 0xff) {
            at++;
            continue;
        }
        if (mark == 0x01 || (mark >= 0xd0 && mark <= 0xd8)) { /* markers without a length */
            at += 2;
            continue;
        }
        size_t len = be16(p + at + 2);
        if (mark == 0xd9 || mark == 0xda || len < 2 || len > n - at - 2) break;
        if (mark >= 0xc0 && mark <= 0xcf && mark != 0xc4 && mark != 0xc8 && mark != 0xcc)
            return len < 8 ? (struct extent){0, 0}
                           : (struct extent){be16(p + at + 7), be16(p + at + 5)};
        at += 2 + len;
    }
    return (struct extent){0, 0};
}

static const struct {
    enum images_kind kind;
    const char *name, *magic;
    size_t n_magic, at;
    size_fn *size; /* NULL: only recognized */
} kinds[] = {{IMAGES_PNG, "PNG", "\x89PNG\r\n\x1a\n", 8, 0, png},
             {IMAGES_JPEG, "JPEG", "\xff\xd8\xff", 3, 0, jpeg},
             {IMAGES_GIF, "GIF", "GIF8", 4, 0, gif},
             {IMAGES_BMP, "BMP", "BM", 2, 0, bmp},
             {IMAGES_WEBP, "WebP", "WEBP", 4, 8, NULL}};

const char *images_kind_name(enum images_kind k) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == k) return kinds[i].name;
    return "none";
}

enum images_kind images_size(const unsigned char *p, size_t n, uint32_t *width, uint32_t *height) {
    *width = *height = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (n < kinds[i].at + kinds[i].n_magic ||
            memcmp(p + kinds[i].at, kinds[i].magic, kinds[i].n_magic) != 0)
            continue;
        struct extent x = kinds[i].size ? kinds[i].size(p, n) : (struct extent){0, 0};
        if (x.w && x.h) {
            *width = x.w;
            *height = x.h;
        }
        return kinds[i].kind;
    }
    return IMAGES_UNKNOWN;
}
