/* mutate_gguf.c: changes for fuzz_gguf that keep the form of a GGUF file: a length, count, type or offset gets a value that
 * matters, or a key is there twice or not at all. Half of the changes are libFuzzer's own. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

enum { MOST = 256, HEAD = 24 };

struct walk {
    const uint8_t *p;
    size_t n, at;
    size_t field[MOST]; /* offsets of the integers */
    int width[MOST], n_field;
    size_t key[MOST + 1]; /* where the keys begin, and the last one ends */
    int n_key;
};

/* Reads an integer and remembers its place; 0 after the end. */
static uint64_t take(struct walk *w, int width) {
    uint64_t v = 0;
    if (w->at > w->n || w->n - w->at < (size_t)width) {
        w->at = w->n + 1;
        return 0;
    }
    memcpy(&v, w->p + w->at, (size_t)width);
    if (w->n_field < MOST) {
        w->field[w->n_field] = w->at;
        w->width[w->n_field++] = width;
    }
    w->at += (size_t)width;
    return v;
}

static void skip(struct walk *w, uint64_t n) {
    if (w->at > w->n || n > w->n - w->at) w->at = w->n + 1;
    else w->at += (size_t)n;
}

static void value(struct walk *w, uint64_t type) {
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
        skip(w, take(w, 8));
    } else if (type == 9) {
        uint64_t of = take(w, 4), n = take(w, 8);
        for (uint64_t i = 0; i < n && i < MOST && w->at <= w->n && of == 8; ++i)
            skip(w, take(w, 8));
        if (of != 8) skip(w, of < sizeof bytes && n < UINT32_MAX ? n * bytes[of] : UINT64_MAX);
    } else {
        skip(w, type < sizeof bytes ? bytes[type] : UINT64_MAX);
    }
}

static void walk_file(struct walk *w) {
    skip(w, 4);
    take(w, 4);
    uint64_t n_tensor = take(w, 8), n_key = take(w, 8);
    for (uint64_t i = 0; i < n_key && w->n_key < MOST && w->at <= w->n; ++i) {
        w->key[w->n_key] = w->at;
        skip(w, take(w, 8));
        value(w, take(w, 4));
        if (w->at <= w->n) w->key[++w->n_key] = w->at;
    }
    for (uint64_t i = 0; i < n_tensor && i < MOST && w->at <= w->n; ++i) {
        skip(w, take(w, 8));
        uint64_t n_dim = take(w, 4);
        for (uint64_t k = 0; k < n_dim && k < 8; ++k) take(w, 8);
        take(w, 4);
        take(w, 8);
    }
}

static void set_field(struct walk *w, uint8_t *data, unsigned r) {
    int i = (int)(r / 16 % (unsigned)w->n_field);
    uint64_t v = 0, left = w->n - w->field[i];
    memcpy(&v, data + w->field[i], (size_t)w->width[i]);
    const uint64_t values[16] = {
        0,     1, v + 1, v - 1,      left,      left - 1,   w->n,           v * 2,
        v ^ 1, 8, 9,     UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX / 2, (uint64_t)1 << 32};
    memcpy(data + w->field[i], &values[r % 16], (size_t)w->width[i]);
}

/* Writes one key a second time, or leaves it out; the count follows. */
static size_t change_keys(struct walk *w, uint8_t *data, size_t max, unsigned r) {
    int i = (int)(r / 2 % (unsigned)w->n_key);
    size_t from = w->key[i], n = w->key[i + 1] - from, rest = w->n - w->key[i + 1];
    uint64_t count;
    memcpy(&count, data + 16, 8);
    if (r % 2 && w->n + n <= max) {
        memmove(data + from + 2 * n, data + from + n, rest);
        memcpy(data + from + n, data + from, n);
        ++count;
        w->n += n;
    } else {
        memmove(data + from, data + from + n, rest);
        --count;
        w->n -= n;
    }
    memcpy(data + 16, &count, 8);
    return w->n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    struct walk w = {.p = data, .n = size};
    unsigned r = seed / 4;
    if (seed % 2 || size < HEAD) return LLVMFuzzerMutate(data, size, max);
    walk_file(&w);
    if (seed % 4 == 2 && w.n_key > 0) return change_keys(&w, data, max, r);
    if (!w.n_field) return LLVMFuzzerMutate(data, size, max);
    set_field(&w, data, r);
    return size;
}
