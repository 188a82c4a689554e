/* test_images.c: sizes from the heads of image files, against what the writers of those files put there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "format/images.h"

static void expect(const void *p, size_t n, enum images_kind kind, uint32_t w, uint32_t h) {
    uint32_t got_w = 7, got_h = 7;
    assert_int_equal(images_size(p, n, &got_w, &got_h), kind);
    assert_int_equal(got_w, w);
    assert_int_equal(got_h, h);
}
#define EXPECT(bytes, kind, w, h) expect(bytes, sizeof bytes - 1, kind, w, h)

static void test_kinds(void **state) {
    (void)state;
    static const char png[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\2\0\0\3\4\10\2\0\0\0crc.";
    static const char gif[] = "GIF87a\12\0\24\1\0\0\0";
    static const char bmp[] = "BM............\50\0\0\0\36\0\0\0\xd8\xff\xff\xff";
    static const char old[] = "BM............\14\0\0\0\7\0\11\0\1\0\30\0";
    static const char webp[] = "RIFF\20\0\0\0WEBPVP8 ";
    EXPECT(png, IMAGES_PNG, 0x102, 0x304);
    EXPECT(gif, IMAGES_GIF, 10, 276);
    EXPECT(bmp, IMAGES_BMP, 30, 40);
    EXPECT(old, IMAGES_BMP, 7, 9);
    EXPECT(webp, IMAGES_WEBP, 0, 0);
    EXPECT("plain text", IMAGES_UNKNOWN, 0, 0);
    EXPECT("", IMAGES_UNKNOWN, 0, 0);
    assert_string_equal(images_kind_name(IMAGES_JPEG), "JPEG");
    assert_string_equal(images_kind_name(IMAGES_UNKNOWN), "none");
    for (size_t n = 0; n < sizeof png - 5; n++) {
        uint32_t w, h;
        images_size((const unsigned char *)png, n, &w, &h);
        assert_int_equal(w | h, 0);
    }
}

/* An application segment with a picture of its own, fill bytes, a table, a progressive frame. */
static void test_jpeg(void **state) {
    (void)state;
    static const char whole[] = "\xff\xd8\xff\xe1\0\14\xff\xd8\xff\xc0\0\21\10\0\1\0"
                                "\xff\xff\xff\xc4\0\3x\xff\xc2\0\21\10\1\340\2\200\3.........";
    static const char scan[] = "\xff\xd8\xff\xda\0\10......\xff\xc0\0\21\10\1\340\2\200\3.........";
    static const char cut[] = "\xff\xd8\xff\xc0\0\21\10\1\340";
    static const char zero[] = "\xff\xd8\xff\xe0\0\0\xff\xc0\0\21\10\1\340\2\200\3.........";
    static const char flat[] = "\xff\xd8\xff\xc0\0\21\10\0\0\2\200\3.........";
    EXPECT(whole, IMAGES_JPEG, 640, 480);
    EXPECT(scan, IMAGES_JPEG, 0, 0);
    EXPECT(cut, IMAGES_JPEG, 0, 0);
    EXPECT(zero, IMAGES_JPEG, 0, 0);
    EXPECT(flat, IMAGES_JPEG, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_jpeg)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
