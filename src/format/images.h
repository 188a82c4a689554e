/* images.h: what the head of an image file says about its size. Bounded: reads what the head needs and decodes nothing, so that
 * an image can be refused before a decoder sees it. Any thread. */
#ifndef CHIMERE_FORMAT_IMAGES_H
#define CHIMERE_FORMAT_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum images_kind { IMAGES_UNKNOWN, IMAGES_PNG, IMAGES_JPEG, IMAGES_GIF, IMAGES_BMP, IMAGES_WEBP };
const char *images_kind_name(enum images_kind k); /* "PNG"; IMAGES_UNKNOWN: "none" */

/* The kind, by the first bytes. *width, *height: pixels, both at least 1; both 0 if the head is damaged, or of a kind that is
 * known by name alone (WebP). */
enum images_kind images_size(const unsigned char *p, size_t n, uint32_t *width, uint32_t *height);

#endif
