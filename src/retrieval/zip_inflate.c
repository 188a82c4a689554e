/* zip_inflate.c: DEFLATE as RFC 1951 defines it. A code is decoded by one look at a table of its longest length. */
#include <string.h>

#include "base/mem.h"
#include "retrieval/zip.h"

enum { MAX_BITS = 15, N_LENGTH = 288, N_DISTANCE = 32, END_OF_BLOCK = 256 };

struct bits {
    const unsigned char *p, *end;
    uint64_t hold;
    int n; /* bits in hold */
};

/* An entry is symbol << 4 | length; 0: no symbol has these bits. */
struct code {
    uint16_t table[1 << MAX_BITS];
    int n_bits;
};

struct inflate {
    struct bits in;
    struct code lengths, distances;
    unsigned char *out; /* view */
    size_t n, size;
};

static void fill(struct bits *b) {
    while (b->n <= 48 && b->p < b->end) {
        b->hold |= (uint64_t)*b->p++ << b->n;
        b->n += 8;
    }
}

/* Up to 16 bits, or -1 at the end of the input. */
static int32_t take(struct bits *b, int n) {
    fill(b);
    if (b->n < n) return -1;
    int32_t v = (int32_t)(b->hold & (((uint64_t)1 << n) - 1));
    b->hold >>= n;
    b->n -= n;
    return v;
}

static int32_t symbol(struct bits *b, const struct code *c) {
    fill(b);
    uint16_t entry = c->table[b->hold & (((uint64_t)1 << c->n_bits) - 1)];
    int n = entry & 15;
    if (!n || n > b->n) return -1;
    b->hold >>= n;
    b->n -= n;
    return entry >> 4;
}

static uint32_t reversed(uint32_t v, int n) {
    uint32_t r = 0;
    for (int i = 0; i < n; ++i) r = r << 1 | (v >> i & 1);
    return r;
}

/* False: more codes than bits allow. Fewer are allowed: what has no symbol is refused when it is met. */
static bool build(struct code *c, const unsigned char *length, int n) {
    uint32_t count[MAX_BITS + 1] = {0}, next[MAX_BITS + 2] = {0};
    c->n_bits = 1;
    for (int i = 0; i < n; ++i) {
        count[length[i]]++;
        if (length[i] > c->n_bits) c->n_bits = length[i];
    }
    count[0] = 0;
    for (int k = 1; k <= MAX_BITS; ++k) {
        next[k + 1] = (next[k] + count[k]) << 1;
        if (next[k] + count[k] > (uint32_t)1 << k) return false;
    }
    memset(c->table, 0, sizeof *c->table << c->n_bits);
    for (int i = 0; i < n; ++i) {
        int k = length[i];
        if (!k) continue;
        uint32_t step = (uint32_t)1 << k;
        for (uint32_t at = reversed(next[k]++, k); at < (uint32_t)1 << c->n_bits; at += step)
            c->table[at] = (uint16_t)(i << 4 | k);
    }
    return true;
}

static bool build_fixed(struct inflate *f) {
    unsigned char length[N_LENGTH];
    for (int i = 0; i < N_LENGTH; ++i) length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    if (!build(&f->lengths, length, N_LENGTH)) return false;
    memset(length, 5, N_DISTANCE);
    return build(&f->distances, length, N_DISTANCE);
}

/* The lengths of both codes, which are coded themselves. */
static bool build_dynamic(struct inflate *f) {
    static const unsigned char order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                            11, 4,  12, 3, 13, 2, 14, 1, 15};
    unsigned char length[N_LENGTH + N_DISTANCE] = {0};
    int32_t n_length = take(&f->in, 5), n_distance = take(&f->in, 5), n_code = take(&f->in, 4);
    if (n_length < 0 || n_distance < 0 || n_code < 0 || n_length > 29) return false;
    n_length += 257, n_distance += 1, n_code += 4;
    for (int i = 0; i < n_code; ++i) {
        int32_t bits = take(&f->in, 3);
        if (bits < 0) return false;
        length[order[i]] = (unsigned char)bits;
    }
    if (!build(&f->lengths, length, 19)) return false;
    memset(length, 0, 19);
    for (int i = 0; i < n_length + n_distance;) {
        int32_t s = symbol(&f->in, &f->lengths), times = 1, more;
        unsigned char value = (unsigned char)s;
        if (s < 0) return false;
        if (s >= 16) {
            static const struct { int bits, least; } repeats[3] = {{2, 3}, {3, 3}, {7, 11}};
            if ((s == 16 && !i) || (more = take(&f->in, repeats[s - 16].bits)) < 0) return false;
            times = repeats[s - 16].least + more;
            value = s == 16 ? length[i - 1] : 0;
        }
        if (i + times > n_length + n_distance) return false;
        while (times--) length[i++] = value;
    }
    return length[END_OF_BLOCK] && build(&f->lengths, length, n_length) &&
           build(&f->distances, length + n_length, n_distance);
}

static bool copy_match(struct inflate *f, int32_t s) {
    int32_t k = s - 257, length = k + 3, extra = 0;
    if (k > 28) return false;
    if (k == 28) {
        length = 258;
    } else if (k >= 8) {
        extra = k / 4 - 1;
        length = 3 + ((4 + k % 4) << extra);
    }
    int32_t more = take(&f->in, extra), d = symbol(&f->in, &f->distances), d_extra = 0;
    if (more < 0 || d < 0 || d > 29) return false;
    length += more;
    size_t distance = (size_t)d + 1;
    if (d >= 4) {
        d_extra = d / 2 - 1;
        distance = 1 + ((size_t)(2 + d % 2) << d_extra);
    }
    if ((more = take(&f->in, d_extra)) < 0) return false;
    distance += (size_t)more;
    if (distance > f->n || (size_t)length > f->size - f->n) return false;
    for (; length; --length, ++f->n) f->out[f->n] = f->out[f->n - distance];
    return true;
}

static bool read_coded(struct inflate *f) {
    for (;;) {
        int32_t s = symbol(&f->in, &f->lengths);
        if (s < 0) return false;
        if (s == END_OF_BLOCK) return true;
        if (s > END_OF_BLOCK) {
            if (!copy_match(f, s)) return false;
            continue;
        }
        if (f->n == f->size) return false;
        f->out[f->n++] = (unsigned char)s;
    }
}

static bool read_stored(struct inflate *f) {
    take(&f->in, f->in.n & 7);
    int32_t n = take(&f->in, 16), inverse = take(&f->in, 16);
    if (n < 0 || inverse < 0 || (n ^ inverse) != 0xffff || (size_t)n > f->size - f->n) return false;
    for (; n; --n) {
        int32_t byte = take(&f->in, 8);
        if (byte < 0) return false;
        f->out[f->n++] = (unsigned char)byte;
    }
    return true;
}

int zip_inflate(const unsigned char *in, size_t n_in, unsigned char *out, size_t n_out) {
    struct inflate *f = mem_zalloc(sizeof *f);
    if (!f) return CHIMERE_ENOMEM;
    f->in.p = in;
    f->in.end = in + n_in;
    f->out = out;
    f->size = n_out;
    bool good = true, last = false;
    while (good && !last) {
        int32_t head = take(&f->in, 3);
        last = head & 1;
        switch (head < 0 ? 3 : head >> 1) {
        case 0: good = read_stored(f); break;
        case 1: good = build_fixed(f) && read_coded(f); break;
        case 2: good = build_dynamic(f) && read_coded(f); break;
        default: good = false;
        }
    }
    good = good && f->n == n_out;
    mem_free(f);
    return good ? 0 : CHIMERE_EFORMAT;
}
