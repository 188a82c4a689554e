/* mutate_net.c: changes for fuzz_net that keep lines whole: a line of a stream of events goes, is there twice, ends
 * otherwise, or another one comes before it. Half of the changes are libFuzzer's own. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

enum { HEAD = 2 }; /* bytes before the text, fuzz_net.c */

/* Replaces n_old bytes at `at` by s [n_new]; returns the new size, or the old one if there is no room. */
static size_t splice(uint8_t *data, size_t size, size_t max, size_t at, size_t n_old, const void *s,
                     size_t n_new) {
    if (size - n_old + n_new > max) return size;
    memmove(data + at + n_new, data + at + n_old, size - at - n_old);
    memcpy(data + at, s, n_new);
    return size - n_old + n_new;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    static const char *const lines[] = {
        "data: {}\n", "data\n", "data: [DONE]\n\n", "event: ping\n",       ": comment\n", "id: 7\n",
        "retry: 1\n", "\n",     "\xef\xbb\xbf\n",   "data:a\r\ndata:b\r\r"};
    uint8_t copy[256];
    if (seed % 2 || size <= HEAD) return LLVMFuzzerMutate(data, size, max);
    unsigned r = seed / 2;
    size_t at = HEAD + r / 16 % (size - HEAD);
    while (at > HEAD && data[at - 1] != '\n') at--;
    const uint8_t *end = memchr(data + at, '\n', size - at);
    size_t n = end ? (size_t)(end - (data + at)) + 1 : size - at;
    size_t n_copy = n < sizeof copy ? n : sizeof copy;
    memcpy(copy, data + at, n_copy);
    switch (r % 4) {
    case 0: return splice(data, size, max, at, n, "", 0);
    case 1: return splice(data, size, max, at, 0, copy, n_copy);
    case 2:
        return splice(data, size, max, at + n - 1, 1, r / 4 % 2 ? "\r" : "\r\n", r / 4 % 2 ? 1 : 2);
    default: break;
    }
    const char *line = lines[r / 4 % (sizeof lines / sizeof *lines)];
    return splice(data, size, max, at, 0, line, strlen(line));
}
