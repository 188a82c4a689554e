/* fuzz_images.c: any bytes as an image file. A size is one of a known kind, or none. */
#include <stddef.h>
#include <stdint.h>

#include "format/images.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint32_t w = 1, h = 1, w_cut, h_cut;
    enum images_kind k = images_size(data, size, &w, &h);
    if ((w == 0) != (h == 0) || (w && k == IMAGES_UNKNOWN) || !images_kind_name(k)[0])
        __builtin_trap();
    /* what is left of a file has the same size, or none that can be told */
    for (size_t n = size < 64 ? size : 64; n-- > 0;) {
        images_size(data, n, &w_cut, &h_cut);
        if (w_cut && (w_cut != w || h_cut != h)) __builtin_trap();
    }
    return 0;
}
