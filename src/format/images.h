/* images.h: the size of an image, from the header of its file. Bounded: reads only the header and does not decode, so
 * that an image can be refused before a decoder sees it. Any thread. */
#ifndef CHIMERE_FORMAT_IMAGES_H
#define CHIMERE_FORMAT_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum images_kind { IMAGES_UNKNOWN, IMAGES_PNG, IMAGES_JPEG, IMAGES_GIF, IMAGES_BMP, IMAGES_WEBP };
const char *images_kind_name(enum images_kind k); /* "PNG"; IMAGES_UNKNOWN: "none" */

/* The kind, from the first bytes. *width, *height: pixels, both at least 1; both 0 if the header is damaged, or if
 * the kind is only recognized (WebP). */
enum images_kind images_size(const unsigned char *p, size_t n, uint32_t *width, uint32_t *height);

#endif
