/* dequant.cuh: dequantization of units of 32 elements from planes: 8 words of signed bytes, two scales, two offsets.
 *
 * value[e] = scale[e / 16] * q[e] - offset[e / 16]. raw<F> holds the bytes as loaded, so that loads can be issued long
 * before they are used. The tables of the grid forms are in shared memory (unpack_tables). */
#ifndef CHIMERE_KERNELS_CUDA_DEQUANT_CUH
#define CHIMERE_KERNELS_CUDA_DEQUANT_CUH

#include "kernels/cuda/repack.h"
#include "kernels/cuda/portable.cuh"

/* The tables of grid points, uploaded when the device is opened. */
struct grid_tables {
    const uint32_t *iq3s, *iq3xxs;      /* [512], [256] */
    const uint32_t *iq3s_signed;        /* [16 signs][512] */
    const uint2 *iq2xxs, *iq2xs, *iq2s; /* [256], [512], [1024] */
    uint32_t iq4[4], fp4[4];            /* 16 signed bytes */
    uint32_t ik4[4], ik3[2], ik2[1];    /* 16, 8, 4 signed bytes */
};

template <int F> struct form_traits {
    static constexpr bool has_offset =
        F == FORM_N4M || F == FORM_N5M || F == FORM_N4K || F == FORM_N5K || F == FORM_N2K;
    static constexpr bool has_halves = F == FORM_I8X || F == FORM_N6K || F == FORM_N3K ||
                                       F == FORM_N2K || F == FORM_G2XS || F == FORM_G2S ||
                                       F == FORM_X6K || F == FORM_X5K || F == FORM_X4K ||
                                       F == FORM_X3K || F == FORM_X2K;
    static constexpr int mid = F == FORM_N4    ? 8
                               : F == FORM_N5  ? 16
                               : F == FORM_N6K ? 32
                               : F == FORM_N3K ? 4
                               : F == FORM_O4  ? 15
                                               : 0; /* zero point of unsigned quants */
};

struct unpacked {
    uint32_t q[8];
    float scale[2], offset[2]; /* for elements 0 to 15, and 16 to 31 */
};

/* Negates the bytes whose sign bit is set. Grid magnitudes are at least 1, so adding 1 to
 * a complement never carries. */
__device__ __forceinline__ uint32_t signed_4(uint32_t magnitudes, uint32_t signs) {
    uint32_t one = (signs & 15u) * 0x00204081u & 0x01010101u;
    return (magnitudes ^ one * 255u) + one;
}
__device__ __forceinline__ uint32_t signs_of_7(uint32_t bits) {
    uint32_t b = bits & 127u;
    return b | (uint32_t)(__popc(b) & 1) << 7;
}

/* Looks up 4 quants of 4 bits (the lower 16 bits of x) in a table of 16 signed bytes. */
__device__ __forceinline__ uint32_t table_4(const uint32_t *t, uint32_t x) {
    uint32_t at = x & 0x7777u, upper = (x & 0x8888u) >> 1 | 0x3210u;
    return __byte_perm(__byte_perm(t[0], t[1], at), __byte_perm(t[2], t[3], at), upper);
}
/* Looks up the nibbles of 4 bytes: low nibbles to lo, high nibbles to hi. */
__device__ __forceinline__ void table_8(const uint32_t *t, uint32_t x, uint32_t &lo, uint32_t &hi) {
    uint32_t a = table_4(t, x & 0xffffu), b = table_4(t, x >> 16);
    lo = __byte_perm(a, b, 0x6420);
    hi = __byte_perm(a, b, 0x7531);
}

/* The scale of a table form that a byte of sub holds above its shift bit. */
static __host__ __device__ constexpr int table_scale(int form, uint32_t sub) {
    return form == FORM_X4S || form == FORM_X5S ? (int)(sub & 254u) - 127
                                                : (int)(sub >> 1 & 127u) - 64;
}

/* The tables of 32 and 64 values as cubic polynomials of u = q - centre, which are in f16 within 0.49 of the integers of
 * quant_ik_5 and quant_ik_6_integer for every code, so that rounding makes them exact. A lookup of 4 bytes in a table of
 * 32 takes 7 permutations, in one of 64 twice as many; the polynomial takes 11 operations on pairs. */
static __host__ __device__ constexpr bool is_cubic(int form) {
    return form == FORM_X6K || form == FORM_X5K || form == FORM_X5S;
}
template <int F> struct cubic {
    static constexpr bool is_6 = F == FORM_X6K;
    /* u^3, u^2, u: f16, twice. at_0: the value at the centre, which is an integer. */
    static constexpr uint32_t c3 = is_6 ? 0x14f914f9u : 0x20e020e0u,
                              c2 = is_6 ? 0xa4eba4ebu : 0x2a1f2a1fu,
                              c1 = is_6 ? 0x41b141b1u : 0x45c145c1u;
    static constexpr int centre = is_6 ? 26 : 17, at_0 = is_6 ? -19 : 5, shift = is_6 ? 1 : 2;
    /* 1,536 + n as f16, twice: a sum with it is rounded to an integer, whose low byte is that of the sum's bits */
    static __host__ __device__ constexpr uint32_t rounds(int n) {
        return (0x6600u + (uint32_t)n) * 0x10001u;
    }
    /* Of two codes, from = 1,024 + q as f16 (0x6400 + q): 1,536 plus the values. start: rounds(at_0 + the shift). */
    static __device__ __forceinline__ uint32_t values(uint32_t from, uint32_t start) {
        uint32_t u = halves_sub(from, (0x6400u + centre) * 0x10001u);
        return halves_fma(u, halves_fma(u, halves_fma(u, c3, c2), c1), start);
    }
    /* Of four codes: their values, as bytes. */
    static __device__ __forceinline__ uint32_t bytes(uint32_t q, uint32_t start) {
        uint32_t lo = values(__byte_perm(q, 0x64646464u, 0x4140), start);
        return __byte_perm(lo, values(__byte_perm(q, 0x64646464u, 0x4342), start), 0x6420);
    }
};

/* Four values of a trellis: x is the generator's state, before them and after them. */
template <bool ABS> __device__ __forceinline__ uint32_t trellis_4(uint32_t &x) {
    int v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x *= 0xcbac1fedu;
        v[i] = dot4((int)(x & 0x3f3f3f3fu), 0x01010101, -126);
        if (ABS) v[i] = v[i] < 0 ? -v[i] : v[i];
    }
    return __byte_perm(__byte_perm((uint32_t)v[0], (uint32_t)v[1], 0x0040),
                       __byte_perm((uint32_t)v[2], (uint32_t)v[3], 0x0040), 0x5410);
}
/* signed_4 of magnitudes that may be 0, below 127. */
__device__ __forceinline__ uint32_t signed_or_0(uint32_t magnitudes, uint32_t signs) {
    uint32_t one = (signs & 15u) * 0x00204081u & 0x01010101u;
    return ((magnitudes ^ one * 127u) + one) ^ one << 7;
}

static __host__ __device__ constexpr plane_sizes sizes_of(int form) {
    switch (form) {
#define X(F, codes, more, sub, top, top_units, type)                                               \
    case F: return plane_sizes{codes, more, sub, top, top_units};
        PLANE_FORMS(X)
#undef X
    }
    return plane_sizes{};
}
static __host__ __device__ constexpr int words_of(int bytes) { return bytes < 4 ? 1 : bytes / 4; }

/* Registers that hold a unit as loaded. */
static __host__ __device__ constexpr int raw_words(int form) {
    plane_sizes s = sizes_of(form);
    return s.codes / 4 + s.more / 4 + (s.sub > 0) + words_of(s.top);
}

template <int F> struct raw {
    static constexpr plane_sizes size = sizes_of(F);
    uint32_t code[words_of(size.codes)], more[words_of(size.more)], sub, top[words_of(size.top)];
};

/* Stores a unit in raw_words(F) words, an array that rows of different forms share. */
template <int F> __device__ __forceinline__ void raw_put(uint32_t *w, const raw<F> &r) {
    constexpr plane_sizes s = sizes_of(F);
#pragma unroll
    for (int i = 0; i < s.codes / 4; i++) *w++ = r.code[i];
#pragma unroll
    for (int i = 0; i < s.more / 4; i++) *w++ = r.more[i];
    if (s.sub) *w++ = r.sub;
#pragma unroll
    for (int i = 0; i < words_of(s.top); i++) *w++ = r.top[i];
}
template <int F> __device__ __forceinline__ raw<F> raw_get(const uint32_t *w) {
    constexpr plane_sizes s = sizes_of(F);
    raw<F> r = {};
#pragma unroll
    for (int i = 0; i < s.codes / 4; i++) r.code[i] = *w++;
#pragma unroll
    for (int i = 0; i < s.more / 4; i++) r.more[i] = *w++;
    if (s.sub) r.sub = *w++;
#pragma unroll
    for (int i = 0; i < words_of(s.top); i++) r.top[i] = *w++;
    return r;
}

/* Loads N bytes at p. STREAMED: from global memory, read once (evict first); else from any memory. */
template <int N, bool STREAMED>
__device__ __forceinline__ void load_field(uint32_t *to, const uint8_t *p) {
    if constexpr (N == 1) to[0] = *p;
    else if constexpr (N == 2) to[0] = *(const uint16_t *)p;
    else if constexpr (N == 4)
        to[0] = STREAMED ? __ldcs((const uint32_t *)p) : *(const uint32_t *)p;
    else if constexpr (N == 8) {
        uint2 a = STREAMED ? __ldcs((const uint2 *)p) : *(const uint2 *)p;
        to[0] = a.x, to[1] = a.y;
    } else if constexpr (N >= 16) {
        uint4 a = STREAMED ? __ldcs((const uint4 *)p) : *(const uint4 *)p;
        to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
        if constexpr (N == 32) load_field<16, STREAMED>(to + 4, p + 16);
    }
}

/* at: index of the unit in its plane, row * n_unit + unit. STREAMED: as in load_field. */
template <int F, bool STREAMED = true>
__device__ __forceinline__ void load_unit(raw<F> &r, const planes &w, int64_t at) {
    constexpr plane_sizes s = sizes_of(F);
    load_field<s.codes, STREAMED>(r.code, w.codes + at * s.codes);
    load_field<s.more, STREAMED>(r.more, w.more + at * s.more);
    load_field<s.sub, false>(&r.sub, w.sub + at * s.sub);
    load_field<s.top, false>(r.top, w.top + at / s.top_units * s.top);
}

/* Bits per quant of the forms whose bytes hold, in words 0 to 3, a whole quant in the low bits and upper bits of a
 * quant of words 4 to 7 above it; else 0. */
static __host__ __device__ constexpr int stacked_bits(int form) {
    switch (form) {
    case FORM_N4:
    case FORM_N4M:
    case FORM_N4K:
    case FORM_O4: return 4;
    case FORM_N5:
    case FORM_N5M:
    case FORM_X5K:
    case FORM_X5S:
    case FORM_N5K: return 5;
    case FORM_X6K:
    case FORM_N6K: return 6;
    default: return 0;
    }
}
/* Words i and i + 4 of such a unit. stacked_low: the quants. stacked_high: the quants times 2^(8 - bits), since their
 * upper bits are at the top of the bytes. */
template <int F> __device__ __forceinline__ uint32_t stacked_low(const raw<F> &c, int i) {
    return c.code[i] & ((1u << stacked_bits(F)) - 1u) * 0x01010101u;
}
template <int F> __device__ __forceinline__ uint32_t stacked_high(const raw<F> &c, int i) {
    constexpr int BITS = stacked_bits(F);
    uint32_t upper = c.code[i] & ((0xffu << BITS) & 0xffu) * 0x01010101u, at = 0;
    if constexpr (BITS == 5)
        at = (i < 2 ? c.more[0] << (3 - 2 * i) : c.more[0] >> (2 * i - 3)) & 0x18181818u;
    if constexpr (BITS == 6) at = (i % 2 ? c.more[i / 2] >> 2 : c.more[i / 2] << 2) & 0x3c3c3c3cu;
    return upper | at;
}

/* Whether IQ3_S is dequantized with a table that includes signs: 32 KB of shared memory, half the instructions. Chips
 * before sm_80 do not have the shared memory. */
#if defined CHIMERE_EMULATE || !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800
#define GRID_SIGNED 1
#else
#define GRID_SIGNED 0
#endif

/* Scales of a cubic form, and the starts of its halves (cubic::values). place: as in unpack. */
template <int F>
__device__ __forceinline__ void cubic_scales(const raw<F> &r, uint32_t place, float scale[2],
                                             uint32_t start[2]) {
    float d;
    memcpy(&d, &r.top[0], 4);
    if constexpr (F == FORM_X6K) d = to_float((uint16_t)r.top[0]);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t sub = r.sub >> (raw<F>::size.sub == 2 ? 8 * half : 0) & 255u, shift = sub & 1u;
        if constexpr (F == FORM_X6K) shift = r.top[0] >> (16u + 2u * place + (uint32_t)half) & 1u;
        scale[half] = d * (float)(F == FORM_X6K ? (int)(int8_t)sub : table_scale(F, sub));
        start[half] = cubic<F>::rounds(cubic<F>::at_0) + shift * (cubic<F>::shift * 0x10001u);
    }
}

/* KEEP_MID: quants stay unsigned, the zero point form_traits<F>::mid not subtracted; grid
 * tables are those of grid_load. place: the unit's position among the 8 that share top, for X6K; where lanes take
 * consecutive units, it is the lane's. */
template <int F, bool KEEP_MID = false>
__device__ __forceinline__ void unpack(const raw<F> &r, const grid_tables &g, unpacked &u,
                                       uint32_t place = threadIdx.x % 8u) {
    u.offset[0] = u.offset[1] = 0.0f;
    float d = to_float((uint16_t)r.top[0]);
    u.scale[0] = u.scale[1] = d;
    if constexpr (F == FORM_I8 || F == FORM_I8X) {
#pragma unroll
        for (int i = 0; i < 8; i++) u.q[i] = r.code[i];
        if constexpr (F == FORM_I8X) {
            memcpy(&u.scale[0], &r.top[0], 4);
            memcpy(&u.scale[1], &r.top[1], 4);
        }
    } else if constexpr (F == FORM_N4 || F == FORM_N4M || F == FORM_N5 || F == FORM_N5M ||
                         F == FORM_N4K || F == FORM_N5K || F == FORM_N6K) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u.q[i] = stacked_low<F>(r, i);
            u.q[i + 4] = stacked_high<F>(r, i) >> (8 - stacked_bits(F));
        }
        constexpr uint32_t mid = form_traits<F>::mid * 0x01010101u;
        if constexpr (mid != 0 && !KEEP_MID) {
#pragma unroll
            for (int i = 0; i < 8; i++) u.q[i] = sub4(u.q[i], mid);
        }
        if constexpr (F == FORM_N4M || F == FORM_N5M)
            u.offset[0] = u.offset[1] = -to_float((uint16_t)(r.top[0] >> 16));
        if constexpr (F == FORM_N4K || F == FORM_N5K) {
            u.scale[0] = u.scale[1] = d * (float)(r.sub & 255u);
            u.offset[0] = to_float((uint16_t)(r.top[0] >> 16)) * (float)(r.sub >> 8);
            u.offset[1] = u.offset[0];
        }
        if constexpr (F == FORM_N6K) {
            u.scale[0] = d * (float)(int8_t)(r.sub & 255u);
            u.scale[1] = d * (float)(int8_t)(r.sub >> 8);
        }
    } else if constexpr (F == FORM_O4) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u.q[i] = r.code[i] << 1 & 0x1e1e1e1eu;
            u.q[i + 4] = r.code[i] >> 3 & 0x1e1e1e1eu;
        }
        if constexpr (!KEEP_MID) {
#pragma unroll
            for (int i = 0; i < 8; i++) u.q[i] = sub4(u.q[i], 0x0f0f0f0fu);
        }
        u.scale[0] = u.scale[1] = d * (float)(1u + 2u * r.sub);
    } else if constexpr (F == FORM_N3K || F == FORM_N2K) {
#pragma unroll
        for (int i = 0; i < 8; i++) u.q[i] = r.code[i / 4] >> i % 4 * 2 & 0x03030303u;
        if constexpr (F == FORM_N3K) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                u.q[i] |= (r.more[0] >> i & 0x01010101u) << 2;
                if constexpr (!KEEP_MID) u.q[i] = sub4(u.q[i], 0x04040404u);
            }
            u.scale[0] = d * (float)(int8_t)(r.sub & 255u);
            u.scale[1] = d * (float)(int8_t)(r.sub >> 8);
        } else {
            float m = to_float((uint16_t)(r.top[0] >> 16));
            u.scale[0] = d * (float)(r.sub & 15u);
            u.scale[1] = d * (float)(r.sub >> 8 & 15u);
            u.offset[0] = m * (float)(r.sub >> 4 & 15u);
            u.offset[1] = m * (float)(r.sub >> 12 & 15u);
        }
    } else if constexpr (F == FORM_T4 || F == FORM_T4K || F == FORM_TFP4) {
        const uint32_t *t = F == FORM_TFP4 ? g.fp4 : g.iq4;
#pragma unroll
        for (int i = 0; i < 4; i++) table_8(t, r.code[i], u.q[i], u.q[i + 4]);
        if constexpr (F == FORM_T4K) u.scale[0] = u.scale[1] = d * (float)(int8_t)r.sub;
        if constexpr (F == FORM_TFP4) {
            uint32_t bits = r.sub < 2 ? 0x00200000u << r.sub : (r.sub - 1u) << 23;
            memcpy(&u.scale[0], &bits, 4);
            u.scale[1] = u.scale[0];
        }
    } else if constexpr (F == FORM_G3S || F == FORM_G3XXS) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t index = r.code[i / 4] >> i % 4 * 8 & 255u;
            if constexpr (F == FORM_G3S && KEEP_MID && GRID_SIGNED) {
                int s = 4 * i - 9;
                uint32_t signs = s < 0 ? r.more[0] << (-s & 31) : r.more[0] >> (s & 31);
                u.q[i] = g.iq3s[(signs & 0x1e00u) | (r.sub << (8 - i) & 0x100u) | index];
            } else if constexpr (F == FORM_G3S)
                u.q[i] = signed_4(g.iq3s[index | (r.sub >> i & 1u) << 8], r.more[0] >> 4 * i);
            else
                u.q[i] = signed_4(g.iq3xxs[index], signs_of_7(r.more[0] >> i / 2 * 7) >> i % 2 * 4);
        }
        u.scale[0] = F == FORM_G3S ? d * (float)(1u + 2u * (r.sub >> 8))
                                   : d * (0.5f + (float)(r.more[0] >> 28)) * 0.5f;
        u.scale[1] = u.scale[0];
    } else if constexpr (F == FORM_G2XXS || F == FORM_G2XS || F == FORM_G2S) {
#pragma unroll
        for (int o = 0; o < 4; o++) { /* groups of 8 */
            uint32_t index, signs;
            uint2 point;
            if constexpr (F == FORM_G2XXS) {
                index = r.code[0] >> 8 * o & 255u;
                signs = signs_of_7(r.more[0] >> 7 * o);
                point = g.iq2xxs[index];
            } else if constexpr (F == FORM_G2XS) {
                uint32_t both = r.code[o / 2] >> o % 2 * 16 & 0xffffu;
                signs = signs_of_7(both >> 9);
                point = g.iq2xs[both & 511u];
            } else {
                index = (r.code[0] >> 8 * o & 255u) | (r.sub >> 2 * o & 3u) << 8;
                signs = r.more[0] >> 8 * o & 255u;
                point = g.iq2s[index];
            }
            u.q[2 * o] = signed_4(point.x, signs);
            u.q[2 * o + 1] = signed_4(point.y, signs >> 4);
        }
        uint32_t s = F == FORM_G2XXS  ? r.more[0] >> 28 | r.more[0] >> 28 << 4
                     : F == FORM_G2XS ? r.sub
                                      : r.sub >> 8;
        u.scale[0] = d * (0.5f + (float)(s & 15u)) * 0.25f;
        u.scale[1] = d * (0.5f + (float)(s >> 4 & 15u)) * 0.25f;
    } else if constexpr (is_cubic(F)) {
        uint32_t start[2];
        cubic_scales<F>(r, place, u.scale, start);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u.q[i] = cubic<F>::bytes(stacked_low<F>(r, i), start[0]);
            u.q[i + 4] = cubic<F>::bytes(stacked_high<F>(r, i) >> (8 - stacked_bits(F)), start[1]);
        }
    } else if constexpr (F >= FORM_K4) {
        constexpr int WORDS = F == FORM_K4 ? 1 : 2; /* of an index */
        memcpy(&d, &r.top[0], 4);
        u.scale[0] = u.scale[1] = d * (float)(int8_t)r.sub;
#pragma unroll
        for (int k = 0; k < 8 / WORDS; k++) {
            uint32_t x = (r.code[k / 2] >> k % 2 * 16 & 0xffffu) + 4096u;
#pragma unroll
            for (int i = k * WORDS; i < (k + 1) * WORDS; i++) {
                u.q[i] = trellis_4<F == FORM_K3>(x);
                if constexpr (F == FORM_K3) u.q[i] = signed_or_0(u.q[i], r.more[0] >> 4 * i);
            }
        }
    } else if constexpr (F >= FORM_X4K) {
        memcpy(&d, &r.top[0], 4);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t sub = r.sub >> (raw<F>::size.sub == 2 ? 8 * half : 0) & 255u;
            u.scale[half] = d * (float)table_scale(F, sub);
            /* the shift is added to the table; no byte of it carries into the next */
            constexpr int WORDS = F <= FORM_X4S ? 4 : F <= FORM_X3S ? 2 : 1;
            const uint32_t *from = WORDS == 4 ? g.ik4 : WORDS == 2 ? g.ik3 : g.ik2;
            uint32_t t[WORDS], shift = (sub & 1u) * (WORDS == 1 ? 0x05050505u : 0x04040404u);
#pragma unroll
            for (int i = 0; i < WORDS; i++) t[i] = from[i] + shift;
#pragma unroll
            for (int j = 2 * half; j < 2 * half + 2; j++) {
                uint32_t at;
                if constexpr (WORDS == 4) {
                    at = r.code[j];
                    u.q[2 * j] = table_4(t, at & 0xffffu);
                    u.q[2 * j + 1] = table_4(t, at >> 16);
                } else {
                    at = r.code[j / 2] >> j % 2 * 2 & 0x33333333u;
                    if constexpr (WORDS == 2) at |= (r.more[0] >> j & 0x11111111u) << 2;
                    u.q[2 * j] = __byte_perm(t[0], t[WORDS - 1], at & 0xffffu);
                    u.q[2 * j + 1] = __byte_perm(t[0], t[WORDS - 1], at >> 16);
                }
            }
        }
    }
}

#endif
