/* features.c: features.h by CPUID, because the compilers' __builtin_cpu_supports knows fewer names, and none where zig
 * builds for Windows. */
#include "base/os/features.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX, OSXSAVE = 27, YMM = 0x6, ZMM = 0xe6 };

/* clang-format off */
static const struct feature {
    const char *name;
    unsigned leaf, part, reg, bit, state; /* state: what the system saves, bits of XCR0 */
} table[] = {
    {"fma",         1, 0, ECX, 12, YMM},
    {"f16c",        1, 0, ECX, 29, YMM},
    {"avx2",        7, 0, EBX,  5, YMM},
    {"avx_vnni",    7, 1, EAX,  4, YMM},
    {"avx512f",     7, 0, EBX, 16, ZMM},
    {"avx512bw",    7, 0, EBX, 30, ZMM},
    {"avx512vl",    7, 0, EBX, 31, ZMM},
    {"avx512dq",    7, 0, EBX, 17, ZMM},
    {"avx512_vnni", 7, 0, ECX, 11, ZMM},
    {"avx512_bf16", 7, 1, EAX,  5, ZMM},
    {"avx512vbmi",  7, 0, ECX,  1, ZMM},
};
/* clang-format on */

static unsigned saved_state(void) {
    unsigned r[4], low, high;
    if (!__get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) || !(r[ECX] >> OSXSAVE & 1)) return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has(const struct feature *f) {
    unsigned r[4];
    return __get_cpuid_count(f->leaf, f->part, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) &&
           (r[f->reg] >> f->bit & 1) && (saved_state() & f->state) == f->state;
}

#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#else /* Apple's, which have both */
#define HWCAP_ASIMDHP 1
#define HWCAP_ASIMDDP 2
#define AT_HWCAP 0
#define getauxval(what) (HWCAP_ASIMDHP | HWCAP_ASIMDDP | (what))
#endif

static const struct feature {
    const char *name;
    unsigned long bit;
} table[] = {{"asimdhp", HWCAP_ASIMDHP}, {"asimddp", HWCAP_ASIMDDP}};

static bool has(const struct feature *f) { return (getauxval(AT_HWCAP) & f->bit) != 0; }

#else
static const struct feature { const char *name; } table[] = {{""}};

static bool has(const struct feature *f) { return !f->name; }
#endif

bool features_has(const char *name) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0) return has(&table[i]);
    return false;
}

const char *features_name(int i) {
    return i >= 0 && (size_t)i < sizeof table / sizeof *table ? table[i].name : NULL;
}
