/* hash.h: non-cryptographic hashes and 64-bit mixing. For SHA-256 call libcrypto. */
#ifndef CHIMERE_BASE_HASH_H
#define CHIMERE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Finaliser of MurmurHash3 (Appleby, public domain): a bijection on 64 bits. */
static inline uint64_t hash_mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

/* 64-bit hash of bytes, the same on every machine. For keys from outside, use a secret seed. */
uint64_t hash_bytes(const void *data, size_t n, uint64_t seed);

/* FNV-1a 64 (Fowler, Noll, Vo), used by version 1 of n-gram tables. */
uint64_t hash_fnv1a(const void *data, size_t n);

/* CRC-32C (Castagnoli). It can be chained; start with 0. */
uint32_t hash_crc32c(uint32_t crc, const void *data, size_t n);

#endif
