#include "net/address.h"

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

/* Special-purpose registries of IANA (RFC 6890 and its updates), multicast and class E. */
static const struct {
    uint8_t ip[4];
    int bits;
} reserved4[] = {
    {{0, 0, 0, 0}, 8},      {{10, 0, 0, 0}, 8},     {{100, 64, 0, 0}, 10}, {{127, 0, 0, 0}, 8},
    {{169, 254, 0, 0}, 16}, {{172, 16, 0, 0}, 12},  {{192, 0, 0, 0}, 24},  {{192, 0, 2, 0}, 24},
    {{192, 88, 99, 0}, 24}, {{192, 168, 0, 0}, 16}, {{198, 18, 0, 0}, 15}, {{198, 51, 100, 0}, 24},
    {{203, 0, 113, 0}, 24}, {{224, 0, 0, 0}, 4},    {{240, 0, 0, 0}, 4},
};

/* Only 2000::/3 has been allocated; these blocks within it are not public. */
static const struct {
    uint8_t ip[4]; /* only the first 32 bits are needed */
    int bits;
} reserved6[] = {
    {{0x20, 0x01, 0x00, 0x00}, 23}, /* protocol assignments, Teredo among them */
    {{0x20, 0x01, 0x0d, 0xb8}, 32}, /* documentation */
    {{0x3f, 0xff, 0x00, 0x00}, 20}, /* documentation */
};

static bool in_block(const uint8_t *ip, const uint8_t *block, int bits) {
    int whole = bits / 8, rest = bits % 8;
    if (memcmp(ip, block, (size_t)whole)) return false;
    return !rest || (ip[whole] ^ block[whole]) >> (8 - rest) == 0;
}

static bool is_public4(const uint8_t ip[4]) {
    for (size_t i = 0; i < sizeof reserved4 / sizeof *reserved4; i++)
        if (in_block(ip, reserved4[i].ip, reserved4[i].bits)) return false;
    return true;
}

static bool is_public6(const uint8_t ip[16]) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    if (!memcmp(ip, mapped, 12) || !memcmp(ip, nat64, 12)) return is_public4(ip + 12);
    if (ip[0] == 0x20 && ip[1] == 0x02) return is_public4(ip + 2); /* 6to4 */
    if ((ip[0] & 0xe0) != 0x20) return false;
    for (size_t i = 0; i < sizeof reserved6 / sizeof *reserved6; i++)
        if (in_block(ip, reserved6[i].ip, reserved6[i].bits)) return false;
    return true;
}

/* Writes the 4 or 16 bytes of the address and returns their number; 0: of another family. */
static int bytes_of(const struct sockaddr *a, socklen_t n, uint8_t ip[16]) {
    if (a->sa_family == AF_INET && n >= (socklen_t)sizeof(struct sockaddr_in)) {
        memcpy(ip, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
        return 4;
    }
    if (a->sa_family == AF_INET6 && n >= (socklen_t)sizeof(struct sockaddr_in6)) {
        memcpy(ip, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
        return 16;
    }
    return 0;
}

bool address_is_public(const struct sockaddr *a, socklen_t n) {
    uint8_t ip[16];
    int n_byte = bytes_of(a, n, ip);
    return n_byte == 4 ? is_public4(ip) : n_byte == 16 && is_public6(ip);
}

bool address_is_loopback(const struct sockaddr *a, socklen_t n) {
    static const uint8_t six[16] = {[15] = 1};
    uint8_t ip[16];
    int n_byte = bytes_of(a, n, ip);
    return n_byte == 4 ? ip[0] == 127 : n_byte == 16 && !memcmp(ip, six, 16);
}
